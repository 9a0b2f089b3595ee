"""PostgreSQL and MariaDB as the stack starts them: login, what a kill leaves, the detached stack."""

from contextlib import closing
from pathlib import Path

import psycopg
import pymysql

from compose.local.commands.stack import ProcessHealth, Stack
from compose.local.mariadb import MariaDb
from compose.local.postgres import Postgres


def _mysql(server: MariaDb, password: str | None = None) -> "pymysql.Connection[pymysql.cursors.Cursor]":
    return pymysql.connect(
        host="127.0.0.1", port=server.port or 0, user=server.user, password=password or server.password,
        database=server.database, autocommit=True,
    )  # fmt: skip


def test_postgres_keeps_what_was_committed_over_a_kill(tmp_path: Path) -> None:
    with Postgres(tmp_path, port=None) as server:
        with psycopg.connect(server.dsn) as connection:
            connection.execute("CREATE TABLE t (a int)")
            connection.execute("INSERT INTO t VALUES (1)")
        server.kill()
        assert not server.running
        server.start()
        with closing(psycopg.connect(server.dsn)) as connection:
            assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]
            server.stop()  # does not wait for this client
        assert not server.running
    assert "fast shutdown" in server.log_path.read_text(encoding="utf-8")
    restarted = Postgres(tmp_path, port=None)
    with restarted, psycopg.connect(restarted.dsn) as connection:
        assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]


def test_mariadb_keeps_what_was_committed_over_a_kill(tmp_path: Path) -> None:
    with MariaDb(tmp_path, port=None) as server:
        with closing(_mysql(server)) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE t (a int)")
            cursor.execute("INSERT INTO t VALUES (1)")
        server.kill()
        server.start()
        with closing(_mysql(server)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT a, @@log_bin, @@binlog_format, @@binlog_row_metadata FROM t")
            assert cursor.fetchone() == (1, 1, "ROW", "FULL")


def test_wrong_passwords_are_refused(postgres: Postgres, mariadb: MariaDb) -> None:
    for attempt in (
        lambda: psycopg.connect(postgres.dsn.replace(":millrace@", ":wrong@")),
        lambda: _mysql(mariadb, "wrong"),
    ):
        try:
            attempt().close()
        except (psycopg.OperationalError, pymysql.err.OperationalError) as error:
            assert "denied" in str(error) or "password authentication failed" in str(error)  # noqa: PT017
        else:
            raise AssertionError("the login should have been refused")


def test_the_detached_stack_starts_both_and_stops_them(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    try:
        entries = stack.up(["postgres", "mariadb"])
        assert [entry.service for entry in entries] == ["postgres", "mariadb"]
        assert {health for _, health in stack.status()} == {ProcessHealth.RUNNING}
        assert stack.up(["postgres"])[0].pid == next(entry.pid for entry in entries if entry.service == "postgres")
    finally:
        stopped = stack.down(remove_data=True)
    assert {entry.service for entry in stopped} == {"postgres", "mariadb"}
    assert not (tmp_path / "postgres").exists()
