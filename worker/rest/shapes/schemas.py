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
WorkerId = Annotated[str, Meta(description="The worker's host and port; empty while nobody runs it.")]


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
                    "refusal": "The field 'tables' must be a list of names or patterns of tables, each a text that is not empty"
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
                    Meta(pattern=r"\S", extra={"refusal": "The condition of '{key}' must be a text that is not empty"}),
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
    """What every error is answered with."""

    error_code: Annotated[int, Meta(description="The status, once more.")]
    message: Annotated[str, Meta(description="What is wrong, where, and what can be done.")]


class Root(Struct):
    """What this worker is."""

    version: str
    commit: str
    kafka_cluster_id: str | None


class Health(Struct):
    """Whether this worker can do its work (KIP-1017)."""

    status: Literal["healthy", "starting", "unhealthy"]
    message: str


class Message(Struct):
    """What has been done."""

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
    """What was asked for of one connector."""

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
    """A worker's plugins beyond those that are installed beside Millrace; ``failures`` is what can't be used -> why."""

    worker_id: str
    environments: list[PluginEnvironment]
    hosts: list[PluginHost]
    failures: dict[str, str]


class Drained(Struct):
    """What a worker that is taken out of service still has."""

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


# The console.


class ConsoleSession(Struct):
    """The caller, and what it may do."""

    name: str
    method: Annotated[str, Meta(description="How that is known; `none` without authentication.")]
    role: Annotated[str | None, Meta(description="The highest role for all connectors.")]
    roles: list[str]
    proof: Annotated[
        str | None, Meta(description="In a session, what `X-CSRF-Token` must hold in requests that change something.")
    ]
    features: Annotated[list[str], Meta(description="What this console has beyond Kafka Connect's REST API.")]
    cluster: Annotated[
        str | None, Meta(description="The REST address of the Java cluster that is shown; null for the own one.")
    ]
    lacks: Annotated[
        list[str],
        Meta(
            description="What that cluster's version lacks of what pages use: used-topics, restart-with-tasks, declarations, "
            "stop, offsets, edit-offsets."
        ),
    ]
    trouble: Annotated[str | None, Meta(description="Why the connectors can't be read now.")]


class ConnectorRow(Struct):
    """A connector in short."""

    name: str
    type: Kind
    klass: str = field(name="class")
    state: State
    tasks: Annotated[dict[str, int], Meta(description="State to number of tasks.")]
    workers: list[str]
    error: Annotated[str | None, Meta(description="The first line of a trace, if something has failed.")]
    rate: Annotated[float | None, Meta(description="Records per second; null: not known.")]
    lag_s: Annotated[float | None, Meta(description="Seconds that the last records were behind.")]
    role: Annotated[str | None, Meta(description="The caller's highest role for it.")]


class PipelinePlace(Struct):
    """The topics and places that a connector reads and writes; of many topics the first ones."""

    name: str
    kind: Literal["source", "flow", "sink"]
    source: Annotated[str | None, Meta(description="Where a source reads: a host, or files.")]
    reads: Annotated[list[str], Meta(description="Topics.")]
    reads_more: Annotated[int, Meta(description="How many topics more it reads.")]
    writes: Annotated[list[str], Meta(description="Topics.")]
    writes_more: Annotated[int, Meta(description="How many topics more it has written to.")]
    targets: Annotated[list[str], Meta(description="Where it writes outside of Kafka.")]


class LiveWorker(Struct):
    """A worker of the cluster."""

    worker_id: WorkerId
    leader: bool
    draining: bool
    hosts: Annotated[int, Meta(description="Its task hosts.")]
    started_ms: Annotated[int, Meta(description="When it started, milliseconds since 1970.")]
    labels: dict[str, str]
    connectors: int
    tasks: int


class Pipeline(Struct):
    """The whole cluster, as the console's overview shows it."""

    workers: list[LiveWorker]
    connectors: list[PipelinePlace]


class TopicUse(Struct):
    """A topic that connectors use."""

    topic: str
    connectors: Annotated[dict[str, Literal["uses", "dead letters"]], Meta(description="By name.")]
    masked: Annotated[bool, Meta(description="Whether the caller sees `***` instead of what its records say.")]


