"""``GET /console/pipeline``: the cluster at a glance. Not in Kafka Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.rest.access import readable
from worker.rest.call import answer
from worker.rest.operations import Reply, Tag
from worker.rest.own_routes import OwnRoutes
from worker.rest.schemas import Pipeline

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import Call


async def pipeline(call: Call) -> web.Response:
    """``GET /console/pipeline``."""
    cluster = await call.herder.pipeline()
    names = set(readable(call.principal, [connector["name"] for connector in cluster["connectors"]]))
    return answer(
        {**cluster, "connectors": [connector for connector in cluster["connectors"] if connector["name"] in names]}
    )


_CONSOLE: Final = OwnRoutes(Tag.CONSOLE)

ROUTES = (
    _CONSOLE.get(
        "/console/pipeline",
        pipeline,
        "getPipeline",
        "The live workers, and what each connector reads and writes.",
        Reply("All workers, and the connectors that the caller may read.", Pipeline),
    ),
)
