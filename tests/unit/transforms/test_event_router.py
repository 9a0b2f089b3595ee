from __future__ import annotations

import logging
from typing import Any

import pytest

from connectors import schema as types
from connectors.api import Header, SourceRecord
from connectors.errors import ConfigInvalid
from connectors.schema import Field, Schema, Type, struct
from worker.transforms.debezium.json_expansion import NotExpandable, expand_json
from worker.transforms.pipeline import TransformError, build_pipeline

TYPE = "io.debezium.transforms.outbox.EventRouter"
JSON = Schema(Type.STRING, optional=True, name="io.debezium.data.Json", version=1)
MICROS = Schema(Type.INT64, optional=True, name="io.debezium.time.MicroTimestamp", version=1)
ROW = struct(
    "s.shop.outbox.Value",
    {
        "id": types.STRING,
        "aggregatetype": types.STRING,
        "aggregateid": types.STRING,
        "type": types.STRING,
        "payload": JSON,
        "at": MICROS,
        "version": types.OPTIONAL_INT32,
        "part": types.OPTIONAL_INT32,
        "plain": types.OPTIONAL_INT64,
    },
    optional=True,
)
ENVELOPE = struct(
    "s.shop.outbox.Envelope",
    {"before": ROW, "after": ROW, "op": types.STRING, "ts_ms": types.OPTIONAL_INT64},
    version=2,
)
OUT: dict[str, Any] = {
    "id": "e1",
    "aggregatetype": "Order",
    "aggregateid": "7",
    "type": "OrderCreated",
    "payload": '{"a": 1}',
    "at": 1_700_000_000_123_456,
    "version": 3,
    "part": 2,
    "plain": 5,
}


def event(op: str = "c", schema: Schema | None = ENVELOPE, **changes: Any) -> SourceRecord:
    value = {"before": None, "after": {**OUT, **changes}, "op": op, "ts_ms": 99}
    return SourceRecord(
        {"p": 1},
        {"o": 2},
        "s.shop.outbox",
        value,
        schema,
        {"id": "e1"},
        None,
        headers=(Header("old", 1, types.INT32),),
        partition=9,
    )


def route(record: SourceRecord, **options: str) -> SourceRecord | None:
    return build_pipeline(
        {
            "transforms": "o",
            "transforms.o.type": TYPE,
            **{f"transforms.o.{name.replace('_', '.')}": value for name, value in options.items()},
        }
    ).apply(record)


def routed(record: SourceRecord, **options: str) -> SourceRecord:
    result = route(record, **options)
    assert result is not None
    return result


def test_defaults() -> None:
    record = event()
    result = routed(record)
    assert (result.topic, result.key, result.key_schema) == ("outbox.event.Order", "7", types.STRING)
    assert (result.value, result.value_schema) == ('{"a": 1}', JSON)
    assert result.headers == (Header("old", 1, types.INT32), Header("id", "e1", types.STRING))
    assert (result.timestamp, result.partition) == (99, None)
    assert (result.source_partition, result.source_offset) == ({"p": 1}, {"o": 2})
    assert record.headers == (Header("old", 1, types.INT32),)


def test_what_is_dropped_and_what_passes(caplog: pytest.LogCaptureFixture) -> None:
    assert route(SourceRecord({}, {}, "t", None, None, "k")) is None
    assert route(event("d")) is None
    assert route(event("r")) is not None
    heartbeat = SourceRecord({}, {}, "t", {"ts_ms": 1}, struct("a.Heartbeat", {"ts_ms": types.INT64}))
    assert route(heartbeat) is heartbeat
    plain = event(schema=None)
    assert route(plain) is plain
    for behavior, level in (("warn", logging.WARNING), (" ERROR ", logging.ERROR)):
        caplog.clear()
        assert route(event("u"), table_op_invalid_behavior=behavior) is None
        assert [entry.levelno for entry in caplog.records] == [level]
        assert "OrderCreated" not in caplog.text
    with pytest.raises(TransformError, match="Unexpected update message"):
        route(event("u"), table_op_invalid_behavior="fatal")


