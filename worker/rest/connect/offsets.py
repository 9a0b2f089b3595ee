"""``/connectors/{connector}/offsets`` (KIP-875)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.rest.call import json_answer
from worker.rest.operations import CONFLICT, FORWARD, UNKNOWN, Operation, Reply, Tag
from worker.rest.routing import RequiredAccess, RestRoute
from worker.rest.shapes import bodies
from worker.rest.shapes.schemas import Message, Offsets, OffsetsRequest

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import RestCall


async def get_offsets(call: RestCall) -> web.Response:
    """``GET``: every saved position."""
    return json_answer({"offsets": await call.herder.offsets.connector_offsets(call.connector)})


async def alter_offsets(call: RestCall) -> web.Response:
    """``PATCH``: overwrite or reset some of them; the connector must be STOPPED."""
    offsets = bodies.read_offsets(await call.request.read())
    return json_answer({"message": await call.herder.offsets.alter_connector_offsets(call.connector, offsets)})


async def reset_offsets(call: RestCall) -> web.Response:
    """``DELETE``: forget all of them; the connector must be STOPPED."""
    return json_answer({"message": await call.herder.offsets.reset_connector_offsets(call.connector)})


_RUNNING = "The connector is not STOPPED"

ROUTES = (
    RestRoute(
        "GET",
        "/connectors/{connector}/offsets",
        get_offsets,
        operation=Operation(
            "getOffsets",
            "A connector's saved offsets (KIP-875).",
            Tag.OFFSETS,
            {200: Reply("All of them.", Offsets)},
            {404: UNKNOWN},
        ),
    ),
    RestRoute(
        "PATCH",
        "/connectors/{connector}/offsets",
        alter_offsets,
        RequiredAccess.ADMIN,
        operation=Operation(
            "alterOffsets",
            "Overwrite or forget some of a connector's offsets.",
            Tag.OFFSETS,
            {200: Reply("They are changed.", Message)},
            {
                404: UNKNOWN,
                409: CONFLICT,
                400: f"{_RUNNING}, it can't resume from such an offset, or the body is not understood.",
            },
            (FORWARD,),
            OffsetsRequest,
            {
                "a file": {"offsets": [{"partition": {"filename": "/data/lines.txt"}, "offset": {"position": 20}}]},
                "forget": {"offsets": [{"partition": {"filename": "/data/lines.txt"}, "offset": None}]},
            },
            note="The connector must be STOPPED.",
        ),
    ),
    RestRoute(
        "DELETE",
        "/connectors/{connector}/offsets",
        reset_offsets,
        RequiredAccess.ADMIN,
        operation=Operation(
            "resetOffsets",
            "Forget all of a connector's offsets.",
            Tag.OFFSETS,
            {200: Reply("They are forgotten.", Message)},
            {404: UNKNOWN, 409: CONFLICT, 400: f"{_RUNNING}, or it can't start from the beginning."},
            (FORWARD,),
            note="The connector must be STOPPED.",
        ),
    ),
)
