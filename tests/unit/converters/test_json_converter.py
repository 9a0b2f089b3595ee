"""JsonConverter: round trips, the fast way against the slow one, errors that name the place, the cache."""

from __future__ import annotations

import enum
import json
from collections import OrderedDict
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings

from connectors.errors import ConfigInvalid, Skippable
from connectors.schema import (
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
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
)
from tests.unit.converters.strategies import cases
from worker.converters.json import JsonConverter
from worker.converters.json_form.text import JsonSettings, value_text

PLAIN = JsonConverter({"schemas.enable": "false"})
ENVELOPE = JsonConverter({"schemas.enable": "true"})
ORDER = struct(
    "shop.Order",
    {
        "id": INT64,
        "lines": array(struct("shop.Line", {"sku": STRING, "count": INT16})),
        "tags": map_of(STRING, INT32),
        "note": OPTIONAL_STRING,
    },
)
VALUE = {"id": 1, "lines": [{"sku": "a", "count": 2}], "tags": {"x": 1}, "note": None}


@given(cases())
@settings(max_examples=400, deadline=None)
def test_what_is_written_with_its_schema_reads_back(case: tuple[Schema, Any]) -> None:
    schema, value = case
    data = ENVELOPE.from_connect("topic", schema, value)
    assert ENVELOPE.to_connect("topic", data) == (schema, value)


@given(cases())
@settings(max_examples=400, deadline=None)
def test_fast_and_slow_ways_write_the_same(case: tuple[Schema, Any]) -> None:
    schema, value = case
    assert PLAIN.from_connect("topic", schema, value) == value_text(schema, value, JsonSettings()).encode()


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"id": "1"}, "id"),
        ({"id": True}, "id"),
        ({"id": 1.0}, "id"),
        ({"lines": [{"sku": "a", "count": 2}, {"sku": b"a", "count": 2}]}, "lines[1].sku"),
        ({"tags": {"x": "1"}}, 'tags["x"]'),
        ({"tags": {1: 1}}, "a key of tags"),
        ({"note": 5}, "note"),
        ({"lines": {}}, "lines"),
    ],
)
def test_a_wrong_type_is_reported_with_its_path_and_types(change: dict[str, Any], path: str) -> None:
    with pytest.raises(Skippable) as caught:
        PLAIN.from_connect("topic", ORDER, {**VALUE, **change})
    assert path in str(caught.value)
    assert "its schema says" in str(caught.value)


def test_a_value_is_never_repeated_in_an_error() -> None:
    with pytest.raises(Skippable) as caught:
        PLAIN.from_connect("topic", struct(None, {"password": INT32}), {"password": "hunter2"})
    assert "hunter2" not in str(caught.value)
    assert "str" in str(caught.value)
    assert "int32" in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "number"), [(INT8, 128), (INT16, -32769), (INT32, 2**31), (INT64, 2**63), (INT64, 2**64)]
)
def test_a_number_that_does_not_fit_is_refused(schema: Schema, number: int) -> None:
    with pytest.raises(Skippable, match="does not fit"):
        PLAIN.from_connect("topic", schema, number)
    with pytest.raises(Skippable, match=r"f\.n: the number does not fit"):
        PLAIN.from_connect("topic", struct(None, {"f": struct(None, {"n": schema})}), {"f": {"n": number}})


def test_a_missing_required_field_is_refused_and_an_optional_one_is_null() -> None:
    with pytest.raises(Skippable, match=r"null value for lines\[0\]\.sku"):
        PLAIN.from_connect("topic", ORDER, {**VALUE, "lines": [{"count": 1}]})
    without = {name: value for name, value in VALUE.items() if name != "note"}
    assert PLAIN.from_connect("topic", ORDER, without) == PLAIN.from_connect("topic", ORDER, VALUE)


def test_a_field_that_the_schema_lacks_is_refused() -> None:
    with pytest.raises(Skippable, match="extra: the struct's schema has no such field"):
        PLAIN.from_connect("topic", ORDER, {**VALUE, "extra": 1})


def test_fields_come_in_the_order_of_the_schema() -> None:
    backwards = dict(reversed(VALUE.items()))
    assert list(json.loads(PLAIN.from_connect("topic", ORDER, backwards) or b"")) == ["id", "lines", "tags", "note"]


def test_defaults_stand_for_null_only_if_wanted() -> None:
    schema = struct(None, {"n": Schema(Type.INT32, optional=True, default=7)})
    assert PLAIN.from_connect("topic", schema, {}) == b'{"n":7}'
    keeping = JsonConverter({"schemas.enable": "false", "replace.null.with.default": "false"})
    assert keeping.from_connect("topic", schema, {}) == b'{"n":null}'
    required = struct(None, {"n": Schema(Type.INT32, default=7)})
    with pytest.raises(Skippable, match="null value for n"):
        keeping.from_connect("topic", required, {"n": None})


def test_a_whole_that_may_be_null_is_written_as_one_that_may_not() -> None:
    optional = replace(ORDER, optional=True)
    assert PLAIN.from_connect("topic", optional, VALUE) == PLAIN.from_connect("topic", ORDER, VALUE)
    assert PLAIN.from_connect("topic", optional, None) == b"null"
    with pytest.raises(Skippable, match=r"null value for lines\[0\]\.sku"):
        PLAIN.from_connect("topic", optional, {**VALUE, "lines": [{"count": 1}]})
    assert PLAIN.from_connect("topic", Schema(Type.INT32, default=7), None) == b"7"
    with pytest.raises(Skippable):
        PLAIN.from_connect("topic", ORDER, None)


