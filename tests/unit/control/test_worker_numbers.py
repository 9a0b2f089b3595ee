"""A worker's counters and measurements of itself."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.clock import ManualClock
from tests.support.eventually import eventually_async
from worker.control.group.membership import Contact
from worker.control.herder.admin import AdminOperations
from worker.control.node import WorkerNode
from worker.control.placement.desired_runs import DesiredRuns
from worker.control.placement.planning import INSTANCE, Unit
from worker.control.placement.reconciler import DesiredRun, LocalRun, Reconciler
from worker.logs import LoggerRegistry
from worker.metrics.process import LoopLag
from worker.protocol import ConnectorStateChanged, HostTaskId, Stats, TaskStateChanged, TaskStats

TASK, CONNECTOR = Unit("c", 0), Unit("c", INSTANCE)


async def _nothing(*_: Any) -> None:
    """Task configurations go nowhere."""


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> WorkerNode:
    node = WorkerNode("w:1", "i", LoggerRegistry(), exactly_once=False, put_task_configs=_nothing)
    local_runs = {unit: LocalRun(DesiredRun({}, None, 1), cast("Any", None)) for unit in (TASK, CONNECTOR)}
    monkeypatch.setattr(node, "reconciler", SimpleNamespace(local_runs=local_runs), raising=False)
    monkeypatch.setattr(node, "put_status", lambda *_: None)
    return node


def tell(node: WorkerNode, *states: str) -> tuple[int, int, int]:
    """Attempts, successes and failures after these states of a task."""
    for state in states:
        node.task_state(cast("Any", None), TaskStateChanged(HostTaskId(*TASK), state, 1, None))
    stats = node.stats
    return stats.task_startup_attempts, stats.task_startup_success, stats.task_startup_failure


def test_a_task_that_is_paused_and_resumed_has_started_once(node: WorkerNode) -> None:
    assert tell(node, "RUNNING", "PAUSED", "RUNNING", "PAUSED") == (1, 1, 0)
    assert tell(node, "FAILED") == (1, 1, 0), "it failed later"
    assert not node.reconciler.local_runs[CONNECTOR].started


def test_a_task_that_fails_before_it_runs_is_a_start_that_failed(node: WorkerNode) -> None:
    assert tell(node, "RESTARTING") == (1, 0, 1)
    assert tell(node, "RESTARTING", "RUNNING") == (3, 1, 2)
    assert tell(node, "RESTARTING", "RUNNING") == (4, 2, 2), "it had run, and started again by itself"
    for state in ("FAILED", "RUNNING"):
        node.connector_state(cast("Any", None), ConnectorStateChanged("c", state, 1, None))
    stats = node.stats
    assert (stats.connector_startup_attempts, stats.connector_startup_success, stats.connector_startup_failure) == (
        2,
        1,
        1,
    )


def test_how_long_rebalances_take(monkeypatch: pytest.MonkeyPatch, node: WorkerNode) -> None:
    clock = ManualClock(100.0)
    monkeypatch.setattr(time, "monotonic", clock)
    node.numbers.refresh(node.contact)
    assert not node.stats.rebalancing
    node.contact = contact = Contact(10.0, 1.0)
    contact.joins()
    clock.now = 101.0
    contact.joins()  # a retry
    node.numbers.refresh(node.contact)
    assert (node.stats.rebalancing, contact.joined) == (True, False)
    clock.now = 103.0
    contact.has_joined()
    contact.joins()
    clock.now = 104.0
    contact.has_joined()
    node.numbers.refresh(node.contact)
    assert (node.stats.rebalancing, node.stats.rebalance_s, node.stats.rebalance_s_max) == (False, 4.0, 3.0)
    assert (contact.joined, contact.age()) == (True, 0.0)


def test_a_task_that_crashed_and_is_placed_elsewhere_or_deleted_leaves_no_series(
    node: WorkerNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, crashed = Unit("c", 1), Unit("c", 2)
    report = Stats([TaskStats(HostTaskId(*unit)) for unit in (TASK, elsewhere, crashed)], 0, 0, 0)
    node.tasks.observe(0, report, 0)
    monkeypatch.setattr(DesiredRuns, "find", lambda *_: {crashed: DesiredRun({}, {}, 1)})
    empty = SimpleNamespace(table=SimpleNamespace(assigned_to=lambda _: {}), instructions=SimpleNamespace(encoded=None))
    monkeypatch.setattr(node, "placement", empty, raising=False)
    monkeypatch.setattr(node, "config", SimpleNamespace(snapshot=None), raising=False)
    assert node.desired_runs() == {}, "it is fenced: what is known stays"
    assert len(node.tasks.tasks) == 3
    node.fenced, node.caught_up = False, True
    node.desired_runs()
    assert set(node.tasks.tasks) == {HostTaskId(*TASK), HostTaskId(*crashed)}, (
        "one runs here, one is to start again here"
    )


async def test_a_connector_whose_hosts_died_too_often_is_shown_as_failed(
    node: WorkerNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = cast("Any", SimpleNamespace(number=0))
    reconciler = Reconciler(
        cast("Any", None), cast("Any", SimpleNamespace(changed=lambda: None)), stop_s=1, backoff_s=(1, 1), crash_limit=1
    )
    reconciler.local_runs[CONNECTOR] = LocalRun(DesiredRun({}, None, 1), host)
    assert reconciler.host_died(host, frozenset({CONNECTOR}), CONNECTOR) == {CONNECTOR: False}
    log = SimpleNamespace(topic="t", connected=True, lost=False)
    none = SimpleNamespace(count=0)
    failed = SimpleNamespace(unreadable=none, connector=lambda _: SimpleNamespace(state="FAILED"))
    for name, part in {
        "reconciler": reconciler,
        "leader": SimpleNamespace(active=False, rounds=SimpleNamespace(moves=0, pending=0)),
        "config": SimpleNamespace(log=log, unreadable=0),
        "placement": SimpleNamespace(log=log),
        "status": SimpleNamespace(log=log, state=failed),
        "offsets": SimpleNamespace(topic="o", connected=True, lost=False, unreadable=none),
        "plugins": SimpleNamespace(catalog=SimpleNamespace(connector=lambda _: None)),
    }.items():
        monkeypatch.setattr(node, name, part, raising=False)
    context = SimpleNamespace(
        node=node,
        version=("1", "abc"),
        snapshot=SimpleNamespace(connectors={"c": {}}),
        connector_type=lambda _: "source",
        config={"metrics.families": ["A"], "metrics.jvm.names": False, "metrics.clients.max": 1},
    )
    herder = AdminOperations(cast("Any", context))
    monkeypatch.setattr(herder, "ready", lambda: True)
    assert b'kafka_connect_connector_status{connector="c",status="failed"} 1' in await herder.metrics()


async def test_the_event_loops_delay_is_measured() -> None:
    clock = ManualClock()
    lag = LoopLag(clock)
    lag.start()
    clock.advance(0.6)
    await eventually_async(lag.seconds, "the loop has had its next turn")
    lag.stop()
    assert lag.seconds() == pytest.approx(0.6 - 0.25), "it was due after a quarter of a second"
