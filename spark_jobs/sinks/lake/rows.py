"""A lake table's columns, and the frames that tasks write. Pure, but that Spark plans; no session is needed for the columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f
from pyspark.sql.types import (
    ByteType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_jobs.contract import KAFKA_COLUMNS, SchemaRefused
from spark_jobs.history.formats import conform_frame
from spark_jobs.history.known_rows import is_known
from spark_jobs.history.schema import find_wider_type, name_problem
from spark_jobs.sinks.lake.model import (
    BUCKET,
    INSERT_SYSTEM,
    REAL_SYSTEM,
    RESERVED,
    SIDE_SYSTEM,
    UPSERT_SYSTEM,
    LakeTableDefinition,
)
from spark_jobs.spark.frames import number_columns, union_frames

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from spark_jobs.contract import Packed, TableChanges, TableSchema
    from spark_jobs.sinks.lake.options import LakeSettings

_TYPES: Final[dict[str, DataType]] = {
    "ums_id_": LongType(),
    "ums_ts_": TimestampType(),
    "ums_op_": StringType(),
    "ums_uid_": StringType(),
    "ums_active_": IntegerType(),
    "written_at_": TimestampType(),
    BUCKET: IntegerType(),
    "kafka_topic_": StringType(),
    "kafka_partition_": IntegerType(),
    "kafka_offset_": LongType(),
}
#: Types that both formats hold; others go as strings.
_STORED: Final = frozenset(
    (
        *("byte", "short", "integer", "long", "float", "double", "decimal", "boolean", "string", "varchar", "char"),
        *("binary", "date", "timestamp", "timestamp_ntz", "array", "map", "struct"),
    )
)
#: Types that have no order in Arrow, and that no key of Iceberg has.
NESTED: Final = frozenset(("array", "map", "struct"))
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)


def key_of(settings: LakeSettings, schema: TableSchema) -> tuple[str, ...]:
    """Names of the key's columns: the table's own, or those of the option; none with insert. Pure."""
    if not settings.upsert:
        return ()
    primary = tuple(column.name for column in schema.key)
    return primary or (schema.key_with_shard(settings.key_columns) if settings.key_columns else ())


def describe_refusal(settings: LakeSettings, schema: TableSchema) -> str:
    """Why a table can't be written, and what to do; empty where it can. Pure."""
    names = [column.name for column in schema.columns]
    reserved = [name for name in names if name.lower() in RESERVED]
    if reserved:
        return (
            f"table {schema.namespace} has a column {reserved[0]}, which is the name of a column of the sink; rename it in "
            "the source or on its way (transform ReplaceField)"
        )
    problem = name_problem(
        schema.namespace, "parquet", StructType([StructField(column.name, column.type) for column in schema.columns])
    )
    if problem or not settings.upsert:
        return problem
    keys = key_of(settings, schema)
    missing = [name for name in keys if name not in names]
    if keys and not missing:
        return ""
    return (
        f"table {schema.namespace} has no primary key"
        + (f" and no column {missing[0]}" if missing else "")
        + f": {settings.prefix}mode={settings.mode} needs one. Name it in {settings.prefix}key.columns, or use "
        f"{settings.prefix}mode=insert"
    )


def stored_type(kind: DataType) -> DataType:
    """The type in which values of a source's column are kept. Pure."""
    name = kind.typeName()
    return StringType() if name in ("varchar", "char") or name not in _STORED else kind


def make_definition(settings: LakeSettings, schema: TableSchema) -> LakeTableDefinition:
    """The definition of the table of a source's table. Pure."""
    keys = key_of(settings, schema)
    fields = [StructField(column.name, stored_type(column.type), nullable=True) for column in schema.columns]
    system = INSERT_SYSTEM if not settings.upsert else REAL_SYSTEM if settings.remembers_deletes else UPSERT_SYSTEM
    fields += [StructField(name, _TYPES[name], nullable=True) for name in system]
    if not settings.upsert:
        return LakeTableDefinition(StructType(fields))
    fields.append(StructField(BUCKET, _TYPES[BUCKET], nullable=True))
    return LakeTableDefinition(StructType(fields), keys, settings.buckets)


def side_definition(table: LakeTableDefinition) -> LakeTableDefinition:
    """The definition of a table's side table: its key, the order number of the delete, and when it was written. Pure."""
    names = [*SIDE_SYSTEM, BUCKET]
    fields = [table.columns[name] for name in table.key]
    return LakeTableDefinition(
        StructType([*fields, *(StructField(name, _TYPES[name], nullable=True) for name in names)]),
        table.key,
        table.buckets,
    )


