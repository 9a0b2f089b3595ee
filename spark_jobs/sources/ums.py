"""``source.format=ums``: UMS 1.3 (specs: DBus, Wormhole).

One topic may hold many tables; a message holds many rows and its own schema. Decoded in Python: rows are tuples of text,
collected over messages of one schema and cast column by column by Arrow.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from connectors.errors import Fatal, Skippable
from connectors.formats.ums import INCREMENT_HEARTBEAT, SIGNALS, UID, WITH_ROWS
from connectors.options import ConfigDef
from spark_jobs.config.keys import REFUSE, SEPARATE, SHARDS, TABLES
from spark_jobs.config.schema_options import SchemaPolicies
from spark_jobs.contract import Source, TableChanges, TableSchema
from spark_jobs.dead_letters import DeadLetters
from spark_jobs.metrics import JobMetric
from spark_jobs.reports.heartbeats import Heartbeats
from spark_jobs.reports.met_heartbeats import MetHeartbeat, MetHeartbeats
from spark_jobs.reports.ums_heartbeats import read_heartbeat
from spark_jobs.rows import shards
from spark_jobs.rows.misfit import ColumnMisfit
from spark_jobs.sources.decoding import frame_type
from spark_jobs.sources.decoding_options import COMMON_KEYS
from spark_jobs.sources.records.columns import arrow_type, recast_array
from spark_jobs.sources.records.system_columns import KAFKA_FIELDS, SYSTEM_TYPES, TIMESTAMP
from spark_jobs.sources.table_filter import is_selected
from spark_jobs.sources.tables import (
    SchemaFiles,
    find_absent_columns,
    from_json,
    make_nullable,
    merge_schema,
    restore_table,
    to_json,
)
from spark_jobs.sources.tasks import FIELDS
from spark_jobs.sources.ums_layout import DECIMAL_SCALE, TYPES, UmsLayout, layout_of
from spark_jobs.spark.worker_memory import frozen_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from spark_jobs.contract import Batch, JobContext
    from spark_jobs.sources.messages import MessageRows
    from spark_jobs.sources.records.rows import Report

_KINDS: Final = "protocol string, schema binary, count long"
_OPS: Final = frozenset("iudb")
_BAD: Final = (msgspec.DecodeError, ValueError, TypeError, OverflowError, Skippable, KeyError)


class _Protocol(msgspec.Struct, gc=False):
    type: str


class _UmsRow(msgspec.Struct, gc=False):
    tuple: list[str | None]


class _UmsDocument(msgspec.Struct, gc=False):
    protocol: _Protocol
    schema: msgspec.Raw
    payload: list[_UmsRow] = []


class _MessageHead(msgspec.Struct, gc=False):
    protocol: _Protocol
    schema: msgspec.Raw


_KEYS: Final = tuple(key for key in COMMON_KEYS if key.name in {"source.before.rows", "source.key.columns"})


class UmsSource(Source):
    """Decodes UMS; heartbeats and terminations are counted."""

    config_def: ClassVar[ConfigDef] = ConfigDef(_KEYS)
    metrics: ClassVar[tuple[JobMetric, ...]] = (
        JobMetric("ums_heartbeats_total", "counter", "", "UMS heartbeats that were read in this run."),
        JobMetric("ums_terminations_total", "counter", "", "UMS terminations that were read in this run."),
    )
    pass_through: ClassVar[tuple[str, ...]] = ("source.key.columns.",)

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self._files = SchemaFiles(context.spark, context.config.get("checkpoint.location"))
        self._shards = str(context.config.get(SHARDS) or REFUSE)
        self._chosen: tuple[str, ...] = tuple(context.config.get(TABLES) or ())
        #: As the messages show them: without columns for the shard, under the newest version's namespace.
        self._tables: dict[str, TableSchema] = {}
        self._before: dict[str, TableSchema] = {}
        #: Columns that some version of a table's rows in this batch does not have.
        self._lacking: dict[str, frozenset[str]] = {}
        self._takes_text = SchemaPolicies.of(context.config).takes_text
        self._loaded = False
        self._unsaved = False

    @classmethod
    def read_messages(cls, properties: Mapping[str, str]) -> MessageRows:
        """The reader of the job's messages for ``millrace verify``; raises as ``MessageRows``."""
        from spark_jobs.sources.messages import MessageRows, read_ums

        # A message's key names its table and is no key of a row.
        return MessageRows({**properties, "source.key.encoding": "bytes"}, _KEYS, read_ums)

    def changes(self, batch: Batch) -> list[TableChanges]:
        """See ``Source.changes``; runs one Spark job that looks for schemas."""
        self._load_tables()
        report = DeadLetters.of(self.context)
        rows = batch.raw.where(f.col("value").isNotNull()).select(*FIELDS)
        groups: dict[str, dict[bytes, UmsLayout]] = {}
        looking = frozen_after("looking", _make_looking_task(report, numbers=self._shards == SEPARATE))
        for kind_row in rows.mapInArrow(looking, _KINDS).collect():
            self._count_signals(kind_row["protocol"], kind_row["count"])
            if kind_row["protocol"] == INCREMENT_HEARTBEAT and kind_row["schema"]:
                beat = msgspec.json.decode(bytes(kind_row["schema"]), type=MetHeartbeat)
                Heartbeats.of(self.context).note_met([beat])
            if kind_row["protocol"] in WITH_ROWS:
                layout = layout_of(bytes(kind_row["schema"]))
                if not is_selected(self._chosen, layout.namespace):
                    continue
                groups.setdefault(layout.table, {})[bytes(kind_row["schema"])] = layout
        before = self._before = dict(self._tables)
        self._lacking.clear()
        for table, layouts in groups.items():
            if self._shards == REFUSE:
                known_schema = self._tables.get(table)
                shards.check_one(
                    table,
                    UmsLayout(known_schema.namespace, (), ()).shard if known_schema is not None else None,
                    {layout.shard for layout in layouts.values()},
                )
            self._merge_layouts(table, layouts)
        self._unsaved |= before != self._tables
        return [
            TableChanges(
                schema := self._written_as(table),
                self._build_frame(rows, schema, layouts, report),
                self._lacking.get(table, frozenset()),
            )
            for table, layouts in groups.items()
        ]

    def schemas(self) -> list[TableSchema]:
        """See ``Source.schemas``."""
        return [self._written_as(table) for table in self._tables]

    def refused(self, namespace: str) -> None:
        """See ``Source.refused``."""
        restore_table(self._tables, self._before, UmsLayout(namespace, (), ()).table)

    def _written_as(self, table: str) -> TableSchema:
        """The table as sinks get it."""
        schema = self._tables[table]
        if self._shards != REFUSE:
            schema = replace(schema, namespace=shards.logical_namespace(schema.namespace))
        return shards.with_numbers(schema) if self._shards == SEPARATE else schema

    def written(self) -> None:
        """See ``Source.written``."""
        if self._unsaved:
            self._files.save(to_json(self._tables, {"shards": self._shards}))
            self._unsaved = False

    def _load_tables(self) -> None:
        if not self._loaded:
            tables_json = self._files.load()
            if tables_json is not None:
                self._tables, extra = from_json(tables_json)
                shards.check_mode(extra.get("shards"), self._shards, self._tables, self._files.folder)
            self._loaded = True

    def _count_signals(self, protocol: str, count: int) -> None:
        if protocol not in WITH_ROWS:
            name = "ums_heartbeats_total" if protocol.endswith("heartbeat") else "ums_terminations_total"
            self.context.metrics[name] = self.context.metrics.get(name, 0.0) + count

    def _merge_layouts(self, table: str, layouts: Mapping[bytes, UmsLayout]) -> None:
        where = f"(Schemas are kept in {self._files.folder}.)" if self._files.folder else ""
        config = self.context.config
        key_option = config.raw.get(f"source.key.columns.{table}")
        keys = (
            [name.strip() for name in key_option.split(",")]
            if key_option
            else list(config.get("source.key.columns") or ())
        )
        schema = self._tables.get(table)
        for layout in sorted(layouts.values(), key=lambda candidate: candidate.version):
            try:
                columns = layout.columns(keys)
            except Skippable as error:
                raise Fatal(str(error)) from error
            newest = schema is None or layout.version >= UmsLayout(schema.namespace, (), ()).version
            schema = make_nullable(
                merge_schema(schema, layout.namespace, columns, where, to_string=self._takes_text), columns
            )
            self._lacking[table] = self._lacking.get(table, frozenset()) | find_absent_columns(schema, columns)
            if newest and schema.namespace != layout.namespace:
                schema = TableSchema(layout.namespace, schema.columns)
        if schema is not None:
            self._tables[table] = schema

    def _build_frame(
        self, rows: DataFrame, schema: TableSchema, layouts: dict[bytes, UmsLayout], report: DeadLetters
    ) -> DataFrame:
        before = bool(self.context.config.get("source.before.rows"))
        task = frozen_after("decoding", _make_decoding_task(schema, layouts, before, report))
        return rows.mapInArrow(task, frame_type(schema))


