"""OTLP logs: a request in Protobuf or JSON, and its lines. Pure functions.

Only what a log record has is read, by the field numbers of opentelemetry-proto 1.x; unknown fields are skipped.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.logs.network.lines import MOST_LINES, LineLimits, NetworkLine, TooManyLines, make_line, plain_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from connectors.logs.rules.records import LineOrigin


class RequestInvalid(Exception):
    """The request is not what its path says; the message says where it is wrong."""


#: Message -> field number -> name in JSON, and a message's name or a kind of value. A * means that it is repeated.
_FIELDS: Final[dict[str, dict[int, tuple[str, str]]]] = {
    "Request": {1: ("resourceLogs", "*ResourceLogs")},
    "ResourceLogs": {1: ("resource", "Resource"), 2: ("scopeLogs", "*ScopeLogs")},
    "Resource": {1: ("attributes", "*KeyValue")},
    "ScopeLogs": {1: ("scope", "Scope"), 2: ("logRecords", "*LogRecord")},
    "Scope": {1: ("name", "string")},
    "LogRecord": {
        1: ("timeUnixNano", "fixed"),
        2: ("severityNumber", "integer"),
        3: ("severityText", "string"),
        5: ("body", "AnyValue"),
        6: ("attributes", "*KeyValue"),
        9: ("traceId", "hex"),
        10: ("spanId", "hex"),
        11: ("observedTimeUnixNano", "fixed"),
        12: ("eventName", "string"),
    },
    "KeyValue": {1: ("key", "string"), 2: ("value", "AnyValue")},
    "AnyValue": {
        1: ("stringValue", "string"),
        2: ("boolValue", "boolean"),
        3: ("intValue", "integer"),
        4: ("doubleValue", "double"),
        5: ("arrayValue", "Array"),
        6: ("kvlistValue", "List"),
        7: ("bytesValue", "base64"),
    },
    "Array": {1: ("values", "*AnyValue")},
    "List": {1: ("values", "*KeyValue")},
}
_DEEPEST: Final = 64
#: The most messages of a request in Protobuf: a record, an attribute and its value are one each.
_MOST_MESSAGES: Final = 4 * MOST_LINES
_SEVERITIES: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")


def decode_protobuf(data: bytes) -> dict[str, Any]:
    """An ExportLogsServiceRequest, in the form that its JSON has.

    Raises:
        RequestInvalid: it is not Protobuf.
        TooManyLines: it has more messages than a request may have.
    """
    try:
        return _decode_message(memoryview(data), "Request", 0, count())
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise RequestInvalid(f"the body is not an ExportLogsServiceRequest in Protobuf: {error}") from error


def decode_json(data: bytes) -> dict[str, Any]:
    """An ExportLogsServiceRequest in JSON.

    Raises:
        RequestInvalid: it is not JSON.
    """
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestInvalid(f"the body is not an ExportLogsServiceRequest in JSON: {error}") from error


def log_lines(request: Mapping[str, Any], default: LineOrigin, limits: LineLimits) -> list[NetworkLine]:
    """The lines of a request.

    Args:
        request: as ``decode_json`` gives it.
        default: the origin, as far as records do not say it.
        limits: the treatment of lines that are too long.

    Raises:
        RequestInvalid: a member has not the type that it must have.
        TooManyLines: there are more records than a request may have.
    """
    try:
        if _count_records(request) > MOST_LINES:
            raise TooManyLines
        return [
            _make_line(
                record, _read_attributes(resource.get("resource") or {}), scope.get("scope") or {}, default, limits
            )
            for resource in request.get("resourceLogs") or ()
            for scope in resource.get("scopeLogs") or ()
            for record in scope.get("logRecords") or ()
        ]
    except (AttributeError, TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
        raise RequestInvalid(f"the body is not an ExportLogsServiceRequest: {error!r}") from error


def _count_records(request: Mapping[str, Any]) -> int:
    return sum(
        len(scope.get("logRecords") or ())
        for resource in request.get("resourceLogs") or ()
        for scope in resource.get("scopeLogs") or ()
    )


def _make_line(
    record: Mapping[str, Any],
    resource: dict[str, Any],
    scope: Mapping[str, Any],
    default: LineOrigin,
    limits: LineLimits,
) -> NetworkLine:
    attributes = _read_attributes(record)
    body = _read_value(record.get("body") or {})
    message = body if isinstance(body, str) else "" if body is None else _to_json(body)
    time = int(record.get("timeUnixNano") or 0) or int(record.get("observedTimeUnixNano") or 0)
    number = int(record.get("severityNumber") or 0)
    severity = _string_or_none(record.get("severityText")) or (
        _SEVERITIES[(number - 1) // 4] if 1 <= number <= 24 else None
    )
    details = {
        "resource": resource,
        "attributes": attributes,
        "scope": scope.get("name"),
        "traceId": record.get("traceId"),
        "spanId": record.get("spanId"),
    }
    data = _to_json({name: value for name, value in details.items() if value})
    process = resource.get("process.pid")
    origin = msgspec.structs.replace(
        default,
        host=_string_or_none(resource.get("host.name")) or default.host,
        file=_string_or_none(attributes.get("log.file.path")) or default.file,
        timestamp=time // 1_000_000 or default.timestamp,
        severity=severity,
        app=_string_or_none(resource.get("service.name")),
        procid=None if process is None else str(process),
        msgid=_string_or_none(record.get("eventName")),
        data=data,
    )
    line = make_line(message.encode("utf-8", "replace"), limits, origin, plain_line)
    line.size += len(data)
    return line


def _string_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _read_attributes(holder: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of something."""
    return _read_pairs(holder.get("attributes"))


