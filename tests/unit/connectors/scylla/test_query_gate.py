"""The gate in front of queries: how many are in flight, who waits, and what becomes of a place that is not used."""

from __future__ import annotations

import asyncio

import pytest

from connectors.cql.cluster.throttle import InFlightLimit
from connectors.scylla.source.fetching import QueryGate
from tests.support.eventually import pass_turns


def make_gate() -> QueryGate:
    """A gate for one query at a time."""
    return QueryGate(InFlightLimit(least=1, maximum=1, first=1), most_rows=100)


async def test_enter_returns_whether_it_waited() -> None:
    gate = make_gate()
    assert not await gate.enter()
    second = asyncio.create_task(gate.enter())
    await pass_turns()
    assert not second.done()
    gate.leave()
    assert await second
    assert gate.in_flight == 1


async def test_a_place_that_is_not_used_goes_to_the_next_in_line() -> None:
    gate = make_gate()
    await gate.enter()
    second = asyncio.create_task(gate.enter())
    await pass_turns()
    gate.give_back()
    assert await second
    gate.give_back()
    assert (gate.in_flight, gate.rows) == (0, 0)


async def test_one_that_is_cancelled_with_its_place_gives_it_back() -> None:
    gate = make_gate()
    await gate.enter()
    second = asyncio.create_task(gate.enter())
    await pass_turns()
    gate.leave()
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert gate.in_flight == 0
    assert not await gate.enter()
