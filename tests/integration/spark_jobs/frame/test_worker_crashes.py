"""Real Python workers of Spark are killed under jobs: every row once, and an end for a batch that crashes them each time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from spark_jobs import history
from tests.integration.spark_jobs.frame.test_runs import NOW, run
from tests.support.eventually import eventually
from worker.process_tree import list_children

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compose.local.postgres import Postgres
    from tests.integration.spark_jobs.frame.bench import Bench
    from tests.integration.spark_jobs.frame.test_runs import Run

RECORDS = 2_000
KILLS = 3


def kill_workers(spark: SparkSession) -> int:
    """Kill all Python workers of the session, but not the daemon that forks them; how many there were."""
    gateway: Any = spark.sparkContext._gateway
    workers = [worker for daemon in list_children(gateway.proc.pid) for worker in list_children(daemon)]
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    return len(workers)


def run_with_kills(spark: SparkSession, job: dict[str, str]) -> Run:
    """Run a job over the existing records, and kill its workers until ``KILLS`` batches were retried."""
    going = run(spark, job)
    for number in range(1, KILLS + 1):

        def crashed(count: int = number) -> bool:
            if len(going.of("retrying")) < count and not going.code:
                kill_workers(spark)
            return len(going.of("retrying")) >= count or bool(going.code)

        # Not too often: a batch whose workers never get on fails the job.
        eventually(crashed, f"{number} crashes are seen", 120, every=0.1)

        def progressed(before: int = len(going.of("progress"))) -> bool:
            return len(going.of("progress")) > before or bool(going.code)

        eventually(progressed, "a batch is done after a crash", 120)
    assert going.end() == 0, going.events[-1]
    crashes = going.of("retrying")
    assert len(crashes) >= KILLS
    assert all("a Python worker process died" in crash["error"] for crash in crashes)
    return going


def plain(bench: Bench, **options: str) -> tuple[str, dict[str, str]]:
    """A job over a filled topic of plain JSON, in twelve batches."""
    topic = bench.topic(partitions=2)
    for partition in (0, 1):
        bench.send(
            topic, [json.dumps({"id": number}) for number in range(RECORDS) if number % 2 == partition], partition
        )
    job = bench.job(
        topic,
        **NOW,
        **{
            "source.format": "plain",
            "source.value.encoding": "json",
            "source.key.encoding": "bytes",
            "source.max.offsets.per.trigger": str(RECORDS // 12),
            "trigger.interval.ms": "0",
            "guarantee": "exactly-once",
            **options,
        },
    )
    del job["sink.rows.path"]
    return topic, job


@pytest.mark.slow
def test_files_hold_every_row_once(spark: SparkSession, bench: Bench) -> None:
    path = str(bench.folder / "history")
    _, job = plain(bench, **{"sink.type": "files", "sink.files.path": path})
    run_with_kills(spark, job)
    rows = history.read(spark, path)
    assert sorted(row.id for row in rows.select("id").collect()) == list(range(RECORDS))


def test_a_table_holds_every_row_once(spark: SparkSession, bench: Bench, postgres: Postgres) -> None:
    topic, job = plain(
        bench,
        **{
            "sink.type": "jdbc",
            "sink.jdbc.url": postgres.url,
            "sink.jdbc.user": postgres.user,
            "sink.jdbc.password": postgres.password,
            "sink.jdbc.mode": "insert",
        },
    )
    table = topic.replace("-", "_")
    run_with_kills(spark, job | {"sink.jdbc.table": table})
    with psycopg.connect(postgres.dsn) as connection:
        rows = connection.execute(f"SELECT id FROM {table} ORDER BY id").fetchall()  # noqa: S608 - the test's own name
    assert [row[0] for row in rows] == list(range(RECORDS))


def test_a_batch_that_kills_its_workers_every_time_fails_the_job(spark: SparkSession, bench: Bench) -> None:
    topic = bench.topic(partitions=1)
    bench.send(topic, ["0", "1"])
    job = bench.job(topic, **NOW, **{"errors.worker.crashes.max": "3"})
    order = bench.order(job, "task Crash")
    done = run(spark, job)
    assert done.end() == 1
    assert [event["attempt"] for event in done.of("retrying")] == [1, 2]
    failed = done.of("failed")[0]
    assert "batch 0 has crashed Spark's Python workers 3 times in a row (errors.worker.crashes.max)" in failed["error"]
    assert "source.max.offsets.per.trigger" in failed["error"]
    assert failed["retriable"] is False
    # A fault in C leaves its stack; the job continues when the batch no longer crashes.
    order.write_text("task Segfault")
    fault = run(spark, job)
    eventually(lambda: bool(fault.of("retrying")) or bool(fault.code), "the crash is seen")
    assert "Segmentation fault" in fault.of("retrying")[0]["error"]
    order.unlink()
    assert fault.end() == 0
    assert [row["value"] for row in bench.rows(job)] == ["0", "1"]
