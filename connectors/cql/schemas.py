"""CQL types as Connect schemas, in the form of the Java connector's advanced format.

Every schema is optional but the entries of a map. Structs are named ``<prefix>MapEntry_<key>_<value>``,
``<prefix>Tuple_<...>`` and ``<prefix>UDT_<name>``, with types named by ``type_name``; the prefix is
``<topic prefix>.<keyspace>.<table>.``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from connectors import schema
from connectors.cql.debezium_names import ValueForms
from connectors.cql.types import CqlType, to_text
from connectors.errors import Fatal

if TYPE_CHECKING:
    from connectors.schema import Schema

#: What the Java connector writes.
JAVA: Final = ValueForms()
_DATE: Final = schema.date(optional=True)
_TIMESTAMP: Final = schema.timestamp(optional=True)
_SCALARS: Final = {
    "ascii": schema.OPTIONAL_STRING,
    "text": schema.OPTIONAL_STRING,
    "varchar": schema.OPTIONAL_STRING,
    "uuid": schema.OPTIONAL_STRING,
    "timeuuid": schema.OPTIONAL_STRING,
    "varint": schema.OPTIONAL_STRING,
    "decimal": schema.OPTIONAL_STRING,
    "inet": schema.OPTIONAL_STRING,
    "duration": schema.OPTIONAL_STRING,
    "tinyint": schema.OPTIONAL_INT8,
    "smallint": schema.OPTIONAL_INT16,
    "int": schema.OPTIONAL_INT32,
    "bigint": schema.OPTIONAL_INT64,
    "counter": schema.OPTIONAL_INT64,
    "time": schema.OPTIONAL_INT64,
    "boolean": schema.OPTIONAL_BOOLEAN,
    "float": schema.OPTIONAL_FLOAT32,
    "double": schema.OPTIONAL_FLOAT64,
    "blob": schema.OPTIONAL_BYTES,
    "custom": schema.OPTIONAL_BYTES,
    "raw": schema.OPTIONAL_BYTES,
    "empty": schema.OPTIONAL_BYTES,
    "date": _DATE,
    "timestamp": _TIMESTAMP,
}
#: The Java drivers call both spellings by the older one.
_NAMES: Final = {"text": "VARCHAR"}


def type_name(kind: CqlType) -> str:
    """The part that ``kind`` has in the names of schemas, as ``Map_INT_List_VARCHAR``."""
    if kind.name == "udt":
        return "UDT_" + kind.udt_name.replace(".", "_").replace("-", "_")
    if kind.name == "vector":
        return f"Vector_{type_name(kind.arguments[0])}_{kind.dimension}"
    if kind.arguments:
        return "_".join([kind.name.capitalize(), *(type_name(member) for member in kind.arguments)])
    return _NAMES.get(kind.name, kind.name.upper())


def connect_schema(kind: CqlType, *, name_prefix: str, names: ValueForms = JAVA) -> Schema:
    """The schema of the values that ``connectors.cql.values.make_decoder(kind)`` gives; equal types give the same object.

    Args:
        kind: the type of the base table (a multicell list is an array there, whatever its log holds).
        name_prefix: of the names of structs, with its last dot: ``prefix.keyspace.table.``.
        names: of the forms of uuids, times of the day, decimals and varints; their values are changed by ``ValueForms.form``.

    Raises:
        Fatal: there is no such type.
    """
    return _make_schema(kind, name_prefix, names)


@lru_cache(maxsize=10_000)
def _make_schema(kind: CqlType, prefix: str, names: ValueForms) -> Schema:
    form = names.form(kind.name)
    scalar = form.schema if form is not None else _SCALARS.get(kind.name)
    if scalar is not None:
        return scalar
    members = [_make_schema(member, prefix, names) for member in kind.arguments]
    if kind.name in {"list", "set", "vector", "timed_list"}:
        return schema.array(members[0], optional=True)
    if kind.name == "map":
        name = f"{prefix}MapEntry_{type_name(kind.arguments[0])}_{type_name(kind.arguments[1])}"
        return schema.array(schema.struct(name, {"key": members[0], "value": members[1]}), optional=True)
    if kind.name == "tuple":
        fields = {f"field_{index}": member for index, member in enumerate(members)}
        return schema.struct(prefix + type_name(kind), fields, optional=True)
    if kind.name == "udt":
        return schema.struct(prefix + type_name(kind), dict(zip(kind.field_names, members, strict=True)), optional=True)
    raise Fatal(f"the CQL type {to_text(kind)!r} has no Connect schema; leave the column out, or write to the project")
