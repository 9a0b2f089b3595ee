"""The same job on a real standalone Spark cluster, started by Millrace and by spark-submit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.spark import package
from spark_jobs.spark.session import fetch_jars
from tests.integration.spark_jobs.frame.standalone_cluster import StandaloneCluster, submit_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.spark_jobs.frame.bench import Bench

PLUGIN = Path(__file__).parent / "plugin" / "frame_parts.py"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("started_by", ["millrace", "spark-submit"])
def test_a_job_runs_on_a_standalone_cluster(bench: Bench, cluster: StandaloneCluster, started_by: str) -> None:
    topic = bench.topic(partitions=4)
    values = [str(number) for number in range(400)]
    bench.send(topic, values)
    job = bench.job(
        topic,
        **{
            "trigger.mode": "available-now",
            "spark.executor.memory": "512m",
            "spark.submit.pyFiles": str(PLUGIN),
            "sink.rows.tables": "true",
        },
    )
    if started_by == "millrace":
        job |= {"spark.master": cluster.master}
        done = subprocess.run(
            [sys.executable, "-m", "spark_jobs.run", str(bench.file(job))],
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
    else:
        for name in [option for option in job if option.startswith("spark.")]:
            del job[name]
        path = package.build_zip(bench.folder)
        command, environment = submit_command(
            cluster.master,
            fetch_jars(),
            path,
            Path(package.find_package_root()) / "spark_jobs" / "run.py",
            str(bench.file(job)),
        )
        command[command.index(str(path))] = f"{path},{PLUGIN}"
        done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False, env=environment)
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert [event["event"] for event in events if event["event"] != "progress"] == ["started", "stopped"]
    assert events[0]["master"] == cluster.master
    rows = bench.rows(job)
    assert sorted(row["number"] for row in rows) == list(range(400))
    # Executors got the code as a zip; they did not find it installed.
    archives = {Path(row["ran_in"]).parent.parent.name for row in rows}
    assert all(name.startswith("millrace-") and name.endswith(".zip") for name in archives), archives
