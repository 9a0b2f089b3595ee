"""Connect schemas as Avro schemas, in the mapping and the very text of Confluent's AvroData.

The text matters, not only its meaning: a registry gives the same schema the same id only if its text is the same, so topics
that a Java worker has written keep their schema ids. Sources: Confluent's AvroData and Avro's ``Schema.toString``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus

from connectors.errors import Skippable
from connectors.schema import DATE, DECIMAL, TIME, TIMESTAMP, Type
from worker.converters.base import bad_value
from worker.converters.javatext import decimal_bytes, decimal_scale, double_text, float_text

if TYPE_CHECKING:
    from connectors.schema import Schema

NAMESPACE: Final = "io.confluent.connect.avro"
DEFAULT_NAME: Final = f"{NAMESPACE}.ConnectDefault"
MAP_ENTRY: Final = "MapEntry"
INTERNAL_TYPE: Final = "connect.internal.type"
UNION: Final = f"{NAMESPACE}.Union"
ENUM: Final = f"{NAMESPACE}.Enum"
RECORD_DOC: Final = f"{NAMESPACE}.record.doc"
FIELD_DOC: Final = f"{NAMESPACE}.field.doc."
ENUM_DOC: Final = f"{NAMESPACE}.enum.doc."
ENUM_DEFAULT: Final = f"{NAMESPACE}.enum.default."
FIELD_DEFAULT_FLAG: Final = f"{NAMESPACE}.field.default"
DECIMAL_PRECISION: Final = "connect.decimal.precision"
DEFAULT_PRECISION: Final = 64

#: The record that stands for schemaless data: one field is set, according to the type of the value.
ANYTHING_NAME: Final = f"{NAMESPACE}.Anything"
ANYTHING_TEXT: Final = (
    '{"type":"record","name":"Anything","namespace":"io.confluent.connect.avro","fields":['
    + ",".join(
        f'{{"name":"{kind}","type":["null","{kind}"],"default":null}}'
        for kind in ("boolean", "bytes", "double", "float", "int", "long", "string")
    )
    + ',{"name":"array","type":["null",{"type":"array","items":"Anything"}],"default":null},{"name":"map","type":["null",'
    '{"type":"array","items":{"type":"record","name":"MapEntry","fields":[{"name":"key","type":"Anything"},'
    '{"name":"value","type":"Anything"}]}}],"default":null}]}'
)

_SIMPLE: Final = {
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_LOGICAL: Final = {DECIMAL: "decimal", DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis"}
#: A control character in JSON text, or another escape (consumed, so that an escaped backslash is not misread).
_CONTROL: Final = re.compile(r"\\u00([01][0-9a-f])|\\.", re.DOTALL)
_NOT_NAME: Final = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True, slots=True)
class AvroSettings:
    """The options that decide the mapping.

    Attributes:
        metadata: ``connect.meta.data``.
        enhanced: ``enhanced.avro.schema.support``.
        scrub: ``scrub.invalid.names``.
    """

    metadata: bool = True
    enhanced: bool = False
    scrub: bool = False


@dataclass(slots=True)
class _Names:
    """Named types written so far, by full name; a type is written once and referred to after that."""

    settings: AvroSettings
    written: dict[str, Any] = field(default_factory=dict)
    unnamed: dict[Any, str] = field(default_factory=dict)

    def default_name(self, content: Any) -> str:
        """The name of a struct without one, as Confluent's converter numbers them: different ones never clash."""
        number = len(self.unnamed) + 1
        return self.unnamed.setdefault(content, f"{DEFAULT_NAME}{number if number > 1 else ''}")


def avro_text(schema: Schema | None, settings: AvroSettings) -> str:
    """The text of the Avro schema for ``schema``.

    Raises:
        Skippable: Avro can't express it: an illegal name, two different types of one name, a wrong default.
    """
    return ANYTHING_TEXT if schema is None else _type_text(schema, "", _Names(settings))


def full_name(schema: Schema, settings: AvroSettings) -> str:
    """The full Avro name of a struct."""
    return ".".join(part for part in split_name(schema.name or DEFAULT_NAME, settings) if part)


