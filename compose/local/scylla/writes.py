"""Writes as a user of the emulation states them, and what they do to the rows of one partition. Pure."""

import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from compose.local.errors import StackError
from compose.local.scylla.codec import encode, members, pairs, split_fields
from compose.local.scylla.schema import Column, Table
from connectors.cql.types import CqlType

Key = tuple[bytes, ...]
#: Cells of a multicell column: by element (set), key (map), time uuid (list) or field number (UDT, two bytes).
Elements = dict[bytes, bytes]
#: What is known of a row: simple columns' cells, and `Elements` of the others; columns that are null are absent.
RowState = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Append:
    """`c = c + value`: to the end of a list, into a set or map."""

    value: Any


@dataclass(frozen=True, slots=True)
class Prepend:
    """`c = value + c` of a list."""

    value: Any


@dataclass(frozen=True, slots=True)
class Remove:
    """`c = c - value`: values of a list, elements of a set, keys of a map."""

    value: Any


@dataclass(frozen=True, slots=True)
class SetAt:
    """`c[at] = value` (None removes it): index in a list, key of a map, field's name of a UDT (`c.at = value`)."""

    at: Any
    value: Any


Operation = Append | Prepend | Remove | SetAt
Add = Append  # reads better for sets and maps


@dataclass(frozen=True, slots=True)
class Insert:
    """`INSERT INTO table (...) VALUES (...)`; a column that is None is written as null, one left out is not written.

    Attributes:
        table: `keyspace.table`, names as they are, without quotes.
        values: Value by column.
        ttl: Seconds to live.
        timestamp_us: Its own `USING TIMESTAMP`, else that of the whole call.
        condition: `not exists` for a conditional write.
    """

    table: str
    values: Mapping[str, Any]
    ttl: int | None = None
    timestamp_us: int | None = None
    condition: Literal["not exists"] | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """`UPDATE table SET ... WHERE key`: a value, an operation or a list of operations by column.

    Without the clustering columns in `key` it changes static columns. `condition`: `exists`, or value by column.
    """

    table: str
    key: Mapping[str, Any]
    set: Mapping[str, Any]
    ttl: int | None = None
    timestamp_us: int | None = None
    condition: Literal["exists"] | Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """`DELETE [columns] FROM table WHERE key`: columns, a row, a partition, or the rows that a part of the key names."""

    table: str
    key: Mapping[str, Any]
    columns: Sequence[str] = ()
    timestamp_us: int | None = None
    condition: Literal["exists"] | Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class DeleteRange:
    """`DELETE FROM table WHERE key AND lower < c AND c <= upper`, c being the clustering column after those in `key`.

    A bound that is None is open.
    """

    table: str
    key: Mapping[str, Any]
    lower: Any = None
    upper: Any = None
    lower_inclusive: bool = True
    upper_inclusive: bool = True
    timestamp_us: int | None = None


Write = Insert | Update | Delete | DeleteRange


