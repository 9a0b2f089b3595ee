"""AvroConverter with a real schema registry."""

from __future__ import annotations

import asyncio
import io
import json
import socket
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import aiohttp
import fastavro
import pytest

from connectors.errors import ConfigInvalid, Fatal, Retriable, Skippable
from connectors.schema import (
    INT32,
    INT64,
    OPTIONAL_STRING,
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

if TYPE_CHECKING:
    from collections.abc import Callable

    from compose.local.registry import SchemaRegistry
    from worker.converters.base import Converter

ORDER = struct(
    "shop.Order",
    {
        "id": INT64,
        "at": timestamp(),
        "total": decimal(2),
        "note": OPTIONAL_STRING,
        "lines": array(struct("shop.Line", {"sku": STRING, "count": INT32})),
        "extra": map_of(INT32, STRING, name="shop.Extra"),
    },
)
WIDER = struct("shop.Order", {**{member.name: member.schema for member in ORDER.fields}, "more": OPTIONAL_STRING})


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "at": 1_700_000_000_000,
        "total": Decimal("12.50"),
        "note": None,
        "lines": [{"sku": "a", "count": 2}],
        "extra": {1: "x"},
    }


async def ask(url: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.json(content_type=None)


async def test_a_value_travels(
    make_converter: Callable[..., Converter], registry: SchemaRegistry, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("avro")
    writer, reader = make_converter(), make_converter()
    await writer.prepare(topic, ORDER)
    data = writer.from_connect(topic, ORDER, order(1))
    assert data is not None
    assert data[0] == 0
    await reader.prepare_data(topic, data)
    assert reader.to_connect(topic, data) == (ORDER, order(1))
    # A reader of another make finds the schema under the id in the message.
    answer = await ask(f"{registry.url}/schemas/ids/{int.from_bytes(data[1:5], 'big')}")
    decoded: Any = fastavro.schemaless_reader(io.BytesIO(data[5:]), json.loads(answer["schema"]), None)
    assert decoded["id"] == 1
    assert f"{topic}-value" in await ask(f"{registry.url}/subjects")


async def test_one_schema_is_registered_once(
    make_converter: Callable[..., Converter], registry: SchemaRegistry, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("once")
    first, second = make_converter(), make_converter()
    equal = struct("shop.Order", {member.name: member.schema for member in ORDER.fields})
    assert equal is not ORDER
    await asyncio.gather(
        *(converter.prepare(topic, schema) for converter in (first, second) for schema in (ORDER, equal))
    )
    heads = {
        (converter.from_connect(topic, schema, order(1)) or b"")[:5]
        for converter in (first, second)
        for schema in (ORDER, equal)
    }
    assert len(heads) == 1
    assert await ask(f"{registry.url}/subjects/{topic}-value/versions") == [1]
    await first.prepare(topic, WIDER)
    assert await ask(f"{registry.url}/subjects/{topic}-value/versions") == [1, 2]


async def test_keys_tombstones_and_primitives(
    make_converter: Callable[..., Converter], unique_name: Callable[[str], str]
) -> None:
    converter = make_converter(is_key=True)
    cases: list[tuple[Schema | None, Any]] = [
        (STRING, "k"),
        (Schema(Type.INT64, optional=True), None),
        (None, {"a": 1}),
    ]
    for schema, value in cases:
        topic = unique_name("keys")
        await converter.prepare(topic, schema)
        data = converter.from_connect(topic, schema, value)
        await converter.prepare_data(topic, data)
        assert converter.to_connect(topic, data) == ((schema, value) if value is not None else (None, None))


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "{record}"),
        ("TopicRecordNameStrategy", "{topic}-{record}"),
        ("TopicNameStrategy", "{topic}-value"),
    ],
)
async def test_subject_strategies(
    make_converter: Callable[..., Converter],
    registry: SchemaRegistry,
    unique_name: Callable[[str], str],
    strategy: str,
    subject: str,
) -> None:
    topic = unique_name("strategy")
    record = f"shop.{topic.replace('-', '_')}"
    converter = make_converter(value_subject_name_strategy=strategy)
    await converter.prepare(topic, struct(record, {"x": INT32}))
    assert subject.format(topic=topic, record=record) in await ask(f"{registry.url}/subjects")
    if "Record" in strategy:
        with pytest.raises(Skippable, match="needs records"):
            await converter.prepare(topic, STRING)


