"""Batches that the broker refuses, over a Kafka client in memory: what is found in them, and what is learned of the topic."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.errors import InvalidTimestampError, MessageSizeTooLargeError, OutOfOrderSequenceNumber

from connectors.errors import Fatal
from tests.support.eventually import eventually_async, pass_turns
from worker.host.delivery import producer as producers
from worker.host.delivery.commits import CommitUnit
from worker.host.delivery.producer import Producer
from worker.host.delivery.producer_errors import TransactionLost
from worker.host.delivery.routes import ProducerSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.host.delivery.chunk import RecordChunk

BAD = b"bad"
LARGEST = 5_000


class Client:
    """A Kafka client that sends one batch at a time, with the next one waiting, as aiokafka does for a partition.

    It sends the next one before anyone knows of the answer, as aiokafka does where another partition's answer comes just then.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: asyncio.Queue[tuple[RecordChunk, asyncio.Future[None]]] = asyncio.Queue(1)
        self._sender = SimpleNamespace(sender_task=asyncio.create_task(self._send()))
        self.client = SimpleNamespace(cluster=SimpleNamespace(available_partitions_for_topic=lambda _: {0}))

    async def partitions_for(self, topic: str) -> set[int]:
        assert topic == "rows"
        return {0}

    async def send_batch(self, chunk: RecordChunk, topic: str, *, partition: int) -> asyncio.Future[None]:
        assert (topic, partition) == ("rows", 0)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self._waiting.put((chunk, answer))
        return answer

    async def _send(self) -> None:
        has_written = has_gap = False
        while True:
            chunk, answer = await self._waiting.get()
            error = self._broker.refusal(chunk)
            # Kafka knows the sequence of a producer only once it has taken something of it.
            if error is None and has_written and has_gap:
                error = OutOfOrderSequenceNumber()
            if error is None:
                self._broker.values += [value for _, value in chunk.records()]
                has_written = True
            else:
                has_gap = True
            await pass_turns(3)  # until the answer comes
            if error is None:
                answer.set_result(None)
            else:
                answer.set_exception(error)


class Broker:
    """Takes batches of at most ``LARGEST`` bytes without a value that begins with ``BAD``."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []

    async def connect(self) -> Client:
        return Client(self)

    async def discard(self, client: Client, patience_s: float, *, failed: bool) -> None:
        assert patience_s <= 2.0
        assert failed in (True, False)
        client._sender.sender_task.cancel()
        await asyncio.gather(client._sender.sender_task, return_exceptions=True)

    @staticmethod
    def refusal(chunk: RecordChunk) -> Exception | None:
        error: Exception | None = None
        if any(value is not None and value.startswith(BAD) for _, value in chunk.records()):
            error = InvalidTimestampError()
        elif chunk.size() > LARGEST:
            error = MessageSizeTooLargeError()
        return error


class Delivery:
    """A producer of such a broker, and what it reports."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> None:
        self.broker = Broker()
        monkeypatch.setattr(producers, "ProducerConnector", lambda *_: self.broker)
        monkeypatch.setattr(producers.Producer, "_join_offset_partitions", lambda *_: None)
        self.failures: list[Exception] = []
        self.rejected: list[tuple[bytes | None, list[CommitUnit]]] = []
        self.batch_sizes: dict[str, int] = {}
        self.rejecting = asyncio.Event()
        self.rejecting.set()
        self.producer = Producer(
            "task", ProducerSettings(arguments), self.failures.append, self._reject, self.batch_sizes
        )

    async def _reject(
        self, topic: str, key: bytes | None, value: bytes | None, units: list[CommitUnit], error: Exception
    ) -> None:
        assert (topic, key) == ("rows", None)
        assert "the broker refuses the record" in str(error)
        self.rejected.append((value, list(units)))
        await self.rejecting.wait()

    async def write(self, *batches: list[bytes | None]) -> list[CommitUnit]:
        """Append batches, each a unit, and flush."""
        await self.producer.start()
        route = await self.producer.route("rows")
        units = []
        for values in batches:
            unit = CommitUnit()
            assert route.append(unit, values) == []
            unit.release()
            units.append(unit)
        self.producer.flush()
        return units


async def until(condition: Callable[[], object], delivery: Delivery) -> None:
    await eventually_async(
        lambda: bool(condition()), "it is handled", detail=lambda: (delivery.failures, delivery.rejected)
    )


async def test_a_refused_record_says_nothing_about_the_size_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = Delivery(monkeypatch)
    good: list[bytes | None] = [b"%d" % number for number in range(40)]
    await delivery.write([*good[:7], BAD, *good[7:]])
    await delivery.producer.drain()
    assert (delivery.broker.values, [value for value, _ in delivery.rejected]) == (good, [BAD])
    assert delivery.batch_sizes == {}, "the topic takes batches as before"
    await delivery.producer.close()


async def test_what_follows_a_refused_batch_waits_while_an_earlier_record_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delivery = Delivery(monkeypatch)
    delivery.rejecting.clear()  # its dead letter waits for its topic
    good: list[bytes | None] = [b"%d" % number for number in range(6)]
    await delivery.write([good[0], BAD, good[1], BAD + b"2", *good[2:]])
    await until(lambda: delivery.rejected, delivery)
    # The next batch is refused, too, and what follows it is on its way.
    await pass_turns(50)
    delivery.rejecting.set()
    await delivery.producer.drain()
    assert [value for value, _ in delivery.rejected] == [BAD, BAD + b"2"]
    assert delivery.broker.values == good, "in order"
    await delivery.producer.close()


async def test_a_record_that_is_too_large_alone_does_not_make_batches_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = Delivery(monkeypatch)
    await delivery.write([b"x" * (LARGEST + 1)])
    await delivery.producer.drain()
    assert len(delivery.rejected) == 1
    assert delivery.batch_sizes == {}
    await delivery.producer.close()


async def test_a_batch_that_is_too_large_makes_later_ones_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = Delivery(monkeypatch)
    values: list[bytes | None] = [b"x" * 100] * 100
    await delivery.write(values)
    await delivery.producer.drain()
    assert (delivery.broker.values, delivery.rejected) == (values, [])
    assert delivery.batch_sizes["rows"] <= LARGEST
    await delivery.producer.close()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        # A later attempt would have the record in a batch again: smaller batches need not be single records.
        ([b"1", BAD, b"2"], Fatal),
        ([BAD], Fatal),
        ([b"x" * 100] * 100, TransactionLost),
        ([b"x" * (LARGEST + 1)], Fatal),
    ],
)
async def test_a_transaction_with_a_refused_record_fails_the_task(
    monkeypatch: pytest.MonkeyPatch, values: list[bytes | None], kind: type[Exception]
) -> None:
    delivery = Delivery(monkeypatch, transactional_id="t")
    await delivery.write(values)
    await until(lambda: delivery.failures, delivery)
    assert [type(failure) for failure in delivery.failures] == [kind]
    await delivery.producer.close()
