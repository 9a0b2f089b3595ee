"""``/connector-plugins``: what can be run, its options, and whether a configuration is valid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.rest.call import json_answer
from worker.rest.checks import add_null_errors, check_type
from worker.rest.facade import RestError
from worker.rest.operations import Operation, QueryParameter, Reply, Tag, make_links
from worker.rest.routing import RequiredAccess, RestRoute
from worker.rest.shapes import bodies
from worker.rest.shapes.schemas import ConfigBody, ConfigInfos, ConfigKeyInfo, Plugin

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import RestCall

_SUFFIX = "Connector"


async def list_plugins(call: RestCall) -> web.Response:
    """``GET /connector-plugins?connectorsOnly=``."""
    return json_answer(await call.herder.admin.plugins(connectors_only=call.flag("connectorsOnly", default=True)))


async def plugin_config(call: RestCall) -> web.Response:
    """``GET /connector-plugins/{plugin}/config?version=`` (KIP-769, KIP-891)."""
    return json_answer(
        await call.herder.admin.plugin_config(call.parameters["plugin"], call.request.query.get("version"))
    )


async def validate_config(call: RestCall) -> web.Response:
    """``PUT /connector-plugins/{plugin}/config/validate``: 200 whether or not there are errors in the body."""
    config = bodies.read_config(await call.request.read())
    plugin = call.parameters["plugin"]
    given_class = config.get("connector.class")
    if given_class is not None and not _normalize_name(given_class).endswith(_normalize_name(plugin)):
        raise RestError(400, f"Included connector type {given_class} does not match request type {plugin}")
    check_type(config)
    call.check_class(config)
    infos = await call.herder.admin.validate(
        plugin, {name: value for name, value in config.items() if value is not None}
    )
    return json_answer(add_null_errors(infos, [name for name, value in config.items() if value is None]))


def _normalize_name(name: str) -> str:
    return name.removesuffix(_SUFFIX) or name


ROUTES = (
    RestRoute(
        "GET",
        "/connector-plugins",
        list_plugins,
        operation=Operation(
            "listPlugins",
            "The plugins of this worker.",
            Tag.PLUGINS,
            {
                200: Reply(
                    "A connector is listed under each name that `connector.class` may have.",
                    list[Plugin],
                    links=make_links({"plugin": "$response.body#/0/class"}, "getPluginConfig"),
                )
            },
            query=(
                QueryParameter(
                    "connectorsOnly", "Whether converters, transforms and predicates are left out.", bool, default=True
                ),
            ),
        ),
    ),
    RestRoute(
        "GET",
        "/connector-plugins/{plugin}/config",
        plugin_config,
        operation=Operation(
            "getPluginConfig",
            "The options of a plugin (KIP-769).",
            Tag.PLUGINS,
            {200: Reply("Their declarations.", list[ConfigKeyInfo])},
            {400: "There is no such version, or the plugin's options can't be shown.", 404: "There is no such plugin."},
            (QueryParameter("version", "A version or a range of them (KIP-891)."),),
        ),
    ),
    # Connectors connect to check what they are given, with what config providers hold: no less than creating one.
    RestRoute(
        "PUT",
        "/connector-plugins/{plugin}/config/validate",
        validate_config,
        RequiredAccess.ADMIN,
        operation=Operation(
            "validateConfig",
            "Check a configuration, without creating anything.",
            Tag.PLUGINS,
            {
                200: Reply(
                    "Every option with its value and its errors; `error_count` is 0 for a valid one.", ConfigInfos
                )
            },
            {
                400: "There is no such connector, `connector.class` is missing or another, or the body is not understood."
            },
            body=ConfigBody,
            examples={
                "a file": {
                    "connector.class": "FileStreamSource",
                    "name": "lines",
                    "topic": "lines",
                    "file": "/data/lines.txt",
                }
            },
        ),
    ),
)
