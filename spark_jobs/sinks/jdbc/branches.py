"""Prepared transactions of PostgreSQL and MariaDB: a part (branch) of a transaction over several databases.

A branch has the name of the transaction, and behind it whatever tells it from its siblings. It survives the connection that
made it, and a crash of the server.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Retriable

if TYPE_CHECKING:
    from spark_jobs.sinks.jdbc.model import Connection, Dialect

#: The dialects that have them.
DIALECTS: Final = ("postgresql", "mariadb")
#: A branch stays bound to the connection that prepared it until the server has noticed its end.
_UNBOUND_S: Final = 10.0
_PAUSE_S: Final = 0.05
_POSTGRESQL: Final = "psycopg"
#: MariaDB: the branch is of a connection that has not ended; PostgreSQL: there is no such branch.
_NOT_OURS: Final = 1397
_ABSENT: Final = "42704"
#: Since MariaDB 10.5 a prepared branch survives its connection.
_MARIADB_SINCE: Final = (10, 5)


def check_server(dialect: Dialect, connection: Connection) -> str:
    """Why a server can't take part, and what to do; empty where it can. Blocks."""
    if _is_postgresql(connection):
        limit = int(_run_statement(connection, "SHOW max_prepared_transactions")[0][0])
        if limit > 0:
            return ""
        return (
            "the server has no prepared transactions, which a transaction over several databases needs "
            "(max_prepared_transactions is 0); run: ALTER SYSTEM SET max_prepared_transactions = 64, and restart it"
        )
    if getattr(dialect, "product", "") != "MariaDB":
        return "a transaction over several databases needs PostgreSQL or MariaDB"
    from spark_jobs.sinks.jdbc.dialect.mysql import version_of

    version = connection.get_server_info()
    if version_of(version) < _MARIADB_SINCE:
        return f"MariaDB {version} loses prepared transactions with their connection; 10.5 or later is needed"
    return ""


def begin_branch(connection: Connection, branch: str) -> None:
    """Begin a branch. Blocks.

    Raises:
        Retriable: it is prepared already, by an earlier attempt of this task.
    """
    if branch in list_branches(connection):
        raise Retriable(
            f"the transaction {branch} is prepared already, by a task that was lost; the batch begins again"
        )
    connection.commit()
    if not _is_postgresql(connection):
        _run_statement(connection, f"XA START '{branch}'")


def prepare_branch(connection: Connection, branch: str) -> None:
    """Prepare a branch; afterwards the connection must be closed. Blocks."""
    if _is_postgresql(connection):
        _run_statement(connection, f"PREPARE TRANSACTION '{branch}'")
        return
    _run_statement(connection, f"XA END '{branch}'")
    _run_statement(connection, f"XA PREPARE '{branch}'")


def list_branches(connection: Connection) -> list[str]:
    """The names of all prepared branches of the database. Blocks."""
    if _is_postgresql(connection):
        return [
            row[0]
            for row in _run_statement(
                connection, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
            )
        ]
    names = []
    for _, length, _, data in _run_statement(connection, "XA RECOVER"):
        branch_name = data.decode("latin-1") if isinstance(data, bytes) else str(data)
        names.append(branch_name[: int(length)])
    return names


def end_transaction(connection: Connection, transaction: str, *, commit: bool) -> None:
    """Commit or roll back all prepared branches of a transaction; those that have ended already are left alone. Blocks.

    Raises:
        Retriable: a branch is still bound to a connection.
    """
    _commit_each_statement(connection)
    deadline = time.monotonic() + _UNBOUND_S
    while branches := [name for name in list_branches(connection) if name.startswith(f"{transaction}-")]:
        for branch in branches:
            _end_branch(connection, branch, commit=commit)
        if time.monotonic() > deadline:
            raise Retriable(f"the prepared transaction {branches[0]} is still bound to the connection that made it")
        time.sleep(_PAUSE_S)


def _end_branch(connection: Connection, branch: str, *, commit: bool) -> None:
    if _is_postgresql(connection):
        try:
            _run_statement(connection, f"{'COMMIT' if commit else 'ROLLBACK'} PREPARED '{branch}'")
        except Exception as error:
            if getattr(error, "sqlstate", "") != _ABSENT:
                raise
        return
    try:
        _run_statement(connection, f"XA {'COMMIT' if commit else 'ROLLBACK'} '{branch}'")
    except Exception as error:
        if not error.args or error.args[0] != _NOT_OURS:
            raise


def _commit_each_statement(connection: Connection) -> None:
    """Have no transaction of the connection's own: inside one, both refuse to end a branch (MariaDB also before the first)."""
    if _is_postgresql(connection):
        connection.autocommit = True
    else:
        connection.autocommit(True)


def _is_postgresql(connection: Connection) -> bool:
    return type(connection).__module__.partition(".")[0] == _POSTGRESQL


def _run_statement(connection: Connection, statement: str) -> list[tuple[Any, ...]]:
    with closing(connection.cursor()) as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []
