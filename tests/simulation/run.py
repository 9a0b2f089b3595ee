"""One run of the simulated cluster from a plan, its verdict, and the shortest plan that fails the same way."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from offsets.status import StatusState
from tests.simulation.client import Client, Requested, requested_of, snapshot_of
from tests.simulation.delivery import Delivered
from tests.simulation.loop import SimulationStuck, VirtualLoop, close_quietly, virtual_world
from tests.simulation.real_hosts import NumberTopics
from tests.simulation.schedule import Event, Plan, make_plan
from tests.simulation.source import TOPIC
from tests.simulation.verification import TABLES
from tests.simulation.world import World
from worker.control.placement.planning import INSTANCE, Unit
from worker.control.state.verifications import INTERVAL, RUNNING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.world import Worker

#: Seconds in which everything must run again when faults are over and clients have their answers.
SETTLED_S: Final = 90.0
#: Seconds in which all tasks must deliver further records then, and how many.
DELIVERED_S: Final = 120.0
_FURTHER: Final = 10
_ANSWERED_S: Final = 240.0
_LOOK_S: Final = 0.5
#: How long after its time a scheduled verification starts at the latest.
_LATE_MS: Final = 30_000
_real_time: Final = time.monotonic
_Outcome = TypeVar("_Outcome", "Verdict", Delivered)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a run went.

    Attributes:
        plan: what was run.
        broken: which rule did not hold, or None.
        digest: of every step.
        steps: how many.
        virtual_s: how much time passed in it.
        settled_s: how long it took until all was as it should be.
        acknowledged: how many requests were.
        excused: runs that overlapped because a worker was paused.
        trace: what happened.
    """

    plan: Plan
    broken: str | None
    digest: int
    steps: int
    virtual_s: float
    settled_s: float
    acknowledged: int
    excused: int
    trace: tuple[tuple[float, str, str], ...]


