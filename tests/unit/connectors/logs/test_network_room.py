"""The bound on the bytes of all senders together: kept, and never stuck."""

import asyncio

from connectors.logs.network.room import Room, RoomLease
from tests.support.eventually import pass_turns
from tests.unit.connectors.logs.network_world import connected, listening


async def test_a_sender_waits_for_room_that_others_have() -> None:
    room, first, second, third = Room(100), RoomLease(), RoomLease(), RoomLease()
    await room.grow(first, 90)
    # The first one that would have to wait may go beyond the bound.
    await room.grow(second, 50)
    waiting = asyncio.create_task(room.grow(third, 50))
    await pass_turns()
    assert not waiting.done()
    room.replace(first, 0)
    room.replace(second, 10)  # its frame is complete: the next one that has to wait goes beyond the bound
    await waiting
    assert room.used == 60


async def test_parts_that_fill_the_room_come_to_their_ends() -> None:
    room = Room(100)
    done: list[int] = []

    async def send(number: int) -> None:
        lease = RoomLease()
        for _ in range(4):
            await room.grow(lease, 20)
            await pass_turns()
            assert room.used <= 100 + 80
        done.append(number)
        room.replace(lease, 0)

    await asyncio.gather(*(send(number) for number in range(20)))
    assert sorted(done) == list(range(20))
    assert room.used == 0


async def test_a_sender_that_gives_up_while_it_waits_leaves_nothing_behind() -> None:
    room, first, second, third = Room(10), RoomLease(), RoomLease(), RoomLease()
    await room.grow(first, 10)
    await room.grow(second, 10)
    waiting = asyncio.create_task(room.grow(third, 10))
    await pass_turns()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    room.replace(second, 0)
    room.replace(first, 0)
    await room.grow(third, 10)
    assert room.used == 10


async def test_slow_uploads_do_not_delay_others() -> None:
    async with listening("http", "http") as listener:
        slow = [connected(listener.port) for _ in range(8)]
        writers = [(await connection.__aenter__())[1] for connection in slow]
        for writer in writers:
            writer.write(b"POST /lines HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nfirst\n")
            await writer.drain()
        async with connected(listener.port) as (reader, writer):
            writer.write(b"POST /lines HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nquick")
            await writer.drain()
            rows = await listener.rows(1)
            assert [row["line"] for row in rows] == ["quick"]
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        for connection in slow:
            await connection.__aexit__(None, None, None)
