"""Reconciliation: starts and stops units until those that run here are those that shall run here.

``plan_steps`` is pure: it compares the desired units with the running ones. ``Reconciler`` carries out the steps by messages to
task hosts, each unit on its own: no unit waits for another unit's slow stop. It is driven by levels, not by edges: every event
calls ``wake``, and then all units are compared again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol

from worker.control.placement.planning import INSTANCE, Unit
from worker.control.state.instructions import NONE
from worker.pipe import PipeClosed
from worker.protocol import (
    HostTaskId,
    Instruct,
    PauseTask,
    RemoteError,
    StartConnector,
    StartTask,
    StopConnector,
    StopTask,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from offsets.records import ReportedStatus
    from worker.control.host_process import HostProcess
    from worker.control.hosts import HostPool

_log = logging.getLogger(__name__)
_ACCEPT_DEADLINE_S: Final = 15.0
#: Crashes further back than this are forgotten.
_CRASH_WINDOW_S: Final = 600.0
#: Steps under way at once. Tasks that stop together share their hosts' and Kafka's time to commit: of thousands, none would
#: be done within its deadline.
_AT_ONCE: Final = 128
#: The pause between two rounds: this many times the duration of the last round, up to the limit below.
_PAUSE: Final = 9
_LONGEST_PAUSE_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class DesiredRun:
    """How a unit shall run.

    Attributes:
        connector_config: the connector's configuration that its tasks were made from.
        config: the task's own, or None for a connector's instance.
        epoch: the placement's epoch.
        paused: whether it shall be paused.
        instructions: what operators ask of the connector, as JSON; a task gets it without a restart.
        created_offset: tells the connector from an earlier one of its name, whose statuses are forgotten.
    """

    connector_config: Mapping[str, str]
    config: Mapping[str, str] | None
    epoch: int
    paused: bool = False
    instructions: bytes = NONE
    created_offset: int = -1

    def same_run(self, desired: DesiredRun) -> bool:
        """Say whether a unit that runs by ``desired`` need not be restarted to match this desired run."""
        return self is desired or (
            self.created_offset == desired.created_offset
            and (self.connector_config is desired.connector_config or self.connector_config == desired.connector_config)
            and (self.config is desired.config or self.config == desired.config)
            # A connector instance has no message for a pause: it is recreated.
            and (self.config is not None or self.paused == desired.paused)
        )


@dataclass(slots=True)
class LocalRun:
    """A unit that a host has been given.

    Attributes:
        desired: the run that it was started with.
        host: where it runs.
        busy: a message about it is under way.
        failed: it ended with an error and waits to be restarted.
        version: of its connector, as it was chosen for this run; "" where it is not known.
        restart: someone asked for a restart.
        instructions: the last ones that the task received; None: those of ``desired``.
        started: it has run, or was paused, since it was started, automatically or by an operator.
        status: the last that was written of it.
    """

    desired: DesiredRun
    host: HostProcess
    paused: bool = False
    busy: bool = True
    failed: bool = False
    restart: bool = False
    instructions: bytes | None = None
    version: str = ""
    started: bool = False
    status: ReportedStatus | None = None

    @property
    def received_instructions(self) -> bytes:
        """Return the operators' instructions that the task has received."""
        return self.desired.instructions if self.instructions is None else self.instructions


Step = tuple[Literal["start", "stop", "pause", "resume", "instruct"], Unit]


def plan_steps(
    desired_runs: Mapping[Unit, DesiredRun], local_runs: Mapping[Unit, LocalRun], blocked: frozenset[Unit] = frozenset()
) -> list[Step]:
    """The steps that can be taken now.

    Args:
        desired_runs: the units that shall run here.
        local_runs: the units that run here.
        blocked: units that must not be started yet (a back-off, fencing).
    """
    steps: list[Step] = []
    for unit, local_run in local_runs.items():
        if local_run.busy:
            continue
        desired = desired_runs.get(unit)
        if desired is None or local_run.restart or not desired.same_run(local_run.desired):
            steps.append(("stop", unit))
        elif desired.paused != local_run.paused and not local_run.failed:
            steps.append(("pause" if desired.paused else "resume", unit))
        elif (
            desired.config is not None
            and desired.instructions != local_run.received_instructions
            and not local_run.failed
        ):
            steps.append(("instruct", unit))
    steps.extend(("start", unit) for unit in desired_runs if unit not in local_runs and unit not in blocked)
    # Instances first: they may change the tasks.
    steps.sort(key=lambda step: (step[0] != "stop", step[1].task != INSTANCE))
    return steps


