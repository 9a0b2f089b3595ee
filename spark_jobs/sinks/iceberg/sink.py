"""The Iceberg sink: tables of Apache Iceberg that follow the source's, by the order number of each change, exactly once.

Files are written by Spark's Python tasks and committed by the driver through pyiceberg: no Iceberg jar works with this Spark.
pyiceberg and pyspark are imported with the first table, so that options can be checked without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from spark_jobs.contract import Batch, JobContext, Sink, TableSchema
from spark_jobs.sinks.iceberg.config import CATALOG, CONFIG, NAMESPACE, PREFIX, TABLE, TYPE, check_catalog, table_name
from spark_jobs.sinks.lake.options import find_misfit, lake_settings
from spark_jobs.sinks.lake.writing import LakeWriter, declare_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import Config, ConfigDef
    from spark_jobs.metrics import JobMetric
    from spark_jobs.sinks.iceberg.read_back import IcebergRows

METRICS = declare_metrics("iceberg")


class IcebergSink(Sink):
    """Writes Iceberg tables; see docs/jobs/iceberg.md."""

    config_def: ClassVar[ConfigDef] = CONFIG
    guarantees: ClassVar[tuple[str, ...]] = ("exactly-once", "at-least-once", "none")
    pass_through: ClassVar[tuple[str, ...]] = (CATALOG,)
    metrics: ClassVar[tuple[JobMetric, ...]] = METRICS
    _writer: LakeWriter  # from `open` on

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self._settings = lake_settings(context.config, PREFIX)

    @classmethod
    def read_back(cls, properties: Mapping[str, str]) -> IcebergRows:
        """The tables that a job with these properties writes, for ``millrace verify``.

        Raises:
            Fatal: they have no row of each key.
        """
        from spark_jobs.sinks.iceberg.read_back import IcebergRows

        return IcebergRows(properties)

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """See ``Sink``."""
        return check_catalog(config.prefixed(CATALOG))

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """See ``Sink``."""
        chosen = lake_settings(config, PREFIX)
        where = f"{config[NAMESPACE]}.{config[TABLE]} of {_name_catalog(config)}"
        lines = [f"iceberg: tables {where}, {chosen.rows_written}"]
        return lines + [f"iceberg: {complaint}" for complaint in cls.check(config)]

    @classmethod
    def check(cls, config: Config) -> list[str]:
        """Whether the catalog answers, and a table of a fixed name fits. Blocks."""
        from spark_jobs.sinks.iceberg.table import LEVELS, IcebergLake, catalog_of

        chosen = lake_settings(config, PREFIX)
        try:
            catalog = catalog_of(config.prefixed(CATALOG))
            catalog.list_namespaces()
            name = table_name(config, "millrace.check")
            table = IcebergLake(catalog).find(LEVELS.join(name))
        except Exception as error:  # noqa: BLE001 - whatever a catalog's client raises is said
            message = " ".join(str(error).split())[:500]
            return [f"{NAMESPACE}: {_name_catalog(config)} can't be used ({CATALOG}*): {message}"]
        if table is None or "${" in config[TABLE] + config[NAMESPACE]:
            return []
        return find_misfit(chosen, table)

    def open(self) -> None:
        """See ``Sink``."""
        from spark_jobs.sinks.iceberg.table import LEVELS, IcebergLake, catalog_of, translate_errors

        for metric in METRICS:
            self.context.metrics.setdefault(metric.name, 0)
        config = self.context.config
        with translate_errors(_name_catalog(config)):
            catalog = catalog_of(config.prefixed(CATALOG))
        self._writer = LakeWriter(
            self.context,
            self._settings,
            IcebergLake(catalog),
            "iceberg",
            lambda namespace: LEVELS.join(table_name(config, namespace)),
            lambda name: name + self._settings.side_suffix,
        )

    def refusal(self, schema: TableSchema) -> str:
        """See ``Sink``."""
        from spark_jobs.sinks.lake.rows import NESTED, describe_refusal, key_of

        keys = key_of(self._settings, schema)
        nested = [column for column in schema.columns if column.name in keys and column.type.typeName() in NESTED]
        if nested:
            return (
                f"table {schema.namespace}: the column {nested[0].name} of the key has the type {nested[0].type.typeName()}, "
                "and Iceberg takes no nested types in keys. Make it text in a step (to_json), or use sink.iceberg.mode=insert"
            )
        return describe_refusal(self._settings, schema)

    def write(self, batch: Batch) -> int:
        """See ``Sink``."""
        from spark_jobs.sinks.iceberg.table import translate_errors

        with translate_errors(_name_catalog(self.context.config)):
            return self._writer.write(batch)

    def idle(self) -> None:
        """See ``Sink``: merges small files, expires snapshots."""
        from spark_jobs.sinks.iceberg.table import translate_errors

        with translate_errors(_name_catalog(self.context.config)):
            self._writer.idle()


def _name_catalog(config: Config) -> str:
    return f"the {config.raw.get(TYPE, 'unnamed')} catalog"
