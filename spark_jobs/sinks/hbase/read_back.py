"""Reads the tables of the HBase sink back, for ``millrace verify``. Blocks: call it in a thread."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from connectors.errors import Fatal
from connectors.verify.values import SparseRow
from spark_jobs.sinks.hbase.client import translate_errors
from spark_jobs.sinks.hbase.config import BINARY, CONFIG_DEF, PREFIX, parse_settings
from spark_jobs.sinks.hbase.protocol import HbaseConnection, load_interface
from spark_jobs.sinks.hbase.tables import name_of, ttls_of
from spark_jobs.sinks.shared.read_back import (
    ROWS_AT_ONCE,
    demand_row_settings,
    parse_own_options,
    read_text,
    select_present,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class HBaseTargetRows:
    """The tables of one job.

    Args:
        properties: of the job, references resolved.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._settings = parse_settings(parse_own_options(CONFIG_DEF, properties))
        demand_row_settings(self._settings.rows)
        if self._settings.binary:
            raise Fatal(
                f"{PREFIX}values={BINARY} can't be read back: the same bytes may be a number or a string, and HBase does not "
                "know which"
            )

    def name(self, namespace: str) -> str:
        """The table that a source table is written to."""
        return name_of(self._settings, namespace)

    def rows(self, namespace: str) -> Iterator[list[dict[str, Any]]]:
        """The rows of that table, some at a time, without those that are deleted.

        Raises:
            Retriable: the server is unavailable.
            Fatal: it refuses.
        """
        name = self.name(namespace)
        scan = load_interface().Scan(first=b"", caching=ROWS_AT_ONCE, versions=1)
        with translate_errors(self._settings), closing(HbaseConnection(self._settings)) as connection:
            if ttls_of(connection, name) is None:
                return
            # The server gives fewer rows where they are large.
            while page := connection.ask("getScannerResults", name.encode(), scan, ROWS_AT_ONCE):
                yield select_present(
                    SparseRow({cell.qualifier.decode(): read_text(cell.value) for cell in row.cells}) for row in page
                )
                scan.first = page[-1].row + b"\0"
