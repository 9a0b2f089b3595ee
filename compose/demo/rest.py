"""The demo's REST calls: each is printed so that it can be repeated by hand."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compose.local.process.service import wait_until
from compose.local.worker import MillraceWorker
from worker.fetch.errors import StackError
from worker.terminal import Say, drop_line, progress, say

_CREATED = 201


@dataclass
class Rest:
    """Calls whichever worker is alive.

    Attributes:
        workers: The cluster.
        detail: Where calls and answers are printed.
    """

    workers: list[MillraceWorker] = field(default_factory=list)
    detail: Say = drop_line

    @property
    def alive(self) -> MillraceWorker:
        """A worker that runs."""
        return next(worker for worker in self.workers if worker.running)

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """POST a connector. Blocks until it is answered.

        Raises:
            StackError: It was refused.
        """
        body = {"name": name, "config": dict(config)}
        self.detail(
            f"curl -X POST -H 'Content-Type: application/json' {self.alive.url}/connectors -d '{json.dumps(body)}'"
        )
        status, answer = self.alive.request("POST", "/connectors", body)
        if status != _CREATED:
            raise StackError(f"connector {name} was refused with status {status}: {answer}")
        self.detail("201 created")

    def until_running(self, names: Sequence[str]) -> None:
        """Wait until all tasks of the connectors run, and say where. Blocks.

        Raises:
            StackError: One does not come to run.
        """
        begin = time.monotonic()
        self.detail(f"curl '{self.alive.url}/connectors?expand=status'")
        with progress(f"starting {', '.join(names)}") as step:
            for name in names:
                step.note = f"waiting for {name}"
                self.wait_running(name)
                self.detail(f"{name} runs on {' and '.join(self.where(name))}, {time.monotonic() - begin:.1f} s later")
        say(f"{', '.join(names)} run, {time.monotonic() - begin:.1f} s after they were created")

    def status(self, name: str) -> dict[str, Any]:
        """A connector's status; without tasks while no worker answers."""
        for worker in self.workers:
            if not worker.running:
                continue
            try:
                code, body = worker.request("GET", f"/connectors/{name}/status", timeout=5)
            except OSError:
                continue
            if code == 200:
                return dict(body)
        return {"connector": {"state": "UNASSIGNED"}, "tasks": []}

    def where(self, name: str) -> list[str]:
        """Workers on which its tasks run."""
        return sorted({task["worker_id"] for task in self.status(name)["tasks"] if task["state"] == "RUNNING"})

    def wait_running(self, name: str, timeout: float = 120.0, *, without: str = "") -> None:
        """Wait until it has tasks and all run, none of them on the worker ``without``. Blocks.

        Raises:
            StackError: A task failed for good or time is up; the message holds the status.
        """

        def runs() -> bool:
            tasks = self.status(name)["tasks"]
            return bool(tasks) and all(task["state"] == "RUNNING" and task["worker_id"] != without for task in tasks)

        if not wait_until(runs, timeout, 0.1):
            raise StackError(f"connector {name} did not come to run within {timeout:g} s: {self.status(name)}")

    def metrics(self, *prefixes: str) -> list[str]:
        """Lines of the workers' metrics that begin so."""
        matches: list[str] = []
        for worker in self.workers:
            if worker.running:
                _, exposition = worker.request("GET", "/metrics")
                matches += [line for line in str(exposition).splitlines() if line.startswith(prefixes)]
        return matches
