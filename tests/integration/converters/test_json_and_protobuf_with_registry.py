"""JsonSchemaConverter and ProtobufConverter with a real schema registry, and with other libraries as reader and writer."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import platform
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import jsonschema
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

from connectors.errors import Fatal, Skippable
from connectors.schema import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    OPTIONAL_INT32,
    OPTIONAL_STRING,
    STRING,
    array,
    date,
    decimal,
    map_of,
    struct,
    time,
    timestamp,
)
from worker.fetch.artifacts import Artifact
from worker.fetch.errors import StackError
from worker.fetch.resolver import ArtifactResolver

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from compose.local.registry import SchemaRegistry
    from worker.converters.base import Converter

PROTOC = Artifact(
    "com.google.protobuf:protoc:4.33.2:linux-x86_64@exe",
    "0e3f0ae2a73bc27682baa8981bc18312bab1b2f90c804d528c6ee1f600247189",
    10299800,
    frozenset(),
)
#: The files that schemas may import, as they are published.
IMPORTS = {
    "confluent/meta.proto": """syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }""",
    "confluent/type/decimal.proto": """syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""",
    "google/type/date.proto": """syntax = "proto3"; package google.type;
        message Date { int32 year = 1; int32 month = 2; int32 day = 3; }""",
    "google/type/timeofday.proto": """syntax = "proto3"; package google.type;
        message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }""",
}
LINE = struct("shop.Line", {"sku": STRING, "count": INT16})
ORDER = struct(
    "shop.Order",
    {
        "id": INT64,
        "at": timestamp(),
        "day": date(),
        "tod": time(),
        "total": decimal(2),
        "note": OPTIONAL_STRING,
        "lines": array(LINE),
        "first": LINE,
        "extra": map_of(INT32, STRING, name="extra_map"),
        "tags": map_of(STRING, BOOLEAN, name="tag_map"),
        "raw": BYTES,
        "single": FLOAT32,
        "double": FLOAT64,
        "flag": BOOLEAN,
    },
)


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "at": 1_700_000_000_123,
        "day": 19_000,
        "tod": 86_399_999,
        "total": Decimal("12.50"),
        "note": "ü",
        "lines": [{"sku": "a", "count": 2}, {"sku": "", "count": -1}],
        "first": {"sku": "b", "count": 0},
        "extra": {1: "x", -5: ""},
        "tags": {"t": True},
        "raw": b"\0\xff",
        "single": 1.5,
        "double": -2.25,
        "flag": False,
    }


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def without(schema: Any, *names: str, **more: Any) -> Any:
    return struct(
        schema.name, {**{member.name: member.schema for member in schema.fields if member.name not in names}, **more}
    )


@pytest.mark.parametrize("name", ["json", "protobuf"])
async def test_a_value_travels(
    make_converter: Callable[..., Converter],
    ask: Callable[..., Awaitable[Any]],
    unique_name: Callable[[str], str],
    name: str,
) -> None:
    topic = unique_name(name)
    writer, reader = make_converter(name), make_converter(name)
    await writer.prepare(topic, ORDER)
    data = writer.from_connect(topic, ORDER, order(1))
    assert data is not None
    assert data[0] == 0
    await reader.prepare_data(topic, data)
    schema, value = reader.to_connect(topic, data)
    assert value == order(1)
    if name == "json":
        assert schema == ORDER
    assert f"{topic}-value" in await ask("/subjects")
    await writer.prepare(topic, None)
    assert writer.from_connect(topic, None, None) is None  # a tombstone
    with pytest.raises(Skippable, match="needs a schema"):
        writer.from_connect(topic, None, {"a": 1})
    wrong = make_converter("avro")
    with pytest.raises(Skippable, match=f"is {'JSON' if name == 'json' else 'PROTOBUF'}, not AVRO"):
        await wrong.prepare_data(topic, data)
    with pytest.raises(Fatal, match="prepare"):
        wrong.encoder(topic, ORDER)


async def test_foreign_readers_read_what_is_written(
    make_converter: Callable[..., Converter], registry: SchemaRegistry, unique_name: Callable[[str], str]
) -> None:
    client = SchemaRegistryClient({"url": registry.url, "timeout": 60})
    decoded: dict[str, Any] = {}
    readers = {"avro": AvroDeserializer(client), "json": JSONDeserializer(None, schema_registry_client=client)}
    for name, deserializer in readers.items():
        topic = unique_name(name)
        converter = make_converter(name)
        await converter.prepare(topic, ORDER)
        decoded[name] = deserializer(converter.from_connect(topic, ORDER, order(7)), context(topic))
    assert decoded["avro"]["total"] == Decimal("12.50")
    assert decoded["avro"]["extra"] == [{"key": 1, "value": "x"}, {"key": -5, "value": ""}]
    assert decoded["json"]["lines"] == order(7)["lines"]
    assert decoded["json"]["total"] == "BOI="
    assert decoded["json"]["extra"] == [{"key": 1, "value": "x"}, {"key": -5, "value": ""}]


async def test_what_foreign_writers_write_is_read(
    make_converter: Callable[..., Converter], registry: SchemaRegistry, unique_name: Callable[[str], str]
) -> None:
    client = SchemaRegistryClient({"url": registry.url, "timeout": 60})
    topic = unique_name("foreign")
    text = json.dumps(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "Thing",
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": ["null", "string"]}},
            "required": ["a"],
        }
    )
    data = JSONSerializer(text, client)({"a": 5, "b": None}, context(topic))
    reader = make_converter("json", use_optional_for_nonrequired="true")
    await reader.prepare_data(topic, data)
    schema, value = reader.to_connect(topic, data)
    assert (schema.name if schema else "", value) == ("Thing", {"a": 5, "b": None})
    topic = unique_name("foreign")
    # Their schema is registered as a serialized descriptor, not as text.
    data = ProtobufSerializer(timestamp_pb2.Timestamp, client, {"use.deprecated.format": False})(
        timestamp_pb2.Timestamp(seconds=5, nanos=7), context(topic)
    )
    proto = make_converter("protobuf")
    await proto.prepare_data(topic, data)
    assert proto.to_connect(topic, data)[1] == {"seconds": 5, "nanos": 7}


async def test_values_match_their_json_schema(
    make_converter: Callable[..., Converter], ask: Callable[..., Awaitable[Any]], unique_name: Callable[[str], str]
) -> None:
    for options in (
        {},
        {"object_additional_properties": "false"},
        {"decimal_format": "NUMERIC"},
        {"json_fail_invalid_schema": "true"},
    ):
        topic = unique_name("valid")
        converter = make_converter("json", **options)
        await converter.prepare(topic, ORDER)
        data = converter.from_connect(topic, ORDER, {**order(3), "note": None}) or b""
        registered = json.loads((await ask(f"/schemas/ids/{int.from_bytes(data[1:5], 'big')}"))["schema"])
        jsonschema.Draft7Validator.check_schema(registered)
        validator = jsonschema.Draft7Validator(registered)
        value = json.loads(data[5:])
        validator.validate(value)
        assert not validator.is_valid({**value, "id": "seven"})


def protoc() -> Path:
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        pytest.skip("the pinned protoc is for Linux on x86_64")
    try:
        (program,) = ArtifactResolver().fetch([PROTOC], "protoc")
    except StackError as error:
        pytest.skip(f"protoc can't be had: {error}")
    if not os.access(program, os.X_OK):
        program.chmod(0o755)
    return program


async def test_protoc_compiles_the_text_and_its_classes_read_the_messages(
    make_converter: Callable[..., Converter],
    ask: Callable[..., Awaitable[Any]],
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    program = protoc()
    for name, text in IMPORTS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    well_known = descriptor_pb2.FileDescriptorSet()
    for module in (descriptor_pb2, timestamp_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(well_known.file.add())
    (tmp_path / "known").write_bytes(well_known.SerializeToString())
    for number, options in enumerate(({}, {"optional_for_nullables": "true"}, {"wrapper_for_nullables": "true"})):
        topic = unique_name("protoc")
        converter = make_converter("protobuf", **options)
        await converter.prepare(topic, ORDER)
        data = converter.from_connect(topic, ORDER, order(9)) or b""
        text = (await ask(f"/schemas/ids/{int.from_bytes(data[1:5], 'big')}"))["schema"]
        (tmp_path / f"order{number}.proto").write_text(text)
        running = await asyncio.create_subprocess_exec(
            program,
            f"-I{tmp_path}",
            f"--descriptor_set_in={tmp_path / 'known'}",
            f"--descriptor_set_out={tmp_path / 'set'}",
            "--include_imports",
            f"order{number}.proto",
            cwd=tmp_path,
        )
        assert await asyncio.wait_for(running.wait(), 30) == 0
        pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString((tmp_path / "set").read_bytes()).file:
            pool.Add(file)
        theirs: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
        read = ProtobufDeserializer(theirs, {"use.deprecated.format": False})(data, context(topic))
        assert (read.id, read.at.seconds, read.at.nanos) == (9, 1_700_000_000, 123_000_000)
        assert (read.day.year, read.tod.hours) == (2022, 23)
        assert (read.total.value, read.total.scale) == (b"\x04\xe2", 2)
        assert [(line.sku, line.count) for line in read.lines] == [("a", 2), ("", -1)]
        assert {entry.key: entry.value for entry in read.extra} == {1: "x", -5: ""}
        assert (read.raw, read.single, read.double, read.flag) == (b"\0\xff", 1.5, -2.25, False)
        # What their classes write is read: the same bytes, and the other way round.
        reader = make_converter("protobuf", **options)
        encoded = data[:6] + read.SerializeToString(deterministic=True)
        await reader.prepare_data(topic, encoded)
        assert reader.to_connect(topic, encoded)[1] == order(9)


@pytest.mark.parametrize("name", ["avro", "json", "protobuf"])
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
    ask: Callable[..., Awaitable[Any]],
    unique_name: Callable[[str], str],
    name: str,
    strategy: str,
    subject: str,
) -> None:
    topic = unique_name("strategy")
    record = f"shop.{topic.replace('-', '_')}"
    await make_converter(name, value_subject_name_strategy=strategy).prepare(topic, struct(record, {"x": INT32}))
    assert subject.format(topic=topic, record=record) in await ask("/subjects")


@pytest.mark.parametrize("name", ["avro", "json", "protobuf"])
async def test_another_schema_than_the_records_own(
    make_converter: Callable[..., Converter], unique_name: Callable[[str], str], name: str
) -> None:
    topic = unique_name("latest")
    row, wide = struct("R", {"a": INT32}), struct("R", {"a": INT32, "b": OPTIONAL_STRING})
    registering = make_converter(name)
    await registering.prepare(topic, wide)
    schema_id = int.from_bytes((registering.from_connect(topic, wide, {"a": 1, "b": "x"}) or b"")[1:5], "big")
    for options in ({"use_latest_version": "true"}, {"use_schema_id": str(schema_id)}):
        other = make_converter(name, auto_register_schemas="false", **options)
        await other.prepare(topic, row)
        data = other.from_connect(topic, row, {"a": 5}) or b""
        assert int.from_bytes(data[1:5], "big") == schema_id
        await registering.prepare_data(topic, data)
        read = registering.to_connect(topic, data)[1]
        assert read["a"] == 5
        assert not read["b"]
        with pytest.raises(Skippable, match=r"lacks fields of the records: c\."):
            await other.prepare(topic, struct("R", {"a": INT32, "c": INT32}))
    if name == "protobuf":
        with pytest.raises(Skippable, match="other field numbers or types than the records: field b"):
            await other.prepare(topic, struct("R", {"b": OPTIONAL_STRING, "a": INT32}))
        lenient = make_converter(
            name, auto_register_schemas="false", use_latest_version="true", latest_compatibility_strict="false"
        )
        with pytest.raises(Skippable, match="has no message Q"):
            await lenient.prepare(topic, struct("Q", {"a": INT32}))


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("avro", {"x": STRING}, "field x: type changed from int to string"),
        ("avro", {"x": INT32, "y": INT32}, "field y: added (int) without a default"),
        (
            "avro",
            {"x": INT32, "s": struct("S", {"z": STRING})},
            "field s: added (S) without a default; field s.z: added (string)",
        ),
        ("json", {"x": STRING}, "field x: type changed from integer to string"),
        ("protobuf", {"x": STRING}, "field x: type changed from int32 = 1 to string = 1"),
    ],
)
async def test_refused_schemas_say_which_field(
    make_converter: Callable[..., Converter],
    ask: Callable[..., Awaitable[Any]],
    unique_name: Callable[[str], str],
    name: str,
    change: dict[str, Any],
    text: str,
) -> None:
    topic = unique_name("refused")
    converter = make_converter(name)
    first = struct("R", {"x": INT32})
    await converter.prepare(topic, first)
    schema_id = int.from_bytes((converter.from_connect(topic, first, {"x": 1}) or b"")[1:5], "big")
    await ask(f"/config/{topic}-value", {"compatibility": "BACKWARD"})
    with pytest.raises(Skippable) as caught:
        await converter.prepare(topic, struct("R", change))
    said = str(caught.value)
    assert text in said
    assert f"the schema of {topic}-value" in said
    assert f"(id {schema_id}, version 1)" in said
    assert "compatibility level" in said
    assert "HTTP 409" in said


async def test_checked_values_name_the_field_that_does_not_match(
    make_converter: Callable[..., Converter], ask: Callable[..., Awaitable[Any]], unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("checked")
    text = json.dumps({"type": "object", "title": "R", "properties": {"a": {"type": "integer", "maximum": 9}}})
    await ask(f"/subjects/{topic}-value/versions", {"schema": text, "schemaType": "JSON"}, "POST")
    converter = make_converter(
        "json", auto_register_schemas="false", use_latest_version="true", json_fail_invalid_schema="true"
    )
    row = struct("R", {"a": INT32})
    await converter.prepare(topic, row)
    assert converter.from_connect(topic, row, {"a": 9})
    with pytest.raises(Skippable, match="field a breaks properties/a/maximum"):
        converter.from_connect(topic, row, {"a": 10})


async def test_cloud_events_in_avro(
    make_converter: Callable[..., Converter],
    registry: SchemaRegistry,
    ask: Callable[..., Awaitable[Any]],
    unique_name: Callable[[str], str],
) -> None:
    row = struct("shop.db.t.Value", {"id": INT64}, optional=True)
    source = struct(
        "io.debezium.connector.mysql.Source",
        {
            "connector": STRING,
            "name": STRING,
            "ts_ms": INT64,
            "db": STRING,
            "file": STRING,
            "pos": INT64,
            "row": OPTIONAL_INT32,
        },
    )
    envelope = struct("shop.db.t.Envelope", {"before": row, "after": row, "source": source, "op": STRING})
    value = {
        "before": None,
        "after": {"id": 1},
        "op": "c",
        "source": {"connector": "mysql", "name": "shop", "ts_ms": 5, "db": "db", "file": "f", "pos": 3, "row": 0},
    }
    for kind in ("json", "avro"):
        topic = unique_name("event")
        converter = make_converter(
            "io.debezium.converters.CloudEventsConverter",
            serializer_type=kind,
            data_serializer_type="avro",
            avro_schema_registry_url=registry.url,
        )
        await converter.prepare(topic, envelope)
        written = converter.from_connect(topic, envelope, value)
        await converter.prepare_data(topic, written)
        event = converter.to_connect(topic, written)[1]
        assert (event["id"], event["iodebeziumpos"], event["iodebeziumrow"]) == ("name:shop;file:f;pos:3", "3", 0)
        content = event["data"]
        if kind == "json":
            content = base64.b64decode(content)
        assert event["dataschema"] == f"{registry.url}/schemas/ids/{int.from_bytes(content[1:5], 'big')}"
        schema = json.loads((await ask(f"/schemas/ids/{int.from_bytes(content[1:5], 'big')}"))["schema"])
        assert schema["name"] == "Data"
        assert fastavro.schemaless_reader(io.BytesIO(content[5:]), schema, None) == {"before": None, "after": {"id": 1}}
    assert await ask(f"/subjects/{topic}-data-value/versions") == [1]
    assert (
        json.loads((await ask(f"/subjects/{topic}-value/versions/latest"))["schema"])["namespace"]
        == "shop.db.CloudEvents"
    )
