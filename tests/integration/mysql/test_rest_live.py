"""A worker with the connector: snapshots controlled over REST, lag, and ``millrace verify`` against what Kafka has."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.integration.mysql.captured_database import captured_database
from tests.support.eventually import eventually
from tests.support.verified import run_verify

if TYPE_CHECKING:
    from pathlib import Path

    from compose.local.mariadb import MariaDb


def test_snapshots_are_steered_and_the_topic_is_verified(mariadb: MariaDb, bootstrap: str, tmp_path: Path) -> None:
    name = f"live_{secrets.token_hex(4)}"
    statements = (
        "CREATE TABLE t (id BIGINT PRIMARY KEY, a INT NOT NULL, d DECIMAL(12,2), e DATETIME(3))",
        "INSERT INTO t SELECT seq, seq, seq / 7, NOW(3) FROM seq_1_to_5000",
    )
    options = {"connector.class": "io.debezium.connector.mariadb.MariaDbConnector", "snapshot.chunk.rows": "100"}
    with captured_database(mariadb, bootstrap, tmp_path, name, statements, options) as database:
        ask, cursor, worker = database.ask, database.cursor, database.worker

        def state(request: str) -> dict[str, Any]:
            return next(snapshot for snapshot in ask("GET", "snapshots") if snapshot["id"] == request)

        eventually(
            lambda: any(snapshot["state"] == "completed" for snapshot in ask("GET", "snapshots")),
            "the first snapshot ends",
        )
        for statement in (
            "UPDATE t SET a = a + 1 WHERE id < 100",
            "DELETE FROM t WHERE id = 4000",
            "UPDATE t SET id = 9000 WHERE id = 10",
        ):
            cursor.execute(statement)
        code, output = run_verify("--connector", name, "--rest", worker.url, "--bootstrap", bootstrap)
        assert code == 0, output
        assert "equal, 4999 rows in the source, 4999 on the topic" in output

        request = ask("POST", "snapshots", {"tables": [f"{name}.t"], "conditions": {f"{name}.t": "id < 2000"}})["id"]
        ask("PUT", f"snapshots/{request}/pause")
        eventually(lambda: state(request)["state"] in {"paused", "completed"}, "the snapshot is paused")
        ask("PUT", f"snapshots/{request}/resume")
        eventually(lambda: state(request)["state"] == "completed", "the snapshot is completed after the pause")
        assert state(request)["rows_done"] == 1998  # without 10, which has another key now
        other = ask("POST", "snapshots", {"tables": [f"{name}.t"]})["id"]
        ask("PUT", f"snapshots/{other}/cancel")
        eventually(lambda: state(other)["state"] in {"cancelled", "completed"}, "the snapshot is cancelled")
        ask("DELETE", f"snapshots/{request}")
        eventually(
            lambda: [snapshot["id"] for snapshot in ask("GET", "snapshots")] == ["initial", other],
            "the request is forgotten",
        )
        at = f"{datetime.now(UTC) - timedelta(hours=2):%H:%M}"
        tomorrow = ask("POST", "snapshots", {"tables": [f"{name}.t"], "start_at": at})
        worker.request("POST", f"/connectors/{name}/tasks/0/restart")
        worker.wait_running(name, 1)
        assert state(tomorrow["id"])["state"] == "scheduled"
        ask("DELETE", f"snapshots/{tomorrow['id']}")
        at = (datetime.now(UTC) + timedelta(seconds=3)).isoformat()
        soon = ask("POST", "snapshots", {"tables": [f"{name}.t"], "start_at": at})
        eventually(lambda: state(soon["id"])["state"] == "completed", "the scheduled snapshot is completed")
        shown = state(soon["id"])
        assert shown["tables"][0]["started_ms"] >= shown["start_ms"] == soon["start_ms"]
        assert shown["rows_done"] == 4999
        ask("DELETE", f"snapshots/{soon['id']}")
        eventually(lambda: ask("GET", "lag")["bytes_behind"] == 0, "it has read everything")
        assert [(table["table"], table["version"]) for table in ask("GET", "tables")] == [(f"{name}.t", 1)]
        # What the log does not have is not sent, until somebody asks for it.
        for statement in ("SET sql_log_bin = 0", "INSERT INTO t VALUES (9500, 1, 1, NOW(3))", "SET sql_log_bin = 1"):
            cursor.execute(statement)
        command = ("--connector", name, "--rest", worker.url, "--bootstrap", bootstrap)
        code, output = run_verify(*command, "--repair")
        assert code == 1, output
        assert "sends again" in output
        repair = next(row for row in ask("GET", "snapshots") if row["priority"] == 1)["id"]
        eventually(lambda: state(repair)["state"] == "completed", "the row is sent")
        assert state(repair)["rows_done"] == 1
        code, output = run_verify(*command)
        assert code == 0, output
