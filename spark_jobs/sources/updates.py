"""``source.format=partition-update`` without the materializer: a history of the raw updates, one row each, as JSON text.

An update is no image of a row: to have rows, use ``transform.type=materialize``. Of JSON the JVM only takes the bytes as text;
Avro it decodes and writes as JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql import functions as f
from pyspark.sql import types as t

from connectors.errors import Fatal, Skippable
from connectors.options import ConfigDef
from spark_jobs.contract import Column, Source, TableChanges, TableSchema
from spark_jobs.dead_letters import DeadLetters
from spark_jobs.reports.heartbeats import Heartbeats
from spark_jobs.sources.avro.expressions import HEAD_SIZE, RegistrySchemas, decode_column, encode_head
from spark_jobs.sources.avro.frame import putting_aside
from spark_jobs.sources.records.discovery import find_kinds
from spark_jobs.sources.tasks import FIELDS
from spark_jobs.spark.frames import choose_last

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

    from spark_jobs.contract import Batch, JobContext
    from spark_jobs.sources.records.discovery import RecordGroup

#: The columns: Kafka's key (the partition key in Cassandra's serialized form) and the update. There is no primary key: every
#: update counts.
COLUMNS: Final = (Column("partition_key", t.BinaryType()), Column("update", t.StringType()))
_BAD: Final = "The bytes are no partition update: not UTF-8, or not what the schema says."


class PartitionUpdateSource(Source):
    """Gives each update as a row ``partition_key``, ``update``; the topic is the table, every row an insert (``ums_op_`` i)."""

    config_def: ClassVar[ConfigDef] = ConfigDef()
    no_rows: ClassVar[str] = "an update of a partition is no image of a row"

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self._avro = context.config.get("source.value.encoding") == "avro"
        self._registry = RegistrySchemas(context.config) if self._avro else None
        self._schema_texts: dict[int, str] = {}

    def changes(self, batch: Batch) -> list[TableChanges]:
        """See ``Source.changes``; runs one Spark job that looks for schemas and heartbeats."""
        report = DeadLetters.of(self.context)
        kinds = find_kinds(batch.raw, "avro" if self._avro else "bytes", "bytes", Heartbeats.of(self.context))
        rows = batch.raw.where(f.col("value").isNotNull())
        payload = (
            self._from_avro(kinds)
            if self._avro
            else f.when(f.is_valid_utf8(f.col("value").cast("string")), f.col("value").cast("string"))
        )
        rows = rows.select(*FIELDS, payload.alias("update"))
        if report.tolerant:
            bad = rows.where(f.col("update").isNull()).select(
                "topic", "partition", "offset", "key", "value", f.lit(_BAD).alias("error")
            )
            bad.mapInArrow(putting_aside(report), "n long").collect()
            rows = rows.where(f.col("update").isNotNull())
        else:
            position_text = f.concat(
                f.lit("the record at "),
                "topic",
                f.lit("-"),
                f.col("partition").cast("string"),
                f.lit(" offset "),
                f.col("offset").cast("string"),
                f.lit(f" can't be decoded: {_BAD}"),
            )
            rows = rows.withColumn("update", f.coalesce("update", f.raise_error(position_text).cast("string")))
        return [
            TableChanges(TableSchema(topic, COLUMNS), _update_rows(rows.where(f.col("topic") == topic)))
            for topic in sorted({topic for (topic, _), (first, end) in batch.ranges.items() if end > first})
        ]

    def _from_avro(self, kinds: list[RecordGroup]) -> Expression:
        if self._registry is None:
            raise Fatal("source.schema.registry.url is missing.")
        ids = set()
        for kind in kinds:
            if len(kind.ref.value) == 2 * HEAD_SIZE and kind.ref.value.startswith("00"):
                ids.add(int.from_bytes(bytes.fromhex(kind.ref.value)[1:], "big"))
        cases = []
        for schema_id in sorted(ids):
            if schema_id not in self._schema_texts:
                try:
                    self._schema_texts[schema_id] = self._registry.text(schema_id)
                except Skippable as error:
                    raise Fatal(str(error)) from error
            update = decode_column(f.col("value"), self._schema_texts[schema_id])
            mine = f.substring("value", 1, HEAD_SIZE) == encode_head(schema_id)
            cases.append((mine, f.when(update.getField("key").isNotNull(), f.to_json(update))))
        return choose_last(cases, f.lit(None).cast("string"))


def _update_rows(rows: DataFrame) -> DataFrame:
    return rows.select(
        f.col("key").alias("partition_key"),
        "update",
        f.col("offset").alias("ums_id_"),
        f.col("timestamp").alias("ums_ts_"),
        f.lit("i").alias("ums_op_"),
        f.concat_ws("-", "topic", f.col("partition").cast("string"), f.col("offset").cast("string")).alias("ums_uid_"),
        f.col("topic").alias("kafka_topic_"),
        f.col("partition").alias("kafka_partition_"),
        f.col("offset").alias("kafka_offset_"),
    )
