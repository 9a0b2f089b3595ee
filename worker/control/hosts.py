"""Task hosts: started, watched, and replaced when they die or stop answering.

A host is a child process at the other end of a socket. It is pinged every second; one that does not answer within
``task.host.stuck.ms``, or says that its loop is stuck for that long, is logged with all stacks, killed with SIGKILL and
replaced. What ran in it is reported to ``HostEvents.host_died`` with the unit that was on the CPU, as far as that is known.

In addition to the worker's main hosts, which always run, there are hosts with other environments (``worker.plugins``). They
start when something needs their set of environments, and end when nothing has needed them for a while.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from connectors.backoff import Backoff
from connectors.errors import Retriable
from worker.control.host_process import HostProcess, find_culprit
from worker.control.waiting import wait_until
from worker.pipe import Peer, PipeClosed
from worker.protocol import (
    ActiveTopic,
    ConnectorStateChanged,
    Init,
    LoopStuck,
    Ping,
    ReadLease,
    ReadOffsets,
    RemoteError,
    Stats,
    TaskConfigs,
    TaskStateChanged,
    ToControl,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from worker.control.placement.planning import Unit
    from worker.plugins.catalog import PluginSelection
    from worker.protocol import HostMessage, ToHost

_log = logging.getLogger(__name__)
_PING_S: Final = 1.0
#: The wait for an answer is divided into this many parts.
_PARTS: Final = 8
#: A host needs a second of CPU time; where the machine is overloaded, or a container may use a tenth of a core, that is long.
_READY_DEADLINE_S: Final = 90.0
#: Seconds for which a task waits for a host that starts, where others of its environment are ready.
_AWAITED_S: Final = 15.0
_FIRST_BACKOFF_S: Final = 0.1
_LAST_BACKOFF_S: Final = 30.0
#: A host that lived this long was good: the next one starts without a pause.
_GOOD_AFTER_S: Final = 10.0


class HostEvents(Protocol):
    """Callbacks for the reports of hosts; none of these may block."""

    def host_ready(self, host: HostProcess) -> None:
        """A host can take units."""

    def host_died(
        self, host: HostProcess, units: frozenset[Unit], culprit: Unit | None, reason: str, details: str
    ) -> None:
        """A host has gone with everything in it; ``reason`` is a sentence, ``details`` are its stacks if they are known."""

    def task_state(self, host: HostProcess, event: TaskStateChanged) -> None:
        """A task's state changed."""

    def connector_state(self, host: HostProcess, event: ConnectorStateChanged) -> None:
        """A connector instance's state changed."""

    def task_configs(self, host: HostProcess, event: TaskConfigs) -> None:
        """A connector wants these task configurations."""

    def active_topic(self, event: ActiveTopic) -> None:
        """A task wrote to a topic for the first time."""

    def stats_came(self, host: HostProcess, event: Stats) -> None:
        """A host's numbers, every second."""

    async def read_offsets(self, connector: str) -> list[tuple[bytes, bytes]]:
        """All saved offsets of a connector, read to the topic's end."""

    def lease(self) -> float:
        """Return the monotonic time until which no other worker can have been given this worker's units."""

    def host_retired(self, host: HostProcess) -> None:
        """A host with other environments has ended because nothing needed it."""


class Environments(Protocol):
    """Answers the pool's questions about plugins' environments; none of these may block."""

    def paths(self, environments: Sequence[str]) -> list[str]:
        """Return the entries of ``sys.path`` for a host; raises KeyError where an environment no longer exists."""

    def current(self, environments: Sequence[str]) -> bool:
        """Whether they are there as they were."""

    def label(self, environments: Sequence[str]) -> str:
        """Environments as people call them."""

    def select(self, config: Mapping[str, str]) -> PluginSelection:
        """Return the plugins and environments that a connector's configuration needs."""


@dataclass(frozen=True, slots=True)
class HostLimits:
    """Bounds of hosts with other environments.

    Attributes:
        most: how many there may be.
        idle_s: seconds after which a host ends that nothing has needed.
    """

    most: int = 8
    idle_s: float = 60.0


