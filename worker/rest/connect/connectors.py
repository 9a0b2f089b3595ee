"""``/connectors``: create, read, change, delete and steer connectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from worker.console.trail import SUBJECT
from worker.rest.call import empty_answer, json_answer
from worker.rest.checks import check_no_nulls, check_type
from worker.rest.facade import RestError
from worker.rest.operations import CONFLICT, FORWARD, NAMED, UNKNOWN, Operation, QueryParameter, Reply, Tag, make_links
from worker.rest.routing import RequiredAccess, RestRoute
from worker.rest.security.access import readable_names
from worker.rest.shapes import bodies
from worker.rest.shapes.schemas import (
    Config,
    ConfigBody,
    ConnectorInfo,
    ConnectorList,
    ConnectorStatus,
    CreateConnector,
    Explanation,
    Progress,
)

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import RestCall


async def list_connectors(call: RestCall) -> web.Response:
    """``GET /connectors[?expand=status][&expand=info]``."""
    names = readable_names(call.principal, await call.herder.connectors())
    if "expand" not in call.request.query:
        return json_answer(names)
    expansions = call.request.query.getall("expand")
    result: dict[str, dict[str, Any]] = {}
    for name in names:
        entry: dict[str, Any] = {}
        try:
            for expansion in expansions:
                if expansion == "status":
                    entry["status"] = await call.herder.connector_status(name)
                elif expansion == "info":
                    entry["info"] = await call.herder.connector_info(name)
        except RestError as error:
            if error.status != 404:
                raise
            continue  # deleted meanwhile
        result[name] = entry
    return json_answer(result)


async def create_connector(call: RestCall) -> web.Response:
    """``POST /connectors``: 201 with its address."""
    request = bodies.read_create(await call.request.read())
    call.request[SUBJECT] = request.name
    call.principal.require(RequiredAccess.ADMIN, request.name)
    config = with_name(request.name, request.config)
    call.check_class(config)
    info = await call.herder.create_connector(request.name, config, request.initial_state)
    return json_answer(info, 201, {"Location": call.location(request.name)})


async def get_connector(call: RestCall) -> web.Response:
    """``GET /connectors/{connector}``."""
    return json_answer(await call.herder.connector_info(call.connector))


async def delete_connector(call: RestCall) -> web.Response:
    """``DELETE /connectors/{connector}``."""
    await call.herder.delete_connector(call.connector)
    return empty_answer(204)


async def get_config(call: RestCall) -> web.Response:
    """``GET /connectors/{connector}/config``."""
    return json_answer((await call.herder.connector_info(call.connector))["config"])


async def put_config(call: RestCall) -> web.Response:
    """``PUT /connectors/{connector}/config``: 201 if it is new, 200 otherwise."""
    config = with_name(call.connector, bodies.read_config(await call.request.read()))
    call.check_class(config)
    created, info = await call.herder.put_connector_config(call.connector, config)
    return json_answer(info, 201, {"Location": call.location(call.connector)}) if created else json_answer(info)


async def patch_config(call: RestCall) -> web.Response:
    """``PATCH /connectors/{connector}/config`` (KIP-477): null removes a property."""
    patch = bodies.read_config(await call.request.read())
    call.check_class(patch)
    return json_answer(await call.herder.patch_connector_config(call.connector, patch))


async def get_status(call: RestCall) -> web.Response:
    """``GET /connectors/{connector}/status``."""
    return json_answer(await call.herder.connector_status(call.connector))


async def restart_connector(call: RestCall) -> web.Response:
    """``POST /connectors/{connector}/restart`` (KIP-745): 204 for the instance alone, else 202 with the plan."""
    include_tasks = call.flag("includeTasks", default=False)
    only_failed = call.flag("onlyFailed", default=False)
    if not include_tasks and not only_failed:
        await call.herder.restart_connector(call.connector)
        return empty_answer(204)
    return json_answer(
        await call.herder.restart_connector_and_tasks(
            call.connector, include_tasks=include_tasks, only_failed=only_failed
        ),
        202,
    )


async def pause_connector(call: RestCall) -> web.Response:
    """``PUT /connectors/{connector}/pause``."""
    await call.herder.set_target_state(call.connector, "PAUSED")
    return empty_answer(202)


async def resume_connector(call: RestCall) -> web.Response:
    """``PUT /connectors/{connector}/resume``."""
    await call.herder.set_target_state(call.connector, "STARTED")
    return empty_answer(202)


async def stop_connector(call: RestCall) -> web.Response:
    """``PUT /connectors/{connector}/stop`` (KIP-875)."""
    await call.herder.set_target_state(call.connector, "STOPPED")
    return empty_answer(204)


async def explain_connector(call: RestCall) -> web.Response:
    """``GET /connectors/{connector}/explain``: why each task is where it is, or why it isn't running. Not in Kafka Connect."""
    return json_answer(await call.herder.admin.explain(call.connector))


