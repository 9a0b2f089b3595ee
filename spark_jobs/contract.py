"""The interfaces between the parts of a job: the batch, its tables, sinks and sources.

Who calls what: the frame (``runner``) starts one streaming query; for each micro-batch it makes a ``Batch`` and hands it to
the job's ``Sink``. A sink asks the batch for raw Kafka records (``batch.raw``) or for typed changes per table
(``batch.changes()``), which the job's ``Source`` decodes. Everything here runs on the driver unless a name says otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.errors import Fatal

if TYPE_CHECKING:
    import logging

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from connectors.options import Config, ConfigDef
    from spark_jobs.metrics import JobMetric

#: Columns of ``Batch.raw``, as Spark's Kafka source gives them (headers included).
RAW_COLUMNS: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")

#: System columns that follow a table's own columns in ``TableChanges.frame``: the UMS fields (specs: UMS 1.3), then where the
#: record stood in Kafka. ``ums_id_`` (long) grows with the order of changes of one key; ``ums_ts_`` (timestamp, UTC) is when
#: the change was made in the source; ``ums_op_`` is i, u, d or b; ``ums_uid_`` (string) is unique per row.
UMS_COLUMNS: Final = ("ums_id_", "ums_ts_", "ums_op_", "ums_uid_")
KAFKA_COLUMNS: Final = ("kafka_topic_", "kafka_partition_", "kafka_offset_")
SYSTEM_COLUMNS: Final = (*UMS_COLUMNS, *KAFKA_COLUMNS)

#: What a column's values are where the Spark type does not say it (``Column.meaning``). UUID and NUMBER are strings (a decimal
#: as text, of any scale), ZONED_TIME too; TIME is nanoseconds since midnight (bigint; negative, or a day and more, where the
#: source allows it); LOCAL_TIMESTAMP is a date and time without a zone, as if it were UTC.
UUID: Final = "uuid"
NUMBER: Final = "number"
TIME: Final = "time"
ZONED_TIME: Final = "zoned_time"
LOCAL_TIMESTAMP: Final = "local_timestamp"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table as sinks see it.

    Attributes:
        name: as in the source.
        type: the Spark type.
        nullable: whether null is allowed; key columns are not.
        key: whether it belongs to the primary key.
        length: characters or bytes at most, where the source says so (VARCHAR(20)); None otherwise.
        meaning: what the values are, where the Spark type does not say it; one of the names below, or empty.
        volatile: whether the value is not kept with the row, so that a delete and an image before an update don't have it (a
            looked-up column).
    """

    name: str
    type: DataType
    nullable: bool = True
    key: bool = False
    length: int | None = None
    meaning: str = ""
    volatile: bool = False


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The present structure of a table.

    Attributes:
        namespace: its name anywhere: UMS's seven parts where the source gives them, else ``<database>.<table>`` (Debezium's
            ``source.db``/``keyspace`` and ``table``), else the topic.
        columns: key columns first, in key order; then the others in source order.
        sharded: whether the first two columns are the numbers of the row's shard (``sink.shards=separate``).
    """

    namespace: str
    columns: tuple[Column, ...]
    sharded: bool = False

    @property
    def key(self) -> tuple[Column, ...]:
        """The primary key; empty where the source has none."""
        return tuple(column for column in self.columns if column.key)

    def key_with_shard(self, names: Sequence[str]) -> tuple[str, ...]:
        """``names``, which an option gives as a key, after the numbers of the shard where the table has them."""
        numbers = [column.name for column in self.columns[:2]] if self.sharded else []
        return (*(name for name in numbers if name not in names), *names)


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows of a table as record batches of Arrow's, for sinks that write in Arrow: Spark need not take them apart.

    Attributes:
        frame: one binary column; rows of a Kafka partition are in one partition of the frame, in order.
        unpack: a function for ``mapInArrow`` over the frame: gives the rows as ``TableChanges.frame`` has them.
        rows: the values of the frame, in order, of a small batch whose taker wants them (``Batch.takes_rows``); else None.
    """

    frame: DataFrame
    unpack: Callable[[Iterator[Any]], Iterator[Any]]
    rows: tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The changes of one table in one batch.

    Attributes:
        schema: covers every row of the frame (columns that a row's version lacks are null).
        frame: lazy; the table's columns in the schema's order, then ``SYSTEM_COLUMNS``. One row per change: the after image of
            i and u; of d the before image where it is known, else the key and nulls. Rows of a key stand in order within
            one partition of the frame (Kafka's partitions are kept).
        lacking: columns of the schema that the definition of some of the rows does not have: the source's table had not got
            them yet, or has dropped them.
        packed: the same rows as record batches, where the source has them so; whoever changes the frame leaves it out.
    """

    schema: TableSchema
    frame: DataFrame
    lacking: frozenset[str] = frozenset()
    packed: Packed | None = None


class SchemaRefused(Fatal):
    """The target can't follow a change of a table's schema; nothing of that table's batch was written.

    Attributes:
        namespace: the table.
    """

    def __init__(self, text: str, namespace: str) -> None:
        super().__init__(text)
        self.namespace = namespace


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch.

    Attributes:
        id: Spark's batch id; the same id after a crash brings the same offsets.
        raw: the records, ``RAW_COLUMNS``.
        ranges: (topic, partition) -> (first offset, offset after the last one).
        changes: the typed changes per table; decodes on the call, may run Spark jobs.
        takes_rows: whether who takes the changes writes the rows of a small batch from the driver (``Sink.takes_rows``).
    """

    id: int
    raw: DataFrame
    ranges: Mapping[tuple[str, int], tuple[int, int]]
    changes: Callable[[], Sequence[TableChanges]]
    takes_rows: bool = False


@dataclass(slots=True)
class JobContext:
    """The context that sources and sinks receive.

    Attributes:
        name: the job's name.
        config: the whole configuration; a sink's own options are in it under their full names (``sink.jdbc.url``).
        spark: the session.
        log: the job's log.
        metrics: set by parts, shown in the job's status and on /metrics: name without ``millrace_job_`` -> value.
        dead_letters: the job's ``DeadLetters``; get them by ``DeadLetters.of(context)``, which makes them.
        input: the job's ``Input``, for the source that decodes what it reads.
        heartbeats: the job's ``Heartbeats``; get them by ``Heartbeats.of(context)``, which makes them.
    """

    name: str
    config: Config
    spark: SparkSession
    log: logging.LoggerAdapter[logging.Logger]
    metrics: dict[str, float] = field(default_factory=dict)
    dead_letters: Any = None
    input: Any = None
    heartbeats: Any = None


class Sink(ABC):
    """Writes batches somewhere. One instance per run of a job, on the driver; ``write`` calls never overlap."""

    #: Its options, each name beginning with ``sink.<type>.``.
    config_def: ClassVar[ConfigDef]
    #: What it can promise over a source that can be reset, the strongest first: exactly-once, at-least-once, none.
    guarantees: ClassVar[tuple[str, ...]]
    #: Prefixes of properties that are accepted without a declaration each, because they go to a driver or a client
    #: (``sink.jdbc.properties.``); read them with ``config.prefixed``.
    pass_through: ClassVar[tuple[str, ...]] = ()
    #: What it puts into ``context.metrics``, for the reference (names without ``millrace_job_``).
    metrics: ClassVar[tuple[JobMetric, ...]] = ()
    #: Whether it writes ``Packed.rows`` from the driver where a batch has them. Then the frames of such a batch are not kept:
    #: each use decodes again.
    takes_rows: ClassVar[bool] = False
    #: Sets of pinned jars it needs in addition to Kafka's (``delta``); given to ``session.build_session``.
    extra_jars: ClassVar[tuple[str, ...]] = ()
    #: Why ``millrace verify`` can't read its target back, for a class without ``read_back`` (docs/verify.md, "Targets").
    not_read_back: ClassVar[str] = ""

    def __init__(self, context: JobContext) -> None:
        self.context = context

    @classmethod
    def jars(cls, config: Config) -> tuple[str, ...]:
        """The sets of pinned jars that this configuration needs; ``extra_jars`` unless it depends on options."""
        del config
        return cls.extra_jars

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """Complaints about options that don't go together, each as ``<option>: <text>``; quick, touches nothing outside."""
        del config
        return []

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """Describe what it would do, one line each (tables, paths, topics, objects to create), for ``millrace job plan``.

        Writes nothing. May block; a target that can't be reached is said in a line, not raised.
        """
        del config
        return []

    @classmethod
    def check(cls, config: Config) -> list[str]:
        """Complaints that single options can't make (reachability, rights, existing tables); no Spark yet. May block."""
        del config
        return []

    @classmethod
    def save_state(cls, config: Config, spark: SparkSession, location: str) -> dict[str, Any] | None:
        """Write the sink's state into the savepoint in the folder ``location``; what its manifest keeps (JSON). May block.

        Called between two batches, or while the job is stopped. None: the sink has no state but its target. Numbers under
        ``buckets`` and ``records``, if there are any, are shown to people.
        """
        del config, spark, location
        return None

    @classmethod
    def restore_state(
        cls, config: Config, spark: SparkSession, location: str, savepoint: str, state: Mapping[str, Any]
    ) -> None:
        """Take over what ``save_state`` wrote, before ``open`` and before the first batch. May block.

        Called again if it was interrupted: what the savepoint of this id has brought already stays.

        Raises:
            connectors.errors.Fatal: the state does not fit, or the job has another one.
            connectors.errors.Retriable: call again.
        """

    def open(self) -> None:
        """Called once before the first batch; may block."""

    def refusal(self, schema: TableSchema) -> str:
        """Why the target can't hold a table of this schema (its names, its key), and what to do; empty where it can. Pure.

        The frame asks before ``write`` sees the table: it stops the job with this text, or puts the table's records aside.
        """
        del schema
        return ""

    @abstractmethod
    def write(self, batch: Batch) -> int:
        """Write one batch; returns rows written. Called again with the same batch id after a crash or a retry.

        Raises:
            connectors.errors.Retriable: the target is unavailable; the frame waits and calls again with the same batch.
            connectors.errors.Fatal: the job fails with this text.
            SchemaRefused: the target can't follow a table's schema; with ``try_evolve`` the frame calls again without the
                change.
        """

    def give_up(self) -> None:
        """Called from another thread when the batch is given up that ``write`` is writing: a wait in the driver has to end.

        Spark jobs are ended by Spark.
        """

    def idle(self) -> None:
        """Called between batches at least every few seconds also when there is no input: rolling, compaction, expiry."""

    def close(self) -> None:
        """Called once at the end, also after a failure."""


class Source(ABC):
    """Decodes a batch's raw records into changes per table. One instance per run of a job, on the driver."""

    #: Its options, each name beginning with ``source.``.
    config_def: ClassVar[ConfigDef]
    #: As ``Sink.pass_through``.
    pass_through: ClassVar[tuple[str, ...]] = ()
    #: As ``Sink.metrics``.
    metrics: ClassVar[tuple[JobMetric, ...]] = ()
    #: Why ``millrace verify`` can't read rows from its messages, for a class without ``read_messages``.
    no_rows: ClassVar[str] = ""

    def __init__(self, context: JobContext) -> None:
        self.context = context

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """As ``Sink.validate``."""
        del config
        return []

    def close(self) -> None:
        """Called once at the end, also after a failure."""

    @abstractmethod
    def changes(self, batch: Batch) -> list[TableChanges]:
        """The changes of ``batch`` by table; tables without a change in it may be left out.

        New schemas in the batch are found and applied here. What can't be decoded goes where ``errors.tolerance`` says
        (``dead_letters``), from the tasks that find it.
        """

    def schemas(self) -> list[TableSchema]:
        """The tables seen so far, as ``changes`` gives them, also those without a change in the batch.

        Steps that combine tables use it, so that the types of their output don't depend on which tables a batch has.
        """
        return []

    def refused(self, namespace: str) -> None:
        """Called for a table that the sink refuses: forget what this batch showed of it, so that a renamed column helps."""

    def written(self) -> None:
        """Called after the sink wrote the changes of a batch: keep what the batch showed of its tables. May block.

        A batch that fails leaves nothing behind, so that options which define a table (its key, its types) can be corrected.
        """


#: Job options given to a factory by type name: filled in by ``registry``.
Options = Mapping[str, Any]