def _read_pairs(pairs: Any) -> dict[str, Any]:
    # Protobuf leaves an empty key out.
    return {item.get("key") or "": _read_value(item.get("value") or {}) for item in pairs or ()}


def _read_value(value: Mapping[str, Any]) -> Any:
    for name, content in value.items():
        if name == "arrayValue":
            return [_read_value(item) for item in content.get("values") or ()]
        if name == "kvlistValue":
            return _read_pairs(content.get("values"))
        if name == "intValue":
            return int(content)
        return content
    return None


def _decode_message(data: memoryview, message: str, depth: int, numbers: Iterator[int]) -> dict[str, Any]:
    if next(numbers) > _MOST_MESSAGES:
        raise TooManyLines
    if depth > _DEEPEST:
        raise ValueError(f"values are nested more than {_DEEPEST} deep")
    fields = _FIELDS[message]
    result: dict[str, Any] = {}
    for number, value in _iterate_fields(data):
        if number not in fields:
            continue
        name, kind = fields[number]
        if isinstance(value, int) != (kind in ("integer", "boolean")):
            raise ValueError(f"field {number} of {message} is not of its type")
        if kind.startswith("*"):
            result.setdefault(name, []).append(_decode_message(value, kind[1:], depth + 1, numbers))
        elif kind in _FIELDS:
            result[name] = _decode_message(value, kind, depth + 1, numbers)
        else:
            result[name] = _read_scalar(value, kind)
    return result


def _read_scalar(value: Any, kind: str) -> Any:
    if kind == "string":
        return bytes(value).decode()
    if kind == "hex":
        return bytes(value).hex()
    if kind == "base64":
        return base64.b64encode(value).decode()
    if kind == "double":
        return _finite_or_text(struct.unpack("<d", value)[0])
    if kind == "fixed":
        return struct.unpack("<Q", value)[0]
    if kind == "boolean":
        return bool(value)
    return value - (1 << 64) if value >> 63 else value


def _finite_or_text(number: float) -> float | str:
    """A number as JSON has it: what it lacks is text there."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _iterate_fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: an int, or a view of its bytes."""
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, position = _read_varint(data, position)
            yield number, value
            continue
        if wire == 2:
            size, position = _read_varint(data, position)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"a field has wire type {wire}")
        if position + size > len(data):
            raise ValueError("a field ends behind its message")
        yield number, data[position : position + size]
        position += size


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than ten bytes")
