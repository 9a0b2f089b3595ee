"""The HBase sink; see docs/jobs/hbase.md."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from connectors.errors import ConfigInvalid, Fatal, Retriable
from spark_jobs.contract import Sink
from spark_jobs.sinks.hbase import tables
from spark_jobs.sinks.hbase.client import HBaseClient
from spark_jobs.sinks.hbase.config import CONFIG_DEF, PREFIX, check_options, parse_settings
from spark_jobs.sinks.shared.targets import Targets
from spark_jobs.sinks.shared.writing import key_of, key_refusal, row_metrics, template_refusal, write_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import Config, ConfigDef
    from spark_jobs.contract import Batch, JobContext, TableChanges, TableSchema
    from spark_jobs.metrics import JobMetric
    from spark_jobs.sinks.hbase.read_back import HBaseTargetRows
    from spark_jobs.sinks.shared.model import OpenClient


class HBaseSink(Sink):
    """Writes cells whose version is the order number of their change, so that HBase itself keeps the newest."""

    config_def: ClassVar[ConfigDef] = CONFIG_DEF
    guarantees: ClassVar[tuple[str, ...]] = ("exactly-once", "at-least-once", "none")
    metrics: ClassVar[tuple[JobMetric, ...]] = row_metrics("hbase")

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self._targets = Targets(f"{PREFIX}table")

    @classmethod
    def read_back(cls, properties: Mapping[str, str]) -> HBaseTargetRows:
        """The tables that a job with these properties writes, for ``millrace verify``.

        Raises:
            Fatal: they have no row of each key, or its values can't be read.
        """
        from spark_jobs.sinks.hbase.read_back import HBaseTargetRows

        return HBaseTargetRows(properties)

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """Options that don't go together."""
        return check_options(config)

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """Where it writes, and how."""
        chosen = parse_settings(config)
        line = (
            f"hbase: {chosen.access.address}, table {chosen.table.text}, row key {chosen.row_key.text} "
            f"({chosen.row_key_form}), mode {chosen.rows.mode}, deletes {chosen.rows.delete_mode}"
        )
        return [line, *(f"hbase: {complaint}" for complaint in cls.check(config))]

    @classmethod
    def check(cls, config: Config) -> list[str]:
        """Whether the server can be reached, and has a table that fits. Blocks, at most for some timeouts."""
        try:
            return tables.check_server(parse_settings(config))
        except ConfigInvalid as error:
            return [f"{PREFIX}ssl.root.cert: {error}"]
        except (Fatal, Retriable) as error:
            message = str(error)
            option = "ssl.root.cert" if any(sign in message.lower() for sign in ("ssl", "certificate")) else "address"
            return [f"{PREFIX}{option}: {message}"]

    def refusal(self, schema: TableSchema) -> str:
        """See ``contract.Sink``."""
        chosen = parse_settings(self.context.config)
        problem = key_refusal(schema, chosen.rows)
        if problem or chosen.append:
            return problem
        return template_refusal(schema, f"{PREFIX}row.key", chosen.row_key, key_of(schema, chosen.rows), chosen.rows)

    def write(self, batch: Batch) -> int:
        """See ``contract.Sink.write``."""
        chosen = parse_settings(self.context.config)

        def prepare(changes: TableChanges) -> OpenClient:
            schema = changes.schema
            name = tables.name_of(chosen, schema.namespace)
            self._targets.fit(name, schema, partial(tables.fit_table, chosen, name))
            return partial(
                HBaseClient, chosen, name, {column.name: column.type.typeName() for column in schema.columns}
            )

        try:
            return write_rows(self.context, "hbase", batch, chosen.rows, prepare)
        except Retriable:
            self._targets.forget()  # a table or a family may have been dropped
            raise
