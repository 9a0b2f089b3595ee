"""One materializer over many topics: a state and an output for each, exactly once, also for a topic that comes later."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from confluent_kafka import Producer

from connectors.errors import ConfigInvalid, Fatal
from spark_jobs.contract import Batch
from spark_jobs.materializer.config import KILL_VARIABLE, changelog_topic
from spark_jobs.materializer.per_topic import choose_topic, config_for
from spark_jobs.materializer.state.rebuild import rebuild_output
from spark_jobs.materializer.state.state_frame import state_frame
from tests.integration.spark_jobs.materializer.test_bucket_exactly_once import expected, random_changes
from tests.support import last_write_engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.spark_jobs.materializer.conftest import Harness
    from tests.integration.spark_jobs.materializer.test_bucket_exactly_once import Change


def produce(job: Harness, topic: str, changes: list[Change]) -> None:
    """Write changes to the partitions that they name."""
    producer = Producer({"bootstrap.servers": job.bootstrap})
    for partition, change in changes:
        producer.produce(topic, msgspec.json.encode(change), None, partition)
    assert producer.flush(30) == 0


def batch_of(job: Harness, positions: dict[tuple[str, int], int], topics: list[str]) -> Batch:
    """The records of all topics from ``positions`` on."""
    ends = {(topic, partition): end for topic in topics for partition, end in job.ends(topic).items()}
    nested: dict[str, dict[str, dict[str, int]]] = {"start": {}, "end": {}}
    for (topic, partition), end in ends.items():
        nested["start"].setdefault(topic, {})[str(partition)] = positions.get((topic, partition), 0)
        nested["end"].setdefault(topic, {})[str(partition)] = end
    frame = (
        job.spark.read.format("kafka")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", msgspec.json.encode(nested["start"]).decode())
        .option("endingOffsets", msgspec.json.encode(nested["end"]).decode())
        .option("includeHeaders", "true")
        .load()
    )
    spans = {where: (positions.get(where, 0), end) for where, end in ends.items() if end > positions.get(where, 0)}
    job.batches += 1
    return Batch(job.batches - 1, frame, spans, list)


def output_of(job: Harness, topic: str, partitions: int) -> dict[int, list[tuple[str, str, Any, Any]]]:
    """The events of a topic's output as ``expected`` has them."""
    events: dict[int, list[tuple[str, str, Any, Any]]] = {partition: [] for partition in range(partitions)}
    for partition, key, value in job.read(f"{topic}.rows"):
        event = msgspec.json.decode(value or b"")
        events[partition].append((key.decode(), event["op"], event["before"], event["after"]))
    return events


def test_topics_have_their_own_states(
    harness: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = harness("many", partitions=3)
    first, second, late = job.topic, f"{job.name}-in-other", f"{job.name}-in-late"
    job.create(second, 2)
    pattern = {"source.topics": "", "source.topics.pattern": f"{job.name}-in.*", "sink.kafka.topic": "${topic}.rows"}
    # The outputs have another name, so the pattern must not match them.
    pattern["source.topics.pattern"] = f"{job.name}-in(-[a-z]+)?"
    job.options |= pattern
    rng = random.Random(23)
    # The same keys in both topics, with other values: they are rows of two tables.
    changes = {topic: random_changes(rng, 400, count, keys=10) for topic, count in ((first, 3), (second, 2))}
    for topic, records in changes.items():
        produce(job, topic, records)
    sink = job.start()
    batch = batch_of(job, {}, [first, second])
    token = tmp_path / "token"
    token.touch()
    monkeypatch.setenv(KILL_VARIABLE, f"commit@{token}")
    sink = job.start()
    with pytest.raises(Exception, match="Python worker"):
        sink.write(batch)
    sink.write(batch)
    positions = {where: end for where, (_, end) in batch.ranges.items()}
    # A topic that comes while the job runs, and a new run of the job.
    job.create(late, 1)
    changes[late] = random_changes(rng, 100, 1, keys=10)
    more = random_changes(rng, 100, 2, keys=10)
    changes[second] += more
    produce(job, late, changes[late])
    produce(job, second, more)
    sink.write(batch_of(job, positions, [first, second, late]))
    for topic, count in ((first, 3), (second, 2), (late, 1)):
        assert output_of(job, topic, count) == expected(changes[topic], count), topic
    # What was done is skipped when it comes again, in a new run.
    retry = job.start()
    assert retry.write(batch_of(job, {}, [first, second, late])) == 0
    config = retry.context.config
    rows = state_frame(job.spark, config_for(config, second), last_write_engine.make)
    alive = {key: after for events in expected(changes[second], 2).values() for key, _, _, after in events}
    assert {row["k"]: row["v"] for row in rows.collect()} == {
        key: value for key, value in alive.items() if value is not None
    }
    # The output of one topic is written again, the others are not touched.
    job.delete(f"{second}.rows")
    written = rebuild_output(job.spark, choose_topic(config, second), last_write_engine.make)
    assert sum(result.outputs for result in written) == sum(value is not None for value in alive.values())
    assert output_of(job, first, 3) == expected(changes[first], 3)
    assert changelog_topic(config_for(config, second)) == f"{job.name}-{second}-changelog"
    with pytest.raises(ConfigInvalid, match="name one by --topic"):
        choose_topic(config, None)


def test_a_pattern_that_matches_what_the_job_writes(harness: Callable[..., Harness]) -> None:
    job = harness("loop", partitions=1)
    job.options |= {
        "source.topics": "",
        "source.topics.pattern": f"{job.name}-in.*",
        "sink.kafka.topic": "${topic}.rows",
    }
    produce(job, job.topic, [(0, {"k": "a", "t": 1, "v": 1})])
    job.start()
    with pytest.raises(Fatal, match=r"source\.topics\.pattern matches .*-in\.rows, which this job writes"):
        job.start()
