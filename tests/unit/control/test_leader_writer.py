"""The leader's writes when it is stopped, and when what they were decided by changes: no caller is left waiting."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from aiokafka.errors import MessageSizeTooLargeError

from tests.support.eventually import pass_turns
from worker.control import leader_writer
from worker.control.leader_writer import LeaderWriter, Overtaken
from worker.rest.facade import NotLeader, RestError

if TYPE_CHECKING:
    import pytest

    from worker.control.state.stores import ClusterStores


class Producer:
    """Takes what the client of Kafka would; transactions begin when the test lets them."""

    def __init__(self, may_begin: asyncio.Event, began: asyncio.Event) -> None:
        self._may_begin = may_begin
        self._began = began
        self.sent: list[bytes | None] = []
        self.committed: list[bytes | None] = []

    async def start(self) -> None:
        """It is connected."""

    async def begin_transaction(self) -> None:
        self._began.set()
        await self._may_begin.wait()

    async def send(self, topic: str, value: bytes | None, *, key: bytes) -> asyncio.Future[Any]:
        assert topic == "t"
        if len(key) + len(value or b"") > 1_048_576:
            raise MessageSizeTooLargeError
        self.sent.append(value)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_result(SimpleNamespace(offset=len(self.sent)))
        return answer

    async def flush(self) -> None:
        """All has been sent."""

    async def commit_transaction(self) -> None:
        self.committed, self.sent = [*self.committed, *self.sent], []

    async def abort_transaction(self) -> None:
        self.sent = []


class Leader:
    """A writer over such a producer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_begin, self.began = asyncio.Event(), asyncio.Event()
        self.producer = Producer(self.may_begin, self.began)
        self.interrupted = 0
        monkeypatch.setattr(leader_writer, "AIOKafkaProducer", lambda **_: self.producer)
        monkeypatch.setattr(leader_writer, "abandon_producer", self._nothing)
        store = SimpleNamespace(
            log=SimpleNamespace(topic="t", read_to_end=self._nothing), applied=SimpleNamespace(wait=self._nothing)
        )
        stores = cast("ClusterStores", SimpleNamespace(config=store, placement=store))
        self.writer = LeaderWriter(stores, {}, self._interrupt)

    async def begin_two_writes(self) -> tuple[asyncio.Task[None], asyncio.Task[None]]:
        """One that is under way, and one that waits for it."""
        assert await self.writer.open(lambda: True)
        self.writer.start()
        first = asyncio.create_task(self.writer.write([(b"k", b"v")]))
        await self.began.wait()
        later = asyncio.create_task(self.writer.write([(b"k", b"w")]))
        await pass_turns()
        return first, later

    async def _nothing(self, *_: object) -> None:
        """It is done."""

    def _interrupt(self) -> None:
        self.interrupted += 1


async def test_a_write_that_is_under_way_when_the_leader_stops_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader(monkeypatch)
    writer = leader.writer
    first, later = await leader.begin_two_writes()
    await writer.stop()
    async with asyncio.timeout(10):
        results = await asyncio.gather(first, later, return_exceptions=True)
    assert [type(result) for result in results] == [NotLeader, NotLeader]


async def test_what_waits_when_a_term_ends_is_not_written_in_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader(monkeypatch)
    writer = leader.writer
    first, later = await leader.begin_two_writes()
    await writer.close()
    assert await writer.open(lambda: True)
    leader.may_begin.set()
    async with asyncio.timeout(10):
        results = await asyncio.gather(first, later, return_exceptions=True)
    assert isinstance(results[1], NotLeader)
    assert (leader.producer.committed, writer.term) == ([b"v"], 2)
    await writer.stop()


async def test_a_record_that_is_too_large_interrupts_no_other_write(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader(monkeypatch)
    writer = leader.writer
    leader.may_begin.set()
    assert await writer.open(lambda: True)
    writer.start()
    results = await asyncio.gather(
        writer.write([(b"connector-small", b"v")]),
        writer.write([(b"connector-large", b"x" * 1_048_576)]),
        return_exceptions=True,
    )
    assert results[0] is None
    assert isinstance(results[1], RestError)
    assert (results[1].status, "connector-large takes 1048591 bytes" in str(results[1])) == (400, True)
    assert (leader.producer.committed, leader.interrupted, writer.is_open) == ([b"v"], 0, True)
    await writer.stop()


async def test_what_no_longer_holds_is_not_committed_and_keeps_nothing_else_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader = Leader(monkeypatch)
    writer = leader.writer
    assert await writer.open(lambda: True)
    holds = True
    writes = asyncio.gather(
        writer.write([(b"k", b"of a client")]),
        writer.write(placement=[(b"p", b"overtaken")], still_holds=lambda: holds),
        return_exceptions=True,
    )
    await pass_turns()
    writer.start()
    await leader.began.wait()
    holds = False
    leader.may_begin.set()
    async with asyncio.timeout(10):
        first, second = await writes
    assert first is None
    assert isinstance(second, Overtaken)
    assert (leader.producer.committed, leader.interrupted, writer.is_open) == ([b"of a client"], 0, True)
    await writer.stop()
