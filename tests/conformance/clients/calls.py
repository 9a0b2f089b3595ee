"""The requests of public clients of Kafka Connect and how they read the answers, taken from their sources (2026-11).

A field's type is what the client's deserialiser takes. Fields that it leaves out are left out here; where it refuses what it
does not know (values of enumerations), so do these types.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from .replay import REBALANCE, Call, Client, Error, state

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
CONFIG = {"connector.class": FILE_SOURCE, "tasks.max": "1", "file": "{file}", "topic": "{topic}"}
_JSON = "application/json"


def _of_file_source(plugins: Any) -> Any:
    return [{**plugin, "version": None} for plugin in plugins if plugin.get("class") == FILE_SOURCE]


def _mine(connectors: Any) -> Any:
    return sorted(name for name in connectors if name.startswith(("kcctl", "kafbat", "redpanda", "strimzi")))


# kcctl: a Quarkus REST client. Unknown fields are ignored, 409 is retried for 30 s, every error body is read. Plain list and
# creation have a slash at the end. Calls are left out where GET / says a version that did not have them.


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


class TaskId(Struct):
    connector: str
    task: int


class KcConnector(Struct):
    name: str
    config: dict[str, str]
    tasks: list[TaskId]
    type: str


class KcExpanded(Struct):
    status: KcStatus
    info: KcConnector | None = None


class TaskConfig(Struct):
    id: TaskId
    config: dict[str, str]


class TopicList(Struct):
    topics: list[str]


class KcPlugin(Struct):
    klass: str = field(name="class")
    type: str
    version: str | None = None


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


class ValueInfo(Struct):
    name: str
    errors: list[str]
    visible: bool
    value: str | None = None
    recommended_values: list[str | None] = field(default_factory=list)


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


class OffsetRow(Struct):
    partition: dict[str, Any]
    offset: dict[str, Any] | None


class OffsetRows(Struct):
    offsets: list[OffsetRow]


_STOPPED_CALLS = (
    Call("read offsets", "GET", "/connectors/{name}/offsets", reads=OffsetRows, until=lambda read: bool(read.offsets)),
    Call("stop", "PUT", "/connectors/{name}/stop", (204,)),
)
KCCTL = Client(
    "kcctl",
    {"Accept": _JSON, "User-Agent": "Quarkus REST Client"},
    (
        Call("info", "GET", "/", reads=KcInfo, keep=lambda _: None),
        Call("plugins", "GET", "/connector-plugins", reads=list[KcPlugin], keep=_of_file_source),
        Call(
            "all plugins", "GET", "/connector-plugins?connectorsOnly=false", reads=list[KcPlugin], keep=_of_file_source
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
        Call("list", "GET", "/connectors/", reads=list[str], keep=_mine),
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
        Call("expand", "GET", "/connectors?expand=status", reads=dict[str, KcExpanded], keep=_mine),
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
        *_STOPPED_CALLS,
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


# kafbat UI: a client generated from an OpenAPI document, read by Jackson: unknown fields are ignored, unknown values of
# enumerations are an error. It retries a 409 five times after 200 ms (but for creating and updating), and so a 500 with one
# certain message.

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


class ClusterInfo(Struct):
    version: str
    commit: str
    kafka_cluster_id: str


def _kafbat_retries(status: int, body: Any) -> bool:
    return status == 409 or (
        status == 500 and isinstance(body, dict) and str(body.get("message", "")).lower() == REBALANCE.lower()
    )


KAFBAT = Client(
    "kafbat UI",
    {"Accept": _JSON, "User-Agent": "ReactorNetty/1.2"},
    (
        Call("cluster", "GET", "/", reads=ClusterInfo, keep=lambda _: None),
        Call("plugins", "GET", "/connector-plugins", reads=list[KbPlugin], keep=_of_file_source),
        Call(
            "validate",
            "PUT",
            "/connector-plugins/FileStreamSourceConnector/config/validate",
            reads=KbConfigInfos,
            body={**CONFIG, "name": "{name}"},
            keep=lambda read: [read["name"], read["error_count"]],
        ),
        Call("connectors", "GET", "/connectors?expand=info&expand=status", reads=dict[str, KbExpanded], keep=_mine),
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
        *_STOPPED_CALLS,
        Call("stopped", "GET", "/connectors/{name}/status", reads=KbStatus, until=state("STOPPED", 0)),
        Call(
            "expanded when stopped",
            "GET",
            "/connectors?expand=info&expand=status",
            reads=dict[str, KbExpanded],
            keep=_mine,
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


# Redpanda Console: a Go client (resty), which sends a content type with every request, also without a body, and empty
# credentials where none are set. Any status below 400 is success; unknown fields are ignored, a wrong type is an error. It
# retries nothing; the user has to.


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
    "Accept": _JSON,
    "Content-Type": _JSON,
    "Authorization": "Basic Og==",
    "Accept-Encoding": "gzip",
}
REDPANDA = Client(
    "Redpanda Console",
    _RP_ALL,
    (
        Call("root", "GET", "/", reads=ClusterInfo, keep=lambda _: None),
        Call("plugins", "GET", "/connector-plugins", reads=list[KcPlugin], keep=_of_file_source),
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
        Call("connectors", "GET", "/connectors?expand=info&expand=status", reads=dict[str, RpExpanded], keep=_mine),
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


# The Strimzi operator: Java's HTTP client and Jackson. It takes 202 for pause and resume and 204 for stop, and nothing else;
# asks for the configuration first and creates on 404; backs off 200 ms, then twice as long, on 409. In names only `->` is
# encoded.


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
    """States of connector and tasks, and whether they say why; what a trace says is each worker's own."""
    return [read["connector"]["state"], [[task["state"], bool(task["trace"])] for task in read["tasks"]]]


