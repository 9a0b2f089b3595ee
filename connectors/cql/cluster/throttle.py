"""How many queries are in flight, how large pages are, how many rows come in a second, how long to wait after a fault.

Pure: no clock, no I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.backoff import pause_after

if TYPE_CHECKING:
    from collections.abc import Sequence

_SMOOTH: Final = 0.2
#: The least latency seen is forgotten slowly, so that it follows a server that has become slower for good.
_FORGET: Final = 1.002


class InFlightLimit:
    """Additive increase while latency stays near the best seen, multiplicative decrease when it grows or queries fail.

    Latencies of full pages and of others are compared with their own kind only.

    Args:
        least, most: bounds.
        first: where it starts.
    """

    def __init__(self, least: int = 2, maximum: int = 64, first: int = 8) -> None:
        self._least = least
        self._most = maximum
        self._value = float(min(max(first, least), maximum))
        self._best: dict[bool, float] = {}
        self._since_cut = 0
        #: Smoothed latency in seconds.
        self.latency_s = 0.0

    @property
    def value(self) -> int:
        """Queries that may be in flight now."""
        return int(self._value)

    def answered(self, latency_s: float, *, full: bool, in_flight: int) -> None:
        """A page came after ``latency_s`` with ``in_flight`` queries under way; ``full``: it had as many rows as asked for."""
        self.latency_s = latency_s if not self.latency_s else self.latency_s + _SMOOTH * (latency_s - self.latency_s)
        best = self._best[full] = min(self._best.get(full, latency_s) * _FORGET, latency_s)
        self._since_cut += 1
        # A few ms are the event loop's, not the server's.
        if latency_s > 4 * best + 0.02:
            if self._since_cut > self._value:
                self._cut_value(0.8)
        elif latency_s <= 2 * best + 0.01 and in_flight >= self.value:
            self._value = min(self._most, self._value + 1 / self._value)

    def failed(self) -> None:
        """A query timed out or was refused for overload."""
        if self._since_cut >= 1:
            self._cut_value(0.5)

    def _cut_value(self, factor: float) -> None:
        self._value = max(self._least, self._value * factor)
        self._since_cut = 0


class Pace:
    """A limit of rows per second on average; 0: no limit. Times in seconds of any clock."""

    def __init__(self, rows_per_s: int) -> None:
        self._cost_s = 1 / rows_per_s if rows_per_s > 0 else 0.0
        self._free_at = 0.0

    def wait_s(self, now: float) -> float:
        """How long to wait before the next page."""
        return max(self._free_at - now, 0.0)

    def spent(self, rows: int, now: float) -> None:
        """Count a page of ``rows`` rows."""
        self._free_at = max(self._free_at, now) + rows * self._cost_s


class PageSize:
    """Rows per page: as configured at most, fewer where rows are large or pages time out.

    Args:
        maximum: as configured.
        page_bytes: what a page should hold at most.
    """

    LEAST: Final = 10

    def __init__(self, maximum: int = 2_000, page_bytes: int = 2_000_000) -> None:
        self._most = maximum
        self._page_bytes = page_bytes
        self._row_bytes = 0.0
        self._bound = float(maximum)

    @property
    def rows(self) -> int:
        """Rows to ask for."""
        fit = self._page_bytes / self._row_bytes if self._row_bytes else self._most
        return int(max(min(fit, self._bound, self._most), min(self.LEAST, self._most)))

    def answered(self, rows: Sequence[Sequence[Any]]) -> None:
        """A page came: looks at a few of its rows."""
        if not rows:
            return
        sample = rows[:: max(1, len(rows) // 4)]
        size = max(estimate_size(row) for row in sample)
        # Large rows count at once, small ones are believed slowly.
        self._row_bytes = max(size, self._row_bytes + _SMOOTH * (size - self._row_bytes))
        if self._bound < self._most:
            self._bound = min(self._most, self._bound * 1.1 + 1)

    def failed(self) -> None:
        """A page of this size timed out."""
        self._bound = max(self.rows / 2, 1)


def estimate_size(row: Sequence[Any]) -> int:
    """About how many bytes the values of a row hold; containers are looked into one level deep."""
    size = 0
    for cell in row:
        if isinstance(cell, (str, bytes)):
            size += len(cell)
        elif isinstance(cell, (list, dict)):
            items = cell.values() if isinstance(cell, dict) else cell
            size += sum(len(item) if isinstance(item, (str, bytes)) else 32 for item in items)
        else:
            size += 8
    return size


def pause_s(attempt: int, base_ms: int, most_ms: int, jitter_percent: int, chance: float) -> float:
    """Seconds to wait before try ``attempt`` + 1: doubled each time, less a random part.

    Args:
        attempt: failures so far, 1 or more.
        base_ms: of the first pause.
        most_ms: of any.
        jitter_percent: how much of it may be taken off.
        chance: a random number in [0, 1).
    """
    full = pause_after(attempt, base_ms, most_ms)
    return full * (1 - chance * jitter_percent / 100) / 1000