async def get_progress(call: RestCall) -> web.Response:
    """``GET /connectors/{connector}/progress``: how far a connector that moves data itself is. Not in Kafka Connect."""
    return json_answer(await call.herder.connector_progress(call.connector))


def with_name(name: str, config: dict[str, str | None]) -> dict[str, str]:
    """The configuration with its connector's name in it.

    Raises:
        RestError: 400: it names another connector, names no class, or has a null value.
    """
    given_name = config.get("name")
    if given_name is not None and given_name != name:
        raise RestError(
            400, f"Connector name configuration ({given_name}) doesn't match connector name in the URL ({name})"
        )
    complete = {**config, "name": name}
    check_type(complete)
    return check_no_nulls(complete)


_INVALID = "The configuration is invalid, or the body is not understood."
_LINES = {"connector.class": "FileStreamSource", "tasks.max": "1", "topic": "lines", "file": "/data/lines.txt"}


def _target_operation(name: str, summary: str, reply: int, doc: str) -> Operation:
    return Operation(name, summary, Tag.CONNECTORS, {reply: Reply(doc)}, {404: UNKNOWN, 409: CONFLICT}, (FORWARD,))


ROUTES = (
    RestRoute(
        "GET",
        "/connectors",
        list_connectors,
        operation=Operation(
            "listConnectors",
            "The names of all connectors, and what else is asked for.",
            Tag.CONNECTORS,
            {
                200: Reply(
                    "A list of names; with `expand` an object by name.",
                    ConnectorList,
                    links=make_links({"connector": "$response.body#/0"}, "getConnector", "getStatus"),
                )
            },
            query=(QueryParameter("expand", "What to say of each connector.", list[Literal["status", "info"]]),),
        ),
    ),
    RestRoute(
        "POST",
        "/connectors",
        create_connector,
        RequiredAccess.ADMIN,
        operation=Operation(
            "createConnector",
            "Create a connector.",
            Tag.CONNECTORS,
            {201: Reply("It is created; its tasks start within a moment.", ConnectorInfo, location=True, links=NAMED)},
            {400: _INVALID, 409: f"There is one of this name. {CONFLICT}"},
            (FORWARD,),
            CreateConnector,
            {
                "a file": {"name": "lines", "config": _LINES},
                "stopped": {"name": "lines", "config": _LINES, "initial_state": "STOPPED"},
            },
        ),
    ),
    RestRoute(
        "GET",
        "/connectors/{connector}",
        get_connector,
        operation=Operation(
            "getConnector",
            "A connector's configuration and tasks.",
            Tag.CONNECTORS,
            {
                200: Reply(
                    "The connector.",
                    ConnectorInfo,
                    links=make_links(
                        {"connector": "$response.body#/name", "task": "$response.body#/tasks/0/task"},
                        "getTaskStatus",
                        "restartTask",
                    ),
                )
            },
            {404: UNKNOWN},
        ),
    ),
    RestRoute(
        "DELETE",
        "/connectors/{connector}",
        delete_connector,
        RequiredAccess.ADMIN,
        operation=Operation(
            "deleteConnector",
            "Delete a connector. Its offsets stay.",
            Tag.CONNECTORS,
            {204: Reply("It is deleted.")},
            {404: UNKNOWN, 409: CONFLICT},
            (FORWARD,),
        ),
    ),
    RestRoute(
        "GET",
        "/connectors/{connector}/config",
        get_config,
        operation=Operation(
            "getConfig",
            "A connector's configuration.",
            Tag.CONNECTORS,
            {200: Reply("The configuration.", Config)},
            {404: UNKNOWN},
        ),
    ),
    RestRoute(
        "PUT",
        "/connectors/{connector}/config",
        put_config,
        RequiredAccess.ADMIN,
        operation=Operation(
            "putConfig",
            "Replace a connector's configuration, or create the connector.",
            Tag.CONNECTORS,
            {
                200: Reply("It is replaced.", ConnectorInfo, links=NAMED),
                201: Reply("It is created.", ConnectorInfo, location=True, links=NAMED),
            },
            {400: _INVALID, 409: CONFLICT},
            (FORWARD,),
            ConfigBody,
            {"a file": _LINES},
        ),
    ),
    RestRoute(
        "PATCH",
        "/connectors/{connector}/config",
        patch_config,
        RequiredAccess.ADMIN,
        operation=Operation(
            "patchConfig",
            "Change some of a connector's properties (KIP-477).",
            Tag.CONNECTORS,
            {200: Reply("They are changed.", ConnectorInfo)},
            {400: _INVALID, 404: UNKNOWN, 409: CONFLICT},
            (FORWARD,),
            ConfigBody,
            {"one less, one more": {"batch.size": None, "tasks.max": 2}},
            note="Null takes a property away.",
        ),
    ),
    RestRoute(
        "GET",
        "/connectors/{connector}/status",
        get_status,
        operation=Operation(
            "getStatus",
            "States of a connector and of its tasks.",
            Tag.CONNECTORS,
            {
                200: Reply(
                    "The states, from the moment it is created.",
                    ConnectorStatus,
                    links=make_links(
                        {"connector": "$response.body#/name", "task": "$response.body#/tasks/0/id"},
                        "getTaskStatus",
                        "restartTask",
                    ),
                )
            },
            {404: UNKNOWN},
        ),
    ),
    RestRoute(
        "POST",
        "/connectors/{connector}/restart",
        restart_connector,
        RequiredAccess.OPERATE,
        operation=Operation(
            "restartConnector",
            "Restart a connector (KIP-745).",
            Tag.CONNECTORS,
            {
                204: Reply("The connector's own instance is being restarted."),
                202: Reply(
                    "With `includeTasks` or `onlyFailed`: the states, RESTARTING for what is going to be.",
                    ConnectorStatus,
                ),
            },
            {404: UNKNOWN, 409: CONFLICT},
            (
                QueryParameter("includeTasks", "Whether its tasks are restarted too.", bool, default=False),
                QueryParameter("onlyFailed", "Whether only what has FAILED is.", bool, default=False),
                FORWARD,
            ),
        ),
    ),
    RestRoute(
        "PUT",
        "/connectors/{connector}/pause",
        pause_connector,
        RequiredAccess.OPERATE,
        operation=_target_operation(
            "pauseConnector", "Pause a connector; its tasks stay where they are.", 202, "It is being paused."
        ),
    ),
    RestRoute(
        "PUT",
        "/connectors/{connector}/resume",
        resume_connector,
        RequiredAccess.OPERATE,
        operation=_target_operation(
            "resumeConnector", "Let a paused or stopped connector run.", 202, "It is being resumed."
        ),
    ),
    RestRoute(
        "PUT",
        "/connectors/{connector}/stop",
        stop_connector,
        RequiredAccess.OPERATE,
        operation=_target_operation(
            "stopConnector", "Stop a connector and end its tasks (KIP-875).", 204, "It is being stopped."
        ),
    ),
    RestRoute(
        "GET",
        "/connectors/{connector}/explain",
        explain_connector,
        operation=Operation(
            "explainConnector",
            "Why each task is where it is, or why it isn't running.",
            Tag.CONNECTORS,
            {200: Reply("What the leader knows.", Explanation)},
            {404: UNKNOWN, 409: CONFLICT},
            (FORWARD,),
            kafka=False,
        ),
    ),
    RestRoute(
        "GET",
        "/connectors/{connector}/progress",
        get_progress,
        operation=Operation(
            "getProgress",
            "How far a connector that moves data itself is (a Spark job).",
            Tag.CONNECTORS,
            {200: Reply("What its job has said last.", Progress)},
            {400: "The connector is a source: its offsets say how far it is.", 404: UNKNOWN, 409: CONFLICT},
            (FORWARD,),
            kafka=False,
        ),
    ),
)
