"""Jobs whose driver is killed with all its processes while events flow: what the sinks hold afterwards, row by row."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.chaos.event_load import COLUMNS, PARTITIONS, effective_changes, write_events
from tests.support.job_process import Job
from tests.support.update_topic import committed_events
from worker.fetch.java import FAST_START
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.postgres import Postgres
    from tests.support.update_load import Model

# One of the longest files: other tests go the same ways in every run.
pytestmark = pytest.mark.slow

_LIMIT = 180.0


def reach(job: Job, written: Callable[[], int], goal: int) -> None:
    """Wait until ``goal`` rows were written."""
    job.wait_for(lambda: written() >= goal, _LIMIT, lambda: f"{written()} of {goal} rows were written")


def run_with_kill(
    config: dict[str, Any],
    folder: Path,
    written: Callable[[], int],
    last: Callable[[], bool],
    *,
    rows: tuple[int, int] = (600, 1800),
) -> None:
    """Run the job, kill it after a number of rows in a range (from, to), then let it get to the end."""
    job = Job(config, folder)
    job.start()
    reach(job, written, random.Random(3).randrange(*rows))
    job.kill()
    job = Job(config, folder)
    job.start()
    job.wait_for(last, _LIMIT, lambda: f"{written()} rows were written")
    assert job.stop() == 0


def config(bootstrap: str, topic: str, folder: Path, sink: dict[str, Any]) -> dict[str, Any]:
    """A job with small batches, so that there are many moments to die in."""
    return {
        "name": f"{folder.name}-{topic}",
        "kafka": {"bootstrap.servers": bootstrap},
        "source": {
            "topics": topic,
            "format": "debezium",
            "max.offsets.per.trigger": 500,
            "key.columns": "pk,ck",
            "table.columns": COLUMNS,
        },
        "sink": sink,
        "guarantee": "exactly-once",
        "trigger": {"interval.ms": 0},
        "checkpoint": {"location": str(folder / "checkpoint")},
        "state": {"dir": str(folder / "state")},
        "spark": {"master": "local[2]", "driver.memory": "768m", "driver.extraJavaOptions": " ".join(FAST_START)},
    }


@pytest.mark.proves("into kafka", "exactly-once", killed=["driver"])
@pytest.mark.proves("into jdbc upsert", "exactly-once", killed=["driver"])
@pytest.mark.proves("into jdbc insert", "exactly-once", killed=["driver"])
def test_every_row_once_after_a_kill(
    bootstrap: str, postgres: Postgres, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """Three jobs over one topic, side by side to save time: a copy in Kafka, a table of rows, a table of all changes."""
    topic = unique("e")
    model = write_events(bootstrap, topic)
    parts = {name: tmp_path / name for name in ("copy", "rows", "changes")}
    with ThreadPoolExecutor(len(parts)) as pool:
        done = [
            pool.submit(kafka_copy, bootstrap, topic, parts["copy"]),
            pool.submit(database_rows, bootstrap, postgres, topic, parts["rows"], model),
            pool.submit(database_changes, bootstrap, postgres, topic, parts["changes"]),
        ]
        for future in done:
            future.result()


def kafka_copy(bootstrap: str, topic: str, folder: Path) -> None:
    """The copy holds the same records, in the same order within partitions."""
    expected = [(record.partition, record.key, record.value) for record in read_topic(bootstrap, topic)]
    written = committed_events(bootstrap, f"{topic}-copy", PARTITIONS)
    job = config(bootstrap, topic, folder, {"type": "kafka", "kafka": {"topic": f"{topic}-copy"}})
    run_with_kill(job, folder / "job", written, lambda: written() >= len(expected))
    copied = [
        (record.partition, record.key, record.value)
        for record in read_topic(bootstrap, f"{topic}-copy", committed=True)
    ]
    for partition in range(PARTITIONS):
        assert [entry for entry in copied if entry[0] == partition] == [
            entry for entry in expected if entry[0] == partition
        ]


def select(postgres: Postgres, text: str, table: str) -> list[Any]:
    """Rows; none while there is no such table."""
    try:
        with psycopg.connect(postgres.dsn) as connection:
            return connection.execute(text.format(table=table)).fetchall()
    except psycopg.errors.UndefinedTable:
        return []


def database(bootstrap: str, postgres: Postgres, topic: str, folder: Path, table: str, mode: str) -> dict[str, Any]:
    """The job of a table."""
    return config(
        bootstrap,
        topic,
        folder,
        {
            "type": "jdbc",
            "jdbc": {
                "url": postgres.url,
                "user": postgres.user,
                "password": postgres.password,
                "table": table,
                "mode": mode,
            },
        },
    )


def database_rows(bootstrap: str, postgres: Postgres, topic: str, folder: Path, model: Model) -> None:
    """Upserts: the table is what the model says, row by row."""
    table = f"rows_{topic.rpartition('-')[2]}"

    def written() -> int:
        counts = select(postgres, "SELECT count(*) FROM {table}", table)
        return int(counts[0][0]) if counts else 0

    def done() -> bool:
        return [row[0] for row in select(postgres, "SELECT max(ums_id_) FROM {table}", table)] == [
            effective_changes()[-1][0]
        ]

    job = database(bootstrap, postgres, topic, folder, table, "upsert")
    run_with_kill(job, folder / "job", written, done, rows=(100, 400))
    names = ("pk", "ck", "at", "flag", "n", "note", "price", "v")
    rows = select(postgres, "SELECT " + ", ".join(names) + " FROM {table} WHERE ums_active_ = 1", table)  # noqa: S608
    assert {row[:2]: dict(zip(names, row, strict=True)) for row in rows} == model.rows


def database_changes(bootstrap: str, postgres: Postgres, topic: str, folder: Path) -> None:
    """Inserts: one row for each event."""
    table, events = f"changes_{topic.rpartition('-')[2]}", len(effective_changes())
    count = "SELECT count(*), count(DISTINCT ums_uid_) FROM {table}"

    def written() -> int:
        counts = select(postgres, count, table)
        return int(counts[0][0]) if counts else 0

    job = database(bootstrap, postgres, topic, folder, table, "insert")
    run_with_kill(job, folder / "job", written, lambda: written() >= events)
    assert select(postgres, count, table) == [(events, events)]