class HostPool:
    """All task hosts of a worker.

    Args:
        count: how many main hosts; 0 runs one inside this process, and then there are no others.
        init: makes the first message for a host.
        events: receives the reports of hosts.
        stuck_s: seconds without an answer after which a host is killed.
        environments: who knows plugins' environments; None: there are none.
        limits: bounds of hosts with other environments.
    """

    def __init__(
        self,
        count: int,
        init: Callable[[HostProcess], Init],
        events: HostEvents,
        stuck_s: float,
        environments: Environments | None = None,
        limits: HostLimits | None = None,
    ) -> None:
        self._in_process = count == 0
        self._count = max(1, count)
        self._init = init
        self._events = events
        self._stuck_s = stuck_s
        self._environments = environments
        self._limits = limits or HostLimits()
        self._hosts = {number: HostProcess(number) for number in range(self._count)}
        self._keepers: dict[int, asyncio.Task[None]] = {}
        self._reaper: asyncio.Task[None] | None = None
        #: Sets of environments -> why a host with them is not there.
        self._missing_reasons: dict[tuple[str, ...], str] = {}
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = False
        #: When a host was last ready, on the monotonic clock.
        self.ready_at = time.monotonic()

    @property
    def hosts(self) -> list[HostProcess]:
        """All hosts there are, the main ones first."""
        return [self._hosts[number] for number in sorted(self._hosts)]

    async def start(self) -> None:
        """Start the main hosts and wait until each is ready.

        Raises:
            Retriable: a host did not come up; the message says which and why.
        """
        for number in list(self._hosts):
            self._keepers[number] = asyncio.create_task(self._keep_number(number, ()), name=f"task-host-{number}")
        if self._environments is not None:
            self._reaper = asyncio.create_task(self._reap_idle(), name="task-host-reaper")
        if not await wait_until(lambda: all(host.ready for host in self.hosts), _READY_DEADLINE_S):
            missing = [host.number for host in self.hosts if not host.ready]
            raise Retriable(
                f"task hosts {missing} did not get ready within {_READY_DEADLINE_S:g} s: see their output in the "
                "log above"
            )

    async def stop(self, deadline_s: float) -> None:
        """End all hosts: closing their pipe ends them; what is left after ``deadline_s`` seconds is killed."""
        self._stopping = True
        if self._reaper is not None:
            self._reaper.cancel()
            await asyncio.gather(self._reaper, return_exceptions=True)
        for host in self.hosts:
            if host.peer is not None:
                await host.peer.close()
        keepers = list(self._keepers.values())
        if keepers:
            done, pending = await asyncio.wait(keepers, timeout=deadline_s)
            del done
            for number in list(self._processes):
                self.kill(number)
            for keeper in pending:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)

    def kill(self, number: int) -> None:
        """Kill the host's process now; its keeper replaces it."""
        process = self._processes.get(number)
        if process is not None and process.returncode is None:
            process.kill()

    def choose(self, environments: tuple[str, ...] = ()) -> HostProcess | None:
        """The host to give the next unit to, the one with the least to do.

        Without one this returns None, and ``HostEvents.host_ready`` or ``host_retired`` says when to ask again: a host with
        other environments is started when it is first asked for, and more of them when each has a task.
        """
        group = self._group_hosts(environments)
        ready = [host for host in group if host.ready]
        if environments:
            now = time.monotonic()
            for host in group:
                host.used = now
            starting = any(not host.ready and now - host.started < _AWAITED_S for host in group)
            if not group or (
                len(ready) == len(group) < self._count
                and all(host.tasks for host in ready)
                and self._count_others < (self._limits.most + 1) // 2
            ):
                starting |= self._open_group(environments)
            if starting and all(host.tasks for host in ready):
                return None  # the next one is for it
        return min(ready, key=lambda host: (len(host.units), host.number)) if ready else None

    def why_none(self, environments: tuple[str, ...]) -> str:
        """Why ``choose`` gave none."""
        if not environments:
            return "no task host is ready"
        return self._missing_reasons.get(environments, "a task host with its plugin's environment is starting")

    async def ask(self, message: ToHost, deadline_s: float, environments: tuple[str, ...] | None = None) -> Any:
        """Ask any host that answers pings, the one with the least to do first.

        A question whose host ends before it has answered goes to no other host: it may be what ended it, and would end one host
        after the other with all their tasks.

        Args:
            message: the question.
            deadline_s: seconds for the answer, a host's start included.
            environments: what the host must have; None: what the configuration in the message needs.

        Raises:
            RemoteError: it refused, or no host can have what the configuration needs.
            TimeoutError: it did not answer in time.
            Retriable: no host is there, or it ended before it answered.
        """
        if environments is None:
            environments = self._needed_environments(message)
        until_s = time.monotonic() + deadline_s
        if environments and not await wait_until(
            lambda: (
                self.choose(environments) is not None or any(host.ready for host in self._group_hosts(environments))
            ),
            deadline_s,
        ):
            raise Retriable(
                f"no task host with the environment {self._label_of(environments)} is ready: {self.why_none(environments)}"
            )
        live = sorted(
            (host for host in self._group_hosts(environments) if host.ready and host.stuck is None),
            key=lambda host: (time.monotonic() - host.answered > 2 * _PING_S, len(host.units), host.number),
        )
        for host in live:
            if host.peer is not None and host.peer.closed.is_set():
                continue
            try:
                return await host.request(message, max(0.1, until_s - time.monotonic()))
            except PipeClosed:
                _log.error(
                    "Task host %d (pid %d) ended before it answered %s", host.number, host.pid, type(message).__name__
                )
                raise Retriable(
                    f"task host {host.number} (pid {host.pid}) ended before it answered; retry in a moment. If that ends "
                    "another host too, the question does: the worker's log has their output"
                ) from None
        raise Retriable("no task host is ready; retry in a moment")

    async def tell_all(self, message: ToHost, deadline_s: float) -> None:
        """Send to all hosts; failures are logged only."""
        hosts = [host for host in self.hosts if host.ready]
        results = await asyncio.gather(*(host.request(message, deadline_s) for host in hosts), return_exceptions=True)
        for host, result in zip(hosts, results, strict=True):
            if isinstance(result, BaseException):
                _log.warning("Task host %d did not take %s: %r", host.number, type(message).__name__, result)

    # Hosts with other environments.

    def _group_hosts(self, environments: tuple[str, ...]) -> list[HostProcess]:
        return [host for host in self.hosts if host.environments == environments and not host.retired]

    @property
    def _count_others(self) -> int:
        """How many hosts with other environments there are, those that are ending included."""
        return len(self._hosts) - self._count

    def _label_of(self, environments: tuple[str, ...]) -> str:
        return "main" if self._environments is None else self._environments.label(environments)

    def _needed_environments(self, message: ToHost) -> tuple[str, ...]:
        config = getattr(message, "config", None)
        if self._environments is None or not isinstance(config, dict):
            return ()
        selection = self._environments.select(config)
        if selection.problem is not None:
            raise RemoteError("ConfigInvalid", selection.problem)
        return selection.environments

    def _open_group(self, environments: tuple[str, ...]) -> bool:
        """Start a host with these environments; returns whether one may be started now."""
        if self._stopping or self._in_process:
            return False
        if self._count_others >= self._limits.most:
            idle = [host for host in self.hosts if host.environments not in ((), environments) and self._is_idle(host)]
            if idle:
                self._retire_host(min(idle, key=lambda host: host.used), "its place is needed")
            reason = (
                f"{self._limits.most} task hosts with other environments run, as many as "
                "plugin.environment.hosts.max allows; it starts when one of them ends"
            )
            if self._missing_reasons.get(environments) != reason:
                _log.warning(
                    "No task host with the environment %s can be started: %s", self._label_of(environments), reason
                )
            self._missing_reasons[environments] = reason
            return False
        number = next(
            number for number in range(self._count, self._count + self._limits.most + 1) if number not in self._hosts
        )
        self._hosts[number] = HostProcess(number, environments, self._label_of(environments))
        self._missing_reasons.pop(environments, None)
        self._keepers[number] = asyncio.create_task(self._keep_number(number, environments), name=f"task-host-{number}")
        return True

    @staticmethod
    def _is_idle(host: HostProcess) -> bool:
        return bool(host.environments) and not host.units and not host.asked and not host.retired

    def _retire_host(self, host: HostProcess, reason: str) -> None:
        """End a host that nothing needs: closing its pipe ends it, and its keeper with it."""
        _log.info("Task host %d (pid %d, environment %s) ends: %s", host.number, host.pid, host.label, reason)
        host.retired = True
        keeper = self._keepers.get(host.number)
        if keeper is not None:
            keeper.cancel()

    async def _reap_idle(self) -> None:
        environments = self._environments
        while environments is not None:
            await asyncio.sleep(min(1.0, self._limits.idle_s / 2))
            now = time.monotonic()
            for host in filter(self._is_idle, self.hosts):
                # A host that is starting is needed, even if the start takes long; but one that never gets ready is stopped.
                if now - host.used > self._limits.idle_s + (0 if host.ready else 2 * _READY_DEADLINE_S):
                    self._retire_host(host, f"nothing has needed it for {self._limits.idle_s:g} s")
                elif host.ready and not environments.current(host.environments):
                    self._retire_host(host, "its environment has gone or changed")

    # Every host.

    async def _keep_number(self, number: int, environments: tuple[str, ...]) -> None:
        """Run one host after another under ``number``, until the pool stops or, with other environments, it is retired."""
        try:
            await self._keep_running(number, environments)
        finally:
            if environments:
                host = self._hosts.pop(number)
                self._keepers.pop(number, None)
                if not self._stopping:
                    self._events.host_retired(host)

    async def _keep_running(self, number: int, environments: tuple[str, ...]) -> None:
        pauses, pause_s = Backoff(_FIRST_BACKOFF_S, _LAST_BACKOFF_S), 0.0
        while True:
            if pause_s:
                await asyncio.sleep(pause_s)
            before = self._hosts[number]
            host = self._hosts[number] = HostProcess(number, environments, before.label)
            host.used = before.used
            reason = "it ended"
            try:
                reason = await self._run_host(host)
            except Exception as error:  # noqa: BLE001 - whatever a host does, it is replaced
                reason = f"it could not be started: {error!r}"
            finally:
                host.ready = False
                if host.peer is not None:
                    await host.peer.close()
                self.kill(number)
            if self._stopping:
                return
            units = frozenset(host.units)
            blamed = find_culprit(host, units)
            _log.error(
                "Task host %d (pid %d%s) has gone: %s. It ran %s.",
                number,
                host.pid,
                f", environment {host.label}" if environments else "",
                reason,
                ", ".join(map(str, sorted(units))) or "nothing",
            )
            self._events.host_died(
                host,
                units,
                blamed,
                f"task host {number} (pid {host.pid}) has gone: {reason}",
                "" if host.stuck is None else host.stuck.stacks,
            )
            if self._environments is not None and not self._environments.current(environments):
                return  # its units start again with what is there now
            if environments:
                self._missing_reasons[environments] = f"its task host has gone: {reason}; another one starts"
            lived = time.monotonic() - host.started
            if lived > _GOOD_AFTER_S:
                pauses.reset()
                pause_s = 0.0
            else:
                pause_s = pauses.next_s()

    async def _run_host(self, host: HostProcess) -> str:
        """Start a host, watch it until its end, and say how it ended."""
        ours, theirs = socket.socketpair()
        serving: asyncio.Task[None] | None = None
        process: asyncio.subprocess.Process | None = None
        with theirs:
            if self._in_process:
                from worker.host.main import serve_host

                serving = asyncio.create_task(serve_host(theirs.dup()), name="task-host-in-process")
            else:
                folders = self._environments.paths(host.environments) if self._environments is not None else []
                module = [
                    *(["worker.plugins.isolation"] if folders else []),
                    *(part for folder in folders for part in ("--environment", folder)),
                    "worker.host.main",
                ]
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    *module,
                    "--fd",
                    str(theirs.fileno()),
                    pass_fds=(theirs.fileno(),),
                    stdin=asyncio.subprocess.DEVNULL,
                    start_new_session=True,
                )
                host.pid = process.pid
                self._processes[host.number] = process
        try:
            reader, writer = await asyncio.open_connection(sock=ours, limit=1 << 24)
            host.peer = Peer(reader, writer, lambda message: self._handle(host, message), ToControl)
            host.peer.start()
            try:
                await host.peer.request(self._init(host), _READY_DEADLINE_S)
            except PipeClosed:
                return f"it ended before it was ready ({await _exit_code(process)})"
            host.answered = host.used = time.monotonic()
            host.ready = True
            self._missing_reasons.pop(host.environments, None)
            self._events.host_ready(host)
            reason = await self._watch_host(host)
            return reason or await _exit_code(process)
        finally:
            host.ready = False
            if host.peer is not None:
                await host.peer.close()
            if process is not None:
                await self._reap_process(host, process)
            if serving is not None:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)

    async def _reap_process(self, host: HostProcess, process: asyncio.subprocess.Process) -> None:
        """A host ends itself when its pipe ends; one that does not is killed."""
        try:
            async with asyncio.timeout(0 if host.stuck else 2):
                await process.wait()
        except TimeoutError:
            if process.returncode is None:
                process.kill()
            await process.wait()
        finally:
            self._processes.pop(host.number, None)

    async def _watch_host(self, host: HostProcess) -> str:
        """Ping until the host has gone ("") or must be killed (why)."""
        peer = host.peer
        if peer is None:
            return ""
        while not peer.closed.is_set():
            try:
                if not await self._answers_ping(peer):
                    return self._stuck_reason(host)
            except PipeClosed:
                break
            host.answered = time.monotonic()
            if not host.environments:
                self.ready_at = host.answered
            host.stuck = None
            try:
                async with asyncio.timeout(_PING_S):
                    await peer.closed.wait()
            except TimeoutError:
                continue
        return self._stuck_reason(host) if host.stuck is not None and host.stuck.seconds >= self._stuck_s else ""

    async def _answers_ping(self, peer: Peer) -> bool:
        """Whether a host answers in time.

        If this process hangs (SIGSTOP, a suspended machine), that takes one part of the time: the answer may be there, unread.

        Raises:
            PipeClosed: the host has gone.
        """
        asked = asyncio.create_task(peer.request(Ping(), None), name="ping")
        try:
            for _ in range(_PARTS):
                if (await asyncio.wait({asked}, timeout=self._stuck_s / _PARTS))[0]:
                    await asked
                    return True
            return False
        finally:
            asked.cancel()

    def _stuck_reason(self, host: HostProcess) -> str:
        stuck_loop = host.stuck
        if stuck_loop is None:
            host.stuck = LoopStuck(self._stuck_s, "", "")
            return f"its event loop did not answer for {self._stuck_s:g} s"
        return f"its event loop was stuck for more than {self._stuck_s:g} s" + (
            f" with {stuck_loop.task} on the CPU" if stuck_loop.task else ""
        )

    async def _handle(self, host: HostProcess, message: HostMessage) -> Any:
        if isinstance(message, Stats):
            host.stats = message
            self._events.stats_came(host, message)
        elif isinstance(message, TaskStateChanged):
            self._events.task_state(host, message)
        elif isinstance(message, ConnectorStateChanged):
            self._events.connector_state(host, message)
        elif isinstance(message, TaskConfigs):
            self._events.task_configs(host, message)
        elif isinstance(message, ActiveTopic):
            self._events.active_topic(message)
        elif isinstance(message, ReadOffsets):
            return await self._events.read_offsets(message.connector)
        elif isinstance(message, ReadLease):
            return self._events.lease()
        elif isinstance(message, LoopStuck):
            if not host.ready:
                # It loads code, which blocks and may be slow on a busy machine: until it is ready the deadline for that counts.
                _log.info(
                    "Task host %d (pid %d) has been starting for long: %.1f s without a turn of its loop",
                    host.number,
                    host.pid,
                    message.seconds,
                )
                return None
            _log.error(
                "The event loop of task host %d (pid %d) has been stuck for %.1f s, %s is on the CPU:\n%s",
                host.number,
                host.pid,
                message.seconds,
                message.task or "an unknown task",
                message.stacks,
            )
            host.stuck = message
            if message.seconds >= self._stuck_s:
                self.kill(host.number)
        return None


async def _exit_code(process: asyncio.subprocess.Process | None) -> str:
    if process is None:
        return "its pipe was closed"
    try:
        async with asyncio.timeout(2):
            code = await process.wait()
    except TimeoutError:
        return "its pipe was closed"
    return f"it was killed by signal {-code}" if code < 0 else f"it ended with exit code {code}"
