"""Writes to partitions of Cassandra and Scylla tables, as messages of either side say them, and what they add up to. Pure.

A write is a list that JSON can hold, by its first member:

- ``["partition", time]``: everything of the partition up to this write time is deleted;
- ``["range", time, start, inclusive, end, inclusive]``: so are rows between two prefixes of the clustering key;
- ``["row", clustering, liveness, deletion, columns, cells]``: of one row, or of the static cells (``clustering`` is None).
  ``liveness`` is ``[time, expires]`` or None, ``deletion`` a time or None, ``columns`` has the time up to which a column of
  several cells is deleted, ``cells`` are ``[field, path, time, expires, value]``; no value is a tombstone;
- ``["unknown"]``: something that can't be compared.

Times are microseconds, ``expires`` is in seconds since 1970 or None.
"""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.formats import timeuuid
from connectors.formats.names import field_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from connectors.formats.partition_update import ColumnLike

Write = list[Any]
_NEVER: Final = -(1 << 62)
_encode: Final = msgspec.json.Encoder(order="sorted").encode
#: Types whose JSON values are in the order of the type.
_NUMBERS: Final = frozenset({"tinyint", "smallint", "int", "bigint", "timestamp", "date", "time"})
_FLOATS: Final = frozenset({"float", "double"})
#: Floating-point values that JSON has as strings.
_NAMED_FLOATS: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_STRINGS: Final = frozenset({"ascii", "text", "varchar"})


class CellTable(msgspec.Struct, frozen=True):
    """The columns of a table, as fields of messages.

    Attributes:
        name: ``keyspace.table``.
        key: fields of the partition key in order.
        clustering: fields of the clustering key in order.
        kinds: the type's name of each clustering field.
        reversed: whether each clustering field is in descending order.
        static: static fields.
        regular: the other fields.
        multicell: fields with several cells: ``list``, ``set``, ``map`` or ``udt``.
    """

    name: str
    key: tuple[str, ...]
    clustering: tuple[str, ...]
    kinds: tuple[str, ...]
    reversed: tuple[bool, ...]
    static: frozenset[str]
    regular: frozenset[str]
    multicell: dict[str, str]


def cell_table(name: str, columns: Sequence[ColumnLike], *, name_field: Callable[[str], str] = field_name) -> CellTable:
    """A table of a source; ``name_field`` gives the field of a column, by default that of partition updates."""
    clustering = sorted(
        (column for column in columns if column.kind == "clustering"), key=lambda column: column.position
    )
    key = sorted((column for column in columns if column.kind == "partition_key"), key=lambda column: column.position)
    return CellTable(
        name,
        tuple(name_field(column.name) for column in key),
        tuple(name_field(column.name) for column in clustering),
        tuple(column.type.name for column in clustering),
        tuple(column.reversed for column in clustering),
        frozenset(name_field(column.name) for column in columns if column.kind == "static"),
        frozenset(name_field(column.name) for column in columns if column.kind == "regular"),
        {name_field(column.name): column.type.name for column in columns if column.type.is_multicell},
    )


# Partition updates.


def update_writes(table: CellTable, value: Mapping[str, Any]) -> tuple[dict[str, Any], list[Write]]:
    """The partition's key, and the writes of a partition update.

    Raises:
        KeyError, TypeError: it is no partition update.
    """
    shared = [value["write_time"], value.get("expires")]
    writes: list[Write] = []
    if (deletion := value.get("deletion")) is not None:
        writes.append(["partition", deletion["write_time"]])
    for item in value.get("ranges") or ():
        start, end = item["start"], item["end"]
        writes.append(
            [
                "range",
                item["write_time"],
                _read_prefix(table, start["prefix"]),
                start["inclusive"],
                _read_prefix(table, end["prefix"]),
                end["inclusive"],
            ]
        )
    if (static := value.get("static")) is not None:
        writes.append(_read_row(table, static, None, shared))
    for row in value.get("rows") or ():
        clustering = row.get("clustering") or {}
        writes.append(_read_row(table, row, [clustering.get(name) for name in table.clustering], shared))
    return value["key"], writes


def _read_prefix(table: CellTable, values: Mapping[str, Any] | None) -> list[Any]:
    prefix: list[Any] = []
    for name in table.clustering:
        if (values or {}).get(name) is None:
            break
        prefix.append((values or {})[name])
    return prefix


def _read_stamp(stamp: Mapping[str, Any] | None, otherwise: list[Any]) -> list[Any]:
    return otherwise if stamp is None else [stamp["write_time"], stamp.get("expires")]


