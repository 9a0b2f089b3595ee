"""Statuses that are written again when another process has removed them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from offsets.cluster import ClusterState
from offsets.records import (
    Pair,
    ReportedStatus,
    TopicStatus,
    commit_record,
    connector_record,
    connector_status_record,
    target_state_record,
    task_record,
    task_status_record,
    topic_status_record,
)
from tests.support.eventually import eventually_async
from worker.control.node import WorkerNode
from worker.control.placement.planning import INSTANCE, Unit
from worker.control.placement.reconciler import DesiredRun, LocalRun
from worker.control.state.instructions import InstructionTable
from worker.control.state.rule_sets import RuleTable
from worker.control.state.stores import StatusStore
from worker.control.state.verifications import VerificationTable
from worker.logs import LoggerRegistry
from worker.protocol import TopicForgotten

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterable, Iterator

CONFIG = {"connector.class": "x"}
UNITS = (Unit("c", INSTANCE), Unit("c", 0), Unit("c", 1))
GONE = {
    unit: connector_status_record("c", None) if unit.task == INSTANCE else task_status_record("c", unit.task, None)
    for unit in UNITS
}


class HostRecorder:
    """A task host that keeps the messages sent to it."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def event(self, message: Any) -> None:
        self.events.append(message)


class Worker:
    """One that runs the connector and its first task; the second is another worker's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state = ClusterState()
        for pair in (
            connector_record("c", CONFIG),
            task_record("c", 0, {"a": "b"}),
            task_record("c", 1, {"a": "b"}),
            commit_record("c", 2),
        ):
            self.state.apply(0, *pair)
        self.node = node = WorkerNode(
            "w:1", "i", LoggerRegistry(), exactly_once=False, put_task_configs=cast("Any", None)
        )
        self.owners = {UNITS[0]: node.me, UNITS[1]: node.me, UNITS[2]: None}
        node.fenced, node.caught_up = False, True
        self.store = StatusStore("s", {"bootstrap_servers": "nowhere:1"}, {}, node.status_gone, node.topic_gone)
        self.host = HostRecorder()
        local_runs = {unit: LocalRun(DesiredRun(CONFIG, None, 1), cast("Any", self.host)) for unit in UNITS[:2]}
        for name, part in {
            "config": self,
            "status": self.store,
            "reconciler": SimpleNamespace(local_runs=local_runs),
            "placement": SimpleNamespace(
                table=SimpleNamespace(owner=self.owners.get, get=lambda _: None, epoch=2),
                instructions=InstructionTable(),
                rules=RuleTable(),
                verifications=VerificationTable(),
            ),
            "plugins": SimpleNamespace(catalog=SimpleNamespace(connector=lambda _: None)),
        }.items():
            monkeypatch.setattr(node, name, part, raising=False)
        self.came(task_status_record("c", 1, ReportedStatus("RUNNING", "other:1", 1)))
        for unit in UNITS[:2]:
            node.put_status(unit, "RUNNING", 1)
        self.wrote()

    @property
    def snapshot(self) -> Any:
        return self.state.snapshot()

    def came(self, *pairs: Pair) -> None:
        """Records of the topic."""
        records = [
            SimpleNamespace(offset=offset, timestamp=0, key=key, value=value)
            for offset, (key, value) in enumerate(pairs)
        ]
        self.store._sink(0, cast("Any", records))

    def wrote(self) -> set[bytes]:
        """The keys of what it wrote since the last call, which comes back from the topic."""
        queue = {key: queued.value for key, queued in self.store._queue.items()}
        self.store._queue.clear()
        self.came(*queue.items())
        return set(queue)

    async def write_queue(self, monkeypatch: pytest.MonkeyPatch, following: Pair) -> None:
        """Write until nothing is left; ``following`` comes behind the first records, before these are acknowledged."""
        followers = [following]

        async def send_all(pairs: Iterable[Pair], deadline_s: float) -> None:
            del deadline_s
            self.came(*pairs)
            while followers:
                self.came(followers.pop())

        monkeypatch.setattr(self.store.log, "send_all", send_all)
        writer = asyncio.create_task(self.store._write())
        await eventually_async(lambda: not self.store._queue, "the queue to be written")
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(monkeypatch)


def keys(units: Iterable[Unit]) -> set[bytes]:
    return {GONE[unit][0] for unit in units}


@pytest.mark.parametrize(
    ("removed", "reported"),
    [
        (UNITS[:1], UNITS[:2]),
        (UNITS, UNITS[:2]),
        (UNITS[1:2], UNITS[1:2]),
        (UNITS[2:], ()),
    ],
    ids=["the connector's, and so its tasks'", "all", "its task's", "another worker's"],
)
def test_the_status_of_local_runs_is_reported_again(
    worker: Worker, removed: tuple[Unit, ...], reported: tuple[Unit, ...]
) -> None:
    worker.came(*(GONE[unit] for unit in removed))
    assert worker.wrote() == keys(reported)
    for unit in reported:
        state = worker.store.state
        status = state.connector("c") if unit.task == INSTANCE else state.task("c", unit.task)
        assert status is not None
        assert (status.state, status.worker_id, status.generation) == ("RUNNING", "w:1", 1)


def test_what_was_written_after_it_was_removed_is_enough(worker: Worker) -> None:
    worker.came(
        GONE[UNITS[1]], task_status_record("c", 1, None), task_status_record("c", 0, ReportedStatus("FAILED", "w:1", 1))
    )
    assert worker.wrote() == set()


@pytest.mark.parametrize(
    ("owner", "generation", "replaced"),
    [("other:1", 1, True), ("other:1", 2, False), ("w:1", 1, True), ("w:1", 2, False)],
)
@pytest.mark.parametrize("unit", UNITS[:2])
def test_a_late_status_of_an_earlier_owner_is_replaced(
    worker: Worker, unit: Unit, owner: str, generation: int, replaced: bool
) -> None:
    late = ReportedStatus("UNASSIGNED", owner, generation)
    worker.came(
        connector_status_record("c", late) if unit.task == INSTANCE else task_status_record("c", unit.task, late)
    )
    assert worker.wrote() == (keys([unit]) if replaced else set())


@pytest.mark.parametrize(
    ("unit", "own_state", "following", "shown"),
    [
        pytest.param(
            UNITS[2],
            "UNASSIGNED",
            ReportedStatus("RUNNING", "other:1", 3),
            ("RUNNING", "other:1"),
            id="of a new owner, which is shown",
        ),
        pytest.param(
            UNITS[1],
            "RUNNING",
            ReportedStatus("UNASSIGNED", "other:1", 1),
            ("RUNNING", "w:1"),
            id="a late one, which is replaced",
        ),
    ],
)
async def test_a_status_follows_an_own_one_before_kafka_acknowledges_that(
    worker: Worker,
    monkeypatch: pytest.MonkeyPatch,
    unit: Unit,
    own_state: str,
    following: ReportedStatus,
    shown: tuple[str, str],
) -> None:
    record = task_status_record("c", unit.task, following)
    worker.node.put_status(unit, own_state, 2)
    await worker.write_queue(monkeypatch, record)
    for status in (worker.store.state.task("c", unit.task), worker.store.written(record[0])):
        assert status is not None
        assert (status.state, status.worker_id) == shown


async def test_a_status_that_is_removed_again_before_kafka_acknowledges_the_first_removal(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker's status comes in between: this one shows what is in the topic at the end."""
    unit = UNITS[0]
    foreign = connector_status_record("c", ReportedStatus("RUNNING", "other:1", 3))
    sent: list[bytes | None] = []

    async def send_all(pairs: Iterable[Pair], deadline_s: float) -> None:
        del deadline_s
        pairs = list(pairs)
        sent.extend(value for _, value in pairs)
        worker.came(*pairs)
        if len(sent) == 1:
            worker.node.forget_status(unit)
            worker.came(foreign)

    monkeypatch.setattr(worker.store.log, "send_all", send_all)
    worker.owners[unit] = None
    worker.node.forget_status(unit)
    writer = asyncio.create_task(worker.store._write())
    await eventually_async(lambda: not worker.store._queue, "the queue to be written")
    writer.cancel()
    await asyncio.gather(writer, return_exceptions=True)
    assert sent == [None, None]
    assert worker.store.state.connector("c") == worker.store.written(foreign[0])


