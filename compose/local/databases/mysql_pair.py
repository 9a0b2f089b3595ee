"""Two real MySQL servers, one a replica of the other by GTID: for failover and snapshots from a replica. Everything blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compose.local.databases.mysql_debian import MySqlServer
from compose.local.databases.server_pair import ServerPair, execute_sql
from compose.local.ports import LOOPBACK
from worker.fetch.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from worker.terminal import Say


class MySqlPair(ServerPair[MySqlServer]):
    """A primary and its replica; see `ServerPair`."""

    def _make_server(self, folder: Path, settings: Mapping[str, str], say: Say) -> MySqlServer:
        replication = {"log-replica-updates": "ON", "skip-replica-start": "ON", "replica-net-timeout": "5"}
        return MySqlServer(folder, port=None, logged=False, say=say, settings={**replication, **settings})

    def follow(self, replica: MySqlServer, primary: MySqlServer) -> None:
        """See `ServerPair`."""
        execute_sql(
            replica,
            "STOP REPLICA",
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{LOOPBACK}', SOURCE_PORT = {primary.port}, "
            f"SOURCE_USER = '{primary.user}', SOURCE_PASSWORD = '{primary.password}', SOURCE_AUTO_POSITION = 1, "
            "SOURCE_CONNECT_RETRY = 1, SOURCE_SSL = 0, GET_SOURCE_PUBLIC_KEY = 1",
            "START REPLICA",
        )
        self.caught_up(replica, primary)

    def caught_up(
        self, replica: MySqlServer | None = None, primary: MySqlServer | None = None, timeout: float = 30.0
    ) -> str:
        """See `ServerPair`."""
        replica, primary = replica or self.replica, primary or self.primary
        ((executed,),) = execute_sql(primary, "SELECT @@GLOBAL.gtid_executed")
        ((late,),) = execute_sql(replica, f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{executed}', {timeout})")
        if late:
            status = execute_sql(replica, "SHOW REPLICA STATUS")
            raise StackError(
                f"{replica.service.name} has not reached {executed} in {timeout:g} s: {status}; "
                f"see its log {replica.log_path}"
            )
        return str(executed)

    def promote(self, server: MySqlServer) -> None:
        """See `ServerPair`."""
        execute_sql(server, "STOP REPLICA", "RESET REPLICA ALL")
