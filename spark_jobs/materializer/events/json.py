"""Events as JSON: Debezium's envelope and Yelp's message. Images by msgspec, the rest by formatting bytes."""

from __future__ import annotations

import math
from hashlib import md5
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import Fatal
from connectors.formats.cql_schema import make_renamer
from connectors.formats.names import fits_struct
from connectors.schema import Type
from spark_jobs.materializer.decoding.rows import make_storable
from spark_jobs.materializer.events.forms import (
    YELP_TYPES,
    TableShape,
    column_schema,
    debezium_schema,
    key_schema,
    source_constants,
    yelp_schema,
)
from worker.converters.json_form.compile import compile_encoder
from worker.converters.json_form.text import JsonSettings, float_json, schema_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.schema import Schema
    from spark_jobs.materializer.engine.model import EventOrigin, MergeOptions, StateColumn

SETTINGS: Final = JsonSettings()
_encode: Final = msgspec.json.Encoder().encode
_NO: Final = b"null"


class JsonCodec:
    """An ``EventCodec``."""

    def __init__(self, options: MergeOptions, shape: TableShape) -> None:
        """Compile it; see ``events.make_codec``."""
        debezium = options.output_format == "debezium"
        self.image = make_image_encoder(shape.columns)
        keys = make_image_encoder(shape.keys)
        constants = _encode(source_constants(options, shape))[:-1].replace(b"%", b"%%")
        source = (
            b'%b,"ts_ms":%%d,"ts_us":%%d,"snapshot":"%%b","ums_id":%%d,"latency_ms":%%d,"offset":%%b,"cause":"%%b"}'
            % constants
        )
        prefix = suffix = b""
        if options.output_encoding == "json-schemas":
            refuse_unknown(options, shape)
            schema = (debezium_schema if debezium else yelp_schema)(options, shape)
            prefix, suffix = _build_envelope(schema)
            key_prefix, key_suffix = _build_envelope(key_schema(options, shape))
            self.key: Callable[[Sequence[Any]], bytes] = lambda values: (
                b"%b%b%b" % (key_prefix, keys(values), key_suffix)
            )
            self._bare: Callable[[bytes], bytes] = lambda key: key[len(key_prefix) : len(key) - len(key_suffix)]
        else:
            self.key = keys
            self._bare = lambda key: key
        prefix, suffix = prefix.replace(b"%", b"%%"), suffix.replace(b"%", b"%%")
        if debezium:
            self._form = prefix + b'{"before":%b,"after":%b,"source":' + source + b',"op":"%b","ts_ms":%d}' + suffix
            self.event = self._format_debezium
        else:
            self._topic = _encode(options.topic)
            self._form = (
                prefix + b'{"message_type":"%b","uuid":"%b","timestamp":%d,"topic":%b,"keys":%b,"payload":%b,'
                b'"previous_payload":%b,"meta":' + source + b"}" + suffix
            )
            self.event = self._format_yelp

    def _format_debezium(
        self,
        operation: str,
        before: bytes | None,
        after: bytes | None,
        key: bytes,
        origin: EventOrigin,
        sequence: int,
        now_ms: int,
    ) -> bytes:
        del key
        time_us, snapshot, offset, cause = origin
        time_ms = time_us // 1000
        return self._form % (
            _NO if before is None else before,
            _NO if after is None else after,
            time_ms,
            time_us,
            b"true" if snapshot else b"false",
            sequence,
            now_ms - time_ms,
            _NO if offset is None else b"%d" % offset,
            cause.encode(),
            operation.encode(),
            now_ms,
        )

    def _format_yelp(
        self,
        operation: str,
        before: bytes | None,
        after: bytes | None,
        key: bytes,
        origin: EventOrigin,
        sequence: int,
        now_ms: int,
    ) -> bytes:
        time_us, snapshot, offset, cause = origin
        time_ms = time_us // 1000
        # The payload of a DELETE is the row that was deleted.
        payload, previous = (before, None) if after is None else (after, before)
        return self._form % (
            YELP_TYPES[operation].encode(),
            event_uuid(key, sequence),
            time_ms // 1000,
            self._topic,
            self._bare(key),
            _NO if payload is None else payload,
            _NO if previous is None else previous,
            time_ms,
            time_us,
            b"true" if snapshot else b"false",
            sequence,
            now_ms - time_ms,
            _NO if offset is None else b"%d" % offset,
            cause.encode(),
        )


def event_uuid(key: bytes, sequence: int) -> bytes:
    """A unique name of an event, as 32 hex digits: events of one key differ by their ``ums_id_``."""
    return (md5(key, usedforsecurity=False).digest()[:8] + sequence.to_bytes(8, "big", signed=True)).hex().encode()


def _build_envelope(schema: Schema) -> tuple[bytes, bytes]:
    return f'{{"schema":{schema_text(schema, SETTINGS)},"payload":'.encode(), b"}"


def refuse_unknown(options: MergeOptions, shape: TableShape) -> None:
    """Raise ``Fatal`` where an output with schemas is asked for, and the input does not tell the types."""
    unknown = [column.name for column in shape.columns if column.type is None and column.schema is None]
    if unknown:
        raise Fatal(
            f"The output is to be {options.output_encoding}, but the input does not say the types of "
            f"{', '.join(unknown)}: its JSON has no schema. Give the schema in the input's options, or write json."
        )


def make_image_encoder(columns: Sequence[StateColumn]) -> Callable[[Sequence[Any]], bytes]:
    """The function from the values of ``columns`` to a JSON object."""
    names = [column.field for column in columns]
    fields: list[Any] = [f"f{index}" for index in range(len(columns))]
    make_struct: Any = (
        msgspec.defstruct("Image", fields, rename=dict(zip(fields, names, strict=True)), gc=False)
        if all(map(fits_struct, names))
        else lambda *values: dict(zip(names, values, strict=True))
    )
    fixes = [
        (index, fix_value) for index, column in enumerate(columns) if (fix_value := _make_value_fix(column)) is not None
    ]
    if not fixes:
        return lambda values: _encode(make_struct(*values))

    def encode(values: Sequence[Any]) -> bytes:
        fixed_values = list(values)
        for index, fix_value in fixes:
            value = fixed_values[index]
            if value is not None:
                fixed_values[index] = fix_value(value)
        return _encode(make_struct(*fixed_values))

    return encode


def _make_value_fix(column: StateColumn) -> Callable[[Any], Any] | None:
    """Return the conversion of a value that makes msgspec write it as JsonConverter would; None if it needs none."""
    schema = column_schema(column, "v", optional=True)
    if schema is None:
        return None
    if schema.type is Type.FLOAT64:
        return lambda value: value if math.isfinite(value) else msgspec.Raw(float_json(value, "", single=False))
    if schema.type is Type.FLOAT32:
        return lambda value: msgspec.Raw(float_json(value, "", single=True))
    if schema.type in {Type.ARRAY, Type.STRUCT, Type.MAP} or (schema.name is not None and schema.type is Type.BYTES):
        encode = compile_encoder(schema, SETTINGS, envelope=False)
        change = make_renamer(column.type) if column.type is not None else make_storable(schema, back=True)
        if change is None:
            return lambda value: msgspec.Raw(encode(value) or _NO)
        return lambda value: msgspec.Raw(encode(change(value)) or _NO)
    return None
