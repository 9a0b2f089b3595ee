"""``/connectors/{connector}/snapshots``, ``.../lag`` and ``.../tables``. Not in Kafka Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from worker.rest.call import empty_answer, json_answer
from worker.rest.operations import CONFLICT, FORWARD, Operation, Reply, Tag
from worker.rest.routing import RequiredAccess, RestRoute
from worker.rest.shapes import bodies
from worker.rest.shapes.schemas import Lag, Snapshot, SnapshotRequest, Table

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import RestCall


async def create_snapshot(call: RestCall) -> web.Response:
    """``POST .../snapshots``: 201 with its address."""
    request = bodies.read_snapshot(await call.request.read())
    if request.get("conditions"):
        # SQL that the connector's database user runs.
        call.principal.require(RequiredAccess.ADMIN, call.connector)
    snapshot = await call.herder.snapshots.create_snapshot(call.connector, request)
    return json_answer(
        snapshot, 201, {"Location": f"{call.location(call.connector)}/snapshots/{quote(snapshot['id'], safe='')}"}
    )


async def list_all(call: RestCall) -> web.Response:
    """``GET .../snapshots``: those that were asked for and those the connector started itself, with their progress."""
    return json_answer(await call.herder.snapshots.list_snapshots(call.connector))


async def get_snapshot(call: RestCall) -> web.Response:
    """``GET .../snapshots/{snapshot}``."""
    return json_answer(await call.herder.snapshots.snapshot(call.connector, call.parameters["snapshot"]))


async def pause_snapshot(call: RestCall) -> web.Response:
    """``PUT .../snapshots/{snapshot}/pause``."""
    await call.herder.snapshots.steer_snapshot(call.connector, call.parameters["snapshot"], "pause")
    return empty_answer(202)


async def resume_snapshot(call: RestCall) -> web.Response:
    """``PUT .../snapshots/{snapshot}/resume``."""
    await call.herder.snapshots.steer_snapshot(call.connector, call.parameters["snapshot"], "resume")
    return empty_answer(202)


async def cancel_snapshot(call: RestCall) -> web.Response:
    """``PUT .../snapshots/{snapshot}/cancel``: for good."""
    await call.herder.snapshots.steer_snapshot(call.connector, call.parameters["snapshot"], "cancel")
    return empty_answer(202)


async def delete_snapshot(call: RestCall) -> web.Response:
    """``DELETE .../snapshots/{snapshot}``: end it and forget the request."""
    await call.herder.snapshots.delete_snapshot(call.connector, call.parameters["snapshot"])
    return empty_answer(204)


async def get_lag(call: RestCall) -> web.Response:
    """``GET .../lag``: how far the connector is behind its source."""
    return json_answer(await call.herder.snapshots.connector_lag(call.connector))


async def list_tables(call: RestCall) -> web.Response:
    """``GET .../tables``: what is captured, with the versions of each table."""
    return json_answer(await call.herder.snapshots.connector_tables(call.connector))


_UNKNOWN = {404: "There is no such connector, or no such snapshot of it."}
_NONE = "The connector takes no snapshots on request"
_STEERED = {**_UNKNOWN, 400: f"{_NONE}, or the snapshot has ended.", 409: CONFLICT}
_PATH = "/connectors/{connector}/snapshots"


def _steer_operation(action: str, doc: str) -> Operation:
    return Operation(
        f"{action}Snapshot",
        doc,
        Tag.SNAPSHOTS,
        {202: Reply("The tasks get the request.")},
        _STEERED,
        (FORWARD,),
        kafka=False,
    )


ROUTES = (
    RestRoute(
        "POST",
        _PATH,
        create_snapshot,
        RequiredAccess.OPERATE,
        operation=Operation(
            "createSnapshot",
            "Ask for a snapshot of some tables, at the same time as the stream.",
            Tag.SNAPSHOTS,
            {201: Reply("The request as it is kept.", Snapshot, location=True)},
            {
                400: f"{_NONE}, or not of these tables, or the body is not understood.",
                404: "There is no such connector.",
                409: f"There is one of this id. {CONFLICT}",
            },
            (FORWARD,),
            SnapshotRequest,
            {
                "a table": {"tables": ["shop.orders"], "priority": 3},
                "some rows": {"tables": ["shop.orders"], "conditions": {"shop.orders": "id > 1000"}, "id": "again-1"},
                "at night": {"tables": ["shop.orders"], "start_at": "02:30", "time_zone": "Europe/Berlin"},
            },
            kafka=False,
        ),
    ),
    RestRoute(
        "GET",
        _PATH,
        list_all,
        operation=Operation(
            "listSnapshots",
            "A connector's snapshots with their progress.",
            Tag.SNAPSHOTS,
            {200: Reply("Those that were asked for, and those that it began itself.", list[Snapshot])},
            {400: f"{_NONE}.", 404: "There is no such connector."},
            kafka=False,
        ),
    ),
    RestRoute(
        "GET",
        f"{_PATH}/{{snapshot}}",
        get_snapshot,
        operation=Operation(
            "getSnapshot",
            "A snapshot and its progress.",
            Tag.SNAPSHOTS,
            {200: Reply("The snapshot.", Snapshot)},
            {400: f"{_NONE}.", **_UNKNOWN},
            kafka=False,
        ),
    ),
    RestRoute(
        "DELETE",
        f"{_PATH}/{{snapshot}}",
        delete_snapshot,
        RequiredAccess.OPERATE,
        operation=Operation(
            "deleteSnapshot",
            "End a snapshot and forget the request.",
            Tag.SNAPSHOTS,
            {204: Reply("It is forgotten.")},
            {400: f"{_NONE}, or this one was not asked for here.", **_UNKNOWN, 409: CONFLICT},
            (FORWARD,),
            kafka=False,
        ),
    ),
    RestRoute(
        "PUT",
        f"{_PATH}/{{snapshot}}/pause",
        pause_snapshot,
        RequiredAccess.OPERATE,
        operation=_steer_operation("pause", "Pause a snapshot."),
    ),
    RestRoute(
        "PUT",
        f"{_PATH}/{{snapshot}}/resume",
        resume_snapshot,
        RequiredAccess.OPERATE,
        operation=_steer_operation("resume", "Let a snapshot continue."),
    ),
    RestRoute(
        "PUT",
        f"{_PATH}/{{snapshot}}/cancel",
        cancel_snapshot,
        RequiredAccess.OPERATE,
        operation=_steer_operation("cancel", "End a snapshot for good."),
    ),
    RestRoute(
        "GET",
        "/connectors/{connector}/lag",
        get_lag,
        operation=Operation(
            "getLag",
            "How far a connector is behind its source.",
            Tag.SNAPSHOTS,
            {200: Reply("As far as it can tell.", Lag)},
            {400: "The connector can't tell.", 404: "There is no such connector."},
            kafka=False,
        ),
    ),
    RestRoute(
        "GET",
        "/connectors/{connector}/tables",
        list_tables,
        operation=Operation(
            "listTables",
            "The tables that a connector captures, with their versions.",
            Tag.SNAPSHOTS,
            {200: Reply("All of them.", list[Table])},
            {400: "The connector keeps no versions of tables.", 404: "There is no such connector."},
            kafka=False,
        ),
    ),
)
