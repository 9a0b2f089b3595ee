"""Two MariaDB servers of the local stack: the replica has what the primary has, with the same GTIDs, and can take its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compose.local.databases.server_pair import execute_sql

if TYPE_CHECKING:
    from compose.local.databases.mariadb_pair import MariaDbPair


def test_replica_takes_over_and_the_old_primary_follows_it(mariadb_pair: MariaDbPair) -> None:
    primary, replica = mariadb_pair.primary, mariadb_pair.replica
    execute_sql(
        primary, "CREATE DATABASE pair", "CREATE TABLE pair.t (id INT PRIMARY KEY)", "INSERT INTO pair.t VALUES (1)"
    )
    position = mariadb_pair.caught_up()
    assert execute_sql(replica, "SELECT id FROM pair.t") == ((1,),)
    assert execute_sql(replica, "SELECT @@GLOBAL.gtid_binlog_pos") == (
        (position,),
    )  # it logs what it applies, and nothing else
    assert mariadb_pair.fail_over() is replica
    execute_sql(replica, "INSERT INTO pair.t VALUES (2)")
    primary.start()
    mariadb_pair.follow(primary, replica)
    assert execute_sql(primary, "SELECT id FROM pair.t ORDER BY id") == ((1,), (2,))
    assert execute_sql(primary, "SELECT @@GLOBAL.gtid_binlog_pos") == execute_sql(
        replica, "SELECT @@GLOBAL.gtid_binlog_pos"
    )
