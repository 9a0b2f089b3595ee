"""Savepoints of jobs over REST. The worker that runs the job's task answers: the job is on its machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from worker.control.herder.base import ask_host
from worker.control.placement.planning import Unit
from worker.protocol import JobSavepoints
from worker.rest.facade import REBALANCE_TEXT, NotLeader, RestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.control.herder.base import HerderContext

_STATUS: Final = {"ConfigInvalid": 400, "Retriable": 409}


class SavepointOperations:
    """``/connectors/NAME/savepoints``."""

    def __init__(self, ctx: HerderContext) -> None:
        self.ctx = ctx

    async def create_savepoint(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the running job for a savepoint; name, location and stop."""
        asked: dict[str, Any] = await self._ask_job(name, "create", request)
        return asked

    async def list_savepoints(self, name: str) -> list[dict[str, Any]]:
        """The job's savepoints."""
        savepoints: list[dict[str, Any]] = await self._ask_job(name, "list", {})
        return savepoints

    async def delete_savepoint(self, name: str, savepoint: str) -> None:
        """Remove a savepoint."""
        if not await self._ask_job(name, "delete", {"name": savepoint}):
            raise RestError(404, f"Savepoint {savepoint} of connector {name} not found")

    async def _ask_job(self, name: str, action: Literal["create", "list", "delete"], request: Mapping[str, Any]) -> Any:
        """The answer of the connector's class on the worker that runs the job; a stopped job's on any worker.

        Raises:
            NotLeader: another worker runs it.
            RestError: 400 for a refusal, 409 where the job does not run, 503 without a task host, 500 for anything else.
        """
        await self.ctx.require_connector(name)
        config = self.ctx.snapshot.connectors[name]
        if self.ctx.connector_type(config) == "source":
            raise RestError(400, f"Connector {name} is a source: its position is in GET /connectors/{name}/offsets")
        unit = Unit(name, 0)
        owner = self.ctx.node.placement.table.owner(unit) if self.ctx.snapshot.task_configs(name) else None
        if owner is not None and owner != self.ctx.node.me:
            url = self.ctx.node.owner_url(unit)
            if url is None:
                raise RestError(409, REBALANCE_TEXT)
            raise NotLeader(url)
        message = JobSavepoints(config, action, orjson.dumps(dict(request)))
        return orjson.loads(await ask_host(self.ctx, message, f"Connector {name}: ", statuses=_STATUS))
