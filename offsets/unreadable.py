"""Records that could not be read: counted all, logged once per key."""

from __future__ import annotations

import logging
from typing import Final

_LOG: Final = logging.getLogger(__name__)
#: Keys remembered so that each is logged once; beyond this many distinct ones they are only counted.
_REMEMBERED: Final = 1000


class Unreadable:
    """Keeps account of records of ``topic`` that make no sense; they change no state.

    Attributes:
        count: how many there were.
        last: why, of the last one.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._seen: set[bytes | None] = set()
        self.count = 0
        self.last = ""

    def add(self, key: bytes | None, reason: Exception) -> None:
        """Count one, and warn if its key is new."""
        self.count += 1
        self.last = f"record with key {key!r}: {reason}"
        if key not in self._seen and len(self._seen) < _REMEMBERED:
            self._seen.add(key)
            _LOG.warning(
                "Ignoring a record in the %s topic that is not Kafka Connect's (key %r): %s. Further ones with this "
                "key are only counted",
                self._topic,
                key,
                reason,
            )
