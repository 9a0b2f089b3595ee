"""A clock that only tests move."""

from __future__ import annotations


class ManualClock:
    """Seconds that pass when a test says so.

    Call it where the product takes a clock, or put it in place of a module's ``time``: then sleeping takes no time.
    """

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> float:
        """Let ``seconds`` pass; returns the time then."""
        self.now += seconds
        return self.now

    def monotonic(self) -> float:
        """For ``time.monotonic``."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """For ``time.sleep``."""
        self.now += seconds
