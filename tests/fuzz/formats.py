"""Targets of what senders of logs, Kafka and schema registries send."""

from __future__ import annotations

import base64
import functools
import json
import zlib
from typing import TYPE_CHECKING, Any, Final

from connectors.logs.network.bodies import read_bulk, read_events, read_ndjson, read_raw
from connectors.logs.network.documents import document_line
from connectors.logs.network.frames import FrameInvalid, SyslogDecoder
from connectors.logs.network.lines import LineLimits, NetworkLine, make_line
from connectors.logs.network.lumberjack import LumberjackDecoder
from connectors.logs.network.otlp import RequestInvalid, decode_json, decode_protobuf, log_lines
from connectors.logs.network.relp import RelpDecoder
from connectors.logs.network.syslog import parse_syslog
from connectors.logs.rules.records import LineOrigin
from offsets import records
from tests.fuzz.engine import Target
from worker.converters.avro_form.read import avro_reader
from worker.converters.avro_form.schema import AvroSettings
from worker.converters.json import JsonConverter
from worker.converters.json_form.schema_read import json_schema_reader
from worker.converters.json_form.schema_text import JsonSchemaSettings
from worker.converters.json_form.text import JsonSettings
from worker.converters.protobuf_form.read import protobuf_reader
from worker.converters.protobuf_form.schema import ProtobufSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.logs.network.frames import FrameDecoder

_ORIGIN: Final = LineOrigin(host="here", timestamp=1_700_000_000_000)
_LIMITS: Final = LineLimits(most=4096)


def _syslog_line(data: bytes, cut: bool) -> NetworkLine:
    return make_line(data, _LIMITS, _ORIGIN, parse_syslog, cut=cut)


def _document(data: bytes, _cut: bool) -> NetworkLine:
    return document_line(data, _ORIGIN, _LIMITS, recognise=True)


def _read_stream(make: Callable[[], FrameDecoder]) -> Callable[[bytes], int]:
    """Feeds portions; the first byte says how large they are. What is left must not be more than the decoder may hold."""

    def read(data: bytes) -> int:
        decoder = make()
        step = (data[0] if data else 0) * 4 + 1
        lines = 0
        for start in range(1, len(data), step):
            received = decoder.feed(data[start : start + step])
            lines += len(received.lines)
            if received.close:
                return -1
            if decoder.incomplete > 2 * 8192 + step:
                raise AssertionError(f"{decoder.incomplete} bytes are kept")
        return lines + len(decoder.end().lines)

    return read


_SYSLOG: Final = (
    b'\x10<34>1 2026-10-11T22:14:15.003Z host su 12 ID47 [ex@32473 iut="3" a="\\"]"] \xef\xbb\xbfmessage\n',
    b"\xff<13>Oct 11 22:14:15 host su[12]: message\n<13>Feb 29 10:00:00 h a: b\n",
    b"\x0533 <34>1 - - - - - - counted message<13>",
    b"\x10<191>Oct  1 2026 22:14:15.123 host app: text\r\n",
)


def _window(*frames: bytes) -> bytes:
    return b"\x20" + b"2W" + len(frames).to_bytes(4) + b"".join(frames)


def _lumberjack_event(number: int, document: bytes) -> bytes:
    return b"2J" + number.to_bytes(4) + len(document).to_bytes(4) + document


def _lumberjack() -> list[bytes]:
    beat = json.dumps(
        {
            "@timestamp": "2026-10-11T22:14:15.003Z",
            "message": "line",
            "host": {"name": "h"},
            "log": {"offset": 5, "file": {"path": "/a"}},
            "agent": {"id": "x"},
        }
    ).encode()
    events = _lumberjack_event(1, beat) + _lumberjack_event(2, b"{}")
    packed = zlib.compress(events)
    return [_window(events), _window(b"2C" + len(packed).to_bytes(4) + packed), _window(_lumberjack_event(1, b"x"))]


