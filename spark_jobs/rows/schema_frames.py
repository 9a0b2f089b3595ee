"""Rows of a changed table as the sink gets them: columns that are held at their old type, and strings for what does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f
from pyspark.sql import types as t

from spark_jobs.contract import SYSTEM_COLUMNS
from spark_jobs.json_options import WHOLE
from spark_jobs.rows.schema_policy import Value
from spark_jobs.spark.frames import number_columns, quote_name
from spark_jobs.spark.map_keys import with_text_keys

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from spark_jobs.contract import Column, TableChanges
    from spark_jobs.rows.schema_policy import Resolution

_NESTED: Final = (t.ArrayType, t.MapType, t.StructType)
#: Types between which Spark converts values as they are; others go by their text.
_FAMILIES: Final = (t.NumericType, (t.DateType, t.TimestampType, t.TimestampNTZType))


def project_columns(changes: TableChanges, resolution: Resolution) -> DataFrame:
    """The rows with the columns that the sink gets; lazy."""
    columns = changes.schema.columns
    frame = number_columns(changes.frame, len(columns))
    index_of = {column.name: number for number, column in enumerate(columns)}
    fitting_columns = {target.source: target.column for target in resolution.targets if target.value == Value.FITTING}
    selected = []
    for target in resolution.targets:
        number = index_of[target.source]
        value, source = f.col(f"c{number}"), columns[number]
        if target.value == Value.FITTING:
            value = fit_column(value, source, target.column)
        elif target.value == Value.REST:
            value = build_rest_column(value, source, fitting_columns[target.source])
        selected.append(value.alias(target.column.name))
    return frame.select(*selected, *(f.col(quote_name(name)) for name in SYSTEM_COLUMNS))


def fit_column(value: SparkColumn, source: Column, target: Column) -> SparkColumn:
    """``value`` as the type that the sink's column has; null where that would be another value."""
    old, new = target.type, source.type
    nothing = f.lit(None).cast(old)
    if old == new:
        if target.meaning != source.meaning or target.length is None:
            return nothing
        return f.when(f.length(value) <= target.length, value)
    if isinstance(old, _NESTED) and isinstance(new, _NESTED):
        if not _reads_from_json(old):
            return nothing
        return f.from_json(f.to_json(value, WHOLE), old.json(), {**WHOLE, "mode": "PERMISSIVE"})
    if isinstance(old, _NESTED) or isinstance(new, _NESTED):
        return nothing
    if isinstance(new, t.StringType):
        # A string is another one after the way to the type and back ('007'); what matters is that it can be read as the type.
        return value.try_cast(old)
    if not any(isinstance(old, family) and isinstance(new, family) for family in _FAMILIES):
        # Spark has no cast between some families: bytes and numbers, dates and numbers.
        string_value = value.cast("string")
        converted = string_value.try_cast(old)
        return f.when(converted.cast("string") == string_value, converted)
    converted = value.try_cast(old)
    return f.when(converted.try_cast(new) == value, converted)


def _reads_from_json(kind: t.DataType) -> bool:
    """Whether Spark reads JSON as a type: the keys of its maps have to be strings. Pure."""
    if isinstance(kind, t.MapType):
        return isinstance(kind.keyType, t.StringType) and _reads_from_json(kind.valueType)
    if isinstance(kind, t.ArrayType):
        return _reads_from_json(kind.elementType)
    return not isinstance(kind, t.StructType) or all(_reads_from_json(member.dataType) for member in kind)


def build_rest_column(value: SparkColumn, source: Column, target: Column) -> SparkColumn:
    """The text of ``value`` where ``fit_column`` does not hold all of it; else null."""
    kept = fit_column(value, source, target)
    if isinstance(source.type, _NESTED):
        string_value = f.to_json(with_text_keys(value, source.type), WHOLE)
        whole = (
            string_value == f.to_json(with_text_keys(kept, target.type), WHOLE)
            if isinstance(target.type, _NESTED)
            else f.lit(False)
        )
    elif isinstance(source.type, t.BinaryType):
        string_value, whole = f.base64(value), kept.isNotNull()
    else:
        string_value = value.cast("string")
        whole = kept.cast("string") == string_value if isinstance(source.type, t.StringType) else kept.isNotNull()
    return f.when(~f.coalesce(whole, f.lit(False)), string_value)
