"""A scheduled verification whose worker is killed: the worker that starts in its place continues it, and the schedule."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.worker import MillraceWorker
from tests.integration.mysql.changes_world import Source
from tests.integration.mysql.test_verify_cancelled import find_process
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.conftest import HasMariaDb


@pytest.mark.slow
def test_a_scheduled_verification_survives_the_kill_of_its_worker(
    mariadb: HasMariaDb, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    name = f"killed_{secrets.token_hex(4)}"
    source = Source(mariadb, name)
    source.sql(
        "CREATE TABLE a (id BIGINT PRIMARY KEY, v INT)",
        "CREATE TABLE b (id BIGINT PRIMARY KEY, v INT)",
        "INSERT INTO a SELECT seq, seq FROM seq_1_to_1000",
        "INSERT INTO b SELECT seq, seq FROM seq_1_to_3000",
    )
    config = source.config(
        table__include__list=rf"{name}\.(a|b)", verify__interval__ms="3000", verify__rows__per__second="500"
    )
    with MillraceWorker(
        tmp_path, bootstrap, group=name, port=None, processes=1, properties={"offset.flush.interval.ms": "300"}
    ) as worker:
        worker.create(name, config)
        path = f"/connectors/{name}/verify"

        def ask() -> Any:
            return worker.request("GET", path)[1]

        def wait_running(tables: int, after_ms: int) -> Any:
            """Wait for a run that was started later and has compared this many tables."""

            def run_of(body: Any) -> Any:
                compared = len((body.get("result") or {"tables": ()})["tables"])
                return body.get("state") == "running" and compared == tables and body["started_ms"] > after_ms and body

            return eventually(lambda: run_of(ask()), f"{tables} of two tables are compared", within=60, detail=ask)

        first = wait_running(1, 0)
        process = find_process(temporary)
        assert process is not None
        worker.kill_control()
        eventually(lambda: not Path(f"/proc/{process}").exists(), "its process has ended", within=30)
        assert not list(temporary.glob("millrace-verify-*"))
        worker.stop()
        worker.start()
        ended = eventually(
            lambda: (run := ask())["state"] == "completed" and run,
            "it is completed",
            within=60,
            detail=ask,
            ignore=(OSError, KeyError),
        )
        assert ended["started_ms"] == first["started_ms"]
        assert ended["result"]["tables"][0] == {**first["result"]["tables"][0], "differences": []}
        # The connector sends changes only, and there were none.
        assert [(table["table"], table["missing"]) for table in ended["result"]["tables"]] == [
            (f"{name}.a", 1_000),
            (f"{name}.b", 3_000),
        ]
        second = wait_running(0, first["started_ms"])
        assert worker.request("DELETE", path)[0] == 204
        assert ask()["state"] == "cancelled"
        wait_running(0, second["started_ms"])
    source.sql(f"DROP DATABASE {name}")
