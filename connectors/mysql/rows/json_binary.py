"""MySQL's binary JSON as a tree and as text; the text is the same for the server's own text form. Pure.

The text has no blanks, as Debezium writes it from the binlog. Values that JSON has no type for (dates, bytes) are written as
the server's text has them, so that the stream and snapshots agree.

A tree is of dict, list, str, int, float, bool, None, ``Decimal`` and ``Shown`` (such a value without a JSON type).
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from decimal import Decimal
from struct import Struct
from typing import Any, Final

from connectors.mysql.rows.decimals import decimal_reader
from connectors.mysql.schema import type_codes as codes


class Shown(str):
    """The text of a value that JSON has no type for."""

    __slots__ = ()


_U16: Final = Struct("<H").unpack_from
_U32: Final = Struct("<I").unpack_from
_INLINE_SMALL: Final = {5: Struct("<h").unpack_from, 6: _U16}
_INLINE_LARGE: Final = {**_INLINE_SMALL, 7: Struct("<i").unpack_from, 8: _U32}
_NUMBERS: Final = {
    5: Struct("<h").unpack_from,
    6: _U16,
    7: Struct("<i").unpack_from,
    8: _U32,
    9: Struct("<q").unpack_from,
    10: Struct("<Q").unpack_from,
    11: Struct("<d").unpack_from,
}
_LITERALS: Final = {0: None, 1: True, 2: False}
_LITERAL: Final = 4
_STRING: Final = 12
_OPAQUE: Final = 15
_CONTROL: Final = re.compile(r'[\x00-\x1f"\\]')
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\f": "\\f", "\n": "\\n", "\r": "\\r"}
#: Java writes doubles from here up, and from ``_SMALL`` down, with an exponent, which Debezium turns into all their digits.
_LARGE: Final = 1e7
_SMALL: Final = 1e-3
_FIRST_TEXT: Final = 0x0F


def parse_document(data: bytes) -> Any:
    """The tree of a stored document.

    Raises:
        ValueError: it is no document.
    """
    try:
        return _read_value(data, data[0], 1, [len(data)])
    except (IndexError, KeyError, ArithmeticError) as error:
        raise ValueError(f"a JSON column's bytes can't be read ({error!r})") from error
    except Exception as error:
        if isinstance(error, ValueError):
            raise
        raise ValueError(f"a JSON column's bytes can't be read ({error})") from error


def json_text(data: bytes) -> str:
    """A stored document as text. The empty value, which a row has that lacks a required one, is null for the server.

    Raises:
        ValueError: it is no document.
    """
    if not data:
        return "null"
    if data[0] > _FIRST_TEXT:
        return data.decode("utf-8", "replace")
    return write_json(parse_document(data))


def _read_value(data: bytes, kind: int, at: int, left: list[int]) -> Any:
    """Read one value.

    Args:
        data: The document.
        kind: The value's type.
        at: Where it begins.
        left: How many bytes of the document are left for values. The server stores each once; in a crafted document many
            entries could name the same bytes, and a few kilobytes become gigabytes.
    """
    if kind <= 3:
        return _read_container(data, kind, at, left)
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    number = _NUMBERS.get(kind)
    if number is not None:
        return number(data, at)[0]
    if kind == _STRING:
        size, at = _read_length(data, at)
        _take(left, size)
        return _slice_value(data, at, size).decode("utf-8", "replace")
    if kind == _OPAQUE:
        size, start = _read_length(data, at + 1)
        _take(left, size)
        return _read_opaque(data[at], _slice_value(data, start, size))
    raise ValueError(f"a JSON document has a value of type {kind}, which is unknown")


def _take(left: list[int], size: int) -> None:
    left[0] -= size
    if left[0] < 0:
        raise ValueError("a JSON document has more values than bytes: several of its entries name the same ones")


def _slice_value(data: bytes, at: int, size: int) -> bytes:
    part = data[at : at + size]
    if len(part) != size:
        raise ValueError(f"a JSON document ends before a value of {size} bytes does")
    return part


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    """A number of 7 bits a byte, and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return number, at
        shift += 7
        if shift > 28:
            raise ValueError("a length in a JSON document does not end")


