"""Requests that change one connector at the same time, over a leader in memory whose writes and checks take a while."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

import orjson

from offsets.records import ReportedStatus
from tests.support.eventually import pass_turns
from worker.control.herder.cluster import ClusterHerder
from worker.rest.facade import RestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offsets.records import Pair
    from worker.control.herder.base import HerderContext


class Cluster:
    """Stands for the herder's context and the leader; records count when they are read back."""

    def __init__(self, **connectors: dict[str, str]) -> None:
        self.tasks = 0
        self.snapshot = SimpleNamespace(connectors=connectors, task_configs=lambda _: [{}] * self.tasks)
        self.config_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.target = "STOPPED"
        self.snapshot.target_state = lambda _: self.target
        self.snapshot.task_counts = {}
        self.snapshot.fenced_counts = {}
        self.own_offsets = self._no_own_offsets
        self.exactly_once = False
        self.validate_s = 5.0
        self.restarts = self.writes = 0
        self.target_of_another_leader = ""
        #: Offsets that were written, with the connector's state at that moment.
        self.offsets: list[tuple[str, Any]] = []
        self.verifications: dict[str, object] = {}
        placement = SimpleNamespace(
            instructions=SimpleNamespace(get=lambda _: []), verifications=SimpleNamespace(summary=lambda _: None)
        )
        status = ReportedStatus("RUNNING", "w:1", 1)
        #: A task of an earlier configuration has a status, too.
        state = SimpleNamespace(connector=lambda _: status, tasks=lambda _: {0: status}, task=lambda *_: status)
        self.node = SimpleNamespace(
            status=SimpleNamespace(state=state),
            leader=SimpleNamespace(write=self.write, check=lambda: None),
            placement=placement,
            pool=self,
            offsets=SimpleNamespace(write=self.write_offsets),
        )
        self.herder = ClusterHerder(cast("HerderContext", self))

    async def _no_own_offsets(self, connector: Mapping[str, str]) -> None:
        """All are in the worker's topic."""

    async def catch_up(self, name: str) -> None:
        """All records are read."""

    async def lead(self) -> None:
        await pass_turns()

    async def require_connector(self, name: str) -> None:
        if name not in self.snapshot.connectors:
            raise RestError(404, "unknown")

    def connector_type(self, config: Mapping[str, str]) -> str:
        del config
        return "source"

    async def ask_validation(self, config: dict[str, str], plugin: str | None) -> dict[str, Any]:
        del config, plugin
        await pass_turns()
        return {"error_count": 0}

    async def wait_stopped(self, name: str, deadline_s: float) -> None:
        """It has."""

    async def ask(self, message: object, deadline_s: float, environments: object) -> bool:
        del message, deadline_s, environments
        await pass_turns()
        self.target = self.target_of_another_leader or self.target
        return True

    async def write_offsets(self, name: str, changes: Any, deadline_s: float) -> None:
        del name, deadline_s
        await pass_turns()
        self.offsets.append((self.target, changes))

    async def write(self, config: Sequence[Pair] = (), placement: Sequence[Pair] = ()) -> None:
        assert not placement
        self.writes += 1
        await pass_turns()
        for key, value in config:
            kind, _, name = key.decode().partition("-")
            if kind == "restart":
                self.restarts += 1
            elif kind == "commit" and value is not None:
                self.tasks = orjson.loads(value)["tasks"]
            elif kind == "target" and value is not None:
                self.target = orjson.loads(value)["state.v2"]
            elif kind == "connector" and value is None:
                self.snapshot.connectors.pop(name, None)
            elif kind == "connector" and value is not None:
                self.snapshot.connectors[name] = orjson.loads(value)["properties"]


async def answers(*calls: Any) -> list[Any]:
    """Return the calls' results, or the status that they are refused with."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    return [result.status if isinstance(result, RestError) else result for result in results]


async def test_of_two_that_create_a_connector_at_once_one_is_refused() -> None:
    cluster = Cluster()
    first, second = await answers(*(cluster.herder.create_connector("c", {"name": "c", "by": by}, None) for by in "ab"))
    assert (first["config"]["by"], second) == ("a", 409)
    assert cluster.snapshot.connectors == {"c": {"name": "c", "by": "a"}}
    assert not cluster.config_locks, "no lock is left behind"


async def test_of_two_puts_at_once_one_has_created_it() -> None:
    cluster = Cluster()
    results = await answers(*(cluster.herder.put_connector_config("c", {"name": "c", "by": by}) for by in "ab"))
    assert [created for created, _ in results] == [True, False]
    assert cluster.snapshot.connectors["c"]["by"] == "b"


async def test_patches_at_once_do_not_undo_each_other() -> None:
    cluster = Cluster(c={"name": "c", "old": "1", "kept": "2"})
    patches: list[dict[str, str | None]] = [{"a": "1"}, {"b": "2"}, {"old": None}, {"name": None}]
    await answers(*(cluster.herder.patch_connector_config("c", patch) for patch in patches))
    assert cluster.snapshot.connectors["c"] == {"name": "c", "kept": "2", "a": "1", "b": "2"}


async def test_a_patch_does_not_bring_a_deleted_connector_back() -> None:
    for order in (1, -1):
        cluster = Cluster(c={"name": "c"})
        calls = [cluster.herder.patch_connector_config("c", {"a": "1"}), cluster.herder.delete_connector("c")][::order]
        results = (await answers(*calls))[::order]
        assert (results[1], cluster.snapshot.connectors) == (None, {}), "it is deleted, whichever came first"
        assert results[0] == 404
    cluster = Cluster(c={"name": "c"})
    assert await answers(cluster.herder.delete_connector("c"), cluster.herder.delete_connector("c")) == [None, 404]


async def test_a_connector_is_not_resumed_before_offsets_that_are_being_changed_are_written() -> None:
    cluster = Cluster(c={"name": "c"})
    asked = [({"p": "1"}, {"at": 1})]
    results = await answers(
        cluster.herder.offsets.alter_connector_offsets("c", asked),
        cluster.herder.set_target_state("c", "STARTED"),
        cluster.herder.delete_connector("c"),
    )
    assert (results[1:], cluster.target) == ([None, None], "STARTED")
    assert cluster.offsets == [("STOPPED", asked)], "by a task that runs they would be overwritten, or never read"


async def test_a_stopped_connector_has_no_tasks_that_it_asked_for_meanwhile() -> None:
    for order in (1, -1):
        cluster = Cluster(c={"name": "c"})
        cluster.target = "STARTED"
        calls = [cluster.herder.put_task_configs("c", [{}, {}]), cluster.herder.set_target_state("c", "STOPPED")]
        assert await answers(*calls[::order]) == [None, None]
        assert (cluster.target, cluster.tasks) == ("STOPPED", 0)
        assert cluster.writes <= 2, "a third, which makes it good, may fail"


async def test_offsets_of_a_connector_that_another_leader_has_resumed_are_not_changed() -> None:
    cluster = Cluster(c={"name": "c"})
    cluster.target_of_another_leader = "STARTED"
    assert await answers(cluster.herder.offsets.alter_connector_offsets("c", [({"p": "1"}, {"at": 1})])) == [400]
    assert cluster.offsets == []


async def test_a_restart_leaves_out_tasks_that_the_connector_no_longer_has() -> None:
    cluster = Cluster(c={"name": "c"})
    body = await cluster.herder.restart_connector_and_tasks("c", include_tasks=True, only_failed=False)
    assert (body["connector"]["state"], body["tasks"], cluster.restarts) == ("RESTARTING", [], 1)
