"""Compiles one encoder function per schema for JsonConverter.

The work is done by msgspec: a class is made for each struct, ``msgspec.convert`` checks types, ranges and missing fields of
the whole value in C and puts the fields in order, ``msgspec.json`` writes them. Generated Python does only what is different in
Java: floating point that Java prints in another form, decimals, defaults for null, maps with keys that aren't strings. Whatever
``convert`` refuses goes to ``text``, which either finds it right after all or says what is wrong.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import orjson

from connectors.codegen import CodeBuilder, indent_lines
from connectors.schema import DECIMAL, Type
from worker.converters.javatext import decimal_scale, decimal_text
from worker.converters.json_form.text import (
    INTEGER_BITS,
    ONE_OF,
    JsonSettings,
    decimal_base64,
    float_json,
    java_escapes,
    schema_text,
    value_text,
)

if TYPE_CHECKING:
    from connectors.schema import Schema
    from worker.converters.base import Encode

_PASSED_ON: Final = (bytes, Decimal)
_BACKSLASH: Final = 92
_PLAIN_DEPTH: Final = 150


def compile_encoder(schema: Schema | None, settings: JsonSettings, *, envelope: bool, head: bytes = b"") -> Encode:
    """The function that encodes values of ``schema``.

    Args:
        schema: the schema, or None for schemaless data.
        settings: see ``JsonSettings``.
        envelope: whether the schema goes with each value (``schemas.enable``).
        head: bytes to put before each value, in place of the schema.

    Raises:
        Skippable: the schema itself can't be written.
    """
    prefix = f'{{"schema":{schema_text(schema, settings)},"payload":'.encode() if envelope else head
    suffix = b"}" if envelope else b""
    if schema is None:
        return _schemaless_encoder(settings, prefix, suffix)

    def slow(value: Any) -> bytes:
        return prefix + value_text(schema, value, settings).encode() + suffix

    if schema.type is Type.STRING and schema.name != DECIMAL:
        return _string_encoder(slow, prefix, suffix)
    try:
        return _JsonCompiler(settings).function(schema, slow, prefix, suffix)
    except ValueError:  # msgspec refuses field names that JSON would have to escape
        return slow


def _string_encoder(slow: Encode, prefix: bytes, suffix: bytes) -> Encode:
    dumps = orjson.dumps

    def encode_string(value: Any) -> bytes | None:
        if type(value) is not str:
            return slow(value)
        try:
            encoded = dumps(value)
        except TypeError:  # surrogates
            return slow(value)
        if _BACKSLASH in encoded or not encoded.isascii():
            encoded = java_escapes(encoded)
        return prefix + encoded + suffix if prefix else encoded

    return encode_string


def _schemaless_encoder(settings: JsonSettings, prefix: bytes, suffix: bytes) -> Encode:
    dumps = orjson.dumps

    def encode_any(value: Any) -> bytes | None:
        if value is None:
            return None
        if type(value) is not str and not _is_plain(value, 0):
            return prefix + value_text(None, value, settings).encode() + suffix
        try:
            encoded = dumps(value)
        except TypeError:  # keys that aren't strings, surrogates
            return prefix + value_text(None, value, settings).encode() + suffix
        if _BACKSLASH in encoded or not encoded.isascii():
            encoded = java_escapes(encoded)
        return prefix + encoded + suffix if prefix else encoded

    return encode_any


def _is_plain(value: Any, depth: int) -> bool:
    """Say whether orjson writes it as Jackson does (except keys and surrogates, which orjson itself refuses)."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        fits: bool = -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF
        return fits
    if kind is float:
        alike: bool = 0.001 <= value < 1e7 or -1e7 < value <= -0.001 or value == 0.0
        return alike
    if kind is dict:
        items = value.values()
    elif kind is list:
        items = value
    else:
        return False
    if depth > _PLAIN_DEPTH:
        return False
    for item in items:
        kind = type(item)
        if kind is str or item is None:
            continue
        if not _is_plain(item, depth + 1):
            return False
    return True


def _raw_double(value: float) -> msgspec.Raw:
    return msgspec.Raw(float_json(value, "", single=False))


def _raw_float(value: float) -> msgspec.Raw:
    return msgspec.Raw(float_json(value, "", single=True))


