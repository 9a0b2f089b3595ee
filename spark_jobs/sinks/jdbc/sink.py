"""The JDBC sink: tables that follow the source's, in PostgreSQL, MariaDB and others by dialect."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.errors import Fatal, Retriable
from spark_jobs.contract import SchemaRefused, Sink
from spark_jobs.frames import numbered
from spark_jobs.json_options import WHOLE
from spark_jobs.metrics import JobMetric
from spark_jobs.sinks.jdbc.config import CONFIG_DEF, INSERT, complaints, settings
from spark_jobs.sinks.jdbc.dialects import dialect
from spark_jobs.sinks.jdbc.model import Fault
from spark_jobs.sinks.jdbc.packed import system_columns, writing
from spark_jobs.sinks.jdbc.rows import POSITION
from spark_jobs.sinks.jdbc.small_batches import SmallBatches
from spark_jobs.sinks.jdbc.tables import Columns, Tables, refusal
from spark_jobs.sinks.jdbc.task import OUTCOME_DDL, TaskWriter
from spark_jobs.worker_memory import frozen_after

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from connectors.options import Config, ConfigDef
    from spark_jobs.contract import Batch, JobContext, Packed, TableChanges, TableSchema
    from spark_jobs.dead_letters import DeadLetters
    from spark_jobs.sinks.jdbc.config import Settings
    from spark_jobs.sinks.jdbc.model import Connection, Dialect, Plan
    from spark_jobs.sinks.jdbc.small_batches import Task

_NESTED: Final = ("array", "map", "struct", "variant")
#: Types that Arrow and the dialects know as they are; others go as text.
_PLAIN: Final = (
    "byte",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "decimal",
    "boolean",
    "string",
    "varchar",
    "char",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
)
_EXPIRE_EVERY_S: Final = 60.0
METRICS: Final = (
    JobMetric("jdbc_rows_total", "counter", "rows", "Rows given to tasks of this run, before reduction per key."),
    JobMetric("jdbc_loaded_total", "counter", "rows", "Rows loaded into tables in this run."),
    JobMetric(
        "jdbc_skipped_total", "counter", "rows", "Rows left out because they were committed before (mode insert)."
    ),
    JobMetric(
        "jdbc_bad_total", "counter", "rows", "Rows that the database refused and that were put aside in this run."
    ),
    JobMetric("jdbc_retries_total", "counter", "", "Transactions that were tried again in this run."),
)


@dataclass(slots=True)
class Totals:
    """What a batch did, over all its tables and tasks; see ``task.Outcome``."""

    rows: int = 0
    loaded: int = 0
    skipped: int = 0
    bad: int = 0
    retries: int = 0


class JdbcSink(Sink):
    """Writes tables: upsert by ``ums_id_``, insert only, or split; see docs/jobs/jdbc.md."""

    config_def: ClassVar[ConfigDef] = CONFIG_DEF
    guarantees: ClassVar[tuple[str, ...]] = ("exactly-once", "at-least-once", "none")
    metrics: ClassVar[tuple[JobMetric, ...]] = METRICS
    takes_rows: ClassVar[bool] = True

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self._settings: Settings = settings(context.config)
        self._dialect: Dialect = dialect(self._settings.login.address.dialect)
        self._tables = Tables(self._settings, self._dialect, context.name)
        self._expired_at = time.monotonic()
        self._small = SmallBatches()

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """Options that don't go together."""
        return complaints(config)

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """Where it writes, and how."""
        chosen = settings(config)
        lines = [
            f"jdbc: {chosen.login.text}, mode {chosen.mode}, deletes {chosen.delete_mode}, table {chosen.table}"
            + (f" in schema {chosen.schema}" if chosen.schema else "")
            + f", {chosen.connections} connections per table"
        ]
        return lines + [f"jdbc: {each}" for each in cls.check(config)]

    @classmethod
    def check(cls, config: Config) -> list[str]:
        """Whether the database can be reached and lets the login do what the sink needs. Blocks, at most for a timeout."""
        chosen = settings(config)
        kind = dialect(chosen.login.address.dialect)
        try:
            with contextlib.closing(kind.connect(chosen.login)) as connection:
                schema = "" if "${" in chosen.schema else chosen.schema
                return [
                    f"sink.jdbc.user: {each}" for each in kind.rights(connection, schema, create=chosen.auto_create)
                ]
        except Exception as error:
            fault = kind.classify(error)
            if fault is None:
                if isinstance(error, OSError):
                    return [f"sink.jdbc.ssl.root.cert: {chosen.login.text}: {error}"]
                raise
            return [_login_problem(chosen, error)]

    def refusal(self, schema: TableSchema) -> str:
        """See ``contract.Sink``."""
        return refusal(self._settings, self._dialect, schema)

    def write(self, batch: Batch) -> int:
        """Write a batch; see ``contract.Sink.write``. Returns rows written after reduction to the newest per key."""
        tables = list(batch.changes())
        prepared = self._prepared(tables)
        letters = self._letters()
        totals = Totals()
        parallel = min(self._settings.parallel_tables, len(prepared))
        if parallel <= 1:
            for changes, plan, names in prepared:
                self._add(totals, self._table(changes, plan, names, letters))
        else:
            with ThreadPoolExecutor(parallel) as pool:
                for done in pool.map(lambda each: self._table(each[0], each[1], each[2], letters), prepared):
                    self._add(totals, done)
        metrics = self.context.metrics
        for name in ("rows", "loaded", "skipped", "bad", "retries"):
            key = f"jdbc_{name}_total"
            metrics[key] = metrics.get(key, 0.0) + getattr(totals, name)
        if totals.skipped:
            self.context.log.info("batch %d: %d rows were committed before and are skipped", batch.id, totals.skipped)
        return totals.loaded

    def give_up(self) -> None:
        """See ``contract.Sink``."""
        self._small.give_up()

    def idle(self) -> None:
        """Forget old deletes, now and then."""
        if time.monotonic() - self._expired_at < _EXPIRE_EVERY_S:
            return
        self._expired_at = time.monotonic()
        with self._driver_connection() as connection:
            removed = self._tables.expire(connection)
        if removed:
            self.context.log.info("%d remembered deletes are older than the retention and are forgotten", removed)

    @contextlib.contextmanager
    def _driver_connection(self) -> Iterator[Connection]:
        """A connection of the driver, for as long as it is needed (one that is kept breaks unseen); errors become ours."""
        connected = False
        try:
            with contextlib.closing(self._dialect.connect(self._settings.login)) as connection:
                connected = True
                yield connection
                connection.commit()
        except Exception as error:
            fault = self._dialect.classify(error)
            if fault is None:
                raise
            said = f"{self._settings.login.text}: {' '.join(str(error).split())}"
            text = said if connected else _login_problem(self._settings, error)
            if fault is Fault.RETRY:
                raise Retriable(text) from error
            raise Fatal(text) from error

    def _prepared(self, tables: Sequence[TableChanges]) -> list[tuple[TableChanges, Plan, Columns]]:
        """How each table is written; asks the database only about schemas that were not there before."""
        for changes in tables:
            self._tables.check(changes.schema)
        with contextlib.ExitStack() as stack:
            connection: Connection = None
            found: list[tuple[TableChanges, Plan, Columns]] = []
            for changes in tables:
                known = self._tables.known(changes.schema)
                if known is None:
                    connection = connection or stack.enter_context(self._driver_connection())
                    plan, names, run = self._planned(changes.schema, connection)
                    for statement in run:
                        self.context.log.info("%s", statement)
                    known = plan, names
                found.append((changes, *known))
            return found

    def _planned(self, schema: TableSchema, connection: Connection) -> tuple[Plan, Columns, list[str]]:
        """``Tables.plan``.

        Raises:
            SchemaRefused: the table can't follow, or the database refuses a statement for good.
        """
        try:
            return self._tables.plan(schema, connection)
        except Fatal as error:
            raise SchemaRefused(str(error), schema.namespace) from error
        except Exception as error:
            if self._dialect.classify(error) in (None, Fault.RETRY):
                raise
            text = f"table {schema.namespace}: {self._settings.login.text}: {' '.join(str(error).split())}"
            raise SchemaRefused(text, schema.namespace) from error

    def _letters(self) -> DeadLetters | None:
        if self.context.config.get("errors.tolerance") != "all":
            return None
        from spark_jobs.dead_letters import DeadLetters

        return DeadLetters.of(self.context)

    def _table(self, changes: TableChanges, plan: Plan, names: Columns, letters: DeadLetters | None) -> Totals:
        packed, columns, chosen = changes.packed, len(changes.schema.columns), self._settings
        takes_packed = packed is not None and self._takes_packed(changes, plan)
        if packed is not None and packed.rows is not None and takes_packed and self._writes_here(letters):
            # Without a dead letter topic: a call into Kafka that hangs would end the driver. Tasks put bad rows aside, below.
            totals = self._checked(
                self._small.write(packed.rows, writing(packed, columns, chosen, TaskWriter(plan))),
                then_tasks=letters is not None,
            )
            if totals is not None:
                return totals
        write: Task = frozen_after("jdbc", TaskWriter(plan, letters))
        if packed is not None and takes_packed and self._has_enough_parts(packed):
            frame = packed.frame.coalesce(chosen.connections)
            write = writing(packed, columns, chosen, write)
        else:
            frame = self._spread(projected(changes, names, chosen), plan)
        totals = self._checked(frame.mapInArrow(write, OUTCOME_DDL).collect(), then_tasks=False)
        assert totals is not None, "it raises"  # noqa: S101 - for the type checker
        return totals

    def _writes_here(self, letters: DeadLetters | None) -> bool:
        """Whether the driver may write rows: where a bad one is put aside, tasks write them all once more."""
        return letters is None or self._settings.mode != INSERT

    def _checked(self, reports: Sequence[Any], *, then_tasks: bool) -> Totals | None:
        """The sums of what tasks report; None where the database refuses a row and ``then_tasks``.

        Raises:
            Fatal, Retriable: a task could not write its rows.
        """
        failed = [row for row in reports if row["error"]]
        if failed:
            # The table may have been changed or dropped by somebody: look again at the next try.
            self._tables.forget()
            fatal = [row for row in failed if not row["passing"]]
            if fatal and then_tasks:
                return None
            text = (fatal or failed)[0]["error"]
            raise Fatal(text) if fatal else Retriable(text)
        return Totals(*(sum(row[name] for row in reports) for name in ("rows", "loaded", "skipped", "bad", "retries")))

    def _takes_packed(self, changes: TableChanges, plan: Plan) -> bool:
        """Whether rows may go from Arrow to the database as they are, and in the parts in which they come."""
        kinds = {column.type.typeName() for column in changes.schema.columns}
        if not kinds.issubset(_PLAIN):
            return False
        return not plan.commits if self._settings.mode == INSERT else self._settings.repartition != "always"

    def _has_enough_parts(self, packed: Packed) -> bool:
        chosen = self._settings
        return chosen.mode == INSERT or chosen.repartition == "never" or _parts(packed.frame) >= chosen.connections

    def _spread(self, frame: DataFrame, plan: Plan) -> DataFrame:
        """The rows in as many parts as there are connections."""
        chosen, count = self._settings, self._settings.connections
        if chosen.mode == INSERT:
            if not plan.commits:
                return frame.coalesce(count)
            # One task per Kafka partition, in order: its positions are one number. Kafka's own parts may be cut smaller.
            return frame.repartition(count, "kafka_topic_", "kafka_partition_").sortWithinPartitions(*POSITION)
        if chosen.repartition == "always" or (chosen.repartition == "auto" and _parts(frame) < count):
            return frame.repartition(count, *(f"c{plan.columns.index(key)}" for key in plan.keys))
        return frame.coalesce(count)

    @staticmethod
    def _add(totals: Totals, done: Totals) -> None:
        totals.rows += done.rows
        totals.loaded += done.loaded
        totals.skipped += done.skipped
        totals.bad += done.bad
        totals.retries += done.retries


