"""Lookups in PostgreSQL, MariaDB and MySQL: one query for the keys of a request."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal, Retriable
from spark_jobs.sinks.jdbc.dialect.dialects import load_dialect
from spark_jobs.sinks.jdbc.model import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_jobs.steps.lookup.model import Spec

#: Types of columns that hold all digits of a number of 32 bits.
_FLOATS: Final = ("float", "double")


class SqlClient:
    """See ``model.Client``."""

    def __init__(self, spec: Spec) -> None:
        if spec.login.jdbc is None:
            raise Fatal(f"step {spec.step}: {spec.system} needs a JDBC URL")
        self._spec = spec
        self._login = spec.login.jdbc
        self._dialect = load_dialect(spec.system)
        self._connection: Any = None
        #: What a query reads as the looked-up columns.
        self._fields: Sequence[str] = ()

    def fetch(self, keys: Sequence[tuple[Any, ...]]) -> Mapping[tuple[Any, ...], tuple[Any, ...]]:
        """See ``model.Client.fetch``."""
        spec = self._spec
        try:
            connection = self._open_connection()
            with connection.cursor() as cursor:
                query = build_query(spec, len(keys), self._dialect.quote, self._fields)
                cursor.execute(query, [part for key in keys for part in key])
                rows = cursor.fetchall()
        except Exception as error:
            fault = self._dialect.classify(error)
            self.close()
            if fault is None:
                raise
            message = f"step {spec.step}: {spec.where}, table {spec.table}: {' '.join(str(error).split())}"
            if fault is Fault.RETRY:
                raise Retriable(message) from error
            raise Fatal(
                f"{message}. Correct table, on or columns of the step, or the rights of the user {spec.login.user}"
            ) from error
        count = len(spec.on)
        return (
            {tuple(row[:count]): tuple(row[count:]) for row in rows}
            if _is_unique(rows, count)
            else _refuse_duplicates(spec, rows)
        )

    def _open_connection(self) -> Any:
        if self._connection is None:
            connection = self._dialect.connect(self._login)
            if callable(connection.autocommit):  # PyMySQL
                connection.autocommit(True)
            else:
                connection.autocommit = True
            self._connection = connection
            self._fields = self._find_fields(connection)
        return self._connection

    def _find_fields(self, connection: Any) -> list[str]:
        """The expressions that a query reads as the looked-up columns: for all digits of a number more than its name."""
        spec, dialect = self._spec, self._dialect
        read_column = getattr(dialect, "read_column", None)
        whole: dict[str, str] = {}
        if read_column is not None and any(column.kind in _FLOATS for column in spec.columns):
            schema, _, table = spec.table.rpartition(".")
            present = dialect.describe(connection, schema, table)
            columns = () if present is None else present.columns.values()
            whole = {column.name.lower(): read_column(column) for column in columns}
        return [
            whole.get(column.field.lower(), dialect.quote(column.field))
            if column.kind in _FLOATS
            else dialect.quote(column.field)
            for column in spec.columns
        ]

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # it may be broken
                connection.close()


def build_query(spec: Spec, keys: int, quote: Any, fields: Sequence[str] | None = None) -> str:
    """The query for that many keys, with a ``%s`` for each of their parts. Pure.

    Args:
        spec: the lookup.
        keys: how many keys.
        quote: of the dialect.
        fields: what is read as the looked-up columns; None: their names.
    """
    # A percent sign would be taken for a placeholder.
    names = [quote(name).replace("%", "%%") for name in spec.on]
    columns = ", ".join([*names, *(name.replace("%", "%%") for name in fields or map(quote, spec.fields))])
    table = ".".join(quote(part) for part in spec.table.split(".")).replace("%", "%%")
    placeholder = "%s" if len(names) == 1 else f"({', '.join(['%s'] * len(names))})"
    left = names[0] if len(names) == 1 else f"({', '.join(names)})"
    return f"SELECT {columns} FROM {table} WHERE {left} IN ({', '.join([placeholder] * keys)})"  # noqa: S608 - quoted names


def _is_unique(rows: Sequence[Sequence[Any]], count: int) -> bool:
    return len({tuple(row[:count]) for row in rows}) == len(rows)


def _refuse_duplicates(spec: Spec, rows: Sequence[Sequence[Any]]) -> Any:
    seen_keys = set()
    for row in rows:
        key = tuple(row[: len(spec.on)])
        if key in seen_keys:
            raise make_duplicate_error(spec, key)
        seen_keys.add(key)
    return None


def make_duplicate_error(spec: Spec, key: tuple[Any, ...]) -> Fatal:
    """The error for a key that has several rows."""
    return Fatal(
        f"step {spec.step}: {spec.where} has several rows for {', '.join(spec.on)} = "
        f"{', '.join(str(part) for part in key)}: a lookup gives one row per key. Name all columns of a unique key in "
        "`on`, or look up a view that has one row per key"
    )
