"""Decides which columns of a table become fields of its events, and how: see ``make_layout``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from connectors.errors import ConfigInvalid
from connectors.formats.masks.masking import Mask, Target, row_masker
from connectors.java_regex import compile_java
from connectors.mysql.config.filters import column_filter, matches_any, parse_patterns, table_columns
from connectors.mysql.events.names import field_name
from connectors.mysql.model import ColumnPlan, MySqlColumn, MySqlTable
from connectors.mysql.schema import types
from connectors.mysql.schema.fields import field_schema
from connectors.schema import Schema  # noqa: TC001 - annotations are read at run time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from connectors.mysql.events.contract import MySqlEventSettings
    from connectors.mysql.schema.types import ValueOptions

#: What Debezium takes as text, and so masks.
_TEXT: Final = frozenset({types.ColumnKind.TEXT, types.ColumnKind.ENUM, types.ColumnKind.SET})


class FieldPlan(NamedTuple):
    """One field of a key or of a value.

    Attributes:
        column: the column's name, which is the value's name in the decoder's rows.
        name: the field's name.
        schema: the field's schema.
        transform: the function to apply to the decoder's value, or None.
        nulls: whether ``transform`` is called with None too.
        encoded: whether the event says that the value is masked.
    """

    column: str
    name: str
    schema: Schema
    transform: Callable[[Any], Any] | None = None
    nulls: bool = False
    encoded: bool = False


class ColumnLayout(msgspec.Struct, frozen=True, kw_only=True):
    """One structure of a table as its events show it.

    The decoder does not mask key columns: snapshots read in their order, and an event's key shows them even where its value
    hides them, as in Debezium. ``values`` and ``key`` hold the functions that still have to be applied to the decoder's rows.

    Attributes:
        table: the structure.
        plans: for the decoder, in the order of the table's columns; None: no event needs the column.
        values: the fields of ``before`` and ``after`` in order.
        key: the fields of the event's key in order; () for no key.
        masker: changes a row of ``values`` in place (masks that look at other fields of the row), or None.
        row_masked: names of the fields that it changes.
    """

    table: MySqlTable
    plans: tuple[ColumnPlan | None, ...]
    values: tuple[FieldPlan, ...]
    key: tuple[FieldPlan, ...]
    masker: Callable[[dict[str, Any]], None] | None = None
    row_masked: frozenset[str] = frozenset()

    @property
    def as_decoded(self) -> bool:
        """Whether the decoder's rows are values as they are."""
        decoded = [plan.column.name for plan in self.plans if plan is not None]
        return (
            self.masker is None
            and decoded == [field.name for field in self.values]
            and all(field.transform is None for field in self.values)
        )


def make_layout(table: MySqlTable, settings: MySqlEventSettings, options: ValueOptions) -> ColumnLayout:
    """The layout of a table's events. Compiles expressions: once per structure, not per event.

    As in Debezium, a masked or truncated column does not have the source's type among its parameters. In Debezium a column
    that has it is no longer hashed, which would reveal the value; here masks come first.

    Raises:
        ConfigInvalid: an expression can't be used, a mask can't be for a column, or two columns become the same field.
    """
    included = column_filter(settings)
    sourced, typed = parse_patterns(settings.source_types), parse_patterns(settings.source_data_types)
    schemas: dict[str, Schema] = {}
    for column in table.columns:
        propagate = matches_any(sourced, f"{table.name}.{column.name}") or (
            bool(typed) and matches_any(typed, f"{table.name}.{types.declared(column).name}")
        )
        schemas[column.name] = field_schema(column, options, propagate=propagate)
    key = key_columns(table, settings)
    shown = {column.name for column in table.columns if included(table.name, column.name)}
    names = _field_names([column for column in table.columns if column.name in shown or column.name in key], settings)
    masks = {
        column.name: mask
        for column in table.columns
        if column.name in shown or column.name in key
        if (
            mask := _mask_column(
                column,
                table,
                field_schema(column, options),
                settings,
                in_key=column.name in key,
                fields=tuple(name for column_name, name in names.items() if column_name in shown),
            )
        )
        is not None
    }
    raw = {*table.key, *key}
    plans: list[ColumnPlan | None] = []
    values: list[FieldPlan] = []
    for column in table.columns:
        name = column.name
        mask = masks.get(name)
        if name in shown:
            transform, nulls = (None, False) if mask is None else (mask.convert, mask.nulls)
            schema, encoded = (schemas[name], False) if mask is None else (mask.schema, mask.encoded)
            late = name in raw
            plans.append(
                ColumnPlan(column, schemas[name] if late else schema, None if late else transform, nulls and not late)
            )
            values.append(FieldPlan(name, names[name], schema, transform if late else None, nulls and late, encoded))
        else:
            plans.append(ColumnPlan(column, schemas[name]) if name in raw else None)
    keys = []
    for name in key:
        mask = masks.get(name)
        if mask is not None and mask.in_key:
            keys.append(FieldPlan(name, names[name], mask.schema, mask.convert, mask.nulls, mask.encoded))
        else:
            # Debezium gives a key's fields no parameters with the source's types.
            plain = field_schema(table.column(name) or MySqlColumn(name=name, type=0), options)
            keys.append(FieldPlan(name, names[name], schemas[name] if plain == schemas[name] else plain))
    masker = row_masker([(names[name], mask) for name, mask in masks.items() if name in shown])
    row_masked = frozenset(names[name] for name, mask in masks.items() if mask.convert_row is not None)
    return ColumnLayout(
        table=table,
        plans=tuple(plans),
        values=tuple(values),
        key=tuple(keys),
        masker=masker,
        row_masked=row_masked,
    )


def key_columns(table: MySqlTable, settings: MySqlEventSettings) -> tuple[str, ...]:
    """The columns of the event's key: those that ``message.key.columns`` names for the table, else the table's key.

    Raises:
        ConfigInvalid: the option can't be parsed.
    """
    chosen: list[str] = []
    for tables, column_names in table_columns("message.key.columns", settings.key_columns):
        for name in column_names:
            # Debezium takes the column too as part of one expression for database.table.column.
            expression = compile_java(f"(?i){tables}.{name}")
            chosen += [
                column.name
                for column in table.columns
                if expression.fullmatch(f"{table.name}.{column.name}") and column.name not in chosen
            ]
    return tuple(chosen) or table.key


def _field_names(columns: list[MySqlColumn], settings: MySqlEventSettings) -> Mapping[str, str]:
    names = {column.name: field_name(column.name, settings.field_names) for column in columns}
    if len(set(names.values())) < len(names):
        double = sorted(name for name in names if list(names.values()).count(names[name]) > 1)
        raise ConfigInvalid(
            f"field.name.adjustment.mode={settings.field_names} gives the columns {', '.join(double)} the same "
            "field name; leave all but one out with column.exclude.list, or use another mode"
        )
    return names


def _mask_column(
    column: MySqlColumn,
    table: MySqlTable,
    schema: Schema,
    settings: MySqlEventSettings,
    *,
    in_key: bool,
    fields: tuple[str, ...],
) -> Mask | None:
    if not settings.masks:
        return None
    return settings.masks.for_column(
        Target(
            f"{table.name}.{column.name}",
            schema,
            types.declared(column).length,
            types.kind_of(column) in _TEXT,
            in_key,
            fields,
        )
    )
