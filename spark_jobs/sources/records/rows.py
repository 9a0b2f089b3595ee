"""Decodes JSON records in a Spark task: bytes in, Arrow columns of one table out. Runs in Python workers; no Spark calls.

The fast way takes all records of an Arrow batch at once. Where they begin with one known schema text (or have none), their
payloads are joined to one JSON array and read by one typed msgspec call. Records that stop it are read one by one, so that the
bad one is reported with its position.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from connectors.errors import Fatal, Skippable
from spark_jobs.rows.shards import LOGICAL, NUMBERS, second_shard, shard_of
from spark_jobs.sources.layout import DATABASES, TABLES
from spark_jobs.sources.records.columns import arrow_type, iso_timestamp
from spark_jobs.sources.records.events import NO_AFTER, NO_KEY, TRUNCATE, find_subject
from spark_jobs.sources.records.flat import Flat, op_of
from spark_jobs.sources.records.misfits import find_misfit
from spark_jobs.sources.records.reader import (
    BAD,
    NULL,
    PAYLOAD,
    SCHEMA,
    DecodePlan,
    EnvelopeSource,
    PayloadReader,
    ValueKind,
    classify_value,
    namespace_of,
)
from spark_jobs.sources.records.system_columns import KAFKA_FIELDS, row_schema, system_arrays

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_OPS: Final = {"c": "i", "r": "i", "u": "u", "d": "d"}


#: What of a source names a table and its shard.
_names: Final = attrgetter(*dict.fromkeys((*LOGICAL, *NUMBERS, *TABLES, *DATABASES)))
#: Takes (topic, partition, offset, key, value, error) of a bad record.
Report = Callable[[str, int, int, "bytes | None", "bytes | None", Exception], None]


class DecodedChange(NamedTuple):
    """One decoded record, or one row of it."""

    row: Any
    op: str
    source: Any
    record_index: int


class Changes(NamedTuple):
    """Rows of decoded records, one list per member of ``DecodedChange``."""

    rows: list[Any]
    ops: list[str]
    sources: list[Any]
    record_indexes: list[int]

    @classmethod
    def of(cls, changes: Sequence[DecodedChange]) -> Changes:
        """The same as lists."""
        return cls(*(list(values) for values in zip(*changes, strict=True))) if changes else cls([], [], [], [])

    def add(self, other_changes: Changes) -> None:
        """Append the rows of ``other_changes``."""
        self.rows.extend(other_changes.rows)
        self.ops.extend(other_changes.ops)
        self.sources.extend(other_changes.sources)
        self.record_indexes.extend(other_changes.record_indexes)


class TableDecoder:
    """Decodes the records of one table; lives as long as a Spark task.

    Args:
        plan: see ``DecodePlan``.
        report: takes (topic, partition, offset, key, value, error) of a bad record; may raise to stop the job.
        nulls: for ``decode_regular``: see ``PayloadReader``.
    """

    def __init__(self, plan: DecodePlan, report: Report, *, nulls: Collection[str] | None = None) -> None:
        self._plan = plan
        self._report = report
        self._readers = {prefix: PayloadReader(layout, plan) for prefix, layout in plan.layouts.items()}
        if nulls is not None and b"" in plan.layouts:
            self._readers[b""] = PayloadReader(plan.layouts[b""], plan, nulls=nulls)
        self._types = [(column.name, arrow_type(column.type)) for column in plan.schema.columns]
        #: The schema of rows.
        self.arrow = row_schema(plan.schema.columns, separate=plan.separate)
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
        reader = self._find_common_reader(values)
        payloads = reader.payloads(self._last, values) if reader is not None else None
        if reader is not None and payloads is not None:
            built = self._build_rows(reader, payloads, present, batch)
            if built is not None:
                yield built
                return
        yield from self._one_by_one(values, present, batch)

    def decode_regular(self, prefix: bytes, bodies: Sequence[bytes], batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """One row per record, in order; None where a record is anything else than a change of a whole row of this table.

        Args:
            prefix: the start of the values: one of the plan's strings.
            bodies: the rest of each value.
            batch: what ``decode`` gets, without values.
        """
        reader = self._readers[prefix]
        payloads = reader.payloads_behind(bodies, wrapped=bool(prefix))
        if payloads is None or not reader.has_expected_types(payloads):
            return None
        try:
            changes = self._read_regular_rows(reader, payloads, range(len(payloads)))
            return None if changes is None else self._build_arrays(reader, changes, batch)
        except BAD:
            return None

    def _find_common_reader(self, values: Sequence[bytes]) -> PayloadReader | None:
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

    def _build_rows(
        self, reader: PayloadReader, payloads: Sequence[Any], indexes: Sequence[int], batch: pa.RecordBatch
    ) -> pa.RecordBatch | None:
        """The rows of ``payloads``; None where one of them is bad."""
        try:
            changes = self._read_changes(reader, payloads, indexes, batch)
            return self._build_arrays(reader, changes, batch) if changes.rows else self._make_empty_batch()
        except BAD:
            return None

    def _one_by_one(
        self, values: Sequence[bytes | None], present: Sequence[int], batch: pa.RecordBatch
    ) -> Iterator[pa.RecordBatch]:
        """Runs of good records of one layout, in order; bad ones are reported."""
        run = Changes.of(())
        of: PayloadReader | None = None
        for value, index in zip(values, present, strict=True):
            try:
                if value is None:
                    reader = next(iter(self._readers.values()))
                    changes = Changes.of([self._make_tombstone(reader, index, batch)])
                else:
                    reader_payload = self._read_record(value)
                    if reader_payload is None:
                        continue
                    reader, payload = reader_payload
                    changes = self._read_changes(reader, [payload], [index], batch)
                if changes.rows:
                    self._build_arrays(reader, changes, batch)  # raises for values that no column takes
            except BAD as error:
                if value is None or self._is_reported_here(value, batch, index):
                    self._report_bad(batch, index, self._explain_error(value, error))
                continue
            if reader is not of and run.rows and of is not None:
                yield self._build_arrays(of, run, batch)
                run = Changes.of(())
            of = reader
            run.add(changes)
        if run.rows and of is not None:
            yield self._build_arrays(of, run, batch)

    def _read_record(self, value: bytes) -> tuple[PayloadReader, Any] | None:
        """One record's reader and payload; None for one of another table or one that the search for schemas has reported."""
        kind, schema_text = classify_value(value)
        if kind is ValueKind.BAD:
            return None
        if kind is ValueKind.PLAIN:
            reader = self._readers.get(b"")
            if reader is None:
                return None
            return reader, reader.payload(value, wrapped=False)
        reader = self._readers.get(schema_text)
        if reader is not None:
            if schema_text.endswith(PAYLOAD):
                return reader, reader.payload(b'{"payload":' + value[len(schema_text) :], wrapped=True)
            return reader, reader.payload(value, wrapped=True)
        if schema_text in self._plan.foreign:
            return None
        raise Skippable(
            "The record's schema is not one of those that the job found in this batch; report this as a defect."
        )

    def _explain_error(self, value: bytes | None, error: Exception) -> Exception:
        """The error for a bad record, with table, column and value where one value is to blame."""
        if value is None or isinstance(error, Skippable):
            return error
        kind, schema_text = classify_value(value)
        reader = self._readers.get(schema_text)
        if kind is ValueKind.BAD or reader is None:
            return error
        envelope, loose = reader.flat is None, kind is ValueKind.PLAIN
        return find_misfit(value, self._plan.schema, reader.fields, envelope=envelope, loose=loose) or error

    def _is_reported_here(self, value: bytes, batch: pa.RecordBatch, index: int) -> bool:
        """Whether a bad record is to be reported here: not what the search for schemas has reported, nor another table's."""
        topic = batch.column("topic")[index].as_py()
        try:
            kind, about = find_subject(value, topic, envelope=next(iter(self._readers.values())).flat is None)
        except Skippable:
            return False
        return kind is ValueKind.SCHEMA or self._plan.namespace is None or about == self._plan.namespace

    def _read_changes(
        self, reader: PayloadReader, payloads: Sequence[Any], indexes: Sequence[int], batch: pa.RecordBatch
    ) -> Changes:
        """The rows that come of ``payloads``, in order.

        Raises:
            Skippable: a record is not a recognizable change of a row.
        """
        if reader.flat is not None:
            return Changes.of(
                [self._flat_change(reader, row, index, batch) for row, index in zip(payloads, indexes, strict=True)]
            )
        return self._read_regular_rows(reader, payloads, indexes) or self._read_mixed_rows(
            reader, payloads, indexes, batch
        )

    def _read_regular_rows(
        self, reader: PayloadReader, payloads: Sequence[Any], indexes: Sequence[int]
    ) -> Changes | None:
        """The rows of ``payloads`` if each is a whole row of this table; None if they have to be looked at one by one."""
        if self._plan.before:
            return None
        sources = [payload.source for payload in payloads]
        if reader is self._readers.get(b"") or reader.names_shard:
            named = dict(zip(map(_names, sources), sources, strict=True))
            expected, shard = self._plan.namespace, self._plan.shard if reader.names_shard else None
            if expected is not None and any(namespace_of(source, "") != expected for source in named.values()):
                return None
            if shard is not None and any(shard_of(source) != shard for source in named.values()):
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
        if self._plan.moves:
            images = [(reader.image(payload.before), payload.after) for payload in payloads if payload.op == "u"]
            if any(old is not None and reader.has_moved(old, row) for old, row in images):
                return None
        return Changes(rows, ops, sources, list(indexes))  # type: ignore[arg-type]  # none is None

    def _read_mixed_rows(
        self, reader: PayloadReader, payloads: Sequence[Any], indexes: Sequence[int], batch: pa.RecordBatch
    ) -> Changes:
        """As ``_read_changes``, record by record."""
        result: list[DecodedChange] = []
        # A schema is of one table: only records without one may be of others.
        namespace = self._plan.namespace if reader is self._readers.get(b"") else None
        before_wanted = self._plan.before
        shard = self._plan.shard if reader.names_shard else None
        for payload, index in zip(payloads, indexes, strict=True):
            source = payload.source
            if namespace is not None and self._find_namespace(source, batch, index) != namespace:
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
                row = payload.after
                if row is None:
                    raise Skippable(NO_AFTER)
            self._demand_key(reader, row, index, batch)
            if op == "u" and (before_wanted or self._plan.moves) and payload.before != NULL:
                old = reader.image(payload.before)
                if reader.lacks_key:
                    reader.fill_key(old, batch.column("key")[index].as_py(), missing_only=True)
                if self._plan.moves and reader.has_moved(old, row):
                    result.append(DecodedChange(old, "d", source, index))
                    op = "i"
                elif before_wanted:
                    result.append(DecodedChange(old, "b", source, index))
            result.append(DecodedChange(row, op, source, index))
        return Changes.of(result)

    def _find_namespace(self, source: Any, batch: pa.RecordBatch, index: int) -> str:
        topic = batch.column("topic")[index].as_py()
        named = (topic, *_names(source))
        namespace = self._namespaces.get(named)
        if namespace is None:
            namespace = self._namespaces[named] = namespace_of(source, topic)
        return namespace

    def _demand_key(self, reader: PayloadReader, row: Any, index: int, batch: pa.RecordBatch) -> None:
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

    def _flat_change(self, reader: PayloadReader, row: Any, index: int, batch: pa.RecordBatch) -> DecodedChange:
        flat, signal = reader.flat or Flat(), reader.signal
        op = op_of(
            getattr(row, signal["m_op"]) if flat.op else None,
            getattr(row, signal["m_deleted"]) if flat.deleted else None,
        )
        time = getattr(row, signal["m_time"]) if flat.time else None
        micros = None
        if isinstance(time, str):
            micros = round((iso_timestamp(time) - _EPOCH) / _MICROSECOND)
        elif time is not None:
            micros = time * flat.up // flat.down
        order = getattr(row, signal["m_order"]) if flat.order else None
        if flat.order and order is None:
            raise Skippable(f"The row's {flat.order}, which orders changes, is null.")
        self._demand_key(reader, row, index, batch)
        return DecodedChange(row, op, EnvelopeSource(ums_id=order, ts_us=micros), index)

    def _make_tombstone(self, reader: PayloadReader, index: int, batch: pa.RecordBatch) -> DecodedChange:
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
        return DecodedChange(row, "d", EnvelopeSource(), index)

    def _build_arrays(self, reader: PayloadReader, changes: Changes, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = changes.rows
        count = len(rows)
        arrays = [
            pa.nulls(count, kind) if column_builder is None else column_builder[1](list(map(column_builder[0], rows)))
            for column_builder, (_, kind) in zip(reader.builders, self._types, strict=True)
        ]
        if self._plan.separate:
            pairs = [shard_of(source) for source in changes.sources]
            arrays = [pa.array([pair[index] for pair in pairs], pa.int64()) for index in range(len(NUMBERS))] + arrays
        records = batch.select(KAFKA_FIELDS)
        if changes.record_indexes != list(range(batch.num_rows)):
            records = records.take(pa.array(changes.record_indexes, pa.int32()))
        arrays += system_arrays(records, changes.ops, changes.sources, self._find_firsts(changes.record_indexes))
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def _find_firsts(self, indexes: Sequence[int]) -> list[bool] | None:
        """Whether each row is the first of two of its record; None where no record has two."""
        if not (self._plan.before or self._plan.moves):
            return None
        return [first == second for first, second in pairwise([*indexes, -1])]

    def _make_empty_batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.nulls(0, kind.type) for kind in self.arrow], schema=self.arrow)

    def _report_bad(self, batch: pa.RecordBatch, index: int, error: Exception) -> None:
        topic, partition, offset, key, value = (
            batch.column(name)[index].as_py() for name in ("topic", "partition", "offset", "key", "value")
        )
        self._report(topic, partition, offset, key, value, error)