def test_tombstones_and_nulls() -> None:
    assert ENVELOPE.from_connect("topic", None, None) is None
    assert PLAIN.from_connect("topic", None, None) is None
    assert PLAIN.from_connect("topic", OPTIONAL_STRING, None) == b"null"
    assert ENVELOPE.to_connect("topic", None) == (None, None)
    with pytest.raises(Skippable, match="null value"):
        PLAIN.from_connect("topic", STRING, None)


def test_subclasses_of_the_basic_types_are_values_too() -> None:
    class Kind(enum.IntEnum):
        FIRST = 1

    class Text(str):
        __slots__ = ()

    schema = struct(None, {"a": INT32, "b": STRING})
    assert PLAIN.from_connect("topic", schema, OrderedDict(a=Kind.FIRST, b=Text("x"))) == b'{"a":1,"b":"x"}'
    assert PLAIN.from_connect("topic", None, {"a": Kind.FIRST, "b": Text("x")}) == b'{"a":1,"b":"x"}'
    assert PLAIN.from_connect("topic", STRING, Text("x")) == b'"x"'


def test_an_int_is_a_float_as_in_python_itself() -> None:
    assert PLAIN.from_connect("topic", FLOAT64, 3) == b"3.0"
    assert PLAIN.from_connect("topic", FLOAT32, 10**8) == b"1.0E8"
    with pytest.raises(Skippable, match="does not fit"):
        PLAIN.from_connect("topic", FLOAT32, 1e39)


def test_decimals_are_padded_but_never_rounded() -> None:
    assert PLAIN.from_connect("topic", decimal(2), Decimal("1.5")) == PLAIN.from_connect(
        "topic", decimal(2), Decimal("1.50")
    )
    with pytest.raises(Skippable, match="more than 2 digits after the point"):
        PLAIN.from_connect("topic", decimal(2), Decimal("1.555"))
    for wrong in (Decimal("NaN"), Decimal("1E+999999999")):
        with pytest.raises(Skippable):
            PLAIN.from_connect("topic", decimal(2), wrong)


def test_schemaless_data_has_no_decimals_and_no_integers_beyond_64_bits() -> None:
    for wrong in (Decimal(1), 2**63, {"a": [object()]}, {"a": 2**64}):
        with pytest.raises(Skippable):
            PLAIN.from_connect("topic", None, wrong)


def test_nesting_without_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(Skippable, match="nested"):
        PLAIN.from_connect("topic", None, endless)


def test_one_encoder_per_schema_by_identity_and_by_content() -> None:
    converter = JsonConverter({})
    encoder = converter.encoder("a", ORDER)
    assert converter.encoder("b", ORDER) is encoder
    assert converter.encoder("a", replace(ORDER)) is encoder
    assert converter.encoder("a", replace(ORDER, version=2)) is not encoder


def test_the_cache_is_bounded_and_forgets_the_oldest() -> None:
    converter = JsonConverter({"schemas.cache.size": "2"})
    first = converter.encoder("t", ORDER)
    for number in range(20):
        assert converter.encoder("t", struct(None, {f"f{number}": INT32}))({f"f{number}": 1}) is not None
    assert converter.encoder("t", ORDER) is not first


def test_floats_read_back_even_where_json_has_none() -> None:
    schema = struct(None, {"x": FLOAT64})
    data = ENVELOPE.from_connect("t", schema, {"x": float("-inf")})
    assert ENVELOPE.to_connect("t", data)[1] == {"x": float("-inf")}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[1,",
        b'{"schema":1}',
        b"\xff",
        b'{"schema":{"type":"int8"},"payload":300}',
        b'{"schema":{"type":"int8"},"payload":"1"}',
        b'{"schema":{"type":"string"},"payload":1}',
    ],
)
def test_what_is_not_a_message_is_refused(data: bytes) -> None:
    with pytest.raises(Skippable):
        ENVELOPE.to_connect("topic", data)


def test_numeric_decimals_keep_their_digits() -> None:
    numeric = JsonConverter({"decimal.format": "NUMERIC"})
    value = Decimal("12345678901234567890.12")
    data = numeric.from_connect("t", decimal(2), value)
    assert data is not None
    assert data.endswith(b'"payload":12345678901234567890.12}')
    assert numeric.to_connect("t", data)[1] == value


@pytest.mark.parametrize("size", ["0", "-1"])
def test_any_number_of_schemas_may_be_kept(size: str) -> None:
    """As in Kafka Connect, where configurations with these numbers run."""
    converter = JsonConverter({"schemas.cache.size": size})
    for scale in (1, 2, 1):
        data = converter.from_connect("t", decimal(scale), Decimal(5).scaleb(-scale))
        assert converter.to_connect("t", data)[1] == Decimal(5).scaleb(-scale)


@pytest.mark.parametrize(
    "option", [{"schemas.enable": "maybe"}, {"decimal.format": "HEX"}, {"schemas.cache.size": "x"}]
)
def test_wrong_options_are_refused(option: dict[str, str]) -> None:
    with pytest.raises(ConfigInvalid, match=next(iter(option))):
        JsonConverter(option)
