"""Several flows in one Spark application under a real worker: a fault of one flow stops only that flow."""

from __future__ import annotations

import os
import secrets
import signal
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # the module has them

from spark_jobs.control import process_age
from worker.fetch.java import FAST_START
from worker.process_tree import list_children

if TYPE_CHECKING:
    from collections.abc import Callable

    from compose.local.worker import MillraceWorker

PLUGIN = Path(__file__).with_name("plugin")


def wait_for(
    condition: Callable[[], Any], goal: str, detail: Callable[[], Any] = lambda: "", deadline_s: float = 120.0
) -> Any:
    end = time.monotonic() + deadline_s
    while not (result := condition()):
        assert time.monotonic() < end, f"{goal}: not within {deadline_s} s: {detail()}"
        time.sleep(0.05)
    return result


class Flows:
    """A worker, a topic per flow, and what each flow wrote."""

    def __init__(self, worker: MillraceWorker, bootstrap: str, folder: Path) -> None:
        self.worker = worker
        self.bootstrap = bootstrap
        self.folder = folder
        self.prefix = f"flow-{secrets.token_hex(4)}"
        self.sent: dict[str, int] = {}
        self.configs: dict[str, dict[str, str]] = {}

    def topic(self, flow: str) -> str:
        return f"{self.prefix}-{flow}"

    def send(self, flow: str, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        first = self.sent.get(flow, 0)
        for number in range(first, first + count):
            producer.produce(self.topic(flow), f"{flow} {number}".encode())
        assert producer.flush(10) == 0
        self.sent[flow] = first + count

    def create(self, flow: str, **more: str) -> None:
        """A flow that writes lines into files; with ``sink.type=kafka`` it copies into a topic."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.create_topics([NewTopic(self.topic(flow), 1, 1)]).values():
            future.result()
        self.send(flow, 5)
        (self.folder / flow).mkdir()
        files = {"sink.type": "lines_sink:LinesSink", "sink.lines.folder": str(self.folder / flow)}
        config = {
            "connector.class": "spark_jobs.SparkJob",
            "source.topics": self.topic(flow),
            "source.format": "plain",
            "trigger.interval.ms": "100",
            "errors.retry.delay.max.ms": "500",
            "spark.master": "local[2]",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": " ".join(FAST_START),
            "spark.application": self.prefix,
            **({} if "sink.type" in more or "sinks" in more else files),
            **more,
        }
        status, body = self.worker.request("POST", "/connectors", {"name": self.topic(flow), "config": config})
        assert status == 201, body
        self.configs[flow] = config

    def get(self, flow: str, path: str) -> Any:
        status, body = self.worker.request("GET", f"/connectors/{self.topic(flow)}/{path}")
        assert status == 200, body
        return body

    def task(self, flow: str) -> dict[str, Any]:
        tasks = self.get(flow, "status")["tasks"]
        return tasks[0] if tasks else {"state": "NONE"}

    def wait_state(self, flow: str, state: str) -> dict[str, Any]:
        wait_for(lambda: self.task(flow)["state"] == state, f"{flow} is {state}", lambda: self.about(flow))
        return self.task(flow)

    def pid(self, flow: str) -> int:
        tasks = wait_for(
            lambda: [task for task in self.get(flow, "progress")["tasks"] if task.get("pid")],
            f"{flow} has a process",
            lambda: self.about(flow),
        )
        return int(tasks[0]["pid"])

    def written(self, flow: str) -> int:
        """Rows that the flow's task has written since it started."""
        return int(self.get(flow, "progress")["tasks"][0].get("records_written", 0))

    def lines(self, flow: str) -> list[str]:
        """All rows that the flow wrote, sorted; rows that came twice are there twice."""
        return sorted(
            line for path in (self.folder / flow).glob("batch-*.txt") for line in path.read_text().splitlines()
        )

    def expected(self, flow: str) -> list[str]:
        return sorted(f"{flow} {number}" for number in range(self.sent[flow]))

    def wait_lines(self, flow: str) -> None:
        wait_for(
            lambda: self.lines(flow) == self.expected(flow), f"{flow} wrote each row once", lambda: self.about(flow)
        )

    def copied(self, flow: str, target: str) -> list[str]:
        """All committed records of a topic, sorted, once there are as many as were sent."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"{target}-{secrets.token_hex(4)}",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([target])
        values: list[str] = []

        def complete() -> bool:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.append((message.value() or b"").decode())
            return len(values) >= self.sent[flow]

        try:
            wait_for(complete, f"{flow} was copied", lambda: f"{values}\n{self.about(flow)}")
        finally:
            consumer.close()
        return sorted(values)

    def about(self, flow: str) -> str:
        return f"{self.task(flow)} {self.lines(flow)}\n{self.worker.service.log_tail()}"


@pytest.fixture
def flows(
    millrace: Callable[..., MillraceWorker], bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Flows:
    monkeypatch.setenv("PYTHONPATH", str(PLUGIN))
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    (tmp_path / "out").mkdir()
    worker = millrace(properties={"task.shutdown.graceful.timeout.ms": "20000"})
    return Flows(worker, bootstrap, tmp_path / "out")


def test_flows_share_a_driver_and_nothing_else(flows: Flows) -> None:
    # Two flows start at once: one process and one JVM for both.
    target = f"{flows.prefix}-copy"
    flows.create("files")
    flows.create("kafka", **{"sink.type": "kafka", "sink.kafka.topic": target, "sink.kafka.content": "records"})
    flows.wait_lines("files")
    assert flows.copied("kafka", target) == flows.expected("kafka")
    first = flows.pid("files")
    assert flows.pid("kafka") == first
    (jvm,) = list_children(first)

    # A flow fails alone, with its own error; a third one comes meanwhile; one whose settings differ is refused.
    (flows.folder / "files" / "fatal").write_text("the target of this flow refuses the batch")
    flows.send("files", 5)
    failed = flows.wait_state("files", "FAILED")
    assert failed["trace"].startswith("Fatal: the target of this flow refuses the batch\n")
    flows.create("late")
    flows.wait_lines("late")
    flows.create("odd", **{"spark.driver.memory": "600m"})
    refused = flows.wait_state("odd", "FAILED")
    assert "spark.driver.memory is 512m there and 600m here" in refused["trace"]
    assert "spark.application=own" in refused["trace"]
    flows.send("kafka", 5)
    assert flows.copied("kafka", target) == flows.expected("kafka")
    assert {flows.task(name)["state"] for name in ("kafka", "late")} == {"RUNNING"}
    assert {flows.pid(name) for name in ("kafka", "late")} == {first}

    # Restarted, the failed flow continues in the same driver; a paused one stops alone and resumes.
    (flows.folder / "files" / "fatal").unlink()
    assert flows.worker.request("POST", f"/connectors/{flows.topic('files')}/tasks/0/restart")[0] == 204
    flows.wait_lines("files")
    assert flows.pid("files") == first
    assert flows.worker.request("PUT", f"/connectors/{flows.topic('late')}/pause")[0] == 202
    flows.wait_state("late", "PAUSED")
    flows.send("late", 5)
    flows.send("files", 5)
    flows.wait_lines("files")
    assert flows.worker.request("PUT", f"/connectors/{flows.topic('late')}/resume")[0] == 202
    flows.wait_lines("late")
    # A changed configuration restarts its own flow; the others have not stopped: they still count from their start.
    # The flow files has written two batches since its restart: the one that failed, and the next.
    counted = {"files": 10, "kafka": flows.sent["kafka"]}
    changed = {**flows.configs["late"], "trigger.interval.ms": "50"}
    assert flows.worker.request("PUT", f"/connectors/{flows.topic('late')}/config", changed)[0] == 200
    for name in ("files", "kafka", "late"):
        flows.send(name, 5)
    for name in ("files", "late"):
        flows.wait_lines(name)
    assert flows.copied("kafka", target) == flows.expected("kafka")
    for name, count in counted.items():
        wait_for(lambda name=name, count=count: flows.written(name) == count + 5, f"{name} counts on")  # type: ignore[misc]
    wait_for(lambda: flows.written("late") == 5, "the changed flow counts from its start", lambda: flows.about("late"))
    assert list_children(first) == [jvm]

    # A savepoint over REST: another flow in the same driver starts from it and gets only what came later.
    savepoints = f"/connectors/{flows.topic('late')}/savepoints"
    assert flows.worker.request("POST", savepoints, {"name": "one"})[0] == 202
    wait_for(lambda: [row for row in flows.get("late", "savepoints") if "batch" in row], "there is a savepoint")
    (savepoint,) = flows.get("late", "savepoints")
    assert savepoint["name"] == "one"
    assert flows.worker.request("POST", savepoints, {"name": "one"})[0] == 409
    before = flows.sent["late"]
    flows.send("late", 5)
    flows.create("moved", **{"source.topics": flows.topic("late"), "source.savepoint": savepoint["location"]})
    flows.wait_lines("late")
    later = sorted(f"late {number}" for number in range(before, before + 5))
    wait_for(lambda: flows.lines("moved") == later, "the moved flow continues", lambda: flows.about("moved"))
    assert flows.worker.request("DELETE", f"/connectors/{flows.topic('moved')}")[0] == 204
    assert flows.worker.request("DELETE", f"{savepoints}/one")[0] == 204
    assert flows.get("late", "savepoints") == []

    # A savepoint may stop the flow, until its task is restarted.
    assert flows.worker.request("POST", savepoints, {"name": "two", "stop": True})[0] == 202
    wait_for(
        lambda: flows.get("late", "progress")["tasks"][0].get("phase") == "stopped",
        "the flow stopped",
        lambda: flows.about("late"),
    )
    assert flows.worker.request("POST", f"/connectors/{flows.topic('late')}/tasks/0/restart")[0] == 204
    flows.send("late", 5)
    flows.wait_lines("late")

    # The driver is killed: all flows stop, and all come back in one new application, each from its own checkpoint.
    os.kill(jvm, signal.SIGKILL)
    for name in ("files", "kafka", "late"):
        flows.send(name, 5)
    wait_for(lambda: not process_age(first), "the application has ended")
    for name in ("files", "late"):
        flows.wait_lines(name)
    assert flows.copied("kafka", target) == flows.expected("kafka")
    second = flows.pid("files")
    assert second != first
    assert {flows.pid(name) for name in ("kafka", "late")} == {second}

    # Each flow has its own log lines, scheduler pool and metrics.
    log = flows.worker.service.log_path.read_text().splitlines()
    refusals = [line for line in log if "the job failed: the target of this flow refuses the batch" in line]
    assert refusals
    assert all(f"[{flows.topic('files')}|task-0]" in line for line in refusals)
    pools = [line for line in log if "submitted with scheduler pool" in line]
    for name in ("files", "kafka", "late"):
        assert any(f"scheduler pool {flows.topic(name)}," in line for line in pools), pools
    series = dict(
        line.rsplit(" ", 1)
        for line in flows.worker.request("GET", "/metrics")[1].splitlines()
        if line.startswith("millrace_job_up")
    )
    assert {series[f'millrace_job_up{{connector="{flows.topic(name)}",task="0"}}'] for name in ("files", "late")} == {
        "1"
    }

    # Its worker is killed: the application does not outlive it.
    flows.worker.kill_control()
    wait_for(lambda: not process_age(second), "the application ended with its worker")


@pytest.mark.slow
def test_each_sink_of_a_flow_is_a_task(flows: Flows) -> None:
    for sink in ("left", "right"):
        (flows.folder / sink).mkdir()
    sinks = {
        "sinks": "left,right",
        **{f"sink.{sink}.type": "lines_sink:LinesSink" for sink in ("left", "right")},
        **{f"sink.{sink}.lines.folder": str(flows.folder / sink) for sink in ("left", "right")},
    }
    flows.create("both", **{"spark.application": "own", **sinks})

    def written(sink: str) -> bool:
        lines = [line for path in (flows.folder / sink).glob("batch-*.txt") for line in path.read_text().splitlines()]
        return sorted(lines) == flows.expected("both")

    def states() -> list[str]:
        return [task["state"] for task in flows.get("both", "status")["tasks"]]

    for sink in ("left", "right"):
        wait_for(partial(written, sink), f"{sink} has all", lambda: flows.about("both"))
    shown = flows.get("both", "progress")["tasks"]
    assert [(task["id"], task["sink"]) for task in shown] == [(0, "left"), (1, "right")]
    assert len({task["pid"] for task in shown}) == 1

    # One sink fails alone, with its own error; the other one continues, and the failed one catches up.
    (flows.folder / "left" / "fatal").write_text("the left target refuses the batch")
    flows.send("both", 5)
    wait_for(lambda: written("right"), "right has all", lambda: flows.about("both"))
    wait_for(lambda: states() == ["FAILED", "RUNNING"], "left failed alone", lambda: flows.about("both"))
    (flows.folder / "left" / "fatal").unlink()
    assert flows.worker.request("POST", f"/connectors/{flows.topic('both')}/tasks/0/restart")[0] == 204
    wait_for(lambda: written("left"), "left has all", lambda: flows.about("both"))

    # Offsets and metrics name the sink; a pause is for all.
    def offsets() -> set[tuple[str, int]]:
        entries = flows.get("both", "offsets")["offsets"]
        return {(entry["partition"]["sink"], entry["offset"]["kafka_offset"]) for entry in entries}

    wait_for(lambda: offsets() == {("left", 10), ("right", 10)}, "both committed", offsets)
    name = flows.topic("both")
    series = [
        f'millrace_job_up{{connector="{name}",task="{task}",sink="{sink}"}} 1'
        for task, sink in enumerate(("left", "right"))
    ]

    def all_up() -> bool:
        metrics = flows.worker.request("GET", "/metrics")[1]
        return all(line in metrics for line in series)

    wait_for(all_up, "the metrics name both sinks")  # tasks report their numbers at intervals
    assert flows.worker.request("PUT", f"/connectors/{name}/pause")[0] == 202
    wait_for(lambda: states() == ["PAUSED", "PAUSED"], "both are paused", states)
    flows.send("both", 5)
    assert flows.worker.request("PUT", f"/connectors/{name}/resume")[0] == 202
    for sink in ("left", "right"):
        wait_for(partial(written, sink), f"{sink} has all", lambda: flows.about("both"))
