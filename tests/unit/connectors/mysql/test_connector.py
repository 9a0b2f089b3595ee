"""The connector's answers that need no server: shards, offsets, requests for snapshots, progress, metrics."""

from __future__ import annotations

import logging
import time
from typing import Any

import msgspec
import pytest

from connectors.debezium_metrics import Behind
from connectors.errors import ConfigInvalid
from connectors.mysql import metrics
from connectors.mysql.connector import MySqlConnector
from connectors.mysql.model import Shard
from connectors.mysql.position import start
from connectors.mysql.snapshot import state as notes
from connectors.mysql.stream import lag
from connectors.mysql.stream.counters import StreamCounters
from connectors.mysql.stream.latency import HeartbeatLatency, TableLags
from connectors.mysql.task import MySqlTask
from connectors.snapshot.state import pack

LEAST = {"database.hostname": "db", "database.user": "u", "topic.prefix": "p"}
UUID = "24da1671-9d2e-11ee-8c90-0242ac120002"


def parsed(**changes: str) -> Any:
    return MySqlConnector.config_def.parse(
        {**LEAST, **{name.replace("__", "."): value for name, value in changes.items()}}
    )


class Context:
    """The context that a connector gets."""

    def __init__(self, config: Any) -> None:
        self.connector = "c"
        self.config = config
        self.offsets: Any = None
        self.log = logging.LoggerAdapter(logging.getLogger(__name__), {})

    def request_task_reconfiguration(self) -> None: ...

    async def refresh_offsets(self) -> None: ...

    def fail(self, error: Exception) -> None: ...


async def shards(most: int, **changes: str) -> list[str]:
    connector = MySqlConnector(Context(parsed(**changes)))
    await connector.start()
    return [config["task.shard"] for config in await connector.task_configs(most)]


async def test_shards() -> None:
    assert await shards(1) == ["0/1"]
    assert await shards(3) == ["0/3", "1/3", "2/3"]
    assert await shards(3, provide__transaction__metadata="true") == ["0/1"]
    assert await shards(2, provide__transaction__metadata="true", output__format="ums") == ["0/2", "1/2"]
    assert len(await shards(1_000)) == 64


async def test_a_configuration_that_contradicts_itself_does_not_start() -> None:
    with pytest.raises(ConfigInvalid, match=r"table\.exclude\.list"):
        await shards(1, table__include__list="a", table__exclude__list="b")


def test_the_class() -> None:
    assert MySqlConnector.task_class is MySqlTask
    assert MySqlConnector.exactly_once_support(parsed())
    assert MySqlConnector.can_define_transaction_boundaries(parsed())
    assert not MySqlConnector.can_define_transaction_boundaries(parsed(tasks__max="2"))
    assert MySqlConnector.can_define_transaction_boundaries(
        parsed(tasks__max="2", provide__transaction__metadata="true")
    )
    assert "io.debezium.connector.mariadb.MariaDbConnector" in MySqlConnector.aliases


@pytest.mark.parametrize(
    ("partition", "offset"),
    [
        (
            {"server": "p"},
            {
                "transaction_id": None,
                "ts_sec": 1700000000,
                "file": "mysql-bin.000003",
                "pos": 4711,
                "row": 1,
                "server_id": 1,
                "event": 2,
                "gtids": f"{UUID}:1-5",
            },
        ),
        ({"server": "p"}, {"file": "bin.000001", "pos": "154", "gtids": "0-1-5,1-2-7"}),
        ({"server": "p"}, None),
        ({"server": "p", "shard": "1/2"}, {"file": "bin.000001", "pos": 4, "shard_layout": 2}),
        ({"server": "p", "snapshot": "initial"}, {"state": "running"}),
        ({"server": "p", "shard": "0/2", "lag": "task"}, {"tables": ""}),
    ],
)
async def test_offsets_that_can_be_resumed_from(partition: dict[str, Any], offset: dict[str, Any] | None) -> None:
    assert await MySqlConnector.alter_offsets(parsed(), [(partition, offset)])


