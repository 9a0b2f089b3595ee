"""Dates in logs: Java's date patterns, ISO 8601 and Unix times become milliseconds since 1970. Pure functions."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from connectors.logs.rules.errors import OperatorOptionInvalid
from connectors.logs.rules.records import LineOrigin, StepFailed
from connectors.logs.rules.types import read_text, show_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Formats that are names instead of patterns.
ISO8601: Final = "ISO8601"
UNIX: Final = "UNIX"
UNIX_MS: Final = "UNIX_MS"
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LONG_MONTHS: Final = "january|february|march|april|may|june|july|august|september|october|november|december"
_ZONE: Final = r"(?P<zone>Z|UTC|GMT|[+-]\d{2}:?\d{2}|[+-]\d{2})"
_ISO: Final = (
    r"(?P<year>\d{4})-?(?P<month>\d{2})-?(?P<day>\d{2})"
    r"(?:[T ](?P<hour>\d{2}):?(?P<minute>\d{2})(?::?(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?\s?"
    + _ZONE
    + "?)?"
)
_TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(.)", re.DOTALL)
_LETTERS: Final[dict[str, Callable[[int], str]]] = {
    "y": lambda count: r"(?P<short_year>\d{2})" if count == 2 else r"(?P<year>\d{4})",
    "d": lambda count: rf"(?P<day>\d{{{count},2}})" if count > 1 else r"\s?(?P<day>\d{1,2})",
    "H": lambda count: rf"(?P<hour>\d{{{min(count, 2)},2}})",
    "h": lambda count: rf"(?P<half_hour>\d{{{min(count, 2)},2}})",
    "m": lambda count: rf"(?P<minute>\d{{{min(count, 2)},2}})",
    "s": lambda count: rf"(?P<second>\d{{{min(count, 2)},2}})",
    "S": lambda count: rf"(?P<fraction>\d{{{count}}})",
    "a": lambda _count: r"(?P<half>[AaPp][Mm])",
    "E": lambda _count: r"[A-Za-z]+",
    "Z": lambda _count: _ZONE,
    "X": lambda _count: _ZONE,
    "x": lambda _count: _ZONE,
    "z": lambda _count: r"(?P<zone_name>[A-Za-z_/+-]+(?:\d{1,2})?)",
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MS: Final = 86_400_000
#: The first and the last millisecond of what is a date: the years 1 to 9999.
_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999
_NUMBER: Final = re.compile(r"\s*-?\d{1,16}(?:\.\d{1,9})?\s*\Z", re.ASCII)
#: How many years are tried for a date without one: February 29 comes at least every eight years.
_MOST_YEARS: Final = 9
#: Different dates of one format that are remembered: the lines of one second mostly share theirs.
_REMEMBERED: Final = 512
_THOUSANDTHS: Final = {f"{number:03d}": number for number in range(1000)}


class DateReader(NamedTuple):
    """Reads dates of given formats.

    Attributes:
        read: value (and origin, if ``with_origin``) -> milliseconds since 1970, UTC; may raise ``StepFailed``. Whole numbers
            stay as they are unless the format is UNIX. The result is in the years 1 to 9999.
        with_origin: whether a format has no year, so that the origin's timestamp gives it.
    """

    read: Callable[..., int]
    with_origin: bool


def date_reader(formats: Sequence[str], zone: str) -> DateReader:
    """A reader that tries the formats in order.

    Args:
        formats: Java's date patterns, or ISO8601, UNIX, UNIX_MS.
        zone: the time zone of dates that do not name theirs.

    Raises:
        OperatorOptionInvalid: a format or the zone is wrong.
    """
    return _date_reader(tuple(formats), zone)


@lru_cache(
    maxsize=256
)  # equal columns share one with the dates that it remembers, and so their groups a generated function
def _date_reader(formats: tuple[str, ...], zone: str) -> DateReader:
    if not formats:
        raise OperatorOptionInvalid("formats", "give at least one format, such as yyyy-MM-dd HH:mm:ss,SSS or ISO8601")
    location = _zone_of(zone)
    readers = [_format_reader(name, location) for name in formats]
    with_origin = any(reader.with_origin for reader in readers)
    if len(readers) == 1:
        return readers[0]

    def read(value: Any, origin: LineOrigin | None = None) -> int:
        for reader in readers:
            try:
                return reader.read(value, origin) if reader.with_origin else reader.read(value)
            except StepFailed:
                continue
        raise StepFailed(f"{show_value(value)} is no date of the form {' or '.join(formats)}")

    return DateReader(read, with_origin)


def _zone_of(name: str) -> tzinfo:
    if name in ("UTC", "Z"):
        return UTC
    try:
        return _parse_offset(name) if name[:1] in "+-" else ZoneInfo(name)
    except (ValueError, KeyError, OSError):
        raise OperatorOptionInvalid(
            "zone", f"{name!r} is no time zone; use a name such as Europe/Berlin, UTC, or an offset such as +02:00"
        ) from None


def _parse_offset(zone_text: str) -> tzinfo:
    if zone_text in ("Z", "UTC", "GMT"):
        return UTC
    digits = zone_text[1:].replace(":", "")
    delta = timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
    return timezone(-delta if zone_text[0] == "-" else delta)


def _format_reader(name: str, zone: tzinfo) -> DateReader:
    if name in (UNIX, UNIX_MS):
        return _number_reader(1000 if name == UNIX else 1)
    pattern = re.compile(rf"\s*{_ISO if name == ISO8601 else _translate_pattern(name)}\s*\Z", re.ASCII | re.IGNORECASE)
    groups = pattern.groupindex
    if not any(group in groups for group in ("day", "hour", "half_hour")):
        raise OperatorOptionInvalid(
            "formats", f"{name!r} has neither a day nor an hour; a pattern is like yyyy-MM-dd HH:mm:ss"
        )

    def parse(date_text: str, origin: LineOrigin | None) -> int:
        match = pattern.match(date_text)
        if match is None:
            raise StepFailed(f"{show_value(date_text)} is no date of the form {name}")
        return _check_date(_to_milliseconds(match.groupdict(), zone, date_text, origin))

    if "year" in groups or "short_year" in groups:
        return _remembering_reader(parse, thousandths=re.search(r"[^A-Za-z]SSS\Z", name) is not None)
    return DateReader(
        lambda value, origin: _check_date(value) if type(value) is int else parse(read_text(value), origin),
        with_origin=True,
    )


def _number_reader(factor: int) -> DateReader:
    def read(value: Any) -> int:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _check_date(value, factor)
        digits = read_text(value)
        if _NUMBER.match(digits) is None:
            raise StepFailed(f"{show_value(value)} is no number of {'seconds' if factor > 1 else 'milliseconds'}")
        return _check_date(float(digits), factor)

    return DateReader(read, with_origin=False)


def _check_date(number: float, factor: int = 1) -> int:
    """The number times the factor, in milliseconds since 1970.

    Raises:
        StepFailed: it is not in the years 1 to 9999: brokers take no such time, and a long may not hold it.
    """
    if not _FIRST_MS <= number * factor <= _LAST_MS:
        raise StepFailed(f"{show_value(number)} is no date of the years 1 to 9999")
    return round(number * factor)


def _remembering_reader(parse: Callable[[str, LineOrigin | None], int], *, thousandths: bool) -> DateReader:
    """A reader that remembers dates; of those that end with thousandths of a second, the rest of the text."""
    remembered: dict[str, int] = {}

    def read_new(value: Any) -> int:
        if type(value) is int:
            return _check_date(value)  # a date step has read it
        date_text = read_text(value)
        milliseconds = parse(date_text, None)
        if len(remembered) >= _REMEMBERED:
            remembered.clear()
        if not thousandths:
            remembered[date_text] = milliseconds
        elif date_text[-3:] in _THOUSANDTHS:
            remembered[date_text[:-3]] = milliseconds - _THOUSANDTHS[date_text[-3:]]
        return milliseconds

    def read(value: Any) -> int:
        try:
            return remembered[value]
        except (KeyError, TypeError):
            return read_new(value)

    def read_thousandths(value: Any) -> int:
        try:
            return remembered[value[:-3]] + _THOUSANDTHS[value[-3:]]
        except (KeyError, TypeError):
            return read_new(value)

    return DateReader(read_thousandths if thousandths else read, with_origin=False)


def _translate_pattern(pattern: str) -> str:
    """A regular expression for one of Java's date patterns.

    Raises:
        OperatorOptionInvalid: it has letters that are not understood, or one twice.
    """
    parts: list[str] = []
    seen_letters: set[str] = set()
    for match in _TOKEN.finditer(pattern):
        quoted, letter, literal_char = match.groups()
        if letter is None:
            literal = literal_char if quoted is None else quoted.replace("''", "'") or "'"
            parts.append(re.escape(literal))
            continue
        count = len(match[0])
        letter = {"u": "y", "L": "M", "k": "H", "K": "h", "e": "E"}.get(letter, letter)
        if letter == "M":
            parts.append(
                (rf"(?P<month>\d{{{count},2}})" if count > 1 else r"\s?(?P<month>\d{1,2})")
                if count < 3
                else f"(?P<month_name>{'|'.join(_MONTHS) if count == 3 else _LONG_MONTHS})"
            )
        elif letter in _LETTERS:
            parts.append(_LETTERS[letter](count))
        else:
            raise OperatorOptionInvalid(
                "formats",
                f"{pattern!r} has the letter {match[0]!r}, which is not understood; the letters are y M d E H h m s S a "
                "z Z X, and other text is quoted as in 'T'",
            )
        if letter in seen_letters and letter != "E":
            raise OperatorOptionInvalid("formats", f"{pattern!r} has the letter {letter!r} twice")
        seen_letters.add(letter)
    return "".join(parts)


def _to_milliseconds(parts: dict[str, str | None], zone: tzinfo, date_text: str, origin: LineOrigin | None) -> int:
    year, reason = _read_year(parts, origin), ""
    # Without a year: the line was written before it was read, so December's line may be read in January, and the last
    # February 29 was up to eight years ago. In some zones January comes before it is there in UTC.
    first = -1 if origin is not None and origin.timestamp else 0
    for earlier in range(first, 1 if origin is None else _MOST_YEARS):
        try:
            moment = datetime(
                year - earlier,
                _read_month(parts),
                int(parts.get("day") or 1),
                _read_hour(parts),
                int(parts.get("minute") or 0),
                min(int(parts.get("second") or 0), 59),
                tzinfo=_zone_in(parts, zone),
            )
        except (ValueError, OverflowError) as error:
            reason = reason or str(error)
            continue
        milliseconds = _since_epoch(moment) + int((parts.get("fraction") or "0")[:3].ljust(3, "0"))
        if int(parts.get("second") or 0) == 60:  # a leap second
            milliseconds += 1000
        if origin is None or not origin.timestamp or milliseconds <= origin.timestamp + _DAY_MS:
            return milliseconds
    raise StepFailed(f"{show_value(date_text)} is no date: {reason}")


def _since_epoch(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _read_year(parts: dict[str, str | None], origin: LineOrigin | None) -> int:
    if parts.get("year"):
        return int(parts["year"] or 0)
    if parts.get("short_year"):
        short = int(parts["short_year"] or 0)
        return 1900 + short if short >= 70 else 2000 + short
    return (_EPOCH + timedelta(milliseconds=origin.timestamp if origin is not None else 0)).year


def _read_month(parts: dict[str, str | None]) -> int:
    name = parts.get("month_name")
    return _MONTHS.index(name[:3].lower()) + 1 if name else int(parts.get("month") or 1)


def _read_hour(parts: dict[str, str | None]) -> int:
    half = parts.get("half")
    if half is not None:
        hour = int(parts.get("half_hour") or parts.get("hour") or 0)
        return hour % 12 + (12 if half.lower() == "pm" else 0)
    return int(parts.get("hour") or parts.get("half_hour") or 0)


def _zone_in(parts: dict[str, str | None], zone: tzinfo) -> tzinfo:
    if parts.get("zone"):
        return _parse_offset((parts["zone"] or "Z").upper())
    name = parts.get("zone_name")
    if name:
        try:
            return UTC if name.upper() in ("Z", "UTC", "GMT") else ZoneInfo(name)
        except (KeyError, OSError, ValueError):
            raise StepFailed(f"{name!r} is no time zone") from None
    return zone
