"""Runs of jobs in this process: bad records, retries, failures of tasks, records that are gone. One Spark session for all."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from spark_jobs.config import job_files as config
from spark_jobs.reports.progress import EventWriter
from spark_jobs.runner import Runner
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.integration.spark_jobs.frame.bench import Bench


@dataclass
class Run:
    """A run in a thread."""

    runner: Runner
    events: list[dict[str, Any]]
    code: list[int] = field(default_factory=list)
    thread: threading.Thread = field(init=False)

    def start(self) -> Run:
        self.thread = threading.Thread(target=lambda: self.code.append(self.runner.run()))
        self.thread.start()
        return self

    def end(self) -> int:
        self.thread.join(120)
        assert not self.thread.is_alive()
        return self.code[0]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]


def run(spark: SparkSession, properties: dict[str, str]) -> Run:
    events: list[dict[str, Any]] = []
    return Run(
        Runner(
            config.build_job(properties), EventWriter(properties["name"], None, on_event=events.append), spark=spark
        ),
        events,
    ).start()


NOW = {"trigger.mode": "available-now"}


def test_batches_have_their_ranges_and_bad_records_go_aside(spark: SparkSession, bench: Bench) -> None:
    topic = bench.topic(partitions=2)
    bench.send(topic, ["0", "1", "x", "3", "4", "y"])
    job = bench.job(
        topic,
        **NOW,
        **{
            "sink.rows.tables": "true",
            "source.max.offsets.per.trigger": "4",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": f"{topic}-dead",
        },
    )
    bench.topics.append(f"{topic}-dead")
    done = run(spark, job)
    assert done.end() == 0, done.events
    rows = bench.rows(job)
    assert sorted(row["number"] for row in rows) == [0, 1, 3, 4]
    progress = [event for event in done.of("progress") if event.get("committed")]
    assert [event["batch"] for event in progress] == list(range(len(progress)))
    assert len(progress) >= 2
    assert sum(event["rows"] for event in progress) == 6
    assert progress[-1]["position"] == {topic: {"0": 3, "1": 3}}
    assert progress[-1]["lag_total"] == 0
    assert progress[-1]["metrics"]["dead_letters_total"] == 2
    covered = {
        (where, offset) for row in rows for where, (start, end) in row["ranges"].items() for offset in range(start, end)
    }
    assert covered == {(f"{topic}-{partition}", offset) for partition in (0, 1) for offset in range(3)}
    assert bench.committed(f"millrace-{job['name']}", topic) == {0: 3, 1: 3}
    letters = dict(read(bench, f"{topic}-dead"))
    assert set(letters) == {b"x", b"y"}
    assert letters[b"x"]["__connect.errors.topic"] == topic.encode()
    assert (letters[b"x"]["__connect.errors.partition"], letters[b"x"]["__connect.errors.offset"]) == (b"0", b"1")
    assert b"invalid literal" in letters[b"x"]["__connect.errors.exception.message"]


def test_a_job_begins_at_the_offsets_of_a_group_once_it_has_no_members(spark: SparkSession, bench: Bench) -> None:
    topic = bench.topic(partitions=2)
    bench.send(topic, ["0", "1", "2", "3"])
    group = f"connect-{topic}"
    member = Consumer({"bootstrap.servers": bench.bootstrap, "group.id": group, "enable.auto.commit": False})
    member.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    member.subscribe([topic])
    eventually(lambda: member.poll(0.2) or member.assignment(), "the group has a member")
    job = bench.job(topic, **NOW, **{"sink.rows.tables": "true", "source.starting.group": group})
    done = run(spark, job)
    try:
        eventually(
            lambda: any("running members" in event["error"] for event in done.of("retrying")), "the job waits", 60.0
        )
        assert bench.rows(job) == []
    finally:
        member.close()
    assert done.end() == 0, done.events
    # Of the partition without a committed offset all records.
    assert sorted(row["number"] for row in bench.rows(job)) == [1, 2, 3]
    bench.send(topic, ["4", "5"])
    assert run(spark, job).end() == 0
    assert sorted(row["number"] for row in bench.rows(job)) == [1, 2, 3, 4, 5]


def read(bench: Bench, topic: str) -> list[tuple[Any, dict[str, Any]]]:
    consumer = Consumer({"bootstrap.servers": bench.bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
    records: list[tuple[Any, dict[str, Any]]] = []
    while len(records) < end:
        message = consumer.poll(20)
        assert message is not None
        records.append((message.value(), dict(message.headers() or [])))
    consumer.close()
    return records


def test_a_bad_record_stops_the_job_by_default(spark: SparkSession, bench: Bench) -> None:
    topic = bench.topic(partitions=1)
    bench.send(topic, ["0", "nonsense"])
    done = run(spark, bench.job(topic, **NOW, **{"sink.rows.tables": "true"}))
    assert done.end() == 1
    failed = done.of("failed")[0]
    assert failed["error"].startswith(f"the record at {topic}-0 offset 1 can't be decoded: invalid literal")
    assert failed["retriable"] is False
    assert "Traceback" in failed["trace"]


def test_retries_failing_tasks_and_a_stop_while_retrying(spark: SparkSession, bench: Bench) -> None:
    topic = bench.topic(partitions=1)
    bench.send(topic, ["0", "1"])
    job = bench.job(topic)
    bench.order(job, "away 2")
    going = run(spark, job)
    eventually(lambda: bench.rows(job) or going.code, "rows come after retries")
    assert [row["batch"] for row in bench.rows(job)] == [0, 0]
    assert [event["attempt"] for event in going.of("retrying")] == [1, 2]
    # An error that a task raised keeps its meaning on the driver.
    bench.order(job, "task Retriable")
    bench.send(topic, ["2"])
    eventually(lambda: len(bench.rows(job)) == 3 or going.code, "rows come after a task's Retriable")
    assert "said by a task of batch 1" in going.of("retrying")[-1]["error"]
    order = bench.order(job, "away 1000000")
    bench.send(topic, ["3"])
    eventually(lambda: len(going.of("retrying")) >= 5 or going.code, "it retries")
    going.runner.stop("test")
    assert going.end() == 0
    assert going.of("stopped")[0]["reason"] == "test"
    order.unlink()
    # The batch that was given up comes again, with the same number and the same records.
    restarted = run(spark, job | NOW)
    assert restarted.end() == 0, restarted.events
    assert [(row["batch"], row["value"]) for row in bench.rows(job)] == [(0, "0"), (0, "1"), (1, "2"), (2, "3")]
    bench.order(job, "task Fatal")
    bench.send(topic, ["4"])
    failed = run(spark, job | NOW)
    assert failed.end() == 1
    assert failed.of("failed")[0]["error"] == "said by a task of batch 3"
    assert failed.of("failed")[0]["kind"] == "Fatal"


def test_expired_records_and_a_new_topic_of_the_same_name_are_never_skipped(spark: SparkSession, bench: Bench) -> None:
    topic = bench.topic(partitions=1)
    bench.send(topic, ["0", "1", "2"])
    job = bench.job(topic) | NOW
    assert run(spark, job).end() == 0
    bench.send(topic, ["3", "4", "5"])
    bench.admin.delete_records([TopicPartition(topic, 0, 5)])[TopicPartition(topic, 0)].result(30)
    expired = run(spark, job)
    assert expired.end() == 1
    text = expired.of("failed")[0]["error"]
    assert f"{topic}-0: offsets 3 to 4 are gone" in text
    assert "what exists begins at 5 and ends before 6" in text
    assert "Nothing was skipped" in text
    # Deleted, recreated and filled beyond the old position: Kafka's offsets alone would not show it.
    bench.delete(topic)
    bench.topic(partitions=1, name=topic)
    bench.send(topic, [str(number) for number in range(9)])
    replaced = run(spark, job)
    assert replaced.end() == 1
    assert f"topic {topic} was deleted and recreated" in replaced.of("failed")[0]["error"]
    assert [row["value"] for row in bench.rows(job)] == ["0", "1", "2"]
    # By option the job continues with the records that exist, and says what it leaves out.
    assert run(spark, job | {"source.fail.on.data.loss": "false"}).end() == 0
    assert [row["value"] for row in bench.rows(job)][3:] == ["3", "4", "5", "6", "7", "8"]


def test_a_topic_that_is_replaced_while_the_job_runs(spark: SparkSession, bench: Bench) -> None:
    topic = bench.topic(partitions=1)
    bench.send(topic, ["0", "1", "2"])
    job = bench.job(topic)
    going = run(spark, job)
    eventually(lambda: len(bench.rows(job)) == 3 or going.code, "three rows come")
    bench.delete(topic)
    bench.topic(partitions=1, name=topic)
    bench.send(topic, ["new"])
    assert going.end() == 1
    assert f"topic {topic} " in going.of("failed")[0]["error"]
    assert [row["value"] for row in bench.rows(job)] == ["0", "1", "2"]


@pytest.mark.parametrize("missing", ["topic", "kafka"])
def test_what_is_missing_at_the_start_is_named(bench: Bench, missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    from spark_jobs.cli import main

    job = bench.job("frame-no-such-topic")
    if missing == "kafka":
        job["kafka.bootstrap.servers"] = "127.0.0.1:1"
    assert main(["validate", "--check", str(bench.file(job))]) == 1
    said = capsys.readouterr().err
    assert (
        "topic frame-no-such-topic does not exist" if missing == "topic" else "Kafka at 127.0.0.1:1 does not answer"
    ) in said


def test_a_plan_says_what_would_be_done(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    from spark_jobs.cli import main

    topic = bench.topic(partitions=2)
    bench.send(topic, ["1", "2", "3"])
    job = bench.job(topic)
    assert main(["plan", str(bench.file(job))]) == 0
    said = capsys.readouterr().out
    assert f"{topic}: 2 partitions, from earliest (0: 0, 1: 0), 3 records to read" in said
    assert "guarantee: at-least-once" in said
    assert not (bench.folder / job["name"]).exists()
    absent = bench.job("frame-no-such-topic")
    for options, would in (({}, "wait until it does"), (NOW, "fail")):
        assert main(["plan", str(bench.file(absent | options))]) == 0
        assert f"frame-no-such-topic: does not exist; the job would {would}" in capsys.readouterr().out


def test_a_topic_that_does_not_exist_yet_is_waited_for(spark: SparkSession, bench: Bench) -> None:
    name = f"frame-later-{secrets.token_hex(4)}"
    job = bench.job(name)
    refused = run(spark, {**job, **NOW, "name": f"{job['name']}-now"})
    assert refused.end() == 1
    assert f"there is no topic {name}" in refused.of("failed")[0]["error"]
    waiting = run(spark, job)
    eventually(lambda: bool(waiting.of("retrying")), "the job says that it waits")
    assert f"there is no topic {name}" in waiting.of("retrying")[0]["error"]
    assert not waiting.of("started")
    bench.topic(partitions=2, name=name)
    bench.send(name, ["1", "2"])
    eventually(lambda: len(bench.rows(job)) == 2, "what was written later is read")
    waiting.runner.stop("test")
    assert waiting.end() == 0
