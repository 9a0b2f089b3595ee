"""JSON Schemas and their values as Connect data, as Confluent's JsonSchemaData maps them.

Differences: a value of the wrong JSON type is refused (Java reads 0 or an empty text), schemas that contain themselves are
refused by name, and what a schema calls ``$ref`` is followed inside the text and into registered references only.
"""

from __future__ import annotations

import base64
import binascii
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from connectors.errors import Skippable
from connectors.schema import DECIMAL, Field, Schema, Type
from worker.converters.base import member_path
from worker.converters.java_order import hash_order
from worker.converters.javatext import decimal_from_bytes, decimal_scale, to_float32
from worker.converters.json_form.read import SPECIAL_FLOATS, parse_json
from worker.converters.json_form.schema_text import ENUM, NULL_SYMBOL, JsonSchemaSettings
from worker.converters.json_form.text import INTEGER_BITS, ONE_OF

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CONNECT: Final = {
    "int8": Type.INT8,
    "int16": Type.INT16,
    "int32": Type.INT32,
    "int64": Type.INT64,
    "float32": Type.FLOAT32,
    "float64": Type.FLOAT64,
    "bytes": Type.BYTES,
}
_OBJECT_WORDS: Final = ("properties", "additionalProperties", "required", "patternProperties")
_ARRAY_WORDS: Final = ("items", "minItems", "maxItems", "uniqueItems")
_NUMBER_WORDS: Final = ("minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum")
_STRING_WORDS: Final = ("minLength", "maxLength", "pattern", "format")
_MAX_DEPTH: Final = 100
_MAX_REFS: Final = 100


def json_schema_reader(
    schema_text: str,
    imports: Mapping[str, str],
    settings: JsonSchemaSettings,
) -> Callable[[bytes], tuple[Schema | None, Any]]:
    """Return a reader of values of the JSON Schema ``schema_text``.

    Raises:
        Skippable: Connect has no counterpart for it.
    """
    mapper = _JsonSchemaMapper(
        load_schema(schema_text), {name: load_schema(part) for name, part in imports.items()}, settings
    )
    try:
        schema = mapper.map({"$ref": "#"}, 0)
    except (TypeError, AttributeError, KeyError, ValueError, ArithmeticError, RecursionError) as error:
        raise Skippable(
            f"The registry's JSON Schema can't be mapped: {error!r}. Correct it in the registry."
        ) from error
    exact = _holds_decimal(schema)
    return lambda data: (schema, read_value(schema, parse_json(data, exact=exact)))


