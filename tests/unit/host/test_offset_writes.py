"""An offset that is too large for Kafka is reported: its task must not work as if it were saved."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.support.eventually import pass_turns
from worker.host.delivery.producer_counts import AckedRecords
from worker.host.delivery.routes import ProducerSettings, TopicRoute
from worker.host.saved import OffsetTooLarge, OffsetWriter, write_pairs

if TYPE_CHECKING:
    from worker.host.delivery.producer import Producer
    from worker.host.delivery.routes import TopicPartitionWriter

LARGEST = 1_000
PAIRS: list[tuple[bytes, bytes | None]] = [(b'["c",{"t":1}]', b"x" * 10), (b'["c",{"t":2}]', b"x" * LARGEST)]


class Sending:
    """A producer for which Kafka acknowledges everything at once."""

    closed = False

    def __init__(self, *_: Any, **__: Any) -> None:
        self.settings = ProducerSettings({"max_request_size": LARGEST})
        self.acked = AckedRecords()
        self.rows = 0
        self._route = TopicRoute(self, "offsets", self.settings.batch_size)
        self._route.grow(1)

    async def start(self) -> None:
        """Connect at once."""

    async def close(self) -> None:
        self.closed = True

    def check(self) -> None:
        assert not self.closed

    def available(self, topic: str) -> list[int]:
        assert topic == "offsets"
        return [0]

    def account(self, rows: int, size: int) -> None:
        assert size or not rows
        self.rows += rows

    def serve(self, writer: TopicPartitionWriter) -> None:
        assert writer.topic == "offsets"

    async def route(self, topic: str) -> TopicRoute:
        assert topic == "offsets"
        return self._route

    async def wait_for(self, event: asyncio.Event) -> None:
        for writer in self._route.writers.values():
            writer.roll()
            while writer.full:
                for unit in writer.full.popleft().units:
                    unit.release()
        assert event.is_set()


async def test_an_offset_that_is_too_large_fails_the_commit() -> None:
    producer = Sending()
    with pytest.raises(
        OffsetTooLarge, match=r'offset with the key \["c",\{"t":2\}\] can\'t be saved.*max.request.size'
    ):
        await write_pairs(cast("Producer", producer), "offsets", PAIRS)
    assert producer.rows == 1, "the others are written"
    await write_pairs(cast("Producer", producer), "offsets", PAIRS[:1])


async def test_it_fails_no_commit_of_another_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.host.saved.Producer", Sending)
    writer = OffsetWriter("offsets", ProducerSettings({}))
    await writer.write(PAIRS[:1])
    producer = cast("Any", writer._producer)
    with pytest.raises(OffsetTooLarge):
        await writer.write(PAIRS)
    assert not producer.closed
    await writer.write(PAIRS[:1])
    assert producer.rows == 3


async def test_a_task_that_starts_waits_for_offsets_that_its_last_run_has_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They would come behind those that it saves first, and the position would go back."""
    answers = asyncio.Event()

    class Unanswered(Sending):
        async def wait_for(self, event: asyncio.Event) -> None:
            await answers.wait()
            await super().wait_for(event)

    monkeypatch.setattr("worker.host.saved.Producer", Unanswered)
    writer = OffsetWriter("offsets", ProducerSettings({}))
    await writer.settle()
    given_up = asyncio.create_task(writer.write(PAIRS[:1]))
    await pass_turns()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    settled = asyncio.create_task(writer.settle())
    await pass_turns()
    assert not settled.done()
    answers.set()
    async with asyncio.timeout(10):
        await settled
    assert cast("Any", writer._producer).rows == 1
