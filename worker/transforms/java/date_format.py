"""Java's ``SimpleDateFormat`` for UTC and English: formats and parses what TimestampConverter and TimestampRouter are given.

The calendar is Java's: Gregorian since 1582-10-15, Julian before. Parsing is lenient as Java's: fields may be out of range and
roll over, what follows the matched text is ignored, numbers may have leading blanks and a sign, and a field directly
before another number takes at most as many characters as its pattern has letters.

The letters ``Y``, ``w`` and ``W`` are refused: Java counts weeks by the rules of the machine's locale. Of time zones,
numbers, ``GMT``, ``UTC`` and ``Z`` are understood, other names are not.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid, Skippable
from worker.transforms.java.date_code import Part, make_reader, make_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_DAY_MS: Final = 86_400_000
#: Days since 1970-01-01 of the first day of the Gregorian calendar.
_CUTOVER: Final = -141_427
_CUTOVER_YEAR: Final = 1582
_MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_LETTERS: Final = "GyMLDdFEuaHkKhmsSzZX"
_BY_LOCALE: Final = "YwW"
_LONG: Final = 4  # letters from which names are written in full
_ISO_ZONES: Final = (1, 2, 3)
#: A two-digit year lies within the 80 years before and the 20 years after the start of the worker.
_CENTURY_BACK: Final = 80
_YEAR_MS: Final = 365.2425 * _DAY_MS
#: Java reduces a number in a string to an ``int``: the low bits of a long, or the nearest one for larger numbers.
_INT_BITS: Final = 32
_LONG_DIGITS: Final = 18

#: The fields of the most common patterns, their values where a pattern leaves them out, and how many characters
#: a number may have that certainly fits.
_PLAIN: Final = "yMdHmsS"
_UNSET: Final = (1970, 1, 1, 0, 0, 0, 0)
_SHORT: Final = 9

#: Letter -> the smallest number of milliseconds between two instants with different strings.
_UNITS: Final = {
    "S": 1,
    "s": 1000,
    "m": 60_000,
    "H": 3_600_000,
    "k": 3_600_000,
    "K": 3_600_000,
    "h": 3_600_000,
    "a": 43_200_000,
}


@dataclass(frozen=True, slots=True)
class _Item:
    """One part of a pattern: ``count`` letters ``letter``, or the text ``literal`` where ``letter`` is empty."""

    letter: str
    count: int
    literal: str = ""


class _Date:
    """The calendar fields of one day."""

    __slots__ = ("day", "days", "month", "year")

    def __init__(self, days: int) -> None:
        self.days = days
        self.year, self.month, self.day = to_civil(days)


def to_civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of the day that lies ``days`` after 1970-01-01; the year before 1 is 0."""
    if days < _CUTOVER:
        shifted = days + 719_470  # since 0000-03-01 of the Julian calendar
        cycle, of_cycle = divmod(shifted, 1461)
        of_years = min(of_cycle // 365, 3)
        year, of_year = cycle * 4 + of_years, of_cycle - 365 * of_years
    else:
        shifted = days + 719_468  # since 0000-03-01 of the Gregorian calendar
        era, of_era = divmod(shifted, 146_097)
        of_years = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
        year, of_year = era * 400 + of_years, of_era - (365 * of_years + of_years // 4 - of_years // 100)
    shifted_month = (5 * of_year + 2) // 153
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    return year + (month <= 2), month, of_year - (153 * shifted_month + 2) // 5 + 1


def days_of(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a date; months and days beyond their range roll over."""
    carry, month = divmod(month - 1, 12)
    start = year + carry - (month < 2)
    of_year = (153 * ((month + 10) % 12) + 2) // 5 + day - 1
    gregorian = 365 * start + start // 4 - start // 100 + start // 400 + of_year - 719_468
    if gregorian >= _CUTOVER and year >= _CUTOVER_YEAR:
        return gregorian
    return 365 * start + start // 4 + of_year - 719_470


def _parse_items(pattern: str) -> list[_Item]:
    """The parts of a pattern.

    Raises:
        ConfigInvalid: Java's text for what is no pattern; or a letter that has no counterpart here.
    """
    items: list[_Item] = []
    at = 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == "'":
            literal, at = _parse_quoted(pattern, at)
            items.append(_Item("", 0, literal))
        elif not (letter.isascii() and letter.isalpha()):
            items.append(_Item("", 0, letter))
            at += 1
        else:
            end = at
            while end < len(pattern) and pattern[end] == letter:
                end += 1
            _check_letter(letter, end - at, pattern)
            items.append(_Item(letter, end - at))
            at = end
    return items


def _parse_quoted(pattern: str, at: int) -> tuple[str, int]:
    """The text in quotes that starts at ``at``, and where it ends; two quotes are one."""
    if pattern.startswith("''", at):
        return "'", at + 2
    literal = ""
    at += 1
    while at < len(pattern):
        if pattern.startswith("''", at):
            literal += "'"
            at += 2
        elif pattern[at] == "'":
            return literal, at + 1
        else:
            literal += pattern[at]
            at += 1
    raise ConfigInvalid(f"Unterminated quote in the pattern {pattern}; write '' for a quote")


def _check_letter(letter: str, count: int, pattern: str) -> None:
    if letter in _BY_LOCALE:
        raise ConfigInvalid(
            f"the pattern letter {letter!r} in {pattern} is not supported: which week a day belongs to depends "
            "on the machine's locale in Java. Use y, M, d or D"
        )
    if letter not in _LETTERS:
        raise ConfigInvalid(f"Illegal pattern character {letter!r} in {pattern}")
    if letter == "X" and count not in _ISO_ZONES:
        raise ConfigInvalid(f"invalid ISO 8601 format: length={count} in {pattern}")


def _number_writer(count: int, value: Callable[[_Date], int]) -> Callable[[_Date], str]:
    if count == 1:
        return lambda date: str(value(date))
    return lambda date: str(value(date)).zfill(count)


def _year_writer(count: int) -> Callable[[_Date], str]:
    def of_era(date: _Date) -> int:
        return date.year if date.year > 0 else 1 - date.year

    if count == 2:
        return lambda date: str(of_era(date) % 100).zfill(2)
    return _number_writer(count, of_era)


def _name_writer(count: int, names: Sequence[str], index: Callable[[_Date], int]) -> Callable[[_Date], str]:
    shown = names if count >= _LONG else [name[:3] for name in names]
    return lambda date: shown[index(date)]


#: The number that a letter of the date stands for.
_NUMBERS: Final[dict[str, Callable[[_Date], int]]] = {
    "D": lambda date: date.days - days_of(date.year, 1, 1) + 1,
    "d": lambda date: date.day,
    "F": lambda date: (date.day - 1) // 7 + 1,
    "u": lambda date: (date.days + 3) % 7 + 1,
}


def _item_writer(item: _Item) -> Callable[[_Date], str]:
    letter, count = item.letter, item.count
    if letter in _NUMBERS:
        return _number_writer(count, _NUMBERS[letter])
    if letter == "y":
        return _year_writer(count)
    if letter in "ML":
        if count > 2:
            return _name_writer(count, _MONTHS, lambda date: date.month - 1)
        return _number_writer(count, lambda date: date.month)
    if letter == "E":
        return _name_writer(count, _WEEKDAYS, lambda date: (date.days + 3) % 7)
    if letter == "G":
        return lambda date: "AD" if date.year > 0 else "BC"
    fixed = {"z": "Coordinated Universal Time" if count >= _LONG else "UTC", "Z": "+0000", "X": "Z"}[letter]
    return lambda _date: fixed


def _day_text(parts: Sequence[Part], days: int) -> str:
    """The text of parts of a pattern that the time of day doesn't change."""
    date = _Date(days)
    return "".join(
        [_item_writer(_Item(letter, count))(date) if letter else literal for letter, count, literal in parts]
    )


def _is_number(item: _Item) -> bool:
    return (
        item.letter in _NUMBERS or item.letter in tuple("yHkKhmsS") or (item.letter in ("M", "L") and item.count <= 2)
    )


def _integer_regex(limit: int | None) -> str:
    """An expression for a number with leading blanks, in at most ``limit`` characters of as many that must be there."""
    if limit is None:
        return r"([ \t]*+-?+\d++)"
    ways = []
    for blanks in range(limit):
        room = limit - blanks
        signed = rf"|-\d{{1,{room - 1}}}+" if room > 1 else ""
        ways.append(rf"[ \t]{{{blanks}}}(?:\d{{1,{room}}}+{signed})")
    return rf"(?=[\s\S]{{{limit}}})((?>{'|'.join(ways)}))"


def _names_regex(names: Sequence[str]) -> str:
    """An expression for one of ``names`` or its first three letters; the longest that matches counts."""
    both = sorted({*names, *(name[:3] for name in names)}, key=len, reverse=True)
    return f"((?>{'|'.join(both)}))"


_HOURS: Final = "(?:[01][0-9]|2[0-3])"
_ZONE: Final = (
    rf"[ \t]*+((?>[+-]{_HOURS}[0-5][0-9]|GMT[+-](?:{_HOURS}|[0-9](?![0-9])):[0-5][0-9]|GMT(?![+-])|UTC|"
    "Coordinated Universal Time))"
)
_ISO: Final = {
    1: rf"[ \t]*+((?>(?-i:Z)|[+-]{_HOURS}))",
    2: rf"[ \t]*+((?>(?-i:Z)|[+-]{_HOURS}[0-5][0-9]))",
    3: rf"[ \t]*+((?>(?-i:Z)|[+-]{_HOURS}:[0-5][0-9]))",
}


def _item_regex(item: _Item, *, abuts: bool) -> str:
    """Return the expression for one part of a string; one group where the part is a field."""
    letter, count = item.letter, item.count
    if not letter:
        return f"(?-i:{re.escape(item.literal)})"
    if letter in "ML" and count > 2:
        return _names_regex(_MONTHS)
    if letter == "E":
        return _names_regex(_WEEKDAYS)
    if letter == "G":
        return "(BC|AD)"
    if letter == "a":
        return "(AM|PM)"
    if letter in "zZ":
        return _ZONE
    if letter == "X":
        return _ISO[count]
    return _integer_regex(count if abuts else None)


def _as_int(digits: str) -> int:
    digits = digits.strip(" \t")
    if len(digits) > _LONG_DIGITS:
        value = int(digits[: _LONG_DIGITS * 2])
        if abs(value) >= 1 << 63:
            return (1 << 31) - 1 if value > 0 else -(1 << 31)
    else:
        value = int(digits)
    low = value & ((1 << _INT_BITS) - 1)
    return low - (1 << _INT_BITS) if low >> (_INT_BITS - 1) else low


def _parse_offset(zone_text: str) -> int:
    """Milliseconds that a zone is ahead of UTC."""
    sign = max(zone_text.find("+"), zone_text.find("-"))
    if sign < 0:
        return 0
    digits = zone_text[sign + 1 :].replace(":", "")
    hours, minutes = (digits, "0") if len(digits) <= 2 else (digits[:-2], digits[-2:])
    offset = (int(hours) * 60 + int(minutes)) * 60_000
    return offset if zone_text[sign] == "+" else -offset


def _field_indexes(fields: Sequence[_Item]) -> list[int] | None:
    """Return the indexes of the seven numbers of a date and a time among a pattern's fields, followed by ``_UNSET``.

    None for patterns with other fields, whose strings are read by ``_compute_instant``.
    """
    letters = ["M" if item.letter == "L" else item.letter for item in fields]
    if not fields or not set(letters) <= set(_PLAIN) or len(set(letters)) < len(letters):
        return None
    if any((item.letter == "y" and item.count <= 2) or (item.letter in "ML" and item.count > 2) for item in fields):
        return None
    return [
        letters.index(letter) if letter in letters else len(letters) + number for number, letter in enumerate(_PLAIN)
    ]


class JavaDateFormat:
    """One compiled pattern.

    Args:
        pattern: as ``SimpleDateFormat`` takes it.

    Raises:
        ConfigInvalid: the pattern is invalid, or has letters without a counterpart.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        items = _parse_items(pattern)
        letters = [item.letter for item in items if item.letter]
        #: All instants in one such span of milliseconds have the same string.
        self.unit: int = min((_UNITS.get(letter, _DAY_MS) for letter in letters), default=_DAY_MS)
        #: The letters that make strings of this pattern unreadable: they need rules for weeks.
        self.unreadable = "".join(
            dict.fromkeys(
                letter for letter in letters if letter == "F" or (letter in "Eu" and not {"d", "D"} & set(letters))
            )
        )
        #: The text of an instant that is given in milliseconds since the epoch.
        self.format: Callable[[int], str] = make_writer(
            [(item.letter, item.count, item.literal) for item in items], _day_text
        )
        self._fields = [item for item in items if item.letter]
        expression = "".join(
            _item_regex(item, abuts=after is not None and _is_number(after))
            for item, after in zip_longest(items, items[1:])
        )
        self._read = re.compile(expression, re.IGNORECASE).match
        self._indexes = _field_indexes(self._fields)
        self._oldest_ms = int(time.time() * 1000 - _CENTURY_BACK * _YEAR_MS)
        self._oldest_year = to_civil(self._oldest_ms // _DAY_MS)[0]
        #: Parses a string to an instant, in milliseconds since the epoch; see ``_parse``.
        self.parse: Callable[[str], int] = self._parse
        if self._indexes is not None and not self.unreadable:
            self.parse = make_reader([(item.letter, item.count, item.literal) for item in items], self._parse, days_of)

    def _parse(self, date_text: str) -> int:
        """Return the instant that a string names, in milliseconds since the epoch.

        Raises:
            Skippable: the string doesn't match (with Connect's message), or strings of this pattern can't be read back.
        """
        if self.unreadable:
            raise Skippable(
                f"Could not parse timestamp: value ({date_text}) can't be read by pattern ({self.pattern}): "
                f"{self.unreadable} asks for rules of weeks, which depend on the machine's locale in Java"
            )
        match = self._read(date_text)
        if match is None:
            raise Skippable(f"Could not parse timestamp: value ({date_text}) does not match pattern ({self.pattern})")
        values = match.groups()
        if self._indexes is not None and max(map(len, values)) <= _SHORT:
            numbers = [int(part) for part in values]
            numbers += _UNSET
            year, month, day, hour, minute, second, milli = [numbers[index] for index in self._indexes]
            return days_of(year, month, day) * _DAY_MS + hour * 3_600_000 + minute * 60_000 + second * 1000 + milli
        return self._compute_instant(values)

    def _compute_instant(self, values: Sequence[str]) -> int:
        # As in Java the last of two fields that say the same counts: "H" and "h a", "d" and "D".
        year, month, day, of_year, era, half = 1970, 1, 1, None, 1, 0
        hour: int | None = None
        half_hour: int | None = None
        of_hour: dict[str, int] = {}
        short_year: int | None = None
        zone = 0
        half_given = False
        for item, value in zip(self._fields, values, strict=True):
            letter = item.letter
            if letter == "y":
                year, short_year = self._year_of(value, item.count)
            elif letter in "ML":
                month = _as_int(value) if item.count <= 2 else _find_index(_MONTHS, value) + 1
            elif letter == "d":
                day, of_year = _as_int(value), None
            elif letter == "D":
                of_year = _as_int(value)
            elif letter in "Hk":
                hour = _as_int(value)
                hour = 0 if letter == "k" and hour == 24 else hour
                half_hour = None if half_given else half_hour
            elif letter in "Kh":
                half_hour = _as_int(value)
                half_hour = 0 if letter == "h" and half_hour == 12 else half_hour
                hour = None if half_given else hour
            elif letter == "a":
                half, half_given = int(value[0] in "pP"), True
                hour = None if half_hour is not None else hour
            elif letter in "msS":
                of_hour[letter] = _as_int(value) * _UNITS[letter]
            elif letter == "G":
                era = int(value[0] in "aA")
            elif (
                letter in "zZX" and value[0] not in "uUcC"
            ):  # the name of the zone that is meant anyway changes nothing
                zone = _parse_offset(value)
        if era == 0:
            year = 1 - year
        hours = hour if hour is not None else (half_hour or 0) + 12 * half
        clock = hours * 3_600_000 + sum(of_hour.values()) - zone
        result = self._compute_day(year, month, day, of_year) * _DAY_MS + clock
        if short_year is not None and result < self._oldest_ms:
            result = self._compute_day(short_year, month, day, of_year) * _DAY_MS + clock
        return result

    @staticmethod
    def _compute_day(year: int, month: int, day: int, of_year: int | None) -> int:
        return days_of(year, month, day) if of_year is None else days_of(year, 1, 1) + of_year - 1

    def _year_of(self, year_digits: str, count: int) -> tuple[int, int | None]:
        """The year, and the one a century later if only the whole date tells which of them is meant."""
        digits = year_digits.strip(" \t")
        year = _as_int(digits)
        if count > 2 or len(digits) != 2 or not digits.isdigit():
            return year, None
        century, pivot = divmod(self._oldest_year, 100)
        if year == pivot:
            return century * 100 + year, century * 100 + year + 100
        return century * 100 + year + (100 if year < pivot else 0), None


def _find_index(names: Sequence[str], name_text: str) -> int:
    start = name_text[:3].lower()
    return next(number for number, name in enumerate(names) if name[:3].lower() == start)
