"""A cache of looked-up rows with bounds on size and age. Not safe for several threads."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: The values of a key; None: the key was not found.
Values = tuple[Any, ...] | None


class LookupCache:
    """Keys with their values, the least recently used first.

    Args:
        rows: the most keys that are kept; 0 keeps none.
        age_s: for how long values count, in seconds.
        miss_age_s: for how long it counts that a key was not found; 0 keeps no misses.
        now: the time in seconds.
    """

    def __init__(self, rows: int, age_s: float, miss_age_s: float, now: Callable[[], float]) -> None:
        self._rows = rows
        self._age_s = age_s
        self._miss_age_s = miss_age_s
        self._now = now
        self._entries: OrderedDict[tuple[Any, ...], tuple[float, Values]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def split(self, keys: Iterable[tuple[Any, ...]]) -> tuple[dict[tuple[Any, ...], Values], list[tuple[Any, ...]]]:
        """Return what the cache has of ``keys``, and the other keys."""
        now, entries = self._now(), self._entries
        cached: dict[tuple[Any, ...], Values] = {}
        unknown = []
        for key in keys:
            entry = entries.get(key)
            if entry is None or entry[0] <= now:
                unknown.append(key)
            else:
                cached[key] = entry[1]
                entries.move_to_end(key)
        return cached, unknown

    def put(self, key: tuple[Any, ...], values: Values) -> None:
        """Keep the values of a key; beyond the bound, the keys that were not used longest are dropped."""
        age_s = self._miss_age_s if values is None else self._age_s
        self._entries.pop(key, None)
        if not self._rows or age_s <= 0:
            return
        self._entries[key] = (self._now() + age_s, values)
        while len(self._entries) > self._rows:
            self._entries.popitem(last=False)
