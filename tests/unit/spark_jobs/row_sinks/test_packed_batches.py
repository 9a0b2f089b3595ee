"""Rows that may go to the tasks of row sinks as the record batches in which they came."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, TimestampType, VariantType

from spark_jobs.contract import Column, Packed, TableChanges, TableSchema
from spark_jobs.sinks.shared import writing
from spark_jobs.sinks.shared.model import RowTable
from spark_jobs.sinks.shared.options import RowSettings


def changes(*types: DataType, packed: bool = True) -> TableChanges:
    frame = cast("Any", object())
    columns = tuple(Column(f"column_{number}", kind) for number, kind in enumerate(types))
    return TableChanges(
        TableSchema("shop.orders", columns), frame, packed=Packed(frame, lambda batches: batches) if packed else None
    )


def chosen(*, ordered: bool = False) -> RowSettings:
    return RowSettings(
        mode="upsert",
        delete_mode="real",
        key_columns=(),
        batch_rows=10,
        batch_bytes=1024,
        batch_s=1,
        connections=2,
        retries=0,
        backoff_s=0,
        ordered=ordered,
        prefix="sink.test.",
    )


@pytest.mark.parametrize(
    ("rows", "settings", "parts", "expected"),
    [
        (changes(LongType(), StringType(), TimestampType()), chosen(), 2, True),
        (changes(LongType()), chosen(), 1, False),  # a second connection would have nothing to do
        (changes(LongType()), chosen(ordered=True), 2, False),
        (changes(LongType(), VariantType()), chosen(), 2, False),
        (changes(LongType(), ArrayType(VariantType())), chosen(), 2, False),
        (changes(LongType(), packed=False), chosen(), 2, False),
    ],
)
def test_flat_rows_in_enough_parts_go_as_they_are(
    rows: TableChanges, settings: RowSettings, parts: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "count_partitions", lambda _: parts)
    table = RowTable("shop.orders", tuple(column.name for column in rows.schema.columns), ("column_0",))
    assert writing.takes_packed(rows, table, settings) is expected
