"""One database of the JDBC sink: its tables, and the tasks that write them. Runs on the driver; blocks."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal, Retriable
from spark_jobs.contract import SchemaRefused
from spark_jobs.json_options import WHOLE
from spark_jobs.sinks.jdbc.config import INSERT
from spark_jobs.sinks.jdbc.dialect.dialects import load_dialect
from spark_jobs.sinks.jdbc.model import Fault
from spark_jobs.sinks.jdbc.packed import system_columns, write_unpacked
from spark_jobs.sinks.jdbc.rows import POSITION
from spark_jobs.sinks.jdbc.small_batches import SmallBatches
from spark_jobs.sinks.jdbc.tables import Columns, JdbcTargetTables, describe_refusal
from spark_jobs.sinks.jdbc.task import OUTCOME_DDL, TaskWriter
from spark_jobs.spark.frames import number_columns
from spark_jobs.spark.gateway import count_partitions
from spark_jobs.spark.map_keys import with_text_keys
from spark_jobs.spark.worker_memory import frozen_after

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from spark_jobs.contract import JobContext, Packed, TableChanges, TableSchema
    from spark_jobs.dead_letters import DeadLetters
    from spark_jobs.sinks.jdbc.config import JdbcSettings
    from spark_jobs.sinks.jdbc.model import Connection, Dialect, JdbcPlan
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


@dataclass(slots=True)
class JdbcTotals:
    """The totals of a batch over all its tables and tasks; see ``task.Outcome``."""

    rows: int = 0
    loaded: int = 0
    skipped: int = 0
    bad: int = 0
    retries: int = 0


class Database:
    """One database that a run of the sink writes.

    Args:
        context: of the sink.
        chosen: the settings of this database.
    """

    def __init__(self, context: JobContext, chosen: JdbcSettings) -> None:
        self.context = context
        self.settings: JdbcSettings = chosen
        self.dialect: Dialect = load_dialect(chosen.login.address.dialect)
        self._tables = JdbcTargetTables(chosen, self.dialect, context.name)
        self._expired_at = time.monotonic()
        self._small = SmallBatches()

    def refusal(self, schema: TableSchema) -> str:
        """See ``contract.Sink``."""
        return describe_refusal(self.settings, self.dialect, schema)

    def write(self, tables: Sequence[TableChanges], branch: str = "") -> JdbcTotals:
        """Write the changes of a batch.

        Args:
            tables: the changes by table.
            branch: the name of a transaction that is prepared and not committed; empty: commit.
        """
        prepared = self._prepare_tables(tables)
        letters = self._make_dead_letters()
        totals = JdbcTotals()
        parallel = 1 if branch else min(self.settings.parallel_tables, len(prepared))
        if parallel <= 1:
            for changes, plan, names in prepared:
                self._add_totals(totals, self._write_table(changes, replace(plan, branch=branch), names, letters))
        else:
            with ThreadPoolExecutor(parallel) as pool:
                for done in pool.map(lambda entry: self._write_table(entry[0], entry[1], entry[2], letters), prepared):
                    self._add_totals(totals, done)
        return totals

    def give_up(self) -> None:
        """See ``contract.Sink``."""
        self._small.give_up()

    def idle(self) -> None:
        """Forget old deletes, now and then."""
        if time.monotonic() - self._expired_at < _EXPIRE_EVERY_S:
            return
        self._expired_at = time.monotonic()
        with self.connection() as connection:
            removed = self._tables.expire(connection)
        if removed:
            self.context.log.info("%d remembered deletes are older than the retention and are forgotten", removed)

    @contextlib.contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection of the driver, for as long as it is needed (one that is kept breaks unseen); errors become ours."""
        connected = False
        try:
            with contextlib.closing(self.dialect.connect(self.settings.login)) as connection:
                connected = True
                yield connection
                connection.commit()
        except Exception as error:
            fault = self.dialect.classify(error)
            if fault is None:
                raise
            said = f"{self.settings.login.text}: {' '.join(str(error).split())}"
            message = said if connected else login_problem(self.settings, error)
            if fault is Fault.RETRY:
                raise Retriable(message) from error
            raise Fatal(message) from error

    def _prepare_tables(self, tables: Sequence[TableChanges]) -> list[tuple[TableChanges, JdbcPlan, Columns]]:
        """How each table is written; asks the database only about schemas that were not there before."""
        for changes in tables:
            self._tables.check(changes.schema)
        with contextlib.ExitStack() as stack:
            connection: Connection = None
            prepared: list[tuple[TableChanges, JdbcPlan, Columns]] = []
            for changes in tables:
                plan_entry = self._tables.find_cached_plan(changes.schema)
                if plan_entry is None:
                    connection = connection or stack.enter_context(self.connection())
                    plan, names, run = self._plan_table(changes.schema, connection)
                    for statement in run:
                        self.context.log.info("%s", statement)
                    plan_entry = plan, names
                prepared.append((changes, *plan_entry))
            return prepared

    def _plan_table(self, schema: TableSchema, connection: Connection) -> tuple[JdbcPlan, Columns, list[str]]:
        """``JdbcTargetTables.plan``.

        Raises:
            SchemaRefused: the table can't follow, or the database refuses a statement for good.
        """
        try:
            return self._tables.plan(schema, connection)
        except Fatal as error:
            raise SchemaRefused(str(error), schema.namespace) from error
        except Exception as error:
            if self.dialect.classify(error) in (None, Fault.RETRY):
                raise
            message = f"table {schema.namespace}: {self.settings.login.text}: {' '.join(str(error).split())}"
            raise SchemaRefused(message, schema.namespace) from error

    def _make_dead_letters(self) -> DeadLetters | None:
        if self.context.config.get("errors.tolerance") != "all":
            return None
        from spark_jobs.dead_letters import DeadLetters

        return DeadLetters.of(self.context)

    def _write_table(
        self, changes: TableChanges, plan: JdbcPlan, names: Columns, letters: DeadLetters | None
    ) -> JdbcTotals:
        packed, columns, chosen = changes.packed, len(changes.schema.columns), self.settings
        takes_packed = packed is not None and self._takes_packed(changes, plan)
        if packed is not None and packed.rows is not None and takes_packed and self._writes_here(plan, letters):
            # Without a dead letter topic: a call into Kafka that hangs would end the driver. Tasks put bad rows aside, below.
            totals = self._check_reports(
                self._small.write(packed.rows, write_unpacked(packed, columns, chosen, TaskWriter(plan))),
                then_tasks=letters is not None,
            )
            if totals is not None:
                return totals
        write: Task = frozen_after("jdbc", TaskWriter(plan, letters))
        if packed is not None and takes_packed and self._has_enough_parts(packed):
            frame = packed.frame.coalesce(chosen.connections)
            write = write_unpacked(packed, columns, chosen, write)
        else:
            frame = self._spread_rows(project_rows(changes, names, chosen), plan)
        totals = self._check_reports(frame.mapInArrow(write, OUTCOME_DDL).collect(), then_tasks=False)
        assert totals is not None, "it raises"  # noqa: S101 - for the type checker
        return totals

    def _writes_here(self, plan: JdbcPlan, letters: DeadLetters | None) -> bool:
        """Whether the driver may write rows: where a bad one is put aside, tasks write them all once more.

        They can't in a transaction over several databases: its name may still be taken by the first try.
        """
        return letters is None or (self.settings.mode != INSERT and not plan.branch)

    def _check_reports(self, reports: Sequence[Any], *, then_tasks: bool) -> JdbcTotals | None:
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
            message = (fatal or failed)[0]["error"]
            raise Fatal(message) if fatal else Retriable(message)
        return JdbcTotals(
            *(sum(row[name] for row in reports) for name in ("rows", "loaded", "skipped", "bad", "retries"))
        )

    def _takes_packed(self, changes: TableChanges, plan: JdbcPlan) -> bool:
        """Whether rows may go from Arrow to the database as they are, and in the parts in which they come."""
        kinds = {column.type.typeName() for column in changes.schema.columns}
        if not kinds.issubset(_PLAIN):
            return False
        return not plan.commits if self.settings.mode == INSERT else self.settings.repartition != "always"

    def _has_enough_parts(self, packed: Packed) -> bool:
        chosen = self.settings
        return (
            chosen.mode == INSERT or chosen.repartition == "never" or _count_parts(packed.frame) >= chosen.connections
        )

    def _spread_rows(self, frame: DataFrame, plan: JdbcPlan) -> DataFrame:
        """The rows in as many parts as there are connections."""
        chosen, count = self.settings, self.settings.connections
        if chosen.mode == INSERT:
            if not plan.commits:
                return frame.coalesce(count)
            # One task per Kafka partition, in order: its positions are one number. Kafka's own parts may be cut smaller.
            return frame.repartition(count, "kafka_topic_", "kafka_partition_").sortWithinPartitions(*POSITION)
        if chosen.repartition == "always" or (chosen.repartition == "auto" and _count_parts(frame) < count):
            return frame.repartition(count, *(f"c{plan.columns.index(key)}" for key in plan.keys))
        return frame.coalesce(count)

    @staticmethod
    def _add_totals(totals: JdbcTotals, done: JdbcTotals) -> None:
        totals.rows += done.rows
        totals.loaded += done.loaded
        totals.skipped += done.skipped
        totals.bad += done.bad
        totals.retries += done.retries


