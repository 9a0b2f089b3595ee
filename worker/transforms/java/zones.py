"""Offsets of time zones for any instant, and strings with an offset, as Java's ``java.time`` has them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from zoneinfo import ZoneInfo, available_timezones

from connectors.errors import Skippable

if TYPE_CHECKING:
    from collections.abc import Callable

_OFFSET: Final = re.compile(r"([+-])(\d{2}):(\d{2})(?::(\d{2}))?\Z", re.ASCII)
_WIDEST_S: Final = 18 * 3600
_DAY_S: Final = 86_400
#: Offsets are looked up for spans of 2 ** 20 seconds (12 days); within a span they are probed at this distance.
_SPAN_BITS: Final = 20
_PROBE_S: Final = 86_400
#: Spans that are remembered, about 130 years.
_SPANS: Final = 4096
#: The calendar, and with it every rule of a zone, comes round after 400 years.
_CYCLE_S: Final = 146_097 * _DAY_S
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Of the years 1 and 9999 only those seconds that a datetime reaches with any offset.
_FIRST_S: Final = -62_135_596_800 + 2 * _DAY_S
_LAST_S: Final = 253_402_300_799 - 2 * _DAY_S
_TIME: Final = r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{0,9}))?)?(Z|z|[+-]\d{2}(?::\d{2}){0,2})\Z"
_ZONED_TIME: Final = re.compile(_TIME, re.ASCII)
_ZONED_TIMESTAMP: Final = re.compile(r"([+-]\d{4,10}|-?\d{4})-(\d{2})-(\d{2})[Tt]" + _TIME, re.ASCII)


class TimeZone(Protocol):
    """A time zone; seconds count from 1970, offsets are seconds east of UTC."""

    def offset_of_instant(self, second: int) -> int:
        """The offset at an instant."""

    def offset_of_local(self, second: int) -> int:
        """The offset when clocks show a time; the earlier one where they show it twice or never."""

    def offset_now(self) -> int:
        """The offset at this moment."""


class _Fixed(NamedTuple):
    offset: int

    def offset_of_instant(self, second: int) -> int:
        del second
        return self.offset

    def offset_of_local(self, second: int) -> int:
        del second
        return self.offset

    def offset_now(self) -> int:
        return self.offset


class _NamedZone:
    """A zone with rules. For spans of twelve days it remembers whether all of one has the same offset, and which."""

    __slots__ = ("_instants", "_locals", "info")

    def __init__(self, info: ZoneInfo) -> None:
        self.info = info
        self._instants: dict[int, int | None] = {}
        self._locals: dict[int, int | None] = {}

    def offset_of_instant(self, second: int) -> int:
        span = second >> _SPAN_BITS
        spans = self._instants
        offset = spans[span] if span in spans else _of_span(spans, span, self._look_up_instant)
        return self._look_up_instant(second) if offset is None else offset

    def offset_of_local(self, second: int) -> int:
        span = second >> _SPAN_BITS
        spans = self._locals
        offset = spans[span] if span in spans else _of_span(spans, span, self._look_up_local)
        return self._look_up_local(second) if offset is None else offset

    def _look_up_instant(self, second: int) -> int:
        return _offset_seconds((_EPOCH + timedelta(seconds=_shift_second(second))).astimezone(self.info))

    def _look_up_local(self, second: int) -> int:
        return _offset_seconds((_EPOCH + timedelta(seconds=_shift_second(second))).replace(tzinfo=self.info))

    def offset_now(self) -> int:
        return _offset_seconds(datetime.now(self.info))


def _of_span(spans: dict[int, int | None], span: int, look_up: Callable[[int], int]) -> int | None:
    """The offset that all seconds of a span have, or None; it is remembered while there is room.

    No zone changes twice between two probes: the shortest time between two changes of any zone is four days.
    """
    if len(spans) >= _SPANS:
        return None
    start, end = span << _SPAN_BITS, (span + 1) << _SPAN_BITS
    offsets = {look_up(second) for second in (*range(start, end, _PROBE_S), end - 1)}
    offset = offsets.pop() if len(offsets) == 1 else None
    spans[span] = offset
    return offset


def _offset_seconds(moment: datetime) -> int:
    offset = moment.utcoffset()
    return 0 if offset is None else round(offset.total_seconds())


def _shift_second(second: int) -> int:
    """An instant with the same offset that a datetime can hold."""
    if second < _FIRST_S:
        return second + -((second - _FIRST_S) // _CYCLE_S) * _CYCLE_S
    if second > _LAST_S:
        return second - -((_LAST_S - second) // _CYCLE_S) * _CYCLE_S
    return second


@cache
def _zone_names() -> frozenset[str]:
    # Java has no zone of these names: it knows them as abbreviations only.
    return frozenset(available_timezones()) - {"EST", "MST", "HST", "Factory", "localtime", "posixrules", "ROC"}


def find_zone(zone_name: str) -> TimeZone | None:
    """Return the zone of a name or an offset (``+hh:mm``, ``+hh:mm:ss``), or None. May block to read the zone's file."""
    parts = _OFFSET.match(zone_name)
    if parts is None:
        return _NamedZone(ZoneInfo(zone_name)) if zone_name in _zone_names() else None
    sign, hours, minutes, seconds = parts.groups(default="0")
    if int(minutes) > 59 or int(seconds) > 59:
        return None
    offset = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    return _Fixed(-offset if sign == "-" else offset) if offset <= _WIDEST_S else None


