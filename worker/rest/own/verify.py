"""``/connectors/{connector}/verify``: whether topics say what the tables hold. Not in Kafka Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from worker.rest.call import empty_answer, json_answer
from worker.rest.facade import RestError
from worker.rest.operations import FORWARD, UNKNOWN, Operation, Reply, Tag
from worker.rest.routing import RequiredAccess, RestRoute
from worker.rest.shapes import bodies
from worker.rest.shapes.verify_schemas import RepairSnapshot, VerifyRequest, VerifyRun

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import RestCall


async def start_verification(call: RestCall) -> web.Response:
    """``POST /connectors/{connector}/verify``."""
    request: dict[str, Any] = bodies.read_verify(await call.request.read())
    return json_answer(await call.herder.verifications.start_verification(call.connector, request), 202)


async def get_verification(call: RestCall) -> web.Response:
    """``GET /connectors/{connector}/verify``."""
    run = await call.herder.verifications.verification(call.connector)
    if run is None:
        raise RestError(404, f"Connector {call.connector} was not verified")
    return json_answer(run)


async def cancel_verification(call: RestCall) -> web.Response:
    """``DELETE /connectors/{connector}/verify``."""
    await call.herder.verifications.cancel_verification(call.connector)
    return empty_answer(204)


async def repair_verified(call: RestCall) -> web.Response:
    """``POST /connectors/{connector}/verify/repair``."""
    return json_answer(await call.herder.verifications.repair_verified(call.connector), 202)


_PATH = "/connectors/{connector}/verify"

# It reads whole tables, and shows keys: no less than what previews need.
ROUTES = (
    RestRoute(
        "POST",
        _PATH,
        start_verification,
        RequiredAccess.ADMIN,
        operation=Operation(
            "startVerification",
            "Compare the tables of a MySQL, MariaDB, Scylla or Cassandra connector with its topics, in a process of its own.",
            Tag.CONNECTORS,
            {202: Reply("It has started.", VerifyRun)},
            {
                400: "The body is not understood.",
                404: UNKNOWN,
                409: "One of this connector runs already, or two run in the cluster.",
            },
            body=VerifyRequest,
            examples={"one table": {"tables": r"shop\.orders"}},
            note="The leader runs it, two at a time, and keeps what it finds in the placement topic: after a restart it "
            "continues with the tables that are not compared yet. Without `repair` it writes to no source and no topic.",
            query=(FORWARD,),
            kafka=False,
        ),
    ),
    RestRoute(
        "GET",
        _PATH,
        get_verification,
        RequiredAccess.ADMIN,
        operation=Operation(
            "getVerification",
            "The last verification of a connector.",
            Tag.CONNECTORS,
            {200: Reply("Its state, and the results of the tables that are compared.", VerifyRun)},
            {404: "There is no such connector, or it was not verified."},
            query=(FORWARD,),
            kafka=False,
        ),
    ),
    RestRoute(
        "DELETE",
        _PATH,
        cancel_verification,
        RequiredAccess.ADMIN,
        operation=Operation(
            "cancelVerification",
            "End the verification of a connector, if one runs.",
            Tag.CONNECTORS,
            {204: Reply("None runs.")},
            {404: UNKNOWN},
            query=(FORWARD,),
            kafka=False,
        ),
    ),
    RestRoute(
        "POST",
        f"{_PATH}/repair",
        repair_verified,
        RequiredAccess.ADMIN,
        operation=Operation(
            "repairVerified",
            "Send again the rows that the last verification found to be missing or different, by a snapshot of them.",
            Tag.CONNECTORS,
            {202: Reply("The snapshot, as `POST .../snapshots` answers it, and its connector.", RepairSnapshot)},
            {
                404: "There is no such connector, or it was not verified.",
                409: "It still runs, nothing can be sent again, or no one connector writes the flow's topics.",
            },
            note="MySQL and MariaDB: the rows by their keys, where all are known and their columns are whole numbers or "
            "strings, else their table. Cassandra: their tables. Rows that are only on the topic stay there. Of a flow the "
            "source connector that writes its topics is asked for a snapshot of their tables.",
            query=(FORWARD,),
            kafka=False,
        ),
    ),
)
