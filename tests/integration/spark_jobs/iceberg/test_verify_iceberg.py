"""``millrace verify`` of a flow into Iceberg tables: rows that the sink has written, with what the topic says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from compose.local.targets.s3 import S3
from tests.integration.spark_jobs.iceberg.test_iceberg_conformance import IcebergTarget
from tests.support.verified_target import (
    VerifiedFlow,
    check_further_types,
    check_one_row_differs,
    check_parts_are_read,
    check_rows_are_compared,
    make_change,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyiceberg.table import Table
    from pyspark.sql import SparkSession


@pytest.fixture
def flow(
    spark: SparkSession, bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., VerifiedFlow]:
    def make(**options: str) -> VerifiedFlow:
        named = {f"sink.iceberg.{name.replace('_', '.')}": value for name, value in options.items()}
        properties = {"sink.type": "iceberg", **IcebergTarget(tmp_path).options(), **named}
        return VerifiedFlow(spark, bootstrap, tmp_path, capsys, properties)

    return make


@pytest.mark.parametrize("deletes", ["real", "soft"])
def test_rows_are_compared_with_the_topic(flow: Callable[..., VerifiedFlow], deletes: str) -> None:
    rows = flow(delete_mode=deletes)
    check_rows_are_compared(rows, rows.table.namespace)


@pytest.mark.slow
def test_a_table_on_s3_is_read(flow: Callable[..., VerifiedFlow], tmp_path: Path) -> None:
    with S3(tmp_path / "s3") as s3:
        s3.make_bucket("bucket")
        store = {"warehouse": "s3a://bucket/lake", "s3.endpoint": s3.url, "s3.region": "eu-central-1"}
        login = {"s3.access-key-id": "any", "s3.secret-access-key": "any"}
        check_one_row_differs(flow(**{f"catalog.{name}": value for name, value in (store | login).items()}))


def test_more_rows_than_a_part_has(flow: Callable[..., VerifiedFlow]) -> None:
    check_parts_are_read(flow())


def add_deletes(table: Table, content: DataFileContent, rows: pa.Table, columns: list[int] | None = None) -> None:
    """Deletes in a file next to the rows, as another program writes them."""
    path = f"{table.location()}/data/deletes-{content.name}.parquet"
    with table.io.new_output(path).create() as stream:
        pq.write_table(rows, stream)
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(0),
        record_count=rows.num_rows,
        file_size_in_bytes=len(table.io.new_input(path)),
        spec_id=table.spec().spec_id,
        equality_ids=columns,
    )
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
        snapshot.append_data_file(file)


def test_deletes_of_another_program_are_respected_or_refused(flow: Callable[..., VerifiedFlow], tmp_path: Path) -> None:
    rows = flow(buckets="1")
    rows.write(make_change("i", 1, 1, "one"), make_change("i", 2, 2, "two"))
    rows.send(("c", 1, "one"), ("c", 2, "two"))
    table = IcebergTarget(tmp_path).table(rows.table)
    (task,) = table.scan().plan_files()
    position = table.scan().to_arrow().column("id").to_pylist().index(2)
    deleted = pa.table({"file_path": [task.file.file_path], "pos": pa.array([position], pa.int64())})
    add_deletes(table, DataFileContent.POSITION_DELETES, deleted)
    code, report = rows.verify()
    assert (code, report["examples"]) == (1, {"missing": ['{"id":"2"}'], "extra": []})
    add_deletes(table, DataFileContent.EQUALITY_DELETES, pa.table({"id": [1]}), [1])
    assert "does not yet support equality deletes" in rows.refusal()


def test_further_types_are_compared(flow: Callable[..., VerifiedFlow]) -> None:
    check_further_types(flow())


def test_tables_that_can_not_be_read(flow: Callable[..., VerifiedFlow]) -> None:
    rows = flow()
    rows.send(("c", 1, "one"))
    # There is no table yet: all of it is missing.
    assert rows.verify()[1]["missing"] == 1
    assert "sink.iceberg.mode=insert keeps every change" in rows.refusal(**{"sink.iceberg.mode": "insert"})
    absent = {"sink.iceberg.catalog.uri": "sqlite:////nowhere/catalog.db"}
    assert "unable to open database file" in rows.refusal(**absent)
