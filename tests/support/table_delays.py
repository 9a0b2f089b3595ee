"""Heartbeats in the topics of tables as tests look at them: the delays that a job reports, and the records themselves."""

from __future__ import annotations

import re
import time
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it has it

from tests.support.eventually import eventually
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from compose.local.worker import MillraceWorker

#: Spark takes its time to start.
LIMIT_S: Final = 180.0
#: Of each topic.
PARTITIONS: Final = 2
#: What a job reports of a table.
NUMBERS: Final = {
    "delay_seconds",
    "topic_delay_seconds",
    "read_delay_seconds",
    "write_delay_seconds",
    "complete_timestamp_seconds",
}
_SERIES: Final = re.compile(r"^millrace_job_table_(\w+)\{(?P<labels>[^}]*)\} (\S+)$", re.MULTILINE)


class TopicRecord(NamedTuple):
    """A record of a topic."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


def make_topics(bootstrap: str, topics: Iterable[str], **settings: str) -> None:
    """Make topics of ``PARTITIONS`` partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    futures = admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=settings) for topic in topics])
    for future in futures.values():
        future.result(20)


def read_topic(bootstrap: str, topic: str) -> list[TopicRecord]:
    """All records that are in a topic now, by partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x", "enable.partition.eof": True})
    records = []
    with closing(consumer):
        for number in range(PARTITIONS):
            consumer.assign([TopicPartition(topic, number, 0)])
            while (message := consumer.poll(20)) is not None and not message.error():
                pairs = cast("list[tuple[str, bytes | None]]", message.headers() or [])
                headers = {name: data or b"" for name, data in pairs}
                records.append(TopicRecord(number, message.key(), message.value(), headers))
    return records


def job_options(application: str) -> dict[str, str]:
    """Options of a small job that looks for records often."""
    return {
        "connector.class": "spark_jobs.SparkJob",
        "trigger.interval.ms": "100",
        "spark.application": application,
        "spark.master": "local[2]",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": " ".join(FAST_START),
    }


def read_delays(worker: MillraceWorker, job: str, table: str) -> dict[str, float]:
    """Return the numbers that a job gives of a table, by the metric's name without ``millrace_job_table_``."""
    return {
        match[1]: float(match[3])
        for match in _SERIES.finditer(str(worker.request("GET", "/metrics")[1]))
        if f'table="{table}"' in match["labels"] and f'connector="{job}"' in match["labels"]
    }


def wait_complete(worker: MillraceWorker, tables: dict[str, str], since: float) -> None:
    """Wait until the target of each job (the keys) is complete for its table up to later than ``since``."""
    for job, table in tables.items():
        eventually(
            lambda job=job, table=table: (  # type: ignore[misc]
                read_delays(worker, job, table).get("complete_timestamp_seconds", 0.0) > since
            ),
            f"a promise of the time after the change comes to the target of {job}",
            LIMIT_S,
            detail=lambda: f"{worker.request('GET', '/connectors?expand=status')}\n{worker.service.log_tail()}",
        )


def change_and_wait(
    worker: MillraceWorker, tables: dict[str, str], change: Callable[[int], object], numbers: Iterable[int]
) -> float:
    """Make changes, each once all targets are complete up to the one before; return the time of the last."""
    began = time.time()
    for number in numbers:
        wait_complete(worker, tables, began)
        change(number)
        began = time.time()
    wait_complete(worker, tables, began)
    return began


def check_delays(worker: MillraceWorker, tables: dict[str, str]) -> None:
    """The delays of all stages are there and make sense."""
    for job, table in tables.items():
        measured = read_delays(worker, job, table)
        assert set(measured) == NUMBERS
        assert 0 < measured["delay_seconds"] < LIMIT_S
        assert measured["delay_seconds"] >= measured["write_delay_seconds"] > 0
