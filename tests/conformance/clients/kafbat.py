"""Requests of kafbat UI: a client generated from an OpenAPI document, read by Jackson.

Unknown fields are ignored, unknown values of enumerations are an error. It retries a 409 five times after 200 ms (but for
creating and updating), and so a 500 with one certain message.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from .common import (
    CONFIG,
    JSON,
    STOPPED_CALLS,
    ClusterInfo,
    TaskConfig,
    TaskId,
    TopicList,
    ValueInfo,
    keep_file_source,
    keep_ours,
)
from .replay import REBALANCE, Call, Client, state

State = Literal["RUNNING", "FAILED", "PAUSED", "UNASSIGNED", "RESTARTING"]
Importance = Literal["LOW", "MEDIUM", "HIGH"]


class KbState(Struct):
    state: Literal["RUNNING", "FAILED", "PAUSED", "UNASSIGNED", "RESTARTING", "STOPPED"]
    worker_id: str
    trace: str | None = None


class KbTaskState(Struct):
    id: int
    state: State
    worker_id: str
    trace: str | None = None


class KbStatus(Struct):
    name: str
    connector: KbState
    tasks: list[KbTaskState]


class KbConnector(Struct):
    name: str
    config: dict[str, Any]
    tasks: list[TaskId]
    type: Literal["source", "sink", "unknown"]


class KbExpanded(Struct):
    status: KbStatus
    info: KbConnector


class KbKeyInfo(Struct):
    name: str
    type: Literal["BOOLEAN", "CLASS", "DOUBLE", "INT", "LIST", "LONG", "PASSWORD", "SHORT", "STRING"]
    required: bool
    importance: Importance
    width: Literal["SHORT", "MEDIUM", "LONG", "NONE"]
    dependents: list[str]
    order: int
    default_value: str | None = None
    documentation: str | None = None
    group: str | None = None
    display_name: str | None = None


class KbConfigInfo(Struct):
    value: ValueInfo
    definition: KbKeyInfo | None = None


class KbConfigInfos(Struct):
    name: str
    error_count: int
    groups: list[str]
    configs: list[KbConfigInfo]


class KbPlugin(Struct):
    klass: str = field(name="class")


def _kafbat_retries(status: int, body: Any) -> bool:
    return status == 409 or (
        status == 500 and isinstance(body, dict) and str(body.get("message", "")).lower() == REBALANCE.lower()
    )


KAFBAT = Client(
    "kafbat UI",
    {"Accept": JSON, "User-Agent": "ReactorNetty/1.2"},
    (
        Call("cluster", "GET", "/", reads=ClusterInfo, keep=lambda _: None),
        Call("plugins", "GET", "/connector-plugins", reads=list[KbPlugin], keep=keep_file_source),
        Call(
            "validate",
            "PUT",
            "/connector-plugins/FileStreamSourceConnector/config/validate",
            reads=KbConfigInfos,
            body={**CONFIG, "name": "{name}"},
            keep=lambda read: [read["name"], read["error_count"]],
        ),
        Call("connectors", "GET", "/connectors?expand=info&expand=status", reads=dict[str, KbExpanded], keep=keep_ours),
        Call(
            "create",
            "POST",
            "/connectors",
            (201,),
            KbConnector,
            {"name": "{name}", "config": {**CONFIG, "tasks.max": 1}},
        ),
        # A status that is not there yet is shown as UNASSIGNED.
        Call(
            "status",
            "GET",
            "/connectors/{name}/status",
            (200, 404),
            KbStatus,
            until=lambda read: isinstance(read, KbStatus) and state("RUNNING")(read),
        ),
        Call("connector", "GET", "/connectors/{name}", reads=KbConnector),
        Call(
            "topics",
            "GET",
            "/connectors/{name}/topics",
            reads=dict[str, TopicList],
            until=lambda read: any(entry.topics for entry in read.values()),
        ),
        Call("config", "GET", "/connectors/{name}/config", reads=dict[str, Any]),
        Call(
            "update",
            "PUT",
            "/connectors/{name}/config",
            (200,),
            KbConnector,
            {**CONFIG, "tasks.max": 1, "name": "{name}"},
        ),
        Call("wrong update", "PUT", "/connectors/{name}/config", (400, 500), body={**CONFIG, "tasks.max": "zero"}),
        Call(
            "tasks",
            "GET",
            "/connectors/{name}/tasks",
            reads=list[TaskConfig],
            keep=lambda read: [task["id"] for task in read],
        ),
        Call(
            "task",
            "GET",
            "/connectors/{name}/tasks/0/status",
            reads=KbTaskState,
            until=lambda read: read.state == "RUNNING",
        ),
        Call("restart", "POST", "/connectors/{name}/restart?includeTasks=false&onlyFailed=false", (204,)),
        Call("running", "GET", "/connectors/{name}/status", reads=KbStatus, until=state("RUNNING")),
        Call("restart task", "POST", "/connectors/{name}/tasks/0/restart", (204,)),
        Call("pause", "PUT", "/connectors/{name}/pause", (202,)),
        Call("paused", "GET", "/connectors/{name}/status", reads=KbStatus, until=state("PAUSED")),
        Call("resume", "PUT", "/connectors/{name}/resume", (202,)),
        Call("resumed", "GET", "/connectors/{name}/status", reads=KbStatus, until=state("RUNNING")),
        Call("reset while running", "DELETE", "/connectors/{name}/offsets", (400,)),
        *STOPPED_CALLS,
        Call("stopped", "GET", "/connectors/{name}/status", reads=KbStatus, until=state("STOPPED", 0)),
        Call(
            "expanded when stopped",
            "GET",
            "/connectors?expand=info&expand=status",
            reads=dict[str, KbExpanded],
            keep=keep_ours,
        ),
        Call("reset", "DELETE", "/connectors/{name}/offsets", (200,)),
        Call("delete", "DELETE", "/connectors/{name}", (204,)),
        Call("tasks when gone", "GET", "/connectors/{name}/tasks", (404,)),
    ),
    should_retry=_kafbat_retries,
    attempts=5,
    delay_s=0.2,
    connector="kafbat {id}",
    encoded="kafbat%20{id}",
)
