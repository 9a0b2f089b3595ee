"""The only broker is unavailable for over a minute while a copy and a materializer write: both continue, exactly once.

In the slow suite only. Each moment of a transaction: tests/integration/spark_jobs/kafka_sink/test_broker_outages.py.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from compose.local.kafka import KafkaCluster
from tests.chaos.event_load import write_events
from tests.chaos.test_chaos_materializer import job_config
from tests.chaos.test_chaos_sinks import config
from tests.support.job_process import Job
from tests.support.update_topic import Load, check, committed_events, fill
from worker.fetch.java import FAST_START
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from compose.local.registry import SchemaRegistry

pytestmark = pytest.mark.slow
_AWAY_S = 70.0
_LIMIT_S = 420.0


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """One broker that this test may harm."""
    with KafkaCluster(tmp_path_factory.mktemp("outage"), port=None, jvm_options=FAST_START) as cluster:
        yield cluster


def _in_trouble(job: Job, until: float) -> bool:
    return bool(job.retries) and time.monotonic() > until


def _reached(count: Callable[[], int], goal: int) -> bool:
    return count() >= goal


def _last_retries(name: str, job: Job) -> str:
    return f"{name} is not complete; its last troubles: {job.retries[-3:]}"


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_minute_without_kafka(own_kafka: KafkaCluster, registry: SchemaRegistry, tmp_path: Path, how: str) -> None:
    bootstrap, broker = own_kafka.bootstrap, own_kafka.broker(0)
    load, updates, topic = Load(20_000, 2_000, 2, "avro"), f"u-{how}", f"e-{how}"
    fill(load, bootstrap, registry.url, updates)
    write_events(bootstrap, topic)
    expected = [(record.partition, record.value) for record in read_topic(bootstrap, topic)]
    goals = {
        "copy": (committed_events(bootstrap, f"{topic}-copy", 2), len(expected)),
        "rows": (committed_events(bootstrap, f"{updates}-rows", 2), load.events()),
    }
    copy = config(bootstrap, topic, tmp_path / "copy", {"type": "kafka", "kafka": {"topic": f"{topic}-copy"}})
    copy["source"]["max.offsets.per.trigger"] = 100
    jobs = {
        "copy": Job(copy, tmp_path / "copy" / "job"),
        "rows": Job(
            job_config(bootstrap, registry.url, updates, tmp_path, replication=1, batch=200), tmp_path / "rows"
        ),
    }
    for job in jobs.values():
        job.start()
    try:
        for name, job in jobs.items():
            job.wait_rows(800, _LIMIT_S)
            assert goals[name][0]() < goals[name][1], "nothing is left to be done in the outage"
        (broker.kill if how == "killed" else broker.pause)()
        began = time.monotonic()
        for job in jobs.values():
            job.wait_for(
                partial(_in_trouble, job, began + _AWAY_S), _LIMIT_S, lambda: "the job does not say that it retries"
            )
        (broker.start if how == "killed" else broker.resume)()
        for name, job in jobs.items():
            job.wait_for(partial(_reached, *goals[name]), _LIMIT_S, partial(_last_retries, name, job))
            assert job.stop() == 0
    finally:
        broker.resume()
        for job in jobs.values():
            if job.process.poll() is None:
                job.kill()
    copied = [(record.partition, record.value) for record in read_topic(bootstrap, f"{topic}-copy", committed=True)]
    for partition in (0, 1):
        assert [entry for entry in copied if entry[0] == partition] == [
            entry for entry in expected if entry[0] == partition
        ]
    check(load, bootstrap, f"{updates}-rows")
