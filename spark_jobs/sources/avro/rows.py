"""Rows of Debezium's envelopes in Avro, as Arrow record batches: what ``frame`` makes in the JVM, for whole batches.

Used where a batch shows nothing new (``single_pass``). Anything that is not a plain change of a row, and anything that the JVM
might see otherwise, makes no rows here: then the JVM reads the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from connectors.errors import Skippable
from connectors.formats.order_number import BY_WRITE_TIME, FILE_UNIT, binlog_number
from connectors.schema import Type
from spark_jobs.rows.shards import NUMBERS
from spark_jobs.sources.avro.arrow import array_maker, strings_of
from spark_jobs.sources.avro.expressions import HEAD_SIZE, connect_schema
from spark_jobs.sources.avro.frame import ENVELOPE_MEMBERS
from spark_jobs.sources.avro.vectors import (
    Broken,
    Data,
    Union,
    UnsupportedSchema,
    compile_schema,
    join_columns,
    record_of,
)
from spark_jobs.sources.records.columns import arrow_type
from spark_jobs.sources.records.system_columns import position_arrays, row_schema
from spark_jobs.spark.frames import choose_last

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    from pyspark.sql import Column as Expression

    from spark_jobs.sources.avro.arrow import Make
    from spark_jobs.sources.avro.vectors import VectorColumn, VectorNode
    from spark_jobs.sources.layout import RecordLayout
    from spark_jobs.sources.records.reader import DecodePlan
    from spark_jobs.sources.records.single_pass import KnownTable, RecordKind

    Whole = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

#: What stops vectors: the record is left to the JVM.
_LEFT: Final = (Broken, UnsupportedSchema, Skippable, pa.ArrowException, ValueError, TypeError, OverflowError)
#: Members of ``source`` that are text; the others are whole numbers.
_WORDS: Final = frozenset(("connector", "file"))
_WHOLE: Final = frozenset((Type.INT8, Type.INT16, Type.INT32, Type.INT64))
#: By the byte of an envelope's ``op``: the letter of ``ums_op_``, 0 for others.
_LETTERS: Final = np.zeros(256, np.uint8)
_LETTERS[list(b"crud")] = list(b"iiud")
_DELETE: Final = ord("d")
_UPDATE: Final = ord("u")
_LARGEST: Final = (1 << 63) - 1


def build_kind_columns(kinds: Sequence[RecordKind], *, several: bool) -> tuple[Expression, Expression, Expression]:
    """Expressions for the number of a record's kind (-1: none), for its value, and for its key where that has columns.

    Args:
        kinds: see ``single_pass.RecordKind``; values and keys begin with the ids of their schemas.
        several: whether they are of several topics.
    """
    value, key = f.col("value"), f.col("key")
    numbers, keys = [], []
    for index, kind in enumerate(kinds):
        mine = f.startswith(value, f.lit(kind.value))
        if kind.key:
            mine &= f.coalesce(f.startswith(key, f.lit(kind.key)), f.lit(False))
            keys.append((mine, key))
        elif kind.key is not None:
            mine &= f.coalesce(f.octet_length(key) == 0, f.lit(True))
        if several:
            mine &= f.col("topic") == kind.topic
        numbers.append((mine, f.lit(index)))
    return choose_last(numbers, f.lit(-1)), value, choose_last(keys, f.lit(None).cast("binary"))


@dataclass(frozen=True, slots=True)
class _Field:
    """How a column of the table is made.

    Attributes:
        name: the column's.
        kind: its type.
        row: of its values in the row; None where the row lacks it.
        key: of its values in the record's key; None where it is not a key column, or the key lacks it.
        required: whether null is refused.
    """

    name: str
    kind: pa.DataType
    row: Make | None
    key: Make | None
    required: bool


class AvroRowReader:
    """Makes rows of records of known kinds, in a task.

    Args:
        kinds: by their numbers.
        tables: by namespace; layouts are under the heads of a record's value and key.
    """

    def __init__(self, kinds: Sequence[RecordKind], tables: Mapping[str, KnownTable]) -> None:
        self._kinds = kinds
        self._tables = tables
        self._readers: dict[int, KindReader] = {}

    def nulls(self, number: int) -> frozenset[str]:
        """No names: see ``single_pass.JsonRows.nulls``."""
        del number
        return frozenset()

    def rows(self, number: int, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """One row per record of kind ``number``, in order; None where the JVM has to read them."""
        try:
            if number not in self._readers:
                kind = self._kinds[number]
                plan = self._tables[kind.namespace].plan
                self._readers[number] = KindReader(plan.layouts[kind.value + (kind.key or b"")], plan)
            return self._readers[number].rows(batch)
        except _LEFT:
            return None


def is_supported(layout: RecordLayout, plan: DecodePlan) -> bool:
    """Whether rows of records with this layout can be made here."""
    try:
        KindReader(layout, plan)
    except (UnsupportedSchema, Skippable):
        return False
    return True


class KindReader:
    """Makes rows of records of one layout.

    Args:
        layout: see there.
        plan: of the table.

    Raises:
        Unsupported: such records can't be read here.
    """

    def __init__(self, layout: RecordLayout, plan: DecodePlan) -> None:
        self._plan = plan
        self._members = _compile_envelope(layout.avro[0])
        self._key = record_of(compile_schema(layout.avro[1])) if layout.avro[1] and layout.key else None
        rows = {member.name: member.schema for member in layout.row}
        keys = {member.name: member.schema for member in layout.key} if self._key is not None else {}
        self._columns = [
            _Field(
                column.name,
                arrow_type(column.type),
                array_maker(rows[column.name], column.type, column.name) if column.name in rows else None,
                array_maker(keys[column.name], column.type, column.name)
                if column.key and column.name in keys
                else None,
                column.key,
            )
            for column in plan.schema.columns
        ]
        self._arrow = row_schema(plan.schema.columns, separate=plan.separate)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """One row per record, in order.

        Args:
            batch: records: topic, partition, offset, timestamp, key, body (the whole value).

        Raises:
            Broken: a record is anything else than a change of a whole row of this table. The other exceptions of ``_LEFT``
                say the same.
        """
        data, begin, end = _join_record_bytes(batch.column("body"))
        at = begin + HEAD_SIZE
        before_at, members = at, {}
        for name, node in self._members.items():
            if name == "before":
                before_at = at
            keep = name in ENVELOPE_MEMBERS and name != "before"
            column, at = node.read(data, at, end, keep=keep)
            if keep:
                members[name] = column
        if (at != end).any():
            raise Broken("bytes are left behind a record")
        letters = _read_operations(data, members["op"])
        image = self._build_rows(data, members["after"], letters == _DELETE, before_at, end)
        arrays = [
            pa.nulls(image.count, field.kind)
            if field.row is None
            else field.row(data, image.children[field.name].masked(image.valid))
            for field in self._columns
        ]
        self._fill_keys(arrays, batch)
        if self._plan.moves:
            self._demand_same_keys(data, letters == _UPDATE, arrays, before_at, end)
        source = _SourceColumns(data, members.get("source"), image.count)
        shard = [source.or_zero(name) for name in NUMBERS]
        expected = self._plan.shard
        if expected is not None and any(
            (numbers != number).any() for numbers, number in zip(shard, expected, strict=True)
        ):
            raise Broken("a record is of another shard")
        if self._plan.separate:
            arrays = [*map(pa.array, shard), *arrays]
        times, timed = source.micros()
        kafka_times = batch.column("timestamp").cast(pa.int64())
        system = position_arrays(
            batch,
            pa.array(source.order_numbers(batch.column("offset").to_numpy())),
            pc.coalesce(pa.array(times, mask=~timed), kafka_times),
            _letter_array(letters),
        )
        return pa.RecordBatch.from_arrays(arrays + system, schema=self._arrow)

    def _build_rows(
        self, data: Data, after: VectorColumn, deleted: Flags, before_at: Whole, end: Whole
    ) -> VectorColumn:
        """The rows after changes, and before deletes."""
        present = np.ones(after.count, np.bool_) if after.valid is None else after.valid
        if (present == deleted).any():
            raise Broken("a change has no row after it, or a delete has one")
        (positions,) = np.nonzero(deleted)
        if not len(positions):
            return after
        before, _ = self._members["before"].read(data, before_at[positions], end[positions], keep=True)
        order = np.arange(after.count)
        order[positions] = after.count + np.arange(len(positions))
        return join_columns([after, before]).take(order)

    def _demand_same_keys(
        self, data: Data, updated: Flags, arrays: Sequence[pa.Array], before_at: Whole, end: Whole
    ) -> None:
        """Leave records to the JVM where an update changes the key."""
        (positions,) = np.nonzero(updated)
        if not len(positions):
            return
        before, _ = self._members["before"].read(data, before_at[positions], end[positions], keep=True)
        for field, array in zip(self._columns, arrays, strict=True):
            if field.required and field.row is not None:
                old = field.row(data, before.children[field.name].masked(before.valid))
                if pc.any(pc.not_equal(old, array.take(pa.array(positions)))).as_py():
                    raise Broken("an update changes the key")

    def _fill_keys(self, arrays: list[pa.Array], batch: pa.RecordBatch) -> None:
        """Set what is null in key columns from the records' keys."""
        lacking = {
            index: field for index, field in enumerate(self._columns) if field.required and arrays[index].null_count
        }
        if not lacking:
            return
        missing = np.zeros(batch.num_rows, np.bool_)
        for index in lacking:
            missing |= arrays[index].is_null().to_numpy(zero_copy_only=False)
        (positions,) = np.nonzero(missing)
        keys = batch.column("key").take(pa.array(positions))
        if self._key is None or keys.null_count:
            raise Broken("a key column is null, and the record has no key")
        data, begin, end = _join_record_bytes(keys)
        column, at = self._key.read(data, begin + HEAD_SIZE, end, keep=True)
        if (at != end).any():
            raise Broken("bytes are left behind a key")
        numbers = np.zeros(batch.num_rows, np.int64)
        numbers[positions] = np.arange(len(positions))
        order = pa.array(numbers, mask=~missing)
        for index, field in lacking.items():
            if field.key is None:
                raise Broken("a key column is null, and the record's key does not have it")
            arrays[index] = pc.coalesce(arrays[index], field.key(data, column.children[field.name]).take(order))
            if arrays[index].null_count:
                raise Broken("a key column is null")