def _read_row(table: CellTable, row: Mapping[str, Any], clustering: list[Any] | None, shared: list[Any]) -> Write:
    row_stamp = _read_stamp(row.get("stamp"), shared)
    liveness, deletion = row.get("liveness"), row.get("deletion")
    stamps: Mapping[str, Any] = row.get("stamps") or {}
    cells: list[Any] = []
    for field, value in (row.get("cells") or {}).items():
        shape = table.multicell.get(field)
        if value is None:
            continue
        if shape is None:
            cells.append([field, None, *_read_stamp(stamps.get(field), row_stamp), value])
        elif shape == "udt":
            inner: Mapping[str, Any] = value.get("stamps") or {}
            cells += [
                [field, name, *_read_stamp(inner.get(name), row_stamp), item]
                for name, item in value["fields"].items()
                if item is not None
            ]
            cells += [
                [field, name, _read_stamp(inner.get(name), row_stamp)[0], None, None]
                for name in map(field_name, value.get("deleted") or ())
            ]
        else:
            cells += [
                [field, item["path"], *_read_stamp(item.get("stamp"), row_stamp), item.get("value")] for item in value
            ]
    for name in map(field_name, row.get("deleted") or ()):
        cells.append([name, None, _read_stamp(stamps.get(name), row_stamp)[0], None, None])
    return [
        "row",
        clustering,
        None if liveness is None else _read_stamp(liveness.get("stamp"), row_stamp),
        None if deletion is None else deletion["write_time"],
        {field_name(item["column"]): item["write_time"] for item in row.get("complex_deletions") or ()},
        cells,
    ]


# Row events.


def event_writes(
    table: CellTable, key: Mapping[str, Any] | None, value: Mapping[str, Any], *, dialect: str
) -> tuple[dict[str, Any], list[Write]]:
    """The partition's key, and the writes of a row event.

    Columns of several cells are not compared: an event has what was changed of them, in one of several forms.

    Args:
        table: the table.
        key: the message's key.
        value: the message's value.
        dialect: ``legacy`` or ``advanced`` (Scylla), or ``cassandra``.

    Raises:
        KeyError, TypeError, ValueError: it is no event of the table, or has no key.
    """
    if key is None:
        raise ValueError("it has no key")
    op, source = value["op"], value["source"]
    time = source.get("ts_us") or source["ts_ms"] * 1000
    partition = {name: key[name] for name in table.key}
    values = [key.get(name) for name in table.clustering]
    whole = bool(values) and all(item is None for item in values)
    inserts, deletes = ("i", "d") if dialect == "cassandra" else ("cr", "d")
    if (dialect == "cassandra" and op == "r") or value.get("deletion") is not None:
        return partition, [["unknown"]]
    if op in deletes:
        return partition, [["partition", time] if whole else ["row", values, None, time, {}, []]]
    if dialect == "advanced" and value.get("after") is None:
        # There is no image after it: its last cell was set to null.
        return partition, [["row", None if whole else values, None, time, {}, []]]
    after: Mapping[str, Any] = value.get("after") or {}
    expires = time // 1_000_000 + source["ttl"] if source.get("ttl") else None
    fixed: list[Any] = []
    cells: list[Any] = []
    for field, cell in after.items():
        if field in table.multicell or field not in table.static | table.regular:
            continue
        written = _event_cell(field, cell, time, expires, dialect)
        if written is not None and not (field in table.static and not whole and written[-1] is None):
            (fixed if field in table.static else cells).append(written)
    writes: list[Write] = []
    if fixed:
        writes.append(["row", None, None, None, {}, fixed])
    if not whole:
        # An element of a collection keeps a row alive as well.
        elements = any(after.get(field) is not None for field in table.multicell if field in table.regular)
        ends = [cell[3] for cell in cells if cell[4] is not None]
        if ends and None not in ends:
            expires = max(ends)  # written with a TTL, and so was the row
        liveness = [time, expires] if op in inserts or elements else None
        writes.append(["row", values, liveness, None, {}, cells])
    return partition, writes


def _event_cell(field: str, cell: Any, time: int, expires: int | None, dialect: str) -> list[Any] | None:
    if dialect == "advanced":
        return [field, None, time, expires, cell]
    if cell is None:
        return None
    value = cell["value"]
    if dialect == "cassandra" and value is not None and cell.get("deletion_ts"):
        expires = cell["deletion_ts"] // 1_000_000
    return [field, None, time, expires if value is not None else None, value]


# What they add up to.


class _RowState:
    __slots__ = ("cells", "clustering", "columns", "deletion", "liveness")

    def __init__(self, clustering: list[Any] | None) -> None:
        self.clustering = clustering
        #: Write time, whether it expires, and when.
        self.liveness: tuple[int, bool, int] = (_NEVER, False, 0)
        self.deletion = _NEVER
        self.columns: dict[str, int] = {}
        self.cells: dict[tuple[str, bytes], list[Any]] = {}

    def add(self, write: Write) -> None:
        _, _, liveness, deletion, columns, cells = write
        if liveness is not None:
            time, expires = liveness
            self.liveness = max(self.liveness, (time, expires is not None, expires or 0))
        if deletion is not None:
            self.deletion = max(self.deletion, deletion)
        for field, time in columns.items():
            self.columns[field] = max(self.columns.get(field, _NEVER), time)
        for cell in cells:
            name = cell[0], b"" if cell[1] is None else _encode(cell[1])
            older = self.cells.get(name)
            if older is None or _cell_rank(cell) > _cell_rank(older):
                self.cells[name] = cell


