"""Avro schemas and values as Connect data, as Confluent's AvroData maps them.

fastavro reads the bytes; logical types are taken off the schema before, because Connect's temporal values are plain numbers.
Where only some fields are asked for, ``fields`` reads them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import fastavro

from connectors.errors import Skippable
from connectors.schema import DATE, DECIMAL, TIME, TIMESTAMP, Field, Schema, Type
from worker.converters.avro_form.fields import READ_FAILURES, compile_fields, keep_fields
from worker.converters.avro_form.schema import (
    ANYTHING_NAME,
    DECIMAL_PRECISION,
    DEFAULT_NAME,
    DEFAULT_PRECISION,
    ENUM,
    ENUM_DEFAULT,
    ENUM_DOC,
    FIELD_DEFAULT_FLAG,
    FIELD_DOC,
    INTERNAL_TYPE,
    MAP_ENTRY,
    NAMESPACE,
    RECORD_DOC,
    UNION,
    AvroSettings,
)
from worker.converters.javatext import decimal_from_bytes

if TYPE_CHECKING:
    from worker.converters.avro_form.fields import Fields

Read = Callable[[Any], Any]

_SIMPLE: Final = {
    "boolean": Type.BOOLEAN,
    "int": Type.INT32,
    "long": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "string": Type.STRING,
    "bytes": Type.BYTES,
    "fixed": Type.BYTES,
}
_TEMPORAL: Final = {("int", "date"): DATE, ("int", "time-millis"): TIME, ("long", "timestamp-millis"): TIMESTAMP}
_NAMED: Final = ("record", "enum", "fixed", "error")
_ANYTHING_FIELDS: Final = ("boolean", "bytes", "double", "float", "int", "long", "string")


@dataclass(frozen=True, slots=True)
class AvroReader:
    """Decodes one writer's schema.

    Attributes:
        schema: the Connect schema, or None for schemaless data.
        decode: makes a Connect value from Avro's binary form.
    """

    schema: Schema | None
    decode: Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class _Mapped:
    """A part of a schema: its Connect schema, how to convert values, and the Avro name of its branch in a union."""

    schema: Schema
    read: Read
    branch: str


def avro_reader(schema_text: str, settings: AvroSettings, fields: Fields | None = None) -> AvroReader:
    """Return a reader of data written with the schema in ``schema_text``.

    Args:
        schema_text: the writer's schema.
        settings: see ``AvroSettings``.
        fields: if it is a record that has all of these, only they are read; None: all of any value.

    Raises:
        Skippable: the schema is invalid, or Connect has no counterpart for it.
    """
    try:
        written = json.loads(schema_text)
        parsed = fastavro.parse_schema(without_logical_types(written))
    except (
        ValueError,
        KeyError,
        TypeError,
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
    ) as error:
        raise Skippable(f"The registry's schema can't be read as Avro: {error}. Correct it in the registry.") from None

    def read_whole(data: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(data), parsed, None, return_named_type=True)

    read: Callable[[bytes], Any] = read_whole
    if fields is not None:
        # Else it is a record of another form, or one of them has a type that a field which is left out defines.
        with suppress(KeyError, TypeError, ValueError, Skippable):
            kept = keep_fields(written, fields)
            _AvroMapper(settings).map(kept, "")
            read = compile_fields(written, fields)
            written = kept

    def value(data: bytes) -> Any:
        try:
            return read(data)
        except (EOFError, KeyError, *READ_FAILURES) as error:
            raise Skippable(
                f"The message does not match its Avro schema: {error!r}. It was cut, or written with another "
                "schema than its id says."
            ) from None

    if isinstance(written, dict) and _full_name(written, "") == ANYTHING_NAME:
        return AvroReader(None, lambda data: _read_anything(value(data)))
    try:
        mapped = _AvroMapper(settings).map(written, "")
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, RecursionError) as error:
        raise Skippable(
            f"The registry's Avro schema can't be mapped: {error!r}. Correct it in the registry."
        ) from error
    return AvroReader(mapped.schema, lambda data: mapped.read(value(data)))


def without_logical_types(schema: Any) -> Any:
    """A copy of an Avro schema in which fastavro sees plain types only."""
    if isinstance(schema, list):
        return [without_logical_types(branch) for branch in schema]
    if isinstance(schema, dict):
        return {
            key: part if key in ("default", "symbols", "name", "namespace", "aliases") else without_logical_types(part)
            for key, part in schema.items()
            if key != "logicalType"
        }
    return schema


def _full_name(schema: Mapping[str, Any], space: str) -> str:
    name = str(schema.get("name", ""))
    if "." in name:
        return name
    namespace = schema.get("namespace", space)
    return f"{namespace}.{name}" if namespace else name


def _unwrap_record(value: Any) -> Any:
    """Remove the name from the value that ``return_named_type`` gives for a record in a union."""
    return value[1] if isinstance(value, tuple) else value


def _read_anything(value: Any) -> Any:
    record = _unwrap_record(value)
    for name in _ANYTHING_FIELDS:
        if record[name] is not None:
            return record[name]
    if record["array"] is not None:
        return [_read_anything(item) for item in record["array"]]
    if record["map"] is not None:
        return {
            _read_anything(_unwrap_record(entry)["key"]): _read_anything(_unwrap_record(entry)["value"])
            for entry in record["map"]
        }
    return None


class _AvroMapper:
    """Walks one Avro schema; named types are looked up by their full names."""

    def __init__(self, settings: AvroSettings) -> None:
        self._settings = settings
        self._named: dict[str, tuple[dict[str, Any], str]] = {}
        self._open: set[str] = set()

    def map(self, avro: Any, space: str, *, optional: bool = False, default: Any = None) -> _Mapped:
        """The Connect counterpart of ``avro``; ``default`` is a field's default in Avro's JSON form."""
        if isinstance(avro, list):
            return self._map_union(avro, space, default)
        if isinstance(avro, str):
            if avro in _SIMPLE or avro == "null":
                avro = {"type": avro}
            else:
                name = avro if "." in avro or not space else f"{space}.{avro}"
                if name not in self._named:
                    name = avro
                if name not in self._named:
                    raise Skippable(f"The Avro schema refers to {avro}, which it does not define.")
                avro, space = self._named[name]
        if isinstance(avro.get("type"), dict | list):  # {"type": {"type": ...}}
            return self.map(avro["type"], space, optional=optional, default=default)
        kind = avro["type"]
        if kind in _NAMED:
            return self._named_type(avro, kind, space, optional, default)
        if kind == "array":
            return self._map_array(avro, space, optional, default)
        if kind == "map":
            values = self.map(avro["values"], space)
            read = values.read
            schema = self._finish_schema(
                avro, Type.MAP, optional, default, key_schema=Schema(Type.STRING), value_schema=values.schema
            )
            return _Mapped(
                schema, _make_nullable(lambda value: {key: read(item) for key, item in value.items()}), "map"
            )
        if kind not in _SIMPLE:
            raise Skippable(
                "Standalone null schemas are not supported by this converter"
                if kind == "null"
                else f"Couldn't translate unsupported schema type {kind}."
            )
        return self._map_simple(avro, kind, optional, default)

    def _named_type(self, avro: dict[str, Any], kind: str, space: str, optional: bool, default: Any) -> _Mapped:  # noqa: FBT001
        name = _full_name(avro, space)
        if name in self._open:
            raise Skippable(
                f"The Avro schema of {name} contains itself; such schemas have no Connect counterpart here."
            )
        self._named[name] = (avro, space)
        if kind == "fixed":
            return self._map_simple(avro, kind, optional, default)
        inner = name.rpartition(".")[0]
        if kind == "enum":
            return self._map_enum(avro, name, optional, default)
        self._open.add(name)
        members: dict[str, _Mapped] = {}
        parameters = [(RECORD_DOC, avro["doc"])] if self._settings.metadata and "doc" in avro else []
        for member in avro["fields"]:
            if member["name"] in members:
                raise Skippable(f"The Avro record {name} has two fields with the name {member['name']}.")
            if self._settings.metadata and "doc" in member:
                parameters.append((FIELD_DOC + member["name"], member["doc"]))
            members[member["name"]] = self.map(member["type"], inner, default=member.get("default"))
        self._open.discard(name)
        fields = tuple(Field(member, mapped.schema) for member, mapped in members.items())
        schema = self._finish_schema(
            avro, Type.STRUCT, optional, default, name=name, parameters=parameters, fields=fields
        )
        return _Mapped(schema, _make_record_reader(members), name)

    def _map_enum(self, avro: dict[str, Any], name: str, optional: bool, default: Any) -> _Mapped:  # noqa: FBT001
        parameters = []
        if self._settings.metadata:
            if "doc" in avro:
                parameters.append((ENUM_DOC + avro["name"], avro["doc"]))
            if "default" in avro:
                parameters.append((ENUM_DEFAULT + avro["name"], avro["default"]))
        parameters.append((ENUM, name))
        parameters += [(f"{ENUM}.{symbol}", symbol) for symbol in avro["symbols"]]
        return _Mapped(
            self._finish_schema(avro, Type.STRING, optional, default, name=name, parameters=parameters),
            _unwrap_record,
            name,
        )

    def _map_array(self, avro: dict[str, Any], space: str, optional: bool, default: Any) -> _Mapped:  # noqa: FBT001
        entry = avro["items"]
        if isinstance(entry, str) and (f"{space}.{entry}" if space and "." not in entry else entry) in self._named:
            entry = self._named[f"{space}.{entry}" if space and "." not in entry else entry][0]
        if _is_map_entry(entry, space):
            name = _full_name(entry, space)
            self._named[name] = (entry, space)
            parts = {
                member["name"]: self.map(member["type"], name.rpartition(".")[0], default=member.get("default"))
                for member in entry["fields"]
            }
            if parts.keys() != {"key", "value"}:
                raise Skippable(
                    "Found map encoded as array of key-value pairs, but array elements do not match the expected "
                    "format."
                )
            key, item = parts["key"].read, parts["value"].read
            schema = self._finish_schema(
                avro, Type.MAP, optional, default, key_schema=parts["key"].schema, value_schema=parts["value"].schema
            )
            return _Mapped(
                schema,
                _make_nullable(
                    lambda value: {
                        key(_unwrap_record(pair)["key"]): item(_unwrap_record(pair)["value"]) for pair in value
                    }
                ),
                "array",
            )
        items = self.map(avro["items"], space)
        read = items.read
        schema = self._finish_schema(avro, Type.ARRAY, optional, default, value_schema=items.schema)
        return _Mapped(schema, _make_nullable(lambda value: [read(element) for element in value]), "array")

    def _map_simple(self, avro: dict[str, Any], kind: str, optional: bool, default: Any) -> _Mapped:  # noqa: FBT001
        logical = str(avro.get("logicalType", "")).lower()
        if kind in ("bytes", "fixed") and logical == "decimal":
            scale = avro.get("scale", 0)
            if not isinstance(scale, int):
                raise Skippable("scale must be specified and must be a number.")
            parameters = [("scale", str(scale))]
            if avro.get("precision", DEFAULT_PRECISION) != DEFAULT_PRECISION:
                parameters.append((DECIMAL_PRECISION, str(avro["precision"])))
            schema = self._finish_schema(
                avro, Type.BYTES, optional, default, name=DECIMAL, version=1, parameters=parameters
            )
            return _Mapped(schema, _make_nullable(lambda value: decimal_from_bytes(_unwrap_record(value), scale)), kind)
        base = _SIMPLE[kind]
        temporal = _TEMPORAL.get((kind, logical))
        if temporal is not None:
            return _Mapped(
                self._finish_schema(avro, base, optional, default, name=temporal, version=1), _keep_value, kind
            )
        if kind == "int" and not logical and "connect.type" in avro:
            annotated = {"int8": Type.INT8, "int16": Type.INT16}.get(avro["connect.type"])
            if annotated is None:
                raise Skippable("Connect type annotation for Avro int field is null")
            base = annotated
        read = _unwrap_record if kind == "fixed" else _keep_value
        return _Mapped(self._finish_schema(avro, base, optional, default), read, kind)

    def _map_union(self, branches: list[Any], space: str, default: Any) -> _Mapped:
        present = [branch for branch in branches if branch not in ("null", {"type": "null"})]
        nullable = len(present) < len(branches)
        if nullable and len(present) == 1:
            return self.map(present[0], space, optional=True, default=default)
        fields: list[Field] = []
        readers: dict[str, tuple[str, _Mapped]] = {}
        for branch in present:
            mapped = self.map(branch, space, optional=True)
            name = mapped.branch if self._settings.enhanced else mapped.branch.rpartition(".")[2]
            if name in [member.name for member in fields]:
                raise Skippable("Multiple union schemas map to the Connect union field name")
            fields.append(Field(name, mapped.schema))
            readers[mapped.branch] = (name, mapped)
        names = tuple(member.name for member in fields)

        def read(value: Any) -> Any:
            if value is None:
                return None
            reader = readers.get(value[0]) if isinstance(value, tuple) else _branch_of(value, readers)
            if reader is None:
                raise Skippable("Did not find matching union field for data of type " + type(value).__name__)
            return {**dict.fromkeys(names), reader[0]: reader[1].read(value)}

        return _Mapped(Schema(Type.STRUCT, optional=nullable, name=UNION, fields=tuple(fields)), read, "union")

    def _finish_schema(
        self,
        avro: dict[str, Any],
        kind: Type,
        optional: bool,  # noqa: FBT001
        default: Any,
        *,
        name: str | None = None,
        version: int | None = None,
        parameters: list[tuple[str, str]] | None = None,
        **parts: Any,
    ) -> Schema:
        """The schema with what Connect has noted in the Avro schema's properties."""
        listed = dict(parameters or ())
        if self._settings.metadata:
            noted = avro.get("connect.parameters", {})
            if not isinstance(noted, dict) or not all(
                isinstance(property_value, str) for property_value in noted.values()
            ):
                raise Skippable("Expected schema parameter values to be strings")
            listed.update(noted)
        listed.update({key: str(property_value) for key, property_value in avro.items() if key.startswith("avro")})
        noted_default = avro.get("connect.default")
        if default is None:
            default = noted_default
        elif noted_default is None:
            listed[FIELD_DEFAULT_FLAG] = "true"
        own_name = avro.get("connect.name")
        if isinstance(own_name, str):
            name = own_name
        if name is not None and name.startswith(DEFAULT_NAME):
            name = None
        if isinstance(noted_version := avro.get("connect.version"), int):
            version = noted_version
        doc = avro.get("connect.doc") if self._settings.metadata else None
        schema = Schema(
            kind, optional=optional, name=name, version=version, doc=doc, parameters=tuple(listed.items()), **parts
        )
        if default is None:
            return schema
        value = _read_default(schema, default)
        return Schema(
            kind,
            optional=optional,
            default=value,
            name=name,
            version=version,
            doc=doc,
            parameters=tuple(listed.items()),
            **parts,
        )