def split_name(name: str, settings: AvroSettings) -> tuple[str, str]:
    """Namespace and simple name of a dotted name.

    Raises:
        Skippable: the name is not one that Avro allows.
    """
    parts = [avro_name(part, settings) for part in name.split(".")]
    return ".".join(parts[:-1]), parts[-1]


def avro_name(name: str, settings: AvroSettings) -> str:
    """``name``, scrubbed if that is wanted; raises Skippable if Avro does not allow it.

    Avro's specification allows ASCII only, and its library for Java all letters and digits, as long as none is scrubbed.
    """
    if is_name(name) and (name.isascii() or not settings.scrub):
        return name
    if settings.scrub and name:
        encoded = quote_plus(name, safe="*").replace("~", "%7E")
        return _NOT_NAME.sub("_", encoded if encoded[0].isalpha() or encoded[0] == "_" else f"x{encoded}")
    raise Skippable(
        f"Avro does not allow the name {name!r}: only letters, digits and underscores, no digit first. Rename it "
        "in a transform, or set scrub.invalid.names=true to have such names replaced."
    )


def is_name(name: str) -> bool:
    """Whether Avro's library for Java takes a name: letters, digits and underscores up to U+FFFF, no digit first."""
    letters = name.replace("_", "x")
    return (
        letters[:1].isalpha()
        and all(letter.isalpha() or letter.isdecimal() for letter in letters)
        and max(letters) <= "\uffff"
    )


def is_string_map(schema: Schema) -> bool:
    """Whether a MAP is an Avro map; else it is an array of key-value records."""
    return schema.key_schema is not None and schema.key_schema.type is Type.STRING and not schema.key_schema.optional


def is_enum(schema: Schema, settings: AvroSettings) -> bool:
    """Whether a STRING is an Avro enum."""
    return settings.enhanced and schema.type is Type.STRING and schema.parameter(ENUM) is not None


def enum_symbols(schema: Schema) -> list[str]:
    """The symbols of an enum, in order."""
    return [symbol for key, symbol in schema.parameters if key.startswith(f"{ENUM}.")]


def is_union(schema: Schema) -> bool:
    """Whether a STRUCT stands for an Avro union: one of its fields is set."""
    return schema.type is Type.STRUCT and schema.name == UNION


def null_last(schema: Schema) -> bool:
    """Whether null is the second branch of an optional schema's union: a field's default must match the first."""
    return schema.default is not None and schema.type is not Type.STRUCT


def string_text(value: str) -> str:
    """``value`` as a JSON string in a schema's text: unlike in values, characters beyond the BMP stand as they are."""
    json_text = json.dumps(value, ensure_ascii=False)
    return _CONTROL.sub(lambda match: f"\\u00{match[1].upper()}" if match[1] else match[0], json_text)


def _type_text(schema: Schema, space: str, names: _Names, *, nullable: bool = True) -> str:
    if is_union(schema):
        branches = [_type_text(member.schema, space, names, nullable=False) for member in schema.fields]
        return "[" + ",".join((['"null"'] if schema.optional else []) + branches) + "]"
    type_json = _base_text(schema, space, names)
    if not schema.optional or not nullable:
        return type_json
    return f'[{type_json},"null"]' if null_last(schema) else f'["null",{type_json}]'


def _base_text(schema: Schema, space: str, names: _Names) -> str:
    match schema.type:
        case Type.STRUCT:
            return _record_text(schema, space, names)
        case Type.ARRAY:
            if schema.value_schema is None:
                raise Skippable(
                    "Avro has no arrays of unknown elements: give the array's schema a schema of its elements."
                )
            items = _type_text(schema.value_schema, space, names)
            return (
                "{" + ",".join([f'"type":"array","items":{items}', *_schema_properties(schema, names.settings)]) + "}"
            )
        case Type.MAP:
            return _map_text(schema, space, names)
        case _ if is_enum(schema, names.settings):
            return _enum_text(schema, space, names)
    first = _decimal_members(schema) if schema.type is Type.BYTES and schema.name == DECIMAL else []
    members = [*first, *_schema_properties(schema, names.settings)]
    simple = f'"{_SIMPLE[schema.type]}"'
    return "{" + ",".join([f'"type":{simple}', *members]) + "}" if members else simple


