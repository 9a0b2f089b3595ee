"""The shapes of all bodies, each declared once: requests are read by them (``bodies.py``), the OpenAPI document shows them.

Answers are Kafka Connect 4.1's. A field that may be absent is ``UNSET``; null is said where it can be.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

MOST_PRIORITY: Final = 1_000_000
#: What ``PATCH .../offsets`` answers without any.
NO_OFFSETS: Final = "Partitions / offsets need to be provided for an alter offsets request"

# ``extra`` of ``Meta`` is for the reader of bodies: ``refusal`` is the text for anything that does not fit, with ``{key}`` and
# ``{value}``; ``missing`` the one for a field that is absent, null or empty; ``absent`` stands for an absent field; ``text``
# takes numbers and booleans too, as Kafka Connect's parser does.

#: A value in a configuration. The worker makes strings of numbers and booleans.
ConfigValue = str | int | float | bool | None
ConfigBody = Annotated[dict[str, ConfigValue], Meta(description="A configuration: property to value.")]
Config = Annotated[dict[str, str], Meta(description="A configuration: property to value, as text.")]
State = Literal["UNASSIGNED", "RUNNING", "PAUSED", "FAILED", "RESTARTING", "STOPPED"]
Kind = Literal["source", "sink", "unknown"]
Level = Literal["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF", "ALL"]
WorkerId = Annotated[str, Meta(description="The worker's host and port; empty while no worker runs it.")]


# Bodies of requests.


class CreateConnector(Struct, frozen=True, forbid_unknown_fields=True):
    """A connector to create."""

    name: Annotated[
        str,
        Meta(
            description="The connector's name; blanks around it are taken away.",
            min_length=1,
            extra={"absent": "", "text": True},
        ),
    ]
    config: Annotated[
        dict[str, ConfigValue],
        Meta(
            description="Its configuration; `connector.class` is the one that no connector can do without.",
            extra={
                "missing": "The field 'config' is missing: an object with the connector's configuration is expected"
            },
        ),
    ]
    initial_state: (
        Annotated[
            Literal["RUNNING", "PAUSED", "STOPPED"],
            Meta(
                extra={"refusal": "Invalid initial_state '{value}'; it must be one of RUNNING, PAUSED, STOPPED"},
                description="The state it begins in (KIP-980), in any case; without it RUNNING.",
            ),
        ]
        | None
    ) = None


class OffsetEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A source partition and the offset it gets."""

    partition: Annotated[dict[str, Any], Meta(description="As `GET .../offsets` shows it.")]
    offset: Annotated[dict[str, Any] | None, Meta(description="Its offset from now on; null forgets it.")] = None


class OffsetsRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Offsets to overwrite or to forget."""

    offsets: Annotated[
        list[OffsetEntry],
        Meta(
            min_length=1,
            extra={
                "missing": NO_OFFSETS,
                "shape": 'The field \'offsets\' must be a list of {"partition": {...}, "offset": {...}}',
            },
        ),
    ]


_SOME_TEXT = Meta(pattern=r"\S")


class SnapshotRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A snapshot to make. What is not given is the connector's choice."""

    tables: (
        Annotated[
            list[Annotated[str, _SOME_TEXT]],
            Meta(
                description="Names or patterns of tables.",
                extra={
                    "refusal": "The field 'tables' must be a list of names or patterns of tables, "
                    "each a string that is not empty"
                },
            ),
        ]
        | None
    ) = None
    conditions: (
        Annotated[
            dict[
                str,
                Annotated[
                    str,
                    Meta(
                        pattern=r"\S", extra={"refusal": "The condition of '{key}' must be a string that is not empty"}
                    ),
                ],
            ],
            Meta(description="Table to condition: only rows that meet it are read."),
        ]
        | None
    ) = None
    priority: (
        Annotated[
            int,
            Meta(
                ge=-MOST_PRIORITY,
                le=MOST_PRIORITY,
                description="The highest goes first.",
                extra={
                    "refusal": f"The field 'priority' must be a whole number from -{MOST_PRIORITY} to "
                    f"{MOST_PRIORITY}; the highest goes first"
                },
            ),
        ]
        | None
    ) = None
    start_at: (
        Annotated[
            str,
            Meta(
                description="When it begins: a time of day, such as 02:30, which is the next one; or a date and "
                "time. Without it: at once."
            ),
        ]
        | None
    ) = None
    time_zone: (
        Annotated[str, Meta(description="The time zone of `start_at`, such as Europe/Berlin. Without it: UTC.")] | None
    ) = None
    id: (
        Annotated[
            str,
            Meta(
                pattern=r"^(?!\.+$)[A-Za-z0-9._-]{1,64}$",
                extra={
                    "refusal": "The field 'id' must be 1 to 64 letters, digits, '.', '_' or '-'; without it an id is chosen"
                },
            ),
        ]
        | None
    ) = None


