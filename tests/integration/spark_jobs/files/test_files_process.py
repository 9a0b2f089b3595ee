"""A job from Kafka into files, killed without warning, its checkpoint lost: every record is in the history exactly once."""

from __future__ import annotations

import json
import secrets
import shutil
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from spark_jobs import history
from tests.support.job_process import Job
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

RECORDS = 500


@pytest.mark.proves("into files", "exactly-once", killed=["driver"])
def test_a_killed_job_that_loses_its_checkpoint(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    topic = f"files-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    try:
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(RECORDS):
            producer.produce(
                topic,
                key=json.dumps({"id": number}),
                value=json.dumps({"id": number, "text": f"t{number}"}),
                partition=number % 2,
            )
        assert producer.flush(30) == 0
        config = {
            "name": "files-kill",
            "kafka.bootstrap.servers": bootstrap,
            "source.topics": topic,
            "source.format": "plain",
            "source.value.encoding": "json",
            "source.starting.offsets": "earliest",
            "source.max.offsets.per.trigger": "100",
            "sink.type": "files",
            "sink.files.path": str(tmp_path / "history"),
            "sink.files.rolling.files": "4",
            "checkpoint.location": str(tmp_path / "checkpoint"),
            "state.dir": str(tmp_path / "state"),
            "trigger.interval.ms": "0",
            "spark.master": "local[2]",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": " ".join(FAST_START),
        }
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
    finally:
        admin.delete_topics([topic])[topic].exception(30)
