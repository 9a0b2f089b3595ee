"""Events of ``change_streams`` as bytes: in every form that a job reads, cut into batches, some records twice."""

from __future__ import annotations

import base64
import datetime as dt
import json
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from connectors.schema import Schema, Type
from connectors.schema import struct as struct_schema
from tests.support.change_streams import Event, Structure, key_schema, row_schema, wire_row
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.schema import AvroSettings, avro_text
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

PARTITIONS: Final = 2
#: How ``source`` orders changes.
ORDERS: Final = ("binlog", "lsn", "ums_id", "write_time")
_STRING, _LONG = Schema(Type.STRING, optional=True), Schema(Type.INT64, optional=True)
_SOURCE: Final = {
    "connector": _STRING,
    "db": _STRING,
    "table": _STRING,
    "file": _STRING,
    "pos": _LONG,
    "row": Schema(Type.INT32, optional=True),
    "lsn": _LONG,
    "ums_id": _LONG,
    "ts_us": _LONG,
    "ts_ms": _LONG,
}
_FLAT: Final = {"__op": _STRING, "__deleted": _STRING, "__source_ums_id": _LONG, "__source_ts_ms": _LONG}
_UMS_SYSTEM: Final = (("ums_id_", "long"), ("ums_ts_", "datetime"), ("ums_op_", "string"), ("ums_uid_", "string"))
_UMS_OPS: Final = {"c": "i", "r": "i", "u": "u", "d": "d"}


@dataclass(frozen=True, slots=True)
class Message:
    """A record of a topic, and what it says."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes
    events: tuple[Event, ...]


def order_source(order: str, number: int) -> dict[str, Any]:
    """The members of ``source`` that order a change."""
    match order:
        case "binlog":
            file, position = divmod(number, 50)
            return {"connector": "mysql", "file": f"b.{file + 1:06d}", "pos": position // 3 * 30, "row": position % 3}
        case "lsn":
            return {"connector": "postgresql", "lsn": number * 8}
        case "ums_id":
            return {"connector": "millrace", "ums_id": number}
    return {"connector": "scylla", "ts_us": 1_700_000_000_000_000 + number}


def order_number(form: str, order: str, number: int) -> int:
    """``ums_id_`` of a change, as the documentation has it."""
    if form not in ("json", "schemas", "avro"):
        return number
    match order:
        case "binlog":
            file, position = divmod(number, 50)
            return (file + 1) * 10**12 + position // 3 * 30 + position % 3
        case "lsn":
            return number * 8
        case "ums_id":
            return number
    return 1_700_000_000_000_000 + number


@dataclass(slots=True)
class MessageForm:
    """Writes events as one form.

    Args:
        name: json, schemas, avro, flat, flat_schemas, flat_avro or ums.
        order: one of ``ORDERS``.
        topic: where to; flat rows are in a topic for each table.
        moves: whether records' keys lack the last column of the table's key, which the job declares.
        before: whether the job asks for rows before an update.
    """

    name: str
    order: str
    topic: str
    moves: bool = False
    before: bool = False
    schemas: dict[int, str] = field(default_factory=dict)
    _encoders: dict[Any, Callable[[Any], bytes | None]] = field(default_factory=dict)
    _ids: dict[str, int] = field(default_factory=dict)

    @property
    def flat(self) -> bool:
        """Whether values are rows."""
        return self.name.startswith("flat")

    def namespace(self, table: str) -> str:
        """The table's name in jobs."""
        return self.topic_of(table) if self.flat else f"shop.{table}"

    def topic_of(self, table: str) -> str:
        """The topic of a table."""
        return f"{self.topic}.{table}" if self.flat else self.topic

    def options(self, structures: Sequence[Structure]) -> dict[str, str]:
        """The options of a job that reads it."""
        topics = sorted({self.topic_of(structure.table) for structure in structures})
        source = "ums" if self.name == "ums" else "plain" if self.flat else "debezium"
        options = {"source.format": source, "source.topics": ",".join(topics)}
        if self.name.endswith("avro"):
            options |= {
                "source.value.encoding": "avro",
                "source.key.encoding": "avro",
                "source.schema.registry.url": "http://127.0.0.1:1",
            }
        if self.name == "ums":
            options["source.key.encoding"] = "bytes"
        if self.name == "ums" or self.moves:
            prefix = "source.key.columns." + ("mysql.s." if self.name == "ums" else "")
            options |= {f"{prefix}shop.{part.table}": ",".join(part.keys) for part in structures}
        if self.before:
            options["source.before.rows"] = "true"
        if source == "debezium":
            options["source.truncates"] = "ignore"
        return options

    def write(self, events: Sequence[Event]) -> list[Message]:
        """The messages of events, in order."""
        if self.name == "ums":
            return self._write_ums(events)
        return [self._write_event(event) for event in events if event.op != "t" or not self.flat]

    def _write_event(self, event: Event) -> Message:
        structure = event.structure
        names = list(structure.keys)[:-1] if self.moves else list(structure.keys)
        key = {} if event.op == "t" else {name: structure.keys[name].wire(event.key[name]) for name in names}
        return Message(
            self.topic_of(structure.table),
            zlib.crc32(repr(list(key.values())).encode()) % PARTITIONS,
            self._encode(key_schema(structure, names), key) if key else None,
            (self._flat_value if self.flat else self._envelope)(event),
            (event,),
        )

    def _envelope(self, event: Event) -> bytes:
        structure = event.structure
        row = row_schema(structure)
        source = {"db": "shop", "table": structure.table, "ts_ms": event.number} | order_source(
            self.order, event.number
        )
        value = {
            "before": wire_row(structure, event.before),
            "after": wire_row(structure, event.after),
            "source": source,
            "op": event.op,
            "ts_ms": event.number,
        }
        members = {
            "before": row,
            "after": row,
            "source": struct_schema("Source", _SOURCE),
            "op": Schema(Type.STRING),
            "ts_ms": _LONG,
        }
        return self._encode(struct_schema(f"s.shop.{structure.table}.Envelope", members), value)

    def _flat_value(self, event: Event) -> bytes:
        structure = event.structure
        row = wire_row(structure, event.after or event.before or event.key)
        facts = {
            "__op": event.op,
            "__deleted": str(event.op == "d").lower(),
            "__source_ums_id": event.number,
            "__source_ts_ms": event.number,
        }
        fields = {member.name: member.schema for member in row_schema(structure).fields}
        return self._encode(struct_schema(f"{structure.table}.Row", fields | _FLAT), (row or {}) | facts)

    def _encode(self, schema: Schema, value: Any) -> bytes:
        if self.name in ("json", "flat"):
            return json.dumps(value, separators=(",", ":")).encode()
        if schema not in self._encoders:
            self._encoders[schema] = self._make_encoder(schema)
        encoded = self._encoders[schema](value)
        assert encoded is not None
        return encoded

    def _make_encoder(self, schema: Schema) -> Callable[[Any], bytes | None]:
        if not self.name.endswith("avro"):
            return JsonConverter({"schemas.enable": "true"}).encoder(self.topic, schema)
        text = avro_text(schema, AvroSettings())
        number = self._ids.setdefault(text, len(self._ids) + 1)
        self.schemas[number] = text
        return compile_avro(schema, AvroSettings(), b"\0" + number.to_bytes(4, "big"))

    def _write_ums(self, events: Sequence[Event]) -> list[Message]:
        """Changes of one table that follow each other are in one message."""
        messages: list[Message] = []
        for event in events:
            if event.op == "t":
                continue
            partition = zlib.crc32(event.structure.table.encode()) % PARTITIONS
            last = messages[-1] if messages else None
            together: tuple[Event, ...] = (event,)
            if last is not None and last.events[0].structure is event.structure and len(last.events) < 3:
                together = (*messages.pop().events, event)
            messages.append(Message(self.topic, partition, None, ums_value(together), together))
        return messages


