"""Reads JSON envelopes and flat rows into structs, by one schema. Runs in Python workers; no Spark calls."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import Skippable
from connectors.formats.names import fits_struct
from spark_jobs.contract import SYSTEM_COLUMNS
from spark_jobs.rows.shards import logical_name
from spark_jobs.sources.layout import DATABASES, TABLES
from spark_jobs.sources.records.columns import json_type, make_array_builder, read_floats_as, record_type

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from spark_jobs.contract import TableSchema
    from spark_jobs.rows.shards import Shard
    from spark_jobs.sources.layout import RecordLayout
    from spark_jobs.sources.records.flat import Flat

#: What separates an envelope's schema from its payload, as Java's JsonConverter and ours write it.
PAYLOAD: Final = b',"payload":'
#: How an envelope with a schema begins.
SCHEMA: Final = b'{"schema":'
_WHOLE_NUMBERS: Final = frozenset((int, type(None)))
NULL: Final = msgspec.Raw(b"null")
#: What reading a record raises.
BAD: Final = (msgspec.DecodeError, ValueError, ArithmeticError, TypeError, Skippable, AttributeError, KeyError)


class ValueKind(Enum):
    """The kinds of record values."""

    SCHEMA = "schema"  # an envelope with a schema of its own
    PLAIN = "plain"  # JSON without a schema
    BAD = "bad"  # no JSON object


class RecordProbe(msgspec.Struct, gc=False):
    """Enough of a JSON record to tell what it is."""

    schema: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_probe: Final = msgspec.json.Decoder(RecordProbe)


def classify_value(value: bytes) -> tuple[ValueKind, bytes]:
    """The kind of ``value``, and the text that stands for its schema: as it begins, where it begins as our converters write."""
    if value.startswith(SCHEMA):
        at = value.find(PAYLOAD)
        if at >= 0:
            return ValueKind.SCHEMA, value[: at + len(PAYLOAD)]
    try:
        probe = _probe.decode(value)
    except BAD:
        return ValueKind.BAD, b""
    if isinstance(probe.schema, msgspec.Raw) and isinstance(probe.payload, msgspec.Raw):
        return ValueKind.SCHEMA, bytes(probe.schema)
    return ValueKind.PLAIN, b""


class EnvelopeSource(msgspec.Struct, gc=False):
    """The members of an envelope's ``source`` that tasks read."""

    connector: str | None = None
    ums_id: int | None = None
    lsn: int | None = None
    file: str | None = None
    pos: int | None = None
    row: int | None = None
    ts_us: int | None = None
    ts_ms: int | None = None
    ts_ns: int | None = None
    keyspace: str | None = None
    keyspace_name: str | None = None
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    table_name: str | None = None
    collection: str | None = None
    logical_db: str | None = None
    logical_table: str | None = None
    database_partition: int | None = None
    table_partition: int | None = None


def namespace_of(source: Any, topic: str) -> str:
    """``<database>[.<schema>].<table>`` from an envelope's source (a struct or a dict), or the topic.

    Of a shard: the name of the logical table.
    """
    logical = logical_name(source)
    if logical is not None:
        return logical
    get: Callable[[str], Any] = source.get if isinstance(source, dict) else lambda name: getattr(source, name, None)
    table = next((get(name) for name in TABLES if get(name)), None)
    if not table:
        return topic
    database = next((get(name) for name in DATABASES if get(name)), None)
    schema = get("schema")
    return ".".join(str(part) for part in (database, schema if schema != database else None, table) if part)


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """Everything that a task needs to decode one table; pickled with the task.

    Attributes:
        schema: the table.
        layouts: by the text that begins a record up to and with ``PAYLOAD`` (or of its schema); ``b""`` for records without a
            schema.
        before: whether rows before an update are wanted.
        truncates: whether a truncate is ignored (else it is a bad record).
        namespace: this table's, where a topic has records without a schema: those of other tables are left out.
        tombstones: whether a record without a value is a delete (flat rows).
        foreign: strings as in ``layouts`` that belong to other tables.
        separate: whether rows begin with the numbers of their shard.
        shard: the only one that records may be of; None: any.
        moves: whether an update may change the key: it is a delete of the old row then, and an insert.
    """

    schema: TableSchema
    layouts: dict[bytes, RecordLayout]
    before: bool = False
    truncates: bool = False
    namespace: str | None = None
    foreign: frozenset[bytes] = frozenset()
    tombstones: bool = False
    separate: bool = False
    shard: Shard | None = None
    moves: bool = False


