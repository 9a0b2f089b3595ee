"""Writes as a user of the emulation states them, and what they do to the rows of one partition. Pure."""

import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from compose.local.scylla.cells.codec import encode_cell, split_fields, to_members, to_pairs
from compose.local.scylla.schema import EmulatedColumn, EmulatedTable
from connectors.cql.types import CqlType
from worker.fetch.errors import StackError

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
class MulticellWrite:
    """The change of one multicell column: all is removed first (`cleared`), then `removed`, then `added`."""

    cleared: bool = False
    added: Elements = field(default_factory=dict)
    removed: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class EmulatedRowChange:
    """The change of a row, or of the static row (`key` None): cells by column, None for one that becomes null."""

    key: Key | None
    ttl: int | None = None
    insert: bool = False
    delete: bool = False
    cells: dict[str, bytes | MulticellWrite | None] = field(default_factory=dict)


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


Change = EmulatedRowChange | RangeChange | PartitionChange


@dataclass(slots=True)
class EmulatedPartition:
    """Rows of a partition as far as they were read: the static row, and the others by key; None for one that is not there."""

    static: RowState = field(default_factory=dict)
    rows: dict[Key, RowState | None] = field(default_factory=dict)


def time_uuid(time_us: int, chance: Callable[[int], int]) -> bytes:
    """A time uuid of that moment (microseconds since 1970), its other half by chance (`getrandbits`)."""
    return time_uuid_ticks(time_us * 10, chance)


def time_uuid_ticks(ticks: int, chance: Callable[[int], int]) -> bytes:
    """A time uuid for a time in steps of 100 ns since 1970."""
    since = ticks + 0x01B21DD213814000
    return struct.pack(
        ">IHHQ", since & 0xFFFFFFFF, (since >> 32) & 0xFFFF, (since >> 48) & 0x0FFF | 0x1000, 1 << 63 | chance(62)
    )


def uuid_ticks(value: bytes) -> int:
    """Steps of 100 ns since 1970 of a time uuid."""
    return uuid.UUID(bytes=value).time - 0x01B21DD213814000


def key_cells(columns: Sequence[EmulatedColumn], key_values: Mapping[str, Any], *, table: str) -> Key:
    """Cells of key columns, all of which must be given.

    Raises:
        StackError: One is missing or null.
    """
    cells: list[bytes] = []
    for column in columns:
        cell = encode_cell(column.type, key_values.get(column.name))
        if cell is None:
            raise StackError(f"a write to {table} needs a value of its key column {column.name}")
        cells.append(cell)
    return tuple(cells)


def touched_keys(table: EmulatedTable, write: Write) -> set[Key | None]:
    """Keys of the rows that a write names, None for the static row; rows of a range or a whole partition are not named."""
    if isinstance(write, DeleteRange):
        return set()
    key_values = write.values if isinstance(write, Insert) else write.key
    if isinstance(write, Insert):
        names = [column for column in write.values if table.by_name[column].kind in {"static", "regular"}]
    else:
        names = list(write.set if isinstance(write, Update) else write.columns)
    kinds = {table.by_name[column].kind for column in names if column in table.by_name}
    keys: set[Key | None] = {None} if "static" in kinds else set()
    whole = all(column.name in key_values for column in table.clustering)
    if whole and (kinds != {"static"} or isinstance(write, Insert)):
        keys.add(key_cells(table.clustering, key_values, table=write.table))
    return keys