@pytest.mark.parametrize(
    ("partition", "offset", "word"),
    [
        ({"server": "q"}, {"file": "bin.000001", "pos": 4}, "topic.prefix"),
        ({}, None, "topic.prefix"),
        ({"server": "p"}, {"pos": 4}, "file"),
        ({"server": "p"}, {"file": "bin", "pos": 4}, "name of a binlog file"),
        ({"server": "p"}, {"file": "bin.000001", "pos": -1}, "negative"),
        ({"server": "p"}, {"file": "bin.000001", "pos": "x"}, "pos"),
        ({"server": "p"}, {"file": "bin.000001", "pos": 4, "gtids": "nonsense"}, "gtids"),
        ({"server": "p", "shard": "2/2"}, {"file": "bin.000001", "pos": 4}, "no shard"),
        ({"server": "p"}, {"file": "bin.000001", "pos": 4, "shard_layout": "one"}, "whole number"),
    ],
)
async def test_offsets_that_can_not(partition: dict[str, Any], offset: dict[str, Any] | None, word: str) -> None:
    with pytest.raises(ConfigInvalid, match=word):
        await MySqlConnector.alter_offsets(parsed(), [(partition, offset)])


def test_requests_for_snapshots() -> None:
    request = MySqlConnector.check_snapshot(
        parsed(), {"tables": [" a.b ", "c.*"], "conditions": {"a.b": " x > ';' "}, "priority": 3}
    )
    assert request == {"tables": ["a.b", "c.*"], "conditions": {"a.b": "x > ';'"}, "priority": 3}
    assert MySqlConnector.check_snapshot(parsed(), {"tables": ["a.b"], "surrogate_key": "id"})["surrogate_key"] == "id"


@pytest.mark.parametrize(
    ("request_", "word"),
    [
        ({}, "tables"),
        ({"tables": []}, "tables"),
        ({"tables": "a.b"}, "tables"),
        ({"tables": ["("]}, "Invalid regex"),
        ({"tables": ["a"], "conditions": ["x"]}, "conditions"),
        ({"tables": ["a"], "conditions": {"a": "x; DROP TABLE a"}}, "one SQL"),
        ({"tables": ["a"], "conditions": {"a": "x) OR (1"}}, "one SQL"),
        ({"tables": ["a"], "conditions": {"a": "x -- y"}}, "one SQL"),
        ({"tables": ["a"], "conditions": {"a": "(x"}}, "one SQL"),
        ({"tables": ["a"], "priority": "high"}, "priority"),
        ({"tables": ["a"], "table": "b"}, "has no table"),
        ({"tables": ["a"], "surrogate_key": 3}, "surrogate_key"),
    ],
)
def test_requests_that_are_refused(request_: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigInvalid, match=word):
        MySqlConnector.check_snapshot(parsed(), request_)


def saved(name: str, shard: str | None, state: Any, *tables: notes.MySqlTableNote, **more: Any) -> tuple[Any, Any]:
    partition = {"server": "p", "snapshot": name, **({} if shard is None else {"shard": shard})}
    note = notes.MySqlShareNote(state="done" if state == "completed" else state, tables=list(tables), started_ms=100)
    return partition, {"state": state, "progress": pack(note), **more}


def table(rows: int, total: int | None, stage: Any = "running", name: str = "b") -> notes.MySqlTableNote:
    return notes.MySqlTableNote(
        database="a",
        table=name,
        stage=stage,
        rows=rows,
        total=total,
        started_ms=1_000,
        finished_ms=3_000 if stage == "done" else 0,
        percent=100.0 if stage == "done" else 50.0,
    )


def test_progress_of_several_tasks_is_one() -> None:
    instruction = {"id": "r", "tables": ["a.*"], "priority": 2, "state": "running", "origin": "rest", "created_ms": 50}
    snapshots = MySqlConnector.snapshots(
        parsed(),
        [instruction],
        [
            saved("r", "0/2", "running", table(10, 100), table(0, None, "elsewhere", "k")),
            saved("r", "1/2", "completed", table(30, 30, "done"), table(4, 4, "done", "k")),
            ({"server": "other", "snapshot": "r"}, {"state": "running"}),
            ({"server": "p"}, {"file": "b.000001", "pos": 4}),
        ],
    )
    assert len(snapshots) == 1
    shown = snapshots[0]
    assert (shown["id"], shown["state"], shown["origin"], shown["priority"]) == ("r", "running", "rest", 2)
    assert [(row["table"], row["state"], row["rows_total"], row["rows_done"]) for row in shown["tables"]] == [
        ("a.b", "running", 130, 40),
        ("a.k", "completed", 4, 4),
    ]
    assert (shown["rows_total"], shown["rows_done"]) == (134, 44)
    assert shown["tables"][1]["rows_per_s"] == 2.0


