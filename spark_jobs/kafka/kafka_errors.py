"""The codes of errors that librdkafka raises itself; confluent_kafka has no public names for them."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

ALL_BROKERS_DOWN: Final = KafkaError._ALL_BROKERS_DOWN
AUTHENTICATION: Final = KafkaError._AUTHENTICATION
AUTO_OFFSET_RESET: Final = KafkaError._AUTO_OFFSET_RESET
FATAL: Final = KafkaError._FATAL
FENCED: Final = KafkaError._FENCED
PARTITION_EOF: Final = KafkaError._PARTITION_EOF
PURGE_INFLIGHT: Final = KafkaError._PURGE_INFLIGHT
PURGE_QUEUE: Final = KafkaError._PURGE_QUEUE
STATE: Final = KafkaError._STATE
TIMED_OUT: Final = KafkaError._TIMED_OUT
TRANSPORT: Final = KafkaError._TRANSPORT
UNKNOWN_PARTITION: Final = KafkaError._UNKNOWN_PARTITION
UNKNOWN_TOPIC: Final = KafkaError._UNKNOWN_TOPIC