def _make_looking_task(
    report: DeadLetters, *, numbers: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts: dict[tuple[str, bytes], int] = {}
        beats = MetHeartbeats()
        with report:
            for batch in batches:
                count_messages(batch, counts, report.report, beats, numbers=numbers)
        rows = [(protocol, schema, count) for (protocol, schema), count in counts.items()]
        rows += [(INCREMENT_HEARTBEAT, msgspec.json.encode(beat), 0) for beat in beats.take()]
        protocols, schemas, numbers_of_kind = zip(*rows, strict=True) if rows else ((), (), ())
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(protocols, pa.string()),
                pa.array(schemas, pa.binary()),
                pa.array(numbers_of_kind, pa.int64()),
            ],
            names=["protocol", "schema", "count"],
        )

    return run


def count_messages(
    batch: pa.RecordBatch,
    counts: dict[tuple[str, bytes], int],
    report: Report,
    beats: MetHeartbeats | None = None,
    *,
    numbers: bool = False,
) -> None:
    """Count messages by protocol and schema; reports those that are no UMS, and those that have rows of an unusable schema.

    ``beats`` notes heartbeats; those without a time are counted only.
    With ``numbers``, a namespace whose last two parts are no numbers is unusable too.
    """
    decode = msgspec.json.Decoder(_MessageHead).decode
    for index, value in enumerate(batch.column("value").to_pylist()):
        try:
            head = decode(value)
            kind = (head.protocol.type, bytes(head.schema) if head.protocol.type in WITH_ROWS else b"")
            if kind not in counts:
                if kind[1]:
                    layout = layout_of(kind[1])
                    if numbers:
                        shards.ums_shard(layout.namespace)
                elif kind[0] not in SIGNALS:
                    raise Skippable(
                        f"The protocol {kind[0]!r} is unknown; known are {', '.join(sorted(WITH_ROWS | SIGNALS))}."
                    )
                counts[kind] = 0
            counts[kind] += 1
            if kind[0] == INCREMENT_HEARTBEAT and beats is not None:
                with suppress(*_BAD):
                    beats.note(read_heartbeat(batch, index))
        except _BAD as error:
            report_bad(batch, index, report, error)


