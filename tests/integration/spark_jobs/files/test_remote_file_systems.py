"""The files sink on S3 (moto's server by s3a://) and HDFS: killed job, lost checkpoint, compaction, two writers of a name."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.targets.hdfs import Hdfs
from compose.local.targets.s3 import S3
from tests.integration.spark_jobs.files.killed_rows import files_job, topic_of_rows
from tests.support.job_process import Job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RECORDS = 600

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Remote:
    """A file system: its root, the jars and Spark's options for it."""

    root: str
    sets: tuple[str, ...]
    options: dict[str, str]


@pytest.fixture(params=["s3a", "hdfs"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Remote]:
    if request.param == "hdfs":
        with Hdfs(tmp_path / "hdfs") as hdfs:
            yield Remote(f"{hdfs.url}/history", (), {"spark.hadoop.dfs.replication": "1"})
        return
    with S3(tmp_path / "s3") as s3:
        s3.make_bucket("bucket")
        options = {
            "endpoint": s3.url,
            "endpoint.region": "eu-central-1",
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            "access.key": "any",
            "secret.key": "any",
        }
        settings = {f"spark.hadoop.fs.s3a.{name}": value for name, value in options.items()}
        yield Remote("s3a://bucket/history", ("s3",), settings)


def test_a_killed_job_with_a_lost_checkpoint_and_compaction(remote: Remote, bootstrap: str, tmp_path: Path) -> None:
    with topic_of_rows(bootstrap, RECORDS) as topic:
        limits = {"source.max.offsets.per.trigger": "60", "sink.files.rolling.files": "3"}
        config = {**files_job(bootstrap, topic, remote.root, tmp_path), **limits, **remote.options}
        job = Job(config, tmp_path / "first")
        job.start()
        try:
            job.wait_rows(180, 240)
        finally:
            job.kill()
        # Another checkpoint, on the remote file system itself, and batches that end elsewhere.
        later = {"trigger.mode": "available-now", "source.max.offsets.per.trigger": "250"}
        replay = Job({**config, **later, "checkpoint.location": f"{remote.root}-checkpoint"}, tmp_path / "second")
        replay.start()
        assert replay.process.wait(300) == 0, replay.log()
        seen = look(remote)
        expected = sorted([number, number % 2, number // 2] for number in range(RECORDS))
        assert seen["before"] == expected
        assert seen["after"] == expected
        assert seen["listed"] == RECORDS, "who lists the directory sees each row once, too"
        assert seen["merged"] >= 2
        assert seen["files"] == 1
        assert len(seen["winners"]) == 1, "of writers of one name one wins"
        assert seen["content"] == str(seen["winners"][0])


def look(remote: Remote) -> dict[str, Any]:
    """Return what ``remote_history`` prints."""
    module = "tests.integration.spark_jobs.files.remote_history"
    arguments = [remote.root, json.dumps(remote.sets), json.dumps(remote.options)]
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen
