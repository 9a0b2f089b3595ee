"""The rules for the simulated cluster once its faults are over, and clients have their answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from offsets.status import StatusState
from tests.simulation.client import requested_of, snapshot_of
from tests.simulation.hosts import ModelledHost
from tests.simulation.verification import TABLES
from worker.control.placement.planning import INSTANCE, Unit
from worker.control.state.verifications import INTERVAL, RUNNING

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.hosts import Run
    from tests.simulation.schedule import Plan
    from tests.simulation.world import Worker, World

#: How long after its time a scheduled verification starts at the latest.
_LATE_MS: Final = 30_000


class FinalState:
    """The cluster at a moment.

    Args:
        world: the cluster.
        client: what was asked of it.
        plan: of the run.
    """

    def __init__(self, world: World, client: Client, plan: Plan) -> None:
        self._world = world
        self._client = client
        self._plan = plan
        self._snapshot = snapshot_of(world)
        self._requested = requested_of(world)
        #: Units that have failed in a host, with its machine.
        self._failed: dict[Unit, list[tuple[str, Run]]] = {}
        for host in world.live_hosts():
            for run in host.failed_runs if isinstance(host, ModelledHost) else ():
                self._failed.setdefault(run.unit, []).append((host.child.process.machine, run))
        #: Units that shall run, and whether they shall be paused.
        self._expected: dict[Unit, bool] = {}
        for name in self._snapshot.connectors:
            target, tasks = self._snapshot.target_state(name), self._snapshot.task_configs(name)
            # Whether a reader of a compacted topic knows the tasks of a connector that was changed while it was paused, or
            # whose new run has failed, is open: it says what they are when it is resumed or restarted.
            started = target == "STARTED" and Unit(name, INSTANCE) not in self._failed
            count = INSTANCE if target == "STOPPED" else len(tasks) if started else 0
            for number in range(INSTANCE, count):
                self._expected[Unit(name, number)] = target == "PAUSED"

    def find_mistake(self) -> str:
        """The first thing that is not as it should be; "" if all is."""
        for name, config in self._snapshot.connectors.items():
            if wrong := self._wrong_tasks(name, config):
                return wrong
        for unit, paused in self._expected.items():
            if wrong := self._wrong_unit(unit, paused=paused):
                return wrong
        for unit in self._world.watch.running:
            if unit in self._expected or Unit(unit.connector, INSTANCE) in self._failed:
                continue
            paused = self._snapshot.target_state(unit.connector) == "PAUSED"
            if any(not paused or not row.run.paused for row in self._world.watch.runs(unit)):
                return f"{unit} runs and should not"
        # In this order: a worker that is not ready has no statuses yet.
        return self._wrong_requests() or self._wrong_views() or self._wrong_status()

    def _wrong_tasks(self, name: str, config: dict[str, str]) -> str:
        target, tasks = self._snapshot.target_state(name), self._snapshot.task_configs(name)
        if target == "STOPPED" and tasks:
            return f"connector {name} is stopped and has tasks"
        if target != "STARTED" or Unit(name, INSTANCE) in self._failed:
            return ""
        if len(tasks) != int(config["count"]) or any(task["version"] != config["version"] for task in tasks):
            return f"connector {name} has tasks {tasks} for {config}"
        return ""

    def _wrong_unit(self, unit: Unit, *, paused: bool) -> str:
        runs, failures = self._world.watch.runs(unit), self._failed.get(unit, [])
        if len(runs) + len(failures) != 1:
            return f"{unit} runs {len(runs)} times and has failed {len(failures)} times"
        run = failures[0][1] if failures else runs[0].run
        config = self._snapshot.connectors[unit.connector]
        if not paused and run.config["version"] != config["version"]:
            return f"{unit} runs by version {run.config['version']} of {config['version']}"
        if failures:
            return self._wrong_failure(run)
        if run.paused != paused:
            return f"{unit} is {'not ' if paused else ''}paused"
        saved = self._requested.of_tasks(unit.connector, config)
        if unit.task != INSTANCE and not self._plan.real_hosts and run.instructions != saved:
            return f"{unit} has the instructions {run.instructions!r}, and {saved!r} are saved"
        return ""

    def _wrong_failure(self, run: Run) -> str:
        if run.failed_at is not None and run.failed_at < self._client.restarts.get(run.unit, 0.0):
            return f"{run.unit} failed at {run.failed_at - 1000:.3f} s, and was not restarted as was asked after that"
        return ""

    def _wrong_requests(self) -> str:
        requested = self._requested
        for name in {*requested.instructions.connectors(), *requested.verifications.connectors()}:
            if name not in self._snapshot.connectors:
                return f"there are instructions or a verification of connector {name}, which does not exist"
            if wrong := self._wrong_verification(name, requested.verifications.get(name)):
                return wrong
        return self._late_verification()

    def _late_verification(self) -> str:
        """The first connector that is not verified though its configuration asks for it."""
        jumps = any(event.kind == "jump clock" for event in self._plan.events)
        for name, config in self._snapshot.connectors.items():
            summary = self._requested.verifications.summary(name)
            if INTERVAL not in config:
                continue
            if summary is None:
                return f"no verification of {name} is scheduled"
            # A start by a clock that was ahead is right, too.
            if not jumps and time.time() * 1000 > summary["started_ms"] + int(config[INTERVAL]) + _LATE_MS:
                return f"the verification of {name} is late: {summary}"
        return ""

    def _wrong_verification(self, name: str, body: dict[str, Any] | None) -> str:
        if body is None:
            return ""
        if body["state"] == RUNNING:
            return f"a verification of {name} still runs"
        compared = [table["table"] for table in (body["result"] or {"tables": ()})["tables"]]
        if body["state"] == "completed" and compared != list(TABLES):
            return f"a verification of {name} has compared {compared}"
        for worker in self._world.workers:
            context = worker.control.context if worker.control is not None and _leads(worker) else None
            run = None if context is None else context.verifications.get(name)
            if run is not None and run.body["state"] != body["state"]:
                return f"{worker.name} shows a verification of {name} as {run.body['state']}, it is {body['state']}"
        return ""

    def _wrong_status(self) -> str:
        """The first wrong status that a worker shows, or that a worker would read if it started now."""
        fresh = StatusState()
        for log in self._world.kafka.topics["statuses"]:
            for key, value in {key: value for _offset, key, value in log.records(committed=True)}.items():
                if value is not None:
                    fresh.apply(key, value)
        states = {"the topic": fresh} | {
            worker.name: worker.control.node.status.state
            for worker in self._world.workers
            if worker.control is not None
        }
        for owner, state in states.items():
            wrong = self._wrong_state(state)
            if wrong:
                return f"in {owner}, {wrong}"
        return ""

    def _wrong_state(self, state: StatusState) -> str:
        for unit, paused in self._expected.items():
            status = state.connector(unit.connector) if unit.task == INSTANCE else state.task(unit.connector, unit.task)
            if unit in self._failed:
                expected, machine = "FAILED", self._failed[unit][0][0]
            else:
                expected = "PAUSED" if paused else "RUNNING"
                machine = self._world.watch.runs(unit)[0].child.process.machine
            if status is None or status.state != expected or status.worker_id != f"{machine}:8083":
                return f"the status of {unit} is {status} while it is {expected} on {machine}"
        for name in {*state.connectors(), *self._snapshot.connectors}:
            target, status = self._snapshot.target_state(name), state.connector(name)
            if name not in self._snapshot.connectors:
                return f"there is a status of connector {name}, which does not exist"
            extra = [number for number in state.tasks(name) if Unit(name, number) not in self._expected]
            if extra and target == "STARTED" and Unit(name, INSTANCE) not in self._failed:
                return f"there are statuses of tasks {extra} of {name}, which do not exist"
            if target == "STOPPED" and (status is None or status.state != "STOPPED"):
                return f"the status of {name} is {status} while it is stopped"
        return ""

    def _wrong_views(self) -> str:
        leaders = [worker.name for worker in self._world.workers if _leads(worker)]
        if len(leaders) != 1:
            return f"{leaders} lead"
        for worker in self._world.workers:
            control = worker.control
            if control is None or control.herder is None or not control.herder.admin.ready():
                return f"{worker.name} is not ready"
            if control.node.config.snapshot.connectors != self._snapshot.connectors:
                return f"{worker.name} knows other connectors"
            if control.node.fenced:
                return f"{worker.name} is fenced"
        return ""


def _leads(worker: Worker) -> bool:
    control = worker.control
    # Until it has a herder, it is not built.
    return control is not None and control.herder is not None and worker.process.alive and control.node.leader.active
