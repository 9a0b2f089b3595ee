"""``/connectors/{connector}/topics`` (KIP-558): the topics a connector has written to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.rest.call import empty_answer, json_answer
from worker.rest.facade import RestError
from worker.rest.operations import Operation, Reply, Tag
from worker.rest.routing import RequiredAccess, RestRoute
from worker.rest.shapes.schemas import Topics

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import RestCall


async def get_topics(call: RestCall) -> web.Response:
    """``GET``: also for connectors that don't exist (any more)."""
    _check_enabled(call)
    return json_answer({call.connector: {"topics": await call.herder.admin.connector_topics(call.connector)}})


async def reset_topics(call: RestCall) -> web.Response:
    """``PUT .../reset``."""
    _check_enabled(call)
    if not call.settings.topic_reset:
        raise RestError(403, "Topic tracking reset is disabled.")
    await call.herder.admin.reset_connector_topics(call.connector)
    return empty_answer(202)


def _check_enabled(call: RestCall) -> None:
    if not call.settings.topic_tracking:
        raise RestError(403, "Topic tracking is disabled.")


_OFF = "`topic.tracking.enable` is false."

ROUTES = (
    RestRoute(
        "GET",
        "/connectors/{connector}/topics",
        get_topics,
        operation=Operation(
            "getConnectorTopics",
            "The topics that a connector has written to (KIP-558).",
            Tag.TOPICS,
            {200: Reply("By the connector's name; none for a connector that does not exist.", dict[str, Topics])},
            {403: _OFF},
        ),
    ),
    RestRoute(
        "PUT",
        "/connectors/{connector}/topics/reset",
        reset_topics,
        RequiredAccess.OPERATE,
        operation=Operation(
            "resetConnectorTopics",
            "Forget the topics that a connector has written to.",
            Tag.TOPICS,
            {202: Reply("They are being forgotten, whether or not there is such a connector.")},
            {403: f"{_OFF[:-1]}, or `topic.tracking.allow.reset` is."},
        ),
    ),
)
