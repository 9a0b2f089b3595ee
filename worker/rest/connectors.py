"""``/connectors``: create, read, change, delete and steer connectors."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from worker.rest import bodies
from worker.rest.call import answer, empty
from worker.rest.checks import check_no_nulls, check_type
from worker.rest.facade import RestError
from worker.rest.routing import Route

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import Call


async def list_connectors(call: Call) -> web.Response:
    """``GET /connectors[?expand=status][&expand=info]``."""
    names = await call.herder.connectors()
    if "expand" not in call.request.query:
        return answer(names)
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
    return answer(result)


async def create(call: Call) -> web.Response:
    """``POST /connectors``: 201 with its address."""
    request = bodies.read_create(await call.request.read())
    config = named(request.name, request.config)
    info = await call.herder.create_connector(request.name, config, request.initial_state)
    return answer(info, 201, {"Location": call.location(request.name)})


async def get(call: Call) -> web.Response:
    """``GET /connectors/{connector}``."""
    return answer(await call.herder.connector_info(call.connector))


async def delete(call: Call) -> web.Response:
    """``DELETE /connectors/{connector}``."""
    await call.herder.delete_connector(call.connector)
    return empty(204)


async def get_config(call: Call) -> web.Response:
    """``GET /connectors/{connector}/config``."""
    return answer((await call.herder.connector_info(call.connector))["config"])


async def put_config(call: Call) -> web.Response:
    """``PUT /connectors/{connector}/config``: 201 if it is new, 200 otherwise."""
    config = named(call.connector, bodies.read_config(await call.request.read()))
    created, info = await call.herder.put_connector_config(call.connector, config)
    return answer(info, 201, {"Location": call.location(call.connector)}) if created else answer(info)


async def patch_config(call: Call) -> web.Response:
    """``PATCH /connectors/{connector}/config`` (KIP-477): null removes a property."""
    patch = bodies.read_config(await call.request.read())
    return answer(await call.herder.patch_connector_config(call.connector, patch))


async def status(call: Call) -> web.Response:
    """``GET /connectors/{connector}/status``."""
    return answer(await call.herder.connector_status(call.connector))


async def restart(call: Call) -> web.Response:
    """``POST /connectors/{connector}/restart`` (KIP-745): 204 for the instance alone, else 202 with the plan."""
    include_tasks = call.flag("includeTasks", default=False)
    only_failed = call.flag("onlyFailed", default=False)
    if not include_tasks and not only_failed:
        await call.herder.restart_connector(call.connector)
        return empty(204)
    return answer(await call.herder.restart_connector_and_tasks(
        call.connector, include_tasks=include_tasks, only_failed=only_failed), 202)


async def pause(call: Call) -> web.Response:
    """``PUT /connectors/{connector}/pause``."""
    await call.herder.set_target_state(call.connector, "PAUSED")
    return empty(202)


async def resume(call: Call) -> web.Response:
    """``PUT /connectors/{connector}/resume``."""
    await call.herder.set_target_state(call.connector, "STARTED")
    return empty(202)


async def stop(call: Call) -> web.Response:
    """``PUT /connectors/{connector}/stop`` (KIP-875)."""
    await call.herder.set_target_state(call.connector, "STOPPED")
    return empty(204)


async def explain(call: Call) -> web.Response:
    """``GET /connectors/{connector}/explain``: why each task is where it is, or why it isn't running. Not in Kafka Connect."""
    return answer(await call.herder.explain(call.connector))


async def progress(call: Call) -> web.Response:
    """``GET /connectors/{connector}/progress``: how far a connector that moves data itself is. Not in Kafka Connect."""
    return answer(await call.herder.connector_progress(call.connector))


def named(name: str, config: dict[str, str | None]) -> dict[str, str]:
    """The configuration with its connector's name in it.

    Raises:
        RestError: 400: it names another connector, names no class, or has a null value.
    """
    given = config.get("name")
    if given is not None and given != name:
        raise RestError(400, f"Connector name configuration ({given}) doesn't match connector name in the URL ({name})")
    complete = {**config, "name": name}
    check_type(complete)
    return check_no_nulls(complete)


ROUTES = (
    Route("GET", "/connectors", list_connectors),
    Route("POST", "/connectors", create, takes_body=True),
    Route("GET", "/connectors/{connector}", get),
    Route("DELETE", "/connectors/{connector}", delete),
    Route("GET", "/connectors/{connector}/config", get_config),
    Route("PUT", "/connectors/{connector}/config", put_config, takes_body=True),
    Route("PATCH", "/connectors/{connector}/config", patch_config, takes_body=True),
    Route("GET", "/connectors/{connector}/status", status),
    Route("POST", "/connectors/{connector}/restart", restart),
    Route("PUT", "/connectors/{connector}/pause", pause),
    Route("PUT", "/connectors/{connector}/resume", resume),
    Route("PUT", "/connectors/{connector}/stop", stop),
    Route("GET", "/connectors/{connector}/explain", explain),
    Route("GET", "/connectors/{connector}/progress", progress),
)
