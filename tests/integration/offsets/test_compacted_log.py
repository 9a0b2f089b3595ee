"""Reading and writing compacted topics of a real Kafka."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.admin import NewPartitions, RecordsToDelete
from aiokafka.structs import TopicPartition

from compose.local.kafka import KafkaCluster
from compose.local.ports import free_port
from connectors.errors import Fatal, Fenced, Retriable
from offsets.admin import TopicAdmin
from offsets.fetch import TopicFetcher
from offsets.log import CompactedLog
from tests.integration.offsets.topic_tools import Collected, admin_client, create_topic, producing
from tests.support.eventually import eventually_async
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from pathlib import Path

    from offsets.fetch import FetchedRecord


@asynccontextmanager
async def reading(
    bootstrap: str,
    topic: str,
    sink: Callable[[int, Iterable[FetchedRecord]], None],
    **options: Any,
) -> AsyncIterator[CompactedLog]:
    log = CompactedLog(topic, {"bootstrap_servers": bootstrap}, sink, **options)
    await log.start(30)
    try:
        yield log
    finally:
        await log.stop()


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_everything_written_before_and_after_the_start_is_read_once(
    bootstrap: str, unique: Callable[[str], str], compression: str | None
) -> None:
    topic = unique("log")
    await create_topic(bootstrap, topic, partitions=5)
    expected = {b"k%d" % number: b"v%d" % number for number in range(500)}
    async with producing(bootstrap, compression_type=compression) as producer:
        await asyncio.gather(*[await producer.send(topic, value, key=key) for key, value in expected.items()])
        sink = Collected()
        async with reading(bootstrap, topic, sink) as log:
            assert sink.latest == expected
            assert len(sink.records) == 500
            await producer.send_and_wait(topic, None, key=b"k7")
            await log.read_to_end()
            assert sink.latest == {**expected, b"k7": None}
            assert len(sink.records) == 501
            assert sum(log.positions.values()) == 501
    for partition in range(5):
        offsets = [offset for number, offset, *_ in sink.records if number == partition]
        assert offsets == sorted(set(offsets))


async def test_what_is_sent_is_visible_after_reading_to_the_end(bootstrap: str, unique: Callable[[str], str]) -> None:
    topic = unique("log")
    await create_topic(bootstrap, topic)
    sink = Collected()
    async with reading(bootstrap, topic, sink) as log:
        for number in range(20):
            await log.send(b"k", b"%d" % number)
            await log.read_to_end()
            assert sink.latest == {b"k": b"%d" % number}
        await log.send_all([(b"k", None), (b"l", b"1"), (b"l", b"2")])
        await log.read_to_end()
        assert sink.values[-3:] == [None, b"1", b"2"]


async def test_records_gather_until_a_reader_wants_the_end(
    bootstrap: str, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches: list[int] = []
    fetch = TopicFetcher.fetch

    async def count_fetch(fetcher: TopicFetcher, *args: Any, **options: Any) -> Any:
        fetches.append(args[0])
        return await fetch(fetcher, *args, **options)

    monkeypatch.setattr(TopicFetcher, "fetch", count_fetch)
    topic = unique("log")
    await create_topic(bootstrap, topic)
    sink = Collected()
    async with reading(bootstrap, topic, sink, gather_s=3600.0) as log, producing(bootstrap) as producer:
        before = len(fetches)
        for number in range(100):
            await producer.send_and_wait(topic, b"%d" % number, key=b"k")
        # Some come with the fetch that waits, and a few with that which was under way then.
        assert len(fetches) <= before + 2 + len(set(fetches))
        await log.read_to_end()
        assert sink.latest == {b"k": b"99"}
        assert len(sink.records) == 100


async def test_aborted_transactions_are_invisible_and_markers_do_not_hang_the_reader(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    topic = unique("log")
    await create_topic(bootstrap, topic)
    committed, uncommitted = Collected(), Collected()
    async with producing(bootstrap, transactional_id=unique("tx")) as producer:
        for commit, value in [(True, b"1"), (False, b"2"), (True, b"3"), (False, b"4")]:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value, key=b"k")
            await (producer.commit_transaction() if commit else producer.abort_transaction())
        # the log ends in an aborted record and its marker
        async with (
            reading(bootstrap, topic, committed) as committed_log,
            reading(bootstrap, topic, uncommitted, isolation="read_uncommitted") as uncommitted_log,
        ):
            assert committed.values == [b"1", b"3"]
            assert uncommitted.values == [b"1", b"2", b"3", b"4"]
            # an open transaction delays no reader: its records are not visible yet
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"5", key=b"k")
            await committed_log.read_to_end(10)
            await uncommitted_log.read_to_end(10)
            assert committed.values == [b"1", b"3"]
            assert uncommitted.values[-1] == b"5"
            # unless one asks for it
            with pytest.raises(Retriable, match=r"is read up to \d+ of \d+\. A transaction that is open there"):
                await committed_log.read_to_end(0.3, open_transactions=True)
            waiting = asyncio.create_task(committed_log.read_to_end(10, open_transactions=True))
            await producer.commit_transaction()
            await waiting
            assert committed.values == [b"1", b"3", b"5"]
            await uncommitted_log.read_to_end(10)


async def test_records_of_a_callers_transaction_appear_with_its_commit(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    topic = unique("log")
    await create_topic(bootstrap, topic)
    sink = Collected()
    async with reading(bootstrap, topic, sink) as log, producing(bootstrap, transactional_id=unique("tx")) as producer:
        await producer.begin_transaction()
        await log.send_all([(b"a", b"1"), (b"b", b"2")], producer=producer)
        await log.read_to_end()
        assert sink.values == []
        await producer.commit_transaction()
        await log.read_to_end(open_transactions=True)
        assert sink.values == [b"1", b"2"]


async def test_a_fenced_writer_gets_a_fenced_error(bootstrap: str, unique: Callable[[str], str]) -> None:
    topic, identity = unique("log"), unique("tx")
    await create_topic(bootstrap, topic)
    sink = Collected()
    async with reading(bootstrap, topic, sink) as log, producing(bootstrap, transactional_id=identity) as old:
        await old.begin_transaction()
        async with producing(bootstrap, transactional_id=identity):
            with pytest.raises(Fenced, match=topic):
                await log.send_all([(b"a", b"old")], producer=old)
        await log.read_to_end()
        assert sink.values == []


async def test_partitions_that_are_added_are_read(bootstrap: str, unique: Callable[[str], str]) -> None:
    topic = unique("log")
    await create_topic(bootstrap, topic)
    sink = Collected()
    async with reading(bootstrap, topic, sink, refresh_s=0.2) as log:
        async with admin_client(bootstrap) as admin:
            await admin.create_partitions({topic: NewPartitions(3)})
        await eventually_async(lambda: len(log.positions) == 3, "the log reads all three partitions")
        async with producing(bootstrap) as producer:
            await producer.send_and_wait(topic, b"new", key=b"k", partition=2)
        await log.read_to_end()
        assert sink.values == [b"new"]


async def test_deleted_records_are_skipped(bootstrap: str, unique: Callable[[str], str]) -> None:
    topic = unique("log")
    await create_topic(bootstrap, topic, cleanup_policy="delete")
    async with producing(bootstrap) as producer, admin_client(bootstrap) as admin:
        for number in range(5):
            await producer.send_and_wait(topic, b"%d" % number, key=b"k")
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(3)})
        sink = Collected()
        async with reading(bootstrap, topic, sink) as log:
            assert sink.values == [b"3", b"4"]
            # and a log whose records are all gone still has an end
            await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(5)})
            late = Collected()
            async with reading(bootstrap, topic, late) as other:
                assert late.values == []
                assert other.positions == {0: 5}
            await log.read_to_end()


async def test_a_missing_topic_is_an_error_and_is_not_created(bootstrap: str, unique: Callable[[str], str]) -> None:
    topic = unique("missing")
    log = CompactedLog(topic, {"bootstrap_servers": bootstrap}, Collected())
    with pytest.raises(Retriable, match=f"{topic}.*does not exist"):
        await log.start(2)
    async with TopicAdmin({"bootstrap_servers": bootstrap}) as admin:
        assert await admin.partitions(topic) is None
        assert await admin.settings(topic) == {}


async def test_without_a_broker_every_call_ends_at_its_deadline() -> None:
    log = CompactedLog("t", {"bootstrap_servers": f"127.0.0.1:{free_port(None)}"}, Collected())
    with pytest.raises(Retriable, match=r"could not be read to its end within 0\.5 s"):
        await log.start(0.5)
    with pytest.raises(Retriable, match=r"not acknowledged within 0\.5 s"):
        await log.send(b"k", b"v", 0.5)
    with pytest.raises(Fatal, match="start it first"):
        await log.read_to_end(0.5)
    await log.stop()


async def test_a_sink_that_fails_is_called_again_and_nothing_is_lost(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    topic = unique("log")
    await create_topic(bootstrap, topic)
    seen: list[bytes | None] = []
    failures = [ValueError("a bug"), ValueError("again")]

    def sink(partition: int, records: Iterable[FetchedRecord]) -> None:
        assert partition == 0
        if failures:
            raise failures.pop()
        seen.extend(record.value for record in records)

    async with producing(bootstrap) as producer:
        await producer.send_and_wait(topic, b"1", key=b"k")
        async with reading(bootstrap, topic, sink) as log:
            assert seen == [b"1"]
            assert isinstance(log.last_error, ValueError)


async def test_a_compacted_log_reads_to_the_same_state(tmp_path: Path, unique: Callable[[str], str]) -> None:
    """Real compaction: stale values, tombstones and whole batches at the end of the log are gone, the reader still ends."""
    topic = unique("log")
    properties = {"log.cleaner.backoff.ms": "100", "log.cleaner.delete.retention.ms": "100"}
    with KafkaCluster(tmp_path / "kafka", port=None, jvm_options=FAST_START, properties=properties) as cluster:
        bootstrap = cluster.bootstrap
        await create_topic(
            bootstrap,
            topic,
            segment_ms="300",
            min_cleanable_dirty_ratio="0.01",
            delete_retention_ms="100",
            max_compaction_lag_ms="300",
        )
        before = Collected()
        async with producing(bootstrap) as producer, reading(bootstrap, topic, before) as follower:
            for number in range(200):
                await producer.send(topic, b"%d" % number, key=b"k%d" % (number % 10))
            for number in range(5):
                await producer.send(topic, None, key=b"k%d" % number)
            await producer.flush()
            await follower.read_to_end()
            full = {key: value for key, value in before.latest.items() if value is not None}

            async def compacted() -> Collected:
                # a write rolls the segment; only closed ones are compacted
                await producer.send_and_wait(topic, b"x", key=b"k9")
                fresh = Collected()
                async with reading(bootstrap, topic, fresh):
                    return fresh

            for _ in range(100):
                after = await compacted()
                if len(after.records) < 30:
                    break
                await asyncio.sleep(0.2)
            assert len(after.records) < 30
            assert {key: value for key, value in after.latest.items() if value is not None} == {**full, b"k9": b"x"}
            await follower.read_to_end()
            assert before.latest[b"k9"] == b"x"


def is_lost(log: CompactedLog) -> bool:
    """As it is now: it changes without this test's doing."""
    return log.lost


