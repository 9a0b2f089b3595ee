"""The contract between a connector and the runtime.

Who calls what: the task host makes one ``SourceConnector`` per connector and asks it for task configurations; for each of
those it makes a ``SourceTask`` and iterates over its batches until it cancels it. A connector knows this module,
``connectors.options``, ``connectors.schema`` and ``connectors.errors``, and nothing of the worker.

``connectors.job_api`` is the contract with connectors that move the data themselves, out of Kafka.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Protocol

import msgspec

from connectors.errors import ConfigInvalid
from connectors.schema import Schema  # noqa: TC001 - msgspec reads the annotation at run time
from connectors.wire import EncodedBatch  # noqa: TC001 - as above

if TYPE_CHECKING:
    import logging
    from collections.abc import AsyncGenerator, Awaitable, Sequence

    from connectors.options import Config, ConfigDef, ConfigProblem
    from connectors.wire import Wire

#: A source partition or a source offset: a flat JSON-able mapping. Treat it as immutable once it is in a record.
Position = dict[str, Any]
#: A standing request of the operator to a connector, a JSON object; see ``SourceTask.instruct``. Treat it as immutable.
Instruction = Mapping[str, Any]
#: The states of a snapshot (``SourceConnector.snapshots``) that has come to its end: none follows.
SNAPSHOT_ENDED: Final = frozenset({"completed", "cancelled", "failed"})
#: Keys with which the configuration of a connector or of a task asks for workers: the node, and labels as ``name=value``.
NODE_KEY: Final = "millrace.node"
LABELS_KEY: Final = "millrace.labels"
#: The key by which a connector puts its task into a group: tasks of one group share something on their worker.
TOGETHER_KEY: Final = "millrace.together"


class Header(msgspec.Struct, frozen=True, gc=False):
    """One record header: a value with its schema, converted by ``header.converter``."""

    key: str
    value: Any
    schema: Schema | None = None


class SameAs(NamedTuple):
    """The Kafka partition to which a record with this key goes; the key has the record's own key schema."""

    key: Any


#: Instead of a Kafka partition: a copy goes to every partition of the topic, in each behind what came before the record.
EVERY_PARTITION: Final = "every"


class SourceRecord(msgspec.Struct, gc=False):
    """One change on its way to Kafka.

    A record belongs to the runtime once its batch was yielded. Reuse the same ``source_partition``, ``topic`` and schema
    *objects* for all records they apply to: the runtime compares them by identity first.

    Attributes:
        source_partition: what of the source this comes from (a file, a stream, a table).
        source_offset: the position just after this record: a restart with it must produce the next one.
        topic: the destination topic.
        value: the value, or None for a tombstone.
        value_schema: its schema, or None for schemaless data.
        key: the key, or None.
        key_schema: its schema.
        partition: the Kafka partition, None to let the key decide, ``SameAs(key)`` to go behind records with another key,
            or ``EVERY_PARTITION``.
        headers: record headers in order.
        timestamp: milliseconds since the epoch, or None for the time of production.
    """

    source_partition: Position
    source_offset: Position
    topic: str
    value: Any = None
    value_schema: Schema | None = None
    key: Any = None
    key_schema: Schema | None = None
    partition: int | SameAs | Literal["every"] | None = None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None


class BadRecord(msgspec.Struct, gc=False):
    """Something read from the source that could not be made a record.

    ``errors.tolerance`` decides what happens to it; its raw bytes and position go to the dead letter topic if there is one.
    """

    source_partition: Position
    source_offset: Position
    error: Exception
    raw: bytes = b""
    topic: str | None = None


