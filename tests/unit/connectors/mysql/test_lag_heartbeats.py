"""Heartbeats and their stages, where a late one is, and the body of the lag."""

from __future__ import annotations

import json
import logging
import sys

import pymysql.err
import pytest

from connectors.errors import ConfigInvalid, Retriable, Skippable
from connectors.mysql.stream.heartbeat import (
    Beat,
    HeartbeatWriter,
    create_statements,
    explain_problem,
    parse,
    setup_text,
    split_name,
    upsert_statement,
)
from connectors.mysql.stream.latency import (
    AGE_SECONDS,
    DELIVER_SECONDS,
    METRICS,
    PROCESS_SECONDS,
    READ_SECONDS,
    TOTAL_SECONDS,
    WRITE_SECONDS,
    HeartbeatLatency,
    TableLags,
    heartbeat_body,
    lag_body,
    table_rows,
)
from tests.support.eventually import pass_turns
from tests.support.settings import mysql_heartbeat

LOG = logging.LoggerAdapter(logging.getLogger(__name__), {})
S = 1_000_000


class Clock:
    """Microseconds that go by when the test says so."""

    def __init__(self) -> None:
        self.now = 1_700_000_000 * S

    def __call__(self) -> int:
        return self.now

    def after(self, seconds: float) -> int:
        self.now += int(seconds * S)
        return self.now


def test_a_row_of_the_heartbeat_table() -> None:
    assert parse({"source": "shop", "sent_us": 5, "more": None}) == Beat("shop", 5)
    for row in ({}, {"source": "shop"}, {"source": None, "sent_us": 5}, {"source": "shop", "sent_us": "5"}):
        with pytest.raises(Skippable, match=r"heartbeat\.table"):
            parse(row)


def test_names_and_statements() -> None:
    assert split_name(" `a b`.`c` ") == ("a b", "c")
    for wrong in ("", "t", "a.", ".t", "a.b`; DROP TABLE x; --`"):
        with pytest.raises(ConfigInvalid, match=r"DATABASE\.TABLE"):
            split_name(wrong)
    assert "`a`.`b`" in upsert_statement("a.b")
    assert "VALUES(" not in upsert_statement("a.b").upper().split("ON DUPLICATE")[1]
    text = setup_text(mysql_heartbeat(table="millrace.heartbeat", user="o'neil"))
    assert all(statement in text for statement in create_statements("millrace.heartbeat"))
    assert text.endswith("GRANT SELECT, INSERT, UPDATE ON `millrace`.`heartbeat` TO 'o''neil'@'%'")


def test_every_stage_has_its_time() -> None:
    clock = Clock()
    latency = HeartbeatLatency(60, clock)
    assert latency.numbers() == {}
    sent = clock.now
    latency.sent(sent)
    clock.after(1)
    latency.stored(sent)
    clock.after(2)
    latency.read(sent, ("binlog.000001", 100))
    clock.after(3)
    latency.yielded()
    clock.after(4)
    latency.acknowledged(lambda position: bool(position[1] <= 99))
    assert TOTAL_SECONDS not in latency.numbers(), "its position is not covered yet"
    clock.after(1)
    latency.acknowledged(lambda position: bool(position[1] <= 100))
    clock.after(10)
    numbers = latency.numbers()
    assert numbers == {
        WRITE_SECONDS: 1,
        READ_SECONDS: 2,
        PROCESS_SECONDS: 3,
        DELIVER_SECONDS: 5,
        TOTAL_SECONDS: 11,
        AGE_SECONDS: 21,
    }
    assert numbers.keys() <= METRICS.keys()
    assert latency.where_last_seen() == ""


def test_a_task_that_only_reads_them_has_the_later_stages() -> None:
    clock = Clock()
    latency = HeartbeatLatency(60, clock)
    latency.read(clock.now - 3 * S)
    latency.yielded()
    latency.acknowledged(lambda _: True)
    assert latency.numbers() == {
        READ_SECONDS: 3,
        PROCESS_SECONDS: 0,
        DELIVER_SECONDS: 0,
        TOTAL_SECONDS: 3,
        AGE_SECONDS: 3,
    }


