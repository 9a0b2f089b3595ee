"""Names of indices and mappings of fields: from a table's columns, and compared with those that an index has. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.namespaces import shorten_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import DataType

    from spark_jobs.contract import TableSchema

_LONGEST: Final = 255
_UNFIT: Final = re.compile(r"[\\/*?\"<>|,#:\s\x00-\x1f]")
#: Fields that a document can't have, since the server has them.
METADATA: Final = frozenset(
    {"_id", "_index", "_source", "_type", "_routing", "_field_names", "_ignored", "_nested_path", "_seq_no", "_version"}
)
_LONG: Final[Mapping[str, Any]] = {"type": "long"}
_DOUBLE: Final[Mapping[str, Any]] = {"type": "double"}
_DATE: Final[Mapping[str, Any]] = {"type": "date"}
#: A token of Lucene has 32,766 bytes at most, a character up to four.
_KEYWORD: Final[Mapping[str, Any]] = {"type": "keyword", "ignore_above": 8191}
_TEXT: Final[Mapping[str, Any]] = {
    "type": "text",
    "fields": {"keyword": {"type": "keyword", "ignore_above": 256}},
}
# Whole numbers are long and fractions double, whatever the column has: a mapping can't grow with its column later.
_TYPES: Final[Mapping[str, Mapping[str, Any]]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), _LONG),
    **dict.fromkeys(("float", "double", "decimal"), _DOUBLE),
    "boolean": {"type": "boolean"},
    "binary": {"type": "binary"},
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), _DATE),
    # Its keys are data, of which there may be any number.
    "map": {"type": "object", "enabled": False},
}
#: The fields that the sink adds.
_SYSTEM: Final[Mapping[str, Mapping[str, Any]]] = {"ums_id_": _LONG, "ums_ts_": _DATE, "ums_op_": _KEYWORD}
_STRINGS: Final = frozenset(
    {"keyword", "text", "wildcard", "match_only_text", "constant_keyword", "search_as_you_type"}
)
_NUMBERS: Final = frozenset(
    {"long", "integer", "short", "byte", "unsigned_long", "double", "float", "half_float", "scaled_float"}
)
_TREES: Final = frozenset({"object", "nested", "flat_object", "flattened"})
_TIMES: Final = frozenset({"date", "date_nanos"})
#: The types that an index may have where the sink would choose the first one.
_SUITABLE: Final[Mapping[str, frozenset[str]]] = {
    "long": _NUMBERS | _TIMES | _STRINGS,
    "double": _NUMBERS | _STRINGS,
    "boolean": frozenset({"boolean"}) | _STRINGS,
    "binary": frozenset({"binary"}) | _STRINGS,
    "date": _TIMES | _STRINGS,
    "object": _TREES,
}


def index_name(name: str) -> str:
    """A name as an index may have it."""
    return shorten_name(_UNFIT.sub("_", name.lower()).lstrip("-_+") or "_", _LONGEST, octets=True)


def fields_of(schema: TableSchema, keys: Sequence[str], *, active: bool) -> dict[str, Mapping[str, Any]]:
    """The mapping of a table's documents: field -> definition.

    Args:
        schema: the table.
        keys: the columns of its key.
        active: whether documents have ``ums_active_``.
    """
    fields = {
        column.name: _KEYWORD if column.name in keys and _is_text(column.type) else field_of(column.type)
        for column in schema.columns
    }
    return {**fields, **_SYSTEM, **({"ums_active_": _LONG} if active else {})}


def field_of(kind: DataType) -> Mapping[str, Any]:
    """The definition of a field for values of one of Spark's types; an array has that of its elements."""
    match kind.typeName():
        case "array":
            return field_of(kind.elementType)  # type: ignore[attr-defined]
        case "struct":
            parts = kind.fields  # type: ignore[attr-defined]
            return {"properties": {part.name: field_of(part.dataType) for part in parts}}
        case name:
            return _TYPES.get(name, _TEXT)


def find_missing_fields(
    fields: Mapping[str, Mapping[str, Any]], present: Mapping[str, Any]
) -> dict[str, Mapping[str, Any]]:
    """The fields that an index does not have yet.

    Args:
        fields: of ``fields_of``.
        present: ``properties`` of the index's mapping.
    """
    return {name: field for name, field in fields.items() if find_field(present, name) is None}


def find_conflicts(fields: Mapping[str, Mapping[str, Any]], present: Mapping[str, Any]) -> Iterator[str]:
    """The fields whose values the index would refuse, each with the reason."""
    for name, field in fields.items():
        match = find_field(present, name)
        if match is None:
            continue
        here, there = _find_field_type(field), _find_field_type(match)
        # A string may be an address of a network, a date, a version: only the user knows what its values are.
        unfit = (
            there not in _SUITABLE[here] if here in _SUITABLE else there in _NUMBERS | _TREES | {"boolean", "binary"}
        )
        if unfit:
            yield f"{name} is {there} there, and its values need {here}"


def find_field(present: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """The definition of a field; a point in its name separates objects, as the server has it."""
    if name in present:
        return dict(present[name])
    head, point, inner_name = name.partition(".")
    if point and head in present:
        return find_field(present[head].get("properties", {}), inner_name)
    return None


def _find_field_type(field: Mapping[str, Any]) -> str:
    return str(field.get("type", "object"))


def _is_text(kind: DataType) -> bool:
    return field_of(kind) is _TEXT
