"""``/connectors/{connector}/offsets`` (KIP-875)."""
from __future__ import annotations

from typing import TYPE_CHECKING

from worker.rest import bodies
from worker.rest.call import answer
from worker.rest.routing import Route

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import Call


async def get(call: Call) -> web.Response:
    """``GET``: every saved position."""
    return answer({"offsets": await call.herder.connector_offsets(call.connector)})


async def alter(call: Call) -> web.Response:
    """``PATCH``: overwrite or reset some of them; the connector must be STOPPED."""
    offsets = bodies.read_offsets(await call.request.read())
    return answer({"message": await call.herder.alter_connector_offsets(call.connector, offsets)})


async def reset(call: Call) -> web.Response:
    """``DELETE``: forget all of them; the connector must be STOPPED."""
    return answer({"message": await call.herder.reset_connector_offsets(call.connector)})


ROUTES = (
    Route("GET", "/connectors/{connector}/offsets", get),
    Route("PATCH", "/connectors/{connector}/offsets", alter, takes_body=True),
    Route("DELETE", "/connectors/{connector}/offsets", reset),
)
