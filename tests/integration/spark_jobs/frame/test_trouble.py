"""Lag and trouble: lag is reported before the first batch, an unknown lag is not 0, and a job that retries says so."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]  # they are documented

from compose.local.kafka import KafkaCluster
from spark_jobs import runner
from spark_jobs.config import job_files as config
from spark_jobs.kafka.lag_watch import LagWatch
from spark_jobs.reports.progress import EventWriter
from spark_jobs.reports.troubles import Troubles
from spark_jobs.run import state_after
from tests.integration.spark_jobs.frame.test_runs import run
from tests.support.eventually import eventually
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from connectors.options import Config
    from tests.integration.spark_jobs.frame.bench import Bench


def test_a_job_whose_target_is_away_says_so_until_it_is_back(
    spark: SparkSession, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_HEARTBEAT_S", 0.3)
    topic = bench.topic(partitions=2)
    bench.send(topic, ["0", "1", "2", "3", "4"])
    job = bench.job(topic, **{"errors.retry.delay.max.ms": "200"})
    order = bench.order(job, "away 1000000")
    going = run(spark, job)

    def heartbeats() -> list[dict[str, Any]]:
        return [event for event in going.of("progress") if event["retrying"]]

    eventually(lambda: len(heartbeats()) >= 3 or going.code, "signs of life report the trouble")
    # Nothing was committed yet: all records wait, from where the job begins.
    for event in heartbeats():
        assert event["lag_total"] in (5, None), event
        assert event["retrying"]["part"] == "batch"
        assert event["retrying"]["error"] == "the target is away"
        assert event["retrying"]["since"] == going.of("retrying")[0]["since"]
        assert state_after(event) == "retrying"
    assert heartbeats()[-1]["lag"] == {topic: {"0": 3, "1": 2}}
    assert heartbeats()[-1]["position"] == {topic: {"0": 0, "1": 0}}
    order.unlink()
    eventually(
        lambda: [event for event in going.of("progress") if event.get("committed")] or going.code, "the batch is done"
    )
    done = next(event for event in going.of("progress") if event.get("committed"))
    assert (done["retrying"], done["lag_total"], state_after(done)) == (None, 0, "running")
    going.runner.stop("test")
    assert going.end() == 0


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """One broker that these tests may harm."""
    with KafkaCluster(tmp_path_factory.mktemp("lag"), port=None, jvm_options=FAST_START) as cluster:
        yield cluster


def job_config(bootstrap: str, folder: Path, **options: str) -> Config:
    return config.build_job(
        {
            "name": "lag",
            "kafka.bootstrap.servers": bootstrap,
            "source.format": "plain",
            "sink.type": "console",
            "state.dir": str(folder),
            **options,
        }
    ).config


def test_the_lag_of_what_is_not_read_yet_and_of_a_kafka_that_is_away(own_kafka: KafkaCluster, tmp_path: Path) -> None:
    topic = f"lag-{secrets.token_hex(4)}"
    admin, producer = (
        AdminClient({"bootstrap.servers": own_kafka.bootstrap}),
        Producer({"bootstrap.servers": own_kafka.bootstrap}),
    )
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    for number in range(5):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(30) == 0
    events: list[dict[str, Any]] = []
    troubles = Troubles(EventWriter("lag", None, on_event=events.append))
    late = LagWatch(
        job_config(own_kafka.bootstrap, tmp_path, **{"source.topics": topic, "source.starting.offsets": "latest"}),
        troubles,
        lambda: None,
    )
    watch = LagWatch(
        job_config(own_kafka.bootstrap, tmp_path, **{"source.topics.pattern": f"{topic}.*"}),
        troubles,
        lambda: None,
        timeout_s=4,
    )
    try:
        standing = watch.refresh({}, 30)
        assert standing is not None
        assert (standing.position, standing.ends) == ({(topic, 0): 0}, {(topic, 0): 5})
        # Where Spark starts is not decided yet, so the lag is unknown. Once it is decided, all records since then wait.
        assert late.refresh({}, 30) is None
        late.begin({(topic, 0): 3})
        standing = late.refresh({}, 30)
        assert standing is not None
        assert (standing.position, standing.ends) == ({(topic, 0): 3}, {(topic, 0): 5})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)

        def seen() -> bool:
            progress = watch.refresh({(topic, 0): 4}, 30)
            return progress is not None and (progress.position, progress.ends) == (
                {(topic, 0): 4, (topic, 1): 0},
                {(topic, 0): 5, (topic, 1): 0},
            )

        eventually(seen, "the new partition is counted from its start")
        assert troubles.current() is None
        own_kafka.broker(0).kill()
        eventually(lambda: watch.refresh({(topic, 0): 4}, 30) is None, "the lag is unknown without Kafka")
        trouble = troubles.current()
        assert trouble is not None
        assert f"Kafka at {own_kafka.bootstrap} does not answer" in trouble["error"]
        assert [(event["event"], event["part"], event["since"]) for event in events] == [
            ("retrying", "lag", trouble["since"])
        ]
        own_kafka.broker(0).start()
        eventually(seen, "the lag is known again")
        assert troubles.current() is None
    finally:
        for watcher in (watch, late):
            watcher.close()
