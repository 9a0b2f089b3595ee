"""Questions of REST about connectors of class ``logs``: their unknown lines, and the newest lines of their input."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from worker.control.herder.base import ask_host
from worker.control.placement.planning import Unit
from worker.protocol import AskLogs
from worker.rest.facade import REBALANCE_TEXT, NotLeader, RestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.control.herder.base import HerderContext

#: How long lines of an input are read before what was found is answered, seconds.
_READ_S: Final = 8.0
Question = Literal["unknown", "recent", "schemas"]


class RuleOperations:
    """``/connectors/NAME/unknown`` and lines for ``/rules``."""

    def __init__(self, ctx: HerderContext) -> None:
        self.ctx = ctx

    async def unknown_lines(self, name: str, lines: int) -> dict[str, Any]:
        """The newest lines of a connector's ``unknown_table``; any worker can read them."""
        await self.ctx.require_connector(name)
        return await ask_logs(self.ctx, name, "unknown", {"lines": lines})

    async def recent_lines(self, name: str, lines: int) -> list[dict[str, Any]]:
        """The newest lines of a connector's input; files are on the machine of the worker that runs its first task.

        Raises:
            NotLeader: another worker runs it.
        """
        await self.ctx.require_connector(name)
        unit = Unit(name, 0)
        owner = self.ctx.node.placement.table.owner(unit) if self.ctx.snapshot.task_configs(name) else None
        if owner is not None and owner != self.ctx.node.me:
            url = self.ctx.node.owner_url(unit)
            if url is None:
                raise RestError(409, REBALANCE_TEXT)
            raise NotLeader(url)
        answer = await ask_logs(
            self.ctx, name, "recent", {"lines": lines, "seconds": min(_READ_S, self.ctx.validate_s / 2)}
        )
        recent: list[dict[str, Any]] = answer["lines"]
        return recent

    async def rule_conflicts(self, name: str, rules: Any) -> tuple[list[str], list[str]]:
        """The refusals of the schema registries of a connector's converters of the schemas that a rule set makes.

        Returns:
            They, and what could not be checked.
        """
        await self.ctx.require_connector(name)
        answer = await ask_logs(self.ctx, name, "schemas", {"rules": rules})
        return answer["problems"], answer["warnings"]


async def ask_logs(ctx: HerderContext, name: str, question: Question, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a task host about a connector."""
    config = ctx.snapshot.connectors[name]
    if ctx.connector_type(config) == "sink":
        raise RestError(400, f"Connector {name} is a sink: it has no rules and no lines")
    message = AskLogs(config, question, json.dumps(request).encode())
    answer: dict[str, Any] = orjson.loads(await ask_host(ctx, message, f"Connector {name}: "))
    return answer
