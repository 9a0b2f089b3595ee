"""The Connect schema of a column's field: its type, default, comment, and its type in the source. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connectors.mysql.schema.types import base_schema, declared
from connectors.mysql.schema.types_defaults import default_value
from connectors.schema import Schema

if TYPE_CHECKING:
    from connectors.mysql.model import MySqlColumn
    from connectors.mysql.schema.types import ValueOptions

_SOURCE_TYPE: Final = "__debezium.source.column."


def _source_parameters(column: MySqlColumn, options: ValueOptions) -> tuple[tuple[str, str], ...]:
    """The parameters that ``column.propagate.source.type`` asks for: type, length, scale, comment, name."""
    declaration = declared(column)
    parameters = [(_SOURCE_TYPE + "type", declaration.name)]
    if declaration.length >= 0:
        parameters.append((_SOURCE_TYPE + "length", str(declaration.length)))
    if declaration.scale >= 0:
        parameters.append((_SOURCE_TYPE + "scale", str(declaration.scale)))
    if options.comments and column.comment:
        parameters.append((_SOURCE_TYPE + "comment", column.comment))
    return (*parameters, (_SOURCE_TYPE + "name", column.name))


def field_schema(column: MySqlColumn, options: ValueOptions, *, propagate: bool = False) -> Schema:
    """The schema of the column's field, with the declared default where the catalog has it.

    Args:
        column: the column.
        options: the modes.
        propagate: whether ``column.propagate.source.type`` (or its data type form) names the column.
    """
    base = base_schema(column, options)
    parameters = base.parameters + _source_parameters(column, options) if propagate else base.parameters
    doc = column.comment if options.comments and column.comment else base.doc
    default = default_value(column, options)
    optional = column.nullable or base.optional
    if not optional and default is None and parameters == base.parameters and doc == base.doc:
        return base
    return Schema(
        base.type,
        optional=optional,
        default=default,
        name=base.name,
        version=base.version,
        doc=doc,
        parameters=parameters,
        fields=base.fields,
        value_schema=base.value_schema,
    )
