"""A real child process under the supervisor: it never outlives what started it."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.control import is_alive, process_age
from spark_jobs.supervisor import JobProcess, Predecessor, find_other_processes
from tests.support.eventually import eventually_async

CHILD = Path(__file__).with_name("child.py")
LOG = logging.LoggerAdapter(logging.getLogger("tests.supervisor"), {})


def child(events: int) -> list[str]:
    return [sys.executable, str(CHILD), str(events)]


def living(pid: int) -> bool:
    return process_age(pid) != ""


async def started(events: list[dict[str, Any]], **config: str) -> JobProcess:
    process = JobProcess(child, config, events.append, LOG)
    await process.start()
    await eventually_async(lambda: any(event["event"] == "started" for event in events), "the job has started")
    return process


async def test_events_come_in_order_and_a_stop_is_graceful() -> None:
    events: list[dict[str, Any]] = []
    process = await started(events)
    await eventually_async(lambda: len(events) > 3, "events come")
    assert await process.stop(lambda: 10.0) == 0
    await process.drained()
    await process.close()
    assert [event["event"] for event in events[:2]] == ["started", "progress"]
    assert events[-1]["event"] == "stopped"
    assert not living(process.pid)


async def test_the_configuration_is_on_no_command_line_in_no_environment_and_not_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    events: list[dict[str, Any]] = []
    process = await started(events, password="hidden-from-all", say="hello from the job")
    for name in ("cmdline", "environ"):
        assert b"hidden-from-all" not in Path(f"/proc/{process.pid}/{name}").read_bytes()
    await process.stop(lambda: 10.0)
    await process.close()
    assert "hidden-from-all" not in caplog.text
    assert "hello from the job" in caplog.text
    assert "hello from the job" in process.tail


async def test_large_configurations_arrive() -> None:
    events: list[dict[str, Any]] = []
    process = await started(events, filler="x" * 1_000_000)
    assert await process.stop(lambda: 10.0) == 0
    await process.close()


async def test_what_does_not_hear_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    process = await started(events, deaf="true", grandchild=str(tmp_path / "pid"))
    grandchild = int((tmp_path / "pid").read_text())
    assert find_other_processes(process.pid) == [grandchild]
    end = time.monotonic() + 0.3
    assert await process.stop(lambda: end - time.monotonic()) == -signal.SIGKILL
    await process.close()
    assert not living(process.pid)
    await eventually_async(lambda: not living(grandchild), "its child is gone, too")


async def test_what_a_dead_child_leaves_behind_is_ended(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    process = await started(events, grandchild=str(tmp_path / "pid"))
    grandchild = int((tmp_path / "pid").read_text())
    os.kill(process.pid, signal.SIGKILL)
    assert await process.wait() == -signal.SIGKILL
    await process.close()
    await eventually_async(lambda: not living(grandchild), "the grandchild has ended")


async def test_a_program_that_does_not_exist_leaves_nothing_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    process = JobProcess(lambda _: ["/does/not/exist"], {}, lambda _: None, LOG)
    with pytest.raises(FileNotFoundError):
        await process.start()
    await process.close()
    await eventually_async(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before, "all files are closed")


SUPERVISOR = textwrap.dedent("""
    import asyncio, json, logging, sys
    from pathlib import Path
    from spark_jobs.supervisor import JobProcess, Predecessor
    async def main():
        log = logging.LoggerAdapter(logging.getLogger(), {})
        process = JobProcess(lambda fd: [sys.executable, sys.argv[1], str(fd)], json.loads(sys.argv[2]), lambda _: None, log)
        await process.start()
        Predecessor(Path(sys.argv[3])).remember(process.pid)
        print(process.pid, flush=True)
        await process.wait()
    asyncio.run(main())
""")


def supervised(record: Path, **config: str) -> tuple[subprocess.Popen[str], int]:
    """A supervisor in a process of its own, and the number of its child."""
    parent = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(CHILD), json.dumps(config), str(record)],
        text=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
    )
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


async def test_the_child_ends_when_its_supervisor_is_killed(tmp_path: Path) -> None:
    parent, pid = supervised(tmp_path / "record")
    try:
        assert living(pid)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        await eventually_async(lambda: not living(pid), "the job has ended")
    finally:
        parent.kill()
        parent.wait()


async def test_a_child_that_hangs_after_its_supervisor_was_killed_is_ended_by_the_next_one(tmp_path: Path) -> None:
    record = tmp_path / "record"
    parent, pid = supervised(record, deaf="true", grandchild=str(tmp_path / "pid"))
    try:
        before = Predecessor(record)
        assert before.orphan() == 0  # its supervisor lives: it is not an orphan
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        assert before.orphan() == pid
        await eventually_async((tmp_path / "pid").exists, "the grandchild has started")
        assert await before.clear(lambda: False, 0.2, LOG)
        grandchild = int((tmp_path / "pid").read_text())
        await eventually_async(lambda: not living(pid) and not living(grandchild), "both have ended")
    finally:
        parent.kill()
        parent.wait()


async def test_a_run_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.write_text(json.dumps({"pid": os.getpid(), "age": "1", "by": 1, "by_age": process_age(1)}))
    before = Predecessor(record)
    assert before.orphan() == 0  # this number is another process's now
    assert not await before.clear(lambda: True, 10.0, LOG, grace_s=0.3)
    assert is_alive(os.getpid(), process_age(os.getpid()))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": "x"}', '{"pid": 1, "age": "", "by": 1, "by_age": ""}'])
def test_a_damaged_record_names_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "record").write_text(text)
    assert Predecessor(tmp_path / "record").orphan() == 0
