"""EventRouter: rows of an outbox table become messages, each with the topic, the key and the payload that the row names.

Source: io.debezium.transforms.outbox.EventRouter of Debezium 3.5. Differences: the schema of an envelope carries the name of
the topic that the row goes to (Debezium keeps the name of the first topic it met for a payload's schema), spans are not
traced, and what ``json_expansion`` says.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from connectors.api import Header
from connectors.errors import Skippable
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, Importance, Width, invalid
from connectors.schema import Field, Schema, Type
from worker.transforms.base import RecordFunction, SchemaCache, Side, Transform, copy_record, is_struct, remember
from worker.transforms.debezium.events import adjustment_key, parse_adjustment, validate_enumerated
from worker.transforms.debezium.json_expansion import NotExpandable, expand_json
from worker.transforms.java.regex import compile_java, java_expression, java_replacement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.api import SourceRecord

_log = logging.getLogger("worker.transforms.event_router")

_PLACEMENTS: Final = ("header", "envelope", "partition")
#: Schema name of a timestamp -> how many of its units make a millisecond.
_PER_MS: Final = {
    "io.debezium.time.Timestamp": 1,
    "io.debezium.time.MicroTimestamp": 1_000,
    "io.debezium.time.NanoTimestamp": 1_000_000,
}


class _Additional(NamedTuple):
    """One item of ``table.fields.additional.placement``."""

    field: str
    placement: str
    alias: str


def _check_placement(name: str, value: Sequence[str] | None) -> str | None:
    for item in value or ():
        parts = item.rstrip(":").split(":")
        if len(parts) not in (2, 3) or parts[1].strip().lower() not in _PLACEMENTS:
            return invalid(
                name,
                value,
                f"{item!r} is not FIELD:PLACEMENT or FIELD:PLACEMENT:ALIAS with the placement header, "
                "envelope or partition",
            )
    return None


def _config_key(
    name: str,
    default: str | None,
    doc: str,
    *,
    importance: Importance = Importance.LOW,
    group: str = "Table",
    display: str = "",
    **more: Any,
) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=more.pop("type", ConfigType.STRING),
        default=more.pop("value", default),
        doc=doc,
        importance=importance,
        group=group,
        width=Width.MEDIUM,
        display_name=display,
        **more,
    )


class _OutboxRow(NamedTuple):
    """The derived data of one schema of outbox rows."""

    envelope: Schema
    schema: Schema
    fields: dict[str, Field]


class EventRouter(Transform):
    """Routes the events of an outbox table."""

    version: ClassVar[str] = "3.5.0.Final"
    aliases: ClassVar[tuple[str, ...]] = ("io.debezium.transforms.outbox.EventRouter",)
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            _config_key(
                "table.field.event.id",
                "id",
                "The column with the event's id; it becomes the header id.",
                display="Event ID Field",
            ),
            _config_key(
                "table.field.event.key",
                "aggregateid",
                "The column whose value becomes the message's key.",
                display="Event Key Field",
            ),
            _config_key(
                "table.field.event.type",
                "type",
                "The column with the event's type. Nothing reads it; place it with table.fields.additional.placement.",
                display="Event Type Field",
            ),
            _config_key(
                "table.field.event.payload",
                "payload",
                "The column whose value becomes the message's value.",
                display="Event Payload Field",
            ),
            _config_key(
                "table.field.event.timestamp",
                None,
                "The column whose value becomes the message's timestamp: a timestamp in "
                "milliseconds, microseconds or nanoseconds. Without it, or where it is null: when the change was processed.",
                importance=Importance.MEDIUM,
                display="Event Timestamp Field",
            ),
            _config_key(
                "table.fields.additional.placement",
                None,
                "Further columns, each as FIELD:PLACEMENT or FIELD:PLACEMENT:ALIAS: header adds a message header, "
                "envelope makes the value a struct of payload and this field, partition takes the number of the "
                "Kafka partition from it.",
                importance=Importance.HIGH,
                type=ConfigType.LIST,
                value=[],
                validator=_check_placement,
                example="type:header:eventType,tenant:envelope",
                display="Settings for each additional column in the outbox table",
            ),
            _config_key(
                "table.fields.additional.error.on.missing",
                None,
                "Whether a row without one of those columns is an error; else the column is left out.",
                importance=Importance.MEDIUM,
                type=ConfigType.BOOLEAN,
                value=True,
                display="Should the transform error if an additional field is missing in the change data",
            ),
            _config_key(
                "table.field.event.schema.version",
                None,
                "The column with the version of the value's schema. It has an effect "
                "only where a field is placed in the envelope.",
                display="Event Schema Version Field",
            ),
            _config_key(
                "table.op.invalid.behavior",
                "warn",
                "What an update of an outbox row does: warn and error skip it with a log "
                "entry, fatal is an error of the record.",
                importance=Importance.MEDIUM,
                validator=validate_enumerated("warn", "error", "fatal"),
                display="Behavior when capturing an unexpected outbox event",
            ),
            _config_key(
                "table.expand.json.payload",
                None,
                "Whether a payload that is the text of a JSON object becomes a struct whose "
                "schema is worked out from it. What can't be expanded stays as it is, with a warning.",
                importance=Importance.MEDIUM,
                type=ConfigType.BOOLEAN,
                value=False,
                display="Expand Payload escaped string as real JSON",
            ),
            _config_key(
                "table.json.payload.null.behavior",
                "ignore",
                "What a null in an expanded payload becomes: nothing (ignore), or a "
                "null of type BYTES (optional_bytes).",
                importance=Importance.MEDIUM,
                validator=validate_enumerated("ignore", "optional_bytes"),
                display="Behavior when json payload including null value",
            ),
            adjustment_key(
                "field.name.adjustment.mode",
                "the names of fields of an expanded payload",
                "Field Name Adjustment",
                group="Table",
            ),
            _config_key(
                "route.by.field",
                "aggregatetype",
                "The column whose value tells the topic.",
                importance=Importance.HIGH,
                group="Router",
                display="Field to route events by",
            ),
            _config_key(
                "route.topic.regex",
                "(?<routedByValue>.*)",
                "A regular expression in Java's syntax, matched with that value.",
                group="Router",
                validator=java_expression,
                display="The name of the routed topic",
            ),
            _config_key(
                "route.topic.replacement",
                "outbox.event.${routedByValue}",
                "The topic: ${name} and $1 stand for the expression's groups.",
                importance=Importance.HIGH,
                group="Router",
                display="The name of the routed topic",
            ),
            _config_key(
                "route.tombstone.on.empty.payload",
                None,
                "Whether an empty payload makes a tombstone.",
                importance=Importance.HIGH,
                group="Router",
                type=ConfigType.BOOLEAN,
                value=False,
                display="Empty payloads cause a tombstone message",
            ),
            _config_key(
                "tracing.span.context.field",
                "tracingspancontext",
                "Accepted; spans are not traced.",
                group="Tracing",
                display="Serialized tracing span context field",
            ),
            _config_key(
                "tracing.operation.name",
                "debezium-read",
                "Accepted; spans are not traced.",
                group="Tracing",
                display="Tracing operation name",
            ),
            _config_key(
                "tracing.with.context.field.only",
                None,
                "Accepted; spans are not traced.",
                group="Tracing",
                type=ConfigType.BOOLEAN,
                value=False,
                display="Trace only events with context field present",
            ),
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._id: str = config["table.field.event.id"]
        self._key: str = config["table.field.event.key"]
        self._payload: str = config["table.field.event.payload"]
        self._timestamp: str | None = config["table.field.event.timestamp"]
        self._version: str | None = config["table.field.event.schema.version"]
        self._route_by: str = config["route.by.field"]
        self._strict: bool = config["table.fields.additional.error.on.missing"]
        self._tombstones: bool = config["route.tombstone.on.empty.payload"]
        self._expand: bool = config["table.expand.json.payload"]
        self._keep_nulls = config["table.json.payload.null.behavior"].strip().lower() == "optional_bytes"
        self._names = parse_adjustment(config["field.name.adjustment.mode"])
        self._invalid = config["table.op.invalid.behavior"].strip().lower()
        self._additional = []
        for item in config["table.fields.additional.placement"]:
            parts = [part.strip() for part in item.rstrip(":").split(":")]
            self._additional.append(_Additional(parts[0], parts[1].lower(), parts[2] if len(parts) == 3 else parts[0]))
        self._in_envelope = [item for item in self._additional if item.placement == "envelope"]
        self._pattern = compile_java(config["route.topic.regex"])
        self._replacement = java_replacement(config["route.topic.replacement"], self._pattern)
        self._schemas: dict[tuple[Schema, Schema, int | None, str], Schema] = {}
        self._expanded: dict[Schema, Schema] = {}

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        rows: SchemaCache[_OutboxRow | None] = SchemaCache(_describe_row)
        find, add = rows.by_id.get, rows.add

        def apply(record: SourceRecord) -> SourceRecord | None:
            event = record.value
            if event is None:
                return None
            schema = record.value_schema
            row = (find(id(schema)) or add(schema))[1]
            if row is None:
                return record
            operation = event.get("op")
            if operation == "d":
                return None
            if operation == "u":
                self._handle_update()
                return None
            after = event.get("after")
            if after is None:
                raise Skippable("Only Struct objects supported for [Read Outbox Event], found: null")
            return self._route_record(record, event, after, row)

        return apply

    def _handle_update(self) -> None:
        if self._invalid == "fatal":
            raise Skippable(
                "Unexpected update message received, fail: rows of an outbox table are only inserted and deleted; "
                "see table.op.invalid.behavior"
            )
        level = logging.WARNING if self._invalid == "warn" else logging.ERROR
        _log.log(level, "an update of an outbox row was ignored: rows of an outbox table are only inserted and deleted")

    def _route_record(
        self, record: SourceRecord, event: dict[str, Any], after: dict[str, Any], row: _OutboxRow
    ) -> SourceRecord:
        payload_field = row.fields.get(self._payload)
        if payload_field is None:
            raise Skippable(f"Unable to find payload field {self._payload} in event")
        timestamp = self._read_time(event, after, row)
        event_id, id_schema = _read_value(after, row, self._id)
        payload, payload_schema = _read_value(after, row, self._payload)
        if self._expand:
            payload, payload_schema = self._expand_payload(payload, payload_schema)
        if self._in_envelope:
            _of_type(
                after, row, self._route_by, Type.STRING
            )  # is complained of before anything that follows, as in Debezium
        headers = [Header("id", event_id, id_schema)]
        partition: int | None = None
        extra: dict[str, Any] = {}
        for item in self._additional:
            if not self._strict and item.field not in row.fields:
                continue
            if item.placement == "partition":
                partition = _of_type(after, row, item.field, Type.INT32)
                continue
            value, schema = _read_value(after, row, item.field)
            if item.placement == "header":
                headers.append(Header(item.alias, value, schema))
            else:
                extra[item.alias] = value
        key, key_schema = _read_value(after, row, self._key)
        route = _of_type(after, row, self._route_by, Type.STRING)
        if route is None:
            raise Skippable(f"the field {self._route_by} of an outbox row is null: it must tell the topic")
        result = copy_record(record)
        result.topic = self._pattern.sub(self._replacement, route, count=1) if self._pattern.fullmatch(route) else route
        result.partition = partition
        result.key, result.key_schema = key, key_schema
        result.timestamp = timestamp
        result.headers = (*record.headers, *headers)
        if self._tombstones and _is_empty(payload):
            result.value, result.value_schema = None, None
        elif self._in_envelope:
            version = None if self._version is None else _of_type(after, row, self._version, Type.INT32)
            result.value = {"payload": payload, **extra}
            result.value_schema = self._envelope_schema(payload_schema, row, version, route)
        else:
            result.value, result.value_schema = payload, payload_schema
        return result

    def _read_time(self, event: dict[str, Any], after: dict[str, Any], row: _OutboxRow) -> int | None:
        """The message's timestamp in milliseconds."""
        processed: int | None = event.get("ts_ms")
        if self._timestamp is None:
            return processed
        field = row.fields.get(self._timestamp)
        if field is None:
            raise Skippable(f"Unable to find timestamp field {self._timestamp} in event")
        value = _of_type(after, row, self._timestamp, Type.INT64)
        if value is None:
            return processed
        units = _PER_MS.get(field.schema.name or "")
        if units is None:
            kind = field.schema.name or f"{field.schema.type.name} (without logical schema name)"
            raise Skippable(f"Unsupported field type {kind} for event timestamp")
        return int(value // units if value >= 0 else -(-value // units))  # Java divides towards zero

    def _expand_payload(self, payload: Any, schema: Schema) -> tuple[Any, Schema]:
        if not isinstance(payload, str):
            if payload is not None:
                _log.warning("an outbox payload can't be expanded: it is no string")
            return payload, schema
        try:
            value, expanded = expand_json(payload, self._payload, keep_nulls=self._keep_nulls, names=self._names)
        except NotExpandable as error:
            _log.warning("an outbox payload was not expanded: %s", error)
            return payload, schema
        # The same object for equal schemas, so that converters find what they have compiled for it.
        cached = self._expanded.get(expanded)
        if cached is None:
            cached = expanded
            remember(self._expanded, expanded, expanded)
        return value, cached

    def _envelope_schema(self, payload: Schema, row: _OutboxRow, version: int | None, route: str) -> Schema:
        cache_key = payload, row.schema, version, route
        envelope = self._schemas.get(cache_key)
        if envelope is None:
            fields = [Field("payload", payload)]
            for item in self._in_envelope:
                if item.field not in row.fields:
                    continue
                if any(field.name == item.alias for field in fields):
                    raise Skippable(f"Cannot create field because of field name duplication {item.alias}")
                fields.append(Field(item.alias, row.fields[item.field].schema))
            head, dot, tail = (row.schema.name or "").rpartition(".")
            name = f"{head}{dot}{route}.{tail}" if row.schema.name is not None else route
            envelope = Schema(Type.STRUCT, name=name, version=version, fields=tuple(fields))
            remember(self._schemas, cache_key, envelope)
        return envelope


def _describe_row(schema: Schema | None) -> _OutboxRow | None:
    """Return the derived data of a schema of change events; None for other schemas, whose records pass unchanged."""
    if schema is None or schema.name is None or not schema.name.endswith(".Envelope"):
        return None
    after = schema.field("after")
    if after is None or not is_struct(after.schema):
        raise Skippable("Unknown field: after")
    return _OutboxRow(schema, after.schema, {field.name: field for field in after.schema.fields})


def _read_value(after: dict[str, Any], row: _OutboxRow, name: str) -> tuple[Any, Schema]:
    """A field's value, its default for a null, with its schema."""
    field = row.fields.get(name)
    if field is None:
        raise Skippable(f"{name} is not a valid field name")
    value = after.get(name)
    return (field.schema.default if value is None else value), field.schema


def _of_type(after: dict[str, Any], row: _OutboxRow, name: str, kind: Type) -> Any:
    """A field's value of a type, without the default that its schema may have for a null."""
    _, schema = _read_value(after, row, name)
    if schema.type is not kind:
        raise Skippable(f"Field '{name}' is not of type {kind.name}")
    return after.get(name)


def _is_empty(payload: Any) -> bool:
    return payload is None or (isinstance(payload, str) and not payload.strip("".join(map(chr, range(33)))))
