"""Partition-level changes: the partition's record, and the effect of a change on its rows.

The record is written with what is still to be visited (``rowstate.OpenFanout``) whenever a transaction is full, so that the
work continues where it stopped, whoever continues it. While it is open the rows from ``OpenFanout.start`` on are as they were
before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import astuple

from spark_jobs.materializer.engine.keys import end_of_prefix
from spark_jobs.materializer.engine.merge import NO_LIMIT, Limit, add_range, hide_cells, merge_row, range_at
from spark_jobs.materializer.engine.rowstate import MergedPartition, OpenFanout, is_empty, lapse_row, new_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spark_jobs.materializer.decoding.bind import Binding
    from spark_jobs.materializer.events.images import ImageView


def find_covering_deletion(state: MergedPartition | None, key: bytes) -> Limit:
    """The deletion (partition's or range's) that covers a row, by the clustering part of its key."""
    if state is None:
        return NO_LIMIT
    range_limit = range_at(state.ranges, key) if state.ranges else NO_LIMIT
    deletion = state.deletion
    return range_limit if deletion is None or deletion[0] < range_limit[0] else deletion


def change_partition(
    state: MergedPartition, update: Any, binding: Binding, view: ImageView, now_s: int, grace_s: int
) -> bool:
    """Fold what a message says of a partition as a whole into its state; ``state.open`` says what rows it concerns.

    Args:
        state: of the partition; its fan-outs are done.
        update: the message.
        binding: its version.
        view: of static rows.
        now_s: time of arrival.
        grace_s: how long tombstones are kept.

    Returns:
        Whether the state changed.
    """
    changed = False
    spans: list[tuple[bytes, bytes | None]] = []
    before = view.image(state.static)
    deletion = update.deletion
    if deletion is not None and (state.deletion is None or deletion.write_time > state.deletion[0]):
        state.deletion = (deletion.write_time, max(deletion.local_deletion_time, now_s) + grace_s)
        changed = True
        spans.append((b"", None))
        _prune_ranges(state)
        if state.static is not None:
            hide_cells(state.static, state.deletion)
    limit = state.deletion or NO_LIMIT
    for range_change in update.ranges or ():
        bounds = range_bounds(range_change, binding.clustering, binding.clustering_readers)
        if bounds is None:
            continue
        start, end = bounds
        forget = max(range_change.local_deletion_time, now_s) + grace_s
        if range_change.write_time <= limit[0] and forget <= limit[1]:
            continue
        state.ranges, news = add_range(state.ranges, (start, end, range_change.write_time, forget))
        if news:
            changed = True
            spans.append((start, end))
    if update.static is not None:
        static = state.static
        if static is None:
            static = new_row(binding.era, [], update.write_time, view.count)
        if merge_row(
            static, update.static, update.write_time, update.expires or 0, binding.static, limit, now_s, grace_s
        ):
            changed = True
            state.static = static
            lapse_row(static, now_s, grace_s)
    if state.static is not None and is_empty(state.static):
        state.static = None
    if has_changed(before, view.image(state.static)):
        spans.append((b"", None))
    if spans:
        first = min(start for start, _ in spans)
        state.open = OpenFanout(first, _find_last_end([end for _, end in spans]), before, update.write_time, "write")
    return changed


def has_changed(before: Sequence[Any], now: Sequence[Any]) -> bool:
    """Whether static columns changed. 0.0 and -0.0, which compare equal, are distinguished by their string form."""
    return before != now or repr(before) != repr(now)


def _find_last_end(ends: list[bytes | None]) -> bytes | None:
    return None if None in ends else max(end for end in ends if end is not None)


def _prune_ranges(state: MergedPartition) -> None:
    """Drop the ranges that the partition's deletion makes needless."""
    if state.deletion is not None and state.ranges:
        time, forget = state.deletion
        state.ranges = [
            deleted_range for deleted_range in state.ranges if deleted_range[2] > time or deleted_range[3] > forget
        ]


def range_bounds(
    deleted_range: Any, encode: Callable[[Sequence[Any]], bytes], readers: Sequence[Any] | None
) -> tuple[bytes, bytes | None] | None:
    """Start (included) and end (excluded; None: open) of a deleted range, as clustering parts of keys; None: it is empty."""
    start, first = _encode_bound(deleted_range.start, encode, readers)
    end, last = _encode_bound(deleted_range.end, encode, readers)
    low = b"" if not first else start if deleted_range.start.inclusive else end_of_prefix(start)
    high = None if not last else end_of_prefix(end) if deleted_range.end.inclusive else end
    return None if low is None else (low, high)


def _encode_bound(
    bound: Any, encode: Callable[[Sequence[Any]], bytes], readers: Sequence[Any] | None
) -> tuple[bytes, int]:
    values = [] if bound.prefix is None else list(astuple(bound.prefix))
    length = next((index for index, value in enumerate(values) if value is None), len(values))
    values = values[:length]
    if readers is not None:
        values = [value if read is None else read(value) for value, read in zip(values, readers, strict=False)]
    return encode(values), length


def lapse_partition(state: MergedPartition, view: ImageView, now_s: int, grace_s: int) -> None:
    """Let time pass for a partition whose fan-outs are done; a static column that runs out opens one."""
    if state.deletion is not None and state.deletion[1] <= now_s:
        state.deletion = None
    if state.ranges:
        state.ranges = [deleted_range for deleted_range in state.ranges if deleted_range[3] > now_s]
    if state.static is not None:
        before = view.image(state.static)
        lapse_row(state.static, now_s, grace_s)
        if is_empty(state.static):
            state.static = None
        if has_changed(before, view.image(state.static)):
            state.open = OpenFanout(b"", None, before, now_s * 1_000_000, "expiry")
