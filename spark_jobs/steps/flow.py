"""Runs the steps of a job on its batches, and finds rows that a step can't compute."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from connectors.errors import Fatal, MillraceError
from spark_jobs.contract import KAFKA_COLUMNS, TableChanges
from spark_jobs.rows.refusals import put_aside
from spark_jobs.spark.causes import cause_of
from spark_jobs.steps.contract import StepRun, StepTable
from spark_jobs.steps.failures import REASON
from spark_jobs.steps.planning.names import check_names
from spark_jobs.steps.planning.unmatched import unmatched_names
from spark_jobs.steps.python.functions import register_functions
from spark_jobs.steps.state.tables import FOLDER, StepState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.contract import TableSchema
    from spark_jobs.dead_letters import DeadLetters
    from spark_jobs.spark.checkpoint import Folder
    from spark_jobs.steps.contract import BadRows, Step
    from spark_jobs.steps.python.functions import UserFunction

_log: Final = logging.getLogger(__name__)
#: How often the rows are counted of states whose steps don't do it: that takes a Spark job for each table.
_COUNT_EVERY_S: Final = 60.0
_SUBEXPRESSIONS: Final = "spark.sql.subexpressionElimination.enabled"
#: In place of a reason that may quote values of masked columns.
HIDDEN_REASON: Final = "the reason is not shown, because columns are masked"
_FIX: Final = (
    "Correct the data or the expression (try_cast and the other try_ functions give null instead of an error), or set "
    "errors.tolerance=all to put such records aside (errors.deadletterqueue.topic.name)"
)


class StepFlow:
    """The steps of a job. Used by one thread at a time.

    Args:
        steps: in order; none: changes pass as they are.
        functions: of users, that the SQL of steps may call.
        checkpoint: of the job, which keeps the states of steps; empty: no state is kept.
    """

    def __init__(self, steps: Sequence[Step], functions: Sequence[UserFunction] = (), checkpoint: str = "") -> None:
        self._steps = steps
        self._states = {step.name: StepState(checkpoint, step.name) for step in steps if step.stateful}
        self._functions = functions
        self._registered = False
        self._guarded = False
        self._tables: list[StepTable] = []
        self._run: StepRun | None = None
        #: The tables of the pass that found bad rows: what was found then and what is written are of one computation.
        self._recovered: list[TableChanges] | None = None
        self._settings: list[tuple[SparkSession, str]] = []
        self._namespaces: set[str] = set()
        self._warned: set[str] = set()
        self._batch = -1
        self._swept = False
        self._sizes: dict[str, dict[str, float]] = {}
        self._counted_at = -math.inf

    def __bool__(self) -> bool:
        return bool(self._steps)

    @property
    def combines(self) -> bool:
        """Whether a step combines tables: then it needs the schemas also of tables without a change in the batch."""
        return any(step.combines for step in self._steps)

    @property
    def stateful(self) -> bool:
        """Whether a step keeps a state: then ``apply`` and ``commit`` must be called for every batch."""
        return bool(self._states)

    def apply(
        self,
        changes: Sequence[TableChanges],
        spark: SparkSession,
        known_tables: Callable[[], Sequence[TableChanges]],
        batch: int = -1,
    ) -> list[TableChanges]:
        """The changes after all steps; lazy, but for routes by a column.

        Args:
            changes: of a batch.
            spark: the session.
            known_tables: all tables that the job has seen, with empty frames; called if steps combine tables, and for new
                tables.
            batch: its number, for steps that keep a state.

        Raises:
            StepRefused: a table can't go through a step.
            Fatal: two tables have one name after a step.
        """
        if not self._steps:
            return list(changes)
        if self._recovered is not None:
            recovered, self._recovered = self._recovered, None
            return recovered
        present = {table.schema.namespace for table in changes}
        if not present <= self._namespaces:
            self._warn_unmatched(changes, known_tables())
        absent = [table for table in known_tables() if table.schema.namespace not in present] if self.combines else []
        tables = [StepTable(table) for table in changes] + [StepTable(table, present=False) for table in absent]
        self._tables = sorted(tables, key=lambda table: table.changes.schema.namespace)
        self._batch = batch
        return self._apply_steps(self._new_run(spark, guarded=self._guarded))

    def _new_run(self, spark: SparkSession, *, guarded: bool) -> StepRun:
        if self._functions and not self._registered:
            register_functions(spark, self._functions)
            self._registered = True
        return StepRun(
            spark,
            guarded=guarded,
            functions=frozenset(function.name.lower() for function in self._functions),
            states=self._states,
        )

    def _warn_unmatched(self, changes: Sequence[TableChanges], known_tables: Sequence[TableChanges]) -> None:
        """Log names of tables in the steps that no table has, each once; called when a batch has a new table."""
        schemas = {table.schema.namespace: table.schema for table in (*known_tables, *changes)}
        self._namespaces.update(schemas)
        for unmatched in unmatched_names(self._steps, sorted(schemas.values(), key=lambda table: table.namespace)):
            name = unmatched.partition(";")[0]  # the rest lists the tables, which become more
            if name not in self._warned:
                self._warned.add(name)
                _log.warning("%s", unmatched)

    def _apply_steps(self, run: StepRun) -> list[TableChanges]:
        self.release()
        self._run = run
        tables = self._tables
        for state in self._states.values():
            state.begin(run.spark, self._batch)
        for step in self._steps:
            tables = step.apply(tables, run)
            check_names(step.name, [table.changes.schema for table in tables])
        return [table.changes for table in tables if table.present]

    def recover(self, error: Exception, raw: DataFrame, letters: DeadLetters, *, masked: bool) -> bool:
        """Look for rows that made a batch fail. Blocks: runs Spark jobs.

        Args:
            error: of the batch.
            raw: the records of the batch.
            letters: where records of such rows go.
            masked: whether the job masks columns.

        Returns:
            Whether there were some, and their records are put aside: apply the steps again, which leave them out now.

        Raises:
            Fatal: there are some, and bad records are not tolerated.
        """
        if not self._steps or self._guarded or self._run is None:
            return False
        if not isinstance(error, PySparkException | Py4JJavaError) or isinstance(cause_of(error), MillraceError):
            return False
        run = self._new_run(self._run.spark, guarded=True)
        self._guard_subexpressions(run.spark, raw.sparkSession)
        tables = self._apply_steps(run)
        recovered = False
        for bad in run.bad:
            first = bad.rows.limit(1).collect()
            if not first:
                continue
            topic, partition, offset = (first[0][name] for name in KAFKA_COLUMNS)
            where = f"step {bad.step}, table {bad.table}"
            with_reasons = REASON in bad.rows.columns
            if masked:
                reason = HIDDEN_REASON
            elif with_reasons:
                reason = first[0][REASON]
            else:
                reason = reason_for(bad, run.spark.createDataFrame(first, bad.rows.schema))
            message = f"{where}: {reason}"
            if not letters.tolerant:
                raise Fatal(f"{message} (record at {letters.where(topic, partition, offset)}). {_FIX}")
            if with_reasons and not masked:
                count = put_aside(bad.rows, raw, letters, where, masked=masked, column=REASON)
            else:
                count = put_aside(bad.rows, raw, letters, message, masked=masked)
            _log.error(
                "%s; %d records are put aside, the first at %s-%s offset %s", message, count, topic, partition, offset
            )
            recovered = True
        self._guarded = recovered
        self._recovered = tables if recovered else None
        return recovered

    def _guard_subexpressions(self, *sessions: SparkSession) -> None:
        """Keep Spark from computing an expression once that is used twice: it does so outside of what guards expressions.

        Args:
            sessions: those that plan the batch: the job's own, and the one that Spark clones for a query.
        """
        if self._settings:
            return  # an earlier try of the batch
        self._settings = [(session, str(session.conf.get(_SUBEXPRESSIONS))) for session in sessions]
        for session in sessions:
            session.conf.set(_SUBEXPRESSIONS, "false")

    def commit(self) -> None:
        """Write what steps keep of the batch, after the sink has written it. Blocks.

        Call it again after an error: it writes what is missing.
        """
        for state in self._states.values():
            state.commit()
        self._measure_states()

    def drop_left_states(self, checkpoint: Folder) -> None:
        """After a batch: remove the states of steps that the flow does not have any more. Blocks; does something once.

        Such a state lacks the batch that was done without its step, so a step of that name that comes back must not find it.
        """
        if self._swept:
            return
        for name in checkpoint.list(FOLDER):
            if name not in self._states:
                _log.warning("the step %s is not in the flow any more: its state is removed from the checkpoint", name)
                checkpoint.remove(f"{FOLDER}/{name}")
        self._swept = True

    def end_batch(self) -> None:
        """Forget the batch and release what is cached of it."""
        self.release()
        for session, setting in self._settings:
            session.conf.set(_SUBEXPRESSIONS, setting)
        self._settings = []
        self._tables, self._run, self._guarded, self._recovered = [], None, False, None

    def measure(self) -> dict[str, float]:
        """The metrics of all steps; those of one name are added up."""
        totals: dict[str, float] = {}
        for step in self._steps:
            for name, value in step.measure().items():
                totals[name] = totals.get(name, 0.0) + value
        return totals

    def _measure_states(self) -> None:
        due = time.monotonic() - self._counted_at >= _COUNT_EVERY_S
        for step in self._steps:
            if step.stateful:
                state, sizes = self._states[step.name], self._sizes.setdefault(step.name, {})
                sizes["state_bytes"] = float(state.count_bytes())
                if due and "state_rows" not in step.measure_state():
                    sizes["state_rows"] = float(state.count_rows())
        self._counted_at = time.monotonic() if due else self._counted_at

    def measure_steps(self) -> dict[str, dict[str, float]]:
        """The numbers of the steps that keep a state, by step."""
        return {
            step.name: {**self._sizes.get(step.name, {}), **step.measure_state()}
            for step in self._steps
            if step.stateful
        }

    def close(self) -> None:
        """Close the steps."""
        for step in self._steps:
            step.close()

    def release(self) -> None:
        """Release frames that steps cached."""
        if self._run is not None:
            for frame in self._run.persisted:
                frame.unpersist()
            self._run.persisted.clear()


def empty_changes(spark: SparkSession, schemas: Sequence[TableSchema]) -> list[TableChanges]:
    """Tables without a change."""
    from spark_jobs.sources.decoding import frame_type

    return [TableChanges(schema, spark.createDataFrame([], frame_type(schema))) for schema in schemas]


def reason_for(bad: BadRows, sample: DataFrame) -> str:
    """The expression that fails for the row of ``sample``, and the error."""
    from pyspark.sql import functions as f

    from spark_jobs.steps.derive import first_line

    for name, sql in bad.expressions.items():
        try:
            sample.select(f.expr(sql)).collect()
        except PySparkException as error:
            return f"{name}: {first_line(error)}"
    return "an expression fails"