class LevelRequest(Struct, frozen=True):
    """The level that a logger and its children get."""

    level: Annotated[Level, Meta(description="In any case.")]


# Answers: workers and errors.


class Error(Struct):
    """The answer to every request that failed."""

    error_code: Annotated[int, Meta(description="The status, once more.")]
    message: Annotated[str, Meta(description="What is wrong, where, and what can be done.")]


class Root(Struct):
    """The worker's version and its Kafka cluster."""

    version: str
    commit: str
    kafka_cluster_id: str | None


class Health(Struct):
    """Whether this worker can do its work (KIP-1017)."""

    status: Literal["healthy", "starting", "unhealthy"]
    message: str


class Message(Struct):
    """A sentence that says what was done."""

    message: str


# Connectors.


class TaskId(Struct):
    """A task."""

    connector: str
    task: int


class ConnectorInfo(Struct):
    """A connector, its configuration and its tasks."""

    name: str
    config: Config
    tasks: list[TaskId]
    type: Kind


class ConnectorState(Struct):
    """A connector's own state."""

    state: State
    worker_id: WorkerId
    trace: Annotated[str, Meta(description="Why it failed.")] | UnsetType = UNSET
    version: Annotated[str, Meta(description="Version of the plugin.")] | UnsetType = UNSET


class TaskState(Struct):
    """A task's state."""

    id: int
    state: State
    worker_id: WorkerId
    trace: Annotated[str, Meta(description="Why it failed.")] | UnsetType = UNSET
    version: Annotated[str, Meta(description="Version of the plugin.")] | UnsetType = UNSET


class ConnectorStatus(Struct):
    """States of a connector and of its tasks."""

    name: str
    connector: ConnectorState
    tasks: list[TaskState]
    type: Kind


class Expanded(Struct):
    """The requested parts of one connector."""

    status: ConnectorStatus | UnsetType = UNSET
    info: ConnectorInfo | UnsetType = UNSET


ConnectorList = list[str] | dict[str, Expanded]


class TaskInfo(Struct):
    """A task's configuration."""

    id: TaskId
    config: Config


class Offset(Struct):
    """A saved offset."""

    partition: dict[str, Any]
    offset: dict[str, Any] | None


class Offsets(Struct):
    """All saved offsets of a connector (KIP-875)."""

    offsets: list[Offset]


class Topics(Struct):
    """Topics that a connector has written to (KIP-558)."""

    topics: list[str]


# Placement and progress.


class Placed(Struct):
    """Where a connector's own instance is, and why."""

    worker_id: str | None
    state: State
    placement: Annotated[str | None, Meta(description="Why it is there.")]
    why_not_running: str | UnsetType = UNSET


class PlacedTask(Struct):
    """Where a task is, and why."""

    id: int
    worker_id: str | None
    state: State
    placement: Annotated[str | None, Meta(description="Why it is there.")]
    why_not_running: str | UnsetType = UNSET


class Explanation(Struct):
    """Why each task is where it is, or why it isn't running."""

    name: str
    target_state: Literal["STARTED", "PAUSED", "STOPPED"]
    notes: list[str]
    connector: Placed
    tasks: list[PlacedTask]
    workers: Annotated[list[dict[str, Any]], Meta(description="The members of the cluster and what each has.")]
    leader: str | None


class Progress(Struct):
    """How far a connector that moves data itself is."""

    name: str
    type: Kind
    tasks: Annotated[
        list[dict[str, Any]],
        Meta(description="Each with id, worker_id and phase, and the job's numbers where they are known."),
    ]


class SavepointRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A savepoint to make."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$",
            description="Its name, and that of its folder in `savepoint.location`.",
            extra={
                "refusal": "The field 'name' must be 1 to 200 letters, digits, '.', '_' and '-', beginning with a letter or a "
                "digit"
            },
        ),
    ]
    stop: Annotated[bool, Meta(description="Whether the job stops after it.")] = False


class SavepointAsked(Struct):
    """A savepoint that the job was asked for."""

    name: str
    location: str
    stop: bool


