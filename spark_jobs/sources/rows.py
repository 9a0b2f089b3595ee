"""Decodes JSON records in a Spark task: bytes in, Arrow columns of one table out. Runs in Python workers; no Spark calls.

The fast way takes all records of an Arrow batch at once. Where they begin with one known schema text (or have none), their
payloads are joined to one JSON array and read by one typed msgspec call. Records that stop it are read one by one, so that the
bad one is reported with its position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from connectors.errors import Fatal, Skippable
from connectors.formats.names import fits_struct
from spark_jobs.contract import SYSTEM_COLUMNS
from spark_jobs.shards import LOGICAL, NUMBERS, logical_name, second_shard, shard_of
from spark_jobs.sources.columns import arrow_type, builder, iso_timestamp, json_type, record_type
from spark_jobs.sources.flat import Flat, op_of
from spark_jobs.sources.layout import DATABASES, TABLES
from spark_jobs.sources.misfits import find_misfit
from spark_jobs.sources.system_columns import KAFKA_FIELDS, SYSTEM_TYPES, system_arrays

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from spark_jobs.contract import TableSchema
    from spark_jobs.shards import Shard
    from spark_jobs.sources.layout import Layout

#: What separates an envelope's schema from its payload, as Java's JsonConverter and ours write it.
PAYLOAD: Final = b',"payload":'
#: How an envelope with a schema begins.
SCHEMA: Final = b'{"schema":'
TRUNCATE: Final = (
    "The event is a TRUNCATE, which empties the table; no sink takes it as a change of rows. Empty the target by "
    "hand and skip the event, or set source.truncates=ignore."
)
NO_AFTER: Final = (
    "The event has no row after the change (after is null), so there is nothing to write. Let the connector send it "
    "(Scylla: cdc.include.after=full)."
)
NO_KEY: Final = (
    ", in the row and in the record's key. Such an event of Scylla is of a static column: use the materializer "
    "(output.format=partition-update, transform.type=materialize), which gives whole rows."
)
_WHOLE_NUMBERS: Final = frozenset((int, type(None)))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_NULL: Final = msgspec.Raw(b"null")
_OPS: Final = {"c": "i", "r": "i", "u": "u", "d": "d"}
_BAD: Final = (msgspec.DecodeError, ValueError, OverflowError, TypeError, Skippable, AttributeError, KeyError)


#: What of a source names a table and its shard.
_names: Final = attrgetter(*dict.fromkeys((*LOGICAL, *NUMBERS, *TABLES, *DATABASES)))
#: Takes (topic, partition, offset, key, value, error) of a bad record.
Report = Callable[[str, int, int, "bytes | None", "bytes | None", Exception], None]


class Kind(Enum):
    """What a record's value is."""

    SCHEMA = "schema"  # an envelope with a schema of its own
    PLAIN = "plain"  # JSON without a schema
    BAD = "bad"  # no JSON object


class Probe(msgspec.Struct, gc=False):
    """Enough of a JSON record to tell what it is."""

    schema: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_probe: Final = msgspec.json.Decoder(Probe)


def classify(value: bytes) -> tuple[Kind, bytes]:
    """What ``value`` is, and the text that stands for its schema: as it begins, where it begins as our converters write."""
    if value.startswith(SCHEMA):
        at = value.find(PAYLOAD)
        if at >= 0:
            return Kind.SCHEMA, value[: at + len(PAYLOAD)]
    try:
        probe = _probe.decode(value)
    except _BAD:
        return Kind.BAD, b""
    if isinstance(probe.schema, msgspec.Raw) and isinstance(probe.payload, msgspec.Raw):
        return Kind.SCHEMA, bytes(probe.schema)
    return Kind.PLAIN, b""


class Source(msgspec.Struct, gc=False):
    """What tasks read of an envelope's ``source``."""

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


class Change(NamedTuple):
    """One decoded record, or one row of it."""

    row: Any
    op: str
    source: Any
    place: int


