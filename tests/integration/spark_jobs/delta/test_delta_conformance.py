"""The conformance kit on the Delta sink; delta-rs reads back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from spark_jobs.testing import SinkTarget, Supports, cases, check_sink
from tests.integration.spark_jobs.lake_cases import INSERT_CASES, INSERTS, REAL_DELETE_CASES, SLOW
from tests.support.kit_cases import kit_cases

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_jobs.contract import TableSchema


class DeltaTarget(SinkTarget):
    """A folder of tables."""

    sink_type = "delta"
    supports = Supports(transactions=True)

    def __init__(self, path: Path, **options: str) -> None:
        self.path = path
        self._options = options

    def options(self) -> Mapping[str, str]:
        return {"sink.delta.path": str(self.path), "sink.delta.buckets": "2", **self._options}

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        path = str(self.path / schema.namespace.replace(".", "/"))
        if not DeltaTable.is_deltatable(path):
            return []
        rows: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist(maps_as_pydicts="strict")
        return [row for row in rows if row.get("ums_active_") != 0]

    def folder(self) -> Path:
        return self.path


@pytest.mark.proves("into delta upsert", "exactly-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize("case", kit_cases(cases(), SLOW))
def test_conformance(case: str, spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    check_sink(DeltaTarget(tmp_path), spark=spark, bootstrap=bootstrap, only=case)


@pytest.mark.parametrize("case", kit_cases(REAL_DELETE_CASES, SLOW))
def test_conformance_of_real_deletes(case: str, spark: SparkSession, tmp_path: Path) -> None:
    check_sink(DeltaTarget(tmp_path, **{"sink.delta.delete.mode": "real"}), spark=spark, only=case)


@pytest.mark.proves("into delta insert", "exactly-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize("case", kit_cases(INSERT_CASES, SLOW))
def test_conformance_of_inserts(case: str, spark: SparkSession, tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path, **{"sink.delta.mode": "insert"})
    target.supports = INSERTS
    check_sink(target, spark=spark, only=case)
