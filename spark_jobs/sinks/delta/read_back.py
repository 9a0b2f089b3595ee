"""Reads the tables of the Delta sink back, for ``millrace verify``, through delta-rs. Blocks: call it in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_jobs.sinks.delta.config import CONFIG, PREFIX, STORAGE, find_root, table_name
from spark_jobs.sinks.delta.table import DeltaLake, translate_errors
from spark_jobs.sinks.shared.read_back import demand_own_tables, demand_row_per_key, list_present, parse_own_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class DeltaRows:
    """The tables of one job.

    Args:
        properties: of the job, references resolved.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._config = parse_own_options(CONFIG, properties, (STORAGE,))
        demand_row_per_key(f"{PREFIX}mode", self._config[f"{PREFIX}mode"])
        demand_own_tables(f"{PREFIX}table.shared", properties, shared=self._config[f"{PREFIX}table.shared"])

    def name(self, namespace: str) -> str:
        """The folder of the table that a source table is written to, below the path."""
        return table_name(self._config, namespace)

    def rows(self, namespace: str) -> Iterator[list[dict[str, Any]]]:
        """The rows of that table's newest version, some at a time, without those that are deleted.

        Deletion vectors, which other programs write, are respected.

        Raises:
            Retriable: the store is unavailable, or files are gone meanwhile.
            Fatal: the store refuses the login, or the table needs what delta-rs does not have.
        """
        root = find_root(self._config)
        with translate_errors(f"{root}/{self.name(namespace)}"):
            table = DeltaLake(root, self._config.prefixed(STORAGE)).find(self.name(namespace))
            if table is not None:
                yield from list_present(pa.RecordBatchReader.from_stream(table.table.scan()))
