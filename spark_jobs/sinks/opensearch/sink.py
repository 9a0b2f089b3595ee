"""The OpenSearch sink; see docs/jobs/opensearch.md."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from connectors.errors import ConfigInvalid, Retriable
from spark_jobs.contract import Sink
from spark_jobs.sinks.opensearch.client import OpenSearchClient, describe_answer
from spark_jobs.sinks.opensearch.config import CONFIG_DEF, PREFIX, check_options, parse_settings
from spark_jobs.sinks.opensearch.indices import fit_index
from spark_jobs.sinks.opensearch.mapping import METADATA, index_name
from spark_jobs.sinks.shared.http_requests import is_about_tls
from spark_jobs.sinks.shared.targets import Targets
from spark_jobs.sinks.shared.writing import key_of, key_refusal, row_metrics, template_refusal, write_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import Config, ConfigDef
    from spark_jobs.contract import Batch, JobContext, TableChanges, TableSchema
    from spark_jobs.metrics import JobMetric
    from spark_jobs.sinks.opensearch.read_back import OpenSearchDocuments
    from spark_jobs.sinks.shared.model import OpenClient


class OpenSearchSink(Sink):
    """Keeps the newest row of each key as a document whose version is the change's order number, or adds each change."""

    config_def: ClassVar[ConfigDef] = CONFIG_DEF
    guarantees: ClassVar[tuple[str, ...]] = ("exactly-once", "at-least-once", "none")
    metrics: ClassVar[tuple[JobMetric, ...]] = row_metrics("opensearch")

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self._targets = Targets(f"{PREFIX}index or {PREFIX}id")

    @classmethod
    def read_back(cls, properties: Mapping[str, str]) -> OpenSearchDocuments:
        """The documents that a job with these properties writes, for ``millrace verify``.

        Raises:
            Fatal: there is no document of each key.
        """
        from spark_jobs.sinks.opensearch.read_back import OpenSearchDocuments

        return OpenSearchDocuments(properties)

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """Options that don't go together."""
        return check_options(config)

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """Where it writes, and how."""
        chosen = parse_settings(config)
        line = (
            f"opensearch: {chosen.access.address}, index {chosen.index.text}, mode {chosen.rows.mode}, deletes "
            f"{chosen.rows.delete_mode}"
        )
        return [line, *(f"opensearch: {complaint}" for complaint in cls.check(config))]

    @classmethod
    def check(cls, config: Config) -> list[str]:
        """Whether a node answers and takes the login. Blocks, at most for a timeout per node."""
        chosen = parse_settings(config)
        requests = chosen.requests()
        try:
            answer = requests.exchange("GET", "/")
        except Retriable as error:
            return [f"{PREFIX}{'ssl.root.cert' if is_about_tls(error) else 'url'}: {error}"]
        except ConfigInvalid as error:
            return [f"{PREFIX}ssl.root.cert: {error}"]
        finally:
            requests.close()
        if answer.status == 401:
            return [f"{PREFIX}{'api.key' if chosen.api_key else 'password'}: {describe_answer(answer, requests.where)}"]
        # A login may write without the right to read about the cluster.
        if answer.status not in (200, 403):
            return [f"{PREFIX}url: {describe_answer(answer, requests.where)}"]
        return []

    def refusal(self, schema: TableSchema) -> str:
        """See ``contract.Sink``."""
        chosen = parse_settings(self.context.config)
        problem = key_refusal(schema, chosen.rows)
        if problem:
            return problem
        reserved = [column.name for column in schema.columns if column.name in METADATA]
        if reserved:
            return (
                f"table {schema.namespace} has the column {', '.join(reserved)}, a name that OpenSearch has for itself: "
                "rename or leave out the column by a step (select)"
            )
        if chosen.append:
            return ""
        return template_refusal(schema, f"{PREFIX}id", chosen.id, key_of(schema, chosen.rows), chosen.rows)

    def write(self, batch: Batch) -> int:
        """See ``contract.Sink.write``."""
        chosen = parse_settings(self.context.config)
        shared = chosen.append or any(f"${{{part}}}" in chosen.id.text for part in ("namespace", "database"))

        def prepare(changes: TableChanges) -> OpenClient:
            name = index_name(chosen.index.of_table(changes.schema.namespace))
            self._targets.fit(name, changes.schema, partial(fit_index, chosen, name), shared=shared)
            return partial(OpenSearchClient, chosen)

        try:
            return write_rows(self.context, "opensearch", batch, chosen.rows, prepare)
        except Retriable:
            self._targets.forget()  # an index may have been deleted
            raise
