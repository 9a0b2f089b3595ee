"""Exactly once: zombies among tasks and among leaders are fenced."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import ProducerFenced

from compose.local.worker import MillraceWorker
from connectors.datagen.generator import identify
from connectors.errors import Retriable
from offsets.fetch import abandon_producer
from tests.chaos.delivery import Load
from tests.integration.control._cluster import datagen, wait_for
from tests.support.eventually import eventually_async
from worker.control.fencing import fence_producers
from worker.kafka.whole_topics import read_topic

Factory = Callable[..., MillraceWorker]


async def records(bootstrap: str, topic: str) -> dict[str, bytes | None]:
    """The topic's last value of each key."""
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    await consumer.start()
    values: dict[str, bytes | None] = {}
    try:
        while batch := await consumer.getmany(timeout_ms=1500):
            for items in batch.values():
                values.update({item.key.decode(): item.value for item in items})
    finally:
        await consumer.stop()
    return values


async def test_tasks_start_after_their_predecessors_were_fenced(
    millrace: Factory, unique: Callable[[str], str], bootstrap: str
) -> None:
    group = unique("g")
    worker = await asyncio.to_thread(
        lambda: millrace(group=group, properties={"exactly.once.source.support": "enabled"})
    )

    def check() -> None:
        for tasks in (2, 3, 1):
            worker.create("once", datagen(unique("t"), tasks, partitions="3"))
            wait_for(
                lambda tasks=tasks: worker.states("once") == ("RUNNING", ["RUNNING"] * tasks),  # type: ignore[misc]
                f"{tasks} tasks run",
            )

    await asyncio.to_thread(check)
    written = await records(bootstrap, f"{group}-configs")
    assert written["tasks-fencing-once"] == b'{"task-count":1}'
    assert written["commit-once"] == b'{"tasks":1}'
    assert "session-key" in written


async def test_a_fenced_producer_can_write_no_more(bootstrap: str, unique: Callable[[str], str]) -> None:
    client = {"bootstrap_servers": bootstrap}
    zombie = AIOKafkaProducer(**client, transactional_id=unique("id"))
    await zombie.start()
    await zombie.begin_transaction()
    await (await zombie.send(unique("t"), b"late"))
    await fence_producers(client, [unique("id")], 20)
    with pytest.raises(ProducerFenced):
        await zombie.commit_transaction()
    await abandon_producer(zombie)


async def test_fencing_that_does_not_succeed_is_said(unique: Callable[[str], str]) -> None:
    with pytest.raises(Retriable, match="could not be taken over within"):
        await fence_producers({"bootstrap_servers": "127.0.0.1:1"}, [unique("id")], 1)


async def test_a_leader_that_was_replaced_without_knowing_it_changes_nothing(
    millrace: Factory, unique: Callable[[str], str], bootstrap: str
) -> None:
    """Somebody takes over the leader's transactional id, as a new leader does: the old one must notice at its next write."""
    group = unique("g")
    worker = await asyncio.to_thread(lambda: millrace(group=group))
    # A new leader's own first writes are over when one of its connectors runs: the next write is the request's.
    await asyncio.to_thread(worker.create, "before", datagen(unique("t"), 1))
    await asyncio.to_thread(worker.wait_running, "before", 1)
    await fence_producers({"bootstrap_servers": bootstrap}, [f"connect-cluster-{group}"], 20)
    config = datagen(unique("t"), 1)
    status, _ = await asyncio.to_thread(worker.request, "PUT", "/connectors/c/config", config)
    assert status == 409
    # It is still the leader that the group chose, so it takes the lead again automatically.
    await asyncio.to_thread(
        wait_for, lambda: worker.request("PUT", "/connectors/c/config", config)[0] == 201, "it leads again"
    )
    assert "this one's leading ends" in worker.log_path.read_text()


async def test_offsets_behind_anothers_open_transaction_are_waited_for(
    millrace: Factory, unique: Callable[[str], str], bootstrap: str
) -> None:
    """A task that restarts must see what it committed last, though another transaction is open before it in the topic."""
    group, topic = unique("g"), unique("t")
    load = Load(
        "once",
        topic,
        records=-1,
        rate=100,
        partitions=1,
        tasks=1,
        options={"transaction.boundary": "interval", "transaction.boundary.interval.ms": "200"},
    )
    worker = await asyncio.to_thread(
        lambda: millrace(
            group=group,
            properties={
                "exactly.once.source.support": "enabled",
                "offset.storage.partitions": "1",
                "key.converter.schemas.enable": "false",
                "value.converter.schemas.enable": "false",
            },
        )
    )
    await asyncio.to_thread(worker.create, load.name, load.config)

    async def committed() -> list[int]:
        records = await asyncio.to_thread(read_topic, bootstrap, topic, committed=True)
        return [identify(json.loads(record.value or b""))[1] for record in records]

    async def grows(count: int) -> None:
        async def enough() -> bool:
            return len(await committed()) >= count

        await eventually_async(enough, f"{count} records are committed", every=0.1)

    await grows(20)
    other = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique("other"))
    await other.start()
    await other.begin_transaction()
    await other.send_and_wait(f"{group}-offsets", b'{"position":1}', b'["other",{"file":"none"}]', partition=0)
    behind = len(await committed()) + 40
    await grows(behind)  # commits whose offsets stand behind the open transaction

    def looks() -> int:
        return worker.log_path.read_text(encoding="utf-8").count(f"Topic {group}-offsets ends at")

    status, _ = await asyncio.to_thread(worker.request, "PUT", "/admin/loggers/offsets.log", {"level": "DEBUG"})
    assert status == 200
    before = looks()
    status, _ = await asyncio.to_thread(worker.request, "POST", "/connectors/once/tasks/0/restart")
    assert status < 300
    # From here on it is decided up to where the task's offsets are read.
    await asyncio.to_thread(wait_for, lambda: looks() > before, "the task asks for its offsets")
    await other.abort_transaction()
    await other.stop()
    await grows(behind + 100)
    numbers = sorted(await committed())
    assert numbers == list(range(len(numbers)))
