"""CQL values in UMS tuples: the type of a column, and its values as strings. Compiled once per type.

=====================================  =========  ==================================================================
CQL                                    UMS        text
=====================================  =========  ==================================================================
ascii text varchar                     string     as it is
tinyint smallint int                   int        decimal digits
bigint counter                         long       decimal digits
float, double                          the same   shortest decimal number that reads back; ``NaN``, ``Infinity``
decimal varint                         decimal    as ``BigDecimal`` prints it
boolean                                boolean    ``true`` or ``false``
date                                   date       ``YYYY-MM-DD``
timestamp                              datetime   ``YYYY-MM-DD HH:MM:SS.ffffff``, UTC
time                                   string     ``HH:MM:SS.nnnnnnnnn``
uuid timeuuid inet duration            string     as elsewhere in this product
blob, custom                           binary     Base64
list set map tuple vector UDT          string     JSON: an array, an array of ``{"key", "value"}``, or an object
=====================================  =========  ==================================================================

In JSON numbers are numbers, except decimal and varint; blobs are Base64; NaN and the infinities are strings.
"""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.formats.ums import date_text, datetime_text
from connectors.formats.ums_numbers import format_boolean, format_double, format_float, format_infinite

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.cql.types import CqlType

_TYPES: Final = {
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "counter": "long",
    "float": "float",
    "double": "double",
    "decimal": "decimal",
    "varint": "decimal",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "datetime",
    "blob": "binary",
    "custom": "binary",
}
_JSON: Final = msgspec.json.Encoder()


def ums_type(kind: CqlType) -> str:
    """The UMS type of a column."""
    return _TYPES.get(kind.name, "string")


def text_of(kind: CqlType) -> Callable[[Any], str]:
    """The function that turns a value (not None) of ``kind`` into its text."""
    if kind.arguments:
        change = _json_form(kind)
        encode = _JSON.encode
        if change is None:
            return lambda value: encode(value).decode()
        return lambda value: encode(change(value)).decode()
    return _FORMATTERS.get(kind.name, _keep_value)


def time_text(nanos: int) -> str:
    """A time of the day in ns as ``HH:MM:SS.nnnnnnnnn``."""
    seconds, fraction = divmod(nanos, 1_000_000_000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:09d}"


def _keep_value(value: Any) -> Any:
    return value


def _format_datetime(value: int) -> str:
    return datetime_text(value * 1000)


def _encode_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


_FORMATTERS: Final[dict[str, Callable[[Any], str]]] = {
    "tinyint": str,
    "smallint": str,
    "int": str,
    "bigint": str,
    "counter": str,
    "float": format_float,
    "double": format_double,
    "boolean": format_boolean,
    "date": date_text,
    "timestamp": _format_datetime,
    "time": time_text,
    "blob": _encode_base64,
    "custom": _encode_base64,
    "empty": _encode_base64,
}
#: What JSON has another form for than ``msgspec`` would choose.
_FORMS: Final[dict[str, Callable[[Any], Any]]] = {
    "date": date_text,
    "timestamp": _format_datetime,
    "time": time_text,
    "blob": _encode_base64,
    "custom": _encode_base64,
    "empty": _encode_base64,
    "double": lambda value: value if math.isfinite(value) else format_infinite(value),
    "float": lambda value: float(format_float(value)) if math.isfinite(value) else format_infinite(value),
}


def _json_form(kind: CqlType) -> Callable[[Any], Any] | None:
    """Return the function that makes values inside a collection fit for JSON; None if they are as they are."""
    if not kind.arguments:
        form = _FORMS.get(kind.name)
        return None if form is None else lambda value: None if value is None else form(value)
    members = [_json_form(member) for member in kind.arguments]
    if not any(members):
        return None
    changes = [member or _keep_value for member in members]
    if kind.name == "map":
        return lambda value: (
            None
            if value is None
            else [{"key": changes[0](entry["key"]), "value": changes[1](entry["value"])} for entry in value]
        )
    if kind.name in {"udt", "tuple"}:
        names = kind.field_names or tuple(f"field_{index}" for index in range(len(changes)))
        pairs = list(zip(names, changes, strict=True))
        return lambda value: None if value is None else {name: change(value.get(name)) for name, change in pairs}
    return lambda value: None if value is None else [changes[0](item) for item in value]
