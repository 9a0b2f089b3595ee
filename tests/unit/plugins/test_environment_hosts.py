"""When task hosts with other environments are started, shared and ended: the pool's decisions, without processes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from connectors.errors import Retriable
from tests.support.eventually import eventually_async, pass_turns
from tests.unit.plugins.test_catalog import ENVIRONMENTS, PLUGINS
from worker.control.hosts import HostLimits, HostPool
from worker.control.placement.planning import INSTANCE, Unit
from worker.plugins.catalog import PluginCatalog, PluginSelection
from worker.protocol import AlterOffsets, PluginConfig, RemoteError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from worker.control.host_process import HostProcess

A, B, C = ("a@1",), ("b@1",), ("c@1",)


class KnownEnvironments:
    """The environments that the pool asks about."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.catalog = PluginCatalog(PLUGINS, ENVIRONMENTS)

    def paths(self, environments: Sequence[str]) -> list[str]:
        return [f"/{key}" for key in environments]

    def current(self, environments: Sequence[str]) -> bool:
        return not self.gone & set(environments)

    def label(self, environments: Sequence[str]) -> str:
        return "+".join(environments) or "main"

    def select(self, config: Mapping[str, str]) -> PluginSelection:
        return self.catalog.select(config, {})


class Pool(HostPool):
    """Hosts are ready when a test says so; there are no processes."""

    async def _run_host(self, host: HostProcess) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            host.ready = False
        return ""


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    new_pool = Pool(2, Mock(), Mock(), 10, KnownEnvironments(), HostLimits(most=4, idle_s=1000))
    for host in new_pool.hosts:
        host.ready = True
    yield new_pool
    await new_pool.stop(0.05)


async def started(pool: Pool, environments: tuple[str, ...]) -> HostProcess:
    """The host of these environments that was started last, ready."""
    await pass_turns()
    host = [candidate for candidate in pool.hosts if candidate.environments == environments][-1]
    host.ready = True
    return host


async def test_a_host_is_started_when_it_is_needed_and_shared_by_instances(pool: Pool) -> None:
    assert pool.choose() is pool.hosts[0]
    assert pool.choose(A) is None
    assert pool.choose(A) is None
    assert [(host.number, host.label) for host in pool.hosts] == [(0, "main"), (1, "main"), (2, "a@1")]
    assert pool.why_none(A) == "a task host with its plugin's environment is starting"
    host = await started(pool, A)
    assert pool.choose(A) is host
    host.units |= {Unit("c", INSTANCE), Unit("d", INSTANCE)}
    assert pool.choose(A) is host
    assert len(pool.hosts) == 3


async def test_tasks_are_spread_over_as_many_hosts_as_the_worker_has(pool: Pool) -> None:
    pool.choose(A)
    first = await started(pool, A)
    first.units.add(Unit("c", 0))
    assert pool.choose(A) is None, "the second one starts, and is for this task"
    second = await started(pool, A)
    assert pool.choose(A) is second
    second.units |= {Unit("c", 1), Unit("c", 2)}
    assert pool.choose(A) is first
    assert len(pool.hosts) == 4


async def test_a_bound_that_idle_hosts_make_room_for(pool: Pool) -> None:
    busy = []
    for environments in (A, B, C, ("a@1", "c@1")):
        pool.choose(environments)
        busy.append(await started(pool, environments))
        busy[-1].units.add(Unit(str(environments), 0))
    other = ("b@1", "c@1")
    assert pool.choose(other) is None
    assert "plugin.environment.hosts.max allows" in pool.why_none(other)
    assert len(pool.hosts) == 6
    with pytest.raises(Retriable, match=r"plugin\.environment\.hosts\.max"):
        await pool.ask(PluginConfig("x"), 0.2, other)
    busy[1].units.clear()
    busy[1].used = time.monotonic()
    assert pool.choose(other) is None
    assert busy[1].retired
    await eventually_async(lambda: busy[1] not in pool.hosts, "the idle host has gone", every=0)
    assert pool.choose(other) is None
    host = await started(pool, other)
    assert pool.choose(other) is host
    assert [running.environments for running in pool.hosts].count(B) == 0


async def test_questions_go_where_the_configuration_belongs(pool: Pool) -> None:
    asked: list[Any] = []

    async def request(message: Any, deadline_s: float) -> str:
        del deadline_s
        asked.append(message)
        return "answer"

    question = AlterOffsets({"connector.class": "com.AConnector"}, b"[]")
    answer = asyncio.create_task(pool.ask(question, 10))
    await eventually_async(lambda: any(host.environments for host in pool.hosts), "a host is started", every=0)
    host = await started(pool, A)
    host.request = request  # type: ignore[method-assign]
    assert await answer == "answer"
    assert asked == [question]
    with pytest.raises(RemoteError, match="available connectors are") as caught:
        await pool.ask(AlterOffsets({"connector.class": "Nope"}, b"[]"), 1)
    assert caught.value.kind == "ConfigInvalid"
