"""Rows as UMS 1.3: one message per row, with its schema, as column expressions of Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from connectors.formats import ums
from spark_jobs.json_options import WHOLE
from spark_jobs.spark.map_keys import with_text_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from spark_jobs.contract import TableSchema

_TYPES: Final = {
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "datetime",
    "timestamp_ntz": "datetime",
    "binary": "binary",
}
_TIME: Final = "yyyy-MM-dd HH:mm:ss.SSSSSS"
#: UMS's decimals are read with 38 digits, 18 of them after the point.
_DIGITS: Final = (20, 18)
_NESTED: Final = frozenset(("array", "map", "struct", "variant"))


def ums_type(kind: DataType) -> str:
    """The UMS type of a column; ``string`` where UMS has no type that holds all values. Pure."""
    if kind.typeName() == "decimal":
        whole = kind.precision - kind.scale  # type: ignore[attr-defined]
        return "decimal" if whole <= _DIGITS[0] and kind.scale <= _DIGITS[1] else "string"  # type: ignore[attr-defined]
    return _TYPES.get(kind.typeName(), "string")


def namespace_of(namespace: str, job: str) -> str:
    """A namespace of seven parts: the table's own, or ``millrace.<job>.<database>.<table>.0.0.0``. Pure."""
    try:
        return ums.Namespace.parse(namespace).text
    except ValueError:
        database, _, table = namespace.rpartition(".")
        return ums.Namespace("millrace", job, database, table).text


def message_column(schema: TableSchema, job: str, columns: Mapping[str, Column]) -> Column:
    """The message of a row, as text.

    Args:
        schema: the table.
        job: the job's name.
        columns: the table's columns by name; the system's columns are in the frame.
    """
    from pyspark.sql import functions as f

    fields = [
        *ums.SYSTEM_FIELDS,
        *(ums.make_field(column.name, ums_type(column.type), nullable=not column.key) for column in schema.columns),
    ]
    # All but the row is the same for all rows: the document is cut where the row belongs.
    head, _, tail = json.dumps(
        ums.make_message(ums.INCREMENT, namespace_of(schema.namespace, job), fields, [["row"]]),
        ensure_ascii=False,
        separators=(",", ":"),
    ).rpartition('["row"]')
    system = [
        f.col(ums.ID).cast("string"),
        f.date_format(ums.TIMESTAMP, _TIME),
        f.col(ums.OPERATION),
        f.col(ums.UID),
    ]
    texts_of_row = [_text_column(columns[column.name], column.type) for column in schema.columns]
    row = f.to_json(f.array(*system, *texts_of_row), WHOLE)
    return f.concat(f.lit(head), row, f.lit(tail))


def key_column(schema: TableSchema, job: str, keys: Sequence[Column]) -> Column:
    """UMS's key with the row's primary key as its suffix, as the materializer writes it; without one for all rows the same."""
    from pyspark.sql import functions as f

    namespace = namespace_of(schema.namespace, job)
    if not keys:
        return f.lit(ums.kafka_key(ums.INCREMENT, namespace))
    head = ums.kafka_key(ums.INCREMENT, namespace, "\0").removesuffix("\0")
    return f.concat(f.lit(head), f.to_json(f.struct(*keys), WHOLE))


def _text_column(column: Column, kind: DataType) -> Column:
    from pyspark.sql import functions as f

    name = kind.typeName()
    if name in {"timestamp", "timestamp_ntz"}:
        return f.date_format(column, _TIME)
    if name == "binary":
        return f.translate(f.base64(column), "\r\n", "")  # Spark's Base64 has lines of 76 characters.
    if name in _NESTED:
        return f.to_json(with_text_keys(column, kind), WHOLE)
    return column.cast("string")
