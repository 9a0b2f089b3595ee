"""`up`, `status` and `down` as commands of their own, with the real Kafka, in a home of the test's own."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from compose.local.kafka import DEFAULT_PORT, live_brokers
from compose.local.ports import LOOPBACK, accepts_connections
from compose.local.process.identity import same_process
from tests.support.eventually import eventually

ROOT = Path(__file__).parents[3]
PROGRAM = """
import argparse, sys
from compose.local.commands.stack_commands import add_commands
parser = argparse.ArgumentParser()
add_commands(parser.add_subparsers(required=True))
options = parser.parse_args()
sys.exit(options.run(options))
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    environment = {**os.environ, "MILLRACE_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    yield command
    command("down")


def _status(run: Run) -> list[dict[str, Any]]:
    return list(json.loads(run("status", "--json").stdout))


def test_kafka_outlives_the_command_and_down_ends_it(run: Run, tmp_path: Path) -> None:
    result = run("up")
    assert result.returncode == 0, result.stderr
    name, address = result.stdout.strip().split("\t")
    assert name == "kafka"
    port = int(address.rpartition(":")[2])
    assert live_brokers(port) == 1
    (entry,) = _status(run)
    assert entry["state"] == "running"
    assert Path(entry["log"]).is_relative_to(tmp_path)
    assert run("up").stdout == result.stdout
    assert _status(run) == [entry], "the second call changed nothing"

    assert run("up", "--brokers", "3").returncode == 1
    assert live_brokers(port) == 1

    result = run("down")
    assert result.returncode == 0, result.stderr
    assert not same_process(entry["pid"], entry["mark"])
    assert not accepts_connections(port)
    assert run("status").returncode == 0
    assert "nothing to stop" in run("down").stderr


@pytest.mark.slow
def test_kafka_keeps_a_port_that_is_not_the_default_over_down_and_up(run: Run) -> None:
    with ExitStack() as stack:
        with contextlib.suppress(OSError):  # somebody else has it: as good
            stack.enter_context(socket.create_server((LOOPBACK, DEFAULT_PORT)))
        result = run("up")
        assert result.returncode == 0, result.stderr
    (before,) = _status(run)
    assert before["port"] != DEFAULT_PORT
    assert run("down").returncode == 0
    assert run("up").returncode == 0
    (after,) = _status(run)
    assert (after["port"], after["ports"]) == (before["port"], before["ports"])


@pytest.mark.slow
def test_a_lost_broker_of_three_comes_back_alone(run: Run) -> None:
    result = run("up", "kafka", "--brokers", "3")
    assert result.returncode == 0, result.stderr
    before = {entry["part"]: entry for entry in _status(run)}
    assert len(before) == 3
    lost = before["broker-2"]
    os.kill(lost["pid"], signal.SIGKILL)
    eventually(lambda: not same_process(lost["pid"], lost["mark"]), "the process has ended", 10)
    assert run("status").returncode == 1
    result = run("up")
    assert result.returncode == 0, result.stderr
    after = {entry["part"]: entry for entry in _status(run)}
    assert {after[part]["pid"] for part in ("broker-1", "broker-3")} == {
        before[p]["pid"] for p in ("broker-1", "broker-3")
    }
    assert after["broker-2"]["address"] == lost["address"]
    assert after["broker-2"]["pid"] != lost["pid"]
    port = int(after["broker-1"]["address"].removeprefix(f"{LOOPBACK}:"))
    eventually(lambda: live_brokers(port) == 3, "three brokers answer")


def test_a_command_that_is_killed_while_it_waits_leaves_nothing_unknown(run: Run, tmp_path: Path) -> None:
    environment = {**os.environ, "MILLRACE_HOME": str(tmp_path / "home")}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "up"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as command:
        assert command.stderr is not None
        lines: list[bytes] = []
        while not lines or b"starting kafka" not in lines[-1]:
            lines.append(command.stderr.readline())
            assert lines[-1], f"the command ended before it started Kafka: {b''.join(lines).decode()}"
        state = tmp_path / "home" / "stack.json"
        eventually(state.exists, "the stack's state is written", 30)
        command.kill()
    (entry,) = _status(run)
    result = run("down")
    assert result.returncode == 0, result.stderr
    assert not same_process(entry["pid"], entry["mark"])
