"""How the columns of a table are taken from rows of its log for partition updates. Compiled once per table version."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.codegen import CodeBuilder, dict_display
from connectors.cql.encoding import join_partition_key, make_encoder
from connectors.formats import timeuuid
from connectors.formats.cql_schema import make_renamer
from connectors.formats.names import field_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connectors.cql.types import CqlType
    from connectors.scylla.events.shape import LogColumn
    from connectors.scylla.model import LogRow

    #: (row, write time, gets deletions of multicell columns) -> (member ``cells``, names of columns with tombstones)
    Cells = Callable[[LogRow, int, list[dict[str, Any]]], tuple[dict[str, Any] | None, list[str] | None]]

_INSERTED: Final = {"stamp": None}


def make_picker(indexes: list[int]) -> Callable[[LogRow], tuple[Any, ...]]:
    """The function that takes the members at ``indexes`` from a row, always as a tuple."""
    if len(indexes) == 1:
        only = indexes[0]
        return lambda row: (row[only],)
    return itemgetter(*indexes) if indexes else lambda _: ()


def indexes_of(log_column: LogColumn) -> tuple[int, ...]:
    """Where a column's cells are in a row: value, deleted, deleted elements."""
    return tuple(index for index in (log_column.value, log_column.deleted, log_column.elements) if index >= 0)


def changes_of(log_columns: Sequence[LogColumn]) -> list[Callable[[Any], Any] | None] | None:
    """Return the functions that convert values of ``log_columns`` before they are written; None if no value changes."""
    changes = [make_renamer(log_column.column.type) for log_column in log_columns]
    return changes if any(changes) else None


def name_values(
    names: list[str], values: tuple[Any, ...], changes: list[Callable[[Any], Any] | None] | None
) -> dict[str, Any]:
    """``values`` as a struct."""
    if changes is None:
        return dict(zip(names, values, strict=True))
    return {
        name: value if change is None else change(value)
        for name, value, change in zip(names, values, changes, strict=True)
    }


def key_encoder(log_columns: Sequence[LogColumn]) -> Callable[[tuple[Any, ...]], bytes]:
    """The function that serializes a partition key."""
    encoders = [make_encoder(log_column.column.type) for log_column in log_columns]
    if len(encoders) == 1:
        only = encoders[0]
        return lambda values: only(values[0])
    return lambda values: join_partition_key([encode(value) for encode, value in zip(encoders, values, strict=True)])


