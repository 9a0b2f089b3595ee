"""``/connectors/{connector}/topics`` (KIP-558): the topics a connector has written to."""
from __future__ import annotations

from typing import TYPE_CHECKING

from worker.rest.call import answer, empty
from worker.rest.facade import RestError
from worker.rest.routing import Route

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import Call


async def get(call: Call) -> web.Response:
    """``GET``: also for connectors that don't exist (any more)."""
    _check(call)
    return answer({call.connector: {"topics": await call.herder.connector_topics(call.connector)}})


async def reset(call: Call) -> web.Response:
    """``PUT .../reset``."""
    _check(call)
    if not call.settings.topic_reset:
        raise RestError(403, "Topic tracking reset is disabled.")
    await call.herder.reset_connector_topics(call.connector)
    return empty(202)


def _check(call: Call) -> None:
    if not call.settings.topic_tracking:
        raise RestError(403, "Topic tracking is disabled.")


ROUTES = (
    Route("GET", "/connectors/{connector}/topics", get),
    Route("PUT", "/connectors/{connector}/topics/reset", reset),
)
