"""Answers to the console: all connectors in short, with the rates that the workers know of their own tasks."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import orjson

from connectors.errors import MillraceError
from worker.console.pipeline import describe_endpoints
from worker.console.rows import build_row, sum_reports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.console.history import PastConfig
    from worker.control.herder.base import HerderContext

#: Other workers are asked for rates so often at most, and have so long to answer.
_AGAIN_S: Final = 2.0
_ANSWER_S: Final = 2.0
#: Rows are made in chunks, between which other work gets its turn.
_STEP: Final = 200


class ConsoleOperations:
    """Rows and rates."""

    def __init__(self, ctx: HerderContext) -> None:
        self.ctx = ctx

    def own_rates(self) -> dict[str, tuple[float, float | None]]:
        """Of this worker's tasks, by connector: records per second, and seconds behind (None: not known)."""
        return sum_reports(
            {task.connector: (window.write_rate(), lag_s(window.latest.lag_ms))}
            for task, window in self.ctx.node.tasks.tasks.items()
            if window.latest.state == "RUNNING"
        )

    async def connector_rows(self) -> list[dict[str, Any]]:
        """A row for each connector, by name; a row that has not changed since the last call is the same object."""
        await self.ctx.catch_up()
        rates = await self._all_rates()
        snapshot, state = self.ctx.snapshot, self.ctx.node.status.state
        # Another catalog may know a connector's type that this one does not.
        before, now, catalog = self.ctx.rows, {}, self.ctx.node.plugins.catalog
        for number, (name, config) in enumerate(sorted(snapshot.connectors.items())):
            if number % _STEP == _STEP - 1:
                await asyncio.sleep(0)
            tasks = [state.task(name, task) for task in range(len(snapshot.task_configs(name)))]
            instance, rate = state.connector(name), rates.get(name)
            inputs = (catalog, config, instance, tasks, rate)
            cached = before.get(name)
            # Most inputs are the same objects as a second ago: comparing them costs far less than a new row.
            if cached is not None and cached[0] == inputs:
                now[name] = cached
            else:
                now[name] = inputs, build_row(name, config, self.ctx.connector_type(config), instance, tasks, rate)
        self.ctx.rows = now
        return [cached_row for _, cached_row in now.values()]

    async def config_history(self, name: str) -> list[PastConfig]:
        """A connector's configurations that Kafka still has, the newest first."""
        await self.ctx.require_connector(name)
        return self.ctx.node.config.history.of(name)

    async def pipeline(self) -> dict[str, Any]:
        """The live workers, and what each connector reads and writes."""
        await self.ctx.catch_up()
        snapshot, state = self.ctx.snapshot, self.ctx.node.status.state
        connectors = []
        units: Counter[tuple[str, str]] = Counter()
        for number, (name, config) in enumerate(sorted(snapshot.connectors.items())):
            if number % _STEP == _STEP - 1:
                await asyncio.sleep(0)
            instance = state.connector(name)
            if instance is not None:
                units[instance.worker_id, "connectors"] += 1
            units.update((status.worker_id, "tasks") for status in state.tasks(name).values())
            connectors.append(describe_endpoints(name, config, self.ctx.connector_type(config), state.topics(name)))
        return {"workers": self._describe_workers(units), "connectors": connectors}

    def _describe_workers(self, units: Counter[tuple[str, str]]) -> list[dict[str, Any]]:
        view = self.ctx.node.view
        return [
            {
                "worker_id": member.worker_id,
                "leader": view is not None and member.worker_id == view.leader.worker_id,
                "draining": member.draining,
                "hosts": member.capacity,
                "started_ms": member.started_ms,
                "labels": member.labels,
                "connectors": units[member.worker_id, "connectors"],
                "tasks": units[member.worker_id, "tasks"],
            }
            for member in sorted(view.members.values() if view else (), key=lambda member: member.worker_id)
        ]

    async def _all_rates(self) -> Mapping[str, tuple[float, float | None]]:
        now = time.monotonic()
        if now - self.ctx.rates_at >= _AGAIN_S:
            self.ctx.rates_at = now
            others = await self.from_workers("/console/rates")
            self.ctx.rates = sum_reports([self.own_rates(), *others.values()])
        return self.ctx.rates

    def me(self) -> str:
        """The id of this worker."""
        return self.ctx.node.worker_id

    def numbers(self) -> tuple[dict[Any, tuple[int, str, float]], float, int, float]:
        """Numbers of this worker for charts; see the facade."""
        table, process = self.ctx.node.tasks, self.ctx.node.numbers.process_numbers()
        tasks = {
            task: (window.latest.written, window.latest.state, window.latest.lag_ms)
            for task, window in table.tasks.items()
        }
        hosts = table.hosts.values()
        return (
            tasks,
            process.cpu_s + sum(host.cpu_s for host in hosts),
            process.rss_bytes + sum(host.rss_bytes for host in hosts),
            max([self.ctx.node.stats.loop_lag_s, *(host.loop_lag_s for host in hosts)]),
        )

    async def from_workers(self, path: str) -> dict[str, Any]:
        """Answers of the other workers; see the facade."""
        view, node = self.ctx.node.view, self.ctx.node
        others = [member for member in view.members.values() if member.worker_id != node.worker_id] if view else []
        answers = await asyncio.gather(*(self._ask_worker(member.url, path) for member in others))
        return {member.worker_id: answer for member, answer in zip(others, answers, strict=True) if answer is not None}

    async def _ask_worker(self, url: str, path: str) -> Any:
        key = self.ctx.node.session_key()
        if key is None:
            return None
        try:
            async with asyncio.timeout(_ANSWER_S):
                return orjson.loads(await self.ctx.node.client.ask_signed(url, path, key))
        except (MillraceError, TimeoutError):
            return None


def lag_s(lag_ms: float) -> float | None:
    """Seconds behind from a task's milliseconds, which are -1 where they are not known. Pure."""
    return None if lag_ms < 0 else lag_ms / 1000
