"""Compiles one function per schema that writes Avro's binary form.

The function is straight-line Python made for the schema: it takes the fields of a struct in one step, checks their classes in
one expression, and joins the parts once. Numbers of variable length come from tables. What it can't vouch for (an absent
field, a subclass, a number out of range ...) it leaves to ``write``, which finds it right after all or says what is wrong.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from connectors.codegen import CodeBuilder, indent_lines
from connectors.schema import DECIMAL, Type
from worker.converters.avro_form.schema import AvroSettings, is_enum, is_union, null_last
from worker.converters.avro_form.write import (
    LENGTH,
    PRESENT_LENGTH,
    SHORT,
    add_length,
    long_bytes,
    value_bytes,
    zigzag_bytes,
)
from worker.converters.javatext import decimal_bytes, decimal_scale
from worker.converters.json_form.text import INTEGER_BITS

if TYPE_CHECKING:
    from connectors.schema import Schema
    from worker.converters.base import Encode

#: Member of envelopes that says where a record comes from: of much the same values in one record after the other.
_SOURCE: Final = "source"
#: Types of these values whose bytes are kept for the next record.
_KEPT: Final = frozenset({Type.INT32, Type.INT64, Type.STRING})
#: Types whose values need their class checked; those of the others fail by themselves when they are encoded.
_CLASSES: Final = {
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "int",
    Type.BYTES: "bytes",
    Type.FLOAT32: "float",
    Type.FLOAT64: "float",
    Type.ARRAY: "list",
}


def compile_avro(schema: Schema | None, settings: AvroSettings, head: bytes) -> Encode:
    """The function that encodes values of ``schema`` behind ``head`` (the magic byte and the schema's id).

    A null at the top is a null message, as in Java's serializer.
    """

    def slow(value: Any) -> bytes:
        return head + value_bytes(schema, value, settings)

    if schema is None:
        return lambda value: None if value is None else slow(value)
    if is_union(schema):
        return lambda value: None if value is None else slow(value)
    return _AvroCompiler(settings).function(schema, head, slow)


class _AvroSlowPath(Exception):
    """The value has to go the slow way."""


def _raise_leave() -> bytes:
    raise _AvroSlowPath


def _int_bytes(n: int) -> bytes:
    """As ``zigzag_bytes``, for 32 bits."""
    if n < 0x100000000:
        return zigzag_bytes(n)
    raise _AvroSlowPath


class _AvroCompiler:
    """Writes the source for one schema."""

    def __init__(self, settings: AvroSettings) -> None:
        self._settings = settings
        self._code = CodeBuilder(
            LENGTH=LENGTH,
            SHORT=SHORT,
            long_bytes=long_bytes,
            zigzag_bytes=zigzag_bytes,
            int_bytes=_int_bytes,
            join=b"".join,
            Leave=_AvroSlowPath,
            leave=_raise_leave,
            PRESENT_LENGTH=PRESENT_LENGTH,
            double=struct.Struct("<d").pack,
            single=struct.Struct("<f").pack,
        )
        #: Whether the value that is being written is kept in ``source``, and the names of the kept values.
        self._keeps = False
        self._kept: list[str] = []

    def function(self, schema: Schema, head: bytes, slow: Encode) -> Encode:
        """The encoder of ``schema``; see ``compile_avro``."""
        self._code.names.update(
            slow=slow,
            head=head,
            failures=(
                _AvroSlowPath,
                UnicodeEncodeError,
                OverflowError,
                TypeError,
                ValueError,
                KeyError,
                AttributeError,
                struct.error,
            ),
        )
        lines, expressions = self._write_value(schema, "value")
        check = self._write_check(schema, "value")
        self._code.define(
            "encode_value(value)",
            [
                *([f"global {', '.join(self._kept)}"] if self._kept else []),
                f"if value is None: return {'None' if schema.optional else 'slow(value)'}",
                "try:",
                *([f"    if not ({check}): raise Leave"] if check else []),
                *indent_lines(lines),
                f"    return join((head, {', '.join(expressions)},))",
                "except failures:",
                "    return slow(value)",
            ],
        )
        return self._code.function("encode_value", f"avro encoder of {schema.name or schema.type}")

    def _write_value(self, schema: Schema, name: str) -> tuple[list[str], list[str]]:
        """Statements to run, and the expressions whose bytes make the value in local ``name``."""
        if not self._keeps or schema.type not in _KEPT or is_union(schema) or is_enum(schema, self._settings):
            return self._new_value(schema, name)
        # Connectors use one object for what does not change: then its bytes are there already. Object and bytes stand in one
        # tuple, which is replaced as a whole: another thread may use the function too.
        kept, out = self._code.bind("kept", (object(), b"")), self._code.new_name("b")
        self._kept.append(kept)
        lines, expressions = self._new_value(schema, name)
        joined = expressions[0] if len(expressions) == 1 else f"join(({', '.join(expressions)},))"
        return [
            f"k = {kept}",
            f"if {name} is k[0]: {out} = k[1]",
            "else:",
            *indent_lines([*lines, f"{out} = {joined}", f"{kept} = {name}, {out}"]),
        ], [out]

    def _new_value(self, schema: Schema, name: str) -> tuple[list[str], list[str]]:
        """As ``_write_value``, whatever was there before."""
        if not schema.optional or is_union(schema):
            return self._write_present(schema, name)
        null, present = (b"\x02", b"\x00") if null_last(schema) else (b"\x00", b"\x02")
        if schema.type is Type.STRING and null == b"\x00" and not is_enum(schema, self._settings):
            return self._optional_string(name)
        lines, expressions = self._write_present(schema, name)
        if not lines and len(expressions) == 1:
            return [], [f"({null!r} if {name} is None else {present!r} + {expressions[0]})"]
        out = self._code.new_name("b")
        joined = (
            f"{present!r} + {expressions[0]}"
            if len(expressions) == 1
            else f"join(({present!r}, {', '.join(expressions)},))"
        )
        return [f"if {name} is None: {out} = {null!r}", "else:", *indent_lines([*lines, f"{out} = {joined}"])], [out]

    def _optional_string(self, name: str) -> tuple[list[str], list[str]]:
        head, local = self._code.new_name("b"), self._code.new_name("t")
        return [
            f"if {name} is None: {head}, {local} = b'\\0', b''",
            "else:",
            f"    {local} = {name}.encode()",
            f"    {head} = PRESENT_LENGTH[n] if (n := len({local})) < {len(LENGTH)} else b'\\2' + long_bytes(n)",
        ], [head, local]

    def _write_present(self, schema: Schema, name: str) -> tuple[list[str], list[str]]:
        kind = schema.type
        if is_union(schema) or is_enum(schema, self._settings):
            settings = self._settings
            return [], [f"{self._code.bind('reference', lambda value: value_bytes(schema, value, settings))}({name})"]
        if kind is Type.STRUCT:
            return self._write_struct(schema, name)
        if kind is Type.ARRAY and schema.value_schema is not None:
            item = self._item_function(schema.value_schema)
            return [], [self._write_block(name, f"join([{item}(item) for item in {name}])")]
        if kind is Type.MAP and schema.key_schema is not None and schema.value_schema is not None:
            key, item = self._item_function(schema.key_schema), self._item_function(schema.value_schema)
            return [], [self._write_block(name, f"join([{key}(key) + {item}(item) for key, item in {name}.items()])")]
        return self._write_scalar(schema, name)

    def _write_scalar(self, schema: Schema, name: str) -> tuple[list[str], list[str]]:
        kind = schema.type
        if kind is Type.BYTES and schema.name == DECIMAL:
            scale = decimal_scale(schema)
            return [], [f"{self._code.bind('decimal', lambda value: add_length(decimal_bytes(value, scale)))}({name})"]
        if kind is Type.STRING:
            local = self._code.new_name("t")
            return [f"{local} = {name}.encode()"], [self._write_length(local), local]
        if kind is Type.BYTES:
            return [], [self._write_length(name), name]
        if kind is Type.BOOLEAN:
            return [], [f"(b'\\1' if {name} is True else b'\\0' if {name} is False else leave())"]
        if kind is Type.FLOAT64:
            return [], [f"double({name})"]
        if kind is Type.FLOAT32:
            return [], [f"single({name})"]
        # Zigzag of what fits into 64 bits; anything longer gives a number that is too large for the table.
        fits = min(len(SHORT), 2 << INTEGER_BITS[kind])
        longer = {
            Type.INT8: "leave()",
            Type.INT16: "(zigzag_bytes(n) if n < 0x10000 else leave())",
            Type.INT32: "int_bytes(n)",
        }.get(kind, "zigzag_bytes(n)")
        return [], [f"(SHORT[n] if (n := {name} << 1 ^ {name} >> 63) < {fits} else {longer})"]

    @staticmethod
    def _write_length(name: str) -> str:
        return f"(LENGTH[n] if (n := len({name})) < {len(LENGTH)} else long_bytes(n))"

    def _write_block(self, name: str, items: str) -> str:
        return f"({self._write_length(name)} + {items} + b'\\0' if {name} else b'\\0')"

    def _write_struct(self, schema: Schema, name: str) -> tuple[list[str], list[str]]:
        if not schema.fields:
            return [f"if {name}: raise Leave"], ["b''"]
        locals_ = [self._code.new_name("x") for _ in schema.fields]
        names = self._code.bind("names", frozenset(member.name for member in schema.fields))
        fetched = list(zip(locals_, [repr(member.name) for member in schema.fields], strict=True))
        lines = [
            f"if len({name}) == {len(locals_)}:",
            *[f"    {local} = {name}[{key}]" for local, key in fetched],
            f"elif {name}.keys() <= {names}:",
            f"    get = {name}.get",
            *[f"    {local} = get({key})" for local, key in fetched],
            "else: raise Leave",
        ]
        lines += [
            f"if {local} is None: {local} = {self._code.bind('default', member.schema.default)}"
            for member, local in zip(schema.fields, locals_, strict=True)
            if member.schema.default is not None
        ]
        checks = [
            check
            for member, local in zip(schema.fields, locals_, strict=True)
            if (check := self._write_check(member.schema, local))
        ]
        if checks:
            lines.append(f"if not ({' and '.join(checks)}): raise Leave")
        expressions: list[str] = []
        keeps = self._keeps
        for member, local in zip(schema.fields, locals_, strict=True):
            self._keeps = keeps or (name == "value" and member.name == _SOURCE)
            member_lines, member_expressions = self._write_value(member.schema, local)
            lines += member_lines
            expressions += member_expressions
        self._keeps = keeps
        return lines, expressions

    def _write_check(self, schema: Schema, name: str) -> str:
        """An expression that is true for values of the right class; empty where another step finds wrong ones."""
        if (
            is_union(schema)
            or (schema.name == DECIMAL and schema.type is Type.BYTES)
            or is_enum(schema, self._settings)
        ):
            return ""
        if schema.type not in _CLASSES:
            return ""
        expression = f"type({name}) is {_CLASSES[schema.type]}"
        return f"({name} is None or {expression})" if schema.optional else expression

    def _item_function(self, schema: Schema) -> str:
        """The name of a function that makes the bytes of one element, defined on the way."""
        name = self._code.new_name("item")
        keeps, self._keeps = self._keeps, False
        lines, expressions = self._write_value(schema, "item")
        self._keeps = keeps
        check = self._write_check(schema, "item")
        result = expressions[0] if len(expressions) == 1 else f"join(({', '.join(expressions)},))"
        self._code.define(
            f"{name}(item)", [*([f"if not ({check}): raise Leave"] if check else []), *lines, f"return {result}"]
        )
        return name
