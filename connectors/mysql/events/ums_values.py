"""Values in UMS tuples: the UMS type of a field, and its values as strings. Compiled once per field.

===============================  =========  =====================================================================
field                            UMS        text
===============================  =========  =====================================================================
text, ENUM, SET, JSON, UUID      string     as it is
integers up to 32 bits, YEAR     int        decimal digits
64-bit integers                  long       decimal digits
FLOAT, DOUBLE                    the same   shortest decimal number that reads back
DECIMAL, unsigned BIGINT         decimal    decimal digits without exponent
BIT(1)                           boolean    ``true`` or ``false``
DATE                             date       ``YYYY-MM-DD``
DATETIME                         datetime   ``YYYY-MM-DD HH:MM:SS.ffffff``, as stored
TIMESTAMP                        datetime   the same, in UTC
TIME                             string     ``HH:MM:SS.ffffff``, with a minus before it where it is negative
BIT(n), BINARY, BLOB             binary     Base64
geometries, VECTOR               string     JSON; bytes in Base64
===============================  =========  =====================================================================

Times that the configuration turns into strings (``time.precision.mode=isostring``) are not changed.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.formats.ums import date_text, datetime_text
from connectors.formats.ums_numbers import format_boolean, format_double, format_float
from connectors.schema import DATE, DECIMAL, TIME, TIMESTAMP, Type

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from connectors.schema import Schema

_JSON: Final = msgspec.json.Encoder()
_ZONED: Final = "io.debezium.time.ZonedTimestamp"
_FRACTION: Final = 6


def value_text(schema: Schema) -> tuple[str, Callable[[Any], str] | None]:
    """The UMS type of a field, and the function for its values (not None); no function where they are strings already."""
    return _NAMED.get(schema.name or "") or _TYPED[schema.type]


def time_text(micros: int) -> str:
    """A time of MySQL's TIME, which may be negative or longer than a day."""
    seconds, fraction = divmod(abs(micros), 1_000_000)
    return (
        f"{'-' if micros < 0 else ''}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"
    )


def _format_zoned(value: str) -> str:
    """``2024-02-29T23:59:59.123Z`` as a datetime; a year with a sign or more digits stays as it is."""
    day, _, time_of_day = value.partition("T")
    whole, _, fraction = time_of_day.removesuffix("Z").partition(".")
    if len(whole) == len("HH:MM"):
        whole += ":00"
    return f"{day} {whole}.{fraction[:_FRACTION]:0<6}"


def _format_plain(value: Decimal) -> str:
    return f"{value:f}"


def _encode_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _encode_document(value: Any) -> str:
    return _JSON.encode(value).decode()  # bytes become Base64


_TIME: Final = "io.debezium.time."
_NAMED: Final[dict[str, tuple[str, Callable[[Any], str] | None]]] = {
    DATE: ("date", date_text),
    f"{_TIME}Date": ("date", date_text),
    TIME: ("string", lambda value: time_text(value * 1000)),
    f"{_TIME}Time": ("string", lambda value: time_text(value * 1000)),
    f"{_TIME}MicroTime": ("string", time_text),
    f"{_TIME}NanoTime": ("string", lambda value: time_text(int(value / 1000))),
    TIMESTAMP: ("datetime", lambda value: datetime_text(value * 1000)),
    f"{_TIME}Timestamp": ("datetime", lambda value: datetime_text(value * 1000)),
    f"{_TIME}MicroTimestamp": ("datetime", datetime_text),
    f"{_TIME}NanoTimestamp": ("datetime", lambda value: datetime_text(value // 1000)),
    _ZONED: ("datetime", _format_zoned),
    DECIMAL: ("decimal", _format_plain),
}
_TYPED: Final[dict[Type, tuple[str, Callable[[Any], str] | None]]] = {
    Type.INT8: ("int", str),
    Type.INT16: ("int", str),
    Type.INT32: ("int", str),
    Type.INT64: ("long", str),
    Type.FLOAT32: ("float", format_float),
    Type.FLOAT64: ("double", format_double),
    Type.BOOLEAN: ("boolean", format_boolean),
    Type.STRING: ("string", None),
    Type.BYTES: ("binary", _encode_base64),
    Type.ARRAY: ("string", _encode_document),
    Type.MAP: ("string", _encode_document),
    Type.STRUCT: ("string", _encode_document),
}
