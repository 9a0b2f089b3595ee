"""The Delta sink beyond the kit: positions, remembered deletes, foreign commits, upkeep, refusals, what Spark reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from spark_jobs.sinks.delta.table import DeltaLakeTable
from spark_jobs.testing import change
from spark_jobs.testing.kit import Kit
from tests.integration.spark_jobs import lake_cases
from tests.integration.spark_jobs.delta.test_delta_conformance import DeltaTarget
from tests.integration.spark_jobs.lake_cases import Lakes

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_jobs.contract import TableSchema
    from spark_jobs.testing import SinkTarget


def _path(target: SinkTarget, table: TableSchema) -> str:
    assert isinstance(target, DeltaTarget)
    return str(target.path / table.namespace.replace(".", "/"))


def _compact(target: SinkTarget, table: TableSchema) -> None:
    """Another program merges files, or (there is nothing to merge) leaves a commit."""
    foreign = DeltaTable(_path(target, table))
    before = foreign.version()
    foreign.optimize.compact()
    if foreign.version() == before:
        foreign.alter.set_table_properties({"foreign.commits": str(before)}, raise_if_not_exists=False)


@pytest.fixture
def lakes(spark: SparkSession, tmp_path: Path) -> Lakes:
    def target(**options: str) -> DeltaTarget:
        return DeltaTarget(tmp_path, **{f"sink.delta.{name}": value for name, value in options.items()})

    def files(target: SinkTarget, table: TableSchema) -> int:
        path = _path(target, table)
        return len(DeltaTable(path).file_uris())

    return Lakes(spark, target, _compact, files, "sink.delta.")


def test_inserts_are_exactly_once_by_offset(lakes: Lakes) -> None:
    lake_cases.inserts_are_exactly_once_by_offset(lakes)


def test_real_deletes_are_remembered_in_the_side_table(lakes: Lakes) -> None:
    lake_cases.remembered_deletes_are_forgotten_after_the_retention(lakes)


@pytest.mark.parametrize("mode", ["upsert", "insert"])
def test_a_foreign_commit_is_no_loss(lakes: Lakes, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    lake_cases.a_foreign_commit_is_no_loss(lakes, monkeypatch, DeltaLakeTable, mode)


@pytest.mark.parametrize("mode", ["upsert", "insert"])
def test_files_stay_few(lakes: Lakes, mode: str) -> None:
    lake_cases.files_stay_few(lakes, mode)


def test_types_that_no_type_holds_are_refused(lakes: Lakes) -> None:
    lake_cases.types_that_no_type_holds_are_refused(lakes)


def test_other_keys_and_modes_are_refused(lakes: Lakes) -> None:
    lake_cases.other_keys_and_modes_are_refused(lakes)


def test_nested_columns_grow(lakes: Lakes) -> None:
    lake_cases.nested_columns_grow(lakes)


def test_keys_may_be_nested(lakes: Lakes) -> None:
    lake_cases.keys_may_be_nested(lakes)


def test_spark_reads_the_same_rows(lakes: Lakes, spark: SparkSession) -> None:
    """Delta's own implementation understands log, statistics, buckets and names."""
    kit = lakes.kit()
    table = kit.table("spark")
    kit.write((table, [change("i", 10 + n, id=n, name=f"n {n}", amount=n / 2) for n in range(20)]))
    kit.write((table, [change("d", 40, id=3), change("u", 41, id=4, name="new")]))
    frame = spark.read.format("delta").load(_path(kit.target, table))
    names = {row["id"]: row["name"] for row in frame.where("ums_active_ = 1 AND id >= 3").collect()}
    assert names == {4: "new", **{n: f"n {n}" for n in range(5, 20)}}


def test_check_names_the_option(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    kit = Kit(DeltaTarget(tmp_path, **{"sink.delta.table": "fixed"}), spark)
    assert kit.kind.check(kit.config(**{"sink.delta.path": f"{file}/x"})) == [
        f"sink.delta.path: {file} is not a directory that can be written"
    ]
    assert kit.kind.check(kit.config()) == []
    lake_cases.check_names_the_option(kit, "sink.delta.")
