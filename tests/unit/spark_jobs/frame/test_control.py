"""Locks and leases: one run at a time, also after a kill."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spark_jobs.cli import main, status_table
from spark_jobs.config.job_files import build_job
from spark_jobs.control import (
    LEASE_FILE,
    AlreadyRuns,
    CheckpointLease,
    Control,
    FileLock,
    is_alive,
    lock_job,
    process_age,
)
from spark_jobs.job import control_folder
from spark_jobs.spark.checkpoint import LocalFolder, local_path
from tests.support.eventually import eventually

HOLDER = """
import sys
from pathlib import Path
from spark_jobs.control import FileLock
lock = FileLock(Path(sys.argv[1]))
lock.acquire("it")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    assert not FileLock.is_locked(path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert FileLock.is_locked(path)
        with pytest.raises(AlreadyRuns, match=rf"job x is in use by process {other.pid} on "):
            FileLock(path).acquire("job x")
        other.kill()
    assert not FileLock.is_locked(path)
    mine = FileLock(path)
    mine.acquire("job x")
    assert path.read_text() == f"process {os.getpid()} on {socket.gethostname()}"
    mine.release()
    mine.acquire("job x")


def test_a_question_about_a_lock_refuses_no_process(tmp_path: Path) -> None:
    """``millrace job status`` next to a job that starts."""
    path = tmp_path / "lock"
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            FileLock.is_locked(path)

    askers = [threading.Thread(target=ask) for _ in range(2)]
    path.touch()
    for asker in askers:
        asker.start()
    try:
        for _ in range(100):
            lock = FileLock(path)
            lock.acquire("job x")
            lock.release()
    finally:
        ended.set()
        for asker in askers:
            asker.join()


def test_two_questions_about_a_lock_do_not_mislead_each_other(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with ThreadPoolExecutor(2) as pool:
        assert not any(pool.map(FileLock.is_locked, [path] * 1000))


def test_processes_are_identified_by_their_age() -> None:
    assert is_alive(os.getpid(), process_age(os.getpid()))
    assert not is_alive(os.getpid(), "1")
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        age = process_age(gone.pid)
    assert not is_alive(gone.pid, age or "1")


def test_whoever_locks_a_job_waits_for_the_jvm_of_a_run_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    properties = {
        "name": "orders",
        "kafka.bootstrap.servers": "h:1",
        "source.topics": "a",
        "source.format": "debezium",
        "sink.type": "console",
        "state.dir": str(tmp_path / "state"),
        "checkpoint.location": str(tmp_path / "checkpoint"),
    }
    job = build_job(properties)
    control = Control(job.folder)
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as jvm,
        ThreadPoolExecutor(1) as pool,
    ):
        age = process_age(jvm.pid)
        control.write({"jvm": {"pid": jvm.pid, "age": age}})

        def end_jvm() -> None:
            """End it when someone waits for it."""
            eventually(control.running, "the job to be locked")
            jvm.communicate()

        pool.submit(end_jvm)
        with lock_job(job):
            assert not is_alive(jvm.pid, age)
            assert control.running()
    assert not control.running()


def test_a_lease_has_one_holder(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    now = [1000.0]
    first = CheckpointLease(folder, lost=print, clock=lambda: now[0])
    first.acquire("checkpoint", settle_s=0)
    second = CheckpointLease(folder, lost=print, clock=lambda: now[0])
    with pytest.raises(AlreadyRuns, match="runs out in 60 s"):
        second.acquire("checkpoint", settle_s=0)
    now[0] += 61  # the first one's host is gone
    second.acquire("checkpoint", settle_s=0)
    first.release()  # it is not the holder any more: it leaves the other's lease alone
    assert (tmp_path / LEASE_FILE).exists()
    second.release()
    assert not (tmp_path / LEASE_FILE).exists()


def test_a_lease_of_a_dead_process_of_this_machine_is_over(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    (tmp_path / LEASE_FILE).write_text(
        json.dumps({"id": "x", "host": socket.gethostname(), "pid": gone.pid, "age": "1", "until": 1e12})
    )
    lease = CheckpointLease(LocalFolder(tmp_path), lost=print)
    lease.acquire("checkpoint", settle_s=0)
    lease.release()


def test_status(tmp_path: Path) -> None:
    control = Control(tmp_path / "job")
    assert control.status() == {}
    assert not control.running()
    control.write({"pid": 1})
    assert control.status() == {"pid": 1}
    assert (tmp_path / "job" / "status.json").stat().st_mode & 0o077 == 0
    control.lock.acquire("job")
    assert control.running()


def test_a_job_whose_name_is_a_reference_is_known_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SHOP", "orders")
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"name": "${env:SHOP}", "sinks": "keep", "sink.keep.type": "console"}))
    control = Control(control_folder("orders.keep"))
    control.write({"job": "orders.keep", "state": "stopped"})
    main(["status", str(file), "--json"])
    assert json.loads(capsys.readouterr().out)["orders.keep"]["state"] == "stopped"


def test_status_in_words() -> None:
    lines = status_table(
        [
            {
                "job": "a",
                "state": "running",
                "running": True,
                "pid": 7,
                "checkpoint": "/c",
                "progress": {"batch": 3, "lag_total": 12, "time": "2026-11-21T00:00:00.000Z"},
            },
            {
                "job": "bb",
                "state": "failed",
                "running": False,
                "pid": 8,
                "failed": {"error": "one\ntwo", "trace": "Traceback"},
            },
            {"job": "c", "state": "died", "running": False},
            {
                "job": "d",
                "state": "retrying",
                "running": True,
                "pid": 9,
                "progress": {
                    "batch": 3,
                    "lag_total": None,
                    "time": "2026-11-21T00:00:10.000Z",
                    "retrying": {
                        "part": "batch",
                        "since": "2026-11-21T00:00:00.000Z",
                        "attempts": 4,
                        "error": "table t is locked\nby 5",
                    },
                },
                "retrying": {
                    "attempt": 2,
                    "time": "2026-11-21T00:00:01.000Z",
                    "since": "2026-11-21T00:00:00.000Z",
                    "error": "old",
                },
            },
        ]
    )
    assert lines[1].split() == ["a", "running", "7", "3", "12", "2026-11-21T00:00:00.000Z", "/c"]
    assert lines[2].split() == ["bb", "failed", "-", "-", "-", "-", "-"]
    assert lines[3] == "    one (all of it: millrace job status bb)"
    assert "continues from the checkpoint" in lines[5]
    assert lines[6].split()[:5] == ["d", "retrying", "9", "3", "unknown"]
    assert lines[7:] == ["    retries batch since 2026-11-21T00:00:00.000Z, 4 failed attempts: table t is locked"]


def test_the_status_of_a_job_that_is_named_shows_the_whole_error() -> None:
    lines = status_table(
        [
            {
                "job": "b",
                "state": "failed",
                "running": False,
                "failed": {"error": "one\ntwo", "trace": "Traceback\n  three"},
            }
        ],
        full=True,
    )
    assert lines[2:] == ["    one", "    two", "    Traceback", "      three"]


@pytest.mark.parametrize(
    ("location", "path"),
    [("/a/b", "/a/b"), ("file:///a/b%20c", "/a/b c"), ("file:/a", "/a"), ("hdfs://n/a", None), ("s3a://b/a", None)],
)
def test_locations(location: str, path: str | None) -> None:
    assert local_path(location) == (None if path is None else Path(path))
