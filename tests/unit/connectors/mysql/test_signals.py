"""Orders to a running connector: what is one, and what follows from it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from connectors.errors import Skippable
from connectors.mysql.stream.signals import (
    Signal,
    SignalPosition,
    apply_signal,
    batch_id,
    parse_message,
    parse_row,
    request_id,
)
from connectors.snapshot.requests import SnapshotRequest


def signal(kind: str, data: Any = None, name: str = "s1", at: str = "b.000001:4711") -> Signal:
    return Signal(name, kind, data or {}, at)


def execute(**data: Any) -> Signal:
    return signal(
        "execute-snapshot",
        {"data-collections": ["a.b"], **{key.replace("_", "-"): value for key, value in data.items()}},
    )


def test_rows() -> None:
    parsed_signal = parse_row({"id": "x", "type": " log ", "data": '{"message": "m"}'}, "here")
    assert parsed_signal == Signal("x", "log", {"message": "m"}, "here")
    assert parse_row({"a": "x", "b": "pause-snapshot", "c": None}, "here") == Signal("x", "pause-snapshot", {}, "here")
    assert parse_row({"id": "x-open", "type": "snapshot-window-open", "data": "{}"}, "here") is None


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ({"id": "x", "type": "log"}, "2 columns"),
        (None, "0 columns"),
        ({"id": 1, "type": "log", "data": ""}, "strings"),
        ({"id": "x", "type": None, "data": ""}, "strings"),
        ({"id": "x", "type": "log", "data": "{"}, "no JSON"),
        ({"id": "x", "type": "log", "data": "[1]"}, "JSON object"),
        ({"id": "x", "type": "log", "data": "[" * 5_000}, "no JSON"),
    ],
)
def test_rows_that_are_no_signals(row: dict[str, Any] | None, word: str) -> None:
    with pytest.raises(Skippable, match=word):
        parse_row(row, "here")


def test_messages() -> None:
    value = json.dumps({"type": "log", "data": {"message": "m"}}).encode()
    assert parse_message(b"p", value, "p", "t-0:7") == Signal("t-0:7", "log", {"message": "m"}, "t-0:7")
    assert parse_message(b"other", value, "p", "t-0:7") is None
    assert parse_message(None, value, "p", "t-0:7") is None
    assert parse_message(b"p", None, "p", "t-0:7") is None
    nested = json.dumps({"id": "i", "type": "log", "data": json.dumps({"message": "m"})}).encode()
    assert parse_message(b"p", nested, "p", "t") == Signal("i", "log", {"message": "m"}, "t")
    for wrong, word in ((b"x", "no JSON"), (b"{}", '"type"'), (b'{"type": "log", "data": 3}', "object")):
        with pytest.raises(Skippable, match=word):
            parse_message(b"p", wrong, "p", "t")


def test_a_request_for_a_snapshot() -> None:
    order = execute(
        type="INCREMENTAL",
        surrogate_key=" id ",
        additional_conditions=[
            {"data-collection": "a.b", "filter": "WHERE x > 3"},
            {"data-collection": "a.c", "filter": " "},
        ],
    )
    outcome = apply_signal(order, [], 17)
    assert outcome.changed
    request = outcome.requests[0]
    assert (
        request.tables,
        request.conditions,
        request.surrogate_key,
        request.origin,
        request.created_ms,
        request.state,
    ) == (["a.b"], {"a.b": "x > 3"}, "id", "signal", 17, "running")
    repeated = apply_signal(order, outcome.requests, 18)
    assert (repeated.changed, repeated.requests) == (False, outcome.requests)  # met once more after a restart
    later = apply_signal(order._replace(at="b.000002:4"), outcome.requests, 18)
    assert len({request.id for request in later.requests}) == 2


def test_a_snapshot_can_wait_for_a_time_counted_from_when_the_signal_was_written() -> None:
    written = int(datetime(2026, 11, 23, 22, 0, tzinfo=UTC).timestamp() * 1000)
    order = execute(start_at="02:30", time_zone="Europe/Berlin")._replace(written_ms=written)
    # Each task reads the signal at another time, and all of them begin at the same.
    for read_ms in (written, written + 86_400_000):
        outcome = apply_signal(order, [], read_ms)
        assert outcome.requests[0].start_ms == int(datetime(2026, 11, 24, 1, 30, tzinfo=UTC).timestamp() * 1000)
        assert ("begins at 2026-11-24 01:30:00 UTC" in outcome.message) == (read_ms == written)
    underscored = signal("execute-snapshot", {"data-collections": ["a.b"], "start_at": "2026-11-24T02:30:00"})
    assert apply_signal(underscored, [], written).requests[0].start_ms > written
    assert apply_signal(execute(), [], written).requests[0].start_ms == 0


def test_all_tasks_give_a_snapshot_the_same_batch_id() -> None:
    written = 1_790_000_000_000
    first = execute()._replace(written_ms=written)
    batches = set()
    for clock_ms in (written - 5, written, written + 86_400_000):  # of three tasks, or of one after a restart
        outcome = apply_signal(first, [], clock_ms)
        assert outcome.requests[0].created_ms == written
        batches.add(batch_id(outcome.requests[0]))
    assert len(batches) == 1
    # Another signal of the same second is another batch, and keeps its place behind the first one.
    both = apply_signal(first._replace(at="b.000001:900"), outcome.requests, written).requests
    assert [request.created_ms for request in both] == [written, written]
    assert batch_id(both[0]) != batch_id(both[1])
    assert batch_id(SnapshotRequest(id="r", tables=["a.b"], origin="rest", created_ms=5)) == 5


@pytest.mark.parametrize(
    ("statement", "conditions", "selects"),
    [
        ("SELECT * FROM a.b WHERE color = 'blue' ORDER BY c DESC;", {"a.b": "color = 'blue'"}, {}),
        ("select * from `a`.`b`", {}, {}),
        ("SELECT x.* FROM a.b x JOIN a.c USING (id)", {}, {"a.b": "SELECT x.* FROM a.b x JOIN a.c USING (id)"}),
        ("(SELECT MAX(id) FROM a.c) > id", {"a.b": "(SELECT MAX(id) FROM a.c) > id"}, {}),
    ],
)
def test_a_filter_may_be_a_whole_statement_as_for_blocking_snapshots_of_debezium(
    statement: str, conditions: dict[str, str], selects: dict[str, str]
) -> None:
    order = execute(type="BLOCKING", additional_conditions=[{"data-collection": "a.b", "filter": statement}])
    (asked,) = apply_signal(order, [], 0).requests
    assert (asked.conditions, asked.selects) == (conditions, selects)


def test_old_and_blocking_forms() -> None:
    outcome = apply_signal(execute(type="blocking", additional_condition="x = 1"), [], 0)
    assert outcome.requests[0].conditions == {"a.b": "x = 1"}
    assert "blocking" in outcome.message


@pytest.mark.parametrize(
    ("order", "word"),
    [
        (signal("execute-snapshot", {"data-collections": ["a.b"], "start_at": "25:00"}), "neither a time of day"),
        (signal("execute-snapshot", {"data-collections": ["a.b"], "start_at": "1960-01-01T00:00:00"}), "is past"),
        (
            signal("execute-snapshot", {"data-collections": ["a.b"], "start_at": "02:30", "time_zone": "Nowhere"}),
            "no time zone",
        ),
        (signal("execute-snapshot", {"data-collections": ["a.b"], "time_zone": "UTC"}), "must be a string"),
        (signal("execute-snapshot", {"data-collections": ["a.b"], "start_at": 7}), "must be a string"),
        (signal("execute-snapshot"), "data-collections"),
        (signal("execute-snapshot", {"data-collections": "a.b"}), "list of strings"),
        (signal("execute-snapshot", {"data-collections": ["("]}), "Invalid regex"),
        (execute(type="sideways"), "INCREMENTAL"),
        (execute(additional_conditions=[{"filter": "x"}]), "additional-conditions"),
        (execute(additional_conditions=7), "additional-conditions"),
        (execute(additional_condition="x -- y"), "one SQL condition"),
        (signal("log"), "message"),
        (signal("dance"), "unknown type"),
        (signal("set-binlog-position"), "either"),
        (
            signal("set-binlog-position", {"binlog_filename": "b.000001", "binlog_position": 4, "gtid_set": "0-1-2"}),
            "either",
        ),
        (signal("set-binlog-position", {"binlog_filename": "b", "binlog_position": 4}), "name of a binlog file"),
        (signal("set-binlog-position", {"binlog_filename": "b.000001"}), "number from 0"),
        (signal("set-binlog-position", {"gtid_set": "nonsense"}), "no GTID set"),
    ],
)
def test_orders_that_cannot_be_carried_out(order: Signal, word: str) -> None:
    with pytest.raises(Skippable, match=word):
        apply_signal(order, [], 0)


def requests(*tables: str, state: Any = "running") -> list[SnapshotRequest]:
    return [SnapshotRequest(id="r", tables=list(tables), state=state, origin="signal")]


def test_pause_resume_stop() -> None:
    paused = apply_signal(signal("pause-snapshot"), requests("a.b"), 0)
    assert (paused.changed, paused.requests[0].state) == (True, "paused")
    assert not apply_signal(signal("pause-snapshot"), paused.requests, 0).changed
    assert apply_signal(signal("resume-snapshot"), paused.requests, 0).requests[0].state == "running"
    stopped = apply_signal(signal("stop-snapshot", {"type": "INCREMENTAL"}), requests("a.b", "a.c"), 0)
    assert stopped.requests[0].state == "cancelled"
    assert not apply_signal(signal("resume-snapshot"), stopped.requests, 0).changed
    part = apply_signal(signal("stop-snapshot", {"data-collections": ["a.b"]}), requests("a.b", "a.c"), 0)
    assert (part.requests[0].state, part.requests[0].tables) == ("running", ["a.c"])
    assert (
        apply_signal(signal("stop-snapshot", {"data-collections": ["a.b"]}), requests("a.b"), 0).requests[0].state
        == "cancelled"
    )


def test_a_table_is_taken_out_of_an_expression() -> None:
    from connectors.java_regex import compile_java

    left = apply_signal(signal("stop-snapshot", {"data-collections": ["a.b"]}), requests("a.*"), 0).requests[0].tables
    pattern = compile_java(left[0])
    assert pattern.fullmatch("a.b") is None
    assert pattern.fullmatch("a.bc")
    assert pattern.fullmatch("a.c")
    left = (
        apply_signal(signal("stop-snapshot", {"data-collections": ["a.b"]}), requests("a.c|a.b"), 0).requests[0].tables
    )
    pattern = compile_java(left[0])
    assert [name for name in ("a.b", "a.c") if pattern.fullmatch(name)] == ["a.c"]


def test_log_and_position() -> None:
    assert apply_signal(signal("log", {"message": "at {}"}), [], 0).message == "at {}"
    outcome = apply_signal(
        signal("set-binlog-position", {"binlog_filename": "mysql-bin.000003", "binlog_position": 0}), [], 0
    )
    assert outcome.position == SignalPosition("mysql-bin.000003", 4, "")
    for text in ("0-1-5", "24DA1671-9D2E-11EE-8C90-0242AC120002:1-5, 24da1671-9d2e-11ee-8c90-0242ac120003:7"):
        position = apply_signal(signal("set-binlog-position", {"gtid_set": text}), [], 0).position
        assert position == SignalPosition(gtids="".join(text.split()))


def test_ids_can_be_part_of_an_address() -> None:
    assert request_id(signal("log", name="my pull/1")).startswith("my-pull-1-")
    assert request_id(signal("log", name="ü")) != request_id(signal("log", name="ü", at="b.000001:4712"))
    assert len(request_id(signal("log", name="x" * 1000))) < 80
