"""The HTTP sink; see docs/jobs/http.md."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from connectors.errors import ConfigInvalid, Fatal, Retriable
from spark_jobs.contract import Sink
from spark_jobs.sinks.http.client import HttpSinkClient, request_status
from spark_jobs.sinks.http.config import CONFIG_DEF, HEADER, PREFIX, check_options, parse_settings
from spark_jobs.sinks.shared.writing import key_refusal, row_metrics, write_rows

if TYPE_CHECKING:
    from connectors.options import Config, ConfigDef
    from spark_jobs.contract import Batch, TableSchema
    from spark_jobs.metrics import JobMetric
    from spark_jobs.sinks.http.config import HttpSettings


class HttpSink(Sink):
    """Sends rows to a service, one or many in a request; each with a key by which the service can know it again."""

    config_def: ClassVar[ConfigDef] = CONFIG_DEF
    guarantees: ClassVar[tuple[str, ...]] = ("at-least-once", "none")
    not_read_back: ClassVar[str] = "it sends changes to a service, which has no request to read rows"
    pass_through: ClassVar[tuple[str, ...]] = (HEADER,)
    metrics: ClassVar[tuple[JobMetric, ...]] = row_metrics("http")

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """Options that don't go together."""
        return check_options(config, config.prefixed(HEADER))

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """Where it sends rows, and how."""
        chosen = _parse_config(config)
        line = f"http: {chosen.method} {chosen.url.text}, {chosen.format}, mode {chosen.rows.mode}"
        return [line, *(f"http: {complaint}" for complaint in cls.check(config))]

    @classmethod
    def check(cls, config: Config) -> list[str]:
        """Whether the service answers and does not refuse the login. Blocks, at most for a timeout."""
        chosen = _parse_config(config)
        login = "user" if chosen.access.user else "token" if chosen.token else "oauth.client.id"
        try:
            status = request_status(chosen)
        except Fatal as error:
            return [f"{PREFIX}{login}: {error}"]
        except Retriable as error:
            message = str(error)
            tls = any(sign in message.lower() for sign in ("ssl", "certificate"))
            return [f"{PREFIX}{'ssl.root.cert' if tls else 'url'}: {message}"]
        except ConfigInvalid as error:
            return [f"{PREFIX}ssl.root.cert: {error}"]
        return [f"{PREFIX}{login}: {chosen.where} answers {status} to the login"] if status in (401, 403) else []

    def refusal(self, schema: TableSchema) -> str:
        """See ``contract.Sink``."""
        chosen = _parse_config(self.context.config)
        problem = key_refusal(schema, chosen.rows)
        if problem:
            return problem
        present = {column.name for column in schema.columns}
        templates = [chosen.url, *(template for _, template in chosen.headers)]
        lacking = [name for template in templates for name in template.columns if name not in present]
        if lacking:
            return f"table {schema.namespace} has no column {', '.join(lacking)}, which {PREFIX}url or {HEADER}* names"
        if "key" in chosen.url.row_parts and not (schema.key or chosen.rows.key_columns):
            return (
                f"table {schema.namespace} has no primary key, and {PREFIX}url names ${{key}}: set {PREFIX}key.columns"
            )
        return ""

    def write(self, batch: Batch) -> int:
        """See ``contract.Sink.write``."""
        chosen = _parse_config(self.context.config)
        open_client = partial(HttpSinkClient, chosen)
        return write_rows(self.context, "http", batch, chosen.rows, lambda _: open_client)


def _parse_config(config: Config) -> HttpSettings:
    return parse_settings(config, config.prefixed(HEADER))
