"""Events as Avro in Confluent's wire format: Debezium's envelope and Yelp's message.

Keys and images are encoded by the worker's compiled encoders; the envelope, whose fields are few and fixed, is put together
from their bytes in the order of its schema. Schemas are registered when a version of the table is first seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Skippable
from connectors.formats.cql_schema import renamer
from spark_jobs.materializer.decode_rows import storable
from spark_jobs.materializer.events import (
    YELP_TYPES,
    Shape,
    debezium_schema,
    key_schema,
    source_constants,
    value_schema,
    yelp_schema,
)
from spark_jobs.materializer.events_json import event_uuid, refuse_unknown
from worker.converters.avro_compile import compile_avro
from worker.converters.avro_schema import AvroSettings, avro_text, full_name
from worker.converters.avro_write import long_bytes, sized, zigzag_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.schema import Schema
    from spark_jobs.materializer.model import Column, MergeOptions, Origin

AVRO: Final = AvroSettings()
_NULL, _PRESENT = b"\x00", b"\x02"
_SNAPSHOT: Final = {True: sized(b"true"), False: sized(b"false")}
_STRATEGY: Final = "io.confluent.kafka.serializers.subject."


class AvroCodec:
    """An ``EventCodec``."""

    def __init__(self, options: MergeOptions, shape: Shape, register: Callable[[str, str], int]) -> None:
        """Compile it and register its schemas; see ``events.make_codec``."""
        refuse_unknown(options, shape)
        debezium = options.output_format == "debezium"
        schema = (debezium_schema if debezium else yelp_schema)(options, shape)
        keys = key_schema(options, shape)
        self._head = registered(options, schema, register, is_key=False)
        self._key_head = registered(options, keys, register, is_key=True)
        self.image = encoder(shape.columns, value_schema(options, shape))
        self._keys = encoder(shape.keys, keys)
        self._source = b"".join(sized(value.encode()) for value in source_constants(options, shape).values())
        self._causes: dict[str, bytes] = {}
        self._operations = {name: sized(name.encode()) + _PRESENT for name in "cudr"}
        self._topic = sized(options.topic.encode())
        self.event = self._debezium if debezium else self._yelp

    def key(self, values: Sequence[Any]) -> bytes:
        """See ``EventCodec``."""
        return self._key_head + self._keys(values)

    def _origin(self, origin: Origin, sequence: int, now_ms: int) -> bytes:
        """``source`` behind its constants."""
        time_us, snapshot, offset, cause = origin
        time_ms = time_us // 1000
        text = self._causes.get(cause)
        if text is None:
            text = self._causes[cause] = sized(cause.encode())
        return b"".join(
            (
                self._source,
                long_bytes(time_ms),
                long_bytes(time_us),
                _SNAPSHOT[snapshot],
                zigzag_bytes(sequence << 1),
                long_bytes(now_ms - time_ms),
                _NULL if offset is None else _PRESENT + zigzag_bytes(offset << 1),
                text,
            )
        )

    def _debezium(
        self,
        operation: str,
        before: bytes | None,
        after: bytes | None,
        key: bytes,
        origin: Origin,
        sequence: int,
        now_ms: int,
    ) -> bytes:
        del key
        return b"".join(
            (
                self._head,
                _NULL if before is None else _PRESENT + before,
                _NULL if after is None else _PRESENT + after,
                self._origin(origin, sequence, now_ms),
                self._operations[operation],
                zigzag_bytes(now_ms << 1),
            )
        )

    def _yelp(
        self,
        operation: str,
        before: bytes | None,
        after: bytes | None,
        key: bytes,
        origin: Origin,
        sequence: int,
        now_ms: int,
    ) -> bytes:
        # The payload of a DELETE is the row that was deleted.
        payload, previous = (before, None) if after is None else (after, before)
        return b"".join(
            (
                self._head,
                sized(YELP_TYPES[operation].encode()),
                sized(event_uuid(key, sequence)),
                long_bytes(origin.write_time // 1_000_000),
                self._topic,
                key[len(self._key_head) :],
                _NULL if payload is None else _PRESENT + payload,
                _NULL if previous is None else _PRESENT + previous,
                self._origin(origin, sequence, now_ms),
            )
        )


def registered(options: MergeOptions, schema: Schema, register: Callable[[str, str], int], *, is_key: bool) -> bytes:
    """The bytes before each value of ``schema``, registered as AvroConverter would; raises as ``events.make_codec``."""
    side = "key" if is_key else "value"
    strategy = dict(options.registry).get(f"{side}.subject.name.strategy", "TopicNameStrategy").removeprefix(_STRATEGY)
    name = full_name(schema, AVRO)
    subject = {"RecordNameStrategy": name, "TopicRecordNameStrategy": f"{options.topic}-{name}"}.get(
        strategy, f"{options.topic}-{side}"
    )
    return b"\x00" + register(subject, avro_text(schema, AVRO)).to_bytes(4, "big")


def encoder(columns: Sequence[Column], schema: Schema) -> Callable[[Sequence[Any]], bytes]:
    """The function from the values of ``columns`` to the record of ``schema``, whose fields they are in order."""
    encode = compile_avro(schema, AVRO, b"")
    fields = [column.field for column in columns]
    changes = [
        (index, change)
        for index, column in enumerate(columns)
        if (change := storable(column.schema, back=True) if column.type is None else renamer(column.type)) is not None
    ]

    def made(values: Sequence[Any]) -> bytes:
        if changes:
            values = list(values)
            for index, change in changes:
                values[index] = change(values[index])
        found = encode(dict(zip(fields, values, strict=True)))
        if found is None:
            raise Skippable("A record can't be null.")
        return found

    return made
