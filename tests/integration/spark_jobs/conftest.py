"""One Spark session for all tests of jobs in this process; jobs that run as processes bring their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_jobs.spark.session import build_session
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session with the jars of jobs and of Delta."""
    session = build_session(
        "tests",
        master="local[2]",
        extra_jars=("delta",),
        conf={
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": " ".join(FAST_START),
        },
    )
    yield session
    session.stop()
