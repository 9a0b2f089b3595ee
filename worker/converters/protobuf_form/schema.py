"""Connect schemas as Protobuf messages (proto3), laid out and spelled as Confluent's ProtobufData does it.

One difference: a schema with parameters imports ``confluent/meta.proto``, which defines them, so that ``protoc`` and other
strict readers accept it too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote_plus

from connectors.errors import Skippable
from connectors.schema import DATE, DECIMAL, TIME, TIMESTAMP, Type
from worker.converters.base import member_path

if TYPE_CHECKING:
    from connectors.schema import Schema

NAMESPACE: Final = "io.confluent.connect.protobuf"
ENUM: Final = f"{NAMESPACE}.Enum"
UNION: Final = f"{NAMESPACE}.Union"
TAG: Final = f"{NAMESPACE}.Tag"
WIRE_TYPE: Final = f"{NAMESPACE}.Type"
DEFAULT_NAME: Final = "ConnectDefault"
META: Final = "confluent/meta.proto"
#: Connect's logical types -> message and the file that defines it.
LOGICAL: Final = {
    DECIMAL: ("confluent.type.Decimal", "confluent/type/decimal.proto"),
    DATE: ("google.type.Date", "google/type/date.proto"),
    TIME: ("google.type.TimeOfDay", "google/type/timeofday.proto"),
    TIMESTAMP: ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
}
WRAPPERS: Final = "google/protobuf/wrappers.proto"
#: The messages of that file in their order.
WRAPPER_NAMES: Final = (
    "DoubleValue",
    "FloatValue",
    "Int64Value",
    "UInt64Value",
    "Int32Value",
    "UInt32Value",
    "BoolValue",
    "StringValue",
    "BytesValue",
)
_WRAPPER_OF: Final = {
    "double": "DoubleValue",
    "float": "FloatValue",
    "int64": "Int64Value",
    "uint64": "UInt64Value",
    "fixed64": "UInt64Value",
    "int32": "Int32Value",
    "uint32": "UInt32Value",
    "fixed32": "UInt32Value",
    "bool": "BoolValue",
    "string": "StringValue",
    "bytes": "BytesValue",
}
_WRAPPED_INTEGERS: Final = {
    "Int32Value": "int32",
    "Int64Value": "int64",
    "UInt32Value": "uint32",
    "UInt64Value": "uint64",
}
_SCALARS: Final = {
    Type.INT8: "int32",
    Type.INT16: "int32",
    Type.INT32: "int32",
    Type.INT64: "int64",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "bool",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_OTHER_INTEGERS: Final = {
    Type.INT32: ("sint32", "sfixed32"),
    Type.INT64: ("uint32", "fixed32", "uint64", "sint64", "fixed64", "sfixed64"),
}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_NOT_NAME: Final = re.compile(r"[^A-Za-z0-9_]")
_MAX_NUMBER: Final = (1 << 29) - 1
_RESERVED: Final = range(19_000, 20_000)
_MAX_DEPTH: Final = 100
#: Packages of imported types: a message of such a name would hide them.
_RESERVED_PACKAGES: Final = ("google", "confluent")


@dataclass(frozen=True, slots=True)
class ProtobufSettings:
    """The options that decide the mapping.

    Attributes:
        optional: ``optional.for.nullables``.
        wrapper: ``wrapper.for.nullables``.
        scrub: ``scrub.invalid.names``.
        replace_null: write a field's default where it is null.
        enhanced: ``enhanced.protobuf.schema.support`` (reading).
        int_enums: ``int.for.enums`` (reading).
        index_unions: ``generate.index.for.unions`` (reading).
        flatten: ``flatten.unions`` (reading).
        nulls: ``generate.struct.for.nulls`` (reading).
        proto2_optional: ``optional.for.proto2`` (reading).
        raw: ``wrapper.for.raw.primitives`` (reading).
    """

    optional: bool = False
    wrapper: bool = False
    scrub: bool = False
    replace_null: bool = True
    enhanced: bool = False
    int_enums: bool = False
    index_unions: bool = True
    flatten: bool = False
    nulls: bool = False
    proto2_optional: bool = True
    raw: bool = True


@dataclass(frozen=True, slots=True)
class ProtoField:
    """One field of a message.

    Attributes:
        source: the name in the struct; ``key`` and ``value`` in map entries.
        name: the name in the message.
        number: its number.
        type: the type before the name: a scalar, or a message's name.
        label: ``repeated``, ``optional`` or nothing.
        schema: the struct field's schema.
        element: the schema of one value: the schema itself, or that of an array's elements.
        scalar: the scalar that values are written as, or ``enum``; empty for messages that are no wrappers.
        wrapped: whether the scalar is in a wrapper message.
        message: the message of structs and of a map's entries.
        symbols: an enum's symbols and numbers.
        params: notes for ``confluent.field_meta``.
    """

    source: str
    name: str
    number: int
    type: str
    label: str
    schema: Schema
    element: Schema
    scalar: str = ""
    wrapped: bool = False
    message: ProtoMessage | None = None
    symbols: tuple[tuple[str, int], ...] = ()
    params: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class ProtoMessage:
    """One message with the messages and enums inside it."""

    name: str
    fields: list[ProtoField] = field(default_factory=list)
    nested: dict[str, ProtoMessage] = field(default_factory=dict)
    enums: dict[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProtoFile:
    """The file that is registered for one Connect schema.

    Attributes:
        package: its package, or empty.
        imports: the files it needs, in the order in which they are first needed.
        message: the root message; None for the schema of a single value, which is one of Google's wrappers.
        wrapper: that wrapper's name.
    """

    package: str
    imports: tuple[str, ...]
    message: ProtoMessage | None
    wrapper: str = ""

    @property
    def full_name(self) -> str:
        """The root message's full name."""
        if self.message is None:
            return f"google.protobuf.{self.wrapper}"
        return f"{self.package}.{self.message.name}" if self.package else self.message.name

    @property
    def index(self) -> int:
        """The root message's place in the file."""
        return WRAPPER_NAMES.index(self.wrapper) if self.message is None else 0


