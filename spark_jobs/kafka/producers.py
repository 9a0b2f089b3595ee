"""The reasons for which confluent-kafka's producers can't be used any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.spark.watchdog import limit

if TYPE_CHECKING:
    from confluent_kafka import KafkaException, Producer

#: Of a fatal state: such a producer refuses at once, without asking Kafka.
_PATIENCE_S = 1.0


def find_fatal_reason(producer: Producer, error: KafkaException) -> KafkaException:
    """Why a transactional producer can't be used any more, where ``error`` says no more than that; else ``error`` itself.

    Its background thread may hear of it (that another one has taken its transactional id, for instance) before anything is
    asked of it. ``produce`` then says "Local: Fatal error"; the calls of transactions tell the reason. Does not block.
    """
    from confluent_kafka import KafkaException

    from spark_jobs.kafka import kafka_errors

    if error.args[0].code() != kafka_errors.FATAL:
        return error
    try:
        with limit("abort_transaction of a producer that another one has followed", _PATIENCE_S):
            producer.abort_transaction(_PATIENCE_S)
    except KafkaException as abort_error:
        return abort_error
    return error
