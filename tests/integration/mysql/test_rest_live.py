"""A worker with the connector: full pulls steered over REST, lag, and ``millrace verify`` against what Kafka has."""
from __future__ import annotations

import asyncio
import secrets
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pymysql

from compose.local.worker import MillraceWorker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.mariadb import MariaDb


def until(condition: Callable[[], bool], what: str, limit: float = 60.0) -> None:
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


async def verify(*arguments: str) -> tuple[int | None, str]:
    """Exit code and output of the command."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "worker.cli", "verify", *arguments,
                                                   stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    output, _ = await process.communicate()
    return process.returncode, output.decode()


def test_pulls_are_steered_and_the_topic_is_verified(mariadb: MariaDb, bootstrap: str, tmp_path: Path) -> None:
    name = f"live_{secrets.token_hex(4)}"
    with closing(pymysql.connect(host="127.0.0.1", port=int(mariadb.port or 0), user=mariadb.user, password=mariadb.password,
                                 autocommit=True)) as connection, connection.cursor() as cursor, \
            MillraceWorker(tmp_path, bootstrap, group=name, port=None, processes=1,
                           properties={"offset.flush.interval.ms": "300"}) as worker:
        for statement in (f"CREATE DATABASE {name}", f"USE {name}",
                          "CREATE TABLE t (id BIGINT PRIMARY KEY, a INT NOT NULL, d DECIMAL(12,2), e DATETIME(3))",
                          "INSERT INTO t SELECT seq, seq, seq / 7, NOW(3) FROM seq_1_to_5000"):
            cursor.execute(statement)
        worker.create(name, {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector", "topic.prefix": name,
            "database.hostname": "127.0.0.1", "database.port": str(mariadb.port), "database.user": mariadb.user,
            "database.password": mariadb.password, "database.include.list": name, "snapshot.chunk.rows": "100"})

        def ask(method: str, path: str, body: Any = None) -> Any:
            status, answer = worker.request(method, f"/connectors/{name}/{path}", body)
            assert status < 300, answer
            return answer

        def state(request: str) -> dict[str, Any]:
            return next(each for each in ask("GET", "snapshots") if each["id"] == request)

        until(lambda: any(each["state"] == "completed" for each in ask("GET", "snapshots")), "the first pull does not end")
        for statement in ("UPDATE t SET a = a + 1 WHERE id < 100", "DELETE FROM t WHERE id = 4000",
                          "UPDATE t SET id = 9000 WHERE id = 10"):
            cursor.execute(statement)
        code, output = asyncio.run(verify("--connector", name, "--rest", worker.url, "--bootstrap", bootstrap))
        assert code == 0, output
        assert "equal, 4999 rows in the source, 4999 on the topic" in output

        request = ask("POST", "snapshots", {"tables": [f"{name}.t"], "conditions": {f"{name}.t": "id < 2000"}})["id"]
        ask("PUT", f"snapshots/{request}/pause")
        until(lambda: state(request)["state"] in {"paused", "completed"}, "the pull does not pause")
        ask("PUT", f"snapshots/{request}/resume")
        until(lambda: state(request)["state"] == "completed", "the pull does not go on")
        assert state(request)["rows_done"] == 1998  # without 10, which has another key now
        other = ask("POST", "snapshots", {"tables": [f"{name}.t"]})["id"]
        ask("PUT", f"snapshots/{other}/cancel")
        until(lambda: state(other)["state"] in {"cancelled", "completed"}, "the pull is not cancelled")
        ask("DELETE", f"snapshots/{request}")
        until(lambda: [each["id"] for each in ask("GET", "snapshots")] == ["initial", other], "the request is not forgotten")
        at = f"{datetime.now(UTC) - timedelta(hours=2):%H:%M}"
        tomorrow = ask("POST", "snapshots", {"tables": [f"{name}.t"], "start_at": at})
        worker.request("POST", f"/connectors/{name}/tasks/0/restart")
        worker.wait_running(name, 1)
        assert state(tomorrow["id"])["state"] == "scheduled"
        ask("DELETE", f"snapshots/{tomorrow['id']}")
        at = (datetime.now(UTC) + timedelta(seconds=3)).isoformat()
        soon = ask("POST", "snapshots", {"tables": [f"{name}.t"], "start_at": at})
        until(lambda: state(soon["id"])["state"] == "completed", "the scheduled pull does not begin")
        shown = state(soon["id"])
        assert shown["tables"][0]["started_ms"] >= shown["start_ms"] == soon["start_ms"]
        assert shown["rows_done"] == 4999
        ask("DELETE", f"snapshots/{soon['id']}")
        until(lambda: ask("GET", "lag")["bytes_behind"] == 0, "it does not say that it has read everything")
        assert [(each["table"], each["version"]) for each in ask("GET", "tables")] == [(f"{name}.t", 1)]
        cursor.execute(f"DROP DATABASE {name}")
