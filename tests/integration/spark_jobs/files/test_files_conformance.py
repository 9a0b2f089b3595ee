"""The conformance kit on the files sink, in Parquet; what depends on the format in ORC, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs import history
from spark_jobs.testing import SinkTarget, Supports, cases, check_sink
from tests.support.kit_cases import kit_cases

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_jobs.contract import Column, TableSchema


class FilesTarget(SinkTarget):
    """A folder."""

    sink_type = "files"
    supports = Supports(upsert=False, ordering=False, remembers_deletes=False, transactions=True)

    def __init__(self, spark: SparkSession, path: Path, **options: str) -> None:
        self.spark = spark
        self.path = path
        self._options = options

    def options(self) -> Mapping[str, str]:
        return {"sink.files.path": str(self.path), **self._options}

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        tables = history.find_tables(self.spark, str(self.path))
        if schema.namespace not in {name for table in tables for name in table.namespaces}:
            return []
        rows = history.read(self.spark, str(self.path), schema.namespace).collect()
        return [row.asDict(recursive=True) for row in rows]

    def stored(self, column: Column, value: Any) -> Any:
        """Spark's rows have timestamps in local time, without a zone."""
        return value.astimezone().replace(tzinfo=None) if column.type.typeName() == "timestamp" else value

    def folder(self) -> Path:
        return self.path


@pytest.mark.parametrize(
    "case",
    # Each kill costs the start of a JVM; test_files_process.py kills a whole job in every run.
    kit_cases(cases(), ["killed_at_every_step"]),
)
def test_conformance(case: str, spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    check_sink(FilesTarget(spark, tmp_path), spark=spark, bootstrap=bootstrap, only=case)


@pytest.mark.parametrize(
    "case",
    [
        "nulls_and_absent_columns",
        "every_type",
        "schema_evolution",
        "type_widening",
        "unicode_names",
        "emoji_names",
        "reserved_words",
        "large_values",
    ],
)
def test_conformance_of_orc(case: str, spark: SparkSession, tmp_path: Path) -> None:
    target = FilesTarget(spark, tmp_path, **{"sink.files.format": "orc"})
    target.waivers = {"unicode_names": "ORC's library can't read a column whose name has a backtick"}
    check_sink(target, spark=spark, only=case)
