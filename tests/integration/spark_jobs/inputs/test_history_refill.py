"""Refills from a history: the rows of the live flow in a new target, no harm to the live flow, a killed driver."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import json
import random
import secrets
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs import history
from spark_jobs.config import job_files as config
from spark_jobs.history import commands
from spark_jobs.history.reader import find_tables
from spark_jobs.history.rolling import Rolling
from spark_jobs.reports.progress import EventWriter
from spark_jobs.runner import Runner
from tests.integration.spark_jobs.jdbc.conftest import database
from tests.integration.spark_jobs.sources.test_whole_jobs import Jobs, jdbc, jobs
from tests.support.eventually import eventually
from tests.support.job_process import Job
from tests.support.job_runs import run_job

if TYPE_CHECKING:
    from pathlib import Path

    from compose.local.postgres import Postgres
    from tests.integration.spark_jobs.jdbc.conftest import Database

# One of the longest files: other tests go the same ways in every run.
pytestmark = pytest.mark.slow

__all__ = ["jobs"]

START_MS = 1_700_000_000_000


def changes(table: str, count: int, seed: int, first: int = 0) -> list[tuple[bytes, bytes]]:
    """Inserts, updates and deletes of twenty keys, one per second, with rising positions."""
    source = random.Random(seed)
    records = []
    for number in range(first, first + count):
        key = {"id": source.randrange(20)}
        op = source.choice("cuud")
        row = {**key, "name": f"n{number}", "price": number / 4}
        event = {
            "op": op,
            "before": key if op == "d" else None,
            "after": None if op == "d" else row,
            "source": {"db": "shop", "table": table, "lsn": number + 1, "ts_ms": START_MS + number * 1000},
        }
        records.append((json.dumps(key).encode(), json.dumps(event).encode()))
    return records


def refill(jobs: Jobs, name: str, path: Path, **options: str) -> dict[str, str]:
    """Properties of a job that reads the history at ``path``."""
    return {
        "name": f"{jobs.name}-{name}",
        "source.type": "history",
        "source.history.path": str(path),
        "state.dir": str(jobs.folder / name),
        "trigger.mode": "available-now",
        "errors.retry.timeout.ms": "0",
        "source.max.offsets.per.trigger": "40",
        **options,
    }


def table_rows(server: Database, table: str) -> list[tuple[Any, ...]]:
    return server.query(
        f"SELECT id, name, price, ums_id_, ums_ts_, ums_op_, ums_active_ FROM {server.quote(table)} ORDER BY id"
    )


def test_a_refill_gives_the_rows_of_the_live_flow(jobs: Jobs, postgres: Postgres) -> None:
    server = database(postgres.url, postgres.user, postgres.password)
    table = f"h{secrets.token_hex(4)}"
    path = jobs.folder / "history"
    live = {
        "source.format": "debezium",
        **jdbc(postgres),
        "name": f"{jobs.name}-live",
        "state.dir": str(jobs.folder / "live"),
    }
    keep = {"source.format": "debezium", "sink.type": "files", "sink.files.path": str(path)}
    jobs.send(jobs.name, [*changes(table, 150, 1), *changes(f"{table}_other", 10, 2)])
    assert jobs.run(jobs.name, **live) == ""
    assert jobs.run(jobs.name, **keep) == ""
    expected = table_rows(server, table)
    assert expected
    # Into a new table, by a step that names it.
    copied = {
        "transform.steps": "renamed",
        "transform.step.renamed.type": "route",
        "transform.step.renamed.to": f"{table}_copy",
        "source.tables": f"shop.{table}",
        **jdbc(postgres),
    }
    assert run_job(jobs.spark, refill(jobs, "copy", path, **copied)) == ""
    assert table_rows(server, f"{table}_copy") == expected
    # Into the table of the live flow, which has gone on: what is newer stays.
    jobs.send(jobs.name, changes(table, 60, 3, first=150))
    assert jobs.run(jobs.name, **live) == ""
    expected = table_rows(server, table)
    server.query(f"DELETE FROM {server.quote(table)} WHERE ums_id_ <= 150")
    assert run_job(jobs.spark, refill(jobs, "same", path, **jdbc(postgres), **{"source.tables": table})) == ""
    assert table_rows(server, table) == expected


def test_a_refill_while_the_live_flow_writes_the_same_table(jobs: Jobs, postgres: Postgres) -> None:
    server = database(postgres.url, postgres.user, postgres.password)
    table = f"b{secrets.token_hex(4)}"
    path = jobs.folder / "history"
    live = {
        "name": f"{jobs.name}-live",
        "kafka.bootstrap.servers": jobs.bootstrap,
        "source.topics": jobs.name,
        "source.format": "debezium",
        "source.max.offsets.per.trigger": "50",
        "state.dir": str(jobs.folder / "live"),
        "trigger.interval.ms": "0",
        **jdbc(postgres),
    }
    jobs.send(jobs.name, changes(table, 400, 7))
    assert (
        jobs.run(jobs.name, **{"source.format": "debezium", "sink.type": "files", "sink.files.path": str(path)}) == ""
    )
    events: list[dict[str, Any]] = []
    runner = Runner(config.build_job(live), EventWriter(live["name"], None, on_event=events.append), spark=jobs.spark)
    thread = threading.Thread(target=runner.run)

    def newest() -> int:
        assert thread.is_alive(), events
        present = "SELECT count(*) FROM information_schema.tables WHERE table_name = %s"
        if server.query(present, [table]) == [(0,)]:
            return 0
        return int(server.query(f"SELECT max(ums_id_) FROM {server.quote(table)}")[0][0] or 0)

    thread.start()
    try:
        eventually(lambda: newest() == 400, "the live flow has written what the history has", 120)
        writer = threading.Thread(target=jobs.send, args=(jobs.name, changes(table, 1000, 8, first=400)))
        writer.start()
        # What the target had lost comes back, while newer changes of the same keys arrive.
        server.query(f"DELETE FROM {server.quote(table)} WHERE ums_id_ <= 200")
        assert run_job(jobs.spark, refill(jobs, "beside", path, **jdbc(postgres), **{"source.tables": table})) == ""
        writer.join()
        eventually(lambda: newest() == 1400, "the live flow has written all", 120)
    finally:
        runner.stop("test")
        thread.join(60)
    expected: dict[int, tuple[Any, ...]] = {}
    for number, (_, value) in enumerate([*changes(table, 400, 7), *changes(table, 1000, 8, first=400)], 1):
        event = json.loads(value)
        row = event["after"] or event["before"]
        name = None if event["op"] == "d" else row["name"]
        expected[row["id"]] = (row["id"], name, number, 0 if event["op"] == "d" else 1)
    rows = server.query(
        f"SELECT id, CASE WHEN ums_active_ = 1 THEN name END, ums_id_, ums_active_ FROM {server.quote(table)} ORDER BY id"
    )
    assert rows == sorted(expected.values())


def test_a_time_range_of_a_history_into_another_history(jobs: Jobs) -> None:
    table = f"r{secrets.token_hex(4)}"
    path, copy = jobs.folder / "history", jobs.folder / "copy"
    jobs.send(jobs.name, [*changes(table, 90, 4), *changes(f"{table}_other", 9, 5)])
    keep = {"source.format": "debezium", "sink.type": "files", "sink.files.path": str(path)}
    assert jobs.run(jobs.name, **keep) == ""
    options = {
        "sink.type": "files",
        "sink.files.path": str(copy),
        "source.history.since": "2023-11-14T22:13:30Z",
        "source.history.until": "2023-11-14T22:14:20Z",
        "source.tables": f"shop.{table}*",
    }
    properties = refill(jobs, "range", path, **options)
    assert run_job(jobs.spark, properties) == ""
    columns = ["id", "name", "price", "ums_id_", "ums_ts_", "ums_op_", "ums_uid_"]
    where = "ums_ts_ >= '2023-11-14T22:13:30Z' AND ums_ts_ < '2023-11-14T22:14:20Z'"
    for name, count in ((f"shop.{table}", 50), (f"shop.{table}_other", 0)):
        expected = history.read(jobs.spark, str(path), name).where(where).select(*columns).collect()
        assert len(expected) == count
        if count:
            rows = history.read(jobs.spark, str(copy), name).select(*columns).collect()
            assert sorted(rows, key=repr) == sorted(expected, key=repr)
    assert run_job(jobs.spark, properties) == ""
    assert history.read(jobs.spark, str(copy), f"shop.{table}").count() == 50
    changed = properties | {"source.history.until": "2024-01-01"}
    assert "source.history.*: until changed since the job began to read the history" in run_job(jobs.spark, changed)
    nothing = refill(jobs, "nothing", path, **{"sink.type": "console", "source.tables": "stock.*"})
    assert f"no table of {path} is chosen by source.tables; there are: shop.{table}" in run_job(jobs.spark, nothing)


@pytest.mark.proves("from history", "exactly-once", killed=["driver"])
def test_a_refill_whose_driver_is_killed_while_the_history_is_compacted(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(jobs.folder / "home"))
    table = f"c{secrets.token_hex(4)}"
    path = jobs.folder / "history"
    keep = {"source.format": "debezium", "sink.type": "files", "sink.files.path": str(path)}
    for part in range(3):
        jobs.send(jobs.name, changes(table, 300, 10 + part, first=part * 300))
        assert jobs.run(jobs.name, **keep) == ""
    copy = jobs.folder / "copy"
    options = refill(
        jobs,
        "killed",
        path,
        **{
            "sink.type": "files",
            "sink.files.path": str(copy),
            "source.max.offsets.per.trigger": "150",
            "spark.master": "local[2]",
            "spark.driver.memory": "512m",
        },
    )
    first = Job(options, jobs.folder / "first")
    first.start()
    try:
        first.wait_rows(100, 300)
    finally:
        first.kill()
    # All files that the killed run may have known are merged and deleted.
    (directory,) = find_tables(jobs.spark, str(path))
    merged = commands.compact_table(jobs.spark, directory, replace(Rolling(), retention=0))
    assert merged["merged"] > 0, merged
    jobs.send(jobs.name, changes(table, 50, 20, first=900))
    assert jobs.run(jobs.name, **keep) == ""
    second = Job(options, jobs.folder / "second")
    second.start()
    try:
        assert second.process.wait(400) == 0, second.failure or second.log()
    finally:
        if second.process.poll() is None:
            second.kill()
    assert second.rows > 0
    columns = ["id", "name", "price", "ums_id_", "ums_ts_", "ums_op_", "ums_uid_"]
    expected = history.read(jobs.spark, str(path)).where("ums_id_ <= 900").select(*columns).collect()
    rows = history.read(jobs.spark, str(copy)).select(*columns).collect()
    assert len(expected) == 900
    assert sorted(rows, key=repr) == sorted(expected, key=repr)