def proto_file(schema: Schema, settings: ProtobufSettings) -> ProtoFile:
    """The Protobuf counterpart of ``schema``.

    Raises:
        Skippable: Protobuf can't express it.
    """
    if schema.type is not Type.STRUCT:
        if schema.type not in _SCALARS or schema.name in LOGICAL:
            raise Skippable(
                f"Protobuf has no message for a single {schema.name or schema.type}: put it into a struct "
                "(HoistField), or use another converter for it."
            )
        return ProtoFile("", (), None, _WRAPPER_OF[_SCALARS[schema.type]])
    builder = _Builder(settings)
    parts = [builder.legal(part) for part in builder.named(schema.name).split(".")]
    message = builder.message(parts[-1], schema, "", 0)
    return ProtoFile(".".join(parts[:-1]), tuple(builder.imports), message)


def full_name(schema: Schema, settings: ProtobufSettings) -> str:
    """The full name of a struct's message; raises ``Skippable`` if Protobuf does not allow it."""
    builder = _Builder(settings)
    return ".".join(builder.legal(part) for part in builder.named(schema.name).split("."))


class _Builder:
    """Makes the messages of one file."""

    def __init__(self, settings: ProtobufSettings) -> None:
        self._settings = settings
        self._unnamed = 0
        self.imports: dict[str, None] = {}

    def named(self, name: str | None) -> str:
        """``name``, or a made one."""
        if name:
            return name
        self._unnamed += 1
        return f"{DEFAULT_NAME}{self._unnamed}"

    def legal(self, name: str) -> str:
        """``name``, scrubbed if that is wanted; raises Skippable if Protobuf does not allow it."""
        if self._settings.scrub and name and not _PLAIN_NAME.match(name):
            encoded = quote_plus(name, safe="*").replace("~", "%7E")
            return _NOT_NAME.sub("_", encoded if encoded[0] not in "0123456789_" else f"x{encoded}")
        if _NAME.match(name):
            return name
        raise Skippable(
            f"Protobuf does not allow the name {name!r}: only letters, digits and underscores, no digit first. "
            "Rename it in a transform, or set scrub.invalid.names=true to have such names replaced."
        )

    def message(self, name: str, schema: Schema, path: str, depth: int) -> ProtoMessage:
        """The message of a struct."""
        if depth > _MAX_DEPTH:
            raise Skippable(
                f"Cannot write the schema of {path[:200]}: it is nested more than {_MAX_DEPTH} levels deep."
            )
        built = ProtoMessage(name)
        contents: dict[str, Schema] = {}
        used_names = {self.legal(member.name) for member in schema.fields}
        if len(used_names) < len(schema.fields):
            raise Skippable(
                f"Two fields of {path or name} have the same name once Protobuf's rules are applied. Rename one."
            )
        following = 1
        used: dict[int, str] = {}
        for member in schema.fields:
            number = following
            tag = member.schema.parameter(TAG)
            if tag is None:
                following += 1
            else:
                number = _parse_number(tag, member_path(path, member.name))
            if number in used:
                raise Skippable(
                    f"The fields {used[number]} and {member.name} of {path or name} have the same number {number}. "
                    f"Correct the parameter {TAG}."
                )
            used[number] = member.name
            built.fields.append(
                self._build_field(
                    built,
                    contents,
                    used_names,
                    member.name,
                    member.schema,
                    number,
                    member_path(path, member.name),
                    depth,
                )
            )
        return built

    def _build_field(
        self,
        parent: ProtoMessage,
        contents: dict[str, Schema],
        used_names: set[str],
        source: str,
        schema: Schema,
        number: int,
        path: str,
        depth: int,
    ) -> ProtoField:
        name = self.legal(source)
        label = (
            "repeated"
            if schema.type in (Type.ARRAY, Type.MAP)
            else "optional"
            if self._settings.optional and schema.optional
            else ""
        )
        element = schema
        if schema.type is Type.ARRAY:
            if schema.value_schema is None:
                raise Skippable(f"Protobuf needs the schema of the elements of {path}.")
            element = schema.value_schema
            if element.type in (Type.ARRAY, Type.MAP):
                raise Skippable(
                    f"Protobuf has no arrays of {element.type}s, and {path} is one. Put the inner one into a "
                    "struct, or use Avro or JSON Schema."
                )
        logical = LOGICAL.get(element.name or "")
        if logical is not None:
            self.imports[logical[1]] = None
            params = (
                tuple(
                    (short, number_text)
                    for short, long in (("precision", "connect.decimal.precision"), ("scale", "scale"))
                    if (number_text := element.parameter(long)) is not None
                )
                if element.name == DECIMAL
                else ()
            )
            return ProtoField(source, name, number, logical[0], label, schema, element, params=params)
        if element.type is Type.STRUCT:
            if (element.name or "").startswith(UNION):
                raise Skippable(f"{path} stands for a Protobuf oneof, which this converter reads but does not write.")
            return self._struct_field(
                parent, contents, used_names, ProtoField(source, name, number, "", label, schema, element), path, depth
            )
        if element.type is Type.MAP:
            return self._map_field(
                parent, used_names, ProtoField(source, name, number, "", label, schema, element), path, depth
            )
        if element.parameter(ENUM) is not None and element.type in (Type.STRING, Type.INT32):
            return self._enum_field(parent, ProtoField(source, name, number, "", label, schema, element), path)
        return self._scalar_field(ProtoField(source, name, number, "", label, schema, element))

    def _scalar_field(self, proto_field: ProtoField) -> ProtoField:
        element = proto_field.element
        scalar = _SCALARS[element.type]
        wire_type = element.parameter(WIRE_TYPE)
        if wire_type in _OTHER_INTEGERS.get(element.type, ()):
            scalar = str(wire_type)
        small = element.type in (Type.INT8, Type.INT16)
        params = (("connect.type", element.type.value),) if small else ()
        wrapped = self._settings.wrapper and element.optional
        kind = scalar
        if wrapped:
            self.imports[WRAPPERS] = None
            name = _WRAPPER_OF.get(scalar) or ("Int32Value" if element.type is Type.INT32 else "Int64Value")
            kind = f"google.protobuf.{name}"
            # A wrapper's value is a varint, whatever the field was.
            scalar = _WRAPPED_INTEGERS.get(name, scalar)
        return ProtoField(
            proto_field.source,
            proto_field.name,
            proto_field.number,
            kind,
            proto_field.label,
            proto_field.schema,
            element,
            scalar,
            wrapped,
            params=params,
        )

    def _struct_field(
        self,
        parent: ProtoMessage,
        contents: dict[str, Schema],
        used_names: set[str],
        proto_field: ProtoField,
        path: str,
        depth: int,
    ) -> ProtoField:
        element = proto_field.element
        plain = self.legal(self.named(element.name).rpartition(".")[2])
        name = plain
        if name == proto_field.name or name in used_names or name in _RESERVED_PACKAGES:
            name += "Message"  # a field and a message of one name exclude each other
        # Different structs of one name (tuples, say) become different messages.
        number = 1
        while name in contents and contents[name].fields != element.fields:
            number += 1
            name = f"{plain}_{number}"
        if name not in contents:
            contents[name] = element
            parent.nested[name] = self.message(name, element, path, depth + 1)
        return ProtoField(
            proto_field.source,
            proto_field.name,
            proto_field.number,
            name,
            proto_field.label,
            proto_field.schema,
            element,
            message=parent.nested[name],
        )

    def _map_field(
        self, parent: ProtoMessage, used_names: set[str], proto_field: ProtoField, path: str, depth: int
    ) -> ProtoField:
        element = proto_field.element
        if element.key_schema is None or element.value_schema is None:
            raise Skippable(f"Protobuf needs the schemas of the keys and values of {path}.")
        plain = name = _map_entry(self.legal(self.named(element.name).rpartition(".")[2]))
        number = 1
        while name in parent.nested or name in used_names:
            number += 1
            name = f"{plain.removesuffix('Entry')}_{number}Entry"
        entry = parent.nested[name] = ProtoMessage(name)
        inner: dict[str, Schema] = {}
        both = {"key", "value"}
        for source, schema, number, entry_path in (
            ("key", element.key_schema, 1, f"the keys of {path}"),
            ("value", element.value_schema, 2, f"{path}[]"),
        ):
            part = self._build_field(entry, inner, both, source, schema, number, entry_path, depth + 1)
            # Entries have no optional fields: what is null in one is left out and read as 0 or empty.
            entry.fields.append(replace(part, label="") if part.label == "optional" else part)
        return ProtoField(
            proto_field.source,
            proto_field.name,
            proto_field.number,
            name,
            "repeated",
            proto_field.schema,
            element,
            message=entry,
        )

    def _enum_field(self, parent: ProtoMessage, proto_field: ProtoField, path: str) -> ProtoField:
        element = proto_field.element
        name = self.legal((element.name or element.parameter(ENUM) or "").rpartition(".")[2])
        try:
            symbols = tuple(
                (key.removeprefix(f"{ENUM}."), int(parameter))
                for key, parameter in element.parameters
                if key.startswith(f"{ENUM}.")
            )
        except ValueError:
            raise Skippable(
                f"The enum {path} has a symbol whose number is not an integer. Correct its parameters {ENUM}.*."
            ) from None
        if not symbols or symbols[0][1] != 0:
            raise Skippable(
                f"The first symbol of the enum {path} must have the number 0. Correct its parameters {ENUM}.*."
            )
        parent.enums.setdefault(name, symbols)
        return ProtoField(
            proto_field.source,
            proto_field.name,
            proto_field.number,
            name,
            proto_field.label,
            proto_field.schema,
            element,
            "enum",
            symbols=symbols,
        )