class Batch(msgspec.Struct, gc=False):
    """Records and positions that a task yields in one step.

    Attributes:
        records: the records in source order, at most a few thousand and a few MB.
        bad: input of this batch that could not be decoded.
        offsets: positions to save once all of ``records`` are acknowledged, in addition to the records' own: (partition,
            offset) pairs. They move the position past filtered or bad input, and while there are no records. An offset of
            None deletes the saved one.
        transaction: with ``transaction.boundary=connector``: ``commit`` ends the transaction after this batch, ``abort``
            drops everything since the last commit, this batch included (the offsets move all the same).
        receipt: anything but None: ``SourceTask.delivered`` gets it once Kafka has the batch.
        encoded: records that are bytes already (``connectors.wire``), in the order of ``after``; ``offsets`` covers them.
    """

    records: list[SourceRecord]
    bad: tuple[BadRecord, ...] = ()
    offsets: tuple[tuple[Position, Position | None], ...] = ()
    transaction: Literal["", "commit", "abort"] = ""
    receipt: Any = None
    encoded: tuple[EncodedBatch, ...] = ()


class OffsetReader(Protocol):
    """The positions saved before this task was started."""

    def get(self, partition: Position) -> Position | None:
        """The saved offset of ``partition``, or None. Does not block."""

    def items(self) -> list[tuple[Position, Position]]:
        """All saved positions of the connector. Does not block."""


