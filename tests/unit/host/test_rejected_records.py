"""The dead letter of a record that the broker refuses, in a batch with records of several units."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from connectors.errors import Fatal
from worker.host.delivery.batch_delivery import BatchDelivery
from worker.host.delivery.commits import CommitUnit, Ledger, position_key
from worker.host.delivery.routes import ProducerSettings, TopicRoute
from worker.host.options import CONNECTOR
from worker.protocol import HostTaskId, TaskStats

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from worker.host.delivery.chunk import RecordChunk
    from worker.host.delivery.producer import Producer
    from worker.host.delivery.routes import TopicPartitionWriter
    from worker.host.plan import TaskPlan

A, B = {"table": "a"}, {"table": "b"}


class Letters:
    """A producer of dead letters, which Kafka acknowledges when the test says so."""

    def __init__(self) -> None:
        self.settings = ProducerSettings({})
        self._route = TopicRoute(self, "letters", self.settings.batch_size)
        self._route.grow(1)

    def check(self) -> None:
        """It is open."""

    def available(self, topic: str) -> list[int]:
        assert topic == "letters"
        return [0]

    def account(self, rows: int, size: int) -> None:
        assert rows
        assert size

    def serve(self, writer: TopicPartitionWriter) -> None:
        assert writer.topic == "letters"

    async def route(self, topic: str) -> TopicRoute:
        assert topic == "letters"
        return self._route

    def chunks(self) -> list[RecordChunk]:
        (writer,) = self._route.writers.values()
        writer.roll()
        return list(writer.full)

    def acknowledge(self) -> None:
        for chunk in self.chunks():
            for unit in chunk.units:
                unit.release()


def delivery(letters: Letters, **options: str) -> BatchDelivery:
    async def nothing() -> None:
        """It is there already."""

    async def persist(call: Callable[[], Awaitable[Any]]) -> None:
        await call()

    plan = SimpleNamespace(
        id=HostTaskId("c", 0),
        options=CONNECTOR.parse({name.replace("_", "."): value for name, value in options.items()}),
        log=logging.LoggerAdapter(logging.getLogger(__name__), {}),
        producer=letters.settings,
        scrub=str,
        key_converter=None,
        value_converter=None,
        header_converter=None,
        ensure_dead_letter_topic=nothing,
        topics=SimpleNamespace(ensure=lambda _: nothing()),
        active_topics=set(),
        own_offsets_topic=None,
        topic_used=lambda _: None,
    )
    stats = TaskStats(HostTaskId("c", 0))
    return BatchDelivery(cast("TaskPlan", plan), stats, lambda: cast("Producer", letters), persist, lambda: None)


def held_units(ledger: Ledger) -> list[CommitUnit]:
    """Units of two tables with a record each in one chunk."""
    units = [CommitUnit(((position_key(table), table, {"at": 1}),)) for table in (A, B)]
    for unit in units:
        ledger.add(unit)
    return units


@pytest.mark.parametrize("topic", ["letters", ""])
async def test_no_position_passes_a_dead_letter_that_is_not_written(topic: str) -> None:
    letters, ledger = Letters(), Ledger()
    units = held_units(ledger)
    rejecting = delivery(letters, errors_tolerance="all", errors_deadletterqueue_topic_name=topic)
    await rejecting.reject_record("rows", None, b"x", units, RuntimeError("it is refused"))
    for unit in units:  # the producer is done with the chunk
        unit.release()
    expected = [(A, {"at": 1}), (B, {"at": 1})]
    if topic:
        assert ledger.take() == [], "the record may be of either"
        assert [value for chunk in letters.chunks() for _, value in chunk.records()] == [b"x"]
        letters.acknowledge()
    assert ledger.take() == expected


async def test_without_tolerance_the_task_fails() -> None:
    units = held_units(Ledger())
    with pytest.raises(Fatal, match=r"Tolerance exceeded.*source partition unknown"):
        await delivery(Letters()).reject_record("rows", None, b"x", units, RuntimeError("it is refused"))
