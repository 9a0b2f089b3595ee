"""CloudEventsConverter: what Debezium has no counterpart for, wrong options, and headers as a task hands them on."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from connectors.api import Header, SourceRecord
from connectors.cassandra.events.envelope import _SOURCE as CASSANDRA
from connectors.errors import ConfigInvalid, Skippable
from connectors.schema import BYTES, INT32, INT64, STRING, Schema, Type, struct
from connectors.scylla.events.envelope import _source_schema
from worker.converters.base import create_converter, create_header_converter
from worker.converters.cloudevents import extension_name
from worker.converters.registry.client import SchemaRegistryClient
from worker.host.delivery.convert import Conversion, Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PLAIN = {"json.schemas.enable": "false"}


def envelope(source: Schema) -> Schema:
    row = struct("Row", {"id": INT32}, optional=True)
    return struct("shop.ks.t.Envelope", {"source": source, "before": row, "after": row, "op": STRING})


def filled(schema: Schema, **more: Any) -> dict[str, Any]:
    values = {
        member.name: None if member.schema.optional else 5 if member.schema.type in (Type.INT64, Type.INT32) else "x"
        for member in schema.fields
    }
    return {**values, **more}


@pytest.mark.parametrize(
    ("source", "values", "identity"),
    [
        (
            CASSANDRA,
            {
                "connector": "cassandra",
                "name": "shop",
                "file": "CommitLog-7.log",
                "pos": 9,
                "keyspace": "ks",
                "table": "t",
            },
            "name:shop;file:CommitLog-7.log;pos:9;keyspace:ks;table:t",
        ),
        (
            _source_schema(ttl=True),
            {"connector": "scylla", "name": "shop", "keyspace_name": "ks", "table_name": "t", "ts_us": 17},
            "name:shop;keyspace_name:ks;table_name:t;ts_us:17",
        ),
    ],
)
def test_events_of_connectors_that_debeziums_class_does_not_know(
    source: Schema, values: dict[str, Any], identity: str
) -> None:
    schema = envelope(source)
    converter = create_converter("CloudEvents", PLAIN, False)
    data = converter.from_connect(
        "t", schema, {"source": filled(source, ts_ms=0, **values), "after": {"id": 1}, "op": "c"}
    )
    event = json.loads(data or b"")
    assert event["id"] == identity
    assert event["source"] == f"/debezium/{values['connector']}/shop"
    assert event["time"] == "1970-01-01T00:00:00.000Z"
    assert event["iodebeziumtsms"] == "0"
    assert event["iodebeziumsnapshot"] == "false"
    assert event["data"]["after"] == {"id": 1}
    read, value = converter.to_connect("t", data)
    assert (read, value["id"]) == (None, identity)


def test_records_that_are_no_events() -> None:
    converter = create_converter("CloudEvents", PLAIN, False)
    assert converter.from_connect("t", struct("Heartbeat", {"ts_ms": INT64}), {"ts_ms": 1}) is None
    assert converter.from_connect("t", None, None) is None
    schema = envelope(CASSANDRA)
    assert converter.from_connect("t", schema, None) is None
    with pytest.raises(Skippable, match=r"source\.connector is missing"):
        converter.from_connect("t", schema, {"op": "c"})
    with pytest.raises(Skippable, match='connector type "other"'):
        converter.from_connect("t", schema, {"op": "c", "source": filled(CASSANDRA, connector="other")})
    with_bytes = envelope(struct("s", {"connector": STRING, "raw": BYTES}))
    with pytest.raises(Skippable, match=r"type BYTES cannot be converted .* source\.raw"):
        converter.from_connect("t", with_bytes, {"op": "c", "source": {"connector": "mysql", "raw": b""}})
    with pytest.raises(Skippable, match="not a CloudEvent"):
        converter.to_connect("t", b'{"id":1}')


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"serializer.type": "avro"}, "data content type within Avro events"),
        ({"data.serializer.type": "avro"}, "schema registry instances"),
        ({"serializer.type": "xml"}, "serializer.type"),
        ({"metadata.source": "generate"}, "metadata.source"),
        ({"metadata.source": "value,id:value"}, "id:value"),
        ({"metadata.source": "value,size:header"}, "size:header"),
        (
            {"metadata.source": "header", "data.serializer.type": "avro", "avro.schema.registry.url": "http://x"},
            "headers",
        ),
        ({"json.schemas.enable": "perhaps"}, "schemas.enable"),
    ],
)
def test_options_that_can_not_work(config: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        create_converter("CloudEvents", config, False)
    assert text in str(caught.value)


def test_attribute_names_have_letters_and_digits_only() -> None:
    assert extension_name("ts_ms") == "iodebeziumtsms"
    assert extension_name("Ünï-9") == "iodebeziumn9"


async def test_a_task_gives_it_the_converted_headers() -> None:
    schema = envelope(CASSANDRA)
    value = {"source": filled(CASSANDRA, connector="cassandra", name="shop"), "after": {"id": 1}, "op": "c"}

    def record(*headers: Header, key: str | None = None) -> SourceRecord:
        return SourceRecord({"p": 1}, {"o": 1}, "t", value, value_schema=schema, key=key, headers=headers)

    def header(name: str, text: Any) -> Header:
        return Header(name, text, STRING)

    async def persist(action: Callable[[], Awaitable[None]]) -> None:
        await action()

    config = {**PLAIN, "metadata.source": "value,id:header,type:generate"}
    conversion = Conversion(
        create_converter("String", {}, True),
        create_converter("CloudEvents", config, False),
        create_header_converter("JsonConverter", {}),
        persist,
    )
    refused: list[Refused] = []
    run = [record(header("id", "own-1"), key="k1"), record(key="k2"), record(header("id", "own-3"), header("x", "y"))]
    done = await asyncio.wait_for(conversion.convert(run, refused), 5)
    assert done is not None
    assert [json.loads(value or b"")["id"] for value in done.values] == ["own-1", "own-3"]
    assert done.keys == [b"k1", None]
    assert done.headers is not None
    assert [[name for name, _ in headers] for headers in done.headers] == [["id"], ["id", "x"]]
    (bad,) = refused
    assert bad.record is run[1]
    assert "Header `id` was not provided" in str(bad.error)
    assert (bad.stage, bad.executing) == ("VALUE_CONVERTER", "worker.converters.cloudevents.CloudEventsConverter")
    await conversion.close()


async def test_the_advised_header_takes_the_place_of_an_unknown_connectors_id() -> None:
    converter = create_converter("CloudEvents", {**PLAIN, "metadata.source": "value,id:header"}, False)
    encode = converter.header_encoder("t", envelope(CASSANDRA))
    assert encode is not None
    value = {"op": "c", "source": filled(CASSANDRA, connector="other", name="shop", ts_ms=0)}
    header = ("id", b'{"schema":{"type":"string"},"payload":"7-b"}')
    event = json.loads(encode(value, [header]) or b"")
    assert (event["id"], event["source"]) == ("7-b", "/debezium/other/shop")


@pytest.mark.parametrize("origin", ["value", "value,id:header"])
async def test_more_tables_than_the_avro_converter_keeps_schemas(monkeypatch: pytest.MonkeyPatch, origin: str) -> None:
    ids: dict[tuple[str, str], int] = {}

    async def register(_client: SchemaRegistryClient, subject: str, text: str, *_: str, normalize: bool = False) -> int:
        del normalize
        return ids.setdefault((subject, text), len(ids) + 1)

    monkeypatch.setattr(SchemaRegistryClient, "register", register)

    async def once(call: Callable[[], Awaitable[Any]]) -> None:
        await call()

    avro = {
        "serializer.type": "avro",
        "data.serializer.type": "avro",
        "avro.schema.registry.url": "http://127.0.0.1:1",
        "avro.schemas.cache.config": "1",
        "metadata.source": origin,
    }
    conversion = Conversion(
        create_converter("String", {}, True),
        create_converter("CloudEvents", avro, False),
        create_header_converter("Json", {}),
        once,
    )
    source = _source_schema(ttl=True)
    schema = envelope(source)
    value = {"op": "c", "source": filled(source, connector="scylla", ts_ms=0)}
    headers = (Header("id", "7", STRING),)
    first: list[Any] = []
    for topic in ("one", "two", "three", "one", "two", "three"):
        converted = await conversion.convert([SourceRecord({}, {}, topic, value, schema, headers=headers)], [])
        assert converted is not None
        first.append(converted.values[0])
    assert None not in first
    assert first[:3] == first[3:]
    assert {subject for subject, _ in ids} == {
        f"{topic}{part}-value" for topic in ("one", "two", "three") for part in ("", "-data")
    }


@pytest.mark.parametrize(
    ("urls", "shown"),
    [
        ("http://reader:s3cret@one:8081", "http://one:8081"),
        ("http://reader:s3cret@one:8081/, https://two/api", "http://one:8081,https://two/api"),
        ("http://one:8081/", "http://one:8081/"),
    ],
)
async def test_the_login_in_the_address_of_the_registry_is_not_in_the_events(
    monkeypatch: pytest.MonkeyPatch, urls: str, shown: str
) -> None:
    async def register(*_: Any, **_options: Any) -> int:
        return 7

    monkeypatch.setattr(SchemaRegistryClient, "register", register)
    config = {"data.serializer.type": "avro", "avro.schema.registry.url": urls}
    converter = create_converter("CloudEvents", config, False)
    source = _source_schema(ttl=True)
    schema = envelope(source)
    await converter.prepare("t", schema)
    data = converter.from_connect("t", schema, {"op": "c", "source": filled(source, connector="scylla", ts_ms=0)})
    assert b"s3cret" not in (data or b"")
    assert json.loads(data or b"")["dataschema"] == f"{shown}/schemas/ids/7"
    await converter.close()