async def test_without_registering_the_schema_must_be_there(
    make_converter: Callable[..., Converter], unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("given")
    strict = make_converter(auto_register_schemas="false")
    with pytest.raises(Skippable, match=r"auto\.register\.schemas"):
        await strict.prepare(topic, ORDER)
    registering = make_converter()
    await registering.prepare(topic, ORDER)
    with pytest.raises(Skippable, match="does not know"):
        await strict.prepare(topic, ORDER)  # the registry is not asked again at once
    strict = make_converter(auto_register_schemas="false")
    await strict.prepare(topic, ORDER)
    assert strict.from_connect(topic, ORDER, order(1)) == registering.from_connect(topic, ORDER, order(1))


async def test_the_newest_version_is_used_if_wanted(
    make_converter: Callable[..., Converter], unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("latest")
    registering = make_converter()
    await registering.prepare(topic, WIDER)
    options = {"auto_register_schemas": "false", "use_latest_version": "true"}
    latest = make_converter(**options)
    await latest.prepare(topic, ORDER)
    data = latest.from_connect(topic, ORDER, order(1))
    await registering.prepare_data(topic, data)
    assert registering.to_connect(topic, data) == (WIDER, {**order(1), "more": None})
    narrower = unique_name("latest")
    await registering.prepare(narrower, ORDER)
    with pytest.raises(Skippable, match="more"):
        await latest.prepare(narrower, WIDER)
    lenient = make_converter(**options, latest_compatibility_strict="false")
    await lenient.prepare(narrower, WIDER)
    data = lenient.from_connect(narrower, WIDER, {**order(1), "more": "x"})
    await registering.prepare_data(narrower, data)
    assert registering.to_connect(narrower, data) == (ORDER, order(1))


async def test_an_incompatible_schema_is_refused(
    make_converter: Callable[..., Converter], registry: SchemaRegistry, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("incompatible")
    converter = make_converter()
    await converter.prepare(topic, struct("R", {"x": INT32}))
    url = f"{registry.url}/config/{topic}-value"
    async with aiohttp.ClientSession() as session, session.put(url, json={"compatibility": "BACKWARD"}) as response:
        assert response.status == 200
    with pytest.raises(Skippable, match=f"{topic}-value") as caught:
        await converter.prepare(topic, struct("R", {"x": STRING, "y": INT32}))
    assert "field x: type changed from int to string; field y: added (int) without a default" in str(caught.value)


async def test_the_registry_is_asked_without_registering(
    registry: SchemaRegistry, unique_name: Callable[[str], str]
) -> None:
    topic, options = unique_name("asked"), {"schema.registry.url": registry.url}
    converter = create_converter("AvroConverter", options, is_key=False)
    strict = create_converter("AvroConverter", {**options, "auto.register.schemas": "false"}, is_key=False)
    narrow, other = struct("R", {"x": INT32}), struct("R", {"x": STRING, "y": INT32})
    try:
        assert await converter.refusals(topic, narrow) == []
        (refusal,) = await strict.refusals(topic, narrow)
        assert "auto.register.schemas" in refusal, "nothing was registered"
        await converter.prepare(topic, narrow)
        url = f"{registry.url}/config/{topic}-value"
        async with aiohttp.ClientSession() as session, session.put(url, json={"compatibility": "BACKWARD"}) as response:
            assert response.status == 200
        assert await converter.refusals(topic, narrow) == []
        assert await converter.refusals(topic, struct("R", {"x": INT32, "y": OPTIONAL_STRING})) == []
        (refusal,) = await converter.refusals(topic, other)
        assert f"{topic}-value" in refusal
    finally:
        await converter.close()
        await strict.close()


async def test_messages_that_are_not_in_the_wire_format(make_converter: Callable[..., Converter]) -> None:
    converter = make_converter()
    for data in (b"", b"\x00\x00", b'{"a":1}'):
        with pytest.raises(Skippable, match="magic byte"):
            await converter.prepare_data("t", data)
    with pytest.raises(Skippable, match="id 2147480160"):
        await converter.prepare_data("t", b"\x00\x7f\xff\xf2\x60rest")
    with pytest.raises(Fatal, match="prepare"):
        converter.encoder("t", ORDER)


def dead_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


async def test_a_second_address_takes_over_and_none_is_retriable(
    make_converter: Callable[..., Converter], registry: SchemaRegistry, unique_name: Callable[[str], str]
) -> None:
    dead = f"http://127.0.0.1:{dead_port()}"
    topic = unique_name("away")
    both = make_converter(schema_registry_url=f"{dead},{registry.url}", retries_wait_ms="1")
    await both.prepare(topic, ORDER)
    assert both.from_connect(topic, ORDER, order(1))
    none = make_converter(schema_registry_url=dead, retries_wait_ms="1", max_retries="2")
    with pytest.raises(Retriable, match="after 3 attempts"):
        await none.prepare(topic, ORDER)


def test_secrets_in_the_address_are_not_repeated() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        create_converter("AvroConverter", {"schema.registry.url": "ftp://user:hunter2@host"}, False)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigInvalid) as caught:
        create_converter(
            "AvroConverter",
            {
                "schema.registry.url": "http://host",
                "basic.auth.credentials.source": "USER_INFO",
                "basic.auth.user.info": "hunter2",
            },
            False,
        )
    assert "hunter2" not in str(caught.value)
