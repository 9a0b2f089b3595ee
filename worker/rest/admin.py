"""``/admin/drain``: take a worker out of service without losing a second. Not in Kafka Connect."""
from __future__ import annotations

from typing import TYPE_CHECKING

from worker.rest.call import answer
from worker.rest.routing import Route

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import Call


async def drain(call: Call) -> web.Response:
    """``PUT /admin/drain``: hand everything over; 202 with what is still here."""
    return answer(await call.herder.drain(), 202)


ROUTES = (Route("PUT", "/admin/drain", drain, when_ready=False),)
