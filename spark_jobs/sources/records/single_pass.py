"""Batches of Debezium's events that hold nothing new, decoded in one pass over their records.

The full path (``decoding``) reads a batch from Kafka once to find its schemas, once more to find columns and types of JSON
without a schema, and once per table to decode it (Avro in the JVM). Most batches show nothing that earlier ones have not shown.
Here tasks decode such a batch at once, with what is known, and Spark keeps the rows. A task that meets anything else says so:
then the rows are dropped, and the batch is read on the full path, which alone learns schemas, reports bad records and raises
errors. So both ways give the same rows.

The JVM compares each record's beginning with the known schemas. Of JSON it hands only the rest to Python.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from pyspark.sql import functions as f
from pyspark.storagelevel import StorageLevel

from spark_jobs.contract import Packed
from spark_jobs.reports.heartbeats import Promise, heartbeat_text
from spark_jobs.sources.avro import rows as avro_rows
from spark_jobs.sources.records.inference import accepted_types, is_enveloped, key_names
from spark_jobs.sources.records.reader import SCHEMA, DecodePlan
from spark_jobs.sources.records.rows import TableDecoder
from spark_jobs.sources.records.system_columns import row_schema
from spark_jobs.sources.tasks import no_report
from spark_jobs.sources.types import infer_type, wider_inferred
from spark_jobs.spark.frames import ArrowTask, FrameSelection, choose_last, columns_of
from spark_jobs.spark.worker_memory import frozen_after

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from spark_jobs.contract import Batch
    from spark_jobs.reports.heartbeats import Heartbeats

#: What tasks give: rows of one kind as a record batch of Arrow's, or a reason why the batch is not regular.
_PACKED: Final = "number int, data binary, nulls string, reason string"
#: Stands for the number of a kind where a record is a heartbeat.
_HEARTBEAT: Final = -2
#: The most changes of kinds in a row within one Arrow batch of one table: each makes a record batch of its own.
_RUNS: Final = 64
#: The most kinds that the JVM tells apart: Spark's code for more of them has its limits.
_MOST_KINDS: Final = 256
#: The longest pause, in batches, after batches that were not regular.
_LONGEST_PAUSE: Final = 31
_WHOLE: Final = 2**31 - 1
#: Batches of at most this number of records and bytes go to the driver, where the sink takes them there.
_SMALL_RECORDS: Final = 50_000
_SMALL_BYTES: Final = 32 << 20
#: What each Kafka partition of such a batch may have at least, however many there are.
_LEAST_BYTES: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class RecordKind:
    """Records that are read alike.

    Attributes:
        topic: their topic.
        namespace: their table.
        value: how values begin: up to and with ``PAYLOAD``, or with the schema's id (Avro); empty for JSON without a schema.
        key: how keys begin; empty for keys without a schema, or no keys in Avro; None: any key will do.
    """

    topic: str
    namespace: str
    value: bytes
    key: bytes | None


@dataclass(frozen=True, slots=True)
class KnownTable:
    """The facts about a table that tasks decode with.

    Attributes:
        plan: see ``rows.Plan``.
        keys: the key columns that the first key of a task has to show, for records without a schema; None: any.
        nulls: names that images without a schema may have with null only.
    """

    plan: DecodePlan
    keys: tuple[str, ...] | None = None
    nulls: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Regular:
    """A batch that was decoded in one pass.

    Attributes:
        kinds: those of its records.
        nulls: by table, further names that its images have with null only.
        packed: by table, its rows.
    """

    kinds: tuple[RecordKind, ...]
    nulls: Mapping[str, frozenset[str]]
    packed: Mapping[str, Packed]


class SinglePass:
    """Decodes batches in one pass and keeps their rows; for one job, on the driver.

    Args:
        avro: whether records are Avro, else JSON.
    """

    def __init__(self, *, avro: bool = False) -> None:
        self._avro = avro
        self._steps: _Steps | None = None
        self._kept: DataFrame | None = None
        self._pause = 0
        self._left = 0

    def due(self) -> bool:
        """Whether to try with this batch: after batches that were not regular, several are left to the full path."""
        if self._left:
            self._left -= 1
            return False
        return True

    def decode(
        self,
        batch: Batch,
        kinds: Sequence[RecordKind],
        tables: Mapping[str, KnownTable],
        heartbeats: Heartbeats,
    ) -> Regular | None:
        """The rows of a batch; None where it is not regular, or of too many kinds. Blocks: runs a Spark job.

        Args:
            batch: the batch; records without a value are left out.
            kinds: of which its records may be.
            tables: by namespace.
            heartbeats: notes those of the batch.
        """
        self.release()
        if len(kinds) > _MOST_KINDS:
            return None
        steps = self._steps
        if steps is None or (steps.kinds, steps.tables) != (tuple(kinds), dict(tables)):
            steps = self._steps = _Steps(batch.raw, tuple(kinds), dict(tables), avro=self._avro)
        packed = steps.packed(batch.raw)
        is_small = batch.takes_rows and sum(after - first for first, after in batch.ranges.values()) <= _SMALL_RECORDS
        if is_small:
            reports = steps.small(packed, max(_SMALL_BYTES // max(len(batch.ranges), 1), _LEAST_BYTES)).collect()
        else:
            packed = self._kept = packed.persist(StorageLevel.MEMORY_AND_DISK_DESER)
            reports = steps.reports(packed).collect()
        if any(row["reason"] for row in reports):
            self.release()
            self._pause = min(2 * self._pause + 1, _LONGEST_PAUSE)
            self._left = self._pause
            return None
        self._pause = 0
        nulls: dict[str, frozenset[str]] = {}
        for row in reports:
            if row["nulls"] and row["number"] != _HEARTBEAT:
                name = kinds[row["number"]].namespace
                nulls[name] = nulls.get(name, frozenset()) | frozenset(msgspec.json.decode(row["nulls"]))
        present = {row["number"] for row in reports}
        for row in reports:
            if row["number"] == _HEARTBEAT:
                for text in msgspec.json.decode(row["nulls"], type=list[str]):
                    topic, partition, came_us, promise = msgspec.json.decode(text, type=tuple[str, int, int, str])
                    sent, _, part = promise.partition(" ")
                    heartbeats.note(topic, topic, partition, Promise(int(sent), came_us), part)
        rows: dict[str, Packed] = {}
        for namespace in dict.fromkeys(kinds[number].namespace for number in sorted(present - {_HEARTBEAT})):
            numbers = [number for number, kind in enumerate(kinds) if kind.namespace == namespace]
            of_table = packed.where(f.col("number").isin(*numbers)) if present - set(numbers) else packed
            here: list[Any] = [row["data"] for row in reports if row["number"] in numbers] if is_small else [None]
            rows[namespace] = Packed(
                steps.data(of_table), steps.unpack[namespace], None if None in here else tuple(map(bytes, here))
            )
        return Regular(tuple(kinds[number] for number in sorted(present - {_HEARTBEAT})), nulls, rows)

    def release(self) -> None:
        """Drop the rows that are kept."""
        if self._kept is not None:
            self._kept.unpersist()
            self._kept = None


class _Steps:
    """The questions that batches of the same kinds ask Spark, made once.

    Args:
        raw: records of any batch.
        kinds: of which records may be.
        tables: by namespace.
        avro: whether records are Avro, else JSON.
    """

    def __init__(
        self, raw: DataFrame, kinds: tuple[RecordKind, ...], tables: dict[str, KnownTable], *, avro: bool
    ) -> None:
        self.kinds, self.tables = kinds, tables
        several = len({kind.topic for kind in kinds}) > 1
        number, body, key = (avro_rows.build_kind_columns if avro else _build_kind_columns)(kinds, several=several)
        beat = heartbeat_text()
        self._is_read = f.col("value").isNotNull() | beat.isNotNull()
        number = f.when(f.col("value").isNotNull(), number).otherwise(f.lit(_HEARTBEAT))
        body = f.when(f.col("value").isNotNull(), body).otherwise(beat.cast("binary"))
        kept = ("topic", "partition", "offset", "timestamp")
        self._records = FrameSelection(
            raw,
            *kept,
            *(key.alias("key"), number.alias("number"), body.alias("body")),
        )
        self._decode = ArrowTask(
            _make_decoding_task(kinds, tables, avro=avro), _PACKED, columns_of((*kept, "key", "number", "body"))
        )
        self._reports = FrameSelection(raw, "number", "nulls", "reason")
        self._small: dict[int, FrameSelection] = {}
        self._data = FrameSelection(raw, "data")
        self.unpack = {
            name: _make_unpacking_task(row_schema(table.plan.schema.columns, separate=table.plan.separate))
            for name, table in tables.items()
        }

    def packed(self, raw: DataFrame) -> DataFrame:
        """The rows of records, ``_PACKED``."""
        return self._decode.over(self._records.of(raw.where(self._is_read)))

    def reports(self, packed: DataFrame) -> DataFrame:
        """The columns without the rows."""
        return self._reports.of(packed)

    def small(self, packed: DataFrame, max_size: int) -> DataFrame:
        """All columns; null in place of rows of more than ``max_size`` bytes."""
        if max_size not in self._small:
            data = f.when(f.length("data") <= max_size, f.col("data")).alias("data")
            self._small[max_size] = FrameSelection(packed, "number", data, "nulls", "reason")
        return self._small[max_size].of(packed)

    def data(self, packed: DataFrame) -> DataFrame:
        """The rows alone."""
        return self._data.of(packed)


def _build_kind_columns(kinds: Sequence[RecordKind], *, several: bool) -> tuple[Column, Column, Column]:
    """Expressions for the number of a record's kind (-1: none), for what follows its schema, and for its key."""
    value, key = f.col("value"), f.col("key")
    numbers, bodies, keys = [], [], []
    for index, kind in enumerate(kinds):
        mine = f.startswith(value, f.lit(kind.value)) if kind.value else ~f.startswith(value, f.lit(SCHEMA))
        if kind.key is not None:
            same_key = f.startswith(key, f.lit(kind.key)) if kind.key else ~f.startswith(key, f.lit(SCHEMA))
            mine &= f.coalesce(same_key, f.lit(not kind.key))
        if several:
            mine &= f.col("topic") == kind.topic
        numbers.append((mine, f.lit(index)))
        if kind.value:
            bodies.append((mine, f.substring(value, len(kind.value) + 1, _WHOLE)))
        else:
            keys.append((mine, key))
    return (
        choose_last(numbers, f.lit(-1)),
        choose_last(bodies, value),
        choose_last(keys, f.lit(None).cast("binary")),
    )


