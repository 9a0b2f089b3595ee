"""The command `sql`: statements for a database of the local stack, so that trying something out needs no client."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import psycopg
import pymysql
from cassandra.cluster import Cluster, NoHostAvailable
from cassandra.policies import RoundRobinPolicy

from compose.local.commands.stack import Stack
from compose.local.scylla.client import Emulation
from connectors.errors import ConfigInvalid
from worker.fetch.errors import StackError
from worker.terminal import say

#: User, password and database of MariaDB and PostgreSQL in the local stack.
_LOGIN: Final = "millrace"
_TIMEOUT_S: Final = 30

#: Names of columns, and rows; None for a statement that has no result.
Result = tuple[Sequence[str], Iterable[Sequence[Any]]] | None


def run_sql(service: str, statements: Sequence[str]) -> int:
    """Run the statements in order; exit code 1 at the first that is refused, with the reason on standard error."""
    try:
        for result in _run_statements(service, statements):
            if result is not None:
                print(format_rows(*result), end="")
    except StackError as error:
        say(str(error))
        return 1
    return 0


def _run_statements(service: str, statements: Sequence[str]) -> Iterable[Result]:
    if service not in _DATABASES:
        raise ConfigInvalid(f"{service} takes no statements; there are: {', '.join(sorted(_DATABASES))}")
    address = Stack().addresses().get(service)
    if address is None:
        raise StackError(f"{service} does not run; start it: millrace up {service}")
    return _DATABASES[service](address, statements)


def format_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Lines with tabs between values: the columns, then each row. Pure."""
    return "".join("\t".join(map(str, line)) + "\n" for line in (columns, *rows))


def _run_mariadb(address: str, statements: Sequence[str]) -> Iterable[Result]:
    host, _, port = address.rpartition(":")
    try:
        connection = pymysql.connect(
            host=host, port=int(port), user=_LOGIN, password=_LOGIN, database=_LOGIN, autocommit=True
        )
        with closing(connection), connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                yield ([column[0] for column in cursor.description], cursor.fetchall()) if cursor.description else None
    except pymysql.MySQLError as error:
        raise StackError(f"MariaDB: {error.args[-1]}") from error


def _run_postgres(address: str, statements: Sequence[str]) -> Iterable[Result]:
    try:
        with psycopg.connect(f"postgresql://{_LOGIN}:{_LOGIN}@{address}/{_LOGIN}", autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                yield (
                    ([column.name for column in cursor.description], cursor.fetchall()) if cursor.description else None
                )
    except psycopg.Error as error:
        raise StackError(f"PostgreSQL: {error}") from error


def _run_cassandra(address: str, statements: Sequence[str]) -> Iterable[Result]:
    host, _, port = address.rpartition(":")
    cluster = Cluster(
        [host], int(port), load_balancing_policy=RoundRobinPolicy(), connect_timeout=_TIMEOUT_S, protocol_version=4
    )
    try:
        session = cluster.connect()
        for statement in statements:
            result = session.execute(statement, timeout=_TIMEOUT_S)
            yield (result.column_names, list(result)) if result.column_names else None
    except NoHostAvailable as error:
        raise StackError(f"no Cassandra answers at {address}: {error}; is it running?") from error
    except Exception as error:
        if type(error).__module__.startswith("cassandra"):
            raise StackError(f"Cassandra: {error}") from error
        raise
    finally:
        cluster.shutdown()


_KEYSPACE: Final = re.compile(r"\s*CREATE\s+KEYSPACE\s+(?:IF\s+NOT\s+EXISTS\s+)?(\w+)", re.IGNORECASE)
_TABLE: Final = re.compile(r"\s*(CREATE|ALTER)\s+TABLE\s", re.IGNORECASE)
_READ: Final = re.compile(r"\s*SELECT\s", re.IGNORECASE)


def _run_scylla(address: str, statements: Sequence[str]) -> Iterable[Result]:
    """The emulation writes what CDC needs, so statements go through its client."""
    with closing(Emulation(address)) as emulation:
        for statement in statements:
            keyspace, table = _KEYSPACE.match(statement), _TABLE.match(statement)
            if keyspace is not None:
                emulation.create_keyspace(keyspace[1])
            elif table is not None:
                (emulation.create_table if table[1].upper() == "CREATE" else emulation.alter_table)(statement)
            elif _READ.match(statement):
                yield from _run_cassandra(emulation.direct, [statement])
            else:
                emulation.apply_cql(statement)


_DATABASES: Final[Mapping[str, Callable[[str, Sequence[str]], Iterable[Result]]]] = {
    "cassandra": _run_cassandra,
    "mariadb": _run_mariadb,
    "postgres": _run_postgres,
    "scylla": _run_scylla,
}
