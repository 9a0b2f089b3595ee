"""A job whose database, Kafka or registry is not where it says: what, where and how to fix it, while the job runs."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from compose.local.ports import free_ports
from tests.integration.spark_jobs.frame.test_runs import run
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compose.local.postgres import Postgres
    from tests.integration.spark_jobs.frame.bench import Bench


def reported(spark: SparkSession, job: dict[str, str]) -> dict[str, Any]:
    """The first trouble or failure that a job reports."""
    going = run(spark, job)
    eventually(lambda: going.of("retrying") or going.of("failed"), "an error is reported")
    going.runner.stop("test")
    going.end()
    return (going.of("retrying") + going.of("failed"))[0]


def database_job(bench: Bench, postgres: Postgres, url: str, **options: str) -> dict[str, str]:
    topic = bench.topic(partitions=1)
    bench.send(topic, [json.dumps({"id": 1})])
    job = bench.job(
        topic,
        **{
            "source.format": "plain",
            "source.key.encoding": "bytes",
            "sink.type": "jdbc",
            "sink.jdbc.url": url,
            "sink.jdbc.user": postgres.user,
            "sink.jdbc.password": postgres.password,
            "sink.jdbc.mode": "insert",
            "sink.jdbc.table": "t",
            **options,
        },
    )
    del job["sink.rows.path"]
    return job


def test_a_wrong_database_user_and_port(spark: SparkSession, bench: Bench, postgres: Postgres) -> None:
    host, _, database = postgres.url.rpartition("/")
    said = reported(spark, database_job(bench, postgres, f"{host}/absent"))
    assert said["event"] == "failed"
    assert said["error"].startswith("sink.jdbc.url: ")
    assert f"{host.rpartition('/')[2]}/absent" in said["error"]
    assert 'database "absent" does not exist' in said["error"]
    said = reported(spark, database_job(bench, postgres, postgres.url, **{"sink.jdbc.user": "nobody"}))
    assert said["event"] == "failed"
    assert said["error"].startswith("sink.jdbc.user: ")
    assert "nobody" in said["error"]
    address, _, _ = host.rpartition(":")
    port = free_ports([None])[0]
    said = reported(spark, database_job(bench, postgres, f"{address}:{port}/{database}"))
    assert said["event"] == "retrying"
    assert said["error"].startswith("sink.jdbc.url: ")
    assert f":{port}" in said["error"]
    assert "onnection refused" in said["error"]


def test_an_absent_kafka(spark: SparkSession, bench: Bench) -> None:
    port = free_ports([None])[0]
    said = reported(spark, bench.job("any") | {"kafka.bootstrap.servers": f"127.0.0.1:{port}"})
    assert (said["event"], said["part"]) == ("retrying", "start")
    assert f"Kafka at 127.0.0.1:{port} does not answer" in said["error"]
    assert "check kafka.bootstrap.servers" in said["error"]


def test_an_absent_registry(spark: SparkSession, bench: Bench) -> None:
    port = free_ports([None])[0]
    topic = bench.topic(partitions=1)
    bench.producer.produce(topic, key=b"k", value=struct.pack(">bI", 0, 7) + b"\x02", partition=0)
    assert bench.producer.flush(30) == 0
    job = bench.job(
        topic,
        **{
            "source.format": "plain",
            "source.value.encoding": "avro",
            "source.key.encoding": "bytes",
            "source.schema.registry.url": f"http://127.0.0.1:{port}",
            "sink.type": "console",
        },
    )
    del job["sink.rows.path"]
    said = reported(spark, job)
    assert said["event"] == "retrying"
    assert f"127.0.0.1:{port}" in said["error"]
    assert "Check schema.registry.url and the registry" in said["error"]