def project_rows(changes: TableChanges, names: Columns, chosen: JdbcSettings) -> DataFrame:
    """The rows as they are loaded: the source's columns as c0, c1 ..., nested ones as JSON, then the system's columns."""
    from pyspark.sql import functions

    frame = number_columns(changes.frame, len(changes.schema.columns))
    if chosen.mode != INSERT:
        frame = frame.where(functions.col("ums_op_") != "b")  # the image before an update is history only
    kinds = {column.name: column.type for column in changes.schema.columns}
    selected: list[SparkColumn] = []
    for number, (source, _) in enumerate(names.pairs):
        column, kind = functions.col(f"c{number}"), kinds[source]
        if kind.typeName() in _NESTED:
            column = functions.to_json(with_text_keys(column, kind), WHOLE)
        elif kind.typeName() not in _PLAIN:
            column = column.cast("string")
        selected.append(column.alias(f"c{number}"))
    version = functions.col("ums_id_" if chosen.position == "ums_id" else "kafka_offset_").alias("ums_id_")
    selected += [version, functions.col("ums_ts_"), functions.col("ums_op_")]
    active = functions.when(functions.col("ums_op_") == "d", 0).otherwise(1).cast("tinyint").alias("ums_active_")
    extra_columns = system_columns(chosen)[3:]
    return frame.select(
        *selected, *(active if name == "ums_active_" else functions.col(name) for name in extra_columns)
    )


def _count_parts(frame: DataFrame) -> int:
    return count_partitions(frame)


def login_problem(chosen: JdbcSettings, error: Exception) -> str:
    """The complaint about a connection that can't be made, by the option that it is about. Pure."""
    message = " ".join(str(error).split())
    lowered = message.lower()
    name = "sink.jdbc.url"
    if "password" in lowered or "access denied" in lowered or "authentication" in lowered or "role" in lowered:
        name = "sink.jdbc.user"
    elif "ssl" in lowered or "tls" in lowered or "certificate" in lowered:
        name = "sink.jdbc.ssl.mode"
    return f"{name}: {chosen.login.text} can't be used: {message}"
