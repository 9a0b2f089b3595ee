"""The service as a process, and a client of the tests' own."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from compose.local.ports import free_port
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Service:
    """A running receiver."""

    port: int

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{quote(path)}", timeout=10) as answer:
            return json.loads(answer.read())

    def answers(self) -> bool:
        try:
            self.ask("/rows/none")
        except OSError:
            return False
        return True

    def records(self, table: str) -> list[dict[str, Any]]:
        """Records of a table, in the order in which they came."""
        records: list[dict[str, Any]] = []
        for body in self.ask(f"/rows/{table}"):
            parsed = json.loads(body, parse_float=Decimal)
            records += parsed if isinstance(parsed, list) else [parsed]
        return records

    def requests(self, table: str) -> list[dict[str, Any]]:
        """Requests about a table: method, path and headers."""
        seen: list[dict[str, Any]] = self.ask(f"/requests/{table}")
        return seen


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    running = Service(free_port(None))
    program = Path(__file__).with_name("receiver.py")
    process = subprocess.Popen([sys.executable, str(program), str(running.port)])
    try:
        eventually(running.answers, "the receiver answers")
        yield running
    finally:
        process.kill()
        process.wait()
