"""Connect's text form of values, which headers use: writing (``Values.convertToString``) and parsing (``Values.parseString``).

Differs from Kafka 4.1 in two places: days and instants before 1970-01-02 are written as dates, where Java writes their time of
day and loses the date; and times are read as UTC, where Java takes its machine's time zone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from math import isinf
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Skippable
from connectors.schema import (
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    Schema,
    Type,
    date,
    decimal,
    time,
    timestamp,
)
from worker.converters.javatext import float_text, java_text, temporal_moment, to_float32
from worker.converters.json_form.text import base64_text

if TYPE_CHECKING:
    from collections.abc import Callable

Parsed = tuple[Schema | None, Any]

_DAY_MS: Final = 86_400_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Days of 400 years.
_CYCLE_DAYS: Final = 146_097
_TOKEN: Final = re.compile(r'[:,{}\[\]"]|(?:\\.|[^:,{}\[\]"\\]|\\\Z)+', re.DOTALL)
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})\Z")
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})\.([0-9]{3})Z\Z")
#: A time with unescaped colons comes as five tokens.
_TIME_TOKENS: Final = 5
_RANKS: Final = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64)
_TEMPORAL: Final = (DATE, TIME, TIMESTAMP)
_INTEGERS: Final = ((7, INT8), (15, INT16), (31, INT32), (63, INT64))
_BLANK: Final = "".join(map(chr, range(33)))  # what Java's trim removes


def to_text(schema: Schema | None, value: Any, *, embedded: bool = False) -> str:
    """``value`` as Connect writes it into a header.

    Args:
        schema: its schema, or None.
        value: the value; not None at the top.
        embedded: whether it is inside an array, map or struct, where strings and bytes are quoted.

    Raises:
        Skippable: values of its type have no string form.
    """
    if value is None:
        return "null"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if embedded else value
    if isinstance(value, bytes | bytearray | memoryview):
        return f'"{base64_text(value)}"' if embedded else base64_text(value)
    if isinstance(value, int) and not isinstance(value, bool) and schema is not None:
        temporal = _temporal_text(schema, value)
        if temporal:
            return temporal
    if isinstance(value, bool | int | float | Decimal):
        return java_text(value, schema)
    if isinstance(value, Mapping):
        return "{" + ",".join(_named_entries(schema, value)) + "}"
    if isinstance(value, list | tuple):
        inner = schema.value_schema if schema is not None else None
        return "[" + ",".join(to_text(inner, item, embedded=True) for item in value) + "]"
    raise Skippable(
        f"Failed to convert a {type(value).__name__} to a header's text. Yield str, bytes, int, float, bool, "
        "Decimal, list or dict."
    )


def _named_entries(schema: Schema | None, value: Mapping[Any, Any]) -> list[str]:
    if schema is not None and schema.type is Type.STRUCT:
        parts = []
        for member in schema.fields:
            item = value.get(member.name)
            item = member.schema.default if item is None else item
            parts.append(f"{to_text(None, member.name, embedded=True)}:{to_text(member.schema, item, embedded=True)}")
        return parts
    keys, values = (schema.key_schema, schema.value_schema) if schema is not None else (None, None)
    return [
        f"{to_text(keys, key, embedded=True)}:{to_text(values, item, embedded=True)}" for key, item in value.items()
    ]


def _temporal_text(schema: Schema, value: int) -> str:
    """ISO 8601 of a value of one of Connect's three temporal types; empty for other schemas and for years beyond 9999."""
    moment = temporal_moment(schema, value)
    if moment is None:
        return ""
    day, of_day = moment.date().isoformat(), f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
    if schema.name == TIME:
        return of_day
    return day if of_day == "00:00:00.000Z" else f"{day}T{of_day}"


def parse_text(raw: str) -> Parsed:
    """The value that ``raw`` spells and the narrowest schema for it; what spells nothing else is a string."""
    if not raw:
        return STRING, raw
    tokens = _TOKEN.findall(raw)
    if not raw.strip(_BLANK):
        return STRING, raw
    return _ValueParser(raw, tokens).top()


