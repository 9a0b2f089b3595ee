"""The intake between servers and task: bounded, in order, and answered only after delivery."""

from __future__ import annotations

import asyncio

from connectors.logs.network.intake import Intake
from connectors.logs.network.lines import NetworkLine
from connectors.logs.rules.records import LineOrigin


def lines(count: int, size: int = 10) -> list[NetworkLine]:
    return [NetworkLine(str(number), LineOrigin(), size=size) for number in range(count)]


async def test_a_delivery_is_done_when_all_of_its_lines_are() -> None:
    intake = Intake(4)
    delivery = await intake.put("a", "s", 0, lines(10))
    batches = [await intake.take(1) for _ in range(3)]
    assert [[line.line for portion in portions for line in portion.lines] for portions in batches] == [
        ["0", "1", "2", "3"],
        ["4", "5", "6", "7"],
        ["8", "9"],
    ]
    assert [portion.first for portions in batches for portion in portions] == [0, 4, 8]
    for portions in reversed(batches):
        assert not delivery.done.is_set()
        intake.confirm(portions)
    assert delivery.done.is_set()
    assert (await intake.put("a", "s", 0, [])).done.is_set()


async def test_small_portions_share_a_batch() -> None:
    intake = Intake(4)
    for _ in range(3):
        await intake.put("a", "s", 0, lines(2))
    assert [len(await intake.take(1)) for _ in range(2)] == [2, 1]
    assert await intake.take(0) == []


async def test_a_sender_waits_until_there_is_room() -> None:
    intake = Intake(4, most_bytes=60)
    await intake.put("a", "s", 0, lines(4))
    waiting = asyncio.create_task(intake.put("a", "t", 0, lines(4)))
    behind = asyncio.create_task(intake.put("a", "u", 0, lines(1)))
    portions = await intake.take(1)
    assert await intake.take(0.01) == []
    assert not intake.put_now("a", "udp", 0, lines(1))
    intake.confirm(portions)
    await asyncio.gather(waiting, behind)
    assert [portion.sender for portion in await intake.take(1)] == ["t"]
    assert [portion.sender for portion in await intake.take(1)] == ["u"]


async def test_a_portion_larger_than_all_room_waits_alone() -> None:
    intake = Intake(4, most_bytes=60)
    await intake.put("a", "s", 0, lines(1, size=1000))
    assert not intake.put_now("a", "s", 0, lines(1))
    intake.confirm(await intake.take(1))
    assert intake.put_now("a", "s", 0, lines(1))


async def test_a_rate_is_kept() -> None:
    intake = Intake(10, rate=1000)
    loop = asyncio.get_running_loop()
    start = loop.time()
    for _ in range(6):
        await intake.put("a", "s", 0, lines(10))
    assert loop.time() - start >= 0.049  # a lower bound is no assert on speed
    assert not intake.put_now("a", "s", 0, lines(1))
