"""The ClickHouse sink; see docs/jobs/clickhouse.md."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from connectors.errors import ConfigInvalid, Fatal, Retriable
from spark_jobs.contract import Sink
from spark_jobs.sinks.clickhouse.client import ClickHouseClient
from spark_jobs.sinks.clickhouse.config import CONFIG_DEF, PREFIX, check_options, parse_settings
from spark_jobs.sinks.clickhouse.tables import check_database, fit_table
from spark_jobs.sinks.shared.http_requests import is_about_tls
from spark_jobs.sinks.shared.targets import Targets
from spark_jobs.sinks.shared.writing import key_refusal, row_metrics, write_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import Config, ConfigDef
    from spark_jobs.contract import Batch, JobContext, TableChanges, TableSchema
    from spark_jobs.metrics import JobMetric
    from spark_jobs.sinks.clickhouse.read_back import ClickHouseRows
    from spark_jobs.sinks.shared.model import OpenClient


class ClickHouseSink(Sink):
    """Inserts rows into tables whose engine keeps the newest of each key, or each change once."""

    config_def: ClassVar[ConfigDef] = CONFIG_DEF
    guarantees: ClassVar[tuple[str, ...]] = ("exactly-once", "at-least-once", "none")
    metrics: ClassVar[tuple[JobMetric, ...]] = row_metrics("clickhouse")

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self._targets = Targets(f"{PREFIX}table")
        self._types: dict[str, dict[str, str]] = {}

    @classmethod
    def read_back(cls, properties: Mapping[str, str]) -> ClickHouseRows:
        """The tables that a job with these properties writes, for ``millrace verify``.

        Raises:
            Fatal: they have no row of each key.
        """
        from spark_jobs.sinks.clickhouse.read_back import ClickHouseRows

        return ClickHouseRows(properties)

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """Options that don't go together."""
        return check_options(config)

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """Where it writes, and how."""
        chosen = parse_settings(config)
        line = (
            f"clickhouse: {chosen.access.address}, database {chosen.database}, table {chosen.table.text}, mode "
            f"{chosen.rows.mode}, deletes {chosen.rows.delete_mode}"
        )
        return [line, *(f"clickhouse: {complaint}" for complaint in cls.check(config))]

    @classmethod
    def check(cls, config: Config) -> list[str]:
        """Whether the server answers, takes the login and has the database. Blocks, at most for a timeout per address."""
        chosen = parse_settings(config)
        requests = chosen.requests()
        try:
            check_database(requests, chosen)
        except Retriable as error:
            return [f"{PREFIX}{'ssl.root.cert' if is_about_tls(error) else 'url'}: {error}"]
        except ConfigInvalid as error:
            return [f"{PREFIX}ssl.root.cert: {error}"]
        except Fatal as error:
            message = str(error)
            options = {"password": "password", "database": "database"}
            return [f"{PREFIX}{next((name for name in options if PREFIX + name in message), 'url')}: {message}"]
        finally:
            requests.close()
        return []

    def refusal(self, schema: TableSchema) -> str:
        """See ``contract.Sink``."""
        return key_refusal(schema, parse_settings(self.context.config).rows)

    def write(self, batch: Batch) -> int:
        """See ``contract.Sink.write``."""
        chosen = parse_settings(self.context.config)

        def prepare(changes: TableChanges) -> OpenClient:
            namespace = changes.schema.namespace

            def fit(schema: TableSchema) -> None:
                self._types[namespace] = fit_table(chosen, schema)

            self._targets.fit(chosen.table.of_table(namespace), changes.schema, fit, shared=chosen.append)
            return partial(ClickHouseClient, chosen, types=self._types[namespace])

        try:
            return write_rows(self.context, "clickhouse", batch, chosen.rows, prepare, arrow=True)
        except Retriable:
            self._targets.forget()  # a table may have been dropped
            raise
