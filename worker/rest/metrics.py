"""``GET /metrics``: the Prometheus exposition. Not in Kafka Connect."""
from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from worker.rest.routing import Route

if TYPE_CHECKING:
    from worker.rest.call import Call


async def metrics(call: Call) -> web.Response:
    """The metrics as text; scrapers negotiate a format of their own, which is not looked at."""
    response = web.Response(body=(await call.herder.metrics()).encode())
    response.headers["Content-Type"] = "text/plain; version=0.0.4; charset=utf-8"
    return response


ROUTES = (Route("GET", "/metrics", metrics, when_ready=False, negotiate=False),)