@lru_cache(maxsize=64)
def _compile_envelope(avro_text: str) -> dict[str, VectorNode]:
    """The readers of an envelope's members, in order; of ``source``, those that say position, time and shard.

    Raises:
        Unsupported: it is no envelope whose rows and positions can be read here.
    """
    envelope, connect = record_of(compile_schema(avro_text)), connect_schema(avro_text)
    if envelope is None or connect is None or isinstance(compile_schema(avro_text), Union):
        raise UnsupportedSchema("the value is no record")
    members = dict(envelope.fields)
    image = record_of(members.get("after"))
    if image is None or record_of(members.get("before")) is not image:
        raise UnsupportedSchema("the images before and after are no records of one schema")
    op, source = connect.field("op"), connect.field("source")
    if op is None or op.schema.type is not Type.STRING:
        raise UnsupportedSchema("op is no string")
    position_members = ENVELOPE_MEMBERS["source"] or frozenset()
    for member in source.schema.fields if source is not None else ():
        expected = {Type.STRING} if member.name in _WORDS else _WHOLE
        if member.name in position_members and member.schema.type not in expected:
            raise UnsupportedSchema(f"source.{member.name} is of type {member.schema.type}")
    node = members.get("source")
    record = record_of(node)
    if record is not None:
        pruned = replace(record, kept_names=position_members)
        members["source"] = (
            Union(tuple(pruned if branch is record else branch for branch in node.branches))
            if isinstance(node, Union)
            else pruned
        )
    return members


