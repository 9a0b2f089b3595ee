"""``/connectors/{connector}/tasks``."""
from __future__ import annotations

from typing import TYPE_CHECKING

from worker.rest.call import answer, empty
from worker.rest.routing import Route

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import Call


async def list_tasks(call: Call) -> web.Response:
    """``GET /connectors/{connector}/tasks``."""
    return answer(await call.herder.task_infos(call.connector))


async def tasks_config(call: Call) -> web.Response:
    """``GET /connectors/{connector}/tasks-config``: gone from Kafka Connect 4, kept for clients of 3.x."""
    return answer(await call.herder.tasks_config(call.connector))


async def task_status(call: Call) -> web.Response:
    """``GET /connectors/{connector}/tasks/{task}/status``."""
    return answer(await call.herder.task_status(call.connector, call.task))


async def restart_task(call: Call) -> web.Response:
    """``POST /connectors/{connector}/tasks/{task}/restart``."""
    await call.herder.restart_task(call.connector, call.task)
    return empty(204)


ROUTES = (
    Route("GET", "/connectors/{connector}/tasks", list_tasks),
    Route("GET", "/connectors/{connector}/tasks-config", tasks_config),
    Route("GET", "/connectors/{connector}/tasks/{task}/status", task_status),
    Route("POST", "/connectors/{connector}/tasks/{task}/restart", restart_task),
)
