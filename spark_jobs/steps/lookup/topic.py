"""A table in a compacted topic, kept in memory and current by its own changes."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import Fatal, Retriable
from connectors.formats.order_number import source_number
from spark_jobs.spark.watchdog import limit
from spark_jobs.steps.lookup.documents import field_of
from spark_jobs.steps.lookup.model import RETRY, LookupCounts
from spark_jobs.steps.lookup.values import make_converter, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_jobs.steps.lookup.cache import Values
    from spark_jobs.steps.lookup.model import Spec

DEBEZIUM: Final = "debezium"
PLAIN: Final = "plain"
FORMS: Final = (DEBEZIUM, PLAIN)
_POLL: Final = 2000
_POLL_S: Final = 1.0
#: A client that hangs in its library is ended after so long, in seconds.
_HANGS_S: Final = 60.0


class TopicTable:
    """The rows of a topic by the lookup's key. Used by one thread at a time.

    Args:
        spec: the lookup; ``client`` is the configuration of a consumer.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.counts = LookupCounts()
        self._convert = [make_converter(column.kind) for column in spec.columns]
        self._consumer: Any = None
        #: Partition -> the next offset to be read.
        self._positions: dict[int, int] = {}
        #: The key of a record -> the lookup's key of its row: a record without a row names no columns.
        self._owners: dict[bytes, tuple[str, ...]] = {}
        #: The lookup's key -> the record's key, the values, and the change's place in the order of changes.
        self._rows: dict[tuple[str, ...], tuple[bytes, tuple[Any, ...], int]] = {}
        #: The place of the last TRUNCATE: what was written before it is gone, whatever partition it is read from, and when.
        self._emptied_at: float = -math.inf

    def values(self, keys: Sequence[tuple[Any, ...]]) -> list[Values]:
        """The values of each key; None for one that is not found. Blocks only where the policy for misses says ``retry``."""
        strings = [tuple(map(text_of, key)) for key in keys]
        if self.spec.miss == RETRY:
            deadline = time.monotonic() + self.spec.miss_timeout_s
            while time.monotonic() < deadline and any(key not in self._rows for key in strings):
                self._poll_records()
        rows = [self._rows.get(key) for key in strings]
        missed = rows.count(None)
        self.counts.misses += missed
        self.counts.hits += len(rows) - missed
        return [None if row is None else row[1] for row in rows]

    def read_to(self, ends: Mapping[int, int]) -> None:
        """Read until everything before ``ends`` (partition -> offset) is in the table. Blocks.

        Raises:
            Retriable: Kafka gives no records for the step's time limit.
            Fatal: a record can't be read, or there are more rows than ``topic.rows.max``.
        """
        begin = time.monotonic()
        self._assign_partitions(ends)
        last, heard = dict(self._positions), begin
        while any(self._positions.get(partition, 0) < end for partition, end in ends.items()):
            self._poll_records()
            if self._positions != last:
                last, heard = dict(self._positions), time.monotonic()
            elif time.monotonic() - heard > self.spec.login.timeout_s:
                raise Retriable(
                    f"step {self.spec.step}: topic {self.spec.topic} gives no records for {self.spec.login.timeout_s:.0f} s "
                    "(timeout.ms of the step)"
                )
        self.counts.seconds += time.monotonic() - begin

    def _assign_partitions(self, ends: Mapping[int, int]) -> None:
        from confluent_kafka import Consumer, TopicPartition

        if self._consumer is None:
            self._consumer = Consumer(dict(self.spec.client))
        new = sorted(partition for partition in ends if partition not in self._positions)
        if new:
            self._positions |= dict.fromkeys(new, 0)
            assigned = [TopicPartition(self.spec.topic, partition, 0) for partition in new]
            with limit(f"assignment of topic {self.spec.topic}", _HANGS_S):
                self._consumer.incremental_assign(assigned)

    def _poll_records(self) -> None:

        from spark_jobs.kafka import kafka_errors

        with limit(f"read of topic {self.spec.topic}", _HANGS_S):
            first = self._consumer.poll(_POLL_S)
            # Only what is there: it would wait for that many.
            messages = [] if first is None else [first, *self._consumer.consume(_POLL, 0)]
        self.counts.requests += 1
        for message in messages:
            error = message.error()
            if error is None:
                self._apply_record(message)
                self._positions[message.partition()] = message.offset() + 1
            elif error.code() == kafka_errors.PARTITION_EOF:
                # Control records at the end have no message: the position counts them.
                self._positions[message.partition()] = max(self._positions[message.partition()], message.offset())
            else:
                self.counts.errors += 1
                kind = Fatal if error.fatal() or "authoriz" in error.str().lower() else Retriable
                raise kind(f"step {self.spec.step}: topic {self.spec.topic}: {error.str()}")

    def _apply_record(self, message: Any) -> None:
        """Apply one record."""
        spec, value = self.spec, message.value()
        key: bytes = message.key() or b""
        where = f"step {spec.step}: the record at {spec.topic}-{message.partition()} offset {message.offset()}"
        row, order = None, 0
        if value is not None:
            try:
                row, number = change_of(value, spec.form)
            except msgspec.DecodeError as error:
                raise Fatal(f"{where} is not JSON: {error}. Lookups read topics with JSON values") from error
            if row is _NO_CHANGE:
                return
            order = int(message.timestamp()[1]) if number is None else number
            if row is _EMPTIED:
                self._empty_table(order)
                return
            if row is not None and not isinstance(row, dict):
                raise Fatal(f"{where} holds no row: correct topic.format ({spec.form})")
            if order < self._emptied_at:
                row = None
        owner = self._owners.pop(key, None) if key else None
        if owner is not None and self._rows[owner][0] == key:
            del self._rows[owner]
        if row is None:
            return
        parts = [field_of(row, name) for name in spec.on]
        if None in parts:
            missing = spec.on[parts.index(None)]
            if not any(field_of(row, name) is not None for name in spec.on):
                raise Fatal(
                    f"{where} has no field {missing}, which `on` names: correct on or topic.format ({spec.form})"
                )
            return  # a part of the key is null: nothing finds this row
        lookup_key = tuple(map(text_of, parts))
        values = spec.convert_values(self._convert, lookup_key, [field_of(row, name) for name in spec.fields])
        current_row = self._rows.get(lookup_key)
        if current_row is not None and current_row[0] != key:
            self._owners.pop(current_row[0], None)
        self._rows[lookup_key] = (key, values, order)
        if key:
            self._owners[key] = lookup_key
        if len(self._rows) > spec.rows_max:
            raise Fatal(
                f"step {spec.step}: topic {spec.topic} has more than {spec.rows_max} rows: raise topic.rows.max if the "
                "memory of every Python worker allows it, or look up in a database"
            )

    def _empty_table(self, order: int) -> None:
        """Remove the rows of all changes before a TRUNCATE."""
        self._emptied_at = max(self._emptied_at, order)
        for lookup_key, (key, _, row_order) in list(self._rows.items()):
            if row_order < order:
                del self._rows[lookup_key]
                self._owners.pop(key, None)

    def close(self) -> None:
        """Close the consumer."""
        if self._consumer is not None:
            self._consumer.close()


