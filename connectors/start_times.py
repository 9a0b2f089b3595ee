"""When a snapshot that was asked for begins: a time of day, or a date and time. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from connectors.errors import ConfigInvalid

_TIME_OF_DAY: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?\Z")


def start_ms(at: str, zone: str, now_ms: int) -> int:
    """When a snapshot begins, milliseconds since 1970.

    Args:
        at: a time of day (``02:30`` or ``02:30:00``), which is the next one from now on; or a date and time in ISO 8601.
        zone: the name of a time zone (``Europe/Berlin``); UTC if it is "". It counts unless ``at`` names an offset itself.
        now_ms: now.

    Raises:
        ConfigInvalid: one of them is not understood, or the time is past.
    """
    try:
        where = ZoneInfo(zone or "UTC")
    except (ValueError, OSError, LookupError):  # also of a machine without the database of zones
        raise ConfigInvalid(
            f"time_zone: {zone!r} is no time zone that this worker knows; name one such as Europe/Berlin, or "
            "leave it out for UTC"
        ) from None
    now = datetime.fromtimestamp(now_ms / 1000, where)
    match = _TIME_OF_DAY.match(at)
    if match is not None:
        hour, minute, second = (int(part or 0) for part in match.groups())
        for days in (0, 1, 2):
            day = now.date() + timedelta(days=days)
            # A time that the clocks leave out is as long after midnight as on other days; of one that comes twice, the first.
            found = datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=where).astimezone(UTC)
            if found > now:
                return int(found.timestamp() * 1000)
        raise AssertionError("unreachable")
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
