"""UMS messages: namespaces, keys, signals, times, and CQL values as strings."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.cql.types import CqlType, parse_type
from connectors.formats import ums
from connectors.formats.ums_cql import text_of, time_text, ums_type
from worker.converters.json import JsonConverter

NAMESPACE = ums.Namespace("mysql", "db01", "shop", "orders", "3")


def test_namespaces() -> None:
    assert NAMESPACE.text == "mysql.db01.shop.orders.3.0.0"
    assert ums.Namespace.parse(NAMESPACE.text) == NAMESPACE
    assert NAMESPACE.matches(ums.Namespace.parse("mysql.*.shop.orders.*.*.*"))
    assert not NAMESPACE.matches(ums.Namespace.parse("mysql.*.shop.customers.*.*.*"))
    assert ums.Namespace("scylla", "a.b", "k", "t").text.count(".") == 6
    with pytest.raises(ValueError, match="seven parts"):
        ums.Namespace.parse("mysql.db01.shop.orders")


def test_keys() -> None:
    assert ums.kafka_key(ums.INITIAL, NAMESPACE.text) == "data_initial_data.mysql.db01.shop.orders.3.0.0"
    assert ums.kafka_key(ums.INCREMENT, NAMESPACE.text, "7") == "data_increment_data.mysql.db01.shop.orders.3.0.0...7"


def test_signals() -> None:
    value = ums.make_signal(ums.INCREMENT_HEARTBEAT, NAMESPACE.text, 1_000_001)
    data = JsonConverter({"schemas.enable": "false"}).encoder("t", ums.MESSAGE)(value)
    assert json.loads(data or b"") == {
        "protocol": {"type": "data_increment_heartbeat", "version": "1.3", "part": None},
        "schema": {
            "namespace": NAMESPACE.text,
            "fields": [{"name": "ums_ts_", "type": "datetime", "nullable": False}],
            "batchId": 0,
        },
        "payload": [{"tuple": ["1970-01-01 00:00:01.000001"]}],
    }
    assert ums.make_signal(ums.BATCH_TERMINATION, "n", 0, batch=7, part="1/2") == {
        "protocol": {"type": "data_batch_termination", "version": "1.3", "part": "1/2"},
        "schema": {"namespace": "n", "fields": [ums.SYSTEM_FIELDS[1]], "batchId": 7},
        "payload": [{"tuple": ["1970-01-01 00:00:00.000000"]}],
    }


def test_unknown_types_are_refused() -> None:
    with pytest.raises(ValueError, match="UMS has no type"):
        ums.make_field("a", "varchar")


@given(st.dates())
def test_dates(day: dt.date) -> None:
    assert ums.date_text((day - dt.date(1970, 1, 1)).days) == day.isoformat()


@given(st.datetimes())
def test_datetimes(moment: dt.datetime) -> None:
    micros = (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)  # noqa: DTZ001 - both are naive
    assert ums.datetime_text(micros) == moment.isoformat(" ", "microseconds")


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (-719_529, "-0001-12-31"),
        (-719_528, "0000-01-01"),
        (2_932_897, "10000-01-01"),
        (-(1 << 31), "-5877641-06-23"),
        ((1 << 31) - 1, "5881580-07-11"),
    ],
)
def test_dates_beyond_four_digits(days: int, text: str) -> None:
    assert ums.date_text(days) == text


@pytest.mark.parametrize(
    ("kind", "type_", "value", "text"),
    [
        ("int", "int", -5, "-5"),
        ("bigint", "long", 1 << 62, str(1 << 62)),
        ("boolean", "boolean", True, "true"),
        ("varint", "decimal", "123", "123"),
        ("decimal", "decimal", "1E+3", "1E+3"),
        ("blob", "binary", b"\x00", "AA=="),
        ("date", "date", 0, "1970-01-01"),
        ("timestamp", "datetime", -1, "1969-12-31 23:59:59.999000"),
        ("time", "string", 3_723_000_000_007, "01:02:03.000000007"),
        ("float", "float", struct.unpack("<f", b"\xcd\xcc\xcc=")[0], "0.1"),
        ("double", "double", 0.1, "0.1"),
        ("double", "double", -math.inf, "-Infinity"),
        ("text", "string", "x", "x"),
        ("uuid", "string", "a", "a"),
        ("list<date>", "string", [0], '["1970-01-01"]'),
        ("set<text>", "string", ["a"], '["a"]'),
        ("map<int, blob>", "string", [{"key": 1, "value": b"\x00"}], '[{"key":1,"value":"AA=="}]'),
        ("tuple<int, double>", "string", {"field_0": 1, "field_1": math.nan}, '{"field_0":1,"field_1":"NaN"}'),
        ("vector<float, 2>", "string", [struct.unpack("<f", b"\xcd\xcc\xcc=")[0], 1.0], "[0.1,1.0]"),
        ("list<frozen<list<timestamp>>>", "string", [[0], None], '[["1970-01-01 00:00:00.000000"],null]'),
    ],
)
def test_cql_values(kind: str, type_: str, value: Any, text: str) -> None:
    cql_type = parse_type(kind)
    assert ums_type(cql_type) == type_
    assert text_of(cql_type)(value) == text


def test_udt() -> None:
    kind = CqlType("udt", (parse_type("text"), parse_type("blob")), field_names=("a", "b c"))
    assert text_of(kind)({"a": "x", "b c": b""}) == '{"a":"x","b c":""}'


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats_read_back(value: float) -> None:
    assert struct.pack("<f", float(text_of(parse_type("float"))(value))) == struct.pack("<f", value)


def test_time_text() -> None:
    assert time_text(86_399_999_999_999) == "23:59:59.999999999"
