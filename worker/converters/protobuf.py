"""ProtobufConverter: Confluent's wire format (a zero byte, the schema's id, message indexes, Protobuf's binary form)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from connectors.errors import Skippable
from connectors.options import ConfigDef, ConfigKey, ConfigType
from worker.converters.avro_form.write import long_bytes
from worker.converters.protobuf_form.compile import compile_protobuf
from worker.converters.protobuf_form.schema import ProtobufSettings, full_name, proto_file, proto_text
from worker.converters.registry.options import REGISTRY_OPTIONS, cache_option
from worker.converters.registry.registered import RegistryConverter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import Config
    from connectors.schema import Schema
    from worker.converters.base import Encode
    from worker.converters.registry.differences import Shapes
    from worker.converters.registry.registered import Format, Read

_MAPPING: Final = "Mapping"


def _flag_key(name: str, doc: str, *, default: bool = False) -> ConfigKey:
    return ConfigKey(name=name, type=ConfigType.BOOLEAN, default=default, group=_MAPPING, doc=doc)


PROTOBUF_OPTIONS: Final = ConfigDef(
    [
        *REGISTRY_OPTIONS,
        _flag_key(
            "optional.for.nullables",
            "Give optional fields the label optional, so that null and zero differ. Without it (and "
            "without wrapper.for.nullables) a null number is read as 0, a null string as empty.",
        ),
        _flag_key(
            "wrapper.for.nullables",
            "Write optional fields of simple types as Google's wrapper messages, so that null and zero differ.",
        ),
        _flag_key(
            "scrub.invalid.names",
            "Replace characters that Protobuf does not allow in names, instead of refusing the schema.",
        ),
        _flag_key(
            "ignore.default.for.nullables", "Leave a field out where it is null, instead of writing its default."
        ),
        _flag_key("enhanced.protobuf.schema.support", "Reading: keep packages in the names of structs and enums."),
        _flag_key("int.for.enums", "Reading: enums are numbers, not strings."),
        _flag_key(
            "generate.index.for.unions",
            "Reading: fields made of a oneof end with an underscore and its number.",
            default=True,
        ),
        _flag_key("generate.struct.for.nulls", "Reading: an absent message is a struct of defaults, not null."),
        _flag_key("flatten.unions", "Reading: the members of a oneof are fields of the struct itself."),
        _flag_key("optional.for.proto2", "Reading: absent optional fields of proto2 are null.", default=True),
        _flag_key(
            "wrapper.for.raw.primitives",
            "Reading: a wrapper message as the whole value is the value inside.",
            default=True,
        ),
        cache_option(_MAPPING),
    ]
)
#: Types, other than its own, that read the bytes of a scalar as the same value.
_READ_ALIKE: Final = {
    "bool": ("int32", "int64", "uint32", "uint64"),
    "int32": ("int64", "uint32"),
    "uint32": ("int64", "uint64"),
    "int64": ("uint64",),
    "uint64": ("int64",),
    "string": ("bytes",),
}
_SCALARS: Final = frozenset(
    (
        *("double", "float", "bool", "string", "bytes"),
        *("int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64"),
    )
)
_REPEATED: Final = "repeated "
#: How the names of messages of other files begin: each has a layout of its own.
_OTHER_FILES: Final = ("google.", "confluent.")
_NO_EFFECT: Final = frozenset(
    {
        "generalized.sum.type.support",
        "skip.known.types",
        "reference.lookup.only",
        "reference.subject.name.strategy",
        "auto.register.schemas.for.deps",
        "derive.type",
        "specific.protobuf.value.type",
        "specific.protobuf.key.type",
    }
)


class ProtobufConverter(RegistryConverter):
    """``io.confluent.connect.protobuf.ProtobufConverter``."""

    aliases: ClassVar[tuple[str, ...]] = ("io.confluent.connect.protobuf.ProtobufConverter",)
    config_def: ClassVar[ConfigDef] = PROTOBUF_OPTIONS
    no_effect: ClassVar[frozenset[str]] = _NO_EFFECT

    @staticmethod
    def _form(parsed: Config) -> Format:
        return _ProtobufFormat(
            ProtobufSettings(
                optional=parsed["optional.for.nullables"],
                wrapper=parsed["wrapper.for.nullables"],
                scrub=parsed["scrub.invalid.names"],
                replace_null=not parsed["ignore.default.for.nullables"],
                enhanced=parsed["enhanced.protobuf.schema.support"],
                int_enums=parsed["int.for.enums"],
                index_unions=parsed["generate.index.for.unions"],
                flatten=parsed["flatten.unions"],
                nulls=parsed["generate.struct.for.nulls"],
                proto2_optional=parsed["optional.for.proto2"],
                raw=parsed["wrapper.for.raw.primitives"],
            )
        )


def index_bytes(indexes: list[int]) -> bytes:
    """Encode a message's indexes in its file: a count and the indexes as zigzag varints; one zero for the first message."""
    if indexes == [0]:
        return b"\x00"
    return b"".join(map(long_bytes, [len(indexes), *indexes]))


