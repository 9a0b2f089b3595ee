"""A task host that is killed while an XA transaction is prepared whose rows it has sent."""

from __future__ import annotations

import os
import secrets
import signal
from typing import TYPE_CHECKING

from tests.integration.mysql.captured_database import captured_database
from tests.support.eventually import eventually
from tests.support.verified import run_verify

if TYPE_CHECKING:
    from pathlib import Path

    from compose.local.mariadb import MariaDb


def test_a_snapshot_after_the_kill_brings_no_row_back(mariadb: MariaDb, bootstrap: str, tmp_path: Path) -> None:
    name = f"xakill_{secrets.token_hex(4)}"
    statements = ("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    options = {"connector.class": "mysql"}
    with captured_database(mariadb, bootstrap, tmp_path, name, statements, options) as database:
        ask, cursor, worker = database.ask, database.cursor, database.worker

        def state(request: str) -> str:
            return next((snapshot["state"] for snapshot in ask("GET", "snapshots") if snapshot["id"] == request), "")

        def saved_positions() -> list[tuple[str, int]]:
            offsets = [entry["offset"] for entry in ask("GET", "offsets")["offsets"]]
            return [(offset["file"], offset["pos"]) for offset in offsets if "file" in offset]

        eventually(lambda: state("initial") == "completed", "the first snapshot ends")
        for statement in (
            "XA START 'k'",
            "UPDATE t SET v = 9 WHERE id = 1",
            "DELETE FROM t WHERE id = 2",
            "XA END 'k'",
            "XA PREPARE 'k'",
            "SHOW MASTER STATUS",
        ):
            cursor.execute(statement)
        ((file, pos, *_),) = cursor.fetchall()
        eventually(lambda: any(at >= (file, pos) for at in saved_positions()), "the position behind it is saved")
        (host,) = worker.hosts()
        os.kill(host, signal.SIGKILL)
        eventually(lambda: worker.hosts() not in ([], [host]), "another host is there")
        worker.wait_running(name, 1)
        request = ask("POST", "snapshots", {"tables": [f"{name}.t"]})["id"]
        eventually(lambda: state(request) in {"running", "completed"}, "the snapshot begins")
        cursor.execute("XA COMMIT 'k'")
        eventually(lambda: state(request) == "completed", "the snapshot ends")
        code, output = run_verify("--connector", name, "--rest", worker.url, "--bootstrap", bootstrap)
        assert code == 0, output
        assert "equal, 2 rows in the source, 2 on the topic" in output