class Changes(NamedTuple):
    """Rows of decoded records, one list per member of ``Change``."""

    rows: list[Any]
    ops: list[str]
    sources: list[Any]
    places: list[int]

    @classmethod
    def of(cls, changes: Sequence[Change]) -> Changes:
        """The same as lists."""
        return cls(*(list(each) for each in zip(*changes, strict=True))) if changes else cls([], [], [], [])

    def add(self, other: Changes) -> None:
        """Append the rows of ``other``."""
        self.rows.extend(other.rows)
        self.ops.extend(other.ops)
        self.sources.extend(other.sources)
        self.places.extend(other.places)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a task needs to decode one table; pickled with the task.

    Attributes:
        schema: the table.
        layouts: by the text that begins a record up to and with ``PAYLOAD`` (or of its schema); ``b""`` for records without a
            schema.
        before: whether rows before an update are wanted.
        truncates: whether a truncate is ignored (else it is a bad record).
        namespace: this table's, where a topic has records without a schema: those of other tables are left out.
        tombstones: whether a record without a value is a delete (flat rows).
        foreign: texts as in ``layouts`` that belong to other tables.
        separate: whether rows begin with the numbers of their shard.
        shard: the only one that records may be of; None: any.
    """

    schema: TableSchema
    layouts: dict[bytes, Layout]
    before: bool = False
    truncates: bool = False
    namespace: str | None = None
    foreign: frozenset[bytes] = frozenset()
    tombstones: bool = False
    separate: bool = False
    shard: Shard | None = None


class _Reader:
    """Reads payloads of one layout.

    Args:
        layout: see ``Layout``.
        plan: of the table.
        nulls: given to read strictly: an image with any other member than the columns and these, which have to be null, can't
            be read; images before a change are read, too; a whole number's column also takes fractions, for the caller to see.
    """

    def __init__(self, layout: Layout, plan: Plan, *, nulls: Collection[str] | None = None) -> None:
        self.layout = layout
        strict = nulls is not None
        key_names = [column.name for column in plan.schema.key]
        fields = {each.name: each.schema for each in layout.row}
        self.lacks_key = [name for name in key_names if name not in fields]
        fields |= {each.name: each.schema for each in layout.key if each.name in self.lacks_key}
        self.flat = layout.flat
        #: Records without a schema may have any source.
        self.names_shard = layout.sharded or (layout.envelope and not layout.members)
        marks: dict[str, tuple[str, Any]] = {}
        if self.flat is not None:
            fields = {name: schema for name, schema in fields.items() if name not in self.flat.hidden}
            wanted = {
                "m_op": (self.flat.op, str | None),
                "m_deleted": (self.flat.deleted, bool | str | None),
                "m_time": (self.flat.time, int | str | None),
                "m_order": (self.flat.order, int | None),
            }
            marks = {mark: (name, kind) for mark, (name, kind) in wanted.items() if name and name not in fields}
        names = list(fields)
        # A row of JSON without a schema may have any member; one with the name of a system column would be lost unseen.
        taken = {*names, *(name for name, _ in marks.values()), *(self.flat.hidden if self.flat is not None else ())}
        reserved = [name for name in SYSTEM_COLUMNS if name not in taken]
        self.attribute = {name: f"c{index}" for index, name in enumerate(names)}
        #: Attributes that say what happened: their own, or a column's.
        self.mark = (
            {
                mark: mark if mark in marks else self.attribute[name]
                for mark, name in (
                    ("m_op", layout.flat.op),
                    ("m_deleted", layout.flat.deleted),
                    ("m_time", layout.flat.time),
                    ("m_order", layout.flat.order),
                )
                if name
            }
            if layout.flat is not None
            else {}
        )
        self.fields = fields
        members = {
            **{self.attribute[name]: name for name in names},
            **{mark: name for mark, (name, _) in marks.items()},
        }
        kinds = {self.attribute[name]: json_type(fields[name]) for name in names}
        kinds |= {mark: kind for mark, (_, kind) in marks.items()}
        if strict:
            kinds = {name: kind | float if kind == int | None else kind for name, kind in kinds.items()}
        empty = [name for name in nulls or () if name not in reserved]
        # msgspec's structs refuse some names of members; such rows are read as dicts, which is slower.
        plain = all(map(fits_struct, members.values()))
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
            forbid_unknown_fields=strict,
        )
        self._read_type: Any = self.row_type
        if not plain:
            named = {members[attribute]: kind for attribute, kind in kinds.items()}
            self._read_type = record_type("Row", {**named, **dict.fromkeys(reserved)})
        self._payload: Any = (
            self._read_type
            if self.flat is not None
            else msgspec.defstruct(
                "Payload",
                [
                    ("op", str),
                    ("after", self._read_type | None, None),
                    ("before", self._read_type | None, None) if strict else ("before", msgspec.Raw, _NULL),
                    ("source", Source, msgspec.field(default_factory=Source)),
                    *((name, msgspec.Raw | None, None) for name in (("schema", "payload") if strict else ())),
                ],
                gc=False,
            )
        )
        self._many = msgspec.json.Decoder(self._payload)
        self._wrapped: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
            msgspec.defstruct("Wrapped", [("payload", self._payload)], gc=False)
        )
        self._row = msgspec.json.Decoder(self._read_type | None)
        #: Per column of the table: what takes it from a row and what makes its array; None where this version lacks it.
        self.builders = [
            (
                attrgetter(self.attribute[column.name]),
                builder(fields[column.name], column.type, f"Table {plan.schema.namespace}, column {column.name}"),
            )
            if column.name in fields
            else None
            for column in plan.schema.columns
        ]
        self.key_attributes = [self.attribute[name] for name in key_names]
        self._strict = strict
        #: Whether its structs can be made of all names of members.
        self._plain = plain
        #: Takes values that have to be whole numbers.
        self._whole = [attrgetter(name) for name, kind in kinds.items() if strict and kind == int | float | None]

    def payloads(self, prefix: bytes, values: Sequence[bytes]) -> list[Any] | None:
        """All payloads of ``values``, which all begin with ``prefix``; None where one of them can't be read this way."""
        size = len(prefix)
        return self.payloads_behind([value[size:] for value in values] if prefix else values, wrapped=bool(prefix))

    def payloads_behind(self, values: Sequence[bytes], *, wrapped: bool) -> list[Any] | None:
        """All payloads of ``values``; None where one of them can't be read this way.

        Args:
            values: payloads, or what stands behind the schema's text if ``wrapped``: the payload and a brace.
            wrapped: see ``values``.
        """
        if wrapped:
            text = b'{"payload":' + b'\n{"payload":'.join(values)
            decoder = self._wrapped
        else:
            text = b"\n".join(values)
            decoder = self._many
        # A record is a line: a raw line feed inside of one would let two bad records pass for two good ones.
        if text.count(b"\n") != len(values) - 1:
            return None
        try:
            found = decoder.decode_lines(text)
        except _BAD:
            return None
        if len(found) != len(values):
            return None
        payloads = [each.payload for each in found] if wrapped else found
        return [self._opened(each) for each in payloads] if self._members else payloads

    def has_expected_types(self, payloads: Sequence[Any]) -> bool:
        """Whether strictly read payloads are envelopes without a schema whose values say no other types than the columns'."""
        if not self._strict:
            return True
        if not self._plain:  # dicts are not read strictly
            return False
        if any([each.schema is not None and each.payload is not None for each in payloads]):  # noqa: C419 - a list is faster
            return False
        images = [image for each in payloads for image in (each.after, each.before) if image is not None]
        return all(_WHOLE_NUMBERS.issuperset(map(type, map(value, images))) for value in self._whole)

    def payload(self, value: bytes, *, wrapped: bool) -> Any:
        """The payload of one record: of the member ``payload`` if ``wrapped``, else the whole value."""
        return self._opened(self._wrapped.decode(value).payload if wrapped else self._many.decode(value))

    def image(self, value: Any) -> Any:
        """The row in an image, or in its text; None for null."""
        return self._struct(self._row.decode(value)) if isinstance(value, msgspec.Raw) else value

    def _opened(self, payload: Any) -> Any:
        """``payload`` with its row as a ``row_type``."""
        if not self._members:
            return payload
        if self.flat is not None:
            return self._struct(payload)
        payload.after = self._struct(payload.after)
        return payload

    def _struct(self, row: Any) -> Any:
        if not self._members or row is None:
            return row
        return self.row_type(**{self._members[name]: value for name, value in row.items() if name in self._members})

    def fill_key(self, row: Any, key: bytes | None, *, missing_only: bool) -> None:
        """Set the key columns of ``row`` from the record's key."""
        if key is None:
            return
        found = msgspec.json.decode(key)
        if isinstance(found, dict) and found.keys() == {"schema", "payload"}:
            found = found["payload"]
        if not isinstance(found, dict):
            return
        given = {name: item for name, item in found.items() if name in self.attribute}
        converted = self._struct(msgspec.convert(given, self._read_type))
        for attribute in self.key_attributes:
            if not missing_only or getattr(row, attribute) is None:
                setattr(row, attribute, getattr(converted, attribute))


