"""The messages between a control process and its task hosts.

Only control passes here; records go from the source straight to Kafka. ``worker.pipe`` frames the messages. A request is
answered (with the type named in its docstring) or refused with an error; an event is not answered.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from connectors.errors import MillraceError
from connectors.job_api import JobProgress  # noqa: TC001 - msgspec reads the annotation at run time
from worker.plugins.model import PluginInfo  # noqa: TC001 - msgspec reads the annotation at run time

#: The origin of an instruction that is no operator's: a verification waits for the offsets of the connector's tasks.
VERIFICATION: Final = "verification"


class HostTaskId(msgspec.Struct, frozen=True, order=True):
    """A task of a connector; prints as Connect's ``NAME-0``."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


class HostMessage(msgspec.Struct, tag=True, frozen=True):
    """Base of all messages; the tag is the class name."""


# Control process -> host, answered.


class Init(HostMessage, frozen=True):
    """The first message to a host; answered None once plugins are loaded and Kafka clients can be made.

    Attributes:
        worker_id: ``host:port`` of the worker's REST listener, as in statuses.
        host: number of this host in the worker, from 0.
        properties: the worker's properties as in its file; ``${provider:...}`` references are not resolved yet.
        log_levels: logger -> level, to start with.
        cluster_id: Kafka's cluster id.
        environments: folders with the packages of the plugin environments that this host has; they are on ``sys.path``.
        skip: entry points of these that must not be imported.
    """

    worker_id: str
    host: int
    properties: dict[str, str]
    log_levels: dict[str, str]
    cluster_id: str
    environments: list[str] = []
    skip: list[str] = []


class StartTask(HostMessage, frozen=True):
    """Start a task; answered None as soon as it is accepted (``TaskStateChanged`` events report its later states).

    Attributes:
        id: the task.
        connector_config: the connector's properties (unresolved).
        config: the task's own properties, without the connector's; merged over ``connector_config``.
        generation: goes into the task's status records.
        paused: start without polling.
        instructions: as of ``Instruct``.
        problem: why it can't run, where the control process knows: it fails with this text.
    """

    id: HostTaskId
    connector_config: dict[str, str]
    config: dict[str, str]
    generation: int
    paused: bool = False
    instructions: bytes = b"[]"
    problem: str = ""


class StopTask(HostMessage, frozen=True):
    """Stop a task; answered True when it ended within the deadline, False when it had to be abandoned."""

    id: HostTaskId
    deadline_s: float


class PauseTask(HostMessage, frozen=True):
    """Pause or resume a running task; answered None."""

    id: HostTaskId
    paused: bool


class Instruct(HostMessage, frozen=True):
    """Give a task the operator's standing requests to its connector (``SourceTask.instruct``); answered None.

    ``instructions`` is JSON bytes: the complete list of objects.
    """

    id: HostTaskId
    instructions: bytes


class StartConnector(HostMessage, frozen=True):
    """Start a connector's own instance: it reports ``TaskConfigs`` events; answered None when accepted.

    With ``paused`` the instance is kept but not asked for task configurations; with a ``problem`` it fails with this text.
    """

    name: str
    config: dict[str, str]
    generation: int
    paused: bool = False
    problem: str = ""


class StopConnector(HostMessage, frozen=True):
    """Stop a connector's instance; answered as ``StopTask``."""

    name: str
    deadline_s: float


class Validate(HostMessage, frozen=True):
    """Validate a connector configuration (unresolved); answered with JSON bytes of Connect's ``ConfigInfos``.

    ``plugin`` is the class named in the URL, or None for the configuration's own ``connector.class``; ``others`` are plugins
    of environments that this host does not have, for recommended values and versions.
    """

    config: dict[str, str]
    plugin: str | None = None
    others: list[PluginInfo] = []


class DescribePlugins(HostMessage, frozen=True):
    """The plugins of this host; answered with JSON bytes of ``worker.plugins.model.Description``."""


class PluginConfig(HostMessage, frozen=True):
    """Options of a plugin; answered with JSON bytes of ``GET /connector-plugins/{plugin}/config``; ``others``: see above."""

    plugin: str
    version: str | None = None
    others: list[PluginInfo] = []


class AlterOffsets(HostMessage, frozen=True):
    """Let the connector's class check a change of offsets; answered with a bool (``alter_offsets`` of the contract).

    ``offsets`` is JSON bytes: ``[[partition, offset or null], ...]``.
    """

    config: dict[str, str]
    offsets: bytes


class JobOffsets(HostMessage, frozen=True):
    """How far a job has come; answered with JSON bytes ``[[partition, offset], ...]`` (``JobConnector.offsets``)."""

    config: dict[str, str]


