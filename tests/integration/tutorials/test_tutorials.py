"""The tutorials: each block of commands is run in the order of the page, and gives what the page says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pytest

from compose.local.ports import free_port
from compose.local.process.service import wait_until
from worker.development.commands import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FOLDER: Final = ROOT / "docs" / "tutorials"
_START: Final = "start.md"
#: Commands, and what a page says that they print, if it says so.
_BLOCK: Final = re.compile(r"^```sh\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
#: What follows in the first page is for the end.
_DONE: Final = "## When you are done"
#: Pages that are followed in each run of the tests; the others are slow tests.
_QUICK: Final = {"mysql-to-postgresql.md"}
_WORKER_PORT: Final = "127.0.0.1:8083"
#: Seconds that the lines of a page may take to appear; Spark has to start in some.
_PATIENCE_S: Final = 180
#: Pages that need what a test machine does not have.
_NOT_RUN: Final = {"docker-compose.md"}


@dataclass
class Reader:
    """Somebody who follows tutorials in an empty folder, on a machine where other ports than the usual ones may be free.

    Attributes:
        folder: Where the commands are called.
        worker: The worker's address in place of the one in the pages.
        ports: The usual port of each service that has been started -> the port that it had.
    """

    folder: Path
    worker: str = field(default_factory=lambda: f"127.0.0.1:{free_port()}")
    ports: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "millrace").symlink_to(ROOT / "millrace")

    def follow(self, page: str, text: str) -> None:
        """Run a page's blocks; where a page says what a block prints, run the block until it prints that."""
        for commands, printed in _BLOCK.findall(text):
            expected_lines = [line for line in printed.splitlines() if line]
            output: list[str] = []

            def prints(
                commands: str = commands, expected_lines: list[str] = expected_lines, output: list[str] = output
            ) -> bool:
                output[:] = [self.run(commands, must_succeed=not expected_lines)]
                return all(line in output[0] for line in expected_lines)

            assert wait_until(prints, _PATIENCE_S, 1.0), f"{page}: {commands}\nprinted\n{output[0]}\nand not\n{printed}"

    def run(self, commands: str, *, must_succeed: bool) -> str:
        """Run commands in a shell; what they print.

        Args:
            commands: Lines of a shell.
            must_succeed: Whether a command that fails is an error now: what is run again may fail first.
        """
        done = subprocess.run(
            ["bash", "-euc", self._with_addresses(commands)],
            cwd=self.folder,
            env={**os.environ, "MILLRACE_HOME": str(self.folder / "home")},
            # A file, not a pipe: a worker in the background keeps it open.
            stdout=(self.folder / "printed").open("wb"),
            stderr=subprocess.STDOUT,
            check=False,
            timeout=600,
        )
        printed = (self.folder / "printed").read_text(encoding="utf-8")
        if must_succeed:
            assert done.returncode == 0, f"{commands}\nended with {done.returncode}\n{printed}"
            assert '"error_code"' not in printed, f"{commands}\nwas refused:\n{printed}"
        return printed

    def _with_addresses(self, commands: str) -> str:
        commands = commands.replace(_WORKER_PORT, self.worker)
        self.ports |= self._ports()
        for usual, actual in self.ports.items():
            commands = re.sub(rf"\b{usual}\b", str(actual), commands)
        return commands

    def _ports(self) -> dict[int, int]:
        """The usual ports of services that have started -> the ports that they have."""
        usual = {"kafka": 9092, "postgres": 5433, "mariadb": 3307, "cassandra": 9142, "scylla": 9042}
        usual |= {"registry": 8081, "opensearch": 9200, "java-connect": 8084, "spark": 7077}
        file = self.folder / "home"
        if not file.exists():
            return {}
        status = subprocess.run(
            [str(ROOT / "millrace"), "status", "--json"],
            env={**os.environ, "MILLRACE_HOME": str(file)},
            capture_output=True,
            text=True,
            check=False,
        )
        entries = json.loads(status.stdout)
        return {
            usual[entry["service"]]: int(entry["address"].rpartition(":")[2].strip("/"))
            for entry in entries
            if entry["service"] in usual and entry["part"] != "worker"
        }

    def leave(self) -> None:
        """Stop what a page that was not followed to its end has left running."""
        pid = self.folder / "worker.pid"
        if pid.exists():
            _end(int(pid.read_text()))
        subprocess.run(
            [str(ROOT / "millrace"), "down", "--remove-data"],
            env={**os.environ, "MILLRACE_HOME": str(self.folder / "home")},
            capture_output=True,
            check=False,
        )


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    if not wait_until(lambda: not _alive(pid), 60):
        os.kill(pid, signal.SIGKILL)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    new_reader = Reader(tmp_path)
    yield new_reader
    new_reader.leave()


def _read(page: str) -> str:
    return (_FOLDER / page).read_text(encoding="utf-8")


def _pages() -> list[str]:
    return sorted(page.name for page in _FOLDER.glob("*.md") if page.name not in {_START, *_NOT_RUN})


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[] if page in _QUICK else [pytest.mark.slow]) for page in _pages()]
)
def test_a_tutorial(reader: Reader, page: str) -> None:
    text = _read(page)
    # A page that does not lead to the first one begins and ends without it.
    before, _, after = _read(_START).partition(_DONE) if f"({_START})" in text else ("", "", "")
    reader.follow(_START, before)
    reader.follow(page, text)
    reader.follow(_START, after)
