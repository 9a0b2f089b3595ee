"""Delivery under simulation: real task hosts (session, producer, commits, exactly once) against the modelled Kafka.

Hosts are killed, drained, paused and cut off, with exactly once also doubled; tasks are restarted and paused in them; sources
fail; brokers fail and leaders move; Kafka refuses batches, and records for good, which become dead letters. A saved position
never passes a record that is not written, no record overtakes an earlier one of its run, and with exactly once the topics
hold every number once and in order, but for those of transactions that the task drops.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.errors import Retriable
from offsets.store import OffsetStore
from tests.simulation.hosts import current_machine
from tests.simulation.kafka_cluster import Cluster
from tests.simulation.kafka_connection import connected
from tests.simulation.kafka_log import TopicLimits
from tests.simulation.loop import SimulationStuck, VirtualLoop, close_quietly, virtual_world
from tests.simulation.network import Network
from tests.simulation.schedule import make_delivery_plan
from tests.simulation.source import LARGEST_BATCH, LARGEST_REQUEST, TOPIC, TRANSACTION, Numbers
from worker.control.fencing import fence_producers
from worker.host.host import TaskHost
from worker.protocol import HostTaskId, Init, PauseTask, ReadLease, ReadOffsets, StartTask, StopTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.simulation.loop import Process
    from tests.simulation.schedule import DeliveryPlan, Event

_LOOK_S: Final = 0.1
_RECOVERED_S: Final = 120.0
_NAME: Final = "counter"
_GROUP: Final = "cluster"
#: Each task has a topic of its own: an open transaction of another hides what is committed behind it.
_LETTERS: Final = "letters-"
_STOP_S: Final = 5.0
_FENCED_S: Final = 30.0
_LEASE_S: Final = 0.1


class _Channel:
    """A host's way to its control process.

    Args:
        store: of saved offsets.
        exactly_once: whether open transactions have to end before they are read.
        in_group: whether the worker is in its group: another one that has its units has waited until it is not.
    """

    def __init__(self, store: OffsetStore, *, exactly_once: bool, in_group: Callable[[], bool]) -> None:
        self._store = store
        self._exactly_once = exactly_once
        self._in_group = in_group

    async def request(self, message: Any, deadline_s: float) -> Any:
        """Answer as a control process does: with the end of its lease, or saved offsets."""
        if isinstance(message, ReadLease):
            return asyncio.get_running_loop().time() + _LEASE_S if self._in_group() else 0.0
        assert isinstance(message, ReadOffsets)
        await self._store.read_to_end(deadline_s, open_transactions=self._exactly_once)
        return self._store.raw(message.connector)

    def event(self, message: Any) -> None:
        """States of tasks are looked at nowhere."""
        del message


class _Record(NamedTuple):
    """A record in a topic: the run of the task, and the number that it gave."""

    run: bytes
    number: int


class _Receipt(NamedTuple):
    """A batch whose delivery was reported to a task, and where its topics ended then."""

    task: int
    numbers: range
    ends: dict[str, int]


class _Segment(NamedTuple):
    """The time from a change of a task's offset to the next.

    Attributes:
        start: the number that the task begins with.
        records: how many of its records were there before.
        letters: how many of its dead letters were.
        after: where the changed offset is in the offsets topic.
    """

    start: int
    records: int = 0
    letters: int = 0
    after: int = -1


@dataclass(eq=False, slots=True)
class _Host:
    """A task host, once it has started, and its process."""

    process: Process
    tasks: TaskHost | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """The outcome of a run: the first broken rule, the records in the topic, the digest of all steps, and the trace."""

    plan: DeliveryPlan
    broken: str | None
    records: int
    digest: int
    trace: tuple[tuple[float, str, str], ...]


class Delivery:
    """A run.

    Args:
        plan: what happens.
    """

    def __init__(self, plan: DeliveryPlan) -> None:
        self._plan = plan
        self.exactly_once = plan.exactly_once
        self._numbers = Numbers(early=not plan.exactly_once, transactions=plan.boundary == "connector")
        self._tasks = range(plan.tasks)
        self.loop = VirtualLoop(plan.seed)
        self.loop.adopt_outside()
        self.network = Network(self.loop)
        self.kafka = Cluster(self.loop, self.network)
        self.loop.report_delivered = self._note_receipt
        self._receipts: list[_Receipt] = []
        #: Topic -> its ends when it was last read, and its records with their offsets.
        self._read: dict[str, tuple[tuple[int, int], list[tuple[int, _Record]]]] = {}
        self.broken: str | None = None
        self._watcher = self.loop.spawn("watcher")
        self._hosts: list[_Host] = []
        self._epoch = 0
        self._saved = [0 for _ in self._tasks]
        self._control = self.loop.spawn("control")
        #: Tasks whose offsets are being changed: no host may run them.
        self._stopped: set[int] = set()
        #: Tasks that the last host restarts: a control process asks for one thing of a task at a time.
        self._restarting: set[int] = set()
        self._segments = [[_Segment(0)] for _ in self._tasks]

    async def main(self) -> None:
        """Let faults happen, and look at what is delivered."""
        for topic in sorted({"offsets", self._plan.offsets}):
            self.kafka.create(topic, 2)
        for task in self._tasks:
            self.kafka.create(f"{TOPIC}{task}", 1, TopicLimits(LARGEST_BATCH, keyless=True))
            self.kafka.create(f"{_LETTERS}{task}", 1, TopicLimits(keyless=True))
        self._start_host()
        loop, start = self.loop, self.loop.time()
        for event in self._plan.events:
            await asyncio.sleep(max(0.0, start + event.at_s - loop.time()))
            self._fault(event)
            self._check()
            if self.broken:
                return
        await asyncio.sleep(max(0.0, start + self._plan.end_s - loop.time()))
        self._heal()
        before, until = list(self._saved), loop.time() + _RECOVERED_S
        while not self.broken and any(self._saved[task] < before[task] + 30 for task in self._tasks):
            if loop.time() > until:
                self.broken = f"{self._saved} is saved {_RECOVERED_S:g} s after all faults, {before} was before"
            await asyncio.sleep(_LOOK_S)
            self._check()

    # Hosts.

    def _start_host(self) -> None:
        number = len(self._hosts)
        self._restarting.clear()
        host = _Host(self.loop.spawn(f"host-{number}", f"machine-{number}"))
        self._hosts.append(host)
        self.loop.note(f"{host.process.name} starts")
        self.loop.run_in(host.process, self._host_main(host))

    async def _host_main(self, host: _Host) -> None:
        store = OffsetStore("offsets", {"bootstrap_servers": self.kafka.addresses})
        while True:
            try:
                await store.start()
                break
            except Exception:  # noqa: BLE001 - Kafka is unavailable
                await asyncio.sleep(1)
        tasks = TaskHost(_Channel(store, exactly_once=self.exactly_once, in_group=lambda: host is self._hosts[-1]))
        await tasks.handle(Init("machine:8083", 0, self._properties(), {}, "modelled"))
        host.tasks = tasks
        for task in self._tasks:
            if task not in self._stopped:
                await tasks.handle(self._start_message(task))
        await asyncio.Event().wait()

    def _start_message(self, task: int) -> StartTask:
        self._epoch += 1
        config = {
            "name": _NAME,
            "connector.class": "tests.simulation.source.CountingConnector",
            "task": str(task),
            "errors.retry.delay.max.ms": "2000",
            "errors.restart.policy": "always",
            "errors.restart.max.attempts": "-1",
            "errors.restart.delay.ms": "500",
            "errors.restart.max.delay.ms": "2000",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": f"{_LETTERS}{task}",
            "offsets.storage.topic": self._plan.offsets,
        }
        if self.exactly_once:
            # In a transaction a record that the broker refuses fails the task: records must be refused before.
            config["producer.override.max.request.size"] = str(LARGEST_REQUEST)
            config["transaction.boundary"] = self._plan.boundary
            config["transactions"] = str(self._numbers.transactions).lower()
        else:
            config["early"] = "true"
        return StartTask(HostTaskId(_NAME, task), config, {}, self._epoch)

    def _properties(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self.kafka.addresses,
            "group.id": _GROUP,
            "offset.storage.topic": "offsets",
            "offset.storage.replication.factor": "1",
            "offset.flush.interval.ms": "300",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "plugin.path": "tests.simulation.source:CountingConnector",
            "exactly.once.source.support": "enabled" if self.exactly_once else "disabled",
            "producer.request.timeout.ms": "5000",
            "producer.transaction.timeout.ms": "20000",
            "topic.creation.enable": "false",
        }

    # Faults.

    def _fault(self, event: Event) -> None:
        loop, kind, length, host = self.loop, event.kind, event.length_s, self._hosts[-1].process
        loop.note(f"fault: {event}")
        if kind == "kill" or (kind == "double" and not self.exactly_once):
            loop.kill(host)
            self._start_host()
        elif kind == "double":
            self._start_host()  # the earlier one runs too: it must be fenced
        elif kind in ("drain", "restart task", "pause task"):
            self._ask_host(event)
        elif kind == "alter offset":
            self._alter_soon(self._hosts[-1], event)
        elif kind == "pause":
            host.paused = True
            loop.call_in(self._watcher, length, setattr, host, "paused", False)
        elif kind in ("cut", "cut broker"):
            brokers = (
                self.kafka.brokers if kind == "cut" else [self.kafka.brokers[event.first % len(self.kafka.brokers)]]
            )
            for broker in brokers:
                self.network.cut(host.machine, broker.name)
                loop.call_in(self._watcher, length, self.network.join, host.machine, broker.name)
        elif kind == "broker":
            number = event.first % len(self.kafka.brokers)
            self.kafka.stop_broker(number, silent=event.second % 3 == 0)
            loop.call_in(self._watcher, length, self.kafka.start_broker, number)
        elif kind == "leaders":
            for topic, partition in sorted(self.kafka.leaders):
                self.kafka.move_leader(topic, partition)
        elif kind == "coordinators":
            self.kafka.move_coordinators()
        else:
            self.network.slow_s = 2.0
            loop.call_in(self._watcher, length, setattr, self.network, "slow_s", 0.05)

    def _ask_host(self, event: Event) -> None:
        """Let the last host do something in its own time, if it has started."""
        host = self._hosts[-1]
        if host.tasks is None:
            return
        task = HostTaskId(_NAME, event.first % len(self._tasks))
        if task.task in self._restarting | self._stopped:
            return
        if event.kind == "drain":
            action = self._drain(host, host.tasks)
        elif event.kind == "restart task":
            # Not when it begins: a host that is paused is asked for one restart, as workers do it.
            self._restarting.add(task.task)
            action = self._restart(host.tasks, task)
        else:
            action = self._pause(host.tasks, task, event.length_s)
        self.loop.run_in(host.process, action)

    async def _drain(self, host: _Host, tasks: TaskHost) -> None:
        host.tasks = None  # a host that ends is asked for nothing more
        await tasks.close(_STOP_S)
        self.loop.kill(host.process)
        if host is self._hosts[-1]:
            self._start_host()

    async def _restart(self, tasks: TaskHost, task: HostTaskId) -> None:
        await tasks.handle(StopTask(task, _STOP_S))
        await tasks.handle(self._start_message(task.task))
        self._restarting.discard(task.task)

    async def _pause(self, tasks: TaskHost, task: HostTaskId, length: float) -> None:
        await tasks.handle(PauseTask(task, paused=True))
        await asyncio.sleep(length)
        await tasks.handle(PauseTask(task, paused=False))

    # Offsets that an operator changes.

    def _alter_soon(self, host: _Host, event: Event) -> None:
        task = event.first % len(self._tasks)
        # At least once fences nothing: what a host sent that is dead may be written behind the change.
        fenced = self.exactly_once or len(self._hosts) == 1
        if host.tasks is not None and task not in self._restarting | self._stopped and fenced:
            self._stopped.add(task)
            self.loop.run_in(self._control, self._alter_offset(host, task, event.second))

    async def _alter_offset(self, host: _Host, task: int, choice: int) -> None:
        """Set the offset of a task, as the herder does: stop it, fence its producer, write."""
        if await self._stop(host, task):
            position = TRANSACTION * (choice % (self._saved[task] // TRANSACTION + 2))
            client = {"bootstrap_servers": self.kafka.addresses}
            stores = [OffsetStore(topic, client) for topic in sorted({"offsets", self._plan.offsets})]
            while True:
                try:
                    if self.exactly_once:
                        await fence_producers(client, [f"{_GROUP}-{_NAME}-{task}"], _FENCED_S)
                    for store in stores:
                        await store.start()
                        await store.write(_NAME, [({"source": task}, {"n": position})])
                    break
                except Retriable:
                    await asyncio.sleep(1)
            for store in stores:
                await store.stop()
            self.loop.note(f"the offset of task {task} is {position}")
            self._segments[task].append(
                _Segment(
                    position,
                    len(self._records(f"{TOPIC}{task}")),
                    len(self._records(f"{_LETTERS}{task}")),
                    self._positions(task)[-1][0],
                )
            )
        self._stopped.discard(task)
        host = self._hosts[-1]
        if host.tasks is not None:
            self.loop.run_in(host.process, host.tasks.handle(self._start_message(task)))

    async def _stop(self, host: _Host, task: int) -> bool:
        """Whether a task has ended; False if it had to be abandoned, when a worker replaces its host."""
        if host.tasks is None:
            return True
        stop = self.loop.run_in(host.process, host.tasks.handle(StopTask(HostTaskId(_NAME, task), _STOP_S)))
        while host.process.alive and not stop.done():
            await asyncio.sleep(_LOOK_S)
        return not host.process.alive or bool(stop.result())

    def _heal(self) -> None:
        self.loop.note("all faults are over")
        self.network.slow_s = 0.05
        for host in self._hosts:
            host.process.paused = False
            for broker in self.kafka.brokers:
                self.network.join(host.process.machine, broker.name)
        for broker in self.kafka.brokers:
            self.kafka.start_broker(broker.number)
        # A host that was fenced by a later one stays so.
        for host in self._hosts:
            self.loop.kill(host.process)
        self._start_host()

    # Rules.

    def _check(self) -> None:
        self._check_receipts()
        for task in self._tasks:
            # Of an offset that is being changed it is not known yet whether it is written.
            if task not in self._stopped:
                self._check_task(task)

    def _check_task(self, task: int) -> None:
        written, letters = self._records(f"{TOPIC}{task}"), self._records(f"{_LETTERS}{task}")
        self._check_positions(task, {record.number for record in (*written, *letters)})
        last = _Segment(0, len(written), len(letters))
        for segment, end in pairwise([*self._segments[task], last]):
            records, dead = written[segment.records : end.records], letters[segment.letters : end.letters]
            self._check_records(records, segment.start, f"records of task {task}", refused=False)
            self._check_records(dead, segment.start, f"dead letters of task {task}", refused=True)

    def _note_receipt(self, topic: str, numbers: range) -> None:
        """Remember what is reported to a task, and where the topics end at that moment."""
        task = int(topic.removeprefix(TOPIC))
        ends = {name: self.kafka.topics[name][0].end for name in (topic, f"{_LETTERS}{task}")}
        self._receipts.append(_Receipt(task, numbers, ends))

    def _check_receipts(self) -> None:
        """Check that Kafka had what was reported to tasks, in a transaction that is committed."""
        receipts, self._receipts = self._receipts, []
        for receipt in receipts:
            if any(self.kafka.topics[name][0].stable_end < end for name, end in receipt.ends.items()):
                self._receipts.append(receipt)  # whether its transaction gets committed is not known yet
                continue
            there = {record.number for name, end in receipt.ends.items() for record in self._records(name, end)}
            missing = [
                number for number in receipt.numbers if number not in there and not self._numbers.is_dropped(number)
            ]
            if missing:
                self._break(f"{receipt.numbers} are reported to task {receipt.task}, and Kafka lacks {missing[:5]}")

    def _check_positions(self, task: int, delivered: set[int]) -> None:
        """Check that saved positions grow, and that what they pass is delivered."""
        segment = self._segments[task][-1]
        saved = self._positions(task)
        back = find_set_back(
            (0 if self.exactly_once else producer, n) for offset, n, producer in saved if offset > segment.after
        )
        if back is not None:
            self._break(f"saved positions of task {task} go back to {back}: {[n for _, n, _ in saved[-9:]]}")
        end = self._saved[task] = saved[-1][1] if saved else 0
        missing = [
            number
            for number in range(segment.start, end)
            if number not in delivered and not self._numbers.is_dropped(number)
        ]
        if missing:
            self._break(f"of task {task}, {end} is saved, and {missing[:5]} are not written")

    def _check_records(self, records: list[_Record], start: int, name: str, *, refused: bool) -> None:
        """Check records of a task that began at ``start``: those that Kafka takes, or the dead letters of the others."""
        numbers = [record.number for record in records]
        wrong = [
            number
            for number in numbers
            if self._numbers.is_refused(number) != refused or self._numbers.is_dropped(number)
        ]
        if wrong:
            self._break(f"{wrong[:5]} are among the {name}")
        if self.exactly_once:
            expected = [
                number
                for number in range(start, max(numbers, default=-1) + 1)
                if self._numbers.is_refused(number) == refused and not self._numbers.is_dropped(number)
            ]
            if numbers != expected:
                self._break(f"the {name} are not all numbers once in order: {_difference(numbers, expected)}")
            return
        newest: dict[bytes, int] = {}
        seen: set[_Record] = set()
        for record in records:
            if record in seen:
                continue
            seen.add(record)
            before = newest.get(record.run, -1)
            if record.number < before:
                self._break(f"of the {name} of a run, {before} is written before {record.number}")
            newest[record.run] = record.number

    def _break(self, rule: str) -> None:
        self.broken = self.broken or rule

    def _records(self, topic: str, end: float = math.inf) -> list[_Record]:
        """The records in a topic before an offset."""
        log = self.kafka.topics[topic][0]
        state = log.end, log.stable_end
        if topic not in self._read or self._read[topic][0] != state:
            records = [
                (offset, _Record(key or b"", int(value or b"-1"))) for offset, key, value in log.records(committed=True)
            ]
            self._read[topic] = state, records
        return [record for offset, record in self._read[topic][1] if offset < end]

    def _positions(self, task: int) -> list[tuple[int, int, int]]:
        """Saved positions of a task in the order in which they were written: the record's offset, the number, the producer."""
        return sorted(
            (offset, json.loads(value)["n"], producer)
            for log in self.kafka.topics[self._plan.offsets]
            for producer in {batch.producer for batch in log.batches}
            for offset, key, value in log.records(committed=True, producer=producer)
            if value and json.loads(key or b"[]")[1]["source"] == task
        )

    def outcome(self) -> Delivered:
        """How it went."""
        records = sum(len(self._records(f"{TOPIC}{task}")) for task in self._tasks)
        return Delivered(self._plan, self.broken, records, self.loop.digest, tuple(self.loop.trace))


