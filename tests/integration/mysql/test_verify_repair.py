"""Verifications of a running connector: on a schedule, repaired by its own snapshots, continued after a restart, as metrics."""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from compose.local.worker import MillraceWorker
from tests.support.eventually import eventually
from tests.support.verified import run_verify, tables, verify

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pymysql.cursors import Cursor

    from compose.local.mariadb import MariaDb


@contextmanager
def start_shop(server: MariaDb, name: str, statements: Iterable[str]) -> Iterator[Cursor]:
    """Create a database and run statements in it; gives the cursor."""
    connection = pymysql.connect(
        host="127.0.0.1", port=int(server.port or 0), user=server.user, password=server.password, autocommit=True
    )
    with closing(connection), connection.cursor() as cursor:
        for statement in (f"CREATE DATABASE {name}", f"USE {name}", *statements):
            cursor.execute(statement)
        yield cursor


def start_worker(folder: Path, bootstrap: str, group: str) -> MillraceWorker:
    return MillraceWorker(
        folder, bootstrap, group=group, port=None, processes=1, properties={"offset.flush.interval.ms": "300"}
    )


def source_config(server: MariaDb, database: str) -> dict[str, str]:
    """A connector for all tables of a database, with its name as the topics' prefix."""
    return {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "topic.prefix": database,
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password,
        "database.include.list": database,
    }


@pytest.mark.slow
def test_what_differs_is_sent_again_and_a_restart_is_survived(mariadb: MariaDb, bootstrap: str, tmp_path: Path) -> None:
    name = f"repair_{secrets.token_hex(4)}"
    statements = (
        "CREATE TABLE a (id BIGINT PRIMARY KEY, v INT)",
        "CREATE TABLE b (id VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY, v INT)",
        "INSERT INTO a SELECT seq, seq FROM seq_1_to_2000",
        "INSERT INTO b SELECT CONCAT('k''', seq), seq FROM seq_1_to_2000",
    )
    with start_shop(mariadb, name, statements) as cursor, start_worker(tmp_path, bootstrap, name) as worker:
        config = source_config(mariadb, name)
        worker.create(name, config)

        def ask(method: str, path: str, body: Any = None) -> Any:
            status, answer = worker.request(method, f"/connectors/{name}/{path}", body)
            assert status < 300, answer
            return answer

        assert verify(worker, name)["equal"]
        assert worker.request("POST", f"/connectors/{name}/verify/repair")[0] == 409
        # Rows that the log does not have are never sent: they are missing, and one is different.
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute("INSERT INTO a VALUES (7000, 1)")
        cursor.execute("UPDATE b SET v = -1 WHERE id = 'k''7'")
        cursor.execute("SET sql_log_bin = 1")
        compared = tables(verify(worker, name))
        assert (compared["a"]["missing"], compared["b"]["different"]) == (1, 1)
        assert compared["a"]["condition"] == "(`id` = 7000)"
        metrics = worker.request("GET", "/metrics")[1]
        assert f'millrace_verify_missing_rows{{connector="{name}"}} 1' in metrics
        assert f'millrace_verify_different_rows{{connector="{name}"}} 1' in metrics
        snapshot = ask("POST", "verify/repair")
        eventually(
            lambda: ask("GET", f"snapshots/{snapshot['id']}")["state"] == "completed",
            "the rows are sent again",
            detail=lambda: ask("GET", "snapshots"),
        )
        # Only the two rows, by their keys.
        assert ask("GET", f"snapshots/{snapshot['id']}")["rows_done"] == 2
        assert verify(worker, name)["equal"]

        # A slow one is continued by the next leader, with what is compared already.
        assert worker.request("POST", f"/connectors/{name}/verify", {"rows_per_s": 1000})[0] == 202
        first = eventually(
            lambda: next(
                (run for run in [ask("GET", "verify")] if run["result"] and len(run["result"]["tables"]) == 1), None
            ),
            "one of two tables is compared",
            detail=lambda: ask("GET", "verify"),
        )
        assert first["state"] == "running"
        worker.stop()
        worker.start()
        eventually(
            lambda: worker.request("GET", f"/connectors/{name}/verify")[0] == 200,
            "the worker answers",
            ignore=(OSError,),
        )
        continued = ask("GET", "verify")
        assert continued["started_ms"] == first["started_ms"]
        assert continued["result"]["tables"][0] == first["result"]["tables"][0]
        eventually(
            lambda: ask("GET", "verify")["state"] == "completed", "it is completed", detail=lambda: ask("GET", "verify")
        )
        assert [table["table"] for table in ask("GET", "verify")["result"]["tables"]] == [f"{name}.a", f"{name}.b"]

        # On a schedule, with repairs.
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute("DELETE FROM b WHERE id = 'k''8'")
        cursor.execute("INSERT INTO a VALUES (7001, 1)")
        cursor.execute("SET sql_log_bin = 1")
        worker.create(
            name, {**config, "verify.interval.ms": "1000", "verify.repair": "true", "verify.tables": r".*\.a"}
        )
        repaired = eventually(
            lambda: next((run for run in [ask("GET", "verify")] if run["repair"]), None),
            "a scheduled verification is repaired",
            detail=lambda: ask("GET", "verify"),
        )
        assert repaired["tables"] == r".*\.a"
        eventually(
            lambda: (run := ask("GET", "verify"))["state"] == "completed" and run["result"]["equal"],
            "the next one finds nothing",
            detail=lambda: ask("GET", "verify"),
        )
        assert ask("GET", "verify")["next_ms"] is None or ask("GET", "verify")["next_ms"] > repaired["started_ms"]
        worker.create(name, config)
        ask("DELETE", "verify")
        # A row that only the topic has is not repaired.
        compared = tables(verify(worker, name))
        assert compared["b"]["extra"] == 1
        assert re.search(r"extra|only", worker.request("POST", f"/connectors/{name}/verify/repair")[1]["message"])
        cursor.execute(f"DROP DATABASE {name}")


