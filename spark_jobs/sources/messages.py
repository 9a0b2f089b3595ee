"""The rows that messages are about, as a job reads them, one message at a time: for ``millrace verify``. No Spark session.

Where a message has a schema, which says what they are, times of day are nanoseconds, moments are microseconds, decimals are
numbers, and cells are their values, as jobs have them. Everything else is as JSON has it.
"""

from __future__ import annotations

import base64
import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from connectors.errors import ConfigInvalid
from connectors.formats.order_number import source_number
from connectors.formats.ums import BEFORE, DELETE, ID, OPERATION, SIGNALS, WITH_ROWS
from connectors.options import ConfigDef
from connectors.schema import DECIMAL, TIME, TIMESTAMP
from connectors.verify.events import RowChange
from spark_jobs.config.keys import FRAME, REFUSE, SEPARATE, SHARDS, TABLES
from spark_jobs.contract import UMS_COLUMNS
from spark_jobs.sources.avro.expressions import converter_options
from spark_jobs.sources.declared import KEYS, declared_keys
from spark_jobs.sources.records.flat import flat_of, op_of
from spark_jobs.sources.records.reader import namespace_of
from spark_jobs.sources.table_filter import is_selected
from spark_jobs.sources.ums_layout import layout_of
from worker.converters.avro import AvroConverter
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from connectors.options import Config, ConfigKey

_REGISTRY: Final = "source.schema.registry."
_FRAME_KEYS: Final = ("source.value.encoding", "source.key.encoding", f"{_REGISTRY}url", TABLES, SHARDS)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
#: The end of the name of a cell's schema.
_CELL: Final = ".Cell"
#: The names of schemas of times of day and of moments -> how many of them are that many nanoseconds, or microseconds.
_UNITS: Final = {
    "io.debezium.time.Time": (1, 1_000_000),
    "io.debezium.time.MicroTime": (1, 1_000),
    TIME: (1, 1_000_000),
    "io.debezium.time.Timestamp": (1, 1_000),
    "io.debezium.time.NanoTimestamp": (1_000, 1),
    TIMESTAMP: (1, 1_000),
}
_VARIABLE_SCALE: Final = "io.debezium.data.VariableScaleDecimal"
_decode: Final = msgspec.json.Decoder().decode


class Message(Protocol):
    """A record of a topic."""

    topic: str
    key: bytes | None
    value: bytes | None


class Content(NamedTuple):
    """The content of a key or a value, with its schema in the form of JSON's envelope; None: it has none."""

    schema: Any
    value: Any


class RowImage(NamedTuple):
    """The statement of a message about one row.

    Attributes:
        namespace: its table.
        row: the row afterwards; None: it is gone.
        before: the row that is gone, or was changed, as far as the message has it.
        order: the order number of the change, where the message has one.
    """

    namespace: str
    row: dict[str, Any] | None
    before: dict[str, Any] | None = None
    order: int | None = None


