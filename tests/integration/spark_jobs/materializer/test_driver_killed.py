"""A job as its own process: the driver is killed in mid-stream, then checkpoint and caches are lost; every event once."""
from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from tests.support.job_process import Job
from tests.support.update_topic import Load, check, fill

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_driver_killed(bootstrap: str, unique: Callable[[str], str], tmp_path: Path) -> None:
    """kill -9 for the driver and all it started; the next run, without checkpoint and caches, goes on where the marker is."""
    load = Load(updates=6000, partitions=600, buckets=2, encoding="json")
    topic = unique("h4-driver")
    fill(load, bootstrap, "", topic)
    config = {
        "name": topic, "kafka": {"bootstrap.servers": bootstrap},
        "source": {"topics": topic, "format": "partition-update", "max.offsets.per.trigger": 1000},
        "transform": {"type": "materialize"}, "materializer": {"output.encoding": "json"},
        "sink": {"type": "kafka", "kafka": {"topic": f"{topic}-rows"}}, "trigger": {"interval.ms": 0},
        "checkpoint": {"location": str(tmp_path / "checkpoint")}, "state": {"dir": str(tmp_path / "state")},
        "spark": {"master": "local[2]", "driver.memory": "1g"}}
    first = Job(json.loads(json.dumps(config)), tmp_path / "first")
    first.start()
    first.wait_rows(1000, limit=120)
    first.kill()
    assert first.rows < load.updates
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.rmtree(tmp_path / "state")
    second = Job(config, tmp_path / "second")
    second.start()
    second.wait_rows(load.updates, limit=120)
    assert second.metrics["materializer_replayed_total"] >= 1000
    assert second.stop() == 0
    check(load, bootstrap, f"{topic}-rows")
