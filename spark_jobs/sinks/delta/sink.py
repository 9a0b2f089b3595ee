"""The Delta sink: tables of Delta Lake that follow the source's, by the order number of each change, exactly once.

Files are written by Spark's Python tasks and committed by the driver through delta-rs, without a jar; docs/jobs/delta.md says
why. deltalake and pyspark are imported with the first table, so that options can be checked without them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from spark_jobs.contract import Batch, JobContext, Sink, TableSchema
from spark_jobs.sinks.delta.config import (
    CONFIG,
    PATH,
    PREFIX,
    STORAGE,
    TABLE,
    find_root,
    name_problem,
    table_name,
)
from spark_jobs.sinks.lake.options import find_misfit, lake_settings
from spark_jobs.sinks.lake.writing import LakeWriter, declare_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import Config, ConfigDef
    from spark_jobs.metrics import JobMetric
    from spark_jobs.sinks.delta.read_back import DeltaRows

METRICS = declare_metrics("delta")


class DeltaSink(Sink):
    """Writes Delta tables; see docs/jobs/delta.md."""

    config_def: ClassVar[ConfigDef] = CONFIG
    guarantees: ClassVar[tuple[str, ...]] = ("exactly-once", "at-least-once", "none")
    pass_through: ClassVar[tuple[str, ...]] = (STORAGE,)
    metrics: ClassVar[tuple[JobMetric, ...]] = METRICS
    _writer: LakeWriter  # from `open` on

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self._settings = lake_settings(context.config, PREFIX)

    @classmethod
    def read_back(cls, properties: Mapping[str, str]) -> DeltaRows:
        """The tables that a job with these properties writes, for ``millrace verify``.

        Raises:
            Fatal: they have no row of each key.
        """
        from spark_jobs.sinks.delta.read_back import DeltaRows

        return DeltaRows(properties)

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """See ``Sink``."""
        chosen = lake_settings(config, PREFIX)
        lines = [f"delta: tables {config[TABLE]} below {find_root(config)}, {chosen.rows_written}"]
        return lines + [f"delta: {complaint}" for complaint in cls.check(config)]

    @classmethod
    def check(cls, config: Config) -> list[str]:
        """Whether the folder can be written, and a table of a fixed name fits."""
        root = find_root(config)
        if "://" not in root:
            while not os.path.exists(root):  # noqa: PTH110 - plain strings, as delta-rs takes them
                root = os.path.dirname(root) or "."  # noqa: PTH120
            if not (os.path.isdir(root) and os.access(root, os.W_OK | os.X_OK)):  # noqa: PTH112
                return [f"{PATH}: {root} is not a directory that can be written"]
        if "${" in config[TABLE] and "://" not in root:
            return []
        from spark_jobs.sinks.delta.table import DeltaLake

        lake = DeltaLake(find_root(config), config.prefixed(STORAGE))
        try:
            table = lake.find(table_name(config, "millrace.check"))
        except Exception as error:  # noqa: BLE001 - whatever a store's client raises is said
            return [f"{PATH}: {find_root(config)} can't be used: {' '.join(str(error).split())}"]
        chosen = lake_settings(config, PREFIX)
        if table is None or "${" in config[TABLE]:
            return []
        return find_misfit(chosen, table)

    def open(self) -> None:
        """See ``Sink``."""
        from spark_jobs.sinks.delta.table import DeltaLake

        for metric in METRICS:
            self.context.metrics.setdefault(metric.name, 0)
        config = self.context.config
        self._writer = LakeWriter(
            self.context,
            self._settings,
            DeltaLake(find_root(config), config.prefixed(STORAGE)),
            "delta",
            lambda namespace: table_name(config, namespace),
            lambda name: name + self._settings.side_suffix,
        )

    def refusal(self, schema: TableSchema) -> str:
        """See ``Sink``."""
        from spark_jobs.sinks.lake.rows import describe_refusal

        return name_problem(self.context.config, schema.namespace) or describe_refusal(self._settings, schema)

    def write(self, batch: Batch) -> int:
        """See ``Sink``."""
        from spark_jobs.sinks.delta.table import translate_errors

        with translate_errors(find_root(self.context.config)):
            return self._writer.write(batch)

    def idle(self) -> None:
        """See ``Sink``: merges small files, deletes old ones."""
        from spark_jobs.sinks.delta.table import translate_errors

        with translate_errors(find_root(self.context.config)):
            self._writer.idle()
