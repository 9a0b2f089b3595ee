"""Optional servers of the local stack: MySQL from Debian, and the machine's own MariaDB; both can be read by replicas."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pymysql

if TYPE_CHECKING:
    from compose.local.databases.mysql_debian import MySqlServer
    from compose.local.mariadb import MariaDb


def ask(server: MariaDb | MySqlServer, statement: str) -> tuple[Any, ...]:
    with (
        closing(
            pymysql.connect(
                host="127.0.0.1",
                port=server.port or 0,
                user=server.user,
                password=server.password,
                database=server.database,
            )
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
        return cursor.fetchone() or ()


def test_mysql_has_its_log_on_with_gtids_and_metadata(mysql: MySqlServer) -> None:
    version, *rest = ask(mysql, "SELECT VERSION(), @@log_bin, @@gtid_mode, @@binlog_row_metadata, @@binlog_format")
    assert int(version.split(".")[0]) >= 8
    assert rest == [1, "ON", "FULL", "ROW"]


def test_installed_mariadb_has_its_log_on_with_metadata(mariadb_installed: MariaDb) -> None:
    version, *rest = ask(mariadb_installed, "SELECT VERSION(), @@log_bin, @@binlog_row_metadata, @@binlog_format")
    assert "MariaDB" in version
    assert rest == [1, "FULL", "ROW"]
