"""Random streams of inserts in random batches through a step that keeps state, with batches that a crash repeats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as t

from spark_jobs.config import job_files as config
from spark_jobs.contract import Column, TableChanges, TableSchema
from spark_jobs.steps.flow import StepFlow, empty_changes
from spark_jobs.steps.options import build_steps
from spark_jobs.testing.batches import make_frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from random import Random

    from pyspark.sql import SparkSession

START_US: Final = 1_780_000_000_000_000
SECOND: Final = 1_000_000


@dataclass(frozen=True)
class Event:
    """A row of a stream.

    Attributes:
        table: its table.
        id: its key.
        group: a small number, or None.
        second: its time.
        amount: a number.
        op: i, or what a step refuses.
    """

    table: str
    id: int
    group: int | None
    second: int
    amount: int
    op: str = "i"


def schema(namespace: str) -> TableSchema:
    return TableSchema(
        namespace,
        (
            Column("id", t.IntegerType(), nullable=False, key=True),
            Column("Group", t.IntegerType()),
            Column(f"amount of {namespace}", t.IntegerType()),
        ),
    )


def random_batches(source: Random, tables: Sequence[str], *, groups: int, nulls: bool) -> list[list[Event]]:
    """Batches of one history: times move on, some rows come late, batches may lack a table."""
    batches, second, number = [], 0, 0
    for _ in range(source.randint(3, 5)):
        present = [table for table in tables if source.random() < 0.75]
        events = []
        for _ in range(source.randint(0, 12) if present else 0):
            second += source.choice([0, 1, 1, 2, 3, 15])
            number += 1
            group = None if nulls and source.random() < 0.1 else source.randrange(groups)
            late = source.choice([0, 0, 0, 3, 8, 30])
            events.append(Event(source.choice(present), number, group, max(0, second - late), source.randint(0, 9)))
        batches.append(events)
    return batches


def build_flow(steps: Mapping[str, str], checkpoint: Path) -> StepFlow:
    parsed, problems = config.check_job(
        {
            "name": "j",
            "kafka.bootstrap.servers": "b:9092",
            "source.topics": "t",
            "source.format": "debezium",
            "sink.type": "console",
            **{f"transform.{name}": value for name, value in steps.items()},
        }
    )
    assert parsed is not None, problems
    return StepFlow(build_steps(parsed), checkpoint=str(checkpoint))


def to_changes(spark: SparkSession, events: Sequence[Event]) -> list[TableChanges]:
    result = []
    for table in sorted({event.table for event in events}):
        rows: list[dict[str, Any]] = [
            {
                "id": event.id,
                "Group": event.group,
                f"amount of {table}": event.amount,
                "ums_id_": event.id,
                "ums_ts_": START_US + event.second * SECOND,
                "ums_op_": event.op,
                "ums_uid_": str(event.id),
                "kafka_topic_": "t",
                "kafka_partition_": event.id % 2,
                "kafka_offset_": event.id,
            }
            for event in events
            if event.table == table
        ]
        result.append(TableChanges(schema(table), make_frame(spark, schema(table), rows)))
    return result


def run_batches(
    spark: SparkSession,
    steps: Mapping[str, str],
    tables: Sequence[str],
    batches: Sequence[Sequence[Event]],
    checkpoint: Path,
    source: Random,
) -> tuple[dict[str, list[dict[str, Any]]], StepFlow]:
    """All output rows by table; batches are repeated as after a crash before and after the state was written.

    Sinks tell by a row's position whether they have written its batch, so each row must have that of a record of the batch.
    """
    output: dict[str, list[dict[str, Any]]] = {}
    flow = build_flow(steps, checkpoint)
    empty = empty_changes(spark, [schema(table) for table in tables])
    for number, events in enumerate(batches):
        result = _run(flow, spark, number, events, empty)
        offsets = {row["kafka_offset_"] for rows in result.values() for row in rows}
        assert offsets <= {event.id for event in events}, f"batch {number}"
        crash = source.choice(["", "", "before", "after"])
        if crash == "after":
            flow.commit()
        if crash:
            flow.end_batch()
            flow = build_flow(steps, checkpoint)
            assert _run(flow, spark, number, events, empty) == result, f"batch {number}, repeated {crash} the commit"
        flow.commit()
        flow.end_batch()
        for name, rows in result.items():
            output.setdefault(name, []).extend(rows)
    return output, flow


def _run(
    flow: StepFlow, spark: SparkSession, number: int, events: Sequence[Event], empty: list[TableChanges]
) -> dict[str, list[dict[str, Any]]]:
    tables = flow.apply(to_changes(spark, events), spark, lambda: empty, number)
    return {
        table.schema.namespace: sorted((row.asDict() for row in table.frame.collect()), key=lambda row: row["ums_uid_"])
        for table in tables
    }
