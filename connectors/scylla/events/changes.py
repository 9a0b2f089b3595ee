"""Rows of a log put together to changes: what one write did to one row, with the images that belong to it.

A change is all rows of a stream with one ``cdc$time``. Scylla writes its old images first, then what was written, then the new
images; a row that was written twice in it (with two TTLs, say) has one old and one new image for both. Images find their row by
its identity (partition and clustering key; a static row has none of the latter), within the change only, and only between the
images that bound it by ``cdc$batch_seq_no``: never by the time at which rows arrive.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from connectors.scylla.model import END_OF_BATCH, OPERATION, POSTIMAGE, PREIMAGE, ROW_DELETE, SEQ, STREAM, TIME
from connectors.scylla.positions import OFFSET_STREAM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.api import Position
    from connectors.scylla.events.shape import LogShape
    from connectors.scylla.model import LogRow, StreamRun

#: What was written, the old image, the new image.
Joined = tuple["LogRow", "LogRow | None", "LogRow | None"]

#: ``cdc$operation`` of a partition delete.
_PARTITION_DELETE = 4


def identity_of(shape: LogShape) -> Callable[[LogRow], Any]:
    """A function that gives a row's identity, hashable, from a log row."""
    indexes = [log_column.value for log_column in (*shape.partition, *shape.clustering)]
    pick = itemgetter(*indexes) if len(indexes) > 1 else itemgetter(slice(indexes[0], indexes[0] + 1))

    def identity(row: LogRow) -> Any:
        values = pick(row)
        try:
            hash(values)
        except TypeError:  # a frozen collection in the key
            return repr(values)
        return values

    return identity


def join_images(
    rows: Sequence[LogRow], identity: Callable[[LogRow], Any], *, before: bool, after: bool
) -> list[Joined]:
    """The writes of one whole change in their order, with their images.

    A write has the nearest old image above it if no new image of the row and no deletion of it are in between, and the nearest
    new image below it if no old image of the row is in between.

    Args:
        rows: all rows of the change, by ``cdc$batch_seq_no``.
        identity: see ``identity_of``.
        before: whether old images are wanted.
        after: whether new images are wanted.
    """
    result: list[Joined] = []
    old: dict[Any, LogRow] = {}
    waiting: dict[Any, list[int]] = {}
    for row in rows:
        operation = row[OPERATION]
        if operation == PREIMAGE:
            key = identity(row)
            waiting.pop(key, None)
            if before:
                old[key] = row
        elif operation == POSTIMAGE:
            key = identity(row)
            old.pop(key, None)
            for index in waiting.pop(key, ()):
                result[index] = (result[index][0], result[index][1], row)
        elif operation <= _PARTITION_DELETE:
            key = identity(row)
            if operation in {ROW_DELETE, _PARTITION_DELETE}:
                result.append((row, old.pop(key, None), None))
            else:
                if after:
                    waiting.setdefault(key, []).append(len(result))
                result.append((row, old.get(key), None))
        else:
            result.append((row, None, None))
    return result


class LogChange(NamedTuple):
    """A whole change, and what its records say of where they come from."""

    partition: Position
    offset: Position
    rows: list[LogRow]
    skip: tuple[bytes, int] | None
    may_be_bad: bool = True


class ChangeCutter:
    """Cuts runs into whole changes; a change that may be incomplete is held back, one per stream.

    Memory: the rows of the held changes. Rows are not copied.
    """

    def __init__(self) -> None:
        self._pending: dict[bytes, LogChange] = {}

    def feed(self, run: StreamRun) -> list[LogChange]:
        """The changes that are whole now, in order."""
        whole: list[LogChange] = []
        if not run.rows:
            if run.last:
                self._flush_changes(run, whole)
            return whole
        partition, offset, all_rows, skip, last, bad = run
        stream = all_rows[0][STREAM]
        pending = self._pending.pop(stream, None)
        rows: list[LogRow] = []
        time = None
        if pending is not None:
            if all_rows[0][TIME] == pending.rows[0][TIME]:
                rows, time, bad = pending.rows, pending.rows[0][TIME], bad or pending.may_be_bad
            else:
                whole.append(pending)
        for row in all_rows:
            if row[TIME] != time:
                if rows:
                    whole.append(LogChange(partition, offset, rows, skip, bad))
                rows = []
                time = row[TIME]
            rows.append(row)
            if row[END_OF_BATCH]:
                whole.append(LogChange(partition, offset, rows, skip, bad))
                rows = []
                time = None
        if rows:
            change = LogChange(partition, offset, rows, skip, bad)
            if last:
                whole.append(change)
            else:
                self._pending[stream] = change
        return whole

    def reset(self) -> None:
        """Forget what is held back."""
        self._pending.clear()

    def _flush_changes(self, run: StreamRun, whole: list[LogChange]) -> None:
        named = stream_of(run)
        for stream in [named] if named is not None else list(self._pending):
            change = self._pending.get(stream)
            if change is not None and change.partition == run.partition:
                whole.append(self._pending.pop(stream))


def stream_of(run: StreamRun) -> bytes | None:
    """The stream of a run, from its rows or, if it has none, from its offset; None if that has none either."""
    if run.rows:
        stream: bytes = run.rows[0][STREAM]
        return stream
    stream_hex = run.offset.get(OFFSET_STREAM)
    return bytes.fromhex(stream_hex[2:]) if isinstance(stream_hex, str) else None


def is_delivered(row: LogRow, skip: tuple[bytes, int] | None) -> bool:
    """Whether the event of ``row`` was delivered before (``StreamRun.skip``)."""
    return skip is not None and row[TIME] == skip[0] and row[SEQ] <= skip[1]
