"""Kafka Connect 4.1's records in the config, offset and status topics: pure encoding and decoding.

Connect writes them with JsonConverter and ``schemas.enable=false``: structs keep the order of their schema, an unset optional
field is ``null``, and the JSON is Jackson's. Decoders raise ``Skippable`` for what they can't read; the folds
(``offsets.cluster``, ``offsets.status``, ``offsets.store``) count and log it once.
"""

from __future__ import annotations

import base64
import re
from typing import Any, Final, Literal, TypeGuard, get_args

import msgspec
import orjson

from connectors.errors import Skippable
from connectors.options import java_string

TargetStateName = Literal["STARTED", "PAUSED", "STOPPED"]
StateName = Literal["UNASSIGNED", "RUNNING", "PAUSED", "FAILED", "DESTROYED", "RESTARTING", "STOPPED"]

_STATES: Final[dict[str, StateName]] = {name: name for name in get_args(StateName)}
_TARGETS: Final[dict[str, TargetStateName]] = {name: name for name in get_args(TargetStateName)}
_ESCAPE: Final = re.compile(rb"\\(?:u[0-9a-f]{4}|.)", re.DOTALL)
_TASK_NUMBER: Final = re.compile(r"\d{1,9}\Z", re.ASCII)

SESSION_KEY: Final = "session-key"
_CONNECTOR: Final = "connector-"
_TASK: Final = "task-"
_COMMIT: Final = "commit-"
_TARGET_STATE: Final = "target-state-"
_RESTART: Final = "restart-connector-"
_FENCING: Final = "tasks-fencing-"
_LOGGER: Final = "logger-cluster-"
_STATUS_CONNECTOR: Final = "status-connector-"
_STATUS_TASK: Final = "status-task-"
_STATUS_TOPIC: Final = "status-topic-"
_STATUS_TOPIC_SEPARATOR: Final = ":connector-"

#: Key and value of one record.
Pair = tuple[bytes, bytes | None]


# What the records mean.


class SessionKeyRecord(msgspec.Struct, frozen=True):
    """The key with which workers sign requests to each other (KIP-507); ``created_ms`` is milliseconds since the epoch."""

    key: bytes
    algorithm: str
    created_ms: int

    def __repr__(self) -> str:
        return f"SessionKey({self.algorithm}, {self.created_ms})"


class ConnectorConfig(msgspec.Struct, frozen=True):
    """A connector's configuration, or its deletion."""

    connector: str
    config: dict[str, str] | None


class TaskConfig(msgspec.Struct, frozen=True):
    """One task's configuration; takes effect with the next ``TasksCommit``."""

    connector: str
    task: int
    config: dict[str, str]


class TasksCommit(msgspec.Struct, frozen=True):
    """The connector has ``tasks`` tasks from now on."""

    connector: str
    tasks: int


class TargetState(msgspec.Struct, frozen=True):
    """The state of a connector that the operator has asked for; None when the record was deleted."""

    connector: str
    state: TargetStateName | None


class RestartRequest(msgspec.Struct, frozen=True):
    """A request to restart a connector and perhaps its tasks (KIP-745)."""

    connector: str
    include_tasks: bool
    only_failed: bool


class TaskCount(msgspec.Struct, frozen=True):
    """How many transactional producers must be fenced before new tasks may start (KIP-618)."""

    connector: str
    tasks: int


class LoggerLevelRecord(msgspec.Struct, frozen=True):
    """A logger's level for the whole cluster (KIP-976)."""

    logger: str
    level: str


ConfigRecord = (
    SessionKeyRecord
    | ConnectorConfig
    | TaskConfig
    | TasksCommit
    | TargetState
    | RestartRequest
    | TaskCount
    | LoggerLevelRecord
)


class ReportedStatus(msgspec.Struct, frozen=True):
    """State of a connector or a task as a worker reported it."""

    state: StateName
    worker_id: str
    generation: int
    trace: str | None = None
    version: str | None = None


class TopicStatus(msgspec.Struct, frozen=True):
    """A topic that a connector's task has written to (KIP-558); ``discovered_ms`` is milliseconds since the epoch."""

    topic: str
    connector: str
    task: int
    discovered_ms: int


class ConnectorStatusRecord(msgspec.Struct, frozen=True):
    """A connector's status, or its removal."""

    connector: str
    status: ReportedStatus | None


class TaskStatusRecord(msgspec.Struct, frozen=True):
    """A task's status, or its removal."""

    connector: str
    task: int
    status: ReportedStatus | None


class TopicStatusRecord(msgspec.Struct, frozen=True):
    """A connector's active topic, or its removal."""

    connector: str
    topic: str
    status: TopicStatus | None


StatusRecord = ConnectorStatusRecord | TaskStatusRecord | TopicStatusRecord


# JSON as Jackson writes it.


