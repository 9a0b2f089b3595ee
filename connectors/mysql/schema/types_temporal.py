"""Dates and times: from the server's packed numbers and strings to Debezium's values, by tables that fill themselves. Pure.

The tables are dicts that compute what they lack, so that a row costs a look-up; each is bounded and belongs to one decoder.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCH_DAY: Final = 719163
DAY_SECONDS: Final = 86400
#: What a table holds at most before it starts again.
TABLE_LIMIT: Final = 20_000
_UNITS: Final = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_MINUTES: Final = {
    factor: tuple(((packed >> 6) * 3600 + (packed & 63) * 60) * factor for packed in range(2048))
    for factor in (1, *_UNITS.values())
}
#: ``12:34:`` by minutes of the day; seconds of the minute, with what follows them without and with a fraction.
MINUTE_TEXTS: Final = tuple(f"{minute // 60:02}:{minute % 60:02}:" for minute in range(1440))
SECOND_TEXTS: Final = {
    "Z": tuple(f"{second:02}Z" for second in range(60)),
    ".": tuple(f"{second:02}." for second in range(60)),
}
_MAX_TWO_DIGITS: Final = 99
_TURN: Final = 69
_INT64: Final = 1 << 63


def days_since_epoch(year: int, month: int, day: int, *, adjust: bool, lenient: bool) -> int | None:
    """Days since 1970-01-01; None for a date with a zero in it.

    Args:
        year: 0 to 9999.
        month: 0 to 12.
        day: 0 to 31.
        adjust: two-digit years become four-digit ones.
        lenient: a date that doesn't exist is 1970-01-01.

    Raises:
        ValueError: the date doesn't exist and ``lenient`` is not set.
    """
    if not (year and month and day):
        return None
    if adjust and year <= _MAX_TWO_DIGITS:
        year += 2000 if year <= _TURN else 1900
    try:
        return date(year, month, day).toordinal() - EPOCH_DAY
    except ValueError:
        if lenient:
            return 0
        raise ValueError(
            f"{year:04}-{month:02}-{day:02} is no date; set event.deserialization.failure.handling.mode=warn to "
            "have 1970-01-01 for such values, or fix the row"
        ) from None


class ValueTable(dict[int, int | str | None]):
    """A bounded table of values by a packed number; ``compute`` makes what is missing."""

    __slots__ = ("compute",)

    def __init__(self, compute: Callable[[int], int | str | None]) -> None:
        super().__init__()
        self.compute = compute

    def __missing__(self, key: int) -> int | str | None:
        if len(self) >= TABLE_LIMIT:
            self.clear()
        value = self[key] = self.compute(key)
        return value


class TextTable(dict[bytes, int | str | None]):
    """See ``ValueTable``, by the server's text."""

    __slots__ = ("compute",)

    def __init__(self, compute: Callable[[bytes], int | str | None]) -> None:
        super().__init__()
        self.compute = compute

    def __missing__(self, key: bytes) -> int | str | None:
        if len(self) >= TABLE_LIMIT:
            self.clear()
        value = self[key] = self.compute(key)
        return value


def _show_day(days: int | None, *, suffix: str, factor: int) -> int | str | None:
    """A day as its number times ``factor``, or with ``suffix`` as ISO's date and that text."""
    if days is None or not suffix:
        return None if days is None else days * factor
    return iso_date(days) + suffix


def text_clocks(factor: int) -> TextTable:
    """Hours and minutes by the server's text ``23:59``, in units of ``factor`` a second."""
    return TextTable(lambda shown: (int(shown[:2]) * 3600 + int(shown[3:]) * 60) * factor)


def text_seconds(factor: int) -> TextTable:
    """Seconds by the server's text ``58``, in units of ``factor`` a second."""
    return TextTable(lambda shown: int(shown) * factor)


def iso_date(days: int) -> str:
    """A day as ISO writes it."""
    return date.fromordinal(days + EPOCH_DAY).isoformat()


def date_table(*, adjust: bool, lenient: bool, text: str = "", factor: int = 1) -> ValueTable:
    """DATE columns by their three bytes as a number.

    Args:
        adjust: see ``days_since_epoch``.
        lenient: see ``days_since_epoch``.
        text: what follows ISO's date; "": numbers.
        factor: units of a day.
    """

    def compute(packed: int) -> int | str | None:
        days = days_since_epoch(packed >> 9, packed >> 5 & 15, packed & 31, adjust=adjust, lenient=lenient)
        return _show_day(days, suffix=text, factor=factor)

    return ValueTable(compute)


def packed_days(*, adjust: bool, lenient: bool, text: str = "", factor: int = 1) -> ValueTable:
    """The days of DATETIME columns by their upper 22 bits: ``(year * 13 + month) << 5 | day``. See ``date_table``."""

    def compute(packed: int) -> int | str | None:
        year, month = divmod(packed >> 5, 13)
        return _show_day(
            days_since_epoch(year, month, packed & 31, adjust=adjust, lenient=lenient), suffix=text, factor=factor
        )

    return ValueTable(compute)


