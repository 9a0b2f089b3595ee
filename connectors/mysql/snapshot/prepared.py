"""XA transactions that are prepared: the stream has passed their rows, and the server shows them only when they are committed.

A row that is read meanwhile is older than what the stream has sent, so that no read view is opened before they have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Collection

#: The name of the one of which the stream has not passed all rows.
UNFINISHED: Final = ""
#: Seconds between two questions for those that were prepared before the stream began.
_ASK_S: Final = 1.0
#: How often the wait for one is logged.
_TELL_S: Final = 30.0


class PreparedTransactions:
    """The prepared transactions that a task knows. Pure.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: Id -> since when it is known.
        self._since: dict[str, float] = {}
        #: Those that the server has listed; None: it was not asked yet. The binlog may have no end of them.
        self._listed: set[str] | None = None
        self._asked_s = 0.0
        self._reported_s = 0.0

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return bool(self._since)

    @property
    def asked(self) -> bool:
        """Whether the server has listed those that were prepared before the stream began."""
        return self._listed is not None

    @property
    def unclear(self) -> bool:
        """Whether the server is to be asked now."""
        return self._listed is None or (bool(self._listed) and self._clock() - self._asked_s >= _ASK_S)

    def hold(self, transaction: str) -> None:
        """The stream comes by one; its id is as ``XA COMMIT`` has it."""
        self._since.setdefault(transaction.lower(), self._clock())

    def release(self, transaction: str) -> None:
        """It has its end."""
        self._since.pop(transaction.lower(), None)
        if self._listed is not None:
            self._listed.discard(transaction.lower())

    def compare(self, prepared: Collection[str]) -> None:
        """Take the server's list of this moment."""
        self._asked_s = self._clock()
        if self._listed is None:
            self._listed = {transaction.lower() for transaction in prepared}
            for transaction in self._listed:
                self.hold(transaction)
            return
        for transaction in self._listed.difference(map(str.lower, prepared)):
            self.release(transaction)

    def take_overdue(self) -> list[str]:
        """Return those that are to be named in the log now."""
        now = self._clock()
        overdue = [name for name, since in self._since.items() if name != UNFINISHED and now - since >= _TELL_S]
        if not overdue or now - self._reported_s < _TELL_S:
            return []
        self._reported_s = now
        return sorted(overdue)


async def wait_for_end(
    transactions: PreparedTransactions,
    ask: Callable[[], Awaitable[Collection[str]]],
    idle: Callable[[], Awaitable[object]],
    log: logging.LoggerAdapter[logging.Logger],
) -> None:
    """Wait until one may have ended.

    Args:
        transactions: those that are known.
        ask: the server, for those that are prepared now.
        idle: waits until something has changed.
        log: gets what lasts too long.

    Raises:
        Retriable: the server is unavailable.
    """
    if transactions.asked:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ASK_S):
                await idle()
    if transactions.unclear:
        try:
            transactions.compare(await ask())
        except Fatal as error:
            transactions.compare(())
            log.warning(
                "snapshots can't tell which XA transactions were prepared before the stream began (%s). If programs use XA, "
                "GRANT XA_RECOVER_ADMIN ON *.* to the account (MySQL), and read the tables again that such a transaction "
                "has changed",
                error,
            )
    if overdue := transactions.take_overdue():
        log.warning(
            "snapshots wait for the end of prepared XA transactions: %s. Until then the server shows no row as these have "
            "left it. Where no program ends them, end each of them with XA COMMIT or XA ROLLBACK and its id",
            "; ".join(overdue),
        )
