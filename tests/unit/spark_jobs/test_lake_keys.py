"""Nulls in keys of lake tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from connectors.errors import Fatal
from spark_jobs.sinks.delta.table import DeltaLake
from spark_jobs.sinks.iceberg.table import LEVELS, IcebergLake, catalog_of
from spark_jobs.sinks.jdbc.rows import POSITION
from spark_jobs.sinks.lake.model import BUCKET, Commit, LakeTableDefinition
from spark_jobs.sinks.lake.task import LakePart, UpsertTask, by_bucket

if TYPE_CHECKING:
    from pathlib import Path

    from spark_jobs.sinks.lake.model import LakeTable

COLUMNS = ("a", "b", "v", "ums_id_", "ums_ts_", "ums_op_")
TYPES = (IntegerType(), StringType(), StringType(), LongType(), TimestampType(), StringType())


def upsert(table: LakeTable, *rows: tuple[int | None, str | None, str], order: int) -> None:
    """Merge rows into the table's only bucket, in a commit."""
    values: dict[str, Any] = {
        "a": pa.array([row[0] for row in rows], pa.int32()),
        "b": pa.array([row[1] for row in rows], pa.string()),
        "v": pa.array([row[2] for row in rows], pa.string()),
        "ums_id_": pa.array([order] * len(rows), pa.int64()),
        "ums_ts_": pa.array([0] * len(rows), pa.timestamp("us", "UTC")),
        "ums_op_": pa.array(["u"] * len(rows)),
        BUCKET: pa.array([0] * len(rows), pa.int32()),
    }
    values |= {name: pa.array(range(len(rows)), pa.int64()) for name in POSITION}
    part = LakePart(table.address, table.target(), by_bucket(table.files()), 1 << 20, 100, "zstd")
    task = UpsertTask(part, COLUMNS, table.definition.key, None, 0, 0)
    for report in task(iter([pa.RecordBatch.from_pydict(values)])):
        (outcome,) = report.to_pylist()
        table.commit(Commit(outcome["added"], outcome["removed"], None, "job"))


def definition(key: tuple[str, ...]) -> LakeTableDefinition:
    fields = [StructField(name, kind) for name, kind in zip(COLUMNS, TYPES, strict=True)]
    return LakeTableDefinition(StructType([*fields, StructField(BUCKET, IntegerType())]), key, 1)


def iceberg(tmp_path: Path) -> IcebergLake:
    where = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    return IcebergLake(catalog_of(where))


@pytest.mark.parametrize("key", [("a",), ("a", "b"), ("b", "a")])
def test_a_row_with_a_null_in_its_key_is_replaced(tmp_path: Path, key: tuple[str, ...]) -> None:
    table = DeltaLake(str(tmp_path), {}).create("t", definition(key))
    upsert(table, (1, "x", "old"), (None, "x", "old"), order=1)
    upsert(table, (7, "x", "new"), (None, "x", "new"), order=2)
    rows = pa.table(table.table.scan()).select(["a", "b", "v"]).to_pylist()
    assert sorted((row["a"] or 0, row["v"]) for row in rows) == [(0, "new"), (1, "old"), (7, "new")]


def test_a_null_in_the_key_of_an_iceberg_table_is_refused(tmp_path: Path) -> None:
    table = iceberg(tmp_path).create(f"shop{LEVELS}t", definition(("a", "b")))
    upsert(table, (1, "x", "old"), order=1)
    with pytest.raises(Fatal, match=r"no value in the column b of the key \(a, b\)"):
        upsert(table, (1, None, "new"), order=2)
