"""Lines in records of Kafka topics, as log shippers write them. Pure functions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from connectors.logs.inputs.flume import read_flume
from connectors.logs.rules.records import LineOrigin

#: The end of the year 9999.
_LAST_MS: Final = 253_402_300_799_999


class ShippedLine(NamedTuple):
    """A line out of a record.

    Attributes:
        line: the text.
        origin: where the shipper says that it comes from.
    """

    line: str
    origin: LineOrigin


class _ShipperEnvelope(msgspec.Struct):
    """The members that say what a record is; shippers have many more."""

    message: Any = None
    log: Any = None
    body: Any = None
    headers: Any = None
    host: Any = None
    hostname: Any = None
    agent: Any = None
    beat: Any = None
    source: Any = None
    path: Any = None
    filename: Any = None
    offset: Any = None
    timestamp: Any = msgspec.field(default=None, name="@timestamp")


_decode = msgspec.json.Decoder(_ShipperEnvelope).decode


def read_record(value: bytes, default: LineOrigin, *, recognise: bool) -> ShippedLine:
    """The line in a record's value.

    Filebeat and Logstash write ``message`` and ``@timestamp``, Fluent Bit a string ``log``, Flume ``headers`` and ``body``, in
    JSON or Avro. Any other value is a line as it is.

    Args:
        value: the record's value.
        default: the origin, as far as the record does not say it.
        recognise: whether to look for these forms.

    Raises:
        UnicodeDecodeError: the value is not UTF-8.
    """
    if recognise and value[:1] == b"{":
        try:
            envelope = _decode(value)
        except (msgspec.DecodeError, RecursionError):
            return ShippedLine(value.decode(), default)
        shipped = _open_envelope(envelope, default)
        if shipped is not None:
            return shipped
    if recognise and (event := read_flume(value)) is not None:
        return ShippedLine(event.body.decode(), _origin_of_flume(event.headers, default))
    return ShippedLine(value.decode(), default)


def _open_envelope(envelope: _ShipperEnvelope, default: LineOrigin) -> ShippedLine | None:
    if isinstance(envelope.message, str) and envelope.timestamp is not None:
        return ShippedLine(envelope.message, _origin_of_beat(envelope, default))
    if isinstance(envelope.log, str):
        file = _first_text(envelope.filename, envelope.path, envelope.source) or default.file
        host = _first_text(envelope.hostname, _get_member(envelope.host, "name"), envelope.host) or default.host
        return ShippedLine(
            envelope.log,
            LineOrigin(host, file, default.position, _parse_milliseconds(envelope.timestamp, default.timestamp)),
        )
    headers = envelope.headers
    if isinstance(envelope.body, str) and isinstance(headers, dict):
        return ShippedLine(envelope.body, _origin_of_flume(headers, default))
    return None


def _origin_of_flume(headers: dict[str, Any], default: LineOrigin) -> LineOrigin:
    host = _first_text(headers.get("host"), headers.get("hostname")) or default.host
    file = _first_text(headers.get("file"), headers.get("basename")) or default.file
    return LineOrigin(host, file, default.position, _parse_milliseconds(headers.get("timestamp"), default.timestamp))


def _origin_of_beat(envelope: _ShipperEnvelope, default: LineOrigin) -> LineOrigin:
    host = _first_text(
        _get_member(envelope.host, "name"),
        _get_member(envelope.host, "hostname"),
        envelope.host,
        _get_member(envelope.agent, "hostname"),
        _get_member(envelope.beat, "hostname"),
    )
    file = _first_text(_get_member(_get_member(envelope.log, "file"), "path"), envelope.source, envelope.path)
    position = _get_member(envelope.log, "offset")
    if not _is_position(position):
        position = envelope.offset if _is_position(envelope.offset) else default.position
    return LineOrigin(
        host or default.host,
        file or default.file,
        position,
        _parse_milliseconds(envelope.timestamp, default.timestamp),
    )


def _get_member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _is_position(value: Any) -> bool:
    """Whether a value is a position that a column of type long holds."""
    return isinstance(value, int) and 0 <= value < 1 << 63


def _first_text(*values: Any) -> str:
    return next((value for value in values if isinstance(value, str) and value), "")


def _parse_milliseconds(value: Any, default: int) -> int:
    """A time as shippers write it: ISO 8601, or a number of seconds (with a fraction) or milliseconds.

    Without a zone it is UTC. One before 1970 or after 9999, which no record of Kafka can have, is as good as none.
    """
    try:
        if isinstance(value, str) and not value.isdigit():
            time = datetime.fromisoformat(value)
            milliseconds = round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
        else:
            number = float(value)
            milliseconds = round(number if number > 100_000_000_000 else number * 1000)
    except (ValueError, TypeError, OverflowError):
        return default
    return milliseconds if 0 <= milliseconds <= _LAST_MS else default
