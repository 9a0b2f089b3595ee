"""A Millrace worker as a process of the local stack: for the demo, tests, fault tests and benchmarks."""

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compose.local.connect import worker_properties
from compose.local.ports import LOOPBACK, free_port
from compose.local.process.http import is_answering, send_request
from compose.local.process.jvm import write_properties
from compose.local.process.service import PATIENCE, Managed, Service, wait_until
from worker.fetch.errors import StackError
from worker.process_tree import list_children

# The checkout or the installed packages: a worker process finds the same code as the program that starts it.
_ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(slots=True)
class MillraceWorker(Managed):
    """One worker. Start several with the same `group` (and folders of their own) for a cluster.

    Attributes:
        state_dir: Folder of its configuration and log.
        bootstrap: Kafka's addresses.
        group: `group.id`, and the prefix of the names of its internal topics.
        port: REST port when it is free; None for any port.
        properties: Worker properties that override the defaults.
        processes: Task hosts; None for the machine's cores, 0 for all in one process.
        replication: Replication factor of the internal topics.
        detached: Whether the worker outlives this program.
        start_timeout: Seconds the worker may take to be ready.
    """

    state_dir: Path
    bootstrap: str
    group: str = "millrace"
    port: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    processes: int | None = None
    replication: int = 1
    detached: bool = False
    start_timeout: float = 60.0

    @property
    def url(self) -> str:
        """Root of its REST API, without a slash at the end; known before the start."""
        _ = self.service
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def worker_id(self) -> str:
        """How statuses name it."""
        return self.url.removeprefix("http://")

    def kill_control(self) -> None:
        """End the control process alone with SIGKILL; its task hosts have to notice."""
        os.kill(self.pid, signal.SIGKILL)

    def hosts(self) -> list[int]:
        """Process numbers of its task hosts."""
        return list_children(self.pid)

    def request(self, method: str, path: str, body: object = None, timeout: float = 30.0) -> tuple[int, Any]:
        """Call its REST API; see `http.call`."""
        return send_request(method, self.url + path, body, timeout * PATIENCE)

    def create(self, name: str, config: Mapping[str, object]) -> None:
        """Create or replace a connector.

        Raises:
            StackError: It was refused; the message is the worker's.
        """
        status, body = self.request("PUT", f"/connectors/{name}/config", dict(config))
        if status not in {200, 201}:
            raise StackError(f"connector {name} was refused with status {status}: {body}")

    def states(self, name: str) -> tuple[str, list[str]]:
        """State of a connector and of its tasks; ("MISSING", []) when there is no such connector."""
        status, body = self.request("GET", f"/connectors/{name}/status")
        if status != 200:
            return "MISSING", []
        return body["connector"]["state"], [task["state"] for task in body["tasks"]]

    def wait_running(self, name: str, tasks: int, timeout: float = 30.0) -> None:
        """Wait until a connector and all its tasks run.

        Raises:
            StackError: They did not in time; the message holds the status.
        """
        self.wait_for(
            lambda: self.states(name) == ("RUNNING", ["RUNNING"] * tasks),
            timeout,
            f"connector {name} did not come to run with {tasks} tasks",
            lambda: self.request("GET", f"/connectors/{name}/status"),
        )

    def wait_for(self, condition: Callable[[], bool], timeout: float, goal: str, detail: Callable[[], object]) -> None:
        """Wait for a condition that asks the worker; a refused connection counts as not yet.

        Raises:
            StackError: `what`, with `detail()` and the end of the worker's log.
        """

        def holds() -> bool:
            try:
                return condition()
            except OSError:
                return False

        if wait_until(holds, timeout, 0.05):
            return
        try:
            shown = str(detail())
        except OSError as error:
            shown = f"no answer: {error}"
        raise StackError(
            f"{goal} within {timeout:g} s: {shown}\nEnd of the log {self.log_path}:\n{self.service.log_tail()}"
        )

    def _prepare(self) -> Service:
        self.port = free_port(self.port)
        folder = self.state_dir.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        properties = worker_properties(self.bootstrap, self.group, self.port, self.replication, self.properties)
        del properties["plugin.discovery"]  # Java only
        path = write_properties(folder / "worker.properties", properties)
        command: Sequence[str] = [sys.executable, "-m", "worker.cli", "worker", str(path)]
        if self.processes is not None:
            command = [*command, "--processes", str(self.processes)]
        return Service(
            name=f"Millrace worker ({LOOPBACK}:{self.port})",
            command=command,
            log_path=folder / "worker.log",
            ready=lambda: is_answering(f"{self.url}/health"),
            environment={"PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))},
            detached=self.detached,
            start_timeout=self.start_timeout,
        )
