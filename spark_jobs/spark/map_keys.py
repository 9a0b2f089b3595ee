"""Keys of maps before ``to_json``, which writes some as Spark's memory has them: bytes as an address, dates as days."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from spark_jobs.json_options import WHOLE

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

#: Types whose values ``to_json`` writes as names as it writes them elsewhere.
_NAMES: Final = frozenset(
    (
        *("byte", "short", "integer", "long", "float", "double", "decimal", "boolean"),
        *("string", "varchar", "char"),
    )
)
#: Types that JSON has as strings.
_STRINGS: Final = frozenset(("binary", "date", "timestamp", "timestamp_ntz"))


def with_text_keys(column: Column, kind: DataType) -> Column:
    """The column, with text for the keys of its maps: bytes in Base64, times in UTC, structs and arrays as JSON.

    Args:
        column: the column.
        kind: its type.
    """
    from pyspark.sql import functions as f

    if not has_other_keys(kind):
        return column
    parts: Any = kind
    match kind.typeName():
        case "map":
            entries = f.transform(
                f.map_entries(column),
                lambda entry: f.struct(
                    _make_name(entry["key"], parts.keyType).alias("key"),
                    with_text_keys(entry["value"], parts.valueType).alias("value"),
                ),
            )
            return f.map_from_entries(entries)
        case "array":
            return f.transform(column, lambda element: with_text_keys(element, parts.elementType))
    members = [
        with_text_keys(column.getField(member.name), member.dataType).alias(member.name) for member in parts.fields
    ]
    return f.when(column.isNotNull(), f.struct(*members))


def _make_name(key: Column, kind: DataType) -> Column:
    """A key of a map as text."""
    from pyspark.sql import functions as f

    name = kind.typeName()
    if name in _NAMES:
        return key
    if name in _STRINGS:
        return f.regexp_replace(f.to_json(f.array(key), WHOLE), r'^\["|"\]$', "")
    if name in ("array", "map", "struct"):
        return f.to_json(with_text_keys(key, kind), WHOLE)
    return key.cast("string")


def has_other_keys(kind: DataType) -> bool:
    """Whether a type has maps with keys that ``to_json`` does not write as it writes values elsewhere. Pure."""
    parts: Any = kind
    match kind.typeName():
        case "map":
            return parts.keyType.typeName() not in _NAMES or has_other_keys(parts.valueType)
        case "array":
            return has_other_keys(parts.elementType)
        case "struct":
            return any(has_other_keys(member.dataType) for member in parts.fields)
    return False