#: A map of maps of strings, into which Jackson reads numbers and null as well.
Levels = dict[str, dict[str, str | int | None]]
STRIMZI = Client(
    "Strimzi",
    {"Accept": _JSON, "User-Agent": "Java-http-client/21"},
    (
        Call("health", "GET", "/health"),
        Call("plugins", "GET", "/connector-plugins", reads=list[SzPlugin], keep=_of_file_source),
        Call("list", "GET", "/connectors", reads=list[str], keep=_mine),
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
        *_STOPPED_CALLS,
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

# The Terraform provider of Mongey: a Go client (resty 1). It retries a 409 five times, after half a second and then longer;
# 404 is read as an answer where it asks for a connector. It compares what it has written with what it reads, as strings: a
# plan is empty only where both are the same.


class TfConnector(Struct):
    name: str
    config: dict[str, str]
    tasks: list[TaskId]


_TF_CONFIG = {**CONFIG, "name": "{name}"}
TERRAFORM = Client(
    "Terraform",
    {"Accept": _JSON, "User-Agent": "go-resty/1.12.0", "Accept-Encoding": "gzip"},
    (
        Call("create", "POST", "/connectors", (201,), TfConnector, {"name": "{name}", "config": _TF_CONFIG}),
        Call("created", "GET", "/connectors/{name}", reads=TfConnector, until=lambda read: bool(read.tasks)),
        Call("update", "PUT", "/connectors/{name}/config", (200,), TfConnector, {**_TF_CONFIG, "batch.size": "20"}),
        Call("updated", "GET", "/connectors/{name}/config", reads=dict[str, str]),
        Call("wrong update", "PUT", "/connectors/{name}/config", (400,), body={**_TF_CONFIG, "batch.size": "many"}),
        Call("as it was", "GET", "/connectors/{name}/config", reads=dict[str, str]),
        Call("delete", "DELETE", "/connectors/{name}", (204,)),
        Call("gone", "GET", "/connectors/{name}", (404,)),
    ),
    body_headers={"Content-Type": "application/json; charset=utf-8"},
    attempts=5,
    delay_s=0.5,
    connector="terraform-{id}",
    encoded="terraform-{id}",
)

CLIENTS = (KCCTL, KAFBAT, REDPANDA, STRIMZI, TERRAFORM)
