"""The pure parts of previews: requests, the newest records, differences of steps, hidden values, printed tables."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from connectors.errors import ConfigInvalid
from spark_jobs.cli import main
from spark_jobs.contract import Column, TableSchema
from spark_jobs.flows.address import address_of
from spark_jobs.kafka.ranges import ExistingTopic
from spark_jobs.preview.caller_rows import by_table, check_columns
from spark_jobs.preview.command import read_rows_file
from spark_jobs.preview.limits import Cancelled, Limit
from spark_jobs.preview.records import Newest, PreviewRecord, compute_windows
from spark_jobs.preview.request import (
    MOST_ROWS,
    CallerRow,
    FlowPreviewRequest,
    from_message,
    preview_address,
    preview_settings,
    read_request,
    to_message,
)
from spark_jobs.preview.tables import format_cell, preview_lines
from spark_jobs.preview.trace import HIDDEN, Line, compare_rows, hide_values, json_value, reason_of
from worker.rest.shapes.flow_schemas import MOST_PREVIEW_ROWS

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = TableSchema(
    "shop.orders", (Column("id", t.LongType(), nullable=False, key=True), Column("name", t.StringType()))
)


# Requests.


def test_a_request_reaches_the_application_as_it_is() -> None:
    rows: list[dict[str, Any]] = [
        {"table": "orders", "row": {"id": 1, "name": None}},
        {"table": "orders", "op": "d", "row": {"id": 2}},
    ]
    request = read_request({"limit": 5, "rows": rows, "timeout_ms": 1500})
    assert request == FlowPreviewRequest(
        5, (CallerRow("orders", rows[0]["row"]), CallerRow("orders", {"id": 2}, "d")), 1.5
    )
    line = json.dumps(to_message(request, {"name": "x"}, {"spark.master": "local[2]"}))
    message = from_message(line)
    assert message is not None
    assert (message.request, message.configuration) == (request, {"name": "x"})
    assert message.settings == {"spark.master": "local[2]"}
    assert read_request({}) == FlowPreviewRequest()
    assert MOST_ROWS == MOST_PREVIEW_ROWS


def test_the_configuration_of_a_flow_is_no_request() -> None:
    assert from_message(json.dumps({"name": "x", "preview": "yes"})) is None
    assert from_message("cut {") is None


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"limit": 0}, "limit must be a whole number from 1 to 1000"),
        ({"limit": True}, "limit must be"),
        ({"limit": 1001}, "limit must be"),
        ({"timeout_ms": 0}, "timeout_ms must be"),
        ({"rows": []}, "and not empty"),
        ({"rows": {}}, "rows must be a list"),
        ({"rows": [{"table": "t", "row": {}}] * 1001}, "rows has 1001 rows; a preview takes 1000 at most"),
        ({"rows": [{"table": "t", "row": {}}, {"table": "t"}]}, "row 2 must be"),
        ({"rows": [{"table": "t", "row": {}, "x": 1}]}, "row 1 must be"),
        ({"rows": [{"table": "t", "row": {}, "op": "x"}]}, "op must be one of i, u, d, b"),
    ],
)
def test_requests_that_are_refused(body: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigInvalid, match=error):
        read_request(body)


def test_previews_run_on_local_threads_with_the_flow_s_other_settings() -> None:
    flow = {
        "spark.master": "spark://m:7077",
        "spark.executor.memory": "8g",
        "spark.sql.ansi.enabled": "false",
        "spark.application": "orders",
    }
    assert preview_settings(flow) == {"spark.master": "local[2]", "spark.sql.ansi.enabled": "false"}
    named = address_of({"spark.application": "preview"})
    assert named is not None
    assert preview_address().key != named.key


# The newest records.


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3), st.integers(0, 9)), unique_by=lambda item: item[1:]),
    st.integers(1, 8),
    st.integers(0, 60),
)
def test_the_newest_records_within_number_and_bytes(
    items: list[tuple[int, int, int]], limit: int, most_bytes: int
) -> None:
    records = [PreviewRecord(at, "t", partition, offset, None, b"x" * 10) for at, partition, offset in items]
    newest = Newest(limit, most_bytes)
    for record in records:
        newest.add(record)
    ordered = sorted(records, key=lambda record: (record.timestamp, record.partition, record.offset), reverse=True)
    fitting = ordered[: max(1, min(limit, most_bytes // 10))] if ordered else []
    assert newest.records() == sorted(fitting, key=lambda record: (record.partition, record.offset))
    assert newest.cut == (len(ordered) > len(fitting) and len(fitting) < limit)


def test_windows_end_at_the_end_and_are_bounded_over_all_partitions() -> None:
    existing = {
        "t": ExistingTopic("", {0: 5, 1: 0, 2: 7}, {0: 8, 1: 100, 2: 7}),
        "u": ExistingTopic("", {0: 0}, {0: 1}),
    }
    assert compute_windows(existing, 10) == {("t", 0): (5, 8), ("t", 1): (90, 100), ("u", 0): (0, 1)}
    many = {"t": ExistingTopic("", dict.fromkeys(range(2000), 0), dict.fromkeys(range(2000), 1000))}
    assert sum(end - first for first, end in compute_windows(many, 1000).values()) == 20_000


# Steps.


def line(uid: str, op: str, record: str = "") -> Line:
    return Line(uid, record or uid, op, {})


def test_rows_that_a_step_leaves_out_or_changes() -> None:
    before = [
        line("a", "i"),
        line("b", "u"),
        line("c", "i"),
        line("d", "i"),
        line("e-b", "b", "e"),
        line("f-b", "b", "f"),
    ]
    after = {"a": {"i"}, "b": {"d"}, "e": {"u"}}
    difference = compare_rows(before, after, {"a", "b", "e"}, {"d"})
    assert [left.uid for left in difference.dropped] == ["c", "f-b"]
    assert [(left.uid, op) for left, op in difference.changed] == [("b", "d")]


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("iudb")), unique_by=lambda item: item[0]), st.data())
def test_every_row_is_passed_dropped_changed_or_failed(rows: list[tuple[int, str]], data: st.DataObject) -> None:
    before = [line(str(number), op) for number, op in rows]
    after = {
        row.uid: {data.draw(st.sampled_from([row.op, "d"]))} for row in before if data.draw(st.booleans(), label="kept")
    }
    failed = {row.uid for row in before if row.uid not in after and data.draw(st.booleans(), label="failed")}
    difference = compare_rows(before, after, set(after), failed)
    same = [row.uid for row in before if row.op in after.get(row.uid, ())]
    reported = [row.uid for row in difference.dropped] + [row.uid for row, _ in difference.changed]
    assert sorted([*same, *reported, *failed]) == sorted(row.uid for row in before)


def test_the_reason_is_the_first_condition_that_does_not_hold() -> None:
    assert reason_of({"a > 0": True, "b": None, "c": False}, "x") == "the condition b is null"
    assert reason_of({"a > 0": False}, "x") == "the condition a > 0 is false"
    assert reason_of({"a > 0": True}, "the step leaves it out") == "the step leaves it out"
    assert reason_of(None, "otherwise") == "otherwise"


def test_values_as_json() -> None:
    value = {
        "d": Decimal("1.50"),
        "t": datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
        "day": date(2024, 1, 2),
        "b": b"\x00\xff",
        "f": float("nan"),
        "m": [("k", 1)],
        "n": None,
        "long": "x" * 1001,
    }
    shown = json_value(value)
    assert json.loads(json.dumps(shown)) == shown
    assert shown | {"long": ""} == {
        "d": "1.50",
        "t": "2024-01-02T03:04:05+00:00",
        "day": "2024-01-02",
        "b": "AP8=",
        "f": "nan",
        "m": [["k", 1]],
        "n": None,
        "long": "",
    }
    assert shown["long"].endswith("... (1001 characters)")
    assert hide_values({"a": 1, "b": "x", "c": None}, {"b", "c"}) == {"a": 1, "b": HIDDEN, "c": None}


def test_given_rows_find_their_tables_and_must_fit_them() -> None:
    rows = [CallerRow("orders", {"id": 1}), CallerRow("new", {}), CallerRow("shop.orders", {"id": 2, "name": "x"})]
    groups = by_table(rows, [ORDERS])
    assert {name: [number for number, _ in group] for name, group in groups.items()} == {
        "shop.orders": [1, 3],
        "new": [2],
    }
    check_columns(ORDERS, groups["shop.orders"])
    with pytest.raises(ConfigInvalid, match=r"row 4: table shop\.orders has no column nam; it has id, name"):
        check_columns(ORDERS, [(4, CallerRow("orders", {"id": 1, "nam": "x"}))])
    with pytest.raises(ConfigInvalid, match="row 5: column id is of the key"):
        check_columns(ORDERS, [(5, CallerRow("orders", {"name": "x"}))])


# The end of a preview.


def test_a_preview_that_was_ended_does_not_continue() -> None:
    with Limit(60) as limit:
        limit.check()
        assert 0 < limit.left_s() <= 60
        limit.cancel("the client is gone")
        limit.cancel("another reason")
        with pytest.raises(Cancelled, match="the client is gone"):
            limit.check()


# The command.

ANSWER: dict[str, Any] = {
    "name": "j",
    "source": "newest",
    "records": 3,
    "application": "preview",
    "warm": False,
    "duration_ms": 1234,
    "inputs": [
        {
            "table": "shop.orders",
            "key": ["id"],
            "columns": [
                {"name": "id", "type": "bigint", "nullable": False, "key": True},
                {"name": "name", "type": None, "nullable": True, "key": False},
            ],
            "rows": [
                {"record": "t-0 offset 1", "op": "i", "values": {"id": 1, "name": "a\nb"}},
                {"record": "t-0 offset 22", "op": "u", "values": {"id": 100, "name": None}},
            ],
            "count": 5,
        }
    ],
    "errors": [{"record": "t-0 offset 3", "reason": "is not JSON", "values": {"key": None, "value": "{"}}],
    "steps": [
        {
            "name": "f",
            "type": "filter",
            "rows_in": 2,
            "rows_out": 1,
            "tables": [],
            "dropped": [
                {
                    "record": "t-0 offset 1",
                    "table": "shop.orders",
                    "op": "i",
                    "reason": "the condition x is null",
                    "values": {"id": 1},
                }
            ],
            "changed": [],
            "errors": [],
            "dropped_count": 2,
            "changed_count": 0,
            "error_count": 0,
        },
        {
            "name": "g",
            "type": "sql",
            "rows_in": 1,
            "rows_out": 0,
            **dict.fromkeys(("tables", "dropped", "changed", "errors"), ()),
            **dict.fromkeys(("dropped_count", "changed_count", "error_count"), 0),
            "error": "no column x",
        },
    ],
    "warnings": ["something was cut off"],
}


def test_the_answer_as_tables() -> None:
    assert preview_lines(ANSWER) == [
        "flow j: 3 of the newest records, in 1.2 s by the Spark application preview, which had to start",
        "  shop.orders: 5 rows",
        "    op  id*     name  record",
        "        bigint  ?",
        "    i   1       a b   t-0 offset 1",
        "    u   100     null  t-0 offset 22",
        "    and 3 more",
        "  can't be decoded: 1",
        "    t-0 offset 3: is not JSON",
        "      key=null, value={",
        "",
        "step f (filter): 2 rows in, 1 out",
        "  left out: 2",
        "    t-0 offset 1, table shop.orders, i: the condition x is null",
        "      id=1",
        "    and 1 more",
        "",
        "step g (sql): 1 rows in, 0 out",
        "  FAILED: no column x",
        "note: something was cut off",
    ]
    assert format_cell("x" * 41) == "x" * 37 + "..."


def test_rows_come_from_a_list_or_from_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('[{"table": "t",\n "row": {}}]')
    assert read_rows_file(str(path)) == [{"table": "t", "row": {}}]
    path.write_text('{"table": "t", "row": {}}\n\n{"table": "u", "row": {}}\n')
    assert [row["table"] for row in read_rows_file(str(path))] == ["t", "u"]
    path.write_text('{"table": "t"}\n{x}\n')
    with pytest.raises(ConfigInvalid, match=r"rows.json:2: is not JSON: .* one object a line"):
        read_rows_file(str(path))
    path.write_text("{")
    with pytest.raises(ConfigInvalid, match=r"rows.json:1: is not JSON"):
        read_rows_file(str(path))


def test_a_materializer_has_no_preview(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.json"
    job.write_text(
        json.dumps(
            {
                "name": "j",
                "kafka.bootstrap.servers": "127.0.0.1:9",
                "source.topics": "t",
                "source.format": "partition-update",
                "transform.type": "materialize",
                "sink.type": "kafka",
                "sink.kafka.topic": "out",
            }
        )
    )
    assert main(["preview", str(job)]) == 2
    assert "preview the flow that reads its output" in capsys.readouterr().err
