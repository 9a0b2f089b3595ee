"""ScyllaExtractNewRecordState and ScyllaFlattenColumns, over recorded events of the Java connector in the legacy format."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from connectors import schema as types
from connectors.api import Header, SourceRecord
from connectors.schema import Schema, struct
from tests.unit.connectors.scylla.events import golden_cases
from worker.converters.json import JsonConverter
from worker.transforms.pipeline import build_pipeline
from worker.transforms.registry import resolve_transform

JAVA = "com.scylladb.cdc.debezium.connector.transforms."
CONVERTER = JsonConverter({"schemas.enable": "true"})


def recorded(name: str, run: str = "legacy") -> list[SourceRecord]:
    """Records as the Java connector made them, read back from what was recorded."""
    result = []
    for record in golden_cases.load(name)["runs"][run]["records"]:
        key_schema, key = CONVERTER.to_connect("t", json.dumps(record["key"]).encode())
        value_schema, value = None, None
        if record["value"] is not None:
            document = copy.deepcopy(record["value"])
            document["payload"]["ts_ms"] = 7
            value_schema, value = CONVERTER.to_connect("t", json.dumps(document).encode())
        headers = tuple(Header(name, text, types.STRING) for name, text in record["headers"])
        result.append(SourceRecord({}, {}, "t", value, value_schema, key, key_schema, headers=headers))
    return result


def apply(kind: str, record: SourceRecord, **options: str) -> SourceRecord | None:
    return build_pipeline(
        {
            "transforms": "u",
            "transforms.u.type": JAVA + kind,
            **{f"transforms.u.{name.replace('__', '.')}": value for name, value in options.items()},
        }
    ).apply(record)


@pytest.mark.parametrize("kind", ["ScyllaExtractNewRecordState", "ScyllaFlattenColumns"])
def test_both_are_found_by_short_and_java_name(kind: str) -> None:
    assert resolve_transform(kind).kind is resolve_transform(JAVA + kind).kind
    assert resolve_transform(kind).class_name == JAVA + kind


def row(name: str) -> Schema:
    """The schema that the README gives: the row's own name, required, its columns without cells."""
    return struct(
        name,
        {
            "ck": types.OPTIONAL_INT32,
            "n": types.OPTIONAL_INT64,
            "pk": types.OPTIONAL_INT32,
            "st": types.OPTIONAL_STRING,
            "v": types.OPTIONAL_STRING,
        },
    )


def test_new_row_without_cells() -> None:
    (record,) = recorded("insert_basic")
    before = copy.deepcopy(record.value)
    result = apply("ScyllaExtractNewRecordState", record)
    assert result is not None
    assert result.value == {"ck": 1, "n": 10, "pk": 1, "st": None, "v": "a"}
    assert result.value_schema == row("PREFIX.g.insert_basic.After")
    assert (result.key, result.key_schema) == (record.key, record.key_schema)
    assert record.value == before


def test_null_and_unset_become_one() -> None:
    first, second = recorded("insert_null_vs_unset")
    results = [apply("ScyllaExtractNewRecordState", record) for record in (first, second)]
    assert [result.value["v"] for result in results if result] == [None, None]


def test_deletions_follow_the_options_of_debezium() -> None:
    deleted, tombstone = recorded("row_delete")
    result = apply("ScyllaExtractNewRecordState", deleted)
    assert result is not None
    assert result.value is None
    assert apply("ScyllaExtractNewRecordState", tombstone) is None
    options = {"delete__tombstone__handling__mode": "rewrite-with-tombstone"}
    result = apply("ScyllaExtractNewRecordState", deleted, **options)
    assert result is not None
    assert result.value == {"ck": 1, "n": None, "pk": 1, "st": None, "v": None, "__deleted": "true"}
    result = apply("ScyllaExtractNewRecordState", tombstone, **options)
    assert result is not None
    assert result.value is None


def test_added_fields_and_old_image() -> None:
    deleted, _ = recorded("img_row_delete", "legacy_pre")
    result = apply(
        "ScyllaExtractNewRecordState", deleted, delete__tombstone__handling__mode="rewrite", add__fields="op"
    )
    assert result is not None
    assert result.value == {"ck": 1, "n": 3, "pk": 1, "st": None, "v": "old", "__deleted": "true", "__op": "d"}


def test_advanced_rows_are_left_alone() -> None:
    (record,) = recorded("img_update", "adv_full")
    result = apply("ScyllaExtractNewRecordState", record, cdc__output__format=" Advanced ")
    assert result is not None
    assert result.value == record.value["after"]
    (wrapped,) = recorded("insert_basic")
    result = apply("ScyllaExtractNewRecordState", wrapped, cdc__output__format="advanced")
    assert result is not None
    assert result.value["v"] == {"value": "a"}


def test_records_that_are_no_events_pass() -> None:
    for record in (SourceRecord({}, {}, "t", "text", types.STRING), SourceRecord({}, {}, "t", {"a": 1})):
        assert apply("ScyllaExtractNewRecordState", record) is record
        assert apply("ScyllaFlattenColumns", record) is record
    other = SourceRecord(
        {}, {}, "t", {"v": {"value": 1}}, struct("x", {"v": struct("x.v.Cell", {"value": types.INT32})})
    )
    result = apply("ScyllaExtractNewRecordState", other)
    assert result is not None
    assert result.value == {"v": 1}
    assert result.value_schema == struct("x", {"v": types.OPTIONAL_INT32})


def test_flattening_leaves_the_event_around_the_rows() -> None:
    (record,) = recorded("img_update", "legacy_pre")
    before = copy.deepcopy(record.value)
    result = apply("ScyllaFlattenColumns", record)
    assert result is not None
    assert result.value["before"] == {"ck": 1, "n": None, "pk": 1, "st": None, "v": "old"}
    assert result.value["after"] == {"ck": 1, "n": None, "pk": 1, "st": None, "v": "new"}
    assert {name: value for name, value in result.value.items() if name not in {"before", "after"}} == {
        name: value for name, value in before.items() if name not in {"before", "after"}
    }
    assert record.value == before
    assert result.value_schema is not None
    assert record.value_schema is not None
    assert result.value_schema.name == "PREFIX.g.img_update.Envelope"
    assert [field.name for field in result.value_schema.fields] == [field.name for field in record.value_schema.fields]
    after = result.value_schema.field("after")
    assert after is not None
    assert after.schema.optional
    assert after.schema.field("v") == types.Field("v", types.OPTIONAL_STRING)
    CONVERTER.encoder("t", result.value_schema)(result.value)  # the value is one of its schema


@pytest.mark.parametrize("name", golden_cases.names())
def test_every_recorded_legacy_event_flattens_to_values_of_its_new_schema(name: str) -> None:
    for record in recorded(name):
        for kind in ("ScyllaFlattenColumns", "ScyllaExtractNewRecordState"):
            result: Any = apply(kind, record)
            if record.value is None:
                assert result is (record if kind == "ScyllaFlattenColumns" else None)
                continue
            if result.value is not None:  # a deletion's null keeps the schema of the row, as in Debezium
                data = CONVERTER.encoder("t", result.value_schema)(result.value)
                assert data is not None
                assert b'.Cell"' not in data
            assert result.headers == record.headers