def java_json(value: Any) -> bytes:
    """``value`` as compact JSON with Jackson's escapes (upper-case hexadecimal digits).

    Floats are written in Python's shortest form, which Java reads to the same number.

    Raises:
        Skippable: not JSON (a type, an integer beyond 64 bits, an unpaired surrogate).
    """
    try:
        json_text = orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise Skippable(f"{value!r} can't be written as JSON: {error}") from error
    if b"\\u00" in json_text:
        json_text = _ESCAPE.sub(_jackson_escape, json_text)
    return json_text


def _jackson_escape(match: re.Match[bytes]) -> bytes:
    escape = match.group()
    return b"\\u" + escape[2:].upper() if escape[1:2] == b"u" and len(escape) > 2 else escape


def parse_json(data: bytes) -> Any:
    """The JSON value in ``data``.

    Raises:
        Skippable: it is not JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Skippable(f"not JSON: {error}") from error


# Config topic.


def session_key_record(key: SessionKeyRecord) -> Pair:
    """The record that distributes ``key``."""
    return SESSION_KEY.encode(), java_json(
        {"key": base64.b64encode(key.key).decode(), "algorithm": key.algorithm, "creation-timestamp": key.created_ms}
    )


def connector_record(name: str, config: dict[str, str] | None) -> Pair:
    """The record that sets a connector's configuration; None deletes it (delete its target state with it)."""
    return (_CONNECTOR + name).encode(), None if config is None else java_json({"properties": config})


def task_record(name: str, task: int, config: dict[str, str]) -> Pair:
    """The record that sets the configuration of one task; write ``commit_record`` after all of them."""
    return f"{_TASK}{name}-{task}".encode(), java_json({"properties": config})


def commit_record(name: str, tasks: int) -> Pair:
    """The record that puts the task configurations written before it into effect."""
    return (_COMMIT + name).encode(), java_json({"tasks": tasks})


def target_state_record(name: str, state: TargetStateName | None) -> Pair:
    """The record that asks for a state; older workers, which know no STOPPED, see PAUSED (KIP-875)."""
    if state is None:
        return (_TARGET_STATE + name).encode(), None
    return (_TARGET_STATE + name).encode(), java_json(
        {"state": "PAUSED" if state == "STOPPED" else state, "state.v2": state}
    )


def restart_record(request: RestartRequest) -> Pair:
    """The record that asks for a restart."""
    return (_RESTART + request.connector).encode(), java_json(
        {"include-tasks": request.include_tasks, "only-failed": request.only_failed}
    )


def task_count_record(name: str, tasks: int) -> Pair:
    """The record that says how many producers were started, and that those of earlier generations are fenced."""
    return (_FENCING + name).encode(), java_json({"task-count": tasks})


def logger_record(logger: str, level: str) -> Pair:
    """The record that sets a logger's level on all workers."""
    return (_LOGGER + logger).encode(), java_json({"level": level})


def decode_config(key: bytes | None, value: bytes | None) -> ConfigRecord:
    """Decode a record of the config topic.

    Raises:
        Skippable: unknown key or malformed value.
    """
    name = _decode_key(key)
    if name.startswith(_TARGET_STATE):
        return TargetState(name[len(_TARGET_STATE) :], None if value is None else _read_target(_read_map(value)))
    if name.startswith(_CONNECTOR):
        return ConnectorConfig(name[len(_CONNECTOR) :], None if value is None else _read_properties(value))
    if name.startswith(_TASK):
        connector, task = _task_id(name[len(_TASK) :])
        return TaskConfig(connector, task, _read_properties(value))
    if name.startswith(_COMMIT):
        return TasksCommit(name[len(_COMMIT) :], _read_int(_read_map(value), "tasks"))
    if name.startswith(_RESTART):
        fields = _read_map(value)
        return RestartRequest(
            name[len(_RESTART) :],
            include_tasks=fields.get("include-tasks") is True,
            only_failed=fields.get("only-failed") is True,
        )
    if name.startswith(_FENCING):
        return TaskCount(name[len(_FENCING) :], _read_int(_read_map(value), "task-count"))
    if name == SESSION_KEY:
        fields = _read_map(value)
        try:
            secret = base64.b64decode(_read_str(fields, "key"), validate=True)
        except ValueError as error:  # binascii.Error, or no ASCII
            raise Skippable(f"field 'key' is not base64: {error}") from error
        return SessionKeyRecord(secret, _read_str(fields, "algorithm"), _read_int(fields, "creation-timestamp"))
    if name.startswith(_LOGGER):
        return LoggerLevelRecord(name[len(_LOGGER) :], _read_str(_read_map(value), "level"))
    raise Skippable("unknown kind of key")


# Status topic.


def connector_status_record(name: str, status: ReportedStatus | None) -> Pair:
    """The record of a connector's status; None or DESTROYED removes it."""
    return (_STATUS_CONNECTOR + name).encode(), _encode_status(status)


def task_status_record(name: str, task: int, status: ReportedStatus | None) -> Pair:
    """The record of a task's status; None or DESTROYED removes it."""
    return f"{_STATUS_TASK}{name}-{task}".encode(), _encode_status(status)


