"""InsertField, ReplaceField, MaskField, RegexRouter, Filter: what the comparison with Java can't show."""

from __future__ import annotations

from copy import deepcopy
from decimal import Decimal
from typing import Any

import pytest

from connectors import schema as types
from connectors.api import Header, SourceRecord
from connectors.errors import ConfigInvalid
from connectors.schema import Schema, Type, struct
from worker.transforms.pipeline import TransformError, build_pipeline

KAFKA = "org.apache.kafka.connect.transforms."


def record(value: Any = None, schema: Schema | None = None, **more: Any) -> SourceRecord:
    return SourceRecord({"file": "f"}, {"position": 1}, more.pop("topic", "t"), value, schema, **more)


def run(kind: str, record: SourceRecord, **options: str) -> SourceRecord | None:
    name = kind if "." in kind else KAFKA + kind
    config = {
        "transforms": "x",
        "transforms.x.type": name,
        **{f"transforms.x.{option.replace('__', '.')}": value for option, value in options.items()},
    }
    before = deepcopy((record.value, record.key, record.headers, record.topic))
    result = build_pipeline(config).apply(record)
    assert (record.value, record.key, record.headers, record.topic) == before, "the record that came in was changed"
    return result


def value_of(result: SourceRecord | None) -> Any:
    assert result is not None
    return result.value


USER = struct("User", {"id": types.INT64, "name": types.OPTIONAL_STRING}, optional=True, version=2, doc="people")


def test_insert_field_adds_to_a_struct_and_keeps_the_rest_of_the_record() -> None:
    header = Header("h", 1)
    before = record({"id": 1}, USER, key="k", key_schema=types.STRING, partition=7, timestamp=99, headers=(header,))
    after = run(
        "InsertField$Value",
        before,
        topic__field="topic!",
        partition__field="p",
        timestamp__field="at",
        static__field="s?",
        static__value="v",
    )
    assert after is not None
    assert after.value == {"id": 1, "topic": "t", "p": 7, "at": 99, "s": "v"}
    assert after.value_schema == struct(
        "User",
        {
            "id": types.INT64,
            "name": types.OPTIONAL_STRING,
            "topic": types.STRING,
            "p": types.OPTIONAL_INT32,
            "at": types.timestamp(optional=True),
            "s": types.OPTIONAL_STRING,
        },
        version=2,
        doc="people",
    )
    assert (after.key, after.key_schema, after.headers) == ("k", types.STRING, (header,))
    assert (after.partition, after.timestamp) == (7, 99)
    assert after.source_offset is before.source_offset


def test_insert_field_works_on_keys_and_passes_nulls() -> None:
    after = run("InsertField$Key", record(key={"id": 1}, value="v"), static__field="s", static__value="x")
    assert after is not None
    assert (after.key, after.value) == ({"id": 1, "s": "x"}, "v")
    tombstone = record(None)
    assert run("InsertField$Value", tombstone, static__field="s", static__value="x") is tombstone


def test_insert_field_leaves_null_partition_and_timestamp_out() -> None:
    assert value_of(run("InsertField$Value", record({}), partition__field="p", timestamp__field="t")) == {}


def test_default_in_the_place_of_null_is_an_option() -> None:
    schema = struct("r", {"a": Schema(Type.INT32, optional=True, default=5), "b": Schema(Type.INT32, default=6)})
    assert value_of(run("InsertField$Value", record({"b": 1}, schema), topic__field="x")) == {"a": 5, "b": 1, "x": "t"}
    kept = run("InsertField$Value", record({"b": 1}, schema), topic__field="x", replace__null__with__default="false")
    assert value_of(kept) == {"b": 1, "x": "t"}
    for transform, options in (
        ("InsertField", {"topic__field": "x"}),
        ("ReplaceField", {"exclude": "x"}),
        ("MaskField", {"fields": "a"}),
    ):
        with pytest.raises(TransformError, match='null used for required field: "b", schema type: INT32'):
            run(f"{transform}$Value", record({"a": 1}, schema), replace__null__with__default="false", **options)


def test_insert_field_refuses_the_offset_of_a_source_record() -> None:
    with pytest.raises(TransformError, match="Only SinkRecord supported"):
        run("InsertField$Value", record({}), offset__field="o")


