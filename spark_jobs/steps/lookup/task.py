"""The Spark task of a lookup: answers the keys of an Arrow batch together, and adds the values to its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.sources.records.columns import arrow_type
from spark_jobs.steps.failures import REASON, RowFailure
from spark_jobs.steps.lookup.model import DEAD_LETTER, DROP, RETRY
from spark_jobs.steps.lookup.store import STORES
from spark_jobs.steps.lookup.values import spark_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from spark_jobs.steps.lookup.cache import Values
    from spark_jobs.steps.lookup.model import Spec

_OP: Final = "ums_op_"


@dataclass(frozen=True, slots=True)
class LookupTask:
    """The function for ``mapInArrow``. Picklable.

    Attributes:
        spec: the lookup.
        table: the namespace of the table, for messages.
        on: positions of the columns that hold the key of the lookup.
        columns: number of the table's columns.
        key: how many of them are the table's key.
        guarded: whether bad rows get a reason in a column of its own; else the first one fails the task.
        ends: of a topic: what must have been read, by partition.
        counts: Spark's accumulator of ``Counts``; None: they are not counted.
    """

    spec: Spec
    table: str
    on: tuple[int, ...]
    columns: int
    key: int
    guarded: bool = False
    ends: Mapping[int, int] = field(default_factory=dict)
    counts: Any = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches with the looked-up columns after the table's own."""
        import pyarrow as pa

        store = STORES.get(self.spec)
        try:
            if self.spec.topic:
                store.read_to(self.ends)
            remainder: pa.RecordBatch | None = None
            for batch in batches:
                rows = batch if remainder is None else pa.concat_batches([remainder, batch])
                remainder = None
                # An image before an update shares the update's fate.
                if rows.num_rows and rows.column(rows.schema.get_field_index(_OP))[-1].as_py() == "b":
                    remainder, rows = rows.slice(rows.num_rows - 1), rows.slice(0, rows.num_rows - 1)
                yield self.answer(rows, store.values)
            if remainder is not None:
                yield self.answer(remainder, store.values)
        except BaseException:
            if self.spec.topic:
                STORES.drop(self.spec)  # it may have stopped in the middle of a record
            raise
        finally:
            if self.counts is not None:
                self.counts.add(store.counts.take())

    def answer(
        self, rows: pa.RecordBatch, look_up: Callable[[Sequence[tuple[Any, ...]]], Sequence[Values]]
    ) -> pa.RecordBatch:
        """The rows with the looked-up columns. Inserts and updates are looked up; other rows get nulls.

        Args:
            rows: the table's columns, then the system columns; an image before an update has its update in the same batch.
            look_up: the values of each of some distinct keys; None for one that is not found.

        Raises:
            RowFailure: a row is bad, and rows are not guarded.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        ops = rows.column(rows.schema.get_field_index(_OP))
        current = pc.is_in(ops, pa.array(["i", "u"]))
        codes, keys = key_codes([rows.column(number) for number in self.on], current)
        values = look_up(keys)
        arrays = list(rows.columns)
        names = list(rows.schema.names)
        new = []
        for number, column in enumerate(self.spec.columns):
            kind = arrow_type(spark_type(column.kind))
            distinct = pa.array([None if row is None else row[number] for row in values], kind)
            new.append(distinct.take(codes))
        arrays[self.columns : self.columns] = new
        names[self.columns : self.columns] = [f"c{self.columns + number}" for number in range(len(new))]
        policy = self.spec.miss_then if self.spec.miss == RETRY else self.spec.miss
        result, reasons = pa.RecordBatch.from_arrays(arrays, names), None
        if policy in (DROP, DEAD_LETTER):
            has_row = pc.fill_null(pa.array([row is not None for row in values], pa.bool_()).take(codes), False)
            if policy == DROP:
                result = drop_rows(result, pc.and_(current, pc.invert(has_row)), self.key)
            else:
                # A key with a null in it finds nothing, and is not wrong.
                reasons = self._find_reasons(pc.and_(pc.is_valid(codes), pc.invert(has_row)), codes, keys)
        if not self.guarded:
            if reasons is not None:
                raise RowFailure(pc.drop_null(reasons)[0].as_py())
            return result
        if reasons is None:
            return self._with_reasons(result, pa.nulls(result.num_rows, pa.string()))
        return self._with_reasons(result, pc.if_else(pc.equal(ops, "b"), _of_next(reasons), reasons))

    def _find_reasons(self, missed: pa.Array, codes: pa.Array, keys: Sequence[tuple[Any, ...]]) -> pa.Array | None:
        """Why each row is bad; null for good ones. None if all are good."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not pc.any(missed).as_py():
            return None
        distinct = pa.array(
            [f"{self.spec.where} has no row for {self.spec.describe_key(key)}" for key in keys], pa.string()
        )
        return pc.if_else(missed, distinct.take(codes), pa.scalar(None, pa.string()))

    def _with_reasons(self, rows: pa.RecordBatch, reasons: pa.Array) -> pa.RecordBatch:
        import pyarrow as pa

        at = self.columns + len(self.spec.columns)
        names = list(rows.schema.names)
        return pa.RecordBatch.from_arrays(
            [*rows.columns[:at], reasons, *rows.columns[at:]], [*names[:at], REASON, *names[at:]]
        )


