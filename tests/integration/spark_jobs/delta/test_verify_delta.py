"""``millrace verify`` of a flow into Delta tables: rows that the sink has written, with what the topic says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from compose.local.targets.s3 import S3
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

    from pyspark.sql import SparkSession


def _option(name: str) -> str:
    """The name of an option: ``_`` is a point, ``__`` one of its own."""
    return "_".join(part.replace("_", ".") for part in name.split("__"))


@pytest.fixture
def flow(
    spark: SparkSession, bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., VerifiedFlow]:
    def make(**options: str) -> VerifiedFlow:
        named = {f"sink.delta.{_option(name)}": value for name, value in options.items()}
        properties = {"sink.type": "delta", "sink.delta.path": str(tmp_path), "sink.delta.buckets": "2", **named}
        return VerifiedFlow(spark, bootstrap, tmp_path, capsys, properties)

    return make


@pytest.mark.parametrize("deletes", ["real", "soft"])
def test_rows_are_compared_with_the_topic(flow: Callable[..., VerifiedFlow], deletes: str) -> None:
    rows = flow(delete_mode=deletes)
    check_rows_are_compared(rows, rows.table.namespace.replace(".", "/"))


def test_more_rows_than_a_part_has(flow: Callable[..., VerifiedFlow]) -> None:
    check_parts_are_read(flow())


@pytest.mark.slow
def test_deletion_vectors_of_another_program_are_respected(
    flow: Callable[..., VerifiedFlow], spark: SparkSession, tmp_path: Path
) -> None:
    rows = flow()
    rows.write(make_change("i", 1, 1, "one"), make_change("i", 2, 2, "two"), make_change("i", 3, 3, "three"))
    table = f"delta.`{tmp_path / rows.table.namespace.replace('.', '/')}`"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM {table} WHERE id = 2")  # noqa: S608 - own names
    rows.send(("c", 1, "one"), ("c", 2, "two"), ("c", 3, "three"))
    code, report = rows.verify()
    assert (code, report["rows"]) == (1, {"source": 3, "topic": 2})
    assert report["examples"] == {"missing": ['{"id":"2"}'], "extra": []}


@pytest.mark.slow
def test_a_table_on_s3_is_read(flow: Callable[..., VerifiedFlow], tmp_path: Path) -> None:
    with S3(tmp_path / "s3") as s3:
        s3.make_bucket("bucket")
        rows = flow(
            path="s3a://bucket/lake",
            storage_aws__endpoint__url=s3.url,
            storage_aws__allow__http="true",
            storage_aws__region="eu-central-1",
            storage_aws__access__key__id="any",
            storage_aws__secret__access__key="any",
        )
        check_one_row_differs(rows)


def test_tables_that_can_not_be_read(flow: Callable[..., VerifiedFlow]) -> None:
    rows = flow()
    rows.send(("c", 1, "one"))
    # There is no table yet: all of it is missing.
    assert rows.verify()[1]["missing"] == 1
    assert "sink.delta.mode=insert keeps every change" in rows.refusal(**{"sink.delta.mode": "insert"})


def test_further_types_are_compared(flow: Callable[..., VerifiedFlow]) -> None:
    check_further_types(flow())


def test_a_key_that_has_two_rows_is_shown(flow: Callable[..., VerifiedFlow], tmp_path: Path) -> None:
    """A table of Delta does not keep keys unique: another program may have added a row, equal or not, of a key."""
    rows = flow()
    rows.write(make_change("i", 1, 1, "one"), make_change("i", 2, 2, "two"), make_change("i", 3, 3, "three"))
    rows.send(("c", 1, "one"), ("c", 2, "two"), ("c", 3, "three"))
    assert rows.verify()[0] == 0
    table = DeltaTable(tmp_path / rows.table.namespace.replace(".", "/"))
    content = table.to_pyarrow_table()
    chosen = content.filter(pc.is_in(content["id"], pa.array([1, 2])))
    names = pa.array(["one" if key == 1 else "older" for key in chosen["id"].to_pylist()])
    write_deltalake(table, chosen.set_column(chosen.schema.get_field_index("name"), "name", names), mode="append")
    code, report = rows.verify()
    assert (code, report["missing"], report["unsettled"], report["rows"]) == (1, 0, 0, {"source": 3, "topic": 5})
    assert report["extra"] == 2
    assert set(report["examples"]["extra"]) == {'{"id":"1"}', '{"id":"2"}'}
