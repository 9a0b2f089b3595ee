"""A job as a process: one run at a time, status, metrics, a graceful end, a kill, and what comes after."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.spark_jobs.frame.bench import Bench


class Process:
    """``python -m spark_jobs.run``, with its events in a file."""

    def __init__(self, path: Path, *arguments: str) -> None:
        self._events, self._log = path.with_suffix(".events"), path.with_suffix(".log")
        with self._events.open("w") as events, self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spark_jobs.run", str(path), *arguments],
                stdin=subprocess.PIPE,
                stdout=events,
                stderr=log,
            )

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = self._events.read_text().splitlines(keepends=True)
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in events if event["event"] == kind]

    def wait(self, condition: Any, text: str) -> None:
        eventually(lambda: condition() or self.process.poll() is not None, text, 120, detail=self.log)
        assert self.process.poll() is None, self.log()

    def log(self) -> str:
        return self._log.read_text()[-3000:]

    def end(self) -> int:
        return self.process.wait(120)


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def millrace(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "worker.cli", "job", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_the_life_of_a_job(bench: Bench) -> None:
    topic = bench.topic(partitions=2)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = bench.job(topic, **{"metrics.port": str(port)})
    path = bench.file(job)
    first = Process(path, "--supervised")
    first.wait(lambda: first.events("started"), "the job has started")
    bench.send(topic, ["0", "1", "2", "3"])
    first.wait(lambda: len(bench.rows(job)) == 4 and first.events("progress"), "four rows come")
    assert all(row["headers"] == [{"key": "h", "value": "1"}] or row["headers"] for row in bench.rows(job))

    # One run at a time: neither the job again, nor another job on its checkpoint.
    second = subprocess.run(
        [sys.executable, "-m", "spark_jobs.run", str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert second.returncode == 1
    assert f"job {job['name']} is in use by process {first.process.pid}" in json.loads(second.stdout)["error"]
    other = bench.file(job | {"name": "other", "metrics.port": "0"})
    third = subprocess.run(
        [sys.executable, "-m", "spark_jobs.run", str(other)], capture_output=True, text=True, timeout=60, check=False
    )
    assert third.returncode == 1
    assert "checkpoint" in json.loads(third.stdout)["error"]

    # What the outside sees.
    assert bench.committed(f"millrace-{job['name']}", topic) == {0: 2, 1: 2}
    eventually(lambda: 'phase="addBatch"' in scraped(port), "the phases of the batch are reported")
    text = scraped(port)
    assert f'millrace_job_records_total{{job="{job["name"]}"}} 4' in text
    assert f'millrace_job_lag_records{{job="{job["name"]}",topic="{topic}",partition="0"}} 0' in text
    shown = json.loads(millrace("status", str(path), "--json").stdout)[job["name"]]
    assert (shown["state"], shown["pid"], shown["progress"]["lag_total"]) == ("running", first.process.pid, 0)
    eventually((bench.folder / f"{job['name']}.rows.idle").exists, "idle is called")

    # A stop in the middle of a batch waits for it, and for nothing more.
    order = bench.order(job, "slow")
    bench.send(topic, ["4"])
    first.wait((bench.folder / f"{job['name']}.rows.busy").exists, "the batch has started")
    first.process.send_signal(signal.SIGTERM)
    bench.send(topic, ["5"])
    order.unlink()
    assert first.end() == 0, first.log()
    assert [row["value"] for row in bench.rows(job)][4:] == ["4"]
    assert first.events("stopped")[0]["reason"] == "signal"
    assert (bench.folder / f"{job['name']}.rows.closed").exists()

    # Killed in the middle of a batch: nothing to clean up, the same batch comes again.
    bench.order(job, "slow")
    (bench.folder / f"{job['name']}.rows.busy").unlink()
    killed = Process(path)
    killed.wait((bench.folder / f"{job['name']}.rows.busy").exists, "the batch has started")
    os.kill(killed.process.pid, signal.SIGKILL)
    killed.end()
    assert "died" in millrace("status", job["name"]).stdout
    order.unlink()
    bench.send(topic, ["6"])
    last = Process(path, "--supervised")
    last.wait(lambda: len(bench.rows(job)) == 7, "all rows come")
    assert [row["value"] for row in bench.rows(job)][5:] == ["5", "6"]
    replayed = bench.rows(job)[5]
    assert sum(end - start for start, end in replayed["ranges"].values()) == 1
    # The parent's end of the pipe closes: the job stops as if it were asked to.
    assert last.process.stdin is not None
    last.process.stdin.close()
    assert last.end() == 0, last.log()
    assert last.events("stopped")[0]["reason"] == "the supervisor is gone"
    assert millrace("stop", str(path)).stdout == f"{job['name']}: is not running on this machine\n"
