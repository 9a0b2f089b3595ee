"""Schemas of CQL values whose structs have names that are unique in a message, as Avro wants them.

Values are in the forms of ``connectors.cql.values``. Every member of a struct is optional, elements of collections too: CQL has
no type whose values can't be null somewhere.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from connectors.cql.types import to_text
from connectors.formats.names import column_name, field_name, schema_part
from connectors.schema import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Type,
    array,
    date,
    struct,
    timestamp,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.cql.types import CqlType
    from connectors.schema import Schema

#: The parameter in which a column's schema names its CQL type.
CQL_TYPE: Final = "cql.type"

_NATIVE: Final = {
    "ascii": STRING,
    "text": STRING,
    "varchar": STRING,
    "varint": STRING,
    "decimal": STRING,
    "inet": STRING,
    "duration": STRING,
    "uuid": STRING,
    "timeuuid": STRING,
    "bigint": INT64,
    "counter": INT64,
    "int": INT32,
    "smallint": INT16,
    "tinyint": INT8,
    "boolean": BOOLEAN,
    "float": FLOAT32,
    "double": FLOAT64,
    "blob": BYTES,
    "custom": BYTES,
    "empty": BYTES,
    "time": INT64,
    "date": date(),
    "timestamp": timestamp(),
}


def cql_schema(kind: CqlType, name: str, *, optional: bool) -> Schema:
    """The schema of values of ``kind``.

    Args:
        kind: the type.
        name: a dotted name for the structs in it; no other column of the message may have it.
        optional: whether null is allowed.
    """
    match kind.name:
        case "list" | "set" | "vector":
            return array(cql_schema(kind.arguments[0], f"{name}.item", optional=True), optional=optional)
        case "map":
            entry = struct(
                f"{name}.Entry",
                {
                    "key": cql_schema(kind.arguments[0], f"{name}.key", optional=True),
                    "value": cql_schema(kind.arguments[1], f"{name}.value", optional=True),
                },
            )
            return array(entry, optional=optional)
        case "tuple":
            return struct(
                f"{name}.Tuple",
                {
                    f"field_{index}": cql_schema(member, f"{name}.field_{index}", optional=True)
                    for index, member in enumerate(kind.arguments)
                },
                optional=optional,
            )
        case "udt":
            return struct(
                f"{name}.Udt",
                {
                    field_name(field): typed_schema(member, f"{name}.{schema_part(field_name(field))}", optional=True)
                    for field, member in zip(kind.field_names, kind.arguments, strict=True)
                },
                optional=optional,
            )
    schema = _NATIVE[kind.name]
    return replace(schema, optional=True) if optional else schema


def typed_schema(kind: CqlType, name: str, *, optional: bool) -> Schema:
    """As ``cql_schema``, with the parameter ``cql.type``."""
    schema = cql_schema(kind, name, optional=optional)
    return replace(schema, parameters=(*schema.parameters, (CQL_TYPE, to_text(kind))))


def make_renamer(kind: CqlType) -> Callable[[Any], Any] | None:
    """Return a function that turns names of UDT fields into the schema's names; None where all of them are the same."""
    members = [make_renamer(member) for member in kind.arguments]
    if kind.name == "udt":
        names = [(name, field_name(name), change) for name, change in zip(kind.field_names, members, strict=True)]
        if not any(members) and all(name == field for name, field, _ in names):
            return None
        return _over_null(lambda value: {field: _apply(change, value.get(name)) for name, field, change in names})
    if not any(members):
        return None
    if kind.name == "map":
        return _over_null(
            lambda value: [
                {"key": _apply(members[0], entry["key"]), "value": _apply(members[1], entry["value"])}
                for entry in value
            ]
        )
    if kind.name == "tuple":
        return _over_null(
            lambda value: {
                f"field_{index}": _apply(change, value.get(f"field_{index}")) for index, change in enumerate(members)
            }
        )
    return _over_null(lambda value: [_apply(members[0], item) for item in value])


def make_reader(schema: Schema) -> Callable[[Any], Any] | None:
    """Return a function that turns a value from any converter into the form of ``connectors.cql.values``.

    The converter may also be JSON without schemas. Base64 becomes bytes, ``"NaN"`` and the infinities become numbers, names of
    fields become names of UDT fields.

    Returns:
        None where values are right as they come.
    """
    match schema.type:
        case Type.BYTES:
            return lambda value: base64.b64decode(value) if isinstance(value, str) else value
        case Type.FLOAT32 | Type.FLOAT64:
            return lambda value: None if value is None else float(value)
        case Type.ARRAY if schema.value_schema is not None:
            inner = make_reader(schema.value_schema)
            return None if inner is None else _over_null(lambda value: [inner(item) for item in value])
        case Type.STRUCT:
            members = [
                (member_field.name, column_name(member_field.name), make_reader(member_field.schema))
                for member_field in schema.fields
            ]
            return _over_null(lambda value: {name: _apply(change, value.get(field)) for field, name, change in members})
    return None


def _over_null(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else change(value)


def _apply(change: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if change is None else change(value)
