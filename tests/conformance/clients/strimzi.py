"""Requests of the Strimzi operator: Java's HTTP client and Jackson.

It takes 202 for pause and resume and 204 for stop, and no other status; asks for the configuration first and creates on 404;
backs off 200 ms, then twice as long, on 409. In names only ``->`` is encoded.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from .common import CONFIG, JSON, STOPPED_CALLS, TaskId, keep_file_source, keep_ours
from .replay import Call, Client, Error, state


class SzState(Struct):
    state: str
    worker_id: str


class SzTask(Struct):
    id: int
    state: str
    trace: str = ""


class SzStatus(Struct):
    name: str
    connector: SzState
    tasks: list[SzTask]
    type: str


class SzPlugin(Struct):
    klass: str = field(name="class")
    type: str | None = None
    version: str | None = None


class SzConnector(Struct):
    name: str
    tasks: list[TaskId]


_SZ_FAILS = {
    **CONFIG,
    "tasks.max": 1,
    "transforms": "part",
    "transforms.part.field": "none",
    "transforms.part.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
}


def _has_failed(read: Any) -> bool:
    return [task.state for task in read.tasks] == ["FAILED"]


def _traced(read: Any) -> Any:
    """States of connector and tasks, and whether they say why; the wording of a trace is each worker's own."""
    return [read["connector"]["state"], [[task["state"], bool(task["trace"])] for task in read["tasks"]]]


#: A map of maps of strings, into which Jackson reads numbers and null as well.
Levels = dict[str, dict[str, str | int | None]]
STRIMZI = Client(
    "Strimzi",
    {"Accept": JSON, "User-Agent": "Java-http-client/21"},
    (
        Call("health", "GET", "/health"),
        Call("plugins", "GET", "/connector-plugins", reads=list[SzPlugin], keep=keep_file_source),
        Call("list", "GET", "/connectors", reads=list[str], keep=keep_ours),
        Call("missing", "GET", "/connectors/{name}/config", (404,)),
        Call(
            "create",
            "POST",
            "/connectors",
            (201,),
            SzConnector,
            {"name": "{name}", "config": {**CONFIG, "tasks.max": 1}, "initial_state": "PAUSED"},
        ),
        Call(
            "status",
            "GET",
            "/connectors/{name}/status",
            (200, 404),
            SzStatus,
            until=lambda read: isinstance(read, SzStatus) and read.connector.state == "PAUSED",
        ),
        Call("resume", "PUT", "/connectors/{name}/resume", (202,)),
        Call("running", "GET", "/connectors/{name}/status", reads=SzStatus, until=state("RUNNING")),
        Call("config", "GET", "/connectors/{name}/config", reads=dict[str, str]),
        Call("get", "GET", "/connectors/{name}", reads=SzConnector),
        Call("update", "PUT", "/connectors/{name}/config", (200,), SzConnector, {**CONFIG, "tasks.max": 1}),
        Call("running after the update", "GET", "/connectors/{name}/status", reads=SzStatus, until=state("RUNNING")),
        Call(
            "topics",
            "GET",
            "/connectors/{name}/topics",
            reads=dict[str, dict[str, list[str]]],
            until=lambda read: any(entry["topics"] for entry in read.values()),
        ),
        Call("restart", "POST", "/connectors/{name}/restart?includeTasks=false&onlyFailed=false", (204,)),
        Call("running after a restart", "GET", "/connectors/{name}/status", reads=SzStatus, until=state("RUNNING")),
        Call(
            "restart what has failed",
            "POST",
            "/connectors/{name}/restart?includeTasks=true&onlyFailed=true",
            (202,),
            SzStatus,
        ),
        Call("restart task", "POST", "/connectors/{name}/tasks/0/restart", (204,)),
        Call(
            "running after a task's restart", "GET", "/connectors/{name}/status", reads=SzStatus, until=state("RUNNING")
        ),
        Call("pause", "PUT", "/connectors/{name}/pause", (202,)),
        Call("paused", "GET", "/connectors/{name}/status", reads=SzStatus, until=state("PAUSED")),
        *STOPPED_CALLS,
        Call("stopped", "GET", "/connectors/{name}/status", reads=SzStatus, until=state("STOPPED", 0)),
        Call(
            "alter offsets",
            "PATCH",
            "/connectors/{name}/offsets",
            (200,),
            dict[str, str],
            {"offsets": [{"partition": {"filename": "{file}"}, "offset": {"position": 4}}]},
        ),
        Call("reset offsets", "DELETE", "/connectors/{name}/offsets", (200,), dict[str, str]),
        Call("update to what fails", "PUT", "/connectors/{name}/config", (200,), SzConnector, _SZ_FAILS),
        Call("resume to fail", "PUT", "/connectors/{name}/resume", (202,)),
        Call("failed", "GET", "/connectors/{name}/status", reads=SzStatus, until=_has_failed, keep=_traced),
        Call(
            "restart the failed",
            "POST",
            "/connectors/{name}/restart?includeTasks=true&onlyFailed=true",
            (202,),
            SzStatus,
            keep=_traced,
        ),
        Call("failed again", "GET", "/connectors/{name}/status", reads=SzStatus, until=_has_failed, keep=_traced),
        Call("levels", "GET", "/admin/loggers/", reads=Levels, keep=lambda read: "root" in read),
        Call("set level", "PUT", "/admin/loggers/client.strimzi?scope=cluster", (200, 204), None, {"level": "WARN"}),
        Call(
            "level is set",
            "GET",
            "/admin/loggers/",
            reads=Levels,
            keep=lambda read: read["client.strimzi"]["level"],
            until=lambda read: read.get("client.strimzi", {}).get("level") == "WARN",
        ),
        Call("delete", "DELETE", "/connectors/{name}", (204,)),
        Call(
            "gone", "GET", "/connectors/{name}/status", (404, 200), SzStatus, until=lambda read: isinstance(read, Error)
        ),
    ),
    attempts=10,
    delay_s=0.2,
    connector="strimzi->{id}.File",
    encoded="strimzi%2D%3E{id}.File",
)