def _join_record_bytes(records: pa.Array) -> tuple[Data, Whole, Whole]:
    """The bytes of ``records``, which are not null, and where each begins and ends."""
    if not pa.types.is_binary(records.type):
        raise UnsupportedSchema(f"records as {records.type}")
    _, positions, content = records.buffers()
    offsets = np.frombuffer(positions, np.int32)[records.offset : records.offset + len(records) + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    raw = np.frombuffer(content, np.uint8)[first:last] if content is not None else np.zeros(0, np.uint8)
    offsets -= first
    return Data(raw), offsets[:-1], offsets[1:]


def _read_operations(data: Data, op: VectorColumn) -> npt.NDArray[np.uint8]:
    """The letters of ``ums_op_``."""
    if op.valid is not None and not op.valid.all():
        raise Broken("op is null")
    letters: npt.NDArray[np.uint8]
    if op.symbols:
        firsts = np.array(
            [ord(symbol) if len(symbol) == 1 and symbol.isascii() else 0 for symbol in op.symbols], np.uint8
        )
        letters = _LETTERS[firsts[op.arrays[0]]]
    else:
        begin, size = op.arrays
        letters = np.where(size == 1, _LETTERS[data.bytes[begin]], np.uint8(0))
    if not letters.all():
        raise Broken("op is not c, r, u or d")
    return letters


def _letter_array(letters: npt.NDArray[np.uint8]) -> pa.Array:
    offsets = np.arange(len(letters) + 1, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(letters), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(letters))]
    )


