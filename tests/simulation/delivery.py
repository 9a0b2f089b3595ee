"""Delivery under simulation: real task hosts (session, producer, commits, exactly once) against the modelled Kafka.

Hosts are killed, paused and cut off, with exactly once also doubled; brokers fail and leaders move; Kafka refuses batches,
and records for good, which become dead letters. A saved position never passes a record that is not written, no record
overtakes an earlier one of its run, and with exactly once the topics hold every number once and in order.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from offsets.store import OffsetStore
from tests.simulation.hosts import current_machine
from tests.simulation.kafka_cluster import Cluster
from tests.simulation.kafka_connection import connected
from tests.simulation.kafka_log import TopicLimits
from tests.simulation.loop import SimulationStuck, VirtualLoop, close_quietly, virtual_world
from tests.simulation.network import Network
from tests.simulation.source import LARGEST_BATCH, LARGEST_REQUEST, TOPIC, is_refused
from worker.host.host import TaskHost
from worker.protocol import HostTaskId, Init, ReadLease, ReadOffsets, StartTask

if TYPE_CHECKING:
    from tests.simulation.loop import Process

_FAULTS: Final = ("kill", "kill", "double", "pause", "cut", "cut broker", "broker", "leaders", "coordinators", "slow")
_LOOK_S: Final = 0.1
_RECOVERED_S: Final = 120.0
_NAME: Final = "counter"
_LETTERS: Final = "letters"


class _Channel:
    """A host's way to its control process: that of saved offsets."""

    def __init__(self, store: OffsetStore, *, exactly_once: bool) -> None:
        self._store = store
        self._exactly_once = exactly_once

    async def request(self, message: Any, deadline_s: float) -> Any:
        """Read saved offsets as a control process does."""
        if isinstance(message, ReadLease):
            return math.inf
        assert isinstance(message, ReadOffsets)
        await self._store.read_to_end(deadline_s, open_transactions=self._exactly_once)
        return self._store.raw(message.connector)

    def event(self, message: Any) -> None:
        """States of tasks are looked at nowhere."""
        del message


@dataclass(frozen=True, slots=True)
class Delivered:
    """The outcome of a run: the first broken rule, the records in the topic, the digest of all steps, and the trace."""

    seed: int
    exactly_once: bool
    broken: str | None
    records: int
    digest: int
    trace: tuple[tuple[float, str, str], ...]


