"""Reads of saved offsets that tasks of one connector share."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from connectors.errors import Retriable
from offsets.positions import encode_key, encode_offset
from tests.support.eventually import pass_turns
from worker.host.saved import OffsetReads
from worker.protocol import ReadOffsets, RemoteError

PARTITION = {"table": "t"}


class ControlProcess:
    """Answers each question once its gate is open, with the number of positions that are saved by then."""

    def __init__(self) -> None:
        self.asked = 0
        self.position = 0
        self.gate = asyncio.Event()
        self.fails = False

    async def request(self, message: Any, _: float) -> Any:
        assert message == ReadOffsets("c")
        self.asked += 1
        position = self.position
        await self.gate.wait()
        if self.fails:
            raise RemoteError("Retriable", "no broker answers")
        value = encode_offset({"position": position})
        return [(encode_key("c", PARTITION), value)]


async def test_tasks_that_ask_while_a_read_is_under_way_share_the_next() -> None:
    control = ControlProcess()
    reads = OffsetReads(control.request)
    first = asyncio.create_task(reads.read("c", None, {}))
    await pass_turns(4)
    control.position = 1
    later = [asyncio.create_task(reads.read("c", None, {})) for _ in range(3)]
    await pass_turns(4)
    assert control.asked == 1
    control.gate.set()
    assert (await first).get(PARTITION) == {"position": 0}
    indexes = await asyncio.gather(*later)
    assert control.asked == 2
    assert all(index is indexes[0] for index in indexes)
    assert indexes[0].get(PARTITION) == {"position": 1}


async def test_one_that_is_cancelled_takes_nothing_from_the_others() -> None:
    control = ControlProcess()
    reads = OffsetReads(control.request)
    first, second = (asyncio.create_task(reads.read("c", None, {})) for _ in range(2))
    await pass_turns(4)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    control.gate.set()
    assert (await second).get(PARTITION) == {"position": 0}
    assert control.asked == 1


async def test_all_get_the_error_and_the_next_read_is_another() -> None:
    control = ControlProcess()
    control.fails = True
    control.gate.set()
    reads = OffsetReads(control.request)
    errors = await asyncio.gather(*(reads.read("c", None, {}) for _ in range(2)), return_exceptions=True)
    assert [type(error) for error in errors] == [Retriable, Retriable]
    assert control.asked == 1
    control.fails = False
    assert (await reads.read("c", None, {})).get(PARTITION) == {"position": 0}