@dataclass(slots=True)
class Cells:
    """What is done to one multicell column: all is removed first (`cleared`), then `removed`, then `added`."""

    cleared: bool = False
    added: Elements = field(default_factory=dict)
    removed: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class RowChange:
    """What is done to a row, or to the static row (`key` None): cells by column, None for one that becomes null."""

    key: Key | None
    ttl: int | None = None
    insert: bool = False
    delete: bool = False
    cells: dict[str, bytes | Cells | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RangeChange:
    """Rows that are deleted: from `start` to `end`, keys or beginnings of keys, in the table's order."""

    start: Key
    end: Key
    start_inclusive: bool
    end_inclusive: bool


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """The whole partition is deleted."""


Change = RowChange | RangeChange | PartitionChange


@dataclass(slots=True)
class PartitionState:
    """Rows of a partition as far as they were read: the static row, and the others by key; None for one that is not there."""

    static: RowState = field(default_factory=dict)
    rows: dict[Key, RowState | None] = field(default_factory=dict)


def time_uuid(time_us: int, chance: Callable[[int], int]) -> bytes:
    """A time uuid of that moment (microseconds since 1970), its other half by chance (`getrandbits`)."""
    return time_uuid_ticks(time_us * 10, chance)


def time_uuid_ticks(ticks: int, chance: Callable[[int], int]) -> bytes:
    """A time uuid of so many steps of 100 ns since 1970."""
    since = ticks + 0x01B21DD213814000
    return struct.pack(
        ">IHHQ", since & 0xFFFFFFFF, (since >> 32) & 0xFFFF, (since >> 48) & 0x0FFF | 0x1000, 1 << 63 | chance(62)
    )


def uuid_ticks(value: bytes) -> int:
    """Steps of 100 ns since 1970 of a time uuid."""
    return uuid.UUID(bytes=value).time - 0x01B21DD213814000


def key_cells(columns: Sequence[Column], given: Mapping[str, Any], *, table: str) -> Key:
    """Cells of key columns, all of which must be given.

    Raises:
        StackError: One is missing or null.
    """
    found: list[bytes] = []
    for column in columns:
        cell = encode(column.type, given.get(column.name))
        if cell is None:
            raise StackError(f"a write to {table} needs a value of its key column {column.name}")
        found.append(cell)
    return tuple(found)


def touched(table: Table, write: Write) -> set[Key | None]:
    """Keys of the rows that a write names, None for the static row; rows of a range or a whole partition are not named."""
    if isinstance(write, DeleteRange):
        return set()
    given = write.values if isinstance(write, Insert) else write.key
    if isinstance(write, Insert):
        names = [each for each in write.values if table.by_name[each].kind in {"static", "regular"}]
    else:
        names = list(write.set if isinstance(write, Update) else write.columns)
    kinds = {table.by_name[each].kind for each in names if each in table.by_name}
    found: set[Key | None] = {None} if "static" in kinds else set()
    whole = all(each.name in given for each in table.clustering)
    if whole and (kinds != {"static"} or isinstance(write, Insert)):
        found.add(key_cells(table.clustering, given, table=write.table))
    return found


class Compiler:
    """Turns writes to one partition into changes; knows its state for what depends on it (lists).

    Args:
        table: The table.
        state: What is in the partition; list operations by index or value need it.
        ticks: Time of the write in steps of 100 ns, from which cells of lists get their time uuids.
        chance: `getrandbits` of a source of chance.
    """

    def __init__(self, table: Table, state: PartitionState, ticks: int, chance: Callable[[int], int]) -> None:
        self.table = table
        self.state = state
        self.ticks = ticks
        self.chance = chance

    def changes(self, write: Write) -> list[Change]:
        """What the write does.

        Raises:
            StackError: The write does not fit the table.
        """
        if isinstance(write, Insert):
            return self._insert(write)
        if isinstance(write, Update):
            return self._update(write.key, write.set, write.ttl)
        if isinstance(write, DeleteRange):
            return [self._range(write)]
        if write.columns:
            return self._update(write.key, dict.fromkeys(write.columns), None)
        given = [each for each in self.table.clustering if each.name in write.key]
        if not given:
            return [PartitionChange()]
        key = key_cells(given, write.key, table=write.table)
        if len(given) == len(self.table.clustering):
            return [RowChange(key, delete=True)]
        return [RangeChange(key, key, start_inclusive=True, end_inclusive=True)]

    def _insert(self, write: Insert) -> list[Change]:
        values = {
            name: value for name, value in write.values.items() if self._column(name).kind in {"static", "regular"}
        }
        if not self.table.clustering:
            return [self._row((), values, write.ttl, insert=True)]
        statics, regulars = self._by_kind(values)
        if not regulars and all(each.name not in write.values for each in self.table.clustering):
            return [self._row(None, statics, write.ttl)]
        key = key_cells(self.table.clustering, write.values, table=write.table)
        row = self._row(key, regulars, write.ttl, insert=True)
        return [self._row(None, statics, write.ttl), row] if statics else [row]

    def _update(self, given: Mapping[str, Any], values: Mapping[str, Any], ttl: int | None) -> list[Change]:
        statics, regulars = self._by_kind(values)
        changes: list[Change] = [self._row(None, statics, ttl)] if statics else []
        if regulars:
            changes.append(self._row(key_cells(self.table.clustering, given, table=self.table.full), regulars, ttl))
        return changes

    def _by_kind(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        statics = {name: value for name, value in values.items() if self._column(name).kind == "static"}
        return statics, {name: value for name, value in values.items() if name not in statics}

    def _column(self, name: str) -> Column:
        column = self.table.by_name.get(name)
        if column is None:
            raise StackError(f"{self.table.full} has no column {name}; it has: {', '.join(self.table.by_name)}")
        return column

    def _row(self, key: Key | None, values: Mapping[str, Any], ttl: int | None, *, insert: bool = False) -> RowChange:
        before = self.state.static if key is None else self.state.rows.get(key) or {}
        cells = {name: self._cells(self._column(name), value, before.get(name) or {}) for name, value in values.items()}
        return RowChange(key, ttl or None, insert=insert, cells=cells)

    def _cells(self, column: Column, value: Any, before: Any) -> bytes | Cells | None:
        operations = value if isinstance(value, list) and value and isinstance(value[0], Operation) else [value]
        if not column.type.is_multicell:
            if isinstance(value, Operation):
                raise StackError(f"column {column.name} of {self.table.full} can only be written as a whole")
            return encode(column.type, value)
        cells = Cells()
        for each in operations:
            if isinstance(each, Operation):
                self._operate(cells, column, each, before)
            else:
                cells.cleared, cells.added, cells.removed = True, self._elements(column, each), set()
        return cells

    def _elements(self, column: Column, value: Any, *, at_front: bool = False) -> Elements:
        kind = column.type
        if value is None:
            return {}
        if kind.name == "udt":
            fields = [encode(each, part) for each, part in zip(kind.arguments, members(kind, value), strict=False)]
            return {struct.pack(">h", place): cell for place, cell in enumerate(fields) if cell is not None}
        if kind.name == "map":
            key, content = kind.arguments
            return {_of(key, k): _of(content, v) for k, v in pairs(value)}
        cells = [_of(kind.arguments[0], each) for each in value]
        if kind.name == "set":
            return dict.fromkeys(cells, b"")
        return dict(zip(self._places(len(cells), at_front=at_front), cells, strict=True))

    def _places(self, count: int, *, at_front: bool) -> list[bytes]:
        """Time uuids for new cells of a list, in order."""
        if at_front:
            # As far before 2010 as now is after it: the later prepended, the earlier in the list.
            mirror = 2 * 12_623_040_000_000_000 - self.ticks
            self.ticks += count
            return [time_uuid_ticks(mirror - count + place, self.chance) for place in range(count)]
        first, self.ticks = self.ticks, self.ticks + count
        return [time_uuid_ticks(first + place, self.chance) for place in range(count)]

    def _operate(self, cells: Cells, column: Column, operation: Operation, before: Elements) -> None:
        kind = column.type
        now = {} if cells.cleared else before
        in_order = sorted(now, key=list_order) if kind.name == "list" else ()
        if isinstance(operation, Append | Prepend):
            cells.added |= self._elements(column, operation.value, at_front=isinstance(operation, Prepend))
        elif isinstance(operation, Remove):
            if kind.name == "udt":
                raise StackError(f"{column.name} is a UDT; its fields become null with SetAt(field, None)")
            unwanted = {_of(kind.arguments[0], each) for each in operation.value}
            cells.removed |= {each for each in in_order if now[each] in unwanted} if kind.name == "list" else unwanted
        else:
            at, content = _place(kind, operation.at, in_order, column.name), operation.value
            if content is None:
                cells.removed.add(at)
                return
            part = kind.arguments[int.from_bytes(at, "big") if kind.name == "udt" else -1]
            cells.added[at] = _of(part, content)

    def _range(self, write: DeleteRange) -> RangeChange:
        given = [each for each in self.table.clustering if each.name in write.key]
        prefix = key_cells(given, write.key, table=write.table)
        if len(given) >= len(self.table.clustering):
            raise StackError(f"a range of {write.table} needs a clustering column that its key does not name")
        column = self.table.clustering[len(given)]
        low, high = encode(column.type, write.lower), encode(column.type, write.upper)
        start = (*prefix, low) if low is not None else prefix
        end = (*prefix, high) if high is not None else prefix
        start_inclusive = write.lower_inclusive or low is None
        end_inclusive = write.upper_inclusive or high is None
        if column.descending:
            return RangeChange(end, start, end_inclusive, start_inclusive)
        return RangeChange(start, end, start_inclusive, end_inclusive)


def list_order(place: bytes) -> tuple[int, bytes]:
    """Order of time uuids in a list: by time, then the other half as signed bytes."""
    return uuid_ticks(place), bytes(each ^ 0x80 for each in place[8:])


def _of(kind: CqlType, value: Any) -> bytes:
    cell = encode(kind, value)
    if cell is None:
        raise StackError("a collection cannot hold null")
    return cell


def _place(kind: CqlType, at: Any, in_order: Sequence[bytes], name: str) -> bytes:
    if kind.name == "udt":
        return struct.pack(">h", kind.field_names.index(at))
    if kind.name == "map":
        return _of(kind.arguments[0], at)
    if kind.name != "list" or not 0 <= at < len(in_order):
        raise StackError(f"{name} has no element {at!r} that could be written; it has {len(in_order)}")
    return in_order[int(at)]


def udt_elements(cell: bytes) -> Elements:
    """Elements of a UDT column from its cell."""
    return {struct.pack(">h", place): part for place, part in enumerate(split_fields(cell)) if part is not None}
