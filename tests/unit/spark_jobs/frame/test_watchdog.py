"""Calls that do not return: reported once, by one thread, and a process that is ended says why."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spark_jobs.spark.watchdog import EXIT_CODE, SIGN, Watchdog

_WAIT_S = 30


def test_a_call_that_overstays_is_reported_and_others_are_not() -> None:
    reported: list[str] = []
    heard = threading.Event()
    threads = set(threading.enumerate())

    def report(reason: str) -> None:
        reported.append(reason)
        heard.set()

    dog = Watchdog(report, grace_s=0.05)
    with dog.limit("quick", 60):
        pass
    # The thread already waits for a later deadline when the short one comes.
    with dog.limit("outer", 600), dog.limit("inner", 0.0):
        assert heard.wait(_WAIT_S)
    assert reported == ["inner did not return within 0.05 s"]
    heard.clear()
    with dog.limit("second", 0.1):
        assert heard.wait(_WAIT_S)
    assert reported[1:] == ["second did not return within 0.15 s"]
    assert [thread.name for thread in threading.enumerate() if thread not in threads].count("watchdog") == 1


def test_an_error_in_the_block_ends_the_watch() -> None:
    dog = Watchdog(lambda _: None, grace_s=60)
    with pytest.raises(ValueError, match="x"), dog.limit("failing", 60):
        raise ValueError("x")
    assert dog._calls == {}


_HANGING = """
import ctypes
from spark_jobs.spark import watchdog
dog = watchdog.Watchdog(watchdog.end_process, grace_s=0.1)
with dog.limit("pause of job-0", 0.1):
    ctypes.CDLL(None).pause()  # no signal comes: without a watchdog this never returns
"""


def test_a_process_that_hangs_in_c_ends_and_says_why(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HANGING],
        check=False,
        capture_output=True,
        text=True,
        timeout=_WAIT_S,
        cwd=Path(__file__).parents[4],
        env={**os.environ, "PYTHON_FAULTHANDLER_DIR": str(tmp_path)},
    )
    assert done.returncode == EXIT_CODE, done.stderr
    assert done.stderr.startswith(f"{SIGN} pause of job-0 did not return within 0.2 s; this Python worker")
    (crash,) = tmp_path.iterdir()
    assert crash.read_text() == done.stderr
