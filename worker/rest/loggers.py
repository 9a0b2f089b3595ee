"""``/admin/loggers`` (KIP-495, KIP-976): levels of loggers, on this worker or on all."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.rest import bodies
from worker.rest.call import answer, empty
from worker.rest.facade import RestError
from worker.rest.routing import Route

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import Call

LEVELS: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF", "ALL")


async def list_loggers(call: Call) -> web.Response:
    """``GET /admin/loggers``."""
    return answer(await call.herder.loggers())


async def get_logger(call: Call) -> web.Response:
    """``GET /admin/loggers/{logger}``."""
    return answer(await call.herder.logger(call.parameters["logger"]))


async def set_level(call: Call) -> web.Response:
    """``PUT /admin/loggers/{logger}?scope=worker|cluster``: the loggers that changed, or 204 for the cluster."""
    given = bodies.read_level(await call.request.read())
    if given is None:
        raise RestError(400, "Desired 'level' parameter was not specified in request.")
    level = given.strip().upper()
    if level not in LEVELS:
        raise RestError(404, f"invalid log level '{given}'.")
    cluster = call.request.query.get("scope", "worker").lower() == "cluster"
    changed = await call.herder.set_log_level(call.parameters["logger"], level, cluster=cluster)
    return empty(204) if cluster else answer(changed)


ROUTES = (
    Route("GET", "/admin/loggers", list_loggers, when_ready=False),
    Route("GET", "/admin/loggers/{logger}", get_logger, when_ready=False),
    Route("PUT", "/admin/loggers/{logger}", set_level, when_ready=False, takes_body=True),
)
