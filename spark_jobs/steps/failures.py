"""Rows that a Python task of a step can't compute: how a task names them, and how the batch continues without them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from spark_jobs.contract import SYSTEM_COLUMNS, TableChanges
from spark_jobs.spark.frames import number_columns
from spark_jobs.steps.contract import BadRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from spark_jobs.contract import TableSchema
    from spark_jobs.steps.contract import StepRun, StepTable

    Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: The column with the reason why a row is bad; null for good rows. Only in guarded passes.
REASON: Final = "millrace_reason_"


class RowFailure(Exception):
    """A row is bad: fails the batch, which is then repeated in a guarded pass.

    It is not one of Millrace's own errors: those say what the frame has to do.
    """


def map_rows(step: str, table: StepTable, planned: TableSchema, task: Task, run: StepRun) -> StepTable:
    """A table whose rows go through a Python task. Lazy, but the rows of a guarded pass are kept until the batch is written.

    They are computed once then: a lookup may answer otherwise the next time, and a row that is left out must be put aside.

    Args:
        step: the name of the step.
        table: the input.
        planned: the table after the step.
        task: gets the table's columns as c0, c1 ..., then the system columns. It gives the planned table's columns in the same
            way, in a guarded pass ``REASON`` after them, then the system columns.
        run: the pass.
    """
    from pyspark.sql import types as t

    schema = table.changes.schema
    frame = number_columns(table.changes.frame, len(schema.columns))
    # All may be null: an update may become a delete.
    fields = [t.StructField(f"c{number}", column.type) for number, column in enumerate(planned.columns)]
    if run.guarded:
        fields.append(t.StructField(REASON, t.StringType()))
    rows = frame.mapInArrow(task, t.StructType([*fields, *frame.schema.fields[len(schema.columns) :]]))
    if run.guarded:
        rows = rows.persist()
        run.persisted.append(rows)
        run.bad.append(BadRows(step, schema.namespace, rows.where(f"{REASON} IS NOT NULL"), {}))
        rows = rows.where(f"{REASON} IS NULL").drop(REASON)
    names = [column.name for column in planned.columns]
    return replace(table, changes=TableChanges(planned, rows.toDF(*names, *SYSTEM_COLUMNS)))