def load_schema(schema_text: str) -> Any:
    """Return the parsed text of a JSON Schema; raises ``Skippable`` if it is invalid."""
    try:
        return json.loads(schema_text, parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise Skippable(f"The registry's schema can't be read as JSON: {error}. Correct it in the registry.") from None


class _JsonSchemaMapper:
    """Walks one JSON Schema document and those it refers to."""

    def __init__(self, root: Any, imports: Mapping[str, Any], settings: JsonSchemaSettings) -> None:
        self._root = root
        self._imports = imports
        self._settings = settings
        self._open: list[int] = []

    def map(self, node: Any, depth: int, *, optional: bool = False) -> Schema:
        """The Connect schema of one node; ``optional`` makes it so whatever the node says."""
        if depth > _MAX_DEPTH:
            raise Skippable(f"The JSON Schema is nested more than {_MAX_DEPTH} levels deep.")
        node = self._follow_reference(node)
        if not isinstance(node, dict) or not node:
            raise Skippable(
                "The JSON Schema allows anything in a place (an empty schema); such values have no Connect schema. "
                "Give it a type."
            )
        if id(node) in self._open:
            raise Skippable(
                f"The JSON Schema {node.get('title', '')} contains itself; such schemas have no Connect "
                "counterpart here."
            )
        self._open.append(id(node))
        try:
            return self._map_node(node, depth, optional=optional)
        finally:
            self._open.pop()

    def _follow_reference(self, node: Any) -> Any:
        for _ in range(_MAX_REFS):
            if not isinstance(node, dict) or "$ref" not in node:
                return node
            node = self._find_referred(str(node["$ref"]))
        raise Skippable("The JSON Schema refers to itself in a circle.")

    def _find_referred(self, reference: str) -> Any:
        name, _, pointer = reference.partition("#")
        document = self._root if not name else self._imports.get(name, self._imports.get(name.rpartition("/")[2]))
        for part in pointer.strip("/").split("/") if pointer.strip("/") else ():
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(document, list) and key.isdecimal() and int(key) < len(document):
                document = document[int(key)]
            else:
                document = document.get(key) if isinstance(document, dict) else None
        if document is None:
            raise Skippable(
                f"The JSON Schema refers to {reference}, which it does not define. Register it as a reference."
            )
        return document

    def _map_node(self, node: dict[str, Any], depth: int, *, optional: bool) -> Schema:
        kinds = node.get("type")
        if isinstance(kinds, list):
            return self._map_alternatives(
                [{**node, "type": kind} if kind != "null" else {"type": "null"} for kind in kinds],
                depth,
                optional=optional,
            )
        for word in ("oneOf", "anyOf"):
            if word in node and not any(item in node for item in ("properties", "enum", "const")):
                return self._map_alternatives(list(node[word]), depth, optional=optional)
        if "allOf" in node and "properties" not in node:
            return self._all_of(node["allOf"], depth, optional=optional)
        if "const" in node or "enum" in node:
            symbols = node["enum"] if "enum" in node else [node["const"]]
            if isinstance(kinds, str) and kinds in ("integer", "number", "boolean"):
                return self._finish_schema(
                    node,
                    Type.INT64 if kinds == "integer" else Type.FLOAT64 if kinds == "number" else Type.BOOLEAN,
                    optional,
                )
            names = [NULL_SYMBOL if item is None else str(item) for item in symbols]
            return self._finish_schema(
                node, Type.STRING, optional, parameters=[(ENUM, ""), *((f"{ENUM}.{name}", name) for name in names)]
            )
        return self._map_typed(node, self._type_of(node, kinds), depth, optional=optional)

    @staticmethod
    def _type_of(node: dict[str, Any], named: Any) -> str:
        if isinstance(named, str):
            return named
        for words, kind in (
            (_OBJECT_WORDS, "object"),
            (_ARRAY_WORDS, "array"),
            (_NUMBER_WORDS, "number"),
            (_STRING_WORDS, "string"),
        ):
            if any(word in node for word in words):
                return kind
        raise Skippable(
            "The JSON Schema allows anything in a place (no type); such values have no Connect schema. Give it a type."
        )

    def _map_typed(self, node: dict[str, Any], kind: str, depth: int, *, optional: bool) -> Schema:
        connect = node.get("connect.type")
        if kind == "boolean":
            return self._finish_schema(node, Type.BOOLEAN, optional)
        if kind in ("integer", "number"):
            if connect is not None and connect not in _CONNECT:
                raise Skippable(f"Unsupported type {connect}")
            return self._finish_schema(
                node, _CONNECT[connect] if connect else Type.INT64 if kind == "integer" else Type.FLOAT64, optional
            )
        if kind == "string":
            return self._finish_schema(node, Type.BYTES if connect == "bytes" else Type.STRING, optional)
        if kind == "array":
            return self._map_array(node, connect, depth, optional=optional)
        if kind == "object":
            if connect == "map":
                values = self.map(node.get("additionalProperties"), depth + 1)
                return self._finish_schema(
                    node, Type.MAP, optional, key_schema=Schema(Type.STRING), value_schema=values
                )
            return self._finish_schema(node, Type.STRUCT, optional, fields=self._map_fields(node, depth))
        raise Skippable(
            f"Unsupported schema type {kind}" + (": null alone has no Connect schema." if kind == "null" else "")
        )

    def _map_array(self, node: dict[str, Any], connect: Any, depth: int, *, optional: bool) -> Schema:
        items = node.get("items")
        if items is None or isinstance(items, list):
            raise Skippable("Array schema did not specify the items type")
        entry = self._follow_reference(items)
        if connect == "map" and isinstance(entry, dict) and {"key", "value"} <= entry.get("properties", {}).keys():
            return self._finish_schema(
                node,
                Type.MAP,
                optional,
                key_schema=self.map(entry["properties"]["key"], depth + 1),
                value_schema=self.map(entry["properties"]["value"], depth + 1),
            )
        return self._finish_schema(node, Type.ARRAY, optional, value_schema=self.map(items, depth + 1))

    def _map_fields(self, node: dict[str, Any], depth: int) -> tuple[Field, ...]:
        properties: dict[str, Any] = node.get("properties", {})
        required = node.get("required", ())
        ordered: dict[int, str] = {}
        # Java's order where the writer has noted none: that of its HashMap, which it counts through.
        for name in hash_order(properties):
            part = properties[name]
            index = part.get("connect.index") if isinstance(part, dict) else None
            ordered[index if isinstance(index, int) else len(ordered)] = name
        if len(ordered) < len(properties):
            ordered = dict(enumerate(properties))
        return tuple(
            Field(
                name, self.map(properties[name], depth + 1, optional=self._settings.optional and name not in required)
            )
            for _, name in sorted(ordered.items())
        )

    def _map_alternatives(self, branches: list[Any], depth: int, *, optional: bool) -> Schema:
        present = [branch for branch in branches if self._follow_reference(branch) != {"type": "null"}]
        nullable = len(present) < len(branches)
        if len(present) == 1 and (nullable or self._settings.flatten):
            return self.map(present[0], depth + 1, optional=nullable)
        fields = tuple(
            Field(f"{ONE_OF}.field.{index}", self.map(branch, depth + 1, optional=True))
            for index, branch in enumerate(present)
        )
        return Schema(Type.STRUCT, optional=nullable or optional, name=ONE_OF, fields=fields)

    def _all_of(self, parts: list[Any], depth: int, *, optional: bool) -> Schema:
        nodes = [self._follow_reference(part) for part in parts]
        merged: dict[str, Any] = {}
        required: list[str] = []
        for node in nodes:
            if isinstance(node, dict):
                merged.update(node.get("properties", {}))
                required += node.get("required", ())
        if merged:
            fields = tuple(
                Field(name, self.map(part, depth + 1, optional=self._settings.optional and name not in required))
                for name, part in merged.items()
            )
            return Schema(Type.STRUCT, optional=optional, fields=fields)
        whole: dict[str, Any] = {}
        for node in nodes:
            whole.update(node if isinstance(node, dict) else {})
        return self._map_node(whole, depth + 1, optional=optional)

    @staticmethod
    def _finish_schema(
        node: dict[str, Any],
        kind: Type,
        optional: bool,  # noqa: FBT001
        *,
        parameters: list[tuple[str, str]] | None = None,
        **parts: Any,
    ) -> Schema:
        listed = dict(parameters or ())
        noted = node.get("connect.parameters", {})
        if not isinstance(noted, dict) or not all(
            isinstance(parameter_value, str) for parameter_value in noted.values()
        ):
            raise Skippable("Expected schema parameter values to be strings")
        listed.update(noted)
        version = node.get("connect.version")
        schema = Schema(
            kind,
            optional=optional,
            name=_as_string(node.get("title")),
            parameters=tuple(listed.items()),
            version=version if isinstance(version, int) else None,
            doc=_as_string(node.get("description")),
            **parts,
        )
        if node.get("default") is None:
            return schema
        default = read_value(schema, node["default"], "the default")
        return Schema(
            kind,
            optional=optional,
            default=default,
            name=schema.name,
            parameters=schema.parameters,
            version=schema.version,
            doc=schema.doc,
            **parts,
        )


def _as_string(part: Any) -> str | None:
    return part if isinstance(part, str) else None


def _holds_decimal(schema: Schema | None) -> bool:
    return schema is not None and (
        schema.name == DECIMAL
        or any(
            _holds_decimal(part)
            for part in (schema.key_schema, schema.value_schema, *(member.schema for member in schema.fields))
        )
    )


def read_value(schema: Schema, value: Any, path: str = "") -> Any:
    """A Connect value from parsed JSON.

    Raises:
        Skippable: it does not match the schema.
    """
    if value is None:
        if schema.default is not None or schema.optional:
            return schema.default
        raise Skippable(
            f"Invalid null value for required {schema.type.name} field {path or 'at the top'}. Where writers may "
            "leave properties out, set use.optional.for.nonrequired=true."
        )
    reader = _READERS[schema.type]
    result = reader(schema, value, path)
    if result is _WRONG:
        raise Skippable(
            f"Cannot read {path or 'the value'}: its schema says {schema.type}, but the JSON is a "
            f"{type(value).__name__}. It was written with another schema than its id says."
        )
    return result


_WRONG: Final = object()


def _read_integer(schema: Schema, value: Any, path: str) -> Any:
    del path
    if isinstance(value, bool) or not isinstance(value, int):
        return _WRONG
    limit = 1 << INTEGER_BITS[schema.type]
    return value if -limit <= value < limit else _WRONG


def _read_float(schema: Schema, value: Any, path: str) -> Any:
    del path
    if isinstance(value, str):
        return SPECIAL_FLOATS.get(value, _WRONG)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return _WRONG
    try:
        return to_float32(float(value)) if schema.type is Type.FLOAT32 else float(value)
    except OverflowError:
        return _WRONG


def _read_boolean(schema: Schema, value: Any, path: str) -> Any:
    del schema, path
    return value if isinstance(value, bool) else _WRONG


def _read_string(schema: Schema, value: Any, path: str) -> Any:
    del schema, path
    return value if isinstance(value, str) else _WRONG


def _read_bytes(schema: Schema, value: Any, path: str) -> Any:
    del path
    decimal = schema.name == DECIMAL
    if isinstance(value, str):
        try:
            data = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return _WRONG
        return decimal_from_bytes(data, decimal_scale(schema)) if decimal else data
    if decimal and isinstance(value, int | Decimal | float) and not isinstance(value, bool):
        return value if isinstance(value, Decimal) else Decimal(str(value))
    return _WRONG


def _read_array(schema: Schema, value: Any, path: str) -> Any:
    inner = schema.value_schema
    if not isinstance(value, list) or inner is None:
        return _WRONG
    return [read_value(inner, item, f"{path}[{index}]") for index, item in enumerate(value)]


def _read_map(schema: Schema, value: Any, path: str) -> Any:
    keys, values = schema.key_schema, schema.value_schema
    if keys is None or values is None:
        return _WRONG
    if isinstance(value, dict) and keys.type is Type.STRING and not keys.optional:
        return {name: read_value(values, item, f"{path}[{name}]") for name, item in value.items()}
    if not isinstance(value, list) or not all(
        isinstance(entry, dict) and entry.keys() == {"key", "value"} for entry in value
    ):
        return _WRONG
    return {
        _require_hashable(read_value(keys, entry["key"], f"a key of {path}")): read_value(
            values, entry["value"], f"{path}[...]"
        )
        for entry in value
    }


def _require_hashable(key: Any) -> Any:
    if isinstance(key, dict | list):
        raise Skippable("Found a map whose keys are structs or arrays, which Python's maps can't hold.")
    return key


def _read_struct(schema: Schema, value: Any, path: str) -> Any:
    if schema.name == ONE_OF:
        chosen = _choose_branch(schema, value)
        return {
            **dict.fromkeys(member.name for member in schema.fields),
            chosen.name: read_value(chosen.schema, value, path),
        }
    if not isinstance(value, dict):
        return _WRONG
    return {
        member.name: read_value(member.schema, value.get(member.name), member_path(path, member.name))
        for member in schema.fields
    }


def _choose_branch(schema: Schema, value: Any) -> Field:
    """The alternative of a union that fits: a simple type, else the struct with most of the value's members."""
    best, best_count = None, 0
    for member in schema.fields:
        kind = member.schema.type
        if kind is not Type.STRUCT:
            if _is_fitting(kind, value):
                return member
        elif isinstance(value, dict) and (count := _count_matches(member.schema, value)) > best_count:
            best, best_count = member, count
    if best is None:
        raise Skippable("Did not find matching oneof field for data")
    return best


def _is_fitting(kind: Type, value: Any) -> bool:
    if isinstance(value, bool):
        return kind is Type.BOOLEAN
    if isinstance(value, int):
        return kind in INTEGER_BITS or kind in (Type.FLOAT32, Type.FLOAT64)
    if isinstance(value, float | Decimal):
        return kind in (Type.FLOAT32, Type.FLOAT64)
    if isinstance(value, str):
        return kind is Type.STRING
    return kind is Type.ARRAY if isinstance(value, list) else kind is Type.MAP


def _count_matches(schema: Schema, value: Any) -> int:
    if schema.type is not Type.STRUCT or not isinstance(value, dict):
        return 0
    matches = [member for member in schema.fields if member.name in value]
    return len(matches) + sum(_count_matches(member.schema, value[member.name]) for member in matches)


_READERS: Final[dict[Type, Callable[[Schema, Any, str], Any]]] = {
    **dict.fromkeys(INTEGER_BITS, _read_integer),
    Type.FLOAT32: _read_float,
    Type.FLOAT64: _read_float,
    Type.BOOLEAN: _read_boolean,
    Type.STRING: _read_string,
    Type.BYTES: _read_bytes,
    Type.ARRAY: _read_array,
    Type.MAP: _read_map,
    Type.STRUCT: _read_struct,
}
