"""Converts ``.proto`` files, and serialized descriptors in Base64, to descriptors of the ``protobuf`` package.

The files are parsed by ``proto-schema-parser``. Both packages are imported on first use: writing needs neither.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from connectors.errors import Skippable
from worker.converters.registry.differences import FieldShape, Shapes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Files that may be imported without their content being given; those of google/protobuf come with the package.
_BUNDLED_FILES: Final = {
    "google/type/date.proto": 'syntax = "proto3"; package google.type; message Date { int32 year = 1; int32 month = 2; '
    "int32 day = 3; }",
    "google/type/timeofday.proto": 'syntax = "proto3"; package google.type; message TimeOfDay { int32 hours = 1; '
    "int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }",
    "confluent/type/decimal.proto": 'syntax = "proto3"; package confluent.type; message Decimal { bytes value = 1; '
    "uint32 precision = 2; int32 scale = 3; }",
    "confluent/meta.proto": 'syntax = "proto3"; package confluent; message Meta { string doc = 1; '
    "map<string, string> params = 2; repeated string tags = 3; }",
}
_META_NUMBER: Final = 1088
_PARAMS_NUMBER: Final = 2
_SIZED: Final = 2
_F: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    kind.removeprefix("TYPE_").lower(): number
    for kind, number in _F.Type.items()
    if kind not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}
_MAX_FILES: Final = 500

#: Full name of a field -> what its writer has noted about it.
Params = dict[str, dict[str, str]]


@dataclass(slots=True)
class ProtoFiles:
    """One file with all it imports.

    Attributes:
        name: the file's name in the pool.
        proto: its descriptor.
        params: notes of the file's own fields.
        pool: holds all of them.
    """

    name: str
    proto: Any
    params: Params
    pool: Any = field(default_factory=descriptor_pool.DescriptorPool)

    def message(self, indexes: list[int]) -> Any:
        """The message at a place of the file: the first number counts the file's messages, each further one those inside.

        Raises:
            Skippable: it does not exist.
        """
        inside = self.proto.message_type
        names = [self.proto.package] if self.proto.package else []
        for index in indexes:
            if not 0 <= index < len(inside):
                raise Skippable(
                    f"The message has the index {indexes}, and its Protobuf schema has no such message. It was "
                    "written with another schema than its id says."
                )
            names.append(inside[index].name)
            inside = inside[index].nested_type
        return self.pool.FindMessageTypeByName(".".join(names))

    def indexes_of(self, full_name: str) -> list[int] | None:
        """The place of a message by its full name, or None."""
        prefix = f"{self.proto.package}." if self.proto.package else ""
        if not full_name.startswith(prefix):
            return None
        indexes: list[int] = []
        inside = self.proto.message_type
        for part in full_name.removeprefix(prefix).split("."):
            position = next((number for number, message in enumerate(inside) if message.name == part), None)
            if position is None:
                return None
            indexes.append(position)
            inside = inside[position].nested_type
        return indexes


def proto_files(proto_text: str, imports: Mapping[str, str]) -> ProtoFiles:
    """The descriptors of a file and of all it imports. Takes milliseconds and more: call it in a thread.

    Args:
        proto_text: the file: ``.proto`` text, or its serialized descriptor in Base64.
        imports: the content of the files it imports, by the names it imports them under.

    Raises:
        Skippable: a file can't be parsed, or is missing.
    """
    proto, params = _parse_file(proto_text, "schema.proto")
    files = ProtoFiles("schema.proto", proto, params)
    added: set[str] = set()
    # A file can be added once all it imports are there.
    waiting: list[tuple[str, Any, bool]] = [("schema.proto", proto, False)]
    while waiting:
        name, current, ready = waiting.pop()
        if name in added:
            continue
        if ready:
            try:
                files.pool.Add(current)
            except (TypeError, DecodeError, ValueError) as error:
                raise Skippable(f"The Protobuf schema can't be used: {error}. Correct it in the registry.") from None
            added.add(name)
            continue
        if len(waiting) > _MAX_FILES:
            raise Skippable("The Protobuf schema imports itself, or more than 500 files.")
        waiting.append((name, current, True))
        waiting += [
            (dependency, _import_file(dependency, imports), False)
            for dependency in current.dependency
            if dependency not in added
        ]
    return files


def _import_file(name: str, imports: Mapping[str, str]) -> Any:
    if name in imports:
        return _parse_file(imports[name], name)[0]
    if name in _BUNDLED_FILES:
        return _parse_file(_BUNDLED_FILES[name], name)[0]
    if name.startswith(("google/protobuf/", "google/type/", "google/api/", "google/rpc/")):
        try:
            module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        except ImportError:
            module = None
        if module is not None:
            proto = descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(proto)
            return proto
    raise Skippable(
        f"The Protobuf schema imports {name}, which it has no reference for. Register it with a reference to that file."
    )


def _parse_file(proto_text: str, name: str) -> tuple[Any, Params]:
    """A file's descriptor and the notes of its fields."""
    if "{" not in proto_text and "message" not in proto_text:
        try:
            proto = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(proto_text, validate=True))
        except (binascii.Error, ValueError, DecodeError):
            pass
        else:
            proto.name = name
            params: Params = {}
            for full, member in _all_members(proto.message_type, proto.package):
                if noted := _read_notes(member.options):
                    params[full] = noted
            return proto, params
    try:
        return _ProtoTranslator(name).file(Parser().parse(proto_text))
    except Skippable:
        raise
    except Exception as error:  # noqa: BLE001 - the parser's own, its runtime's, and those of numbers out of range
        raise Skippable(
            f"The registry's schema can't be read as Protobuf: {str(error)[:200]}. Correct it in the registry."
        ) from None