async def test_a_topic_that_is_deleted_or_recreated_is_lost(bootstrap: str, unique: Callable[[str], str]) -> None:
    """Also if it has fewer partitions then, and none of those was written to before."""
    topic = unique("log")
    await create_topic(bootstrap, topic, partitions=3)
    sink = Collected()
    async with reading(bootstrap, topic, sink) as log, admin_client(bootstrap) as admin:
        await log.read_to_end()
        assert not is_lost(log)
        await admin.delete_topics([topic])
        await eventually_async(lambda: is_lost(log) and log.missing and not log.connected, "the topic is missing")
        await create_topic(bootstrap, topic, partitions=3)
        await eventually_async(lambda: log.connected and not log.missing, "the topic is there")
        assert not is_lost(log), "nothing was read of it"
        async with producing(bootstrap) as producer:
            await producer.send_and_wait(topic, b"old", key=b"k", partition=2)
        await log.read_to_end()
        for partitions, new in ((3, b"new"), (1, b"newer")):
            await admin.delete_topics([topic])
            await eventually_async(lambda: log.missing, "the topic is missing")
            await create_topic(bootstrap, topic, partitions=partitions)
            await eventually_async(lambda: log.connected and not log.missing, "the topic is there")
            await eventually_async(lambda: is_lost(log), "the topic was recreated")
            async with producing(bootstrap) as producer:
                await producer.send_and_wait(topic, new, key=b"k", partition=0)
            await log.read_to_end()
            assert is_lost(log)
        assert sink.values == [b"old", b"new", b"newer"]