def key_codes(columns: Sequence[pa.Array], used: pa.Array) -> tuple[pa.Array, list[tuple[Any, ...]]]:
    """The distinct keys of the rows that are used, and for each row the number of its key; null where it has none. Pure."""
    import pyarrow as pa
    import pyarrow.compute as pc

    codes: pa.Array | None = None
    keys: list[tuple[Any, ...]] = [()]
    every = pc.all(used).as_py()
    for column in columns:
        chosen = column if every else pc.if_else(used, column, pa.scalar(None, column.type))
        encoded = chosen.dictionary_encode()
        parts = encoded.dictionary.to_pylist()
        if codes is None:
            codes, keys = encoded.indices, [(part,) for part in parts]
            continue
        size = max(1, len(parts))
        combined = pc.add(
            pc.multiply(codes.cast(pa.int64()), size), encoded.indices.cast(pa.int64())
        ).dictionary_encode()
        keys = [(*keys[number // size], parts[number % size]) for number in combined.dictionary.to_pylist()]
        codes = combined.indices
    return codes, keys


def drop_rows(rows: pa.RecordBatch, missed: pa.Array, key: int) -> pa.RecordBatch:
    """The rows without those that were not found. Pure.

    An insert is left out; an update becomes a delete with the key, as the row may have been found before. Images before such
    updates are left out. Without a key, all are left out.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.any(missed).as_py():
        return rows
    at = rows.schema.get_field_index(_OP)
    ops = rows.column(at)
    deletes = pc.and_(missed, pc.equal(ops, "u")) if key else pa.array([False] * rows.num_rows)
    kept = pc.or_(pc.invert(missed), deletes)
    kept = pc.and_(kept, pc.invert(pc.and_(pc.equal(ops, "b"), _of_next(missed))))
    numbers = pa.array(range(rows.num_rows), pa.int64())
    full = numbers.filter(kept)
    bare = pc.if_else(deletes, pa.scalar(None, pa.int64()), numbers).filter(kept)  # a null takes a null
    system = _first_system(rows)
    arrays = [
        column.take(full if position < key or position >= system else bare)
        for position, column in enumerate(rows.columns)
    ]
    arrays[at] = pc.if_else(deletes, "d", ops).filter(kept)
    return pa.RecordBatch.from_arrays(arrays, rows.schema.names)


def _first_system(rows: pa.RecordBatch) -> int:
    return int(rows.schema.get_field_index("ums_id_"))


def _of_next(values: pa.Array) -> pa.Array:
    """For each row what ``values`` says of the row after it; null, or false, for the last."""
    import pyarrow as pa

    last = pa.array([False], pa.bool_()) if values.type == pa.bool_() else pa.nulls(1, values.type)
    return pa.concat_arrays([values.slice(1), last]) if len(values) else values