def _all_members(messages: Any, space: str) -> Iterator[tuple[str, Any]]:
    for message in messages:
        full = f"{space}.{message.name}" if space else message.name
        yield from ((f"{full}.{member.name}", member) for member in message.field)
        yield from _all_members(message.nested_type, full)


def _read_notes(options: Any) -> dict[str, str]:
    """The parameters in the ``confluent.field_meta`` extension of a field's options."""
    notes: dict[str, str] = {}
    unknown: Any = UnknownFieldSet(options)
    for extension in unknown:
        if extension.field_number == _META_NUMBER and extension.wire_type == _SIZED:
            for number, data in _sized_fields(extension.data):
                if number == _PARAMS_NUMBER:
                    pair = {field_number: part.decode("utf-8", "replace") for field_number, part in _sized_fields(data)}
                    notes[pair.get(1, "")] = pair.get(2, "")
    return notes


def _sized_fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbers and contents of the fields of a message that has only strings and messages."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        size, at = _read_varint(data, at)
        if tag & 7 != _SIZED or at + size > len(data):
            return
        yield tag >> 3, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            break
    return value, at


class _ProtoTranslator:
    """Parsed text to a descriptor. Type names stay as they are written: the pool resolves them by scope."""

    def __init__(self, name: str) -> None:
        self._proto = descriptor_pb2.FileDescriptorProto(name=name)
        self._params: Params = {}

    def file(self, parsed: ast.File) -> tuple[Any, Params]:
        proto = self._proto
        if parsed.syntax:
            proto.syntax = parsed.syntax
        if parsed.edition:
            raise Skippable(
                f"The Protobuf schema is of edition {parsed.edition}; this converter reads proto2 and proto3."
            )
        for element in parsed.file_elements:
            if isinstance(element, ast.Package):
                proto.package = element.name
        for element in parsed.file_elements:
            if isinstance(element, ast.Import):
                if element.public:
                    proto.public_dependency.append(len(proto.dependency))
                proto.dependency.append(element.name)
            elif isinstance(element, ast.Message):
                self._translate_message(proto.message_type.add(), element, proto.package)
            elif isinstance(element, ast.Enum):
                self._translate_enum(proto.enum_type.add(), element)
        return proto, self._params

    def _translate_message(self, proto: Any, element: ast.Message, space: str) -> None:
        proto.name = element.name
        full = f"{space}.{element.name}" if space else element.name
        optional: list[Any] = []
        for part in element.elements:
            if isinstance(part, ast.Field):
                proto_field = self._translate_field(proto, part, full)
                if part.cardinality is ast.FieldCardinality.OPTIONAL and self._proto.syntax == "proto3":
                    proto_field.proto3_optional = True
                    optional.append(proto_field)
            elif isinstance(part, ast.MapField):
                self._translate_map(proto, part)
            elif isinstance(part, ast.OneOf):
                index = len(proto.oneof_decl)
                proto.oneof_decl.add().name = part.name
                for oneof_part in part.elements:
                    if isinstance(oneof_part, ast.Field):
                        self._translate_field(proto, oneof_part, full).oneof_index = index
            elif isinstance(part, ast.Message):
                self._translate_message(proto.nested_type.add(), part, full)
            elif isinstance(part, ast.Enum):
                self._translate_enum(proto.enum_type.add(), part)
            elif isinstance(part, ast.Option) and part.name == "map_entry":
                proto.options.map_entry = bool(part.value)
            elif isinstance(part, ast.Group):
                raise Skippable(f"The Protobuf message {full} has a group, which this converter does not read.")
        for proto_field in optional:  # the oneofs that stand for presence come after the real ones
            proto_field.oneof_index = len(proto.oneof_decl)
            proto.oneof_decl.add().name = f"_{proto_field.name}"

    def _translate_field(self, proto: Any, element: ast.Field, space: str) -> Any:
        proto_field = proto.field.add()
        proto_field.name, proto_field.number = element.name, element.number
        proto_field.label = (
            _F.LABEL_REPEATED
            if element.cardinality is ast.FieldCardinality.REPEATED
            else _F.LABEL_REQUIRED
            if element.cardinality is ast.FieldCardinality.REQUIRED
            else _F.LABEL_OPTIONAL
        )
        _set_type(proto_field, element.type)
        for option in element.options:
            if option.name == "packed":
                proto_field.options.packed = bool(option.value)
            elif option.name == "default":
                proto_field.default_value = _default_text(option.value)
            elif noted := _literal_params(option):
                self._params[f"{space}.{element.name}"] = noted
        return proto_field

    def _translate_map(self, proto: Any, element: ast.MapField) -> None:
        entry = proto.nested_type.add()
        entry.name = "".join(word[:1].upper() + word[1:] for word in element.name.split("_")) + "Entry"
        entry.options.map_entry = True
        for number, (name, kind) in enumerate((("key", element.key_type), ("value", element.value_type)), start=1):
            part = entry.field.add()
            part.name, part.number, part.label = name, number, _F.LABEL_OPTIONAL
            _set_type(part, kind)
        proto_field = proto.field.add()
        proto_field.name, proto_field.number, proto_field.label = element.name, element.number, _F.LABEL_REPEATED
        proto_field.type_name = entry.name

    @staticmethod
    def _translate_enum(proto: Any, element: ast.Enum) -> None:
        proto.name = element.name
        for part in element.elements:
            if isinstance(part, ast.EnumValue):
                value = proto.value.add()
                value.name, value.number = part.name, part.number
            elif isinstance(part, ast.Option) and part.name == "allow_alias":
                proto.options.allow_alias = bool(part.value)


