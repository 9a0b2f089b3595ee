"""Partition updates through the AvroConverter and a real schema registry: all versions of a table stay readable."""

from __future__ import annotations

import io
import json
import secrets
from typing import TYPE_CHECKING, Any

import aiohttp
import fastavro
import pytest

from connectors.cql.types import parse_type
from connectors.formats import timeuuid, ums
from connectors.formats.partition_update_codec import decode_update
from connectors.scylla.events.partition_update import PartitionUpdateBuilder
from connectors.scylla.events.shape import shape_of
from connectors.scylla.events.ums import UmsBuilder
from connectors.scylla.model import INSERT, CdcOptions, ScyllaColumn, StreamRun, TableId, TableVersion
from tests.support.settings import scylla_events
from worker.converters.base import create_converter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from compose.local.registry import SchemaRegistry
    from connectors.api import SourceRecord
    from worker.converters.base import Converter

TIME = timeuuid.make_uuid(1_790_000_000_000_000, 7)
KEY = (
    ScyllaColumn("p", parse_type("int"), "partition_key", 0),
    ScyllaColumn("x", parse_type("text"), "clustering", 0, reversed=True),
)
REGULAR = (
    ScyllaColumn("a b", parse_type("double"), "regular"),
    ScyllaColumn("m", parse_type("map<text, int>"), "regular"),
    ScyllaColumn("v", parse_type("text"), "regular"),
)
WIDER = (ScyllaColumn("w", parse_type("list<text>"), "regular"),)


def records(
    columns: tuple[ScyllaColumn, ...], cells: dict[str, Any], version: str, *, form: type[Any]
) -> list[SourceRecord]:
    table = TableVersion(TableId("ks", "t"), columns, CdcOptions(), version, 0, "5f1f6f60-0000-11ef-8000-000000000000")
    shape = shape_of(table)
    row: list[Any] = [None] * shape.width
    row[:6] = [bytes(16), TIME, 0, INSERT, 60, True]
    for column in shape.columns:
        row[column.value] = cells.get(column.name)
    out: list[SourceRecord] = []
    form(table, scylla_events(topic_prefix="c-1", output_format="partition-update")).feed(
        StreamRun({}, {}, [tuple(row)]), out, []
    )
    return out


@pytest.fixture
async def converter(registry: SchemaRegistry) -> AsyncIterator[Converter]:
    converter = create_converter(
        "io.confluent.connect.avro.AvroConverter", {"schema.registry.url": registry.url}, is_key=False
    )
    yield converter
    await converter.close()


async def test_versions_of_a_table_share_a_subject(registry: SchemaRegistry, converter: Converter) -> None:
    topic = f"c-1.ks.t-{secrets.token_hex(4)}"
    cells = {"p": 1, "x": "é", "a b": 0.5, "m": [{"key": "k", "value": 1}], "v": None, "w": [(TIME, "e")]}
    (old,) = records((*KEY, *REGULAR), cells, "1a", form=PartitionUpdateBuilder)
    (new,) = records((*KEY, *REGULAR, *WIDER), cells, "2b", form=PartitionUpdateBuilder)
    messages = []
    for record in (old, new):
        await converter.prepare(topic, record.value_schema)
        data = converter.encoder(topic, record.value_schema)(record.value)
        assert data is not None
        messages.append(data)
    for record, data in zip((old, new), messages, strict=True):
        await converter.prepare_data(topic, data)
        schema, value = converter.to_connect(topic, data)
        assert schema == record.value_schema
        assert schema is not None
        update = decode_update(value, schema)
        assert update == decode_update(record.value, schema)
        assert update.source.schema_version in {"1a", "2b"}
    async with aiohttp.ClientSession() as session:
        # Any Avro client reads it with the registry, without this product.
        for data in messages:
            number = int.from_bytes(data[1:5], "big")
            async with session.get(f"{registry.url}/schemas/ids/{number}") as answer:
                written = json.loads((await answer.json())["schema"])
            plain: Any = fastavro.schemaless_reader(io.BytesIO(data[5:]), fastavro.parse_schema(written), None)
            (row,) = plain["rows"]
            assert (plain["key"], row["clustering"], row["cells"]["m"][0]["path"]) == ({"p": 1}, {"x": "é"}, "k")
        async with session.get(f"{registry.url}/subjects/{topic}-value/versions") as answer:
            assert await answer.json() == [1, 2]


async def test_ums_messages_have_one_schema(converter: Converter) -> None:
    topic = f"ums-{secrets.token_hex(4)}"
    (record,) = records((*KEY, *REGULAR), {"p": 1, "x": "é", "v": "w"}, "1a", form=UmsBuilder)
    for value in (record.value, ums.make_signal(ums.INCREMENT_HEARTBEAT, "scylla.c.ks.t.0.0.0", 5)):
        await converter.prepare(topic, ums.MESSAGE)
        data = converter.encoder(topic, ums.MESSAGE)(value)
        await converter.prepare_data(topic, data)
        schema, read = converter.to_connect(topic, data)
        assert (schema, read) == (ums.MESSAGE, value)
