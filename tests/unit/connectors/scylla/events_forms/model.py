"""A table as its writers see it, and the rows that Scylla would log: the other side of the tests of output forms.

Writes come in the order of their times and change plain dicts, so this knows nothing of merging.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from connectors.cql.types import CqlType, parse_type
from connectors.formats import timeuuid
from connectors.scylla.events.shape import shape_of
from connectors.scylla.model import CdcOptions, ScyllaColumn, TableId, TableVersion
from connectors.scylla.positions import OFFSET_STREAM, WINDOW_END, WINDOW_START

if TYPE_CHECKING:
    from connectors.scylla.model import LogRow

STREAM = bytes.fromhex("11111111111111118888888888000001")
PARTITION = {"keyspace_name": "ks", "table_name": "t", "vnode_id": "1", "generation_start": "0"}
START_US = 1_790_000_000_000_000
OFFSET = {
    WINDOW_START: timeuuid.format_uuid(timeuuid.make_uuid(START_US, 0)),
    WINDOW_END: timeuuid.format_uuid(timeuuid.make_uuid(START_US + 30_000_000, 0)),
    OFFSET_STREAM: "0x" + STREAM.hex(),
}
ADDRESS = CqlType(
    "udt", (parse_type("text"), parse_type("int")), keyspace="ks", udt_name="addr", field_names=("street", "zip code")
)


def version_of(columns: list[tuple[Any, ...]], options: CdcOptions | None = None) -> TableVersion:
    """A table version of (name, type or its text, kind, position, reversed)."""
    scylla_columns = [
        ScyllaColumn(name, kind if isinstance(kind, CqlType) else parse_type(kind), *rest)
        for name, kind, *rest in columns
    ]
    order = {"partition_key": 0, "clustering": 1, "static": 2, "regular": 3}
    scylla_columns.sort(key=lambda column: (order[column.kind], column.position, column.name))
    return TableVersion(
        TableId("ks", "t"),
        tuple(scylla_columns),
        options or CdcOptions(),
        "a1b2",
        0,
        "5f1f6f60-0000-11ef-8000-000000000000",
    )


#: Every kind of column; a key of two parts, a clustering key with one part in descending order.
VERSION = version_of(
    [
        ("p", "int", "partition_key", 0),
        ("q", "text", "partition_key", 1),
        ("x", "int", "clustering", 0),
        ("y", "text", "clustering", 1, True),
        ("st", "text", "static"),
        ("sm", "set<text>", "static"),
        ("v", "text", "regular"),
        ("n", "bigint", "regular"),
        ("big", "blob", "regular"),
        ("a b", "double", "regular"),
        ("m", "map<text, int>", "regular"),
        ("l", "list<int>", "regular"),
        ("s", "set<int>", "regular"),
        ("u", ADDRESS, "regular"),
        (
            "f",
            CqlType(
                "udt", ADDRESS.arguments, frozen=True, keyspace="ks", udt_name="addr", field_names=ADDRESS.field_names
            ),
            "regular",
        ),
    ]
)
#: All clustering values there are, in clustering order.
CLUSTERING = [(x, y) for x in (0, 1, 2) for y in ("c", "b", "a")]


def log_row(
    version: TableVersion,
    time: bytes,
    seq: int,
    operation: int,
    cells: dict[str, Any],
    *,
    ttl: int | None = None,
    end: bool | None = None,
) -> LogRow:
    """A row of the log; ``cells`` by the names of the log's columns, also ``cdc$deleted_...``."""
    shape = shape_of(version)
    row: list[Any] = [None] * shape.width
    row[:6] = [STREAM, time, seq, operation, ttl, end]
    remaining = dict(cells)
    for column in shape.columns:
        row[column.value] = remaining.pop(column.name, None)
        if column.deleted >= 0:
            row[column.deleted] = remaining.pop(f"cdc$deleted_{column.name}", None)
        if column.elements >= 0:
            row[column.elements] = remaining.pop(f"cdc$deleted_elements_{column.name}", None)
    assert not remaining, f"the log has no columns {remaining}"
    return tuple(row)


