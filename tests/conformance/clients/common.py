"""Requests, answers and configurations that several clients have in common."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from .replay import Call

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
CONFIG = {"connector.class": FILE_SOURCE, "tasks.max": "1", "file": "{file}", "topic": "{topic}"}
JSON = "application/json"


def keep_file_source(plugins: Any) -> Any:
    return [{**plugin, "version": None} for plugin in plugins if plugin.get("class") == FILE_SOURCE]


def keep_ours(connectors: Any) -> Any:
    return sorted(name for name in connectors if name.startswith(("kcctl", "kafbat", "redpanda", "strimzi")))


class ClusterInfo(Struct):
    version: str
    commit: str
    kafka_cluster_id: str


class TaskId(Struct):
    connector: str
    task: int


class TaskConfig(Struct):
    id: TaskId
    config: dict[str, str]


class TopicList(Struct):
    topics: list[str]


class Plugin(Struct):
    klass: str = field(name="class")
    type: str
    version: str | None = None


class ValueInfo(Struct):
    name: str
    errors: list[str]
    visible: bool
    value: str | None = None
    recommended_values: list[str | None] = field(default_factory=list)


class OffsetRow(Struct):
    partition: dict[str, Any]
    offset: dict[str, Any] | None


class OffsetRows(Struct):
    offsets: list[OffsetRow]


STOPPED_CALLS = (
    Call("read offsets", "GET", "/connectors/{name}/offsets", reads=OffsetRows, until=lambda read: bool(read.offsets)),
    Call("stop", "PUT", "/connectors/{name}/stop", (204,)),
)
