"""Exactly once, whoever dies and whatever is lost: the bucket with a small engine of the tests', in real processes."""

from __future__ import annotations

import random
import shutil
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from connectors.errors import Fatal, Retriable
from spark_jobs.materializer.config import KILL_VARIABLE, Marker
from spark_jobs.materializer.contract import InputRecord
from spark_jobs.materializer.passes import PassRange
from spark_jobs.materializer.residents import ResidentBuckets
from spark_jobs.materializer.state.rebuild import rebuild_output
from spark_jobs.materializer.state.state_frame import state_frame
from spark_jobs.materializer.state.transaction import BucketWriter
from tests.support import last_write_engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.spark_jobs.materializer.conftest import Harness

Change = tuple[int, dict[str, Any]]


def encoded(changes: list[Change]) -> list[tuple[int, bytes | None, bytes | None]]:
    """Changes as records."""
    return [(partition, None, msgspec.json.encode(change)) for partition, change in changes]


def random_changes(rng: random.Random, count: int, partitions: int, *, keys: int = 200) -> list[Change]:
    """Random changes, also old ones, repeated ones and deletions."""
    changes: list[Change] = []
    for _ in range(count):
        partition = rng.randrange(partitions)
        if changes and rng.random() < 0.1:
            changes.append(rng.choice(changes))
            continue
        key = f"{partition}-{rng.randrange(10)}-{rng.randrange(keys)}"
        changes.append((partition, {"k": key, "t": rng.randrange(10**6), "v": rng.choice([None, *range(20)])}))
    return changes


def expected(changes: list[Change], partitions: int) -> dict[int, list[tuple[str, str, Any, Any]]]:
    """The expected output: (key, op, before, after) by partition, in order. Independent of the engine."""
    times: dict[str, int] = {}
    rows: dict[str, Any] = {}
    events: dict[int, list[tuple[str, str, Any, Any]]] = {partition: [] for partition in range(partitions)}
    for partition, change in changes:
        keys = [change["k"]] if "k" in change else sorted(key for key in times if key.startswith(change["prefix"]))
        for key in keys:
            if times.get(key, -1) >= change["t"]:
                continue
            times[key] = change["t"]
            before, after = rows.get(key), change.get("v")
            rows[key] = after
            if before != after:
                events[partition].append((key, "c" if before is None else "d" if after is None else "u", before, after))
    return events


def written(job: Harness) -> dict[int, list[tuple[str, str, Any, Any]]]:
    """The actual output, in the form of ``expected``; ids must grow."""
    events: dict[int, list[tuple[str, str, Any, Any]]] = {partition: [] for partition in range(job.partitions)}
    last = dict.fromkeys(events, 0)
    for partition, key, value in job.read():
        event = msgspec.json.decode(value or b"")
        assert event["id"] > last[partition]
        last[partition] = event["id"]
        events[partition].append((key.decode(), event["op"], event["before"], event["after"]))
    return events


@pytest.mark.parametrize("small", [0, 20_000])
def test_killed_anywhere(
    harness: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small: int
) -> None:
    """A Python worker is killed at each point of a transaction: in a plain batch and in the middle of a large fan-out."""
    options = {"materializer.transaction.max.changes": "60", "materializer.small.batch.records": str(small)}
    job = harness(partitions=2, options=options)
    rng = random.Random(11)
    changes: list[Change] = []
    token = tmp_path / "token"
    for number, point in enumerate(("produce", "commit", "committed", "written")):
        more = random_changes(rng, 400, 2)
        # Deletes what the first part left: far more rows than a transaction may change.
        more.append((number % 2, {"prefix": f"{number % 2}-", "t": 10**6 + number}))
        more += random_changes(rng, 100, 2)
        changes += more
        job.produce(encoded(more))
        token.touch()
        monkeypatch.setenv(KILL_VARIABLE, f"{point}@{token}")
        job.start()
        batch = job.batch()
        with pytest.raises(Retriable, match="worker process died"):
            job.step(batch)
        assert not token.exists()
        job.step(batch)
    assert written(job) == expected(changes, 2)


