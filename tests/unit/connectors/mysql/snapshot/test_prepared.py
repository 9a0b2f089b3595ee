"""XA transactions that snapshots wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.errors import Fatal
from connectors.mysql.snapshot.prepared import UNFINISHED, PreparedTransactions, wait_for_end
from connectors.testing.contexts import LogCapture, make_logger

if TYPE_CHECKING:
    from collections.abc import Collection

ID = "X'61',X'',1"
OTHER = "X'62',X'FF',7"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_one_that_the_server_lists_no_longer_has_ended() -> None:
    """The binlog may have no end of it: it has changed nothing there."""
    transactions = PreparedTransactions()
    transactions.compare([ID, OTHER])
    transactions.compare([OTHER])
    before = [transactions.any]
    transactions.release(OTHER.lower())
    assert [*before, transactions.any] == [True, False]


def test_one_that_the_stream_has_met_ends_in_the_stream_alone() -> None:
    """A server lists it a moment after it is in the binlog."""
    transactions = PreparedTransactions()
    transactions.compare([ID])
    transactions.hold(OTHER)
    transactions.release(ID)
    transactions.hold(ID)  # another one with the same id
    transactions.compare([])
    transactions.release(OTHER)
    before = [transactions.any]
    transactions.release(ID)
    assert [*before, transactions.any] == [True, False]


async def test_the_log_names_those_that_last_too_long() -> None:
    clock, log, listed = Clock(), LogCapture(), [ID]
    transactions = PreparedTransactions(clock)
    transactions.hold(UNFINISHED)

    async def ask() -> Collection[str]:
        return listed

    async def wait(seconds: float) -> str:
        clock.now += seconds
        before = log.text()
        await wait_for_end(transactions, ask, idle, make_logger("task", log))
        return log.text().removeprefix(before)

    async def idle() -> None:
        pass

    assert await wait(0) == await wait(20) == ""
    assert f"prepared XA transactions: {ID.lower()}. Until" in await wait(20)
    assert await wait(20) == ""
    assert ID.lower() in await wait(20)
    listed.clear()
    assert await wait(60) == ""


async def test_a_server_that_may_not_be_asked_keeps_nothing_waiting() -> None:
    log = LogCapture()
    transactions = PreparedTransactions()

    async def ask() -> Collection[str]:
        raise Fatal("no right")

    async def idle() -> None:
        pass

    await wait_for_end(transactions, ask, idle, make_logger("task", log))
    assert transactions.asked
    assert not transactions.any
    assert "(no right)" in log.text()
    assert "GRANT XA_RECOVER_ADMIN" in log.text()
