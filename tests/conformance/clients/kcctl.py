"""Requests of kcctl, a Quarkus REST client.

Unknown fields are ignored, 409 is retried for 30 s, every error body is read. Plain list and creation have a slash at the
end. Calls are left out where GET / says a version that did not have them.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from .common import (
    CONFIG,
    FILE_SOURCE,
    JSON,
    STOPPED_CALLS,
    Plugin,
    TaskConfig,
    TaskId,
    TopicList,
    ValueInfo,
    keep_file_source,
    keep_ours,
)
from .replay import Call, Client, state


class KcInfo(Struct):
    version: Annotated[str, Meta(pattern=r"^(3\.([7-9]|\d\d)|[4-9])\.")]  # newest call: 3.7
    commit: str
    kafka_cluster_id: str


class KcConnectorState(Struct):
    state: str
    worker_id: str


class KcTaskState(Struct):
    id: int = 0
    state: str | None = None
    worker_id: str | None = None
    trace: str | None = None


class KcStatus(Struct):
    name: str
    tasks: list[KcTaskState]
    type: str
    connector: KcConnectorState | None = None


class KcConnector(Struct):
    name: str
    config: dict[str, str]
    tasks: list[TaskId]
    type: str


class KcExpanded(Struct):
    status: KcStatus
    info: KcConnector | None = None


class KcKeyInfo(Struct):
    name: str
    type: str
    required: bool
    importance: str
    documentation: str | None
    width: str
    dependents: list[str]
    default_value: str | None = None
    group: str | None = None


class KcConfigInfo(Struct):
    value: ValueInfo
    definition: KcKeyInfo | None = None


class KcConfigInfos(Struct):
    name: str
    error_count: int
    groups: list[str]
    configs: list[KcConfigInfo]


class KcLevel(Struct):
    level: str
    last_modified: int | None


class Message(Struct):
    message: str


KCCTL = Client(
    "kcctl",
    {"Accept": JSON, "User-Agent": "Quarkus REST Client"},
    (
        Call("info", "GET", "/", reads=KcInfo, keep=lambda _: None),
        Call("plugins", "GET", "/connector-plugins", reads=list[Plugin], keep=keep_file_source),
        Call(
            "all plugins", "GET", "/connector-plugins?connectorsOnly=false", reads=list[Plugin], keep=keep_file_source
        ),
        Call(
            "describe plugin",
            "GET",
            "/connector-plugins/FileStreamSourceConnector/config",
            reads=list[KcKeyInfo],
            keep=lambda read: [option["name"] for option in read if option["name"] in {"file", "topic", "batch.size"}],
        ),
        Call(
            "validate",
            "PUT",
            "/connector-plugins/FileStreamSourceConnector/config/validate",
            reads=KcConfigInfos,
            body={**CONFIG, "name": "dummy-name"},
            keep=lambda read: [read["name"], read["error_count"]],
        ),
        Call(
            "validate wrong",
            "PUT",
            "/connector-plugins/FileStreamSourceConnector/config/validate",
            reads=KcConfigInfos,
            body={"connector.class": FILE_SOURCE, "name": "dummy-name", "tasks.max": "0"},
            keep=lambda read: [
                read["error_count"],
                sorted(text for option in read["configs"] for text in option["value"]["errors"]),
            ],
        ),
        Call("list", "GET", "/connectors/", reads=list[str], keep=keep_ours),
        Call("create", "POST", "/connectors/", (201,), KcStatus, {"name": "{name}", "config": CONFIG}),
        Call("create again", "POST", "/connectors/", (409,), body={"name": "{name}", "config": CONFIG}),
        Call(
            "create of no class",
            "POST",
            "/connectors/",
            (400,),
            body={"name": "x", "config": {"connector.class": "Nope"}},
            keep=lambda read: read["message"].partition(" and which")[0],
        ),
        Call(
            "status",
            "GET",
            "/connectors/{name}/status",
            (200, 404),
            KcStatus,
            until=lambda read: isinstance(read, KcStatus) and state("RUNNING")(read),
        ),
        Call("expand", "GET", "/connectors?expand=status", reads=dict[str, KcExpanded], keep=keep_ours),
        Call("get", "GET", "/connectors/{name}", reads=KcConnector),
        Call("config", "GET", "/connectors/{name}/config", reads=dict[str, str]),
        Call("update", "PUT", "/connectors/{name}/config", (200,), KcStatus, {**CONFIG, "name": "{name}"}),
        Call("tasks", "GET", "/connectors/{name}/tasks", reads=list[TaskConfig]),
        Call(
            "topics",
            "GET",
            "/connectors/{name}/topics",
            reads=dict[str, TopicList],
            until=lambda read: any(entry.topics for entry in read.values()),
        ),
        Call("restart", "POST", "/connectors/{name}/restart", (204,)),
        Call("running", "GET", "/connectors/{name}/status", reads=KcStatus, until=state("RUNNING")),
        Call("restart all", "POST", "/connectors/{name}/restart?includeTasks=true&onlyFailed=false", (202,), KcStatus),
        Call("running again", "GET", "/connectors/{name}/status", reads=KcStatus, until=state("RUNNING")),
        Call("restart task", "POST", "/connectors/{name}/tasks/0/restart", (204,)),
        Call("pause", "PUT", "/connectors/{name}/pause", (202,)),
        Call("paused", "GET", "/connectors/{name}/status", reads=KcStatus, until=state("PAUSED")),
        Call("resume", "PUT", "/connectors/{name}/resume", (202,)),
        Call("resumed", "GET", "/connectors/{name}/status", reads=KcStatus, until=state("RUNNING")),
        *STOPPED_CALLS,
        Call("stopped", "GET", "/connectors/{name}/status", reads=KcStatus, until=state("STOPPED", 0)),
        Call(
            "patch offsets",
            "PATCH",
            "/connectors/{name}/offsets",
            (200,),
            Message,
            {"offsets": [{"partition": {"filename": "{file}"}, "offset": {"position": 4}}]},
        ),
        Call("delete offsets", "DELETE", "/connectors/{name}/offsets", (200,), Message),
        Call("set level", "PUT", "/admin/loggers/client.test", (200,), list[str], {"level": "DEBUG"}),
        Call("set the lowest level", "PUT", "/admin/loggers/client.all", (200,), list[str], {"level": "ALL"}),
        Call("lowest level", "GET", "/admin/loggers/client.all", reads=KcLevel, keep=lambda read: read["level"]),
        Call("set level of all", "PUT", "/admin/loggers/client.test?scope=cluster", (204,), None, {"level": "INFO"}),
        Call(
            "level",
            "GET",
            "/admin/loggers/client.test",
            reads=KcLevel,
            until=lambda read: read.level == "INFO",
            keep=lambda read: read["level"],
        ),
        Call(
            "levels", "GET", "/admin/loggers", reads=dict[str, KcLevel], keep=lambda read: read["client.test"]["level"]
        ),
        Call("delete", "DELETE", "/connectors/{name}", (204,)),
        Call("gone", "GET", "/connectors/{name}", (404,)),
    ),
    connector="kcctl-{id}",
    encoded="kcctl-{id}",
)
