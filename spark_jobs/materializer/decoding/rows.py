"""Debezium events and UMS messages as whole rows with a position. Sources of these forms are ordered: a later position wins.

Values are Connect's (``connectors.schema``) where the message has a schema, and JSON's own where it has none.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

import msgspec

from connectors.errors import Fatal, Skippable
from connectors.formats import ums
from connectors.formats.order_number import source_number
from connectors.schema import (
    BYTES,
    DECIMAL,
    INT64,
    OPTIONAL_BOOLEAN,
    OPTIONAL_FLOAT32,
    OPTIONAL_FLOAT64,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    Schema,
    Type,
)
from spark_jobs.config.keys import MERGE, REFUSE, SEPARATE, SHARDS
from spark_jobs.materializer.decoding.versions import AVRO, HEAD, SchemaIds, schema_id, split_envelope
from spark_jobs.materializer.engine.model import StateColumn
from spark_jobs.reports.met_heartbeats import MetHeartbeat, MetHeartbeats
from spark_jobs.rows.shards import LOGICAL, NUMBERS, WHOLE, column_taken, logical_name, row_keys, shard_of, ums_shard
from worker.converters.avro_form.read import AvroReader, avro_reader
from worker.converters.json_form.read import make_reader, parse_json, read_schema
from worker.converters.json_form.text import JsonSettings, schema_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spark_jobs.materializer.contract import InputRecord
    from spark_jobs.materializer.engine.model import MergeOptions


class RowLayout(msgspec.Struct, frozen=True):
    """The columns of rows, as one schema of the input tells them.

    Attributes:
        ident: the same for the same columns.
        constants: pairs: connector, cluster, keyspace (or database), table, schema_version.
        keys: columns of the primary key.
        others: the other columns.
    """

    ident: str
    constants: tuple[tuple[str, str], ...]
    keys: tuple[StateColumn, ...]
    others: tuple[StateColumn, ...]

    @property
    def table(self) -> str:
        """The table's full name."""
        constants = dict(self.constants)
        return f"{constants['keyspace']}.{constants['table']}"


class SourceRowChange(NamedTuple):
    """One row's part of a message.

    Attributes:
        layout: its columns.
        key: values of the primary key.
        values: of the other columns; None: the row was deleted.
        position: larger ones are later.
        write_time: µs since 1970.
        snapshot: read from the table.
    """

    layout: RowLayout
    key: tuple[Any, ...]
    values: tuple[Any, ...] | None
    position: int
    write_time: int
    snapshot: bool


class _Description(msgspec.Struct):
    """A layout in the catalog; ``fields``: name and Connect schema (JSON) of each column, the key's first."""

    constants: list[tuple[str, str]]
    keys: int
    fields: list[tuple[str, str | None]]


def layout_text(layout: RowLayout) -> str:
    """The text of a layout for the catalog."""
    settings = JsonSettings()
    fields = [
        (column.name, None if column.schema is None else schema_text(column.schema, settings))
        for column in (*layout.keys, *layout.others)
    ]
    return msgspec.json.encode(_Description(list(layout.constants), len(layout.keys), fields)).decode()


def read_layout(layout_json: str) -> RowLayout:
    """The inverse of ``layout_text``."""
    description = msgspec.json.decode(layout_json, type=_Description)
    columns = [
        (name, None if schema is None else read_schema(parse_json(schema.encode()), replace_null=False))
        for name, schema in description.fields
    ]
    return make_layout(
        tuple(description.constants), dict(columns[: description.keys]), dict(columns[description.keys :])
    )


def make_layout(
    constants: tuple[tuple[str, str], ...], keys: Mapping[str, Schema | None], others: Mapping[str, Schema | None]
) -> RowLayout:
    """A layout from names and schemas."""
    columns = tuple(
        StateColumn(name, name, "partition_key", None, simplify_schema(schema, optional=False))
        for name, schema in keys.items()
    )
    other_columns = tuple(
        StateColumn(name, name, "regular", None, simplify_schema(schema, optional=True))
        for name, schema in others.items()
    )
    ident = f"{crc32(repr((constants[2:4], columns, other_columns)).encode()):08x}"
    return RowLayout(ident, constants, columns, other_columns)


def simplify_schema(schema: Schema | None, *, optional: bool) -> Schema | None:
    """A column's schema in the output: without the default, which would stand for null."""
    return None if schema is None else replace(schema, optional=optional, default=None)


