"""A flow with steps and two sinks while its parts fail: the driver, Python workers, the lookup's database, a sink, Kafka."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import os
import random
import signal
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from spark_jobs.cli import describe_job
from spark_jobs.testing.gate import Gate
from tests.chaos.event_load import COLUMNS, effective_changes, write_events
from tests.support.eventually import eventually
from tests.support.job_process import Job
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.postgres import Postgres
    from tests.chaos.conftest import ProxiedKafka

#: Rows with a multiple of it in their partition key are filtered out.
_LEFT_OUT: Final = 7
_SINKS: Final = ("rows", "changes")


class FlowRun:
    """The flow's process, and the faults that it has to stand.

    Args:
        config: of the job.
        folder: for its files.
        broker: that its clients reach through a proxy.
        lookup: before the database that is looked up.
        sink: before the database of the first sink.
    """

    def __init__(self, config: dict[str, Any], folder: Path, broker: ProxiedKafka, lookup: Gate, sink: Gate) -> None:
        self._config, self._folder, self._broker = config, folder, broker
        self._lookup, self._sink = lookup, sink
        self.job = Job(config, folder)
        self.job.start()

    def position(self, sink: str) -> int:
        """Records that a sink has done."""
        progress = describe_job(self._name(sink)).get("progress") or {}
        return sum(offset for offsets in progress.get("position", {}).values() for offset in offsets.values())

    def wait(self, done: Callable[[], bool], awaited: str) -> None:
        """Wait while the flow runs; a process that ended fails the test."""

        def holds() -> bool:
            assert self.job.process.poll() is None, self.job.log()
            return done()

        eventually(holds, awaited, 180, every=0.2, detail=lambda: [*map(self._state, _SINKS), self.job.log()])

    def kill_driver(self) -> None:
        """The process and all that it has started end at once."""
        self.job.kill()
        self.job = Job(self._config, self._folder)
        self.job.start()

    def kill_python_workers(self) -> None:
        """Spark's Python workers end in the middle of their tasks."""
        self.wait(lambda: bool(self.job.python_workers()), "there are Python workers")
        for worker in self.job.python_workers():
            try:
                os.kill(worker, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def cut_lookup(self) -> None:
        """The database that is looked up refuses connections until both sinks retry."""
        with self._lookup.closed():
            self.wait(lambda: all(self._retries(sink) for sink in _SINKS), "both sinks retry their lookups")

    def cut_sink(self) -> None:
        """The database of one sink refuses connections until it retries, while the other sink advances."""
        with self._sink.closed():
            self.wait(lambda: self._retries("rows"), "the sink retries")

    def drop_brokers(self) -> None:
        """All connections to Kafka close in the middle of whatever they carry."""
        self._broker.proxy.drop()

    def _retries(self, sink: str) -> bool:
        return str(describe_job(self._name(sink))["state"]) == "retrying"

    def _state(self, sink: str) -> object:
        status = describe_job(self._name(sink))
        return sink, status.get("state"), status.get("retrying"), self.position(sink)

    def _name(self, sink: str) -> str:
        return f"{self._config['name']}.{sink}"


_FAULTS: Final[dict[str, Callable[[FlowRun], None]]] = {
    "driver": FlowRun.kill_driver,
    "lookup": FlowRun.cut_lookup,
    "sink": FlowRun.cut_sink,
    "workers": FlowRun.kill_python_workers,
    "brokers": FlowRun.drop_brokers,
}


@pytest.mark.slow  # minutes; the tests of sinks and lookups have single faults
def test_a_flow_loses_and_repeats_nothing(
    broker: ProxiedKafka, postgres: Postgres, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    topic = unique("f")
    suffix = topic.rpartition("-")[2]
    names = f"names_{suffix}"
    model = write_events(broker.bootstrap, topic)
    events = effective_changes()
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute(f"CREATE TABLE {names} (id bigint PRIMARY KEY, name text)")
        connection.execute(
            f"INSERT INTO {names} SELECT id, 'name ' || id FROM generate_series(0, 399) AS id WHERE id % 3 <> 0"
        )
    assert postgres.port is not None
    with Gate("127.0.0.1", postgres.port) as lookup, Gate("127.0.0.1", postgres.port) as sink:
        config = flow(broker.proxied, topic, tmp_path, postgres, lookup, sink)
        run = FlowRun(config, tmp_path / "run", broker, lookup, sink)
        try:
            chance = random.Random(11)
            faults = [fault for _ in range(2) for fault in chance.sample(list(_FAULTS), len(_FAULTS))]
            for number, fault in enumerate(faults):
                goal = len(events) * (number + 1) // (len(faults) + 2)
                run.wait(lambda goal=goal: max(map(run.position, _SINKS)) >= goal, f"{goal} records are done")  # type: ignore[misc]
                _FAULTS[fault](run)
            run.wait(lambda: [run.position(name) for name in _SINKS] == [len(events)] * 2, "both sinks have all")
            assert run.job.stop() == 0
        finally:
            if run.job.process.poll() is None:
                run.job.kill()

    def name_of(pk: int) -> str | None:
        return f"name {pk}" if pk % 3 else None

    expected = {
        key: (row["n"], None if row["n"] is None else 2 * row["n"], row["v"], name_of(key[0]))
        for key, row in model.rows.items()
        if key[0] % _LEFT_OUT
    }
    with psycopg.connect(postgres.dsn) as connection:
        rows = connection.execute(
            f"SELECT pk, ck, n, twice, v, name FROM rows_{suffix} WHERE ums_active_ = 1"
        ).fetchall()
        changes = connection.execute(
            f"SELECT ums_id_, pk, ck, ums_op_ = 'd', name FROM changes_{suffix} ORDER BY ums_id_"
        ).fetchall()
    assert {row[:2]: row[2:] for row in rows} == expected
    assert changes == [
        (number, change.pk, change.ck, change.delete, None if change.delete else name_of(change.pk))
        for number, change in events
        if change.pk % _LEFT_OUT
    ]


def flow(bootstrap: str, topic: str, folder: Path, postgres: Postgres, lookup: Gate, sink: Gate) -> dict[str, Any]:
    """The job: three steps, then a table of rows and one of all changes; small batches, so that faults meet many."""
    suffix = topic.rpartition("-")[2]
    login = {"user": postgres.user, "password": postgres.password}

    def table(name: str, address: str, mode: str) -> dict[str, Any]:
        url = f"jdbc:postgresql://{address}/{postgres.database}"
        return {"url": url, "table": f"{name}_{suffix}", "mode": mode, "retries": 0, **login}

    return {
        "name": f"flow-{topic}",
        "kafka": {"bootstrap.servers": bootstrap},
        "source": {
            "topics": topic,
            "format": "debezium",
            "max.offsets.per.trigger": 500,
            "key.columns": "pk,ck",
            "table.columns": COLUMNS,
        },
        "transform": {
            "steps": [
                {"name": "some", "type": "filter", "condition": f"pk % {_LEFT_OUT} <> 0"},
                {"name": "more", "type": "select", "columns": "*, n * 2 AS twice"},
                {
                    "name": "named",
                    "type": "lookup",
                    "url": f"jdbc:postgresql://{lookup.address}/{postgres.database}",
                    "table": f"names_{suffix}",
                    "on": "pk = id",
                    "columns": "name string",
                    "cache.rows": 20,
                    "retries": 0,
                    **login,
                },
            ]
        },
        "guarantee": "exactly-once",
        "sinks": [
            {"name": "rows", "type": "jdbc", "jdbc": table("rows", sink.address, "upsert")},
            {"name": "changes", "type": "jdbc", "jdbc": table("changes", f"127.0.0.1:{postgres.port}", "insert")},
        ],
        "errors": {"retry.delay.max.ms": 500},
        "trigger": {"interval.ms": 0},
        "checkpoint": {"location": str(folder / "checkpoint")},
        "state": {"dir": str(folder / "state")},
        "spark": {"master": "local[2]", "driver.memory": "768m", "driver.extraJavaOptions": " ".join(FAST_START)},
    }