class _ProtobufFormat:
    """Protobuf for ``RegisteredSchemas``. What reads ``.proto`` text is imported when it is needed."""

    type = "PROTOBUF"
    label = "ProtobufConverter"

    def __init__(self, settings: ProtobufSettings) -> None:
        self._settings = settings

    def text(self, schema: Schema | None) -> str:
        return proto_text(proto_file(_require_schema(schema), self._settings))

    def record_name(self, schema: Schema) -> str:
        return full_name(schema, self._settings)

    def encoder(self, schema: Schema | None, head: bytes) -> Encode:
        file = proto_file(_require_schema(schema), self._settings)
        return compile_protobuf(
            file, schema, head + index_bytes([file.index]), replace_null=self._settings.replace_null
        )

    def encoder_of(self, schema: Schema | None, head: bytes, schema_text: str, imports: Mapping[str, str]) -> Encode:
        from worker.converters.protobuf_form.files import proto_files, proto_shapes

        file = proto_file(_require_schema(schema), self._settings)
        indexes = proto_files(schema_text, imports).indexes_of(file.full_name)
        if indexes is None:
            raise Skippable(
                f"The schema (id {int.from_bytes(head[1:], 'big')}) has no message {file.full_name}, which the "
                "records are. Name the record's schema as it (SetSchemaMetadata), or register one with that "
                "message."
            )
        # The bytes are the record's own: a field must have the number there that it has here, and a type that reads its bytes.
        theirs, ours = proto_shapes(schema_text), self.shapes(proto_text(file))
        wrong = [
            f"field {path}: {theirs[path].type}, not {shape.type}"
            for path, shape in ours.items()
            if path in theirs and not _reads(theirs[path].type, shape.type)
        ]
        if wrong:
            raise Skippable(
                f"The schema (id {int.from_bytes(head[1:], 'big')}) has other field numbers or types than the records: "
                f"{'; '.join(wrong[:5])}. Give the fields the numbers with the parameter "
                "io.confluent.connect.protobuf.Tag, cast them to those types, or let the converter register its own schema."
            )
        return compile_protobuf(file, schema, head + index_bytes(indexes), replace_null=self._settings.replace_null)

    def reader(self, schema_text: str, imports: Mapping[str, str]) -> Read:
        from worker.converters.protobuf_form.read import protobuf_reader

        return protobuf_reader(schema_text, imports, self._settings)

    def shapes(self, schema_text: str) -> Shapes:
        from worker.converters.protobuf_form.files import proto_shapes

        return proto_shapes(schema_text)

    def same(self, left: str, right: str) -> bool:
        return left.split() == right.split()


def _reads(theirs: str, ours: str) -> bool:
    """Whether a field of the type and number ``theirs`` reads the bytes of one of ``ours``; both as in ``proto_shapes``."""
    kind, _, number = ours.rpartition(" = ")
    other, _, other_number = theirs.rpartition(" = ")
    if number != other_number or kind.startswith(_REPEATED) != other.startswith(_REPEATED):
        return False
    kind, other = kind.removeprefix(_REPEATED), other.removeprefix(_REPEATED)
    if kind == other or other in _READ_ALIKE.get(kind, ()):
        return True
    # A message of the same file may have another name there: its fields are compared.
    return not any(name in _SCALARS or name.startswith(_OTHER_FILES) for name in (kind, other))


def _require_schema(schema: Schema | None) -> Schema:
    if schema is None:
        raise Skippable("ProtobufConverter needs a schema for each value.")
    return schema