def _parse_number(number_text: str, path: str) -> int:
    number = int(number_text) if number_text.isascii() and number_text.isdecimal() else 0
    if not 1 <= number <= _MAX_NUMBER or number in _RESERVED:
        raise Skippable(
            f"Protobuf does not allow {number_text!r} as the number of {path}. Correct the parameter {TAG}."
        )
    return number


def _map_entry(name: str) -> str:
    if "_" in name:
        name = "".join(word[:1].upper() + word[1:].lower() for word in name.split("_"))
    return f"{name}Entry"


def proto_text(file: ProtoFile) -> str:
    """The file's text."""
    if file.message is None:
        messages = "".join(
            f'message {name} {{\n  {kind} value = 1 [json_name = "value"];\n}}\n'
            for kind, name in _WRAPPER_OF.items()
            if not kind.startswith("fixed")
        )
        ordered = sorted(messages.split("message ")[1:], key=lambda part: WRAPPER_NAMES.index(part.partition(" ")[0]))
        return _WRAPPERS_HEAD + "".join(f"message {part}" for part in ordered)
    lines = ['syntax = "proto3";', *([f"package {file.package};"] if file.package else []), ""]
    imports = [*([META] if _has_params(file.message) else []), *file.imports]
    if imports:
        lines += [*(f'import "{name}";' for name in imports), ""]
    return "\n".join([*lines, *_message_lines(file.message)]) + "\n"


