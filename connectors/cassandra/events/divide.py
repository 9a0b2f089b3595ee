"""Large partition updates as several smaller ones that say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connectors.formats.partition_update import PartitionUpdate, UpdateRow

#: The bytes that a cell, a row or a range counts in addition to its values.
_EXTRA: Final = 16


def divide_update(update: PartitionUpdate, max_rows: int, max_bytes: int) -> list[PartitionUpdate]:
    """``update`` in parts of at most ``max_rows`` rows and ranges, and of about ``max_bytes``; a row is never divided.

    The first part has the deletion of the partition and the static row.
    """
    many = len(update.rows) + len(update.ranges)
    if many <= 1 or (many <= max_rows and sum(map(size_of, update.rows)) <= max_bytes):
        return [update]
    parts = []
    rows: list[UpdateRow] = []
    size = 0
    for row in update.rows:
        grown = size_of(row)
        if rows and (len(rows) >= max_rows or size + grown > max_bytes):
            parts.append(msgspec.structs.replace(update, rows=tuple(rows), ranges=()))
            rows, size = [], 0
        rows.append(row)
        size += grown
    if rows:
        parts.append(msgspec.structs.replace(update, rows=tuple(rows), ranges=()))
    parts += [
        msgspec.structs.replace(update, rows=(), ranges=update.ranges[start : start + max_rows])
        for start in range(0, len(update.ranges), max_rows)
    ]
    return [parts[0], *(msgspec.structs.replace(part, deletion=None, static=None) for part in parts[1:])]


def size_of(row: UpdateRow) -> int:
    """About how many bytes a row takes in a message."""
    return (
        _EXTRA
        + _estimate_size(row.clustering)
        + sum([_EXTRA + len(cell.column) + _estimate_size((cell.path, cell.value)) for cell in row.cells])
    )


def _estimate_size(values: Iterable[Any]) -> int:
    size = 0
    for value in values:
        kind = type(value)
        if kind is str or kind is bytes:
            size += len(value)
        elif kind is list or kind is tuple:
            size += 8 + _estimate_size(value)
        elif kind is dict:
            size += 8 + _estimate_size(value.values())
        else:
            size += 8
    return size
