"""A demo or a soak that is interrupted on the way takes down what it started, however it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from compose.soak.processes import find_processes
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pathlib import Path

LIMIT_S = 180.0


@pytest.mark.timeout(800)
@pytest.mark.parametrize(
    ("command", "moment", "number", "code"),
    [
        # Some servers are ready, others start.
        ("demo", "PostgreSQL is ready", signal.SIGINT, 130),
        ("demo", "worker 1 is ready", signal.SIGTERM, 130),
        pytest.param("demo", "worker 1 is ready", signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param("soak", "two workers are ready", signal.SIGTERM, 130, marks=pytest.mark.slow),
    ],
)
def test_nothing_of_an_interrupted_demo_is_left_running(
    tmp_path: Path, command: str, moment: str, number: signal.Signals, code: int
) -> None:
    folder, output = tmp_path / "tmp", tmp_path / "output"
    folder.mkdir()
    arguments = [command, "-v"] if command == "demo" else [command]
    # Programs that a shell starts in the background ignore SIGINT, and so would all that they start.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    with output.open("wb") as written:
        program = subprocess.Popen(
            [sys.executable, "-m", "worker.cli", *arguments],
            stdout=written,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(folder)},
        )
    signal.signal(signal.SIGINT, former)
    try:
        eventually(lambda: moment in output.read_text() or program.poll() is not None, moment, LIMIT_S)
        assert find_processes(str(folder)), output.read_text()
        program.send_signal(number)
        assert program.wait(LIMIT_S) == code, output.read_text()
    finally:
        program.kill()
    eventually(lambda: not find_processes(str(folder)), "nothing runs", 30)
    # A program that is killed can't remove its files.
    assert number is signal.SIGKILL or not list(folder.iterdir())
