"""JSON documents as lines, as shippers send them. Pure functions."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from connectors.logs.inputs.kafka_records import read_record
from connectors.logs.network.lines import LineLimits, NetworkLine, make_line, plain_line
from connectors.logs.rules.records import LineOrigin  # noqa: TC001 - msgspec reads the annotation at run time


class _File(msgspec.Struct):
    path: str = ""
    fingerprint: str = ""
    device_id: Any = ""
    inode: Any = ""


class _Log(msgspec.Struct):
    offset: int | None = None
    file: _File = msgspec.field(default_factory=_File)


class _Agent(msgspec.Struct):
    id: str = ""


class _Beat(msgspec.Struct):
    """The members of a document of a Beat that name its line."""

    log: _Log | None = None
    agent: _Agent = msgspec.field(default_factory=_Agent)
    timestamp: str = msgspec.field(default="", name="@timestamp")


_decode_beat: Final = msgspec.json.Decoder(_Beat).decode


def document_line(data: bytes, default: LineOrigin, limits: LineLimits, *, recognise: bool) -> NetworkLine:
    """A document as a line.

    Args:
        data: the document.
        default: the origin, as far as the document does not say it.
        limits: what becomes of a document that is too long or no UTF-8.
        recognise: whether to take line, host, file and time out of the documents of Filebeat, Logstash and Fluent Bit; the
            document itself is ``@data`` then.
    """
    if len(data) > limits.most or not recognise:
        return make_line(data, limits, default, plain_line)
    try:
        message, origin = read_record(data, default, recognise=True)
    except UnicodeDecodeError:
        return make_line(data, limits, default, plain_line)
    size = len(data) + 200
    if origin is default:
        return NetworkLine(message, default, size=size)
    origin = msgspec.structs.replace(origin, data=data.decode(errors="replace"))
    return NetworkLine(message, origin, beat_identity(data), size=2 * size)


def beat_identity(data: bytes) -> str:
    """The name of the line in a document of Filebeat, the same whenever it is sent; "" if it does not say enough.

    A file is known by its fingerprint. Where Filebeat gives none, the time at which it read the line has to tell the lines of
    a file from those of a later one with its number.
    """
    try:
        beat = _decode_beat(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    log = beat.log
    if log is None or log.offset is None or not beat.agent.id:
        return ""
    file = log.file
    known_by = file.fingerprint or f"{file.device_id}/{file.inode}@{beat.timestamp}"
    return f"{beat.agent.id}:{file.path}:{known_by}:{log.offset}"