#: A message that changes no row.
_NO_CHANGE: Final = object()
#: A message that removes all rows.
_EMPTIED: Final = object()


def change_of(value: bytes, form: str) -> tuple[Any, int | None]:
    """The row after a change, and the change's order number; None where it says none. Pure.

    Of the row: None where it was deleted, ``_EMPTIED`` for a TRUNCATE, ``_NO_CHANGE`` for other messages without a row.

    Raises:
        msgspec.DecodeError: the value is not JSON.
    """
    document = msgspec.json.decode(value)
    if isinstance(document, dict) and document.keys() == {"schema", "payload"}:
        document = document["payload"]
    if form == PLAIN or document is None:
        return document, None
    if not isinstance(document, dict) or "op" not in document:
        return "", None
    operation, number, source = document["op"], None, document.get("source")
    if isinstance(source, dict):
        with suppress(ValueError, TypeError):  # its file has no number, for instance
            number = source_number(source)
    if operation == "d":
        return None, number
    if operation in ("c", "r", "u"):
        return document.get("after"), number
    return _EMPTIED if operation == "t" else _NO_CHANGE, number


def topic_ends(consumer: Any, topic: str, timeout_s: float) -> dict[int, int]:
    """Partition -> the offset after its last record that readers may see; 0 if it is empty, which no reader waits for. Blocks.

    Raises:
        Retriable: Kafka does not answer.
        Fatal: there is no such topic.
    """
    from confluent_kafka import KafkaException, TopicPartition

    try:
        with limit(f"ends of topic {topic}", _HANGS_S):
            metadata = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
            if metadata.error is not None or not metadata.partitions:
                raise Fatal(f"topic {topic}, which a lookup reads, does not exist or can't be read: {metadata.error}")
            ends = {}
            for partition in metadata.partitions:
                first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout_s)
                ends[partition] = end if end > first else 0
            return ends
    except KafkaException as error:
        raise Retriable(f"topic {topic}: {error.args[0].str()}") from error


def topic_id(admin: Any, topic: str, timeout_s: float) -> str:
    """The id of a topic, which one that is recreated does not keep; empty where brokers have none. Blocks.

    Raises:
        Retriable: Kafka does not answer.
    """
    from confluent_kafka import KafkaException, TopicCollection

    try:
        with limit(f"id of topic {topic}", _HANGS_S):
            asked = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)
            return str(asked[topic].result(timeout_s).topic_id or "")
    except KafkaException as error:
        raise Retriable(f"topic {topic}: {error.args[0].str()}") from error
    except TimeoutError as error:
        raise Retriable(f"topic {topic}: Kafka does not answer") from error
