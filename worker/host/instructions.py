"""Instructions for a task, and when the task gets them: a snapshot with a start time waits like a paused one."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from worker.schedule import due_instructions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.api import Instruction

#: A clock that is set while a snapshot waits for its time is noticed after this long.
_CLOCK_S: Final = 30.0


class InstructionSchedule:
    """Keeps a task's instructions, and hands them on at once and whenever a scheduled snapshot begins.

    Args:
        hand_on: called on the event loop with the instructions that count now; must not raise.
    """

    def __init__(self, hand_on: Callable[[Sequence[Instruction]], None]) -> None:
        self._hand_on = hand_on
        self._all: Sequence[Instruction] = ()
        self._timer: asyncio.TimerHandle | None = None
        #: The instructions that count now.
        self.current: Sequence[Instruction] = ()

    def replace(self, instructions: Sequence[Instruction]) -> None:
        """Take the complete list of instructions and hand on those that count now."""
        self._all = instructions
        self._apply_current()

    def close(self) -> None:
        """Wait for no start time any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _apply_current(self) -> None:
        self.close()
        self.current, wait_ms = due_instructions(self._all, time.time_ns() // 1_000_000)
        self._schedule_check(wait_ms)
        self._hand_on(self.current)

    def _schedule_check(self, wait_ms: int | None) -> None:
        if wait_ms is not None:
            # Somebody may set the clock, so look at it now and then.
            self._timer = asyncio.get_running_loop().call_later(min(wait_ms / 1000, _CLOCK_S), self._check_clock)

    def _check_clock(self) -> None:
        self._timer = None
        current, wait_ms = due_instructions(self._all, time.time_ns() // 1_000_000)
        if current != self.current:
            self._apply_current()
        else:
            self._schedule_check(wait_ms)
