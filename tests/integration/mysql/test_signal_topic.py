"""The signal topic on a real Kafka: orders come once, the place is kept, other connectors' orders are passed over."""

from __future__ import annotations

import json
import secrets

from aiokafka import AIOKafkaProducer

from connectors.mysql.stream.signals import KafkaSignals, Signal
from tests.support.eventually import patience


async def send(bootstrap: str, topic: str, *values: tuple[bytes, bytes]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        for key, value in values:
            await producer.send_and_wait(topic, value, key=key, partition=0)
    finally:
        await producer.stop()


def order(message: str) -> bytes:
    return json.dumps({"id": message, "type": "log", "data": {"message": message}}).encode()


async def wait(signals: KafkaSignals, count: int) -> list[Signal]:
    received: list[Signal] = []
    async with patience(20):
        while len(received) < count:
            received += await signals.read()
    return received


async def test_orders_come_once_and_in_order(bootstrap: str) -> None:
    topic = f"signals-{secrets.token_hex(4)}"
    await send(
        bootstrap, topic, (b"p", order("one")), (b"other", order("x")), (b"p", b"nonsense"), (b"p", order("two"))
    )
    signals = KafkaSignals(bootstrap, topic, f"{topic}-group", "p")
    try:
        received = await wait(signals, 2)
        assert [(signal.id, signal.at) for signal in received] == [("one", f"{topic}-0:0"), ("two", f"{topic}-0:3")]
    finally:
        await signals.close()
    restarted = KafkaSignals(bootstrap, topic, f"{topic}-group", "p")
    try:
        assert [signal.id for signal in await wait(restarted, 2)] == [
            "one",
            "two",
        ]  # not committed: they come again, as the same
        await restarted.commit()
    finally:
        await restarted.close()
    await send(bootstrap, topic, (b"p", order("three")))
    last = KafkaSignals(bootstrap, topic, f"{topic}-group", "p")
    try:
        assert [signal.id for signal in await wait(last, 1)] == ["three"]
    finally:
        await last.close()