_RELP: Final = (
    b"\x201 open 10 commands=1\n2 syslog 9 <13>hello\n3 close 0\n",
    b"\xff1 open 0\n2 syslog 4 text\n3 syslog 4 text\n9 other 2 ab\n",
)


def _read_body(data: bytes) -> int:
    """The first byte chooses the form."""
    kind, body = (data[0] if data else 0) % 6, data[1:]
    if kind == 0:
        return len(read_ndjson(body, _ORIGIN, _LIMITS, recognise=True))
    if kind == 1:
        return len(read_bulk(body, "index", _ORIGIN, _LIMITS, recognise=True)[0])
    if kind == 2:
        return len(read_events(body, _ORIGIN, _LIMITS))
    if kind == 3:
        return len(read_raw(body, _ORIGIN, _LIMITS))
    return len(log_lines(decode_json(body) if kind == 4 else decode_protobuf(body), _ORIGIN, _LIMITS))


def _bodies() -> list[bytes]:
    otlp = {
        "resourceLogs": [
            {
                "resource": {"attributes": [{"key": "host.name", "value": {"stringValue": "h"}}]},
                "scopeLogs": [
                    {
                        "scope": {"name": "s"},
                        "logRecords": [
                            {
                                "timeUnixNano": "1700000000000000000",
                                "severityNumber": 9,
                                "body": {"kvlistValue": {"values": [{"key": "a", "value": {"intValue": "5"}}]}},
                                "attributes": [{"key": "k", "value": {"arrayValue": {"values": [{}]}}}],
                                "traceId": "5b8efff798038103d269b633813fc60c",
                            }
                        ],
                    }
                ],
            }
        ]
    }
    record = bytes.fromhex("09000054d5f0a79717") + b"\x10\x09\x2a\x06\x0a\x04text"
    logs = b"\x12" + bytes([len(record)]) + record
    scope = b"\x12" + bytes([len(logs)]) + logs
    return [
        b'\0{"message": "a", "@timestamp": "2026-01-01T00:00:00Z", "host": {"name": "h"}}\n{"log": "x", "time": 5}\ntext\n',
        b'\1{"create": {"_index": "i", "_id": "1"}}\n{"a": 1}\n{"delete": {}}\n{"update": {}}\n{"doc": {}}\n',
        b'\2{"event": {"a": 1}, "time": "1700000000.5", "host": "h", "fields": {"x": [1]}}{"event": "text", "source": 5}',
        b"\3one\r\ntwo\n\n",
        b"\4" + json.dumps(otlp).encode(),
        b"\5\x0a" + bytes([len(scope)]) + scope,
    ]


_JSON_WORDS: Final = (
    b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"true", b"1e999", b"-1", b"NaN", b"1e-400", b'""', b"\\ud800",
    b"\\u0000", b"9223372036854775808", b"{}", b"[]", b"1.5", b"0",
)  # fmt: skip


def _read_record(data: bytes) -> str:
    """A kind, a key and a value, with a zero byte between them; the value "-" means null."""
    key, _, value = data[1:].partition(b"\0")
    content = None if value == b"-" else value
    kind = (data[0] if data else 0) % 4
    if kind == 0:
        return type(records.decode_config(key, content)).__name__
    if kind == 1:
        return type(records.decode_status(key, content)).__name__
    if kind == 2:
        records.decode_offset_key(key)
    else:
        records.decode_offset(value)
    return "offset"


_RECORDS: Final = (
    b'\0connector-a\0{"properties": {"name": "a"}}',
    b'\0task-a-0\0{"properties": {"task.class": "x"}}',
    b'\0commit-a\0{"tasks": 3}',
    b'\0target-state-a\0{"state": "PAUSED", "state.v2": "STOPPED"}',
    b'\0restart-connector-a\0{"include-tasks": true, "only-failed": false}',
    b'\0tasks-fencing-a\0{"task-count": 2}',
    b'\0logger-cluster-x.y\0{"level": "DEBUG"}',
    b'\0session-key\0{"key": "AAAA", "algorithm": "HmacSHA256", "creation-timestamp": 1700000000000}',
    b'\1status-connector-a\0{"state": "RUNNING", "trace": null, "worker_id": "w:1", "generation": 1}',
    b'\1status-task-a-0\0{"state": "FAILED", "trace": "x", "worker_id": "w:1", "generation": 1, "version": "1"}',
    b'\1status-topic-t:connector-a\0{"topic": {"name": "t", "connector": "a", "task": 0, "discoverTimestamp": 5}}',
    b'\2["a", {"server": "x"}]\0',
    b'\3x\0{"pos": 5, "file": null}',
)

