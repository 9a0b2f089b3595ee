"""All operations of the REST API, and the one that describes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from worker.console import routes as console
from worker.console.resources import connector_history, flow_editing, overview, rule_editing, source_tables, watching
from worker.console.resources import topics as console_topics
from worker.rest.call import json_answer
from worker.rest.connect import admin, connectors, health, internal, loggers, offsets, plugins, root, tasks, topics
from worker.rest.openapi import build_document
from worker.rest.operations import Operation, Reply, Tag
from worker.rest.own import flows, metrics, rule_sets, rules, savepoints, snapshots, verify
from worker.rest.routing import RestRoute
from worker.rest.settings import format_address

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import RestCall

_ANY: Final = ("", "0.0.0.0", "::")  # noqa: S104 - not listened on here
#: What a listener serves: everything, everything but ``/admin``, or ``/admin`` alone.
Part = Literal["all", "main", "admin"]


async def get_description(call: RestCall) -> web.Response:
    """``GET /openapi.json``: what is served, under the address that the client has used. Not in Kafka Connect.

    It also contains the paths that ``admin.listeners`` serve, with the addresses of these listeners.
    """
    settings = call.settings
    admin = settings.admin_listeners
    part: Part = "all" if admin is None else "main"
    enabled_schemes = {
        "basic": settings.auth.basic,
        "bearer": settings.auth.bearer,
        "mutualTLS": settings.auth.certificate,
    }
    schemes = [name for name, on in enabled_schemes.items() if on] or ["basic", "bearer"]
    url = f"{call.request.scheme}://{call.request.host}"
    # A listener on all interfaces is reached as this one was.
    apart_urls = [
        format_address(
            listener.scheme, listener.host if listener.host not in _ANY else call.request.url.host or "", port
        )
        for listener, port in zip(admin or (), call.admin_ports(), strict=True)
    ]
    return json_answer(
        build_document(
            ROUTES[part],
            url,
            apart=ROUTES["admin"] if admin else (),
            apart_urls=apart_urls,
            schemes=schemes,
            optional=not settings.auth.on,
        )
    )


_MAIN: Final = (
    *root.ROUTES,
    *health.ROUTES,
    *metrics.ROUTES,
    RestRoute(
        "GET",
        "/openapi.json",
        get_description,
        when_ready=False,
        negotiate=False,
        operation=Operation(
            "getOpenapi",
            "The OpenAPI document of what this worker serves.",
            Tag.WORKER,
            {200: Reply("An OpenAPI 3.1 document.", dict[str, Any])},
            kafka=False,
        ),
    ),
    *connectors.ROUTES,
    *tasks.ROUTES,
    *offsets.ROUTES,
    *topics.ROUTES,
    *snapshots.ROUTES,
    *savepoints.ROUTES,
    *plugins.ROUTES,
    *flows.ROUTES,
    *rules.ROUTES,
    *verify.ROUTES,
    *rule_sets.ROUTES,
    *source_tables.ROUTES,
    *overview.ROUTES,
    *console_topics.ROUTES,
    *watching.ROUTES,
    *connector_history.ROUTES,
    *console.ROUTES,
    *flow_editing.ROUTES,
    *rule_editing.ROUTES,
    *internal.ROUTES,
)
_ADMIN: Final = (*loggers.ROUTES, *admin.ROUTES)
ROUTES: Final[dict[Part, tuple[RestRoute, ...]]] = {"all": (*_MAIN, *_ADMIN), "main": _MAIN, "admin": _ADMIN}
