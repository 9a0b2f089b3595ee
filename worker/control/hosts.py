"""Task hosts: started, watched, and replaced when they die or stop answering.

A host is a child process at the other end of a socket. It is pinged every second; one that does not answer within
``task.host.stuck.ms``, or says that its loop is stuck for that long, is logged with all stacks, killed with SIGKILL and
replaced. What ran in it is reported to ``Events.host_died`` with the unit that was on the CPU, as far as that is known.
"""
from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from connectors.errors import Retriable
from worker.control.placement import INSTANCE, Unit
from worker.control.waiting import until
from worker.pipe import Peer, PipeClosed
from worker.protocol import (
    ActiveTopic,
    ConnectorState,
    Init,
    LoopStuck,
    Ping,
    ReadOffsets,
    Stats,
    TaskConfigs,
    TaskState,
    ToControl,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.protocol import Message, ToHost

_log = logging.getLogger(__name__)
_PING_S: Final = 1.0
_READY_DEADLINE_S: Final = 30.0
_FIRST_BACKOFF_S: Final = 0.1
_LAST_BACKOFF_S: Final = 30.0
#: A host that lived this long was good: the next one starts without a pause.
_GOOD_AFTER_S: Final = 10.0


class Events(Protocol):
    """What hosts tell; none of these may block."""

    def host_ready(self, host: Host) -> None:
        """A host can take units."""

    def host_died(self, host: Host, units: frozenset[Unit], culprit: Unit | None, reason: str, details: str) -> None:
        """A host has gone with everything in it; ``reason`` is a sentence, ``details`` are its stacks if they are known."""

    def task_state(self, host: Host, event: TaskState) -> None:
        """A task's state changed."""

    def connector_state(self, host: Host, event: ConnectorState) -> None:
        """A connector instance's state changed."""

    def task_configs(self, host: Host, event: TaskConfigs) -> None:
        """A connector wants these task configurations."""

    def active_topic(self, event: ActiveTopic) -> None:
        """A task wrote to a topic for the first time."""

    def stats_came(self, host: Host, event: Stats) -> None:
        """A host's numbers, every second."""

    async def read_offsets(self, connector: str) -> list[tuple[bytes, bytes]]:
        """All saved offsets of a connector, read to the topic's end."""


class Host:
    """One task host.

    Attributes:
        number: its place in the worker, from 0; a replacement has the same.
        units: what was given to it.
        ready: whether it takes requests.
        stats: its last report.
        pid: its process id; 0 in process.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.units: set[Unit] = set()
        self.ready = False
        self.stats: Stats | None = None
        self.pid = 0
        self.started = time.monotonic()
        self.answered = time.monotonic()
        self.stuck: LoopStuck | None = None
        self.peer: Peer | None = None

    async def request(self, message: ToHost, deadline_s: float) -> Any:
        """Ask it.

        Raises:
            RemoteError: it refused.
            PipeClosed: it has gone.
            TimeoutError: it did not answer.
        """
        if self.peer is None:
            raise PipeClosed(f"task host {self.number} is not there")
        return await self.peer.request(message, deadline_s)


class HostPool:
    """All task hosts of a worker.

    Args:
        count: how many; 0 runs one inside this process.
        init: makes the first message for a host number.
        events: who is told.
        stuck_s: seconds without an answer after which a host is killed.
    """

    def __init__(self, count: int, init: Callable[[int], Init], events: Events, stuck_s: float) -> None:
        self._in_process = count == 0
        self._init = init
        self._events = events
        self._stuck_s = stuck_s
        self.hosts = [Host(number) for number in range(max(1, count))]
        self._keepers: list[asyncio.Task[None]] = []
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = False
        #: When a host was last ready, on the monotonic clock.
        self.ready_at = time.monotonic()

    async def start(self) -> None:
        """Start all hosts and wait until each is ready.

        Raises:
            Retriable: a host did not come up; the message says which and why.
        """
        self._keepers = [asyncio.create_task(self._keep(number), name=f"task-host-{number}")
                         for number in range(len(self.hosts))]
        if not await until(lambda: all(host.ready for host in self.hosts), _READY_DEADLINE_S):
            missing = [host.number for host in self.hosts if not host.ready]
            raise Retriable(f"task hosts {missing} did not get ready within {_READY_DEADLINE_S:g} s: see their output in the "
                            "log above")

    async def stop(self, deadline_s: float) -> None:
        """End all hosts: closing their pipe ends them; what is left after ``deadline_s`` seconds is killed."""
        self._stopping = True
        for host in self.hosts:
            if host.peer is not None:
                await host.peer.close()
        if self._keepers:
            done, pending = await asyncio.wait(self._keepers, timeout=deadline_s)
            del done
            for number in list(self._processes):
                self.kill(number)
            for keeper in pending:
                keeper.cancel()
            await asyncio.gather(*self._keepers, return_exceptions=True)

    def kill(self, number: int) -> None:
        """Kill the host's process now; its keeper replaces it."""
        process = self._processes.get(number)
        if process is not None and process.returncode is None:
            process.kill()

    def least_loaded(self) -> Host | None:
        """The host to give the next unit to, or None while none is ready."""
        ready = [host for host in self.hosts if host.ready]
        return min(ready, key=lambda host: (len(host.units), host.number)) if ready else None

    async def ask(self, message: ToHost, deadline_s: float) -> Any:
        """Ask any host that answers pings, the one with the least to do first.

        Raises:
            RemoteError: it refused.
            TimeoutError: it did not answer in time.
            Retriable: no host is there.
        """
        live = sorted((host for host in self.hosts if host.ready and host.stuck is None),
                      key=lambda host: (time.monotonic() - host.answered > 2 * _PING_S, len(host.units), host.number))
        for host in live:
            try:
                return await host.request(message, deadline_s)
            except PipeClosed:
                continue
        raise Retriable("no task host is ready; try again in a moment")

    async def tell_all(self, message: ToHost, deadline_s: float) -> None:
        """Send to all hosts; failures are logged only."""
        hosts = [host for host in self.hosts if host.ready]
        results = await asyncio.gather(*(host.request(message, deadline_s) for host in hosts), return_exceptions=True)
        for host, result in zip(hosts, results, strict=True):
            if isinstance(result, BaseException):
                _log.warning("Task host %d did not take %s: %r", host.number, type(message).__name__, result)

    async def _keep(self, number: int) -> None:
        """Run one host after another under ``number``."""
        backoff = 0.0
        while True:
            if backoff:
                await asyncio.sleep(backoff)
            host = self.hosts[number] = Host(number)
            reason = "it ended"
            try:
                reason = await self._run(host)
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
            blamed = culprit(host, units)
            _log.error("Task host %d (pid %d) has gone: %s. It ran %s.", number, host.pid, reason,
                       ", ".join(map(str, sorted(units))) or "nothing")
            self._events.host_died(host, units, blamed, f"task host {number} (pid {host.pid}) has gone: {reason}",
                                   "" if host.stuck is None else host.stuck.stacks)
            lived = time.monotonic() - host.started
            backoff = 0.0 if lived > _GOOD_AFTER_S else min(_LAST_BACKOFF_S, max(_FIRST_BACKOFF_S, backoff * 2))

    async def _run(self, host: Host) -> str:
        """Start a host, watch it until its end, and say how it ended."""
        ours, theirs = socket.socketpair()
        serving: asyncio.Task[None] | None = None
        process: asyncio.subprocess.Process | None = None
        with theirs:
            if self._in_process:
                from worker.host.main import serve

                serving = asyncio.create_task(serve(theirs.dup()), name="task-host-in-process")
            else:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "worker.host.main", "--fd", str(theirs.fileno()), pass_fds=(theirs.fileno(),),
                    stdin=asyncio.subprocess.DEVNULL, start_new_session=True)
                host.pid = process.pid
                self._processes[host.number] = process
        try:
            reader, writer = await asyncio.open_connection(sock=ours, limit=1 << 24)
            host.peer = Peer(reader, writer, lambda message: self._handle(host, message), ToControl)
            host.peer.start()
            try:
                await host.peer.request(self._init(host.number), _READY_DEADLINE_S)
            except PipeClosed:
                return f"it ended before it was ready ({await _exit_code(process)})"
            host.answered = time.monotonic()
            host.ready = True
            self._events.host_ready(host)
            reason = await self._watch(host)
            return reason or await _exit_code(process)
        finally:
            host.ready = False
            if host.peer is not None:
                await host.peer.close()
            if process is not None:
                await self._reap(host, process)
            if serving is not None:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)

    async def _reap(self, host: Host, process: asyncio.subprocess.Process) -> None:
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

    async def _watch(self, host: Host) -> str:
        """Ping until the host has gone ("") or must be killed (why)."""
        peer = host.peer
        if peer is None:
            return ""
        while not peer.closed.is_set():
            try:
                await peer.request(Ping(), self._stuck_s)
                host.answered = self.ready_at = time.monotonic()
                host.stuck = None
            except PipeClosed:
                break
            except TimeoutError:
                return self._stuck_reason(host)
            try:
                async with asyncio.timeout(_PING_S):
                    await peer.closed.wait()
            except TimeoutError:
                continue
        return self._stuck_reason(host) if host.stuck is not None and host.stuck.seconds >= self._stuck_s else ""

    def _stuck_reason(self, host: Host) -> str:
        found = host.stuck
        if found is None:
            host.stuck = LoopStuck(self._stuck_s, "", "")
            return f"its event loop did not answer for {self._stuck_s:g} s"
        return (f"its event loop was stuck for more than {self._stuck_s:g} s"
                + (f" with {found.task} on the CPU" if found.task else ""))

    async def _handle(self, host: Host, message: Message) -> Any:
        if isinstance(message, Stats):
            host.stats = message
            self._events.stats_came(host, message)
        elif isinstance(message, TaskState):
            self._events.task_state(host, message)
        elif isinstance(message, ConnectorState):
            self._events.connector_state(host, message)
        elif isinstance(message, TaskConfigs):
            self._events.task_configs(host, message)
        elif isinstance(message, ActiveTopic):
            self._events.active_topic(message)
        elif isinstance(message, ReadOffsets):
            return await self._events.read_offsets(message.connector)
        elif isinstance(message, LoopStuck):
            if not host.ready:
                # It loads code, which blocks and may be slow on a busy machine: until it is ready the deadline for that counts.
                _log.info("Task host %d (pid %d) has been starting for long: %.1f s without a turn of its loop", host.number,
                          host.pid, message.seconds)
                return None
            _log.error("The event loop of task host %d (pid %d) has been stuck for %.1f s, %s is on the CPU:\n%s", host.number,
                       host.pid, message.seconds, message.task or "an unknown task", message.stacks)
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


def culprit(host: Host, units: frozenset[Unit]) -> Unit | None:
    """The unit to blame for a host's end: the one on the CPU, or the only one."""
    if host.stuck is not None and host.stuck.task:
        for unit in units:
            if str(unit) == host.stuck.task:
                return unit
        connector, _, number = host.stuck.task.rpartition("-")
        named = Unit(connector, int(number)) if number.isdigit() else Unit(host.stuck.task, INSTANCE)
        if named in units:
            return named
    return next(iter(units)) if len(units) == 1 else None
