"""``GET /health`` (KIP-1017)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from worker.rest.call import json_answer
from worker.rest.operations import Operation, Reply, Tag
from worker.rest.routing import RequiredAccess, RestRoute
from worker.rest.shapes.schemas import Health

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import RestCall

_HEALTHY: Final = "Worker has completed startup and is ready to handle requests."
_STARTING: Final = "Worker is still starting up."
_UNHEALTHY: Final = "Worker was unable to handle this request and may be unable to handle other requests."


async def get_health(call: RestCall) -> web.Response:
    """200 healthy, 503 starting, 500 unhealthy."""
    try:
        async with asyncio.timeout(call.settings.health_timeout_s):
            healthy, detail = await call.herder.admin.health()
    except TimeoutError:
        healthy, detail = False, f"The check took longer than {call.settings.health_timeout_s:g} s."
    status, body = format_verdict(healthy=healthy, ready=call.herder.admin.ready(), detail=detail)
    return json_answer(body, status)


def format_verdict(*, healthy: bool, ready: bool, detail: str) -> tuple[int, dict[str, str]]:
    """The status code and the body."""
    if healthy and ready:
        return 200, {"status": "healthy", "message": _HEALTHY}
    status, word, explanation = (500, "unhealthy", _UNHEALTHY) if ready else (503, "starting", _STARTING)
    return status, {"status": word, "message": f"{explanation} {detail}".rstrip()}


ROUTES = (
    RestRoute(
        "GET",
        "/health",
        get_health,
        RequiredAccess.PUBLIC,
        when_ready=False,
        operation=Operation(
            "getHealth",
            "Whether this worker can do its work (KIP-1017).",
            Tag.WORKER,
            {
                200: Reply("It can.", Health),
                503: Reply("It is still starting.", Health),
                500: Reply("It can't, or the check took too long.", Health),
            },
        ),
    ),
)
