"""TimestampConverter and TimestampRouter."""

from __future__ import annotations

from typing import Any

import pytest

from connectors import schema as types
from connectors.api import SourceRecord
from connectors.errors import ConfigInvalid
from connectors.schema import Schema, Type, struct
from worker.transforms.pipeline import TransformError, TransformPipeline, build_pipeline

KAFKA = "org.apache.kafka.connect.transforms."
INSTANT = 1_700_000_000_123
PATTERN = "yyyy-MM-dd HH:mm:ss.SSS"
TEXT = "2023-11-14 22:13:20.123"


def pipeline(kind: str, **options: str) -> TransformPipeline:
    prefixed = {f"transforms.x.{name.rstrip('_').replace('__', '.')}": value for name, value in options.items()}
    return build_pipeline({"transforms": "x", "transforms.x.type": KAFKA + kind, **prefixed})


def convert(value: Any, schema: Schema | None, **options: str) -> SourceRecord:
    result = pipeline("TimestampConverter$Value", **options).apply(SourceRecord({}, {}, "t", value, schema))
    assert result is not None
    return result


@pytest.mark.parametrize(
    ("target", "precision", "expected", "schema"),
    [
        ("string", "milliseconds", TEXT, types.STRING),
        ("unix", "seconds", 1_700_000_000, types.INT64),
        ("unix", "microseconds", INSTANT * 1000, types.INT64),
        ("unix", "nanoseconds", INSTANT * 1_000_000, types.INT64),
        ("Date", "milliseconds", 19675, types.date()),
        ("Time", "milliseconds", 80_000_123, types.time()),
        ("Timestamp", "milliseconds", INSTANT, types.timestamp()),
    ],
)
def test_targets(target: str, precision: str, expected: Any, schema: Schema) -> None:
    options = {"target__type": target, "unix__precision": precision, "format": PATTERN}
    result = convert(INSTANT, types.timestamp(), **options)
    assert (result.value, result.value_schema) == (expected, schema)
    row = convert(
        {"ts": TEXT, "x": 1}, struct("r", {"ts": types.OPTIONAL_STRING, "x": types.INT8}), field="ts", **options
    )
    assert row.value == {"ts": expected, "x": 1}
    assert row.value_schema is not None
    assert [(field.name, field.schema.optional) for field in row.value_schema.fields] == [("ts", True), ("x", False)]


def test_numbers_are_cut_towards_zero_and_held_within_a_long() -> None:
    assert convert(-1500, types.timestamp(), target__type="unix", unix__precision="seconds").value == -1
    assert convert(-1500, types.INT64, target__type="Timestamp", unix__precision="microseconds").value == -1
    assert convert(1 << 62, types.INT64, target__type="Timestamp", unix__precision="seconds").value == (1 << 63) - 1
    assert (
        convert(1 << 62, types.timestamp(), target__type="unix", unix__precision="nanoseconds").value == (1 << 63) - 1
    )
    assert convert(-1, types.timestamp(), target__type="Date").value == -1
    assert convert(-1, types.timestamp(), target__type="Time").value == 86_399_999


def test_schemaless() -> None:
    assert convert(INSTANT, None, target__type="string", format=PATTERN).value == TEXT
    assert convert({"ts": TEXT}, None, field="ts", target__type="unix", format=PATTERN).value == {"ts": INSTANT}
    assert convert({"x": 1}, None, field="ts", target__type="unix").value == {"x": 1, "ts": None}
    assert convert(None, None, field="ts", target__type="unix").value is None


def test_nulls_and_defaults() -> None:
    schema = Schema(
        Type.STRUCT, optional=True, fields=(types.Field("ts", Schema(Type.INT64, optional=True, default=5000)),)
    )
    assert convert({"ts": None}, schema, field="ts", target__type="Timestamp").value == {"ts": 5000}
    kept = convert({"ts": None}, schema, field="ts", target__type="Timestamp", replace__null__with__default="false")
    assert kept.value == {"ts": None}
    assert convert(None, schema, field="ts", target__type="Timestamp").value is None
    assert convert(None, Schema(Type.INT64, optional=True), target__type="Date").value_schema == types.date(
        optional=True
    )
    other = convert({"ts": 1}, schema, field="gone", target__type="Date")
    assert (other.value, other.value_schema) == ({"ts": 1}, schema)


@pytest.mark.parametrize(
    ("value", "schema", "options", "text"),
    [
        (True, None, {}, "TimestampConverter does not support class java.lang.Boolean objects as timestamps"),
        (2.5, None, {}, "TimestampConverter does not support class java.lang.Double objects as timestamps"),
        ("x", None, {"format": "yyyy"}, "Could not parse timestamp: value (x) does not match pattern (yyyy)"),
        ("x", None, {}, "TimestampConverter requires format option"),
        (5, types.INT32, {}, "Schema Schema{INT32} does not correspond to a known timestamp type format"),
        ({}, struct("Row", {}), {}, "Schema Schema{Row:STRUCT} does not correspond"),
        ("x", types.STRING, {"field": "f"}, "Only Struct objects supported for [converting timestamp formats], found:"),
        (
            "x",
            None,
            {"field": "f"},
            "Only Map objects supported in absence of schema for [converting timestamp formats]",
        ),
        (5, None, {"target__type": "Date"}, "java.util.Date does not have corresponding schema type"),
    ],
)
def test_refused_records(value: Any, schema: Schema | None, options: dict[str, str], text: str) -> None:
    with pytest.raises(TransformError) as refusal:
        convert(value, schema, **{"target__type": "unix", **options})
    assert text in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"target__type": "string"}, "requires format option to be specified"),
        (
            {"target__type": "unix", "format": "bb"},
            "requires a SimpleDateFormat-compatible pattern for string timestamps: bb",
        ),
        ({"target__type": "unix", "format": "EEE"}, "can't be used to read strings"),
        ({"target__type": "date"}, "String must be one of"),
    ],
)
def test_refused_options(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigInvalid) as refusal:
        pipeline("TimestampConverter$Value", **options)
    assert text in str(refusal.value)
    assert pipeline("TimestampConverter$Value", target__type="string", format="EEE")


def routed(topic: str, timestamp: int | None, **options: str) -> str:
    result = pipeline("TimestampRouter", **options).apply(SourceRecord({}, {}, topic, timestamp=timestamp))
    assert result is not None
    return result.topic


def test_router() -> None:
    assert routed("a", INSTANT) == "a-20231114"
    assert routed("a", INSTANT, topic__format="${timestamp}/${topic}/${topic}", timestamp__format="HH") == "22/a/a"
    assert (
        routed("${timestamp}", INSTANT) == "20231114-20231114"
    )  # as in Connect the topic's text is looked through too
    with pytest.raises(TransformError, match="Timestamp missing on record: SourceRecord"):
        routed("a", None)
    with pytest.raises(ConfigInvalid, match=r"Invalid value YYYY for .*timestamp\.format: the pattern letter 'Y'"):
        pipeline("TimestampRouter", timestamp__format="YYYY")


def test_router_tells_the_units_of_its_pattern_apart() -> None:
    chain = pipeline("TimestampRouter", timestamp__format="HHmm")
    moments = [INSTANT, INSTANT + 60_000, INSTANT + 3_600_000, INSTANT - 1]
    results = [chain.apply(SourceRecord({}, {}, "t", timestamp=moment)) for moment in moments]
    assert [result and result.topic for result in results] == ["t-2213", "t-2214", "t-2313", "t-2213"]
