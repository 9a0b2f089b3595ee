"""The MongoDB sink; see docs/jobs/mongodb.md."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from connectors.errors import ConfigInvalid, Fatal, Retriable
from spark_jobs.contract import Sink
from spark_jobs.sinks.mongodb.client import WRITTEN_AT, MongoClient
from spark_jobs.sinks.mongodb.config import CONFIG_DEF, PREFIX, check_options, parse_settings
from spark_jobs.sinks.mongodb.documents import collection_name, database_name, guards_of
from spark_jobs.sinks.mongodb.server import connect_mongodb, translate_errors
from spark_jobs.sinks.shared.targets import Targets
from spark_jobs.sinks.shared.writing import key_of, key_refusal, row_metrics, template_refusal, write_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import Config, ConfigDef
    from spark_jobs.contract import Batch, JobContext, TableChanges, TableSchema
    from spark_jobs.metrics import JobMetric
    from spark_jobs.sinks.mongodb.config import MongoSettings
    from spark_jobs.sinks.mongodb.read_back import MongoDocuments
    from spark_jobs.sinks.shared.model import OpenClient

#: The server does not know an option of an index: one with MongoDB's protocol and without expiry.
_UNKNOWN = frozenset({67, 115, 197, 238})
#: There is an index with another option: the time was another one before.
_OTHERWISE = frozenset({85, 86})
_EXPIRY = "ums_expiry"
#: There is such a collection.
_EXISTS = 48


class MongoSink(Sink):
    """Keeps the newest row of each key as a document that only a newer change replaces, or adds each change once."""

    config_def: ClassVar[ConfigDef] = CONFIG_DEF
    guarantees: ClassVar[tuple[str, ...]] = ("exactly-once", "at-least-once", "none")
    metrics: ClassVar[tuple[JobMetric, ...]] = row_metrics("mongodb")

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self._targets = Targets(f"{PREFIX}collection or {PREFIX}id")

    @classmethod
    def read_back(cls, properties: Mapping[str, str]) -> MongoDocuments:
        """The documents that a job with these properties writes, for ``millrace verify``.

        Raises:
            Fatal: there is no document of each key.
        """
        from spark_jobs.sinks.mongodb.read_back import MongoDocuments

        return MongoDocuments(properties)

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """Options that don't go together."""
        return check_options(config)

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """Where it writes, and how."""
        chosen = parse_settings(config)
        line = (
            f"mongodb: {chosen.access.address}, database {chosen.database.text}, collection {chosen.collection.text}, mode "
            f"{chosen.rows.mode}, deletes {chosen.rows.delete_mode}"
        )
        return [line, *(f"mongodb: {complaint}" for complaint in cls.check(config))]

    @classmethod
    def check(cls, config: Config) -> list[str]:
        """Whether the server answers and takes the login. Blocks, at most for a timeout."""
        chosen = parse_settings(config)
        try:
            with translate_errors(chosen), contextlib.closing(connect_mongodb(chosen)) as client:
                client.admin.command("ping")
                if "$" not in chosen.database.text:
                    client[database_name(chosen.database.text)].command("listCollections", nameOnly=True)
        except Fatal as error:
            message = str(error)
            named = next((name for name in ("password", "user", "database") if f"{PREFIX}{name}" in message), "url")
            return [f"{PREFIX}{named}: {message}"]
        except Retriable as error:
            tls = any(sign in str(error).lower() for sign in ("ssl", "certificate"))
            return [f"{PREFIX}{'ssl.root.cert' if tls else 'url'}: {error}"]
        except ConfigInvalid as error:
            return [f"{PREFIX}ssl.root.cert: {error}"]
        return []

    def refusal(self, schema: TableSchema) -> str:
        """See ``contract.Sink``."""
        chosen = parse_settings(self.context.config)
        problem = key_refusal(schema, chosen.rows)
        if problem:
            return problem
        key = () if chosen.append else key_of(schema, chosen.rows)
        if key != ("_id",) and "_id" in {column.name for column in schema.columns}:
            remedy = "" if chosen.append else f"make it the key ({PREFIX}key.columns=_id), or "
            return (
                f"table {schema.namespace} has a column _id, a name that MongoDB has for the key: {remedy}rename it by a step "
                "of type select"
            )
        if chosen.append or not chosen.id.text:
            return ""
        return template_refusal(schema, f"{PREFIX}id", chosen.id, key, chosen.rows)

    def write(self, batch: Batch) -> int:
        """See ``contract.Sink.write``."""
        chosen = parse_settings(self.context.config)
        shared = chosen.append or any(f"${{{part}}}" in chosen.id.text for part in ("namespace", "database"))

        def prepare(changes: TableChanges) -> OpenClient:
            namespace = changes.schema.namespace
            database = database_name(chosen.database.of_table(namespace))
            name = collection_name(chosen.collection.of_table(namespace))
            create = partial(_create_collection, chosen, database, name)
            self._targets.fit(f"{database}.{name}", changes.schema, lambda _: create(), shared=shared)
            return partial(MongoClient, chosen)

        try:
            return write_rows(self.context, "mongodb", batch, chosen.rows, prepare)
        except Retriable:
            self._targets.forget()  # the collection may have been dropped
            raise


def _create_collection(chosen: MongoSettings, database: str, collection: str) -> None:
    """Create a collection that is missing, and let the server forget its deletes after their time. Blocks.

    Raises:
        Retriable: the server is unavailable.
        Fatal: it refuses the login, or the collection.
    """
    from pymongo.errors import OperationFailure

    with translate_errors(chosen), contextlib.closing(connect_mongodb(chosen)) as client:
        try:
            client[database].command("create", collection)
        except OperationFailure as error:
            if error.code != _EXISTS:
                raise
        if not chosen.remembers:
            return
        guards = client[database][guards_of(collection)]
        expiry = {"name": _EXPIRY, "expireAfterSeconds": chosen.retention_ms // 1000}
        try:
            guards.create_index(WRITTEN_AT, **expiry)
        except OperationFailure as error:
            if error.code in _OTHERWISE:
                client[database].command("collMod", guards.name, index=expiry)
            elif error.code not in _UNKNOWN:
                raise
