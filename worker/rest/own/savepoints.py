"""``/connectors/{connector}/savepoints``: a job's position and state in a folder. Not in Kafka Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.rest.call import empty_answer, json_answer
from worker.rest.operations import CONFLICT, FORWARD, Operation, Reply, Tag
from worker.rest.routing import RequiredAccess, RestRoute
from worker.rest.shapes import bodies
from worker.rest.shapes.schemas import Savepoint, SavepointAsked, SavepointRequest

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import RestCall


async def create_savepoint(call: RestCall) -> web.Response:
    """``POST .../savepoints``: 202, the job makes it between two batches."""
    request = bodies.read_savepoint(await call.request.read())
    return json_answer(await call.herder.savepoints.create_savepoint(call.connector, request), 202)


async def list_all(call: RestCall) -> web.Response:
    """``GET .../savepoints``: those in the job's folder of savepoints."""
    return json_answer(await call.herder.savepoints.list_savepoints(call.connector))


async def delete_savepoint(call: RestCall) -> web.Response:
    """``DELETE .../savepoints/{savepoint}``."""
    await call.herder.savepoints.delete_savepoint(call.connector, call.parameters["savepoint"])
    return empty_answer(204)


_PATH = "/connectors/{connector}/savepoints"
_NONE = "The connector is no Spark job"

ROUTES = (
    RestRoute(
        "POST",
        _PATH,
        create_savepoint,
        RequiredAccess.OPERATE,
        operation=Operation(
            "createSavepoint",
            "Let a running job write its position and its state into a folder, from which a job can start.",
            Tag.CONNECTORS,
            {202: Reply("The job was asked; the list shows the savepoint, or the error.", SavepointAsked)},
            {
                400: f"{_NONE}, or the body is not understood.",
                404: "There is no such connector.",
                409: f"The job does not run, or there is a savepoint of this name. {CONFLICT}",
            },
            (FORWARD,),
            SavepointRequest,
            {"it continues": {"name": "before-move"}, "it stops": {"name": "before-move", "stop": True}},
            kafka=False,
        ),
    ),
    RestRoute(
        "GET",
        _PATH,
        list_all,
        operation=Operation(
            "listSavepoints",
            "A job's savepoints on the machine of the worker that runs it.",
            Tag.CONNECTORS,
            {
                200: Reply(
                    "The newest first, one for each sink; one with `error` can't be used or was not made.",
                    list[Savepoint],
                )
            },
            {
                400: f"{_NONE}, or the folder is not on the worker's machine.",
                404: "There is no such connector.",
                409: CONFLICT,
            },
            (FORWARD,),
            kafka=False,
        ),
    ),
    RestRoute(
        "DELETE",
        f"{_PATH}/{{savepoint}}",
        delete_savepoint,
        RequiredAccess.OPERATE,
        operation=Operation(
            "deleteSavepoint",
            "Remove a savepoint and its files.",
            Tag.CONNECTORS,
            {204: Reply("It is gone.")},
            {
                400: f"{_NONE}, or the folder is not on the worker's machine.",
                404: "There is no such connector, or no such savepoint of it.",
                409: CONFLICT,
            },
            (FORWARD,),
            kafka=False,
        ),
    ),
)