def test_checkpoint_and_cache_lost(harness: Callable[..., Harness]) -> None:
    """Batches that Spark repeats without its checkpoint are skipped; state without its cache comes from the changelog."""
    job = harness(partitions=2)
    rng = random.Random(12)
    changes: list[Change] = []

    def more() -> None:
        new = random_changes(rng, 300, 2)
        changes.extend(new)
        job.produce(encoded(new))
        job.step()
        assert written(job) == expected(changes, 2)

    sink = job.start()
    more()
    job.positions, job.batches = {}, 0
    job.start()
    more()
    shutil.rmtree(job.folder / "state")
    sink = job.start()
    more()
    assert sink.context.metrics["materializer_restored_total"] > 0
    shutil.rmtree(job.folder / "state")
    job.positions, job.batches = {}, 0
    job.start()
    more()
    # Damaged: LMDB's first pages are overwritten.
    for file in (job.folder / "state").glob("buckets/*/data.mdb"):
        file.write_bytes(b"\1" * 20_000)
    job.start()
    more()


def test_another_takes_over(harness: Callable[..., Harness]) -> None:
    """An older run gives way to a newer one."""
    job = harness(partitions=1)
    rng = random.Random(13)
    changes = random_changes(rng, 100, 1)
    job.produce(encoded(changes))
    first = job.start()
    job.step()
    job.sink = None
    job.start()
    new = random_changes(rng, 100, 1)
    changes += new
    job.produce(encoded(new))
    batch = job.batch()
    job.step(batch)
    with pytest.raises(Fatal, match="another run of the job"):
        first.write(batch)
    first.close()
    assert written(job) == expected(changes, 1)


def test_a_fenced_producer_is_replaced(harness: Callable[..., Harness]) -> None:
    """A writer that finds at its commit that another one has had the bucket repeats its work, once."""
    job = harness(partitions=1)
    changes = random_changes(random.Random(18), 200, 1)
    records = [InputRecord(None, msgspec.json.encode(change), offset, 0) for offset, (_, change) in enumerate(changes)]
    resident = ResidentBuckets(job.start()._states[job.topic].options)
    try:
        bucket = resident.bucket(0)
        assert bucket.run(records[:100], PassRange(0, 100, first=True)).redone == 0
        # Another worker's producer, which has not committed anything: no marker tells of it.
        other = BucketWriter(resident.options, 0)
        other.begin()
        result = bucket.run(records[100:], PassRange(100, 200))
        other.close()
    finally:
        resident.close()
    assert result.redone == 1
    assert result.records == 100
    assert written(job) == expected(changes, 1)


def test_lost_things_are_said(harness: Callable[..., Harness]) -> None:
    """Changelog, input, output and offsets that are gone are errors that say what to do, never a silent skip."""
    job = harness(partitions=1)
    rng = random.Random(14)
    changes = random_changes(rng, 100, 1)
    job.produce(encoded(changes))
    job.start()
    job.step()
    job.produce(encoded(random_changes(rng, 20, 1)))
    job.positions[0] += 5
    with pytest.raises(Fatal, match=r"5 offsets are missing \(100 to 104\)"):
        job.step()
    job.positions[0] -= 5
    job.delete(job.output)
    job.start()
    with pytest.raises(Fatal, match="rebuild with --output"):
        job.step()
    job.delete(job.changelog)
    job.start()
    with pytest.raises(Fatal, match="the state was lost"):
        job.step()
    job.delete(job.changelog)
    job.create(job.changelog, 3)
    with pytest.raises(Fatal, match="has 3 partitions, the input 1"):
        job.start()


