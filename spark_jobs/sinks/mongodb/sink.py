"""The MongoDB sink; see docs/jobs/mongodb.md."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from connectors.errors import Fatal, Retriable
from spark_jobs.contract import Sink
from spark_jobs.sinks.mongodb.client import WRITTEN_AT, MongoClient, connect, faults, guards_of
from spark_jobs.sinks.mongodb.config import CONFIG_DEF, PREFIX, complaints, settings
from spark_jobs.sinks.shared.targets import Targets
from spark_jobs.sinks.shared.writing import key_of, key_refusal, row_metrics, template_refusal, write_rows

if TYPE_CHECKING:
    from connectors.options import Config, ConfigDef
    from spark_jobs.contract import Batch, JobContext, TableSchema
    from spark_jobs.metrics import JobMetric
    from spark_jobs.sinks.mongodb.config import Settings

#: The server does not know an option of an index: a stand-in without expiry.
_UNKNOWN = frozenset({67, 115, 197, 238})


class MongoSink(Sink):
    """Keeps the newest row of each key as a document that only a newer change replaces, or adds each change once."""

    config_def: ClassVar[ConfigDef] = CONFIG_DEF
    guarantees: ClassVar[tuple[str, ...]] = ("exactly-once", "at-least-once", "none")
    metrics: ClassVar[tuple[JobMetric, ...]] = row_metrics("mongodb")

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self._targets = Targets(f"{PREFIX}collection or {PREFIX}id")

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """Options that don't go together."""
        return complaints(config)

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """Where it writes, and how."""
        chosen = settings(config)
        line = (
            f"mongodb: {chosen.access.address}, database {chosen.database}, collection {chosen.collection.text}, mode "
            f"{chosen.rows.mode}, deletes {chosen.rows.delete_mode}"
        )
        return [line, *(f"mongodb: {complaint}" for complaint in cls.check(config))]

    @classmethod
    def check(cls, config: Config) -> list[str]:
        """Whether the server answers and takes the login. Blocks, at most for a timeout."""
        chosen = settings(config)
        try:
            with faults(chosen), contextlib.closing(connect(chosen)) as client:
                client[chosen.database].list_collection_names()
        except Fatal as error:
            return [f"{PREFIX}{'password' if PREFIX + 'password' in str(error) else 'url'}: {error}"]
        except Retriable as error:
            tls = any(sign in str(error).lower() for sign in ("ssl", "certificate"))
            return [f"{PREFIX}{'ssl.root.cert' if tls else 'url'}: {error}"]
        return []

    def refusal(self, schema: TableSchema) -> str:
        """See ``contract.Sink``."""
        chosen = settings(self.context.config)
        problem = key_refusal(schema, chosen.rows)
        if problem or chosen.append:
            return problem
        key = key_of(schema, chosen.rows)
        if key != ("_id",) and "_id" in {column.name for column in schema.columns}:
            return (
                f"table {schema.namespace} has a column _id, which is the key's in MongoDB: make it the key "
                f"({PREFIX}key.columns=_id), or rename it by a step of type select"
            )
        return template_refusal(schema, f"{PREFIX}id", chosen.id, key, chosen.rows) if chosen.id.text else ""

    def write(self, batch: Batch) -> int:
        """See ``contract.Sink.write``."""
        chosen = settings(self.context.config)
        shared = chosen.append or any(f"${{{part}}}" in chosen.id.text for part in ("namespace", "database"))

        def prepare(schema: TableSchema) -> None:
            name = chosen.collection.of_table(schema.namespace)
            self._targets.fit(name, schema, lambda _: _remember(chosen, name), shared=shared)

        return write_rows(self.context, "mongodb", batch, chosen.rows, partial(MongoClient, chosen), prepare)


def _remember(chosen: Settings, collection: str) -> None:
    """Let the server forget deletes of a collection after their time. Blocks; raises ``Retriable`` and ``Fatal``."""
    from pymongo.errors import OperationFailure

    if not chosen.remembers:
        return
    with faults(chosen), contextlib.closing(connect(chosen)) as client:
        guards = client[chosen.database][guards_of(collection)]
        try:
            guards.create_index(WRITTEN_AT, expireAfterSeconds=chosen.retention_ms // 1000, name="ums_expiry")
        except OperationFailure as error:
            if error.code == 85:  # the time was another one before
                guards.drop_index("ums_expiry")
                guards.create_index(WRITTEN_AT, expireAfterSeconds=chosen.retention_ms // 1000, name="ums_expiry")
            elif error.code not in _UNKNOWN:
                raise
