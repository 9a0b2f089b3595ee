"""``/admin/drain``: take a worker out of service without losing a second; ``/admin/plugins``. Not in Kafka Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.rest.call import json_answer
from worker.rest.operations import Operation, Reply, Tag
from worker.rest.routing import RequiredAccess, RestRoute
from worker.rest.shapes.schemas import Drained, PluginEnvironments

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import RestCall


async def drain_worker(call: RestCall) -> web.Response:
    """``PUT /admin/drain``: hand everything over; 202 with what is still here."""
    return json_answer(await call.herder.admin.drain(), 202)


async def list_environments(call: RestCall) -> web.Response:
    """``GET /admin/plugins``: this worker's plugin environments, their plugins and hosts, and what can't be used."""
    return json_answer(await call.herder.admin.plugin_environments())


async def refresh_plugins(call: RestCall) -> web.Response:
    """``PUT /admin/plugins/refresh``: look at ``plugin.path`` now; answers as ``GET /admin/plugins``."""
    return json_answer(await call.herder.admin.refresh_plugins())


ROUTES = (
    RestRoute(
        "GET",
        "/admin/plugins",
        list_environments,
        operation=Operation(
            "listPluginEnvironments",
            "The plugin environments of this worker.",
            Tag.ADMIN,
            {200: Reply("Environments, the task hosts that have them, and what can't be used.", PluginEnvironments)},
            kafka=False,
        ),
    ),
    RestRoute(
        "PUT",
        "/admin/plugins/refresh",
        refresh_plugins,
        RequiredAccess.ADMIN,
        operation=Operation(
            "refreshPlugins",
            "Look at the folders of plugin.path of this worker now.",
            Tag.ADMIN,
            {200: Reply("What there is then.", PluginEnvironments)},
            kafka=False,
        ),
    ),
    RestRoute(
        "PUT",
        "/admin/drain",
        drain_worker,
        RequiredAccess.ADMIN,
        when_ready=False,
        operation=Operation(
            "drainWorker",
            "Take this worker out of service: hand its connectors and tasks over.",
            Tag.ADMIN,
            {
                202: Reply(
                    "What is still here. The worker stays a member without work; stopping it then loses no time.",
                    Drained,
                )
            },
            kafka=False,
        ),
    ),
)
