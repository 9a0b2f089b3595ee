"""Reads the tables of the JDBC sink back, for ``millrace verify``. Blocks: call it in a thread."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from connectors.errors import Fatal, Retriable
from connectors.options import ConfigDef
from spark_jobs.config.keys import FRAME
from spark_jobs.sinks.jdbc import plan as plans
from spark_jobs.sinks.jdbc.config import CONFIG_DEF, parse_settings
from spark_jobs.sinks.jdbc.dialect.dialects import load_dialect
from spark_jobs.sinks.jdbc.model import Fault
from spark_jobs.sinks.shared.read_back import (
    ROWS_AT_ONCE,
    demand_own_tables,
    demand_row_per_key,
    parse_own_options,
    select_present,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from spark_jobs.sinks.jdbc.model import JdbcColumn, JdbcTable


class JdbcTables:
    """The tables of one job.

    Args:
        properties: of the job, references resolved.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        definition = ConfigDef([*CONFIG_DEF.keys.values(), FRAME.keys["guarantee"]])
        self._settings = parse_settings(parse_own_options(definition, properties))
        self._dialect = load_dialect(self._settings.login.address.dialect)
        demand_row_per_key("sink.jdbc.mode", self._settings.mode)
        demand_own_tables("sink.jdbc.table.shared", properties, shared=self._settings.shared)

    @property
    def by_offset(self) -> bool:
        """Whether offsets order changes."""
        return self._settings.position != "ums_id"

    def name(self, namespace: str) -> str:
        """The table that a source table is written to."""
        return ".".join(filter(None, plans.find_target(self._settings, self._dialect, namespace)))

    def rows(self, namespace: str) -> Iterator[list[dict[str, Any]]]:
        """The rows of that table, some at a time, without those that are deleted.

        Raises:
            Retriable: the database is unavailable.
            Fatal: it refuses.
        """
        schema, table = plans.find_target(self._settings, self._dialect, namespace)
        quoted = ".".join(self._dialect.quote(part) for part in (schema, table) if part)
        try:
            with closing(self._dialect.connect(self._settings.login)) as connection:
                present = self._dialect.describe(connection, schema, table)
                if present is None:
                    return
                with closing(self._dialect.stream(connection)) as cursor:
                    cursor.execute(f"SELECT {self._select_list(present)} FROM {quoted}")  # noqa: S608 - names are quoted
                    while rows := cursor.fetchmany(ROWS_AT_ONCE):
                        names = [column[0] for column in cursor.description]
                        yield select_present(dict(zip(names, row, strict=True)) for row in rows)
        except Exception as error:
            fault = self._dialect.classify(error)
            kind = Retriable if fault is Fault.RETRY else Fatal
            raise kind(f"table {quoted} of {self._settings.login.text} can't be read: {error}") from error

    def _select_list(self, present: JdbcTable) -> str:
        """The columns to read."""
        read_column: Callable[[JdbcColumn], str] | None = getattr(self._dialect, "read_column", None)
        return "*" if read_column is None else ", ".join(map(read_column, present.columns.values()))
