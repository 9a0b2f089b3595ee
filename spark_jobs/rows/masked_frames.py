"""Frames of a job with masks: the columns that rules name are masked before any sink sees them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as t

from connectors.errors import Fatal, Skippable
from connectors.formats.masks.masking import Mask, Masks, row_masker
from connectors.schema import DATE, DECIMAL, OPTIONAL_STRING, TIMESTAMP, Field, Schema, Type
from spark_jobs.contract import TableChanges
from spark_jobs.rows.masks import column_masks, table_names
from spark_jobs.spark.frames import number_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from spark_jobs.contract import Column, TableSchema

_SIMPLE: Final[Mapping[type[t.DataType], Type]] = {
    t.ByteType: Type.INT8,
    t.ShortType: Type.INT16,
    t.IntegerType: Type.INT32,
    t.LongType: Type.INT64,
    t.FloatType: Type.FLOAT32,
    t.DoubleType: Type.FLOAT64,
    t.BooleanType: Type.BOOLEAN,
    t.StringType: Type.STRING,
    t.BinaryType: Type.BYTES,
    t.ArrayType: Type.ARRAY,
    t.MapType: Type.MAP,
}


class NoRecords:
    """Stands for a batch's raw records in a job with masks or steps: a sink that asks for them would pass them by."""

    def __getattr__(self, name: str) -> Any:
        """Raises ``Fatal`` for every member."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise Fatal(
            "the sink asks for Kafka's records as they are (Batch.raw), which mask.rules can't mask and steps can't "
            "transform: it has to take Batch.changes()"
        )


def mask_changes(tables: Sequence[TableChanges], masks: Masks) -> list[TableChanges]:
    """The tables with their masked columns; lazy as they are.

    Raises:
        Fatal: a rule names a column that it can't mask.
    """
    return [_mask_table(table, masks) for table in tables] if masks else list(tables)


def masked_columns(schema: TableSchema, masks: Masks) -> tuple[Column, ...]:
    """The columns of a table with their masks.

    Raises:
        Fatal: a rule names a column that it can't mask.
    """
    masked = masks_of(schema, masks)
    return tuple(
        _masked_column(column, masked[column.name]) if column.name in masked else column for column in schema.columns
    )


def masks_of(schema: TableSchema, masks: Masks) -> dict[str, Mask]:
    """The masks of a table by column.

    Raises:
        Fatal: a rule names a column that it can't mask.
    """
    columns = [(column.name, schema_of(column.type), column.key) for column in schema.columns]
    return column_masks(columns, table_names(schema.namespace), masks)


def _mask_table(table: TableChanges, masks: Masks) -> TableChanges:
    masks_by_column = masks_of(table.schema, masks)
    if not masks_by_column:
        return table
    kept = masked_columns(table.schema, masks)
    types = {column.name: column.type for column in kept}
    frame = table.frame
    shape = t.StructType(
        [
            t.StructField(field.name, types.get(field.name, field.dataType), field.nullable)
            for field in frame.schema.fields
        ]
    )
    return TableChanges(
        replace(table.schema, columns=kept),
        number_columns(frame, len(shape)).mapInArrow(_make_masking_task(masks_by_column, types, shape.names), shape),
        table.lacking,
    )


def _masked_column(column: Column, mask: Mask) -> Column:
    if mask.schema.type is Type.STRING and mask.schema.name is None:
        return replace(column, type=t.StringType(), length=None, meaning="")
    return column


def schema_of(kind: t.DataType) -> Schema:
    """A Spark type as masks know types."""
    if isinstance(kind, t.DecimalType):
        return Schema(Type.BYTES, name=DECIMAL, parameters=(("scale", str(kind.scale)),))
    if isinstance(kind, t.DateType):
        return Schema(Type.INT32, name=DATE)
    if isinstance(kind, t.TimestampType | t.TimestampNTZType):
        return Schema(Type.INT64, name=TIMESTAMP)
    if isinstance(kind, t.StructType):
        return Schema(Type.STRUCT, fields=tuple(Field(field.name, OPTIONAL_STRING) for field in kind.fields))
    return Schema(_SIMPLE.get(type(kind), Type.STRING))


def _make_masking_task(
    masks: Mapping[str, Mask], types: Mapping[str, t.DataType], names: list[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow`` that masks the columns of a table's rows; ``names``: of all columns."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield mask_batch(batch.rename_columns(names), masks, types)

    return run


def mask_batch(batch: pa.RecordBatch, masks: Mapping[str, Mask], types: Mapping[str, t.DataType]) -> pa.RecordBatch:
    """Rows with masked columns.

    Args:
        batch: the rows.
        masks: by column.
        types: of the masked columns.

    Raises:
        Fatal: a row lacks the field that salts a hash.
    """
    import pyarrow as pa

    from spark_jobs.sources.records.columns import arrow_type

    by_row = row_masker(list(masks.items()))
    rows = batch.to_pylist() if by_row is not None else []
    try:
        for row in rows:
            by_row(row)  # type: ignore[misc]  # there are rows only where it is there
    except Skippable as error:
        raise Fatal(str(error)) from error
    arrays, fields = [], []
    for field, array in zip(batch.schema, batch.columns, strict=True):
        mask = masks.get(field.name)
        if mask is None:
            arrays.append(array)
            fields.append(field)
            continue
        if mask.convert_row is not None:
            values = [row[field.name] for row in rows]
        else:
            convert = mask.convert or _keep_value
            values = [convert(value) if value is not None or mask.nulls else None for value in array.to_pylist()]
        kind = arrow_type(types[field.name])
        arrays.append(pa.array([_fit_value(value, kind) for value in values], kind))
        fields.append(pa.field(field.name, kind, field.nullable))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _fit_value(value: Any, kind: pa.DataType) -> Any:
    import pyarrow as pa

    return (
        value.quantize(Decimal(1).scaleb(-kind.scale))
        if isinstance(value, Decimal) and pa.types.is_decimal(kind)
        else value
    )


def _keep_value(value: Any) -> Any:
    return value