def test_a_task_that_has_saved_nothing_yet_is_waited_for() -> None:
    def state(*saved_shares: tuple[Any, Any]) -> str:
        (shown,) = MySqlConnector.snapshots(parsed(), [], list(saved_shares))
        return str(shown["state"])

    assert state(saved("r", "0/2", "completed")) == "running"
    assert state(saved("r", "0/2", "completed"), saved("r", "1/2", "completed")) == "completed"
    assert state(saved("r", None, "completed")) == "completed"
    # Two divisions among tasks: shares of the older one stay saved.
    assert state(saved("r", "0/2", "completed"), saved("r", "0/3", "completed")) == "completed"


def test_states_of_snapshots() -> None:
    def state(requested: str | None, *parts: str) -> str:
        asked = (
            []
            if requested is None
            else [{"id": "r", "tables": ["a"], "state": requested, "origin": "rest", "created_ms": 1}]
        )
        snapshots = MySqlConnector.snapshots(
            parsed(), asked, [saved("r", f"{index}/{len(parts)}", part) for index, part in enumerate(parts)]
        )
        return str(snapshots[0]["state"])

    assert state("running") == "waiting"
    assert state("paused") == "paused"
    assert state("running", "running", "completed") == "running"
    assert state("paused", "running", "completed") == "paused"
    assert state("paused", "completed", "completed") == "completed"
    assert state(None, "completed", "cancelled") == "cancelled"
    assert state("running", "completed", "failed") == "failed"


def test_a_request_that_can_not_be_followed_says_why() -> None:
    note = notes.MySqlShareNote(state="failed", error="no captured table matches a")
    offset = {"state": "failed", "progress": pack(note)}
    (shown,) = MySqlConnector.snapshots(parsed(), [], [({"server": "p", "snapshot": "r"}, offset)])
    assert (shown["state"], shown["error"], shown["tables"]) == ("failed", "no captured table matches a", [])


def test_what_the_connector_and_signals_began_is_shown_too() -> None:
    request = {"id": "s-1", "tables": ["a.b"], "conditions": {"a.b": "x"}, "origin": "signal", "created_ms": 70}
    snapshots = MySqlConnector.snapshots(
        parsed(),
        [
            {"id": "initial", "state": "paused", "origin": "initial", "created_ms": 60},
            {"id": "gone", "state": "paused", "origin": "signal", "created_ms": 60},
        ],
        [
            saved("initial", None, "running", table(1, 2)),
            saved("s-1", None, "running", request=msgspec.json.encode(request).decode()),
            ({"server": "p", "snapshot": "odd"}, {"state": "completed", "progress": "nonsense"}),
        ],
    )
    assert {snapshot["id"]: (snapshot["origin"], snapshot["state"]) for snapshot in snapshots} == {
        "initial": ("initial", "paused"),
        "s-1": ("signal", "running"),
        "odd": ("signal", "completed"),
    }
    signalled = next(snapshot for snapshot in snapshots if snapshot["id"] == "s-1")
    assert (signalled["tables_wanted"], signalled["conditions"], signalled["created_ms"]) == (["a.b"], {"a.b": "x"}, 70)


def test_the_position_of_all_tasks_is_the_earliest_of_the_newest_division() -> None:
    def saved_offset(shard: str | None, pos: int, layout: int) -> tuple[Any, Any]:
        return (
            {"server": "p", **({} if shard is None else {"shard": shard})},
            {"file": "b.000002", "pos": pos, start.LAYOUT: layout, start.SOURCE_SERVER: 5},
        )

    offsets = [
        saved_offset(None, 4, 1),
        saved_offset("0/2", 700, 2),
        saved_offset("1/2", 500, 2),
        ({"server": "q"}, {"file": "b.000001", "pos": 4}),
    ]
    saved_position = lag.saved_place("p", offsets)
    assert saved_position is not None
    assert (saved_position[0].pos, saved_position[1]) == (500, 5)
    assert lag.saved_place("q2", offsets) is None


def test_what_tasks_save_for_the_lag() -> None:
    latency, tables = HeartbeatLatency(), TableLags()
    latency.sent(17)
    tables.saw("a.b", 3, 300, 1_700_000_000_000)
    partition, offset = lag.lag_partition("p", Shard(1, 2)), lag.lag_offset(latency, tables)
    assert partition == {"server": "p", "shard": "1/2", "lag": "task"}
    assert msgspec.json.decode(offset["heartbeat"])["sent_us"] == 17
    assert lag.saved_place("p", [(partition, offset)]) is None
    assert start.start_of("p", Shard(1, 2), [(partition, offset)]).position is None


