"""The Cassandra sink; see docs/jobs/cassandra-sink.md."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from connectors.errors import Fatal, Retriable
from spark_jobs.sinks.cassandra import cluster
from spark_jobs.sinks.cassandra.client import CassandraClient
from spark_jobs.sinks.cassandra.config import CONFIG_DEF, PREFIX, check_options, parse_settings
from spark_jobs.sinks.cassandra.tables import name_refusal
from spark_jobs.sinks.shared.writing import key_refusal, row_metrics, write_rows
from spark_jobs.write_ahead_log import WriteAheadLogSink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import Config, ConfigDef
    from spark_jobs.contract import JobContext, TableChanges, TableSchema
    from spark_jobs.metrics import JobMetric
    from spark_jobs.sinks.cassandra.read_back import CassandraTargetRows
    from spark_jobs.sinks.shared.model import OpenClient
    from spark_jobs.write_ahead_log import BatchSection


class CassandraSink(WriteAheadLogSink):
    """Writes rows with the order number of their change as write time; with ``exactly-once`` out of a write-ahead log."""

    config_def: ClassVar[ConfigDef] = CONFIG_DEF
    guarantees: ClassVar[tuple[str, ...]] = ("exactly-once", "at-least-once", "none")
    metrics: ClassVar[tuple[JobMetric, ...]] = row_metrics("cassandra")

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self._tables = cluster.CassandraTables(parse_settings(context.config))

    @classmethod
    def read_back(cls, properties: Mapping[str, str]) -> CassandraTargetRows:
        """The tables that a job with these properties writes, for ``millrace verify``.

        Raises:
            Fatal: they have no row of each key.
        """
        from spark_jobs.sinks.cassandra.read_back import CassandraTargetRows

        return CassandraTargetRows(properties)

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """Options that don't go together."""
        return check_options(config)

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """Where it writes, and how."""
        chosen = parse_settings(config)
        line = (
            f"cassandra: {chosen.access.address}, table {chosen.keyspace.text}.{chosen.table.text}, mode {chosen.rows.mode}, "
            f"deletes {chosen.rows.delete_mode}, consistency {chosen.consistency}"
        )
        return [line, *(f"cassandra: {complaint}" for complaint in cls.check(config))]

    @classmethod
    def check(cls, config: Config) -> list[str]:
        """Whether the cluster can be reached, takes the login, and has a table that fits. Blocks, at most for some timeouts."""
        from spark_jobs.sources.declared import declared_tables  # it needs Spark's types

        try:
            return cluster.check_cluster(parse_settings(config), declared_tables(config))
        except (Fatal, Retriable) as error:
            message = str(error)
            lowered = message.lower()
            option = "hosts"
            if "credentials" in lowered:
                option = "password"
            elif "data centre '" in lowered:
                option = "datacenter"
            elif "certificate" in lowered or "ssl" in lowered:
                option = "ssl.root.cert"
            return [f"{PREFIX}{option}: {message}"]

    def refusal(self, schema: TableSchema) -> str:
        """See ``contract.Sink``."""
        chosen = parse_settings(self.context.config)
        return key_refusal(schema, chosen.rows) or name_refusal(chosen, schema)

    def send(self, section: BatchSection) -> int:
        """See ``WriteAheadLogSink.send``."""
        chosen = parse_settings(self.context.config)
        self._tables.settings = chosen

        def prepare(changes: TableChanges) -> OpenClient:
            return partial(CassandraClient, chosen, self._tables.target(changes))

        try:
            return write_rows(self.context, "cassandra", section.batch, chosen.rows, prepare)
        except (Fatal, Retriable):
            self._tables.forget()
            raise
