"""``millrace job state`` and ``rebuild`` as an operator calls them, on a job that ran as a process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.eventually import eventually
from tests.support.job_process import Job
from tests.support.update_load import Model, changes
from tests.support.update_topic import Load, check, fill
from worker.fetch.java import FAST_START
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.registry import SchemaRegistry

_LOAD = Load(2_000, 150, 2, "avro")


def command(*arguments: str) -> str:
    """Run a command, which must succeed, and return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "worker.cli", "job", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow  # two minutes: each command starts Spark
def test_state_and_rebuilds(
    bootstrap: str, registry: SchemaRegistry, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    topic = unique("u")
    fill(_LOAD, bootstrap, registry.url, topic)
    config: dict[str, Any] = {
        "name": f"m-{topic}",
        "kafka": {"bootstrap.servers": bootstrap},
        "source": {
            "topics": topic,
            "format": "partition-update",
            "value.encoding": "avro",
            "schema.registry.url": registry.url,
        },
        "transform": {"type": "materialize"},
        "materializer": {"output.encoding": "json"},
        "sink": {"type": "kafka", "kafka": {"topic": f"{topic}-rows"}},
        "trigger": {"mode": "available-now"},
        "checkpoint": {"location": str(tmp_path / "checkpoint")},
        "state": {"dir": str(tmp_path / "state")},
        "spark": {"master": "local[2]", "driver.memory": "512m", "driver.extraJavaOptions": " ".join(FAST_START)},
    }
    file = tmp_path / "job" / "job.json"
    rows = rows_of_model()

    def run() -> None:
        job = Job(config, tmp_path / "job")
        job.start()
        assert job.process.wait(120) == 0, job.failure or job.log()

    run()
    check(_LOAD, bootstrap, f"{topic}-rows")
    assert command("state", str(file), "--count").split()[-1] == str(len(rows))

    # The output is lost: every live row comes once, from the state.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([f"{topic}-rows"])[f"{topic}-rows"].result(30)
    eventually(
        lambda: f"{topic}-rows" not in admin.list_topics(timeout=10).topics, "the topic is deleted", 30, every=0.1
    )
    command("rebuild", str(file), "--output")
    events = [
        json.loads(record.value) for record in read_topic(bootstrap, f"{topic}-rows", committed=True) if record.value
    ]
    assert {event["op"] for event in events} == {"r"}
    assert len(events) == len(rows)
    assert {(event["after"]["pk"], event["after"]["ck"]): event["after"] for event in events} == rows

    # The state is thrown away with the output, and rebuilt from the input.
    shutil.rmtree(tmp_path / "state")
    command("rebuild", str(file), "--state", "--drop-output")
    run()
    check(_LOAD, bootstrap, f"{topic}-rows")


def rows_of_model() -> dict[tuple[int, int], dict[str, Any]]:
    """The rows of the table at the end."""
    model = Model()
    for change in changes(_LOAD.updates, partitions=_LOAD.partitions):
        model.apply(change)
    return model.rows
