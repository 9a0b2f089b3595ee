"""The conformance kit on the Delta sink; delta-rs reads back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from spark_jobs.testing import SinkTarget, Supports, cases, check_sink

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
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.slow if case == "killed_at_every_step" else ()) for case in cases()],
)
def test_conformance(case: str, spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    check_sink(DeltaTarget(tmp_path), spark=spark, bootstrap=bootstrap, only=case)


@pytest.mark.parametrize(
    "case",
    [
        "delete",
        "delete_then_insert_in_one_batch",
        "older_after_delete",
        "every_type_of_key",
        pytest.param("killed_at_every_step", marks=pytest.mark.slow),
    ],
)
def test_conformance_of_real_deletes(case: str, spark: SparkSession, tmp_path: Path) -> None:
    check_sink(DeltaTarget(tmp_path, **{"sink.delta.delete.mode": "real"}), spark=spark, only=case)


@pytest.mark.proves("into delta insert", "exactly-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize(
    "case",
    [
        "replay",
        "schema_evolution",
        "type_widening",
        "many_rows",
        pytest.param("killed_at_every_step", marks=pytest.mark.slow),
    ],
)
def test_conformance_of_inserts(case: str, spark: SparkSession, tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path, **{"sink.delta.mode": "insert"})
    target.supports = Supports(upsert=False, ordering=False, remembers_deletes=False, transactions=True)
    check_sink(target, spark=spark, only=case)
