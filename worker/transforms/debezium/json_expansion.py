"""A JSON document as a Connect value with a schema that is worked out from it, as Debezium's outbox event router does it.

Source: io.debezium.transforms.outbox.JsonSchemaData of Debezium 3.5. Three differences: a document that is an array is expanded
too (Debezium accepts it and then fails), integers beyond 64 bits become doubles (there they prevent the expansion), and with
``field.name.adjustment.mode`` fields whose name changes keep their values (Debezium loses them).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.mysql.events.names import field_name
from connectors.schema import (
    OPTIONAL_BOOLEAN,
    OPTIONAL_BYTES,
    OPTIONAL_FLOAT64,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    Field,
    Schema,
    Type,
    array,
)

if TYPE_CHECKING:
    from worker.transforms.debezium.events import Adjustment

_INT32: Final = 1 << 31
_INT64: Final = 1 << 63
_SCALARS: Final = {str: OPTIONAL_STRING, bool: OPTIONAL_BOOLEAN}


class NotExpandable(Exception):
    """The document can't be expanded; the message says why."""


def expand_json(json_text: str, name: str, *, keep_nulls: bool, names: Adjustment = "none") -> tuple[Any, Schema]:
    """The document's value and schema.

    Args:
        json_text: a JSON object or array.
        name: of the outermost struct.
        keep_nulls: whether a null becomes an optional BYTES field, else it is left out.
        names: how names of fields are fitted to what Avro takes.

    Raises:
        NotExpandable: it is no JSON object or array, or has arrays of mixed types, or two names that come out the same.
    """
    if not json_text.startswith(("{", "[")):
        raise NotExpandable("it begins with neither { nor [")
    try:
        document = msgspec.json.decode(json_text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise NotExpandable(f"it is no JSON: {error}") from None
    if names != "none":
        document = _rename_members(document, names)
    schema = _infer_schema(name, document, keep_nulls=keep_nulls)
    if schema is None:
        raise NotExpandable("an empty array has no element type")
    return _read_value(document, schema, name), schema


def _rename_members(node: Any, names: Adjustment) -> Any:
    if isinstance(node, list):
        return [_rename_members(item, names) for item in node]
    if not isinstance(node, dict):
        return node
    result: dict[str, Any] = {}
    for key, value in node.items():
        name = field_name(key, names)
        if name in result:
            raise NotExpandable(
                f"two fields of an object come out as {name}: set field.name.adjustment.mode=avro_unicode"
            )
        result[name] = _rename_members(value, names)
    return result


def _infer_schema(name: str, node: Any, *, keep_nulls: bool) -> Schema | None:
    """The schema of a part; None for what is left out."""
    if node is None:
        return OPTIONAL_BYTES if keep_nulls else None
    if isinstance(node, str):
        return OPTIONAL_STRING
    if isinstance(node, bool):
        return OPTIONAL_BOOLEAN
    if isinstance(node, int | float):
        return _number_schema(node)
    if isinstance(node, list):
        return array(_elements_schema(name, node, keep_nulls=keep_nulls), optional=True) if node else None
    fields: list[Field] = []
    for key, member in node.items():
        schema = _infer_schema(f"{name}.{key}" if name.strip() else key, member, keep_nulls=keep_nulls)
        if schema is not None:
            if not key:
                raise NotExpandable("a field has no name")
            fields.append(Field(key, schema))
    return Schema(Type.STRUCT, optional=True, name=name, fields=tuple(fields))


def _number_schema(node: float) -> Schema:
    if isinstance(node, int) and -_INT64 <= node < _INT64:
        return OPTIONAL_INT32 if -_INT32 <= node < _INT32 else OPTIONAL_INT64
    return OPTIONAL_FLOAT64


def _element_kind(node: Any) -> Any:
    """Return the kind that all elements of an array must share: their JSON type, for numbers their schema."""
    return _number_schema(node) if isinstance(node, int | float) and not isinstance(node, bool) else type(node)


def _elements_schema(name: str, nodes: list[Any], *, keep_nulls: bool) -> Schema:
    present = [node for node in nodes if node is not None]
    kinds = {_element_kind(node) for node in present}
    if len(kinds) > 1:
        raise NotExpandable(f"the array {name or ''} has elements of different types")
    if present and isinstance(present[0], dict):
        element_schema = None
        for schema in dict.fromkeys(_infer_schema(name, node, keep_nulls=keep_nulls) for node in present):
            element_schema = (
                schema if element_schema is None or schema is None else _merge_schemas(element_schema, schema)
            )
    else:
        element_schema = _infer_schema("", present[0] if present else None, keep_nulls=keep_nulls)
    if element_schema is None:
        raise NotExpandable(f"the array {name or ''} has no element that tells its type")
    return element_schema


def _merge_schemas(left: Schema, right: Schema) -> Schema:
    """The fields of both; where both have one, the first counts unless it was only a null. Not optional, as in Debezium."""
    fields = {field.name: field for field in left.fields}
    for field in right.fields:
        old = fields.get(field.name)
        if old is None or (old.schema.type is Type.BYTES and field.schema.type is not Type.BYTES):
            fields[field.name] = field
    return Schema(Type.STRUCT, name=left.name, fields=tuple(fields.values()))


def _read_value(node: Any, schema: Schema, name: str) -> Any:
    """The value of a part; refuses what its schema, which may come from a neighbour, doesn't allow."""
    if node is None:
        if schema.optional:
            return None
        raise NotExpandable(f"{name} has a null among objects of different structures")
    if schema.type is Type.ARRAY and isinstance(node, list) and schema.value_schema is not None:
        return [_read_value(item, schema.value_schema, name) for item in node]
    if schema.type is Type.STRUCT and isinstance(node, dict):
        return {
            field.name: _read_value(node[field.name], field.schema, f"{name}.{field.name}")
            for field in schema.fields
            if field.name in node
        }
    kind = _element_kind(node)
    if kind is OPTIONAL_FLOAT64 and schema.type is Type.FLOAT64:
        return _to_double(node)
    if (kind if isinstance(kind, Schema) else _SCALARS.get(kind)) is not schema:
        raise NotExpandable(f"{name} has values of different types in the elements of an array")
    return node


def _to_double(node: float) -> float:
    try:
        return float(node)
    except OverflowError:
        return math.copysign(math.inf, node)
