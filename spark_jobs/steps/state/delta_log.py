"""The facts about a Delta table that its log in this JVM holds: no Spark job is needed for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_jobs.spark.gateway import java_session, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A Delta table as of its newest version.

    Attributes:
        bytes: of its files.
        partitioned_by: columns whose values divide it into folders.
        properties: as they were set.
    """

    bytes: int
    partitioned_by: list[str]
    properties: dict[str, str]


def read_facts(spark: SparkSession, path: str) -> TableFacts:
    """The facts about the table at ``path``. Blocks: the first time it reads the log."""
    log = jvm_of(spark).org.apache.spark.sql.delta.DeltaLog.forTable(java_session(spark), path)
    snapshot = log.unsafeVolatileSnapshot()
    metadata = json.loads(snapshot.metadata().json())["metaData"]
    return TableFacts(
        int(snapshot.sizeInBytes()), metadata.get("partitionColumns", []), metadata.get("configuration", {})
    )
