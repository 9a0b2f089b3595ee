"""The contract between the runtime and a connector that moves the data itself, out of Kafka.

The runtime starts, watches, restarts and stops the ``JobTask`` of a ``JobConnector`` and shows its numbers, but no record
passes through the runtime.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

from connectors.errors import ConfigInvalid

if TYPE_CHECKING:
    import logging
    from collections.abc import Mapping, Sequence

    from connectors.api import ConnectorContext, Position
    from connectors.options import Config, ConfigDef, ConfigProblem


class JobPartition(msgspec.Struct, gc=False):
    """How far a job has come in one Kafka partition.

    Attributes:
        topic: the topic.
        partition: its partition.
        offset: the next one to be read.
        lag: records behind the partition's end; -1 where that is not known.
    """

    topic: str
    partition: int
    offset: int
    lag: int


class JobProgress(msgspec.Struct):
    """A job's numbers. The task keeps them up to date in place, the runtime reads them every second.

    Counters grow as long as the task exists, over all runs of the job. Times are in seconds, ``*_at`` since the epoch.

    Attributes:
        phase: of the job: ``starting``, ``running``, ``retrying`` (the target is unavailable), ``stopping``, ``stopped``,
            ``finished`` or ``failed``.
        pid: of the job's process; 0 for none.
        starts: how often the job was started.
        started_at: when it last said that it runs.
        batches: completed batches.
        batch: number of the last one, as the job counts; -1 for none.
        batch_rows: records in it.
        batch_s: how long it took.
        busy_s: how long all batches together took.
        batch_s_max: the longest batch since the runtime last looked; the runtime sets it back.
        batch_rows_max: the largest batch since then.
        read: records read.
        written: records or rows written.
        rows_per_s: speed of the last batch.
        progress_at: when numbers last came.
        retries: the number of retried writes.
        partitions: position and lag of each partition.
        metrics: further gauges of the job's parts; shown as ``millrace_job_<name>``.
        steps: the numbers of steps that keep a state, by step; shown as ``millrace_job_step_<name>``.
        tables: how late tables' changes come to the target, by table; shown as ``millrace_job_table_<name>``.
        error: why it is not running, in one line; empty if it is.
        retrying_since: since when it is ``retrying``; 0 if it isn't.
        sink: the sink that the task writes, where the connector has several.
        schema_changes: the last changes of tables' schemas and what was done about them, oldest first.
    """

    phase: str = "starting"
    pid: int = 0
    starts: int = 0
    started_at: float = 0.0
    batches: int = 0
    batch: int = -1
    batch_rows: int = 0
    batch_s: float = 0.0
    busy_s: float = 0.0
    batch_s_max: float = 0.0
    batch_rows_max: int = 0
    read: int = 0
    written: int = 0
    rows_per_s: float = 0.0
    progress_at: float = 0.0
    retries: int = 0
    partitions: list[JobPartition] = msgspec.field(default_factory=list)
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    steps: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    tables: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    error: str = ""
    retrying_since: float = 0.0
    sink: str = ""
    schema_changes: list[dict[str, Any]] = msgspec.field(default_factory=list)


class JobTaskContext(Protocol):
    """The runtime's services for the task of a job, passed to its constructor."""

    connector: str
    task: int
    #: Parsed by ``JobConnector.definition``; ``raw`` holds the job's properties, without those that only the runtime reads.
    config: Config
    #: The task updates it in place.
    progress: JobProgress
    log: logging.LoggerAdapter[logging.Logger]

    def running(self, trouble: Exception | None = None) -> None:
        """The job does its work now: the task's state becomes RUNNING. Does not block.

        Args:
            trouble: why it makes no progress at present, while it retries automatically: the status shows it as the trace.
        """

    def topic_used(self, topic: str) -> None:
        """The job reads from this topic (``GET /connectors/NAME/topics``). Cheap to repeat; does not block."""

    def patience(self) -> float | None:
        """Once ``run`` is cancelled: seconds it may still take, or None if only the job's own options limit it.

        Ask again while waiting: a pause has no limit, but a request to stop may arrive while the task is being paused.
        """


class JobTask(ABC):
    """Runs the one job of its connector.

    The constructor only stores the context. ``run`` is called again after ``Retriable`` and after a pause.
    """

    #: Java class names that mean this task.
    aliases: ClassVar[tuple[str, ...]] = ()

    def __init__(self, context: JobTaskContext) -> None:
        self.context = context

    @abstractmethod
    async def run(self) -> None:
        """Run the job until cancelled; call ``context.running`` as soon as it works.

        Shares the host's event loop with other tasks: it must not block. When it is cancelled, by a pause or a stop, it
        ends what it has started within ``context.patience`` and leaves nothing behind. It is cancelled once per call.
        Returning means that the job has done all it had to do: the task stays RUNNING and idle.

        Raises:
            Retriable: a passing fault; the runtime backs off and calls again. ``trace`` of the error is shown in the status.
            Fatal: the task fails.
        """


@dataclass(frozen=True, slots=True)
class Translation:
    """A configuration that was written for another product, as properties of a job.

    Attributes:
        properties: the job's, and the runtime's.
        origins: option of the job -> the option as written that it was made of, for complaints.
        problems: complaints about the configuration as written. One that is no warning forbids to run it.
    """

    properties: Mapping[str, str]
    origins: Mapping[str, str]
    problems: tuple[ConfigProblem, ...]


