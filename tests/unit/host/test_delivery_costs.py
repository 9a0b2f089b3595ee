"""A batch costs the same whatever a task did before it, and however many of its records are refused."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from connectors.api import Batch, SourceRecord
from connectors.wire import EncodedBatch
from worker.host.delivery.batch_delivery import BatchDelivery
from worker.host.delivery.commits import CommitUnit
from worker.host.delivery.routes import ProducerSettings, TopicRoute
from worker.host.options import CONNECTOR
from worker.protocol import HostTaskId, TaskStats

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

    from connectors.wire import RowWriter
    from worker.host.delivery.producer import Producer
    from worker.host.delivery.routes import TopicPartitionWriter
    from worker.host.plan import TaskPlan

LARGEST = 1000


class Topics:
    """A producer that keeps what it gets."""

    def __init__(self) -> None:
        self.settings = ProducerSettings({"max_request_size": LARGEST})
        self.served: list[TopicPartitionWriter] = []
        self.room = asyncio.Event()
        self.room.set()

    def check(self) -> None:
        """It is open."""

    def available(self, topic: str) -> list[int]:
        assert topic
        return [0]

    def account(self, rows: int, size: int) -> None:
        """It has room."""

    def serve(self, writer: TopicPartitionWriter) -> None:
        self.served.append(writer)

    async def route(self, topic: str) -> TopicRoute:
        route = TopicRoute(self, topic, self.settings.batch_size)
        route.grow(1)
        route.refresh_at = float("inf")
        return route


def delivery(topics: Topics) -> BatchDelivery:
    async def nothing() -> None:
        """It is there already."""

    async def persist(call: Callable[[], Awaitable[Any]]) -> None:
        await call()

    plan = SimpleNamespace(
        id=HostTaskId("c", 0),
        options=CONNECTOR.parse({"errors.tolerance": "all"}),
        log=logging.LoggerAdapter(logging.getLogger(__name__), {}),
        producer=topics.settings,
        pipeline=None,
        wire=None,
        scrub=str,
        key_converter=None,
        value_converter=None,
        header_converter=None,
        topics=SimpleNamespace(ensure=lambda _: nothing()),
        active_topics=set(),
        own_offsets_topic=None,
        topic_used=lambda _: None,
    )
    stats = TaskStats(HostTaskId("c", 0))
    return BatchDelivery(cast("TaskPlan", plan), stats, lambda: cast("Producer", topics), persist, lambda: None)


def batch_to(topic: str, values: list[bytes | None], records: Callable[[], list[SourceRecord]]) -> Batch:
    writer = cast("RowWriter", SimpleNamespace(topic=topic, make_headers=lambda _: []))
    return Batch([], encoded=(EncodedBatch(writer, 0, None, values, records),))


async def test_a_batch_wakes_the_topics_that_it_writes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    kicks = 0
    kick = TopicRoute.kick

    def count_kick(route: TopicRoute) -> None:
        nonlocal kicks
        kicks += 1
        kick(route)

    monkeypatch.setattr(TopicRoute, "kick", count_kick)
    topics = Topics()
    under_test = delivery(topics)
    for number in range(100):
        await under_test.deliver(batch_to(f"table{number}", [b"row"], list), CommitUnit())
    assert kicks == 100
    assert len(topics.served) == 100
    assert all(writer.wake.is_set() for writer in topics.served)
    await under_test.deliver(Batch([]), CommitUnit())
    assert kicks == 100, "no record, no topic"


async def test_records_are_made_a_second_time_once_however_many_are_refused() -> None:
    calls = 0
    values: list[bytes | None] = [bytes(2 * LARGEST)] * 1500

    def make_records() -> list[SourceRecord]:
        nonlocal calls
        calls += 1
        return [SourceRecord({}, {}, "rows", None) for _ in values]

    under_test = delivery(Topics())
    await under_test.deliver(batch_to("rows", values, make_records), CommitUnit())
    assert calls == 1
