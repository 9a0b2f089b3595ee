"""Tables and writes of the MySQL benchmark: rows are made by the server itself, so that writing them is quick."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from compose.local.databases.server_pair import execute_sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compose.local.mariadb import MariaDb

DATABASE = "bench"
_NARROW = """id BIGINT NOT NULL PRIMARY KEY, customer INT NOT NULL, name VARCHAR(50) NOT NULL, status ENUM('new','paid','sent'),
 amount DECIMAL(12,2) NOT NULL, made DATETIME(3) NOT NULL, note VARCHAR(120), flag TINYINT NOT NULL, score DOUBLE"""
_NARROW_ROW = """seq, seq MOD 10007, CONCAT('customer number ', seq), ELT(1 + seq MOD 3, 'new', 'paid', 'sent'),
 seq MOD 100000 / 100, '2024-01-01' + INTERVAL seq SECOND,
 RPAD(CONCAT('note ', seq, ' '), 110, 'abcdefghij'), seq MOD 2, seq * 1.5"""
#: Kinds of the wide table's columns other than its key: how many of each, declaration, value of the row ``seq``.
_WIDE = (
    (15, "INT NOT NULL", "seq + {n}"),
    (9, "BIGINT", "seq * 1000003 + {n}"),
    (5, "TINYINT NOT NULL", "(seq + {n}) MOD 100"),
    (12, "VARCHAR(60)", "CONCAT('text {n} of ', seq)"),
    (5, "DECIMAL(14,4)", "seq / ({n} + 3)"),
    (5, "DATETIME", "'2024-01-01' + INTERVAL seq + {n} SECOND"),
    (4, "DOUBLE", "seq / ({n} + 7)"),
    (2, "DATE", "'2024-01-01' + INTERVAL seq MOD 10000 DAY"),
    (2, "ENUM('a','b','c')", "ELT(1 + seq MOD 3, 'a', 'b', 'c')"),
)


def _wide() -> tuple[str, str]:
    columns, values = ["id BIGINT NOT NULL PRIMARY KEY"], ["seq"]
    for count, kind, value in _WIDE:
        for _ in range(count):
            number = len(columns)
            columns.append(f"column_{number} {kind}")
            values.append(value.format(n=number))
    return ", ".join(columns), ", ".join(values)


#: By table: its columns, and the values of the row ``seq``.
TABLES = {"narrow": (_NARROW, _NARROW_ROW), "wide": _wide(), "large": (_NARROW, _NARROW_ROW)}


class Write(NamedTuple):
    """The rows that one measurement writes to one table.

    Attributes:
        label: for people.
        table: the table.
        rows: how many rows change.
        update: whether rows that are there are updated (from the first on); else new ones are inserted.
        per_transaction: rows of each transaction.
    """

    label: str
    table: str
    rows: int
    update: bool
    per_transaction: int


def make_tables(server: MariaDb) -> None:
    """The database with its tables, empty."""
    execute_sql(
        server,
        f"CREATE DATABASE {DATABASE}",
        *(f"CREATE TABLE {DATABASE}.{table} ({columns})" for table, (columns, _) in TABLES.items()),
    )


def add_table(server: MariaDb, name: str) -> None:
    """A further table of the narrow kind, empty."""
    execute_sql(server, f"CREATE TABLE {DATABASE}.{name} ({_NARROW})")


def _blocks(first: int, rows: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(first, first + rows, size):
        yield start, min(start + size, first + rows) - 1


def insert(server: MariaDb, table: str, first: int, rows: int, per_transaction: int) -> None:
    """Rows from the key ``first`` on. Blocks."""
    values = TABLES.get(table, TABLES["narrow"])[1]
    execute_sql(
        server,
        *(
            f"INSERT INTO {DATABASE}.{table} SELECT {values} FROM {DATABASE}.seq_{low}_to_{high}"
            for low, high in _blocks(first, rows, per_transaction)
        ),
    )


def update(server: MariaDb, table: str, first: int, rows: int, per_transaction: int) -> None:
    """Change two columns of rows from the key ``first`` on. Blocks."""
    execute_sql(
        server,
        *(
            f"UPDATE {DATABASE}.{table} SET amount = amount + 1, note = REVERSE(note) WHERE id BETWEEN {low} AND {high}"
            for low, high in _blocks(first, rows, per_transaction)
        ),
    )


def marker(server: MariaDb, table: str, number: int) -> None:
    """One row with a key below zero."""
    values = TABLES.get(table, TABLES["narrow"])[1].replace("seq", str(number), 1).replace("seq", "1")
    execute_sql(server, f"INSERT INTO {DATABASE}.{table} SELECT {values}")


def highest(server: MariaDb, table: str) -> int:
    """The highest key, 0 without rows."""
    ((highest_key,),) = execute_sql(server, f"SELECT GREATEST(COALESCE(MAX(id), 0), 0) FROM {DATABASE}.{table}")
    return int(highest_key)


def forget_log(server: MariaDb) -> None:
    """Remove the binary logs that were written until now; no reader may still need them."""
    execute_sql(server, "FLUSH BINARY LOGS")
    *_, last = execute_sql(server, "SHOW BINARY LOGS")
    execute_sql(server, f"PURGE BINARY LOGS TO '{last[0]}'")