class TopicBounds(Struct):
    """The offsets of a partition."""

    first: int
    end: int


class TopicRecord(Struct):
    """A record as people read it. Whole numbers beyond 2^53, and decimals that a float can't say, are strings."""

    partition: int
    offset: int
    timestamp: Annotated[int, Meta(description="Milliseconds since 1970.")]
    kind: Annotated[
        Literal["debezium", "ums", "partition update", "tombstone", ""],
        Meta(description="What its value is, if known."),
    ]
    summary: Annotated[str, Meta(description="The operation and the table of a change.")]
    key: Any
    key_form: Annotated[str, Meta(description="How it was decoded: a converter, `json`, `text`, `bytes` or `null`.")]
    value: Any
    value_form: str
    bytes: int
    headers: list[tuple[str, str | None]]
    problem: Annotated[str, Meta(description="Why it was not decoded as the converters say.")]


class TopicRecords(Struct):
    """Records of a topic, the newest first."""

    topic: str
    records: list[TopicRecord]
    before: Annotated[dict[str, int] | None, Meta(description="Of the next page; null: there are no more.")]
    partitions: dict[str, TopicBounds]
    scanned: Annotated[int, Meta(description="Records that were looked at.")]
    bytes: int
    stopped: Annotated[
        Literal["", "size", "time"],
        Meta(description="Why it stopped before there were enough: older ones are not looked at yet."),
    ]
    errors: Annotated[int, Meta(description="Records for which the condition could not be evaluated.")]
    error: Annotated[str, Meta(description="Why, for the first of them.")]
    problems: Annotated[list[str], Meta(description="Why a converter can't be used.")]
    masked: Annotated[bool, Meta(description="Whether `***` stands for what the records say.")]


class OwnChange(Struct):
    """A change that somebody has asked for."""

    at_ms: Annotated[int, Meta(description="Milliseconds since 1970.")]
    user: str
    auth: Annotated[str, Meta(description="How the user is known.")]
    address: str
    method: str
    path: str
    connector: str | None
    action: Annotated[str, Meta(description="In words.")]
    status: Annotated[int, Meta(description="Of the answer; 0: there was none.")]


class Change(OwnChange):
    """A change, with the worker that was asked for it."""

    worker_id: WorkerId


class Sample(Struct):
    """Numbers of a worker; null for what is not known."""

    at: Annotated[int, Meta(description="Seconds since 1970.")]
    rate: Annotated[float | None, Meta(description="Records written per second.")]
    lag_s: Annotated[float | None, Meta(description="Seconds that the last records of the slowest task were behind.")]
    running: Annotated[int, Meta(description="Tasks.")]
    failed: Annotated[int, Meta(description="Tasks.")]
    cores: Annotated[float | None, Meta(description="Cores in use.")]
    rss: Annotated[int, Meta(description="Bytes in memory.")]
    delay_s: Annotated[float, Meta(description="The longest time that something waited for its turn on an event loop.")]


class WorkerSamples(Struct):
    """The samples of a worker."""

    worker_id: WorkerId
    samples: list[Sample]


class PropertyChange(Struct):
    """A property that a version of a configuration has changed; null: it was not there."""

    name: str
    before: str | None
    after: str | None


class ConfigVersion(Struct):
    """A configuration that a connector has, or had."""

    at_ms: Annotated[int, Meta(description="From when on, milliseconds since 1970.")]
    deleted: Annotated[bool, Meta(description="Whether the connector was deleted then.")]
    config: Config
    changes: Annotated[
        list[PropertyChange], Meta(description="Of the version before; none for the first that is known.")
    ]


class DeadLetter(Struct, forbid_unknown_fields=True):
    """A record in the dead letter topic of a connector."""

    partition: Annotated[int, Meta(ge=0)]
    offset: Annotated[int, Meta(ge=0)]


class Redriven(Struct):
    """Where a dead letter was sent to."""

    topic: str
    partition: int
    offset: int


# Loggers.


class LoggerLevel(Struct):
    """A logger's level."""

    level: str | None
    last_modified: Annotated[int | None, Meta(description="Milliseconds since 1970; null: not since the start.")]