def number_days(*, adjust: bool, lenient: bool, text: str = "", factor: int = 1) -> ValueTable:
    """The days of old DATETIME columns by the number YYYYMMDD. See ``date_table``."""

    def compute(number: int) -> int | str | None:
        days = days_since_epoch(number // 10000, number // 100 % 100, number % 100, adjust=adjust, lenient=lenient)
        return _show_day(days, suffix=text, factor=factor)

    return ValueTable(compute)


def text_days(*, adjust: bool, lenient: bool, text: str = "", factor: int = 1) -> TextTable:
    """Days by the server's text ``2024-12-31``. See ``date_table``."""

    def compute(shown: bytes) -> int | str | None:
        year, month, day = map(int, shown.split(b"-"))
        return _show_day(days_since_epoch(year, month, day, adjust=adjust, lenient=lenient), suffix=text, factor=factor)

    return TextTable(compute)


def day_texts() -> ValueTable:
    """``2024-12-31T`` by days since 1970."""
    return ValueTable(lambda days: iso_date(days) + "T")


def minute_table(factor: int) -> tuple[int, ...]:
    """The first 11 bits of a packed time of day (hour << 6 | minute) in units of ``factor`` a second."""
    return _MINUTES[factor]


def fraction_texts(digits: int) -> tuple[str, ...]:
    """Return all endings of a TIMESTAMP with ``digits`` digits, at most three: ``120Z``."""
    return tuple(f"{number:0{digits}}Z" for number in range(10**digits))


def unit_factor(unit: str) -> int:
    """How many of ``ms``, ``us``, ``ns`` make a second."""
    return _UNITS[unit]


def clock_text(packed: int, micros: int) -> str:
    """The time of day ``hour << 12 | minute << 6 | second`` as Java's ISO formatters write it, with ``Z``."""
    clock = f"{packed >> 12 & 31:02}:{packed >> 6 & 63:02}:{packed & 63:02}"
    return f"{clock}.{micros:06}".rstrip("0") + "Z" if micros else clock + "Z"


def packed_micros(packed: int, micros: int) -> int:
    """A duration ``hour << 12 | minute << 6 | second`` and its fraction in microseconds."""
    return ((packed >> 12) * 3600 + (packed >> 6 & 63) * 60 + (packed & 63)) * 1_000_000 + micros


def text_micros(shown: bytes) -> int:
    """A TIME as the server writes it (``-838:59:59.000001``) in microseconds."""
    head, _, fraction = shown.partition(b".")
    hours, minute, second = head.lstrip(b"-").split(b":")
    micros = (int(hours) * 3600 + int(minute) * 60 + int(second)) * 1_000_000 + int(
        fraction.ljust(6, b"0") if fraction else 0
    )
    return -micros if shown.startswith(b"-") else micros


def time_value(mode: str, digits: int) -> Callable[[int], int | str]:
    """From microseconds to what a TIME column shows.

    The function raises ValueError for a time that the mode has no form for (``connect`` and ``isostring``: 0 to 24 hours).
    """

    def daytime(micros: int) -> int:
        if not 0 <= micros <= DAY_SECONDS * 1_000_000:
            raise ValueError(
                f"a TIME of {micros / 3_600_000_000:g} hours has no form with time.precision.mode={mode}, which "
                "has 0 to 24 hours; use adaptive_time_microseconds"
            )
        return micros

    def iso(micros: int) -> str:
        second, fraction_us = divmod(daytime(micros), 1_000_000)
        return clock_text(second // 3600 % 24 << 12 | second // 60 % 60 << 6 | second % 60, fraction_us)

    def connect(micros: int) -> int:
        return daytime(micros) // 1000

    def millis(micros: int) -> int:
        return micros // 1000 if micros >= 0 else -(-micros // 1000)

    def nanos(micros: int) -> int:
        return micros * 1000

    if mode == "isostring":
        return iso
    if mode == "connect":
        return connect
    if mode == "nanoseconds":
        return nanos
    if mode == "adaptive" and digits <= 3:
        return millis
    return lambda micros: micros


def in_int64(nanos: int) -> int:
    """A number of nanoseconds that fits.

    Raises:
        ValueError: it does not: the years 1677 to 2262 do.
    """
    if -_INT64 <= nanos < _INT64:
        return nanos
    raise ValueError(
        "a DATETIME outside the years 1677 to 2262 has no form with time.precision.mode=nanoseconds; "
        "use microseconds or isostring"
    )


def format_zoned(seconds: int, fraction: int, digits: int) -> str:
    """A TIMESTAMP as Debezium writes it: ``2024-12-31T23:59:58.120Z``; as many digits as the column has.

    Args:
        seconds: since 1970.
        fraction: of the second, in units of the last digit.
        digits: of the column.
    """
    day, second = divmod(seconds, DAY_SECONDS)
    moment = f"{iso_date(day)}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return f"{moment}.{fraction:0{digits}}Z" if digits else moment + "Z"