def test_where_a_late_one_is() -> None:
    clock = Clock()
    latency = HeartbeatLatency(60, clock)
    sent = clock.now
    latency.sent(sent)
    latency.problem = "access denied"
    assert latency.where_last_seen() == ""
    clock.after(61)
    assert (
        "2023-11-14 22:13:20.000 UTC is 61.0 s old: the source has not taken it (access denied)"
        in latency.where_last_seen()
    )
    latency.problem = ""
    latency.stored(sent)
    assert "the binlog reader has not met it yet" in latency.where_last_seen()
    latency.read(sent, "mariadb-bin.000007:4711")
    where = latency.where_last_seen()
    assert "read from the binlog at 2023-11-14 22:14:21.000 UTC (mariadb-bin.000007:4711), not yet handed" in where
    latency.yielded()
    assert latency.where_last_seen() == "", "offsets are saved once a minute by default"
    clock.after(60)
    assert "not yet acknowledged" in latency.where_last_seen()
    latency.acknowledged(lambda _: True)
    assert latency.where_last_seen() == ""
    latency.problem = "access denied"
    clock.after(60)
    assert latency.where_last_seen() == "No heartbeat is written: access denied"


def test_one_that_waits_for_the_next_save_does_not_hide_one_that_is_stuck_before() -> None:
    clock = Clock()
    latency = HeartbeatLatency(5, clock)
    for _ in range(2):
        latency.sent(clock.now)
        latency.stored(clock.now)
        clock.after(1)
    latency.read(clock.now - 2 * S)
    latency.yielded()
    clock.after(10)
    assert "has not met it yet" in latency.where_last_seen()


def test_those_that_never_got_into_the_binlog_are_not_waited_for() -> None:
    clock = Clock()
    latency = HeartbeatLatency(60, clock)
    times = [clock.after(1) for _ in range(3)]
    for sent in times:
        latency.sent(sent)
    latency.read(times[2])
    latency.yielded()
    latency.acknowledged(lambda _: True)
    clock.after(1000)
    assert latency.where_last_seen() == ""
    assert latency.last_acknowledged == times[2]


def test_after_a_restart_of_the_stream_they_are_met_again() -> None:
    clock = Clock()
    latency = HeartbeatLatency(60, clock)
    first, second = clock.after(1), clock.after(1)
    for sent in (first, second):
        latency.sent(sent)
        latency.stored(sent)
        latency.read(sent, sent)
    latency.yielded()
    latency.acknowledged(lambda position: bool(position == first))
    latency.restarted()
    latency.acknowledged(lambda _: True)
    assert latency.last_acknowledged == first, "it has to be handed over again"
    latency.read(first, first)  # older than what is acknowledged
    latency.read(second, second)
    latency.yielded()
    latency.acknowledged(lambda _: True)
    assert latency.last_acknowledged == second


def test_it_is_bounded_and_keeps_the_oldest() -> None:
    clock = Clock()
    latency = HeartbeatLatency(60, clock)
    first = clock.now
    for _ in range(10_000):
        latency.sent(clock.after(1))
    assert len(latency._pending) == 4096
    assert latency._pending[0].sent == first + S
    assert latency._pending[-1].sent == clock.now


