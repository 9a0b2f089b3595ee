"""``/admin/loggers`` (KIP-495, KIP-976): levels of loggers, on this worker or on all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, get_args

from worker.rest.call import empty_answer, json_answer, optional_flag
from worker.rest.facade import NotLeader, RestError
from worker.rest.operations import CONFLICT, FORWARD, Operation, QueryParameter, Reply, Tag
from worker.rest.routing import RequiredAccess, RestRoute
from worker.rest.shapes import bodies
from worker.rest.shapes.schemas import Level, LevelRequest, LoggerLevel

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import RestCall

LEVELS: Final[tuple[str, ...]] = get_args(Level)


async def list_loggers(call: RestCall) -> web.Response:
    """``GET /admin/loggers``; loggers that are off are left out, as in Kafka Connect, though each can be asked for by name."""
    return json_answer(
        {name: state for name, state in (await call.herder.admin.loggers()).items() if state["level"] != "OFF"}
    )


async def get_logger(call: RestCall) -> web.Response:
    """``GET /admin/loggers/{logger}``."""
    return json_answer(await call.herder.admin.logger(call.parameters["logger"]))


async def set_level(call: RestCall) -> web.Response:
    """``PUT /admin/loggers/{logger}?scope=worker|cluster``: the loggers that changed, or 204 for the cluster."""
    requested = bodies.read_level(await call.request.read())
    if requested is None:
        raise RestError(400, "Desired 'level' parameter was not specified in request.")
    level = requested.strip().upper()
    if level not in LEVELS:
        raise RestError(404, f"invalid log level '{requested}'.")
    cluster = call.request.query.get("scope", "worker").lower() == "cluster"
    name = call.parameters["logger"]
    try:
        changed = await call.herder.admin.set_log_level(name, level, cluster=cluster)
    except NotLeader as error:
        if call.settings.admin_listeners is None or optional_flag(call.request, "forward") is False:
            raise
        # The leader's address for other workers does not serve this path.
        changed = await call.herder.admin.send_log_level(error.leader_url, name, level)
    return empty_answer(204) if cluster else json_answer(changed)


ROUTES = (
    RestRoute(
        "GET",
        "/admin/loggers",
        list_loggers,
        when_ready=False,
        operation=Operation(
            "listLoggers",
            "All loggers with a level of their own, but for those that are off.",
            Tag.ADMIN,
            {200: Reply("Their levels by name.", dict[str, LoggerLevel])},
        ),
    ),
    RestRoute(
        "GET",
        "/admin/loggers/{logger}",
        get_logger,
        when_ready=False,
        operation=Operation(
            "getLogger",
            "A logger's level.",
            Tag.ADMIN,
            {200: Reply("Its level.", LoggerLevel)},
            {404: "There is no such logger."},
        ),
    ),
    RestRoute(
        "PUT",
        "/admin/loggers/{logger}",
        set_level,
        RequiredAccess.ADMIN,
        when_ready=False,
        operation=Operation(
            "setLogLevel",
            "Set the level of a logger and of its children.",
            Tag.ADMIN,
            {
                200: Reply("The loggers that were changed on this worker.", list[str]),
                204: Reply("All workers have been informed (`scope=cluster`)."),
            },
            {400: "The body names no level, or is not understood.", 404: "There is no such level.", 409: CONFLICT},
            (
                QueryParameter("scope", "Where (KIP-976): this worker or all.", Literal["worker", "cluster"], "worker"),
                FORWARD,
            ),
            LevelRequest,
            {"more": {"level": "DEBUG"}},
        ),
    ),
)