@dataclass
class TableModel:
    """The content of the table: by partition key, the static columns and the rows (whether inserted, and their cells)."""

    static: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    rows: dict[tuple[Any, ...], dict[tuple[Any, ...], tuple[bool, dict[str, Any]]]] = field(default_factory=dict)

    def write(
        self,
        key: tuple[Any, ...],
        clustering: tuple[Any, ...] | None,
        changes: dict[str, tuple[Any, ...]],
        time: int,
        *,
        insert: bool,
    ) -> dict[str, Any]:
        """Apply an INSERT or UPDATE and give the cells of its log row.

        ``changes`` by column: ("set", value), ("null",), ("add", elements), ("remove", elements).
        """
        if clustering is None:
            values = self.static.setdefault(key, {})
            cells: dict[str, Any] = {}
        else:
            rows = self.rows.setdefault(key, {})
            live, values = rows.get(clustering, (False, {}))
            rows[clustering] = (live or insert, values)
            cells = {"x": clustering[0], "y": clustering[1]}
        cells |= {"p": key[0], "q": key[1]}
        for name, (action, *arguments) in changes.items():
            kind = next(column.type for column in VERSION.columns if column.name == name)
            cells |= _change(values, name, kind, action, arguments[0] if arguments else None, time)
        return cells

    def delete(self, key: tuple[Any, ...], *rows: tuple[Any, ...]) -> None:
        """Delete rows."""
        for row in rows:
            self.rows.get(key, {}).pop(row, None)

    def delete_partition(self, key: tuple[Any, ...]) -> None:
        """Delete a partition."""
        self.rows.pop(key, None)
        self.static.pop(key, None)

    def contents(self) -> dict[str, tuple[dict[str, Any], list[dict[str, Any]]]]:
        """In the form of ``tests.support.partition_merge.Table.contents``."""
        names = [column.name for column in VERSION.columns if column.kind == "regular"]
        result = {}
        for key in {*self.static, *self.rows}:
            static = {
                name: shown
                for name, value in self.static.get(key, {}).items()
                if (shown := _shown(name, value)) is not None
            }
            rows = []
            for clustering in CLUSTERING:
                live, values = self.rows.get(key, {}).get(clustering, (False, {}))
                shown = {name: _shown(name, values.get(name)) for name in names}
                if live or any(value is not None for value in shown.values()):
                    rows.append({"x": clustering[0], "y": clustering[1], **shown})
            if static or rows:
                result[repr(key)] = static, rows
        return result


def _change(values: dict[str, Any], name: str, kind: CqlType, action: str, argument: Any, time: int) -> dict[str, Any]:
    """Apply the change of one column and give its log cells."""
    deleted, elements = f"cdc$deleted_{name}", f"cdc$deleted_elements_{name}"
    if action == "null":
        values[name] = None
        return {deleted: True}
    if not kind.is_multicell:
        values[name] = argument
        return {name: argument}
    if kind.name == "list":
        old = values.get(name) or [] if action != "set" else []
        if action == "remove":
            gone = [old[index][0] for index in argument if index < len(old)]
            values[name] = [pair for pair in old if pair[0] not in gone]
            return {elements: gone} if gone else {}
        added = [(timeuuid.make_uuid(time, 0x8000_0000_0000_0000 | index), item) for index, item in enumerate(argument)]
        values[name] = old + added
        return {name: added} if action == "add" else {name: added or None, deleted: True}
    if kind.name == "set":
        old = values.get(name) or set() if action != "set" else set()
        values[name] = old - set(argument) if action == "remove" else old | set(argument)
        if action == "remove":
            return {elements: list(argument)}
        return {name: sorted(argument)} if action == "add" else {name: sorted(argument) or None, deleted: True}
    old = values.get(name) or {} if action != "set" else {}
    if action == "remove":
        values[name] = {key: item for key, item in old.items() if key not in argument}
        return {
            elements: [kind.field_names.index(field) for field in argument] if kind.name == "udt" else list(argument)
        }
    values[name] = old | argument
    if kind.name == "udt":
        added_fields = {field: argument.get(field) for field in kind.field_names}
        return {name: added_fields} if action == "add" else {name: added_fields if argument else None, deleted: True}
    entries = [{"key": key, "value": item} for key, item in argument.items()]
    return {name: entries} if action == "add" else {name: entries or None, deleted: True}


def _shown(name: str, value: Any) -> Any:
    if name == "l":
        return [item for _, item in value] if value else None
    if name in {"s", "sm"}:
        return sorted(value) if value else None
    if name == "m":
        return {repr(key): item for key, item in value.items()} if value else None
    if name == "u":
        return value or None
    return value