@pytest.mark.parametrize(
    ("options", "message"),
    [({}, "No field insertion configured"), ({"static__field": "s"}, "No value specified for static field: s")],
)
def test_insert_field_needs_something_to_insert(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigInvalid, match=message):
        run("InsertField$Value", record({}), **options)


def test_replace_field_understands_the_names_of_older_kafka() -> None:
    assert value_of(run("ReplaceField$Value", record({"a": 1, "b": 2, "c": 3}), whitelist="a,b", blacklist="b")) == {
        "a": 1
    }


def test_rename_of_a_field_that_is_not_there_has_no_effect() -> None:
    schema = struct("r", {"id": types.INT64})
    after = run("ReplaceField$Value", record({"id": 4}, schema), renames="missing:id")
    assert value_of(after) == {"id": 4}
    excluded = struct("r", {"a": types.STRING, "b": types.INT64})
    after = run("ReplaceField$Value", record({"a": "x", "b": 2}, excluded), exclude="a", renames="a:b")
    assert value_of(after) == {"b": 2}


def test_two_fields_of_one_name_are_refused() -> None:
    schema = struct("r", {"a": types.INT64, "b": types.INT64})
    with pytest.raises(TransformError, match="field name duplication b"):
        run("ReplaceField$Value", record({"a": 1, "b": 2}, schema), renames="a:b")


def test_masked_decimal_has_the_scale_of_its_schema() -> None:
    schema = struct("r", {"amount": types.decimal(2)})
    masked = value_of(run("MaskField$Value", record({"amount": Decimal("12.34")}, schema), fields="amount"))["amount"]
    assert (masked, masked.as_tuple().exponent) == (0, -2)
    replaced = value_of(
        run("MaskField$Value", record({"amount": Decimal(1)}, schema), fields="amount", replacement="7.5")
    )
    assert str(replaced["amount"]) == "7.50"
    with pytest.raises(TransformError, match="more digits after the point than the field's scale of 2"):
        run("MaskField$Value", record({"amount": Decimal(1)}, schema), fields="amount", replacement="0.123")


def test_masked_containers_are_fresh() -> None:
    config = {"transforms": "x", "transforms.x.type": KAFKA + "MaskField$Value", "transforms.x.fields": "l"}
    pipeline = build_pipeline(config)
    schema = struct("r", {"l": types.array(types.STRING)})
    first, second = (value_of(pipeline.apply(record({"l": ["a"]}, schema)))["l"] for _ in range(2))
    assert first == second == []
    assert first is not second


def test_mask_field_cuts_numbers_as_java_does() -> None:
    schema = struct("r", {"b": types.INT8, "i": types.INT32, "l": types.INT64, "f": types.FLOAT32})
    before = record({"b": 1, "i": 1, "l": 1, "f": 1.0}, schema)
    after = value_of(run("MaskField$Value", before, fields="b,i,l,f", replacement="4294967552.9"))
    assert after == {"b": 0, "i": 256, "l": 4294967552, "f": 4294967808.0}
    assert value_of(run("MaskField$Value", record({"f": 1.0}, schema), fields="f", replacement="0.1"))["f"] != 0.1


def test_regex_router_replaces_the_first_match_only() -> None:
    after = run("RegexRouter", record(topic="ab"), regex="a|ab", replacement="x")
    assert after is not None
    assert after.topic == "xb"
    same = record(topic="other")
    assert run("RegexRouter", same, regex="a.*", replacement="x") is same


def test_regex_router_refuses_unknown_groups_when_it_is_configured() -> None:
    with pytest.raises(ConfigInvalid, match="No group 2"):
        run("RegexRouter", record(), regex="(a)", replacement="$2")


def test_regex_router_stays_right_beyond_its_memory_of_topics() -> None:
    pipeline = build_pipeline(
        {
            "transforms": "x",
            "transforms.x.type": KAFKA + "RegexRouter",
            "transforms.x.regex": "t-(.*)",
            "transforms.x.replacement": "u-$1",
        }
    )
    for number in [*range(10_000), 0, 9_999]:
        routed = pipeline.apply(record(topic=f"t-{number}"))
        assert routed is not None
        assert routed.topic == f"u-{number}"


def test_filter_drops() -> None:
    assert run("Filter", record({})) is None
