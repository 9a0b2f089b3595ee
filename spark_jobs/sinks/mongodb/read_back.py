"""Reads the documents of the MongoDB sink back, for ``millrace verify``. Blocks: call it in a thread."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from bson.codec_options import CodecOptions, TypeDecoder, TypeRegistry
from bson.decimal128 import Decimal128

from connectors.verify.values import Milliseconds, SparseRow
from spark_jobs.sinks.mongodb.config import CONFIG_DEF, parse_settings
from spark_jobs.sinks.mongodb.documents import collection_name, database_name
from spark_jobs.sinks.mongodb.server import connect_mongodb, translate_errors
from spark_jobs.sinks.shared.read_back import ROWS_AT_ONCE, demand_row_settings, parse_own_options, select_present

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from decimal import Decimal


class _DecimalReader(TypeDecoder):
    bson_type = Decimal128

    def transform_bson(self, value: Decimal128) -> Decimal:
        return value.to_decimal()


class _MomentReader(TypeDecoder):
    bson_type = datetime

    def transform_bson(self, value: datetime) -> Milliseconds:
        return Milliseconds.of(value)


_VALUES: Final[CodecOptions[Any]] = CodecOptions(
    tz_aware=True, type_registry=TypeRegistry([_DecimalReader(), _MomentReader()])
)


class MongoDocuments:
    """The documents of one job.

    Args:
        properties: of the job, references resolved.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._settings = parse_settings(parse_own_options(CONFIG_DEF, properties))
        demand_row_settings(self._settings.rows)

    def name(self, namespace: str) -> str:
        """The collection that a source table is written to, with its database."""
        return ".".join(self._names(namespace))

    def rows(self, namespace: str) -> Iterator[list[dict[str, Any]]]:
        """The documents of that table, some at a time, without those that are deleted.

        Raises:
            Retriable: the server is unavailable.
            Fatal: it refuses.
        """
        database, collection = self._names(namespace)
        # Of a collection with several tables, the ids of each begin with its name.
        prefix = self._settings.id.of_table(namespace).partition("${")[0]
        with translate_errors(self._settings), closing(connect_mongodb(self._settings)) as client:
            documents = client[database].with_options(codec_options=_VALUES)[collection]
            cursor = documents.find(batch_size=ROWS_AT_ONCE)
            while part := list(islice(cursor, ROWS_AT_ONCE)):
                yield select_present(
                    SparseRow(document) for document in part if str(document["_id"]).startswith(prefix)
                )

    def _names(self, namespace: str) -> tuple[str, str]:
        return (
            database_name(self._settings.database.of_table(namespace)),
            collection_name(self._settings.collection.of_table(namespace)),
        )