class MessageRows:
    """Reads the messages of a job's topics.

    Args:
        properties: of the job, references resolved.
        keys: the options of the source.
        read_images: reads the images of rows in a message.

    Raises:
        ConfigInvalid: an option is missing or wrong, or the job changes keys in a way that can't be followed.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        keys: tuple[ConfigKey, ...],
        read_images: Callable[[str, Content, Content, Config], Iterator[RowImage]],
    ) -> None:
        names = {key.name for key in keys} | set(_FRAME_KEYS)
        prefixes = (f"{KEYS}.", _REGISTRY)
        definition = ConfigDef([*keys, *(FRAME.keys[name] for name in _FRAME_KEYS)])
        self._config = definition.parse(
            {name: text for name, text in properties.items() if name in names or name.startswith(prefixes)}
        )
        if (self._config.get(SHARDS) or REFUSE) == SEPARATE:
            raise ConfigInvalid(
                f"{SHARDS}={SEPARATE} makes the numbers of a shard part of the key, which no message has"
            )
        self._read_images = read_images
        self._declared = declared_keys(self._config)
        self._tables = tuple(self._config.get(TABLES) or ())
        avro = "avro" in (self._config["source.value.encoding"], self._config["source.key.encoding"])
        options = converter_options(self._config) if avro else {}
        self._key = self._make_reader(str(self._config["source.key.encoding"]), options, is_key=True)
        self._value = self._make_reader(str(self._config["source.value.encoding"]), options, is_key=False)

    @staticmethod
    def _make_reader(encoding: str, options: Mapping[str, str], *, is_key: bool) -> _ContentReader:
        if encoding == "avro":
            return _AvroContent(AvroConverter(options, is_key=is_key))
        return _ContentReader() if encoding == "json" else _RawContent()

    async def read(self, message: Message) -> list[RowChange]:
        """The changes of rows that a message says, in order.

        Raises:
            ValueError, KeyError, TypeError, msgspec.MsgspecError, Skippable: it is not understood.
            Retriable: the schema registry is unavailable.
        """
        key = await self._key.read(message.topic, message.key)
        value = await self._value.read(message.topic, message.value)
        changes = []
        for image in self._read_images(message.topic, key, value, self._config):
            if is_selected(self._tables, image.namespace):
                change = RowChange(image.namespace, self._find_key(image, key), image.row, image.order)
                changes += [*self._find_moved_row(image, change.key), change]
        return changes

    def _find_moved_row(self, image: RowImage, key: Mapping[str, Any]) -> list[RowChange]:
        """The delete of the old row, where an update has changed a declared key."""
        names = self._declared.get(image.namespace, self._declared.get(""))
        if names is None or image.row is None or image.before is None:
            return []
        old = {name: image.before.get(name) for name in names}
        return [] if None in old.values() or old == key else [RowChange(image.namespace, old, None, image.order)]

    def _find_key(self, image: RowImage, key: Content) -> dict[str, Any]:
        """The key of a row: the declared columns of it, or the message's key."""
        names = self._declared.get(image.namespace, self._declared.get(""))
        if names is None:
            if not isinstance(key.value, dict):
                raise ValueError(f"it has no key, and {KEYS} is not set")
            return _read_columns(key.schema, key.value)
        values = image.row or image.before or (key.value if isinstance(key.value, dict) else {})
        missing = [name for name in names if name not in values]
        if missing:
            raise ValueError(f"{KEYS}: what it says of the row lacks {', '.join(missing)}")
        return {name: values[name] for name in names}

    async def close(self) -> None:
        """Release what the converters hold."""
        await self._key.close()
        await self._value.close()


class _ContentReader:
    """Reads JSON, with or without a schema."""

    async def read(self, topic: str, data: bytes | None) -> Content:
        """The content of a key or value."""
        del topic
        decoded = None if data is None else _decode(data)
        if isinstance(decoded, dict) and decoded.keys() == {"schema", "payload"}:
            return Content(decoded["schema"], decoded["payload"])
        return Content(None, decoded)

    async def close(self) -> None:
        """Release what it holds."""


class _RawContent(_ContentReader):
    """Leaves bytes as they are."""

    async def read(self, topic: str, data: bytes | None) -> Content:
        del topic
        return Content(None, data)


class _AvroContent(_ContentReader):
    """Reads Avro as if it were written in JSON with its schema."""

    def __init__(self, converter: AvroConverter) -> None:
        self._converter = converter
        self._writer = JsonConverter({"schemas.enable": "true"})

    async def read(self, topic: str, data: bytes | None) -> Content:
        if data is None:
            return Content(None, None)
        await self._converter.prepare_data(topic, data)
        schema, value = self._converter.to_connect(topic, data)
        return await super().read(topic, self._writer.encoder(topic, schema)(value))

    async def close(self) -> None:
        await self._converter.close()