class _Irregular(Exception):
    """A batch can't be decoded in one pass; the text says why."""


def _make_decoding_task(
    kinds: tuple[RecordKind, ...], tables: Mapping[str, KnownTable], *, avro: bool
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The task that decodes records of these kinds."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        def row(number: int, data: Any, nulls: Collection[str], reason: str) -> pa.RecordBatch:
            names = msgspec.json.encode(sorted(nulls)).decode() if nulls else None
            columns = [
                pa.array([number], pa.int32()),
                pa.array([data], pa.binary()),
                pa.array([names], pa.string()),
                pa.array([reason or None], pa.string()),
            ]
            return pa.RecordBatch.from_arrays(columns, names=["number", "data", "nulls", "reason"])

        # Decoding makes no cycles, and looking for some costs as much as it does.
        gc.disable()
        decoder = (avro_rows.AvroRowReader if avro else JsonRows)(kinds, tables)
        try:
            for records in batches:
                batch, beats = _split_heartbeats(records)
                if beats:
                    yield row(_HEARTBEAT, None, beats, "")
                try:
                    decoded = list(_decode_batch(batch, kinds, decoder))
                except _Irregular as reason:
                    yield row(-1, None, (), str(reason))
                    break
                for number, rows in decoded:
                    yield row(number, rows.serialize().to_pybytes(), decoder.nulls(number), "")
            for _ in batches:  # Spark expects that a task reads all of its input
                pass
        finally:
            gc.enable()

    return frozen_after("single pass of Avro" if avro else "single pass", run)


def _split_heartbeats(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[str]]:
    """The batch without heartbeats, and these as JSON: topic, partition, time of the record in µs, text."""
    import numpy as np
    import pyarrow as pa

    is_beat = batch.column("number").to_numpy() == _HEARTBEAT
    if not is_beat.any():
        return batch, []
    beats = batch.take(pa.array(np.flatnonzero(is_beat)))
    columns = [beats.column(name).to_pylist() for name in ("topic", "partition", "body")]
    times = beats.column("timestamp").cast(pa.int64()).to_pylist()
    rows = [
        msgspec.json.encode((topic, partition, came_us, text.decode())).decode()
        for topic, partition, text, came_us in zip(*columns, times, strict=True)
    ]
    return batch.take(pa.array(np.flatnonzero(~is_beat))), rows


def _make_unpacking_task(schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The task that gives the rows that ``_make_decoding_task`` has packed."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for data in batch.column(0):
                yield pa.ipc.read_record_batch(data.as_buffer(), schema)

    return frozen_after("unpacking", run)


class KindRows(Protocol):
    """Makes rows of records of known kinds, in a task."""

    def rows(self, number: int, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """One row per record of kind ``number``, in order; None where they have to be read on the full path."""

    def nulls(self, number: int) -> frozenset[str]:
        """Names that were met with null only, in the table of the kind, and that it was not made with."""


def _decode_batch(
    batch: pa.RecordBatch, kinds: Sequence[RecordKind], decoder: KindRows
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows and the number of their kind; rows of a table in the order of its records.

    Args:
        batch: records: topic, partition, offset, timestamp, key, number (of the kind), body.
        kinds: by their numbers.
        decoder: makes the rows.

    Raises:
        _Irregular: the records can't be decoded so.
    """
    import numpy as np
    import pyarrow as pa

    def rows_of(number: int, records: pa.RecordBatch) -> tuple[int, pa.RecordBatch]:
        rows = decoder.rows(number, records)
        if rows is None:
            raise _Irregular("a record is not as the earlier ones of its table")
        return number, rows

    numbers = batch.column("number").to_numpy()
    if not len(numbers):
        return
    if (numbers < 0).any():
        raise _Irregular("a record is of no known kind")
    if (numbers == numbers[0]).all():
        yield rows_of(int(numbers[0]), batch)
        return
    names = {kind.namespace: index for index, kind in enumerate(kinds)}
    table_of = np.array([names[kind.namespace] for kind in kinds])
    for table in np.unique(table_of[numbers]):
        (indexes,) = np.nonzero(table_of[numbers] == table)
        of_table = numbers[indexes]
        cuts = [0, *(np.flatnonzero(np.diff(of_table)) + 1).tolist(), len(indexes)]
        if len(cuts) > _RUNS:
            raise _Irregular("records of several schemas alternate")
        for first, last in pairwise(cuts):
            yield rows_of(int(of_table[first]), batch.take(pa.array(indexes[first:last])))


class JsonRows:
    """Makes rows of records in JSON, in a task.

    Args:
        kinds: by their numbers.
        tables: by namespace.
    """

    def __init__(self, kinds: Sequence[RecordKind], tables: Mapping[str, KnownTable]) -> None:
        self._kinds = kinds
        self._tables = tables
        self._nulls = {name: table.nulls for name, table in tables.items()}
        self._decoders = {
            name: TableDecoder(table.plan, no_report, nulls=table.nulls) for name, table in tables.items()
        }
        #: Kinds without a schema of which a key has been looked at.
        self._keyed: set[int] = set()

    def nulls(self, number: int) -> frozenset[str]:
        """Names that were met with null only, in the table of the kind, and that it was not made with."""
        name = self._kinds[number].namespace
        return self._nulls[name] - self._tables[name].nulls

    def rows(self, number: int, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """One row per record of kind ``number``, in order; None where they have to be read on the full path.

        Raises:
            _Irregular: the same, and why.
        """
        kind = self._kinds[number]
        if not kind.value and number not in self._keyed:
            self._check_key(number, batch)
        bodies = batch.column("body").to_pylist()
        rows = self._decoders[kind.namespace].decode_regular(kind.value, bodies, batch)
        if rows is None and not kind.value and self._learn_nulls(kind.namespace, bodies):
            rows = self._decoders[kind.namespace].decode_regular(kind.value, bodies, batch)
        return rows

    def _check_key(self, number: int, batch: pa.RecordBatch) -> None:
        """Look at the first key that names columns, as the search for tables does."""
        table = self._tables[self._kinds[number].namespace]
        if table.keys is None:
            return
        columns = {column.name: column.type for column in table.plan.schema.columns}
        for key in batch.column("key").to_pylist():
            if not key:
                continue
            try:
                data = msgspec.json.decode(key)
            except (msgspec.DecodeError, ValueError, RecursionError):
                continue
            names = key_names(data)
            if not names:
                continue
            if names != table.keys:
                raise _Irregular("a key has other columns")
            values = data["payload"] if is_enveloped(data) else data
            for name, value in values.items():
                if value is None or type(value) in accepted_types(columns[name]):
                    continue
                kind = infer_type(value)
                if kind is None or wider_inferred(columns[name], kind) != columns[name]:
                    raise _Irregular("a key has values of another type")
            self._keyed.add(number)
            return

    def _learn_nulls(self, namespace: str, bodies: Sequence[bytes]) -> bool:
        """Look for members of images that no column has and that are null in all of ``bodies``; whether there are some."""
        known_names = {column.name for column in self._tables[namespace].plan.schema.columns} | self._nulls[namespace]
        fresh: set[str] = set()
        try:
            for event in msgspec.json.Decoder(_EventImages).decode_lines(b"\n".join(bodies)):
                for image in (event.after, event.before):
                    for name in (image or {}).keys() - known_names:
                        if image is None or image[name] is not None:
                            return False
                        fresh.add(name)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return False
        if not fresh:
            return False
        self._nulls[namespace] |= fresh
        plan = self._tables[namespace].plan
        self._decoders[namespace] = TableDecoder(plan, no_report, nulls=self._nulls[namespace])
        return True


class _EventImages(msgspec.Struct, gc=False):
    """The rows in an event."""

    after: dict[str, Any] | None = None
    before: dict[str, Any] | None = None
