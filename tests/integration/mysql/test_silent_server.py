"""A server that hangs: its connections stay open and carry nothing any more."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from connectors.mysql.config.settings import connection_settings
from connectors.mysql.connector import MySqlConnector
from connectors.mysql.source import connection, server
from connectors.mysql.source.driver import socket_of
from connectors.testing.driver import Run
from tests.integration.mysql.changes_world import LIMIT, Source

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from tests.conftest import HasMariaDb

#: The command that asks for the binlog, as the first byte of a packet's body.
_DUMP = 0x12


class Path:
    """Forwards connections to a server; ``hang`` makes those for questions carry nothing any more."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self._open: set[asyncio.Event] = set()

    def hang(self) -> int:
        """Let all connections but those that read the binlog hang from now on; return how many these are."""
        for passing in self._open:
            passing.clear()
        return len(self._open)

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target)
        passing = asyncio.Event()
        passing.set()
        self._open.add(passing)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(1 << 16):
                if data[4:5] == bytes([_DUMP]) and sink is there_writer:
                    self._open.discard(passing)
                await passing.wait()
                sink.write(data)

        pumps = [asyncio.ensure_future(pump(reader, there_writer)), asyncio.ensure_future(pump(there_reader, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pumping in pumps:
                pumping.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._open.discard(passing)
            writer.close()
            there_writer.close()


@asynccontextmanager
async def path_to(target: HasMariaDb) -> AsyncGenerator[Path, None]:
    path = Path(int(target.port or 0))
    listener = await asyncio.start_server(path.forward, "127.0.0.1", 0)
    path.port = listener.sockets[0].getsockname()[1]
    try:
        yield path
    finally:
        listener.close()


@pytest.fixture
def source(mariadb: HasMariaDb, unique: Callable[[str], str]) -> Iterator[Source]:
    source = Source(mariadb, f"silent_{unique('x')[-8:]}")
    yield source
    source.sql(f"DROP DATABASE {source.name}")
    source.link.close()


async def test_a_question_without_an_answer_is_asked_on_another_connection(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_ANSWER_S", 0.5, raising=False)
    async with (
        path_to(source.server) as path,
        Run(MySqlConnector, {**source.config(), "database.port": str(path.port)}) as run,
    ):
        assert await run.take(LIMIT) is not None
        assert path.hang() == 1
        source.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        assert [record.key for record in await source.rest(run)] == [{"id": 1}]


async def test_connections_for_questions_are_probed_as_the_options_say(source: Source) -> None:
    config = source.config(connect__keep__alive="true", connect__keep__alive__interval__ms="7000")
    settings = connection_settings(MySqlConnector.config_def.parse(config))
    opened = await connection.connect_first(settings)
    try:
        used = socket_of(opened)
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 7
    finally:
        opened.close()