def test_topic_key_payload_and_id_from_other_columns() -> None:
    result = routed(
        event(),
        table_field_event_id="type",
        table_field_event_key="id",
        table_field_event_payload="plain",
        route_by_field="aggregateid",
        route_topic_regex="(?<n>.)",
        route_topic_replacement="x.${n}.$1",
    )
    assert (result.topic, result.key, result.value, result.value_schema) == ("x.7.7", "e1", 5, types.OPTIONAL_INT64)
    assert result.headers[-1] == Header("id", "OrderCreated", types.STRING)
    assert routed(event(), route_topic_regex="nothing", route_topic_replacement="x").topic == "Order"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("io.debezium.time.Timestamp", 5, 5),
        ("io.debezium.time.MicroTimestamp", 5999, 5),
        ("io.debezium.time.NanoTimestamp", 5_999_999, 5),
        ("io.debezium.time.MicroTimestamp", -1999, -1),
        ("io.debezium.time.Timestamp", None, 99),
    ],
)
def test_timestamp(name: str, value: int | None, expected: int) -> None:
    at = Schema(Type.INT64, optional=True, name=name)
    row = struct("r", {**{field.name: field.schema for field in ROW.fields}, "at": at})
    schema = struct("s.Envelope", {"after": row})
    assert routed(event(schema=schema, at=value), table_field_event_timestamp="at").timestamp == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table_field_event_timestamp": "nosuch"}, "Unable to find timestamp field nosuch in event"),
        ({"table_field_event_timestamp": "plain"}, r"Unsupported field type INT64 \(without logical schema name\) for"),
        ({"table_field_event_timestamp": "id"}, "Field 'id' is not of type INT64"),
        ({"table_field_event_payload": "nosuch"}, "Unable to find payload field nosuch in event"),
        ({"table_field_event_id": "nosuch"}, "nosuch is not a valid field name"),
        ({"table_field_event_key": "nosuch"}, "nosuch is not a valid field name"),
        ({"route_by_field": "plain"}, "Field 'plain' is not of type STRING"),
        ({"table_fields_additional_placement": "nosuch:header"}, "nosuch is not a valid field name"),
        ({"table_fields_additional_placement": "nosuch:envelope"}, "nosuch is not a valid field name"),
        ({"table_fields_additional_placement": "id:partition"}, "Field 'id' is not of type INT32"),
    ],
)
def test_columns_that_are_not_there_or_of_another_type(options: dict[str, str], message: str) -> None:
    with pytest.raises(TransformError, match=message):
        route(event(), **options)


def test_additional_fields() -> None:
    result = routed(
        event(),
        table_fields_additional_placement="type:header:eventType, plain:envelope, at:envelope:when,"
        "part:partition, id:header",
    )
    assert result.headers[1:] == (
        Header("id", "e1", types.STRING),
        Header("eventType", "OrderCreated", types.STRING),
        Header("id", "e1", types.STRING),
    )
    assert result.partition == 2
    assert result.value == {"payload": '{"a": 1}', "plain": 5, "when": 1_700_000_000_123_456}
    assert result.value_schema == Schema(
        Type.STRUCT,
        name="s.shop.outbox.Order.Value",
        fields=(Field("payload", JSON), Field("plain", types.OPTIONAL_INT64), Field("when", MICROS)),
    )


def test_missing_additional_fields_may_be_left_out() -> None:
    result = routed(
        event(),
        table_fields_additional_placement="nosuch:envelope,nosuch:header,nosuch:partition",
        table_fields_additional_error_on_missing="false",
    )
    assert result.value == {"payload": '{"a": 1}'}
    assert len(result.headers) == 2


def test_schema_version_and_one_schema_object_per_topic() -> None:
    pipeline = build_pipeline(
        {
            "transforms": "o",
            "transforms.o.type": TYPE,
            "transforms.o.table.fields.additional.placement": "type:envelope",
            "transforms.o.table.field.event.schema.version": "version",
        }
    )
    schemas = []
    for kind, version in (("Order", 3), ("Order", 3), ("Order", 4), ("Bill", 3)):
        result = pipeline.apply(event(aggregatetype=kind, version=version))
        assert result is not None
        assert result.value_schema is not None
        schemas.append(result.value_schema)
    assert schemas[0] is schemas[1]
    assert [(schema.name, schema.version) for schema in schemas[1:]] == [
        ("s.shop.outbox.Order.Value", 3),
        ("s.shop.outbox.Order.Value", 4),
        ("s.shop.outbox.Bill.Value", 3),
    ]


@pytest.mark.parametrize("payload", [None, "", " \t\n"])
def test_empty_payloads(payload: str | None) -> None:
    assert routed(event(payload=payload)).value == payload
    for more in ({}, {"table_fields_additional_placement": "type:envelope"}):
        result = routed(event(payload=payload), route_tombstone_on_empty_payload="true", **more)
        assert (result.value, result.value_schema, result.key) == (None, None, "7")