def grow_columns(address: str, namespace: str, present: LakeTableDefinition, asked: LakeTableDefinition) -> StructType:
    """The columns of a table after those of ``asked`` came: wider types, new columns at the end. Pure.

    Raises:
        SchemaRefused: a column changed its type so that no type holds old and new values, or so that its key's buckets would
            be others; or two columns differ only in case.
    """
    fields = []
    for field in present.columns.fields:
        kind = field.dataType
        if field.name in asked.columns.names:
            new = asked.columns[field.name].dataType
            wider = find_wider_type(kind, new)
            whole = isinstance(kind, _WHOLE) and isinstance(wider, _WHOLE)
            if wider is None or (field.name in asked.key and wider != kind and not whole):
                raise SchemaRefused(
                    f"table {namespace}: column {field.name} is {kind.simpleString()} in {address} and {new.simpleString()} in "
                    "new rows, and "
                    + (
                        "no type holds both without loss"
                        if wider is None
                        else "the type of a key column can't change so"
                    )
                    + ". Write to another table, or cast the column on its way (step select)",
                    namespace,
                )
            kind = wider
        fields.append(StructField(field.name, kind, nullable=True))
    names = set(present.columns.names)
    fields += [field for field in asked.columns.fields if field.name not in names]
    problem = name_problem(f"{namespace} ({address})", "parquet", StructType(fields))
    if problem:
        raise SchemaRefused(problem, namespace)
    return StructType(fields)


def describe_difference(present: LakeTableDefinition, asked: LakeTableDefinition) -> str:
    """Why a table that is there can't be written as asked, as the end of a sentence; empty where it can. Pure."""
    if bool(present.buckets) != bool(asked.buckets):
        return (
            "it was not made by this sink for upserts (it has no property millrace.buckets)"
            if asked.buckets
            else "it was made for upserts, with a row per key"
        )
    # Rows are divided by the key as the table has it, which in Iceberg is in the order of the columns.
    if sorted(present.key) != sorted(asked.key):
        return f"its key is ({', '.join(present.key)}), and that of the source is ({', '.join(asked.key)})"
    return ""


def own_columns(table: LakeTableDefinition) -> StructType:
    """The columns that frames have: all but the bucket, which tasks know. Pure."""
    return StructType([field for field in table.columns.fields if field.name != BUCKET])


def frame_of(
    changes: Sequence[TableChanges], table: LakeTableDefinition, written: Mapping[tuple[str, int], int], tasks: int
) -> DataFrame:
    """Rows as the tasks take them, lazy: the columns of ``own_columns`` as c0, c1 ..., and for upserts the bucket and position.

    Args:
        changes: all that go into the table.
        table: as it is now.
        written: rows below these offsets are left out.
        tasks: how many tasks may run at a time.
    """
    columns = own_columns(table)
    position = [StructField(name, _TYPES[name]) for name in KAFKA_COLUMNS] if table.buckets else []
    shape = StructType([*columns.fields, *position])
    frames = []
    for part in changes:
        frame = part.frame.where(f.col("ums_op_") != "b") if table.buckets else part.frame
        if written:
            frame = frame.where(~is_known(written))
        active = f.when(f.col("ums_op_") == "d", 0).otherwise(1)
        frames.append(number_columns(conform_frame(frame.withColumn("ums_active_", active), shape), len(columns)))
    rows = union_frames(frames)
    if not table.buckets:
        return rows.coalesce(tasks)
    numbers = {field.name: number for number, field in enumerate(columns.fields)}
    keys = [_hash_key(f.col(f"c{numbers[name]}"), columns[name].dataType) for name in table.key]
    bucket = f.pmod(f.xxhash64(*keys), f.lit(table.buckets)).cast("int").alias(BUCKET)
    named = rows.select(*rows.columns[: len(columns)], bucket, *KAFKA_COLUMNS)
    parts = min(tasks, table.buckets)
    return named.repartitionById(parts, f.col(BUCKET) % f.lit(parts)).sortWithinPartitions(BUCKET)


def packed_rows(changes: Sequence[TableChanges], table: LakeTableDefinition) -> Packed | None:
    """The record batches of changes whose values need no cast; None where Spark has to take them apart. Pure."""
    if len(changes) != 1:
        return None
    (only,) = changes
    flat = all(
        column.type.typeName() in _STORED - NESTED and stored_type(column.type) == table.columns[column.name].dataType
        for column in only.schema.columns
    )
    return only.packed if flat else None


def _hash_key(value: Column, kind: DataType) -> Column:
    """A key's value in a form whose hash does not change when the column is widened, nor with the session's time zone."""
    return f.unix_micros(value) if isinstance(kind, TimestampType) else value.cast("string")


def names_of(columns: StructType) -> tuple[str, ...]:
    """Names of columns, in order. Pure."""
    return tuple(field.name for field in columns.fields)