class TableDecoder:
    """Decodes the records of one table; lives as long as a Spark task.

    Args:
        plan: see ``Plan``.
        report: takes (topic, partition, offset, key, value, error) of a bad record; may raise to stop the job.
        nulls: for ``decode_regular``: see ``_Reader``.
    """

    def __init__(self, plan: Plan, report: Report, *, nulls: Collection[str] | None = None) -> None:
        self._plan = plan
        self._report = report
        self._readers = {prefix: _Reader(layout, plan) for prefix, layout in plan.layouts.items()}
        if nulls is not None and b"" in plan.layouts:
            self._readers[b""] = _Reader(plan.layouts[b""], plan, nulls=nulls)
        self._types = [(column.name, arrow_type(column.type)) for column in plan.schema.columns]
        numbers = [(name, pa.int64()) for name in NUMBERS] if plan.separate else []
        #: The schema of rows.
        self.arrow = pa.schema([*numbers, *self._types, *SYSTEM_TYPES])
        self._last = next(iter(self._readers), b"")
        #: By what names it in a source, the topic in front: few, and asked for each record.
        self._namespaces: dict[tuple[Any, ...], str] = {}

    def decode(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of one batch of records (``RAW_COLUMNS`` without headers, in Kafka's order), in order."""
        values = batch.column("value").to_pylist()
        if self._plan.tombstones and None in values:
            yield from self._one_by_one(values, range(len(values)), batch)
            return
        present = [index for index, value in enumerate(values) if value is not None]  # others are tombstones
        if len(present) != len(values):
            values = [values[index] for index in present]
        if not values:
            return
        reader = self._common(values)
        payloads = reader.payloads(self._last, values) if reader is not None else None
        if reader is not None and payloads is not None:
            built = self._built(reader, payloads, present, batch)
            if built is not None:
                yield built
                return
        yield from self._one_by_one(values, present, batch)

    def decode_regular(self, prefix: bytes, bodies: Sequence[bytes], batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """One row per record, in order; None where a record is anything else than a change of a whole row of this table.

        Args:
            prefix: how values begin: one of the plan's texts.
            bodies: what stands behind that.
            batch: what ``decode`` gets, without values.
        """
        reader = self._readers[prefix]
        payloads = reader.payloads_behind(bodies, wrapped=bool(prefix))
        if payloads is None or not reader.has_expected_types(payloads):
            return None
        try:
            changes = self._regular(reader, payloads, range(len(payloads)))
            return None if changes is None else self._arrays(reader, changes, batch)
        except _BAD:
            return None

    def _common(self, values: Sequence[bytes]) -> _Reader | None:
        """The reader of all ``values``, if they begin alike."""
        first = values[0]
        for prefix, reader in self._readers.items():
            if prefix and first.startswith(prefix):
                self._last = prefix
                return reader if all([value.startswith(prefix) for value in values]) else None  # noqa: C419 - a list is faster
        if b"" in self._readers and not first.startswith(SCHEMA):
            self._last = b""
            return self._readers[b""]
        return None

    def _built(
        self, reader: _Reader, payloads: Sequence[Any], indexes: Sequence[int], batch: pa.RecordBatch
    ) -> pa.RecordBatch | None:
        """The rows of ``payloads``; None where one of them is bad."""
        try:
            changes = self._changes(reader, payloads, indexes, batch)
            return self._arrays(reader, changes, batch) if changes.rows else self._empty()
        except _BAD:
            return None

    def _one_by_one(
        self, values: Sequence[bytes | None], present: Sequence[int], batch: pa.RecordBatch
    ) -> Iterator[pa.RecordBatch]:
        """Runs of good records of one layout, in order; bad ones are reported."""
        run = Changes.of(())
        of: _Reader | None = None
        for value, index in zip(values, present, strict=True):
            try:
                if value is None:
                    reader = next(iter(self._readers.values()))
                    changes = Changes.of([self._tombstone(reader, index, batch)])
                else:
                    found = self._single(value)
                    if found is None:
                        continue
                    reader, payload = found
                    changes = self._changes(reader, [payload], [index], batch)
                if changes.rows:
                    self._arrays(reader, changes, batch)  # raises for values that no column takes
            except _BAD as error:
                if value is None or self._concerns(value, batch, index):
                    self._bad(batch, index, self._explained(value, error))
                continue
            if reader is not of and run.rows and of is not None:
                yield self._arrays(of, run, batch)
                run = Changes.of(())
            of = reader
            run.add(changes)
        if run.rows and of is not None:
            yield self._arrays(of, run, batch)

    def _single(self, value: bytes) -> tuple[_Reader, Any] | None:
        """One record's reader and payload; None for one of another table or one that the search for schemas has reported."""
        kind, text = classify(value)
        if kind is Kind.BAD:
            return None
        if kind is Kind.PLAIN:
            reader = self._readers.get(b"")
            if reader is None:
                return None
            return reader, reader.payload(value, wrapped=False)
        reader = self._readers.get(text)
        if reader is not None:
            if text.endswith(PAYLOAD):
                return reader, reader.payload(b'{"payload":' + value[len(text) :], wrapped=True)
            return reader, reader.payload(value, wrapped=True)
        if text in self._plan.foreign:
            return None
        raise Skippable(
            "The record's schema is none of those that the job found in this batch; report this as a defect."
        )

    def _explained(self, value: bytes | None, error: Exception) -> Exception:
        """The error for a bad record, with table, column and value where one value is to blame."""
        if value is None or isinstance(error, Skippable):
            return error
        kind, text = classify(value)
        reader = self._readers.get(text)
        if kind is Kind.BAD or reader is None:
            return error
        envelope, loose = reader.flat is None, kind is Kind.PLAIN
        return find_misfit(value, self._plan.schema, reader.fields, envelope=envelope, loose=loose) or error

    def _concerns(self, value: bytes, batch: pa.RecordBatch, index: int) -> bool:
        """Whether a bad record is to be reported here: not what the search for schemas has reported, nor another table's."""
        from spark_jobs.sources.kinds import subject

        topic = batch.column("topic")[index].as_py()
        try:
            kind, about = subject(value, topic, envelope=next(iter(self._readers.values())).flat is None)
        except Skippable:
            return False
        return kind is Kind.SCHEMA or self._plan.namespace is None or about == self._plan.namespace

    def _changes(
        self, reader: _Reader, payloads: Sequence[Any], indexes: Sequence[int], batch: pa.RecordBatch
    ) -> Changes:
        """The rows that come of ``payloads``, in order.

        Raises:
            Skippable: a record is no change of a row that can be told.
        """
        if reader.flat is not None:
            return Changes.of(
                [self._flat_change(reader, row, index, batch) for row, index in zip(payloads, indexes, strict=True)]
            )
        return self._regular(reader, payloads, indexes) or self._mixed(reader, payloads, indexes, batch)

    def _regular(self, reader: _Reader, payloads: Sequence[Any], indexes: Sequence[int]) -> Changes | None:
        """The rows of ``payloads`` if each is a whole row of this table; None if they have to be looked at one by one."""
        if self._plan.before:
            return None
        sources = [payload.source for payload in payloads]
        if reader is self._readers.get(b"") or reader.names_shard:
            named = dict(zip(map(_names, sources), sources, strict=True))
            expected, shard = self._plan.namespace, self._plan.shard if reader.names_shard else None
            if expected is not None and any(namespace_of(each, "") != expected for each in named.values()):
                return None
            if shard is not None and any(shard_of(each) != shard for each in named.values()):
                return None
        ops = [_OPS.get(payload.op) for payload in payloads]
        rows = [
            reader.image(payload.before) if op == "d" else payload.after
            for payload, op in zip(payloads, ops, strict=True)
        ]
        if None in ops or None in rows:
            return None
        for name in reader.key_attributes:
            if None in list(map(attrgetter(name), rows)):
                return None
        return Changes(rows, ops, sources, list(indexes))  # type: ignore[arg-type]  # none is None

    def _mixed(
        self, reader: _Reader, payloads: Sequence[Any], indexes: Sequence[int], batch: pa.RecordBatch
    ) -> Changes:
        """As ``_changes``, record by record."""
        result: list[Change] = []
        # A schema is of one table: only records without one may be of others.
        namespace = self._plan.namespace if reader is self._readers.get(b"") else None
        before_wanted = self._plan.before
        shard = self._plan.shard if reader.names_shard else None
        for payload, index in zip(payloads, indexes, strict=True):
            source = payload.source
            if namespace is not None and self._namespace(source, batch, index) != namespace:
                continue
            op = _OPS.get(payload.op)
            if op is None:
                if payload.op == "m" or (payload.op == "t" and self._plan.truncates):
                    continue
                raise Skippable(
                    TRUNCATE if payload.op == "t" else f"The event's op is {payload.op!r}; known are c, r, u, d, t, m."
                )
            if shard is not None and shard_of(source) != shard:
                raise Fatal(second_shard(self._plan.schema.namespace, shard, shard_of(source)))
            if op == "d":
                row = reader.image(payload.before) or reader.row_type()
            else:
                if before_wanted and op == "u" and payload.before != _NULL:
                    old = reader.image(payload.before)
                    if reader.lacks_key:
                        reader.fill_key(old, batch.column("key")[index].as_py(), missing_only=True)
                    result.append(Change(old, "b", source, index))
                row = payload.after
                if row is None:
                    raise Skippable(NO_AFTER)
            self._demand_key(reader, row, index, batch)
            result.append(Change(row, op, source, index))
        return Changes.of(result)

    def _namespace(self, source: Any, batch: pa.RecordBatch, index: int) -> str:
        topic = batch.column("topic")[index].as_py()
        named = (topic, *_names(source))
        found = self._namespaces.get(named)
        if found is None:
            found = self._namespaces[named] = namespace_of(source, topic)
        return found

    def _demand_key(self, reader: _Reader, row: Any, index: int, batch: pa.RecordBatch) -> None:
        """Fill what lacks in the row's key from the record's key; raises ``Skippable`` where it is not there either."""
        if None in [getattr(row, name) for name in reader.key_attributes]:
            reader.fill_key(row, batch.column("key")[index].as_py(), missing_only=True)
            lacking = [
                column.name
                for column, name in zip(self._plan.schema.key, reader.key_attributes, strict=True)
                if getattr(row, name) is None
            ]
            if lacking:
                raise Skippable(f"The key column {', '.join(lacking)} is null" + NO_KEY)

    def _flat_change(self, reader: _Reader, row: Any, index: int, batch: pa.RecordBatch) -> Change:
        flat, mark = reader.flat or Flat(), reader.mark
        op = op_of(
            getattr(row, mark["m_op"]) if flat.op else None, getattr(row, mark["m_deleted"]) if flat.deleted else None
        )
        time = getattr(row, mark["m_time"]) if flat.time else None
        micros = None
        if isinstance(time, str):
            micros = round((iso_timestamp(time) - _EPOCH) / _MICROSECOND)
        elif time is not None:
            micros = time * flat.up // flat.down
        order = getattr(row, mark["m_order"]) if flat.order else None
        if flat.order and order is None:
            raise Skippable(f"The row's {flat.order}, which orders changes, is null.")
        self._demand_key(reader, row, index, batch)
        return Change(row, op, Source(ums_id=order, ts_us=micros), index)

    def _tombstone(self, reader: _Reader, index: int, batch: pa.RecordBatch) -> Change:
        row = reader.row_type()
        if not reader.key_attributes:
            raise Skippable(
                "The record has no value (a tombstone), and its table no key by which to delete. Set "
                "source.key.columns, or source.tombstones=ignore."
            )
        if reader.flat is not None and reader.flat.order:
            raise Skippable(
                f"The record has no value (a tombstone), so not the order of changes ({reader.flat.order}) either. "
                "Set source.tombstones=ignore where deletes come as rows, too."
            )
        self._demand_key(reader, row, index, batch)
        return Change(row, "d", Source(), index)

    def _arrays(self, reader: _Reader, changes: Changes, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = changes.rows
        count = len(rows)
        arrays = [
            pa.nulls(count, kind) if made is None else made[1](list(map(made[0], rows)))
            for made, (_, kind) in zip(reader.builders, self._types, strict=True)
        ]
        if self._plan.separate:
            pairs = [shard_of(source) for source in changes.sources]
            arrays = [pa.array([pair[index] for pair in pairs], pa.int64()) for index in range(len(NUMBERS))] + arrays
        records = batch.select(KAFKA_FIELDS)
        if changes.places != list(range(batch.num_rows)):
            records = records.take(pa.array(changes.places, pa.int32()))
        arrays += system_arrays(records, changes.ops, changes.sources)
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def _empty(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.nulls(0, kind.type) for kind in self.arrow], schema=self.arrow)

    def _bad(self, batch: pa.RecordBatch, index: int, error: Exception) -> None:
        topic, partition, offset, key, value = (
            batch.column(name)[index].as_py() for name in ("topic", "partition", "offset", "key", "value")
        )
        self._report(topic, partition, offset, key, value, error)
