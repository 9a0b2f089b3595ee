"""Messages of RFC 5424 and RFC 3164 as syslog senders write them. Pure functions.

A message that is of neither form is a line as it is: nothing that a sender writes is refused for its form.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from connectors.logs.network.lines import NetworkLine

if TYPE_CHECKING:
    from connectors.logs.rules.records import LineOrigin

FACILITIES: Final = (
    *("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"),
    *("ntp", "audit", "alert", "clock", *(f"local{number}" for number in range(8))),
)
SEVERITIES: Final = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}
_PRIORITY: Final = re.compile(r"<(\d{1,3})>", re.ASCII)
_NEW: Final = re.compile(r"[1-9]\d{0,2} (\S{1,64}) (\S{1,255}) (\S{1,255}) (\S{1,255}) (\S{1,255}) ", re.ASCII)
_ELEMENT: Final = re.compile(r'\[([^\s\]="]+)((?: [^\s\]="]+="(?:[^"\\\]]|\\.)*")*+)\]', re.DOTALL)
_PARAMETER: Final = re.compile(r' ([^\s\]="]+)="((?:[^"\\\]]|\\.)*)"', re.DOTALL)
_ESCAPED: Final = re.compile(r'\\(["\\\]])')
_OLD_TIME: Final = re.compile(r"([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d) ", re.ASCII)
_ISO_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*) ", re.ASCII)
_TAG: Final = re.compile(r"(?:([^\s:\[]{1,255}) )?([^\s:\[]{1,128})(?:\[([^\]\s]{0,128})\])?: ?")
#: A leap second, which Python's times do not have.
_LEAP_SECOND: Final = re.compile(r"(?<=T\d\d:\d\d:)60", re.ASCII)
_HOST: Final = re.compile(r"([^\s:\[]{1,255}) ")
_DAY: Final = timedelta(days=1)
#: How many years are tried for a time without one: February 29 comes at least every eight years.
_MOST_YEARS: Final = 9
_NOTHING: Final = "-"


def parse_syslog(raw: str, origin: LineOrigin) -> NetworkLine:
    """A message as a line: the message's text, with its header in the origin.

    Args:
        raw: the message without its frame.
        origin: host and time of reception, for what the message does not say. Times without a zone are taken as UTC, times
            without a year as the nearest ones.
    """
    raw = raw.rstrip("\r\n\0")
    match = _PRIORITY.match(raw)
    if match is None or (priority := int(match[1])) >= 8 * len(FACILITIES):
        return NetworkLine(raw, origin)
    origin = msgspec.structs.replace(
        origin, priority=priority, facility=FACILITIES[priority >> 3], severity=SEVERITIES[priority & 7]
    )
    header = _NEW.match(raw, match.end())
    line = None if header is None else _parse_new(raw, header, origin)
    if line is None:
        line = _parse_old(raw, match.end(), origin)
    line.header = raw[: len(raw) - len(line.line)]
    return line


def _parse_new(raw: str, header: re.Match[str], origin: LineOrigin) -> NetworkLine | None:
    """The rest of a message of RFC 5424; None if it is not one."""
    time, host, app, process, message_id = (None if value == _NOTHING else value for value in header.groups())
    elements, end = _parse_elements(raw, header.end())
    if end < 0 or (end < len(raw) and raw[end] != " "):
        return None
    timestamp = origin.timestamp if time is None else _iso_milliseconds(time)
    if timestamp is None:
        return None
    origin = msgspec.structs.replace(
        origin,
        host=host or origin.host,
        timestamp=timestamp,
        app=app,
        procid=process,
        msgid=message_id,
        data=json.dumps(elements, ensure_ascii=False) if elements else None,
    )
    return NetworkLine(
        raw[end + 1 :].removeprefix("\ufeff"), origin, _message_identity(elements, host, app, process, time)
    )


def _parse_elements(raw: str, start: int) -> tuple[dict[str, dict[str, str]], int]:
    """Structured data, and where it ends; -1 if it is missing."""
    if raw.startswith(_NOTHING, start):
        return {}, start + 1
    elements: dict[str, dict[str, str]] = {}
    position = start
    while (match := _ELEMENT.match(raw, position)) is not None:
        parameters = elements.setdefault(match[1], {})
        for name, value in _PARAMETER.findall(match[2]):
            parameters[name] = _ESCAPED.sub(r"\1", value)
        position = match.end()
    return elements, position if position > start else -1


def _message_identity(elements: dict[str, dict[str, str]], *sender: str | None) -> str:
    """The name of the message: an id in an element ``line@...``, or the sender's own count (RFC 5424, 7.3.1) with its time."""
    for name, parameters in elements.items():
        if name.partition("@")[0] == "line" and parameters.get("id"):
            return parameters["id"]
    number = elements.get("meta", {}).get("sequenceId")
    if not number or None in sender[:2] or sender[-1] is None:
        return ""
    return ":".join([*(part or "" for part in sender), number])


def _parse_old(raw: str, start: int, origin: LineOrigin) -> NetworkLine:
    """The rest of a message of RFC 3164, as far as it has that form."""
    timestamp: int | None = None
    if (match := _OLD_TIME.match(raw, start)) is not None:
        timestamp = _old_milliseconds(match, origin.timestamp)
    elif (match := _ISO_TIME.match(raw, start)) is not None:
        timestamp = _iso_milliseconds(match[1])
    if match is None or timestamp is None:
        return NetworkLine(raw[start:], origin)
    origin = msgspec.structs.replace(origin, timestamp=timestamp)
    start = match.end()
    if (tag := _TAG.match(raw, start)) is not None:
        host, app, process = tag.groups()
        origin = msgspec.structs.replace(origin, host=host or origin.host, app=app, procid=process or None)
        return NetworkLine(raw[tag.end() :], origin)
    if (name := _HOST.match(raw, start)) is not None:
        return NetworkLine(raw[name.end() :], msgspec.structs.replace(origin, host=name[1]))
    return NetworkLine(raw[start:], origin)


def _iso_milliseconds(iso_time: str) -> int | None:
    iso_time, leap_seconds = _LEAP_SECOND.subn("59", iso_time)
    try:
        time = datetime.fromisoformat(iso_time)
    except ValueError:
        return None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000) + 1000 * leap_seconds


def _old_milliseconds(match: re.Match[str], now_ms: int) -> int | None:
    """A time without a year: that of the year which is not in the future."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    month = _MONTHS.get(match[1])
    if month is None:
        return None
    day, hour, minute, second = (int(match[number]) for number in range(2, 6))
    leap = int(second == 60)  # a second that Python's times do not have
    for year in range(now.year + 1, now.year - _MOST_YEARS, -1):
        try:
            time = datetime(year, month, day, hour, minute, second - leap, tzinfo=UTC)
        except ValueError:
            continue
        time += timedelta(seconds=leap)
        if time <= now + _DAY:
            return round(time.timestamp() * 1000)
    return None
