"""ExtractNewRecordState: what the comparison with Debezium can't show."""

from __future__ import annotations

from typing import Any

import pytest

from connectors import schema as types
from connectors.api import Header, SourceRecord
from connectors.errors import ConfigInvalid
from connectors.schema import Schema, Type, struct
from worker.transforms.pipeline import TransformError, build_pipeline

TYPE = "io.debezium.transforms.ExtractNewRecordState"
ROW = struct("s.t.Value", {"id": types.INT64, "name": types.OPTIONAL_STRING}, optional=True)
SOURCE = struct("source", {"table": types.STRING, "ts_ms": types.INT64})
ENVELOPE = struct(
    "s.t.Envelope", {"before": ROW, "after": ROW, "source": SOURCE, "op": types.STRING, "ts_ms": types.OPTIONAL_INT64}
)
KEY = struct("s.t.Key", {"id": types.INT64})


def event(
    before: Any, after: Any, op: str, schema: Schema = ENVELOPE, headers: tuple[Header, ...] = ()
) -> SourceRecord:
    value = {"before": before, "after": after, "source": {"table": "t", "ts_ms": 5}, "op": op, "ts_ms": 6}
    return SourceRecord({}, {}, "s.t", value, schema, {"id": 1}, KEY, headers=headers)


def tombstone() -> SourceRecord:
    return SourceRecord({}, {}, "s.t", None, None, {"id": 1}, KEY)


def unwrap(record: SourceRecord, **options: str) -> SourceRecord | None:
    return build_pipeline(
        {
            "transforms": "u",
            "transforms.u.type": TYPE,
            **{f"transforms.u.{name.replace('__', '.')}": value for name, value in options.items()},
        }
    ).apply(record)


DELETE = event({"id": 1, "name": "x"}, None, "d")


@pytest.mark.parametrize(
    ("options", "deleted", "keeps_tombstone"),
    [
        ({}, "null", False),
        ({"delete__tombstone__handling__mode": "drop"}, "dropped", False),
        ({"delete__tombstone__handling__mode": " Tombstone "}, "null", False),
        ({"delete__tombstone__handling__mode": "delete-to-tombstone"}, "tombstone", False),
        ({"delete__tombstone__handling__mode": "rewrite"}, "rewritten", False),
        ({"delete__tombstone__handling__mode": "rewrite-with-tombstone"}, "rewritten", True),
        ({"drop__tombstones": "false"}, "dropped", True),
        ({"drop__tombstones": "true", "delete__handling__mode": "none"}, "null", False),
        ({"delete__handling__mode": "rewrite"}, "rewritten", False),
        ({"drop__tombstones": "false", "delete__handling__mode": "rewrite"}, "rewritten", True),
        # The option of today wins over those of Debezium before 3.2.
        (
            {
                "delete__tombstone__handling__mode": "drop",
                "drop__tombstones": "false",
                "delete__handling__mode": "none",
            },
            "dropped",
            False,
        ),
    ],
)
def test_deletions_and_tombstones(options: dict[str, str], deleted: str, keeps_tombstone: bool) -> None:
    result = unwrap(DELETE, **options)
    if deleted == "dropped":
        assert result is None
    else:
        assert result is not None
        if deleted == "rewritten":
            assert result.value == {"id": 1, "name": "x", "__deleted": "true"}
        else:
            assert result.value is None
            assert result.value_schema == (ROW if deleted == "null" else None)
    tombstone_record = tombstone()
    assert unwrap(tombstone_record, **options) is (tombstone_record if keeps_tombstone else None)
    created = unwrap(event(None, {"id": 2}, "c"), **options)
    assert created is not None
    assert created.value == ({"id": 2, "__deleted": "false"} if deleted == "rewritten" else {"id": 2})


def test_truncation_is_dropped_and_other_records_pass() -> None:
    assert unwrap(event(None, None, "t")) is None
    for other in (
        SourceRecord({}, {}, "t", {"a": 1}),
        SourceRecord({}, {}, "t", "text", types.STRING),
        SourceRecord({}, {}, "t", {"a": 1}, struct("heartbeat", {"a": types.INT64})),
    ):
        assert unwrap(other, add__headers="op") is other


def test_fields_and_headers_of_the_event() -> None:
    result = unwrap(
        event(None, {"id": 2}, "c", headers=(Header("own", 1),)),
        add__headers="ts_ms",
        add__headers__prefix="x.",
        add__fields="op,table,source.ts_ms:changed,nothing",
    )
    assert result is not None
    assert result.value == {"id": 2, "__op": "c", "__table": "t", "__changed": 5}
    assert result.value_schema == struct(
        "s.t.Value",
        {
            "id": types.INT64,
            "name": types.OPTIONAL_STRING,
            "__op": types.OPTIONAL_STRING,
            "__table": types.OPTIONAL_STRING,
            "__changed": types.OPTIONAL_INT64,
        },
    )
    assert result.headers == (Header("own", 1), Header("x.ts_ms", 6, types.OPTIONAL_INT64))