def test_a_removed_connector_does_not_hide_statuses_that_its_tasks_still_have(worker: Worker) -> None:
    worker.came(task_status_record("c", 1, ReportedStatus("RUNNING", "other:1", 2)))
    worker.came(GONE[UNITS[0]])  # it was removed before, in a partition that is read later
    status = worker.store.state.task("c", 1)
    assert status is not None
    assert status.generation == 2


def test_nothing_is_reported_of_topics(worker: Worker) -> None:
    worker.came(topic_status_record("c", "t", None))
    assert worker.wrote() == set()


def test_hosts_of_a_connector_hear_once_each_of_a_topic_that_was_removed(worker: Worker) -> None:
    worker.came(topic_status_record("c", "t", None), topic_status_record("other", "t", None))
    assert worker.host.events == [TopicForgotten("c", "t")]


class WalkedRuns(dict[Unit, LocalRun]):
    """Counts how often all that runs here is looked at."""

    walks = 0

    def __iter__(self) -> Iterator[Unit]:
        self.walks += 1
        return super().__iter__()

    def items(self) -> ItemsView[Unit, LocalRun]:  # type: ignore[override]  # a view all the same
        self.walks += 1
        return super().items()


def test_many_topics_that_are_removed_are_no_look_at_all_that_runs_here_each(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked = WalkedRuns(worker.node.reconciler.local_runs)
    monkeypatch.setattr(worker.node.reconciler, "local_runs", walked)
    worker.came(*(topic_status_record(name, f"t{number}", None) for name in ("c", "other") for number in range(20)))
    assert worker.host.events == [TopicForgotten("c", f"t{number}") for number in range(20)]
    assert walked.walks == 0


async def test_statuses_that_another_worker_has_removed_take_no_memory(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        topic = topic_status_record("c", f"t{number}", TopicStatus(f"t{number}", "c", 0, 1))
        worker.store.put(topic)
        worker.wrote()
        worker.came((topic[0], None))
        # Removed before Kafka has acknowledged it.
        worker.store.put(topic)
        await worker.write_queue(monkeypatch, (topic[0], None))
    assert worker.store._written_here == keys(UNITS[:2])


def test_a_topic_that_is_active_again_in_the_same_read_is_not_forgotten(worker: Worker) -> None:
    worker.came(topic_status_record("c", "t", None), topic_status_record("c", "t", TopicStatus("t", "c", 0, 1)))
    assert worker.host.events == []


@pytest.mark.parametrize("change", ["deleted", "stopped", "fewer tasks", "placed elsewhere", "fenced"])
def test_the_status_of_what_shall_not_run_here_is_not_reported_again(worker: Worker, change: str) -> None:
    match change:
        case "deleted":
            worker.state.apply(0, *connector_record("c", None))
        case "stopped":
            worker.state.apply(0, *target_state_record("c", "STOPPED"))
        case "fewer tasks":
            worker.state.apply(0, *commit_record("c", 0))
        case "placed elsewhere":
            worker.owners[UNITS[1]] = None
        case _:
            worker.node.fenced = True
    worker.came(GONE[UNITS[1]])
    assert worker.wrote() == set()


@pytest.mark.parametrize("written_here", [False, True], ids=["by an earlier process", "by this one"])
def test_a_stopped_connector_stays_stopped_when_the_leader_is_late(worker: Worker, written_here: bool) -> None:
    """The leader gives up the units of a killed worker, which has been started again under the same name meanwhile."""
    worker.state.apply(0, *target_state_record("c", "STOPPED"))
    worker.node.reconciler.local_runs.clear()
    if written_here:
        worker.node.put_status(UNITS[0], "STOPPED", 1)
        worker.wrote()
    worker.came(connector_status_record("c", ReportedStatus("UNASSIGNED", "w:1", 2)))
    assert worker.wrote() == keys(UNITS[:1])
    status = worker.store.state.connector("c")
    assert status is not None
    assert (status.state, status.worker_id) == ("STOPPED", "w:1")
    assert worker.wrote() == set()
    worker.owners[UNITS[0]] = None
    worker.came(connector_status_record("c", ReportedStatus("UNASSIGNED", "w:1", 3)))
    assert worker.wrote() == set()


def test_a_lost_workers_task_is_known_after_its_connector_was_removed_here(worker: Worker) -> None:
    """Only the leader can remove its status from the topic: it has to know it."""
    state = worker.store.state
    worker.store.put(connector_status_record("c", None))
    assert (state.connector("c"), state.connectors()) == (None, ["c"])
    assert state.task("c", 1) is not None
    worker.came(task_status_record("c", 1, None))
    assert state.task("c", 1) is None
