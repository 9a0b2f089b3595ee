"""NDJSON, bulk requests, OTLP and Splunk's events into a running connector, by real HTTP clients."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
import time
import zlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from google.protobuf.json_format import MessageToJson
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from compose.local.ports import LOOPBACK
from compose.local.process.service import PATIENCE
from compose.local.security.certificates import Authority
from connectors.logs.network.bodies import read_array, read_bulk, read_events
from connectors.logs.network.documents import beat_identity
from connectors.logs.network.lines import MOST_LINES, LineLimits, TooManyLines
from connectors.logs.network.otlp import RequestInvalid, decode_json, decode_protobuf, log_lines
from connectors.logs.rules.records import LineOrigin
from tests.support.eventually import eventually_async
from tests.unit.connectors.logs.network_world import connected, listening

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.unit.connectors.logs.network_world import Listener

BEAT = {
    "@timestamp": "2026-11-26T11:00:00.123Z",
    "message": "of filebeat",
    "host": {"name": "web-1"},
    "agent": {"id": "7f3c"},
    "log": {"offset": 120, "file": {"path": "/var/log/app.log", "fingerprint": "ab12"}},
}
PEER = LineOrigin("peer", "http://0.0.0.0:1", 0, 1)
LIMITS = LineLimits(1000)


class Client:
    """Sends requests while the connector is read."""

    def __init__(self, session: aiohttp.ClientSession, listener: Listener, url: str) -> None:
        self.session = session
        self.listener = listener
        self.url = url

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        async with self.session.request(method, self.url + path, **options) as response:
            body = await response.read()
            is_json = bool(body) and response.content_type == "application/json"
            return response.status, json.loads(body) if is_json else body

    async def post(self, path: str, data: bytes, rows: int, **options: Any) -> tuple[list[dict[str, Any]], int, Any]:
        request = asyncio.create_task(self.ask("POST", path, data=data, **options))
        result = await self.listener.rows(rows)
        status, body = await request
        return result, status, body


@asynccontextmanager
async def client(**options: str) -> AsyncIterator[Client]:
    async with listening("http", "http", **options) as listener, aiohttp.ClientSession() as session:
        await listener.wait_until_it_listens()
        yield Client(session, listener, f"http://{LOOPBACK}:{listener.port}")


async def test_lines_and_documents() -> None:
    async with client() as http:
        body = b'first\r\n\n{"other": 1}\n' + json.dumps(BEAT).encode()
        for options in ({}, {"headers": {"Content-Encoding": "gzip"}}):
            data = gzip.compress(body) if options else body
            rows, status, answer = await http.post("/lines", data, 3, **options)
            assert (status, answer) == (200, {"accepted": 3})
            assert [row["line"] for row in rows] == ["first", '{"other": 1}', "of filebeat"]
            assert [row["host"] for row in rows] == [LOOPBACK, LOOPBACK, "web-1"]
            assert (rows[2]["file"], rows[2]["position"]) == ("/var/log/app.log", 120)
            assert json.loads(rows[2]["data"]) == BEAT
            assert rows[2]["log_id"].endswith(":7f3c:/var/log/app.log:ab12:120:0")


@pytest.mark.parametrize("indent", [None, 2])
async def test_an_array_of_documents_is_a_line_of_each(indent: int | None) -> None:
    """As Fluent Bit (format json), Vector and Fluentd (json_array) send them."""
    async with client() as http:
        body = json.dumps([{"other": 1}, BEAT, {"log": "of fluent bit, [1]\n"}], indent=indent).encode()
        rows, status, answer = await http.post("/lines", body, 3, headers={"Content-Type": "application/json"})
        assert (status, answer) == (200, {"accepted": 3})
        assert [row["line"].replace(" ", "") for row in rows[:1]] == ['{"other":1}']
        assert [row["line"].rstrip() for row in rows[1:]] == ["of filebeat", "of fluent bit, [1]"]
        assert json.loads(rows[1]["data"]) == BEAT
        rows, _, _ = await http.post("/lines", b"[{}]", 1, headers={"Content-Type": "text/plain"})
        assert rows[0]["line"] == "[{}]"


def test_an_array_has_a_bound_and_takes_what_python_calls_json() -> None:
    with pytest.raises(TooManyLines):
        read_array(b"[" + b"{}," * MOST_LINES + b"{}]", PEER, LIMITS)
    assert [line.line for line in read_array(b'[{"a":\r\nNaN}]', PEER, LIMITS)] == ['{"a":  NaN}']


@pytest.mark.parametrize("text", ["[1, 2]", "[]", '[{"a": 1}, 2]', '[{"a": 1}'])
async def test_what_is_no_array_of_documents_is_a_line(text: str) -> None:
    async with client() as http:
        rows, _, _ = await http.post("/lines", text.encode(), 1, headers={"Content-Type": "application/json"})
        assert rows[0]["line"] == text


async def test_plain_documents_stay_whole() -> None:
    async with client(listen_format="plain") as http:
        rows, _, _ = await http.post("/lines", json.dumps(BEAT).encode(), 1)
        assert json.loads(rows[0]["line"]) == BEAT


async def test_a_repeated_request_makes_the_same_rows() -> None:
    async with client() as http:
        names = []
        for _ in range(2):
            rows, _, _ = await http.post("/lines", b"a\nb\n", 2, headers={"Idempotency-Key": "k1"})
            names.append([row["log_id"] for row in rows])
        assert names[0] == names[1]
        assert names[0][0].endswith(":k1:0:0")
        rows, _, _ = await http.post("/lines", b"a\n", 1)
        assert "k1" not in rows[0]["log_id"]


async def test_a_bulk_request() -> None:
    async with client() as http:
        assert (await http.ask("GET", "/"))[1]["version"]["number"].startswith("8.")
        assert (await http.ask("HEAD", "/"))[0] == 200
        assert (await http.ask("GET", "/_license"))[1]["license"]["status"] == "active"
        body = (
            b'{"create": {"_index": "web"}}\n' + json.dumps(BEAT).encode() + b"\n"
            b'{"index": {"_id": "7"}}\n{"other": 1}\n'
            b'{"delete": {"_id": "8"}}\n'
            b'{"update": {"_id": "9"}}\n{"doc": {}}\n'
        )
        rows, status, answer = await http.post("/logs/_bulk?filter_path=errors", body, 2)
        assert [row["line"] for row in rows] == ["of filebeat", '{"other": 1}']
        assert rows[1]["log_id"].endswith(":logs/7:0")
        assert status == 200
        assert answer["errors"]
        assert [
            (action, item["status"], item["_index"]) for item in answer["items"] for action, item in item.items()
        ] == [
            ("create", 201, "web"),
            ("index", 201, "logs"),
            ("delete", 400, "logs"),
            ("update", 400, "logs"),
        ]


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/_bulk", b"x\n", "line 1 is not an action"),
        ("/_bulk", b'{"create": {}}\n', "no document behind it"),
        ("/_bulk", b'{"drop": {}}\n{}\n', "no action 'drop'"),
        ("/_bulk", b'{"create": {"_id": ' + b"[" * 100_000 + b"\n{}\n", "line 1 is not an action"),
        ("/v1/logs", b"\xff\xff", "not an ExportLogsServiceRequest"),
        ("/services/collector", b'{"event": "a"}{"event"', "event 1 is not JSON"),
        ("/services/collector", b'{"time": 1}', "event 0 has no member event"),
    ],
)
async def test_a_request_of_another_form_is_refused(path: str, body: bytes, message: str) -> None:
    async with client() as http:
        status, answer = await http.ask("POST", path, data=body)
        assert status == 400
        assert message in json.dumps(answer)


async def test_a_body_that_can_not_be_decompressed_is_refused() -> None:
    async with client() as http:
        for path in ("/lines", "/_bulk", "/v1/logs", "/services/collector"):
            status, answer = await http.ask("POST", path, data=b"no gzip at all", headers={"Content-Encoding": "gzip"})
            assert status == 400
            assert "not what Content-Encoding says" in json.dumps(answer)


@pytest.mark.parametrize(
    ("encoding", "data", "message"),
    [
        ("gzip", gzip.compress(b"one\ntwo\n")[:-1], "its end is missing"),
        ("gzip", gzip.compress(b"one\ntwo\n" * 1000)[:-20], "its end is missing"),
        ("deflate", zlib.compress(b"one\ntwo\n")[:-1], "its end is missing"),
        ("deflate", zlib.compress(b"one\n") + b"two\n", "more behind its end"),
        ("gzip", gzip.compress(b"one\n") + b"two\n", "not what Content-Encoding says"),
        ("snappy", b"\x04\x0cone\n", "Content-Encoding: snappy can't be read"),
        ("gzip, gzip", gzip.compress(gzip.compress(b"one\n")), "can't be read"),
    ],
    ids=["no trailer", "half", "deflate", "behind", "behind gzip", "snappy", "twice"],
)
async def test_a_body_without_its_end_or_of_an_unknown_encoding_is_refused(
    encoding: str, data: bytes, message: str
) -> None:
    async with client() as http:
        status, answer = await http.ask("POST", "/lines", data=data, headers={"Content-Encoding": encoding})
        assert status == 400
        assert message in answer["error"]["reason"]
        assert (await http.post("/lines", b"next\n", 1))[0][0]["line"] == "next"


async def test_bodies_of_all_encodings() -> None:
    large = "".join(f"line {number}\n" for number in range(50_000)).encode()
    raw = zlib.compressobj(wbits=-15)
    bodies = {
        "gzip": gzip.compress(large[:500_000]) + gzip.compress(large[500_000:]),
        "X-Gzip": gzip.compress(large),
        "deflate": zlib.compress(large),
        "Deflate": raw.compress(large) + raw.flush(),
        "identity": large,
    }
    async with client() as http:
        for encoding, data in bodies.items():
            rows, status, _ = await http.post("/lines", data, 50_000, headers={"Content-Encoding": encoding})
            assert (status, len(rows), rows[-1]["line"]) == (200, 50_000, "line 49999")


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 131_072])
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_compressed_body_of_a_whole_number_of_blocks_is_taken(encoding: str, size: int) -> None:
    """The decoder gives blocks of 64 KiB: the last one may be full."""
    body = b"x" * (size - 1) + b"\n"
    packed = gzip.compress(body) if encoding == "gzip" else zlib.compress(body)
    async with client() as http:
        rows, status, _ = await http.post("/lines", packed, 1, headers={"Content-Encoding": encoding})
        assert (status, len(rows[0]["line"])) == (200, size - 1)


async def test_documents_that_are_nested_too_deep_are_lines_or_refused() -> None:
    async with client() as http:
        deep = b'{"headers": ' + b"[" * 100_000
        rows, status, _ = await http.post("/lines", deep + b"\nnext\n", 2)
        assert ([row["line"].encode() for row in rows], status) == ([deep, b"next"], 200)
        otlp = b'{"resourceLogs": ' + b"[" * 100_000
        status, _ = await http.ask("POST", "/v1/logs", data=otlp, headers={"Content-Type": "application/json"})
        assert status == 400


def otlp_request() -> ExportLogsServiceRequest:
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    resource.resource.attributes.add(key="host.name", value=AnyValue(string_value="web-1"))
    resource.resource.attributes.add(key="service.name", value=AnyValue(string_value="shop"))
    scope = resource.scope_logs.add()
    scope.scope.name = "logger"
    record = scope.log_records.add(
        time_unix_nano=1_795_690_800_123_456_789, severity_number=17, trace_id=b"\1" * 16, event_name="bought"
    )
    record.body.string_value = "of otlp"
    record.attributes.add(key="count", value=AnyValue(int_value=-5))
    inner = record.attributes.add(key="list").value.array_value
    inner.values.add(double_value=0.5)
    inner.values.add(bool_value=True)
    record.attributes.add(key="digest", value=AnyValue(bytes_value=b"\xfb\xff"))
    structured = scope.log_records.add(observed_time_unix_nano=1_795_690_800_000_000_000, severity_text="Warn")
    structured.body.kvlist_value.values.append(KeyValue(key="a", value=AnyValue(string_value="é")))
    return request


async def test_otlp_in_both_forms() -> None:
    request = otlp_request()
    as_json = {
        "resourceLogs": [
            {
                "resource": {
                    "attributes": [
                        {"key": "host.name", "value": {"stringValue": "web-1"}},
                        {"key": "service.name", "value": {"stringValue": "shop"}},
                    ]
                },
                "scopeLogs": [
                    {
                        "scope": {"name": "logger"},
                        "logRecords": [
                            {
                                "timeUnixNano": "1795690800123456789",
                                "severityNumber": 17,
                                "traceId": "01" * 16,
                                "eventName": "bought",
                                "body": {"stringValue": "of otlp"},
                                "attributes": [
                                    {"key": "count", "value": {"intValue": "-5"}},
                                    {
                                        "key": "list",
                                        "value": {
                                            "arrayValue": {"values": [{"doubleValue": 0.5}, {"boolValue": True}]}
                                        },
                                    },
                                    {"key": "digest", "value": {"bytesValue": "+/8="}},
                                ],
                            },
                            {
                                "observedTimeUnixNano": 1795690800000000000,
                                "severityText": "Warn",
                                "body": {"kvlistValue": {"values": [{"key": "a", "value": {"stringValue": "é"}}]}},
                            },
                        ],
                    }
                ],
            }
        ]
    }
    async with client() as http:
        for content_type, body in (
            ("application/x-protobuf", request.SerializeToString()),
            ("application/json", json.dumps(as_json).encode()),
        ):
            rows, status, answer = await http.post("/v1/logs", body, 2, headers={"Content-Type": content_type})
            assert status == 200
            if content_type == "application/json":
                assert answer == {}
            else:
                assert ExportLogsServiceResponse.FromString(answer) == ExportLogsServiceResponse()
            assert [(row["line"], row["host"], row["app"], row["severity"], row["msgid"]) for row in rows] == [
                ("of otlp", "web-1", "shop", "ERROR", "bought"),
                ('{"a":"é"}', "web-1", "shop", "Warn", None),
            ]
            assert json.loads(rows[0]["data"]) == {
                "resource": {"host.name": "web-1", "service.name": "shop"},
                "attributes": {"count": -5, "list": [0.5, True], "digest": "+/8="},
                "scope": "logger",
                "traceId": "01" * 16,
            }


def test_otlp_with_empty_keys_and_numbers_that_json_lacks() -> None:
    request = otlp_request()
    record = request.resource_logs[0].scope_logs[0].log_records[0]
    record.body.kvlist_value.values.add(key="", value=AnyValue(double_value=float("-inf")))
    record.attributes.add(key="", value=AnyValue(double_value=float("nan")))
    for decoded in (
        decode_protobuf(request.SerializeToString()),
        decode_json(MessageToJson(request, use_integers_for_enums=True).encode()),
    ):
        line = log_lines(decoded, PEER, LIMITS)[0]
        assert json.loads(line.line) == {"": "-Infinity"}
        assert json.loads(line.origin.data or "")["attributes"][""] == "NaN"


@given(st.binary())
def test_any_bytes_as_otlp_have_a_clear_outcome(data: bytes) -> None:
    for decode in (decode_protobuf, decode_json):
        try:
            log_lines(decode(data), PEER, LIMITS)
        except RequestInvalid:
            continue


@given(st.data())
def test_any_change_of_a_request_has_a_clear_outcome(data: st.DataObject) -> None:
    body = bytearray(otlp_request().SerializeToString())
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        log_lines(decode_protobuf(bytes(body)), PEER, LIMITS)
    except RequestInvalid:
        return


MEMBERS = st.sampled_from(
    ["resourceLogs", "scopeLogs", "logRecords", "body", "attributes", "key", "value", "intValue", "stringValue"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(MEMBERS, inner),
)


@given(JSON)
def test_any_json_as_otlp_has_a_clear_outcome(value: Any) -> None:
    try:
        log_lines(decode_json(json.dumps(value).encode()), PEER, LIMITS)
    except RequestInvalid:
        return


async def test_splunk_events() -> None:
    async with client() as http:
        body = (
            b'{"time": 1795690800.123, "host": "web-1", "source": "/l", "sourcetype": "nginx", "event": "first", '
            b'"fields": {"a": "b"}}{"event": {"c": 1}}\n{"event": "third"}'
        )
        rows, status, answer = await http.post("/services/collector/event", body, 3)
        assert (status, answer) == (200, {"text": "Success", "code": 0})
        first = rows[0]
        assert (first["line"], first["host"], first["file"], first["app"], first["data"]) == (
            "first",
            "web-1",
            "/l",
            "nginx",
            '{"a": "b"}',
        )
        assert [row["line"] for row in rows[1:]] == ['{"c":1}', "third"]
        rows, _, _ = await http.post("/services/collector/raw?host=h&source=s&sourcetype=t", b"a\nb\n", 2)
        assert [(row["line"], row["host"], row["file"], row["app"]) for row in rows] == [
            ("a", "h", "s", "t"),
            ("b", "h", "s", "t"),
        ]
        assert (await http.ask("GET", "/services/collector/health"))[0] == 200
        assert (await http.ask("POST", "/services/collector", data=b" "))[1] == {"text": "No data", "code": 5}


async def test_half_characters_of_a_sender_do_not_get_into_rows() -> None:
    async with client() as http:
        half = r'"a\ud800b"'
        event = (
            f'{{"event": {half}, "host": {half}, "source": {half}, "sourcetype": {half}, "fields": {{{half}: {half}}}}}'
        )
        (row,), status, _ = await http.post("/services/collector", event.encode(), 1)
        assert (status, row["line"], row["host"], row["file"], row["app"]) == (200, "a?b", "a?b", "a?b", "a?b")
        assert json.loads(row["data"]) == {"a?b": "a?b"}
        async with connected(http.listener.port) as (_, writer):
            writer.write(b"POST /lines HTTP/1.1\r\nHost: h\r\nIdempotency-Key: a\xffb\r\nContent-Length: 1\r\n\r\nx")
            (row,) = await http.listener.rows(1)
            assert row["log_id"].endswith(":a?b:0:0")


async def test_a_token_of_half_characters_is_refused() -> None:
    async with client(listen_tokens="one") as http, connected(http.listener.port) as (reader, writer):
        writer.write(b"POST /lines HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer \xff\r\nContent-Length: 1\r\n\r\nx")
        assert await reader.readline() == b"HTTP/1.1 401 Unauthorized\r\n"


async def test_tokens() -> None:
    async with client(listen_tokens="one, two") as http:
        path = "/services/collector"
        assert await http.ask("POST", path, data=b"x") == (401, {"text": "Token is required", "code": 2})
        wrong = {"Authorization": "Splunk three"}
        assert await http.ask("POST", path, data=b"x", headers=wrong) == (403, {"text": "Invalid token", "code": 4})
        for header in ("", "Bearer three", "Basic !", "Bearer ", "Unknown one"):
            assert (await http.ask("GET", "/", headers={"Authorization": header}))[0] == 401
        for header in ("Bearer one", "Splunk two", "ApiKey one", aiohttp.encode_basic_auth("any", "two")):
            assert (await http.ask("GET", "/", headers={"Authorization": header}))[0] == 200
        _, status, _ = await http.post("/lines", b"x", 1, headers={"Authorization": "Bearer two"})
        assert status == 200


async def test_a_request_that_is_too_large() -> None:
    async with client(listen_request_max_bytes="2000") as http:
        for data, headers in ((b"x" * 3000, {}), (gzip.compress(b"x" * 10_000_000), {"Content-Encoding": "gzip"})):
            status, answer = await http.ask("POST", "/lines", data=data, headers=headers)
            assert status == 413
            assert "listen.request.max.bytes=2000" in answer["error"]["reason"]


#: Path -> a body that compresses to some kilobytes and has millions of lines, events, documents or records.
TINY_LINES: dict[str, Callable[[], bytes]] = {
    "/lines": lambda: b"{}\n" * 3_000_000,
    "/_bulk": lambda: b'{"delete":{}}\n' * 1_000_000,
    "/services/collector": lambda: b'{"event":1}' * 1_000_000,
    "/services/collector/raw": lambda: b"a\n" * 7_000_000,
    "/v1/logs": lambda: otlp_of(b"\x12\x00" * 7_000_000),
}


def otlp_of(records: bytes) -> bytes:
    """A request with these fields in a ScopeLogs."""

    def field(tag: int, content: bytes) -> bytes:
        size, left = bytearray(), len(content)
        while left > 0x7F:
            size.append(left & 0x7F | 0x80)
            left >>= 7
        return bytes([tag, *size, left]) + content

    return field(0x0A, field(0x12, records))


@pytest.mark.parametrize("path", TINY_LINES)
async def test_a_small_request_that_unpacks_to_millions_of_lines_does_not_stop_the_event_loop(path: str) -> None:
    data = gzip.compress(TINY_LINES[path]())
    assert len(data) < 100_000
    async with client() as http:
        longest, last = 0.0, time.monotonic()
        request = asyncio.create_task(http.ask("POST", path, data=data, headers={"Content-Encoding": "gzip"}))
        while not request.done():
            await asyncio.wait({request}, timeout=0.01)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        status, answer = await request
        assert (status, "send smaller ones" in json.dumps(answer)) == (413, True), answer
        assert longest < 10 * PATIENCE, "the worker kills a task host that does not answer for that long"
        rows, _, _ = await http.post("/lines", b"x", 1)
        assert [row["line"] for row in rows] == ["x"]


async def test_a_large_request_of_many_lines_is_taken() -> None:
    async with client(batch_size="10000") as http:
        rows, status, answer = await http.post("/lines", b"some line\n" * 20_000, 20_000)
        assert (status, answer, len(rows)) == (200, {"accepted": 20_000}, 20_000)


async def test_bad_bytes_have_clear_outcomes() -> None:
    async with client(line_max_bytes="100") as http:
        rows, _, _ = await http.post("/lines", b"broken \xff\nnul \0 in it\n" + b"x" * 200, 3)
        assert [row["line"] for row in rows] == ["broken �", "nul \0 in it", "x" * 100]


async def test_nothing_is_answered_before_kafka_has_it() -> None:
    async with client() as http:
        confirmed = http.listener.keep_receipts()
        request = asyncio.create_task(http.ask("POST", "/lines", data=b"x"))
        await http.listener.rows(1)
        assert not (await asyncio.wait({request}, timeout=0.2))[0]
        confirmed[0].confirm()
        assert await request == (200, {"accepted": 1})


async def test_a_connection_that_is_cut_within_a_request_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    head = b"POST /lines HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
    async with client() as http:
        async with connected(http.listener.port) as (_, writer):
            writer.write(head + b"one\ntwo\n")
            await writer.drain()
            await http.listener.run.take(0.2)
            writer.transport.abort()
        await eventually_async(lambda: "has ended" in http.listener.run.log.text(), "the log says so")
        rows, _, _ = await http.post("/lines", b"next\n", 1)
    assert [row["line"] for row in rows] == ["next"]
    assert "Error handling request" not in caplog.text


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /lines HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /lines HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        b"POST /lines HTTP/1.1\r\nContent-Length: 4\r\n\r\none\n",
        b"<13>Nov 26 11:00:00 web-1 app: one\n",
    ],
    ids=["length", "header", "host", "syslog"],
)
async def test_what_is_no_http_request_is_refused_and_no_error(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with client() as http:
        async with connected(http.listener.port) as (reader, writer):
            writer.write(sent)
            assert (await reader.read()).startswith(b"HTTP/1.0 400 ")
        rows, _, _ = await http.post("/lines", b"next\n", 1)
        assert [row["line"] for row in rows] == ["next"]
        assert http.listener.run.metrics.series["logs_refused_total", (("reason", "form"),)] == 1
    assert "Error handling request" not in caplog.text
    assert "is no HTTP request" in http.listener.run.log.text()


async def test_https(tmp_path: Path) -> None:
    authority = Authority.make()
    authority.write_pem(tmp_path / "ca.pem")
    authority.issue("server").write_pem(tmp_path / "server.pem", "secret-of-the-key")
    options = {
        "listen_tls_key_store": str(tmp_path / "server.pem"),
        "listen_tls_key_store_password": "secret-of-the-key",
    }
    async with listening("http", "https", **options) as listener, aiohttp.ClientSession() as session:
        await listener.wait_until_it_listens()
        http = Client(session, listener, f"https://{LOOPBACK}:{listener.port}")
        context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        rows, status, _ = await http.post("/lines", b"x", 1, ssl=context)
        assert (rows[0]["line"], status) == ("x", 200)


def test_names_of_lines_of_filebeat() -> None:
    assert beat_identity(json.dumps(BEAT).encode()) == "7f3c:/var/log/app.log:ab12:120"
    by_number = {**BEAT, "log": {"offset": 5, "file": {"path": "/l", "device_id": "1", "inode": "2"}}}
    assert beat_identity(json.dumps(by_number).encode()) == "7f3c:/l:1/2@2026-11-26T11:00:00.123Z:5"
    others: tuple[dict[str, Any], ...] = (
        {},
        {"log": {}},
        {"log": {"offset": 1}},
        {**BEAT, "log": "x"},
        {**BEAT, "agent": {}},
    )
    for other in others:
        assert beat_identity(json.dumps(other).encode()) == ""


@given(st.binary())
def test_any_bytes_as_bulk_or_events_have_a_clear_outcome(data: bytes) -> None:
    for body in (data, b'{"create": {}}\n' + data, b'{"event": ' + data):
        for read in (read_any_bulk, read_any_events):
            try:
                read(body)
            except RequestInvalid:
                continue


def read_any_bulk(body: bytes) -> None:
    read_bulk(body, "", PEER, LIMITS, recognise=True)


def read_any_events(body: bytes) -> None:
    read_events(body, PEER, LIMITS)