def test_tombstone_gets_the_operation_as_its_header() -> None:
    result = unwrap(tombstone(), delete__tombstone__handling__mode="rewrite-with-tombstone", add__headers="op,table")
    assert result is not None
    assert result.headers == (Header("__op", "d", types.STRING),)


def test_field_of_any_block_can_be_added() -> None:
    result = unwrap(event({"id": 1}, {"id": 2}, "u"), add__fields="before.id:previous_id")
    assert result is not None
    assert result.value == {"id": 2, "__previous_id": 1}


def test_event_without_the_block_is_refused_with_its_name() -> None:
    with pytest.raises(TransformError, match="has no block 'transaction'"):
        unwrap(event(None, {"id": 2}, "c"), add__fields="transaction.id")


def test_event_without_a_row_is_refused() -> None:
    bare = struct("x.Envelope", {"before": ROW, "op": types.STRING})
    with pytest.raises(TransformError, match="Unknown field: after"):
        unwrap(SourceRecord({}, {}, "t", {"op": "c"}, bare))


def test_route_by_field() -> None:
    for changed in (event(None, {"id": 1, "name": "elsewhere"}, "c"), event({"id": 1, "name": "elsewhere"}, None, "d")):
        result = unwrap(changed, route__by__field="name")
        assert result is not None
        assert result.topic == "elsewhere"
    for name in (None, "", " "):
        result = unwrap(event(None, {"id": 1, "name": name}, "c"), route__by__field="name")
        assert result is not None
        assert result.topic == "s.t"
    with pytest.raises(TransformError, match="Field 'id' is not of type STRING"):
        unwrap(event(None, {"id": 1}, "c"), route__by__field="id")


def test_dropped_fields() -> None:
    names = Header("drop", ["name", "id"])
    result = unwrap(event(None, {"id": 1, "name": "x"}, "c", headers=(names,)), drop__fields__header__name="drop")
    assert result is not None
    assert (result.value, result.key) == ({"id": 1}, {"id": 1})  # id is required: readers of the older schema need it
    result = unwrap(
        event(None, {"id": 1, "name": "x"}, "c", headers=(names,)),
        drop__fields__header__name="drop",
        drop__fields__keep__schema__compatible="false",
        drop__fields__from__key="true",
        add__fields="op",
    )
    assert result is not None
    assert (result.value, result.key) == ({"__op": "c"}, {})
    with pytest.raises(TransformError, match="must hold a list of field names"):
        unwrap(event(None, {"id": 1}, "c", headers=(Header("drop", "name"),)), drop__fields__header__name="drop")


def test_tombstone_without_schema_survives_dropped_fields() -> None:
    changed = event({"id": 1}, None, "d", headers=(Header("drop", ["id"]),))
    result = unwrap(
        changed,
        delete__tombstone__handling__mode="delete-to-tombstone",
        drop__fields__header__name="drop",
        drop__fields__from__key="true",
        drop__fields__keep__schema__compatible="false",
    )
    assert result is not None
    assert (result.value, result.value_schema, result.key) == (None, None, {})


def test_null_in_a_required_field_with_default() -> None:
    row = struct("r", {"a": Schema(Type.INT32, default=7)}, optional=True)
    schema = struct("r.Envelope", {"before": row, "after": row, "op": types.STRING})
    changed = SourceRecord({}, {}, "t", {"before": None, "after": {}, "op": "c"}, schema)
    with pytest.raises(TransformError, match='null used for required field: "a", schema type: INT32'):
        unwrap(changed)
    result = unwrap(changed, delete__tombstone__handling__mode="rewrite")
    assert result is not None
    assert result.value == {"a": 7, "__deleted": "false"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delete__tombstone__handling__mode": "maybe"}, "must be one of: drop, tombstone"),
        ({"delete__handling__mode": "maybe"}, "must be one of: drop, rewrite, none"),
        ({"add__fields": "a:b:c"}, "Unexpected field name: a:b:c"),
    ],
)
def test_wrong_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigInvalid, match=message):
        unwrap(DELETE, **options)


def test_schemas_are_compiled_once_and_shared() -> None:
    pipeline = build_pipeline({"transforms": "u", "transforms.u.type": TYPE})
    fresh = struct("s.t.Envelope", {field.name: field.schema for field in ENVELOPE.fields})
    results = [pipeline.apply(event(None, {"id": 1}, "c", schema)) for schema in (ENVELOPE, ENVELOPE, fresh)]
    schemas = {id(result.value_schema) for result in results if result is not None}
    assert len(results) == 3
    assert len(schemas) == 1, "equal schemas must give one object, or every converter compiles again"
