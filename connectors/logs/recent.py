"""The newest lines of a connector's input, for trying rules on them. The tasks and their positions are left alone."""

from __future__ import annotations

import asyncio
import os
import time
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from connectors.errors import ConfigInvalid, Fatal, Retriable
from connectors.logs.config import FROM_KAFKA, HOST, KAFKA_FORMAT, join_settings
from connectors.logs.inputs.kafka_input import list_partitions, start_consumer
from connectors.logs.inputs.kafka_records import read_record
from connectors.logs.network.options import INPUT, SCHEMES
from connectors.logs.rules.records import LineOrigin
from connectors.text_files.directory import has_readable_name, match_files
from connectors.text_files.joining import LineJoiner
from connectors.text_files.lines import LineSplitter, TextLines, byte_order, mark_length
from connectors.text_files.options import COMPRESSION, DIRECTORY, FILE, PATTERN, read_settings
from connectors.text_files.stream import BLOCK, CorruptInput, GzipStream, PlainStream, TextStream, open_file, read_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from connectors.text_files.joining import JoinSettings
    from connectors.text_files.options import FileReadSettings

#: Bytes of a file, before its end, that are looked at, and characters of lines that are kept.
_MOST_BYTES: Final = 16 * 1024 * 1024
#: Files of a directory that are looked at; those that changed last.
_MOST_FILES: Final = 100
_WAIT_MS: Final = 500

RecentLine = tuple[str, LineOrigin]

T = TypeVar("T")


class _NewestLines(Generic[T]):
    """The newest of any number of lines, each with what is known of it.

    Args:
        max_lines: the most lines; fewer where they are long.
    """

    def __init__(self, max_lines: int) -> None:
        self._max_lines = max_lines
        self._heap: list[tuple[int, int, str, T]] = []
        self._added = 0
        #: Characters of the lines.
        self.size = 0

    def add(self, timestamp: int, line: str, details: T) -> None:
        """Add a line; of equal ones the later is the newer."""
        self._added += 1
        heappush(self._heap, (timestamp, self._added, line, details))
        self.size += len(line)
        while len(self._heap) > self._max_lines or (self.size > _MOST_BYTES and len(self._heap) > 1):
            self.size -= len(heappop(self._heap)[2])

    def list_oldest_first(self) -> list[tuple[str, T]]:
        """The lines in order."""
        return [(line, details) for _, _, line, details in sorted(self._heap, key=lambda entry: entry[:2])]


async def read_recent(config: Mapping[str, Any], max_lines: int, seconds: float) -> list[RecentLine]:
    """The newest lines of the input, oldest first.

    Files are read where this runs; those of a directory that changed last count as the newest.

    Args:
        config: the connector's options.
        max_lines: lines.
        seconds: how long it may take; what was lines until then is given.

    Raises:
        ConfigInvalid: nothing can be read back from this input.
        Retriable: it can't be read now.
        Fatal: no file can be read.
    """
    if config[INPUT] in SCHEMES:
        raise ConfigInvalid(
            f"it takes lines from the network (input={config[INPUT]}), where nothing can be read back. Try the rules on its "
            'unknown lines ("source": "unknown"), or give lines'
        )
    if config[INPUT] == FROM_KAFKA:
        return await _read_topics(config, max_lines, seconds)
    return await asyncio.to_thread(_read_files, config, max_lines, seconds)


async def _read_topics(config: Mapping[str, Any], max_lines: int, seconds: float) -> list[RecentLine]:
    until = time.monotonic() + seconds
    partitions = [TopicPartition(topic, number) for topic, number in await list_partitions(config)]
    consumer = await start_consumer(config)
    lines: _NewestLines[LineOrigin] = _NewestLines(max_lines)
    try:
        first, last = await asyncio.gather(consumer.beginning_offsets(partitions), consumer.end_offsets(partitions))
        waiting = {partition for partition in partitions if last[partition] > first[partition]}
        consumer.assign(list(waiting))
        for partition in waiting:
            consumer.seek(partition, max(first[partition], last[partition] - max_lines))
        while waiting and time.monotonic() < until:
            for partition, records in (await consumer.getmany(timeout_ms=_WAIT_MS, max_records=max_lines)).items():
                for record in records:
                    default = LineOrigin(
                        config[HOST] or "",
                        f"{partition.topic}/{partition.partition}",
                        record.offset,
                        max(record.timestamp, 0),
                    )
                    try:
                        line, origin = read_record(
                            record.value or b"", default, recognise=config[KAFKA_FORMAT] == "auto"
                        )
                    except UnicodeDecodeError:
                        continue  # a bad record for the task; no rule gets it
                    lines.add(record.timestamp, line, origin)
            for partition in list(waiting):
                if await consumer.position(partition) >= last[partition]:
                    waiting.discard(partition)
                    consumer.pause(partition)
    except (KafkaError, OSError) as error:
        raise Retriable(f"the topics can't be read now: {error!r}") from error
    finally:
        await consumer.stop()
    return lines.list_oldest_first()


