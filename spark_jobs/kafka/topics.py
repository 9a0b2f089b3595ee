"""Creation of topics by Spark jobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from connectors.errors import Retriable

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it is there, and documented

#: Seconds between two looks whether the new topic is known.
_LOOK_AGAIN_S: Final = 0.05


def create_topic(admin: AdminClient, topic: NewTopic, timeout_s: float) -> None:
    """Create a topic unless it exists, and wait until brokers show it with its partitions.

    Blocks, for at most about twice ``timeout_s`` seconds.

    Raises:
        KafkaException: the brokers refused.
        Retriable: Kafka does not answer, or the topic was created and is not visible in time.
    """
    from confluent_kafka import KafkaError, KafkaException, TopicCollection

    from spark_jobs.kafka import kafka_errors

    name = topic.topic
    try:
        admin.create_topics([topic], request_timeout=timeout_s)[name].result(timeout_s + 5)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    except TimeoutError as error:
        raise Retriable(f"topic {name} can't be made: Kafka does not answer") from error
    unknown = (KafkaError.UNKNOWN_TOPIC_OR_PART, kafka_errors.UNKNOWN_TOPIC)
    until = time.monotonic() + timeout_s
    while True:
        try:
            asked = admin.describe_topics(TopicCollection([name]), request_timeout=timeout_s)
            if asked[name].result(timeout_s + 5).partitions:
                return
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return  # it was created; this user may not look
            if error.args[0].code() not in unknown and not error.args[0].retriable():
                raise
        except TimeoutError as error:
            raise Retriable(f"topic {name} was created, and Kafka does not answer whether brokers show it") from error
        if time.monotonic() > until:
            raise Retriable(
                f"topic {name} was created, but brokers don't show it after {timeout_s:g} s: check whether they "
                "keep up with the controller"
            )
        time.sleep(_LOOK_AGAIN_S)
