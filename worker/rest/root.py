"""``GET /``: what this worker is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.rest.call import answer
from worker.rest.operations import Operation, Reply, Tag
from worker.rest.routing import Route
from worker.rest.schemas import Root

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import Call


async def root(call: Call) -> web.Response:
    """Version, commit and Kafka's cluster id."""
    return answer(call.herder.root())


ROUTES = (
    Route(
        "GET",
        "/",
        root,
        operation=Operation(
            "getWorker",
            "The worker's version and the id of its Kafka cluster.",
            Tag.WORKER,
            {200: Reply("What it is.", Root)},
        ),
    ),
)
