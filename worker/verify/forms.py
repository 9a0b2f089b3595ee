"""Messages and the source's records in the one JSON-like form in which a verification compares them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from connectors.errors import ConfigInvalid
from connectors.verify.events import (
    ROW_EVENT_FIELDS,
    RowEvent,
    event_decoder,
    is_envelope,
    read_exact_fraction,
    read_fraction,
)
from worker.converters.avro import AvroConverter
from worker.converters.base import create_converter
from worker.converters.json import JsonConverter
from worker.converters.registry.registered import HEAD_SIZE
from worker.host.plan import converter_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from decimal import Decimal

    from connectors.api import SourceRecord
    from connectors.schema import Schema
    from worker.converters.base import Converter, Encode


class _Envelope(msgspec.Struct):
    payload: Any


class _Encoders(NamedTuple):
    """The writers of a schema's records as JSON: of the whole, and of the rows in an event of Debezium's form."""

    schema: Schema | None
    whole: Encode
    before: Encode | None
    after: Encode | None


def _payload_decoder(read_number: Callable[[str], float | Decimal]) -> Callable[[bytes], Any]:
    decode = msgspec.json.Decoder(_Envelope, float_hook=read_number).decode
    return lambda data: decode(data).payload


class Forms:
    """Reads messages, and writes records of the source as if they were read from messages."""

    def __init__(
        self, connector: Mapping[str, str], worker: Mapping[str, str], *, keys: bool = True, row_events: bool = False
    ) -> None:
        """Make the converters.

        Args:
            connector: the connector's configuration.
            worker: the worker's properties.
            keys: whether messages' keys are read; without it ``read`` and ``written`` of a key give None.
            row_events: whether of events of Debezium's form only what ``RowEvent`` has is read.

        Raises:
            ConfigInvalid: a converter makes what can't be read.
        """
        self._keys = keys
        defaults = {"key.converter": "JsonConverter", "value.converter": "JsonConverter", **worker}
        self._converters: list[Converter] = []
        self._writers: list[JsonConverter] = []
        #: Readers of JSON; None: the converter reads another form.
        self._decoders: list[Callable[[bytes], Any] | None] = []
        #: Readers of what ``_writers`` write.
        self._readers: list[Callable[[bytes], Any]] = []
        for option in ("key.converter", "value.converter"):
            name, converter_options = converter_config(connector, defaults, option)
            converter = create_converter(name, converter_options, option == "key.converter")
            if not (isinstance(converter, JsonConverter | AvroConverter) or (option == "key.converter" and not keys)):
                raise ConfigInvalid(f"{option}={name}: verify reads JSON and Avro; other forms can't be compared")
            if row_events and isinstance(converter, AvroConverter) and option == "value.converter":
                converter.read_only(ROW_EVENT_FIELDS)
            json_options = {
                key: value for key, value in converter_options.items() if isinstance(converter, JsonConverter)
            }
            enveloped = converter_options.get("schemas.enable", "true").lower() == "true"
            numeric = json_options.get("decimal.format", "").upper() == "NUMERIC"
            read_number = read_exact_fraction if numeric else read_fraction
            self._readers.append(msgspec.json.Decoder(float_hook=read_number).decode)
            decode = _payload_decoder(read_number) if enveloped else self._readers[-1]
            self._converters.append(converter)
            self._decoders.append(decode if isinstance(converter, JsonConverter) else None)
            self._writers.append(JsonConverter({**json_options, "schemas.enable": "false"}))
        # Of the value, which came last.
        self._decode_event = event_decoder(decode, read_number, enveloped=enveloped)
        #: Those that were used last, of keys and of values.
        self._encoders = [self._make_encoders(0, None), self._make_encoders(1, None)]
        #: The first bytes of the key and the value that were prepared last: they name the schema.
        self._prepared = [b"", b""]
        #: What is read with schemas from elsewhere: keys, values or both.
        self._asking = [number for number in (0, 1) if self._decoders[number] is None and (number or keys)]

    async def prepare(self, message: Any) -> None:
        """Get the schemas that a message needs to be read; it raises as ``Converter.prepare_data`` does."""
        for number in self._asking:
            data = message.value if number else message.key
            if data is not None and data[:HEAD_SIZE] != self._prepared[number]:
                await self._converters[number].prepare_data(message.topic, data)
                self._prepared[number] = data[:HEAD_SIZE]

    def read(self, topic: str, number: int, data: bytes | None) -> Any:
        """The key (0) or value (1) of a message that is prepared."""
        if data is None or (number == 0 and not self._keys):
            return None
        decode = self._decoders[number]
        if decode is not None:
            return decode(data)
        schema, value = self._converters[number].to_connect(topic, data)
        return self.written(number, schema, value)

    def read_value(self, topic: str, data: bytes | None) -> Any:
        """The value of a message that is prepared; an event of Debezium's form as a ``RowEvent``."""
        if data is None:
            return None
        if self._decoders[1] is None:
            return self.written_value(*self._converters[1].to_connect(topic, data))
        return self._decode_event(data)

    def written(self, number: int, schema: Schema | None, value: Any) -> Any:
        """A record's key (0) or value (1)."""
        if number == 0 and not self._keys:
            return None
        return self._read_again(number, self._encoders_of(number, schema).whole, value)

    def written_value(self, schema: Schema | None, value: Any) -> Any:
        """A record's value; an event of Debezium's form as a ``RowEvent``, of which only the rows are written."""
        encoders = self._encoders_of(1, schema)
        if encoders.before is None or encoders.after is None or not is_envelope(value):
            return self.written(1, schema, value)
        event = RowEvent.of(value)
        if event.before is not None:
            event.before = self._read_again(1, encoders.before, event.before)
        if event.after is not None:
            event.after = self._read_again(1, encoders.after, event.after)
        return event

    def written_rows(self, records: Sequence[SourceRecord]) -> Iterator[tuple[Any, Any]]:
        """The keys and rows of records of one table, which are events of Debezium's form that say how rows are now."""
        write_key = self._encoders_of(0, records[0].key_schema).whole
        write_row = self._encoders_of(1, records[0].value_schema).after
        assert write_row is not None  # noqa: S101 - the form says so
        read_key, read_row = self._readers
        for record in records:
            yield read_key(write_key(record.key) or b"null"), read_row(write_row(record.value["after"]) or b"null")

    def _read_again(self, number: int, encode: Encode, value: Any) -> Any:
        data = encode(value)
        return None if data is None else self._readers[number](data)

    def _encoders_of(self, number: int, schema: Schema | None) -> _Encoders:
        encoders = self._encoders[number]
        if encoders.schema is not schema:
            encoders = self._encoders[number] = self._make_encoders(number, schema)
        return encoders

    def _make_encoders(self, number: int, schema: Schema | None) -> _Encoders:
        encoder = self._writers[number].encoder
        rows = [None if schema is None else schema.field(name) for name in ("before", "after")]
        before, after = (None if row is None else encoder("", row.schema) for row in rows)
        return _Encoders(schema, encoder("", schema), before, after)

    async def close(self) -> None:
        """Release what the converters hold."""
        for converter in self._converters:
            await converter.close()
