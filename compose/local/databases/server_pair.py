"""The common part of pairs of MariaDB and MySQL servers: a primary, its replica, and statements on them. Everything blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from compose.local.databases.mysql_debian import MySqlServer
from compose.local.mariadb import MariaDb
from compose.local.ports import LOOPBACK
from worker.fetch.errors import StackError
from worker.terminal import Say, drop_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ServerT = TypeVar("ServerT", MariaDb, MySqlServer)


class SqlServer(Protocol):
    """A MariaDB or MySQL on the loopback address, and its user."""

    port: int | None
    user: str
    password: str


def execute_sql(server: SqlServer, *statements: str) -> tuple[tuple[Any, ...], ...]:
    """Run statements on one connection and return the rows of the last one.

    Raises:
        StackError: The server refused one; which, and why.
    """
    import pymysql

    try:
        with (
            closing(
                pymysql.connect(
                    host=LOOPBACK,
                    port=server.port or 0,
                    user=server.user,
                    password=server.password,
                    autocommit=True,
                    charset="utf8mb4",
                )
            ) as connection,
            connection.cursor() as cursor,
        ):
            for statement in statements:
                try:
                    cursor.execute(statement)
                except pymysql.MySQLError as error:
                    raise StackError(f"{LOOPBACK}:{server.port} refused {statement!r}: {error}") from error
            return tuple(cursor.fetchall())
    except pymysql.OperationalError as error:
        raise StackError(f"{LOOPBACK}:{server.port} does not let {server.user} in: {error}; is it running?") from error


class ServerPair(ABC, Generic[ServerT]):
    """A primary (server id 1) and its replica (server id 2), which logs what it applies; both are kept in its folder.

    Args:
        state_dir: Folder of both.
        settings: Options of both servers that override those made here.
        say: Where progress lines go.
    """

    def __init__(self, state_dir: Path, settings: Mapping[str, str] | None = None, say: Say = drop_line) -> None:
        self.primary: ServerT = self._make_server(state_dir / "primary", {"server-id": "1", **(settings or {})}, say)
        self.replica: ServerT = self._make_server(state_dir / "replica", {"server-id": "2", **(settings or {})}, say)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.primary)
        self._stack.enter_context(self.replica)
        self.follow(self.replica, self.primary)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def hosts(self) -> str:
        """Comma list of `host:port`, the primary first."""
        return f"{self.primary.address},{self.replica.address}"

    @abstractmethod
    def _make_server(self, folder: Path, settings: Mapping[str, str], say: Say) -> ServerT:
        """One of the servers; `settings` override its own options for replication."""

    @abstractmethod
    def follow(self, replica: ServerT, primary: ServerT) -> None:
        """Have one server replicate the other from what it has already.

        Raises:
            StackError: Replication did not start.
        """

    @abstractmethod
    def caught_up(self, replica: ServerT | None = None, primary: ServerT | None = None, timeout: float = 30.0) -> str:
        """Wait until the replica has applied what the primary has committed by now, and return that GTID position.

        Raises:
            StackError: It has not within `timeout` seconds; with the replica's own reason.
        """

    @abstractmethod
    def promote(self, server: ServerT) -> None:
        """Let a replica stand alone."""

    def hold(self, *, still: bool) -> None:
        """Have the replica stop applying what it gets, or begin again."""
        execute_sql(self.replica, f"{'STOP' if still else 'START'} REPLICA SQL_THREAD")
