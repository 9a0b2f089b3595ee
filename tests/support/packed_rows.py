"""Rows of Spark's as ``contract.Packed``, as the single pass over records keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from spark_jobs.contract import Packed
from spark_jobs.sources.records.system_columns import row_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from spark_jobs.contract import TableSchema


def pack_rows(frame: DataFrame, schema: TableSchema) -> Packed:
    """The rows of ``TableChanges.frame``; lazy."""
    rows = row_schema(schema.columns, separate=False)

    def packing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            content = batch.cast(rows).serialize().to_pybytes()
            yield pa.RecordBatch.from_arrays([pa.array([content], pa.binary())], ["data"])

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for content in batch.column(0):
                yield pa.ipc.read_record_batch(content.as_buffer(), rows)

    return Packed(frame.mapInArrow(packing, "data binary"), unpack)