def _read_container(data: bytes, kind: int, base: int, left: list[int]) -> dict[str, Any] | list[Any]:
    large = bool(kind & 1)
    offset, width = (_U32, 4) if large else (_U16, 2)
    inline = _INLINE_LARGE if large else _INLINE_SMALL
    count = offset(data, base)[0]
    at = base + 2 * width
    keys: list[str] = []
    _take(left, count * (1 + width))
    if kind < 2:
        for _ in range(count):
            start, size = base + offset(data, at)[0], _U16(data, at + width)[0]
            _take(left, size)
            keys.append(_slice_value(data, start, size).decode("utf-8", "replace"))
            at += width + 2
    values = []
    for _ in range(count):
        entry = data[at]
        number = inline.get(entry)
        if entry == _LITERAL:
            values.append(_LITERALS[data[at + 1]])
        elif number is not None:
            values.append(number(data, at + 1)[0])
        else:
            values.append(_read_value(data, entry, base + offset(data, at + 1)[0], left))
        at += 1 + width
    return dict(zip(keys, values, strict=True)) if kind < 2 else values


def _read_opaque(kind: int, stored: bytes) -> Any:
    """A value of a type that JSON doesn't have: decimals are numbers, the rest is text as the server writes it."""
    if kind in (0, codes.DECIMAL):
        return decimal_reader(stored[0], stored[1])(stored[2:])
    if kind in (
        codes.DATE,
        codes.TIME,
        codes.TIME2,
        codes.DATETIME,
        codes.DATETIME2,
        codes.TIMESTAMP,
        codes.TIMESTAMP2,
    ):
        packed = int.from_bytes(stored, "little", signed=True)
        sign = "-" if packed < 0 else ""
        packed = abs(packed)
        micros, clock, days = packed & 0xFFFFFF, packed >> 24 & 0x1FFFF, packed >> 41
        year, month = divmod(days >> 5, 13)
        shown = f"{year:04}-{month:02}-{days & 31:02}"
        if kind == codes.DATE:
            return Shown(shown)
        if kind in (codes.TIME, codes.TIME2):
            clock = packed >> 24
            return Shown(f"{sign}{clock >> 12:02}:{clock >> 6 & 63:02}:{clock & 63:02}.{micros:06}")
        return Shown(f"{shown} {clock >> 12:02}:{clock >> 6 & 63:02}:{clock & 63:02}.{micros:06}")
    return Shown(f"base64:type{kind}:{b64encode(stored).decode('ascii')}")


def write_json(tree: Any) -> str:
    """A tree as text."""
    parts: list[str] = []
    _write_value(tree, parts.append)
    return "".join(parts)


def _write_value(tree: Any, put: Any) -> None:
    if isinstance(tree, str):
        put(f'"{_CONTROL.sub(_escape_match, tree)}"')
    elif tree is None or tree is True or tree is False:
        put({None: "null", True: "true", False: "false"}[tree])
    elif isinstance(tree, int):
        put(str(tree))
    elif isinstance(tree, float):
        put(double_text(tree))
    elif isinstance(tree, Decimal):
        put(format(tree, "f"))
    elif isinstance(tree, dict):
        separator = "{"
        for key, value in tree.items():
            put(f'{separator}"{_CONTROL.sub(_escape_match, key)}":')
            separator = ","
            _write_value(value, put)
        put("}" if tree else "{}")
    else:
        separator = "["
        for value in tree:
            put(separator)
            separator = ","
            _write_value(value, put)
        put("]" if tree else "[]")


def _escape_match(match: re.Match[str]) -> str:
    character = match[0]
    return _ESCAPES.get(character) or f"\\u{ord(character):04X}"


def double_text(number: float) -> str:
    """A double as Debezium writes it into JSON: never with an exponent."""
    size = abs(number)
    return repr(number) if size == 0 or _SMALL <= size < _LARGE else format(Decimal(number), "f")


def _parse_number(token: str) -> float | Decimal:
    """A number with a point or an exponent in the server's text: a double, unless only a decimal would be written so."""
    if "e" in token or "E" in token:
        return float(token)
    exact = Decimal(token)
    number = float(token)
    shortest = format(Decimal(repr(number)), "f")
    return number if shortest in (token, token.removesuffix(".0")) else exact


_DECODER: Final = json.JSONDecoder(parse_float=_parse_number, strict=False)


def from_server_text(server_json: str) -> str:
    """The server's text of a document (as SELECT gives it) in the form of ``json_text``.

    Raises:
        ValueError: it is no JSON.
    """
    return write_json(_DECODER.decode(server_json))
