"""Batches with a row that a step can't compute, through the frame of a job with a sink that has seen such a batch before."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pyarrow as pa

from connectors.options import ConfigDef
from spark_jobs.config import job_files
from spark_jobs.config.schema_options import SchemaPolicies
from spark_jobs.contract import Batch, JobContext, SchemaRefused, Sink, Source
from spark_jobs.execution.batches import JobBatches
from spark_jobs.inputs.contract import Input, InputBatch
from spark_jobs.job import Job
from spark_jobs.reports.progress import EventWriter
from spark_jobs.rows.schema_watch import SchemaWatch
from spark_jobs.spark.checkpoint import LocalFolder
from tests.integration.spark_jobs.steps import test_windows
from tests.integration.spark_jobs.steps.event_streams import Event, schema, to_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.contract import TableChanges, TableSchema
    from spark_jobs.execution.retries import StepRetries


class Target(Sink):
    """A sink that does with a batch what a test says."""

    config_def: ClassVar[ConfigDef] = ConfigDef([])
    guarantees: ClassVar[tuple[str, ...]] = ("exactly-once",)

    def __init__(self, context: JobContext, act: Callable[[Batch], int]) -> None:
        super().__init__(context)
        self.act = act

    def write(self, batch: Batch) -> int:
        return self.act(batch)


class Orders(Source):
    """Gives the events of the batch."""

    config_def: ClassVar[ConfigDef] = ConfigDef([])
    batches: ClassVar[dict[int, Sequence[Event]]] = {}

    def changes(self, batch: Batch) -> list[TableChanges]:
        return to_changes(self.context.spark, self.batches[batch.id])

    def schemas(self) -> list[TableSchema]:
        return [schema("shop.orders")]


class Records(Input):
    """Gives a record for each event."""

    def __init__(self) -> None:
        pass

    def position(self, batch: int) -> Any:
        return {"batch": batch}

    @classmethod
    def position_files(cls, folder: Any, batch: int) -> list[str]:
        return [f"{folder}/{batch}"]

    def stream(self, spark: SparkSession) -> DataFrame:
        del spark
        raise AssertionError("the test gives its batches itself")

    def batch(self, frame: DataFrame, number: int) -> InputBatch:
        return InputBatch(frame, self.position(number), {}, 1)


class Once:
    """Runs a step of a job, which must not need another try."""

    def retry(self, part: str, step: Callable[[], Any], **_: Any) -> Any:
        del part
        return step()


def make_batches(spark: SparkSession, folder: Path, act: Callable[[Batch], int]) -> JobBatches:
    config, problems = job_files.check_job(
        {
            "name": "j", "kafka.bootstrap.servers": "b:9092", "source.topics": "t", "source.format": "debezium",
            "sink.type": "console", "errors.tolerance": "all", "sink.schema.changes": "try_evolve",
            "checkpoint.location": str(folder),
            **{f"transform.{name}": value for name, value in test_windows.steps("tumbling").items()},
        }
    )  # fmt: skip
    assert config is not None, problems

    class TestJob(Job):
        def sink_class(self) -> type[Sink]:
            return cast("type[Sink]", lambda context: Target(context, act))

        def source_class(self) -> type[Source]:
            return Orders

    batches = JobBatches(TestJob("j", config), cast("StepRetries", Once()))
    checkpoint = LocalFolder(folder)
    context = JobContext("j", config, spark, logging.LoggerAdapter(logging.getLogger("test"), {}))
    watch = SchemaWatch(SchemaPolicies.of(config), checkpoint, EventWriter("j", None), tolerant=True)
    batches.begin(context, Records(), checkpoint, watch)
    return batches


def raw(spark: SparkSession, events: Sequence[Event]) -> DataFrame:
    return spark.createDataFrame(
        pa.table(
            {
                "topic": pa.array(["t" for _ in events]),
                "partition": pa.array([event.id % 2 for event in events], pa.int32()),
                "offset": pa.array([event.id for event in events], pa.int64()),
                "key": pa.array([b"" for _ in events]),
                "value": pa.array([b"" for _ in events]),
            }
        )
    )


def counted(batch: Batch) -> list[tuple[int, int]]:
    """The windows of a batch: group and rows."""
    return sorted(
        (row["Group"], row["n"])
        for table in batch.changes()
        if table.schema.namespace == "w"
        for row in table.frame.collect()
    )


FIRST = [Event("shop.orders", 1, 1, 1, 5), Event("shop.orders", 2, 1, 2, 5, "u"), Event("shop.orders", 3, 1, 3, 5)]
SECOND = [Event("shop.orders", 4, 2, 40, 5)]


def test_a_batch_that_the_sink_has_already_still_gives_the_state_without_its_bad_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    windows: list[tuple[int, int]] = []

    def act(batch: Batch) -> int:
        # The log of a sink says that this batch is committed: a crash came before the steps' state was written.
        if batch.id == 0:
            return 0
        windows.extend(counted(batch))
        return len(windows)

    Orders.batches = {0: FIRST, 1: SECOND}
    batches = make_batches(spark, tmp_path, act)
    for number, events in enumerate((FIRST, SECOND)):
        batches.write(raw(spark, events), number)
    assert windows == [(1, 2)]
    assert batches.read_metrics()["dead_letters_total"] == 1


def test_a_batch_with_bad_rows_and_a_table_that_the_target_refuses_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    late: list[list[int]] = []

    def act(batch: Batch) -> int:
        ids = [
            row["id"]
            for table in batch.changes()
            if table.schema.namespace == "w_late"
            for row in table.frame.collect()
        ]
        late.append(ids)
        if len(late) == 2:  # with the rows of the batch, after bad ones were put aside
            raise SchemaRefused("the target can't follow", "shop.others")
        return len(ids)

    Orders.batches = {0: SECOND, 1: [*FIRST, Event("shop.others", 5, 1, 1, 1)]}
    batches = make_batches(spark, tmp_path, act)
    for number, events in Orders.batches.items():
        batches.write(raw(spark, events), number)
    assert [sorted(ids) for ids in late] == [[], [1, 3], [1, 3]]
    assert batches.read_metrics()["dead_letters_total"] == 2  # the bad row, and that of the new table
