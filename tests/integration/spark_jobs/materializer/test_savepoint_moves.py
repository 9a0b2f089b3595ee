"""A materializer that moves: savepoints while changes come, a kill in the middle of one, another number of buckets elsewhere.

What comes out is compared event by event with the model of the load, which never stops.
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import Fatal
from spark_jobs.savepoints import commands
from spark_jobs.savepoints.manifest import MANIFEST_FILE, read_manifest
from spark_jobs.spark.checkpoint import LocalFolder
from tests.support.job_process import Job
from tests.support.update_load import Event, Model, changes
from tests.support.update_topic import Load, fill
from worker.fetch.java import FAST_START
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.registry import SchemaRegistry

_LOAD = Load(6_000, 150, 2, "avro")


def configuration(bootstrap: str, registry: str, topic: str, folder: Path) -> dict[str, Any]:
    return {
        "name": f"m-{topic}",
        "kafka": {"bootstrap.servers": bootstrap},
        "source": {
            "topics": topic,
            "format": "partition-update",
            "value.encoding": "avro",
            "schema.registry.url": registry,
            "max.offsets.per.trigger": "400",
        },
        "transform": {"type": "materialize"},
        "materializer": {"output.encoding": "json"},
        "sink": {"type": "kafka", "kafka": {"topic": f"{topic}-rows"}},
        "trigger": {"interval.ms": "0"},
        "checkpoint": {"location": str(folder / "checkpoint")},
        "state": {"dir": str(folder / "state")},
        "spark": {
            "master": "local[2]",
            "driver.memory": "512m",
            "sql.shuffle.partitions": "2",
            "driver.extraJavaOptions": " ".join(FAST_START),
        },
    }


def elsewhere(config: dict[str, Any], folder: Path, savepoint: Path, buckets: int) -> dict[str, Any]:
    """The same job on another machine, with another number of buckets."""
    return {
        **config,
        "source": {**config["source"], "savepoint": str(savepoint), "max.offsets.per.trigger": "100000"},
        "materializer": {
            "output.encoding": "json",
            "buckets": str(buckets),
            "output.partitioner": "murmur2",
            "changelog.topic": f"{config['name']}-moved",
        },
        "trigger": {"mode": "available-now"},
        "checkpoint": {"location": f"file://{folder}/checkpoint"},
        "state": {"dir": str(folder / "state")},
    }


def events_by_row(bootstrap: str, topic: str) -> dict[tuple[int, int], list[Event]]:
    """The committed events of numbered row in the order of their numbers."""
    events_of: dict[tuple[int, int], list[tuple[int, Event]]] = {}
    for record in read_topic(bootstrap, topic, committed=True):
        if record.value is None:
            continue
        event = json.loads(record.value)
        image = event["after"] or event["before"]
        number = int(event["source"]["ums_id"])
        events_of.setdefault((image["pk"], image["ck"]), []).append(
            (number, Event(event["op"], event["before"], event["after"]))
        )
    return {
        key: [event for _, event in sorted(numbered, key=lambda pair: pair[0])] for key, numbered in events_of.items()
    }


def expected_by_row(load: Load) -> dict[tuple[int, int], list[Event]]:
    model = Model(load.wide)
    events_of: dict[tuple[int, int], list[Event]] = {}
    for change in changes(load.updates, partitions=load.partitions, seed=load.seed, wide=load.wide):
        event = model.apply(change)
        if event is not None:
            events_of.setdefault((change.pk, change.ck), []).append(event)
    return events_of


@pytest.mark.slow
def test_it_moves_to_another_number_of_buckets_without_a_change_lost_or_repeated(
    bootstrap: str,
    registry: SchemaRegistry,
    tmp_path: Path,
    unique: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = unique("sp")
    fill(_LOAD, bootstrap, registry.url, topic)
    config = configuration(bootstrap, registry.url, topic, tmp_path / "a")
    savepoint = tmp_path / "savepoint"

    # Killed while it writes a savepoint: no savepoint, and the job resumes.
    job = Job(config, tmp_path / "a" / "job")
    job.start()
    job.wait_rows(800, 180)
    kill_while_saving(job, config["name"], savepoint)
    with pytest.raises(Fatal, match=f"has no {MANIFEST_FILE}"):
        read_manifest(LocalFolder(savepoint), str(savepoint))
    job = Job(config, tmp_path / "a" / "job")
    job.start()
    job.wait_rows(800, 180)
    assert commands.main([config["name"], "--to", str(savepoint), "--stop"]) == 0
    assert job.process.wait(60) == 0
    assert "records of state in 2 buckets" in capsys.readouterr().out
    manifest = read_manifest(LocalFolder(savepoint), str(savepoint))
    assert [path.name for path in savepoint.glob("state-*")] == [(manifest.state or {})["topics"][topic]["folder"]]
    done = json.loads(manifest.checkpoint[f"offsets/{manifest.batch}"].splitlines()[2])[topic]
    assert 800 < sum(done.values()) < _LOAD.updates, "the load was under way"

    moved = Job(elsewhere(config, tmp_path / "b", savepoint, 3), tmp_path / "b" / "job")
    moved.start()
    assert moved.process.wait(180) == 0, moved.failure or moved.log()
    assert moved.rows == _LOAD.updates - sum(done.values())
    assert events_by_row(bootstrap, f"{topic}-rows") == expected_by_row(_LOAD)


def kill_while_saving(job: Job, name: str, savepoint: Path) -> None:
    """Ask for a savepoint, and kill the job when its state begins to be written."""
    asked = threading.Thread(target=pytest.raises, args=(Fatal, commands.main, [name, "--to", str(savepoint)]))
    asked.start()
    deadline = time.monotonic() + 60
    while not list(savepoint.glob("state-*")):
        assert time.monotonic() < deadline
        assert job.process.poll() is None, job.failure or job.log()
    job.kill()
    asked.join(60)
    assert not asked.is_alive()
    assert not (savepoint / MANIFEST_FILE).exists()
