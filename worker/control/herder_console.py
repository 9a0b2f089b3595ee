"""Answers to the console: all connectors in short, with the rates that the workers know of their own tasks."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import orjson

from connectors.errors import MillraceError
from worker.console.rows import row, summed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.control.herder_base import HerderContext

#: Other workers are asked for rates so often at most, and have so long to answer.
_AGAIN_S: Final = 2.0
_ANSWER_S: Final = 2.0
#: Rows are made in chunks, between which other work gets its turn.
_STEP: Final = 200


class ConsoleOperations:
    """Rows and rates."""

    ctx: HerderContext
    _rates: Mapping[str, tuple[float, float | None]]
    _rates_at: float

    def own_rates(self) -> dict[str, tuple[float, float | None]]:
        """Of this worker's tasks, by connector: records per second, and seconds behind (None: not known)."""
        now = time.monotonic()
        return summed(
            {task.connector: (window.rates(now).write_rate, lag_s(window.latest.lag_ms))}
            for task, window in self.ctx.node.tasks.tasks.items()
            if window.latest.state == "RUNNING"
        )

    async def connector_rows(self) -> list[dict[str, Any]]:
        """A row for each connector, by name."""
        await self.ctx.catch_up()
        rates = await self._all_rates()
        snapshot, state = self.ctx.snapshot, self.ctx.node.status.state
        rows = []
        for number, (name, config) in enumerate(sorted(snapshot.connectors.items())):
            if number % _STEP == _STEP - 1:
                await asyncio.sleep(0)
            tasks = [state.task(name, task) for task in range(len(snapshot.task_configs(name)))]
            rows.append(
                row(name, config, self.ctx.connector_type(config), state.connector(name), tasks, rates.get(name))
            )
        return rows

    async def _all_rates(self) -> Mapping[str, tuple[float, float | None]]:
        now = time.monotonic()
        if now - self.ctx.rates_at >= _AGAIN_S:
            self.ctx.rates_at = now
            view, node = self.ctx.node.view, self.ctx.node
            urls = (
                [member.url for member in view.members.values() if member.worker_id != node.worker_id] if view else []
            )
            others = await asyncio.gather(*map(self._rates_of, urls))
            self.ctx.rates = summed([self.own_rates(), *others])
        return self.ctx.rates

    async def _rates_of(self, url: str) -> Mapping[str, tuple[float, float | None]]:
        """Rates that another worker reports; nothing if it does not answer."""
        key = self.ctx.node.session_key()
        if key is None:
            return {}
        try:
            async with asyncio.timeout(_ANSWER_S):
                answer = await self.ctx.node.client.ask_signed(url, "/console/rates", key)
        except (MillraceError, TimeoutError):
            return {}
        rates: dict[str, tuple[float, float | None]] = orjson.loads(answer)
        return rates


def lag_s(lag_ms: float) -> float | None:
    """Seconds behind from a task's milliseconds, which are -1 where they are not known. Pure."""
    return None if lag_ms < 0 else lag_ms / 1000
