"""Reads the tables of the Iceberg sink back, for ``millrace verify``, through pyiceberg. Blocks: call it in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import NoSuchTableError

from connectors.errors import Fatal
from spark_jobs.sinks.iceberg.config import CATALOG, CONFIG, PREFIX, check_catalog, table_name
from spark_jobs.sinks.iceberg.table import catalog_of, translate_errors
from spark_jobs.sinks.shared.read_back import demand_own_tables, demand_row_per_key, list_present, parse_own_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class IcebergRows:
    """The tables of one job.

    Args:
        properties: of the job, references resolved.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._config = parse_own_options(CONFIG, properties, (CATALOG,))
        demand_row_per_key(f"{PREFIX}mode", self._config[f"{PREFIX}mode"])
        demand_own_tables(f"{PREFIX}table.shared", properties, shared=self._config[f"{PREFIX}table.shared"])
        for problem in check_catalog(self._config.prefixed(CATALOG)):
            raise Fatal(problem)

    def name(self, namespace: str) -> str:
        """The table that a source table is written to, with its namespace."""
        return ".".join(table_name(self._config, namespace))

    def rows(self, namespace: str) -> Iterator[list[dict[str, Any]]]:
        """The rows of that table's current snapshot, some at a time, without those that are deleted.

        Deletes by position, which other programs write, are respected.

        Raises:
            Retriable: the catalog or the store is unavailable, or files are gone meanwhile.
            Fatal: they refuse, or the snapshot has deletes by value.
        """
        where = f"table {self.name(namespace)}"
        with translate_errors(where):
            try:
                table = catalog_of(self._config.prefixed(CATALOG)).load_table(table_name(self._config, namespace))
                yield from list_present(table.scan().to_arrow_batch_reader())
            except NoSuchTableError:
                return
            except (ValueError, NotImplementedError) as error:
                raise Fatal(
                    f"{where} can't be read: {error}. Where another program deletes rows, run its compaction "
                    "(rewrite_data_files), and let it write with copy-on-write"
                ) from error
