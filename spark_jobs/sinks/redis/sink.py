"""The Redis sink; see docs/jobs/redis.md."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from connectors.errors import ConfigInvalid, Fatal, Retriable
from spark_jobs.contract import Sink
from spark_jobs.sinks.redis.client import RedisSinkClient, connect_redis, translate_errors
from spark_jobs.sinks.redis.config import CONFIG_DEF, HASH, PREFIX, STREAM, check_options, parse_settings
from spark_jobs.sinks.shared.writing import key_of, key_refusal, row_metrics, template_refusal, write_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import Config, ConfigDef
    from spark_jobs.contract import Batch, TableSchema
    from spark_jobs.metrics import JobMetric
    from spark_jobs.sinks.redis.read_back import RedisTargetRows


class RedisSink(Sink):
    """Keeps the newest row of each key, or appends each change to a stream; a row and its order number in one script."""

    config_def: ClassVar[ConfigDef] = CONFIG_DEF
    guarantees: ClassVar[tuple[str, ...]] = ("exactly-once", "at-least-once", "none")
    metrics: ClassVar[tuple[JobMetric, ...]] = row_metrics("redis")

    @classmethod
    def read_back(cls, properties: Mapping[str, str]) -> RedisTargetRows:
        """The keys that a job with these properties writes, for ``millrace verify``.

        Raises:
            Fatal: they have no row of each key, or its columns can't be read.
        """
        from spark_jobs.sinks.redis.read_back import RedisTargetRows

        return RedisTargetRows(properties)

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """Options that don't go together."""
        return check_options(config)

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """Where it writes, and how."""
        chosen = parse_settings(config)
        line = f"redis: {chosen.access.address}, form {chosen.form}, key {chosen.key.text}, deletes {chosen.rows.delete_mode}"
        return [line, *(f"redis: {complaint}" for complaint in cls.check(config))]

    @classmethod
    def check(cls, config: Config) -> list[str]:
        """Whether the server can be reached and takes the login. Blocks, at most for a timeout."""
        chosen = parse_settings(config)
        try:
            with translate_errors(chosen), contextlib.closing(connect_redis(chosen)) as client:
                client.ping()
        except Fatal as error:
            return [f"{PREFIX}{'password' if 'password' in str(error) else 'url'}: {error}"]
        except Retriable as error:
            message = str(error)
            tls = chosen.url.startswith("rediss:") and any(sign in message.lower() for sign in ("ssl", "certificate"))
            return [f"{PREFIX}{'ssl.root.cert' if tls else 'url'}: {message}"]
        except ConfigInvalid as error:
            return [f"{PREFIX}ssl.root.cert: {error}"]
        return []

    def refusal(self, schema: TableSchema) -> str:
        """See ``contract.Sink``."""
        chosen = parse_settings(self.context.config)
        problem = key_refusal(schema, chosen.rows)
        if problem:
            return problem
        present = {column.name for column in schema.columns}
        named = {"key": chosen.key.columns, "value": chosen.value.columns, "member": chosen.member.columns}
        named["score.column"] = (chosen.score,) if chosen.score else ()
        for option, columns in named.items():
            lacking = [name for name in columns if name not in present]
            if lacking:
                return f"table {schema.namespace} has no column {', '.join(lacking)}, which {PREFIX}{option} names"
        if chosen.form == STREAM:
            return ""
        return template_refusal(schema, f"{PREFIX}key", chosen.key, key_of(schema, chosen.rows), chosen.rows)

    def write(self, batch: Batch) -> int:
        """See ``contract.Sink.write``."""
        chosen = parse_settings(self.context.config, self.context.name)
        open_client = partial(RedisSinkClient, chosen)
        return write_rows(self.context, "redis", batch, chosen.rows, lambda _: open_client, arrow=chosen.form == HASH)
