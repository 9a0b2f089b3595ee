"""Rows that the caller of a preview gives, as changes of tables."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid
from spark_jobs.contract import Column, TableChanges, TableSchema
from spark_jobs.spark.gateway import parse_type
from spark_jobs.steps.planning.names import find_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from connectors.options import Config
    from spark_jobs.preview.request import CallerRow

#: The topic that given rows have.
TOPIC: Final = "(given)"


def by_table(rows: Sequence[CallerRow], tables: Sequence[TableSchema]) -> dict[str, list[tuple[int, CallerRow]]]:
    """The rows by the namespace of their table, each with its number from 1.

    A table that has not been seen goes by the name that the row has for it.

    Raises:
        ConfigInvalid: a name may be each of several tables.
    """
    result: dict[str, list[tuple[int, CallerRow]]] = {}
    for number, row in enumerate(rows, 1):
        table = find_table("(given rows)", row.table, tables)
        result.setdefault(row.table if table is None else table.namespace, []).append((number, row))
    return result


def check_columns(schema: TableSchema, rows: Sequence[tuple[int, CallerRow]]) -> None:
    """Refuse rows with columns that their table does not have, or without its key.

    Raises:
        ConfigInvalid: names row, column and the columns that there are.
    """
    names = [column.name for column in schema.columns]
    for number, row in rows:
        if strange := next((name for name in row.row if name not in names), ""):
            raise ConfigInvalid(
                f"row {number}: table {schema.namespace} has no column {strange}; it has {', '.join(names)}"
            )
        if missing := next((column.name for column in schema.key if row.row.get(column.name) is None), ""):
            raise ConfigInvalid(
                f"row {number}: column {missing} is of the key of table {schema.namespace}: give it a value"
            )


def infer_schema(spark: SparkSession, namespace: str, rows: Sequence[CallerRow], config: Config) -> TableSchema:
    """The schema that the rows of a new table show; the key is that of the option ``source.key.columns``."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    merged: dict[str, Any] = {}
    for row in rows:
        merged |= {name: value for name, value in row.row.items() if value is not None or name not in merged}
    type_text = spark.range(1).select(f.schema_of_json(f.lit(json.dumps(merged)))).collect()[0][0]
    parsed = parse_type(type_text)
    types = {column.name: column.dataType for column in parsed.fields} if isinstance(parsed, t.StructType) else {}
    key = config.raw.get(f"source.key.columns.{namespace}") or config.raw.get("source.key.columns") or ""
    names = [name.strip() for name in key.split(",") if name.strip() in merged]
    order = [*names, *(name for name in merged if name not in names)]
    return TableSchema(
        namespace,
        tuple(
            Column(name, types.get(name, t.StringType()), nullable=name not in names, key=name in names)
            for name in order
        ),
    )


def to_changes(spark: SparkSession, schema: TableSchema, rows: Sequence[tuple[int, CallerRow]]) -> TableChanges:
    """The rows as changes of their table, in the order of their numbers. Lazy.

    A value that does not fit its column makes the frame fail when it is computed.
    """
    import pyarrow as pa
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    shape = t.StructType([t.StructField(column.name, column.type, True) for column in schema.columns])
    numbers = [number for number, _ in rows]
    lines = pa.table(
        {
            "row": pa.array([json.dumps(_set_values(row.row)) for _, row in rows], pa.string()),
            "ums_id_": pa.array(numbers, pa.int64()),
            "ums_ts_": pa.array([datetime.now(UTC)] * len(rows), pa.timestamp("us", tz="UTC")),
            "ums_op_": pa.array([row.op for _, row in rows], pa.string()),
            "ums_uid_": pa.array([f"given-{number}" for number in numbers], pa.string()),
            "kafka_topic_": pa.array([TOPIC] * len(rows), pa.string()),
            "kafka_partition_": pa.array([0] * len(rows), pa.int32()),
            "kafka_offset_": pa.array(numbers, pa.int64()),
        }
    )
    frame: DataFrame = spark.createDataFrame(lines)
    parsed = frame.withColumn("row", f.from_json("row", shape, {"mode": "FAILFAST"}))
    return TableChanges(schema, parsed.select("row.*", *lines.column_names[1:]).coalesce(1))


def _set_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """The values as Spark's JSON reader takes them: without those that are null."""
    return {name: value for name, value in row.items() if value is not None}
