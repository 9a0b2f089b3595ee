"""Java Kafka Connect workers of several versions, each with a console for it."""

from __future__ import annotations

import secrets
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compose.local.connect import JavaConnect
from compose.local.ports import free_port
from compose.local.process.http import is_answering
from compose.local.process.service import Service
from tests.support.eventually import eventually
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Iterator

#: A task that fails at its first record, until its transform is another.
BROKEN = {
    "transforms": "pick",
    "transforms.pick.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
    "transforms.pick.field": "nowhere",
}
SECRET = f"s3cret-{secrets.token_hex(4)}"


class Cluster:
    """A Java worker, with files for its connectors to read.

    Attributes:
        worker: the worker.
        url: the address of the console for it.
    """

    def __init__(self, worker: JavaConnect, folder: Path, url: str) -> None:
        self.worker = worker
        self.url = url
        self._folder = folder

    def create(self, name: str, config: dict[str, str] | None = None) -> None:
        """A file source; returns when its task exists."""
        lines = self._folder / f"{name}.txt"
        lines.write_text("one\ntwo\nthree\n")
        body = {
            "connector.class": "FileStreamSource",
            "topic": "java-console",
            "file": str(lines),
            "tasks.max": "1",
            **(config or {}),
        }
        # A rebalance may be under way.
        eventually(
            lambda: self.request("PUT", f"/connectors/{name}/config", body)[0] in (200, 201), f"{name} is created"
        )
        eventually(lambda: self.states(name)[1], f"{name} has a task", ignore=(KeyError,))

    def request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Ask the worker, not the console."""
        return self.worker.request(method, path, body)

    def states(self, name: str) -> tuple[str, list[str]]:
        """The states of a connector and of its tasks."""
        status = self.request("GET", f"/connectors/{name}/status")[1]
        return status["connector"]["state"], [task["state"] for task in status["tasks"]]

    def offset(self, name: str) -> dict[str, Any] | None:
        """The offset of its file; None while it has none."""
        offsets = self.request("GET", f"/connectors/{name}/offsets")[1]["offsets"]
        return offsets[0]["offset"] if offsets else None


@contextmanager
def open_cluster(bootstrap: str, folder: Path, runtime: str = "connect") -> Iterator[Cluster]:
    """A Java worker with connectors, one of which fails, and the console for it."""
    worker = JavaConnect(
        folder / "worker",
        bootstrap,
        group=f"java-console-{secrets.token_hex(4)}",
        properties={
            "offset.flush.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "0",
            # The default since Kafka 3.0.
            "connector.client.config.override.policy": "All",
        },
        runtime=runtime,
        jvm_options=FAST_START,
    )
    port = free_port(None)
    url = f"http://127.0.0.1:{port}"
    console = Service(
        "console",
        [sys.executable, "-m", "worker.cli", "console", "--connect", worker.url, "--port", str(port)],
        folder / "console.log",
        ready=lambda: is_answering(f"{url}/console"),
        folder=Path(__file__).parents[3],
    )
    try:
        # The console may be there first.
        console.start()
        worker.start()
        java = Cluster(worker, folder, url)
        java.create("orders", {"producer.override.client.id": "orders", "db.password": SECRET})
        java.create("broken", BROKEN)
        eventually(lambda: java.states("broken")[1] == ["FAILED"], "the task has failed")
        yield java
    finally:
        console.stop()
        worker.kill()
