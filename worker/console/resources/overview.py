"""``GET /console/pipeline``: the cluster at a glance. Not in Kafka Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.rest.call import json_answer
from worker.rest.operations import Reply, Tag
from worker.rest.own.own_routes import OwnRoutes
from worker.rest.security.access import readable_names
from worker.rest.shapes.console_schemas import Pipeline

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import RestCall


async def get_pipeline(call: RestCall) -> web.Response:
    """``GET /console/pipeline``."""
    cluster = await call.herder.console.pipeline()
    names = set(readable_names(call.principal, [connector["name"] for connector in cluster["connectors"]]))
    return json_answer(
        {**cluster, "connectors": [connector for connector in cluster["connectors"] if connector["name"] in names]}
    )


_CONSOLE: Final = OwnRoutes(Tag.CONSOLE)

ROUTES = (
    _CONSOLE.get(
        "/console/pipeline",
        get_pipeline,
        "getPipeline",
        "The live workers, and what each connector reads and writes.",
        Reply("All workers, and the connectors that the caller may read.", Pipeline),
    ),
)
