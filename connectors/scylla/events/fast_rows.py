"""Rows of a log straight to keys and values in bytes: ``connectors.wire`` for the legacy and the advanced format.

A function is compiled per table version. It goes over rows as that of ``source_text`` does, but builds what the runtime's forms
ask for instead of dicts. It has no effects: whatever it can't do raises, and the rows go the general way.
"""

from __future__ import annotations

import struct
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from connectors.codegen import CodeBuilder
from connectors.cql.values import BadCell
from connectors.formats.timeuuid import format_uuid
from connectors.scylla.events.debezium import VERSION, DebeziumBuilder
from connectors.scylla.events.values import UUID_EPOCH, event_form
from connectors.scylla.model import (
    INSERT,
    OPERATION,
    PARTITION_DELETE,
    POSTIMAGE,
    PREIMAGE,
    ROW_DELETE,
    SEQ,
    TIME,
    TTL,
    UPDATE,
)
from connectors.scylla.positions import OFFSET_SEQ, OFFSET_TIME
from connectors.wire import EVENT, ROW, Encoding, Fixed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from connectors.api import Position, SourceRecord
    from connectors.encoded_parts import EncodedParts
    from connectors.formats.masks.record_masks import RecordMasker
    from connectors.scylla.events.contract import ScyllaEventSettings
    from connectors.scylla.events.debezium import Clock
    from connectors.scylla.events.shape import LogColumn
    from connectors.scylla.model import LogRow, StreamRun
    from connectors.wire import RowForm, RowWriter, Shape, Wire

    #: ``(rows, ms, us, ns) -> (keys, values, numbers of values behind which a tombstone comes)``: structs to be encoded.
    Build = Callable[..., tuple[list[Any], list[Any], list[int]]]

#: Rows that are encoded in one call: few enough to stay in the processor's cache.
CHUNK_ROWS: Final = 64
_IMAGES: Final = frozenset({PREIMAGE, POSTIMAGE})
_WRITES: Final = _IMAGES | {INSERT, UPDATE}
_OPERATION_OF: Final = itemgetter(OPERATION)
#: Members of ``source`` that follow from the time of the change.
_TIMES: Final = {"ts_ms": "ms", "ts_us": "us", "ts_ns": "ms * 1000000"}
_NOW: Final = {"ts_ms": "now_ms", "ts_us": "now_us", "ts_ns": "now_ns"}


class ScyllaOddRowError(Exception):
    """A row that is no write to, nor deletion of, one row: its run goes the general way."""


async def fast_feed(wire: Wire, builder: object) -> FastFeed | None:
    """The encoder of a table version's rows; None where only records will do.

    Args:
        wire: of the task.
        builder: makes the records.

    Raises:
        Fatal: a service that a converter needs refuses this client.
    """
    masker: RecordMasker | None = getattr(builder, "masker", None)
    if masker is not None:  # of ``MaskedBuilder``, which is imported only where there are masks
        from connectors.formats.masks.masked_wire import MaskedWire

        builder, wire = builder.inner, MaskedWire(wire, masker)  # type: ignore[attr-defined]
    if not isinstance(builder, DebeziumBuilder):
        return None
    settings, schemas = builder.settings, builder.schemas
    if (
        builder.has_images
        or schemas.has_delta
        or settings.skipped_operations & {"c", "u", "d"}
        or (settings.output_format == "advanced" and "kafka-headers" in settings.key_placement)
    ):
        return None
    key = Encoding(schemas.key, {column.name: ROW for column in schemas.key_columns}) if builder.keyed else None
    writer = await wire.writer(builder.topic, key, Encoding(schemas.value, _envelope_shape(builder)))
    try:
        return None if writer is None else FastFeed(builder, writer, masker)
    except ValueError:  # records of this kind have no form
        return None


def _envelope_shape(builder: DebeziumBuilder) -> Shape:
    schemas, table = builder.schemas, builder.version.id
    image: Shape | Fixed = Fixed(None)
    if schemas.is_legacy:
        image = {column.name: ROW if column.is_key else {"value": ROW} for column in schemas.columns}
    source: dict[str, Any] = {
        "version": Fixed(VERSION),
        "connector": Fixed("scylla"),
        "name": Fixed(builder.settings.topic_prefix),
        "snapshot": Fixed("false"),
        "db": Fixed(table.keyspace),
        "sequence": Fixed(None),
        "keyspace_name": Fixed(table.keyspace),
        "table_name": Fixed(table.table),
        **dict.fromkeys(_TIMES, ROW),
        "ttl": ROW,
    }
    shape: dict[str, Any] = {
        "source": source,
        "before": image,
        "after": image,
        "op": ROW,
        "ts_ms": EVENT,
        "transaction": Fixed(None),
        "ts_us": EVENT if schemas.is_legacy else Fixed(None),
        "ts_ns": EVENT if schemas.is_legacy else Fixed(None),
        "deletion": Fixed(None),
    }
    if builder.payload_key is not None:
        shape[builder.payload_key] = {column.name: ROW for column in schemas.key_columns}
    return shape