class _Mistakes(logging.Handler):
    """Errors with a traceback in the product's log are mistakes of the product."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.name.startswith(("worker", "offsets")):
            self._world.watch.fail(f"{record.name}: {record.getMessage()}: {record.exc_info[1]!r}")


class Simulation:
    """A run.

    Args:
        plan: what happens.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.loop = VirtualLoop(plan.seed)
        self.loop.adopt_outside()
        self.world = World(self.loop, plan.workers, exactly_once=plan.exactly_once, real_hosts=plan.real_hosts)
        self._topics = NumberTopics(self.world.kafka, exactly_once=plan.exactly_once) if plan.real_hosts else None
        self._client: Client | None = None
        self._settled_s = 0.0

    async def main(self) -> None:
        """Let everything happen, and look whether all is well at the end."""
        world, loop = self.world, self.loop
        start = loop.time()
        self._client = Client(world)
        for worker in world.workers:
            world.start_worker(worker)
        for event in self._plan.events:
            await asyncio.sleep(max(0.0, start + event.at_s - loop.time()))
            self._happen(event)
            if world.watch.broken:
                return
        await asyncio.sleep(max(0.0, start + self._plan.end_s - loop.time()))
        self._heal()
        await self._settle()

    def _heal(self) -> None:
        loop, world = self.loop, self.world
        loop.note("all faults are over")
        for first in world.workers:
            for name in [*(broker.name for broker in world.kafka.brokers), *(other.name for other in world.workers)]:
                world.network.join(first.name, name)
            world.resume(first)
            first.process.clock_s = 0.0
            world.accept_again(first)
        for host in world.live_hosts():
            host.stuck_until = 0.0
        world.network.slow_s = 0.05
        for broker in world.kafka.brokers:
            world.kafka.start_broker(broker.number)
        for worker in world.workers:
            world.start_worker(worker)

    async def _settle(self) -> None:
        loop, watch = self.loop, self.world.watch
        client = self._client
        if client is None:
            return
        until = loop.time() + _ANSWERED_S
        while not client.done() and loop.time() < until and not watch.broken:
            await asyncio.sleep(_LOOK_S)
        if not client.done():
            watch.fail(f"requests have had no answer for {_ANSWERED_S:g} s after all faults")
        began = loop.time()
        wrong = "?"
        while not watch.broken and loop.time() < began + SETTLED_S:
            wrong = self._wrong()
            if not wrong:
                self._settled_s = loop.time() - began
                client.check_all()
                if self._topics is not None:
                    await self._deliver(self._topics)
                return
            await asyncio.sleep(_LOOK_S)
        watch.fail(f"{SETTLED_S:g} s after all faults: {wrong}")

    async def _deliver(self, topics: NumberTopics) -> None:
        """Wait until every task that runs delivers, and look at all that was delivered."""
        loop, watch = self.loop, self.world.watch
        running = [
            unit
            for unit in watch.running
            if unit.task != INSTANCE and any(not row.run.paused for row in watch.runs(unit))
        ]
        until = loop.time() + DELIVERED_S
        awaited_ends = {unit: topics.progress(unit) + _FURTHER for unit in running}
        while not watch.broken:
            behind = [unit for unit, number in awaited_ends.items() if topics.progress(unit) < number]
            if not behind:
                break
            if loop.time() > until:
                watch.fail(f"{behind} have not delivered for {DELIVERED_S:g} s")
            await asyncio.sleep(_LOOK_S)
        if wrong := topics.wrong():
            watch.fail(wrong)

    # What must be true at the end.

    def _wrong(self) -> str:
        """The first thing that is not as it should be; "" if all is."""
        world = self.world
        snapshot = snapshot_of(world)
        expected_units: dict[Unit, bool] = {}
        for name, config in snapshot.connectors.items():
            target = snapshot.target_state(name)
            if target == "STOPPED":
                if snapshot.task_configs(name):
                    return f"connector {name} is stopped and has tasks"
                continue
            tasks = snapshot.task_configs(name)
            if target == "STARTED" and (
                len(tasks) != int(config["count"]) or any(task["version"] != config["version"] for task in tasks)
            ):
                return f"connector {name} has tasks {tasks} for {config}"
            # Whether a reader of a compacted topic knows the tasks of a connector that was changed while it was paused is open:
            # it says what they are when it is resumed.
            for number in range(INSTANCE, len(tasks) if target == "STARTED" else 0):
                expected_units[Unit(name, number)] = target == "PAUSED"
        requested = requested_of(world)
        for unit, paused in expected_units.items():
            runs = world.watch.runs(unit)
            if len(runs) != 1:
                return f"{unit} runs {len(runs)} times"
            config = snapshot.connectors[unit.connector]
            if not paused and runs[0].run.config["version"] != config["version"]:
                return f"{unit} runs by version {runs[0].run.config['version']} of {config['version']}"
            if runs[0].run.paused != paused:
                return f"{unit} is {'not ' if paused else ''}paused"
            saved = requested.of_tasks(unit.connector, config)
            if unit.task != INSTANCE and not self._plan.real_hosts and runs[0].run.instructions != saved:
                return f"{unit} has the instructions {runs[0].run.instructions!r}, and {saved!r} are saved"
        for unit in world.watch.running:
            if unit not in expected_units and any(
                not row.run.paused or snapshot.target_state(unit.connector) != "PAUSED"
                for row in world.watch.runs(unit)
            ):
                return f"{unit} runs and should not"
        if wrong := self._wrong_requests(requested, snapshot):
            return wrong
        # In this order: a worker that is not ready has no statuses yet.
        return self._wrong_views(snapshot) or self._wrong_status(expected_units, snapshot)

    def _wrong_requests(self, requested: Requested, snapshot: Any) -> str:
        for name in {*requested.instructions.connectors(), *requested.verifications.connectors()}:
            if name not in snapshot.connectors:
                return f"there are instructions or a verification of connector {name}, which does not exist"
            if wrong := self._wrong_verification(name, requested.verifications.get(name)):
                return wrong
        return self._late_verification(requested, snapshot)

    def _late_verification(self, requested: Requested, snapshot: Any) -> str:
        """The first connector that is not verified though its configuration asks for it."""
        jumps = any(event.kind == "jump clock" for event in self._plan.events)
        for name, config in snapshot.connectors.items():
            summary = requested.verifications.summary(name)
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
        for worker in self.world.workers:
            context = worker.control.context if worker.control is not None and _leads(worker) else None
            run = None if context is None else context.verifications.get(name)
            if run is not None and run.body["state"] != body["state"]:
                return f"{worker.name} shows a verification of {name} as {run.body['state']}, it is {body['state']}"
        return ""

    def _wrong_status(self, expected_units: dict[Unit, bool], snapshot: Any) -> str:
        """The first wrong status that a worker shows, or that a worker would read if it started now."""
        fresh = StatusState()
        for log in self.world.kafka.topics["statuses"]:
            for key, value in {key: value for _offset, key, value in log.records(committed=True)}.items():
                if value is not None:
                    fresh.apply(key, value)
        states = {"the topic": fresh} | {
            worker.name: worker.control.node.status.state for worker in self.world.workers if worker.control is not None
        }
        for owner, state in states.items():
            wrong = self._wrong_state(state, expected_units, snapshot)
            if wrong:
                return f"in {owner}, {wrong}"
        return ""

    def _wrong_state(self, state: StatusState, expected_units: dict[Unit, bool], snapshot: Any) -> str:
        for unit, paused in expected_units.items():
            status = state.connector(unit.connector) if unit.task == INSTANCE else state.task(unit.connector, unit.task)
            expected = "PAUSED" if paused else "RUNNING"
            machine = self.world.watch.runs(unit)[0].child.process.machine
            if status is None or status.state != expected or status.worker_id != f"{machine}:8083":
                return f"the status of {unit} is {status} while it is {expected} on {machine}"
        for name in {*state.connectors(), *snapshot.connectors}:
            target, status = snapshot.target_state(name), state.connector(name)
            if name not in snapshot.connectors:
                return f"there is a status of connector {name}, which does not exist"
            extra = [number for number in state.tasks(name) if Unit(name, number) not in expected_units]
            if extra and target == "STARTED":
                return f"there are statuses of tasks {extra} of {name}, which do not exist"
            if target == "STOPPED" and (status is None or status.state != "STOPPED"):
                return f"the status of {name} is {status} while it is stopped"
        return ""

    def _wrong_views(self, snapshot: Any) -> str:
        leaders = [worker.name for worker in self.world.workers if _leads(worker)]
        if len(leaders) != 1:
            return f"{leaders} lead"
        for worker in self.world.workers:
            control = worker.control
            if control is None or control.herder is None or not control.herder.admin.ready():
                return f"{worker.name} is not ready"
            if control.node.config.snapshot.connectors != snapshot.connectors:
                return f"{worker.name} knows other connectors"
            if control.node.fenced:
                return f"{worker.name} is fenced"
        return ""

    # Events.

    def _happen(self, event: Event) -> None:
        if event.kind.startswith("request "):
            if self._client is not None:
                self._client.ask(event)
            return
        self.loop.note(f"fault: {event}")
        world = self.world
        worker = world.workers[event.first % len(world.workers)]
        actions: dict[str, Callable[[], Callable[[], None] | None]] = {
            "kill worker": lambda: self._kill(worker),
            "drain worker": lambda: world.drain_worker(worker),
            "kill host": lambda: self._kill_host(event),
            "hang host": lambda: self._hang_host(event),
            "pause worker": lambda: self._pause(worker, whole=False),
            "pause machine": lambda: self._pause(worker, whole=True),
            "cut worker from broker": lambda: self._cut(
                [(worker.name, world.kafka.brokers[event.second % len(world.kafka.brokers)].name)]
            ),
            "cut worker from Kafka": lambda: self._cut([(worker.name, broker.name) for broker in world.kafka.brokers]),
            "cut workers": lambda: self._cut([(worker.name, other.name) for other in world.workers]),
            "refuse connections": lambda: self._refuse(worker),
            "jump clock": lambda: self._jump(worker, event),
            "stop broker": lambda: self._stop_broker(event),
            "move leaders": self._move_leaders,
            "move coordinators": world.kafka.move_coordinators,
            "slow network": self._slow,
            "compact": self._compact,
        }
        undo = actions[event.kind]()
        if undo is not None:
            self.loop.call_in(world.client, event.length_s, undo)

    def _kill(self, worker: Worker) -> Callable[[], None]:
        self.world.kill_worker(worker)
        return lambda: self.world.start_worker(worker)

    def _pause(self, worker: Worker, *, whole: bool) -> Callable[[], None]:
        self.world.pause(worker, whole=whole)
        return lambda: self.world.resume(worker)

    def _kill_host(self, event: Event) -> None:
        hosts = self.world.live_hosts()
        if hosts:
            hosts[event.first % len(hosts)].child.kill()

    def _hang_host(self, event: Event) -> None:
        hosts = self.world.live_hosts()
        if hosts:
            hosts[event.first % len(hosts)].stuck_until = self.loop.time() + event.length_s

    def _cut(self, pairs: Sequence[tuple[str, str]]) -> Callable[[], None]:
        for first, second in pairs:
            if first != second:
                self.world.network.cut(first, second)

        def join() -> None:
            for first, second in pairs:
                self.world.network.join(first, second)

        return join

    def _refuse(self, worker: Worker) -> Callable[[], None]:
        self.world.refuse(worker)
        return lambda: self.world.accept_again(worker)

    def _jump(self, worker: Worker, event: Event) -> None:
        worker.process.clock_s += (event.second % 7200) - 3600

    def _stop_broker(self, event: Event) -> Callable[[], None]:
        kafka = self.world.kafka
        number = event.first % len(kafka.brokers)
        kafka.stop_broker(number, silent=bool(event.second % 4 == 0))
        return lambda: kafka.start_broker(number)

    def _move_leaders(self) -> None:
        kafka = self.world.kafka
        for topic, partition in sorted(kafka.leaders):
            kafka.move_leader(topic, partition)

    def _slow(self) -> Callable[[], None]:
        network = self.world.network
        network.slow_s = 1.5

        def fast() -> None:
            network.slow_s = 0.05

        return fast

    def _compact(self) -> None:
        if self._topics is not None:
            self._topics.note_positions()
        for name, logs in self.world.kafka.topics.items():
            if name.startswith(TOPIC):
                continue  # what tasks deliver is kept
            for log in logs:
                log.compact(int(self.loop.random.random() * (log.end + 1)))

    def verdict(self) -> Verdict:
        """How it went."""
        loop, watch = self.loop, self.world.watch
        return Verdict(
            self._plan,
            watch.broken,
            loop.digest,
            loop.steps,
            loop.time() - 1000,
            self._settled_s,
            0 if self._client is None else self._client.acknowledged,
            watch.excused,
            tuple(loop.trace),
        )