class TaskMetrics(Protocol):
    """Where a task reports numbers of its own; names must be declared in the connector's ``metrics``."""

    def set(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Set a gauge."""

    def add(self, name: str, value: float = 1, labels: Mapping[str, str] | None = None) -> None:
        """Add to a counter."""


class WrittenRecord(NamedTuple):
    """A record that a connector has written, as it is in Kafka.

    Attributes:
        offset: its own.
        timestamp: milliseconds since the epoch.
        key: as bytes.
        value: as bytes; None for a tombstone.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class WrittenTopics(Protocol):
    """Reads back what the connector has written, as far as it is committed. No consumer group takes part."""

    async def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """The first offset and the end of each partition; {} for a topic that does not exist.

        Raises:
            Retriable: Kafka does not answer.
        """

    def read(
        self, topic: str, partition: int, start: int, end: int
    ) -> AsyncGenerator[tuple[list[WrittenRecord], int], None]:
        """Yield records from offset ``start`` on before ``end``, and the offset behind them; close the generator.

        Raises:
            Retriable: Kafka does not answer.
        """

    async def decode(self, topic: str, value: bytes) -> Any:
        """A value as the connector's ``value.converter`` reads it.

        Raises:
            Retriable: the schema registry does not answer.
            Skippable: it is not in the converter's form.
        """


class TaskContext(Protocol):
    """The runtime's services for a task, passed to its constructor."""

    connector: str
    task: int
    config: Config
    offsets: OffsetReader
    metrics: TaskMetrics
    log: logging.LoggerAdapter[logging.Logger]
    #: "" unless exactly once is on; then "poll", "interval" or "connector".
    transaction_boundary: str
    #: Of the Kafka cluster that the task writes to.
    written: WrittenTopics
    #: How rows become bytes without records; None: only records will do.
    wire: Wire | None


class ConnectorContext(Protocol):
    """The runtime's services for a connector, passed to its constructor."""

    connector: str
    config: Config
    offsets: OffsetReader
    log: logging.LoggerAdapter[logging.Logger]

    def request_task_reconfiguration(self) -> None:
        """Ask the runtime to call ``task_configs`` again soon (a new table, a new stream generation). Does not block."""

    async def refresh_offsets(self) -> None:
        """Read the saved offsets from Kafka again; until then ``offsets`` is as it was when the connector started.

        Costs a read of the connector's saved offsets: for looking at progress every few seconds, not for every event.

        Raises:
            Retriable: they can't be read now.
        """

    def fail(self, error: Exception) -> None:
        """Report that the connector itself can't continue: it becomes FAILED with this error's trace. Does not block."""


class SourceTask(ABC):
    """Reads one share of a source.

    The constructor only stores the context. All work happens in ``batches``, which shares the host's event loop with
    other tasks: it must not block (drivers that do run in a thread, ``asyncio.to_thread``) and must hold bounded memory.
    """

    #: Java class names of this task; the config topic holds the first one for a connector with a Java class name.
    aliases: ClassVar[tuple[str, ...]] = ()

    def __init__(self, context: TaskContext) -> None:
        self.context = context

    @abstractmethod
    def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield batches until cancelled.

        The runtime asks for the next batch only while it has room, so a slow Kafka suspends the generator at its ``yield``.
        An empty batch is allowed, and must be yielded or awaited around at least every few seconds. To stop, the runtime
        cancels the pending await or closes the generator: release resources in ``finally``, within the runner's deadline.
        A generator that returns has finished its input: the task stays RUNNING and idle.

        Raises:
            Retriable: the source is unavailable; the runtime backs off and makes a new generator from the last *delivered*
                position (``context.offsets`` is current then).
            Fatal: the task fails.
        """

    def instruct(self, instructions: Sequence[Instruction]) -> None:
        """Take the operator's standing requests to this connector (snapshots asked for over REST).

        Called before every ``batches`` and, while that runs, whenever the list changes; all tasks of the connector get the
        same list. It is always complete: what is no longer in it was deleted, and its saved progress is the task's to
        delete (an offset of None). Requests stay in it after they are done, so only saved progress tells a new one from a
        finished one. Must not block: note the list and wake ``batches``. An error fails the task.

        Args:
            instructions: what ``SourceConnector.check_snapshot`` made of each request, with these fields over it: ``id``,
                ``state`` ("running", "paused", "cancelled"), ``origin``, ``created_ms``. ``origin`` is "rest" for a request;
                another one means that the operator pauses, resumes or cancels the snapshot ``id`` that the connector
                started itself, and then there are only ``id``, ``state``, ``origin`` and ``created_ms``.
        """

    def secrets_changed(self, names: Sequence[str]) -> None:
        """Config providers have new values for these password options; ``context.config`` has them already.

        A task that reads a ``Password``'s value for each new connection needs no more: the next one is made with the new
        secret. Override it to renew what is kept open, or logged in by other means. Must not block: note it and wake
        ``batches``. An error fails the task. Called while ``batches`` runs.
        """

    def delivered(self, receipt: Any) -> None:
        """Kafka has all of the batch with this ``Batch.receipt``: its records, and the dead letters of what was bad.

        With exactly once that means in a committed transaction. Receipts may come in another order than their batches, and do
        not come for batches that were not delivered. Use it to answer whoever sent the data. Must not block; an error fails the
        task.
        """

    async def committed(self, offsets: Sequence[tuple[Position, Position]]) -> None:
        """Called after positions have become durable in Kafka; with at least once possibly again after a restart.

        Use it to release what the source keeps until then. An error here is logged and counted, and nothing else.
        """


class SourceConnector(ABC):
    """Splits a source into tasks. One instance per running connector, in one host of the cluster."""

    #: Version shown by ``GET /connector-plugins``.
    version: ClassVar[str]
    #: All options, declared once; the runtime's common ones (name, tasks.max, transforms ...) are added by the worker.
    config_def: ClassVar[ConfigDef]
    #: Class of the tasks.
    task_class: ClassVar[type[SourceTask]]
    #: Other values of ``connector.class`` that mean this one (Java class names).
    aliases: ClassVar[tuple[str, ...]] = ()
    #: Metrics that the tasks report: name -> (kind ``gauge`` or ``counter``, help text).
    metrics: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def __init__(self, context: ConnectorContext) -> None:
        self.context = context

    async def start(self) -> None:
        """Prepare; called once, before ``task_configs``. May watch the source in the background."""

    async def stop(self) -> None:
        """Release what ``start`` took; called once."""

    @abstractmethod
    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The work as at most ``max_tasks`` task configurations, in a stable order."""

    @classmethod
    async def validate(cls, config: Config) -> list[ConfigProblem]:
        """Check what declarations can't: reachability, privileges, server settings. Not called if a declared check failed."""
        del config
        return []

    @classmethod
    def exactly_once_support(cls, config: Config) -> bool:
        """Whether with this configuration a restart from saved offsets repeats nothing and loses nothing."""
        del config
        return False

    @classmethod
    def can_define_transaction_boundaries(cls, config: Config) -> bool:
        """Whether tasks set ``Batch.transaction``, so that ``transaction.boundary=connector`` may be used."""
        del config
        return False

    @classmethod
    async def alter_offsets(cls, config: Config, offsets: Sequence[tuple[Position, Position | None]]) -> bool:
        """Check an operator's change of offsets before it is written; None resets a partition.

        Returns:
            True if the connector checked them, False if it can't tell (the REST answer says so).

        Raises:
            ConfigInvalid: a partition or an offset this connector can't resume from.
        """
        del config, offsets
        return False

    # What REST asks. The default of each says that the connector has no such thing.

    @classmethod
    def check_snapshot(cls, config: Config, request: Mapping[str, Any]) -> dict[str, Any]:
        """Check a request for a snapshot (``POST /connectors/NAME/snapshots``); must not block.

        Args:
            config: the connector's.
            request: ``tables`` (list of strings), ``conditions`` (table -> filter) and ``priority``, as far as they are given.

        Returns:
            The request as tasks shall get it: a JSON object; the runtime puts ``id``, ``state`` ... over it.

        Raises:
            ConfigInvalid: the request can't be carried out, or connectors of this class take none.
        """
        del config, request
        raise ConfigInvalid(f"{cls.__name__} connectors take no snapshots on request")

    @classmethod
    def snapshots(
        cls, config: Config, instructions: Sequence[Instruction], offsets: Sequence[tuple[Position, Position]]
    ) -> list[dict[str, Any]]:
        """All snapshots, the connector's own included, with their progress as it is saved; must not block.

        Snapshots among ``instructions`` that no task has started yet are listed too. The state that an instruction asks for
        is shown at once unless the snapshot has ended.

        Returns:
            JSON objects with at least ``id``, ``state`` ("waiting", "running", "paused", "cancelled", "completed", "failed")
            and ``origin``; usually also ``tables``, a list of objects with ``table``, ``state``, ``rows_total``,
            ``rows_done``, ``rows_per_s``, ``percent``, ``eta_s``.

        Raises:
            ConfigInvalid: connectors of this class have none.
        """
        del config, instructions, offsets
        raise ConfigInvalid(f"{cls.__name__} connectors take no snapshots on request")

    @classmethod
    async def capturable(cls, properties: Mapping[str, str]) -> dict[str, Any]:
        """The tables that a source has, for a form to choose from. Connects to the source; ``validate.timeout.ms`` bounds it.

        Args:
            properties: the configuration so far; only what it takes to connect has to be there.

        Returns:
            ``{"option", "patterns", "tables"}``: the option that names tables, whether it takes regular expressions, and the
            tables' names as that option takes them.

        Raises:
            ConfigInvalid: connectors of this class have no tables, or the source refuses the account.
            Retriable: the source can't be asked now.
        """
        del properties
        raise ConfigInvalid(f"{cls.__name__} connectors have no tables to choose from")

    @classmethod
    async def lag(cls, config: Config, offsets: Sequence[tuple[Position, Position]]) -> dict[str, Any]:
        """How far the connector is behind its source. May connect to the source; ``validate.timeout.ms`` bounds it.

        Returns:
            ``{"time_behind_s", "bytes_behind", "tables": [{"table", "time_behind_s", "events_behind", "last_event_ts"}],
            "heartbeat": {...}, "position", "source_position"}``; null for what is not known. Times are seconds, ``_ts``
            milliseconds since 1970.

        Raises:
            ConfigInvalid: connectors of this class can't tell.
            Retriable: the source can't be asked now.
        """
        del config, offsets
        raise ConfigInvalid(f"{cls.__name__} connectors do not tell how far they are behind")

    @classmethod
    def tables(
        cls, config: Config, offsets: Sequence[tuple[Position, Position]]
    ) -> list[dict[str, Any]] | Awaitable[list[dict[str, Any]]]:
        """The tables it captures with their versions, as they are saved; must not block.

        May be a coroutine function that asks the source; ``validate.timeout.ms`` bounds it.

        Returns:
            JSON objects with at least ``table`` and ``version``, and usually ``versions``: what changed at each, and when.

        Raises:
            ConfigInvalid: connectors of this class keep none.
        """
        del config, offsets
        raise ConfigInvalid(f"{cls.__name__} connectors keep no versions of tables")
