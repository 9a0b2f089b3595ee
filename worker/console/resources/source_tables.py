"""``/console/tables`` and ``/console/providers``: what a form offers to choose from. Not in Kafka Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from worker.console.resources.flow_editing import merge_patch
from worker.rest.call import json_answer
from worker.rest.checks import check_no_nulls
from worker.rest.operations import UNKNOWN, Reply, Tag
from worker.rest.own.own_routes import OwnRoutes
from worker.rest.routing import RequiredAccess
from worker.rest.shapes import bodies
from worker.rest.shapes.schemas import ConfigBody

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import RestCall


class SourceTables(Struct):
    """The tables that a source has."""

    option: Annotated[str, Meta(description="The option that names the tables to capture.")]
    patterns: Annotated[bool, Meta(description="Whether it takes regular expressions.")]
    tables: list[str]


async def list_tables(call: RestCall) -> web.Response:
    """``PUT /console/tables``."""
    config = bodies.read_config(await call.request.read())
    call.check_class(config)
    return json_answer(await call.herder.admin.source_tables(check_no_nulls(config)))


async def tables_of_edit(call: RestCall) -> web.Response:
    """``PUT /console/connectors/{connector}/tables``."""
    patch = bodies.read_config(await call.request.read())
    return json_answer(await call.herder.admin.source_tables(await merge_patch(call, patch)))


async def list_providers(call: RestCall) -> web.Response:
    """``GET /console/providers``."""
    return json_answer(await call.herder.admin.config_providers())


_REFUSED = {
    400: "The source can't be reached, refuses the account or has no tables, or the body is not understood.",
}
_EXAMPLE = {
    "connector.class": "mysql",
    "database.hostname": "db",
    "database.user": "millrace",
    "database.password": "${file:/etc/millrace/secrets.properties:mysql}",
}

_CONSOLE: Final = OwnRoutes(Tag.CONSOLE)

ROUTES = (
    _CONSOLE.put(
        "/console/tables",
        list_tables,
        "listSourceTables",
        "The tables that a source has, to choose from; changes nothing.",
        Reply("The tables, by name.", SourceTables),
        _REFUSED,
        access=RequiredAccess.ADMIN,
        body=ConfigBody,
        examples={"MySQL": _EXAMPLE},
        note="Only what it takes to connect has to be in the configuration.",
    ),
    _CONSOLE.put(
        "/console/connectors/{connector}/tables",
        tables_of_edit,
        "listTablesOfEdit",
        "The tables that a connector's source has, with some properties changed; changes nothing.",
        Reply("The tables, by name.", SourceTables),
        {**_REFUSED, 404: UNKNOWN},
        access=RequiredAccess.ADMIN,
        body=ConfigBody,
        examples={"another host": {"database.hostname": "db2"}},
        note="Null takes a property away.",
    ),
    _CONSOLE.get(
        "/console/providers",
        list_providers,
        "listProviders",
        "Names of the config providers that configurations may refer to.",
        Reply("The names.", list[str]),
    ),
)
