"""CQL types in the form of Debezium's Cassandra connector: schemas, and what values in ``connectors.cql.values``' forms become.

All schemas are optional. The table is in TYPES.md, with what differs from Debezium and why.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from connectors import schema as connect
from connectors.cql.debezium_names import DECIMAL_FORMS, NANO_TIME, UUID, VARINT_FORMS
from connectors.cql.debezium_names import ValueForm as DebeziumType
from connectors.errors import Fatal, Skippable
from connectors.formats.names import schema_part
from connectors.schema import Schema, Type, array, map_of, struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.cassandra.events.contract import CassandraEventSettings
    from connectors.cql.types import CqlType

    Change = Callable[[Any], Any] | None

_SCHEMAS: Final = {
    "ascii": connect.OPTIONAL_STRING,
    "text": connect.OPTIONAL_STRING,
    "varchar": connect.OPTIONAL_STRING,
    "inet": connect.OPTIONAL_STRING,
    "uuid": UUID,
    "timeuuid": UUID,
    "tinyint": connect.OPTIONAL_INT8,
    "smallint": connect.OPTIONAL_INT16,
    "int": connect.OPTIONAL_INT32,
    "bigint": connect.OPTIONAL_INT64,
    "time": connect.OPTIONAL_INT64,
    "boolean": connect.OPTIONAL_BOOLEAN,
    "float": connect.OPTIONAL_FLOAT32,
    "double": connect.OPTIONAL_FLOAT64,
    "blob": connect.OPTIONAL_BYTES,
    "custom": connect.OPTIONAL_BYTES,
    "empty": connect.OPTIONAL_BYTES,
    "date": Schema(Type.INT32, optional=True, name="io.debezium.time.Date", version=1),
    "timestamp": Schema(Type.INT64, optional=True, name="io.debezium.time.Timestamp", version=1),
    "duration": Schema(Type.INT64, optional=True, name="io.debezium.time.NanoDuration", version=1),
}
#: How Cassandra calls the classes of types, without "Type".
CLASSES: Final = {
    "ascii": "Ascii",
    "bigint": "Long",
    "blob": "Bytes",
    "boolean": "Boolean",
    "counter": "CounterColumn",
    "date": "SimpleDate",
    "decimal": "Decimal",
    "double": "Double",
    "duration": "Duration",
    "empty": "Empty",
    "float": "Float",
    "inet": "InetAddress",
    "int": "Int32",
    "smallint": "Short",
    "text": "UTF8",
    "time": "Time",
    "timestamp": "Timestamp",
    "timeuuid": "TimeUUID",
    "tinyint": "Byte",
    "uuid": "UUID",
    "varchar": "UTF8",
    "varint": "Integer",
    "list": "List",
    "set": "Set",
    "map": "Map",
    "tuple": "Tuple",
    "udt": "User",
    "vector": "Vector",
    "custom": "Custom",
}
#: Types whose values can't be keys of a Python dict (nor, in JSON, of an object).
_NO_KEYS: Final = frozenset({"list", "set", "map", "tuple", "udt", "vector"})
_DURATION: Final = re.compile(
    r"(-?)(?:(\d+)y)?(?:(\d+)mo)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?(?:(\d+)us)?(?:(\d+)ns)?\Z"
)
_DAY: Final = 86_400 * 10**9
#: Nanoseconds of the parts of a duration. Debezium counts 30 days for a month.
_UNITS: Final = (360 * _DAY, 30 * _DAY, _DAY, 3600 * 10**9, 60 * 10**9, 10**9, 10**6, 10**3, 1)
_INT64: Final = 1 << 63
#: A decimal with more zeros is not written in plain notation; ``1E+2000000000`` would fill the memory.
_MAX_ZEROS: Final = 10_000


def debezium_type(kind: CqlType, path: str, settings: CassandraEventSettings) -> DebeziumType:
    """How values of ``kind`` are written.

    Args:
        kind: the type.
        path: a dotted name for the structs in it; no other column of the table may have it.
        settings: of ``decimal`` and ``varint``.

    Raises:
        Fatal: the type has no form (counters).
    """
    if kind.name in {"list", "set", "vector"}:
        inner = debezium_type(kind.arguments[0], f"{path}.item", settings)
        return DebeziumType(array(inner.schema, optional=True), _change_elements(inner.change))
    if kind.name == "map":
        return _map_type(kind, path, settings)
    if kind.name == "tuple":
        members = [
            debezium_type(argument, f"{path}.field{index}", settings)
            for index, argument in enumerate(kind.arguments, 1)
        ]
        name = "".join(CLASSES[argument.name] for argument in kind.arguments)
        schema = struct(
            f"{path}.{name}Tuple",
            {f"field{index}": argument.schema for index, argument in enumerate(members, 1)},
            optional=True,
        )
        return DebeziumType(
            schema,
            _change_members(
                [(f"field_{index}", f"field{index + 1}", argument.change) for index, argument in enumerate(members)],
                always=True,
            ),
        )
    if kind.name == "udt":
        fields = field_types(kind, settings)
        return DebeziumType(
            udt_schema(kind, fields),
            _change_members([(name, name, argument.change) for name, argument in fields.items()], always=False),
        )
    if kind.name == "decimal":
        schema, change = DECIMAL_FORMS[settings.decimals]
        return DebeziumType(schema, _format_decimal if settings.decimals == "string" else change)
    if kind.name == "varint":
        return (
            DebeziumType(connect.OPTIONAL_INT64, _parse_long)
            if settings.varints == "long"
            else VARINT_FORMS[settings.varints]
        )
    if kind.name == "time" and settings.logical:
        return DebeziumType(NANO_TIME, None)
    scalar = _SCHEMAS.get(kind.name)
    if scalar is None:
        raise Fatal(
            f"Values of type {kind.name} have no form in output.format=debezium: take the table out of "
            "table.include.list, or switch its log off (ALTER TABLE ... WITH cdc = false)."
        )
    return DebeziumType(scalar, {"inet": _format_inet, "duration": _parse_nanoseconds}.get(kind.name))


def field_types(kind: CqlType, settings: CassandraEventSettings) -> dict[str, DebeziumType]:
    """How the fields of a UDT are written; structs in them are named by the UDT, as it is the same wherever it is used."""
    return {
        name: debezium_type(member, f"{_udt_name(kind)}.{schema_part(name)}", settings)
        for name, member in zip(kind.field_names, kind.arguments, strict=True)
    }


def udt_schema(kind: CqlType, fields: dict[str, DebeziumType]) -> Schema:
    """The schema of a UDT."""
    return struct(_udt_name(kind), {name: field.schema for name, field in fields.items()}, optional=True)


def map_has_entries(kind: CqlType, settings: CassandraEventSettings) -> bool:
    """Whether a map is written as an array of entries, because its keys are structs or arrays."""
    key = kind.arguments[0].name
    return key in _NO_KEYS or (key == "decimal" and settings.decimals == "precise")


def class_text(kind: CqlType, *, reversed_order: bool = False, inside: bool = False) -> str:
    """A type as Cassandra's Java classes call it: ``org.apache.cassandra.db.marshal.Int32Type``.

    Args:
        kind: the type.
        reversed_order: whether it is that of a clustering column in descending order.
        inside: whether it is part of a frozen type, in which nothing else is marked as frozen.
    """
    package = "org.apache.cassandra.db.marshal."
    if reversed_order:
        return f"{package}ReversedType({class_text(kind)})"
    members = [class_text(argument, inside=inside or not kind.is_multicell) for argument in kind.arguments]
    inner = ",".join(members)
    match kind.name:
        case "custom":
            return kind.class_name
        case "udt":
            fields = "".join(
                f",{name.encode().hex()}:{class_name}"
                for name, class_name in zip(kind.field_names, members, strict=True)
            )
            class_name = f"{package}UserType({kind.keyspace},{kind.udt_name.encode().hex()}{fields})"
        case "vector":
            return f"{package}VectorType({inner} , {kind.dimension})"
        case "tuple":
            return f"{package}TupleType({inner})"
        case "list" | "set" | "map":
            class_name = f"{package}{CLASSES[kind.name]}Type({inner})"
        case _:
            return f"{package}{CLASSES[kind.name]}Type"
    return f"{package}FrozenType({class_name})" if kind.frozen and not inside else class_name


def _udt_name(kind: CqlType) -> str:
    return f"{schema_part(kind.keyspace)}.{schema_part(kind.udt_name)}"


def _map_type(kind: CqlType, path: str, settings: CassandraEventSettings) -> DebeziumType:
    key = debezium_type(kind.arguments[0], f"{path}.key", settings)
    value = debezium_type(kind.arguments[1], f"{path}.value", settings)
    if map_has_entries(kind, settings):
        entry = struct(f"{path}.Entry", {"key": key.schema, "value": value.schema})
        if key.change is None and value.change is None:
            return DebeziumType(array(entry, optional=True), None)
        return DebeziumType(
            array(entry, optional=True),
            lambda entries: [
                {"key": _apply_change(key.change, pair["key"]), "value": _apply_change(value.change, pair["value"])}
                for pair in entries
            ],
        )
    return DebeziumType(
        map_of(key.schema, value.schema, optional=True),
        lambda entries: {
            _apply_change(key.change, pair["key"]): _apply_change(value.change, pair["value"]) for pair in entries
        },
    )


def _change_elements(change: Change) -> Change:
    return None if change is None else lambda items: [None if item is None else change(item) for item in items]


def _change_members(members: list[tuple[str, str, Change]], *, always: bool) -> Change:
    """Return the function that converts a struct; None where it would change nothing, unless ``always``."""
    if not always and all(change is None for _, _, change in members):
        return None
    return lambda value: {field: _apply_change(change, value.get(name)) for name, field, change in members}


def _apply_change(change: Change, value: Any) -> Any:
    return value if change is None or value is None else change(value)


def _format_inet(address: str) -> str:
    return f"/{address}"


def _parse_nanoseconds(duration: str) -> int:
    match = _DURATION.match(duration)
    if match is None:
        raise Skippable(f"A duration of {duration!r} is not understood")
    sign, *parts = match.groups()
    nanoseconds = sum(int(count) * unit for count, unit in zip(parts, _UNITS, strict=True) if count)
    if nanoseconds >= _INT64:
        raise Skippable(
            f"A duration of {duration} has more nanoseconds than 64 bits hold, which is how output.format=debezium "
            "writes durations: choose another output.format, or field.exclude.list"
        )
    return -nanoseconds if sign else nanoseconds


def _format_decimal(digits: str) -> str:
    number = Decimal(digits)
    _, _, exponent = number.as_tuple()
    return format(number, "f") if isinstance(exponent, int) and abs(exponent) <= _MAX_ZEROS else digits


def _parse_long(digits: str) -> int:
    if len(digits) > 20 or not -_INT64 <= (number := int(digits)) < _INT64:
        raise Skippable(
            f"A varint of {len(digits)} digits ({digits[:40]}) does not fit into 64 bits: set varint.handling.mode="
            "precise or string. (Debezium would cut it off without a word.)"
        )
    return number