def test_expiry_without_input(harness: Callable[..., Harness]) -> None:
    """Expired rows are deleted between batches, once; while no row expires, no Spark job runs."""
    job = harness(partitions=2)
    now = int(time.time())
    job.produce(
        encoded(
            [
                (0, {"k": "a", "t": 1, "v": 1, "due": now - 5}),
                (0, {"k": "b", "t": 1, "v": 2, "due": now + 1000}),
                (1, {"k": "c", "t": 1, "v": 3}),
                (1, {"k": "d", "t": 1, "v": 3, "due": now + 2}),
            ]
        )
    )
    sink = job.start()
    job.step()
    assert [key for _, key, _ in job.read() if key == b"a"] == [b"a", b"a"]
    deadline = time.monotonic() + 30
    while [key for _, key, _ in job.read()].count(b"d") < 2:
        assert time.monotonic() < deadline
        sink.idle()
    tracker = job.spark.sparkContext.statusTracker()
    before = len(tracker.getJobIdsForGroup(None))
    for _ in range(5):
        sink._idled = 0.0
        sink.idle()
    assert len(tracker.getJobIdsForGroup(None)) == before
    assert sorted((partition, key) for partition, key, _ in job.read()) == [
        (0, b"a"),
        (0, b"a"),
        (0, b"b"),
        (1, b"c"),
        (1, b"d"),
        (1, b"d"),
    ]


def test_bad_records(harness: Callable[..., Harness]) -> None:
    """A bad record stops the job with its position; with errors.tolerance=all it goes to the dead letter topic, once."""
    job = harness(partitions=1)
    changes = random_changes(random.Random(15), 50, 1)
    job.produce([*encoded(changes), (0, b"key", b"no json"), *encoded([(0, {"k": "z", "t": 10**7, "v": 1})])])
    job.start()
    with pytest.raises(Fatal, match=r"-in \[0\] offset 50: no JSON"):
        job.step()
    assert job.read() == []
    dead = f"{job.name}-dead"
    job.create(dead, 1)
    job.options = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": dead}
    job.start()
    job.step()
    assert written(job) == expected([*changes, (0, {"k": "z", "t": 10**7, "v": 1})], 1)
    assert [(key, value) for _, key, value in job.read(dead)] == [(b"key", b"no json")]


def test_the_marker_is_readable(harness: Callable[..., Harness]) -> None:
    """The marker is JSON under the empty key, and the consumer group shows the job's position."""
    job = harness(partitions=1)
    job.produce(encoded(random_changes(random.Random(16), 30, 1)))
    sink = job.start()
    job.step()
    markers = [
        msgspec.json.decode(value or b"", type=Marker) for _, key, value in job.read(job.changelog) if key == b""
    ]
    assert [marker.next for marker in markers] == [30]
    assert markers[0].owner == sink._states[job.topic].options.owner
    assert job.committed() == {0: 30}


def test_rebuild_of_the_output_and_state_as_a_frame(
    harness: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A lost output is written again from the state, once, also when the rebuild is killed; the job continues after it."""
    job = harness(partitions=2)
    rng = random.Random(17)
    changes = random_changes(rng, 1500, 2, keys=100)
    job.produce(encoded(changes))
    sink = job.start()
    job.step()
    rows: dict[str, Any] = {}
    for partition_events in expected(changes, 2).values():
        rows |= {key: after for key, _, _, after in partition_events}
    rows = {key: value for key, value in rows.items() if value is not None}
    assert len(rows) > 500
    frame = state_frame(job.spark, sink.context.config, last_write_engine.make)
    assert {row["k"]: row["v"] for row in frame.collect()} == rows
    assert dict(frame.dtypes) == {"k": "string", "v": "bigint", "write_time_": "timestamp", "bucket_": "int"}

    job.delete(job.output)
    token = tmp_path / "token"
    token.touch()
    monkeypatch.setenv(KILL_VARIABLE, f"committed@{token}")
    with pytest.raises(Exception, match="Python worker exited"):
        rebuild_output(job.spark, sink.context.config, last_write_engine.make)
    rebuild_output(job.spark, sink.context.config, last_write_engine.make)
    assert (
        sum(rebuilt.outputs for rebuilt in rebuild_output(job.spark, sink.context.config, last_write_engine.make)) == 0
    )
    records = [(key.decode(), msgspec.json.decode(value or b"")) for _, key, value in job.read()]
    assert sorted(key for key, _ in records) == sorted(rows)
    assert all(event["op"] == "r" and event["after"] == rows[key] for key, event in records)
    job.start()
    job.produce(encoded([(0, {"k": "0-new", "t": 1, "v": 1})]))
    assert job.step() == 1
    assert len(job.read()) == len(rows) + 1
