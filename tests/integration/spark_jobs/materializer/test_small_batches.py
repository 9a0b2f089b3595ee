"""Small batches, which a process next to the driver merges: the same rows once, whatever happens to the process."""

from __future__ import annotations

import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from connectors.errors import Fatal, Retriable
from spark_jobs.dead_letters import DeadLetters
from tests.integration.spark_jobs.materializer.test_bucket_exactly_once import (
    encoded,
    expected,
    random_changes,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_jobs.materializer.job import MaterializerSink
    from tests.integration.spark_jobs.materializer.conftest import Harness

_LIMIT = "materializer.small.batch.records"


def process_of(sink: MaterializerSink) -> Any:
    """The process that merges small batches."""
    assert sink._host is not None
    process = sink._host._process
    assert process is not None
    return process


def test_buckets_move_between_the_process_and_tasks_of_spark(harness: Callable[..., Harness]) -> None:
    job = harness(partitions=5, options={_LIMIT: "400"})
    rng = random.Random(31)
    changes = []
    sink = job.start()
    for count in (100, 900, 100, 30, 900, 300):
        more = random_changes(rng, count, 5)
        changes += more
        job.produce(encoded(more))
        job.step()
        assert written(job) == expected(changes, 5)
    assert process_of(sink).poll() is None, "one process did all of its batches"
    assert sink.context.metrics["materializer_redone_total"] == 0
    process = process_of(sink)
    sink.close()
    assert process.returncode == 0


def test_a_killed_process_costs_an_attempt(harness: Callable[..., Harness]) -> None:
    job = harness(partitions=2)
    rng = random.Random(32)
    changes = []
    sink = job.start()
    for _ in range(2):
        more = random_changes(rng, 200, 2)
        changes += more
        job.produce(encoded(more))
        batch = job.batch()
        if job.batches:
            process_of(sink).kill()
            process_of(sink).wait()
            with pytest.raises(Retriable, match="worker process died"):
                sink.write(batch)
        job.step(batch)
    assert written(job) == expected(changes, 2)


def test_a_batch_is_given_up_while_the_process_hangs(harness: Callable[..., Harness]) -> None:
    job = harness(partitions=1)
    job.produce(encoded([(0, {"k": "a", "t": 1, "v": 1})]))
    sink = job.start()
    job.step()
    job.produce(encoded([(0, {"k": "b", "t": 2, "v": 2})]))
    batch = job.batch()
    os.kill(process_of(sink).pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(sink.write, batch)
        sink.give_up()
        with pytest.raises(Retriable, match="given up"):
            writing.result(60)
    job.start()
    job.step(batch)
    assert [key for _, key, _ in job.read()] == [b"a", b"b"]


def test_records_that_are_gone_stop_the_job(harness: Callable[..., Harness]) -> None:
    job = harness(partitions=1)
    job.produce(encoded(random_changes(random.Random(33), 20, 1)))
    sink = job.start()
    batch = job.batch()
    admin = AdminClient({"bootstrap.servers": job.bootstrap})
    for future in admin.delete_records([TopicPartition(job.topic, 0, 5)]).values():
        future.result(20)
    with pytest.raises(Fatal, match="the records before offset 5 were deleted unread"):
        sink.write(batch)


def test_dead_letters_are_counted(harness: Callable[..., Harness]) -> None:
    job = harness(partitions=1)
    dead = f"{job.name}-dead"
    job.create(dead, 1)
    job.options = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": dead}
    job.produce([(0, None, b"no json"), *encoded([(0, {"k": "a", "t": 1, "v": 1})])])
    sink = job.start()
    job.step()
    assert DeadLetters.of(sink.context).counter.value == 1
    assert [value for _, _, value in job.read(dead)] == [b"no json"]
