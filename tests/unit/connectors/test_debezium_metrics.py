"""Snapshots under Debezium's names: what each state of them shows."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.debezium_metrics import (
    SNAPSHOTS,
    Labelled,
    Mirror,
    MirrorRule,
    declare_metrics,
    mirrored_metrics,
    report_snapshots,
    seconds_to_ms,
)
from connectors.testing.contexts import RecordedMetrics


def reported(*snapshots: dict[str, Any], now_ms: int = 10_000) -> dict[str, float]:
    """Attribute (with ``/table`` where it is of one) -> value."""
    metrics = RecordedMetrics(declare_metrics(*SNAPSHOTS))
    report_snapshots(Labelled(metrics, "cassandra", "shop", {}), snapshots, now_ms)
    values = {}
    for (name, labels), value in metrics.series.items():
        table = dict(labels).get("table")
        assert dict(labels).items() >= {"plugin": "cassandra", "name": "shop", "context": "snapshot"}.items()
        values[name.removeprefix("debezium_metrics_") + (f"/{table}" if table else "")] = value
    return values


def snapshot(
    state: str, *tables: str, started_ms: int | None = 1_000, finished_ms: int | None = None
) -> dict[str, Any]:
    return {
        "state": state,
        "started_ms": started_ms,
        "finished_ms": finished_ms,
        "tables": [
            {"table": f"ks.{name}", "state": stage, "rows_done": rows}
            for name, stage, rows in (description.split() for description in tables)
        ],
    }


def test_without_a_snapshot() -> None:
    values = reported()
    assert {name for name, value in values.items() if value} == {"SnapshotSkipped"}
    assert set(values) == set(SNAPSHOTS) - {"RowsScanned"}


def test_tables_are_done_one_by_one() -> None:
    values = reported(snapshot("running", "a done 7", "b running 3", "c waiting 0", "d elsewhere 0", "e failed 1"))
    assert (values["TotalTableCount"], values["RemainingTableCount"]) == (4, 2)
    assert [values[f"Snapshot{name}"] for name in ("Running", "Completed", "Aborted", "Paused")] == [1, 0, 0, 0]
    assert (values["RowsScanned/ks.a"], values["RowsScanned/ks.b"], values["RowsScanned/ks.c"]) == (7, 3, 0)
    assert "RowsScanned/ks.d" not in values
    assert values["SnapshotDurationInSeconds"] == 9


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("completed", (1, 0, 0)),
        ("done", (1, 0, 0)),
        ("cancelled", (0, 1, 0)),
        ("failed", (0, 1, 0)),
        ("paused", (0, 0, 1)),
    ],
)
def test_one_that_does_not_run(state: str, shown: tuple[float, float, float]) -> None:
    values = reported(snapshot(state, "a done 7", finished_ms=None if state == "paused" else 3_000))
    assert (values["SnapshotCompleted"], values["SnapshotAborted"], values["SnapshotPaused"]) == shown
    assert (values["SnapshotRunning"], values["SnapshotSkipped"], values["RowsScanned/ks.a"]) == (0, 0, 7)
    assert values["TotalTableCount"] == (1 if state == "paused" else 0)
    assert values["SnapshotDurationInSeconds"] == (9 if state == "paused" else 2)


def test_the_youngest_counts() -> None:
    old, young = (
        snapshot("completed", "a done 7", finished_ms=2_000),
        snapshot("cancelled", "a running 3", started_ms=4_000, finished_ms=5_000),
    )
    for order in ((old, young), (young, old)):
        values = reported(*order)
        assert (values["SnapshotCompleted"], values["SnapshotAborted"], values["SnapshotDurationInSeconds"]) == (
            0,
            1,
            1,
        )
        assert values["RowsScanned/ks.a"] == 3


def test_one_that_is_paused_beside_one_that_runs() -> None:
    values = reported(snapshot("paused", "a running 3"), snapshot("running", "b running 1", started_ms=2_000))
    assert (values["SnapshotRunning"], values["SnapshotPaused"], values["TotalTableCount"]) == (1, 0, 2)


RULES = {
    "lag": (MirrorRule("MilliSecondsBehindSource", seconds_to_ms),),
    "changes": (MirrorRule("TotalNumberOfEventsSeen"),),
    "rows": (MirrorRule("TotalNumberOfEventsSeen", context="snapshot"),),
    "place": (MirrorRule("BinlogPosition"),),
}
OWN_METRICS = {"lag": ("gauge", "."), "changes": ("counter", "."), "rows": ("counter", "."), "place": ("gauge", ".")}


class Shown:
    """A ``Mirror`` and what it has given."""

    def __init__(self) -> None:
        self.metrics = RecordedMetrics(OWN_METRICS | mirrored_metrics(RULES))
        self.mirror = Mirror(self.metrics, "mysql", "shop", RULES)

    def __getitem__(self, name: str) -> float:
        return self.metrics.values[f"debezium_metrics_{name}"]


def test_how_far_behind_a_task_was() -> None:
    shown = Shown()
    for lag_s, least, most, average in ((5, 5_000, 5_000, 5_000), (2, 2_000, 5_000, 3_500), (8, 2_000, 8_000, 5_000)):
        shown.mirror.set("lag", lag_s)
        assert (shown["MilliSecondsBehindSource"], shown["SecondsBehindMaster"]) == (1000 * lag_s, lag_s)
        assert [shown[f"MilliSecondsBehindSource{name}Value"] for name in ("Min", "Max", "Average")] == [
            least,
            most,
            average,
        ]
    assert shown.metrics.values["lag"] == 8


def test_when_the_last_event_was() -> None:
    shown = Shown()
    for name, value in (("rows", 5), ("changes", 0)):  # neither is a change of the stream
        shown.mirror.add(name, value)
        shown.mirror.set("lag", 0)
        assert (shown["MilliSecondsSinceLastEvent"], shown["SecondsSinceLastEvent"]) == (-1, -1)
    shown.mirror.add("changes", 1)
    shown.mirror.set("lag", 0)
    assert shown["MilliSecondsSinceLastEvent"] >= 0
    assert shown["SecondsSinceLastEvent"] == shown["MilliSecondsSinceLastEvent"] / 1000
    assert shown["TotalNumberOfEventsSeen"] == 6


def test_a_gauge_of_several_parts_shows_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.debezium_metrics._MOST_PARTS", 2)
    shown = Shown()
    largest = []
    for part, value in (("a", 3), ("b", 7), ("a", 5), ("b", 1), ("c", 9), ("a", 4)):
        shown.mirror.set("place", value, {"part": part})
        largest.append(shown["BinlogPosition"])
    # A part beyond the bound counts when its value is set, and is forgotten then.
    assert largest == [3, 7, 7, 5, 9, 4]


def test_a_connection_that_comes_and_goes() -> None:
    shown = Shown()
    shown.mirror.disconnected()
    assert shown.metrics.values == {}
    shown.mirror.connected()
    assert (shown["Connected"], shown["NumberOfDisconnects"], shown["TotalNumberOfEventsSeen"]) == (1, 0, 0)
    for _ in range(2):
        shown.mirror.disconnected()
        assert (shown["Connected"], shown["NumberOfDisconnects"]) == (0, 1)
    shown.mirror.connected()
    shown.mirror.disconnected()
    assert shown["NumberOfDisconnects"] == 2
