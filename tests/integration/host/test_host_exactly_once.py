"""A task host with exactly once on, against real Kafka."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.producer import sender

from tests.support.eventually import patience
from worker.host.delivery import exactly_once
from worker.host.delivery.batch_delivery import BatchDelivery
from worker.host.delivery.exactly_once import TransactionalSession
from worker.host.delivery.producer import Producer
from worker.host.saved import write_pairs
from worker.protocol import HostTaskId, StartConnector, StartTask

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from connectors.api import Batch
    from worker.host.delivery.commits import CommitUnit

EOS = {"exactly_once_source_support": "enabled", "producer_transaction_timeout_ms": 20_000}


@pytest.mark.parametrize("boundary", ["poll", "interval"])
async def test_nothing_twice_after_kills(control_for: Callable[..., Any], boundary: str) -> None:
    control = control_for(**EOS)
    await control.start(process=True)
    end = 20_000
    options = {"transaction_boundary": boundary, "transaction_boundary_interval_ms": 100, "rows": 53}
    for _ in range(3):
        task = await control.start_task(end=end, pause_ms=30, **options)
        await control.until(lambda task=task: (latest := control.stats(task)) and latest.written > 300)
        await control.kill()
        await control.start_host(process=True)
    await control.start_task(end=end, **(options | {"rows": 1_000}))
    await control.saved_is({"0-0": end}, 60)
    assert await control.numbers(end) == list(range(end))


async def test_offsets_and_records_are_one_transaction(control_for: Callable[..., Any]) -> None:
    control = control_for(**EOS)
    await control.start()
    task = await control.start_task(end=1_000, rows=100)
    await control.saved_is({"0-0": 1_000})
    stats = await control.until(lambda: (latest := control.stats(task)) and latest.transactions == 10 and latest)
    assert (stats.transaction_records, stats.transaction_size_min, stats.transaction_size_max) == (1_000, 100, 100)
    assert stats.written == 1_000, "the offsets in the transactions are no source records"
    assert await control.numbers(1_000) == list(range(1_000))


async def test_one_request_adds_records_and_offsets_to_a_transaction(
    control_for: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[str]] = []

    class Recording(sender.AddPartitionsToTxnHandler):  # type: ignore[misc]  # aiokafka has no types
        async def do(self, node_id: int) -> Any:
            asked.append({partition.topic for partition in self._tps})
            return await super().do(node_id)

    monkeypatch.setattr(sender, "AddPartitionsToTxnHandler", Recording)
    control = control_for(**EOS)
    await control.start()
    await control.start_task(end=1_000, rows=100)
    await control.saved_is({"0-0": 1_000})
    records, offsets = {control.name}, {control.properties["offset.storage.topic"]}
    first_offsets = asked.index(offsets)
    assert asked[:first_offsets] == [records] * first_offsets
    later = asked[first_offsets:]
    while later[0] == offsets:  # again where Kafka was still ending the transaction before
        later.pop(0)
    assert len(later) >= 9
    assert later == [records | offsets] * len(later)
    assert await control.numbers(1_000) == list(range(1_000))


async def test_a_task_gets_its_receipts_when_the_transaction_is_committed(control_for: Callable[..., Any]) -> None:
    control = control_for(**EOS)
    await control.start()
    long = {"transaction_boundary": "interval", "transaction_boundary_interval_ms": 3_600_000}
    task = await control.start_task(end=1_000, rows=100, **long)
    stats = await control.until(lambda: (stats := control.stats(task)) and stats.written == 1_000 and stats)
    assert (stats.transactions, control.own_numbers(stats)) == (0, {})
    assert await control.stop_task(task)
    task = await control.start_task(end=2_000, rows=100)
    stats = await control.until(lambda: (stats := control.stats(task)) and stats.transactions == 10 and stats)
    assert control.own_numbers(stats) == {"committed": 2_000.0, "delivered": 1_000.0}


async def test_the_connector_draws_the_boundaries(control_for: Callable[..., Any]) -> None:
    control = control_for(**EOS)
    await control.start()
    task = await control.start_task(end=1_000, rows=50, transaction_boundary="connector", commit_every=4, abort_at=610)
    await control.saved_is({"0-0": 1_000})
    stats = await control.until(lambda: (latest := control.stats(task)) and latest.state == "RUNNING" and latest)
    # 600-649 was aborted; transactions end at 200, 400, 600 and after the abort at 800 and 1000, and one moves the offsets.
    assert await control.numbers(950) == [n for n in range(1_000) if not 600 <= n < 650]
    await control.until(lambda: (latest := control.stats(task)) and latest.transactions == 6)
    assert stats.transaction_size_max <= 200


async def test_own_offsets_topic_is_written_with_the_worker_s(control_for: Callable[..., Any]) -> None:
    control = control_for(**EOS)
    await control.start()
    own_topic = f"{control.name}-own-offsets"
    task = await control.start_task(end=500, rows=100, offsets_storage_topic=own_topic)
    await control.saved_is({"0-0": 500})
    records = await control.consume(own_topic, 5)
    assert [json.loads(record.value)["n"] for record in records] == [100, 200, 300, 400, 500]
    assert await control.stop_task(task)
    await control.offsets.write(control.name, [({"source": "0-0"}, {"n": 7})])  # the worker's topic is only a copy
    await control.start_task(end=600, rows=100, offsets_storage_topic=own_topic)
    await control.saved_is({"0-0": 600})
    assert await control.numbers(600) == list(range(600))


async def test_a_fenced_task_starts_again_until_it_was_fenced_too_often(
    control_for: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    control = control_for(**EOS)
    await control.start()
    task = await control.start_task(end=100_000, rows=10, pause_ms=2)
    for times in range(1, 5):
        await control.until(partial(_is_running, control, task, times))
        await control.until(partial(_fence, control, task, times))
    failed = await control.state(task, "FAILED")
    assert "owns the transactional id" in failed.trace
    assert control.states(task).count("RESTARTING") == 3
    numbers = await control.numbers(30)
    assert numbers == list(range(len(numbers)))
    assert await control.saved() == {"0-0": len(numbers)}
    await control.assert_ended(caplog)


def _is_running(control: Any, task: HostTaskId, times: int) -> bool:
    stats = control.stats(task)
    return control.states(task).count("RUNNING") == times and stats is not None and stats.written > 30


async def _fence(control: Any, task: HostTaskId, times: int) -> bool:
    """Fence the task, and say whether it has noticed: a fence while a batch is on its way loses only that transaction."""
    newer = AIOKafkaProducer(**control.client, transactional_id=f"{control.properties['group.id']}-{task}")
    await newer.start()
    await newer.stop()
    return sum(state in {"RESTARTING", "FAILED"} for state in control.states(task)) == times


async def test_a_lost_transaction_does_not_restart_while_the_worker_is_out_of_its_group(
    control_for: Callable[..., Any],
) -> None:
    control = control_for(**EOS)
    control.lease_s = 0.1
    await control.start()
    task = await control.start_task(
        paused=True,
        end=5_000,
        rows=5_000,
        topic_creation_default_partitions=1,
        topic_creation_default_replication_factor=1,
        topic_creation_default_max_message_bytes=10_000,
    )
    await control.state(task, "PAUSED")
    asked = control.leases_asked
    control.lease_s = 0.0
    await control.pause(task, paused=False)
    # Kafka refuses the batch for its size, which loses the transaction. A new producer would fence that of a new owner.
    await control.until(lambda: control.leases_asked >= asked + 3)
    assert await control.saved() == {}
    control.lease_s = 60.0
    assert await control.numbers(5_000) == list(range(5_000))
    await control.saved_is({"0-0": 5_000})


async def test_a_failed_task_drops_what_it_had_not_committed(control_for: Callable[..., Any], tmp_path: Path) -> None:
    control = control_for(**EOS)
    await control.start()
    task = await control.start_task(
        end=2_000,
        rows=50,
        fail_at=777,
        marker=tmp_path / "failed",
        errors_restart_policy="always",
        errors_restart_delay_ms=10,
        transaction_boundary="interval",
        transaction_boundary_interval_ms=60_000,
    )
    await control.until(lambda: control.states(task) == ["RUNNING", "RESTARTING", "RUNNING"])
    await control.until(lambda: (latest := control.stats(task)) and latest.polled >= 2_000)
    assert await control.stop_task(task)
    assert await control.numbers(2_000) == list(range(2_000))
    assert await control.saved() == {"0-0": 2_000}


async def test_required_support_is_checked(control_for: Callable[..., Any]) -> None:
    control = control_for()
    await control.start()
    await control.ask(StartConnector(control.name, control.config(exactly_once_support="required"), 1))
    failed = await control.until(lambda: [event for event in control.events if getattr(event, "state", "") == "FAILED"])
    assert "exactly.once.support is required" in failed[0].trace
    task = HostTaskId(control.name, 0)
    await control.ask(StartTask(task, control.config(exactly_once_support="required"), {}, 1))
    assert "exactly.once.source.support=enabled" in (await control.state(task, "FAILED")).trace


@pytest.mark.parametrize("boundary", ["poll", "interval"])
async def test_a_stop_in_the_middle_of_a_commit_loses_no_offsets(
    control_for: Callable[..., Any], boundary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets that a cancelled commit had taken from the ledger go with the last commit, as the records do."""
    blocked, calls = asyncio.Event(), 0

    async def slow(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:  # as while Kafka is asked for the topic's partitions
            blocked.set()
            await asyncio.Event().wait()
        await write_pairs(*arguments)

    monkeypatch.setattr(exactly_once, "write_pairs", slow)
    control = control_for(**EOS)
    await control.start()
    options = {"transaction_boundary": boundary, "transaction_boundary_interval_ms": 100, "rows": 50}
    task = await control.start_task(end=300, **options)
    async with patience(30):
        await blocked.wait()
    assert await control.stop_task(task)
    await control.start_task(end=300, **options)
    await control.saved_is({"0-0": 300})
    assert await control.numbers(300) == list(range(300))


async def test_a_stop_in_the_middle_of_a_batch_commits_nothing_of_it(
    control_for: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that waits for the batch goes ahead when the batch is cut off; the batch has no offsets yet."""
    blocked, asked, calls = asyncio.Event(), asyncio.Event(), 0
    deliver, commit = BatchDelivery.deliver, TransactionalSession.commit

    async def deliver_slowly(delivery: BatchDelivery, batch: Batch, unit: CommitUnit) -> None:
        nonlocal calls
        calls += 1
        await deliver(delivery, batch, unit)
        if calls == 1:
            blocked.set()
            await asyncio.Event().wait()

    async def note_commit(session: TransactionalSession) -> None:
        if calls:
            asked.set()
        await commit(session)

    monkeypatch.setattr(BatchDelivery, "deliver", deliver_slowly)
    monkeypatch.setattr(TransactionalSession, "commit", note_commit)
    control = control_for(**EOS)
    await control.start()
    options = {"transaction_boundary": "interval", "transaction_boundary_interval_ms": 100, "rows": 50}
    task = await control.start_task(end=300, **options)
    async with patience(30):
        await blocked.wait()
        await asked.wait()
    await control.until(lambda: (stats := control.stats(task)) and stats.written == 50)
    assert await control.stop_task(task)
    await control.start_task(end=300, **options)
    await control.saved_is({"0-0": 300})
    assert await control.numbers(300) == list(range(300))


@pytest.mark.parametrize("boundary", ["poll", "interval"])
async def test_a_stop_while_kafka_commits_waits_for_that(
    control_for: Callable[..., Any], boundary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that Kafka was asked to commit takes no offsets any more: the task must not fail by trying."""
    under_way, stopping = asyncio.Event(), asyncio.Event()
    commit, shut = Producer.commit, TransactionalSession.shut

    async def slow(producer: Producer) -> None:
        await commit(producer)
        under_way.set()
        await stopping.wait()

    async def shutting(session: TransactionalSession) -> None:
        stopping.set()
        await shut(session)

    monkeypatch.setattr(Producer, "commit", slow)
    monkeypatch.setattr(TransactionalSession, "shut", shutting)
    control = control_for(**EOS)
    await control.start()
    options = {"transaction_boundary": boundary, "transaction_boundary_interval_ms": 100, "rows": 50}
    task = await control.start_task(end=300, **options)
    async with patience(30):
        await under_way.wait()
    assert await control.stop_task(task)
    assert "FAILED" not in control.states(task)
    await control.start_task(end=300, **options)
    await control.saved_is({"0-0": 300})
    assert await control.numbers(300) == list(range(300))
