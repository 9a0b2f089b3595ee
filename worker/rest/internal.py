"""Signed requests between workers: a worker's task configurations, and fencing. Not part of the public API."""
from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from worker.rest import bodies
from worker.rest.call import empty
from worker.rest.facade import RestError
from worker.rest.routing import Route
from worker.rest.signing import verify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp import web

    from worker.rest.call import Call
    from worker.rest.signing import SessionKey


class InternalHerder(Protocol):
    """What other workers ask of this one."""

    def session_key(self) -> SessionKey | None:
        """The cluster's current session key, or None while it isn't known."""

    def signature_algorithms(self) -> Sequence[str]:
        """Algorithms that are accepted (``inter.worker.verification.algorithms``)."""

    async def put_task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Write a connector's task configurations. Leader only."""

    async def fence_zombies(self, name: str) -> None:
        """Fence the producers of earlier task generations. Leader only."""


async def put_tasks(call: Call) -> web.Response:
    """``POST /connectors/{connector}/tasks``."""
    workers, data = await _verified(call)
    await workers.put_task_configs(call.connector, bodies.read_task_configs(data))
    return empty(204)


async def fence(call: Call) -> web.Response:
    """``PUT /connectors/{connector}/fence``."""
    workers, _ = await _verified(call)
    await workers.fence_zombies(call.connector)
    return empty(204)


async def _verified(call: Call) -> tuple[InternalHerder, bytes]:
    if call.workers is None:
        raise RestError(503, "This worker takes no requests from other workers")
    data = await call.request.read()
    verify(call.request.headers, data, call.workers.session_key(), call.workers.signature_algorithms())
    return call.workers, data


ROUTES = (
    Route("POST", "/connectors/{connector}/tasks", put_tasks, when_ready=False),
    Route("PUT", "/connectors/{connector}/fence", fence, when_ready=False),
)
