"""Search for the schemas of a batch's records: a cheap pass in the JVM, so that every task only meets schemas the driver knows.

In Avro a record's schema is the five bytes at its beginning. In JSON with a schema it is the text before ``,"payload":``, of
which the JVM takes a hash; JSON that does not begin so is looked at one by one in Python (``inference``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as f

from spark_jobs.reports.heartbeats import Promise, heartbeat_text
from spark_jobs.sources.records.reader import PAYLOAD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame

    from spark_jobs.reports.heartbeats import Heartbeats

HEAD_BYTES: Final = 5
#: Stands for records without a value.
TOMBSTONE: Final = "tombstone"
#: The same of a heartbeat; the part of the source that it speaks for follows it.
_HEARTBEAT: Final = "heartbeat"
_DELIMITER: Final = PAYLOAD.decode()


class Ref(NamedTuple):
    """A reference to the schemas of a record.

    Attributes:
        topic: its topic.
        value: hex of the first five bytes (Avro), or the hash of the schema's text as digits (JSON); empty without a schema.
        key: the same of the key.
    """

    topic: str
    value: str
    key: str


class RecordGroup(NamedTuple):
    """One kind of records in a batch, with the position of its first one, and how many there are."""

    ref: Ref
    partition: int
    offset: int
    number: int


def build_reference(column: str, encoding: str) -> Column:
    """An expression for what stands for the schema of ``column``."""
    if encoding == "bytes":
        return f.lit("")
    data = f.col(column)
    if encoding == "avro":
        return f.coalesce(f.hex(f.substring(data, 1, HEAD_BYTES)), f.lit(""))
    data_text = data.cast("string")
    schema = f.substring_index(data_text, _DELIMITER, 1)
    regular = data_text.startswith('{"schema":') & (f.octet_length(schema) < f.octet_length(data_text))
    return f.when(regular, f.xxhash64(schema).cast("string")).otherwise(f.lit(""))


def find_kinds(
    raw: DataFrame, value_encoding: str, key_encoding: str, heartbeats: Heartbeats, *, tombstones: bool = False
) -> list[RecordGroup]:
    """The kinds of records in ``raw`` (those without a value only with ``tombstones``); runs one Spark job.

    Heartbeats are of no kind: ``heartbeats`` notes them.
    """
    beat = heartbeat_text()
    parts = f.split(beat, " ")
    value = (
        f.when(f.col("value").isNotNull(), build_reference("value", value_encoding))
        .when(beat.isNotNull(), f.concat(f.lit(_HEARTBEAT), f.coalesce(f.get(parts, 1), f.lit(""))))
        .otherwise(f.lit(TOMBSTONE))
    )
    groups = (
        (raw if tombstones else raw.where(f.col("value").isNotNull() | beat.isNotNull()))
        .select(
            "topic",
            "partition",
            "offset",
            value.alias("v"),
            build_reference("key", key_encoding).alias("k"),
            f.get(parts, 0).cast("long").alias("sent"),
            f.when(f.col("value").isNull(), f.unix_micros("timestamp")).alias("came"),
        )
        .groupBy("topic", "partition", "v", "k")
        .agg(
            f.min("offset").alias("offset"),
            f.count(f.lit(1)).alias("number"),
            f.max("sent").alias("sent"),
            f.max("came").alias("came"),
        )
    )
    kinds: dict[Ref, RecordGroup] = {}
    for row in groups.collect():
        if row["sent"] is not None:
            part = row["v"].removeprefix(_HEARTBEAT)
            heartbeats.note(row["topic"], row["topic"], row["partition"], Promise(row["sent"], row["came"]), part)
            continue
        ref = Ref(row["topic"], row["v"], row["k"])
        known_kind = kinds.get(ref)
        if known_kind is None:
            kinds[ref] = RecordGroup(ref, row["partition"], row["offset"], row["number"])
        else:
            kinds[ref] = RecordGroup(ref, known_kind.partition, known_kind.offset, known_kind.number + row["number"])
    return sorted(kinds.values())


def read_samples(raw: DataFrame, kinds: Iterable[RecordGroup]) -> dict[Ref, tuple[bytes | None, bytes]]:
    """Key and value of the first record of each of ``kinds``; runs one Spark job."""
    at = {(kind.ref.topic, kind.partition, kind.offset): kind.ref for kind in kinds}
    if not at:
        return {}
    condition = f.lit(False)
    for topic, partition, offset in at:
        condition |= (f.col("topic") == topic) & (f.col("partition") == partition) & (f.col("offset") == offset)
    records: dict[Ref, tuple[bytes | None, bytes]] = {}
    for row in raw.where(condition).select("topic", "partition", "offset", "key", "value").collect():
        key = bytes(row["key"]) if row["key"] is not None else None
        records[at[row["topic"], row["partition"], row["offset"]]] = (key, bytes(row["value"]))
    return records
