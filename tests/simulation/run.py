"""One run of the simulated cluster from a plan, its verdict, and the shortest plan that fails the same way."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tests.simulation.client import Client
from tests.simulation.delivery import Delivered
from tests.simulation.final_state import FinalState
from tests.simulation.hosts import ModelledHost
from tests.simulation.loop import SimulationStuck, VirtualLoop, close_quietly, virtual_world
from tests.simulation.real_hosts import NumberTopics
from tests.simulation.schedule import Event, Plan, make_plan
from tests.simulation.source import TOPIC
from tests.simulation.world import World
from worker.control.placement.planning import INSTANCE

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
            if isinstance(host, ModelledHost):
                host.failing_until = 0.0
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
            wrong = FinalState(self.world, client, self._plan).find_mistake()
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
            "fail units": lambda: self._fail_units(event.length_s),
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

    def _fail_units(self, length_s: float) -> None:
        for host in self.world.live_hosts():
            if isinstance(host, ModelledHost):
                self.loop.call_in(host.child.process, 0.0, host.fail_units, length_s)

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
