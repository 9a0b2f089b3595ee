"""Real task hosts in the simulated cluster: their tasks count (``source``), and what they deliver must be as exactly once says.

The topics of a task hold the numbers from 0 on. They begin again where the offsets of its connector were reset.
"""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.hosts import Run, delay_answer, run_of, unit_of
from tests.simulation.kafka_log import TopicLimits
from tests.simulation.schedule import MOST_TASKS, NAMES
from tests.simulation.source import LARGEST_BATCH, TOPIC
from worker.control.placement.planning import INSTANCE, Unit
from worker.host.host import TaskHost
from worker.pipe import Peer
from worker.protocol import (
    ConnectorStateChanged,
    StartConnector,
    StartTask,
    StopConnector,
    StopTask,
    TaskStateChanged,
    ToHost,
)

if TYPE_CHECKING:
    from tests.simulation.kafka_cluster import Cluster
    from tests.simulation.loop import VirtualLoop
    from tests.simulation.processes import Child
    from tests.simulation.watch import Watch

_WORKING: Final = frozenset({"RUNNING", "PAUSED"})


def real_config(config: dict[str, str]) -> dict[str, str]:
    """A connector's configuration for real hosts."""
    return {
        **config,
        "connector.class": "tests.simulation.source.CountingConnector",
        "tasks.max": config["count"],
        "topic": f"{TOPIC}{config['name']}-",
        "large": "false",
        "errors.retry.delay.max.ms": "2000",
        "errors.restart.policy": "always",
        "errors.restart.max.attempts": "-1",
        "errors.restart.delay.ms": "500",
        "errors.restart.max.delay.ms": "2000",
    }


class RealHost:
    """One task host.

    Args:
        loop: the simulation's.
        watch: hears of what runs.
        child: its process.
    """

    def __init__(self, loop: VirtualLoop, watch: Watch, child: Child) -> None:
        self._loop = loop
        self._watch = watch
        self.child = child
        self._runs: dict[tuple[Unit, int], Run] = {}
        self._peer: Peer | None = None
        self._host: TaskHost | None = None
        #: Until then nothing is answered.
        self.stuck_until = 0.0

    async def main(self) -> None:
        """Serve until the pipe is closed; the process ends with it."""
        reader, writer = await asyncio.open_connection(sock=self.child.end)
        self._peer = Peer(reader, writer, self._handle, ToHost)
        self._host = TaskHost(self)
        self._peer.start()
        await self._peer.closed.wait()

    async def request(self, message: Any, deadline_s: float) -> Any:
        """Ask the control process."""
        assert self._peer is not None
        return await self._peer.request(message, deadline_s)

    def event(self, message: Any) -> None:
        """Tell the control process, and the watch if it is about what runs."""
        assert self._peer is not None
        match message:
            case TaskStateChanged():
                self._follow(unit_of(message.id), message.generation, message.state)
            case ConnectorStateChanged():
                self._follow(Unit(message.name, INSTANCE), message.generation, message.state)
        self._peer.event(message)

    async def _handle(self, message: Any) -> Any:
        assert self._host is not None
        await delay_answer(self, self._loop, message)
        if isinstance(message, StartConnector | StartTask):
            run = run_of(message)
            self._runs[run.unit, run.generation] = run
        answer = await self._host.handle(message)
        match message:
            case StopTask():
                self._forget(unit_of(message.id))
            case StopConnector():
                self._forget(Unit(message.name, INSTANCE))
        return answer

    def _follow(self, unit: Unit, generation: int, state: str) -> None:
        run = self._runs.get((unit, generation))
        if run is None:
            return
        run.paused = state == "PAUSED"
        if state in _WORKING and not run.working:
            run.working = True
            self._watch.started(unit, self.child, run)
        elif state not in _WORKING and run.working:
            run.working = False
            self._watch.stopped(unit, self.child)

    def _forget(self, unit: Unit) -> None:
        """A unit was stopped, or abandoned: exactly once makes good what it still does."""
        for key in [key for key in self._runs if key[0] == unit]:
            self._follow(*key, "STOPPED")
            del self._runs[key]


