"""Templates and values of sinks of rows; bodies and answers of HTTP; guards of Redis."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from connectors.errors import Fatal
from spark_jobs.sinks.http.answers import Fate, of_records, of_status
from spark_jobs.sinks.http.body import body_of, check_body
from spark_jobs.sinks.http.config import Answers
from spark_jobs.sinks.redis.columns import guard_of
from spark_jobs.sinks.shared.http_requests import retry_after
from spark_jobs.sinks.shared.model import RowTable, SinkRow
from spark_jobs.sinks.shared.task import numbers_of_records
from spark_jobs.sinks.shared.templates import Template, Unfilled, template_validator
from spark_jobs.sinks.shared.values import NoText, json_of, text_of

TABLE = RowTable("mysql.main.shop.orders.3.0.0", ("a", "b", "c"), ("a", "b"))
TIME = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)


def row(**values: Any) -> SinkRow:
    return SinkRow({"a": None, "b": None, "c": None} | values, 7, TIME, "u", "uid", "topic", 2, 9, 1)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("${namespace}", "mysql.main.shop.orders"),
        ("${type}-${instance}:${database}/${table}", "mysql-main:shop/orders"),
        ("{${table}}:${key}", "{orders}:x%3Ay%25:1"),
        ("${column:c}@${topic}-${partition}-${offset}", "1.50@topic-2-9"),
        ("plain", "plain"),
    ],
)
def test_templates(template: str, name: str) -> None:
    assert Template(template).bind(TABLE)(row(a="x:y%", b=1, c=Decimal("1.50"))) == name


def test_keys_of_several_columns_stay_apart() -> None:
    key = Template("${key}").bind(TABLE)
    assert len({key(row(a=a, b=b)) for a, b in (("x:y", "z"), ("x", "y:z"), ("x%3Ay", "z"))}) == 3


def test_a_name_needs_a_value() -> None:
    with pytest.raises(Unfilled, match="the column b is null"):
        Template("${key}").bind(TABLE)(row(a="x"))
    with pytest.raises(NoText, match="not UTF-8"):
        Template("${column:c}").bind(TABLE)(row(c=b"\xff"))


def test_templates_are_checked() -> None:
    check = template_validator(rows=("key",), columns=True)
    assert check("o", "${table}:${key}:${column:a}") is None
    for wrong in ("", "${tabel}", "${offset}", "${column:}"):
        assert check("o", wrong)


def test_values() -> None:
    values = {
        "d": Decimal("1E+3"),
        "n": float("nan"),
        "i": [float("-inf")],
        "t": TIME,
        "b": b"\x00",
        "day": date(2026, 1, 2),
    }
    assert json.loads(json_of(values)) == {
        "d": 1000, "n": "NaN", "i": ["-Infinity"], "t": "2026-01-02T03:04:05.000006Z", "b": "AA==", "day": "2026-01-02",
    }  # fmt: skip
    assert json_of(Decimal("12345678901234567890123456789.120")) == b"12345678901234567890123456789.120"
    assert [text_of(value) for value in (True, Decimal("1E-7"), b"a", [1, None])] == [
        "true",
        "0.0000001",
        "a",
        "[1,null]",
    ]


def test_keys_of_maps_are_names_in_json() -> None:
    inner = {Decimal("1.50"): {b"\xff": [{date(2026, 1, 2): 1}]}, 1: None}
    assert json.loads(json_of({"m": inner})) == {"m": {"1.50": {"/w==": [{"2026-01-02": 1}]}, "1": None}}
    with pytest.raises(TypeError):
        json_of({"m": {("no", "name"): 1}})


def test_numbers_within_records() -> None:
    rows = pa.table({"kafka_topic_": ["t"] * 5, "kafka_partition_": [0, 0, 0, 1, 1], "kafka_offset_": [4, 5, 5, 5, 6]})
    first, last = numbers_of_records(rows.slice(0, 2), (None, 0))
    second, _ = numbers_of_records(rows.slice(2), last)
    assert first + second == [0, 0, 1, 0, 0]


def test_bodies() -> None:
    body = body_of('{"t": ${table}, "k": ${key}, "c": ${column:c}, "id": ${id}, "row": ${row}}', TABLE)
    document = json.loads(body(row(a="x", b='"', c=None)))
    assert document.pop("row")["ums_id_"] == 7
    assert document == {"t": "orders", "k": 'x:"', "c": None, "id": "mysql.main.shop.orders/topic-2-9-1"}
    assert check_body('{"a": ${row}}') is None
    assert "is not known" in str(check_body("${rows}"))
    assert "is not JSON" in str(check_body('{"a": "${row}}'))


ANSWERS = Answers(frozenset({503}), frozenset({422}), frozenset({409}), "a.items", "status", "error")


def test_statuses() -> None:
    fates = [of_status(status, "", ANSWERS, "POST x").fate for status in (200, 207, 409, 422, 503)]
    assert fates == [Fate.WRITTEN, Fate.WRITTEN, Fate.STALE, Fate.REFUSED, Fate.RETRY]
    with pytest.raises(Fatal, match=r"answers 401: no\. Correct sink\.http\.user"):
        of_status(401, "no", ANSWERS, "POST x")
    with pytest.raises(Fatal, match=r"answers 301\. Correct sink\.http\.url"):
        of_status(301, "", ANSWERS, "POST x")


def test_outcomes_of_records() -> None:
    content = {
        "a": {"items": [{"status": 201}, {"status": 422, "error": {"field": "x"}}, {"status": True}, {"status": 409}]}
    }
    verdicts = of_records(json.dumps(content).encode(), 4, ANSWERS, "x")
    assert [verdict.fate for verdict in verdicts] == [Fate.WRITTEN, Fate.REFUSED, Fate.WRITTEN, Fate.STALE]
    assert verdicts[1].reason == 'x answers 422: {"field":"x"}'
    for wrong in (b"", b"[]", b'{"a": {"items": [1]}}', b'{"a": {"items": [{}, {}, {}, {}]}}'):
        with pytest.raises(Fatal, match=r"sink\.http\.outcome\."):
            of_records(wrong, 4, ANSWERS, "x")


def test_pauses_that_are_asked_for() -> None:
    assert [retry_after(text) for text in (None, "", "soon", "7", "Thu, 01 Jan 1970 00:00:00 GMT")] == [0, 0, 0, 7, 0]
    assert retry_after("Fri, 01 Jan 2100 00:00:00 GMT") > 1e6


def test_guards_are_in_the_slot_of_their_key() -> None:
    assert [guard_of(key) for key in ("a:1", "{a}:1", "{}a")] == ["{a:1}:ums_id_", "{a}:1:ums_id_", "{{}a}:ums_id_"]