def test_expansion(caplog: pytest.LogCaptureFixture) -> None:
    result = routed(event(payload='{"a": 1, "b": {"c": [true]}, "n": null}'), table_expand_json_payload="true")
    assert result.value == {"a": 1, "b": {"c": [True]}}
    inner = Schema(
        Type.STRUCT,
        optional=True,
        name="payload.b",
        fields=(Field("c", types.array(types.OPTIONAL_BOOLEAN, optional=True)),),
    )
    assert result.value_schema == Schema(
        Type.STRUCT, optional=True, name="payload", fields=(Field("a", types.OPTIONAL_INT32), Field("b", inner))
    )
    assert not caplog.records
    for payload in ("plain", "{", '{"a": [1, "x"]}', "[]"):
        caplog.clear()
        result = routed(event(payload=payload), table_expand_json_payload="true")
        assert (result.value, result.value_schema) == (payload, JSON)
        assert len(caplog.records) == 1
    caplog.clear()
    assert routed(event(payload=None), table_expand_json_payload="true").value is None
    assert not caplog.records


def test_equal_expanded_schemas_are_one_object() -> None:
    pipeline = build_pipeline(
        {"transforms": "o", "transforms.o.type": TYPE, "transforms.o.table.expand.json.payload": "true"}
    )
    results = [pipeline.apply(event(payload=f'{{"a": {number}}}')) for number in (1, 2)]
    assert all(result is not None for result in results)
    assert results[0].value_schema is results[1].value_schema  # type: ignore[union-attr]


def fields_of(schema: Schema | None) -> dict[str, Schema]:
    assert schema is not None
    return {field.name: field.schema for field in schema.fields}


def test_expanded_types() -> None:
    value, schema = expand_json(
        '{"i": -2147483648, "l": 2147483648, "h": 1e3, "b": 99999999999999999999, "s": "x", "t": true,'
        '"n": null, "e": [], "o": {}}',
        "p",
        keep_nulls=True,
    )
    assert fields_of(schema) == {
        "i": types.OPTIONAL_INT32,
        "l": types.OPTIONAL_INT64,
        "h": types.OPTIONAL_FLOAT64,
        "b": types.OPTIONAL_FLOAT64,
        "s": types.OPTIONAL_STRING,
        "t": types.OPTIONAL_BOOLEAN,
        "n": types.OPTIONAL_BYTES,
        "o": Schema(Type.STRUCT, optional=True, name="p.o"),
    }
    assert value == {"i": -2147483648, "l": 2147483648, "h": 1000.0, "b": 1e20, "s": "x", "t": True, "n": None, "o": {}}
    assert type(value["h"]) is type(value["b"]) is float


def test_expanded_arrays_of_objects_have_the_fields_of_all() -> None:
    value, schema = expand_json('{"a": [{"x": 1, "n": null}, {"y": "t", "n": 2}]}', "p", keep_nulls=True)
    element = fields_of(schema)["a"].value_schema
    assert element is not None
    assert element.name == "p.a"
    assert fields_of(element) == {"x": types.OPTIONAL_INT32, "n": types.OPTIONAL_INT32, "y": types.OPTIONAL_STRING}
    assert not element.optional
    assert value == {"a": [{"x": 1, "n": None}, {"y": "t", "n": 2}]}
    value, schema = expand_json('{"a": [{"x": 1}, null, {"x": 2}]}', "p", keep_nulls=False)
    element = fields_of(schema)["a"].value_schema
    assert element is not None
    assert element.optional
    assert value == {"a": [{"x": 1}, None, {"x": 2}]}


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [1, 2.5]}',
        '{"a": [1, 2147483648]}',
        '{"a": [null]}',
        '{"a": [[1], ["x"]]}',
        '{"a": [{"x": 1}, {"x": "t"}]}',
        '{"a": [{"x": 1}, {"x": 2147483648}]}',
        '{"a": [{"x": 1}, null, {"y": 2}]}',
        "nothing",
        "",
    ],
)
def test_documents_that_cannot_be_expanded(text: str) -> None:
    with pytest.raises(NotExpandable):
        expand_json(text, "p", keep_nulls=False)


def test_an_array_is_expanded_too() -> None:
    assert expand_json("[1, null]", "p", keep_nulls=False) == (
        [1, None],
        types.array(types.OPTIONAL_INT32, optional=True),
    )


@pytest.mark.parametrize(
    "options",
    [
        {"table_fields_additional_placement": "type"},
        {"table_fields_additional_placement": "type:nowhere"},
        {"route_topic_regex": "("},
        {"route_topic_replacement": "${nosuch}"},
        {"table_op_invalid_behavior": "ignore"},
    ],
)
def test_wrong_options(options: dict[str, str]) -> None:
    with pytest.raises(ConfigInvalid):
        route(event(), **options)