def _decimal_members(schema: Schema) -> list[str]:
    precision = schema.parameter(DECIMAL_PRECISION) or str(DEFAULT_PRECISION)
    if not precision.isdecimal():
        raise Skippable(f"Invalid Decimal schema: {DECIMAL_PRECISION} is {precision!r}, not a number of digits.")
    return [f'"scale":{decimal_scale(schema)}', f'"precision":{int(precision)}']


def _schema_properties(schema: Schema, settings: AvroSettings) -> list[str]:
    members: list[str] = []
    if settings.metadata:
        if schema.doc is not None:
            members.append(f'"connect.doc":{string_text(schema.doc)}')
        if schema.version is not None:
            members.append(f'"connect.version":{schema.version}')
        parameters = {key: parameter for key, parameter in schema.parameters if key != FIELD_DEFAULT_FLAG}
        if parameters:
            members.append(
                '"connect.parameters":{'
                + ",".join(f"{string_text(key)}:{string_text(parameter)}" for key, parameter in parameters.items())
                + "}"
            )
        if schema.default is not None and schema.parameter(FIELD_DEFAULT_FLAG) is None:
            members.append(f'"connect.default":{default_text(schema, schema.default)}')
        if schema.name is not None:
            members.append(f'"connect.name":{string_text(schema.name)}')
        if schema.type in (Type.INT8, Type.INT16):
            members.append(f'"connect.type":"{schema.type}"')
    if schema.name in _LOGICAL:
        members.append(f'"logicalType":"{_LOGICAL[schema.name]}"')
    members += [
        f"{string_text(key)}:{string_text(parameter)}"
        for key, parameter in dict(schema.parameters).items()
        if key.startswith("avro")
    ]
    return members


def _named_type(content: Any, name: str, space: str, names: _Names) -> tuple[str, str, str] | str:
    """Namespace, simple name and head of a named type to write, or the text that refers to it."""
    namespace, simple = split_name(name, names.settings)
    key = f"{namespace}.{simple}"
    if key in names.written:
        if names.written[key] != content:
            raise Skippable(
                f"Two different types are called {key.lstrip('.')} in one Avro schema. Give each struct's schema a "
                "name of its own (maps without a name are called MapEntry)."
            )
        return f'"{simple}"' if namespace in (space, "") else f'"{key}"'
    names.written[key] = content
    head = f'"name":"{simple}"' + (f',"namespace":"{namespace}"' if namespace != space else "")
    return namespace, simple, head


def _record_text(schema: Schema, space: str, names: _Names) -> str:
    content = (schema.fields, schema.version, schema.doc, schema.parameters)
    named = _named_type(content, schema.name or names.default_name(content), space, names)
    if isinstance(named, str):
        return named
    namespace, _, head = named
    doc = schema.parameter(RECORD_DOC)
    members = [f'"type":"record",{head}', *([f'"doc":{string_text(doc)}'] if doc is not None else [])]
    fields = [
        _field_text(member.name, member.schema, schema.parameter(FIELD_DOC + member.name), namespace, names)
        for member in schema.fields
    ]
    members.append(f'"fields":[{",".join(fields)}]')
    return "{" + ",".join([*members, *_schema_properties(schema, names.settings)]) + "}"


def _field_text(name: str, schema: Schema, doc: str | None, space: str, names: _Names) -> str:
    field_json = f'{{"name":"{avro_name(name, names.settings)}","type":{_type_text(schema, space, names)}'
    if doc is not None:
        field_json += f',"doc":{string_text(doc)}'
    if schema.default is not None:
        default = default_text(schema, schema.default)
        field_json += f',"default":{default}' if _is_avro_default(schema, schema.default) else ""
    elif schema.optional:
        field_json += ',"default":null'
    return field_json + "}"


def _is_avro_default(schema: Schema, value: Any) -> bool:
    """Whether registries accept a default: of a map that Avro keeps as records, the pairs are for Connect alone."""
    if value is None:
        return True
    match schema.type:
        case Type.MAP if schema.value_schema is not None:
            inner = schema.value_schema
            return not value or (
                is_string_map(schema) and all(_is_avro_default(inner, item) for item in value.values())
            )
        case Type.ARRAY if schema.value_schema is not None:
            inner = schema.value_schema
            return all(_is_avro_default(inner, item) for item in value)
        case Type.STRUCT:
            return all(_is_avro_default(member.schema, value.get(member.name)) for member in schema.fields)
        case _:
            return True