def _leads(worker: Worker) -> bool:
    control = worker.control
    # Until it has a herder, it is not built.
    return control is not None and control.herder is not None and worker.process.alive and control.node.leader.active


def run_plan(plan: Plan) -> Verdict:
    """Run a plan; the same plan gives the same verdict, if the interpreter's hash seed is the same (PYTHONHASHSEED)."""
    collecting, callbacks = gc.isenabled(), list(gc.callbacks)
    gc.disable()  # destructors would run at times that depend on what was run before
    simulation = Simulation(plan)
    loop = simulation.loop
    root = logging.getLogger()
    mistakes, level = _Mistakes(simulation.world), root.level
    root.addHandler(mistakes)
    root.setLevel(logging.ERROR)
    asyncio.set_event_loop(loop)
    try:
        with virtual_world(loop, plan.seed), simulation.world.installed():
            main = loop.run_in(simulation.world.client, simulation.main(), name="simulation")
            try:
                loop.run_until_complete(main)
            except SimulationStuck as error:
                simulation.world.watch.fail(str(error))
            verdict = simulation.verdict()
    finally:
        root.removeHandler(mistakes)
        root.setLevel(level)
        asyncio.set_event_loop(None)
        close_quietly(loop)
        gc.callbacks[:] = callbacks
        if collecting:
            gc.enable()
    return verdict


def run_seed(seed: int) -> Verdict:
    """Run the plan of a seed."""
    return run_plan(make_plan(seed))


def shorten(failed: _Outcome, run: Callable[[Any], _Outcome], limit_s: float = 120.0) -> _Outcome:
    """The outcome of the shortest plan that still fails, as far as it is found within ``limit_s`` seconds of real time.

    Args:
        failed: the outcome of the whole plan.
        run: runs a plan.
        limit_s: how long to look.
    """
    until = _real_time() + limit_s
    best = failed
    size = max(1, len(best.plan.events) // 2)
    while size >= 1 and _real_time() < until:
        position, shorter = 0, False
        while position < len(best.plan.events) and _real_time() < until:
            events = best.plan.events[:position] + best.plan.events[position + size :]
            outcome = run(replace(best.plan, events=events))
            if outcome.broken:
                best, shorter = outcome, True
            else:
                position += size
        if not shorter or size > 1:
            size = size // 2 if size > 1 else (1 if shorter else 0)
    return best
