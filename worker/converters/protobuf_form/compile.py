"""Compiles one function per schema that writes Protobuf's binary form.

As in ``avro_form.compile`` it is straight-line Python made for the schema: a struct's fields are taken in one step, their
classes are checked in one expression, the parts are joined once. What it can't vouch for goes to ``write``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from connectors.codegen import CodeBuilder, indent_lines
from connectors.schema import DATE, DECIMAL, TIME, Type
from worker.converters.avro_form.write import SHORT
from worker.converters.javatext import decimal_scale
from worker.converters.json_form.text import INTEGER_BITS
from worker.converters.protobuf_form.schema import ProtoField
from worker.converters.protobuf_form.write import (
    DOUBLE,
    FLOAT,
    SIZED,
    add_length,
    date_message,
    decimal_message,
    encode_tag,
    encode_varint,
    message_bytes,
    scalar_bytes,
    time_message,
    timestamp_message,
    value_bytes,
    wire_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.converters.base import Encode
    from worker.converters.protobuf_form.schema import ProtoFile, ProtoMessage

_CLASSES: Final = {
    Type.FLOAT32: "float",
    Type.FLOAT64: "float",
    Type.BOOLEAN: "bool",
    Type.STRING: "str",
    Type.BYTES: "bytes",
    Type.ARRAY: "list",
    Type.MAP: "dict",
    Type.STRUCT: "dict",
}
#: Member of envelopes that says where a record comes from: of much the same values in one record after the other.
_SOURCE: Final = "source"
#: Types of these values whose bytes are kept for the next record.
_KEPT: Final = frozenset({Type.INT32, Type.INT64, Type.STRING})
#: Integers whose range is that of their Connect type.
_VARINTS: Final = ("int32", "int64", "uint64")


def compile_protobuf(file: ProtoFile, root: Any, head: bytes, *, replace_null: bool) -> Encode:
    """The function that encodes values behind ``head`` (magic byte, schema id, message indexes).

    Args:
        file: the messages.
        root: the Connect schema of the values.
        head: see above.
        replace_null: whether a field's default is written where it is null.
    """
    if file.message is None:
        return _compile_single(file, root, head)
    message = file.message

    def slow(value: Any) -> bytes:
        return head + message_bytes(message, value, replace_null=replace_null)

    return _ProtobufCompiler(replace_null=replace_null).function(message, head, slow)


def _compile_single(file: ProtoFile, schema: Any, head: bytes) -> Encode:
    """Values that are no structs: in the wrapper of their type."""
    scalar = {
        "Int32Value": "int32",
        "Int64Value": "int64",
        "FloatValue": "float",
        "DoubleValue": "double",
        "BoolValue": "bool",
        "StringValue": "string",
        "BytesValue": "bytes",
    }[file.wrapper]
    member = ProtoField("value", "value", 1, scalar, "", schema, schema, scalar)
    wire = wire_of(scalar)
    first = encode_tag(1, wire)

    def encode_single(value: Any) -> bytes | None:
        if value is None:  # a tombstone, whatever the schema's default
            return None
        data = scalar_bytes(member, value, "")
        if not (data if wire is SIZED else any(data)):
            return head
        return head + first + (add_length(data) if wire is SIZED else data)

    return encode_single


class _ProtobufSlowPath(Exception):
    """The value has to go the slow way."""


class _ProtobufCompiler:
    """Writes the source for one file."""

    def __init__(self, *, replace_null: bool) -> None:
        self._replace_null = replace_null
        self._code = CodeBuilder(
            SHORT=SHORT,
            varint=encode_varint,
            sized=add_length,
            join=b"".join,
            Leave=_ProtobufSlowPath,
            double=DOUBLE,
            single=FLOAT,
        )
        self._done: dict[int, str] = {}

    def function(self, message: ProtoMessage, head: bytes, slow: Encode) -> Encode:
        """The encoder of the root message."""
        body = self._write_message(message)
        self._code.names.update(
            slow=slow,
            head=head,
            failures=(
                _ProtobufSlowPath,
                UnicodeEncodeError,
                OverflowError,
                TypeError,
                ValueError,
                KeyError,
                AttributeError,
                struct.error,
            ),
        )
        self._code.define(
            "encode_value(value)",
            [
                "if value is None: return None",
                "try:",
                f"    return head + {body}(value)",
                "except failures:",
                "    return slow(value)",
            ],
        )
        return self._code.function("encode_value", f"protobuf encoder of {message.name}")

    def _write_kept(
        self, name: str, before: list[str], expressions: list[str], kept: list[str]
    ) -> tuple[list[str], list[str]]:
        """As ``_write_field`` gave it, but the bytes of the last value are kept for a record that has the very same object."""
        # Object and bytes stand in one tuple, which is replaced as a whole: another thread may use the function too.
        store, out = self._code.bind("kept", (object(), b"")), self._code.new_name("b")
        kept.append(store)
        joined = expressions[0] if len(expressions) == 1 else " + ".join(expressions)
        return [
            f"k = {store}",
            f"if {name} is k[0]: {out} = k[1]",
            "else:",
            *indent_lines([*before, f"{out} = {joined}", f"{store} = {name}, {out}"]),
        ], [out]

    def _write_message(self, message: ProtoMessage, *, keeps: bool = False) -> str:
        """The name of a function that makes a struct's content, defined on the way."""
        function = self._done.get(id(message))
        if function is not None:
            return function
        name = self._done[id(message)] = self._code.new_name("message")
        locals_ = {member.number: self._code.new_name("x") for member in message.fields}
        lines = self._write_fetch(message, locals_)
        checks = []
        for member in message.fields:
            local = locals_[member.number]
            if self._replace_null and member.schema.default is not None:
                lines.append(f"if {local} is None: {local} = {self._code.bind('default', member.schema.default)}")
            if check := self._write_check(member, local):
                checks.append(check)
        if checks:
            lines.append(f"if not ({' and '.join(checks)}): raise Leave")
        expressions: list[str] = []
        kept: list[str] = []
        for member in sorted(message.fields, key=lambda member: member.number):
            local = locals_[member.number]
            before, field_expressions = self._write_field(member, local)
            if keeps and member.schema.type in _KEPT and member.scalar and not member.wrapped:
                before, field_expressions = self._write_kept(local, before, field_expressions, kept)
            lines += before
            expressions += field_expressions
        if kept:
            lines.insert(0, f"global {', '.join(kept)}")
        result = (
            "b''"
            if not expressions
            else expressions[0]
            if len(expressions) == 1
            else f"join(({', '.join(expressions)},))"
        )
        self._code.define(f"{name}(value)", [*lines, f"return {result}"])
        return name

    def _write_fetch(self, message: ProtoMessage, locals_: dict[int, str]) -> list[str]:
        if not message.fields:
            return ["if value: raise Leave"]
        names = self._code.bind("names", frozenset(member.source for member in message.fields))
        fetched = [(locals_[member.number], repr(member.source)) for member in message.fields]
        return [
            f"if len(value) == {len(fetched)}:",
            *[f"    {local} = value[{key}]" for local, key in fetched],
            f"elif value.keys() <= {names}:",
            "    get = value.get",
            *[f"    {local} = get({key})" for local, key in fetched],
            "else: raise Leave",
        ]

    def _write_check(self, member: ProtoField, name: str) -> str:
        """An expression that is true for values of the right class and range."""
        schema = member.schema
        if member.symbols:
            return "" if schema.optional else f"{name} is not None"
        if schema.type in INTEGER_BITS:
            limit = 1 << INTEGER_BITS[schema.type]
            # What is beyond 64 bits has no varint; narrower types need looking at.
            narrow = f" and {-limit} <= {name} < {limit}"
            expression = f"type({name}) is int{narrow}"
        elif schema.name == DECIMAL:
            return "" if schema.optional else f"{name} is not None"
        else:
            expression = f"type({name}) is {_CLASSES[schema.type]}"
        return f"({name} is None or {expression})" if schema.optional else expression

    def _write_field(self, member: ProtoField, name: str) -> tuple[list[str], list[str]]:
        """Statements to run, and expressions whose bytes are the field with its tag."""
        if member.schema.type is Type.MAP:
            return [], [self._write_map(member, name)]
        if member.schema.type is Type.ARRAY:
            return [], [self._write_array(member, name)]
        if not member.scalar or member.wrapped:
            content = self._write_content(member)
            present = f"{encode_tag(member.number, SIZED)!r} + sized({content}({name}))"
            return [], [f"(b'' if {name} is None else {present})" if member.schema.optional else f"{present}"]
        return self._write_scalar(member, name)

    def _write_scalar(self, member: ProtoField, name: str) -> tuple[list[str], list[str]]:
        first = repr(encode_tag(member.number, wire_of(member.scalar)))
        kept = member.label == "optional"  # with presence: zero is written too
        absent = f"{name} is None" if kept else f"not {name}"
        kind = member.element.type
        if member.symbols or (kind in INTEGER_BITS and member.scalar not in _VARINTS):
            content = self._write_content(member)
            skip = (
                f"{name} is None or {name} == {self._zero_symbol(member)!r}" if member.symbols and not kept else absent
            )
            return [], [f"(b'' if {skip} else {first} + {content}({name}))"]
        if kind in INTEGER_BITS:
            low = 0 if kept else 1
            present = f"{first} + SHORT[{name}] if {low} <= {name} < {len(SHORT)} else {first} + varint({name})"
            return [], [f"(b'' if {absent} else {present})"]
        if kind is Type.BOOLEAN:
            if kept:
                return [], [f"(b'' if {absent} else {first} + (b'\\1' if {name} else b'\\0'))"]
            return [], [f"({first} + b'\\1' if {name} else b'')"]
        if kind is Type.STRING:
            local, size = self._code.new_name("t"), self._code.new_name("h")
            return [
                f"if {absent}: {size} = {local} = b''",
                "else:",
                f"    {local} = {name}.encode()",
                f"    {size} = {first} + (SHORT[n] if (n := len({local})) < {len(SHORT)} else varint(n))",
            ], [size, local]
        if kind is Type.BYTES:
            return [], [f"(b'' if {absent} else {first} + sized({name}))"]
        pack, zero = ("double", bytes(8)) if kind is Type.FLOAT64 else ("single", bytes(4))
        if kept:
            return [], [f"(b'' if {absent} else {first} + {pack}({name}))"]
        return [], [f"(b'' if {name} is None or (p := {pack}({name})) == {zero!r} else {first} + p)"]

    @staticmethod
    def _zero_symbol(member: ProtoField) -> Any:
        return next(
            symbol if member.element.type is Type.STRING else number for symbol, number in member.symbols if number == 0
        )

    def _write_array(self, member: ProtoField, name: str) -> str:
        content = self._write_content(member, element=True)
        if member.scalar and not member.wrapped and wire_of(member.scalar) is not SIZED:
            head = repr(encode_tag(member.number, SIZED))
            return f"({head} + sized(join([{content}(item) for item in {name}])) if {name} else b'')"
        head = repr(encode_tag(member.number, SIZED))
        return f"(join([{head} + sized({content}(item)) for item in {name}]) if {name} else b'')"

    def _write_map(self, member: ProtoField, name: str) -> str:
        if member.message is None:
            raise TypeError("a map field without its entry's message")
        expressions, lines, checks = [], [], []
        for part, local in zip(member.message.fields, ("key", "item"), strict=True):
            if check := self._write_check(part, local):
                checks.append(check)
            before, field_expressions = self._write_field(part, local)
            lines += before
            expressions += field_expressions
        entry = self._code.new_name("entry")
        self._code.define(
            f"{entry}(key, item)",
            [
                *([f"if not ({' and '.join(checks)}): raise Leave"] if checks else []),
                *lines,
                f"return {encode_tag(member.number, SIZED)!r} + sized(join(({', '.join(expressions)},)))",
            ],
        )
        return f"(join([{entry}(key, item) for key, item in {name}.items()]) if {name} else b'')"

    def _write_content(self, member: ProtoField, *, element: bool = False) -> str:
        """The name of a function that makes one value's content, without tag and length; it checks the value itself."""
        schema = member.element
        if member.message is not None:
            return self._write_message(member.message, keeps=member.source == _SOURCE)
        if schema.name == DECIMAL and schema.type is Type.BYTES:
            scale = decimal_scale(schema)
            return self._code.bind("decimal", lambda value: decimal_message(value, scale))
        if not member.scalar:
            return self._code.bind(
                "logical",
                _check_integer({DATE: date_message, TIME: time_message}.get(schema.name or "", timestamp_message)),
            )
        if element and not member.wrapped:
            return self._write_element(member)
        return self._code.bind(
            "value", lambda value: value_bytes(member, value, replace_null=False, path=member.source, depth=0)
        )

    def _write_element(self, member: ProtoField) -> str:
        """As ``_write_content``, for what arrays of scalars hold."""
        kind = member.element.type
        name = self._code.new_name("item")
        if kind in INTEGER_BITS and member.scalar in _VARINTS and not member.symbols:
            limit = 1 << INTEGER_BITS[kind]
            lines = [
                f"if type(value) is not int or not {-limit} <= value < {limit}: raise Leave",
                f"return SHORT[value] if 0 <= value < {len(SHORT)} else varint(value)",
            ]
        elif kind is Type.STRING and not member.symbols:
            lines = ["return value.encode()"]
        else:
            return self._write_content(member)
        self._code.define(f"{name}(value)", lines)
        return name


def _check_integer(make: Callable[[int], bytes]) -> Callable[[Any], bytes]:
    def checked(value: Any) -> bytes:
        if type(value) is not int:
            raise _ProtobufSlowPath
        return make(value)

    return checked
