"""A task host driven by messages: at least once, against real Kafka."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from worker.metrics import topics
from worker.protocol import ActiveTopic, HostTaskId, StartTask

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


async def test_all_records_arrive_in_order_and_offsets_follow(control_for: Callable[..., Any]) -> None:
    control = control_for()
    await control.start()
    task = await control.start_task(end=25_000, rows=700)
    assert await control.numbers(25_000) == list(range(25_000))
    await control.saved_is({"0-0": 25_000})
    assert control.states(task) == ["RUNNING"]
    assert [event for event in control.events if isinstance(event, ActiveTopic)] == [ActiveTopic(task, control.name)]
    stats = await control.until(
        lambda: (
            (latest := control.stats(task))
            and latest.written == 25_000
            and control.own_numbers(latest) == {"committed": 25_000.0, "delivered": 25_000.0}
            and latest
        )
    )
    assert (stats.polled, stats.state, stats.active, stats.connector_version) == (25_000, "RUNNING", 0, "1.2.3")
    assert stats.commit_buckets[-1] == stats.commits > 0
    of_topic = {item.name: item.value for item in stats.custom if item.labels == {"topic": control.name}}
    assert of_topic[topics.RECORDS] == 25_000
    assert of_topic[topics.BYTES] == stats.bytes_written
    assert await control.stop_task(task)
    assert control.states(task) == ["RUNNING", "STOPPED"]


async def test_a_stopped_task_goes_on_where_it_stopped(control_for: Callable[..., Any]) -> None:
    control = control_for(offset_flush_interval_ms=60_000)
    await control.start()
    task = await control.start_task(end=100_000, rows=50, sources=3, pause_ms=5)
    await control.until(lambda: (latest := control.stats(task)) and latest.written >= 300)
    assert await control.stop_task(task)  # the last commit is made by the stop: the interval is a minute
    saved = await control.saved()
    assert len(saved) == 3
    await control.start_task(end=max(saved.values()) + 500, rows=500, sources=3)
    total = 3 * (max(saved.values()) + 500)
    counts = Counter(
        (record["source"], record["n"])
        for record in (json.loads(item.value) for item in await control.consume(control.name, total))
    )
    assert len(counts) == total
    repeated = [key for key, count in counts.items() if count > 1]
    assert not repeated, "an orderly stop repeats nothing"


async def test_keys_keep_their_order_on_many_partitions(control_for: Callable[..., Any]) -> None:
    control = control_for()
    await control.start()
    await control.start_task(
        end=5_000, rows=512, keys=True, topic_creation_default_partitions=7, topic_creation_default_replication_factor=1
    )
    records = await control.consume(control.name, 5_000)
    assert {record.partition for record in records} == set(range(7))
    by_partition: dict[int, list[int]] = {}
    for record in records:
        by_partition.setdefault(record.partition, []).append(json.loads(record.value)["n"])
    assert all(numbers == sorted(numbers) for numbers in by_partition.values())
    assert sorted(number for numbers in by_partition.values() for number in numbers) == list(range(5_000))
    await control.saved_is({"0-0": 5_000})


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_compressed_batches_are_readable(control_for: Callable[..., Any], codec: str) -> None:
    control = control_for(producer_compression_type=codec)
    await control.start()
    await control.start_task(end=3_000, rows=1_000)
    assert await control.numbers(3_000) == list(range(3_000))


async def test_pause_and_resume(control_for: Callable[..., Any]) -> None:
    control = control_for()
    await control.start()
    task = await control.start_task(end=100_000, rows=10, pause_ms=5, paused=True)
    await control.state(task, "PAUSED")
    stats = await control.until(lambda: control.stats(task))
    assert stats.polled == 0
    await control.pause(task, paused=False)
    await control.until(lambda: (latest := control.stats(task)) and latest.written > 100)
    await control.pause(task, paused=True)
    first = await control.until(
        lambda: (latest := control.stats(task)) and latest.state == "PAUSED" and latest.active == 0 and latest
    )
    written = first.written
    later = await control.until(
        lambda: (
            (latest := control.stats(task)) and latest is not first and latest.paused_s > first.paused_s + 1 and latest
        )
    )
    assert later.written - written <= 10, "at most the poll that was under way"
    await control.pause(task, paused=False)
    await control.until(lambda: (latest := control.stats(task)) and latest.written > written + 100)
    assert control.states(task) == ["PAUSED", "RUNNING", "PAUSED", "RUNNING"]


async def test_a_source_that_is_away_is_tried_again_and_nothing_is_repeated(
    control_for: Callable[..., Any], tmp_path: Path
) -> None:
    control = control_for()
    await control.start()
    task = await control.start_task(
        end=3_000, rows=100, away_at=1_550, marker=tmp_path / "away", errors_tolerance="all"
    )
    assert await control.numbers(3_000) == list(range(3_000))
    stats = await control.until(lambda: (latest := control.stats(task)) and latest.written == 3_000 and latest)
    assert (stats.retries, stats.records_skipped, stats.record_failures) == (1, 0, 0)
    assert control.states(task) == ["RUNNING"]


async def test_a_failure_keeps_its_trace_without_secrets(control_for: Callable[..., Any]) -> None:
    control = control_for()
    await control.start()
    task = await control.start_task(end=3_000, fail_at=500, password="correct-horse-battery")
    failed = await control.state(task, "FAILED")
    # Clients show the first line to people.
    assert "it fails at 500" in failed.trace.partition("\n")[0]
    assert "Traceback" in failed.trace
    assert "host_counter_source.py" in failed.trace
    assert "correct-horse-battery" not in failed.trace
    await control.saved_is({"0-0": 500})
    stats = await control.until(lambda: (latest := control.stats(task)) and latest.state == "FAILED" and latest)
    assert stats.written == 500, "numbers of failed tasks stay"


async def test_automatic_restart(control_for: Callable[..., Any], tmp_path: Path) -> None:
    control = control_for()
    await control.start()
    task = await control.start_task(
        end=3_000, fail_at=500, marker=tmp_path / "failed", errors_restart_policy="always", errors_restart_delay_ms=100
    )
    assert await control.numbers(3_000) == list(range(3_000))
    assert control.states(task) == ["RUNNING", "RESTARTING", "RUNNING"]
    restarting = await control.state(task, "RESTARTING")
    assert "it fails at 500" in restarting.trace


async def test_a_configuration_that_can_not_work_fails_the_task(control_for: Callable[..., Any]) -> None:
    control = control_for(connector_client_config_override_policy="None")
    await control.start()
    task = await control.start_task(rows="many")
    assert "Not a number of type INT" in (await control.state(task, "FAILED")).trace
    other = HostTaskId(control.name, 1)
    await control.ask(StartTask(other, {**control.config(), "producer.override.acks": "1"}, {}, 1))
    assert "'None' policy does not allow producer.override.acks" in (await control.state(other, "FAILED")).trace


async def test_a_killed_host_loses_nothing(control_for: Callable[..., Any]) -> None:
    control = control_for()
    await control.start(process=True)
    end = 60_000
    for _ in range(3):
        task = await control.start_task(end=end, rows=97, sources=2, pause_ms=30)
        await control.until(
            lambda task=task: (latest := control.stats(task)) and latest.commits > 0 and latest.written > 1_500
        )
        await control.kill()
        await control.start_host(process=True)
    await control.start_task(end=end, rows=1_000, sources=2)
    await control.saved_is({"0-0": end, "0-1": end}, 60)
    records = [json.loads(record.value) for record in await control.consume(control.name, 2 * end)]
    for source in range(2):
        numbers = [record["n"] for record in records if record["source"] == source]
        assert set(numbers) == set(range(end)), "nothing is lost"
        first_seen = list(dict.fromkeys(numbers))
        assert first_seen == sorted(first_seen), "in order"
