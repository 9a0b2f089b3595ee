"""The shapes of bodies of ``/console``; see ``schemas`` for how they are read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from worker.rest.shapes.schemas import Config, Kind, State, WorkerId  # noqa: TC001 - msgspec reads annotations at run time


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
    config_digest: Annotated[int, Meta(description="Another number when the configuration is another; of one worker.")]
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
