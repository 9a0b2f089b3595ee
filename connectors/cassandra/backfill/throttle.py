"""How fast tables are read: a bound in rows per second; see also ``connectors.cql.throttle``. Pure."""
from __future__ import annotations


class Pace:
    """At most so many rows per second on average; 0: no limit. Times in seconds of any clock."""

    def __init__(self, rows_per_s: int) -> None:
        self._cost_s = 1 / rows_per_s if rows_per_s > 0 else 0.0
        self._free_at = 0.0

    def wait_s(self, now: float) -> float:
        """How long to wait before the next page."""
        return max(self._free_at - now, 0.0)

    def spent(self, rows: int, now: float) -> None:
        """A page of so many rows came."""
        self._free_at = max(self._free_at, now) + rows * self._cost_s
