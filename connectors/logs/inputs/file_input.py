"""Files as an input: the reader of the connector file, with rows instead of lines."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import msgspec

from connectors.logs.config import join_settings
from connectors.logs.direct_rows import FileLines
from connectors.logs.heartbeats import Look
from connectors.logs.rows import DELIVERED, RowMaker
from connectors.text_files.options import read_settings
from connectors.text_files.reader import (
    FILENAME,
    FINGERPRINT,
    POSITION,
    TextFileReader,
    read_file_once,
    read_files,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from connectors.api import Batch, Position, SourceRecord, TaskContext
    from connectors.logs.heartbeats import LogHeartbeats

#: Seconds for which a file that is read again must give nothing, to be read to its end.
_PATIENCE_S: Final = 1.0


async def read_log_files(
    context: TaskContext, rows: RowMaker, host: str, heartbeats: LogHeartbeats
) -> AsyncGenerator[Batch, None]:
    """Yield batches of rows until cancelled; raises as ``read_files``.

    Args:
        context: of the task.
        rows: makes records of lines.
        host: the host of all lines.
        heartbeats: learns which files can be read.
    """
    # A fingerprint is in every offset: it tells the lines of a file from those of another one of its name.
    options = msgspec.structs.replace(read_settings(context.config), tracking=True)
    maker = _FileRows(rows, host, heartbeats)
    for path in options.files:
        partition: Position = {FILENAME: path}
        saved = context.offsets.get(partition)
        if saved is not None and saved.get(DELIVERED):
            maker.resume(path, saved)
    source = read_files(
        context, options, maker.make_records, rows.unknown_topic, join_settings(context.config), maker.beat
    )
    async with aclosing(source) as batches:
        async for batch in batches:
            if rows.counts.hosts:
                batch.receipt = rows.counts.report()
            yield batch
            del batch  # not kept while the next one is waited for


async def read_file_again(
    context: TaskContext,
    use_rows: Callable[[], RowMaker],
    host: str,
    heartbeats: LogHeartbeats,
    path: str,
    start: Position,
    end: Position,
) -> AsyncGenerator[Batch, None]:
    """Yield batches of a file's lines from one offset to another, or as far as there are any; raises as ``read_files``.

    Args:
        context: of the task.
        use_rows: gives what makes records of lines; called before each batch is made.
        host: the host of all lines.
        heartbeats: learns of the lines.
        path: the file.
        start: the offset to start at; with a fingerprint a rotated file may be meant.
        end: the offset behind the last line.
    """
    options = msgspec.structs.replace(read_settings(context.config), tracking=True)
    rows = use_rows()
    maker = _FileRows(rows, host, heartbeats)
    if start.get(DELIVERED):
        maker.resume(path, start)
    last_records: list[SourceRecord] | None = None

    def make_records(
        partition: Position, before: Position, lines: list[str], offsets: Sequence[Position]
    ) -> list[SourceRecord]:
        nonlocal last_records
        use_rows()
        last = next((index for index, after in enumerate(offsets) if _is_behind(after, end)), None)
        if last is None:
            return maker.make_records(partition, before, lines, offsets)
        kept = last + 1 if offsets[last][POSITION] == end[POSITION] else last
        last_records = maker.make_records(partition, before, lines[:kept], offsets[:kept])
        return last_records

    reader = TextFileReader(
        context, options, path, make_records, rows.unknown_topic, join_settings(context.config), start
    )
    # A rotated file must be quiet for a while before the next one is read.
    async with aclosing(read_file_once(reader, options.rotation_wait + _PATIENCE_S)) as batches:
        async for batch in batches:
            ended = batch.records is last_records
            if ended:
                batch.offsets = ((reader.partition, {**end}),)
            batch.receipt = rows.counts.report()
            yield batch
            del batch
            if ended:
                return


def _is_behind(offset: Position, end: Position) -> bool:
    """Whether nothing behind this offset comes before the end."""
    return bool(offset[POSITION] >= end[POSITION] and offset[FINGERPRINT] == end[FINGERPRINT])


class _FileRows:
    """Makes the records of lines of files."""

    def __init__(self, rows: RowMaker, host: str, heartbeats: LogHeartbeats) -> None:
        self._rows = rows
        self._host = host
        self._heartbeats = heartbeats
        #: Path -> the saved offset of a line that was delivered in part.
        self._partly: dict[str, Position] = {}

    def resume(self, path: str, saved: Position) -> None:
        """Leave out what of the next line is delivered already."""
        self._partly[path] = saved

    def make_records(
        self, partition: Position, before: Position, lines: list[str], offsets: Sequence[Position]
    ) -> list[SourceRecord]:
        """The records of lines; ``before`` is the offset before the first of them."""
        rows, host, path = self._rows, self._host, partition[FILENAME]
        now = int(time.time() * 1000)
        delivered = self._delivered_count(path, before)
        records: list[SourceRecord] = []
        source = FileLines(host, path, partition, now)
        rows.add_file_lines(records, source, before, lines, offsets, delivered)
        self._heartbeats.add_lines(path)
        return records

    def beat(self, readers: Sequence[TextFileReader]) -> Batch | None:
        """The heartbeats that are due; None if there are none."""
        if not self._heartbeats.due:
            return None
        return self._heartbeats.beat(
            # The place of a line that was delivered in part must not be saved as that of a whole one.
            Look(reader.path, reader.partition, reader.offset, reader.seen_ms)
            for reader in readers
            if reader.is_expected and reader.path not in self._partly
        )

    def _delivered_count(self, path: str, before: Position) -> int:
        """How many records of the line at this offset were delivered before the task started."""
        saved = self._partly.pop(path, None)
        if saved is None or any(saved.get(name) != before[name] for name in (POSITION, FINGERPRINT)):
            return 0
        return int(saved[DELIVERED])
