"""The topics of a job: what they must be like, checked, and made where they don't exist. Runs on the driver; blocks."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its list of exports
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from connectors.errors import Fatal, Retriable
from spark_jobs.kafka import kafka_errors
from spark_jobs.kafka.topics import create_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the brokers describe it.

    Attributes:
        name: its name.
        id: its id: another one for a topic that was deleted and recreated.
        partitions: how many.
        config: its settings.
    """

    name: str
    id: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


class KafkaTopics:
    """An admin client. Its methods raise ``Retriable`` where no broker answers, ``Fatal`` where one refuses."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._admin = AdminClient(dict(client))

    def find(self, name: str) -> Topic | None:
        """The topic; None if it does not exist."""
        try:
            asked = self._admin.describe_topics(TopicCollection([name]), request_timeout=_TIMEOUT_S)
            described = asked[name].result(_TIMEOUT_S + 5)
            resource = ConfigResource(ResourceType.TOPIC, name)
            config = self._admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource].result(
                _TIMEOUT_S + 5
            )
        except TimeoutError as error:
            raise Retriable(f"topic {name} can't be looked up: Kafka does not answer") from error
        except KafkaException as error:
            if error.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, kafka_errors.UNKNOWN_TOPIC):
                return None
            raise _judge_error(f"topic {name} can't be looked up", error) from error
        return Topic(
            name,
            str(described.topic_id),
            len(described.partitions),
            {entry.name: str(entry.value) for entry in config.values()},
        )

    def require(self, name: str) -> Topic:
        """The topic, which must exist."""
        topic = self.find(name)
        if topic is None:
            raise Fatal(f"topic {name} does not exist")
        return topic

    def make(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> Topic:
        """Make a topic unless it is there, and wait until it can be used."""
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replication, config=dict(config))
        try:
            create_topic(self._admin, topic, _TIMEOUT_S)
        except KafkaException as error:
            raise _judge_error(f"topic {name} can't be made", error) from error
        present_topic = self.find(name)
        if present_topic is None:
            raise Retriable(f"topic {name} was created, and a broker does not know it")
        return present_topic

    def delete(self, name: str) -> None:
        """Delete a topic and wait until it is gone."""
        try:
            asked = self._admin.delete_topics([name], operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S)
            asked[name].result(_TIMEOUT_S + 5)
        except TimeoutError as error:
            raise Retriable(f"topic {name} can't be deleted: Kafka does not answer") from error
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise _judge_error(f"topic {name} can't be deleted", error) from error
        deadline = time.monotonic() + _TIMEOUT_S
        while self.find(name) is not None:
            if time.monotonic() > deadline:
                raise Retriable(f"topic {name} is still there {_TIMEOUT_S:.0f} s after it was deleted")
            time.sleep(0.05)


def _judge_error(message: str, error: KafkaException) -> Exception:
    problem: KafkaError = error.args[0]
    lasting = problem.code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.TOPIC_DELETION_DISABLED,
    )
    return (Fatal if lasting else Retriable)(f"{message}: {problem}")


def changelog_settings(*, record_max_bytes: int, min_lag_ms: int, delete_retention_ms: int) -> dict[str, str]:
    """The settings with which a changelog is made."""
    return {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": str(min_lag_ms),
        "delete.retention.ms": str(delete_retention_ms),
        "max.message.bytes": str(record_max_bytes + 4096),
        # Small segments, so that compaction reaches what is new within minutes and a restore reads little twice.
        "segment.bytes": str(64 << 20),
        "segment.ms": "3600000",
        "min.cleanable.dirty.ratio": "0.3",
    }


def output_settings(*, record_max_bytes: int) -> dict[str, str]:
    """The settings with which an output topic is created: records are kept forever, see ``output_warnings``."""
    return {"max.message.bytes": str(record_max_bytes + 4096), "retention.ms": "-1"}


def output_warnings(topic: Topic) -> list[str]:
    """Return warnings about an output topic's settings with unexpected effects.

    Events have the time of the source's write; those of a snapshot have old ones, and Kafka measures retention by them.
    """
    retention = int(topic.config.get("retention.ms", "-1") or -1)
    if (
        "delete" in topic.config.get("cleanup.policy", "")
        and retention >= 0
        and (topic.config.get("message.timestamp.type", "CreateTime") == "CreateTime")
    ):
        return [
            (
                f"topic {topic.name} has retention.ms={retention}, measured by the events' timestamps, which are the source's "
                "write times: events of older writes (snapshots) are deleted soon after they are written. Set "
                "retention.ms=-1, cleanup.policy=compact, or message.timestamp.type=LogAppendTime"
            )
        ]
    return []


def changelog_complaints(topic: Topic, *, partitions: int, buckets: int = 0, record_max_bytes: int) -> list[str]:
    """Why a topic can't be the changelog of an input with ``partitions``, or of ``buckets`` by key; empty: it can."""
    problems = []
    if buckets and topic.partitions != buckets:
        problems.append(
            f"materializer.buckets is {buckets}, but the changelog {topic.name} has {topic.partitions} partitions: the state "
            "was made with another number of buckets. Set it back, or make a savepoint (millrace job savepoint FILE --to "
            "DIR) and start the job from it with source.savepoint=DIR, another materializer.changelog.topic, a new "
            "checkpoint.location and a new state.dir"
        )
    elif not buckets and topic.partitions != partitions:
        problems.append(
            f"the changelog {topic.name} has {topic.partitions} partitions, the input {partitions}: they "
            "must be the same, as each input partition has its state in the changelog partition of the same "
            "number. If the input was given partitions, divide the state by key with a savepoint and materializer.buckets "
            "(docs/jobs/savepoints.md), or run millrace job rebuild with --state"
        )
    policy = topic.config.get("cleanup.policy", "")
    if policy != "compact":
        problems.append(
            f"the changelog {topic.name} has cleanup.policy={policy}: state would be deleted; set it to compact"
        )
    problems += size_complaints(topic, record_max_bytes)
    return problems


def heartbeat_complaints(topic: Topic) -> list[str]:
    """Whether an output topic takes heartbeats."""
    if "compact" not in topic.config.get("cleanup.policy", ""):
        return []
    complaint = (
        f"the output topic {topic.name} is compacted and refuses heartbeats, which have no key: set cleanup.policy=delete for "
        "it, or materializer.output.heartbeats=false"
    )
    return [complaint]


def size_complaints(topic: Topic, record_max_bytes: int) -> list[str]:
    """Whether a topic takes records as large as the job may write."""
    max_bytes = int(topic.config.get("max.message.bytes", "0") or 0)
    if 0 < max_bytes < record_max_bytes:
        return [
            (
                f"topic {topic.name} has max.message.bytes={max_bytes}, less than "
                f"materializer.record.max.bytes={record_max_bytes}; raise the one or lower the other"
            )
        ]
    return []