def make_storable(schema: Schema | None, *, back: bool = False) -> Callable[[Any], Any] | None:
    """Return the function that makes a Connect value storable with msgpack (decimals as strings).

    With ``back`` it restores the value. None where nothing has to be converted.
    """
    if schema is None:
        return None
    if schema.name == DECIMAL and schema.type is Type.BYTES:
        return _decimal_back if back else _decimal_text
    if schema.type is Type.ARRAY and (inner := make_storable(schema.value_schema, back=back)) is not None:
        item = inner
        return lambda value: None if value is None else [item(element) for element in value]
    if schema.type is Type.MAP and (inner := make_storable(schema.value_schema, back=back)) is not None:
        item = inner
        return lambda value: None if value is None else {key: item(element) for key, element in value.items()}
    if schema.type is Type.STRUCT:
        members = {
            element.name: change
            for element in schema.fields
            if (change := make_storable(element.schema, back=back)) is not None
        }
        if members:
            return lambda value: (
                None
                if value is None
                else {name: members[name](element) if name in members else element for name, element in value.items()}
            )
    return None


def _decimal_text(value: Any) -> Any:
    return None if value is None else str(value)


def _decimal_back(value: Any) -> Any:
    return None if value is None else Decimal(value)


class RowEventReader:
    """Reads messages; remembers schemas.

    Args:
        options: see ``MergeOptions``.
        registry: the registry, made when it is first needed.

    Attributes:
        heartbeats: those of UMS that were met.
    """

    def __init__(self, options: MergeOptions, registry: Callable[[], SchemaIds]) -> None:
        self.heartbeats = MetHeartbeats()
        self._options = options
        self._registry = registry
        self._readers: dict[int, AvroReader] = {}
        self._schemas: dict[bytes, tuple[Schema | None, Callable[[Any], Any]]] = {}
        self._layouts: dict[Any, tuple[RowLayout, list[Any]]] = {}

    def changes(self, record: InputRecord) -> list[SourceRowChange]:
        """Decode the row changes of a message.

        Raises:
            Skippable: it can't be decoded.
            Retriable: the registry is unavailable.
            Fatal: the primary key is not known.
        """
        if not record.value:
            return []
        schema, value = self._decode_value(record.value)
        if not isinstance(value, dict):
            raise Skippable(
                f"The message at offset {record.offset} is no {self._options.input_format} message: it is not a struct."
            )
        try:
            if self._options.input_format == "ums":
                return self._read_ums(value, record)
            return self._read_debezium(schema, value, record)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise Skippable(
                f"The message at offset {record.offset} does not have the form of a {self._options.input_format} "
                f"message: {error!r}. Set the input's format to what the topic has."
            ) from None

    def _decode_value(self, data: bytes) -> tuple[Schema | None, Any]:
        if self._options.input_encoding == "avro":
            number = schema_id(data)
            value_reader = self._readers.get(number)
            if value_reader is None:
                value_reader = self._readers[number] = avro_reader(self._registry().text(number), AVRO)
            return value_reader.schema, value_reader.decode(data[HEAD:])
        return self._decode_json(data)

    def _decode_json(self, data: bytes) -> tuple[Schema | None, Any]:
        parts = split_envelope(data) if data.startswith(b"{") else None
        if parts is None or self._options.input_format == "ums":
            return None, parse_json(data)
        description, payload = parts
        schema_reader = self._schemas.get(description)
        if schema_reader is None:
            parsed = read_schema(parse_json(description), replace_null=False)
            schema_reader = self._schemas[description] = parsed, make_reader(parsed, replace_null=False)
        return schema_reader[0], schema_reader[1](parse_json(payload, exact=DECIMAL.encode() in description))

    # -- Debezium

    def _read_debezium(
        self, schema: Schema | None, value: dict[str, Any], record: InputRecord
    ) -> list[SourceRowChange]:
        operation = value.get("op")
        if operation == "m":
            return []  # a message of the database's log, not of a table
        if operation not in {"c", "u", "d", "r"}:
            raise Skippable(
                f"The event at offset {record.offset} has the operation {operation!r}: a materialized table "
                "has no place for it."
            )
        row = value["before"] if operation == "d" else value["after"]
        source = value.get("source") or {}
        shard = shard_of(source)
        sharded = shard != WHOLE or logical_name(source) is not None
        key = self._read_primary_key(record, row, sharded=sharded)
        if self._options.shards == REFUSE and shard != WHOLE:
            raise Fatal(_describe_shard(".".join(str(source.get(name)) for name in LOGICAL), shard))
        if self._is_separate:
            key = dict(zip(NUMBERS, shard, strict=True)) | key
        side = schema.field("before" if operation == "d" else "after") if schema is not None else None
        names = tuple(key)
        signature = (schema, operation == "d", names) if schema is not None else (None, names, tuple(row or ()))
        database = next((source[name] for name in _DATABASES if source.get(name)), "")
        table = next((source[name] for name in _TABLES if source.get(name)), "")
        constants = (
            ("connector", str(source.get("connector") or "")),
            ("cluster", str(source.get("name") or "")),
            ("keyspace", str(database)),
            ("table", str(table)),
            ("schema_version", ""),
        )
        layout_entry = self._layouts.get((signature, constants))
        if layout_entry is None:
            columns = (
                {field.name: field.schema for field in side.schema.fields}
                if side is not None
                else dict.fromkeys(row or ())
            )
            if self._is_separate:
                _check_names(columns, constants[3][1])
                columns = dict.fromkeys(NUMBERS, INT64 if schema is not None else None) | columns
            others = {name: column for name, column in columns.items() if name not in key}
            layout = make_layout(constants, {name: columns.get(name) for name in names}, others)
            stores = [make_storable(column.schema) for column in layout.others]
            layout_entry = self._layouts[signature, constants] = layout, stores
        layout, stores = layout_entry
        time = source.get("ts_us") or 1000 * (source.get("ts_ms") or value.get("ts_ms") or record.timestamp_ms)
        number = source_number(source)
        position = record.offset if number is None else number
        snapshot = operation == "r" or str(source.get("snapshot", "false")) not in {"false", "None"}
        values = None
        if operation != "d":
            values = tuple(
                [
                    row.get(column.name) if store is None else store(row.get(column.name))
                    for column, store in zip(layout.others, stores, strict=True)
                ]
            )
        change = SourceRowChange(layout, tuple(key.values()), values, position, time, snapshot)
        if operation == "u" and self._has_moved(value.get("before"), row):
            return [*self._read_debezium(schema, value | {"op": "d"}, record), change]
        return [change]

    def _has_moved(self, before: Any, row: Mapping[str, Any]) -> bool:
        """Whether an update has changed a key that the options name; not where the image before it lacks a part of it."""
        names = self._options.key_columns
        if not isinstance(before, dict) or any(before.get(name) is None for name in names):
            return False
        return any(before[name] != row[name] for name in names)

    @property
    def _is_separate(self) -> bool:
        return self._options.shards == SEPARATE

    def _read_primary_key(self, record: InputRecord, row: Mapping[str, Any] | None, *, sharded: bool) -> dict[str, Any]:
        """The primary key, by name; of a sharded table without what is no column."""
        names = self._options.key_columns
        if names and row is not None:
            return {name: row[name] for name in names}
        if record.key:
            _, key = self._decode_value(record.key)
            if isinstance(key, dict) and sharded and row is not None and not names:
                kept = row_keys(tuple(key), row)
                if len(kept) < len(key) and self._options.shards == MERGE:
                    shard_fields = ", ".join(sorted(key.keys() - {*kept}))
                    raise Fatal(
                        f"The record's key has a field that names the shard ({shard_fields}), so changes of one row may lie "
                        "in several partitions of the input, and each has a state of its own. For "
                        f"{SHARDS}={MERGE} let the connector leave it out (topic.key.enforce.uniqueness=false)."
                    )
                key = {name: key[name] for name in kept}
            if isinstance(key, dict) and key:
                return {name: key[name] for name in names} if names else key
        raise Fatal(
            "The primary key is not known: the event's Kafka key is not a struct. Name its columns in "
            "materializer.key.columns."
        )

    # -- UMS

    def _read_ums(self, value: dict[str, Any], record: InputRecord) -> list[SourceRowChange]:
        protocol = value["protocol"]["type"]
        if protocol in ums.SIGNALS:
            if protocol == ums.INCREMENT_HEARTBEAT:
                self._note_heartbeat(value, record)
            return []  # a heartbeat or the end of something: no rows
        if protocol not in ums.WITH_ROWS:
            raise Skippable(
                f"The UMS message at offset {record.offset} has the protocol {protocol!r}; known are "
                f"{', '.join(sorted(ums.WITH_ROWS | ums.SIGNALS))}."
            )
        names = self._options.key_columns
        if not names:
            raise Fatal("UMS does not say what the primary key is: name its columns in materializer.key.columns.")
        snapshot = protocol != ums.INCREMENT
        namespace, fields = value["schema"]["namespace"], value["schema"]["fields"]
        signature = namespace, tuple((item["name"], item["type"]) for item in fields)
        layout_entry = self._layouts.get(signature)
        if layout_entry is None:
            where = ums.Namespace.parse(namespace)
            if self._options.shards == REFUSE and where[5:] != ("0", "0"):
                raise Fatal(_describe_shard(".".join(where[:4]), where[5:]))
            columns = {item["name"]: _UMS[item["type"]] for item in fields if item["name"] not in _SYSTEM}
            missing = [name for name in names if name not in columns]
            if missing:
                raise Skippable(
                    f"The UMS message at offset {record.offset} has no field {', '.join(missing)}, which is in "
                    "materializer.key.columns."
                )
            shard: tuple[int, ...] = ()
            if self._is_separate:
                _check_names(columns, where.table)
                shard = ums_shard(namespace)
                columns = dict.fromkeys(NUMBERS, OPTIONAL_INT64) | columns
                names = (*NUMBERS, *names)
            layout = make_layout(
                (
                    ("connector", where.datastore),
                    ("cluster", where.instance),
                    ("keyspace", where.database),
                    ("table", where.table),
                    ("schema_version", where.version),
                ),
                {name: columns[name] for name in names},
                {name: column for name, column in columns.items() if name not in names},
            )
            layout_entry = self._layouts[signature] = layout, list(shard)
        layout, shard_key = layout_entry[0], tuple(layout_entry[1])
        readers = {item["name"]: (index, _UMS_READ.get(item["type"])) for index, item in enumerate(fields)}
        changes = []
        for item in value["payload"]:
            cell_texts: Sequence[str | None] = item["tuple"]

            def read_cell(name: str, row_texts: Sequence[str | None] = cell_texts) -> Any:
                index, read = readers[name]
                cell_text = row_texts[index]
                return cell_text if cell_text is None or read is None else read(cell_text)

            operation = read_cell(ums.OPERATION)
            if operation == ums.BEFORE:
                continue
            if operation not in {ums.INSERT, ums.UPDATE, ums.DELETE}:
                raise Skippable(f"The UMS message at offset {record.offset} has the operation {operation!r}.")
            time = _to_micros(read_cell(ums.TIMESTAMP)) if ums.TIMESTAMP in readers else record.timestamp_ms * 1000
            values = None if operation == ums.DELETE else tuple([read_cell(column.name) for column in layout.others])
            key = (*shard_key, *[read_cell(column.name) for column in layout.keys[len(shard_key) :]])
            changes.append(SourceRowChange(layout, key, values, int(read_cell(ums.ID)), time, snapshot))
        return changes

    def _note_heartbeat(self, value: dict[str, Any], record: InputRecord) -> None:
        if not value.get("payload"):
            return  # it has no time
        where = ums.Namespace.parse(value["schema"]["namespace"])
        # Every shard of a table promises for itself.
        part = ".".join((*where[5:], value["protocol"].get("part") or ""))
        sent_us = _to_micros(value["payload"][0]["tuple"][0])
        table = ".".join(where[:4])
        self.heartbeats.note(MetHeartbeat("", record.partition, part, sent_us, record.timestamp_ms * 1000, table))