_WRAPPERS_HEAD: Final = """syntax = "proto3";
package google.protobuf;

option java_package = "com.google.protobuf";
option java_outer_classname = "WrappersProto";
option java_multiple_files = true;
option go_package = "google.golang.org/protobuf/types/known/wrapperspb";
option cc_enable_arenas = true;
option objc_class_prefix = "GPB";
option csharp_namespace = "Google.Protobuf.WellKnownTypes";

"""


def _has_params(message: ProtoMessage) -> bool:
    return any(member.params for member in message.fields) or any(
        _has_params(inner) for inner in message.nested.values()
    )


def _message_lines(message: ProtoMessage) -> list[str]:
    lines = [f"message {message.name} {{"]
    for member in message.fields:
        lines += [f"  {line}" for line in _field_lines(member)]
    inner = [line for nested in message.nested.values() for line in _message_lines(nested)]
    for name, symbols in message.enums.items():
        inner += [f"enum {name} {{", *(f"  {symbol} = {number};" for symbol, number in symbols), "}"]
    if inner:
        lines += ["", *(f"  {line}" for line in inner)]
    return [*lines, "}"]


def _field_lines(member: ProtoField) -> list[str]:
    label = f"{member.label} " if member.label else ""
    head = f"{label}{member.type} {member.name} = {member.number}"
    if not member.params:
        return [f"{head};"]
    lines = [f"{head} [(confluent.field_meta) = {{", "  params: ["]
    for index, (key, param) in enumerate(member.params):
        parts = [f'key: "{key}"', f'value: "{param}"']
        if member.element.name == DECIMAL:
            parts.reverse()
        lines += [
            "    {",
            f"      {parts[0]},",
            f"      {parts[1]}",
            "    }" + ("," if index + 1 < len(member.params) else ""),
        ]
    return [*lines, "  ]", "}];"]