class Delivery:
    """A run from a seed."""

    def __init__(self, seed: int) -> None:
        draw = self._draw = random.Random(seed)
        self.seed = seed
        self.exactly_once = draw.random() < 0.7
        self.loop = VirtualLoop(seed)
        self.loop.adopt_outside()
        self.network = Network(self.loop)
        self.kafka = Cluster(self.loop, self.network)
        self.broken: str | None = None
        self._watcher = self.loop.spawn("watcher")
        self._hosts: list[Process] = []
        self._epoch = 0
        self._saved = 0

    async def main(self) -> None:
        """Let faults happen, and look at what is delivered."""
        self.kafka.create("offsets", 2)
        self.kafka.create(TOPIC, 1, TopicLimits(LARGEST_BATCH, keyless=True))
        self.kafka.create(_LETTERS, 1, TopicLimits(keyless=True))
        self._start_host()
        loop, end = self.loop, self.loop.time() + self._draw.uniform(8, 20)
        while loop.time() < end and not self.broken:
            await asyncio.sleep(self._draw.uniform(0.1, 4))
            self._fault(self._draw.choice(_FAULTS))
            self._check()
        self._heal()
        before, until = self._saved, loop.time() + _RECOVERED_S
        while not self.broken and self._saved < before + 30:
            if loop.time() > until:
                self.broken = f"{self._saved} is saved {_RECOVERED_S:g} s after all faults, as much as before"
            await asyncio.sleep(_LOOK_S)
            self._check()

    # Hosts.

    def _start_host(self) -> None:
        process = self.loop.spawn(f"host-{len(self._hosts)}", f"machine-{len(self._hosts)}")
        self._hosts.append(process)
        self._epoch += 1
        self.loop.note(f"{process.name} starts")
        self.loop.run_in(process, self._host_main(self._epoch))

    async def _host_main(self, generation: int) -> None:
        store = OffsetStore("offsets", {"bootstrap_servers": self.kafka.addresses})
        while True:
            try:
                await store.start()
                break
            except Exception:  # noqa: BLE001 - Kafka is unavailable
                await asyncio.sleep(1)
        host = TaskHost(_Channel(store, exactly_once=self.exactly_once))
        await host.handle(Init("machine:8083", 0, self._properties(), {}, "modelled"))
        config = {
            "name": _NAME,
            "connector.class": "tests.simulation.source.CountingConnector",
            "errors.restart.policy": "always",
            "errors.restart.delay.ms": "500",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": _LETTERS,
            # In a transaction a record that the broker refuses fails the task: records must be refused before.
            **(
                {"producer.override.max.request.size": str(LARGEST_REQUEST)} if self.exactly_once else {"early": "true"}
            ),
        }
        await host.handle(StartTask(HostTaskId(_NAME, 0), config, {}, generation))
        await asyncio.Event().wait()

    def _properties(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self.kafka.addresses,
            "group.id": "cluster",
            "offset.storage.topic": "offsets",
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

    def _fault(self, kind: str) -> None:
        loop, draw, host = self.loop, self._draw, self._hosts[-1]
        self.loop.note(f"fault: {kind}")
        length = draw.choice((draw.uniform(0.05, 1), draw.uniform(1, 8)))
        if kind == "kill" or (kind == "double" and not self.exactly_once):
            loop.kill(host)
            self._start_host()
        elif kind == "double":
            self._start_host()  # the earlier one runs too: it must be fenced
        elif kind == "pause":
            host.paused = True
            loop.call_in(self._watcher, length, setattr, host, "paused", False)
        elif kind in ("cut", "cut broker"):
            brokers = self.kafka.brokers if kind == "cut" else [draw.choice(self.kafka.brokers)]
            for broker in brokers:
                self.network.cut(host.machine, broker.name)
                loop.call_in(self._watcher, length, self.network.join, host.machine, broker.name)
        elif kind == "broker":
            number = draw.randrange(len(self.kafka.brokers))
            self.kafka.stop_broker(number, silent=draw.random() < 0.3)
            loop.call_in(self._watcher, length, self.kafka.start_broker, number)
        elif kind == "leaders":
            for topic, partition in sorted(self.kafka.leaders):
                self.kafka.move_leader(topic, partition)
        elif kind == "coordinators":
            self.kafka.move_coordinators()
        else:
            self.network.slow_s = 2.0
            loop.call_in(self._watcher, length, setattr, self.network, "slow_s", 0.05)

    def _heal(self) -> None:
        self.loop.note("all faults are over")
        self.network.slow_s = 0.05
        for host in self._hosts:
            host.paused = False
            for broker in self.kafka.brokers:
                self.network.join(host.machine, broker.name)
        for broker in self.kafka.brokers:
            self.kafka.start_broker(broker.number)
        # A host that was fenced by a later one stays so.
        for host in self._hosts:
            self.loop.kill(host)
        self._start_host()

    # Rules.

    def _check(self) -> None:
        written, letters = self._numbers(TOPIC), self._numbers(_LETTERS)
        saved = self._positions(None)
        # At least once fences nothing: what a host sent that is dead may arrive late. Records come again then.
        for producer in (None,) if self.exactly_once else self._producers():
            positions = self._positions(producer)
            if positions != sorted(positions):
                self._break(f"saved positions go back: {positions[-5:]}")
        self._saved = saved[-1] if saved else 0
        missing = set(range(self._saved)).difference((number for _, number in written + letters))
        if missing:
            self._break(f"{self._saved} is saved, and {sorted(missing)[:5]} are not written")
        for refused, records in ((False, written), (True, letters)):
            self._check_records(records, refused=refused)

    def _check_records(self, records: list[tuple[bytes, int]], *, refused: bool) -> None:
        """Check the records of a topic: those that Kafka takes, or the dead letters of the others."""
        name, early = "dead letters" if refused else "records", not self.exactly_once
        numbers = [number for _, number in records]
        wrong = [number for number in numbers if is_refused(number, early=early) != refused]
        if wrong:
            self._break(f"{wrong[:5]} are among the {name}")
        if self.exactly_once:
            expected = [
                number for number in range(max(numbers, default=-1) + 1) if is_refused(number, early=False) == refused
            ]
            if numbers != expected:
                self._break(f"{name} are not all numbers once in order: {_difference(numbers, expected)}")
            return
        newest: dict[bytes, int] = {}
        seen: set[tuple[bytes, int]] = set()
        for run, number in records:
            if (run, number) in seen:
                continue
            seen.add((run, number))
            if number < newest.get(run, -1):
                self._break(f"of the {name} of a run, {newest[run]} is written before {number}")
            newest[run] = number

    def _break(self, rule: str) -> None:
        self.broken = self.broken or rule

    def _numbers(self, topic: str) -> list[tuple[bytes, int]]:
        """The run and the number of each record in a topic."""
        return [
            (key or b"", int((value or b"-1").split(b" ", 1)[0]))
            for _, key, value in self.kafka.topics[topic][0].records(committed=True)
        ]

    def _producers(self) -> list[int]:
        """Those that have written positions."""
        return sorted({batch.producer for log in self.kafka.topics["offsets"] for batch in log.batches})

    def _positions(self, producer: int | None) -> list[int]:
        """Saved positions in the order in which they were written, by one producer or by all."""
        return [
            json.loads(value)["n"]
            for log in self.kafka.topics["offsets"]
            for _, _, value in log.records(committed=True, producer=producer)
            if value
        ]

    def outcome(self) -> Delivered:
        """How it went."""
        records = len(self.kafka.topics[TOPIC][0].records(committed=True))
        return Delivered(self.seed, self.exactly_once, self.broken, records, self.loop.digest, tuple(self.loop.trace))


def _difference(numbers: list[int], expected: list[int]) -> str:
    """The first place where they differ."""
    pairs = itertools.zip_longest(numbers, expected)
    index = next(index for index, (number, other) in enumerate(pairs) if number != other)
    return f"{numbers[max(0, index - 2) : index + 3]} instead of {expected[max(0, index - 2) : index + 3]}"


def run_delivery(seed: int) -> Delivered:
    """Run a seed."""
    collecting = gc.isenabled()
    gc.disable()
    delivery = Delivery(seed)
    loop = delivery.loop
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    asyncio.set_event_loop(loop)
    try:
        with virtual_world(loop, seed), connected(delivery.kafka, current_machine):
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
