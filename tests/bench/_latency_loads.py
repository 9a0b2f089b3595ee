"""The writes of the latency bench into each kind of source: rows that carry a number as ``#123#``, at a steady rate."""

# ruff: noqa: S608  # the names in statements are this module's
from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

import pymysql

from compose.local.cassandra_cluster import execute_cql
from compose.local.databases.server_pair import execute_sql
from compose.local.ports import LOOPBACK
from compose.local.scylla.client import Emulation
from compose.local.scylla.wire import CONSISTENCY, WireConnection, pack_batch
from compose.local.scylla.writes import Insert
from tests.bench import _cassandra_rows as cassandra_rows

if TYPE_CHECKING:
    from pathlib import Path

    from compose.local.cassandra import CassandraNode
    from compose.local.mariadb import MariaDb

#: Rows that have become due are committed together, so often.
_TICK_S: Final = 0.005
#: A writer that can't keep up commits that many rows at once at the most.
_MOST_ROWS: Final = 500
_FILLER: Final = "a line of text as long as notes of an order are: " * 2


class Source(Protocol):
    """A source that a load writes into; used by one thread."""

    def commit(self, numbers: range) -> None:
        """Write one row for each number; returns when they are committed."""

    def close(self) -> None:
        """End the connection."""


class Load:
    """Writes at a rate in a thread of its own, and keeps when the commit of each row returned.

    Args:
        source: where to; no other thread uses it meanwhile.
        rate: rows a second.

    Attributes:
        committed: by number, nanoseconds of the monotonic clock.
        failure: what ended it early.
    """

    def __init__(self, source: Source, rate: int) -> None:
        self.committed: list[int] = []
        self.failure: Exception | None = None
        self._source = source
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        committed = self.committed
        begin = tick = time.monotonic()
        skipped = 0
        try:
            while not self._stop.wait(max(0.0, tick - time.monotonic())):
                now = time.monotonic()
                tick = max(tick + _TICK_S, now)
                done = len(committed)
                due = int((now - begin) * self._rate) - skipped
                if due - done > _MOST_ROWS:
                    skipped += due - done - _MOST_ROWS
                    due = done + _MOST_ROWS
                if due > done:
                    self._source.commit(range(done, due))
                    committed += [time.monotonic_ns()] * (due - done)
        except Exception as error:  # noqa: BLE001 - the measuring thread raises it
            self.failure = error

    def stop(self) -> None:
        """End it; waits until the last commit has returned. May be repeated."""
        self._stop.set()
        self._thread.join()


class MySqlRows:
    """Narrow rows of a new table, a transaction for those of a tick.

    Attributes:
        table: its name, with the database's.
    """

    def __init__(self, server: MariaDb, database: str) -> None:
        self.table = f"{database}.t{secrets.token_hex(4)}"
        execute_sql(
            server,
            f"CREATE DATABASE IF NOT EXISTS {database}",
            f"CREATE TABLE {self.table} (id BIGINT NOT NULL PRIMARY KEY, customer INT NOT NULL, name VARCHAR(50) NOT NULL, "
            "amount DECIMAL(12,2) NOT NULL, made DATETIME(3) NOT NULL, note VARCHAR(120), score DOUBLE)",
        )
        self._connection = pymysql.connect(
            host=LOOPBACK, port=server.port or 0, user=server.user, password=server.password, autocommit=True
        )
        self._cursor = self._connection.cursor()

    def commit(self, numbers: range) -> None:
        """One statement, which is a transaction."""
        rows = ", ".join(
            f"({n}, {n % 10007}, 'customer number {n}', {n % 100_000 / 100}, NOW(3), '#{n}# {_FILLER}', {n}.5)"
            for n in numbers
        )
        self._cursor.execute(f"INSERT INTO {self.table} VALUES {rows}")

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


class ScyllaRows:
    """Rows of a new table of the emulation, each in a partition of its own; those of a tick are one batch.

    Attributes:
        table: its name, with the keyspace's.
    """

    def __init__(self, address: str, keyspace: str) -> None:
        self.table = f"{keyspace}.t{secrets.token_hex(4)}"
        self._client = Emulation(address)
        self._client.create_table(
            f"CREATE TABLE {self.table} (pk bigint, ck int, note text, n bigint, PRIMARY KEY (pk, ck)) "
            "WITH cdc = {'enabled': true, 'ttl': 0}"
        )

    def commit(self, numbers: range) -> None:
        """One call."""
        self._client.apply(
            *(Insert(self.table, {"pk": n, "ck": 1, "note": f"#{n}# {_FILLER}", "n": n * 31}) for n in numbers)
        )

    def close(self) -> None:
        """End the connection."""
        self._client.close()


class CassandraRows:
    """Rows of a new table like that of the Cassandra bench, each in a partition of its own; those of a tick are one batch.

    Attributes:
        table: its name, with the keyspace's.
    """

    def __init__(self, node: CassandraNode, keyspace: str) -> None:
        self.table = f"{keyspace}.t{secrets.token_hex(4)}"
        execute_cql(
            node.address,
            f"CREATE TABLE {self.table} (pk bigint, ck int, customer text, note text, amount bigint, ratio double, "
            "active boolean, sent_us bigint, PRIMARY KEY (pk, ck)) WITH cdc = true",
        )
        self._connection = WireConnection(node.address)
        self._statement = cassandra_rows.insert().replace(cassandra_rows.FULL, self.table)

    def commit(self, numbers: range) -> None:
        """One unlogged batch."""
        parts = []
        for number in numbers:
            cells = cassandra_rows.cells(number, 0)
            cells[3] = f"#{number}# {_FILLER}".encode()
            parts.append(self._connection.packed(self._statement, cells))
        self._connection.pipelined([pack_batch(parts, len(parts), CONSISTENCY["ONE"])], 1)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


class FileLines:
    """Lines appended to a file, those of a tick by one system call."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def commit(self, numbers: range) -> None:
        """One write."""
        os.write(self._file, "".join(f"#{n}# {_FILLER}\n" for n in numbers).encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class SyslogMessages:
    """Syslog messages over one TCP connection, which gives no answers: a commit has returned when the system took them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def commit(self, numbers: range) -> None:
        """One write; the first one connects."""
        if self._socket is None:
            self._socket = self._connect()
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        text = "".join(f"<165>1 2026-11-26T11:00:00Z web-1 app 99 ID47 - #{n}# {_FILLER}\n" for n in numbers)
        self._socket.sendall(text.encode())

    def _connect(self) -> socket.socket:
        """The task may run before it listens."""
        deadline = time.monotonic() + 30
        while True:
            try:
                return socket.create_connection((LOOPBACK, self._port), timeout=30)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
