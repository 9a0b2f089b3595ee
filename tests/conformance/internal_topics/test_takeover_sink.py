"""A sink connector of a Java Connect cluster runs on in Millrace as a Spark job, and then in Java again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.conformance.internal_topics.test_takeover import PROPERTIES, offset_of, states
from tests.support.eventually import eventually
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.connect import JavaConnect
    from compose.local.worker import MillraceWorker

LIMIT_S = 120.0


@pytest.mark.slow
def test_a_sink_connector_goes_there_and_back(
    bootstrap: str,
    java_connect: Callable[..., JavaConnect],
    millrace: Callable[..., MillraceWorker],
    unique: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    group, name, topic = unique("take"), unique("lines"), unique("values")
    path = tmp_path / "values.txt"
    producer = Producer({"bootstrap.servers": bootstrap})
    expected: list[str] = []

    def send(prefix: str) -> None:
        values = [f"{prefix} {number}" for number in range(50)]
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(10) == 0
        expected.extend(values)

    def runs(worker: JavaConnect | MillraceWorker) -> None:
        """Every line is in the file once, in order, and the group's offset is saved."""
        eventually(
            lambda: states(worker, name) == ("RUNNING", ["RUNNING"]),
            f"{name} runs",
            LIMIT_S,
            detail=lambda: states(worker, name),
        )
        eventually(lambda: path.read_text().splitlines() == expected, "all lines are there once", LIMIT_S)
        position = {
            "partition": {"kafka_topic": topic, "kafka_partition": 0},
            "offset": {"kafka_offset": len(expected)},
        }
        eventually(lambda: offset_of(worker, name) == [position], "the group has the offset", LIMIT_S)

    send("first")
    java = java_connect(group=group, properties=PROPERTIES)
    config = {
        "connector.class": "FileStreamSink",
        "topics": topic,
        "file": str(path),
        # Options of the job, which Java ignores.
        "trigger.interval.ms": "100",
        "spark.application": "own",
        "spark.master": "local[1]",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": " ".join(FAST_START),
    }
    status, body = java.request("PUT", f"/connectors/{name}/config", config)
    assert status == 201, body
    eventually(path.exists, "Java writes the file", LIMIT_S)
    runs(java)
    java.stop()
    send("second")
    ours = millrace(group=group, properties=PROPERTIES)
    runs(ours)
    assert ours.request("GET", f"/connectors/{name}/config")[1] == {**config, "name": name}
    ours.stop()
    send("third")
    runs(java_connect(group=group, properties=PROPERTIES))