def zoned_timestamp(timestamp: str, zone: TimeZone) -> str:
    """The same instant with the zone's offset, which is looked up with the text's own clock time, as Debezium does.

    Raises:
        Skippable: it is no date and time with an offset.
    """
    parts = _ZONED_TIMESTAMP.match(timestamp)
    if parts is None:
        raise _make_unreadable(timestamp)
    year, month, day = (int(part) for part in parts.groups()[:3])
    second_of_day, fraction, offset = _parse_clock(timestamp, parts.groups()[3:])
    days = _count_days(timestamp, year, month, day)
    local = days * _DAY_S + second_of_day
    zone_offset = zone.offset_of_local(local)
    shifted = local - offset + zone_offset
    return f"{_format_date(shifted // _DAY_S)}T{_format_time(shifted % _DAY_S, fraction)}{_offset_text(zone_offset)}"


def zoned_time(time_text: str, zone: TimeZone) -> str:
    """The same time of day with the zone's offset of today.

    Raises:
        Skippable: it is no time with an offset.
    """
    parts = _ZONED_TIME.match(time_text)
    if parts is None:
        raise _make_unreadable(time_text)
    second_of_day, fraction, offset = _parse_clock(time_text, parts.groups())
    zone_offset = zone.offset_now()
    return f"{_format_time((second_of_day - offset + zone_offset) % _DAY_S, fraction)}{_offset_text(zone_offset)}"


def _make_unreadable(time_text: str) -> Skippable:
    return Skippable(f"Text '{time_text}' could not be parsed: it is no time with an offset in ISO 8601")


def _parse_clock(time_text: str, parts: tuple[str | None, ...]) -> tuple[int, str, int]:
    """Second of the day, digits of its fraction without zeros at the end, offset."""
    hour, minute, second = (int(part or 0) for part in parts[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise _make_unreadable(time_text)
    written = (parts[4] or "Z").upper()
    offset = _Fixed(0) if written == "Z" else find_zone(written if ":" in written else f"{written}:00")
    if offset is None:
        raise _make_unreadable(time_text)
    return hour * 3600 + minute * 60 + second, (parts[3] or "").rstrip("0"), offset.offset_now()


def _count_days(date_text: str, year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 in the proleptic calendar, for any year."""
    cycles, of_cycle = divmod(year - 1, 400)
    try:
        return datetime(of_cycle + 1, month, day, tzinfo=UTC).toordinal() - _EPOCH.toordinal() + cycles * 146_097
    except ValueError:
        raise _make_unreadable(date_text) from None


def _format_date(days: int) -> str:
    cycles, of_cycle = divmod(days + _EPOCH.toordinal() - 1, 146_097)
    moment = datetime.fromordinal(of_cycle + 1)
    year = moment.year + cycles * 400
    written = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    return f"{written}-{moment.month:02d}-{moment.day:02d}"


def _format_time(second_of_day: int, fraction: str) -> str:
    minutes, seconds = divmod(second_of_day, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}{'.' if fraction else ''}{fraction}"


def _offset_text(offset: int) -> str:
    if not offset:
        return "Z"
    minutes, seconds = divmod(abs(offset), 60)
    tail = f":{seconds:02d}" if seconds else ""
    return f"{'-' if offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}{tail}"
