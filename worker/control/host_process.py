"""One task host as the control process sees it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from worker.control.placement.planning import INSTANCE, Unit
from worker.pipe import PipeClosed

if TYPE_CHECKING:
    from worker.pipe import Peer
    from worker.protocol import LoopStuck, Stats, ToHost


class HostProcess:
    """One task host.

    Attributes:
        number: its place in the worker, from 0; a replacement has the same.
        units: what was given to it.
        ready: whether it takes requests.
        stats: its last report.
        pid: its process id; 0 in process.
        environments: keys of the environments it has in addition to Millrace's own.
        label: how people call them.
    """

    def __init__(self, number: int, environments: tuple[str, ...] = (), label: str = "main") -> None:
        self.number = number
        self.environments = environments
        self.label = label
        #: When something last needed it, on the monotonic clock; a host with other environments only.
        self.used = time.monotonic()
        #: Requests that wait for its answer, except pings.
        self.asked = 0
        #: It is being ended because nothing needs it: nothing more may be given to it.
        self.retired = False
        self.units: set[Unit] = set()
        self.ready = False
        self.stats: Stats | None = None
        self.pid = 0
        self.started = time.monotonic()
        self.answered = time.monotonic()
        self.stuck: LoopStuck | None = None
        self.peer: Peer | None = None

    def event(self, message: ToHost) -> None:
        """Send a message that has no answer; a host that is not there misses it."""
        if self.peer is not None:
            self.peer.event(message)

    async def request(self, message: ToHost, deadline_s: float) -> Any:
        """Ask it.

        Raises:
            RemoteError: it refused.
            PipeClosed: it has gone.
            TimeoutError: it did not answer.
        """
        if self.peer is None:
            raise PipeClosed(f"task host {self.number} is not there")
        self.asked += 1
        try:
            return await self.peer.request(message, deadline_s)
        finally:
            self.asked -= 1
            self.used = time.monotonic()

    @property
    def tasks(self) -> int:
        """How many of its units are tasks."""
        return sum(unit.task != INSTANCE for unit in self.units)


def find_culprit(host: HostProcess, units: frozenset[Unit]) -> Unit | None:
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
