"""Connect schemas as JSON Schema (draft 7), spelled as Confluent's JsonSchemaData spells them.

The order of members is Java's, ``HashMap``'s where that is what Java uses: to a registry, another order is
another schema. With the same order, a topic that Java wrote before keeps its schema's version.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Skippable
from connectors.schema import DECIMAL, Type
from worker.converters.avro_form.schema import string_text
from worker.converters.base import member_path
from worker.converters.java_order import copy_order, hash_order
from worker.converters.javatext import decimal_text
from worker.converters.json_form.text import ONE_OF, JsonSettings, value_text

if TYPE_CHECKING:
    from connectors.schema import Schema

NAMESPACE: Final = "io.confluent.connect.json"
ENUM: Final = f"{NAMESPACE}.Enum"
NULL_SYMBOL: Final = "<NULL>"
_INTEGERS: Final = (Type.INT8, Type.INT16, Type.INT32, Type.INT64)
_CONNECT: Final = {Type.FLOAT32: "float32", Type.FLOAT64: "float64", Type.BYTES: "bytes", Type.MAP: "map"}
_MAX_DEPTH: Final = 150


@dataclass(frozen=True, slots=True)
class JsonSchemaSettings:
    """The options that decide the mapping.

    Attributes:
        values: how values are written.
        additional: ``object.additional.properties``.
        optional: ``use.optional.for.nonrequired``.
        flatten: ``flatten.singleton.unions``.
    """

    values: JsonSettings
    additional: bool = True
    optional: bool = False
    flatten: bool = True


def is_union(schema: Schema) -> bool:
    """Whether a STRUCT stands for ``oneOf``: one of its fields is set."""
    return schema.type is Type.STRUCT and schema.name == ONE_OF


def is_string_map(schema: Schema) -> bool:
    """Whether a MAP is a JSON object; else it is an array of objects with key and value."""
    return schema.key_schema is not None and schema.key_schema.type is Type.STRING and not schema.key_schema.optional


def json_schema_text(schema: Schema, settings: JsonSchemaSettings) -> str:
    """The text of the JSON Schema for ``schema``.

    Raises:
        Skippable: it can't be expressed.
    """
    return _schema_json(schema, settings, None, "", 0)


def _schema_json(
    schema: Schema | None,
    settings: JsonSchemaSettings,
    index: int | None,
    path: str,
    depth: int,
    *,
    nullable: bool = True,
) -> str:
    if schema is None:
        raise Skippable(
            f"JsonSchemaConverter needs the schemas of all that {path or 'the value'} holds: give arrays a schema "
            "of their elements, and maps those of their keys and values."
        )
    if depth > _MAX_DEPTH:
        raise Skippable(f"Cannot write the schema of {path[:200]}: it is nested more than {_MAX_DEPTH} levels deep.")
    if is_union(schema):
        branches = ['{"type":"null"}'] if schema.optional else []
        branches += [
            _schema_json(member.schema, settings, number, member_path(path, member.name), depth + 1, nullable=False)
            for number, member in enumerate(schema.fields)
        ]
        return _combine_branches(branches, index)
    if schema.optional and nullable:
        return _combine_branches(['{"type":"null"}', _plain_json(schema, settings, None, path, depth)], index)
    return _plain_json(schema, settings, index, path, depth)


def _combine_branches(branches: list[str], index: int | None) -> str:
    index_member = "" if index is None else f'"connect.index":{index},'
    return "{" + index_member + '"oneOf":[' + ",".join(branches) + "]}"


def _plain_json(schema: Schema, settings: JsonSchemaSettings, index: int | None, path: str, depth: int) -> str:
    kind, inner = _kind_members(schema, settings, path, depth)
    connect = _connect_type(schema)
    noted = {"connect.type": f'"{connect}"'} if connect else {}
    members = []
    if schema.name is not None:
        members.append(f'"title":{string_text(schema.name)}')
    if schema.version is not None:
        noted["connect.version"] = str(schema.version)
    if schema.doc is not None:
        members.append(f'"description":{string_text(schema.doc)}')
    parameters = {key: parameter for key, parameter in schema.parameters if not key.startswith(NAMESPACE)}
    if parameters:
        # JSON's object is made with room for just as many as there are.
        order = hash_order(hash_order(parameters), 1 << (len(parameters) - 1).bit_length())
        noted["connect.parameters"] = (
            "{" + ",".join(f"{string_text(key)}:{string_text(parameters[key])}" for key in order) + "}"
        )
    if schema.default is not None:
        members.append(f'"default":{_default_json(schema, settings)}')
    if index is not None:
        noted["connect.index"] = str(index)
    members += [f'"{key}":{noted[key]}' for key in copy_order(hash_order(noted))]
    if kind == "boolean":  # the only one whose type Java writes last
        return "{" + ",".join([*members, '"type":"boolean"']) + "}"
    first = [f'"type":"{kind}"'] if kind else []
    if schema.type is Type.STRUCT and not settings.additional:
        first.append('"additionalProperties":false')
    return "{" + ",".join([*first, *members, *inner]) + "}"


def _kind_members(schema: Schema, settings: JsonSchemaSettings, path: str, depth: int) -> tuple[str, list[str]]:
    """The JSON type (empty for enums), and the members that describe what is inside."""
    kind = schema.type
    if kind in _INTEGERS:
        return "integer", []
    if kind in (Type.FLOAT32, Type.FLOAT64):
        return "number", []
    if kind is Type.BOOLEAN:
        return "boolean", []
    if kind is Type.BYTES:
        return ("number" if schema.name == DECIMAL and settings.values.numeric_decimals else "string"), []
    if kind is Type.STRING:
        if schema.parameter(ENUM) is None:
            return "string", []
        symbols = [key.removeprefix(f"{ENUM}.") for key, _ in schema.parameters if key.startswith(f"{ENUM}.")]
        return "", [
            '"enum":[' + ",".join("null" if symbol == NULL_SYMBOL else string_text(symbol) for symbol in symbols) + "]"
        ]
    if kind is Type.ARRAY:
        return "array", [f'"items":{_schema_json(schema.value_schema, settings, None, f"{path}[]", depth + 1)}']
    if kind is Type.MAP:
        if is_string_map(schema):
            return "object", [
                f'"additionalProperties":{_schema_json(schema.value_schema, settings, None, f"{path}[]", depth + 1)}'
            ]
        key = _schema_json(schema.key_schema, settings, 0, f"the keys of {path or 'the map'}", depth + 1)
        value = _schema_json(schema.value_schema, settings, 1, f"{path}[]", depth + 1)
        properties = ",".join(f'"{name}":{label}' for name, label in (("value", value), ("key", key)))
        return "array", ['"items":{"type":"object","properties":{' + properties + "}}"]
    member_texts = {
        member.name: _schema_json(member.schema, settings, number, member_path(path, member.name), depth + 1)
        for number, member in enumerate(schema.fields)
    }
    if not member_texts:
        return "object", []
    return "object", [
        '"properties":{'
        + ",".join(f"{string_text(name)}:{member_texts[name]}" for name in hash_order(member_texts))
        + "}"
    ]


def _connect_type(schema: Schema) -> str:
    return schema.type.value if schema.type in _INTEGERS else _CONNECT.get(schema.type, "")


def _default_json(schema: Schema, settings: JsonSchemaSettings) -> str:
    # Characters beyond the BMP are unescaped in a schema and escaped in a value: every reader gets the same string.
    value: Any = schema.default
    if isinstance(value, str):
        return string_text(value)
    default_text = value_text(schema, value, settings.values, "the default")
    if isinstance(value, float | Decimal) and default_text[0] != '"':
        # Java's JSON schema library shortens plain decimals; those with an exponent it prints as BigDecimal does.
        return (
            decimal_text(Decimal(default_text))
            if "E" in default_text
            else default_text.rstrip("0").rstrip(".")
            if "." in default_text
            else default_text
        )
    return default_text