class NumberTopics:
    """The topics that the tasks of all connectors write to, and their saved positions.

    Args:
        kafka: where they are.
        exactly_once: whether each number must be there once.
    """

    def __init__(self, kafka: Cluster, *, exactly_once: bool) -> None:
        self._kafka = kafka
        self._exactly_once = exactly_once
        #: Partition and offset -> key and value, with those that compaction has removed.
        self._saved: dict[tuple[int, int], tuple[bytes, bytes | None]] = {}
        for unit in _all_tasks():
            kafka.create(_topic(unit), 1, TopicLimits(LARGEST_BATCH, keyless=True))

    def note_positions(self) -> None:
        """Remember the saved positions: compaction may remove them next."""
        for log in self._kafka.topics.get("offsets", ()):
            for offset, key, value in log.records(committed=True):
                self._saved[log.number, offset] = key or b"", value

    def progress(self, unit: Unit) -> int:
        """A number that grows as a task delivers: the last stable offset of its topic."""
        return self._kafka.topics[_topic(unit)][0].stable_end

    def wrong(self) -> str:
        """The first rule that does not hold; "" if all hold."""
        self.note_positions()
        return next(filter(None, map(self._wrong_task, _all_tasks())), "")

    def _wrong_task(self, unit: Unit) -> str:
        records, positions = self._records(unit), self._positions(unit)
        numbers = [number for _, number in records]
        saved = max((max(group) for group in positions), default=0)
        missing = sorted(set(range(saved)) - set(numbers))
        if missing:
            return f"of {unit}, {saved} is saved, and {missing[:5]} are not written"
        if not self._exactly_once:
            newest: dict[bytes, int] = {}
            seen: set[tuple[bytes, int]] = set()
            for record in records:
                run, number = record
                if record not in seen and number < newest.get(run, -1):
                    return f"of a run of {unit}, {newest[run]} is written before {number}"
                seen.add(record)
                newest[run] = max(number, newest.get(run, -1))
            return ""
        back = next((group for group in positions if group != sorted(group)), None)
        if back is not None:
            return f"saved positions of {unit} go back: {back}"
        lengths = _lengths(numbers)
        if lengths is None:
            steps = enumerate(pairwise([-1, *numbers]))
            at = next(index for index, (before, number) in steps if number not in (0, before + 1))
            return f"the records of {unit} are not all numbers once in order: {numbers[max(0, at - 3) : at + 3]}"
        ends = [group[-1] for group in positions]
        # What was committed last may still be hidden by the open transaction of another task in one of the topics.
        if lengths[:-1] != ends[: len(lengths) - 1] or len(ends) > len(lengths):
            return f"of {unit}, {lengths} numbers are written between resets of its offsets, and {ends} are saved"
        return ""

    def _records(self, unit: Unit) -> list[tuple[bytes, int]]:
        """The run and the number of each record."""
        return [
            (key or b"", int(value or b"-1"))
            for _, key, value in self._kafka.topics[_topic(unit)][0].records(committed=True)
        ]

    def _positions(self, unit: Unit) -> list[list[int]]:
        """The positions of a task between resets, without the resets between which nothing was saved."""
        groups: list[list[int]] = [[]]
        for _, (key, value) in sorted(self._saved.items()):
            name, partition = json.loads(key)
            if (name, partition["source"]) != (unit.connector, unit.task):
                continue
            if value is None:
                groups.append([])
            else:
                groups[-1].append(json.loads(value)["n"])
        return [group for group in groups if group]


def _lengths(numbers: list[int]) -> list[int] | None:
    """The lengths of sequences from 0 on, one behind the other; None if they are none."""
    lengths: list[int] = []
    for number in numbers:
        if number == 0:
            lengths.append(1)
        elif lengths and number == lengths[-1]:
            lengths[-1] += 1
        else:
            return None
    return lengths


def _all_tasks() -> list[Unit]:
    return [Unit(name, number) for name in NAMES for number in range(MOST_TASKS)]


def _topic(unit: Unit) -> str:
    return f"{TOPIC}{unit.connector}-{unit.task}"
