"""Task hosts as a simulated worker sees them: they start slowly, hang and die, and run units that do nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tests.simulation.loop import CURRENT
from worker.control.placement.planning import INSTANCE, Unit
from worker.host.lease import Lease
from worker.pipe import Peer
from worker.plugins.model import Description, PluginInfo
from worker.protocol import (
    AlterOffsets,
    AskLogs,
    CheckSnapshot,
    ConnectorStateChanged,
    ConnectorView,
    DescribePlugins,
    HostTaskId,
    Init,
    Instruct,
    PauseTask,
    StartConnector,
    StartTask,
    StopConnector,
    StopTask,
    TaskConfigs,
    TaskStateChanged,
    ToHost,
    Validate,
)

if TYPE_CHECKING:
    from tests.simulation.loop import VirtualLoop
    from tests.simulation.processes import Child
    from tests.simulation.watch import Watch

CONNECTOR: Final = "simulated"
_FAILS: Final = 0.3
_PLUGIN: Final = PluginInfo("source", (CONNECTOR,), (CONNECTOR,), (CONNECTOR,), "1.0")


@dataclass
class Run:
    """A unit that runs in a host.

    Attributes:
        config: by which it runs.
        paused: whether it does nothing.
        instructions: what operators ask of it.
        working: whether it has come so far that it touches its source.
        failed_at: when it ended with an error.
    """

    unit: Unit
    config: dict[str, str]
    generation: int
    paused: bool
    instructions: bytes = b"[]"
    task: asyncio.Task[None] | None = None
    working: bool = False
    failed_at: float | None = None


class ModelledHost:
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
        self._runs: dict[Unit, Run] = {}
        self._peer: Peer | None = None
        self._lease: Lease | None = None
        #: Until then nothing is answered.
        self.stuck_until = 0.0
        #: Until then some of the units that start fail.
        self.failing_until = 0.0

    @property
    def failed_runs(self) -> list[Run]:
        """The units that have failed here, and were not started once more."""
        return [run for run in self._runs.values() if run.failed_at is not None]

    def fail_units(self, length_s: float) -> None:
        """Let some units fail at once, and some that start within ``length_s``."""
        self.failing_until = self._loop.time() + length_s
        for run in list(self._runs.values()):
            if run.working and self._loop.random.random() < _FAILS:
                self._fail(run)

    async def main(self) -> None:
        """Serve until the pipe is closed."""
        reader, writer = await asyncio.open_connection(sock=self.child.end)
        self._peer = Peer(reader, writer, self._handle, ToHost)
        self._lease = Lease(self._peer.request)
        self._peer.start()
        await self._peer.closed.wait()
        for run in list(self._runs.values()):
            self._end(run)

    async def _handle(self, message: Any) -> Any:
        await delay_answer(self, self._loop, message)
        match message:
            case DescribePlugins():
                return msgspec.json.encode(Description([_PLUGIN], {}))
            case Validate():
                await asyncio.sleep(self._loop.random.random() * 0.1)
                return msgspec.json.encode({"name": CONNECTOR, "error_count": 0, "groups": [], "configs": []})
            case AlterOffsets():
                return True
            case AskLogs():
                return msgspec.json.encode({"problems": [], "warnings": []})
            case CheckSnapshot():
                return message.request
            case ConnectorView():
                return message.instructions
            case Instruct():
                self._runs[unit_of(message.id)].instructions = message.instructions
            case StartConnector() | StartTask():
                self._start(run_of(message))
            case StopConnector():
                return await self._stop(Unit(message.name, INSTANCE), message.deadline_s)
            case StopTask():
                return await self._stop(unit_of(message.id), message.deadline_s)
            case PauseTask():
                run = self._runs[unit_of(message.id)]
                run.paused = message.paused
                if run.working:
                    self._tell(run, "PAUSED" if run.paused else "RUNNING")
        return None

    def _start(self, run: Run) -> None:
        before = self._runs.pop(run.unit, None)
        if before is not None:
            self._end(before)
        self._runs[run.unit] = run
        if self._must_fail():
            run.failed_at = self._loop.time()
            raise ValueError("it can't start")
        run.task = asyncio.create_task(self._run(run))

    async def _run(self, run: Run) -> None:
        await asyncio.sleep(self._loop.random.random() ** 3 * 2)
        if self._lease is not None:
            await self._lease.wait()
        if self._must_fail():
            self._fail(run)
            return
        run.working = True
        self._watch.started(run.unit, self.child, run)
        self._tell(run, "PAUSED" if run.paused else "RUNNING")
        if run.unit.task == INSTANCE and not run.paused and self._peer is not None:
            count = int(run.config.get("count", "1"))
            tasks = [{"version": run.config.get("version", ""), "task": str(number)} for number in range(count)]
            self._peer.event(TaskConfigs(run.unit.connector, tasks, run.generation))

    def _must_fail(self) -> bool:
        return self._loop.time() < self.failing_until and self._loop.random.random() < _FAILS

    def _fail(self, run: Run) -> None:
        run.failed_at = self._loop.time()
        if run.working:
            run.working = False
            self._watch.stopped(run.unit, self.child)
        self._tell(run, "FAILED", "it failed")

    def _end(self, run: Run) -> None:
        if run.task is not None:
            run.task.cancel()
        if run.working:
            run.working = False
            self._watch.stopped(run.unit, self.child)

    async def _stop(self, unit: Unit, deadline_s: float) -> bool:
        run = self._runs.pop(unit, None)
        if run is None:
            return True
        needed = self._loop.random.random() ** 6 * 8
        await asyncio.sleep(min(needed, deadline_s))
        self._end(run)
        return needed <= deadline_s

    def _tell(self, run: Run, state: str, trace: str | None = None) -> None:
        if self._peer is None:
            return
        if run.unit.task == INSTANCE:
            self._peer.event(ConnectorStateChanged(run.unit.connector, state, run.generation, trace))
        else:
            self._peer.event(TaskStateChanged(HostTaskId(*run.unit), state, run.generation, trace))


def unit_of(task: HostTaskId) -> Unit:
    """The unit that a task is for placement."""
    return Unit(task.connector, task.task)


def run_of(message: StartConnector | StartTask) -> Run:
    """The unit that a message starts."""
    if isinstance(message, StartConnector):
        return Run(Unit(message.name, INSTANCE), message.config, message.generation, message.paused)
    config = {**message.connector_config, **message.config}
    return Run(unit_of(message.id), config, message.generation, message.paused, message.instructions)


async def delay_answer(host: Any, loop: VirtualLoop, message: Any) -> None:
    """Wait while ``host`` is stuck, and for its start, which takes up to eight seconds."""
    while loop.time() < host.stuck_until:
        await asyncio.sleep(host.stuck_until - loop.time())
    if isinstance(message, Init):
        await asyncio.sleep(0.1 + loop.random.random() ** 4 * 8)


def current_machine() -> str:
    """The machine of the running process."""
    return CURRENT.get().machine
