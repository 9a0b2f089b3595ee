"""A Spark job under a real worker: one REST API rules it as it rules a source."""

from __future__ import annotations

import os
import secrets
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it has it

from spark_jobs.control import process_age
from spark_jobs.supervisor import find_other_processes
from tests.support.eventually import eventually
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable

    from compose.local.worker import MillraceWorker

PLUGIN = Path(__file__).with_name("plugin")
SECRET = "correct-horse-battery"
KEY = "staple-of-a-bucket"
LIMIT_S = 120.0  # Spark takes its time to start


class Bench:
    """One worker, one topic of two partitions, one folder that the job writes to."""

    def __init__(self, worker: MillraceWorker, bootstrap: str, folder: Path) -> None:
        self.worker = worker
        self.bootstrap = bootstrap
        self.folder = folder
        self.name = f"job-{secrets.token_hex(4)}"
        self.topic = f"{self.name}-in"
        self.sent = 0
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics([NewTopic(self.topic, 2, 1)]).values():
            future.result()

    def config(self, **more: str) -> dict[str, str]:
        return {
            "connector.class": "spark_jobs.SparkJob",
            "tasks.max": "4",
            "source.topics": self.topic,
            "source.format": "plain",
            "sink.type": "lines_sink:LinesSink",
            "sink.lines.folder": str(self.folder),
            "sink.lines.password": SECRET,
            "spark.hadoop.fs.s3a.secret.key": KEY,
            "trigger.interval.ms": "100",
            "spark.application": "own",
            "spark.master": "local[1]",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": " ".join(FAST_START),
            "errors.retry.delay.max.ms": "500",
            **more,
        }

    def send(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(self.sent, self.sent + count):
            producer.produce(self.topic, str(number).encode(), partition=number % 2)
        self.sent += count
        assert producer.flush(10) == 0

    def lines(self) -> list[int]:
        return sorted(int(line) for path in self.folder.glob("batch-*.txt") for line in path.read_text().split())

    def wait_for_lines(self) -> None:
        eventually(
            lambda: self.lines() == list(range(self.sent)), "all records are written once", LIMIT_S, detail=self.about
        )

    def get(self, path: str) -> Any:
        status, body = self.worker.request("GET", path)
        assert status == 200, body
        return body

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.get(f"/connectors/{self.name}/status")
        return status

    def task(self) -> dict[str, Any]:
        tasks = self.status()["tasks"]
        return tasks[0] if tasks else {"state": "NONE"}

    def progress(self) -> dict[str, Any]:
        progress: dict[str, Any] = self.get(f"/connectors/{self.name}/progress")["tasks"][0]
        return progress

    def pid(self) -> int:
        return int(eventually(lambda: self.progress().get("pid"), "the job has a process", LIMIT_S))

    def wait_task(self, state: str) -> dict[str, Any]:
        def reached() -> bool:
            current = self.task()["state"]
            assert current in {state, "NONE", "UNASSIGNED", "RUNNING", "PAUSED", "RESTARTING"} or state == "RUNNING", (
                self.about()
            )
            return bool(current == state)

        eventually(reached, f"the task is {state}", LIMIT_S, detail=self.about)
        return self.task()

    def about(self) -> str:
        log = self.worker.service.log_tail()
        return f"{self.task()} {self.lines()[-3:]} of {self.sent}\n{log}"

    def put(self, path: str, expected: int) -> None:
        status, body = self.worker.request("PUT", f"/connectors/{self.name}{path}")
        assert status == expected, body


@pytest.fixture
def bench(
    millrace: Callable[..., MillraceWorker], bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Bench:
    monkeypatch.setenv("PYTHONPATH", str(PLUGIN))
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "out"
    folder.mkdir()
    worker = millrace(
        properties={"exactly.once.source.support": "enabled", "task.shutdown.graceful.timeout.ms": "20000"}
    )
    return Bench(worker, bootstrap, folder)


def visible(pid: int) -> bytes:
    """The parts of a process that every user, or the same user, may see; nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def gone(pid: int) -> bool:
    return process_age(pid) == "" and not find_other_processes(pid)


def test_the_life_of_a_job(bench: Bench) -> None:
    worker, name = bench.worker, bench.name
    # It is listed, and checked before it is created.
    classes = {row["class"]: row["type"] for row in bench.get("/connector-plugins")}
    assert classes["spark_jobs.SparkJob"] == "sink"
    status, infos = worker.request(
        "PUT",
        "/connector-plugins/spark_jobs.SparkJob/config/validate",
        bench.config(name=name, **{"source.topics": "", "transforms": "route", "sink.lines.foldr": "1"}),
    )
    complaints = {
        item["value"]["name"]: item["value"]["errors"] for item in infos["configs"] if item["value"]["errors"]
    }
    assert status == 200
    assert "does not apply to this connector, which moves data itself" in complaints["transforms"][0]
    assert complaints["source.topics"] == [
        "Missing required configuration: give source.topics or source.topics.pattern"
    ]
    assert complaints["sink.lines.foldr"] == ["Unknown configuration sink.lines.foldr; did you mean sink.lines.folder?"]
    assert SECRET not in str(infos)

    # Create, run, read.
    bench.send(20)
    status, created = worker.request("POST", "/connectors", {"name": name, "config": bench.config()})
    assert (status, created["type"]) == (201, "sink"), created
    bench.wait_task("RUNNING")
    bench.wait_for_lines()
    assert bench.status()["type"] == "sink"
    assert len(bench.status()["tasks"]) == 1
    assert bench.get("/connectors?expand=status")[name]["status"]["type"] == "sink"
    first = bench.pid()
    shown = [visible(pid) for pid in (first, *find_other_processes(first))]
    assert any(b"java" in text for text in shown)
    assert not any(secret.encode() in text for text in shown for secret in (SECRET, KEY))

    # How far it is: progress, offsets of the consumer group, topics, metrics.
    progress = eventually(
        lambda: (now := bench.progress()).get("records_read") == 20 and now,
        "all records are read",
        LIMIT_S,
        detail=bench.progress,
    )
    assert (progress["phase"], progress["lag"], progress["records_written"]) == ("running", {"total": 0, "max": 0}, 20)
    assert sorted((entry["partition"], entry["offset"]) for entry in progress["partitions"]) == [(0, 10), (1, 10)]
    assert bench.get(f"/connectors/{name}/offsets")["offsets"] == [
        {"partition": {"kafka_topic": bench.topic, "kafka_partition": partition}, "offset": {"kafka_offset": 10}}
        for partition in (0, 1)
    ]
    assert bench.get(f"/connectors/{name}/topics") == {name: {"topics": [bench.topic]}}
    series = dict(line.rsplit(" ", 1) for line in bench.get("/metrics").splitlines() if not line.startswith("#"))
    labels = f'{{connector="{name}",task="0"}}'
    assert float(series[f"kafka_connect_sink_task_sink_record_read_total{labels}"]) == 20
    assert float(series[f"kafka_connect_sink_task_sink_record_send_total{labels}"]) == 20
    assert float(series[f"kafka_connect_sink_task_sink_record_lag_max{labels}"]) == 0
    assert float(series[f"kafka_connect_sink_task_partition_count{labels}"]) == 2
    assert float(series[f"millrace_job_up{labels}"]) == 1
    assert float(series[f"millrace_job_lines_files{labels}"]) >= 1
    assert not [name for name in series if name.startswith("kafka_connect_source_task") and bench.name in name]

    # Its target is unavailable: the task runs, and says since when and why, until the target answers again.
    (bench.folder / "away").touch()
    bench.send(20)
    trace = eventually(lambda: bench.task().get("trace"), "the status shows the trouble", LIMIT_S, detail=bench.about)
    assert bench.task()["state"] == "RUNNING"
    assert "the job retries since 20" in trace
    assert "the folder is away" in trace
    progress = eventually(
        lambda: (now := bench.progress())["phase"] == "retrying" and now, "the trouble is in the progress", LIMIT_S
    )
    assert progress["error"] == "the folder is away"
    assert progress["retrying_since"]
    (bench.folder / "away").unlink()
    bench.wait_for_lines()
    eventually(lambda: "trace" not in bench.task(), "the trouble is over", LIMIT_S, detail=bench.about)
    eventually(lambda: bench.progress()["phase"] == "running", "the progress is that of a job that works", LIMIT_S)

    # Pause ends the process; resume continues from the checkpoint.
    bench.put("/pause", 202)
    bench.wait_task("PAUSED")
    assert gone(first)
    bench.send(20)
    bench.put("/resume", 202)
    bench.wait_task("RUNNING")
    bench.wait_for_lines()

    # Its host is killed: the job goes down with it, and comes back.
    second = bench.pid()
    os.kill(worker.hosts()[0], signal.SIGKILL)
    eventually(lambda: gone(second), "no orphan is left", LIMIT_S, detail=bench.about)
    bench.send(20)
    bench.wait_task("RUNNING")
    bench.wait_for_lines()

    # A failure has the job's own cause; fixed and restarted, the job continues.
    third = bench.pid()
    assert third != second
    (bench.folder / "fatal").write_text("the target refuses batch of lines")
    bench.send(20)
    failed = bench.wait_task("FAILED")
    assert failed["trace"].startswith("Fatal: the target refuses batch of lines\n")
    assert "lines_sink.py" in failed["trace"]
    eventually(lambda: gone(third), "the failed job is gone", LIMIT_S)
    explained = bench.get(f"/connectors/{name}/explain")
    assert explained["tasks"][0]["why_not_running"] == "it failed: Fatal: the target refuses batch of lines"
    assert any(note.startswith("tasks.max=4 has no effect") for note in explained["notes"])
    (bench.folder / "fatal").unlink()
    assert worker.request("POST", f"/connectors/{name}/tasks/0/restart")[0] == 204
    bench.wait_task("RUNNING")
    bench.wait_for_lines()

    # Offsets can't be changed; deleted, nothing is left.
    fourth = bench.pid()
    bench.put("/stop", 204)
    eventually(
        lambda: gone(fourth) and bench.status()["connector"]["state"] == "STOPPED",
        "it is stopped",
        LIMIT_S,
        detail=bench.about,
    )
    status, refused = worker.request("DELETE", f"/connectors/{name}/offsets")
    assert status == 400
    assert "a Spark job continues from its checkpoint" in refused["message"]
    assert worker.request("DELETE", f"/connectors/{name}")[0] == 204
    eventually(lambda: name not in bench.get("/connectors"), "it is deleted", LIMIT_S)
    assert SECRET not in worker.service.log_path.read_text()
