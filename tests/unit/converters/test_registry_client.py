"""The client of a schema registry, with answers that a real one does not give."""

from __future__ import annotations

import io
import json
import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import fastavro
import pytest
from aiohttp import web

from connectors.errors import Retriable, Skippable
from connectors.schema import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT32,
    INT64,
    OPTIONAL_BOOLEAN,
    OPTIONAL_INT64,
    STRING,
    Schema,
    Type,
    array,
    decimal,
    map_of,
    struct,
    timestamp,
)
from worker.converters.base import create_converter
from worker.converters.registry.client import RegistrySettings, SchemaRegistryClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from worker.converters.base import Converter


@asynccontextmanager
async def served(answer: Callable[[web.BaseRequest], tuple[int, str]]) -> AsyncIterator[str]:
    """The address of what gives these answers."""

    async def handle(request: web.BaseRequest) -> web.Response:
        status, body = answer(request)
        return web.Response(status=status, text=body, content_type="text/html")

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def client_of(status: int, body: str) -> AsyncIterator[SchemaRegistryClient]:
    """A client of an address where something else than a registry answers."""
    async with served(lambda _: (status, body)) as url:
        client = SchemaRegistryClient(RegistrySettings(urls=(url,), attempts=1))
        try:
            yield client
        finally:
            await client.close()


@pytest.mark.parametrize("body", ["<html>Please log in</html>", "[]", "7", '{"version": 3}', '{"id": "seven"}', ""])
async def test_an_answer_that_is_no_registrys_is_an_outage_that_names_the_address(body: str) -> None:
    async with client_of(200, body) as client:
        for call in (
            lambda: client.register("t-value", '"string"'),
            lambda: client.schema(7),
            lambda: client.newest("t-value"),
        ):
            with pytest.raises(
                Retriable,
                match=r"http://127.0.0.1:\d+: HTTP 200, but no answer of a schema registry .*"
                r"schema\.registry\.url",
            ):
                await call()


@pytest.mark.parametrize("status", [408, 429, 500, 501, 503, 507, 520, 522, 530])
async def test_a_status_that_is_the_servers_fault_is_an_outage_and_no_bad_schema(status: int) -> None:
    async with client_of(status, "<html>Web server is down</html>") as client:
        with pytest.raises(Retriable, match=f"HTTP {status} "):
            await client.register("t-value", '"string"')


@pytest.mark.parametrize("forbidden", ["/subjects/t-value/versions/latest", "/compatibility/"])
async def test_a_client_that_may_only_write_learns_that_its_schema_is_refused(forbidden: str) -> None:
    def answer(request: web.BaseRequest) -> tuple[int, str]:
        if request.path.startswith(forbidden):
            return 403, '{"error_code": 40301, "message": "no"}'
        if request.method == "GET":
            return 200, json.dumps({"id": 4, "version": 2, "schema": '"long"'})
        return 409, '{"error_code": 409, "message": "Schema being registered is incompatible"}'

    async with served(answer) as url:
        converter = create_converter("Avro", {"schema.registry.url": url}, False)
        with pytest.raises(Skippable, match="Schema being registered is incompatible") as skipped:
            await converter.prepare("t", STRING)
        await converter.close()
    assert ("may not read" in str(skipped.value)) is forbidden.endswith("latest")


async def test_about_a_refused_schema_the_registry_is_not_asked_for_each_record() -> None:
    asked: list[str] = []

    def answer(request: web.BaseRequest) -> tuple[int, str]:
        asked.append(request.method)
        return (409, '{"message": "incompatible"}') if request.method == "POST" else (404, '{"error_code": 40401}')

    async with served(answer) as url:
        converter = create_converter("Avro", {"schema.registry.url": url}, False)
        for _ in range(20):
            with pytest.raises(Skippable, match="incompatible"):
                await converter.prepare(
                    "t", Schema(Type.STRING, name="made.anew")
                )  # as some sources do for each record
        await converter.close()
    assert asked == ["POST", "GET"]


def latest_converter(url: str, name: str = "Avro", *, strict: bool = True) -> Converter:
    config = {
        "schema.registry.url": url,
        "auto.register.schemas": "false",
        "use.latest.version": "true",
        "latest.compatibility.strict": str(strict),
    }
    return create_converter(name, config, False)


def avro_record(kind: object) -> dict[str, object]:
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}