def _read_default(schema: Schema, json_value: Any) -> Any:
    """A default from Avro's JSON form."""
    if json_value is None:
        return None
    try:
        match schema.type:
            case Type.BYTES:
                data = json_value.encode("latin-1")
                return decimal_from_bytes(data, int(schema.parameter("scale") or 0)) if schema.name == DECIMAL else data
            case Type.ARRAY if schema.value_schema is not None:
                inner = schema.value_schema
                return [_read_default(inner, item) for item in json_value]
            case Type.MAP if schema.value_schema is not None and schema.key_schema is not None:
                keys, values = schema.key_schema, schema.value_schema
                pairs = json_value.items() if isinstance(json_value, dict) else json_value
                return {_read_default(keys, key): _read_default(values, item) for key, item in pairs}
            case Type.STRUCT:
                return {
                    member.name: _read_default(member.schema, json_value.get(member.name)) for member in schema.fields
                }
            case Type.FLOAT32 | Type.FLOAT64:
                return float(json_value)
            case _:
                return json_value
    except (TypeError, ValueError, AttributeError) as error:
        raise Skippable(f"Invalid default value in the Avro schema for {schema.type}: {error}") from None


def _is_map_entry(entry: Any, space: str) -> bool:
    if not isinstance(entry, dict) or entry.get("type") != "record":
        return False
    return _full_name(entry, space) == f"{NAMESPACE}.{MAP_ENTRY}" or entry.get(INTERNAL_TYPE) == MAP_ENTRY


def _keep_value(value: Any) -> Any:
    return value


def _make_nullable(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _make_record_reader(members: Mapping[str, _Mapped]) -> Read:
    """A reader of records with these fields; it changes the record, which is the message's alone."""
    readers = [(name, mapped.read) for name, mapped in members.items() if mapped.read is not _keep_value]

    def read_record(value: Any) -> Any:
        if value is None:
            return None
        record = _unwrap_record(value)
        for name, read in readers:
            record[name] = read(record[name])
        return record

    return read_record


def _branch_of(value: Any, readers: Mapping[str, tuple[str, _Mapped]]) -> tuple[str, _Mapped] | None:
    """The branch of a union that a value of a simple type was read from."""
    candidates = {
        bool: ("boolean",),
        int: ("long", "int"),
        float: ("double", "float"),
        str: ("string",),
        bytes: ("bytes",),
        list: ("array",),
        dict: ("map",),
    }.get(type(value), ())
    return next((readers[name] for name in candidates if name in readers), None)
