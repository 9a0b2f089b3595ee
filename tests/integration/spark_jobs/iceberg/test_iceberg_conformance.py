"""The conformance kit on the Iceberg sink, with a catalog in SQLite; pyiceberg's own scan reads back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from spark_jobs.testing import SinkTarget, Supports, cases, check_sink
from tests.integration.spark_jobs.lake_cases import INSERT_CASES, INSERTS, REAL_DELETE_CASES, SLOW
from tests.support.kit_cases import kit_cases

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

    from spark_jobs.contract import TableSchema


class IcebergTarget(SinkTarget):
    """A catalog of tables in a folder."""

    sink_type = "iceberg"
    supports = Supports(transactions=True)

    def __init__(self, path: Path, **options: str) -> None:
        self.path = path
        self._options = options

    def catalog_options(self) -> dict[str, str]:
        return {
            "name": "shop",
            "uri": f"sqlite:///{self.path}/catalog.db",
            "warehouse": f"file://{self.path}/warehouse",
        }

    def options(self) -> Mapping[str, str]:
        catalog = {f"sink.iceberg.catalog.{name}": value for name, value in self.catalog_options().items()}
        return {"sink.iceberg.catalog.type": "sql", **catalog, "sink.iceberg.buckets": "2", **self._options}

    def table(self, schema: TableSchema) -> Table:
        """As another program finds it."""
        catalog = SqlCatalog("shop", **{k: v for k, v in self.catalog_options().items() if k != "name"})
        return catalog.load_table(
            tuple(schema.namespace.split(".", 1)) if "." in schema.namespace else ("default", schema.namespace)
        )

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        try:
            rows = self.table(schema).scan().to_arrow()
        except NoSuchTableError:
            return []
        listed: list[dict[str, Any]] = rows.to_pylist(maps_as_pydicts="strict")
        return [row for row in listed if row.get("ums_active_") != 0]

    def folder(self) -> Path:
        return self.path


@pytest.mark.proves("into iceberg upsert", "exactly-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize("case", kit_cases(cases(), SLOW))
def test_conformance(case: str, spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    check_sink(IcebergTarget(tmp_path), spark=spark, bootstrap=bootstrap, only=case)


@pytest.mark.parametrize("case", kit_cases(REAL_DELETE_CASES, SLOW))
def test_conformance_of_real_deletes(case: str, spark: SparkSession, tmp_path: Path) -> None:
    check_sink(IcebergTarget(tmp_path, **{"sink.iceberg.delete.mode": "real"}), spark=spark, only=case)


@pytest.mark.proves("into iceberg insert", "exactly-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize("case", kit_cases(INSERT_CASES, SLOW))
def test_conformance_of_inserts(case: str, spark: SparkSession, tmp_path: Path) -> None:
    target = IcebergTarget(tmp_path, **{"sink.iceberg.mode": "insert"})
    target.supports = INSERTS
    check_sink(target, spark=spark, only=case)