class _SourceColumns:
    """Positions and times of changes, as ``frame`` finds them.

    Args:
        data: the bytes.
        column: ``source`` of the envelopes; None where they have none.
        count: how many envelopes there are.
    """

    def __init__(self, data: Data, column: VectorColumn | None, count: int) -> None:
        self._data = data
        self._count = count
        self._members: dict[str, VectorColumn] = {}
        if column is not None:
            self._members = {name: child.masked(column.valid) for name, child in column.children.items()}

    def or_zero(self, name: str) -> Whole:
        """The whole numbers of a member, 0 for null."""
        values, present = self._read_numbers(name)
        return np.where(present, values, 0)

    def _read_numbers(self, name: str) -> tuple[Whole, Flags]:
        """The whole numbers of a member, and where there are any."""
        column = self._members.get(name)
        if column is None:
            return np.zeros(self._count, np.int64), np.zeros(self._count, np.bool_)
        return column.arrays[0], np.ones(self._count, np.bool_) if column.valid is None else column.valid

    def micros(self) -> tuple[Whole, Flags]:
        """Times in µs since 1970 from the finest member, and where there are any."""
        values, present = self._read_numbers("ts_us")
        if present.all():
            return values, present
        for name in ("ts_ns", "ts_ms"):
            numbers_of_member, there = self._read_numbers(name)
            if name == "ts_ms" and (np.abs(numbers_of_member) > _LARGEST // 1000).any():
                raise Broken("a time has more than 64 bits")
            values = np.where(
                present, values, numbers_of_member // 1000 if name == "ts_ns" else numbers_of_member * 1000
            )
            present = present | there
        return values, present

    def order_numbers(self, offsets: Whole) -> Whole:
        """``ums_id_``."""
        numbers = self._binlog_numbers(offsets)
        lsn, present = self._read_numbers("lsn")
        numbers = np.where(present, lsn, numbers)
        if "connector" in self._members:
            by_time = pc.is_in(self._read_strings("connector"), pa.array(BY_WRITE_TIME)).to_numpy(zero_copy_only=False)
            if by_time.any():
                times, timed = self.micros()
                numbers = np.where(by_time, np.where(timed, times, offsets), numbers)
        numbers_of_member, present = self._read_numbers("ums_id")
        return np.where(present, numbers_of_member, numbers)

    def _binlog_numbers(self, offsets: Whole) -> Whole:
        if not self._members.keys() >= {"file", "pos"}:
            return offsets
        pos, present = self._read_numbers("pos")
        files = self._read_strings("file").dictionary_encode()
        # A file without a number in its name raises ValueError.
        bases = np.array([binlog_number(name, 0) if name else -1 for name in files.dictionary.to_pylist()] + [-1])
        base = bases[files.indices.fill_null(len(bases) - 1).to_numpy()]
        present = present & (base >= 0)
        row = self.or_zero("row")
        if (present & ((np.abs(pos) >= FILE_UNIT) | (np.abs(row) >= FILE_UNIT))).any():
            raise Broken("a position is too large")
        total = np.where(present, pos + row, 0)
        if ((total < 0) | (total >= FILE_UNIT)).any():
            raise Broken("a position is too large")
        return np.where(present, base + total, offsets)

    def _read_strings(self, name: str) -> pa.Array:
        return strings_of(self._data, self._members[name])