class MetricRecorder:
    """Takes metrics, and refuses what is not declared."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], float] = {}
        #: Gauges of snapshots.
        self.in_snapshots: dict[tuple[str, str], float] = {}

    def set(self, name: str, value: float, labels: Any = None) -> None:
        assert MySqlConnector.metrics[name][0] == "gauge"
        if (labels or {}).get("context", "streaming") == "streaming":
            self.values[name, (labels or {}).get("table", "")] = value
        else:
            self.in_snapshots[name, labels.get("table", "")] = value

    def add(self, name: str, value: float = 1, labels: Any = None) -> None:
        assert MySqlConnector.metrics[name][0] == "counter"
        assert value >= 0
        key = (name, (labels or {}).get("table", (labels or {}).get("context", "")))
        self.values[key] = self.values.get(key, 0) + value


class At:
    file, pos, executed = "b.000042", 99, object()


class Client:
    pending = False


def test_changes_of_structure_are_counted_by_table() -> None:
    counted: dict[str, float] = {}

    class Counts:
        def set(self, name: str, value: float, labels: Any = None) -> None: ...

        def add(self, name: str, value: float = 1, labels: Any = None) -> None:
            if name == metrics.SCHEMA_CHANGES:
                counted[labels["table"]] = counted.get(labels["table"], 0) + value

    history = metrics.SchemaHistory(3)
    history.report(Counts())
    assert counted == {}, "versions that were known at the start are no changes"
    history.applied(["shop.orders"])
    history.applied(["shop.orders", "shop.items"])
    history.report(Counts())
    history.report(Counts())
    assert counted == {"shop.orders": 2, "shop.items": 1}


def test_metrics() -> None:
    recorder, counters, behind = MetricRecorder(), StreamCounters(), Behind()

    def report(snapshots: list[dict[str, Any]]) -> None:
        metrics.report_task(
            recorder,
            counters=counters,
            cursor=At(),
            client=Client(),
            latency={"mysql_heartbeat_age_seconds": 1.5},
            snapshots=snapshots,
            behind=behind,
        )

    report([])
    assert recorder.values[metrics.SINCE_LAST_MS, ""] == -1
    counters.events, counters.creates, counters.last_ts_ms = 2, 30, int(time.time() * 1000) - 60_000
    report([])
    assert recorder.values[metrics.BEHIND_MS, ""] >= 60_000
    counters.creates = 40
    report(
        [
            {
                "id": "i",
                "state": "done",
                "started_ms": 1,
                "tables": [{"table": "a.b", "state": "done", "rows_done": 7, "rows_total": 7}],
            },
            {
                "id": "j",
                "state": "paused",
                "started_ms": 2,
                "tables": [
                    {"table": "a.c", "state": "running", "rows_done": 3, "rows_total": None},
                    {"table": "a.d", "state": "done"},
                ],
            },
        ]
    )
    assert recorder.values[metrics.CREATES, ""] == 40
    assert (recorder.values["mysql_lag_seconds", ""], recorder.values["mysql_snapshot_running", ""]) == (0, 0)
    assert recorder.values[metrics.BEHIND_MS, ""] == 0
    assert (
        recorder.values[metrics.FILE, ""],
        recorder.values[metrics.POSITION, ""],
        recorder.values[metrics.GTIDS, ""],
    ) == (
        42,
        99,
        1,
    )
    shown = {name.removeprefix("debezium_metrics_"): value for (name, _), value in recorder.in_snapshots.items()}
    assert (shown["TotalTableCount"], shown["RemainingTableCount"]) == (2, 1)
    assert (shown["SnapshotPaused"], shown["SnapshotRunning"]) == (1, 0)
    assert (
        recorder.in_snapshots["debezium_metrics_RowsScanned", "a.b"]
        == recorder.values[metrics.SNAPSHOT_ROWS_ESTIMATED, "a.b"]
        == 7
    )
    assert ("mysql_heartbeat_age_seconds", "") in recorder.values
    other = StreamCounters()
    other.creates = 5
    metrics.report_task(recorder, counters=other, cursor=At(), client=Client(), latency={}, snapshots=[], behind=behind)
    assert recorder.values[metrics.CREATES, ""] == 45  # a stream continues to count after a reconnect