def ums_value(events: Sequence[Event]) -> bytes:
    """A message of UMS with the rows of events of one structure."""
    structure = events[0].structure
    kinds = structure.all_columns
    fields = [{"name": name, "type": kind, "nullable": False} for name, kind in _UMS_SYSTEM]
    fields += [{"name": name, "type": kind.ums, "nullable": True} for name, kind in kinds.items()]
    rows = []
    for event in events:
        images = [(_UMS_OPS[event.op], event.after or event.before or event.key)]
        if event.op == "u" and event.before is not None:
            images.insert(0, ("b", event.before))
        for op, row in images:
            time = (dt.datetime(2026, 1, 1) + dt.timedelta(seconds=event.number)).isoformat(" ")  # noqa: DTZ001
            system = [str(event.number), time, op, f"{event.number}-{op}"]
            rows.append({"tuple": [*system, *(_ums_text(kind.ums, row.get(name)) for name, kind in kinds.items())]})
    namespace = f"mysql.s.shop.{structure.table}.{structure.number}.0.0"
    message = {
        "protocol": {"type": "data_initial_data" if events[0].op == "r" else "data_increment_data"},
        "schema": {"namespace": namespace, "fields": fields},
        "payload": rows,
    }
    return json.dumps(message).encode()


def _ums_text(kind: str, value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value) if kind != "datetime" else value.isoformat(" ")


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """Records as a job gets them: (topic, partition, offset, message), and their ranges."""

    records: tuple[tuple[str, int, int, Message], ...]
    ranges: dict[tuple[str, int], tuple[int, int]]


def repeat_messages(chance: random.Random, messages: Sequence[Message]) -> list[Message]:
    """The messages, some of them again and late: a connector that was killed sends a part of them twice."""
    result = list(messages)
    for _ in range(chance.randrange(3)):
        begin = chance.randrange(len(messages))
        at = chance.randrange(begin, len(result) + 1)
        result[at:at] = messages[begin : begin + chance.randrange(1, 8)]
    return result


def cut_batches(chance: random.Random, messages: Sequence[Message], count: int) -> list[StreamBatch]:
    """At most ``count`` batches of the messages, at random points."""
    cuts = sorted(chance.randrange(len(messages) + 1) for _ in range(count - 1))
    ends: dict[tuple[str, int], int] = {}
    batches = []
    for first, last in zip([0, *cuts], [*cuts, len(messages)], strict=True):
        records: list[tuple[str, int, int, Message]] = []
        ranges: dict[tuple[str, int], tuple[int, int]] = {}
        for message in messages[first:last]:
            where = (message.topic, message.partition)
            offset = ends.get(where, 0)
            ends[where] = offset + 1
            records.append((*where, offset, message))
            ranges[where] = (ranges.get(where, (offset, 0))[0], offset + 1)
        if records:
            batches.append(StreamBatch(tuple(records), ranges))
    return batches
