"""``GET /``: what this worker is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.rest.call import json_answer
from worker.rest.operations import Operation, Reply, Tag
from worker.rest.routing import RestRoute
from worker.rest.shapes.schemas import Root

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import RestCall


async def get_root(call: RestCall) -> web.Response:
    """Version, commit and Kafka's cluster id."""
    return json_answer(call.herder.admin.root())


ROUTES = (
    RestRoute(
        "GET",
        "/",
        get_root,
        operation=Operation(
            "getWorker",
            "The worker's version and the id of its Kafka cluster.",
            Tag.WORKER,
            {200: Reply("What it is.", Root)},
        ),
    ),
)
