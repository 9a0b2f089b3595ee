"""Protobuf messages as Connect data, as Confluent's ProtobufData maps them.

Messages that contain themselves are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.message import DecodeError

from connectors.errors import Skippable
from connectors.schema import DATE, DECIMAL, TIME, TIMESTAMP, Field, Schema, Type
from worker.converters.javatext import decimal_from_bytes
from worker.converters.protobuf_form.files import Params, ProtoFiles, proto_files
from worker.converters.protobuf_form.schema import ENUM, TAG, UNION, WIRE_TYPE, ProtobufSettings

if TYPE_CHECKING:
    from decimal import Decimal

#: Descriptors of the protobuf package; its stubs lag behind it.
Descriptor: TypeAlias = Any
FieldDescriptor: TypeAlias = Any
EnumDescriptor: TypeAlias = Any
OneofDescriptor: TypeAlias = Any

_F: Final = descriptor_pb2.FieldDescriptorProto
_NAMES: Final[dict[int, str]] = {number: kind.removeprefix("TYPE_").lower() for kind, number in _F.Type.items()}
_TYPES: Final = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), Type.INT32),
    **dict.fromkeys(("int64", "uint32", "fixed32", "uint64", "sint64", "fixed64", "sfixed64"), Type.INT64),
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "bool": Type.BOOLEAN,
    "string": Type.STRING,
    "bytes": Type.BYTES,
}
_WRAPPED: Final = {
    f"google.protobuf.{name}": kind
    for name, kind in (
        ("DoubleValue", Type.FLOAT64),
        ("FloatValue", Type.FLOAT32),
        ("Int64Value", Type.INT64),
        ("UInt64Value", Type.INT64),
        ("Int32Value", Type.INT32),
        ("UInt32Value", Type.INT64),
        ("BoolValue", Type.BOOLEAN),
        ("StringValue", Type.STRING),
        ("BytesValue", Type.BYTES),
    )
}
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_MAX_LONG: Final = (1 << 63) - 1
_MAX_INDEXES: Final = 100

Read = Callable[[Any], Any]
_Mapped = tuple[Schema, Read]


def protobuf_reader(
    proto_text: str, imports: Mapping[str, str], settings: ProtobufSettings
) -> Callable[[bytes], tuple[Schema | None, Any]]:
    """A function that reads what follows the schema's id: message indexes and the message. Call it in a thread.

    Raises:
        Skippable: the schema can't be read, or Connect has no counterpart for it.
    """
    files = proto_files(proto_text, imports)
    readers: dict[tuple[int, ...], tuple[Schema, Callable[[bytes], Any]]] = {}

    def read(data: bytes) -> tuple[Schema | None, Any]:
        indexes, at = message_indexes(data)
        entry = readers.get(tuple(indexes))
        if entry is None:
            entry = readers[tuple(indexes)] = _message_reader(files, indexes, settings)
        return entry[0], entry[1](data[at:])

    if len(files.proto.message_type) == 0:
        raise Skippable("The Protobuf schema has no message.")
    readers[0,] = _message_reader(files, [0], settings)
    return read


def message_indexes(data: bytes) -> tuple[list[int], int]:
    """Decode the indexes of a message in its file, and its start: a count and the indexes, as zigzag varints; 0 for [0].

    Raises:
        Skippable: these are not indexes.
    """
    count, at = _read_zigzag(data, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= _MAX_INDEXES:
        raise Skippable(
            "The message has no valid Protobuf message indexes: it was not written in the registry's format."
        )
    indexes = []
    for _ in range(count):
        index, at = _read_zigzag(data, at)
        indexes.append(index)
    return indexes, at


def _read_zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
    raise Skippable(
        "The message ends within its Protobuf message indexes: it was cut, or not written in the registry's format."
    )


def _message_reader(
    files: ProtoFiles, indexes: list[int], settings: ProtobufSettings
) -> tuple[Schema, Callable[[bytes], Any]]:
    descriptor = files.message(indexes)
    schema, convert = _ProtobufMapper(settings, files.params).root(descriptor)
    make = message_factory.GetMessageClass(descriptor)

    def read(data: bytes) -> Any:
        try:
            message = make.FromString(data)
        except DecodeError as error:
            raise Skippable(
                f"The message does not match its Protobuf schema: {error}. It was cut, or written with another "
                "schema than its id says."
            ) from None
        return convert(message)

    return schema, read


class _ProtobufMapper:
    """Walks one message and what it holds."""

    def __init__(self, settings: ProtobufSettings, params: Params) -> None:
        self._settings = settings
        self._params = params
        self._open: set[str] = set()

    def root(self, descriptor: Descriptor) -> _Mapped:
        """The schema of a file's message, and what makes a Connect value of one."""
        if self._settings.raw and descriptor.full_name in _WRAPPED:
            return Schema(_WRAPPED[descriptor.full_name]), lambda message: _to_signed(message.value)
        return self._map_struct(descriptor)

    def _map_struct(self, descriptor: Descriptor, number: int = 0) -> _Mapped:
        full = descriptor.full_name
        if full in self._open:
            raise Skippable(
                f"The Protobuf message {full} contains itself; such messages have no Connect counterpart here."
            )
        self._open.add(full)
        proto = descriptor_pb2.DescriptorProto()
        descriptor.CopyToProto(proto)
        synthetic = {member.oneof_index for member in proto.field if member.proto3_optional}
        fields: list[Field] = []
        readers: list[tuple[str, Read]] = []
        for index, oneof in enumerate(descriptor.oneofs):
            if index not in synthetic:
                for name, (schema, read) in self._map_oneof(oneof, index).items():
                    fields.append(Field(name, schema))
                    readers.append((name, read))
        for member, noted in zip(descriptor.fields, proto.field, strict=True):
            if member.containing_oneof is not None and not noted.proto3_optional:
                continue
            schema, read = self._map_field(member, noted)
            fields.append(Field(member.name, schema))
            readers.append((member.name, self._present_reader(member, noted, read)))
        self._open.discard(full)
        name = full if self._settings.enhanced else descriptor.name
        struct_schema = Schema(
            Type.STRUCT,
            optional=number > 0,
            name=name,
            fields=tuple(fields),
            parameters=((TAG, str(number)),) if number else (),
        )
        return struct_schema, lambda message: {key: read(message) for key, read in readers}

    def _present_reader(self, member: FieldDescriptor, noted: Any, read: Read) -> Read:
        """Return a function from a message to the field's value, or to null where the field is detectably absent."""
        name = member.name
        keeps = _is_repeated(member) or (
            noted.type != _F.TYPE_MESSAGE and member.message_type is None and not self._is_optional(member, noted)
        )
        if keeps or self._settings.nulls:
            return lambda message: read(getattr(message, name))
        return lambda message: read(getattr(message, name)) if message.HasField(name) else None

    def _is_optional(self, member: FieldDescriptor, noted: Any) -> bool:
        return bool(noted.proto3_optional) or (self._settings.proto2_optional and _has_optional_keyword(member, noted))

    def _map_oneof(self, oneof: OneofDescriptor, index: int) -> dict[str, _Mapped]:
        mapped: dict[str, _Mapped] = {}
        for member in oneof.fields:
            noted = _F()
            member_proto = descriptor_pb2.DescriptorProto()
            oneof.containing_type.CopyToProto(member_proto)
            noted.CopyFrom(next(field_proto for field_proto in member_proto.field if field_proto.name == member.name))
            mapped[member.name] = self._map_field(member, noted)
        group = oneof.name
        if self._settings.flatten:

            def chosen(name: str, read: Read) -> Read:
                return lambda message: read(getattr(message, name)) if message.WhichOneof(group) == name else None

            return {name: (schema, chosen(name, read)) for name, (schema, read) in mapped.items()}
        union = oneof.full_name if self._settings.enhanced else oneof.name
        schema = Schema(
            Type.STRUCT,
            optional=True,
            name=f"{UNION}.{union}",
            fields=tuple(Field(name, inner) for name, (inner, _) in mapped.items()),
        )

        def read_union(message: Any) -> Any:
            name = message.WhichOneof(group)
            if name is None:
                return None
            return {**dict.fromkeys(mapped), name: mapped[name][1](getattr(message, name))}

        return {f"{group}_{index}" if self._settings.index_unions else group: (schema, read_union)}

    def _map_field(self, member: FieldDescriptor, noted: Any) -> _Mapped:
        tag = ((TAG, str(member.number)),)
        if member.message_type is not None and _is_map(member):
            return self._map_map(member, tag)
        kind, always, parameters, read, parts = self._field_kind(member)
        optional = (
            always or _has_optional_keyword(member, noted)
            if self._settings.optional
            else (always or not self._settings.wrapper)
        )
        if _is_repeated(member):
            inner = Schema(kind, optional=True, parameters=parameters, **parts)
            return (
                Schema(Type.ARRAY, optional=True, value_schema=inner, parameters=tag),
                lambda values: [read(value) for value in values],
            )
        return Schema(kind, optional=optional, parameters=(*parameters, *tag), **parts), read

    def _field_kind(
        self, member: FieldDescriptor
    ) -> tuple[Type, bool, tuple[tuple[str, str], ...], Read, dict[str, Any]]:
        """Type, whether it is optional anyway, parameters, what reads one value, and other parts of the schema."""
        if member.message_type is not None:
            return self._message_kind(member)
        if member.enum_type is not None:
            return self._enum_kind(member.enum_type)
        name = _NAMES[member.type]
        kind = _TYPES[name]
        parameters = ((WIRE_TYPE, name),) if kind in (Type.INT32, Type.INT64) and name not in ("int32", "int64") else ()
        if kind is Type.INT32:
            noted = self._params.get(member.full_name, {}).get("connect.type")
            if noted in ("int8", "int16"):
                return (Type.INT8 if noted == "int8" else Type.INT16), False, (), _keep_value, {}
        return kind, False, parameters, _to_signed if name in ("uint64", "fixed64") else _keep_value, {}

    def _message_kind(
        self, member: FieldDescriptor
    ) -> tuple[Type, bool, tuple[tuple[str, str], ...], Read, dict[str, Any]]:
        inner = member.message_type
        full = inner.full_name
        if full == "confluent.type.Decimal":
            noted = self._params.get(member.full_name, {})
            scale = _parse_whole(noted.get("scale")) or 0
            precision = _parse_whole(noted.get("precision"))
            parameters: tuple[tuple[str, str], ...] = (("scale", str(scale)),)
            if precision is not None:
                parameters += (("connect.decimal.precision", str(precision)),)
            return Type.BYTES, True, parameters, _read_decimal, {"name": DECIMAL, "version": 1}
        temporal = _TEMPORAL.get(full)
        if temporal is not None:
            name, kind, read = temporal
            return kind, True, (), read, {"name": name, "version": 1}
        if self._settings.wrapper and full in _WRAPPED:
            return _WRAPPED[full], True, (), lambda message: _to_signed(message.value), {}
        schema, read = self._map_struct(inner)
        return Type.STRUCT, True, (), read, {"name": schema.name, "fields": schema.fields}

    def _enum_kind(self, enum: EnumDescriptor) -> tuple[Type, bool, tuple[tuple[str, str], ...], Read, dict[str, Any]]:
        parameters = ((ENUM, enum.name), *((f"{ENUM}.{value.name}", str(value.number)) for value in enum.values))
        name = enum.full_name if self._settings.enhanced else enum.name
        if self._settings.int_enums:
            return Type.INT32, True, parameters, _keep_value, {"name": name}
        symbols = {value.number: value.name for value in reversed(enum.values)}
        return (
            Type.STRING,
            True,
            parameters,
            lambda number: symbols.get(number, f"UNKNOWN_ENUM_VALUE_{enum.name}_{number}"),
            {"name": name},
        )

    def _map_map(self, member: FieldDescriptor, tag: tuple[tuple[str, str], ...]) -> _Mapped:
        entry = member.message_type
        proto = descriptor_pb2.DescriptorProto()
        entry.CopyToProto(proto)
        parts = [self._map_field(part, noted) for part, noted in zip(entry.fields, proto.field, strict=True)]
        (key_schema, read_key), (value_schema, read_value) = parts
        full = entry.full_name if self._settings.enhanced else entry.name
        space, dot, last = full.rpartition(".")
        schema = Schema(
            Type.MAP,
            optional=True,
            name=f"{space}{dot}{_lower_underscore(last.removesuffix('Entry'))}",
            key_schema=key_schema,
            value_schema=value_schema,
            parameters=tag,
        )
        if proto.options.map_entry:
            return schema, lambda values: {read_key(key): read_value(item) for key, item in values.items()}
        has_value = self._present_reader(entry.fields[1], proto.field[1], read_value)
        return schema, lambda values: {read_key(pair.key): has_value(pair) for pair in values}


