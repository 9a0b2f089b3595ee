"""``/connectors/{connector}/verify``: whether topics say what the tables hold. Not in Kafka Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from worker.rest import bodies
from worker.rest.call import answer, empty
from worker.rest.facade import RestError
from worker.rest.operations import UNKNOWN, Operation, Reply, Tag
from worker.rest.routing import Access, Route
from worker.rest.verify_schemas import VerifyRequest, VerifyRun

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import Call


async def start(call: Call) -> web.Response:
    """``POST /connectors/{connector}/verify``."""
    request: dict[str, Any] = bodies.read_verify(await call.request.read())
    return answer(await call.herder.start_verification(call.connector, request), 202)


async def get(call: Call) -> web.Response:
    """``GET /connectors/{connector}/verify``."""
    run = await call.herder.verification(call.connector)
    if run is None:
        raise RestError(404, f"Connector {call.connector} was not verified by this worker")
    return answer(run)


async def cancel(call: Call) -> web.Response:
    """``DELETE /connectors/{connector}/verify``."""
    await call.herder.cancel_verification(call.connector)
    return empty(204)


_PATH = "/connectors/{connector}/verify"

# It reads whole tables, and shows keys: no less than what previews need.
ROUTES = (
    Route(
        "POST",
        _PATH,
        start,
        Access.ADMIN,
        operation=Operation(
            "startVerification",
            "Compare the tables of a MySQL or MariaDB connector with its topics, in a process of its own.",
            Tag.CONNECTORS,
            {202: Reply("It has started.", VerifyRun)},
            {
                400: "The body is not understood.",
                404: UNKNOWN,
                409: "One of this connector runs already, or two run at this worker.",
            },
            body=VerifyRequest,
            examples={"one table": {"tables": r"shop\.orders"}},
            note="Writes nothing. The result is kept in the memory of this worker. Two run at a time.",
            kafka=False,
        ),
    ),
    Route(
        "GET",
        _PATH,
        get,
        Access.ADMIN,
        operation=Operation(
            "getVerification",
            "The last verification of a connector that this worker began.",
            Tag.CONNECTORS,
            {200: Reply("Its state, and the result at the end.", VerifyRun)},
            {404: "There is no such connector, or this worker has not verified it."},
            kafka=False,
        ),
    ),
    Route(
        "DELETE",
        _PATH,
        cancel,
        Access.ADMIN,
        operation=Operation(
            "cancelVerification",
            "End the verification of a connector, if one runs.",
            Tag.CONNECTORS,
            {204: Reply("None runs.")},
            {404: UNKNOWN},
            kafka=False,
        ),
    ),
)
