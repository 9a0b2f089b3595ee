"""``/connectors/{connector}/tasks``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.rest.call import empty_answer, json_answer
from worker.rest.operations import CONFLICT, FORWARD, UNKNOWN, Operation, Reply, Tag
from worker.rest.routing import RequiredAccess, RestRoute
from worker.rest.shapes.schemas import Config, TaskInfo, TaskState

if TYPE_CHECKING:
    from aiohttp import web

    from worker.rest.call import RestCall


async def list_tasks(call: RestCall) -> web.Response:
    """``GET /connectors/{connector}/tasks``."""
    return json_answer(await call.herder.task_infos(call.connector))


async def tasks_config(call: RestCall) -> web.Response:
    """``GET /connectors/{connector}/tasks-config``: gone from Kafka Connect 4, kept for clients of 3.x."""
    return json_answer(await call.herder.tasks_config(call.connector))


async def task_status(call: RestCall) -> web.Response:
    """``GET /connectors/{connector}/tasks/{task}/status``."""
    return json_answer(await call.herder.task_status(call.connector, call.task))


async def restart_task(call: RestCall) -> web.Response:
    """``POST /connectors/{connector}/tasks/{task}/restart``."""
    await call.herder.restart_task(call.connector, call.task)
    return empty_answer(204)


_NOT_RUN = f"{CONFLICT} Or the task was one of the connector's before it was stopped, or before it had fewer tasks."

ROUTES = (
    RestRoute(
        "GET",
        "/connectors/{connector}/tasks",
        list_tasks,
        operation=Operation(
            "listTasks",
            "A connector's tasks with their configurations.",
            Tag.TASKS,
            {200: Reply("All of them.", list[TaskInfo])},
            {404: UNKNOWN},
        ),
    ),
    RestRoute(
        "GET",
        "/connectors/{connector}/tasks-config",
        tasks_config,
        operation=Operation(
            "getTaskConfigs",
            "The configurations of a connector's tasks.",
            Tag.TASKS,
            {200: Reply("By `CONNECTOR-TASK`.", dict[str, Config])},
            {404: UNKNOWN},
            kafka=False,
            note="Gone from Kafka Connect 4, kept for clients of 3.x; `GET /connectors/{connector}/tasks` says the same.",
        ),
    ),
    RestRoute(
        "GET",
        "/connectors/{connector}/tasks/{task}/status",
        task_status,
        operation=Operation(
            "getTaskStatus",
            "A task's state.",
            Tag.TASKS,
            {200: Reply("Its state.", TaskState)},
            {404: "There is no such connector, or no such task of it."},
        ),
    ),
    RestRoute(
        "POST",
        "/connectors/{connector}/tasks/{task}/restart",
        restart_task,
        RequiredAccess.OPERATE,
        operation=Operation(
            "restartTask",
            "Restart one task.",
            Tag.TASKS,
            {204: Reply("It is being restarted.")},
            {404: "There is no such connector, or no such task of it.", 409: _NOT_RUN},
            (FORWARD,),
        ),
    ),
)
