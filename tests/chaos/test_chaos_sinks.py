"""Jobs whose driver is killed with all its processes while events flow: what the sinks hold afterwards, row by row."""
from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compose.local.topics import read_topic
from tests.support.job_process import Job
from tests.support.update_load import Model, changes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.postgres import Postgres

_EVENTS = 6_000
_PARTITIONS = 2
_LIMIT = 180.0
_COLUMNS = "pk bigint, ck int, at bigint, flag boolean, n bigint, note string, price double, v string"


def write_events(bootstrap: str, topic: str) -> Model:
    """Events of the seeded load in Debezium's form, JSON without schemas, in two steps of which the second is given back."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, _PARTITIONS, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    model = Model()
    for number, change in enumerate(changes(_EVENTS, partitions=400)):
        event = model.apply(change)
        if event is None:
            continue
        key = {"pk": change.pk, "ck": change.ck}
        value = {**event._asdict(), "ts_ms": change.write_time // 1000,
                 "source": {"db": "shop", "table": "events", "ts_ms": change.write_time // 1000, "ums_id": number + 1}}
        producer.produce(topic, json.dumps(value), json.dumps(key), partition=change.pk % _PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0
    return model


def reach(job: Job, written: Callable[[], int], goal: int) -> None:
    """Wait until so many rows were written."""
    job.wait_for(lambda: written() >= goal, _LIMIT, lambda: f"{written()} of {goal} rows were written")


def run_with_kill(config: dict[str, Any], folder: Path, written: Callable[[], int], last: Callable[[], bool]) -> None:
    """Run the job, kill it after some batches, then let it get to the end."""
    job = Job(config, folder)
    job.start()
    reach(job, written, random.Random(3).randrange(600, 1800))
    job.kill()
    job = Job(config, folder)
    job.start()
    job.wait_for(last, _LIMIT, lambda: f"{written()} rows were written")
    assert job.stop() == 0


def config(bootstrap: str, topic: str, folder: Path, sink: dict[str, Any]) -> dict[str, Any]:
    """A job with small batches, so that there are many moments to die in."""
    return {
        "name": f"s-{topic}", "kafka": {"bootstrap.servers": bootstrap},
        "source": {"topics": topic, "format": "debezium", "max.offsets.per.trigger": 500, "key.columns": "pk,ck",
                   "table.columns": _COLUMNS},
        "sink": sink, "guarantee": "exactly-once", "trigger": {"interval.ms": 0},
        "checkpoint": {"location": str(folder / "checkpoint")}, "state": {"dir": str(folder / "state")},
        "spark": {"master": "local[2]", "driver.memory": "768m"},
    }


def test_kafka_copy_is_exactly_once(bootstrap: str, tmp_path: Path, unique: Callable[[str], str]) -> None:
    topic = unique("e")
    write_events(bootstrap, topic)
    wanted = [(record.partition, record.key, record.value) for record in read_topic(bootstrap, topic)]

    def copied() -> list[Any]:
        return read_topic(bootstrap, f"{topic}-copy", committed=True)

    job = config(bootstrap, topic, tmp_path, {"type": "kafka", "kafka": {"topic": f"{topic}-copy"}})
    run_with_kill(job, tmp_path / "job", lambda: len(copied()), lambda: len(copied()) >= len(wanted))
    found = [(record.partition, record.key, record.value) for record in copied()]
    for partition in range(_PARTITIONS):
        assert [each for each in found if each[0] == partition] == [each for each in wanted if each[0] == partition]


@pytest.mark.parametrize("mode", ["upsert", "insert"])
def test_database_is_exactly_once(mode: str, bootstrap: str, postgres: Postgres, tmp_path: Path,
                                  unique: Callable[[str], str]) -> None:
    topic = unique("e")
    model = write_events(bootstrap, topic)
    events = len(read_topic(bootstrap, topic))
    table = topic.replace("-", "_")[:50]

    def rows(text: str) -> list[Any]:
        try:
            with psycopg.connect(postgres.dsn) as connection:
                return connection.execute(text.format(table=table)).fetchall()
        except psycopg.errors.UndefinedTable:
            return []

    count = "SELECT count(*) FROM {table}" if mode == "insert" else "SELECT count(*) FROM {table} WHERE ums_id_ > 0"
    last = max(number + 1 for number in _event_numbers())

    def written() -> int:
        found = rows(count)
        return int(found[0][0]) if found else 0

    def done() -> bool:
        if mode == "insert":
            return written() >= events
        found = rows("SELECT max(ums_id_) FROM {table}")
        return bool(found) and found[0][0] == last

    job = config(bootstrap, topic, tmp_path, {"type": "jdbc", "jdbc": {
        "url": postgres.url, "user": postgres.user, "password": postgres.password, "table": table, "mode": mode}})
    run_with_kill(job, tmp_path / "job", written, done)
    if mode == "insert":
        assert rows("SELECT count(*), count(DISTINCT ums_uid_) FROM {table}") == [(events, events)]
        return
    names = ("pk", "ck", "at", "flag", "n", "note", "price", "v")
    found = rows("SELECT " + ", ".join(names) + " FROM {table} WHERE ums_active_ = 1")  # noqa: S608 - names of the test
    assert {row[:2]: dict(zip(names, row, strict=True)) for row in found} == model.rows


def _event_numbers() -> list[int]:
    model = Model()
    return [number for number, change in enumerate(changes(_EVENTS, partitions=400)) if model.apply(change) is not None]