@dataclass(frozen=True, slots=True)
class PluginChoice:
    """With which plugins a unit is to run.

    Attributes:
        environments: what its host must have in addition to Millrace's own environment.
        version: of its connector; "" where it has no version.
        problem: why it can't run here: it fails with this message.
    """

    environments: tuple[str, ...] = ()
    version: str = ""
    problem: str = ""


@dataclass(slots=True)
class Crashes:
    """A unit's history of hosts that died under it."""

    times: list[float] = field(default_factory=list)
    not_before: float = 0.0


class ReconcilerListener(Protocol):
    """Callbacks of the reconciler; none of these may block."""

    def desired_runs(self) -> Mapping[Unit, DesiredRun]:
        """Return the units that shall run here now."""

    def choose(self, desired: DesiredRun) -> PluginChoice | None:
        """With which plugins a unit shall run; None: they are being looked at, wait."""

    def unready(self) -> frozenset[Unit]:
        """Units that may not be started yet for reasons of the cluster's."""

    def refused(self, unit: Unit, desired: DesiredRun, error: str) -> None:
        """A host refused to start the unit."""

    def stopped(self, unit: Unit, desired: DesiredRun, *, in_time: bool) -> None:
        """A unit has stopped."""

    def changed(self) -> None:
        """Handle a change of the set of units that run here."""


