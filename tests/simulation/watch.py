"""The truth about the simulated cluster, and the rules that must hold at each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.loop import Process, VirtualLoop
    from tests.simulation.processes import Child
    from worker.control.placement.planning import Unit

#: A worker that was paused for longer than its session can't know it before it has had its turn.
_GRACE_S: Final = 1.5


class Broken(Exception):
    """A rule does not hold."""


@dataclass
class Running:
    """A unit that runs somewhere.

    Attributes:
        child: the host's process.
        run: by which configuration.
        since: when it began.
    """

    child: Child
    run: Any
    since: float


class Watch:
    """Knows what runs.

    Args:
        loop: the simulation's.
        resumed: process -> when it last continued after a pause.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.running: dict[Unit, list[Running]] = {}
        #: Control process of a machine.
        self.controls: dict[str, Process] = {}
        self.resumed: dict[str, float] = {}
        #: Whether a machine's worker may have been put out of the group for refused connections and can't know it.
        self.left_behind: Callable[[str], bool] = lambda _machine: False
        self.broken: str | None = None
        #: How often two runs of a unit overlapped although nothing was broken.
        self.excused = 0

    def started(self, unit: Unit, child: Child, run: Any) -> None:
        """A unit runs in a host now."""
        rows = [row for row in self.running.get(unit, ()) if row.child.process.alive]
        self._loop.note(f"{unit} starts")
        for row in rows:
            if row.child is child or self._excused(row.child):
                self.excused += 1
                continue
            self.fail(f"{unit} starts in {child.process.name} while it runs in {row.child.process.name}")
        self.running[unit] = [*rows, Running(child, run, self._loop.time())]

    def stopped(self, unit: Unit, child: Child) -> None:
        """A unit no longer runs in a host."""
        self._loop.note(f"{unit} stops")
        self.running[unit] = [row for row in self.running.get(unit, ()) if row.child is not child]

    def runs(self, unit: Unit) -> list[Running]:
        """Where a unit runs now."""
        return [row for row in self.running.get(unit, ()) if row.child.process.alive]

    def _excused(self, child: Child) -> bool:
        """Whether the control process of a host is paused, or was a moment ago, or can't know that it was counted out."""
        machine = child.process.machine
        control = self.controls.get(machine)
        if control is None or control.paused or not control.alive:
            return True
        if self.left_behind(machine):
            return True
        return self._loop.time() - self.resumed.get(machine, -1e9) < _GRACE_S

    def fail(self, text: str) -> None:
        """A rule does not hold; the first one counts."""
        if self.broken is None:
            self.broken = f"at {self._loop.time() - 1000:.3f} s: {text}"
            self._loop.note(f"BROKEN: {text}")