class JobConnector(ABC):
    """A connector that moves data out of Kafka itself. One instance per running connector, in one host of the cluster.

    Kafka Connect calls this a sink. Converters, transforms and the worker's exactly once support have no part in it.
    """

    #: Version shown by ``GET /connector-plugins``.
    version: ClassVar[str]
    #: The options that every such connector has; see ``definition``.
    config_def: ClassVar[ConfigDef]
    #: Class of its task.
    task_class: ClassVar[type[JobTask]]
    #: Other values of ``connector.class`` that mean this one.
    aliases: ClassVar[tuple[str, ...]] = ()

    def __init__(self, context: ConnectorContext) -> None:
        self.context = context

    async def start(self) -> None:
        """Prepare; called once, before ``task_configs``."""

    async def stop(self) -> None:
        """Release what ``start`` took; called once."""

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The work as task configurations: one, unless the connector has several sinks."""
        del max_tasks
        return [{}]

    @classmethod
    def translated(cls, config: Mapping[str, str], converters: Mapping[str, str]) -> Translation | None:
        """The configuration in the job's own options, where it is written for another product (``config_def``); else None.

        Args:
            config: as the user wrote it, references resolved.
            converters: ``key.converter`` and ``value.converter`` of the worker with their options.
        """
        del config, converters
        return None

    @classmethod
    def completed(cls, config: Mapping[str, str], kafka: Mapping[str, str]) -> dict[str, str]:
        """The configuration with what follows from where it runs; called before every other use of it.

        Args:
            config: as the user wrote it, references resolved; the properties of ``translated`` where there are some.
            kafka: how the worker itself reaches Kafka: addresses and security, named as the Java client names them.
        """
        del kafka
        return dict(config)

    @classmethod
    def definition(cls, config: Mapping[str, str]) -> ConfigDef:
        """The options that a connector with this configuration has: those of the parts that it names come to ``config_def``."""
        del config
        return cls.config_def

    @classmethod
    async def validate(cls, properties: Mapping[str, str]) -> list[ConfigProblem]:
        """Check the job's properties (as ``JobTaskContext.config.raw``) beyond what declarations can.

        Called also when a declared check failed, so that all complaints come at once; the same complaint again does no harm.
        """
        del properties
        return []

    @classmethod
    async def plan(
        cls, properties: Mapping[str, str], running: Mapping[str, str] | None, deadline_s: float
    ) -> dict[str, Any]:
        """The plan of a job with these properties, as ``FlowPlan`` of the REST API; nothing is started or written.

        Args:
            properties: as of ``validate``.
            running: the properties of the running job of that name; None: no such job runs.
            deadline_s: how long it may take.

        Raises:
            ConfigInvalid: connectors of this class have no plan.
            Retriable: what has to be asked does not answer.
        """
        del properties, running, deadline_s
        raise ConfigInvalid(f"{cls.__name__} connectors have no plan")

    @classmethod
    async def preview(
        cls, properties: Mapping[str, str], request: Mapping[str, Any], deadline_s: float
    ) -> dict[str, Any]:
        """Some rows on their way through a job with these properties, as ``FlowPreview`` of the REST API; nothing is written.

        Args:
            properties: as of ``validate``.
            request: as ``PreviewRequest`` of the REST API, without the configuration.
            deadline_s: how long it may take.

        Raises:
            ConfigInvalid: the properties or the request are wrong, or connectors of this class have no preview.
            Retriable: what has to be asked does not answer.
        """
        del properties, request, deadline_s
        raise ConfigInvalid(f"{cls.__name__} connectors have no preview")

    @classmethod
    async def offsets(cls, config: Config) -> list[tuple[Position, Position]]:
        """How far the job has come, as Kafka Connect shows it for sinks.

        Partitions are ``{"kafka_topic": ..., "kafka_partition": ...}``, offsets ``{"kafka_offset": ...}`` (KIP-875).

        Raises:
            Retriable: it can't be asked now.
        """
        del config
        return []

    @classmethod
    async def savepoints(cls, config: Config, action: str, request: Mapping[str, Any]) -> Any:
        """Create, list or delete savepoints of the job; called on the machine that runs it. Answers with JSON.

        Args:
            config: the connector's.
            action: ``create``, ``list`` or ``delete``.
            request: ``name`` of the savepoint, and for ``create`` ``stop``.

        Raises:
            ConfigInvalid: the request is wrong, or such connectors have no savepoints.
            Retriable: not now.
        """
        del config, action, request
        raise ConfigInvalid(f"{cls.__name__} connectors have no savepoints")

    @classmethod
    async def alter_offsets(cls, config: Config, offsets: Sequence[tuple[Position, Position | None]]) -> bool:
        """Carry out an operator's change of offsets; the connector is stopped. None resets a partition.

        Raises:
            ConfigInvalid: it can't be done, or not so; the text says what to do instead.
        """
        del config, offsets
        raise ConfigInvalid(f"the offsets of {cls.__name__} connectors can't be changed")
