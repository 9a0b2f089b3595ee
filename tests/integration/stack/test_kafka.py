"""Kafka as the stack starts it: quick, durable, on any port, and replicated when it has three brokers."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from compose.local.kafka import KafkaCluster, live_brokers
from compose.local.ports import LOOPBACK, is_free
from tests.support.eventually import eventually
from worker.fetch.errors import StackError
from worker.fetch.java import FAST_START

Unique = Callable[[str], str]


async def _send(bootstrap: str, topic: str, values: list[bytes]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)


async def _read(bootstrap: str, topic: str) -> list[bytes]:
    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        values: list[bytes] = []
        while await consumer.position(partition) < end:
            values += [record.value async for record in _read_batch(consumer)]
        return values


async def _read_batch(consumer: AIOKafkaConsumer):  # type: ignore[no-untyped-def]  # noqa: ANN202
    for records in (await consumer.getmany(timeout_ms=1000)).values():
        for record in records:
            yield record


async def test_the_shared_broker_takes_and_gives_records(bootstrap: str, unique: Unique) -> None:
    topic = unique("records")
    await _send(bootstrap, topic, [b"1", b"2", b"3"])
    assert await _read(bootstrap, topic) == [b"1", b"2", b"3"]


async def test_groups_and_transactions_work(bootstrap: str, unique: Unique) -> None:
    topic = unique("transactions")
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique("id"))
    async with producer, producer.transaction():
        await producer.send_and_wait(topic, b"committed", partition=0)
    group = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=unique("group"), auto_offset_reset="earliest",
        isolation_level="read_committed",
    )  # fmt: skip
    async with group:
        record = await asyncio.wait_for(group.getone(), 30)
        assert record.value == b"committed"
        await group.commit()


def test_a_broker_keeps_its_data_over_a_kill(tmp_path: Path, unique: Unique) -> None:
    topic = unique("kept")
    kafka = KafkaCluster(tmp_path, port=None, jvm_options=FAST_START)
    kafka.prepare()
    with kafka:
        address, pid = kafka.bootstrap, kafka.broker(0).pid
        asyncio.run(_send(address, topic, [b"before"]))
        kafka.broker(0).kill()
        assert live_brokers(kafka.broker(0).ports.client) == 0
        kafka.broker(0).start()
        assert kafka.bootstrap == address
        assert kafka.broker(0).pid != pid
        asyncio.run(_send(address, topic, [b"after"]))
        assert asyncio.run(_read(address, topic)) == [b"before", b"after"]
    assert is_free(int(address.rpartition(":")[2]))

    # The same folder again: a new handle, perhaps other ports, the same data.
    with KafkaCluster(tmp_path, port=None, jvm_options=FAST_START) as restarted:
        assert asyncio.run(_read(restarted.bootstrap, topic)) == [b"before", b"after"]


def test_a_taken_port_is_avoided(tmp_path: Path, bootstrap: str) -> None:
    used_port = int(bootstrap.rpartition(":")[2])
    kafka = KafkaCluster(tmp_path, port=used_port)
    (broker,) = kafka.prepare()
    assert broker.ports.client != used_port


def test_a_broker_that_cannot_start_shows_why(tmp_path: Path) -> None:
    kafka = KafkaCluster(tmp_path, port=None, jvm_options=FAST_START)
    kafka.prepare()
    config = tmp_path / "broker-1" / "server.properties"
    config.write_text(config.read_text(encoding="ascii") + "num.io.threads=many\n", encoding="ascii")
    with pytest.raises(StackError, match=r"(?s)ended while starting \(exit code 1\).*kafka\.log.*num\.io\.threads"):
        kafka.start()
    assert not kafka.broker(0).running


def test_a_wrong_property_is_reported_when_the_storage_is_formatted(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"(?s)could not be formatted.*num\.io\.threads"):
        KafkaCluster(tmp_path, port=None, properties={"num.io.threads": "many"}).start()


@pytest.mark.slow
def test_three_brokers_lose_one_and_nothing_else(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    topic = unique("replicated")
    addresses = kafka_cluster.bootstrap
    assert len(addresses.split(",")) == 3

    async def create() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=addresses)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=3)])
        finally:
            await admin.close()

    asyncio.run(create())
    asyncio.run(_send(addresses, topic, [b"1"]))
    for broker in kafka_cluster.brokers:
        broker.kill()
        survivor = next(broker for broker in kafka_cluster.brokers if broker.running)
        eventually(lambda port=survivor.ports.client: live_brokers(port) == 2, "two brokers answer")  # type: ignore[misc]
        asyncio.run(_send(addresses, topic, [f"without {broker.node}".encode()]))
        broker.start()
        eventually(kafka_cluster.complete, "all brokers are back")
    assert asyncio.run(_read(addresses, topic)) == [b"1", b"without 0", b"without 1", b"without 2"]


def test_a_paused_broker_answers_again_when_it_goes_on(kafka_cluster: KafkaCluster) -> None:
    broker = kafka_cluster.broker(1)
    broker.pause()
    assert live_brokers(broker.ports.client, timeout=0.3) == 0
    broker.resume()
    eventually(kafka_cluster.complete, "all brokers are back")


def test_brokers_listen_on_the_loopback_address_only(kafka_cluster: KafkaCluster) -> None:
    for broker in kafka_cluster.brokers:
        for port in (broker.ports.client, broker.ports.broker, broker.ports.controller):
            # 127.0.0.2 is this machine too: a server on all addresses would hold it.
            assert is_free(port, "127.0.0.2"), f"port {port} is not bound to {LOOPBACK} alone"


async def test_an_address_where_nobody_listens_is_an_error_not_a_hang() -> None:
    with pytest.raises(KafkaError):
        await asyncio.wait_for(AIOKafkaProducer(bootstrap_servers=f"{LOOPBACK}:1").start(), 30)
