"""``/connectors/{connector}/snapshots``, ``.../lag`` and ``.../tables``. Not in Kafka Connect."""
from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from worker.rest import bodies
from worker.rest.call import answer, empty
from worker.rest.routing import Route

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import Call


async def create(call: Call) -> web.Response:
    """``POST .../snapshots``: 201 with its address."""
    request = bodies.read_snapshot(await call.request.read())
    made = await call.herder.create_snapshot(call.connector, request)
    return answer(made, 201, {"Location": f"{call.location(call.connector)}/snapshots/{quote(made['id'], safe='')}"})


async def list_all(call: Call) -> web.Response:
    """``GET .../snapshots``: those that were asked for and those the connector started itself, with their progress."""
    return answer(await call.herder.snapshots(call.connector))


async def get(call: Call) -> web.Response:
    """``GET .../snapshots/{snapshot}``."""
    return answer(await call.herder.snapshot(call.connector, call.parameters["snapshot"]))


async def pause(call: Call) -> web.Response:
    """``PUT .../snapshots/{snapshot}/pause``."""
    await call.herder.steer_snapshot(call.connector, call.parameters["snapshot"], "pause")
    return empty(202)


async def resume(call: Call) -> web.Response:
    """``PUT .../snapshots/{snapshot}/resume``."""
    await call.herder.steer_snapshot(call.connector, call.parameters["snapshot"], "resume")
    return empty(202)


async def cancel(call: Call) -> web.Response:
    """``PUT .../snapshots/{snapshot}/cancel``: for good."""
    await call.herder.steer_snapshot(call.connector, call.parameters["snapshot"], "cancel")
    return empty(202)


async def delete(call: Call) -> web.Response:
    """``DELETE .../snapshots/{snapshot}``: end it and forget the request."""
    await call.herder.delete_snapshot(call.connector, call.parameters["snapshot"])
    return empty(204)


async def lag(call: Call) -> web.Response:
    """``GET .../lag``: how far the connector is behind its source."""
    return answer(await call.herder.connector_lag(call.connector))


async def tables(call: Call) -> web.Response:
    """``GET .../tables``: what is captured, with the versions of each table."""
    return answer(await call.herder.connector_tables(call.connector))


ROUTES = (
    Route("POST", "/connectors/{connector}/snapshots", create, takes_body=True),
    Route("GET", "/connectors/{connector}/snapshots", list_all),
    Route("GET", "/connectors/{connector}/snapshots/{snapshot}", get),
    Route("DELETE", "/connectors/{connector}/snapshots/{snapshot}", delete),
    Route("PUT", "/connectors/{connector}/snapshots/{snapshot}/pause", pause),
    Route("PUT", "/connectors/{connector}/snapshots/{snapshot}/resume", resume),
    Route("PUT", "/connectors/{connector}/snapshots/{snapshot}/cancel", cancel),
    Route("GET", "/connectors/{connector}/lag", lag),
    Route("GET", "/connectors/{connector}/tables", tables),
)
