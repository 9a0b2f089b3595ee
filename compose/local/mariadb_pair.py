"""Two MariaDB servers, one replica of the other by GTID: for failover and for pulls from a replica. Everything here blocks."""
from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from compose.local.console import Say, silent
from compose.local.errors import StackError
from compose.local.mariadb import MariaDb
from compose.local.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from compose.local.mysql_debian import MySql


def execute(server: MariaDb | MySql, *statements: str) -> tuple[tuple[Any, ...], ...]:
    """Run statements on one connection and return the rows of the last one.

    Raises:
        StackError: The server refused one; which, and why.
    """
    import pymysql

    try:
        with closing(pymysql.connect(host=LOOPBACK, port=server.port or 0, user=server.user, password=server.password,
                                     autocommit=True, charset="utf8mb4")) as connection, connection.cursor() as cursor:
            for statement in statements:
                try:
                    cursor.execute(statement)
                except pymysql.MySQLError as error:
                    raise StackError(f"{server.service.name} refused {statement!r}: {error}") from error
            return tuple(cursor.fetchall())
    except pymysql.OperationalError as error:
        raise StackError(f"{server.service.name} does not let {server.user} in: {error}; is it running?") from error


@dataclass(slots=True)
class MariaDbPair:
    """A primary (server id 1) and its replica (server id 2), which logs what it applies; both are kept in its folder.

    Attributes:
        state_dir: Folder of both.
        settings: Options of both servers that override those made here.
        durable: See `MariaDb`.
        say: Where progress lines go.
    """

    state_dir: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    durable: bool = False
    say: Say = silent
    primary: MariaDb = field(init=False)
    replica: MariaDb = field(init=False)
    _stack: ExitStack = field(default_factory=ExitStack, init=False)

    def __post_init__(self) -> None:
        self.primary, self.replica = (
            MariaDb(
                self.state_dir / name,
                port=None,
                durable=self.durable,
                logged=False,
                say=self.say,
                settings={
                    "server-id": str(number),
                    "log-slave-updates": "",
                    "gtid-strict-mode": "ON",
                    "skip-slave-start": "",
                    "slave-net-timeout": "5",
                    **self.settings,
                },
            )
            for number, name in ((1, "primary"), (2, "replica"))
        )

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

    def follow(self, replica: MariaDb, primary: MariaDb) -> None:
        """Have one server replicate the other from what it has already.

        Raises:
            StackError: Replication did not start.
        """
        execute(
            replica,
            "STOP SLAVE",
            f"CHANGE MASTER TO MASTER_HOST = '{LOOPBACK}', MASTER_PORT = {primary.port}, MASTER_USER = '{primary.user}', "
            f"MASTER_PASSWORD = '{primary.password}', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1, "
            "MASTER_SSL = 0, MASTER_SSL_VERIFY_SERVER_CERT = 0",
            "START SLAVE",
        )
        self.caught_up(replica, primary)

    def caught_up(self, replica: MariaDb | None = None, primary: MariaDb | None = None, timeout: float = 30.0) -> str:
        """Wait until the replica has applied what the primary has committed by now, and return that GTID position.

        Raises:
            StackError: It has not within `timeout` seconds; with the replica's own reason.
        """
        replica, primary = replica or self.replica, primary or self.primary
        ((position,),) = execute(primary, "SELECT @@GLOBAL.gtid_binlog_pos")
        if not position:  # nothing has been written yet, and waiting for that would be an error
            return ""
        ((state,),) = execute(replica, f"SELECT MASTER_GTID_WAIT('{position}', {timeout})")
        if state != 0:
            status = execute(replica, "SHOW SLAVE STATUS")
            raise StackError(f"{replica.service.name} has not reached {position} in {timeout:g} s: {status}; "
                             f"see its log {replica.log_path}")
        return str(position)

    def promote(self, server: MariaDb) -> None:
        """Let a replica stand alone."""
        execute(server, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = OFF")

    def hold(self, *, still: bool) -> None:
        """Have the replica stop applying what it gets, or begin again."""
        execute(self.replica, f"{'STOP' if still else 'START'} SLAVE SQL_THREAD")

    def fail_over(self) -> MariaDb:
        """Kill the primary once the replica has everything, let the replica stand alone, and return it.

        Raises:
            StackError: The replica had not caught up.
        """
        self.caught_up()
        self.primary.kill()
        execute(self.replica, "STOP SLAVE", "RESET SLAVE ALL")
        return self.replica
