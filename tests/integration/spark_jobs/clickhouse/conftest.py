"""One ClickHouse for the tests of this folder: the engine behind an emulated server, or a real one.

`MILLRACE_CLICKHOUSE=http://user:password@host:8123` names a real server.
"""

from __future__ import annotations

import os
import urllib.parse
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from compose.local.targets.clickhouse import ClickHouse
from worker.converters.registry.auth import basic_header

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Server:
    """A ClickHouse that runs, and a client of the tests' own."""

    host: str
    port: int
    user: str
    password: str

    def run(self, statement: str) -> bytes:
        """The answer to a statement."""
        headers = {"Authorization": basic_header(self.user, self.password)} if self.user else {}
        request = urllib.request.Request(f"http://{self.host}:{self.port}/", statement.encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - http
            content: bytes = answer.read()
        return content

    def rows(self, statement: str) -> list[dict[str, Any]]:
        """The rows of a query."""
        content = self.run(f"{statement} FORMAT ArrowStream")
        table: pa.Table = pa.ipc.open_stream(content).read_all() if content else pa.table({})
        return list(table.to_pylist(maps_as_pydicts="lossy"))


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    named = os.environ.get("MILLRACE_CLICKHOUSE")
    with ExitStack() as stack:
        if named:
            parts = urllib.parse.urlsplit(named)
            yield Server(parts.hostname or "", parts.port or 8123, parts.username or "", parts.password or "")
            return
        folder = tmp_path_factory.mktemp("clickhouse")
        server = stack.enter_context(ClickHouse(folder, user="writer", password="secret-of-the-writer"))
        yield Server("127.0.0.1", server.port or 0, server.user, server.password)
