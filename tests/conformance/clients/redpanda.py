"""Requests of Redpanda Console, a Go client (resty).

It sends a content type with every request, also without a body, and empty credentials where none are set. Any status below
400 is success; unknown fields are ignored, a wrong type is an error. It retries nothing; the user has to.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from .common import CONFIG, FILE_SOURCE, JSON, ClusterInfo, Plugin, TaskId, TopicList, keep_file_source, keep_ours
from .replay import Call, Client, state


class RpState(Struct):
    state: str
    worker_id: str
    trace: str = ""


class RpTaskState(Struct):
    id: int
    state: str
    worker_id: str
    trace: str = ""


class RpStatus(Struct):
    name: str
    connector: RpState
    tasks: list[RpTaskState]
    type: str


class RpConnector(Struct):
    name: str
    config: dict[str, str]
    tasks: list[TaskId]
    type: str = ""


class RpExpanded(Struct):
    info: RpConnector
    status: RpStatus


class RpConfigInfo(Struct):
    value: dict[str, Any]
    definition: dict[str, Any] | None = None


class RpConfigInfos(Struct):
    name: str
    error_count: int
    groups: list[str]
    configs: list[RpConfigInfo]


_RP_ALL = {
    "User-Agent": "Redpanda Console",
    "Accept": JSON,
    "Content-Type": JSON,
    "Authorization": "Basic Og==",
    "Accept-Encoding": "gzip",
}
REDPANDA = Client(
    "Redpanda Console",
    _RP_ALL,
    (
        Call("root", "GET", "/", reads=ClusterInfo, keep=lambda _: None),
        Call("plugins", "GET", "/connector-plugins", reads=list[Plugin], keep=keep_file_source),
        # The form of a new connector asks as one types.
        Call(
            "validate",
            "PUT",
            f"/connector-plugins/{FILE_SOURCE}/config/validate",
            reads=RpConfigInfos,
            body={"connector.class": FILE_SOURCE, "name": "", "tasks.max": 1},
            keep=lambda read: [
                read["name"],
                sorted(option["value"]["name"] for option in read["configs"] if option["value"]["errors"]),
            ],
        ),
        Call("create", "POST", "/connectors", (201,), RpConnector, {"name": "{name}", "config": CONFIG}),
        Call(
            "status",
            "GET",
            "/connectors/{name}/status",
            (200, 404),
            RpStatus,
            until=lambda read: isinstance(read, RpStatus) and state("RUNNING")(read),
        ),
        Call("connectors", "GET", "/connectors?expand=info&expand=status", reads=dict[str, RpExpanded], keep=keep_ours),
        Call("connector", "GET", "/connectors/{name}", reads=RpConnector),
        Call("config", "GET", "/connectors/{name}/config", reads=dict[str, str]),
        Call("update", "PUT", "/connectors/{name}/config", (200,), RpConnector, {**CONFIG, "name": "{name}"}),
        Call(
            "topics",
            "GET",
            "/connectors/{name}/topics",
            reads=dict[str, TopicList],
            until=lambda read: any(entry.topics for entry in read.values()),
        ),
        Call("restart", "POST", "/connectors/{name}/restart?includeTasks=true&onlyFailed=true", (202,)),
        Call("restart task", "POST", "/connectors/{name}/tasks/0/restart", (204,)),
        Call("running", "GET", "/connectors/{name}/status", reads=RpStatus, until=state("RUNNING")),
        Call("pause", "PUT", "/connectors/{name}/pause", (202,)),
        Call("resume", "PUT", "/connectors/{name}/resume", (202,)),
        Call("resumed", "GET", "/connectors/{name}/status", reads=RpStatus, until=state("RUNNING")),
        Call("forget topics", "PUT", "/connectors/{name}/topics/reset", (202,)),
        Call("stop", "PUT", "/connectors/{name}/stop", (204,)),
        Call("stopped", "GET", "/connectors/{name}/status", reads=RpStatus, until=state("STOPPED", 0)),
        Call("delete", "DELETE", "/connectors/{name}", (204,)),
        Call("gone", "GET", "/connectors/{name}", (404,)),
    ),
    body_headers={},
    connector="redpanda-{id}",
    encoded="redpanda-{id}",
)
