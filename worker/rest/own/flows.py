"""``/flows``: what the configuration of a Spark job would do, before it runs. Not in Kafka Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.rest.call import json_answer
from worker.rest.checks import check_no_nulls, check_type
from worker.rest.operations import Operation, Reply, Tag
from worker.rest.routing import RequiredAccess, RestRoute
from worker.rest.shapes import bodies
from worker.rest.shapes.flow_schemas import FlowPlan, FlowPreview, PreviewRequest
from worker.rest.shapes.schemas import ConfigBody

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from worker.rest.call import RestCall


async def plan_flow(call: RestCall) -> web.Response:
    """``POST /flows/plan``: 200 whether or not there are errors in the body."""
    config = bodies.read_config(await call.request.read())
    return json_answer(await call.herder.flows.plan_flow(_check_config(call, config)))


async def preview_flow(call: RestCall) -> web.Response:
    """``POST /flows/preview``."""
    config, request = bodies.read_preview(await call.request.read())
    return json_answer(await call.herder.flows.preview_flow(_check_config(call, config), request))


def _check_config(call: RestCall, config: Mapping[str, str | None]) -> dict[str, str]:
    """The configuration, if the caller could create a connector with it.

    Raises:
        RestError: 400 or 403.
    """
    check_type(config)
    call.check_class(config)
    checked = check_no_nulls(config)
    if "name" in checked:
        call.principal.require(RequiredAccess.ADMIN, checked["name"])
    return checked


_FLOW = {
    "connector.class": "spark_jobs.SparkJob",
    "name": "paid-orders",
    "source.topics": "shop.orders",
    "source.format": "debezium",
    "transform.steps": "paid",
    "transform.step.paid.type": "filter",
    "transform.step.paid.condition": "amount > 0",
    "sink.type": "console",
}

# A plan asks Kafka and the sink, a preview reads topics, with what config providers hold: no less than creating a connector.
ROUTES = (
    RestRoute(
        "POST",
        "/flows/plan",
        plan_flow,
        RequiredAccess.ADMIN,
        operation=Operation(
            "planFlow",
            "What a flow would do, and what an edit of a running one keeps.",
            Tag.FLOWS,
            {200: Reply("The plan; `errors` say why the configuration can't work.", FlowPlan)},
            {400: "The body is not understood, or is not the configuration of a flow."},
            body=ConfigBody,
            examples={"a filter": _FLOW},
            note="Starts no Spark and writes nothing; compared with the connector of the same name if there is one.",
            kafka=False,
        ),
    ),
    RestRoute(
        "POST",
        "/flows/preview",
        preview_flow,
        RequiredAccess.ADMIN,
        operation=Operation(
            "previewFlow",
            "Rows through every step of a flow, without writing anything.",
            Tag.FLOWS,
            {
                200: Reply(
                    "Rows in and out of each step, dropped rows with the reason, errors with the row.", FlowPreview
                )
            },
            {400: "The configuration or the rows are wrong, or the body is not understood."},
            body=PreviewRequest,
            examples={
                "the newest rows": {"config": _FLOW, "limit": 10},
                "given rows": {
                    "config": _FLOW,
                    "rows": [{"table": "shop.orders", "op": "i", "row": {"id": 1, "amount": 5}}],
                },
            },
            note="Touches no consumer group, no checkpoint and no sink. Masked columns stay masked.",
            kafka=False,
        ),
    ),
)
