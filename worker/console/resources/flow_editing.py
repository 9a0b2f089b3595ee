"""``/console/connectors/{connector}/plan`` and ``preview_edit``: an edit of a flow, without its secrets leaving the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.console.resources.hiding import without_hidden
from worker.rest.call import json_answer
from worker.rest.operations import UNKNOWN, Reply, Tag
from worker.rest.own.own_routes import OwnRoutes
from worker.rest.routing import RequiredAccess
from worker.rest.shapes import bodies
from worker.rest.shapes.flow_schemas import FlowPlan, FlowPreview, PreviewRequest
from worker.rest.shapes.schemas import ConfigBody

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from worker.rest.call import RestCall


async def plan_edit(call: RestCall) -> web.Response:
    """``POST /console/connectors/{connector}/plan``."""
    patch = bodies.read_config(await call.request.read())
    return json_answer(await call.herder.flows.plan_flow(await merge_patch(call, patch)))


async def preview_edit(call: RestCall) -> web.Response:
    """``POST /console/connectors/{connector}/preview``."""
    patch, request = bodies.read_preview(await call.request.read())
    return json_answer(await call.herder.flows.preview_flow(await merge_patch(call, patch), request))


async def merge_patch(call: RestCall, patch: Mapping[str, str | None]) -> dict[str, str]:
    """The connector's configuration with some properties changed; null takes one away.

    Raises:
        RestError: there is no such connector, its class may not be used, or a secret is not known.
    """
    call.check_class(patch)
    before = (await call.herder.connector_info(call.connector))["config"]
    changed = await without_hidden(call, patch)
    return {name: value for name, value in {**before, **changed, "name": call.connector}.items() if value is not None}


_EDIT = {"transform.step.paid.condition": "amount > 10"}
_REFUSED = {400: "The body is not understood, or the connector is no flow.", 404: UNKNOWN}

_CONSOLE: Final = OwnRoutes(Tag.CONSOLE)

ROUTES = (
    _CONSOLE.post(
        "/console/connectors/{connector}/plan",
        plan_edit,
        "planEdit",
        "As `POST /flows/plan`, of a flow with some properties changed; changes nothing.",
        Reply("The plan; `errors` say why the configuration can't work.", FlowPlan),
        _REFUSED,
        access=RequiredAccess.ADMIN,
        body=ConfigBody,
        examples={"another condition": _EDIT},
        note="Null takes a property away.",
    ),
    _CONSOLE.post(
        "/console/connectors/{connector}/preview",
        preview_edit,
        "previewEdit",
        "As `POST /flows/preview`, of a flow with some properties changed; changes nothing.",
        Reply("Rows in and out of each step.", FlowPreview),
        _REFUSED,
        access=RequiredAccess.ADMIN,
        body=PreviewRequest,
        examples={"another limit": {"config": {"source.max.offsets.per.trigger": "1000"}, "limit": 10}},
        note="Null takes a property away.",
    ),
)
