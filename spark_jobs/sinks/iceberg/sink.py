"""The Iceberg sink: tables of Apache Iceberg that follow the source's, by the order number of each change, exactly once.

Files are written by Spark's Python tasks and committed by the driver through pyiceberg: no Iceberg jar works with this Spark.
pyiceberg and pyspark are imported with the first table, so that options can be checked without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from spark_jobs.contract import Batch, JobContext, Sink, TableSchema
from spark_jobs.sinks.iceberg.config import CATALOG, CONFIG, NAMESPACE, PREFIX, TABLE, TYPE, check_catalog, table_name
from spark_jobs.sinks.lake.options import lake_settings
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

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self._settings = lake_settings(context.config, PREFIX)
        self._writer: LakeWriter | None = None

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
        deletes = f", deletes {chosen.delete_mode}, {chosen.buckets} buckets" if chosen.upsert else ""
        where = f"{config[NAMESPACE]}.{config[TABLE]} of the {_read_catalog_type(config)} catalog"
        lines = [f"iceberg: tables {where}, mode {chosen.mode}{deletes}"]
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
            return [f"{NAMESPACE}: the {_read_catalog_type(config)} catalog can't be used ({CATALOG}*): {message}"]
        if table is None or "${" in config[TABLE] + config[NAMESPACE]:
            return []
        present = table.definition
        if bool(present.buckets) != chosen.upsert:
            writer_kind = "upserts, with a row per key" if present.buckets else "mode=insert, or by another program"
            return [f"{TABLE}: the table {table.address} was made for {writer_kind}; name another table"]
        if chosen.upsert and chosen.key_columns and sorted(present.key) != sorted(chosen.key_columns):
            return [f"{PREFIX}key.columns: the key of the table {table.address} is ({', '.join(present.key)})"]
        return []

    def open(self) -> None:
        """See ``Sink``."""
        from spark_jobs.sinks.iceberg.table import LEVELS, IcebergLake, catalog_of, explain_error

        for metric in METRICS:
            self.context.metrics.setdefault(metric.name, 0)
        config = self.context.config
        try:
            catalog = catalog_of(config.prefixed(CATALOG))
        except Exception as error:
            raise explain_error(error, f"the {_read_catalog_type(config)} catalog") from error
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
        from spark_jobs.sinks.lake.rows import describe_refusal

        return describe_refusal(self._settings, schema)

    def write(self, batch: Batch) -> int:
        """See ``Sink``."""
        from spark_jobs.sinks.iceberg.table import explain_error

        try:
            return self._open_writer().write(batch)
        except Exception as error:
            raise explain_error(error, f"the {_read_catalog_type(self.context.config)} catalog") from error

    def idle(self) -> None:
        """See ``Sink``: merges small files, expires snapshots."""
        from spark_jobs.sinks.iceberg.table import explain_error

        try:
            self._open_writer().idle()
        except Exception as error:
            raise explain_error(error, f"the {_read_catalog_type(self.context.config)} catalog") from error

    def _open_writer(self) -> LakeWriter:
        if self._writer is None:
            raise RuntimeError("the sink is not open")
        return self._writer


def _read_catalog_type(config: Config) -> str:
    return str(config.raw.get(TYPE, "unnamed"))