def _cell_rank(cell: Sequence[Any]) -> tuple[Any, ...]:
    """The order in which cells win: the later one, then a tombstone, then one that expires, then the greater value."""
    _, _, time, expires, value = cell
    # Integers of one type as their bytes compare: negative ones are the greater.
    value = value.to_bytes(17, "big", signed=True) if type(value) is int else _encode(value)
    return time, cell[4] is None, expires is not None, expires or 0, value


class Merged:
    """The rows that the writes of one partition add up to.

    Attributes:
        rows: by the clustering key as JSON (``null``: the static cells): its live cells, by field.
        unknown: whether something is not known of it.
    """

    def __init__(self, table: CellTable, writes: Sequence[Write], now_s: float) -> None:
        self._table = table
        self._now_s = now_s
        self._deletion = _NEVER
        self._ranges: list[Write] = []
        self.unknown = False
        states: dict[bytes, _RowState] = {}
        for write in writes:
            kind = write[0]
            if kind == "row":
                states.setdefault(_encode(write[1]), _RowState(write[1])).add(write)
            elif kind == "partition":
                self._deletion = max(self._deletion, write[1])
            elif kind == "range":
                self._ranges.append(write)
            else:
                self.unknown = True
        self.rows = dict(self._live_rows(states))

    def _live_rows(self, states: Mapping[bytes, _RowState]) -> Iterator[tuple[bytes, dict[str, Any]]]:
        for name, state in states.items():
            hidden = max(self._deletion, state.deletion, self._covered_time(state))
            fields = self._table.static if state.clustering is None else self._table.regular
            live: dict[str, list[tuple[Any, Any]]] = {}
            for (field, _), (_, path, time, expires, value) in state.cells.items():
                if (
                    field in fields
                    and value is not None
                    and time > max(hidden, state.columns.get(field, _NEVER))
                    and (expires is None or expires > self._now_s)
                ):
                    live.setdefault(field, []).append((path, value))
            time, expires, until = state.liveness
            if live or (state.clustering is not None and time > hidden and (not expires or until > self._now_s)):
                yield name, {field: self._field_value(field, cells) for field, cells in live.items()}

    def _field_value(self, field: str, cells: list[tuple[Any, Any]]) -> Any:
        shape = self._table.multicell.get(field)
        if shape is None:
            return cells[0][1]
        if shape == "list":
            return [value for _, value in sorted(cells, key=lambda cell: timeuuid.order_key(cell[0]))]
        pairs = (
            sorted((_encode(path), value) for path, value in cells)
            if shape == "set"
            else sorted(((_encode(path), value) for path, value in cells), key=lambda pair: pair[0])
        )
        return [[path.decode(), value] for path, value in pairs]

    def _covered_time(self, state: _RowState) -> int:
        if state.clustering is None or not self._ranges:
            return _NEVER
        newest = _NEVER
        for _, time, start, with_start, end, with_end in self._ranges:
            after, before = self._compare_prefix(state.clustering, start), self._compare_prefix(state.clustering, end)
            if after is None or before is None:
                self.unknown = True
            elif (after > 0 or (after == 0 and (with_start or not start))) and (
                before < 0 or (before == 0 and (with_end or not end))
            ):
                newest = max(newest, time)
        return newest

    def _compare_prefix(self, clustering: Sequence[Any], prefix: Sequence[Any]) -> int | None:
        """-1, 0 or 1: where a row is by a prefix, in the table's order; None: values of such a type can't be compared."""
        for value, bound, kind, reversed_ in zip(
            clustering, prefix, self._table.kinds, self._table.reversed, strict=False
        ):
            mine, ordered_bound = _to_ordered(kind, value), _to_ordered(kind, bound)
            if mine is None or ordered_bound is None:
                if value == bound:
                    continue
                return None
            if mine != ordered_bound:
                return -1 if (mine < ordered_bound) is not reversed_ else 1
        return 0


def _to_ordered(kind: str, value: Any) -> Any:
    """A value that is in the type's order; None: it can't be ordered."""
    if kind in _FLOATS:
        return _order_float(value)
    if kind in _NUMBERS and isinstance(value, int | float):
        return value
    if kind in _STRINGS and isinstance(value, str):
        return value.encode()
    if kind == "boolean":
        return value
    if kind == "timeuuid":
        return timeuuid.order_key(value)
    return base64.b64decode(value) if kind == "blob" else None


def _order_float(value: Any) -> tuple[bool, float, float] | None:
    """A key in Java's order: -0.0 before 0.0, NaN after all others."""
    if not isinstance(value, int | float) and value not in _NAMED_FLOATS:
        return None
    number = float(value)
    return (True, 0.0, 1.0) if math.isnan(number) else (False, number, math.copysign(1.0, number))
