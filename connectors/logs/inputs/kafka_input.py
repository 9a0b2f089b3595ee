"""Topics as an input: a task reads its partitions with a consumer of its own, from the saved offsets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import IllegalStateError, KafkaError, OffsetOutOfRangeError

from connectors.api import BadRecord, Batch, Position, SourceRecord
from connectors.errors import Fatal, Retriable, Skippable
from connectors.logs.config import (
    AUTHORITIES,
    BROKERS,
    EVENT_START,
    EVENT_WAIT,
    KAFKA_FORMAT,
    KAFKA_START,
    MECHANISM,
    PASSWORD,
    PROTOCOL,
    TASK_ADDED,
    TOPICS,
    USER,
    join_settings,
    task_partitions,
)
from connectors.logs.heartbeats import Look
from connectors.logs.inputs.kafka_joining import PartitionJoiner
from connectors.logs.inputs.kafka_records import read_record
from connectors.logs.rows import DELIVERED, RowMaker
from connectors.logs.rules.records import LineOrigin
from connectors.text_files.options import BATCH_SIZE
from connectors.tls import client_context

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from connectors.api import TaskContext
    from connectors.logs.heartbeats import LogHeartbeats
    from connectors.text_files.joining import JoinSettings

TOPIC: Final = "topic"
PARTITION: Final = "partition"
OFFSET: Final = "offset"
#: In an offset where lines are joined: lines behind it that are delivered, see ``kafka_joining``.
JOINED: Final = "joined"
#: How long to wait for records before an empty batch, milliseconds.
_WAIT_MS: Final = 1000
#: Rows of one line that have order numbers of their own.
_LINE_UNIT: Final = 1 << 20


def client_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """How clients reach the cluster of ``kafka.topics``.

    Raises:
        Fatal: the authorities can't be read.
    """
    protocol = config[PROTOCOL]
    options: dict[str, Any] = {"bootstrap_servers": config[BROKERS], "security_protocol": protocol}
    if protocol.endswith("SSL"):
        try:
            options["ssl_context"] = client_context(cafile=config[AUTHORITIES])
        except OSError as error:
            raise Fatal(f"{AUTHORITIES}={config[AUTHORITIES]} can't be read: {error}") from error
    if protocol.startswith("SASL"):
        options["sasl_mechanism"] = config[MECHANISM]
        options["sasl_plain_username"] = config[USER]
        options["sasl_plain_password"] = config[PASSWORD].value
    return options


async def start_consumer(config: Mapping[str, Any]) -> AIOKafkaConsumer:
    """A consumer that is connected, without a group.

    Raises:
        Fatal: the authorities can't be read.
        Retriable: the cluster does not answer.
    """
    consumer = AIOKafkaConsumer(
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        **client_options(config),
    )
    try:
        await consumer.start()
    except (KafkaError, OSError) as error:
        await consumer.stop()
        raise _unavailable_error(config, error) from error
    return consumer


async def list_partitions(config: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The partitions of ``kafka.topics`` in order.

    Raises:
        Fatal: the authorities can't be read.
        Retriable: the cluster does not answer, or a topic does not exist.
    """
    admin = AIOKafkaAdminClient(**client_options(config))
    try:
        await admin.start()
        # Asking for one topic by its name would create it where the broker creates topics automatically.
        described = {topic["topic"]: topic["partitions"] for topic in await admin.describe_topics()}
    except (KafkaError, OSError) as error:
        raise _unavailable_error(config, error) from error
    finally:
        await admin.close()
    missing = [topic for topic in config[TOPICS] if topic not in described]
    if missing:
        raise Retriable(f"the topics {', '.join(missing)} do not exist at {', '.join(config[BROKERS])}; create them")
    return sorted((topic, partition["partition"]) for topic in set(config[TOPICS]) for partition in described[topic])


