"""History in plain Python: changes of a table, and what snapshots and zipper tables of them have to be."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from spark_jobs.contract import Batch, Column, TableChanges, TableSchema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

EPOCH = datetime(2026, 11, 20, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Change:
    """One row of history. ``second`` counts from ``EPOCH``."""

    key: Any
    values: Mapping[str, Any]
    op: str
    id: int
    second: float
    offset: int
    partition: int = 0
    topic: str = "orders"

    @property
    def time(self) -> datetime:
        """``ums_ts_``."""
        return EPOCH + timedelta(seconds=self.second)


@dataclass(slots=True)
class Shape:
    """A table: name, key, columns."""

    namespace: str = "shop.orders"
    key: str = "id"
    columns: dict[str, DataType] = field(default_factory=dict)


def table_changes(spark: SparkSession, shape: Shape, changes: Iterable[Change]) -> TableChanges:
    """The changes as a source would give them."""
    from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

    names = list(shape.columns)
    schema = StructType(
        [
            *[StructField(name, kind) for name, kind in shape.columns.items()],
            StructField("ums_id_", LongType()),
            StructField("ums_ts_", TimestampType()),
            StructField("ums_op_", StringType()),
            StructField("ums_uid_", StringType()),
            StructField("kafka_topic_", StringType()),
            StructField("kafka_partition_", IntegerType()),
            StructField("kafka_offset_", LongType()),
        ]
    )
    rows = [
        (
            *[change.key if name == shape.key else change.values.get(name) for name in names],
            change.id,
            change.time,
            change.op,
            f"{change.topic}-{change.partition}-{change.offset}-{change.op}",
            change.topic,
            change.partition,
            change.offset,
        )
        for change in changes
    ]
    columns = tuple(
        Column(name, kind, nullable=name != shape.key, key=name == shape.key) for name, kind in shape.columns.items()
    )
    return TableChanges(TableSchema(shape.namespace, columns), spark.createDataFrame(rows, schema))


def batch(
    spark: SparkSession,
    number: int,
    parts: Sequence[tuple[Shape, Sequence[Change]]],
    ranges: dict[tuple[str, int], tuple[int, int]] | None = None,
) -> Batch:
    """A batch with these changes; its ranges are theirs unless given."""
    if ranges is None:
        ranges = {}
        for _, changes in parts:
            for change in changes:
                where = change.topic, change.partition
                low, high = ranges.get(where, (change.offset, change.offset + 1))
                ranges[where] = min(low, change.offset), max(high, change.offset + 1)
    tables = [table_changes(spark, shape, changes) for shape, changes in parts if changes]
    return Batch(number, None, ranges, lambda: tables)  # type: ignore[arg-type]


def snapshot(
    changes: Iterable[Change], *, at: float | None = None, up_to: int | None = None
) -> dict[Any, dict[str, Any]]:
    """key -> values of the table at second ``at`` (or up to an id): UMS's definition, one change at a time."""
    newest: dict[Any, Change] = {}
    for change in changes:
        if change.op == "b" or (at is not None and change.second > at) or (up_to is not None and change.id > up_to):
            continue
        old = newest.get(change.key)
        if old is None or (change.id, change.offset) > (old.id, old.offset):
            newest[change.key] = change
    return {key: dict(change.values) for key, change in newest.items() if change.op != "d"}