class AskFlow(HostMessage, frozen=True):
    """Ask a connector's class for the plan or a preview of a configuration; answered with JSON bytes.

    Attributes:
        config: the connector's properties (unresolved).
        method: the method that is asked.
        deadline_s: how long it may take.
        running: the configuration of the running connector of that name (unresolved), for a plan; None: no such connector.
        request: what is asked of a preview, a JSON object as bytes.
    """

    config: dict[str, str]
    method: Literal["plan", "preview"]
    deadline_s: float
    running: dict[str, str] | None = None
    request: bytes = b"{}"


class JobSavepoints(HostMessage, frozen=True):
    """Savepoints of a job; answered with JSON bytes (``JobConnector.savepoints``). ``request`` is a JSON object as bytes."""

    config: dict[str, str]
    action: Literal["create", "list", "delete"]
    request: bytes


class CheckSnapshot(HostMessage, frozen=True):
    """Let the connector's class check a request for a snapshot; answered with the request as JSON bytes.

    ``request`` is a JSON object as bytes.
    """

    config: dict[str, str]
    request: bytes


class ConnectorView(HostMessage, frozen=True):
    """Ask a source connector's class what it makes of its saved offsets; answered with JSON bytes.

    Attributes:
        config: the connector's properties (unresolved).
        view: the method that is asked.
        offsets: its saved offsets as JSON bytes: ``[[partition, offset], ...]``.
        instructions: as of ``Instruct``; only ``snapshots`` needs them.
    """

    config: dict[str, str]
    view: Literal["snapshots", "lag", "tables"]
    offsets: bytes
    instructions: bytes = b"[]"


class ListTables(HostMessage, frozen=True):
    """Ask a source connector's class which tables its source has; answered with JSON bytes.

    Attributes:
        config: the properties so far (unresolved).
    """

    config: dict[str, str]


class AskLogs(HostMessage, frozen=True):
    """Ask about a connector of class ``logs``; answered with JSON bytes.

    Attributes:
        config: the connector's properties (unresolved).
        question: ``unknown``: its newest unknown lines; ``recent``: the newest lines of its input that this machine has;
            ``schemas``: whether the schema registry takes the schemas that a rule set makes.
        request: a JSON object as bytes; see ``worker.host.questions.log_questions``.
    """

    config: dict[str, str]
    question: Literal["unknown", "recent", "schemas"]
    request: bytes


class ReadTopic(HostMessage, frozen=True):
    """Read the newest records of a topic; answered with JSON bytes.

    Attributes:
        config: properties (unresolved) of a connector that has written it; empty if none is known.
        request: a ``worker.host.questions.topic_reader.TopicRequest`` as JSON.
    """

    config: dict[str, str]
    request: bytes


class Redrive(HostMessage, frozen=True):
    """Send a dead letter to the topic that it was read from; answered with JSON bytes.

    Attributes:
        config: the connector's properties (unresolved).
        request: a ``worker.host.questions.redrive.RedriveRequest`` as JSON.
    """

    config: dict[str, str]
    request: bytes


class SetLogLevel(HostMessage, frozen=True):
    """Change a logger's level (Java level names); answered None."""

    logger: str
    level: str


class Ping(HostMessage, frozen=True):
    """Answered None by a live event loop."""


# Control process -> host, not answered.


class TopicForgotten(HostMessage, frozen=True):
    """A topic was removed from the connector's active topics: its tasks report it again when they next use it."""

    connector: str
    topic: str


# Host -> control process, answered.


class ReadOffsets(HostMessage, frozen=True):
    """All saved offsets of a connector, read to the topic's end now.

    Answered with a list of ``(key bytes, value bytes)``, JSON as in the offsets topic.
    """

    connector: str


class ReadLease(HostMessage, frozen=True):
    """Answered with the monotonic time in seconds until which no other worker can have been given this worker's units.

    It is in the past while the worker is out of touch with its group. Processes of one machine share the clock.
    """


# Host -> control process, not answered.


class TaskStateChanged(HostMessage, frozen=True):
    """A task's state changed: RUNNING, PAUSED, FAILED, STOPPED, RESTARTING (as in Connect's status records)."""

    id: HostTaskId
    state: str
    generation: int
    trace: str | None = None


class ConnectorStateChanged(HostMessage, frozen=True):
    """A connector instance's state changed."""

    name: str
    state: str
    generation: int
    trace: str | None = None


class TaskConfigs(HostMessage, frozen=True):
    """A connector wants these task configurations from now on."""

    name: str
    configs: list[dict[str, str]]
    generation: int


class ActiveTopic(HostMessage, frozen=True):
    """A task has used a topic for the first time since it started, or since the topic was removed from the active topics."""

    id: HostTaskId
    topic: str


class LoopStuck(HostMessage, frozen=True):
    """The host's event loop has not run for ``seconds``; sent by the host's watch thread.

    Attributes:
        task: the task or connector that is on the CPU, as far as it is known.
        stacks: all threads' stacks.
    """

    seconds: float
    task: str
    stacks: str


