"""A job from Kafka into files, killed without warning, its checkpoint lost: every record is in the history exactly once."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from spark_jobs import history
from tests.integration.spark_jobs.files.killed_rows import files_job, topic_of_rows
from tests.support.job_process import Job

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

RECORDS = 500


@pytest.mark.proves("into files", "exactly-once", killed=["driver"])
def test_a_killed_job_that_loses_its_checkpoint(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    with topic_of_rows(bootstrap, RECORDS) as topic:
        limits = {"source.max.offsets.per.trigger": "100", "sink.files.rolling.files": "4"}
        config = {**files_job(bootstrap, topic, str(tmp_path / "history"), tmp_path), **limits}
        job = Job(config, tmp_path / "first")
        job.start()
        try:
            job.wait_rows(200, 240)
        finally:
            job.kill()
        before = history.read(spark, str(tmp_path / "history")).count()
        assert 200 <= before < RECORDS, "killed in the middle"
        shutil.rmtree(tmp_path / "checkpoint")
        second_job = Job(
            {**config, "trigger.mode": "available-now", "source.max.offsets.per.trigger": "250"}, tmp_path / "second"
        )
        second_job.start()
        assert second_job.process.wait(300) == 0, second_job.log()
        rows = history.read(spark, str(tmp_path / "history"))
        assert sorted(row.id for row in rows.select("id").collect()) == list(range(RECORDS))
        assert rows.select("kafka_partition_", "kafka_offset_").distinct().count() == RECORDS
        files = list((tmp_path / "history" / topic).glob("ums_date_=*/*.parquet"))
        assert spark.read.parquet(*map(str, files)).count() == RECORDS, "an available-now job leaves finished files"