def read_event(topic: str, key: Content, value: Content, config: Config) -> Iterator[RowImage]:
    """The row that an event of Debezium's form is about."""
    del key, config
    event = value.value
    if not isinstance(event, dict) or event.get("op") not in ("c", "r", "u", "d"):
        return
    source = event.get("source") or {}
    namespace, order = namespace_of(source, topic), source_number(source)
    before = _read_image(value.schema, "before", event.get("before"))
    if event["op"] == "d":
        yield RowImage(namespace, None, before, order)
    else:
        yield RowImage(namespace, _read_image(value.schema, "after", event["after"]), before, order)


def read_flat(topic: str, key: Content, value: Content, config: Config) -> Iterator[RowImage]:
    """The row that a message without an envelope is; the topic is its table."""
    row = value.value
    if row is None:
        # Heartbeats have no key; a tombstone is a delete unless the job ignores it.
        if key.value is not None and config.get("source.tombstones", "delete") == "delete":
            yield RowImage(topic, None)
        return
    if not isinstance(row, dict):
        raise TypeError("the value is no row: it has no members")
    flat = flat_of(row, config)
    gone = op_of(row.get(flat.op), row.get(flat.deleted)) == "d"
    columns = _read_columns(value.schema, row)
    image = {name: member for name, member in columns.items() if name not in flat.hidden}
    order = int(row[flat.order]) if flat.order else None
    yield RowImage(topic, None, image, order) if gone else RowImage(topic, image, None, order)


def read_ums(topic: str, key: Content, value: Content, config: Config) -> Iterator[RowImage]:
    """The rows that a UMS message has; images before updates are left out."""
    del topic, key, config
    document = value.value
    if document is None:
        return
    protocol = document["protocol"]["type"]
    if protocol in SIGNALS:
        return
    if protocol not in WITH_ROWS:
        raise ValueError(f"the protocol {protocol!r} is unknown")
    layout = layout_of(msgspec.json.encode(document["schema"]))
    for item in document["payload"]:
        row = {
            name: _read_string(text, kind)
            for name, kind, text in zip(layout.names, layout.kinds, item["tuple"], strict=True)
        }
        operation = row[OPERATION]
        if operation == BEFORE:
            continue
        image = {name: member for name, member in row.items() if name not in UMS_COLUMNS}
        gone, order = operation == DELETE, row[ID]
        yield RowImage(layout.table, None if gone else image, image if gone else None, order)


def _read_string(text: str | None, kind: str) -> Any:
    """A value of UMS as messages in JSON have it: times in microseconds since 1970, dates in days."""
    if text is None:
        return None
    match kind:
        case "int" | "long":
            return int(text)
        case "float" | "double":
            return float(text)
        case "boolean":
            return text.lower() == "true"
        case "date":
            return (dt.date.fromisoformat(text) - _EPOCH.date()).days
        case "datetime":
            return (dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1)
        case _:
            return text


def _read_decimal(digits: str, scale: int) -> Decimal:
    """The decimal whose number without its point these bytes in base64 are."""
    number = int.from_bytes(base64.b64decode(digits), "big", signed=True)
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def _read_image(schema: Any, member: str, row: Any) -> Any:
    """The row in a member of an event, with its columns as jobs have them."""
    parts: list[dict[str, Any]] = (schema or {}).get("fields", [])
    return row and _read_columns(next((part for part in parts if part.get("field") == member), None), row)


def _read_columns(schema: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a struct as jobs have them."""
    columns: list[dict[str, Any]] = (schema or {}).get("fields", [])
    return {**row, **{column["field"]: _read_column(column, row.get(column["field"])) for column in columns}}


def _read_column(schema: Mapping[str, Any], value: Any) -> Any:
    """A column's value as jobs have it: out of the cell that events of Scylla have around it."""
    name = schema.get("name") or ""
    if value is None:
        return None
    if name.endswith(_CELL):
        return _read_column(schema["fields"][0], value["value"])
    if name == DECIMAL and isinstance(value, str):
        return _read_decimal(value, int(schema["parameters"]["scale"]))
    if name == _VARIABLE_SCALE:
        return _read_decimal(value["value"], value["scale"])
    if name in _UNITS:
        divisor, factor = _UNITS[name]
        return value * factor // divisor
    return value
