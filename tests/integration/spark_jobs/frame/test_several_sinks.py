"""A flow with several sinks on real servers: one is unavailable, the others continue; nothing is lost or repeated."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import json
import random
import secrets
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.ports import free_port
from spark_jobs import history
from spark_jobs.cli import describe_job
from spark_jobs.savepoints import commands
from spark_jobs.savepoints.manifest import read_manifest
from spark_jobs.spark.checkpoint import LocalFolder
from spark_jobs.testing.gate import Gate
from tests.integration.spark_jobs.jdbc.conftest import database
from tests.support.eventually import eventually
from tests.support.job_process import Job

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from compose.local.postgres import Postgres
    from tests.integration.spark_jobs.frame.bench import Bench


class Shop:
    """A source table as a model: its changes go to a topic, a key always to the same partition."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench = bench
        self.topic = bench.topic(2)
        self.table = f"shop{secrets.token_hex(4)}"
        self.rows: dict[int, str] = {}
        self.changes: list[tuple[int, str, int]] = []
        self._random = random.Random(seed)

    def change(self, count: int) -> None:
        """Insert, update and delete rows."""
        for _ in range(count):
            key = self._random.randrange(40)
            number = len(self.changes) + 1
            op = "c" if key not in self.rows else self._random.choice("uud")
            before = {"id": key, "name": self.rows.get(key)} if op != "c" else None
            after = None if op == "d" else {"id": key, "name": f"n{number}"}
            if after is None:
                del self.rows[key]
            else:
                self.rows[key] = str(after["name"])
            source = {"db": "d", "table": self.table, "ums_id": number, "ts_ms": number}
            value = json.dumps({"op": op, "before": before, "after": after, "source": source})
            self.bench.producer.produce(self.topic, value, json.dumps({"id": key}), key % 2)
            self.changes.append((key, "d" if op == "d" else "iu"["cu".index(op)], number))
        assert self.bench.producer.flush(30) == 0


def position(job: str) -> int:
    """Records that a sink's job has done."""
    progress = describe_job(job).get("progress") or {}
    return sum(offset for offsets in progress.get("position", {}).values() for offset in offsets.values())


def flow(bench: Bench, shop: Shop, gate: Gate, postgres: Postgres, folder: Path, **more: Any) -> dict[str, Any]:
    job = bench.job(shop.topic)
    return {
        **{name: value for name, value in job.items() if not name.startswith("sink.")},
        "source.format": "debezium",
        "errors.retry.delay.max.ms": "500",
        "sinks": [
            {
                "name": "database",
                "type": "jdbc",
                "jdbc": {
                    "url": f"jdbc:postgresql://{gate.address}/{postgres.database}",
                    "user": postgres.user,
                    "password": postgres.password,
                    "retries": 0,
                },
            },
            {"name": "history", "type": "files", "files": {"path": str(folder / "history")}},
        ],
        **more,
    }


@pytest.mark.slow
def test_a_database_that_is_away_holds_up_no_other_sink(
    bench: Bench, postgres: Postgres, spark: SparkSession, tmp_path: Path
) -> None:
    shop = Shop(bench, 1)
    port = free_port()
    with Gate("127.0.0.1", _port(postgres)) as gate:
        config = flow(bench, shop, gate, postgres, tmp_path, **{"metrics.port": port})
        names = [f"{config['name']}.{sink}" for sink in ("database", "history")]
        shop.change(100)
        job = Job(config, tmp_path / "run")
        job.start()
        try:
            eventually(
                lambda: [position(name) for name in names] == [100, 100], "both sinks have all", 120, detail=job.log
            )
            with gate.closed():
                shop.change(150)
                eventually(lambda: position(names[1]) == 250, "the history continues", detail=job.log)
                eventually(lambda: describe_job(names[0])["state"] == "retrying", "the database is tried again")
                assert (position(names[0]), describe_job(names[1])["state"]) == (100, "running")
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                    shown = answer.read().decode().splitlines()
                label = f'{{job="{config["name"]}",sink='
                assert f'millrace_job_retrying{label}"database"}} 1' in shown
                assert f'millrace_job_retrying{label}"history"}} 0' in shown
                # Everything is killed while the sinks are apart.
                job.kill()
                shop.change(50)
                job = Job(config, tmp_path / "run")
                job.start()
                eventually(lambda: position(names[1]) == 300, "the history continues", 120, detail=job.log)
            eventually(lambda: position(names[0]) == 300, "the database has all", 120, detail=job.log)
            assert job.stop() == 0
        finally:
            if job.process.poll() is None:
                job.kill()
    rows_found = database(postgres.url, postgres.user, postgres.password).query(
        f"SELECT id, name FROM {shop.table} WHERE ums_active_ = 1 ORDER BY id"
    )
    assert rows_found == sorted(shop.rows.items())
    written = history.read(spark, str(tmp_path / "history"), f"d.{shop.table}")
    rows = sorted((row["id"], row["ums_op_"], row["ums_id_"]) for row in written.collect())
    assert rows == sorted(shop.changes)  # each change once


@pytest.mark.slow  # another process with Spark; the unit tests have the decision
def test_a_sink_waits_for_another_at_the_bound(bench: Bench, postgres: Postgres, tmp_path: Path) -> None:
    shop = Shop(bench, 2)
    more = {"sinks.max.lag.records": 60, "source.max.offsets.per.trigger": 20}
    with Gate("127.0.0.1", _port(postgres)) as gate:
        config = flow(bench, shop, gate, postgres, tmp_path, **more)
        slow, fast = (f"{config['name']}.{sink}" for sink in ("database", "history"))
        shop.change(20)
        job = Job(config, tmp_path / "run")
        job.start()
        try:
            eventually(
                lambda: [position(name) for name in (slow, fast)] == [20, 20], "both have all", 120, detail=job.log
            )
            with gate.closed():
                shop.change(400)
                eventually(lambda: describe_job(fast)["state"] == "retrying", "the history waits", detail=job.log)
                waiting = describe_job(fast)["retrying"]
                assert waiting["part"] == "sinks"
                assert "waits for the sink database" in waiting["error"]
                # It has passed the bound, by one batch at most. The batch before the wait may be reported after it.
                eventually(lambda: position(fast) > 20 + 60, "the last batch is reported", detail=job.log)
                assert position(fast) <= 20 + 60 + 20
                # While it waits, it makes a savepoint of what it has done.
                assert commands.main([fast, "--to", str(tmp_path / "savepoint"), "--timeout", "60"]) == 0
                manifest = read_manifest(LocalFolder(tmp_path / "savepoint"), "savepoint")
                assert manifest.batch == describe_job(fast)["progress"]["batch"]
            eventually(
                lambda: [position(name) for name in (slow, fast)] == [420, 420], "both go on", 120, detail=job.log
            )
            assert job.stop() == 0
        finally:
            if job.process.poll() is None:
                job.kill()


def _port(postgres: Postgres) -> int:
    assert postgres.port is not None
    return postgres.port