class _NotThis(Exception):
    """The text is not the container or number it looked like: it is a string."""


class _ValueParser:
    """Recursive descent over tokens; blank tokens before a value or a delimiter don't count."""

    def __init__(self, raw: str, tokens: list[str]) -> None:
        self._text = raw
        self._tokens = tokens
        self._at = 0

    def top(self) -> Parsed:
        literal = self._text.strip(_BLANK)
        if literal == "null":
            return None, None
        if literal in ("true", "false"):
            return BOOLEAN, literal == "true"
        start: Callable[[], Parsed] | None = {"[": self._parse_array, "{": self._parse_map}.get(self._peek_token())
        if start is not None:
            try:
                self._at += 1
                return start()
            except (_NotThis, RecursionError):  # the latter: lists and maps are inside one another too often
                return STRING, self._text
        try:
            return self._parse_scalar(self._next_token().strip(_BLANK))
        except _NotThis:
            return STRING, self._text

    def _peek_token(self) -> str:
        while self._at < len(self._tokens) - 1 and not self._tokens[self._at].strip(_BLANK):
            self._at += 1
        return self._tokens[self._at].strip(_BLANK) if self._at < len(self._tokens) else ""

    def _next_token(self) -> str:
        if self._at >= len(self._tokens):
            raise _NotThis
        self._at += 1
        return self._tokens[self._at - 1]

    def _take_delimiter(self, delimiter: str) -> bool:
        if self._peek_token() == delimiter:
            self._at += 1
            return True
        return False

    def _parse_embedded(self) -> Parsed:
        word = self._peek_token()
        if self._take_delimiter('"'):
            return self._parse_quoted()
        if self._take_delimiter("["):
            return self._parse_array()
        if self._take_delimiter("{"):
            return self._parse_map()
        self._next_token()
        if word == "null":
            return None, None
        if word in ("true", "false"):
            return BOOLEAN, word == "true"
        if not word:
            return STRING, self._tokens[self._at - 1]
        return self._parse_scalar(word)

    def _parse_quoted(self) -> Parsed:
        start = self._at
        while self._at < len(self._tokens) and self._tokens[self._at] != '"':
            self._at += 1
        content = "".join(self._tokens[start : self._at])
        self._at += 1
        return _parse_temporal(content) or (STRING, content)

    def _parse_scalar(self, token: str) -> Parsed:
        """A number, date or time; the token before the current place is its first."""
        if token[0].isdigit():
            time_tokens = "".join(self._tokens[self._at : self._at + _TIME_TOKENS - 1])
            if len(self._tokens) >= self._at + _TIME_TOKENS - 1 and (temporal := _parse_temporal(token + time_tokens)):
                self._at += _TIME_TOKENS - 1
                return temporal
            if temporal := _parse_temporal(token):
                return temporal
        if token[0] != "." and _NUMBER.match(token):
            try:
                return _parse_number(Decimal(token))
            except ArithmeticError:  # an exponent that not even a decimal has
                raise _NotThis from None
        raise _NotThis

    def _parse_array(self) -> Parsed:
        items: list[Parsed] = []
        while True:
            if self._take_delimiter("]"):
                schema = _common_schema([item for item, _ in items])
                if schema is None:
                    return Schema(Type.ARRAY), [_keep_digits(item, value) for item, value in items]
                return Schema(Type.ARRAY, value_schema=schema), [_align_value(schema, value) for _, value in items]
            if self._take_delimiter(","):
                raise _NotThis
            items.append(self._parse_embedded())
            if not self._take_delimiter(","):
                if self._peek_token() != "]":
                    raise _NotThis
            elif self._at >= len(self._tokens):
                raise _NotThis

    def _parse_map(self) -> Parsed:
        entries: list[tuple[Parsed, Parsed]] = []
        while True:
            if self._take_delimiter("}"):
                return _map_of(entries)
            if self._take_delimiter(","):
                raise _NotThis
            key = self._parse_embedded()
            if key[1] is None or isinstance(key[1], dict | list) or not self._take_delimiter(":"):
                raise _NotThis
            entries.append((key, self._parse_embedded()))
            self._take_delimiter(",")


