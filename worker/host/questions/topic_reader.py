"""The newest records of a topic for the console: read without a consumer group, decoded, filtered, bounded."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from connectors.errors import ConfigInvalid, MillraceError, Retriable
from offsets.aiokafka_internals import fetch_all_metadata
from worker.host.plan import consumer_arguments, converter_config
from worker.host.questions.topic_records import MatchingRecord, Reading, merge_newest, partition_cursor, show_record
from worker.transforms.expressions.cel import compile_cel
from worker.transforms.expressions.syntax import ExpressionInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiokafka import ConsumerRecord

    from worker.plugins.registry import PluginRegistry

#: Records that are looked at for one answer, and bytes of them.
MOST_SCANNED: Final = 20_000
MOST_BYTES: Final = 32 * 1024 * 1024
#: Bytes of JSON in one answer.
MOST_ANSWER: Final = 8 * 1024 * 1024
_FETCH_MS: Final = 250
_AT_ONCE: Final = 500
_GROWTH: Final = 4
_FIRST: Final = 100


class TopicRequest(msgspec.Struct):
    """A question about a topic.

    Attributes:
        topic: the topic.
        limit: records in the answer.
        before: partition to the offset before which to read; those that are missing are read from their end.
        key: a string that a key must contain; empty for any.
        where: a condition in CEL; empty for none.
        form: ``auto``: as the connector's converters say, else as it looks; or ``json``, ``text``, ``bytes``.
        masked: hide keys, values and headers.
        seconds: for the answer.
    """

    topic: str
    limit: int
    before: dict[int, int] = {}
    key: str = ""
    where: str = ""
    form: str = "auto"
    masked: bool = True
    seconds: float = 8.0


async def read_topic(
    config: Mapping[str, str], worker: Mapping[str, str], plugins: PluginRegistry, request: bytes
) -> dict[str, Any]:
    """The answer to ``worker.protocol.ReadTopic``.

    Args:
        config: properties of the connector that has written the topic, resolved; empty if none is known.
        worker: the worker's.
        plugins: finds converters.
        request: a ``TopicRequest`` as JSON.

    Raises:
        ConfigInvalid: the condition is wrong.
        LookupError: there is no such topic.
        Retriable: Kafka does not answer.
    """
    asked = msgspec.json.decode(request, type=TopicRequest)
    try:
        where = compile_cel(asked.where) if asked.where else None
    except ExpressionInvalid as error:
        raise ConfigInvalid(f"where: {error}") from None
    converters = []
    problems = []
    for option, is_key in (("key.converter", True), ("value.converter", False)):
        try:
            name, options = converter_config(config, worker, option)
            converters.append(plugins.converter(name, options.get("plugin.version"))(options, is_key=is_key))
        except MillraceError as error:
            converters.append(None)
            problems.append(f"{option}: {error}")
    reading = Reading(asked.topic, asked.form, converters[0], converters[1], key=asked.key, where=where)
    try:
        return {**await _read_topic(asked, reading, consumer_arguments(config, worker)), "problems": problems}
    finally:
        for converter in converters:
            if converter is not None:
                await converter.close()


async def _read_topic(asked: TopicRequest, reading: Reading, client: Mapping[str, Any]) -> dict[str, Any]:
    consumer = AIOKafkaConsumer(
        **{
            **client,
            "group_id": None,
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
            "isolation_level": "read_committed",
        }
    )
    try:
        await consumer.start()
        # All topics: asking for one by its name could create it.
        cluster = await fetch_all_metadata(consumer)
        partitions = [
            TopicPartition(asked.topic, number) for number in sorted(cluster.partitions_for_topic(asked.topic) or ())
        ]
        if not partitions:
            raise LookupError(f"There is no topic {asked.topic}")
        first, last = await asyncio.gather(consumer.beginning_offsets(partitions), consumer.end_offsets(partitions))
        bounds = {partition.partition: (first[partition], last[partition]) for partition in partitions}
        return await _read_newest(asked, reading, consumer, bounds)
    except (KafkaError, OSError) as error:
        raise Retriable(f"topic {asked.topic} can't be read now: {error!r}") from error
    finally:
        await consumer.stop()


async def _read_newest(
    asked: TopicRequest, reading: Reading, consumer: AIOKafkaConsumer, bounds: Mapping[int, tuple[int, int]]
) -> dict[str, Any]:
    """Read windows backwards from the ends of partitions, larger and larger, until enough records match or a limit is hit."""
    deadline = time.monotonic() + asked.seconds
    begin = {number: max(first, 0) for number, (first, _) in bounds.items()}
    high = {
        number: max(begin[number], min(asked.before.get(number, last), last)) for number, (_, last) in bounds.items()
    }
    start = dict(high)
    matches: dict[int, list[MatchingRecord]] = {number: [] for number in high}
    span = max(asked.limit, _FIRST)
    scanned = size = 0
    stopped = ""
    while not stopped and any(high[number] > begin[number] for number in high):
        low = {number: max(begin[number], high[number] - span) for number in high if high[number] > begin[number]}
        window = await _read_window(consumer, asked.topic, low, high, MOST_BYTES - size, deadline)
        if window is None:
            if span > 1 and not scanned:
                span = max(1, span // 16)
                if time.monotonic() < deadline:
                    continue
            stopped = "size" if time.monotonic() < deadline else "time"
            break
        for number, records in window.items():
            scanned += len(records)
            size += sum(len(record.key or b"") + len(record.value or b"") for record in records)
            # The newest first, as they are shown.
            for record in reversed(records):
                matching = await reading.read(record)
                if matching is not None:
                    matches[number].append(matching)
                await asyncio.sleep(0)  # a host has other work
        high.update(low)
        if sum(map(len, matches.values())) >= asked.limit:
            break
        if scanned >= MOST_SCANNED or size >= MOST_BYTES // 2:
            stopped = "size"
        elif time.monotonic() >= deadline:
            stopped = "time"
        span = min(span * _GROWTH, MOST_SCANNED // max(1, len(high)))
    records, left = merge_newest(matches, asked.limit)
    answer = _show_records(records, masked=asked.masked)
    cut = len(answer) < len(records)
    cursor = partition_cursor(start, high, matches, records[: len(answer)])
    has_more = cut or left or any(cursor[number] > begin[number] for number in cursor)
    return {
        "topic": asked.topic,
        "records": answer,
        "before": cursor if has_more else None,
        "partitions": {number: {"first": first, "end": last} for number, (first, last) in bounds.items()},
        "scanned": scanned,
        "bytes": size,
        "stopped": stopped,
        "errors": reading.failures,
        "error": reading.failure,
    }


def _show_records(records: Sequence[MatchingRecord], *, masked: bool) -> list[dict[str, Any]]:
    """The first records in the form of the answer: as many as fit into ``MOST_ANSWER`` bytes, but at least one."""
    answer: list[dict[str, Any]] = []
    room = MOST_ANSWER
    for matching in records:
        entry = show_record(matching, masked=masked)
        room -= len(orjson.dumps(entry, default=str))
        if room < 0 and answer:
            break
        answer.append(entry)
    return answer


async def _read_window(
    consumer: AIOKafkaConsumer,
    topic: str,
    low: Mapping[int, int],
    high: Mapping[int, int],
    most_bytes: int,
    deadline: float,
) -> dict[int, list[ConsumerRecord]] | None:
    """The records of each partition from ``low`` up to ``high``; None if they are too large, or don't come in time."""
    sources = {TopicPartition(topic, number): number for number in low}
    records: dict[int, list[ConsumerRecord]] = {number: [] for number in low}
    consumer.assign(list(sources))
    for source, number in sources.items():
        consumer.seek(source, low[number])
    open_sources = set(sources)
    size = 0
    while open_sources:
        if time.monotonic() >= deadline:
            return None
        batches = await consumer.getmany(*open_sources, timeout_ms=_FETCH_MS, max_records=_AT_ONCE)
        for source, batch in batches.items():
            number = sources[source]
            kept = [record for record in batch if record.offset < high[number]]
            size += sum(len(record.key or b"") + len(record.value or b"") for record in kept)
            records[number] += kept
        if size > most_bytes:
            return None
        for source in list(open_sources):
            if await consumer.position(source) >= high[sources[source]]:
                open_sources.discard(source)
                consumer.pause(source)
    return records
