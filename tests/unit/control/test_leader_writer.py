"""The leader's writes when it is stopped: no caller is left waiting."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from worker.control import leader_writer
from worker.control.leader_writer import LeaderWriter
from worker.rest.facade import NotLeader

if TYPE_CHECKING:
    from worker.control.state.stores import ClusterStores


async def test_a_write_that_is_under_way_when_the_leader_stops_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    began = asyncio.Event()

    class Producer:
        """Never gets an answer of Kafka."""

        def __init__(self, **_: Any) -> None:
            """Connects to nothing."""

        async def start(self) -> None:
            """It is connected."""

        async def begin_transaction(self) -> None:
            began.set()
            await asyncio.Event().wait()

    async def nothing(*_: object) -> None:
        """It is done."""

    monkeypatch.setattr(leader_writer, "AIOKafkaProducer", Producer)
    monkeypatch.setattr(leader_writer, "abandon_producer", nothing)
    store = SimpleNamespace(log=SimpleNamespace(topic="t", read_to_end=nothing))
    stores = cast("ClusterStores", SimpleNamespace(config=store, placement=store))
    writer = LeaderWriter(stores, {}, lambda: None)
    assert await writer.open(lambda: True)
    writer.start()
    first = asyncio.create_task(writer.write([(b"k", b"v")]))
    await began.wait()
    later = asyncio.create_task(writer.write([(b"k", b"w")]))
    await asyncio.sleep(0)
    await writer.stop()
    async with asyncio.timeout(10):
        results = await asyncio.gather(first, later, return_exceptions=True)
    assert [type(result) for result in results] == [NotLeader, NotLeader]
