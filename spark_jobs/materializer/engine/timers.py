"""When the buckets have something to expire: kept on the driver, so that nothing runs while nothing is due."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True)
class Timers:
    """The next due time of each bucket, s since 1970, as the buckets report it after each pass.

    A bucket of which nothing is known yet (the job has just started) is due at once: its first pass also restores its cache.
    """

    _next: dict[int, int | None] = field(default_factory=dict)
    _unknown: set[int] = field(default_factory=set)

    def ask(self, buckets: Iterable[int]) -> None:
        """Add buckets of which nothing is known."""
        self._unknown.update(bucket for bucket in buckets if bucket not in self._next)

    def report(self, bucket: int, due_s: int | None) -> None:
        """Record the report of a bucket: its next due time, or None for never."""
        self._unknown.discard(bucket)
        self._next[bucket] = due_s

    def due(self, now_s: float) -> list[int]:
        """Buckets that have, or may have, something to do."""
        return sorted(
            self._unknown | {bucket for bucket, time in self._next.items() if time is not None and time <= now_s}
        )

    @property
    def earliest(self) -> int | None:
        """The first due time of all known buckets."""
        return min((time for time in self._next.values() if time is not None), default=None)
