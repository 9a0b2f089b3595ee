"""Two MariaDB servers, one replica of the other by GTID: for failover and snapshots from a replica. Everything here blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compose.local.databases.server_pair import ServerPair, execute_sql
from compose.local.mariadb import MariaDb
from compose.local.ports import LOOPBACK
from worker.fetch.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from worker.terminal import Say


class MariaDbPair(ServerPair[MariaDb]):
    """A primary and its replica; see `ServerPair`."""

    def _make_server(self, folder: Path, settings: Mapping[str, str], say: Say) -> MariaDb:
        replication = {
            "log-slave-updates": "",
            "gtid-strict-mode": "ON",
            "skip-slave-start": "",
            "slave-net-timeout": "5",
        }
        return MariaDb(folder, port=None, durable=False, logged=False, say=say, settings={**replication, **settings})

    def follow(self, replica: MariaDb, primary: MariaDb) -> None:
        """See `ServerPair`."""
        execute_sql(
            replica,
            "STOP SLAVE",
            f"CHANGE MASTER TO MASTER_HOST = '{LOOPBACK}', MASTER_PORT = {primary.port}, MASTER_USER = '{primary.user}', "
            f"MASTER_PASSWORD = '{primary.password}', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1, "
            "MASTER_SSL = 0, MASTER_SSL_VERIFY_SERVER_CERT = 0",
            "START SLAVE",
        )
        self.caught_up(replica, primary)

    def caught_up(self, replica: MariaDb | None = None, primary: MariaDb | None = None, timeout: float = 30.0) -> str:
        """See `ServerPair`."""
        replica, primary = replica or self.replica, primary or self.primary
        ((position,),) = execute_sql(primary, "SELECT @@GLOBAL.gtid_binlog_pos")
        if not position:  # nothing has been written yet, and waiting for that would be an error
            return ""
        ((state,),) = execute_sql(replica, f"SELECT MASTER_GTID_WAIT('{position}', {timeout})")
        if state != 0:
            status = execute_sql(replica, "SHOW SLAVE STATUS")
            raise StackError(
                f"{replica.service.name} has not reached {position} in {timeout:g} s: {status}; "
                f"see its log {replica.log_path}"
            )
        return str(position)

    def promote(self, server: MariaDb) -> None:
        """See `ServerPair`."""
        execute_sql(server, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = OFF")

    def fail_over(self) -> MariaDb:
        """Kill the primary once the replica has everything, let the replica stand alone, and return it.

        Raises:
            StackError: The replica had not caught up.
        """
        self.caught_up()
        self.primary.kill()
        execute_sql(self.replica, "STOP SLAVE", "RESET SLAVE ALL")
        return self.replica
