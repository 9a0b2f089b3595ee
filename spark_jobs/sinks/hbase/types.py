"""Values as cells: text, or the bytes of HBase's own ``Bytes.toBytes``. Pure."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.sinks.shared.values import NoText, text_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

_NUMBERS: Final = {
    "byte": Struct(">b").pack,
    "short": Struct(">h").pack,
    "integer": Struct(">i").pack,
    "long": Struct(">q").pack,
    "float": Struct(">f").pack,
    "double": Struct(">d").pack,
}
_SCALE: Final = Struct(">i").pack


def make_cell_encoder(kind: str, *, binary: bool) -> Callable[[Any], bytes]:
    """The function from a value that is not null to a cell's bytes; it raises ``NoText`` for one that has none.

    Args:
        kind: the name of the value's type in Spark.
        binary: whether numbers and booleans are as ``Bytes.toBytes`` has them.
    """
    if kind == "binary":
        return bytes
    if binary and kind in _NUMBERS:
        return _NUMBERS[kind]
    if binary and kind == "boolean":
        return lambda value: b"\xff" if value else b"\x00"
    if binary and kind == "decimal":
        return _encode_decimal
    if kind in ("string", "varchar", "char"):
        return _utf_8
    return lambda value: text_of(value).encode()


def _utf_8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise NoText(f"the string is not valid Unicode: {error}") from None


def _encode_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise NoText(f"{value} is no number")
    number = int("".join(map(str, digits))) * (-1 if sign else 1)
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return _SCALE(-exponent) + number.to_bytes(size, "big", signed=True)
