"""Bounds on what callers may ask in a time: token buckets in a table that does not grow. Pure but for its own state."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

#: Callers known at a time; whoever has not asked for longest is forgotten beyond it.
MOST_CALLERS: Final = 10_000


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class TokenBuckets:
    """One bucket of tokens per caller. For one event loop.

    Args:
        rate: tokens that come back in a second; 0 for no limit.
        burst: tokens of a full bucket, at least 1.
        max_callers: callers to know at a time.
    """

    def __init__(self, rate: float, burst: float, max_callers: int = MOST_CALLERS) -> None:
        self._rate = rate
        self._burst = max(1.0, burst)
        self._most = max_callers
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, caller: str, now: float) -> float:
        """Take a token at ``now`` (seconds of a steady clock): 0, or the seconds until there will be one."""
        if self._rate <= 0:
            return 0.0
        bucket = self._buckets.get(caller)
        if bucket is None:
            bucket = self._buckets[caller] = _Bucket(self._burst, now)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(caller)
            bucket.tokens = min(self._burst, bucket.tokens + max(0.0, now - bucket.at) * self._rate)
            bucket.at = now
        if bucket.tokens >= 1:
            bucket.tokens -= 1
            return 0.0
        return (1 - bucket.tokens) / self._rate

    def give_back(self, caller: str) -> None:
        """Return a token that was not used up after all."""
        bucket = self._buckets.get(caller)
        if bucket is not None:
            bucket.tokens = min(self._burst, bucket.tokens + 1)


def caller_address(remote: str | None) -> str:
    """The address that attempts are counted for: an IPv6 caller's network, for a caller has a whole one (RFC 6177)."""
    try:
        address = ipaddress.ip_address((remote or "").partition("%")[0])
    except ValueError:
        return remote or ""
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