def _set_type(proto_field: Any, kind: str) -> None:
    number = _SCALARS.get(kind)
    if number is None:
        proto_field.type_name = kind
    else:
        proto_field.type = number


def _default_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(getattr(value, "name", value))


def _literal_params(option: ast.Option) -> dict[str, str]:
    """The ``params`` of ``(confluent.field_meta)``, whichever way they are spelled."""
    name = option.name.replace(" ", "")
    if not name.startswith(("(confluent.field_meta)", "(.confluent.field_meta)")):
        return {}
    params: dict[str, str] = {}
    literals = (
        [option.value]
        if name.endswith(").params")
        else [part.value for part in _literal_fields(option.value) if part.name == "params"]
    )
    for literal in literals:
        for pair in literal if isinstance(literal, list) else [literal]:
            parts = {part.name: part.value for part in _literal_fields(pair)}
            if isinstance(parts.get("key"), str) and isinstance(parts.get("value"), str):
                params[parts["key"]] = parts["value"]
    return params


def _literal_fields(value: Any) -> list[Any]:
    return (
        [part for part in value.elements if isinstance(part, ast.MessageLiteralField)]
        if isinstance(value, ast.MessageLiteral)
        else []
    )


def proto_shapes(proto_text: str) -> Shapes:
    """The fields of a file's first message by path, with their types and numbers; raises ``Skippable`` if it can't be read."""
    proto, _ = _parse_file(proto_text, "schema.proto")
    names = {number: kind for kind, number in _SCALARS.items()}
    messages: dict[str, Any] = {}

    def collect(inside: Any, space: str) -> None:
        for message in inside:
            full = f"{space}.{message.name}".lstrip(".")
            messages[full] = message
            collect(message.nested_type, full)

    def resolved(name: str, scope: str) -> str:
        """The full name that a name means within a message; empty for what other files define."""
        plain = name.removeprefix(f".{proto.package}.") if proto.package else name.lstrip(".")
        while scope:
            if f"{scope}.{plain}" in messages:
                return f"{scope}.{plain}"
            scope = scope.rpartition(".")[0]
        return plain if plain in messages else ""

    shapes: Shapes = {}

    def walk(full: str, path: str, visited: tuple[str, ...]) -> None:
        for member in messages[full].field:
            member_path = f"{path}.{member.name}".lstrip(".")
            repeated = member.label == _F.LABEL_REPEATED
            kind = names.get(member.type, "") if member.HasField("type") else ""
            label = "repeated " if repeated else ""
            shapes[member_path] = FieldShape(f"{label}{kind or member.type_name.lstrip('.')} = {member.number}")
            inner = "" if kind else resolved(member.type_name, full)
            if inner and inner not in visited:
                walk(inner, f"{member_path}[]" if repeated else member_path, (*visited, inner))

    collect(proto.message_type, "")
    if len(proto.message_type):
        walk(proto.message_type[0].name, "", (proto.message_type[0].name,))
    return shapes
