"""The right to start units: a host whose machine was frozen may have waited longer than the group counted its worker in."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from worker.host.errors import retry_pauses
from worker.protocol import ReadLease, RemoteError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)
_ANSWER_S: Final = 10.0


class Lease:
    """The time until which no other worker can have been given this worker's units.

    Args:
        request: asks the control process: (message, deadline in seconds) -> answer.
    """

    def __init__(self, request: Callable[[ReadLease, float], Awaitable[float]]) -> None:
        self._request = request
        self._until = 0.0

    async def wait(self) -> None:
        """Return when this worker is in touch with its group; asks only if the last answer no longer counts."""
        pauses = retry_pauses()
        while time.monotonic() >= self._until:
            try:
                self._until = await self._request(ReadLease(), _ANSWER_S)
            except (RemoteError, TimeoutError) as error:
                log.warning("the control process does not say whether this worker is in the group: %s", error)
            if time.monotonic() >= self._until:
                await asyncio.sleep(next(pauses))
