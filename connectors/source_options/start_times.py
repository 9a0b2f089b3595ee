"""Times of day, and dates with a time: when a snapshot that was asked for begins, when files are merged. Pure."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from connectors.errors import ConfigInvalid

_TIME_OF_DAY: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?\Z")


def time_zone(name: str) -> ZoneInfo | None:
    """The zone of that name (``Europe/Berlin``), UTC for an empty one; None where this machine knows none of that name."""
    try:
        return ZoneInfo(name or "UTC")
    except (ValueError, OSError, LookupError):  # also of a machine without the database of zones
        return None


def is_time_of_day(source: str) -> bool:
    """Whether the text is a time of day: ``02:30`` or ``02:30:00``."""
    return _TIME_OF_DAY.match(source) is not None


def latest_ms(at: str, zone: str, now_ms: int) -> int:
    """When a time of day was there last, now included; milliseconds since 1970.

    Args:
        at: as ``is_time_of_day`` accepts it.
        zone: as ``time_zone`` accepts it.
        now_ms: now.
    """
    where = time_zone(zone)
    if where is None:
        raise AssertionError(zone)
    today = datetime.fromtimestamp(now_ms / 1000, where).date()
    moments = [_moment_on(at, today - timedelta(days=days), where) for days in (0, 1)]
    return next(int(moment.timestamp() * 1000) for moment in moments if moment.timestamp() * 1000 <= now_ms)


def _moment_on(at: str, day: date, where: ZoneInfo) -> datetime:
    """A time of day on a day, in UTC.

    A time that the clocks leave out is as long after midnight as on other days; of one that comes twice, the first.
    """
    match = _TIME_OF_DAY.match(at)
    if match is None:
        raise AssertionError(at)
    hour, minute, second = (int(part or 0) for part in match.groups())
    return datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=where).astimezone(UTC)


def start_ms(at: str, zone: str, now_ms: int) -> int:
    """When a snapshot begins, milliseconds since 1970.

    Args:
        at: a time of day (``02:30`` or ``02:30:00``), which is the next one from now on; or a date and time in ISO 8601.
        zone: the name of a time zone (``Europe/Berlin``); UTC if it is "". It counts unless ``at`` names an offset itself.
        now_ms: now.

    Raises:
        ConfigInvalid: one of them is not understood, or the time is past.
    """
    where = time_zone(zone)
    if where is None:
        raise ConfigInvalid(
            f"time_zone: {zone!r} is no time zone that this worker knows; name one such as Europe/Berlin, or "
            "leave it out for UTC"
        )
    now = datetime.fromtimestamp(now_ms / 1000, where)
    if is_time_of_day(at):
        moments = [_moment_on(at, now.date() + timedelta(days=days), where) for days in (0, 1, 2)]
        return next(int(moment.timestamp() * 1000) for moment in moments if moment > now)
    try:
        moment = datetime.fromisoformat(at) if "T" in at or " " in at else None
    except ValueError:
        moment = None
    if moment is None:
        raise ConfigInvalid(
            f"start_at: {at!r} is neither a time of day such as 02:30 nor a date and time such as 2026-12-01T02:30:00"
        )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=where)
    if moment <= now:
        raise ConfigInvalid(f"start_at: {at} is past; leave it out to begin at once")
    return int(moment.timestamp() * 1000)
