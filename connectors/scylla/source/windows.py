"""Choice of the time range of a log to read next. Pure: no clock, no I/O. All times in ms since 1970-01-01 UTC."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

#: 100 ns steps between 1582-10-15 and 1970-01-01: what version 1 UUIDs count from.
_EPOCH: Final = 0x01B21DD213814000
_LAYOUT: Final = struct.Struct(">IHHQ")
#: In the order of Cassandra and Scylla: the lower half is compared byte by byte as signed numbers.
_LOWEST: Final = 0x8080808080808080
_HIGHEST: Final = 0x7F7F7F7F7F7F7F7F
#: A window over history grows or shrinks at most by this much against the one before.
_STEP: Final = 8


def _make_timeuuid(ticks: int, low: int) -> bytes:
    return _LAYOUT.pack(ticks & 0xFFFFFFFF, (ticks >> 32) & 0xFFFF, 0x1000 | (ticks >> 48) & 0x0FFF, low)


def start_of(ms: int) -> bytes:
    """The lowest timeuuid (16 bytes) of a millisecond, in the server's order."""
    return _make_timeuuid(ms * 10_000 + _EPOCH, _LOWEST)


def end_of(ms: int) -> bytes:
    """The highest timeuuid (16 bytes) of a millisecond, in the server's order."""
    return _make_timeuuid(ms * 10_000 + 9_999 + _EPOCH, _HIGHEST)


def ticks_of(time: bytes) -> int:
    """The 100 ns steps since 1970-01-01 of a timeuuid of 16 bytes."""
    low, middle, high, _ = _LAYOUT.unpack(time)
    ticks: int = (high & 0x0FFF) << 48 | middle << 32 | low
    return ticks - _EPOCH


def millis_of(time: bytes) -> int:
    """The millisecond of a timeuuid of 16 bytes."""
    return ticks_of(time) // 10_000


def order_of(time: bytes) -> bytes:
    """A key that sorts timeuuids (16 bytes) as the server does: by time, then by signed bytes of the lower half."""
    return time[6:8] + time[4:6] + time[0:4] + bytes(byte ^ 0x80 for byte in time[8:])


@dataclass(frozen=True, slots=True)
class WindowRules:
    """How wide windows are.

    Attributes:
        fixed_ms: always this width and only when it is complete, as the Java connector does; None: adaptive.
        head_ms: the least that has to have become readable before a window at the head is read.
        first_ms: width of the first window over history.
        widest_ms: bound of the adaptive width.
        target_rows: as many rows as an adaptive window over history should give.
        minimal_wait_ms: the least time between the starts of two windows of the same streams.
    """

    fixed_ms: int | None = None
    head_ms: int = 1_000
    first_ms: int = 60_000
    widest_ms: int = 32 * 86_400_000
    target_rows: int = 50_000
    minimal_wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class LogWindowStep:
    """The next step from a position: read up to ``end_ms`` (None: wait ``wait_ms`` first); ``finished``: nothing any more."""

    end_ms: int | None = None
    wait_ms: int = 0
    finished: bool = False


def next_window(
    start_ms: int,
    safe_ms: int,
    width_ms: int,
    rules: WindowRules,
    *,
    end_ms: int | None = None,
    not_after_ms: int | None = None,
) -> LogWindowStep:
    """The next window of streams that were read up to ``start_ms``.

    Args:
        start_ms: where they stand.
        safe_ms: up to here (exclusive) everything is visible: now less the confidence window.
        width_ms: the width for history, see ``next_width``.
        rules: the rules.
        end_ms: end of the generation, if it has one: a window ends there at the latest, and exactly there.
        not_after_ms: another bound for the window's end (where the other groups of a lane stand), above ``start_ms``.
    """
    if end_ms is not None and start_ms >= end_ms:
        return LogWindowStep(finished=True)
    bounds = [bound for bound in (end_ms, not_after_ms) if bound is not None]
    if rules.fixed_ms is not None:
        end = min([start_ms + rules.fixed_ms, *bounds])
        return LogWindowStep(end) if end <= safe_ms else LogWindowStep(wait_ms=end - safe_ms)
    end = min([safe_ms, start_ms + max(width_ms, 1), *bounds])
    least = min([start_ms + rules.head_ms, *bounds])
    if safe_ms < least:
        return LogWindowStep(wait_ms=least - safe_ms)
    return LogWindowStep(max(end, min(least, safe_ms)))


def next_width(width_ms: int, span_ms: int, rows: int, rules: WindowRules) -> int:
    """The width after a window of ``span_ms`` that gave ``rows`` rows.

    Each empty window makes it grow eightfold: a day without changes costs a handful of queries. Dense windows make it shrink
    to about ``target_rows`` rows a window, so that the streams of a lane advance together.
    """
    if rows:
        ideal = span_ms * rules.target_rows // rows
        width = min(max(ideal, width_ms // _STEP), width_ms * _STEP)
    else:
        width = width_ms * _STEP
    return min(max(width, rules.head_ms, 1), rules.widest_ms)


def head_tick_ms(head_ms: int, queries_a_round: int, idle_queries_s: float) -> int:
    """How often the head is read, so that a round of all lanes costs at most ``idle_queries_s`` queries per second."""
    return max(head_ms, int(1000 * queries_a_round / idle_queries_s)) if idle_queries_s > 0 else head_ms


def pack_lanes(sizes: Iterable[int], limit: int) -> list[list[int]]:
    """Neighbouring items (by index) whose sizes together stay within ``limit``; a larger item is in a lane of its own."""
    lanes: list[list[int]] = []
    room = 0
    for index, size in enumerate(sizes):
        if lanes and size <= room:
            lanes[-1].append(index)
            room -= size
        else:
            lanes.append([index])
            room = limit - size
    return lanes
