"""``/connector-plugins``: what can be run, its options, and whether a configuration is valid."""
from __future__ import annotations

from typing import TYPE_CHECKING

from worker.rest import bodies
from worker.rest.call import answer
from worker.rest.checks import add_null_errors, check_type
from worker.rest.facade import RestError
from worker.rest.routing import Route

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import Call

_SUFFIX = "Connector"


async def list_plugins(call: Call) -> web.Response:
    """``GET /connector-plugins?connectorsOnly=``."""
    return answer(await call.herder.plugins(connectors_only=call.flag("connectorsOnly", default=True)))


async def plugin_config(call: Call) -> web.Response:
    """``GET /connector-plugins/{plugin}/config?version=`` (KIP-769, KIP-891)."""
    return answer(await call.herder.plugin_config(call.parameters["plugin"], call.request.query.get("version")))


async def validate(call: Call) -> web.Response:
    """``PUT /connector-plugins/{plugin}/config/validate``: 200 whether or not there are errors in the body."""
    config = bodies.read_config(await call.request.read())
    plugin = call.parameters["plugin"]
    given = config.get("connector.class")
    if given is not None and not _normal(given).endswith(_normal(plugin)):
        raise RestError(400, f"Included connector type {given} does not match request type {plugin}")
    check_type(config)
    infos = await call.herder.validate(plugin, {name: value for name, value in config.items() if value is not None})
    return answer(add_null_errors(infos, [name for name, value in config.items() if value is None]))


def _normal(name: str) -> str:
    return name.removesuffix(_SUFFIX) or name


ROUTES = (
    Route("GET", "/connector-plugins", list_plugins),
    Route("GET", "/connector-plugins/{plugin}/config", plugin_config),
    Route("PUT", "/connector-plugins/{plugin}/config/validate", validate, takes_body=True),
)
