"""Plans and previews of flows, asked by REST: a task host answers, with the connector's class."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from worker.control.herder.base import ask_host
from worker.protocol import AskFlow
from worker.rest.facade import RestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.control.herder.base import HerderContext

#: What is left of the time for the way of the answer, seconds.
_MARGIN_S: Final = 1.0


class FlowOperations:
    """``/flows``."""

    def __init__(self, ctx: HerderContext) -> None:
        self.ctx = ctx

    async def plan_flow(self, config: Mapping[str, str]) -> dict[str, Any]:
        """The plan of a configuration, and what it keeps of the running connector of its name."""
        name = config.get("name", "")
        await self.ctx.catch_up(name or None)
        return await self._ask_flow("plan", config, running=self.ctx.snapshot.connectors.get(name))

    async def preview_flow(self, config: Mapping[str, str], request: Mapping[str, Any]) -> dict[str, Any]:
        """Some rows through the steps of a configuration."""
        return await self._ask_flow("preview", config, request=json.dumps(request).encode())

    async def _ask_flow(
        self,
        method: Literal["plan", "preview"],
        config: Mapping[str, str],
        *,
        running: Mapping[str, str] | None = None,
        request: bytes = b"{}",
    ) -> dict[str, Any]:
        limit_s = self.ctx.validate_s
        selection = self.ctx.node.plugins.select(dict(config))
        if "connector.class" in selection.problems:
            raise RestError(400, selection.problems["connector.class"])
        message = AskFlow(
            dict(config),
            method,
            max(limit_s - _MARGIN_S, limit_s / 2),
            None if running is None else dict(running),
            request,
        )
        answer: dict[str, Any] = orjson.loads(await ask_host(self.ctx, message, environments=selection.environments))
        return answer