async def test_the_answer_of_a_replica_that_is_behind_is_no_loss(
    bootstrap: str, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = TopicFetcher.fetch
    answers: list[int] = []

    async def fetch_from_behind(fetcher: TopicFetcher, node: int, positions: Any, **options: Any) -> Any:
        results = await fetch(fetcher, node, positions, **options)
        if len(answers) == 1:
            answers.append(2)
            return [dataclasses.replace(result, batches=(), out_of_range=True) for result in results]
        return results

    monkeypatch.setattr(TopicFetcher, "fetch", fetch_from_behind)
    topic = unique("log")
    await create_topic(bootstrap, topic)
    sink = Collected()
    async with reading(bootstrap, topic, sink) as log, producing(bootstrap) as producer:
        await producer.send_and_wait(topic, b"1", key=b"k")
        await log.read_to_end()
        answers.append(1)
        await eventually_async(lambda: sink.values[1:] == [b"1"], "it is read from its start")
        assert not is_lost(log)


async def test_a_reader_that_has_not_seen_how_its_topic_was_recreated_with_fewer_partitions(
    bootstrap: str, unique: Callable[[str], str]
) -> None:
    topic = unique("log")
    await create_topic(bootstrap, topic, partitions=3)
    fetcher = TopicFetcher(topic, {"bootstrap_servers": bootstrap}, "read_committed")
    try:
        await fetcher.start()
        assert fetcher.partitions == {0, 1, 2}
        async with admin_client(bootstrap) as admin, TopicAdmin({"bootstrap_servers": bootstrap}) as look:
            await admin.delete_topics([topic])

            async def has_partitions(count: int | None) -> bool:
                return await look.partitions(topic) == count

            await eventually_async(lambda: has_partitions(None), "the topic is gone")
            await create_topic(bootstrap, topic, partitions=1)
            await eventually_async(lambda: has_partitions(1), "the topic is there")
        await fetcher.refresh()
        assert await fetcher.end_offsets("read_committed") == {0: 0}
    finally:
        await fetcher.close()