def report_bad(batch: pa.RecordBatch, index: int, report: Report, error: Exception) -> None:
    """Report a message of ``batch``."""
    topic, partition, offset, key, value = (
        batch.column(name)[index].as_py() for name in ("topic", "partition", "offset", "key", "value")
    )
    report(topic, partition, offset, key, value, error)


def _make_decoding_task(
    schema: TableSchema,
    layouts: dict[bytes, UmsLayout],
    before: bool,  # noqa: FBT001
    report: DeadLetters,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gc.disable()
        decoder = UmsDecoder(schema, layouts, before=before, report=report.report)
        try:
            with report:
                for batch in batches:
                    yield from decoder.decode(batch)
        finally:
            gc.enable()

    return run


class UmsDecoder:
    """Decodes the messages of one table; lives as long as a Spark task.

    Args:
        schema: the table.
        layouts: its versions in the batch, by the text of the message's schema.
        before: whether ``b`` rows are wanted.
        report: takes (topic, partition, offset, key, value, error) of a bad message, whose rows are all left out.
    """

    def __init__(
        self, schema: TableSchema, layouts: Mapping[bytes, UmsLayout], *, before: bool, report: Report
    ) -> None:
        self._schema = schema
        self._layouts = layouts
        self._before = before
        self._report = report
        self._message = msgspec.json.Decoder(_UmsDocument)
        self._arrow = pa.schema([*((column.name, arrow_type(column.type)) for column in schema.columns), *SYSTEM_TYPES])

    def decode(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of a batch of messages, in order."""
        run: list[tuple[int, list[list[str | None]]]] = []
        of: UmsLayout | None = None
        for index, value in enumerate(batch.column("value").to_pylist()):
            try:
                message = self._message.decode(value)
            except _BAD:
                continue  # reported by the search for schemas, or by it found to be of no table
            layout = self._layouts.get(bytes(message.schema))
            if layout is None or message.protocol.type not in WITH_ROWS:
                continue
            if layout is not of and run and of is not None:
                yield from self._build_batches(of, run, batch)
                run = []
            of = layout
            run.append((index, [row.tuple for row in message.payload]))
        if run and of is not None:
            yield from self._build_batches(of, run, batch)

    def _build_batches(
        self, layout: UmsLayout, run: Sequence[tuple[int, list[list[str | None]]]], batch: pa.RecordBatch
    ) -> Iterator[pa.RecordBatch]:
        try:
            yield self._build_batch(layout, run, batch)
        except _BAD as error:
            if len(run) == 1:
                index = run[0][0]
                report_bad(batch, index, self._report, error)
                return
            for record in run:
                yield from self._build_batches(layout, [record], batch)

    def _build_batch(
        self, layout: UmsLayout, run: Sequence[tuple[int, list[list[str | None]]]], batch: pa.RecordBatch
    ) -> pa.RecordBatch:
        tuples = [values for _, rows in run for values in rows]
        width = len(layout.names)
        if any(len(values) != width for values in tuples):
            raise Skippable(f"A tuple has another number of values than the schema has fields ({width}).")
        indexes = pa.array([index for index, rows in run for _ in rows], pa.int32())
        columns = (
            dict(zip(layout.names, zip(*tuples, strict=True), strict=True))
            if tuples
            else dict.fromkeys(layout.names, ())
        )
        kinds = dict(zip(layout.names, layout.kinds, strict=True))
        if not set(columns["ums_op_"]) <= _OPS:
            raise Skippable("ums_op_ is not one of i, u, d, b.")
        records = batch.select(KAFKA_FIELDS).take(indexes)
        system = [
            self._cast_column("ums_id_", columns["ums_id_"], "long"),
            self._cast_column("ums_ts_", columns["ums_ts_"], "datetime"),
            pa.array(columns["ums_op_"], pa.string()),
            pa.array(columns[UID] if UID in columns else _make_uids(records, run), pa.string()),
            records.column("topic"),
            records.column("partition"),
            records.column("offset"),
        ]
        if any(array.null_count for array in system):
            raise Skippable("A system field (ums_id_, ums_ts_, ums_op_, ums_uid_) is null.")
        arrays = []
        if self._schema.sharded:
            arrays += [
                pa.repeat(pa.scalar(number, pa.int64()), len(tuples)) for number in shards.ums_shard(layout.namespace)
            ]
        for column in self._schema.columns[len(arrays) :]:
            target = self._arrow.field(column.name).type
            array = (
                self._cast_column(column.name, columns[column.name], kinds[column.name], target)
                if column.name in columns
                else pa.nulls(len(tuples), target)
            )
            if column.key and array.null_count:
                raise Skippable(f"The key column {column.name} is null.")
            arrays.append(array)
        built = pa.RecordBatch.from_arrays([*arrays, *system], schema=self._arrow)
        return built if self._before else built.filter(pc.not_equal(built.column("ums_op_"), "b"))

    def _cast_column(
        self, column: str, values: Sequence[str | None], kind: str, target: pa.DataType | None = None
    ) -> pa.Array:
        """The array of a column's values.

        Raises:
            ColumnMisfit: a value is not of the type.
        """

        def make_array(strings: Sequence[str | None]) -> pa.Array:
            array = cast_strings(strings, kind)
            return array if target is None else recast_array(array, target)

        try:
            return make_array(values)
        except _BAD as error:
            for value in values:
                try:
                    make_array([value])
                except _BAD as value_error:
                    fix = "Correct it in the source; with errors.tolerance=all such messages are put aside"
                    raise ColumnMisfit(self._schema.namespace, column, kind, value, value_error, fix) from None
            raise error from None


def _make_uids(records: pa.RecordBatch, run: Sequence[tuple[int, list[list[str | None]]]]) -> list[str]:
    """Ids for rows without ``ums_uid_``: the message's position in Kafka, and the row's number in it."""
    message_positions = zip(
        *(records.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True
    )
    numbers = (number for _, rows in run for number in range(len(rows)))
    return [
        f"{topic}-{partition}-{offset}.{number}"
        for (topic, partition, offset), number in zip(message_positions, numbers, strict=True)
    ]


def cast_strings(values: Sequence[str | None], kind: str) -> pa.Array:
    """An array of UMS's text values of type ``kind``.

    Raises:
        ValueError: one is no such value (Arrow's errors are of this class).
    """
    if kind == "binary":
        decode = msgspec.json.Decoder(bytes).decode
        return pa.array(
            [None if value is None else decode(b'"' + value.encode() + b'"') for value in values], pa.binary()
        )
    string_array = pa.array(values, pa.string())
    if kind == "string":
        return string_array
    if kind == "datetime":
        return string_array.cast(pa.timestamp("us")).view(TIMESTAMP)
    if kind == "decimal":
        return string_array.cast(pa.decimal128(38, DECIMAL_SCALE))
    return string_array.cast(arrow_type(TYPES[kind]))
