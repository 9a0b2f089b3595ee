"""Values of lookups as the declared type of their column. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import DataType

#: Types that a looked-up column may have; ``decimal(p,s)`` besides.
TYPES: Final = (
    "string",
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "date",
    "timestamp",
    "binary",
)
_DECIMAL: Final = re.compile(r"decimal\((\d{1,2})(?:,\s*(\d{1,2}))?\)\Z")
_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_TRUE: Final = frozenset({"true", "t", "1", "yes"})
_FALSE: Final = frozenset({"false", "f", "0", "no"})
_EPOCH: Final = date(1970, 1, 1)
_MAX_PRECISION: Final = 38


class Unsuited(Exception):
    """A value that the declared type can't hold; the text says which value and type."""


def is_type(type_text: str) -> bool:
    """Whether ``type_text`` (lower case) names a type that a looked-up column may have."""
    match = _DECIMAL.match(type_text)
    if match:
        precision, scale = int(match[1]), int(match[2] or 0)
        return 0 < precision <= _MAX_PRECISION and scale <= precision
    return type_text in TYPES


def spark_type(type_text: str) -> DataType:
    """The Spark type that ``type_text`` names; see ``is_type``."""
    from pyspark.sql import types as t

    match = _DECIMAL.match(type_text)
    if match:
        return t.DecimalType(int(match[1]), int(match[2] or 0))
    kinds: dict[str, DataType] = {
        "string": t.StringType(),
        "boolean": t.BooleanType(),
        "tinyint": t.ByteType(),
        "smallint": t.ShortType(),
        "int": t.IntegerType(),
        "bigint": t.LongType(),
        "float": t.FloatType(),
        "double": t.DoubleType(),
        "date": t.DateType(),
        "timestamp": t.TimestampType(),
        "binary": t.BinaryType(),
    }
    return kinds[type_text]


def make_converter(kind: str) -> Callable[[Any], Any]:
    """The function that makes values of type ``kind``; null stays null.

    Returns:
        A function whose result Arrow takes for that type without a loss. It raises ``Unsuited``.
    """
    decimal = _DECIMAL.match(kind)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2] or 0)
        inner: Callable[[Any], Any] = lambda value: _to_decimal(value, precision, scale)  # noqa: E731 - one of several
    elif kind in _BITS:
        bits = _BITS[kind]
        inner = lambda value: _to_integer(value, bits)  # noqa: E731 - as above
    else:
        simple: dict[str, Callable[[Any], Any]] = {
            "string": text_of,
            "boolean": _to_boolean,
            "float": float,
            "double": float,
            "date": _to_date,
            "timestamp": _to_timestamp,
            "binary": _to_binary,
        }
        inner = simple[kind]

    def convert(value: Any) -> Any:
        if value is None:
            return None
        try:
            return inner(value)
        except (ValueError, TypeError, ArithmeticError, InvalidOperation) as error:
            raise Unsuited(f"the value {str(value)[:100]!r} is no {kind} ({error})") from None

    return convert


def text_of(value: Any) -> str:
    """A value as text: JSON for lists and objects, ISO 8601 for times, ``true`` and ``false``."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Mapping | list | tuple) or _is_set(value):
        return json.dumps(_plain_json(value), default=text_of, ensure_ascii=False, separators=(",", ":"))
    return str(value)


def _plain_json(value: Any) -> Any:
    """A value that JSON knows, but for single values; drivers have classes of their own for sets and maps."""
    if isinstance(value, Mapping):
        return {text_of(key): _plain_json(item) for key, item in value.items()}
    if _is_set(value):
        return [_plain_json(item) for item in sorted(value, key=repr)]
    if isinstance(value, list | tuple):
        return [_plain_json(item) for item in value]
    return value


def _is_set(value: Any) -> bool:
    """Whether it is a set; that of the CQL driver is not registered as one."""
    return isinstance(value, AbstractSet) or hasattr(value, "issubset")


def _decode_bytes(value: Any) -> Any:
    return bytes(value).decode("utf-8") if isinstance(value, bytes | bytearray | memoryview) else value


def _to_integer(value: Any, bits: int) -> int:
    value = _decode_bytes(value)
    number = int(value)
    if not isinstance(value, str) and number != value:
        raise ValueError("it has a fraction")
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"it needs more than {bits} bits")
    return number


def _to_decimal(value: Any, precision: int, scale: int) -> Decimal:
    number = Decimal(str(_decode_bytes(value)))
    rounded = number.quantize(Decimal(1).scaleb(-scale)) if number.is_finite() else number
    if rounded != number or not rounded.is_finite():
        raise ValueError(f"it needs more than {scale} digits after the point")
    if rounded.adjusted() + 1 > precision - scale:
        raise ValueError(f"it needs more than {precision - scale} digits before the point")
    return rounded


def _to_boolean(value: Any) -> bool:
    value = _decode_bytes(value)
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError("it is neither true nor false")
    return word in _TRUE


def _to_date(value: Any) -> date:
    value = _decode_bytes(value)
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return _EPOCH + timedelta(days=value)  # as Connect's and Debezium's JSON say it
    if isinstance(value, str):
        return date.fromisoformat(value[:10])
    return date.fromisoformat(str(value))  # the CQL driver's own class


def _to_timestamp(value: Any) -> datetime:
    value = _decode_bytes(value)
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    elif isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)  # noqa: DTZ001 - the zone follows
    elif not isinstance(value, datetime):
        raise TypeError("it has no known unit: look it up as bigint, and compute the time in a later step")
    time_point: datetime = value
    return time_point.replace(tzinfo=UTC) if time_point.tzinfo is None else time_point.astimezone(UTC)


def _to_binary(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
