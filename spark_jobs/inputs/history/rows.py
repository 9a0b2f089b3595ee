"""Rows of a history as changes of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from connectors.options import ConfigDef
from spark_jobs.contract import SYSTEM_COLUMNS, Column, Source, TableChanges, TableSchema
from spark_jobs.inputs.history.options import HISTORY_KEYS, check_options
from spark_jobs.metrics import JobMetric
from spark_jobs.spark.frames import get_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from connectors.options import Config
    from spark_jobs.contract import Batch
    from spark_jobs.inputs.history.source import HistoryTable


class HistorySource(Source):
    """Gives the rows that ``HistoryInput`` reads, table by table."""

    config_def: ClassVar[ConfigDef] = ConfigDef(list(HISTORY_KEYS))
    metrics: ClassVar[tuple[JobMetric, ...]] = (
        JobMetric("history_chunks", "gauge", "", "Batches that the history was cut into."),
        JobMetric("history_chunks_read", "gauge", "", "How many of them were read, or are being read."),
    )

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """Options that don't go together."""
        return check_options(config)

    def changes(self, batch: Batch) -> list[TableChanges]:
        """See ``Source.changes``."""
        del batch
        tables = []
        for table, rows in self.context.input.frames:
            schema = self._make_table_schema(table, rows)
            names = [target.name for target in schema.columns]
            tables.append(TableChanges(schema, rows.select(*[get_column(name) for name in (*names, *SYSTEM_COLUMNS)])))
        return tables

    def schemas(self) -> list[TableSchema]:
        """See ``Source.schemas``."""
        return [self._make_table_schema(table, rows) for table, rows in self.context.input.shapes()]

    def _make_table_schema(self, table: HistoryTable, rows: DataFrame) -> TableSchema:
        fields = {field.name: field for field in rows.schema.fields if field.name not in SYSTEM_COLUMNS}
        ordered = [*table.keys, *(name for name in fields if name not in table.keys)]
        return TableSchema(
            table.namespace,
            tuple(
                Column(name, fields[name].dataType, nullable=name not in table.keys, key=name in table.keys)
                for name in ordered
            ),
        )
