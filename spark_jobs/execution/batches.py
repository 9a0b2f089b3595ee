"""The way of a batch: from the input through source, masks, steps and schema policies into the sink."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from spark_jobs.contract import Batch, SchemaRefused
from spark_jobs.dead_letters import DeadLetters
from spark_jobs.flows.lag import demand_others
from spark_jobs.kafka import ranges
from spark_jobs.metrics import PREFIX
from spark_jobs.reports import troubles
from spark_jobs.reports.heartbeats import Heartbeats
from spark_jobs.rows.masked_frames import NoRecords, mask_changes
from spark_jobs.rows.masks import rules_of
from spark_jobs.rows.refusals import select_accepted
from spark_jobs.steps.flow import StepFlow, empty_changes
from spark_jobs.steps.options import build_functions, build_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from spark_jobs.contract import JobContext, Sink, Source, TableSchema
    from spark_jobs.execution.retries import StepRetries
    from spark_jobs.inputs.contract import Input
    from spark_jobs.job import Job
    from spark_jobs.rows.schema_watch import SchemaWatch
    from spark_jobs.spark.checkpoint import Folder

_T = TypeVar("_T")
#: The longest pause before the input is looked at again: whoever waits for a topic or a folder wants its records at once.
LOOK_S: Final = 2.0


class JobBatches:
    """Writes the batches of one run.

    Args:
        job: what runs.
        retries: of the run.

    Attributes:
        context: of the sink and the source.
        sink: gets the batches.
        source: makes changes of records; None until a sink asks for some.
        flow: the steps between them.
    """

    def __init__(self, job: Job, retries: StepRetries) -> None:
        self._job = job
        self._retries = retries
        self._masks = rules_of(job.config)
        self.flow = StepFlow(build_steps(job.config), build_functions(job.config), job.checkpoint)
        self.source: Source | None = None
        self.context: JobContext
        self.sink: Sink
        self._input: Input
        self._folder: Folder
        self._schemas: SchemaWatch

    def begin(self, context: JobContext, job_input: Input, folder: Folder, schemas: SchemaWatch) -> None:
        """Make the sink, which the caller opens.

        Args:
            context: of the sink and the source.
            job_input: gives the records.
            folder: the checkpoint.
            schemas: watches the tables' columns.
        """
        self.context = context
        self._input = job_input
        self._folder = folder
        self._schemas = schemas
        self.sink = self._job.sink_class()(context)

    def close(self) -> None:
        """Close sink, source and steps."""
        for part in (self.sink, self.source, self.flow):
            if part is not None:
                part.close()

    def read_metrics(self) -> dict[str, Any]:
        """The metrics of the run so far, by name without prefix."""
        metrics = {name.removeprefix(PREFIX): value for name, value in dict(self.context.metrics).items()}
        metrics["schema_changes_total"] = self._schemas.reported
        if self.context.dead_letters is not None and self.context.dead_letters.counter is not None:
            metrics["dead_letters_total"] = self.context.dead_letters.counter.value
        return metrics

    def write(self, frame: DataFrame, number: int) -> dict[str, Any]:
        """Write a batch; blocks until the sink has it. Returns what the event of its commit says, and its ``position``."""
        begin, begun_s = time.monotonic(), time.time()
        read = self._input.batch(frame, number)
        frame = read.raw
        decoded: list[Any] = []
        masks = self._masks

        def changes() -> list[Any]:
            if not decoded:
                decoded.append(self._decode(batch))
            result: list[Any] = decoded[0]
            return result

        def attempt(step: Callable[[], _T]) -> _T:
            try:
                return step()
            except Exception as error:
                if not self._may_leave_out(error, frame):
                    raise
                decoded.clear()
                return attempt(step)

        def commit_state() -> None:
            attempt(changes)  # a sink that has the batch already did not ask for it
            self.flow.commit()

        takes_rows = self.sink.takes_rows and not masks and not self.flow
        batch = sink_batch = Batch(number, frame, read.ranges, changes, takes_rows=takes_rows)
        if (masks or self.flow) and not self._job.materializes:
            sink_batch = replace(batch, raw=NoRecords())  # type: ignore[arg-type]  # it refuses whatever is asked
        try:
            written = self._retries.retry(
                troubles.BATCH, lambda: attempt(lambda: self.sink.write(sink_batch)), batch=number
            )
            if self.flow.stateful:
                self._retries.retry(troubles.BATCH, commit_state, batch=number)
            self._retries.retry(troubles.BATCH, lambda: self.flow.drop_left_states(self._folder), batch=number)
        finally:
            self.flow.end_batch()
        Heartbeats.of(self.context).written(begun_s)
        self.context.metrics.update(self.flow.measure())
        if decoded and self.source is not None:
            self.source.written()
            self._schemas.written(number)
        took = time.monotonic() - begin
        return {
            "batch": number,
            "position": read.position,
            "rows": read.rows,
            "written": written,
            "duration_ms": round(took * 1000),
            "rows_per_s": round(read.rows / max(took, 1e-3), 1),
        }

    def _decode(self, batch: Batch) -> list[Any]:
        """The changes of a batch, behind masks, steps and what the sink accepts."""
        source, spark, masks = self._get_source(), self.context.spark, self._masks
        tables = self.flow.apply(
            mask_changes(source.changes(batch), masks),
            spark,
            lambda: mask_changes(empty_changes(spark, source.schemas()), masks),
            batch.id,
        )
        letters = DeadLetters.of(self.context)
        tables = self._schemas.apply(tables)
        return select_accepted(tables, self._describe_refusal, source, letters, batch.raw, masked=bool(masks))

    def _may_leave_out(self, error: Exception, frame: DataFrame) -> bool:
        """Whether the batch can be written without what led to an error: a change of a structure, or rows of steps."""
        if isinstance(error, SchemaRefused):
            return self._schemas.fall_back(error)
        return self.flow.recover(error, frame, DeadLetters.of(self.context), masked=bool(self._masks))

    def wait_for_others(self, number: int) -> None:
        """Wait while another sink of the flow is further behind than ``sinks.max.lag.records`` allows."""
        member = self._job.membership
        if member is None or member.max_lag < 0:
            return
        start = ranges.start_of(self._folder, number)
        self._retries.retry(
            troubles.SINKS,
            lambda: demand_others(member, start, self.context.spark),
            batch=number,
            longest_s=LOOK_S,
            forever=True,
        )

    def _describe_refusal(self, schema: TableSchema) -> str:
        return self._schemas.refusal(schema) or self.sink.refusal(schema)

    def _get_source(self) -> Source:
        if self.source is None:
            self.source = self._job.source_class()(self.context)
        return self.source