async def read_topics(
    context: TaskContext, rows: RowMaker, host: str, heartbeats: LogHeartbeats
) -> AsyncGenerator[Batch, None]:
    """Yield batches of rows until cancelled.

    Args:
        context: of the task.
        rows: makes records of lines.
        host: the host of lines whose record does not name it.
        heartbeats: learns which partitions answer.

    Raises:
        Fatal: records were deleted from a topic before they were read.
        Retriable: the cluster does not answer.
    """
    config = context.config
    partitions = {
        TopicPartition(topic, number): _KafkaPartitionReader(
            topic, number, rows, host, join_settings(config), recognise=config[KAFKA_FORMAT] == "auto"
        )
        for topic, number in task_partitions(config)
    }
    if not partitions:
        return
    wait_ms = min(_WAIT_MS, config[EVENT_WAIT] // 2) if config[EVENT_START] else _WAIT_MS
    added = task_partitions(config, TASK_ADDED)
    consumer = await start_consumer(config)
    try:
        positions = {
            partition: await _find_position(
                consumer, partition, reader, context, "earliest" if partition in added else config[KAFKA_START]
            )
            for partition, reader in partitions.items()
        }
        # No await between these: the consumer must not look for positions itself.
        consumer.assign(list(partitions))
        for partition, position in positions.items():
            consumer.seek(partition, position)
        for partition, reader in partitions.items():
            reader.start(positions[partition])
        # Where the start is the end of the topic, it is saved before the first record comes.
        yield Batch([], offsets=tuple((reader.partition, reader.offset) for reader in partitions.values()))
        while True:
            fetched = await consumer.getmany(timeout_ms=wait_ms, max_records=config[BATCH_SIZE])
            if not fetched:
                yield Batch([])
            for partition, records in fetched.items():
                heartbeats.add_lines(partition.topic)
                yield partitions[partition].make_batch(records)
            for partition, reader in partitions.items():
                if partition not in fetched and (batch := reader.flush(consumer.last_poll_timestamp(partition) or 0)):
                    yield batch
            if heartbeats.due:
                beats = heartbeats.beat(
                    Look(tp.topic, reader.partition, reader.offset, consumer.last_poll_timestamp(tp) or 0)
                    for tp, reader in partitions.items()
                )
                if beats is not None:
                    yield beats
    except OffsetOutOfRangeError as error:
        behind = ", ".join(f"{name}/{number}" for name, number in (error.args[0] if error.args else ()))
        raise Fatal(
            f"records of {behind or 'a partition'} were deleted before they were read. "
            "Raise the topic's retention; to continue with what is there, reset or alter the connector's offsets"
        ) from error
    except (KafkaError, OSError, IllegalStateError) as error:
        raise _unavailable_error(config, error) from error
    finally:
        await consumer.stop()


async def find_offsets(
    config: Mapping[str, Any], partitions: Sequence[TopicPartition], since_ms: int | None
) -> dict[TopicPartition, int]:
    """The first offset of each partition, or that of the first record since a time; partitions without one are left out.

    Raises:
        Retriable: the cluster does not answer.
    """
    consumer = await start_consumer(config)
    try:
        if since_ms is None:
            return dict(await consumer.beginning_offsets(list(partitions)))
        firsts = await consumer.offsets_for_times(dict.fromkeys(partitions, since_ms))
        return {partition: first.offset for partition, first in firsts.items() if first is not None}
    except (KafkaError, OSError) as error:
        raise _unavailable_error(config, error) from error
    finally:
        await consumer.stop()


async def read_partition_again(
    context: TaskContext,
    use_rows: Callable[[], RowMaker],
    host: str,
    partition: TopicPartition,
    start: Position,
    end: int,
) -> AsyncGenerator[Batch, None]:
    """Yield batches of the lines of a partition, without joining them.

    Args:
        context: of the task.
        use_rows: gives what makes records of lines; called before each batch is made.
        host: the host of lines whose record does not name it.
        partition: the partition.
        start: the offset to start at; records before the first that is there are left out.
        end: the offset behind the last record.

    Raises:
        Retriable: the cluster does not answer.
    """
    config = context.config
    reader = _KafkaPartitionReader(
        partition.topic, partition.partition, use_rows(), host, recognise=config[KAFKA_FORMAT] == "auto"
    )
    reader.resume(start)
    consumer = await start_consumer(config)
    try:
        first = (await consumer.beginning_offsets([partition]))[partition]
        position = max(start[OFFSET], first)
        consumer.assign([partition])
        consumer.seek(partition, position)
        reader.start(position)
        while position < end:
            fetched = await consumer.getmany(partition, timeout_ms=_WAIT_MS, max_records=config[BATCH_SIZE])
            position = await consumer.position(partition)
            records = [record for record in fetched.get(partition, ()) if record.offset < end]
            use_rows()
            yield reader.make_batch(records)
    except (KafkaError, OSError, IllegalStateError) as error:
        raise _unavailable_error(config, error) from error
    finally:
        await consumer.stop()


async def _find_position(
    consumer: AIOKafkaConsumer,
    partition: TopicPartition,
    reader: _KafkaPartitionReader,
    context: TaskContext,
    start: str,
) -> int:
    """The saved offset; without one the first or the last of the partition."""
    saved = context.offsets.get(reader.partition)
    if saved is not None and isinstance(saved.get(OFFSET), int):
        reader.resume(saved)
        return int(saved[OFFSET])
    ends = await (consumer.end_offsets if start == "latest" else consumer.beginning_offsets)([partition])
    return int(ends[partition])


def _unavailable_error(config: Mapping[str, Any], error: BaseException) -> Retriable:
    return Retriable(f"Kafka at {', '.join(config[BROKERS])} can't be read now: {error!r}")


class _KafkaPartitionReader:
    """One partition's way from records to batches."""

    def __init__(
        self,
        topic: str,
        number: int,
        rows: RowMaker,
        host: str,
        joining: JoinSettings | None = None,
        *,
        recognise: bool,
    ) -> None:
        # Answers of brokers are timed by the wall clock.
        self._joiner = None if joining is None else PartitionJoiner(joining, time.time)
        self.partition: Position = {TOPIC: topic, PARTITION: number}
        self._name = f"{topic}/{number}"
        self._rows = rows
        self._host = host
        self._recognise = recognise
        #: The offset behind all that was yielded.
        self.offset: Position = {OFFSET: 0}
        #: The offset of the record that was delivered in part, and how many of its rows were.
        self._partly = (-1, 0)
        #: Records behind the saved offset that are delivered, as text.
        self._listed = ""

    def resume(self, saved: Position) -> None:
        """Leave out what of the next record, and of those behind it, is delivered already.

        Raises:
            Fatal: the offset is not one of this input.
        """
        self._partly = (saved[OFFSET], int(saved.get(DELIVERED) or 0))
        self._listed = str(saved.get(JOINED) or "")
        if self._joiner is not None:
            try:
                self._joiner.resume(saved[OFFSET], self._listed)
            except ValueError as error:
                reason = f"the saved offset {saved} of {self._name} is not one of this connector: {error}; reset it"
                raise Fatal(reason) from error

    def start(self, position: int) -> None:
        """Records come from this offset on."""
        resumed = position == self._partly[0]
        self.offset = _make_offset(position, self._listed if resumed else "", self._partly[1] if resumed else 0)

    def make_batch(self, fetched: Sequence[ConsumerRecord[Any, Any]]) -> Batch:
        """The records of one partition as rows."""
        records: list[SourceRecord] = []
        bad: list[BadRecord] = []
        joiner = self._joiner
        for record in fetched:
            default = LineOrigin(self._host, self._name, record.offset, max(record.timestamp, 0))
            try:
                line, origin = read_record(record.value or b"", default, recognise=self._recognise)
            except UnicodeDecodeError as error:
                bad.append(self._refuse_record(record, error))
                continue
            if joiner is not None:
                joiner.add(record.offset, line, origin, record.timestamp)
                continue
            self._add_line(records, line, origin, record.offset, {OFFSET: record.offset + 1})
        if joiner is not None:
            joiner.complete_quiet()
            self._add_events(records, joiner)
        elif fetched:
            self.offset = {OFFSET: fetched[-1].offset + 1}
        return self._finish_batch(records, tuple(bad))

    def flush(self, answered_ms: int) -> Batch | None:
        """The events that are complete because nothing followed; None if there are none.

        Args:
            answered_ms: when the broker last answered for this partition, milliseconds since 1970.
        """
        if self._joiner is None:
            return None
        self._joiner.complete_quiet(answered_ms / 1000)
        records: list[SourceRecord] = []
        before = self.offset
        self._add_events(records, self._joiner)
        return self._finish_batch(records) if records or self.offset != before else None

    def _add_line(
        self, records: list[SourceRecord], line: str, origin: LineOrigin, start: int, after: Position
    ) -> None:
        delivered = self._partly[1] if start == self._partly[0] else 0
        name, number = f"{self._name}:{start}", start * _LINE_UNIT
        before: Position = {OFFSET: start} if self._joiner is None else self.offset
        self._rows.add_line(records, self.partition, before, after, line, origin, name, number, delivered)

    def _add_events(self, records: list[SourceRecord], joiner: PartitionJoiner) -> None:
        for event in joiner.take():
            after = _make_offset(event.after, event.listed)
            self._add_line(records, event.text, event.origin, event.start, after)
            self.offset = after
        position = joiner.position
        self.offset = _make_offset(position, joiner.listed, self._partly[1] if position == self._partly[0] else 0)

    def _refuse_record(self, record: ConsumerRecord[Any, Any], error: UnicodeDecodeError) -> BadRecord:
        value = record.value or b""
        after: Position = {OFFSET: record.offset + 1}
        if self._joiner is not None:
            self._joiner.pass_over(record.offset)
            after = self.offset
        reason = Skippable(f"{self._name}, offset {record.offset}: the value is not UTF-8: {error}")
        return BadRecord(self.partition, after, reason, value, self._rows.unknown_topic)

    def _finish_batch(self, records: list[SourceRecord], bad: tuple[BadRecord, ...] = ()) -> Batch:
        moved = not records or records[-1].source_offset != self.offset
        offsets = ((self.partition, self.offset),) if moved else ()
        return Batch(records, bad, offsets, receipt=self._rows.counts.report())


def _make_offset(position: int, listed: str = "", delivered: int = 0) -> Position:
    offset: Position = {OFFSET: position}
    if listed:
        offset[JOINED] = listed
    if delivered:
        offset[DELIVERED] = delivered
    return offset
