"""The Iceberg sink beyond the kit: positions, remembered deletes, foreign commits, upkeep, refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import ArrayType, IntegerType

from spark_jobs.sinks.iceberg.table import IcebergTable
from spark_jobs.testing.kit import Kit
from tests.integration.spark_jobs import lake_cases
from tests.integration.spark_jobs.iceberg.test_iceberg_conformance import IcebergTarget
from tests.integration.spark_jobs.lake_cases import Lakes

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_jobs.contract import TableSchema
    from spark_jobs.testing import SinkTarget


def _append(target: SinkTarget, table: TableSchema) -> None:
    """Another program appends nothing: a snapshot that the batch has not seen."""
    assert isinstance(target, IcebergTarget)
    other = target.table(table)
    other.append(other.scan().to_arrow().slice(0, 0))


@pytest.fixture
def lakes(spark: SparkSession, tmp_path: Path) -> Lakes:
    def target(**options: str) -> IcebergTarget:
        return IcebergTarget(tmp_path, **{f"sink.iceberg.{name}": value for name, value in options.items()})

    def files(target: SinkTarget, table: TableSchema) -> int:
        assert isinstance(target, IcebergTarget)
        return len(list(target.table(table).scan().plan_files()))

    return Lakes(spark, target, _append, files, "sink.iceberg.")


def test_inserts_are_exactly_once_by_offset(lakes: Lakes) -> None:
    lake_cases.inserts_are_exactly_once_by_offset(lakes)


def test_real_deletes_are_remembered_in_the_side_table(lakes: Lakes) -> None:
    lake_cases.remembered_deletes_are_forgotten_after_the_retention(lakes)


@pytest.mark.parametrize("mode", ["upsert", "insert"])
def test_a_foreign_commit_is_no_loss(lakes: Lakes, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    lake_cases.a_foreign_commit_is_no_loss(lakes, monkeypatch, IcebergTable, mode)


@pytest.mark.parametrize("mode", ["upsert", "insert"])
def test_files_stay_few(lakes: Lakes, mode: str) -> None:
    lake_cases.files_stay_few(lakes, mode)


def test_types_that_no_type_holds_are_refused(lakes: Lakes) -> None:
    lake_cases.types_that_no_type_holds_are_refused(lakes)


def test_other_keys_and_modes_are_refused(lakes: Lakes) -> None:
    lake_cases.other_keys_and_modes_are_refused(lakes)


def test_nested_keys_are_refused(lakes: Lakes) -> None:
    """An identifier field is of a primitive type."""
    table = lake_cases.nested_key(ArrayType(IntegerType()))
    assert "the column c of the key has the type array" in lakes.kit().make().refusal(table)
    assert lakes.kit(mode="insert").make().refusal(table) == ""


def test_nested_columns_grow(lakes: Lakes) -> None:
    lake_cases.nested_columns_grow(lakes)


def test_check_names_the_option(spark: SparkSession, tmp_path: Path) -> None:
    kit = Kit(IcebergTarget(tmp_path, **{"sink.iceberg.table": "fixed", "sink.iceberg.namespace": "shop"}), spark)
    (complaint,) = kit.kind.check(kit.config(**{"sink.iceberg.catalog.uri": "sqlite:////nowhere/catalog.db"}))
    assert complaint.startswith("sink.iceberg.namespace: the sql catalog can't be used")
    assert kit.kind.check(kit.config()) == []
    lake_cases.check_names_the_option(kit, "sink.iceberg.")
