"""Two real MySQL servers, one replica of the other by GTID: for failover and pulls from a replica. Everything here blocks."""
from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from compose.local.console import Say, silent
from compose.local.errors import StackError
from compose.local.mariadb_pair import execute
from compose.local.mysql_debian import MySql
from compose.local.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(slots=True)
class MySqlPair:
    """A primary (server id 1) and its replica (server id 2), which logs what it applies; like `MariaDbPair`.

    Attributes:
        state_dir: Folder of both.
        settings: Options of both servers that override those made here.
        say: Where progress lines go.
    """

    state_dir: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    say: Say = silent
    primary: MySql = field(init=False)
    replica: MySql = field(init=False)
    _stack: ExitStack = field(default_factory=ExitStack, init=False)

    def __post_init__(self) -> None:
        self.primary, self.replica = (
            MySql(
                self.state_dir / name,
                port=None,
                logged=False,
                say=self.say,
                settings={
                    "server-id": str(number),
                    "log-replica-updates": "ON",
                    "skip-replica-start": "ON",
                    "replica-net-timeout": "5",
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

    def follow(self, replica: MySql, primary: MySql) -> None:
        """Have one server replicate the other from what it has already.

        Raises:
            StackError: Replication did not start.
        """
        execute(
            replica,
            "STOP REPLICA",
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{LOOPBACK}', SOURCE_PORT = {primary.port}, "
            f"SOURCE_USER = '{primary.user}', SOURCE_PASSWORD = '{primary.password}', SOURCE_AUTO_POSITION = 1, "
            "SOURCE_CONNECT_RETRY = 1, SOURCE_SSL = 0, GET_SOURCE_PUBLIC_KEY = 1",
            "START REPLICA",
        )
        self.caught_up(replica, primary)

    def caught_up(self, replica: MySql | None = None, primary: MySql | None = None, timeout: float = 30.0) -> str:
        """Wait until the replica has applied what the primary has committed by now, and return those GTIDs.

        Raises:
            StackError: It has not within `timeout` seconds; with the replica's own reason.
        """
        replica, primary = replica or self.replica, primary or self.primary
        ((executed,),) = execute(primary, "SELECT @@GLOBAL.gtid_executed")
        ((late,),) = execute(replica, f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{executed}', {timeout})")
        if late:
            status = execute(replica, "SHOW REPLICA STATUS")
            raise StackError(f"{replica.service.name} has not reached {executed} in {timeout:g} s: {status}; "
                             f"see its log {replica.log_path}")
        return str(executed)

    def promote(self, server: MySql) -> None:
        """Let a replica stand alone."""
        execute(server, "STOP REPLICA", "RESET REPLICA ALL")

    def hold(self, *, still: bool) -> None:
        """Have the replica stop applying what it gets, or begin again."""
        execute(self.replica, f"{'STOP' if still else 'START'} REPLICA SQL_THREAD")
