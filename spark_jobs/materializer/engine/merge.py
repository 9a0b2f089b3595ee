"""Cassandra's merge of one change into one row. Pure; the rules are in docs/jobs/MERGE.md.

A change is what the decoder made of a message's row, in the message's own names; ``BoundColumns`` says
which slot of the state each of its columns is. Every function changes the state in place and says whether it did.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import astuple

from spark_jobs.materializer.engine.rowstate import NEVER, Complex, Element, RowState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Multi(NamedTuple):
    """How the cells of one multicell column are read.

    Attributes:
        cell_index: position in the message's cells.
        slot: in the state.
        kind: list, set, map or udt.
        order: path to bytes in the order of paths.
        serialize: element value to its serialized form, by the path's order key for a UDT.
        read: what makes a value as ``connectors.cql.values`` has it, or None.
        path: the same for paths.
        fields: of a UDT, (field in messages, order key, read, serialize).
    """

    cell_index: int
    slot: int
    kind: str
    order: Callable[[Any], bytes]
    serialize: Callable[[Any], bytes]
    read: Callable[[Any], Any] | None
    path: Callable[[Any], Any] | None
    fields: tuple[tuple[str, str, bytes, Callable[[Any], Any] | None, Callable[[Any], bytes]], ...] = ()


class BoundColumns(NamedTuple):
    """The columns of one part (static or regular) of a message's version, bound to slots.

    Attributes:
        slots: how many the state has.
        simple: (position in the message's cells, slot, what reads the value or None) of the simple columns still there.
        plain: the slots, where all columns are simple, read as they are and still there; else None.
        names: column -> (slot, field), of simple columns; for tombstones.
        multi: multicell columns that are still there.
        complex: column -> slot, of these.
        serialize: by slot, value to serialized form.
        signed_zeros: the slots whose values may have floating-point numbers: 0.0 equals -0.0, but is serialized otherwise.
    """

    slots: int
    simple: tuple[tuple[int, int, Callable[[Any], Any] | None], ...]
    plain: tuple[int, ...] | None
    names: Mapping[str, tuple[int, str]]
    multi: tuple[Multi, ...]
    complex: Mapping[str, int]
    serialize: Mapping[int, Callable[[Any], bytes]]
    signed_zeros: frozenset[int]


#: A deletion that covers a row from outside (a range, the partition): write time, time to forget.
Limit = tuple[int, int]
NO_LIMIT: Limit = (NEVER, 0)
#: A deleted range: start, end (None: open), write time, time to forget.
Range = tuple[bytes, bytes | None, int, int]


def merge_row(
    state: RowState, row: Any, time: int, expires: int, bound: BoundColumns, limit: Limit, now_s: int, grace_s: int
) -> bool:
    """Fold what a message says of a row into its state.

    Args:
        state: of the row, or the static row.
        row: the change.
        time: the message's write time, µs.
        expires: the message's expiry, s since 1970; 0: none.
        bound: the columns of the message.
        limit: the deletion that covers the row from outside.
        now_s: the time of arrival, s since 1970.
        grace_s: how long tombstones are kept.
    """
    changed = False
    stamp = row.stamp
    if stamp is not None:
        time, expires = stamp.write_time, stamp.expires or 0
    deletion = row.deletion
    if deletion is not None:
        forget = max(deletion.local_deletion_time, now_s) + grace_s
        changed = delete_row(state, (deletion.write_time, forget), limit)
    floor = limit if state.deletion is None or state.deletion[0] < limit[0] else state.deletion
    hidden = floor[0]
    liveness = row.liveness
    if liveness is not None:
        stamp = liveness.stamp
        row_stamp = (time, expires) if stamp is None else (stamp.write_time, stamp.expires or 0)
        live = state.live
        if row_stamp[0] > hidden and (live is None or row_stamp > live[:2]):
            state.live = (*row_stamp, 0)
            changed = True
    if row.complex_deletions:
        for complex_deletion in row.complex_deletions:
            slot = bound.complex.get(complex_deletion.column)
            if slot is not None:
                forget = max(complex_deletion.local_deletion_time, now_s) + grace_s
                changed |= _delete_column(state, slot, (complex_deletion.write_time, forget), floor)
    cells = row.cells
    if cells is not None:
        if type(cells) is not tuple:
            cells = astuple(cells)
        if row.stamps is not None:
            changed |= _stamped_cells(state, cells, row.stamps, (time, expires), bound, hidden)
        elif time > hidden:
            changed |= _simple_cells(state, cells, time, expires, bound)
        if bound.multi:
            row_stamp = (time, expires)
            for multi in bound.multi:
                value = cells[multi.cell_index]
                if value is not None:
                    cells_of = _udt_cells if multi.kind == "udt" else _element_cells
                    changed |= cells_of(state, multi, value, row_stamp, floor, now_s + grace_s)
    if row.deleted:
        changed |= _buried_cells(state, row, time, bound, floor, now_s + grace_s)
    return changed


def _simple_cells(state: RowState, cells: Sequence[Any], time: int, expires: int, bound: BoundColumns) -> bool:
    """Cells that share a stamp that nothing hides: the usual case, and the hot loop."""
    values, times, extra = state.values, state.times, state.extra
    delta = time - state.base
    plain = bound.plain
    changed = False
    if plain is not None and extra is None and not expires:
        for slot, value in zip(plain, cells, strict=True):
            if value is not None:
                known_time = times[slot]
                if known_time is None or delta > known_time:
                    values[slot] = value
                    times[slot] = delta
                    changed = True
                elif delta == known_time and (value != values[slot] or slot in bound.signed_zeros):
                    serialize = bound.serialize[slot]
                    if serialize(value) > serialize(values[slot]):
                        values[slot] = value
                        changed = True
        return changed
    for value_index, slot, read in bound.simple:
        value = cells[value_index]
        if value is not None:
            changed |= _set_cell(state, slot, value if read is None else read(value), time, expires, bound)
    return changed


def _stamped_cells(
    state: RowState,
    cells: Sequence[Any],
    stamps: Mapping[str, Any],
    shared: tuple[int, int],
    bound: BoundColumns,
    hidden: int,
) -> bool:
    """Cells of which some have stamps of their own."""
    changed = False
    fields = dict(bound.names.values())
    for index, slot, read in bound.simple:
        value = cells[index]
        if value is not None:
            cell_stamp = stamps.get(fields[slot])
            time, expires = shared if cell_stamp is None else (cell_stamp.write_time, cell_stamp.expires or 0)
            if time > hidden:
                changed |= _set_cell(state, slot, value if read is None else read(value), time, expires, bound)
    return changed


def _set_cell(state: RowState, slot: int, value: Any, time: int, expires: int, bound: BoundColumns) -> bool:
    """Set a simple cell if it wins; the caller has seen that nothing hides it."""
    known_time = state.times[slot]
    delta = time - state.base
    extra = state.extra
    if known_time is not None:
        if delta < known_time:
            return False
        if delta == known_time:
            old_expires, forget = extra.get(slot, (0, 0)) if extra else (0, 0)
            old = state.values[slot]
            if forget and not old_expires:
                return False  # a tombstone
            if expires < old_expires:
                return False
            if expires == old_expires:
                serialize = bound.serialize[slot]
                if old is None or serialize(value) <= serialize(old):
                    return False
    state.values[slot] = value
    state.times[slot] = delta
    if expires:
        if extra is None:
            extra = state.extra = {}
        extra[slot] = (expires, 0)
    elif extra and extra.pop(slot, None) and not extra:
        state.extra = None
    return True


def _buried_cells(state: RowState, row: Any, time: int, bound: BoundColumns, floor: Limit, forget: int) -> bool:
    """Tombstones of simple columns."""
    changed = False
    stamps = row.stamps
    for name in row.deleted:
        slot_field = bound.names.get(name)
        if slot_field is None:
            continue
        slot, field = slot_field
        cell_stamp = None if stamps is None else stamps.get(field)
        when = time if cell_stamp is None else cell_stamp.write_time
        if when <= floor[0] and forget <= floor[1]:
            continue
        known_time = state.times[slot]
        delta = when - state.base
        if known_time is not None and (
            delta < known_time
            or (delta == known_time and state.values[slot] is None and (not (state.extra or {}).get(slot, (0, 0))[0]))
        ):
            continue
        state.values[slot] = None
        state.times[slot] = delta
        if state.extra is None:
            state.extra = {}
        state.extra[slot] = (0, forget)
        changed = True
    return changed


def _get_multicell(state: RowState, slot: int) -> Complex:
    if state.complex is None:
        state.complex = {}
    column = state.complex.get(slot)
    if column is None:
        column = state.complex[slot] = Complex(None, {})
    return column


def _delete_column(state: RowState, slot: int, deletion: Limit, floor: Limit) -> bool:
    """A complex deletion."""
    if deletion[0] <= floor[0] and deletion[1] <= floor[1]:
        return False
    column = None if state.complex is None else state.complex.get(slot)
    if column is not None and column.deletion is not None and column.deletion[0] >= deletion[0]:
        return False
    column = _get_multicell(state, slot)
    column.deletion = deletion
    _hide_elements(column, deletion)
    return True


def _element_cells(
    state: RowState, multi: Multi, value: Sequence[Any], shared: tuple[int, int], floor: Limit, forget: int
) -> bool:
    """Cells of a list, set or map."""
    changed = False
    named = multi.kind != "list"
    for cell in value:
        path = cell.path if multi.path is None else multi.path(cell.path)
        item = cell.value
        if item is not None and multi.read is not None:
            item = multi.read(item)
        stamp = cell.stamp
        time, expires = shared if stamp is None else (stamp.write_time, stamp.expires or 0)
        changed |= _set_element(
            state,
            multi.slot,
            multi.order(path),
            Element(path if named else None, item, time, expires),
            multi.serialize,
            floor,
            forget,
        )
    return changed


def _udt_cells(state: RowState, multi: Multi, value: Any, shared: tuple[int, int], floor: Limit, forget: int) -> bool:
    """Cells of a UDT: a field each."""
    changed = False
    fields, deleted, stamps = value.fields or {}, value.deleted or (), value.stamps or {}
    for field, name, key, read, serialize in multi.fields:
        item = fields.get(field)
        if item is None and name not in deleted:
            continue
        stamp = stamps.get(field)
        time, expires = shared if stamp is None else (stamp.write_time, stamp.expires or 0)
        if item is not None and read is not None:
            item = read(item)
        changed |= _set_element(state, multi.slot, key, Element(None, item, time, expires), serialize, floor, forget)
    return changed


def _set_element(
    state: RowState, slot: int, key: bytes, new: Element, serialize: Callable[[Any], bytes], floor: Limit, forget: int
) -> bool:
    """Set one cell of a multicell column if it wins and nothing hides it."""
    if new.value is None:
        new.expires, new.forget = 0, forget
    column = None if state.complex is None else state.complex.get(slot)
    for deletion in (floor, column.deletion if column is not None else None):
        if deletion is not None and new.time <= deletion[0] and (new.value is not None or new.forget <= deletion[1]):
            return False
    old = None if column is None else column.elements.get(key)
    if old is not None:
        if new.time < old.time:
            return False
        if new.time == old.time and not _is_winner(new, old, serialize):
            return False
    _get_multicell(state, slot).elements[key] = new
    return True


def _is_winner(new: Element, old: Element, serialize: Callable[[Any], bytes]) -> bool:
    """Whether ``new`` is more than ``old``, both of one time; equal ones are not."""
    if old.forget and not old.expires:
        return False
    if new.value is None:
        return True
    if new.expires != old.expires:
        return new.expires > old.expires
    return old.value is not None and serialize(new.value) > serialize(old.value)


def delete_row(state: RowState, deletion: Limit, limit: Limit = NO_LIMIT) -> bool:
    """A row deletion: remember it, and drop what it hides."""
    if deletion[0] <= limit[0] and deletion[1] <= limit[1]:
        return False
    if state.deletion is not None and state.deletion[0] >= deletion[0]:
        return False
    state.deletion = deletion
    hide_cells(state, deletion)
    return True


def hide_cells(state: RowState, limit: Limit) -> bool:
    """Drop what a deletion hides, but of tombstones only those that it outlasts.

    Returns:
        Whether anything was dropped.
    """
    hidden, kept = limit
    changed = False
    if state.live is not None and state.live[0] <= hidden and state.live[2] <= kept:
        state.live, changed = None, True
    if (
        state.deletion is not None
        and state.deletion is not limit
        and state.deletion[0] <= hidden
        and state.deletion[1] <= kept
    ):
        state.deletion, changed = None, True
    delta, extra = hidden - state.base, state.extra
    for slot, time in enumerate(state.times):
        if time is not None and time <= delta and (extra is None or extra.get(slot, (0, 0))[1] <= kept):
            state.values[slot] = state.times[slot] = None
            if extra:
                extra.pop(slot, None)
            changed = True
    if extra is not None and not extra:
        state.extra = None
    if state.complex:
        for slot, column in list(state.complex.items()):
            changed |= _hide_elements(column, limit)
            if column.deletion is not None and column.deletion[0] <= hidden and column.deletion[1] <= kept:
                column.deletion, changed = None, True
            if column.deletion is None and not column.elements:
                del state.complex[slot]
        if not state.complex:
            state.complex = None
    return changed


def _hide_elements(column: Complex, limit: Limit) -> bool:
    hidden, kept = limit
    gone = [key for key, element in column.elements.items() if element.time <= hidden and element.forget <= kept]
    for key in gone:
        del column.elements[key]
    return bool(gone)


def position_of(state: RowState) -> int:
    """The position of the last change of a row that comes whole."""
    if state.live is not None:
        return state.live[0]
    return state.deletion[0] if state.deletion is not None else NEVER


def replace_row(state: RowState, values: Sequence[Any] | None, slots: Sequence[int], version: int, forget: int) -> bool:
    """A whole row from a source that is ordered by position: the later one takes the place of the earlier.

    Of two rows with one position (a compressed binlog event may have such) the one that arrives later counts.

    Args:
        state: of the row.
        values: in the order of ``slots``; None: the row was deleted.
        slots: of the columns that the source has; -1 where a column is not there any more.
        version: the position; the state's write times are positions.
        forget: when the deletion may be forgotten.
    """
    known_version = position_of(state)
    if version < known_version:
        return False
    row: list[Any] = [None] * len(state.values)
    for slot, value in zip(slots, values or (), strict=values is not None):
        if slot >= 0:
            row[slot] = value
    if version == known_version and (state.live is None) == (values is None) and state.values == row:
        return False  # a repetition
    state.values, state.base = row, version
    state.times = [None if value is None else 0 for value in row]
    if values is None:
        state.live, state.deletion = None, (version, forget)
    else:
        state.live, state.deletion = (version, 0, 0), None
    return True


def add_range(ranges: Sequence[Range], new: Range) -> tuple[list[Range], bool]:
    """Add a range to deleted ranges: disjoint, in order, each part with the latest deletion that covers it.

    Returns:
        The ranges, and whether a part of them is hidden up to a later time than before, or kept longer.
    """
    start, end, time, forget = new
    if end is not None and start >= end:
        return list(ranges), False
    result: list[Range] = []
    changed = False
    position: bytes | None = start  # what of the new one is not done begins here; None: nothing is left
    for old in ranges:
        low, high, old_time, old_forget = old
        if position is None or (high is not None and high <= position) or (end is not None and low >= end):
            if position is not None and end is not None and low >= end:
                result.append((position, end, time, forget))
                position, changed = None, True
            result.append(old)
            continue
        if low < position:
            result.append((low, position, old_time, old_forget))
            low = position
        elif position < low:
            result.append((position, low, time, forget))
            changed = True
        stop: bytes | None
        remainder: Range | None
        if end is not None and (high is None or end < high):
            stop, remainder = end, (end, high, old_time, old_forget)
        else:
            stop, remainder = high, None
        # Kept until nothing that either of them hid may come back.
        result.append((low, stop, max(time, old_time), max(forget, old_forget) if time != old_time else old_forget))
        changed |= time > old_time or (time < old_time and forget > old_forget)
        if remainder is not None:
            result.append(remainder)
            position = None
        else:
            position = stop if stop != end else None
    if position is not None:
        result.append((position, end, time, forget))
        changed = True
    joined: list[Range] = []
    for deleted_range in result:
        if joined and joined[-1][1] == deleted_range[0] and joined[-1][2:] == deleted_range[2:]:
            joined[-1] = (joined[-1][0], deleted_range[1], *deleted_range[2:])
        else:
            joined.append(deleted_range)
    return joined, changed


def range_at(ranges: Sequence[Range], key: bytes) -> Limit:
    """The deletion that covers a row, by the clustering part of its key; ``NO_LIMIT`` if none does."""
    index = bisect_right(ranges, key, key=_get_range_start) - 1
    if index >= 0:
        _, end, time, forget = ranges[index]
        if end is None or key < end:
            return time, forget
    return NO_LIMIT


def _get_range_start(deleted_range: Range) -> bytes:
    return deleted_range[0]
