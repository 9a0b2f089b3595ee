"""Files as a source on S3 (moto's server by s3a://) and HDFS: every format, bad rows and files, later files, a kill."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs import history
from tests.integration.spark_jobs.files.test_remote_file_systems import Remote, remote
from tests.integration.spark_jobs.inputs.test_file_flows import ROWS
from tests.integration.spark_jobs.sources.test_whole_jobs import Jobs
from tests.support.job_process import Job
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["remote"]
pytestmark = pytest.mark.slow


def test_files_of_every_format_and_a_driver_that_is_killed(
    remote: Remote, spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    root = remote.root.replace("history", "drop")
    module = "tests.integration.spark_jobs.inputs.remote_files"
    arguments = [root, json.dumps(remote.sets), json.dumps(remote.options), str(tmp_path), bootstrap]
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    first, second = ([[*row, "i"] for row in map(list, rows)] for rows in ROWS)
    for kind in ("csv", "json", "avro", "parquet", "orc"):
        assert seen[kind] == [first, first + second], kind
    lines = [[[f"{row[0]} {row[1]}", "i"] for row in rows] for rows in ROWS]
    assert seen["text"] == [lines[0], lines[0] + lines[1]]

    # What can't be read stops the job with its file, or goes to the dead letter topic with file and row.
    assert f"{root}/csv/" in seen["error"]
    assert seen["good"] == [row[0] for rows in ROWS for row in rows] + [7]
    dead = {}
    for message in Jobs(spark, bootstrap, tmp_path).read(f"{tmp_path.name}-dead"):
        headers = {name.removeprefix("__connect.errors."): value.decode() for name, value in message.headers()}
        dead[headers["file.path"], headers.get("file.row")] = headers["exception.message"]
    assert dead.keys() == {(f"{root}/csv/bad.csv", "2"), (f"{root}/csv/cut.csv.gz", None)}
    assert dead[f"{root}/csv/bad.csv", "2"] == "column price: 'many' is not decimal(10,2)"

    # A driver that is killed between files continues with the next one; it waits for more until it is stopped.
    options = {
        "name": "many",
        "source.type": "files",
        "source.files.path": f"{root}/many",
        "source.files.format": "csv",
        "source.files.namespace": "drop.many",
        "source.files.max.per.trigger": "2",
        "source.key.columns": "id",
        "source.table.columns": "id bigint",
        "sink.type": "files",
        "sink.files.path": str(tmp_path / "many"),
        "checkpoint.location": f"{root}/checkpoint-many",
        "state.dir": str(tmp_path / "state"),
        "trigger.interval.ms": "0",
        "spark.master": "local[2]",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": " ".join(FAST_START),
        **remote.options,
    }
    killed = Job(options, tmp_path / "killed")
    killed.start()
    try:
        killed.wait_rows(400, 240)
    finally:
        killed.kill()
    after = Job({**options, "trigger.mode": "available-now"}, tmp_path / "after")
    after.start()
    assert after.process.wait(240) == 0, after.failure or after.log()
    assert after.rows > 0
    written = history.read(spark, str(tmp_path / "many"))
    rows = sorted([row["id"], row["name"]] for row in written.collect())
    expected = sorted([number * 50 + row, f"{number}-{row}"] for number in range(12) for row in range(100))
    assert rows == expected, "each row of each file once"
