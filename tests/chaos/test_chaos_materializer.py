"""The materializer while its driver, Python workers and a broker of three are killed: every event once and in order."""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.job_process import Job
from tests.support.update_topic import Load, check, committed_events, fill
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.kafka import KafkaCluster
    from compose.local.registry import SchemaRegistry

_LIMIT = 180.0


def job_config(
    bootstrap: str, registry: str, topic: str, folder: Path, *, replication: int, batch: int
) -> dict[str, Any]:
    """A materializer with small batches, so that there are many moments to die in."""
    return {
        "name": f"m-{topic}",
        "kafka": {"bootstrap.servers": bootstrap},
        "source": {
            "topics": topic,
            "format": "partition-update",
            "value.encoding": "avro",
            "schema.registry.url": registry,
            "max.offsets.per.trigger": batch,
        },
        "transform": {"type": "materialize"},
        "materializer": {"output.encoding": "json", "topics.replication.factor": replication},
        "sink": {"type": "kafka", "kafka": {"topic": f"{topic}-rows"}},
        "trigger": {"interval.ms": 0},
        "checkpoint": {"location": str(folder / "checkpoint")},
        "state": {"dir": str(folder / "state")},
        "spark": {"master": "local[2]", "driver.memory": "768m", "driver.extraJavaOptions": " ".join(FAST_START)},
    }


def until(job: Job, events: Callable[[], int], count: int) -> None:
    """Wait until ``count`` events were committed."""
    job.wait_for(lambda: events() >= count, _LIMIT, lambda: f"{events()} of {count} events came")


@pytest.mark.proves("into materializer", "exactly-once", killed=["driver", "Python worker"])
def test_driver_and_workers_killed_and_local_state_lost(
    bootstrap: str, registry: SchemaRegistry, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    load, topic = Load(24_000, 3_000, 2, "avro"), unique("u")
    fill(load, bootstrap, registry.url, topic)
    config = job_config(bootstrap, registry.url, topic, tmp_path, replication=1, batch=1_000)
    # Records that each run reads before a Python worker, then everything of it is killed; the last begins from the start again.
    for rows, lost in ((2_000, ()), (2_000, ("state",)), (6_000, ("checkpoint", "state"))):
        job = Job(config, tmp_path / "job")
        job.start()
        job.wait_rows(rows, _LIMIT)
        for worker in job.python_workers()[:1]:
            os.kill(worker, signal.SIGKILL)  # Spark tries its task again
        job.wait_rows(rows + 2_000, _LIMIT)
        job.kill()
        for name in lost:
            shutil.rmtree(tmp_path / name)
    last = Job(config, tmp_path / "job")
    last.start()
    until(last, committed_events(bootstrap, f"{topic}-rows", load.buckets), load.events())
    assert last.stop() == 0
    check(load, bootstrap, f"{topic}-rows")


@pytest.mark.slow  # minutes with three brokers; the test above kills the driver
@pytest.mark.proves("into materializer", "exactly-once", killed=["Kafka"])
def test_broker_of_three_killed(
    kafka_cluster: KafkaCluster, registry: SchemaRegistry, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    load, topic = Load(12_000, 1_200, 3, "avro"), unique("u")
    bootstrap = kafka_cluster.bootstrap
    fill(load, bootstrap, registry.url, topic, replication=3)
    job = Job(job_config(bootstrap, registry.url, topic, tmp_path, replication=3, batch=1_000), tmp_path / "job")
    job.start()
    expected = load.events()
    # Asked through a broker that stays; each of the three leads partitions and coordinates transactions.
    events = committed_events(kafka_cluster.broker(0).address, f"{topic}-rows", load.buckets)
    until(job, events, int(expected * 0.2))
    kafka_cluster.broker(1).kill()
    until(job, events, min(expected, events() + 3_000))
    kafka_cluster.broker(1).start()
    until(job, committed_events(bootstrap, f"{topic}-rows", load.buckets), expected)
    assert job.stop() == 0
    check(load, bootstrap, f"{topic}-rows")