def _read_files(config: Mapping[str, Any], max_lines: int, seconds: float) -> list[RecentLine]:
    until = time.monotonic() + seconds
    settings, joining = read_settings(config), join_settings(config)
    paths = match_files(config[DIRECTORY], config[PATTERN]) if config[DIRECTORY] else [config[FILE]]
    newest_first = sorted(filter(has_readable_name, paths), key=_change_time, reverse=True)[:_MOST_FILES]
    lines: list[RecentLine] = []
    size = 0
    failure: Fatal | Retriable | None = None
    for path in newest_first:
        left = max_lines - len(lines)
        if left <= 0 or size >= _MOST_BYTES or time.monotonic() > until:
            break
        origin = LineOrigin(config[HOST] or os.uname().nodename, path, 0, int(time.time() * 1000))
        try:
            ending = _read_end(path, settings, config[COMPRESSION], joining, left, until)
        except (Fatal, Retriable) as error:  # the others may be enough
            failure = failure or error
            continue
        size += sum(len(line) for line, _ in ending)
        lines[:0] = [(line, LineOrigin(origin.host, path, position, origin.timestamp)) for line, position in ending]
    if failure is not None and not lines:
        raise failure
    return lines


def _change_time(path: str) -> float:
    try:
        return os.stat(path).st_mtime  # noqa: PTH116 - the path as users write it
    except OSError:
        return 0.0


def _read_end(
    path: str, settings: FileReadSettings, compression: str, joining: JoinSettings | None, max_lines: int, until: float
) -> Sequence[tuple[str, int]]:
    """The last lines of a file with their positions."""
    descriptor = open_file(path)
    if descriptor is None:
        return []
    try:
        head = os.pread(descriptor, 1024, 0)
        compressed = compression == "gzip" or (compression == "auto" and head.startswith(b"\x1f\x8b"))
        size = os.fstat(descriptor).st_size
        # A multiple of all widths of code units.
        start = 0 if compressed else max(0, size - _MOST_BYTES) // 4 * 4
        stream: TextStream = GzipStream(descriptor) if compressed else PlainStream(descriptor, start)
        lines: _NewestLines[int] = _NewestLines(max_lines)
        for block in _lines_of(stream, start, settings, until, head):
            for line, position in block:
                lines.add(0, line, position)
        result = lines.list_oldest_first()
        return _join_lines(result, joining) if joining is not None else result
    except OSError as error:
        raise read_error(path, error) from error
    finally:
        os.close(descriptor)


def _lines_of(
    stream: TextStream, start: int, settings: FileReadSettings, until: float, head: bytes
) -> Iterator[list[tuple[str, int]]]:
    """Whole lines with the position of each; a part of a line at ``start`` is left out."""
    splitter: LineSplitter | None = None
    partial = start > 0
    while time.monotonic() < until:
        try:
            data = stream.read(BLOCK)
        except CorruptInput:
            return
        if not data:
            return
        if splitter is None:
            skipped = 0 if start else mark_length(settings.encoding, data)
            splitter = LineSplitter(
                byte_order(settings.encoding, data if not start else head),
                position=start + skipped,
                limit=settings.line_limit,
                replace=True,
                cut=settings.split_long,
            )
            data = data[skipped:]
        before = splitter.position
        lines = _pair_positions(splitter.feed(data), before)
        if partial and lines:
            partial = False
            del lines[0]
        yield lines


def _pair_positions(lines: TextLines, before: int) -> list[tuple[str, int]]:
    starts = [before, *lines.ends]
    return list(zip(lines.strings, starts, strict=False))


def _join_lines(lines: Sequence[tuple[str, int]], joining: JoinSettings) -> list[tuple[str, int]]:
    """Events; their numbers stand for positions while they are joined."""
    joiner = LineJoiner(joining)
    events, ends = joiner.add([line for line, _ in lines], range(1, len(lines) + 1))
    last, last_ends = joiner.flush()
    starts = [0, *ends, *last_ends]
    return [(event, lines[start][1]) for event, start in zip([*events, *last], starts, strict=False)]