class Reconciler:
    """Starts, stops, pauses and resumes units in the hosts of this worker.

    Args:
        pool: the hosts.
        listener: answers questions and receives reports.
        stop_s: how long a unit may take to stop.
        backoff_s: first and longest pause before a unit starts again whose host died.
        crash_limit: number of crashes within ten minutes after which it fails.
    """

    def __init__(
        self,
        pool: HostPool,
        listener: ReconcilerListener,
        *,
        stop_s: float,
        backoff_s: tuple[float, float],
        crash_limit: int,
    ) -> None:
        self._pool = pool
        self._listener = listener
        self._stop_s = stop_s
        self._backoff_s = backoff_s
        self._crash_limit = crash_limit
        self.local_runs: dict[Unit, LocalRun] = {}
        self._crashes: dict[Unit, Crashes] = {}
        #: Units that crashed too often, with the desired run that they had.
        self._given_up: dict[Unit, DesiredRun] = {}
        #: Units that wait for a host, and why.
        self._hostless: dict[Unit, str] = {}
        self._wake = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._steps: set[asyncio.Task[None]] = set()
        #: Whether steps wait until others have been taken.
        self._more = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin; does not block."""
        self._loop = asyncio.create_task(self._run_loop(), name="reconciler")

    async def stop(self) -> None:
        """Stop reconciling; running units continue to run."""
        tasks = [task for task in (self._loop, *self._steps) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()

    def wake(self) -> None:
        """Something has changed."""
        self._wake.set()

    def restart(self, units: Iterable[Unit]) -> None:
        """Restart what of ``units`` runs here; forgets crashes, so that what was given up starts again."""
        for unit in units:
            self._crashes.pop(unit, None)
            self._given_up.pop(unit, None)
            if unit in self.local_runs:
                self.local_runs[unit].restart = True
        self.wake()

    def failed(self, unit: Unit) -> None:
        """The unit ended with an error."""
        if unit in self.local_runs:
            self.local_runs[unit].failed = True

    def host_died(self, host: HostProcess, units: frozenset[Unit], culprit: Unit | None) -> dict[Unit, bool]:
        """Forget what ran in a host; returns for each unit that was to run on whether it will be started again."""
        now = time.monotonic()
        self._forget_crashes(now)
        will_restart: dict[Unit, bool] = {}
        for unit in units:
            local_run = self.local_runs.get(unit)
            if local_run is None or local_run.host is not host:
                continue
            del self.local_runs[unit]
            if unit == culprit:
                crashes = self._crashes.setdefault(unit, Crashes())
                crashes.times = [at for at in crashes.times if now - at < _CRASH_WINDOW_S] + [now]
                first, longest = self._backoff_s
                crashes.not_before = now + min(longest, first * 2 ** (len(crashes.times) - 1))
                if len(crashes.times) >= self._crash_limit:
                    self._given_up[unit] = local_run.desired
            will_restart[unit] = unit not in self._given_up
        self._listener.changed()
        self.wake()
        return will_restart

    def _forget_crashes(self, now: float) -> None:
        """Drop what no longer counts, or units that are gone would stay here."""
        for unit in [
            unit
            for unit, crashes in self._crashes.items()
            if now - crashes.times[-1] >= _CRASH_WINDOW_S and crashes.not_before <= now and unit not in self._given_up
        ]:
            del self._crashes[unit]

    @property
    def given_up(self) -> Collection[Unit]:
        """Units that crashed too often: they run nowhere until they are restarted or changed."""
        return self._given_up.keys()

    def crash_count(self, unit: Unit) -> int:
        """How often a host died under the unit within the last ten minutes."""
        crashes = self._crashes.get(unit)
        return 0 if crashes is None else len(crashes.times)

    def waiting(self, unit: Unit) -> str | None:
        """Why a unit that shall run here is not started, as far as this worker is the cause."""
        if unit in self._given_up:
            return f"task hosts died under it {self.crash_count(unit)} times; restart it when the cause is fixed"
        crashes = self._crashes.get(unit)
        if crashes is not None and crashes.not_before > time.monotonic():
            return f"its task host died; it starts again in {crashes.not_before - time.monotonic():.1f} s"
        return self._hostless.get(unit)

    async def _run_loop(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            began = time.monotonic()
            desired_runs = self._listener.desired_runs()
            self._hostless.clear()
            for unit in [
                unit
                for unit, desired in self._given_up.items()
                if unit not in desired_runs or not desired_runs[unit].same_run(desired)
            ]:
                del self._given_up[unit]
                self._crashes.pop(unit, None)
            steps = plan_steps(
                desired_runs, self.local_runs, self._blocked_units(desired_runs) | self._listener.unready()
            )
            room = max(0, _AT_ONCE - len(self._steps))
            self._more = len(steps) > room
            for kind, unit in steps[:room]:
                if kind == "start":
                    self._start_unit(unit, desired_runs[unit])
                elif kind == "stop":
                    self.local_runs[unit].busy = True
                    self._take_step(self._stop_unit(unit, self.local_runs[unit]))
                elif kind == "instruct":
                    self.local_runs[unit].busy = True
                    self._take_step(self._instruct_unit(unit, self.local_runs[unit], desired_runs[unit].instructions))
                else:
                    self.local_runs[unit].busy = True
                    self._take_step(self._pause_unit(unit, self.local_runs[unit], desired_runs[unit]))
            # A look takes time in proportion to what runs here, and thousands that start or stop ask for one each.
            await asyncio.sleep(min(_LONGEST_PAUSE_S, _PAUSE * (time.monotonic() - began)))

    def _blocked_units(self, desired_runs: Mapping[Unit, DesiredRun]) -> frozenset[Unit]:
        now = time.monotonic()
        waiting = {
            unit: crashes.not_before
            for unit, crashes in self._crashes.items()
            if unit in desired_runs and crashes.not_before > now
        }
        if waiting:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(min(waiting.values()) - now, self.wake)
        return frozenset(waiting) | frozenset(self._given_up)

    def _take_step(self, work: asyncio._CoroutineLike[None]) -> None:
        task = asyncio.create_task(work)
        self._steps.add(task)
        task.add_done_callback(self._end_step)

    def _end_step(self, task: asyncio.Task[None]) -> None:
        self._steps.discard(task)
        if self._more:
            self.wake()

    def _start_unit(self, unit: Unit, desired: DesiredRun) -> None:
        choice = self._listener.choose(desired)
        if choice is None:
            self._hostless[unit] = "the plugins that it may need are being looked at"
            return  # a change of the plugins wakes
        # What can't run fails in a host as well: its life is that of any other unit.
        environments = () if choice.problem else choice.environments
        host = self._pool.choose(environments)
        if host is None:
            self._hostless[unit] = self._pool.why_none(environments)
            return  # host_ready or host_retired wakes
        local_run = self.local_runs[unit] = LocalRun(desired, host, paused=desired.paused, version=choice.version)
        host.units.add(unit)
        self._listener.changed()
        self._take_step(self._request_start(unit, local_run, choice.problem))

    async def _request_start(self, unit: Unit, local_run: LocalRun, problem: str) -> None:
        desired = local_run.desired
        if desired.config is None:
            message: StartConnector | StartTask = StartConnector(
                unit.connector, dict(desired.connector_config), desired.epoch, desired.paused, problem
            )
        else:
            message = StartTask(
                HostTaskId(*unit),
                dict(desired.connector_config),
                dict(desired.config),
                desired.epoch,
                desired.paused,
                desired.instructions,
                problem,
            )
        try:
            await local_run.host.request(message, _ACCEPT_DEADLINE_S)
        except PipeClosed:
            return  # the host's end is reported separately
        except TimeoutError:
            # It may have been accepted: only the host's end, or its stop, tells for sure.
            _log.error("Task host %d did not accept %s within %g s", local_run.host.number, unit, _ACCEPT_DEADLINE_S)
        except RemoteError as error:
            if self.local_runs.get(unit) is local_run:
                local_run.failed = True
                self._listener.refused(unit, desired, f"{error.kind}: {error}")
        local_run.busy = False
        self.wake()

    async def _stop_unit(self, unit: Unit, local_run: LocalRun) -> None:
        in_time = True
        message: StopConnector | StopTask = (
            StopConnector(unit.connector, self._stop_s)
            if unit.task == INSTANCE
            else StopTask(HostTaskId(*unit), self._stop_s)
        )
        try:
            in_time = await local_run.host.request(message, self._stop_s + 5)
        except PipeClosed:
            return
        except TimeoutError:
            # The host does not answer: its watch kills it, which ends the unit too.
            local_run.busy = False
            await asyncio.sleep(1)
            self.wake()
            return
        except RemoteError as error:
            _log.warning("%s: its task host had nothing to stop: %s", unit, error)
        if self.local_runs.get(unit) is not local_run:
            return
        del self.local_runs[unit]
        local_run.host.units.discard(unit)
        if not in_time:
            _log.error("%s did not stop within %g s and was abandoned", unit, self._stop_s)
        self._listener.stopped(unit, local_run.desired, in_time=in_time)
        self._listener.changed()
        self.wake()

    async def _pause_unit(self, unit: Unit, local_run: LocalRun, desired: DesiredRun) -> None:
        try:
            await local_run.host.request(PauseTask(HostTaskId(*unit), desired.paused), _ACCEPT_DEADLINE_S)
            local_run.paused = desired.paused
        except PipeClosed:
            return
        except (TimeoutError, RemoteError) as error:
            _log.warning("%s could not be %s: %r; retrying", unit, "paused" if desired.paused else "resumed", error)
            await asyncio.sleep(1)
        local_run.busy = False
        self.wake()

    async def _instruct_unit(self, unit: Unit, local_run: LocalRun, instructions: bytes) -> None:
        try:
            await local_run.host.request(Instruct(HostTaskId(*unit), instructions), _ACCEPT_DEADLINE_S)
            local_run.instructions = instructions
        except PipeClosed:
            return
        except (TimeoutError, RemoteError) as error:
            _log.warning("%s could not be informed of what operators ask of it: %r; retrying", unit, error)
            await asyncio.sleep(1)
        local_run.busy = False
        self.wake()
