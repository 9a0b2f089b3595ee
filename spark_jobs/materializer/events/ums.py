"""Events as UMS 1.3 messages: one message per change, with its schema.

A CREATE is a tuple ``i``, a DELETE ``d`` with the row as it was, an UPDATE ``b`` (the row before) and ``u``. The Kafka key is
UMS's, with the primary key as its suffix: ``data_increment_data.<namespace>...<JSON of the key>``, one per row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import msgspec

from connectors.formats import ums
from connectors.formats.ums_cql import text_of, ums_type
from connectors.schema import Type
from spark_jobs.materializer.events.avro import register_schema
from spark_jobs.materializer.events.forms import DELETE, READ, UPDATE, TableShape
from spark_jobs.materializer.events.json import SETTINGS, make_image_encoder
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.schema import AvroSettings
from worker.converters.json_form.compile import compile_encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spark_jobs.materializer.engine.model import EventOrigin, MergeOptions, StateColumn

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(list[str | None]).decode
_PLAIN: Final = {
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.BYTES: "binary",
}


class UmsCodec:
    """An ``EventCodec``. An image is the JSON array of a tuple's strings after the system fields."""

    def __init__(self, options: MergeOptions, shape: TableShape, register: Callable[[str, str], int]) -> None:
        """Compile it; see ``events.make_codec``."""
        constants = dict(shape.constants)
        self._namespace = ums.Namespace(
            constants.get("connector") or "materializer",
            options.name,
            constants.get("keyspace", ""),
            constants.get("table", ""),
            constants.get("schema_version") or "0",
        ).text
        keys = {column.name for column in shape.keys}
        self._fields = [
            *ums.SYSTEM_FIELDS,
            *(
                ums.make_field(column.name, _find_field_type(column), nullable=column.name not in keys)
                for column in shape.columns
            ),
        ]
        self._converters = [_make_converter(column) for column in shape.columns]
        self._key = make_image_encoder(shape.keys)
        if options.output_encoding == "avro":
            head = register_schema(options, ums.MESSAGE, register, is_key=False)
            self._write: Any = compile_avro(ums.MESSAGE, AvroSettings(), head)
        else:
            self._write = compile_encoder(ums.MESSAGE, SETTINGS, envelope=options.output_encoding == "json-schemas")

    def key(self, values: Sequence[Any]) -> bytes:
        """See ``EventCodec``."""
        return ums.kafka_key(ums.INCREMENT, self._namespace, self._key(values).decode()).encode()

    def image(self, values: Sequence[Any]) -> bytes:
        """See ``EventCodec``."""
        return _encode(
            [None if value is None else to_text(value) for value, to_text in zip(values, self._converters, strict=True)]
        )

    def event(
        self,
        operation: str,
        before: bytes | None,
        after: bytes | None,
        key: bytes,
        origin: EventOrigin,
        sequence: int,
        now_ms: int,
    ) -> bytes:
        """See ``EventCodec``; of an update both tuples have the same ``ums_id_``, the row before comes first."""
        del now_ms
        time = ums.datetime_text(origin.write_time)
        name = f"{sequence:x}-{crc32(key):08x}"

        def make_tuple(operation_code: str, image: bytes | None) -> list[str | None]:
            return [str(sequence), time, operation_code, f"{name}{operation_code}", *_decode(image or b"[]")]

        if operation == UPDATE:
            tuples = [make_tuple(ums.BEFORE, before), make_tuple(ums.UPDATE, after)]
        elif operation == DELETE:
            tuples = [make_tuple(ums.DELETE, before)]
        else:
            tuples = [make_tuple(ums.INSERT, after)]
        protocol = ums.INITIAL if operation == READ else ums.INCREMENT
        encoded: bytes = self._write(ums.make_message(protocol, self._namespace, self._fields, tuples))
        return encoded


def _find_field_type(column: StateColumn) -> str:
    if column.type is not None:
        return ums_type(column.type)
    return "string" if column.schema is None else _PLAIN.get(column.schema.type, "string")


def _make_converter(column: StateColumn) -> Callable[[Any], str]:
    if column.type is not None:
        return text_of(column.type)
    return lambda value: value if isinstance(value, str) else _encode(value).decode().strip('"')
