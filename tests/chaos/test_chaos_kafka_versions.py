"""Brokers of other versions than the local stack's own: a worker, a task host and the broker are killed, and a job copies."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from compose.local.kafka import VERSIONS, KafkaCluster
from tests.chaos.cluster import PATIENCE, Cluster
from tests.chaos.conftest import QUICK
from tests.chaos.delivery import Load, verify
from tests.support.table_delays import job_options
from worker.fetch.java import FAST_START
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: The first is the local stack's own.
_OTHERS = list(VERSIONS)[1:]


def _copy_topic(cluster: Cluster, load: Load, folder: Path) -> Load:
    """Have a Spark job copy the topic; returns the load as the copy has it."""
    copy = replace(load, name=f"{load.name}-copy", topic=f"{load.topic}-copy")
    options = {
        **job_options(copy.name),
        "source.topics": load.topic,
        "source.format": "plain",
        "sink.type": "kafka",
        "sink.kafka.content": "records",
        "sink.kafka.topic": copy.topic,
        "checkpoint.location": str(folder / "checkpoint"),
    }
    status, answer = cluster.ask("PUT", f"/connectors/{copy.name}/config", options)
    assert status == 201, answer
    cluster.until(
        lambda: len(read_topic(cluster.bootstrap, copy.topic, committed=True)) >= load.records,
        "the job has copied the topic",
        5 * PATIENCE,
    )
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("exactly_once", [False, True], ids=["at_least_once", "exactly_once"])
@pytest.mark.parametrize("version", _OTHERS)
def test_a_worker_a_host_and_the_broker_are_killed(
    version: str, exactly_once: bool, unique: Callable[[str], str], tmp_path: Path
) -> None:
    with KafkaCluster(
        tmp_path / "kafka", version=version, port=None, properties=QUICK, jvm_options=FAST_START
    ) as kafka:
        cluster = Cluster(tmp_path, kafka.bootstrap, unique("g"), exactly_once=exactly_once)
        try:
            cluster.start(2)
            load = Load(unique("c"), unique("t"), records=8000)
            cluster.create(load)
            cluster.until_saved(load, 0.2)
            cluster.followers()[0].kill()
            cluster.until_running(load, cluster.ids)
            cluster.repair()
            cluster.until_saved(load, 0.5)
            for host in cluster.leader().hosts():
                os.kill(host, signal.SIGKILL)
            cluster.until_saved(load, 0.7)
            kafka.broker(0).kill()
            kafka.start()
            cluster.finish(load)
            copy = _copy_topic(cluster, load, tmp_path)
            assert verify(cluster.bootstrap, copy, exactly_once=exactly_once) == (
                verify(cluster.bootstrap, load, exactly_once=exactly_once)
            )
        finally:
            cluster.close()
