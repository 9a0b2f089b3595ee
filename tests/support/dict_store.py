"""The materializer's ``Store`` over a dict, for tests: ordered, with a bound on changes per transaction."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class DictStore:
    """See ``spark_jobs.materializer.contract.StateStore``; keys are kept in a sorted list next to the dict.

    Args:
        limit: changes after which a transaction is full; ``commit`` starts the next one.
    """

    def __init__(self, limit: int = 1 << 60) -> None:
        self.values: dict[bytes, bytes] = {}
        self.order: list[bytes] = []
        self.limit = limit
        self.changes = 0

    def get(self, key: bytes) -> bytes | None:
        """See ``Store``."""
        return self.values.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """See ``Store``."""
        self.changes += 1
        if value is None:
            if self.values.pop(key, None) is not None:
                del self.order[bisect_left(self.order, key)]
            return
        if key not in self.values:
            insort(self.order, key)
        self.values[key] = value

    def scan(self, prefix: bytes, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """See ``Store``."""
        key = max(prefix, start)
        while True:
            index = bisect_left(self.order, key)
            if index == len(self.order):
                return
            next_key = self.order[index]
            if not next_key.startswith(prefix) or (end is not None and next_key >= end):
                return
            yield next_key, self.values[next_key]
            key = next_key + b"\x00"

    def due(self, until_s: int) -> Iterator[tuple[int, bytes]]:
        """See ``Store``."""
        pairs = [(int.from_bytes(value[:8], "big", signed=True), key) for key, value in self.values.items()]
        yield from sorted(pair for pair in pairs if pair[0] and pair[0] <= until_s)

    @property
    def full(self) -> bool:
        """See ``Store``."""
        return self.changes >= self.limit

    def commit(self) -> None:
        """Start the next transaction."""
        self.changes = 0
