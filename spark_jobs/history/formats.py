"""How rows become files of each format and come back the same: options, and what CSV and Avro can't hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructField, StructType, TimestampType

from spark_jobs.json_options import TIMES, WHOLE
from spark_jobs.spark.frames import get_column, number_columns
from spark_jobs.spark.map_keys import with_text_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

FORMATS: Final = ("parquet", "orc", "json", "csv", "avro")

#: RFC 4180: doubled quotes, line ends allowed inside quotes; empty field = null, "" = empty string.
_CSV: Final = {
    **TIMES,
    "header": "true",
    "quote": '"',
    "escape": '"',
    "nullValue": "",
    "emptyValue": "",
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
    "lineSep": "\n",
}
_WRITE: Final[dict[str, dict[str, str]]] = {
    "parquet": {},
    "orc": {},
    "avro": {},
    "json": {**TIMES},
    "csv": {**_CSV, "emptyValue": '""'},
}
#: Microseconds since 1970 that ORC's library gives back a second later, from the first to the last.
_ORC_WRONG: Final = (-999_000, -1)
# Spark takes a field for null that equals nullValue, quoted or not; its parser gives nullValue for empty fields without
# quotes only. So the value must be one that no string has.
#: How CSV is read: an empty field is null, ``""`` the empty text.
CSV_READ: Final = {**_CSV, "multiLine": "true", "maxCharsPerColumn": "-1", "nullValue": "\0null\0"}
_READ: Final[dict[str, dict[str, str]]] = {
    "parquet": {},
    "orc": {},
    "avro": {},
    "json": {**TIMES, "mode": "FAILFAST", "lineSep": "\n"},
    "csv": {**CSV_READ, "mode": "FAILFAST"},
}


def write_frame(
    frame: DataFrame,
    path: str,
    kind: str,
    *,
    partitions: Sequence[str] = (),
    compression: str | None = None,
    mode: str = "append",
) -> None:
    """Write ``frame`` into the new directory ``path``. Blocks: runs a job."""
    writer = encode_frame(frame, kind).write.format(kind).mode(mode).options(**_WRITE[kind])
    writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    if compression:
        writer = writer.option("compression", compression)
    if partitions:
        writer = writer.partitionBy(*partitions)
    writer.save(path)


def load_rows(
    spark: SparkSession,
    paths: Sequence[str],
    kind: str,
    schema: StructType,
    *,
    only: Sequence[str] | None = None,
    file: str = "",
) -> DataFrame:
    """The rows of ``paths`` (full addresses of files, all of ``schema``); lazy.

    Args:
        spark: the session.
        paths: the files.
        kind: their format.
        schema: what they were written with.
        only: these columns only.
        file: add a column of that name with the file's address.
    """
    reader = (
        spark.read.format(kind)
        .options(**_READ[kind])
        .schema(stored_schema(schema, kind))
        .option("__globPaths__", "false")
    )
    frame = reader.load(list(paths))
    columns = [
        _decode_field(field) if kind == "csv" else get_column(field.name)
        for field in schema.fields
        if only is None or field.name in only
    ]
    if file:
        columns.append(f.col("_metadata.file_path").alias(file))
    return frame.select(*columns)


def json_lines(frame: DataFrame) -> DataFrame:
    """Each row as JSON text in one column: nulls and microseconds are kept; lazy."""
    columns = [
        with_text_keys(get_column(field.name), field.dataType).alias(field.name) for field in frame.schema.fields
    ]
    return frame.select(f.to_json(f.struct(*columns), WHOLE).alias("json"))


def stored_schema(schema: StructType, kind: str) -> StructType:
    """Return the schema of a file of ``kind`` with the columns of ``schema``; only CSV differs: nested values are JSON text."""
    if kind != "csv":
        return schema
    return StructType(
        [
            StructField(field.name, StringType() if _is_textual(field.dataType) else field.dataType, nullable=True)
            for field in schema.fields
        ]
    )


def encode_frame(frame: DataFrame, kind: str) -> DataFrame:
    """``frame`` as ``kind`` can hold it; lazy."""
    if kind == "orc":
        return frame.select(*[_of_orc(field) for field in frame.schema.fields])
    return frame.select(*[_encode_field(field) for field in frame.schema.fields]) if kind == "csv" else frame


def _of_orc(field: StructField) -> Column:
    """A column whose times are those that ORC can hold: others fail the write."""
    value = get_column(field.name)
    if not isinstance(field.dataType, TimestampType):
        return value
    refused = f.raise_error(
        f.format_string(
            f"column {field.name.replace('%', '%%')} has %s UTC, and ORC would store a time of the last second before 1970 a "
            "second later (its moments are cut to whole seconds towards 1970): use another sink.files.format",
            value.cast("string"),
        )
    )
    return f.when(f.unix_micros(value).between(*_ORC_WRONG), refused).otherwise(value).alias(field.name)


def _encode_field(field: StructField) -> Column:
    value = get_column(field.name)
    if isinstance(field.dataType, BinaryType):
        value = f.base64(value)
    elif _is_textual(field.dataType):
        value = f.to_json(value, TIMES)
    return value.alias(field.name)


def _decode_field(field: StructField) -> Column:
    value = get_column(field.name)
    if isinstance(field.dataType, BinaryType):
        value = f.unbase64(value)
    elif _is_textual(field.dataType):
        value = f.from_json(value, field.dataType.json(), {**TIMES, "mode": "FAILFAST"})
    return value.alias(field.name)


def _is_textual(kind: DataType) -> bool:
    return isinstance(kind, (StructType, ArrayType, MapType, BinaryType))


def conform_frame(frame: DataFrame, schema: StructType) -> DataFrame:
    """``frame`` with exactly the columns of ``schema``: missing ones null, narrower types widened, inside structs too; lazy."""
    columns_by_name = {
        field.name: (f.col(f"c{number}"), field.dataType) for number, field in enumerate(frame.schema.fields)
    }
    return number_columns(frame, len(columns_by_name)).select(
        *[
            (
                _conform_value(*columns_by_name[field.name], field.dataType)
                if field.name in columns_by_name
                else f.lit(None).cast(field.dataType)
            ).alias(field.name)
            for field in schema.fields
        ]
    )


def _conform_value(value: Column, present_type: DataType, want: DataType) -> Column:
    if isinstance(want, StructType) and isinstance(present_type, StructType) and present_type != want:
        inner = {field.name: field.dataType for field in present_type.fields}
        parts = [
            (
                _conform_value(value.getField(field.name), inner[field.name], field.dataType)
                if field.name in inner
                else f.lit(None).cast(field.dataType)
            ).alias(field.name)
            for field in want.fields
        ]
        return f.when(value.isNotNull(), f.struct(*parts))
    if isinstance(want, ArrayType) and isinstance(present_type, ArrayType):
        if present_type.elementType == want.elementType:
            return value  # files do not keep that elements are never null, and Spark refuses to cast to that
        return f.transform(value, lambda element: _conform_value(element, present_type.elementType, want.elementType))
    if isinstance(want, MapType) and isinstance(present_type, MapType) and present_type != want:
        return f.map_from_entries(
            f.transform(
                f.map_entries(value),
                lambda entry: f.struct(
                    _conform_value(entry["key"], present_type.keyType, want.keyType).alias("key"),
                    _conform_value(entry["value"], present_type.valueType, want.valueType).alias("value"),
                ),
            )
        )
    return value if present_type == want else value.cast(want)
