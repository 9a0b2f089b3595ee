"""Several workers of one group, and what chaos tests ask of them and do to them. Everything here blocks."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from compose.local.process.identity import start_mark
from compose.local.worker import MillraceWorker
from tests.chaos.delivery import Load, verify
from tests.support.eventually import eventually
from worker.kafka.whole_topics import read_topic

#: Shorter than the defaults, so that the tests are; the tests' brokers allow it (conftest).
FAST = {
    "session.timeout.ms": "4000",
    "heartbeat.interval.ms": "500",
    "offset.flush.interval.ms": "300",
    "task.host.stuck.ms": "2500",
    "task.host.restart.backoff.ms": "200",
    "task.shutdown.graceful.timeout.ms": "2000",
    # Hosts are killed here through no fault of their tasks.
    "task.host.crash.limit": "1000",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter.schemas.enable": "false",
}
#: Seconds that anything a test waits for may take on a busy machine; no test measures against it.
PATIENCE = 60.0


class Placed(NamedTuple):
    """A task as REST shows it."""

    state: str
    worker: str


class Event(NamedTuple):
    """A record of the status topic."""

    unit: str  # NAME for the connector's own instance, NAME-0 for a task
    state: str  # "GONE" for a tombstone
    worker: str
    generation: int
    trace: str


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    return start_mark(pid) is None


@dataclass(slots=True)
class Cluster:
    """Workers of one group.

    Attributes:
        folder: their folders are made in it.
        bootstrap: Kafka's addresses, also for reading topics.
        group: ``group.id``.
        exactly_once: whether sources run with exactly once.
        replication: of internal topics.
        properties: worker properties over ``FAST``.
        workers: all that were ever added, dead ones included.
    """

    folder: Path
    bootstrap: str
    group: str
    exactly_once: bool = False
    replication: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)
    workers: list[MillraceWorker] = field(default_factory=list)

    def add(self, *, bootstrap: str | None = None, processes: int = 1, wait: bool = True) -> MillraceWorker:
        """Start one more worker."""
        support = "enabled" if self.exactly_once else "disabled"
        worker = MillraceWorker(
            self.folder / f"worker-{len(self.workers)}",
            bootstrap or self.bootstrap,
            group=self.group,
            processes=processes,
            replication=self.replication,
            properties={**FAST, "exactly.once.source.support": support, **self.properties},
        )
        self.workers.append(worker)
        worker.service.launch()
        if wait:
            worker.service.wait_ready(PATIENCE)
        return worker

    def start(self, count: int, processes: int = 1) -> Self:
        """Start workers, all at once, and wait until each knows all of them."""
        for _ in range(count):
            self.add(processes=processes, wait=False)
        return self.repair()

    def repair(self) -> Self:
        """Start what does not run, and wait until all workers know each other."""
        for worker in self.workers:
            worker.service.launch()
        for worker in self.workers:
            worker.service.wait_ready(PATIENCE)
        self.until_complete()
        return self

    def until_complete(self) -> None:
        """Wait until every running worker sees exactly the running ones, and is well."""

        def complete() -> bool:
            return all(
                self.members(worker) == self.ids and worker.request("GET", "/health")[0] == 200
                for worker in self.running
            )

        self.until(complete, "the workers have found each other")

    def drop(self, worker: MillraceWorker) -> None:
        """Kill a worker that shall not come back."""
        worker.kill()
        self.workers.remove(worker)

    def close(self) -> None:
        """Kill all workers."""
        for worker in self.workers:
            worker.kill()

    # Who is who.

    @property
    def running(self) -> list[MillraceWorker]:
        """Workers whose control process lives."""
        return [worker for worker in self.workers if worker.running]

    @property
    def ids(self) -> set[str]:
        """Worker ids of those."""
        return {worker.worker_id for worker in self.running}

    def worker(self, worker_id: str) -> MillraceWorker:
        """The worker of that id."""
        return next(worker for worker in self.workers if worker.worker_id == worker_id)

    def members(self, asked: MillraceWorker | None = None) -> set[str]:
        """Workers in the group, as a worker said last."""
        return self._view(asked or self.running[0])[0]

    def leader(self) -> MillraceWorker:
        """The worker that leads, once all running ones agree on it."""

        def leading() -> set[str]:
            return {self._view(worker)[1] for worker in self.running}

        self.until(lambda: len(leading()) == 1 and leading() <= self.ids, "the workers agree on who leads")
        return self.worker(leading().pop())

    @staticmethod
    def _view(worker: MillraceWorker) -> tuple[set[str], str]:
        """Members and leader: REST tells them for a connector only, the log always."""
        lines = [line for line in worker.log_path.read_text().splitlines() if " of the group: " in line]
        if not lines:
            return set(), ""
        members, _, leader = lines[-1].partition(" of the group: ")[2].partition("; ")
        return set(members.split(", ")), leader.partition(" leads")[0]

    @staticmethod
    def generations(worker: MillraceWorker) -> int:
        """How many generations of the group a worker has seen."""
        return worker.log_path.read_text().count(" of the group: ")

    def leads(self, worker: MillraceWorker) -> bool:
        """Whether a worker says that it leads."""
        return self._view(worker)[1] == worker.worker_id

    def followers(self) -> list[MillraceWorker]:
        """The running workers that don't lead."""
        leader = self.leader()
        return [worker for worker in self.running if worker is not leader]

    # What runs.

    def ask(self, method: str, path: str, body: object = None, by: MillraceWorker | None = None) -> tuple[int, Any]:
        """A REST request to a worker, the first running one by default; status 0 where there is no answer."""
        try:
            return (by or self.running[0]).request(method, path, body, 10)
        except (OSError, IndexError) as error:
            return 0, error

    def create(self, load: Load) -> None:
        """Create a connector and wait until its tasks run."""
        self.running[0].create(load.name, load.config)
        self.until_running(load)

    def tasks(self, name: str, by: MillraceWorker | None = None) -> dict[int, Placed]:
        """A connector's tasks."""
        status, body = self.ask("GET", f"/connectors/{name}/status", by=by)
        return {task["id"]: Placed(task["state"], task["worker_id"]) for task in body["tasks"]} if status == 200 else {}

    def find_workers(self, load: Load) -> set[str]:
        """The workers that have tasks of a load."""
        return {task.worker for task in self.tasks(load.name).values()}

    def until_running(self, load: Load, on: set[str] | None = None, by: MillraceWorker | None = None) -> None:
        """Wait until all tasks of a load run, only on these workers if given."""

        def run() -> bool:
            tasks = self.tasks(load.name, by)
            return len(tasks) == load.tasks and all(
                task.state == "RUNNING" and (on is None or task.worker in on) for task in tasks.values()
            )

        self.until(run, f"the tasks of {load.name} run")

    def until_settled(self, load: Load) -> None:
        """Wait until every worker says of every task that it runs where it was placed: no late status hides a newer one."""

        def settled() -> bool:
            status, body = self.ask("GET", f"/connectors/{load.name}/explain")
            if status != 200:
                return False
            placed = {task["id"]: Placed("RUNNING", task["worker_id"]) for task in body["tasks"]}
            return len(placed) == load.tasks and all(self.tasks(load.name, worker) == placed for worker in self.running)

        self.until(settled, f"workers report {load.name} as it is")

    def saved(self, load: Load, by: MillraceWorker | None = None) -> dict[int, int]:
        """Source partition -> how many of its records are covered by the committed offset."""
        status, body = self.ask("GET", f"/connectors/{load.name}/offsets", by=by)
        if status != 200:
            return {}
        return {entry["partition"]["partition"]: entry["offset"]["sequence"] + 1 for entry in body["offsets"]}

    def until_saved(self, load: Load, share: float, by: MillraceWorker | None = None) -> None:
        """Wait until every source partition has saved an offset behind this share of its records: the middle of the stream."""
        goals = {number: int(count * share) for number, count in enumerate(load.counts)}

        def reached() -> bool:
            saved = self.saved(load, by)
            return all(saved.get(number, 0) >= count for number, count in goals.items())

        self.until(reached, f"{load.name} has {share:.0%} of its records")

    def until_done(self, load: Load, by: MillraceWorker | None = None) -> None:
        """Wait until all records are delivered and their offsets saved."""
        self.until_saved(load, 1.0, by)

    def finish(self, load: Load) -> int:
        """Wait until all is delivered, and compare it with the source; returns how many records are there more than once."""
        self.until_done(load)
        self.until_settled(load)
        twice = verify(self.bootstrap, load, exactly_once=self.exactly_once)
        self.until_settled(load)
        print(f"{load.name}: {load.records} records, {twice} of them more than once")
        return twice

    def history(self, name: str) -> list[Event]:
        """All status records of a connector and its tasks, unit by unit, each one's oldest first."""
        events = []
        for record in read_topic(self.bootstrap, f"{self.group}-status", committed=True):
            key = (record.key or b"").decode()
            unit = key.removeprefix("status-connector-").removeprefix("status-task-")
            if unit == key or (unit != name and unit.rpartition("-")[0] != name):
                continue
            value = json.loads(record.value) if record.value else {}
            events.append(
                Event(
                    unit,
                    value.get("state", "GONE"),
                    value.get("worker_id", ""),
                    value.get("generation", -1),
                    value.get("trace") or "",
                )
            )
        # A unit's records are in one partition of the topic; the order between partitions is by chance.
        return sorted(events, key=lambda event: event.unit)

    def starts(self, name: str) -> dict[str, int]:
        """How often each of a connector's tasks was reported to run."""
        counts: dict[str, int] = {}
        for event in self.history(name):
            if event.state == "RUNNING" and event.unit != name:
                counts[event.unit] = counts.get(event.unit, 0) + 1
        return counts

    def until_config(self, load: Load, name: str, value: str, by: MillraceWorker) -> None:
        """Wait until a worker knows a connector's property by this value."""
        self.until(
            lambda: self.ask("GET", f"/connectors/{load.name}/config", by=by)[1].get(name) == value,
            f"{by.worker_id} knows that {name} of {load.name} is {value!r}",
        )

    def until_tasks(self, load: Load, count: int) -> None:
        """Wait until a connector has ``count`` tasks; with -1, until it is gone."""

        def has() -> bool:
            status, _ = self.ask("GET", f"/connectors/{load.name}")
            return status == 404 if count < 0 else len(self.tasks(load.name)) == count

        self.until(has, f"{load.name} has {count} tasks")

    def until_progress(self, load: Load, records: int) -> None:
        """Wait until the offsets of ``records`` records, over all source partitions, or of all records, are saved."""
        self.until(lambda: sum(self.saved(load).values()) >= min(records, load.records), f"{load.name} makes progress")

    # Waiting, and what is done to workers.

    def until(self, condition: Callable[[], bool], description: str, patience: float = PATIENCE) -> None:
        """Wait for a condition; a worker that does not answer is no error.

        Raises:
            AssertionError: with what was awaited and the ends of the workers' logs.
        """

        def logs() -> str:
            return "\n".join(
                f"--- {worker.worker_id} ({worker.log_path})\n{worker.service.log_tail(25)}" for worker in self.workers
            )

        eventually(condition, description, patience, every=0.05, detail=logs, ignore=(OSError,))

    def numbers(self, worker: MillraceWorker, metric: str) -> list[float]:
        """The values of all series of a metric of a worker."""
        status, text = self.ask("GET", "/metrics", by=worker)
        lines = str(text).splitlines() if status == 200 else []
        return [float(line.rpartition(" ")[2]) for line in lines if line.startswith((metric + " ", metric + "{"))]


def freeze(*pids: int) -> None:
    """Stop processes as a machine that hangs: they keep their connections and do nothing."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


def thaw(*pids: int) -> None:
    """Resume frozen processes, those that still exist."""
    for pid in pids:
        if not gone(pid):
            os.kill(pid, signal.SIGCONT)


@contextmanager
def timed(action: str) -> Iterator[None]:
    """Print how long something took."""
    began = time.monotonic()
    yield
    print(f"{action}: {time.monotonic() - began:.1f} s")
