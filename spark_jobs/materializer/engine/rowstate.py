"""The records of the store: one per row, and one per partition of a table with a clustering key.

A record is eight bytes with the time at which it is due (``contract.Store``), and msgpack. Simple cells are in lists by slot
(the catalog says which column a slot is): a cell costs its value and, where all of a row were written together, one byte.
Properties of only some cells (an expiry, being a tombstone) are stored separately, in ``extra``.

Times to forget are absolute, s since 1970: local deletion time (or arrival, or expiry) plus grace. 0 stands for none.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from connectors.errors import Fatal

#: Below every write time.
NEVER: Final = -(1 << 63) - 1
_NOT_DUE: Final = bytes(8)


class Element(msgspec.Struct, array_like=True, gc=False):
    """One cell of a collection or a UDT; ``path`` only of sets and maps, where the key does not give it back."""

    path: Any
    value: Any
    time: int
    expires: int = 0
    forget: int = 0


class Complex(msgspec.Struct, array_like=True, gc=False):
    """A multicell column: its deletion (write time, time to forget) and its cells by the order of their paths."""

    deletion: tuple[int, int] | None
    elements: dict[bytes, Element]


class RowState(msgspec.Struct, array_like=True, gc=False):
    """One row, or the static row of a partition.

    Attributes:
        shown: the last event said that the row exists.
        era: number of the table's incarnation (a dropped and created table is a new one).
        clustering: values of the clustering columns.
        live: liveness: write time, expiry, time to forget it once it has expired.
        deletion: of the row: write time, time to forget.
        base: what ``times`` are counted from, µs since 1970.
        values: by slot; None: no cell, a tombstone, or a multicell column.
        times: write times by slot; None: no cell.
        extra: by slot, expiry and time to forget: (0, forget) a tombstone, (expires, 0) a value that will expire,
            (expires, forget) one that has.
        complex: multicell columns by slot.
    """

    shown: bool
    era: int
    clustering: list[Any]
    live: tuple[int, int, int] | None
    deletion: tuple[int, int] | None
    base: int
    values: list[Any]
    times: list[int | None]
    extra: dict[int, tuple[int, int]] | None = None
    complex: dict[int, Complex] | None = None


class OpenFanout(msgspec.Struct, array_like=True, gc=False):
    """A fan-out that is not done: the keys still to be visited, and the static columns that they were shown with.

    ``visited`` are keys from ``start`` on that need no visit: the message that opened the fan-out had these rows, and each was
    merged with all that the message says.
    """

    start: bytes
    end: bytes | None
    before: list[Any]
    write_time: int
    cause: str
    visited: list[bytes] = []


class MergedPartition(msgspec.Struct, array_like=True, gc=False):
    """The state of a partition as a whole.

    Attributes:
        era: as of a row.
        deletion: write time, time to forget.
        ranges: deleted ranges, apart and in order: start, end (None: open), write time, time to forget. Bounds are clustering
            parts of keys; the start is in the range, the end is not.
        static: the static row.
        open: a fan-out in progress.
    """

    era: int
    deletion: tuple[int, int] | None = None
    ranges: list[tuple[bytes, bytes | None, int, int]] = []
    static: RowState | None = None
    open: OpenFanout | None = None


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_row: Final = msgspec.msgpack.Decoder(RowState).decode
_decode_partition: Final = msgspec.msgpack.Decoder(MergedPartition).decode


def new_row(era: int, clustering: list[Any], base: int, slots: int) -> RowState:
    """A row of which nothing is known."""
    return RowState(False, era, clustering, None, None, base, [None] * slots, [None] * slots)


def pack_row(state: RowState) -> bytes:
    """The record of a row."""
    due = due_of(state) if state.extra or state.complex or state.deletion or (state.live and state.live[1]) else 0
    head = due.to_bytes(8, "big", signed=True) if due else _NOT_DUE
    try:
        return head + _encode(state)
    except OverflowError:
        _count_from_zero(state)
        return head + _encode(state)


def _count_from_zero(state: RowState) -> None:
    """Let times be counted from 1970: clients may give write times that lie further apart than 64 bits."""
    state.times = [None if time is None else time + state.base for time in state.times]
    state.base = 0


def unpack_row(record: bytes) -> RowState:
    """The row in a record.

    Raises:
        Fatal: it is not a row; the state is damaged.
    """
    try:
        return _decode_row(record[8:])
    except msgspec.MsgspecError as error:
        raise Fatal(_describe_damage(error)) from None


def pack_partition(state: MergedPartition) -> bytes | None:
    """The record of a partition, None where nothing is to be kept."""
    if state.deletion is None and not state.ranges and state.static is None and state.open is None:
        return None
    times = [forget for *_, forget in state.ranges]
    if state.deletion:
        times.append(state.deletion[1])
    if state.static is not None and (due := due_of(state.static)):
        times.append(due)
    if state.open is not None:
        times = [1]  # the next caller continues it
    head = min(times, default=0).to_bytes(8, "big", signed=True)
    try:
        return head + _encode(state)
    except OverflowError:
        if state.static is None:
            raise
        _count_from_zero(state.static)
        return head + _encode(state)


def unpack_partition(record: bytes) -> MergedPartition:
    """The partition in a record; raises as ``unpack_row``."""
    try:
        return _decode_partition(record[8:])
    except msgspec.MsgspecError as error:
        raise Fatal(_describe_damage(error)) from None


def _describe_damage(error: Exception) -> str:
    return (
        f"A record of the materializer's state can't be read: {error}. It is damaged or of another version; rebuild the "
        "state from the input."
    )


def record_head(due: int) -> bytes:
    """The first eight bytes of a record."""
    return due.to_bytes(8, "big", signed=True)


def record_due(record: bytes) -> int:
    """When a record is due; 0: never."""
    return 0 if record[:8] == _NOT_DUE else int.from_bytes(record[:8], "big", signed=True)


def due_of(state: RowState) -> int:
    """The next time at which something of the row expires or can be forgotten; 0: never."""
    due = 1 << 62
    if state.live is not None and state.live[1]:
        due = min(due, state.live[2] or state.live[1])
    if state.deletion is not None:
        due = min(due, state.deletion[1])
    if state.extra:
        for expires, forget in state.extra.values():
            due = min(due, forget or expires)
    if state.complex:
        for column in state.complex.values():
            if column.deletion is not None:
                due = min(due, column.deletion[1])
            for element in column.elements.values():
                if element.forget or element.expires:
                    due = min(due, element.forget or element.expires)
    return 0 if due == 1 << 62 else due


def newest_time(state: RowState) -> int:
    """The newest write time in a row, µs since 1970."""
    times = [state.base + time for time in state.times if time is not None]
    if state.live is not None:
        times.append(state.live[0])
    for column in (state.complex or {}).values():
        times += [element.time for element in column.elements.values()]
    return max(times, default=state.base)


def is_empty(state: RowState) -> bool:
    """Whether there is nothing to keep."""
    return (
        not state.shown
        and state.live is None
        and state.deletion is None
        and not state.complex
        and state.times.count(None) == len(state.times)
    )


def forget_cells(state: RowState, slots: tuple[int, ...]) -> None:
    """Drop what the slots hold: columns that the table does not have any more."""
    for slot in slots:
        if slot < len(state.times):
            state.values[slot] = state.times[slot] = None
        if state.extra:
            state.extra.pop(slot, None)
        if state.complex:
            state.complex.pop(slot, None)


def lapse_row(state: RowState, now_s: int, grace_s: int) -> bool:
    """Let time pass: what has expired becomes a tombstone that keeps its rank, tombstones past their grace are forgotten.

    Returns:
        Whether anything changed.
    """
    changed = False
    if state.live is not None and state.live[1]:
        time, expires, forget = state.live
        if forget:
            if forget <= now_s:
                state.live, changed = None, True
        elif expires <= now_s:
            state.live, changed = (time, expires, now_s + grace_s), True
    if state.deletion is not None and state.deletion[1] <= now_s:
        state.deletion, changed = None, True
    if state.extra:
        for slot, (expires, forget) in list(state.extra.items()):
            if forget:
                if forget <= now_s:
                    del state.extra[slot]
                    state.times[slot], changed = None, True
            elif expires <= now_s:
                state.extra[slot], state.values[slot], changed = (expires, now_s + grace_s), None, True
        if not state.extra:
            state.extra = None
    if state.complex:
        for slot, column in list(state.complex.items()):
            changed |= _lapse_column(column, now_s, grace_s)
            if column.deletion is None and not column.elements:
                del state.complex[slot]
        if not state.complex:
            state.complex = None
    return changed


def _lapse_column(column: Complex, now_s: int, grace_s: int) -> bool:
    changed = False
    if column.deletion is not None and column.deletion[1] <= now_s:
        column.deletion, changed = None, True
    for key, element in list(column.elements.items()):
        if element.forget:
            if element.forget <= now_s:
                del column.elements[key]
                changed = True
        elif element.expires and element.expires <= now_s:
            element.value, element.forget, changed = None, now_s + grace_s, True
    return changed