def find_set_back(positions: Iterable[tuple[int, int]]) -> int | None:
    """The first saved position that is behind an earlier one of its producer, or None. Pure.

    At least once fences nothing: what a host has sent that is dead may arrive late, and be what a task continues from.

    Args:
        positions: producers and positions in the order in which they were written.
    """
    reached: dict[int, int] = {}
    for producer, position in positions:
        if position < reached.get(producer, 0):
            return position
        reached = {other: min(last, position) for other, last in reached.items()}
        reached[producer] = position
    return None


def _difference(numbers: list[int], expected: list[int]) -> str:
    """The first place where they differ."""
    pairs = zip_longest(numbers, expected)
    index = next(index for index, (number, other) in enumerate(pairs) if number != other)
    return f"{numbers[max(0, index - 2) : index + 3]} instead of {expected[max(0, index - 2) : index + 3]}"


def run_delivery(seed: int) -> Delivered:
    """Run the plan of a seed."""
    return run_delivery_plan(make_delivery_plan(seed))


def run_delivery_plan(plan: DeliveryPlan) -> Delivered:
    """Run a plan; the same plan gives the same outcome."""
    collecting = gc.isenabled()
    gc.disable()
    delivery = Delivery(plan)
    loop = delivery.loop
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    asyncio.set_event_loop(loop)
    try:
        with virtual_world(loop, plan.seed), connected(delivery.kafka, current_machine):
            try:
                loop.run_until_complete(loop.run_in(loop.spawn("main"), delivery.main()))
            except SimulationStuck as error:
                delivery.broken = str(error)
            return delivery.outcome()
    finally:
        logging.disable(level)
        asyncio.set_event_loop(None)
        close_quietly(loop)
        if collecting:
            gc.enable()
