"""Signed requests between workers: task configurations, fencing, and levels of loggers. Not part of the public API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from worker.rest.call import empty_answer
from worker.rest.facade import RestError
from worker.rest.operations import CONFLICT, Operation, Reply, Tag
from worker.rest.routing import RequiredAccess, RestRoute
from worker.rest.security.signing import UNSIGNED, verify_signature
from worker.rest.shapes import bodies
from worker.rest.shapes.schemas import ConfigBody, LevelRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp import web

    from worker.rest.call import RestCall
    from worker.rest.security.signing import SigningKey


class InternalHerder(Protocol):
    """The requests of other workers to this one."""

    def session_key(self) -> SigningKey | None:
        """The cluster's current session key, or None while it isn't known."""

    def signature_algorithms(self) -> Sequence[str]:
        """Algorithms that are accepted (``inter.worker.verification.algorithms``)."""

    async def put_task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Write a connector's task configurations. Leader only."""

    async def fence_zombies(self, name: str) -> None:
        """Fence the producers of earlier task generations. Leader only."""

    async def set_cluster_level(self, name: str, level: str) -> None:
        """Set a logger's level on all workers. Leader only."""


async def put_tasks(call: RestCall) -> web.Response:
    """``POST /connectors/{connector}/tasks``."""
    workers, data = await _verify_request(call)
    await workers.put_task_configs(call.connector, bodies.read_task_configs(data))
    return empty_answer(204)


async def fence_tasks(call: RestCall) -> web.Response:
    """``PUT /connectors/{connector}/fence``."""
    workers, _ = await _verify_request(call)
    await workers.fence_zombies(call.connector)
    return empty_answer(204)


async def set_cluster_level(call: RestCall) -> web.Response:
    """``PUT /loggers/{logger}``."""
    workers, data = await _verify_request(call)
    level = bodies.read_level(data)
    if level is None:
        raise RestError(400, "The level is missing")
    await workers.set_cluster_level(call.parameters["logger"], level)
    return empty_answer(204)


async def _verify_request(call: RestCall) -> tuple[InternalHerder, bytes]:
    if call.workers is None:
        raise RestError(503, "This worker takes no requests from other workers")
    data = await call.request.read()
    verify_signature(call.request.headers, data, call.workers.session_key(), call.workers.signature_algorithms())
    # KIP-507's signature is of the body alone, and could be sent again, elsewhere: the worker's own must be there too.
    if call.principal.method != "worker":
        raise RestError(400, UNSIGNED)
    return call.workers, data


_REFUSED = {
    400: "The request has no signature, or the body is not understood.",
    403: "The signature is wrong.",
    409: CONFLICT,
    503: "This worker takes no such requests, or does not know the session key yet.",
}

ROUTES = (
    RestRoute(
        "POST",
        "/connectors/{connector}/tasks",
        put_tasks,
        RequiredAccess.INTERNAL,
        when_ready=False,
        operation=Operation(
            "putTaskConfigs",
            "Between workers: write a connector's task configurations.",
            Tag.INTERNAL,
            {204: Reply("They are written.")},
            _REFUSED,
            body=list[ConfigBody],
        ),
    ),
    RestRoute(
        "PUT",
        "/connectors/{connector}/fence",
        fence_tasks,
        RequiredAccess.INTERNAL,
        when_ready=False,
        operation=Operation(
            "fenceZombies",
            "Between workers: fence the producers of earlier tasks (exactly once).",
            Tag.INTERNAL,
            {204: Reply("They are fenced.")},
            _REFUSED,
        ),
    ),
    RestRoute(
        "PUT",
        "/loggers/{logger}",
        set_cluster_level,
        RequiredAccess.INTERNAL,
        when_ready=False,
        operation=Operation(
            "setClusterLevel",
            "Between workers: set the level of a logger on all workers.",
            Tag.INTERNAL,
            {204: Reply("All workers are informed.")},
            _REFUSED,
            body=LevelRequest,
            note="What `PUT /admin/loggers/{logger}` asks of the leader where `/admin` has listeners of its own.",
        ),
    ),
)