def test_what_is_saved_becomes_the_body() -> None:
    clock = Clock()
    latency = HeartbeatLatency(60, clock)
    assert heartbeat_body(latency.saved(), clock.now) is None
    assert heartbeat_body(None, clock.now) is None
    latency.sent(clock.now)
    clock.after(0.5)
    latency.stored(clock.now - S // 2)
    latency.read(clock.now - S // 2)
    latency.yielded()
    latency.acknowledged(lambda _: True)
    saved = json.loads(json.dumps(latency.saved()))
    assert heartbeat_body(saved, clock.after(2)) == {
        "last_sent_ts": 1_700_000_000_000,
        "last_read_ts": 1_700_000_000_000,
        "last_acknowledged_ts": 1_700_000_000_000,
        "age_s": 2.5,
        "stages": {"write_s": 0.5, "read_s": 0.0, "process_s": 0.0, "deliver_s": 0.0, "total_s": 0.5},
        "last_seen": None,
    }


def test_tables_share_what_is_behind() -> None:
    first, second = TableLags(), TableLags()
    first.saw("a.x", 300, 3000, 5)
    first.saw("a.y", 100, 1000, 9)
    second.saw("a.x", 100, 1000, 7)  # its part of the same binlog
    second.passed(3000)
    rows = table_rows([first.saved(), second.saved()], 4.5, 8000)
    assert rows == [
        {"table": "a.x", "time_behind_s": 4.5, "events_behind": 800, "last_event_ts": 7},
        {"table": "a.y", "time_behind_s": 4.5, "events_behind": 200, "last_event_ts": 9},
    ]
    assert table_rows([first.saved()], None, None)[0]["events_behind"] is None
    assert table_rows([TableLags().saved()], 0.0, 0) == []


def test_tables_are_bounded_and_shares_follow_the_present() -> None:
    lags = TableLags()
    for number in range(1500):
        lags.saw(f"t{number}", 1, 1, number)
    names = json.loads(lags.saved())["tables"]
    assert len(names) == 1000
    assert "t1499" in names
    assert "t0" not in names
    for _ in range(100):
        lags.saw("new", 1_000_000, 64 << 20, 2000)
    saved = json.loads(lags.saved())
    assert saved["tables"]["t1499"][0] < 0.001
    assert saved["bytes"] <= 256 << 20


def test_more_tables_than_are_remembered_cost_no_more_each() -> None:
    lags, calls = TableLags(), 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    for number in range(1000):
        lags.saw(f"t{number}", 1, 1, number)
    lags.saw("t0", 1, 1, 1000)
    sys.setprofile(count)
    try:
        for number in range(1000, 1999):
            lags.saw(f"t{number}", 1, 1, number)
    finally:
        sys.setprofile(None)
    assert calls < 20 * 999
    names = json.loads(lags.saved())["tables"]
    assert len(names) == 1000
    assert "t0" in names, "it was seen later than the others"


def test_the_body() -> None:
    body = lag_body(
        time_behind_s=3.00049,
        bytes_behind=10,
        tables=[{"table": "t"}],
        heartbeat=None,
        position={"file": "a"},
        source_position=None,
    )
    assert list(body) == ["time_behind_s", "bytes_behind", "tables", "heartbeat", "position", "source_position"]
    assert body["time_behind_s"] == 3.0
    assert (
        lag_body(time_behind_s=7.0, bytes_behind=0, tables=[], heartbeat=None, position=None, source_position=None)[
            "time_behind_s"
        ]
        == 0.0
    )


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (
            pymysql.err.ProgrammingError(1146, "Table doesn't exist"),
            ["Table doesn't exist", "CREATE TABLE", "GRANT SELECT"],
        ),
        (pymysql.err.OperationalError(1142, "INSERT denied"), ["INSERT denied", "GRANT SELECT, INSERT, UPDATE"]),
        (pymysql.err.OperationalError(1290, "read-only"), ["read-only", "the primary"]),
        (pymysql.err.OperationalError(2013, "Lost"), ["Lost"]),
        (ConnectionResetError("gone"), ["the connection to the source broke", "gone"]),
        (Retriable("no server answers"), ["no server answers"]),
    ],
)
def test_reasons(error: Exception, parts: list[str]) -> None:
    text = explain_problem(error, mysql_heartbeat(table="m.h", user="u"))
    assert all(part in text for part in parts), text


async def test_nothing_to_write() -> None:
    async def connect() -> None:
        raise AssertionError

    for settings in (mysql_heartbeat(interval_s=10.0), mysql_heartbeat(interval_s=0, table="m.h")):
        writer = HeartbeatWriter(connect, settings, LOG)
        writer.start()
        await pass_turns()
        await writer.close()
        assert writer.problem == ""
    with pytest.raises(ConfigInvalid):
        HeartbeatWriter(connect, mysql_heartbeat(interval_s=10.0, table="x"), LOG).start()