class Savepoint(Struct):
    """A savepoint, or a request for one."""

    name: str
    sink: Annotated[str, Meta(description="Of a flow with several sinks: which one it is of.")] | UnsetType = UNSET
    location: str | UnsetType = UNSET
    state: Annotated[str, Meta(description="`requested`: it is not complete yet.")] | UnsetType = UNSET
    error: Annotated[str, Meta(description="Why it can't be used, or was not made.")] | UnsetType = UNSET
    id: str | UnsetType = UNSET
    job: str | UnsetType = UNSET
    created_ms: int | UnsetType = UNSET
    batch: int | UnsetType | None = UNSET
    buckets: int | UnsetType | None = UNSET
    records: int | UnsetType | None = UNSET
    steps: Annotated[dict[str, int], Meta(description="Rows of state by step that keeps one.")] | UnsetType = UNSET
    versions: dict[str, str] | UnsetType = UNSET


class PluginEnvironment(Struct):
    """An environment of ``plugin.path``: PENDING until its plugins are known, READY, or FAILED if it has none to use."""

    name: str
    path: str
    fingerprint: str
    state: str
    plugins: list[Plugin]


class PluginHost(Struct):
    """A task host with plugins of other environments than Millrace's own."""

    host: int
    environment: str
    pid: int
    ready: bool
    units: list[str]


class PluginEnvironments(Struct):
    """A worker's plugins beyond those that are installed next to Millrace; ``failures`` is what can't be used -> why."""

    worker_id: str
    environments: list[PluginEnvironment]
    hosts: list[PluginHost]
    failures: dict[str, str]


class Drained(Struct):
    """The connectors and tasks that a worker which is taken out of service still has."""

    worker_id: str
    draining: bool
    connectors: list[str]
    tasks: list[str]


# Snapshots, lag, tables.


class Snapshot(Struct):
    """A snapshot and how far it is. Connectors add fields of their own."""

    id: str
    state: Literal["scheduled", "waiting", "running", "paused", "cancelled", "completed", "failed"]
    origin: Annotated[str, Meta(description="`rest`: it was asked for here.")] | UnsetType = UNSET
    start_ms: Annotated[int, Meta(description="When it begins, milliseconds since 1970.")] | UnsetType | None = UNSET
    tables: (
        Annotated[list[str | dict[str, Any]], Meta(description="Names of tables, or each with its progress.")]
        | UnsetType
    ) = UNSET


class TableLag(Struct):
    """How far a table is behind; null for what is not known."""

    table: str
    time_behind_s: float | UnsetType | None = UNSET
    events_behind: int | UnsetType | None = UNSET
    last_event_ts: int | UnsetType | None = UNSET


class Lag(Struct):
    """How far a connector is behind its source; null for what is not known."""

    connector: str
    time_behind_s: float | UnsetType | None = UNSET
    bytes_behind: int | UnsetType | None = UNSET
    tables: list[TableLag] | UnsetType = UNSET
    heartbeat: dict[str, Any] | UnsetType | None = UNSET
    position: dict[str, Any] | UnsetType | None = UNSET
    source_position: dict[str, Any] | UnsetType | None = UNSET


class Table(Struct):
    """A captured table. Connectors add fields of their own."""

    table: str
    version: int | str


# Plugins.


class Plugin(Struct):
    """A plugin."""

    klass: str = field(name="class")
    type: Literal["source", "sink", "transformation", "predicate", "converter", "header_converter"]
    version: str | UnsetType | None = UNSET


class ConfigKeyInfo(Struct):
    """An option as it is declared."""

    name: str
    type: Literal["BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"]
    required: bool
    default_value: str | None
    importance: Literal["HIGH", "MEDIUM", "LOW"]
    documentation: str | None
    group: str | None
    width: Literal["NONE", "SHORT", "MEDIUM", "LONG"]
    display_name: str | None
    dependents: list[str]
    order: int


class ConfigValueInfo(Struct):
    """An option's value, and what is wrong with it."""

    name: str
    value: str | None
    recommended_values: list[str | None]
    errors: list[str]
    visible: bool


class ConfigInfo(Struct):
    """An option's declaration and value."""

    definition: ConfigKeyInfo | None
    value: ConfigValueInfo


class ConfigInfos(Struct):
    """Whether a configuration is valid."""

    name: str
    error_count: int
    groups: list[str]
    configs: list[ConfigInfo]


# Loggers.


class LoggerLevel(Struct):
    """A logger's level."""

    level: str | None
    last_modified: Annotated[int | None, Meta(description="Milliseconds since 1970; null: not since the start.")]
