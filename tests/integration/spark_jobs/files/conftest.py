"""Makes files sinks on the session, driven by hand-made batches and a clock that tests turn."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from connectors.options import Config
from spark_jobs.contract import JobContext
from spark_jobs.sinks.files.config import CONFIG
from spark_jobs.sinks.files.sink import FilesSink

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_jobs.history.table import HistoryDirectory


@dataclass
class Sinks:
    """Makes sinks that write below ``path``; each is a new run of ``job``."""

    spark: SparkSession
    path: Path

    def make(self, job: str = "job", path: str | None = None, **options: Any) -> FilesSink:
        """A sink that is open; options without their prefix, ``_`` for ``.``."""
        raw = {"sink.files.path": path or str(self.path)} | {
            "sink.files." + name.replace("_", "."): str(value) for name, value in options.items()
        }
        config = Config(dict(CONFIG.parse(raw)), raw)
        sink = FilesSink(JobContext(job, config, self.spark, logging.LoggerAdapter(logging.getLogger("test"), {})))
        sink.open()
        return sink

    def table(self, name: str = "shop.orders") -> HistoryDirectory:
        """A table that a command would work on."""
        from spark_jobs.history.storage import HadoopStorage
        from spark_jobs.history.table import HistoryDirectory

        return HistoryDirectory(self.spark, HadoopStorage(self.spark, f"{self.path}/{name}"))


@pytest.fixture
def sinks(spark: SparkSession, tmp_path: Path) -> Sinks:
    """See ``Sinks``."""
    return Sinks(spark, tmp_path / "history")