def projected(changes: TableChanges, names: Columns, chosen: Settings) -> DataFrame:
    """The rows as they are loaded: the source's columns as c0, c1 ..., nested ones as JSON, then the system's columns."""
    from pyspark.sql import functions

    frame = numbered(changes.frame, len(changes.schema.columns))
    if chosen.mode != INSERT:
        frame = frame.where(functions.col("ums_op_") != "b")  # the image before an update is history only
    kinds = {column.name: column.type.typeName() for column in changes.schema.columns}
    selected: list[SparkColumn] = []
    for number, (source, _) in enumerate(names.pairs):
        column = functions.col(f"c{number}")
        if kinds[source] in _NESTED:
            column = functions.to_json(column, WHOLE)
        elif kinds[source] not in _PLAIN:
            column = column.cast("string")
        selected.append(column.alias(f"c{number}"))
    version = functions.col("ums_id_" if chosen.position == "ums_id" else "kafka_offset_").alias("ums_id_")
    selected += [version, functions.col("ums_ts_"), functions.col("ums_op_")]
    active = functions.when(functions.col("ums_op_") == "d", 0).otherwise(1).cast("tinyint").alias("ums_active_")
    more = system_columns(chosen)[3:]
    return frame.select(*selected, *(active if name == "ums_active_" else functions.col(name) for name in more))


def _parts(frame: DataFrame) -> int:
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())  # noqa: SLF001 - plans, but runs nothing


def _login_problem(chosen: Settings, error: Exception) -> str:
    text = " ".join(str(error).split())
    lowered = text.lower()
    name = "sink.jdbc.url"
    if "password" in lowered or "access denied" in lowered or "authentication" in lowered or "role" in lowered:
        name = "sink.jdbc.user"
    elif "ssl" in lowered or "tls" in lowered or "certificate" in lowered:
        name = "sink.jdbc.ssl.mode"
    return f"{name}: {chosen.login.text} can't be used: {text}"