def _map_text(schema: Schema, space: str, names: _Names) -> str:
    if schema.key_schema is None or schema.value_schema is None:
        raise Skippable("Avro has no maps of unknown keys and values: give the map's schema the schemas of both.")
    if is_string_map(schema):
        values = _type_text(schema.value_schema, space, names)
        return "{" + ",".join([f'"type":"map","values":{values}', *_schema_properties(schema, names.settings)]) + "}"
    content = (MAP_ENTRY, schema.key_schema, schema.value_schema)
    named = _named_type(content, schema.name or f"{NAMESPACE}.{MAP_ENTRY}", space, names)
    if isinstance(named, str):
        entry = named
    else:
        namespace, _, head = named
        key = _field_text("key", schema.key_schema, None, namespace, names)
        value = _field_text("value", schema.value_schema, None, namespace, names)
        internal = f',"{INTERNAL_TYPE}":"{MAP_ENTRY}"' if schema.name is not None else ""
        entry = f'{{"type":"record",{head},"fields":[{key},{value}]{internal}}}'
    return "{" + ",".join([f'"type":"array","items":{entry}', *_schema_properties(schema, names.settings)]) + "}"


def _enum_text(schema: Schema, space: str, names: _Names) -> str:
    name = schema.parameter(ENUM) or ""
    named = _named_type((ENUM, schema.parameters), name, space, names)
    if isinstance(named, str):
        return named
    _, simple, head = named
    symbols = [avro_name(symbol, names.settings) for symbol in enum_symbols(schema)]
    foreign = next((symbol for symbol in symbols if not symbol.isascii()), None)
    if foreign is not None:
        raise Skippable(f"The Avro enum {name!r} has the symbol {foreign!r}, and symbols have ASCII letters only.")
    members = [f'"type":"enum",{head}']
    if (doc := schema.parameter(ENUM_DOC + simple)) is not None:
        members.append(f'"doc":{string_text(doc)}')
    members.append(f'"symbols":{json.dumps(symbols, separators=(",", ":"))}')
    if (default := schema.parameter(ENUM_DEFAULT + simple)) is not None:
        members.append(f'"default":"{default}"')
    return "{" + ",".join([*members, *_schema_properties(schema, names.settings)]) + "}"


def default_text(schema: Schema, value: Any) -> str:
    """A default value in Avro's JSON form.

    Args:
        schema: its schema.
        value: the default.

    Raises:
        Skippable: the value does not match the schema.
    """
    if value is None:
        return "null"
    try:
        match schema.type:
            case Type.STRUCT:
                items = [_or_default(member.schema, value.get(member.name)) for member in schema.fields]
                return (
                    "{"
                    + ",".join(
                        f"{string_text(member.name)}:{default_text(member.schema, item)}"
                        for member, item in zip(schema.fields, items, strict=True)
                    )
                    + "}"
                )
            case Type.ARRAY if schema.value_schema is not None:
                return "[" + ",".join(default_text(schema.value_schema, item) for item in value) + "]"
            case Type.MAP if schema.key_schema is not None and schema.value_schema is not None:
                keys, values = schema.key_schema, schema.value_schema
                pairs = [(default_text(keys, key), default_text(values, item)) for key, item in value.items()]
                if is_string_map(schema):
                    return "{" + ",".join(f"{key}:{item}" for key, item in pairs) + "}"
                return "[" + ",".join(f"[{key},{item}]" for key, item in pairs) + "]"
            case Type.BYTES:
                data = decimal_bytes(value, decimal_scale(schema)) if schema.name == DECIMAL else bytes(value)
                return string_text(data.decode("latin-1"))
            case Type.STRING:
                return string_text(value)
            case Type.BOOLEAN:
                return "true" if value else "false"
            case Type.FLOAT32:
                return float_text(value)
            case Type.FLOAT64:
                return double_text(float(value))
            case _:
                return str(int(value))
    except (TypeError, ValueError, AttributeError, OverflowError):
        raise bad_value("a default", schema.type, value) from None


def _or_default(schema: Schema, value: Any) -> Any:
    return schema.default if value is None else value
