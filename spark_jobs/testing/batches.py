"""Changes as the kit writes them down, and the batches that a sink gets: the frames that a source makes of Kafka's records."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from spark_jobs.contract import SYSTEM_COLUMNS, Batch, TableChanges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.contract import TableSchema

#: Partitions of the topic that the kit's changes pretend to come from; all changes of a key are in one.
PARTITIONS: Final = 2
_SYSTEM_TYPES: Final = (
    pa.int64(),
    pa.timestamp("us", "UTC"),
    pa.string(),
    pa.string(),
    pa.string(),
    pa.int32(),
    pa.int64(),
)
#: Of ``ums_ts_``: microseconds since 1970, to which a change's number is added.
_TIME_US: Final = 1_780_000_000_000_000


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a row.

    Attributes:
        op: i, u, d or b (the image before an update), as in ``ums_op_``.
        number: its place in the order of changes, ``ums_id_``.
        values: column -> value; columns that are left out are null.
    """

    op: str
    number: int
    values: Mapping[str, Any]


def change(op: str, number: int, /, **values: Any) -> Change:
    """A change of a table whose column names are Python names."""
    return Change(op, number, values)


@dataclass(slots=True)
class BatchFeed:
    """Gives changes their places in a topic, as Kafka would, and cuts them into batches.

    Attributes:
        topic: the topic's name.
        ends: partition -> the next offset.
    """

    topic: str
    ends: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))
    _batches: int = 0

    def next(self, tables: Sequence[tuple[TableSchema, Sequence[Change]]]) -> BatchData:
        """The next batch."""
        begin, rows = dict(self.ends), []
        for schema, changes in tables:
            placed = []
            for row_change in changes:
                key = json.dumps([row_change.values.get(column.name) for column in schema.key], default=str)
                partition = zlib.crc32(key.encode()) % PARTITIONS
                placed.append(_make_row(row_change, self.topic, partition, self.ends[partition], key))
                self.ends[partition] += 1
            rows.append((schema, placed))
        ranges = {(self.topic, part): (begin[part], end) for part, end in self.ends.items() if end > begin[part]}
        self._batches += 1
        return BatchData(self._batches - 1, rows, ranges)


def _make_row(row_change: Change, topic: str, partition: int, offset: int, key: str) -> dict[str, Any]:
    system = (
        row_change.number,
        _TIME_US + row_change.number,
        row_change.op,
        f"{partition}-{offset}",
        topic,
        partition,
        offset,
    )
    return {**row_change.values, **dict(zip(SYSTEM_COLUMNS, system, strict=True)), "": key}


@dataclass(frozen=True, slots=True)
class BatchData:
    """A batch before Spark has it; picklable. ``tables``: rows with system columns, their key as JSON under an empty name."""

    id: int
    tables: list[tuple[TableSchema, list[dict[str, Any]]]]
    ranges: dict[tuple[str, int], tuple[int, int]]

    def frames(self, spark: SparkSession) -> Batch:
        """The batch as the frame gives it to a sink."""
        table_changes = [TableChanges(schema, make_frame(spark, schema, rows)) for schema, rows in self.tables]
        return Batch(self.id, _make_raw_frame(spark, self.tables), self.ranges, lambda: table_changes)


def make_frame(spark: SparkSession, schema: TableSchema, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """``TableChanges.frame``: a partition for each one of Kafka's, rows in the order of their offsets."""
    parts: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        parts[row["kafka_partition_"]].append(row)
    fields = [StructField(column.name, column.type) for column in schema.columns]
    fields += [
        StructField(name, from_arrow_type(kind)) for name, kind in zip(SYSTEM_COLUMNS, _SYSTEM_TYPES, strict=True)
    ]
    partition_frames = [
        spark.createDataFrame(arrow_table(schema, part), StructType(fields)).coalesce(1)
        for _, part in sorted(parts.items()) or [(0, [])]
    ]
    return reduce(lambda left, right: left.union(right), partition_frames)


def arrow_table(schema: TableSchema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as Arrow: the table's columns, then ``SYSTEM_COLUMNS``."""
    types = {column.name: to_arrow_type(column.type, timezone="UTC") for column in schema.columns}
    types |= dict(zip(SYSTEM_COLUMNS, _SYSTEM_TYPES, strict=True))
    return pa.table({name: pa.array([row.get(name) for row in rows], kind) for name, kind in types.items()})


def _make_raw_frame(
    spark: SparkSession, tables: Sequence[tuple[TableSchema, Sequence[Mapping[str, Any]]]]
) -> DataFrame:
    """``Batch.raw``: keys and values as JSON."""
    records = [
        {
            "key": row[""].encode(),
            "value": json.dumps(dict(row), default=str).encode(),
            "headers": None,
            "topic": row["kafka_topic_"],
            "partition": row["kafka_partition_"],
            "offset": row["kafka_offset_"],
            "timestamp": row["ums_ts_"],
        }
        for _, rows in tables
        for row in rows
    ]
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": header,
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
    return spark.createDataFrame(
        pa.table({name: pa.array([record[name] for record in records], kind) for name, kind in types.items()})
    )


def struct_of(names: Sequence[str]) -> StructType:
    """A struct of strings."""
    return StructType([StructField(name, StringType()) for name in names])