def topic_status_record(connector: str, topic: str, status: TopicStatus | None) -> Pair:
    """The record of an active topic; None removes it."""
    value = (
        None
        if status is None
        else java_json(
            {
                "topic": {
                    "name": status.topic,
                    "connector": status.connector,
                    "task": status.task,
                    "discoverTimestamp": status.discovered_ms,
                }
            }
        )
    )
    return f"{_STATUS_TOPIC}{topic}{_STATUS_TOPIC_SEPARATOR}{connector}".encode(), value


def decode_status(key: bytes | None, value: bytes | None) -> StatusRecord:
    """Decode a record of the status topic.

    Raises:
        Skippable: unknown key or malformed value.
    """
    name = _decode_key(key)
    if name.startswith(_STATUS_CONNECTOR):
        connector = name[len(_STATUS_CONNECTOR) :]
        if not connector:
            raise Skippable("no connector name in the key")
        return ConnectorStatusRecord(connector, None if value is None else _decode_status(value))
    if name.startswith(_STATUS_TASK):
        connector, task = _task_id(name[len(_STATUS_TASK) :])
        return TaskStatusRecord(connector, task, None if value is None else _decode_status(value))
    if name.startswith(_STATUS_TOPIC):
        # topic names can't contain a colon, connector names can
        topic, separator, connector = name[len(_STATUS_TOPIC) :].partition(_STATUS_TOPIC_SEPARATOR)
        if not separator or not topic or not connector:
            raise Skippable("a topic status key is status-topic-TOPIC:connector-NAME")
        if value is None:
            return TopicStatusRecord(connector, topic, None)
        fields = _read_map(value).get("topic")
        if not _is_map(fields):
            raise Skippable("field 'topic' is not an object")
        return TopicStatusRecord(
            connector,
            topic,
            TopicStatus(
                _read_str(fields, "name"),
                _read_str(fields, "connector"),
                _read_int(fields, "task"),
                _read_int(fields, "discoverTimestamp"),
            ),
        )
    raise Skippable("unknown kind of key")


def _encode_status(status: ReportedStatus | None) -> bytes | None:
    if status is None or status.state == "DESTROYED":
        return None
    return java_json(
        {
            "state": status.state,
            "trace": status.trace,
            "worker_id": status.worker_id,
            "generation": status.generation,
            "version": status.version,
        }
    )


def _decode_status(value: bytes) -> ReportedStatus:
    fields = _read_map(value)
    state = _STATES.get(_read_str(fields, "state"))
    if state is None:
        raise Skippable(f"unknown state {fields['state']!r}")
    trace, version = fields.get("trace"), fields.get("version")
    if not isinstance(trace, str | None) or not isinstance(version, str | None):
        raise Skippable("'trace' and 'version' must be strings or null")
    return ReportedStatus(state, _read_str(fields, "worker_id"), _read_int(fields, "generation"), trace, version)


# Offsets topic.


def decode_offset_key(key: bytes | None) -> tuple[str, dict[str, Any]]:
    """Connector name and source partition of an offset record's key.

    Raises:
        Skippable: it is not ``["NAME", {...}]``.
    """
    if key is None:
        raise Skippable("no key")
    content = parse_json(key)
    if not (isinstance(content, list) and len(content) == 2 and isinstance(content[0], str) and _is_map(content[1])):
        raise Skippable('an offset\'s key is ["CONNECTOR", {source partition}]')
    return content[0], content[1]


def decode_offset(value: bytes) -> dict[str, Any]:
    """A source offset.

    Raises:
        Skippable: it is not a JSON object.
    """
    return _read_map(value)


# Fields.


def _is_map(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _decode_key(key: bytes | None) -> str:
    if key is None:
        raise Skippable("no key")
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise Skippable(f"the key is not UTF-8: {error}") from error


def _read_map(value: bytes | None) -> dict[str, Any]:
    if value is None:
        raise Skippable("the value is null, which means nothing for this key")
    content = parse_json(value)
    if not _is_map(content):
        raise Skippable(f"the value is not an object but {type(content).__name__}")
    return content


def _read_properties(value: bytes | None) -> dict[str, str]:
    content = _read_map(value).get("properties")
    if not _is_map(content):
        raise Skippable("field 'properties' is not an object")
    properties: dict[str, str] = {}
    for name, item in content.items():
        if isinstance(item, dict | list):
            raise Skippable(f"property {name!r} is not a string")
        if item is not None:
            properties[name] = java_string(item)
    return properties


def _read_target(fields: dict[str, Any]) -> TargetStateName:
    state = fields.get("state.v2")
    if not isinstance(state, str):
        state = fields.get("state")
    target = _TARGETS.get(state) if isinstance(state, str) else None
    if target is None:
        raise Skippable(f"unknown target state {state!r}")
    return target


def _task_id(name: str) -> tuple[str, int]:
    connector, dash, number = name.rpartition("-")
    if not dash or not _TASK_NUMBER.match(number):
        raise Skippable("a task's key ends in its number")
    return connector, int(number)


def _read_int(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Skippable(f"field {name!r} is not an integer but {value!r}")
    return value


def _read_str(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise Skippable(f"field {name!r} is not a string")
    return value
