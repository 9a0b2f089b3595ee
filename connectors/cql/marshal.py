"""Types as the server's own names have them: Java classes (``MapType(UTF8Type,Int32Type)``) and the protocol's numbers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from connectors.cql.types import LONGEST_DIMENSION, CqlType, UnknownType, check_depth, freeze_type

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGE: Final = "org.apache.cassandra.db.marshal."
_CLASSES: Final = {
    "AsciiType": "ascii",
    "BooleanType": "boolean",
    "ByteType": "tinyint",
    "BytesType": "blob",
    "CounterColumnType": "counter",
    "DateType": "timestamp",
    "DecimalType": "decimal",
    "DoubleType": "double",
    "DurationType": "duration",
    "EmptyType": "empty",
    "FloatType": "float",
    "InetAddressType": "inet",
    "Int32Type": "int",
    "IntegerType": "varint",
    "LongType": "bigint",
    "ShortType": "smallint",
    "SimpleDateType": "date",
    "TimeType": "time",
    "TimeUUIDType": "timeuuid",
    "TimestampType": "timestamp",
    "UTF8Type": "text",
    "UUIDType": "uuid",
}
_CONTAINERS: Final = {"ListType": "list", "SetType": "set", "MapType": "map", "TupleType": "tuple"}
#: Numbers of types in the native protocol.
_CODES: Final = {
    0x01: "ascii",
    0x02: "bigint",
    0x03: "blob",
    0x04: "boolean",
    0x05: "counter",
    0x06: "decimal",
    0x07: "double",
    0x08: "float",
    0x09: "int",
    0x0A: "text",
    0x0B: "timestamp",
    0x0C: "uuid",
    0x0D: "text",
    0x0E: "varint",
    0x0F: "timeuuid",
    0x10: "inet",
    0x11: "date",
    0x12: "time",
    0x13: "smallint",
    0x14: "tinyint",
    0x15: "duration",
}
_CODE_CUSTOM, _CODE_LIST, _CODE_MAP, _CODE_SET, _CODE_UDT, _CODE_TUPLE = 0x00, 0x20, 0x21, 0x22, 0x30, 0x31


def parse_class(class_text: str) -> CqlType:
    """The type that a Java class name stands for, with or without its package.

    A reversed clustering column's type is the type itself. A class that is not known is a ``custom`` type.

    Raises:
        UnknownType: parentheses do not match, the parts of a UDT or vector are not there, or it is nested too deep.
    """
    return _parse_class(class_text, 0)


def _parse_class(text: str, depth: int) -> CqlType:
    check_depth(depth)
    text = text.strip()
    head, bracket, rest = text.partition("(")
    short = head.strip().removeprefix(PACKAGE)
    if not bracket:
        type_name = _CLASSES.get(short)
        return CqlType(type_name) if type_name else CqlType("custom", class_name=text)
    if not rest.endswith(")"):
        raise UnknownType(f"the type class {text!r} is not understood: a ')' is missing")
    parts = _split_arguments(rest[:-1], text)
    if short == "FrozenType":
        return freeze_type(_parse_class(parts[0], depth + 1))
    if short == "ReversedType":
        return _parse_class(parts[0], depth + 1)
    if short in _CONTAINERS:
        if short != "TupleType" and len(parts) != (2 if short == "MapType" else 1):
            raise UnknownType(
                f"the type class {text!r} is not understood: it has {len(parts)} types in its parentheses"
            )
        result = CqlType(_CONTAINERS[short], tuple(_parse_class(part, depth + 1) for part in parts))
        return freeze_type(result) if short == "TupleType" else result
    if short == "VectorType":
        if len(parts) != 2 or not parts[1].strip().isdecimal() or len(parts[1].strip()) > LONGEST_DIMENSION:
            raise UnknownType(f"the type class {text!r} is not understood: a vector has a type and a dimension")
        return freeze_type(CqlType("vector", (_parse_class(parts[0], depth + 1),), dimension=int(parts[1])))
    if short == "UserType":
        return _user_type(parts, text, depth + 1)
    return CqlType("custom", class_name=text)


def _split_arguments(arguments_text: str, whole: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(arguments_text):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            raise UnknownType(f"the type class {whole!r} is not understood: a '(' is missing")
        if letter == "," and not depth:
            parts.append(arguments_text[start:index])
            start = index + 1
    if depth:
        raise UnknownType(f"the type class {whole!r} is not understood: a ')' is missing")
    return [*parts, arguments_text[start:]]


def _user_type(parts: list[str], arguments_text: str, depth: int) -> CqlType:
    try:
        keyspace, name, *fields = parts
        pairs = [field.split(":", 1) for field in fields]
        return CqlType(
            "udt",
            tuple(_parse_class(kind, depth) for _, kind in pairs),
            keyspace=keyspace.strip(),
            udt_name=bytes.fromhex(name).decode(),
            field_names=tuple(bytes.fromhex(field).decode() for field, _ in pairs),
        )
    except ValueError as error:
        raise UnknownType(f"the type class {arguments_text!r} is not understood: {error}") from error


def read_type(read: Callable[[int], bytes]) -> CqlType:
    """The type at the place of a result's metadata where ``read(n)`` gives the next bytes; collections come as not frozen.

    Raises:
        UnknownType: there is no such number, or the bytes are none of a type.
    """
    try:
        return _read_type(read, 0)
    except (struct.error, UnicodeDecodeError) as error:
        raise UnknownType(f"the server sends a type that can't be read: {error}") from error


def _read_type(read: Callable[[int], bytes], depth: int) -> CqlType:
    check_depth(depth)
    (code,) = _short(read(2))
    type_name = _CODES.get(code)
    if type_name is not None:
        return CqlType(type_name)
    if code == _CODE_CUSTOM:
        name = _read_string(read)
        try:
            return parse_class(name)
        except UnknownType:
            # Its values are bytes then; raising here would cost the connection and all queries on it.
            return CqlType("custom", class_name=name)
    if code in {_CODE_LIST, _CODE_SET}:
        return CqlType("list" if code == _CODE_LIST else "set", (_read_type(read, depth + 1),))
    if code == _CODE_MAP:
        return CqlType("map", (_read_type(read, depth + 1), _read_type(read, depth + 1)))
    if code == _CODE_TUPLE:
        (count,) = _short(read(2))
        return freeze_type(CqlType("tuple", tuple(_read_type(read, depth + 1) for _ in range(count))))
    if code == _CODE_UDT:
        keyspace, name = _read_string(read), _read_string(read)
        (count,) = _short(read(2))
        fields = [(_read_string(read), _read_type(read, depth + 1)) for _ in range(count)]
        return CqlType(
            "udt",
            tuple(kind for _, kind in fields),
            keyspace=keyspace,
            udt_name=name,
            field_names=tuple(field for field, _ in fields),
        )
    raise UnknownType(f"the server sends a type with the number 0x{code:04x}, which this version does not know")


_short: Any = struct.Struct(">H").unpack


def _read_string(read: Callable[[int], bytes]) -> str:
    (size,) = _short(read(2))
    return read(size).decode()