_AVRO_TEXT: Final = json.dumps(
    {
        "type": "record",
        "name": "n.R",
        "fields": [
            {"name": "a", "type": "int"},
            {"name": "b", "type": ["null", "string"], "default": None},
            {"name": "c", "type": {"type": "array", "items": "double"}},
            {"name": "d", "type": {"type": "map", "values": "long"}},
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
            {"name": "f", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
            {"name": "g", "type": {"type": "fixed", "name": "F", "size": 3}},
            {"name": "h", "type": {"type": "int", "logicalType": "date"}},
            {"name": "i", "type": ["int", "string", {"type": "record", "name": "S", "fields": []}]},
        ],
    }
)
_AVRO_DATA: Final = b"\x02\x02\x06abc\x02" + bytes(8) + b"\0\x02\x02k\x04\0\x02\x02\x05xyz\x02\x02\x04hi"
_PROTO_TEXT: Final = """syntax = "proto3";
package p;
import "google/protobuf/timestamp.proto";
message M {
  int32 a = 1;
  optional string b = 2;
  repeated double c = 3;
  map<string, int64> d = 4;
  enum E { X = 0; Y = 1; }
  E e = 5;
  google.protobuf.Timestamp f = 6;
  oneof g { bytes h = 7; sint64 i = 8; }
  message N { M m = 1 [json_name = "x"]; fixed32 k = 2; }
  N.Q q = 9;
  message O { bool z = 1; }
}
""".replace("  N.Q q = 9;\n", "  O o = 9;\n").replace("  message N { M m = 1", "  message N { int32 m = 1")
_JSON_SCHEMA_TEXT: Final = json.dumps(
    {
        "type": "object",
        "title": "R",
        "properties": {
            "a": {"type": "integer", "connect.type": "int32"},
            "b": {"oneOf": [{"type": "null"}, {"type": "string"}]},
            "c": {"type": "array", "items": {"type": "number", "connect.type": "float64"}},
            "d": {"type": "object", "connect.type": "map", "additionalProperties": {"type": "integer"}},
            "e": {"$ref": "#/definitions/e"},
            "f": {"type": "number", "title": "org.apache.kafka.connect.data.Decimal", "connect.type": "bytes"},
        },
        "definitions": {"e": {"type": "string", "enum": ["X", "Y"]}},
        "required": ["a"],
    }
)
_AVRO: Final = AvroSettings()
_PROTOBUF: Final = ProtobufSettings()
_JSON: Final = JsonSchemaSettings(JsonSettings())


@functools.cache
def _avro() -> Callable[[bytes], Any]:
    return avro_reader(_AVRO_TEXT, _AVRO).decode


@functools.cache
def _protobuf() -> Callable[[bytes], Any]:
    return protobuf_reader(_PROTO_TEXT, {}, _PROTOBUF)


@functools.cache
def _json_schema() -> Callable[[bytes], Any]:
    return json_schema_reader(_JSON_SCHEMA_TEXT, {}, _JSON)


def _with_text(read: Callable[[str], Callable[[bytes], Any]]) -> Callable[[bytes], str]:
    """A schema, a zero byte, and a value."""

    def run(data: bytes) -> str:
        text, _, value = data.partition(b"\0")
        result = read(text.decode("utf-8", "replace"))(value)
        return type(result).__name__

    return run


@functools.cache
def _converter() -> JsonConverter:
    return JsonConverter({"schemas.enable": "true"})


_MEMBERS: Final = [
    {"field": "a", "type": "int32"},
    {"field": "b", "type": "string", "optional": True},
    {"field": "c", "type": "array", "items": {"type": "double"}},
    {"field": "d", "type": "map", "keys": {"type": "string"}, "values": {"type": "int64"}},
]
_DECIMAL: Final = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "version": 1,
    "parameters": {"scale": "2"},
}
_TIMESTAMP: Final = {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp", "default": 5}
_ENVELOPES: Final = tuple(
    json.dumps({"schema": schema, "payload": payload}).encode()
    for schema, payload in (
        ({"type": "struct", "fields": _MEMBERS}, {"a": 1, "b": None, "c": [1.5], "d": {"k": 5}}),
        (_DECIMAL, base64.b64encode(b"\x05").decode()),
        (_TIMESTAMP, None),
        (None, {"a": [1, {"b": 2}]}),
    )
)
_PROTO_WORDS: Final = (
    b"message ",
    b"{",
    b"}",
    b";",
    b"=",
    b"repeated ",
    b"map<",
    b"oneof ",
    b"int32 ",
    b"M ",
    b"import ",
    b"99999999999",
)

TARGETS: Final = (
    Target("logs-syslog", _read_stream(lambda: SyslogDecoder(_syslog_line, 4096)), lambda: list(_SYSLOG), quick=6000),
    Target(
        "logs-relp",
        _read_stream(lambda: RelpDecoder(_syslog_line, 4096)),
        lambda: list(_RELP),
        (FrameInvalid,),
        quick=8000,
    ),
    Target(
        "logs-lumberjack",
        _read_stream(lambda: LumberjackDecoder(_document, 8192)),
        _lumberjack,
        (FrameInvalid,),
        _JSON_WORDS,
        quick=6000,
    ),
    Target("logs-http", _read_body, _bodies, (RequestInvalid,), _JSON_WORDS, quick=8000),
    Target("kafka-records", _read_record, lambda: list(_RECORDS), words=(*_JSON_WORDS, b"task-", b"-0"), quick=8000),
    Target("avro", lambda data: _avro()(data) and 1, lambda: [_AVRO_DATA, b""], quick=8000),
    Target(
        "avro-schema",
        _with_text(lambda text: avro_reader(text, _AVRO).decode),
        lambda: [_AVRO_TEXT.encode() + b"\0" + _AVRO_DATA],
        words=_JSON_WORDS,
        quick=1500,
    ),
    Target(
        "protobuf",
        lambda data: _protobuf()(data) and 1,
        lambda: [b"\0\x08\x05\x12\x01a\x22\x05\x0a\x01k\x10\x05", b"\2\0", b"\4\0\0"],
        quick=5000,
    ),
    Target(
        "protobuf-schema",
        _with_text(lambda text: protobuf_reader(text, {}, _PROTOBUF)),
        lambda: [_PROTO_TEXT.encode() + b"\0\0\x08\x05"],
        words=_PROTO_WORDS,
        quick=40,
    ),
    Target(
        "json-schema",
        lambda data: _json_schema()(data) and 1,
        lambda: [b'{"a": 1, "b": "x", "c": [1.5], "d": {"k": 1}, "e": "X", "f": 1}'],
        words=_JSON_WORDS,
        quick=8000,
    ),
    Target(
        "json-schema-text",
        _with_text(lambda text: json_schema_reader(text, {}, _JSON)),
        lambda: [_JSON_SCHEMA_TEXT.encode() + b'\0{"a": 1, "e": "X"}'],
        words=(*_JSON_WORDS, b'"$ref"', b'"#"', b'"type"', b'"allOf"', b'"oneOf"', b'"properties"'),
        quick=4000,
    ),
    Target(
        "json-envelope",
        lambda data: _converter().to_connect("t", data) and 1,
        lambda: list(_ENVELOPES),
        words=_JSON_WORDS,
        quick=5000,
    ),
)
