"""Events as Avro in Confluent's wire format: Debezium's envelope and Yelp's message.

Keys and images are encoded by the worker's compiled encoders; the envelope, whose fields are few and fixed, is put together
from their bytes in the order of its schema. Schemas are registered when a version of the table is first seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Skippable
from connectors.formats.cql_schema import make_renamer
from spark_jobs.materializer.decoding.rows import make_storable
from spark_jobs.materializer.events.forms import (
    YELP_TYPES,
    TableShape,
    debezium_schema,
    key_schema,
    source_constants,
    value_schema,
    yelp_schema,
)
from spark_jobs.materializer.events.json import event_uuid, refuse_unknown
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.schema import AvroSettings, avro_text, full_name
from worker.converters.avro_form.write import add_length, long_bytes, zigzag_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.schema import Schema
    from spark_jobs.materializer.engine.model import EventOrigin, MergeOptions, StateColumn

AVRO: Final = AvroSettings()
_NULL, _PRESENT = b"\x00", b"\x02"
_SNAPSHOT: Final = {True: add_length(b"true"), False: add_length(b"false")}
_STRATEGY: Final = "io.confluent.kafka.serializers.subject."


class AvroCodec:
    """An ``EventCodec``."""

    def __init__(self, options: MergeOptions, shape: TableShape, register: Callable[[str, str], int]) -> None:
        """Compile it and register its schemas; see ``events.make_codec``."""
        refuse_unknown(options, shape)
        debezium = options.output_format == "debezium"
        schema = (debezium_schema if debezium else yelp_schema)(options, shape)
        keys = key_schema(options, shape)
        self._head = register_schema(options, schema, register, is_key=False)
        self._key_head = register_schema(options, keys, register, is_key=True)
        self.image = make_record_encoder(shape.columns, value_schema(options, shape))
        self._keys = make_record_encoder(shape.keys, keys)
        self._source = b"".join(add_length(value.encode()) for value in source_constants(options, shape).values())
        self._causes: dict[str, bytes] = {}
        self._operations = {name: add_length(name.encode()) + _PRESENT for name in "cudr"}
        self._topic = add_length(options.topic.encode())
        self.event = self._format_debezium if debezium else self._format_yelp

    def key(self, values: Sequence[Any]) -> bytes:
        """See ``EventCodec``."""
        return self._key_head + self._keys(values)

    def _encode_origin(self, origin: EventOrigin, sequence: int, now_ms: int) -> bytes:
        """``source`` behind its constants."""
        time_us, snapshot, offset, cause = origin
        time_ms = time_us // 1000
        cause_bytes = self._causes.get(cause)
        if cause_bytes is None:
            cause_bytes = self._causes[cause] = add_length(cause.encode())
        return b"".join(
            (
                self._source,
                long_bytes(time_ms),
                long_bytes(time_us),
                _SNAPSHOT[snapshot],
                zigzag_bytes(sequence << 1),
                long_bytes(now_ms - time_ms),
                _NULL if offset is None else _PRESENT + zigzag_bytes(offset << 1),
                cause_bytes,
            )
        )

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
        return b"".join(
            (
                self._head,
                _NULL if before is None else _PRESENT + before,
                _NULL if after is None else _PRESENT + after,
                self._encode_origin(origin, sequence, now_ms),
                self._operations[operation],
                zigzag_bytes(now_ms << 1),
            )
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
        # The payload of a DELETE is the row that was deleted.
        payload, previous = (before, None) if after is None else (after, before)
        return b"".join(
            (
                self._head,
                add_length(YELP_TYPES[operation].encode()),
                add_length(event_uuid(key, sequence)),
                long_bytes(origin.write_time // 1_000_000),
                self._topic,
                key[len(self._key_head) :],
                _NULL if payload is None else _PRESENT + payload,
                _NULL if previous is None else _PRESENT + previous,
                self._encode_origin(origin, sequence, now_ms),
            )
        )


def register_schema(
    options: MergeOptions, schema: Schema, register: Callable[[str, str], int], *, is_key: bool
) -> bytes:
    """The bytes before each value of ``schema``, registered as AvroConverter would; raises as ``events.make_codec``."""
    side = "key" if is_key else "value"
    strategy = dict(options.registry).get(f"{side}.subject.name.strategy", "TopicNameStrategy").removeprefix(_STRATEGY)
    name = full_name(schema, AVRO)
    subject = {"RecordNameStrategy": name, "TopicRecordNameStrategy": f"{options.topic}-{name}"}.get(
        strategy, f"{options.topic}-{side}"
    )
    return b"\x00" + register(subject, avro_text(schema, AVRO)).to_bytes(4, "big")


def make_record_encoder(columns: Sequence[StateColumn], schema: Schema) -> Callable[[Sequence[Any]], bytes]:
    """The function from the values of ``columns`` to the record of ``schema``, whose fields they are in order."""
    encode = compile_avro(schema, AVRO, b"")
    fields = [column.field for column in columns]
    changes = [
        (index, change)
        for index, column in enumerate(columns)
        if (change := make_storable(column.schema, back=True) if column.type is None else make_renamer(column.type))
        is not None
    ]

    def encode_record(values: Sequence[Any]) -> bytes:
        if changes:
            values = list(values)
            for index, change in changes:
                values[index] = change(values[index])
        record_bytes = encode(dict(zip(fields, values, strict=True)))
        if record_bytes is None:
            raise Skippable("A record can't be null.")
        return record_bytes

    return encode_record
