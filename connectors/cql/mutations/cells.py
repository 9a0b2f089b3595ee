"""How the columns of a table lie in a partition update: widths, shapes and the functions that decode them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.cql.types import CqlType
from connectors.cql.values import fixed_width, make_decoder, read_unsigned_vint

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.cql.mutations.definition import CqlTableDefinition

    Decode = Callable[[bytes], Any]

#: Everything is hidden up to this write time: of a column that is gone.
FOR_EVER: Final = 1 << 64
#: Custom types whose values have one width. No other Java class of the server that a column can have is so.
_CUSTOM_WIDTH: Final = {"LexicalUUIDType": 16, "LegacyTimeUUIDType": 16, "DateType": 8}
_TIMEUUID: Final = CqlType("timeuuid")
_unpack_int = struct.Struct(">i").unpack_from


class NewerField(ValueError):
    """A value has fields that its UDT does not have in the definition at hand."""


class CellReader(NamedTuple):
    """How one column's cells are read.

    Attributes:
        name: the column's name.
        width: of every value, or None where each has its length before it.
        decode: bytes of a value -> value; of a UDT unused.
        shape: empty for a column of one cell; else what the multicell type is: ``list``, ``set``, ``map``, ``udt``.
        path: bytes of an element's name -> name; of a UDT unused.
        fields: of a UDT, by index: name and function of its value.
        hidden_to: cells with a write time up to this one are hidden (µs since 1970); None: none are.
    """

    name: str
    width: int | None
    decode: Decode
    shape: str = ""
    path: Decode = bytes
    fields: tuple[tuple[str, Decode], ...] = ()
    hidden_to: int | None = None


def cell_readers(table: CqlTableDefinition, *, values: bool = True) -> dict[bytes, CellReader]:
    """How cells of each static and regular column are read, the dropped ones included, by the name's bytes.

    Args:
        table: the definition.
        values: whether values are wanted; else they are all ``b""`` or nothing, and cheap.
    """
    dropped = {column.name: column for column in table.dropped}
    readers = {}
    for name, gone in dropped.items():
        readers[name.encode()] = _cell_reader(name, gone.type, FOR_EVER, values=False)
    for column in (*table.static, *table.regular):
        earlier = dropped.get(column.name)
        readers[column.name.encode()] = _cell_reader(
            column.name, column.type, earlier.dropped_us if earlier else None, values=values
        )
    return readers


def _cell_reader(name: str, kind: CqlType, hidden_to: int | None, *, values: bool) -> CellReader:
    if not kind.is_multicell:
        return CellReader(
            name, log_width(kind), value_decoder(kind) if values else _decode_nothing, hidden_to=hidden_to
        )
    if not values:
        return CellReader(name, None, _decode_nothing, "list", _decode_nothing, (), hidden_to)
    if kind.name == "udt":
        fields = tuple(
            (field, value_decoder(member)) for field, member in zip(kind.field_names, kind.arguments, strict=True)
        )
        return CellReader(name, None, _decode_nothing, "udt", _decode_nothing, fields, hidden_to)
    path = value_decoder(_TIMEUUID if kind.name == "list" else kind.arguments[0])
    return CellReader(
        name,
        None,
        _decode_true if kind.name == "set" else value_decoder(kind.arguments[-1]),
        kind.name,
        path,
        (),
        hidden_to,
    )


def _decode_nothing(data: bytes) -> bytes:
    del data
    return b""


def _decode_true(data: bytes) -> bool:
    del data
    return True


def log_width(kind: CqlType) -> int | None:
    """How many bytes every value of ``kind`` has in a mutation, or None where each has its length before it."""
    if kind.name == "custom":
        return _CUSTOM_WIDTH.get(kind.class_name.rpartition(".")[2])
    return fixed_width(kind)


def value_decoder(kind: CqlType) -> Decode:
    """As ``connectors.cql.values.make_decoder``, but a UDT's value with more fields than ``kind`` has is refused.

    Returns:
        The function; it raises ``NewerField`` for such a value, and ``ValueError`` or ``struct.error`` for bytes that are no
        value of ``kind``.
    """
    decode, surplus = make_decoder(kind), _surplus_check(kind)
    if surplus is None:
        return decode

    def checked(data: bytes) -> Any:
        if surplus(data):
            raise NewerField("a value has more fields than its user-defined type")
        return decode(data)

    return checked


def _surplus_check(kind: CqlType) -> Callable[[bytes], bool] | None:
    """The function that tells whether a UDT in a value has more fields than it should; None: there is no UDT in the type.

    Bytes that are no value of the type may give either answer: the decoder complains about them.
    """
    inner = [_surplus_check(argument) for argument in kind.arguments]
    if kind.name == "udt" or (kind.name == "tuple" and any(inner)):
        return _fields_surplus(inner, counted=kind.name == "udt")
    if not any(inner):
        return None
    if kind.name == "vector":
        return _vector_surplus(inner[0], kind.dimension)
    return _elements_surplus(inner)


def _fields_surplus(inner: list[Callable[[bytes], bool] | None], *, counted: bool) -> Callable[[bytes], bool]:
    def surplus(data: bytes) -> bool:
        position, length = 0, len(data)
        for inner_check in inner:
            if position >= length:
                return False
            size = max(_unpack_int(data, position)[0], 0)
            position += 4 + size
            if inner_check is not None and size and inner_check(data[position - size : position]):
                return True
        return counted and position < length

    return surplus


def _elements_surplus(inner: list[Callable[[bytes], bool] | None]) -> Callable[[bytes], bool]:
    def surplus(data: bytes) -> bool:
        position, length = 4, len(data)
        while position < length:
            for inner_check in inner:
                size = max(_unpack_int(data, position)[0], 0)
                position += 4 + size
                if inner_check is not None and size and inner_check(data[position - size : position]):
                    return True
        return False

    return surplus


def _vector_surplus(inner: Callable[[bytes], bool] | None, dimension: int) -> Callable[[bytes], bool]:
    def surplus(data: bytes) -> bool:
        position = 0
        for _ in range(dimension if data else 0):
            size, position = read_unsigned_vint(data, position)
            position += size
            if inner is not None and inner(data[position - size : position]):
                return True
        return False

    return surplus