def _flat_members(flat: Flat) -> dict[str, tuple[str, Any]]:
    """The members of a flat row that say what happened to it: attribute -> name and type."""
    members = {
        "m_op": (flat.op, str | None),
        "m_deleted": (flat.deleted, bool | str | None),
        "m_time": (flat.time, int | str | None),
        "m_order": (flat.order, int | None),
    }
    return {attribute: (name, kind) for attribute, (name, kind) in members.items() if name}


class PayloadReader:
    """Reads payloads of one layout.

    Args:
        layout: see ``RecordLayout``.
        plan: of the table.
        nulls: given to read strictly: an image with any other member than the columns and these, which have to be null, can't
            be read; images before a change are read, too; a whole number's column also takes fractions, for the caller to see.
    """

    def __init__(self, layout: RecordLayout, plan: DecodePlan, *, nulls: Collection[str] | None = None) -> None:
        self.layout = layout
        strict = nulls is not None
        key_names = [column.name for column in plan.schema.key]
        fields = {item.name: item.schema for item in layout.row}
        self.lacks_key = [name for name in key_names if name not in fields]
        fields |= {item.name: item.schema for item in layout.key if item.name in self.lacks_key}
        self.flat = layout.flat
        #: Records without a schema may have any source.
        self.names_shard = layout.sharded or (layout.envelope and not layout.members)
        if self.flat is not None:
            fields = {name: schema for name, schema in fields.items() if name not in self.flat.hidden}
        members_of_flat = {} if self.flat is None else _flat_members(self.flat)
        #: Of those, the ones that are no columns; one for each member: a time that orders changes, too, is read as a number.
        attributes = {name: signal for signal, (name, _) in members_of_flat.items() if name not in fields}
        signals = {signal: members_of_flat[signal] for signal in attributes.values()}
        self.attribute = {name: f"c{index}" for index, name in enumerate(fields)}
        #: Attributes that say what happened: their own, or a column's.
        self.signal = {
            signal: attributes[name] if name in attributes else self.attribute[name]
            for signal, (name, _) in members_of_flat.items()
        }
        self.fields = fields
        kinds = {attribute: json_type(fields[name]) for name, attribute in self.attribute.items()}
        kinds |= {signal: kind for signal, (_, kind) in signals.items()}
        if strict:
            kinds = {name: kind | float if kind == int | None else kind for name, kind in kinds.items()}
        members = {attribute: name for name, attribute in self.attribute.items()}
        members |= {signal: name for signal, (name, _) in signals.items()}
        self._make_row_types(members, kinds, nulls)
        self._make_decoders(strict=strict)
        self.key_attributes = [self.attribute[name] for name in key_names]
        self._strict = strict
        #: Takes values that have to be whole numbers.
        self._whole = [attrgetter(name) for name, kind in kinds.items() if strict and kind == int | float | None]
        #: Per column of the table: what takes it from a row and what makes its array; None where this version lacks it.
        self.builders = [
            (
                attrgetter(self.attribute[column.name]),
                make_array_builder(
                    fields[column.name], column.type, f"Table {plan.schema.namespace}, column {column.name}"
                ),
            )
            if column.name in fields
            else None
            for column in plan.schema.columns
        ]

    def _make_row_types(self, members: dict[str, str], kinds: dict[str, Any], nulls: Collection[str] | None) -> None:
        """Make the class of rows, and the type that they are read as.

        Args:
            members: attribute -> name in JSON.
            kinds: attribute -> type.
            nulls: see the class.
        """
        # A row of JSON without a schema may have any member; one with the name of a system column would be lost unseen.
        used = {*members.values(), *(self.flat.hidden if self.flat is not None else ())}
        reserved = [name for name in SYSTEM_COLUMNS if name not in used]
        empty = [name for name in nulls or () if name not in reserved]
        # msgspec's structs refuse some names of members; such rows are read as dicts, which is slower.
        plain = all(map(fits_struct, members.values()))
        #: Whether its structs can be made of all names of members.
        self._plain = plain
        self._members = {} if plain else {name: attribute for attribute, name in members.items()}
        self.row_type = msgspec.defstruct(
            "Row",
            [
                *((attribute, kind, None) for attribute, kind in kinds.items()),
                *((name, None, None) for name in reserved),
                *((f"n{number}", None, None) for number in range(len(empty))),
            ],
            rename={**members, **{f"n{number}": name for number, name in enumerate(empty)}} if plain else None,
            gc=False,
            forbid_unknown_fields=nulls is not None,
        )
        self._read_type: Any = self.row_type
        if not plain:
            named = {members[attribute]: kind for attribute, kind in kinds.items()}
            self._read_type = record_type("Row", {**named, **dict.fromkeys(reserved)})

    def _make_decoders(self, *, strict: bool) -> None:
        self._payload: Any = (
            self._read_type
            if self.flat is not None
            else msgspec.defstruct(
                "Payload",
                [
                    ("op", str),
                    ("after", self._read_type | None, None),
                    ("before", self._read_type | None, None) if strict else ("before", msgspec.Raw, NULL),
                    ("source", EnvelopeSource, msgspec.field(default_factory=EnvelopeSource)),
                    *((name, msgspec.Raw | None, None) for name in (("schema", "payload") if strict else ())),
                ],
                gc=False,
            )
        )
        floats = read_floats_as(self.fields.values())
        self._any = msgspec.json.Decoder(float_hook=floats)
        self._many = msgspec.json.Decoder(self._payload, float_hook=floats)
        self._wrapped: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
            msgspec.defstruct("Wrapped", [("payload", self._payload)], gc=False), float_hook=floats
        )
        self._row = msgspec.json.Decoder(self._read_type | None, float_hook=floats)

    def payloads(self, prefix: bytes, values: Sequence[bytes]) -> list[Any] | None:
        """All payloads of ``values``, which all begin with ``prefix``; None where one of them can't be read this way."""
        size = len(prefix)
        return self.payloads_behind([value[size:] for value in values] if prefix else values, wrapped=bool(prefix))

    def payloads_behind(self, values: Sequence[bytes], *, wrapped: bool) -> list[Any] | None:
        """All payloads of ``values``; None where one of them can't be read this way.

        Args:
            values: payloads, or what follows the schema if ``wrapped``: the payload and a brace.
            wrapped: see ``values``.
        """
        if wrapped:
            json_lines = b'{"payload":' + b'\n{"payload":'.join(values)
            decoder = self._wrapped
        else:
            json_lines = b"\n".join(values)
            decoder = self._many
        # A record is a line: a raw line feed inside of one would let two bad records pass for two good ones.
        if json_lines.count(b"\n") != len(values) - 1:
            return None
        try:
            decoded = decoder.decode_lines(json_lines)
        except BAD:
            return None
        if len(decoded) != len(values):
            return None
        payloads = [item.payload for item in decoded] if wrapped else decoded
        return [self._open_payload(item) for item in payloads] if self._members else payloads

    def has_expected_types(self, payloads: Sequence[Any]) -> bool:
        """Whether strictly read payloads are envelopes without a schema whose values say no other types than the columns'."""
        if not self._strict:
            return True
        if not self._plain:  # dicts are not read strictly
            return False
        if any([item.schema is not None and item.payload is not None for item in payloads]):  # noqa: C419 - a list is faster
            return False
        images = [image for item in payloads for image in (item.after, item.before) if image is not None]
        return all(_WHOLE_NUMBERS.issuperset(map(type, map(value, images))) for value in self._whole)

    def payload(self, value: bytes, *, wrapped: bool) -> Any:
        """The payload of one record: of the member ``payload`` if ``wrapped``, else the whole value."""
        return self._open_payload(self._wrapped.decode(value).payload if wrapped else self._many.decode(value))

    def image(self, value: Any) -> Any:
        """The row in an image, or in its text; None for null."""
        return self._to_struct(self._row.decode(value)) if isinstance(value, msgspec.Raw) else value

    def _open_payload(self, payload: Any) -> Any:
        """``payload`` with its row as a ``row_type``."""
        if not self._members:
            return payload
        if self.flat is not None:
            return self._to_struct(payload)
        payload.after = self._to_struct(payload.after)
        return payload

    def _to_struct(self, row: Any) -> Any:
        if not self._members or row is None:
            return row
        return self.row_type(**{self._members[name]: value for name, value in row.items() if name in self._members})

    def has_moved(self, old: Any, row: Any) -> bool:
        """Whether an update from ``old`` to ``row`` has changed the key; not where ``old`` lacks a part of it."""
        keys = [(getattr(old, name), getattr(row, name)) for name in self.key_attributes]
        return all(before is not None for before, _ in keys) and any(before != after for before, after in keys)

    def fill_key(self, row: Any, key: bytes | None, *, missing_only: bool) -> None:
        """Set the key columns of ``row`` from the record's key."""
        if key is None:
            return
        decoded = self._any.decode(key)
        if isinstance(decoded, dict) and decoded.keys() == {"schema", "payload"}:
            decoded = decoded["payload"]
        if not isinstance(decoded, dict):
            return
        key_values = {name: item for name, item in decoded.items() if name in self.attribute}
        converted = self._to_struct(msgspec.convert(key_values, self._read_type))
        for attribute in self.key_attributes:
            if not missing_only or getattr(row, attribute) is None:
                setattr(row, attribute, getattr(converted, attribute))