def _map_of(entries: list[tuple[Parsed, Parsed]]) -> Parsed:
    keys = _common_schema([key for (key, _), _ in entries])
    values = _common_schema([value for _, (value, _) in entries])
    result = {
        _align_value(keys, key): _keep_digits(schema, value)
        if keys is None or values is None
        else _align_value(values, value)
        for (_, key), (schema, value) in entries
    }
    return Schema(Type.MAP, key_schema=keys, value_schema=values if keys is not None else None), result


def _common_schema(schemas: list[Schema | None]) -> Schema | None:
    """The schema that holds the values of all of ``schemas``; null values fit anywhere.

    Raises:
        _NotThis: dates or times are among numbers, which Connect gives up too.
    """
    common: Schema | None = None
    for schema in schemas:
        if schema is None:
            continue
        if common is None or common.type is schema.type:
            common = schema
        elif common.type in _RANKS and schema.type in _RANKS:
            common = max(common, schema, key=lambda candidate: _RANKS.index(candidate.type))
        else:
            return None
    if common is not None and common.name is None and any(schema and schema.name in _TEMPORAL for schema in schemas):
        raise _NotThis
    return common


def _keep_digits(schema: Schema | None, value: Any) -> Any:
    """A value that loses its schema: a single-precision number becomes the one that is written with the same digits."""
    if schema is None or value is None:
        return value
    if schema.type is Type.ARRAY:
        return [_keep_digits(schema.value_schema, item) for item in value]
    if schema.type is Type.MAP:
        return {
            _keep_digits(schema.key_schema, key): _keep_digits(schema.value_schema, item) for key, item in value.items()
        }
    return float(float_text(value)) if schema.type is Type.FLOAT32 else value


def _align_value(schema: Schema | None, value: Any) -> Any:
    if schema is not None and value is None:
        raise _NotThis  # Connect gives up where null is among other values
    if schema is not None and isinstance(value, int) and not isinstance(value, bool):
        if schema.type is Type.FLOAT64:
            return float(value)
        if schema.type is Type.FLOAT32:
            return to_float32(float(value))
    return value


def _parse_number(number: Decimal) -> Parsed:
    size = abs(number)
    if number.is_zero() or Decimal(1) <= size <= Decimal("1e19"):
        integral = int(number)
        if integral == number:
            for bits, schema in _INTEGERS:
                if -(1 << bits) <= integral < 1 << bits:
                    return schema, integral
    exponent = number.as_tuple().exponent
    scale = -exponent if isinstance(exponent, int) else 0
    if scale != 0:
        double = float(number)
        if not isinf(double):
            try:
                return FLOAT32, to_float32(double)
            except OverflowError:
                return FLOAT64, double
    return decimal(scale), number


def _parse_temporal(raw: str) -> Parsed | None:
    """A date, time or timestamp in ISO 8601; months and days beyond their range roll over, as Java's lenient parser does."""
    raw = raw.replace("\\:", ":")
    if match := _DATE.match(raw):
        return date(), _match_to_days(match)
    if match := _TIME.match(raw):
        return time(), _match_to_millis(match)
    day, separator, of_day = raw.partition("T")
    if separator and (first := _DATE.match(day)) and (second := _TIME.match(of_day)):
        return timestamp(), _match_to_days(first) * _DAY_MS + _match_to_millis(second)
    return None


def _match_to_days(match: re.Match[str]) -> int:
    year, month, day = map(int, match.groups())
    months = year * 12 + month - 1
    # A month beyond its range may lead beyond the year 9999: the calendar repeats itself after 400 years.
    cycles, of_cycle = divmod(max(1, months // 12) - 1, 400)
    first = datetime(of_cycle + 1, months % 12 + 1, 1, tzinfo=UTC)
    return (first - _EPOCH).days + cycles * _CYCLE_DAYS + day - 1


def _match_to_millis(match: re.Match[str]) -> int:
    hours, minutes, seconds, millis = map(int, match.groups())
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + millis
