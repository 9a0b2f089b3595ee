"""Types of columns: Spark's as Iceberg has them, and back. Pure."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql import types as spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_jobs.sinks.lake.model import LakeTableDefinition

_TO_ICEBERG: Final[dict[type[spark.DataType], iceberg.IcebergType]] = {
    spark.ByteType: iceberg.IntegerType(),
    spark.ShortType: iceberg.IntegerType(),
    spark.IntegerType: iceberg.IntegerType(),
    spark.LongType: iceberg.LongType(),
    spark.FloatType: iceberg.FloatType(),
    spark.DoubleType: iceberg.DoubleType(),
    spark.BooleanType: iceberg.BooleanType(),
    spark.StringType: iceberg.StringType(),
    spark.BinaryType: iceberg.BinaryType(),
    spark.DateType: iceberg.DateType(),
    spark.TimestampType: iceberg.TimestamptzType(),
    spark.TimestampNTZType: iceberg.TimestampType(),
}
_TO_SPARK: Final[dict[type[iceberg.IcebergType], spark.DataType]] = {
    iceberg.IntegerType: spark.IntegerType(),
    iceberg.LongType: spark.LongType(),
    iceberg.FloatType: spark.FloatType(),
    iceberg.DoubleType: spark.DoubleType(),
    iceberg.BooleanType: spark.BooleanType(),
    iceberg.StringType: spark.StringType(),
    iceberg.UUIDType: spark.StringType(),
    iceberg.BinaryType: spark.BinaryType(),
    iceberg.FixedType: spark.BinaryType(),
    iceberg.DateType: spark.DateType(),
    iceberg.TimestamptzType: spark.TimestampType(),
    iceberg.TimestampType: spark.TimestampNTZType(),
}


def schema_of(definition: LakeTableDefinition) -> Schema:
    """A new table's schema; the key's columns are its identifier."""
    numbers = count(1)
    fields = [
        iceberg.NestedField(
            next(numbers), column.name, to_iceberg(column.dataType, numbers), required=column.name in definition.key
        )
        for column in definition.columns.fields
    ]
    keys = [field.field_id for field in fields if field.name in definition.key]
    return Schema(*fields, identifier_field_ids=keys)


def to_iceberg(kind: spark.DataType, numbers: Iterator[int]) -> iceberg.IcebergType:
    """The type in Iceberg; ``numbers`` gives the ids of nested fields."""
    match kind:
        case spark.DecimalType():
            return iceberg.DecimalType(kind.precision, kind.scale)
        case spark.ArrayType():
            return iceberg.ListType(next(numbers), to_iceberg(kind.elementType, numbers), element_required=False)
        case spark.MapType():
            key, value = next(numbers), next(numbers)
            return iceberg.MapType(
                key, to_iceberg(kind.keyType, numbers), value, to_iceberg(kind.valueType, numbers), value_required=False
            )
        case spark.StructType():
            return iceberg.StructType(
                *(
                    iceberg.NestedField(
                        next(numbers), column.name, to_iceberg(column.dataType, numbers), required=False
                    )
                    for column in kind.fields
                )
            )
    return _TO_ICEBERG[type(kind)]


def to_spark(kind: iceberg.IcebergType) -> spark.DataType:
    """The type in Spark.

    Raises:
        KeyError: Spark has none.
    """
    match kind:
        case iceberg.DecimalType():
            return spark.DecimalType(kind.precision, kind.scale)
        case iceberg.ListType():
            return spark.ArrayType(to_spark(kind.element_type))
        case iceberg.MapType():
            return spark.MapType(to_spark(kind.key_type), to_spark(kind.value_type))
        case iceberg.StructType():
            return spark.StructType(
                [spark.StructField(field.name, to_spark(field.field_type)) for field in kind.fields]
            )
    return _TO_SPARK[type(kind)]
