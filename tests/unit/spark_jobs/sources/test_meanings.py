"""Meanings of columns beyond their Spark types, and decimals whose scale varies, in JSON."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from connectors.cql.types import CqlType
from connectors.errors import Skippable
from connectors.formats.cql_schema import typed_schema
from connectors.formats.masks.masking import DEBEZIUM_MASKED
from connectors.schema import INT32, STRING, Schema, Type, array, struct
from spark_jobs.contract import LOCAL_TIMESTAMP, NUMBER, TIME, UUID, ZONED_TIME, Column
from spark_jobs.sources.avro.expressions import connect_schema
from spark_jobs.sources.records.columns import make_value_fixer
from spark_jobs.sources.tables import from_json, merge_schema, to_json
from spark_jobs.sources.types import VARIABLE, meaning_of, spark_type, with_variable_scale
from tests.unit.spark_jobs.sources.support import Table, envelope_schema, member, message
from worker.converters.avro_form.schema import AvroSettings, avro_text
from worker.converters.json import JsonConverter
from worker.converters.json_form.read import read_schema

VARIABLE_JSON: dict[str, Any] = {
    "type": "struct",
    "optional": True,
    "name": "io.debezium.data.VariableScaleDecimal",
    "version": 1,
    "fields": [
        {"type": "int32", "optional": False, "field": "scale"},
        {"type": "bytes", "optional": False, "field": "value"},
    ],
}
VARIABLE_SCHEMA = read_schema(VARIABLE_JSON, replace_null=True) or INT32
KEY = Column("id", t.LongType(), nullable=False, key=True)
numbers = st.builds(
    lambda number, scale: (number, scale),
    st.integers(-(10**40), 10**40) | st.integers(-300, 300),
    st.integers(-45, 45) | st.sampled_from([-(2**31), 2**31 - 1, 10_001]),
)


def unscaled(number: int) -> bytes:
    return number.to_bytes((~number if number < 0 else number).bit_length() // 8 + 1, "big", signed=True)


@pytest.mark.parametrize(
    ("schema", "meaning"),
    [
        (Schema(Type.STRING, name="io.debezium.data.Uuid"), UUID),
        (Schema(Type.INT64, name="io.debezium.time.NanoTime"), TIME),
        (Schema(Type.INT64, name="io.debezium.time.MicroTime"), TIME),
        (Schema(Type.INT32, name="io.debezium.time.Time"), TIME),
        (Schema(Type.INT32, name="org.apache.kafka.connect.data.Time"), TIME),
        (Schema(Type.STRING, name="io.debezium.time.ZonedTime"), ZONED_TIME),
        (Schema(Type.INT64, name="io.debezium.time.MicroTimestamp"), LOCAL_TIMESTAMP),
        (Schema(Type.INT64, name="org.apache.kafka.connect.data.Timestamp"), ""),
        (Schema(Type.STRING, name="io.debezium.time.ZonedTimestamp"), ""),
        (Schema(Type.BYTES, name="io.debezium.data.Uuid"), ""),
        (Schema(Type.INT32, name="io.debezium.time.NanoTime"), ""),
        (STRING, ""),
        (typed_schema(CqlType("timeuuid"), "x", optional=True), UUID),
        (typed_schema(CqlType("decimal"), "x", optional=False), NUMBER),
        (typed_schema(CqlType("varint"), "x", optional=False), NUMBER),
        (typed_schema(CqlType("time"), "x", optional=True), TIME),
        (typed_schema(CqlType("timestamp"), "x", optional=True), ""),
        (typed_schema(CqlType("text"), "x", optional=True), ""),
        (Schema(Type.STRING, name="io.debezium.data.Uuid", parameters=((DEBEZIUM_MASKED, "true"),)), ""),
        (VARIABLE_SCHEMA, NUMBER),
        (array(VARIABLE_SCHEMA), NUMBER),
    ],
)
def test_what_columns_mean(schema: Schema, meaning: str) -> None:
    assert meaning_of(schema) == meaning


def test_avro_uuids_have_their_meaning() -> None:
    text = {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "string", "logicalType": "uuid"}}]}
    schema = connect_schema(json.dumps(text))
    assert schema is not None
    assert meaning_of(schema.fields[0].schema) == UUID


@given(numbers, st.integers(0, 38))
def test_a_decimal_is_read_exactly_or_refused(number: tuple[int, int], scale: int) -> None:
    value, value_scale = number
    read = make_value_fixer(with_variable_scale(VARIABLE_SCHEMA, str(scale)), "Table t, column c")
    assert read is not None
    fits = value == 0 or (
        abs(value_scale) < 200
        and abs(value) * 10**200 % 10 ** (200 + value_scale - scale) == 0
        and abs(value) * 10**200 < 10 ** (200 + value_scale + 38 - scale)
    )
    given_value = {"scale": value_scale, "value": unscaled(value)}
    if fits:
        result = read(given_value)
        assert result == (Decimal(f"{value}E{-value_scale}") if value else 0)
        assert len(result.as_tuple().digits) <= 38
    else:
        with pytest.raises(
            Skippable, match=r"Table t, column c: the value .* does not fit decimal\(38,\d+\)\. Set source"
        ):
            read(given_value)


def test_values_that_do_not_fit_are_bad_records_with_their_column() -> None:
    schema = envelope_schema(
        [
            member("id", "int64"),
            {**VARIABLE_JSON, "field": "price"},
            member("fixed", "bytes", name="org.apache.kafka.connect.data.Decimal", parameters={"scale": "2"}),
        ]
    )

    def event(number: int, price: int, fixed: int) -> bytes:
        after = {
            "id": number,
            "price": {"scale": 1, "value": base64.b64encode(unscaled(price)).decode()},
            "fixed": base64.b64encode(unscaled(fixed)).decode(),
        }
        return message(schema, {"op": "c", "after": after, "before": None, "source": {"db": "d", "table": "t"}})

    table = Table(event(1, 1, 1))
    rows = table.rows([event(1, 15, 10**38 - 1), event(2, 10**30, 1), event(3, 5, 10**38), event(4, -1, -1)])
    assert [(row["id"], row["price"], row["fixed"]) for row in rows] == [
        (1, Decimal("1.5"), Decimal("9" * 36 + ".99")),
        (4, Decimal("-0.1"), Decimal("-0.01")),
    ]
    (first, price), (second, fixed) = table.reported
    assert (first, second) == (1, 2)
    assert price.startswith(
        "Table d.t, column price: the value 100000000000000000000000000000.0 does not fit decimal(38,18). Set"
    )
    assert fixed.startswith(
        "Table d.t, column fixed: the value 1000000000000000000000000000000000000.00 does not fit "
        "decimal(38,2), and Spark has no larger precision"
    )


def test_a_table_of_an_earlier_version_keeps_its_types() -> None:
    """Its checkpoint says text for such decimals, and nothing of what columns mean."""
    earlier = merge_schema(
        None,
        "d.t",
        [
            KEY,
            Column("price", t.StringType()),
            Column("prices", t.ArrayType(t.StringType())),
            Column("at", t.LongType()),
            Column("code", t.StringType()),
        ],
        "",
    )
    data = json.loads(to_json({"d.t": earlier}, {}))
    for column in data["tables"]["d.t"]["columns"]:
        del column["meaning"]
    earlier_tables, _ = from_json(json.dumps(data))
    now = [
        KEY,
        Column("price", spark_type(VARIABLE_SCHEMA), meaning=NUMBER),
        Column("prices", spark_type(array(VARIABLE_SCHEMA)), meaning=NUMBER),
        Column("at", t.LongType(), meaning=TIME),
        Column("code", t.StringType(), meaning=UUID),
    ]
    schema = merge_schema(earlier_tables["d.t"], "d.t", now, "")
    assert [(column.type.simpleString(), column.meaning) for column in schema.columns] == [
        ("bigint", ""),
        ("string", NUMBER),
        ("array<string>", NUMBER),
        ("bigint", TIME),
        ("string", UUID),
    ]
    assert merge_schema(schema, "d.t", now, "") is schema
    assert from_json(to_json({"d.t": schema}, {}))[0]["d.t"] == schema


@pytest.mark.parametrize(("parameter", "kind"), [("text", "string"), ("0", "decimal(38,0)"), ("38", "decimal(38,38)")])
def test_the_option_says_what_columns_become(parameter: str, kind: str) -> None:
    marked = with_variable_scale(array(VARIABLE_SCHEMA), parameter)
    assert marked.value_schema is not None
    assert marked.value_schema.parameter(VARIABLE) == parameter
    assert spark_type(marked).simpleString() == f"array<{kind}>"
    assert with_variable_scale(INT32, parameter) == INT32


@pytest.mark.parametrize("kind", ["uuid", "decimal", "varint", "time"])
def test_cql_types_are_known_after_both_converters(kind: str) -> None:
    schema = struct("r", {"a": typed_schema(CqlType(kind), "x", optional=True)})
    expected = {"uuid": UUID, "time": TIME}.get(kind, NUMBER)
    through_avro = connect_schema(avro_text(schema, AvroSettings()))
    written = JsonConverter({"schemas.enable": "true"}).from_connect("t", schema, {"a": None})
    assert written is not None
    through_json = read_schema(json.loads(written)["schema"], replace_null=True)
    for read in (through_avro, through_json):
        assert read is not None
        assert meaning_of(read.fields[0].schema) == expected
