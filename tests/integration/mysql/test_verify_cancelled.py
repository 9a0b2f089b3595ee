"""A verification over REST whose process is killed: by the worker, which cancels it, and by the system."""

from __future__ import annotations

import os
import secrets
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compose.local.worker import MillraceWorker
from tests.integration.mysql.changes_world import Source
from tests.support.eventually import eventually

if TYPE_CHECKING:
    import pytest

    from tests.conftest import HasMariaDb


def find_process(folder: Path) -> int | None:
    """The process of a verification whose temporary files are in a folder."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (path / "cmdline").read_bytes().split(b"\0")
            environment = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"worker.verify.process" in arguments and f"TMPDIR={folder}".encode() in environment:
            return int(path.name)
    return None


def test_a_killed_verification_leaves_no_files(
    mariadb: HasMariaDb, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    name = f"cancelled_{secrets.token_hex(4)}"
    source = Source(mariadb, name)
    source.sql("CREATE TABLE a (id BIGINT PRIMARY KEY)", "INSERT INTO a SELECT seq FROM seq_1_to_5000")
    with MillraceWorker(tmp_path, bootstrap, group=name, port=None, processes=1) as worker:
        worker.create(name, source.config(snapshot__mode="no_data"))
        path = f"/connectors/{name}/verify"

        def ask() -> Any:
            return worker.request("GET", path)[1]

        def start() -> None:
            """Start one that reads a row per second, and wait until it has its files."""
            assert worker.request("POST", path, {"rows_per_s": 1})[0] == 202
            eventually(lambda: any(temporary.rglob("source0")), "rows are read", detail=ask)

        start()
        assert worker.request("DELETE", path)[0] == 204
        assert ask()["state"] == "cancelled"
        assert not list(temporary.glob("millrace-verify-*"))
        start()
        process = find_process(temporary)
        assert process is not None
        os.kill(process, signal.SIGKILL)
        failed = eventually(lambda: (run := ask())["state"] == "failed" and run, "its end is noticed", detail=ask)
        assert "The process that compared ended (exit code -9)" in failed["error"]
        assert not list(temporary.glob("millrace-verify-*"))
    source.sql(f"DROP DATABASE {name}")