def _find_last_change(rows: list[LogRow]) -> LogRow | None:
    """The last row that is no image."""
    return next((row for row in reversed(rows) if row[OPERATION] not in _IMAGES), None)


class FastFeed:
    """Encodes the rows of one table version; not thread-safe, does not block.

    Args:
        builder: makes the same records the general way.
        writer: of the table version.
        masker: masks these records; None: no one does.
    """

    __slots__ = ("_build", "_builder", "_encodable", "_masker", "_writer")

    def __init__(self, builder: DebeziumBuilder, writer: RowWriter, masker: RecordMasker | None = None) -> None:
        self._builder = builder
        self._masker = masker
        self._writer = writer
        generator = _RowsGenerator(builder, writer)
        self._build = generator.function()
        #: Operations that rows to be encoded may have.
        self._encodable = _WRITES | generator.deletions

    def split_run(self, run: StreamRun) -> Iterable[tuple[StreamRun, bool]]:
        """Split a run, so that deletions that have to be records leave the rows around them to ``take``.

        Returns:
            The parts in order, each with whether ``take`` may be asked for it.
        """
        encodable = self._encodable
        if run.skip is not None:
            return ((run, False),)
        if encodable.issuperset(map(_OPERATION_OF, run.rows)):
            return ((run, _find_last_change(run.rows) is not None),)
        if ROW_DELETE in encodable:
            return ((run, False),)
        parts = [(list(rows), writes) for writes, rows in groupby(run.rows, lambda row: row[OPERATION] in _WRITES)]
        final = len(parts) - 1
        return [
            (
                run._replace(rows=rows, last=run.last and index == final),
                writes and _find_last_change(rows) is not None,
            )
            for index, (rows, writes) in enumerate(parts)
        ]

    def take(self, runs: Sequence[StreamRun], after: int, parts: EncodedParts) -> bool:
        """Encode runs, which may be of several streams: a page of many streams has few rows of each.

        Args:
            runs: at least one; those for which ``split_run`` says that they may be asked for.
            after: how many records of the batch come before them.
            parts: gets what is encoded.

        Returns:
            Whether they were encoded. If not, nothing was, and at least one of them has to go the general way.
        """
        rows = runs[0].rows if len(runs) == 1 else [row for run in runs for row in run.rows]
        builder = self._builder
        if builder.has_open_ranges or (
            any(run.may_be_bad for run in runs) and BadCell in map(type, chain.from_iterable(rows))
        ):
            return False
        clock = builder.clock()
        try:
            keys, values = self.encode(rows, clock)
        except Exception:  # noqa: BLE001 - the general way finds out what it is, and reports it
            return False
        parts.add(self._writer, after, keys, values, lambda: self._make_records(runs, clock))
        return True

    @staticmethod
    def offset_of(run: StreamRun) -> Position:
        """The source offset of the last record of an encoded run."""
        last = _find_last_change(run.rows)
        if last is None:
            raise ValueError("a run of images alone has no record")
        return {**run.offset, OFFSET_TIME: format_uuid(last[TIME]), OFFSET_SEQ: last[SEQ]}

    def _make_records(self, runs: Sequence[StreamRun], clock: Clock) -> list[SourceRecord]:
        """The same records the general way."""
        records = [record for run in runs for record in self._builder.plain_records(run, clock)]
        return records if self._masker is None else [self._masker.mask(record) for record in records]

    def encode(self, rows: list[LogRow], clock: Clock) -> tuple[list[bytes] | None, list[bytes | None]]:
        """Keys and values of ordinary rows.

        Raises:
            Exception: a row is not ordinary, or can't be encoded.
        """
        keys: list[bytes] = []
        values: list[bytes | None] = []
        value_form, key_form, build = self._writer.value, self._writer.key, self._build
        for start in range(0, len(rows), CHUNK_ROWS):
            key_rows, value_rows, ends = build(rows[start : start + CHUNK_ROWS], *clock)
            if not value_rows:
                continue
            encoded_chunk: list[bytes | None] = value_form.encode(value_rows)  # type: ignore[assignment]
            key_chunk = [] if key_form is None else key_form.encode(key_rows)
            for end in reversed(ends):
                encoded_chunk.insert(end, None)
                key_chunk.insert(end, key_chunk[end - 1])
            values += encoded_chunk
            keys += key_chunk
        return (None if key_form is None else keys), values