class CustomMetric(msgspec.Struct, frozen=True):
    """One series a connector reports of its own."""

    name: str
    kind: str
    value: float
    labels: dict[str, str]


class TaskStats(msgspec.Struct):
    """A task's numbers since it started: counters and sums, from which the control process makes rates and averages.

    Times are in seconds, sizes in bytes. Fields that end in ``_max`` cover the time since the last report.
    """

    id: HostTaskId
    state: str = "UNASSIGNED"
    connector_class: str = ""
    connector_version: str = ""
    started_at: float = 0.0
    running_s: float = 0.0
    paused_s: float = 0.0
    polled: int = 0
    written: int = 0
    filtered: int = 0
    bytes_written: int = 0
    active: int = 0
    active_max: int = 0
    #: Bytes of the records in ``active``, and how many records and bytes may be there.
    active_bytes: int = 0
    active_limit: int = 0
    active_limit_bytes: int = 0
    polls: int = 0
    poll_s: float = 0.0
    poll_s_max: float = 0.0
    batch_size_max: int = 0
    transform_s: float = 0.0
    convert_s: float = 0.0
    produce_latency_s: float = 0.0
    produce_batches: int = 0
    commits: int = 0
    commit_failures: int = 0
    commit_s: float = 0.0
    commit_s_max: float = 0.0
    #: Cumulative counts of commit durations below 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 s and +Inf.
    commit_buckets: list[int] = msgspec.field(default_factory=lambda: [0] * 12)
    transactions: int = 0
    transaction_records: int = 0
    transaction_size_min: int = 0
    transaction_size_max: int = 0
    record_failures: int = 0
    record_errors: int = 0
    records_skipped: int = 0
    retries: int = 0
    errors_logged: int = 0
    dead_letter_requests: int = 0
    dead_letter_failures: int = 0
    last_error_ms: int = 0
    restarts: int = 0
    #: Values of the connector's own metrics that went into the series ``other``.
    series_folded: int = 0
    #: Milliseconds between a record's own timestamp and its acknowledgement, of the last batch; -1 when unknown.
    lag_ms: float = -1.0
    custom: list[CustomMetric] = msgspec.field(default_factory=list)
    #: Of a task that moves the data itself; None of a source's.
    job: JobProgress | None = None


class ClientStats(msgspec.Struct):
    """The numbers of a Kafka client since it was first seen: counters, except ``connections``.

    Attributes:
        client_id: as the brokers know it.
        kind: producer, consumer or admin; empty until it has sent a request that only one of them sends.
        connections: that are open now.
    """

    client_id: str
    kind: str = ""
    connections: int = 0
    connections_made: int = 0
    connections_closed: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    requests: int = 0
    responses: int = 0
    network_ios: int = 0
    logins: int = 0
    failed_logins: int = 0

    def add(self, stats: ClientStats) -> None:
        """Take another client's numbers in."""
        for name in self.__struct_fields__[2:]:
            setattr(self, name, getattr(self, name) + getattr(stats, name))

    def copy(self) -> ClientStats:
        """The numbers as they are now."""
        return msgspec.structs.replace(self)


class ProcessStats(msgspec.Struct, frozen=True):
    """Of a Python process.

    Attributes:
        threads: that run now.
        gc_runs: collections by Python's garbage collector, per generation.
        gc_s: how long they took together, per generation, in seconds.
    """

    threads: int = 0
    gc_runs: tuple[int, ...] = (0, 0, 0)
    gc_s: tuple[float, ...] = (0.0, 0.0, 0.0)


class Stats(HostMessage, frozen=True):
    """Sent every second: a host's numbers and those of all its tasks, failed ones included."""

    tasks: list[TaskStats]
    cpu_s: float
    rss_bytes: int
    #: Longest time in seconds that the event loop was late since the last report.
    loop_lag_s: float
    connectors: int = 0
    clients: list[ClientStats] = msgspec.field(default_factory=list)
    process: ProcessStats = ProcessStats()
    #: How often a config provider failed so far, and how many of their paths are used with earlier values now.
    provider_failures: int = 0
    provider_stale: int = 0


ToHost = (
    Init
    | StartTask
    | StopTask
    | PauseTask
    | Instruct
    | StartConnector
    | StopConnector
    | Validate
    | DescribePlugins
    | PluginConfig
    | AlterOffsets
    | JobOffsets
    | AskFlow
    | ListTables
    | JobSavepoints
    | CheckSnapshot
    | ConnectorView
    | AskLogs
    | ReadTopic
    | Redrive
    | SetLogLevel
    | Ping
    | TopicForgotten
)
ToControl = (
    ReadOffsets | ReadLease | TaskStateChanged | ConnectorStateChanged | TaskConfigs | ActiveTopic | LoopStuck | Stats
)


class RemoteError(MillraceError):
    """The other side refused a request.

    Attributes:
        kind: class name of the error there; of one derived from ``ConfigInvalid`` and its like that of its base.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
