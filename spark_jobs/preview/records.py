"""The newest records of a flow's topics, read without a consumer group, and as a frame like those of Spark's Kafka source."""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from connectors.errors import Retriable
from spark_jobs.kafka import clients, kafka_errors
from spark_jobs.kafka.lag import KafkaView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from connectors.options import Config
    from spark_jobs.kafka.ranges import ExistingTopic

#: Bytes of keys and values that are kept, at most.
MOST_BYTES: Final = 4 << 20
#: Offsets that are looked at in one pass over all partitions, at most.
_MOST_OFFSETS: Final = 20_000
#: A second pass looks at more offsets: the last ones may be markers of transactions, or compacted.
_SECOND_LOOK: Final = 20
_KAFKA_S: Final = 5.0
_POLL_S: Final = 0.1
_SILENT: Final = 2


@dataclass(frozen=True, slots=True, order=True)
class PreviewRecord:
    """A record of Kafka; ordered by time, then by position.

    Attributes:
        timestamp: milliseconds since 1970.
        topic, partition, offset: its position.
        key, value: as in Kafka.
        headers: names and values.
    """

    timestamp: int
    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


class Newest:
    """Keeps the newest records, within a number and a size. Pure but for its own state.

    Args:
        limit: how many.
        most_bytes: of keys and values together; one record is kept in any case.
    """

    def __init__(self, limit: int, most_bytes: int = MOST_BYTES) -> None:
        self._limit = limit
        self._most_bytes = most_bytes
        self._heap: list[tuple[tuple[int, str, int, int], PreviewRecord]] = []
        self._bytes = 0
        #: Whether records were left out because of their size.
        self.cut = False

    def add(self, record: PreviewRecord) -> None:
        """Take a record, and leave out the oldest ones that are too many."""
        heapq.heappush(self._heap, ((record.timestamp, record.topic, record.partition, record.offset), record))
        self._bytes += record.size
        while len(self._heap) > self._limit or (self._bytes > self._most_bytes and len(self._heap) > 1):
            self.cut |= len(self._heap) <= self._limit
            self._bytes -= heapq.heappop(self._heap)[1].size

    def records(self) -> list[PreviewRecord]:
        """The records in the order of their positions."""
        return sorted(
            (record for _, record in self._heap), key=lambda record: (record.topic, record.partition, record.offset)
        )

    def __len__(self) -> int:
        return len(self._heap)


def compute_windows(existing: Mapping[str, ExistingTopic], limit: int) -> dict[tuple[str, int], tuple[int, int]]:
    """The offsets of each partition to look at: (first, after the last one); partitions without records are left out. Pure."""
    partitions = sum(len(topic.end) for topic in existing.values())
    span = max(1, min(limit, _MOST_OFFSETS // max(1, partitions)))
    result = {}
    for name, topic in existing.items():
        for partition, end in topic.end.items():
            first = max(topic.first[partition], end - span)
            if first < end:
                result[name, partition] = (first, end)
    return result


def read_newest(config: Config, limit: int, deadline_s: float) -> tuple[list[PreviewRecord], list[str]]:
    """The newest records of the flow's topics, over all partitions by their timestamps. Blocks, ``deadline_s`` at most.

    Nothing is committed, and no group is joined.

    Returns:
        The records in the order of their positions, and notes on what is missing.

    Raises:
        Retriable: Kafka does not answer.
        ConfigInvalid: the flow may not read a topic.
    """
    until = time.monotonic() + deadline_s
    view = KafkaView(config, timeout_s=min(_KAFKA_S, deadline_s))
    try:
        names = view.topics_read()
        existing = view.existing(names)
    finally:
        view.close()
    notes = [f"topic {name} does not exist" for name in names if name not in existing]
    if not names:
        notes.append(f"no topic matches {config['source.topics.pattern']}")
    newest = Newest(limit)
    for factor in (1, _SECOND_LOOK):
        spans = compute_windows(existing, limit * factor)
        newest = Newest(limit)
        whole = _read_spans(config, spans, newest, until)
        if not whole:
            notes.append("the topics were not read to their ends in time; newer records may be missing")
        complete = all(existing[name].first[partition] == first for (name, partition), (first, _) in spans.items())
        if len(newest) >= limit or newest.cut or complete or not whole:
            break
    if newest.cut:
        notes.append(f"only {len(newest)} records were taken, because of their size ({MOST_BYTES >> 20} MiB at most)")
    return newest.records(), notes


def _read_spans(config: Config, spans: Mapping[tuple[str, int], tuple[int, int]], newest: Newest, until: float) -> bool:
    """Read the spans; returns whether all were read before ``until``."""
    if not spans:
        return True
    consumer = Consumer(
        {
            **clients.build_client_config(
                config,
                # Of rights alone: the offsets to read are given, so the group is not joined, and nothing is committed.
                group_id=config["kafka.group.id"],
                enable_auto_commit=False,
                enable_auto_offset_store=False,
                enable_partition_eof=True,
                isolation_level=config["source.isolation.level"],
                fetch_wait_max_ms=50,
            ),
            "log_level": _SILENT,
        }
    )
    unread = dict(spans)
    try:
        consumer.assign([TopicPartition(name, partition, first) for (name, partition), (first, _) in spans.items()])
        while unread and time.monotonic() < until:
            for message in consumer.consume(500, _POLL_S):
                _take_message(message, unread, newest, config)
    except KafkaException as error:
        raise Retriable(f"Kafka can't be read: {error.args[0].str()}") from error
    finally:
        consumer.close()
    return not unread


def _take_message(message: Any, unread: dict[tuple[str, int], tuple[int, int]], newest: Newest, config: Config) -> None:
    error = message.error()
    where = (message.topic(), message.partition())
    if error is not None:
        if error.code() == kafka_errors.PARTITION_EOF:
            unread.pop(where, None)
        elif error.fatal() or not error.retriable():
            raise Retriable(f"Kafka at {config['kafka.bootstrap.servers']} can't be read: {error.str()}")
        return
    if where not in unread:
        return  # written after the start
    offset = message.offset()
    newest.add(
        PreviewRecord(
            message.timestamp()[1], *where, offset, message.key(), message.value(), tuple(message.headers() or ())
        )
    )
    if offset + 1 >= unread[where][1]:
        del unread[where]


def to_frame(spark: SparkSession, records: Sequence[PreviewRecord]) -> DataFrame:
    """The records with the columns of ``contract.RAW_COLUMNS``, in one partition."""
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns: dict[str, pa.Array] = {
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
        "headers": pa.array(
            [
                [{"key": name, "value": value} for name, value in record.headers] if record.headers else None
                for record in records
            ],
            pa.list_(header),
        ),
        "topic": pa.array([record.topic for record in records], pa.string()),
        "partition": pa.array([record.partition for record in records], pa.int32()),
        "offset": pa.array([record.offset for record in records], pa.int64()),
        "timestamp": pa.array([record.timestamp * 1000 for record in records], pa.timestamp("us", tz="UTC")),
    }
    return spark.createDataFrame(pa.table(columns)).coalesce(1)