@pytest.mark.slow
def test_rows_that_a_target_lacks_come_again_through_the_pipeline(
    mariadb: MariaDb, bootstrap: str, tmp_path: Path
) -> None:
    """The flow's source connector sends them, and a real Spark job writes them."""
    name = f"target_{secrets.token_hex(4)}"
    target = tmp_path / "target.db"
    statements = (
        "CREATE TABLE a (id BIGINT PRIMARY KEY, v INT)",
        "INSERT INTO a SELECT seq, seq FROM seq_1_to_20",
    )
    with start_shop(mariadb, name, statements) as cursor, start_worker(tmp_path, bootstrap, name) as worker:
        worker.create(name, source_config(mariadb, name))
        flow = f"{name}-flow"
        worker.create(
            flow,
            {
                "connector.class": "spark",
                "source.topics": f"{name}.{name}.a",
                "source.format": "debezium",
                "checkpoint.location": str(tmp_path / "checkpoint"),
                "kafka.bootstrap.servers": bootstrap,
                "sink.type": "jdbc",
                "sink.jdbc.url": f"jdbc:sqlite:{target}",
                "sink.jdbc.table": "copy",
                "spark.driver.memory": "512m",
            },
        )

        def copied() -> dict[int, int]:
            with closing(sqlite3.connect(target)) as copies:
                return dict(copies.execute("SELECT id, v FROM copy WHERE ums_active_ = 1"))

        whole = {number: number for number in range(1, 21)}
        eventually(lambda: copied() == whole, "the flow has copied the table", within=180, ignore=(sqlite3.Error,))
        with closing(sqlite3.connect(target)) as copies:
            copies.execute("DELETE FROM copy WHERE id = 7")
            copies.execute("UPDATE copy SET v = -1 WHERE id = 8")
            copies.commit()
        command = ("--connector", flow, "--rest", worker.url, "--bootstrap", bootstrap, "--settle", "0.2")
        code, output = run_verify(*command, "--repair")
        assert code == 1, output
        assert f"of {name} sends again" in output
        eventually(lambda: copied() == whole, "the rows are in the target again", within=60, ignore=(sqlite3.Error,))
        code, output = run_verify(*command, "--json")
        assert code == 0, output
        assert json.loads(output)["equal"]
        worker.request("DELETE", f"/connectors/{flow}")
        cursor.execute(f"DROP DATABASE {name}")


def test_what_a_repair_is_under_way_for_is_not_asked_for_once_more(
    mariadb: MariaDb, bootstrap: str, tmp_path: Path
) -> None:
    """Each scheduled verification of a paused connector finds the same row; when it resumes, the row comes once."""
    name = f"repeated_{secrets.token_hex(4)}"
    statements = ("CREATE TABLE a (id BIGINT PRIMARY KEY, v INT)", "INSERT INTO a SELECT seq, seq FROM seq_1_to_20")
    with start_shop(mariadb, name, statements) as cursor, start_worker(tmp_path, bootstrap, name) as worker:
        config = source_config(mariadb, name)
        worker.create(name, config)

        def ask(path: str) -> Any:
            return worker.request("GET", f"/connectors/{name}/{path}")[1]

        assert verify(worker, name)["equal"]
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute("INSERT INTO a VALUES (7000, 1)")
        worker.request("PUT", f"/connectors/{name}/pause")
        eventually(
            lambda: ask("status")["connector"]["state"] == "PAUSED", "it is paused", detail=lambda: ask("status")
        )
        worker.create(name, {**config, "verify.interval.ms": "1000", "verify.repair": "true"})
        repairs: dict[int, str] = {}

        def add_repair() -> bool:
            run = ask("verify")
            if run["repair"]:
                repairs[run["started_ms"]] = run["repair"]
            return len(repairs) == 3

        eventually(add_repair, "three verifications find the row", within=120, detail=lambda: ask("verify"))
        assert len(set(repairs.values())) == 1
        assert len([row for row in ask("snapshots") if row["state"] != "completed"]) == 1
        worker.request("PUT", f"/connectors/{name}/resume")
        eventually(
            lambda: (run := ask("verify"))["state"] == "completed" and run["result"]["equal"],
            "the row is sent",
            within=60,
            detail=lambda: ask("verify"),
        )
        cursor.execute(f"DROP DATABASE {name}")