class Compiler:
    """Turns writes to one partition into changes; knows its state for what depends on it (lists).

    Args:
        table: The table.
        state: What is in the partition; list operations by index or value need it.
        ticks: Time of the write in steps of 100 ns, from which cells of lists get their time uuids.
        chance: `getrandbits` of a source of chance.
    """

    def __init__(
        self, table: EmulatedTable, state: EmulatedPartition, ticks: int, chance: Callable[[int], int]
    ) -> None:
        self.table = table
        self.state = state
        self.ticks = ticks
        self.chance = chance

    def changes(self, write: Write) -> list[Change]:
        """Return the changes that the write makes.

        Raises:
            StackError: The write does not fit the table.
        """
        if isinstance(write, Insert):
            return self._compile_insert(write)
        if isinstance(write, Update):
            return self._compile_update(write.key, write.set, write.ttl)
        if isinstance(write, DeleteRange):
            return [self._compile_range(write)]
        if write.columns:
            return self._compile_update(write.key, dict.fromkeys(write.columns), None)
        key_columns = [column for column in self.table.clustering if column.name in write.key]
        if not key_columns:
            return [PartitionChange()]
        key = key_cells(key_columns, write.key, table=write.table)
        if len(key_columns) == len(self.table.clustering):
            return [EmulatedRowChange(key, delete=True)]
        return [RangeChange(key, key, start_inclusive=True, end_inclusive=True)]

    def _compile_insert(self, write: Insert) -> list[Change]:
        values = {
            name: value for name, value in write.values.items() if self._find_column(name).kind in {"static", "regular"}
        }
        if not self.table.clustering:
            return [self._build_row((), values, write.ttl, insert=True)]
        statics, regulars = self._by_kind(values)
        if not regulars and all(column.name not in write.values for column in self.table.clustering):
            return [self._build_row(None, statics, write.ttl)]
        key = key_cells(self.table.clustering, write.values, table=write.table)
        row = self._build_row(key, regulars, write.ttl, insert=True)
        return [self._build_row(None, statics, write.ttl), row] if statics else [row]

    def _compile_update(
        self, key_values: Mapping[str, Any], values: Mapping[str, Any], ttl: int | None
    ) -> list[Change]:
        statics, regulars = self._by_kind(values)
        changes: list[Change] = [self._build_row(None, statics, ttl)] if statics else []
        if regulars:
            changes.append(
                self._build_row(key_cells(self.table.clustering, key_values, table=self.table.full), regulars, ttl)
            )
        return changes

    def _by_kind(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        statics = {name: value for name, value in values.items() if self._find_column(name).kind == "static"}
        return statics, {name: value for name, value in values.items() if name not in statics}

    def _find_column(self, name: str) -> EmulatedColumn:
        column = self.table.by_name.get(name)
        if column is None:
            raise StackError(f"{self.table.full} has no column {name}; it has: {', '.join(self.table.by_name)}")
        return column

    def _build_row(
        self, key: Key | None, values: Mapping[str, Any], ttl: int | None, *, insert: bool = False
    ) -> EmulatedRowChange:
        before = self.state.static if key is None else self.state.rows.get(key) or {}
        cells = {
            name: self._build_cells(self._find_column(name), value, before.get(name) or {})
            for name, value in values.items()
        }
        return EmulatedRowChange(key, ttl or None, insert=insert, cells=cells)

    def _build_cells(self, column: EmulatedColumn, value: Any, before: Any) -> bytes | MulticellWrite | None:
        operations = value if isinstance(value, list) and value and isinstance(value[0], Operation) else [value]
        if not column.type.is_multicell:
            if isinstance(value, Operation):
                raise StackError(f"column {column.name} of {self.table.full} can only be written as a whole")
            return encode_cell(column.type, value)
        cells = MulticellWrite()
        for operation in operations:
            if isinstance(operation, Operation):
                self._apply_operation(cells, column, operation, before)
            else:
                cells.cleared, cells.added, cells.removed = True, self._build_elements(column, operation), set()
        return cells

    def _build_elements(self, column: EmulatedColumn, value: Any, *, at_front: bool = False) -> Elements:
        kind = column.type
        if value is None:
            return {}
        if kind.name == "udt":
            fields = [
                encode_cell(item, part) for item, part in zip(kind.arguments, to_members(kind, value), strict=False)
            ]
            return {struct.pack(">h", number): cell for number, cell in enumerate(fields) if cell is not None}
        if kind.name == "map":
            key, content = kind.arguments
            return {_encode_element(key, k): _encode_element(content, v) for k, v in to_pairs(value)}
        cells = [_encode_element(kind.arguments[0], item) for item in value]
        if kind.name == "set":
            return dict.fromkeys(cells, b"")
        return dict(zip(self._list_keys(len(cells), at_front=at_front), cells, strict=True))

    def _list_keys(self, count: int, *, at_front: bool) -> list[bytes]:
        """Time uuids for new cells of a list, in order."""
        if at_front:
            # As far before 2010 as now is after it: the later prepended, the earlier in the list.
            mirror = 2 * 12_623_040_000_000_000 - self.ticks
            self.ticks += count
            return [time_uuid_ticks(mirror - count + number, self.chance) for number in range(count)]
        first, self.ticks = self.ticks, self.ticks + count
        return [time_uuid_ticks(first + number, self.chance) for number in range(count)]

    def _apply_operation(
        self, cells: MulticellWrite, column: EmulatedColumn, operation: Operation, before: Elements
    ) -> None:
        kind = column.type
        now = {} if cells.cleared else before
        in_order = sorted(now, key=list_order) if kind.name == "list" else ()
        if isinstance(operation, Append | Prepend):
            cells.added |= self._build_elements(column, operation.value, at_front=isinstance(operation, Prepend))
        elif isinstance(operation, Remove):
            if kind.name == "udt":
                raise StackError(f"{column.name} is a UDT; its fields become null with SetAt(field, None)")
            unwanted = {_encode_element(kind.arguments[0], element) for element in operation.value}
            cells.removed |= (
                {element for element in in_order if now[element] in unwanted} if kind.name == "list" else unwanted
            )
        else:
            at, content = _element_key(kind, operation.at, in_order, column.name), operation.value
            if content is None:
                cells.removed.add(at)
                return
            part = kind.arguments[int.from_bytes(at, "big") if kind.name == "udt" else -1]
            cells.added[at] = _encode_element(part, content)

    def _compile_range(self, write: DeleteRange) -> RangeChange:
        key_columns = [key_column for key_column in self.table.clustering if key_column.name in write.key]
        prefix = key_cells(key_columns, write.key, table=write.table)
        if len(key_columns) >= len(self.table.clustering):
            raise StackError(f"a range of {write.table} needs a clustering column that its key does not name")
        column = self.table.clustering[len(key_columns)]
        low, high = encode_cell(column.type, write.lower), encode_cell(column.type, write.upper)
        start = (*prefix, low) if low is not None else prefix
        end = (*prefix, high) if high is not None else prefix
        start_inclusive = write.lower_inclusive or low is None
        end_inclusive = write.upper_inclusive or high is None
        if column.descending:
            return RangeChange(end, start, end_inclusive, start_inclusive)
        return RangeChange(start, end, start_inclusive, end_inclusive)


def list_order(list_key: bytes) -> tuple[int, bytes]:
    """Order of time uuids in a list: by time, then the other half as signed bytes."""
    return uuid_ticks(list_key), bytes(byte ^ 0x80 for byte in list_key[8:])


def _encode_element(kind: CqlType, value: Any) -> bytes:
    cell = encode_cell(kind, value)
    if cell is None:
        raise StackError("a collection cannot hold null")
    return cell


def _element_key(kind: CqlType, at: Any, in_order: Sequence[bytes], name: str) -> bytes:
    if kind.name == "udt":
        return struct.pack(">h", kind.field_names.index(at))
    if kind.name == "map":
        return _encode_element(kind.arguments[0], at)
    if kind.name != "list" or not 0 <= at < len(in_order):
        raise StackError(f"{name} has no element {at!r} that could be written; it has {len(in_order)}")
    return in_order[int(at)]


def udt_elements(cell: bytes) -> Elements:
    """Elements of a UDT column from its cell."""
    return {struct.pack(">h", number): part for number, part in enumerate(split_fields(cell)) if part is not None}