#: Names of the database and the table in Debezium's ``source``, the first that is there counts: the logical ones of a shard.
_DATABASES: Final = (LOGICAL[0], "keyspace", "keyspace_name", "schema", "db")
_TABLES: Final = (LOGICAL[1], "table", "table_name")
_SYSTEM: Final = frozenset({ums.ID, ums.TIMESTAMP, ums.OPERATION, ums.UID, ums.ACTIVE})
_UMS: Final[dict[str, Schema]] = {
    "string": OPTIONAL_STRING,
    "int": OPTIONAL_INT32,
    "long": OPTIONAL_INT64,
    "float": OPTIONAL_FLOAT32,
    "double": OPTIONAL_FLOAT64,
    "decimal": OPTIONAL_STRING,
    "boolean": OPTIONAL_BOOLEAN,
    "date": OPTIONAL_STRING,
    "datetime": OPTIONAL_STRING,
    "binary": replace(BYTES, optional=True),
}
_UMS_READ: Final[dict[str, Callable[[str], Any]]] = {
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "boolean": lambda text: text.lower() == "true",
    "binary": base64.b64decode,
}


def _check_names(columns: Iterable[str], table: str) -> None:
    """Raise ``Fatal`` for a table that has a column with the name of a number of its shard."""
    reserved_names = [name for name in columns if name.lower() in NUMBERS]
    if reserved_names:
        raise Fatal(column_taken(table, reserved_names[0]))


def _describe_shard(table: str, shard: Sequence[Any]) -> str:
    return (
        f"{table} is sharded: a message is of database and table partition {shard[0]}.{shard[1]}. Rows of two shards with "
        f"one key would overwrite each other. Set {SHARDS}={SEPARATE} to make both numbers part of the key, or "
        f"{SHARDS}={MERGE} if a key is the same row in all shards, or if there is one shard only."
    )


def _to_micros(datetime_text: str) -> int:
    """A UMS datetime in µs since 1970."""
    moment = datetime.fromisoformat(datetime_text).replace(tzinfo=UTC)
    seconds = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (seconds.days * 86_400 + seconds.seconds) * 1_000_000 + seconds.microseconds