@pytest.mark.parametrize(
    ("kind", "schema", "good", "bad"),
    [
        ("int", INT64, 2**31 - 1, 2**31),
        ("int", INT64, -(2**31), -(2**31) - 1),
        ("int", FLOAT64, 5.0, 5.5),
        ("long", FLOAT64, 5.0, math.inf),
        ("float", FLOAT64, 1e38, 1e39),
        ("float", FLOAT64, math.inf, -1e300),
        ("boolean", OPTIONAL_BOOLEAN, False, None),
        ("boolean", INT64, None, 5),
        ("boolean", STRING, None, "false"),
        (["null", "int"], OPTIONAL_INT64, None, 2**40),
        (["int", "null"], OPTIONAL_INT64, 7, 2**40),
        ({"type": "array", "items": "int"}, array(INT64), [1, 2], [1, 2**40]),
        ({"type": "map", "values": ["null", "int"]}, map_of(STRING, INT64), {"a": 1}, {"a": 2**40}),
        (avro_record("int") | {"name": "S"}, struct("S", {"f": INT64}), {"f": 1}, {"f": 2**40}),
    ],
)
async def test_a_value_that_the_registrys_schema_can_not_hold_is_a_bad_record(
    kind: object, schema: Schema, good: object, bad: object
) -> None:
    text = json.dumps(avro_record(kind))
    async with served(lambda _: (200, json.dumps({"id": 4, "version": 2, "schema": text}))) as url:
        converter = latest_converter(url)
        row = struct("R", {"f": schema})
        await converter.prepare("t", row)
        encode = converter.encoder("t", row)
        if good is not None or isinstance(kind, list):
            data = encode({"f": good})
            assert data is not None
            assert fastavro.schemaless_reader(io.BytesIO(data[5:]), json.loads(text), None) == {
                "f": pytest.approx(good, nan_ok=True) if isinstance(good, float) else good
            }
        with pytest.raises(Skippable, match="Cannot write the record with the schema of id 4"):
            encode({"f": bad})
        await converter.close()


async def test_a_field_that_the_newest_schema_lacked_is_written_once_a_newer_one_has_it() -> None:
    fields = [{"name": "f", "type": "long"}]

    def answer(_: web.BaseRequest) -> tuple[int, str]:
        text = json.dumps({"type": "record", "name": "R", "fields": fields})
        return 200, json.dumps({"id": len(fields), "version": len(fields), "schema": text})

    async with served(answer) as url:
        converter = latest_converter(url)
        await converter.prepare("t", struct("R", {"f": INT64}))
        with pytest.raises(Skippable, match=r"lacks fields of the records: g\. Register a schema with them"):
            await converter.prepare("t", struct("R", {"f": INT64, "g": INT32}))
        fields.append({"name": "g", "type": "long"})
        row = struct("R", {"f": INT64, "g": INT64})
        await converter.prepare("t", row)
        data = converter.encoder("t", row)({"f": 1, "g": 2})
        assert data is not None
        assert int.from_bytes(data[1:5], "big") == 2
        await converter.close()


async def test_a_record_that_holds_itself_is_checked_to_its_end() -> None:
    text = json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "f", "type": "int"}, {"name": "next", "type": ["null", "R"], "default": None}],
        }
    )
    inner = struct("Inner", {"f": INT64}, optional=True)
    row = struct("R", {"f": INT64, "next": inner})
    async with served(lambda _: (200, json.dumps({"id": 4, "version": 2, "schema": text}))) as url:
        converter = latest_converter(url, strict=False)
        await converter.prepare("t", row)
        encode = converter.encoder("t", row)
        assert encode({"f": 1, "next": {"f": 2}})
        with pytest.raises(Skippable, match=r"next: f: the value does not fit into int"):
            encode({"f": 1, "next": {"f": 2**31}})
        await converter.close()


@pytest.mark.parametrize(
    ("field", "schema", "value"),
    [
        ("int64 f = 1;", INT64, -5),
        ("int64 f = 1;", INT32, -5),
        ("uint64 f = 1;", INT64, 5),
        ("bytes f = 1;", STRING, "x"),
        ("int32 f = 1;", BOOLEAN, True),
        ("repeated int64 f = 1;", array(INT32), [1, -2]),
        ("map<string, int64> f = 1;", map_of(STRING, INT32), {"a": -1}),
        ("S f = 1; message S { int64 a = 1; }", struct("Other", {"a": INT32}), {"a": 1}),
        ("sint64 f = 1;", INT64, None),
        ("int32 f = 1;", INT64, None),
        ("string f = 1;", INT64, None),
        ("string f = 1;", BYTES, None),
        ("float f = 1;", FLOAT64, None),
        ("fixed64 f = 1;", FLOAT64, None),
        ("repeated int64 f = 1;", INT64, None),
        ("int32 f = 1;", array(INT32), None),
        ("repeated sint32 f = 1;", array(INT32), None),
        ("map<string, sint32> f = 1;", map_of(STRING, INT32), None),
        ("int64 f = 1;", timestamp(), None),
        ("bytes f = 1;", decimal(2), None),
        ("S f = 1; message S { sint32 a = 1; }", struct("Other", {"a": INT32}), None),
    ],
)
async def test_protobuf_with_the_registrys_schema_is_refused_where_it_would_be_read_as_another_value(
    field: str, schema: Schema, value: object
) -> None:
    text = f'syntax = "proto3"; message R {{ {field} }}'
    body = json.dumps({"id": 4, "version": 2, "schema": text, "schemaType": "PROTOBUF"})
    async with served(lambda _: (200, body)) as url:
        converter = latest_converter(url, "Protobuf")
        row = struct("R", {"f": schema})
        if value is None:
            with pytest.raises(Skippable, match=r"other field numbers or types than the records: field f"):
                await converter.prepare("t", row)
        else:
            await converter.prepare("t", row)
            data = converter.encoder("t", row)({"f": value})
            await converter.prepare_data("t", data)
            read = converter.to_connect("t", data)[1]["f"]
            assert read == (value.encode() if isinstance(value, str) else value)
        await converter.close()