def _is_repeated(member: FieldDescriptor) -> bool:
    return bool(member.is_repeated)


def _is_map(member: FieldDescriptor) -> bool:
    """Whether a repeated message is an entry of a map: by its shape, since Confluent's writer marks none."""
    entry = member.message_type
    return (
        _is_repeated(member)
        and entry.name.endswith("Entry")
        and [field.name for field in entry.fields] == ["key", "value"]
        and not any(_is_repeated(field) for field in entry.fields)
    )


def _has_optional_keyword(member: FieldDescriptor, noted: Any) -> bool:
    if noted.proto3_optional:
        return True
    proto = descriptor_pb2.FileDescriptorProto()
    member.file.CopyToProto(proto)
    return proto.syntax in ("", "proto2") and noted.label == _F.LABEL_OPTIONAL and member.containing_oneof is None


def _lower_underscore(name: str) -> str:
    return "".join(
        f"_{letter.lower()}" if letter.isupper() and index else letter.lower() for index, letter in enumerate(name)
    )


def _parse_whole(number_text: str | None) -> int | None:
    try:
        return int(number_text) if number_text is not None else None
    except ValueError:
        return None


def _keep_value(value: Any) -> Any:
    return value


def _to_signed(value: Any) -> Any:
    """Unsigned 64 bits as Java's long has them."""
    return value - (1 << 64) if isinstance(value, int) and not isinstance(value, bool) and value > _MAX_LONG else value


def _read_decimal(message: Any) -> Decimal:
    if not message.value:
        raise Skippable("A Protobuf Decimal has no digits: its value is empty. Correct the producer of the topic.")
    return decimal_from_bytes(message.value, message.scale)


def _read_date(message: Any) -> int:
    try:
        return date(message.year, message.month, message.day).toordinal() - _EPOCH_DAY
    except ValueError as error:
        raise Skippable(f"A Protobuf Date is no day: {error}. Correct the producer of the topic.") from None


def _read_time(message: Any) -> int:
    seconds = (int(message.hours) * 60 + int(message.minutes)) * 60 + int(message.seconds)
    return seconds * 1000 + int(message.nanos) // 1_000_000


def _read_timestamp(message: Any) -> int:
    return int(message.seconds) * 1000 + int(message.nanos) // 1_000_000


_TEMPORAL: Final[dict[str, tuple[str, Type, Read]]] = {
    "google.type.Date": (DATE, Type.INT32, _read_date),
    "google.type.TimeOfDay": (TIME, Type.INT32, _read_time),
    "google.protobuf.Timestamp": (TIMESTAMP, Type.INT64, _read_timestamp),
}
