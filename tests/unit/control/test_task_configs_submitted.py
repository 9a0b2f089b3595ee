"""A worker brings what its connectors say of their tasks to the leader, whatever else happens meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from offsets.cluster import ClusterState, ConfigChange
from offsets.records import commit_record, connector_record, task_record
from tests.support.eventually import eventually_async
from worker.control import task_configs
from worker.control.node import WorkerNode
from worker.control.placement.desired_runs import need_new_configs
from worker.control.placement.planning import INSTANCE, Unit
from worker.control.placement.reconciler import DesiredRun, LocalRun
from worker.logs import LoggerRegistry
from worker.protocol import TaskConfigs
from worker.rest.facade import RestError

if TYPE_CHECKING:
    import pytest

CONFIG, TASKS = {"a": "b"}, [{"c": "d"}]


class Cluster:
    """A config topic that is folded at once; ``looked`` is called each time a node has found nothing left to submit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state = ClusterState()
        self.submitted = 0
        self.looked: list[Any] = []
        self.node = WorkerNode("w:1", "i", LoggerRegistry(), exactly_once=False, put_task_configs=self.put)
        monkeypatch.setattr(
            self.node,
            "reconciler",
            SimpleNamespace(
                local_runs={Unit("c", INSTANCE): LocalRun(DesiredRun(CONFIG, None, 1), cast("Any", None))},
                wake=lambda: None,
            ),
            raising=False,
        )
        monkeypatch.setattr(self.node, "leader", SimpleNamespace(chosen=True, wake=lambda: None), raising=False)
        monkeypatch.setattr(self.node, "config", self, raising=False)
        monkeypatch.setattr(task_configs, "_FIRST_RETRY_S", 0.0)
        monkeypatch.setattr(task_configs, "need_new_configs", self.need)

    @property
    def snapshot(self) -> Any:
        return self.state.snapshot()

    def need(self, *arguments: Any) -> bool:
        needed = need_new_configs(*arguments)
        if not needed and self.looked:
            asyncio.get_running_loop().call_soon(self.looked.pop())
        return needed

    async def put(self, name: str, configs: list[dict[str, str]]) -> None:
        self.submitted += 1
        for pair in (
            *(task_record(name, task, task_config) for task, task_config in enumerate(configs)),
            commit_record(name, len(configs)),
        ):
            self.state.apply(0, *pair)

    def make(self) -> None:
        """The connector is created and says what its tasks are."""
        self.state.apply(0, *connector_record("c", CONFIG))
        self.node.task_configs(cast("Any", None), TaskConfigs("c", TASKS, 1))

    def remake(self) -> None:
        """It is deleted and created again."""
        self.state.apply(0, *connector_record("c", None))
        self.make()


async def until_submitted(cluster: Cluster, times: int) -> None:
    await eventually_async(
        lambda: cluster.submitted >= times and cluster.node.submission.idle,
        f"{times} submissions",
        every=0,
        detail=lambda: cluster.submitted,
    )


async def test_what_comes_in_the_moment_in_which_a_submission_ends_is_submitted_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch)
    cluster.looked = [cluster.remake]
    cluster.make()
    await until_submitted(cluster, 2)
    assert cluster.snapshot.task_configs("c") == TASKS


async def test_a_connector_that_is_made_again_during_a_submission_has_its_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch)
    cluster.make()
    cluster.remake()
    await until_submitted(cluster, 1)
    assert cluster.snapshot.task_configs("c") == TASKS


async def test_a_changed_connector_is_asked_before_its_tasks_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The running instance knows the tasks of the configuration before: written now, they would start the tasks twice."""
    cluster = Cluster(monkeypatch)
    cluster.make()
    await until_submitted(cluster, 1)
    changed = {"a": "changed"}
    cluster.state.apply(1, *connector_record("c", changed))
    cluster.node.config_changed(ConfigChange("connector", "c"))
    assert cluster.node.submission.idle
    # Its successor runs, and says what the tasks are.
    cluster.node.reconciler.local_runs[Unit("c", INSTANCE)] = LocalRun(DesiredRun(changed, None, 1), cast("Any", None))
    cluster.node.task_configs(cast("Any", None), TaskConfigs("c", [{"c": "changed"}], 1))
    await until_submitted(cluster, 2)
    assert cluster.snapshot.task_configs("c") == [{"c": "changed"}]


async def test_what_does_not_get_to_the_leader_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    monkeypatch.setattr(cluster.node.leader, "chosen", False)
    monkeypatch.setattr(cluster.node.leader, "url", "http://leader", raising=False)
    monkeypatch.setattr(cluster.node, "session_key", lambda: b"key")
    refusals = [RestError(503, "compare the workers' clocks")] * 3

    async def refuse(*_: Any) -> None:
        if refusals:
            raise refusals.pop()
        monkeypatch.setattr(cluster.node.leader, "chosen", True)

    monkeypatch.setattr(cluster.node, "client", SimpleNamespace(send_signed=refuse), raising=False)
    cluster.make()
    find = cluster.node.submission.find_refusal
    reason = await eventually_async(lambda: find(-1.0), "a refusal", every=0)
    assert reason == (
        "The task configurations of a connector here do not get to the leader: compare the workers' clocks"
    )
    assert find(60.0) is None
    await until_submitted(cluster, 1)
    assert find(-1.0) is None