class _JsonCompiler:
    """Builds the msgspec types of one schema and the source of the function that corrects their values.

    A value that msgspec writes in another form than Java is corrected by an expression or by statements.
    """

    def __init__(self, settings: JsonSettings) -> None:
        self._settings = settings
        self._code = CodeBuilder(Raw=msgspec.Raw, raw_double=_raw_double, raw_float=_raw_float)
        self._has_bytes = False  # without this, convert would read strings as Base64 and as decimals

    def function(self, schema: Schema, slow: Encode, prefix: bytes, suffix: bytes) -> Encode:
        """The encoder of ``schema``; raises ValueError for what msgspec can't do."""
        # Of a class msgspec keeps what it has to check; of a union with None it would find that out with each value.
        kind = self._required_type(schema)
        self._code.names.update(
            convert=msgspec.convert,
            encode=msgspec.json.Encoder().encode,
            kind=kind,
            passed_on=_PASSED_ON,
            slow=slow,
            failures=(msgspec.ValidationError, ValueError, TypeError, OverflowError, RecursionError),
            java_escapes=java_escapes,
            prefix=prefix,
            suffix=suffix,
        )
        corrections = self._write_correction(schema, "o")
        result = "prefix + encoded + suffix" if prefix else "encoded"
        converted = f"convert(value, kind{', builtin_types=passed_on' if self._has_bytes else ''})"
        if self._may_be_absent(schema):
            converted = f"None if value is None else {converted}"
        self._code.define(
            "encode_value(value)",
            [
                "try:",
                f"    o = {converted}",
                *indent_lines(corrections),
                "    encoded = encode(o)",
                "except failures:",
                "    return slow(value)",
                f"if {_BACKSLASH} in encoded or not encoded.isascii():",
                "    encoded = java_escapes(encoded)",
                f"return {result}",
            ],
        )
        return self._code.function("encode_value", f"json encoder of {schema.name or schema.type}")

    def _value_type(self, schema: Schema) -> Any:
        """The msgspec type of values of ``schema``; null is allowed where something may stand for it."""
        kind = self._required_type(schema)
        if schema.optional or (schema.default is not None and self._settings.replace_null):
            return kind | None
        return kind

    def _required_type(self, schema: Schema) -> Any:
        kind = schema.type
        if kind is Type.BYTES:
            self._has_bytes = True
            return Decimal if schema.name == DECIMAL else bytes
        if kind in INTEGER_BITS:
            limit = 1 << INTEGER_BITS[kind]
            return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]
        if kind is Type.ARRAY:
            return list[self._value_type(schema.value_schema) if schema.value_schema else Any]  # type: ignore[misc]
        if kind is Type.MAP:
            return self._map_type(schema)
        if kind is Type.STRUCT:
            return self._struct_type(schema)
        return {Type.STRING: str, Type.BOOLEAN: bool, Type.FLOAT32: float, Type.FLOAT64: float}[kind]

    def _map_type(self, schema: Schema) -> Any:
        if schema.key_schema is None or schema.value_schema is None:
            raise ValueError("a map without the schemas of its keys and values")
        if schema.key_schema.type is Type.STRING:
            if self._settings.entries and schema.key_schema.optional:
                raise ValueError("a map that is no JSON object")
            return dict[str, self._value_type(schema.value_schema)]  # type: ignore[misc]
        if schema.key_schema.type not in INTEGER_BITS:
            raise ValueError("keys that msgspec may not check as JsonConverter does")
        return dict[self._required_type(schema.key_schema), self._value_type(schema.value_schema)]  # type: ignore[misc]

    def _struct_type(self, schema: Schema) -> Any:
        if self._settings.entries and schema.name == ONE_OF:
            raise ValueError("a union")
        fields: list[Any] = []
        for index, member in enumerate(schema.fields):
            kind = self._value_type(member.schema)
            fields.append((f"f{index}", kind, None) if self._may_be_absent(member.schema) else (f"f{index}", kind))
        return msgspec.defstruct(
            "Value",
            fields,
            rename={f"f{index}": member.name for index, member in enumerate(schema.fields)},
            kw_only=True,
            gc=False,
            forbid_unknown_fields=True,
        )

    def _may_be_absent(self, schema: Schema) -> bool:
        return schema.optional or (schema.default is not None and self._settings.replace_null)

    def _write_correction(self, schema: Schema, target: str) -> list[str]:
        """Statements that correct the value in ``target``, a local name or an attribute; none if it is right as it is."""
        optional = self._may_be_absent(schema)
        lines = self._correct_present(schema, target)
        default = []
        if schema.default is not None and self._settings.replace_null:
            default_json = value_text(schema, schema.default, self._settings, "the default")
            default = [f"if {target} is None: {target} = {self._code.bind('default', msgspec.Raw(default_json))}"]
        if not lines or not optional:
            return lines or default
        return (
            [*default, "else:", *indent_lines(lines)]
            if default
            else [f"if {target} is not None:", *indent_lines(lines)]
        )

    def _correct_present(self, schema: Schema, target: str) -> list[str]:
        kind = schema.type
        if kind is Type.FLOAT64:
            local = self._code.new_name("x")
            return [
                f"{local} = {target}",
                f"if not (0.001 <= {local} < 1e7 or -1e7 < {local} <= -0.001 or {local} == 0.0):",
                f"    {target} = raw_double({local})",
            ]
        if kind is Type.FLOAT32:
            return [f"{target} = raw_float({target})"]
        if kind is Type.BYTES and schema.name == DECIMAL:
            return [f"{target} = {self._code.bind('decimal', self._decimal_encoder(schema))}({target})"]
        if kind is Type.STRUCT:
            local = self._code.new_name("x")
            lines = [
                line
                for index, member in enumerate(schema.fields)
                for line in self._write_correction(member.schema, f"{local}.f{index}")
            ]
            return [f"{local} = {target}", *lines] if lines else []
        if kind is Type.ARRAY and schema.value_schema is not None:
            function = self._correcting_function(schema.value_schema)
            return [f"{target} = [{function}(item) for item in {target}]"] if function else []
        if kind is Type.MAP and schema.key_schema is not None and schema.value_schema is not None:
            function = self._correcting_function(schema.value_schema)
            item = f"{function}(item)" if function else "item"
            if schema.key_schema.type is not Type.STRING:
                entry = f'{{"key": key, "value": {item}}}' if self._settings.entries else f"[key, {item}]"
                return [f"{target} = [{entry} for key, item in {target}.items()]"]
            return [f"{target} = {{key: {item} for key, item in {target}.items()}}"] if function else []
        return []

    def _correcting_function(self, schema: Schema) -> str:
        """The name of a function that corrects one value, defined on the way; empty if none is needed."""
        lines = self._write_correction(schema, "item")
        if not lines:
            return ""
        name = self._code.new_name("correct")
        self._code.define(f"{name}(item)", [*lines, "return item"])
        return name

    def _decimal_encoder(self, schema: Schema) -> Any:
        if self._settings.numeric_decimals:
            return lambda value: msgspec.Raw(decimal_text(value))
        scale = decimal_scale(schema)
        return lambda value: decimal_base64(value, scale)