def cells_of(log_columns: Sequence[LogColumn]) -> Cells:
    """The function that takes the cells of ``log_columns`` from a row."""
    simple = [log_column for log_column in log_columns if not log_column.column.type.is_multicell]
    multicell = [
        (
            field_name(log_column.name),
            log_column.name,
            log_column.value,
            log_column.deleted,
            log_column.elements,
            elements_of(log_column.column.type),
        )
        for log_column in log_columns
        if log_column.column.type.is_multicell
    ]
    names = [field_name(log_column.name) for log_column in simple]
    columns = [log_column.name for log_column in simple]
    changes = changes_of(simple)
    pick, pick_deleted = (
        make_picker([log_column.value for log_column in simple]),
        make_picker([log_column.deleted for log_column in simple]),
    )
    nothing = (None,) * len(simple)

    def take(
        row: LogRow, write_time: int, deletions: list[dict[str, Any]]
    ) -> tuple[dict[str, Any] | None, list[str] | None]:
        values = pick(row)
        cells = None if values == nothing and not multicell else name_values(names, values, changes)
        flags = pick_deleted(row)
        deleted = [name for name, flag in zip(columns, flags, strict=True) if flag] if True in flags else None
        for field, name, value, overwritten, elements, read in multicell:
            if row[overwritten]:
                deletions.append(
                    {"column": name, "write_time": write_time - 1, "local_deletion_time": write_time // 1_000_000}
                )
            added, removed = row[value], row[elements]
            cells[field] = None if added is None and removed is None else read(added, removed)  # type: ignore[index]
        return cells, deleted

    return take


class NamedColumns(NamedTuple):
    """Columns whose values become members of a struct: the partition key, or the clustering columns.

    Attributes:
        columns: the columns in the log's row.
        pick: gives their values of a row.
        names: the names of the members.
        changes: see ``changes_of``.
        first: the index of the first one's value; -1 for no column.
    """

    columns: list[LogColumn]
    pick: Callable[[LogRow], tuple[Any, ...]]
    names: list[str]
    changes: list[Callable[[Any], Any] | None] | None
    first: int


def name_columns(columns: list[LogColumn]) -> NamedColumns:
    """Make what reads the values of key or clustering columns."""
    return NamedColumns(
        columns,
        make_picker([log_column.value for log_column in columns]),
        [field_name(log_column.name) for log_column in columns],
        changes_of(columns),
        columns[0].value if columns else -1,
    )


class StaticColumns(NamedTuple):
    """The static columns of a table.

    Attributes:
        columns: the columns in the log's row.
        pick: gives all that the log says of them in a row.
        none: what it gives for a row that says nothing of them.
        cells: makes their cells.
    """

    columns: list[LogColumn]
    pick: Callable[[LogRow], tuple[Any, ...]]
    none: tuple[None, ...]
    cells: Cells

    @classmethod
    def of(cls, columns: list[LogColumn]) -> StaticColumns:
        """Make what reads these columns."""
        indexes = [index for log_column in columns for index in indexes_of(log_column)]
        return cls(columns, make_picker(indexes), (None,) * len(indexes), cells_of(columns))

    def is_set(self, row: LogRow) -> bool:
        """Whether a row says anything of them."""
        return bool(self.columns) and self.pick(row) != self.none


def _write_cell(code: CodeBuilder, log_column: LogColumn) -> str:
    """The expression of a column's value in a row of the log."""
    change = make_renamer(log_column.column.type)
    return f"c{log_column.value}" if change is None else f"{code.bind('change', change)}(c{log_column.value})"


def _write_regular(code: CodeBuilder, regular: Sequence[LogColumn]) -> tuple[list[str], dict[str, str]]:
    """Return the lines that prepare what a row says of these columns, and the expressions of its members."""
    simple = [log_column for log_column in regular if not log_column.column.type.is_multicell]
    cells = [(field_name(log_column.name), _write_cell(code, log_column)) for log_column in simple]
    lines, touched = [], [f"c{log_column.value} is None" for log_column in simple]
    if simple:
        flags = " or ".join(f"c{log_column.deleted}" for log_column in simple)
        listed = ", ".join(f"(c{log_column.deleted}, {log_column.name!r})" for log_column in simple)
        lines.append(f"deleted = [name for flag, name in ({listed},) if flag] if {flags} else None")
    multicell = [log_column for log_column in regular if log_column.column.type.is_multicell]
    if multicell:
        lines.append("deletions = None")
    for log_column in multicell:
        read = code.bind("elements", elements_of(log_column.column.type))
        deletion = dict_display(
            (
                ("column", repr(log_column.name)),
                ("write_time", "write_time - 1"),
                ("local_deletion_time", "write_time // 1000000"),
            )
        )
        lines += [f"if c{log_column.deleted}:", f"    deletions = [*(deletions or ()), {deletion}]"]
        untouched = f"c{log_column.value} is None and c{log_column.elements} is None"
        touched.append(untouched)
        cells.append(
            (
                field_name(log_column.name),
                f"None if {untouched} else {read}(c{log_column.value}, c{log_column.elements})",
            )
        )
    return lines, {
        "cells": f"None if {' and '.join(touched)} else {dict_display(cells)}",
        "deleted": "deleted",
        "stamps": "None",
        "complex_deletions": "deletions",
    }


def compile_rows(
    width: int,
    key: Sequence[LogColumn],
    clustering: Sequence[LogColumn],
    regular: Sequence[LogColumn],
    tail: Mapping[str, None],
) -> tuple[Callable[..., dict[str, Any]], Callable[..., tuple[Any, bytes, Any]]]:
    """Two functions that are straight-line Python for the table's columns.

    Args:
        width: members of a row of the log.
        key: columns of the partition key.
        clustering: columns of the clustering key.
        regular: columns that are neither of a key nor static.
        tail: members of a row that depend on the table.

    Returns:
        (row, write time, stamp or None) -> a member of ``rows``, and (row, write time) -> the partition key as a struct and
        in serialized form, and a member of ``rows`` or None if the row has no clustering values.
    """
    code = CodeBuilder(INSERTED=_INSERTED, join=join_partition_key)
    lines, values = _write_regular(code, regular)
    members = []
    if clustering:
        members.append(
            (
                "clustering",
                dict_display((field_name(log_column.name), _write_cell(code, log_column)) for log_column in clustering),
            )
        )
    members += [
        ("liveness", "None if c3 == 1 else INSERTED"),
        ("deletion", "None"),
        ("stamp", "own"),
        *((name, values[name]) for name in tail),
    ]
    encoded = [
        f"{code.bind('encode', make_encoder(log_column.column.type))}(c{log_column.value})" for log_column in key
    ]
    data = encoded[0] if len(encoded) == 1 else f"join([{', '.join(encoded)}])"
    static = f"c{clustering[0].value} is None" if clustering else "False"
    unpack = f"{', '.join(f'c{index}' for index in range(width))} = row"
    struct = dict_display((field_name(log_column.name), _write_cell(code, log_column)) for log_column in key)
    code.define("entry(row, write_time, own)", [unpack, *lines, f"return {dict_display(members)}"])
    code.define(
        "single(row, write_time)",
        [unpack, "own = None", *lines, f"return {struct}, {data}, None if {static} else {dict_display(members)}"],
    )
    functions = code.compile("rows of partition updates")
    return functions["entry"], functions["single"]


def elements_of(kind: CqlType) -> Callable[[Any, Any], Any]:
    """The function that makes the member of ``cells`` from what was added to a multicell column and what was removed."""
    if kind.name == "udt":
        names = kind.field_names
        change = make_renamer(replace(kind, frozen=True))
        fields = {field_name(name): None for name in names}

        def of_udt(added: Any, removed: Any) -> dict[str, Any]:
            values = fields if added is None else added if change is None else change(added)
            return {
                "fields": values,
                "deleted": [names[index] for index in removed] if removed else None,
                "stamps": None,
            }

        return of_udt
    path = make_renamer(kind.arguments[0]) or _keep_value
    value = make_renamer(kind.arguments[-1]) or _keep_value

    def of_list(added: Any, removed: Any) -> list[dict[str, Any]]:
        return [
            *({"path": timeuuid.format_uuid(name), "value": value(item), "stamp": None} for name, item in added or ()),
            *({"path": timeuuid.format_uuid(name), "value": None, "stamp": None} for name in removed or ()),
        ]

    def of_set(added: Any, removed: Any) -> list[dict[str, Any]]:
        return [
            *({"path": path(item), "value": True, "stamp": None} for item in added or ()),
            *({"path": path(item), "value": None, "stamp": None} for item in removed or ()),
        ]

    def of_map(added: Any, removed: Any) -> list[dict[str, Any]]:
        return [
            *({"path": path(entry["key"]), "value": value(entry["value"]), "stamp": None} for entry in added or ()),
            *({"path": path(item), "value": None, "stamp": None} for item in removed or ()),
        ]

    return {"list": of_list, "set": of_set, "map": of_map}[kind.name]


def _keep_value(value: Any) -> Any:
    return value
