"""The audit log: who did what, and who was not let in though a trusted authority vouches for them."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

import orjson

from worker.rest.security.limits import TokenBuckets

if TYPE_CHECKING:
    from collections.abc import Callable

AUDIT: Final = logging.getLogger("worker.rest.audit")
#: A refused certificate is logged at most once in this many seconds, for each subject.
_AGAIN_S: Final = 60.0
_LONGEST: Final = 512


class RefusedCertificates:
    """Writes down certificates that stand for no user. For one event loop.

    Args:
        clock: seconds of a steady clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # A client with such a certificate may ask as often as it likes: it must not fill the log.
        self._buckets = TokenBuckets(1 / _AGAIN_S, 1)

    def tell(self, subject: str, address: str, reason: str) -> None:
        """One line, unless there was one for this subject a moment ago.

        Args:
            subject: the certificate's, as rules see it.
            address: the client's.
            reason: what is missing, and what to do about it.
        """
        if not self._buckets.take(subject, self._clock()):
            AUDIT.warning("refused certificate subject=%s address=%s: %s", quote_text(subject), address, reason)


def quote_text(raw: str) -> str:
    """Return an external string as JSON, so that it can't add a line to the log; cut where it is long."""
    return orjson.dumps(raw[:_LONGEST].encode("utf-8", "replace").decode()).decode()