class _RowsGenerator:
    """Writes the function of one table version."""

    def __init__(self, builder: DebeziumBuilder, writer: RowWriter) -> None:
        self._builder = builder
        self._settings: ScyllaEventSettings = builder.settings
        self._schemas = builder.schemas
        self._writer = writer
        self._code = CodeBuilder(Odd=ScyllaOddRowError, time_parts=struct.Struct(">IHH8x").unpack)
        self._used = {TIME, OPERATION}
        #: Operations of deletions that are encoded too, see ``function``.
        self.deletions = frozenset({ROW_DELETE} if builder.has_clustering else {ROW_DELETE, PARTITION_DELETE})
        #: Lines before the loop.
        self._before_loop: list[str] = []

    def function(self) -> Build:
        """The function."""
        code, value, key = self._code, self._writer.value, self._writer.key
        add = code.add
        body = self._write_body()
        width = self._builder.width
        names = ", ".join(f"r{index}" if index in self._used else "_" for index in range(width))
        add(0, "def build(rows, now_ms, now_us, now_ns):")
        for form in (value, key):
            if form is not None and form.unpack:
                arguments = ", ".join(_NOW[path[0]] for path in form.events)
                add(1, f"{form.unpack} = {code.bind('constants', form.constants)}({arguments})")
        add(1, "keys, values, ends = [], [], []")
        add(1, "add_key, add_value = keys.append, values.append")
        add(1, "last = None")
        for line in self._before_loop:
            add(1, line)
        add(1, f"for ({names},) in rows:")
        for depth, line in body:
            add(2 + depth, line)
        add(1, "return keys, values, ends")
        code.names |= {**value.names, **({} if key is None else key.names)}
        return code.function("build", f"fast rows of {self._builder.topic}")

    def _write_body(self) -> Iterable[tuple[int, str]]:
        """The lines of the loop, and how deep they are in it."""
        value, key, schemas = self._writer.value, self._writer.key, self._schemas
        times = {
            name: value.leaf(
                ("source", name), expression if expression.isidentifier() else f"({expression})", nullable=False
            )
            for name, expression in _TIMES.items()
        }
        if schemas.has_ttl:
            times["ttl"] = value.leaf(("source", "ttl"), self._use_cell(TTL))
        source = f"source = {value.build(('source',), times)}"
        members = {"source": "source", "before": "None", "after": "None", "op": value.leaf(("op",), "op")}
        if self._builder.payload_key is not None:
            path = (self._builder.payload_key,)
            members[path[0]] = value.build(path, self._write_key(value, path))
        add_key = [] if key is None else [(1, f"add_key({key.build((), self._write_key(key, ()))})")]
        images = {name: self._write_image((name,)) for name in ("before", "after")} if schemas.is_legacy else {}
        written = members | ({"after": images["after"]} if images else {})
        deleted = members | ({"before": images["before"]} if images else {})
        deletes = " or ".join(f"r{OPERATION} == {operation}" for operation in sorted(self.deletions))
        tombstone = [(1, "ends.append(len(values))")] if self._settings.tombstones and key is not None else []
        try:
            deletion = [(1, f"add_value({value.build((), deleted)})"), *add_key, *tombstone]
        except ValueError:  # the runtime wants them as records
            self.deletions = frozenset()
            deletion = [(1, "raise Odd")]
        return [
            (0, f"if r{TIME} != last:"),
            (1, f"last = r{TIME}"),
            (1, "low, middle, high = time_parts(last)"),
            (1, f"us = ((high & 4095) << 48 | middle << 32 | low) // 10 - {UUID_EPOCH // 10}"),
            (1, "ms = us // 1000"),
            (0 if schemas.has_ttl else 1, source),
            (0, f"if 1 <= r{OPERATION} <= {INSERT}:"),
            (1, f"op = 'c' if r{OPERATION} == {INSERT} else 'u'"),
            (1, f"add_value({value.build((), written)})"),
            *add_key,
            (0, f"elif {deletes}:"),
            (1, "op = 'd'"),
            *deletion,
            (0, f"elif r{OPERATION} != {PREIMAGE} and r{OPERATION} != {POSTIMAGE}:"),
            (1, "raise Odd"),
        ]

    def _use_cell(self, index: int) -> str:
        self._used.add(index)
        return f"r{index}"

    def _write_leaf(self, form: RowForm, path: tuple[str, ...], column: LogColumn) -> str:
        """The expression of a column's value."""
        kind, cell = column.column.type, self._use_cell(column.value)
        pairs = kind.name == "list" and kind.is_multicell
        change = event_form(kind, self._settings.compat, self._settings.names, pairs=pairs)
        if change is None:
            return form.leaf(path, cell)
        return form.leaf(path, f"{self._code.bind('form', change)}({cell})", checked=True)

    def _write_key(self, form: RowForm, path: tuple[str, ...]) -> dict[str, str]:
        return {
            column.name: self._write_leaf(form, (*path, column.name), column) for column in self._schemas.key_columns
        }

    def _write_image(self, path: tuple[str, ...]) -> str:
        """``before`` or ``after`` of the legacy format, see ``source_text``."""
        form = self._writer.value
        members = {}
        for column in self._schemas.columns:
            where = (*path, column.name)
            if column.is_key:
                members[column.name] = self._write_leaf(form, where, column)
                continue
            cell = form.build(where, {"value": self._write_leaf(form, (*where, "value"), column)})
            null = self._code.new_name("null")
            self._before_loop.append(f"{null} = {form.leaf(where, 'None', checked=True)}")
            is_set = f"{self._use_cell(column.value)} is not None or {self._use_cell(column.deleted)}"
            members[column.name] = f"({cell} if {is_set} else {null})"
        return form.build(path, members)
