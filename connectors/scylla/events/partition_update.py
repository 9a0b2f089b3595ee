"""Rows of a log as partition updates: one record per change, see connectors/formats/PARTITION_UPDATE.md.

A change (rows of one stream with one ``cdc$time``) is one mutation of one partition, so it becomes one message; a batch of
thousands of rows becomes several, each of which is right without the others. Images say nothing new and are left out.

What the log says and what it means, where that is not the same:

- A write has one write time, that of ``cdc$time``. The deletion of a multicell column is the exception: Scylla shows it one
  microsecond late (CQL makes it just before the elements that replace the old ones), so it is always written one earlier here.
- The log does not say by the server's clock when something expires or was deleted: both follow from the write time.
- ``cdc$ttl`` belongs to a row of the log: where rows of one change differ, all but the first have a stamp of their own.
"""

from __future__ import annotations

import struct
from itertools import chain
from operator import itemgetter
from time import time as now
from typing import TYPE_CHECKING, Any, Final

from connectors.api import BadRecord, SourceRecord
from connectors.cql.values import BadCell
from connectors.errors import Fatal, Skippable
from connectors.formats import timeuuid
from connectors.formats.names import field_name
from connectors.formats.partition_update import UpdateLayout, UpdateSource
from connectors.schema import BYTES, OPTIONAL_BYTES, OPTIONAL_INT32, OPTIONAL_INT64
from connectors.scylla.events.changes import ChangeCutter, LogChange
from connectors.scylla.events.names import topic_name
from connectors.scylla.events.partition_update_cells import (
    StaticColumns,
    compile_rows,
    key_encoder,
    name_columns,
    name_values,
)
from connectors.scylla.events.shape import shape_of
from connectors.scylla.model import (
    END_OF_BATCH,
    INSERT,
    OPERATION,
    PARTITION_DELETE,
    POSTIMAGE,
    PREIMAGE,
    RANGE_END_INCLUSIVE,
    RANGE_START_EXCLUSIVE,
    RANGE_START_INCLUSIVE,
    ROW_DELETE,
    SEQ,
    STREAM,
    TIME,
    TTL,
    UPDATE,
)
from connectors.scylla.positions import OFFSET_SEQ, OFFSET_TIME, WINDOW_START

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import Position
    from connectors.scylla.events.contract import ScyllaEventSettings
    from connectors.scylla.events.shape import LogColumn
    from connectors.scylla.model import LogRow, StreamRun, TableVersion

#: A message ends where one of these is passed; a row is never divided.
MAX_ROWS: Final = 500
MAX_BYTES: Final = 512 * 1024

#: Start of the window that was read (ms), stream, ``cdc$time``, ``cdc$batch_seq_no`` of the last row.
_POSITION: Final = {
    "window": OPTIONAL_INT64,
    "stream": OPTIONAL_BYTES,
    "time": OPTIONAL_BYTES,
    "sequence": OPTIONAL_INT32,
}
#: What a value raises that is not of its column's type.
_FAILURES: Final = (ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError, struct.error, Skippable)
_is_end: Final = itemgetter(END_OF_BATCH)


class PartitionUpdateBuilder:
    """Makes partition updates of one table version; an ``EventBuilder``.

    Key: the serialized partition key as bytes (``ByteArrayConverter`` writes it as it is). Timestamp: the write time in ms.
    """

    def __init__(
        self,
        version: TableVersion,
        settings: ScyllaEventSettings,
        *,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """Compile it.

        Raises:
            Fatal: the table has counters, or its log has no values.
        """
        table = version.id
        if version.options.delta == "keys":
            raise Fatal(
                f"the log of {table} has keys and no values (cdc option 'delta': 'keys'), so partition updates can't "
                "be made of it: ALTER TABLE ... WITH cdc = {..., 'delta': 'full'}, then take a snapshot of the table, "
                "since changes from before have no values; or choose another output format."
            )
        self.layout = UpdateLayout(
            source=UpdateSource(
                connector="scylla",
                cluster=settings.topic_prefix,
                keyspace=table.keyspace,
                table=table.table,
                table_id=version.table_id,
                schema_version=version.version,
            ),
            columns=version.columns,
            position=_POSITION,
        )
        self.topic = topic_name(settings.topic_prefix, table)
        shape = shape_of(version)
        columns_by_name = {log_column.name: log_column for log_column in shape.columns}
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._cutter = ChangeCutter()
        self._open: set[bytes] = set()  # streams of which the cutter may hold rows back
        self._suspicious = False
        self._window: tuple[object, int | None] = (None, None)
        self._key = name_columns([columns_by_name[column.name] for column in self.layout.key])
        self._clustering = name_columns([columns_by_name[column.name] for column in self.layout.clustering])
        self._static = StaticColumns.of([columns_by_name[column.name] for column in self.layout.static])
        self._regular = [columns_by_name[column.name] for column in self.layout.regular]
        self._encode_key = key_encoder(self._key.columns)
        self._entry, self._single = compile_rows(
            shape.width, self._key.columns, self._clustering.columns, self._regular, self._row_tail()
        )
        self._sizes = [log_column.value for log_column in shape.columns]
        self._source = self.layout.source.schema

    # -- the contract

    def feed(self, run: StreamRun, out: list[SourceRecord], bad: list[BadRecord]) -> None:
        """See ``EventBuilder``."""
        read_ms = int(now() * 1000)
        self._suspicious = self._suspicious or run.may_be_bad
        rows = run.rows
        if not (self._suspicious or run.skip or self._open or self._static.columns) and all(map(_is_end, rows)):
            self._feed_single(run, read_ms, out, bad)
            return
        if rows and not run.last and not rows[-1][END_OF_BATCH]:
            self._open.add(rows[-1][STREAM])
        elif rows:
            self._open.discard(rows[-1][STREAM])
        for change in self._cutter.feed(run):
            rows = change.rows
            if change.skip is not None and change.skip[0] == rows[0][TIME]:
                seq = change.skip[1]
                rows = [row for row in rows if row[SEQ] > seq]
                if not rows:
                    continue
            if self._suspicious and BadCell in map(type, chain.from_iterable(rows)):
                self._refuse_change(change, rows, bad)
            elif len(rows) == 1 and rows[0][OPERATION] in {UPDATE, INSERT, ROW_DELETE, PARTITION_DELETE}:
                self._add_message(change, rows, read_ms, out, bad)
            else:
                for part in self._divide_rows(rows):
                    self._add_message(change, part, read_ms, out, bad)

    def _feed_single(self, run: StreamRun, read_ms: int, out: list[SourceRecord], bad: list[BadRecord]) -> None:
        """The usual case, a run of changes of one row each; gives what ``_add_message`` gives, without its detours."""
        parts, append, topic, schema, version = self._single, out.append, self.topic, self.layout.schema, self._source
        partition, shared, window, from_bytes = run.partition, run.offset, self._window_of(run.offset), int.from_bytes
        with_ranges = {"ranges": None} if self._clustering.columns else {}
        for row in run.rows:
            stream, time, seq, operation, ttl, _ = row[:6]
            if operation != UPDATE and operation != INSERT:  # noqa: PLR1714 - a set costs more here
                self._add_message(LogChange(partition, shared, [row], None), [row], read_ms, out, bad)
                continue
            high = from_bytes(time[:8], "big")
            write_time = ((high & 0x0FFF) << 48 | (high & 0xFFFF0000) << 16 | high >> 32) // 10 - timeuuid.EPOCH_MICROS
            digits = time.hex()
            time_text = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
            try:
                key, data, entry = parts(row, write_time)
            except _FAILURES as error:
                bad.append(
                    BadRecord(
                        partition,
                        {**shared, OFFSET_TIME: time_text, OFFSET_SEQ: seq},
                        self._describe_failure(error, f"the change {time_text}"),
                        topic=topic,
                    )
                )
                continue
            append(
                SourceRecord(
                    partition,
                    {**shared, OFFSET_TIME: time_text, OFFSET_SEQ: seq},
                    topic,
                    {
                        "source": {
                            "schema": version,
                            "snapshot": False,
                            "read_time": read_ms,
                            "position": {"window": window, "stream": stream, "time": time, "sequence": seq},
                        },
                        "key": key,
                        "write_time": write_time,
                        "ttl": ttl or None,
                        "expires": write_time // 1_000_000 + ttl if ttl else None,
                        "deletion": None,
                        "rows": None if entry is None else [entry],
                        **with_ranges,
                    },
                    schema,
                    data,
                    BYTES,
                    None,
                    (),
                    write_time // 1000,
                )
            )

    def reset(self) -> None:
        """See ``EventBuilder``."""
        self._cutter.reset()
        self._open.clear()

    def snapshot_row(
        self,
        partition: Position,
        offset: Position,
        cells: Sequence[object],
        write_time_us: int,
        out: list[SourceRecord],
        bad: list[BadRecord],
    ) -> None:
        """See ``EventBuilder``: the row as inserted at ``write_time_us``, with the partition's static cells.

        Collections and UDTs are written as overwritten at that time. A query doesn't give the names of a list's elements: they
        are made from the write time and the index, and must hide elements under their real names that the log brings too. So
        the old ones are deleted up to the write time and the new ones are one microsecond younger. A later write to one of
        them by its index (not an append, not an overwrite) adds an element instead of changing it.
        """
        row = self._log_form(cells, write_time_us)
        try:
            values = self._key.pick(row)
            message = self._make_value(
                write_time_us,
                None,
                None,
                {"schema": self._source, "snapshot": True, "read_time": int(now() * 1000), "position": None},
                values,
            )
            if self._static.is_set(row):
                message["static"] = self._restore_lists(
                    self._static_row(row, write_time_us, None), self._static.columns, write_time_us
                )
            if not self._clustering.columns or row[self._clustering.first] is not None:
                message["rows"] = [
                    self._restore_lists(self._entry(row, write_time_us, None), self._regular, write_time_us)
                ]
            key = self._encode_key(values)
        except _FAILURES as error:
            bad.append(
                BadRecord(partition, offset, self._describe_failure(error, "a row of the snapshot"), topic=self.topic)
            )
            return
        # Brokers refuse what is before 1970.
        time_ms = max(0, write_time_us // 1000)
        out.append(
            SourceRecord(partition, offset, self.topic, message, self.layout.schema, key, BYTES, timestamp=time_ms)
        )

    # -- messages

    def _divide_rows(self, rows: list[LogRow]) -> list[list[LogRow]]:
        """The rows of a change, cut where a message would become too large.

        Both ends of a range stay together; a message has one static row (a change has two where their TTLs differ).
        """
        parts: list[list[LogRow]] = []
        part: list[LogRow] = []
        size, key = 0, None
        opened = with_static = False
        for row in rows:
            operation = row[OPERATION]
            if operation in {PREIMAGE, POSTIMAGE}:
                if part:  # its number is delivered with the rows before it
                    part.append(row)
                continue
            grown = _estimate_size([row[index] for index in self._sizes])
            here = self._key.pick(row)
            static = self._static.is_set(row)
            full = len(part) >= self._max_rows or size + grown > self._max_bytes or (static and with_static)
            if part and not opened and (full or here != key):
                parts.append(part)
                part, size, with_static = [], 0, False
            part.append(row)
            with_static = with_static or static
            size += grown
            key = here
            opened = operation in {RANGE_START_INCLUSIVE, RANGE_START_EXCLUSIVE}
        if part:
            parts.append(part)
        return parts

    def _add_message(
        self, change: LogChange, rows: list[LogRow], read_ms: int, out: list[SourceRecord], bad: list[BadRecord]
    ) -> None:
        first, last = rows[0], rows[-1]
        time = first[TIME]
        time_text = timeuuid.format_uuid(time)
        offset = {**change.offset, OFFSET_TIME: time_text, OFFSET_SEQ: last[SEQ]}
        try:
            write_time = timeuuid.read_micros(time)
            source = {
                "schema": self._source,
                "snapshot": False,
                "read_time": read_ms,
                "position": {
                    "window": self._window_of(change.offset),
                    "stream": first[STREAM],
                    "time": time,
                    "sequence": last[SEQ],
                },
            }
            values = self._key.pick(first)
            if len(rows) == 1 and first[OPERATION] in {UPDATE, INSERT}:
                ttl = first[TTL] or None
                message = self._make_value(
                    write_time, ttl, None if ttl is None else write_time // 1_000_000 + ttl, source, values
                )
                self._add_row(message, first, write_time, None)
            else:
                ttl = next((row[TTL] for row in rows if row[TTL] and row[OPERATION] in {UPDATE, INSERT}), None)
                message = self._make_value(
                    write_time, ttl, None if ttl is None else write_time // 1_000_000 + ttl, source, values
                )
                self._fill_message(message, rows, write_time, ttl)
            key = self._encode_key(values)
        except _FAILURES as error:
            bad.append(
                BadRecord(
                    change.partition, offset, self._describe_failure(error, f"the change {time_text}"), topic=self.topic
                )
            )
            return
        out.append(
            SourceRecord(
                change.partition,
                offset,
                self.topic,
                message,
                self.layout.schema,
                key,
                BYTES,
                None,
                (),
                write_time // 1000,
            )
        )

    def _make_value(
        self, write_time: int, ttl: int | None, expires: int | None, source: dict[str, Any], key: tuple[Any, ...]
    ) -> dict[str, Any]:
        message: dict[str, Any] = {
            "source": source,
            "key": name_values(self._key.names, key, self._key.changes),
            "write_time": write_time,
            "ttl": ttl,
            "expires": expires,
            "deletion": None,
        }
        if self._static.columns:
            message["static"] = None
        message["rows"] = None
        if self._clustering.columns:
            message["ranges"] = None
        return message

    def _fill_message(
        self, message: dict[str, Any], rows: list[LogRow], write_time: int, shared_ttl: int | None
    ) -> None:
        """Put rows of any operation into ``message``."""
        opened: LogRow | None = None
        deletion = {"write_time": write_time, "local_deletion_time": write_time // 1_000_000}
        for row in rows:
            operation = row[OPERATION]
            if operation in {UPDATE, INSERT}:
                ttl = row[TTL] or None
                own_stamp = (
                    None
                    if ttl == shared_ttl
                    else {
                        "write_time": write_time,
                        "ttl": ttl,
                        "expires": None if ttl is None else write_time // 1_000_000 + ttl,
                    }
                )
                self._add_row(message, row, write_time, own_stamp)
            elif operation == ROW_DELETE:
                entry = {"liveness": None, "deletion": deletion, "stamp": None, **self._row_tail()}
                if self._clustering.columns:
                    entry["clustering"] = name_values(
                        self._clustering.names, self._clustering.pick(row), self._clustering.changes
                    )
                message["rows"] = [*(message["rows"] or ()), entry]
            elif operation == PARTITION_DELETE:
                message["deletion"] = deletion
            elif operation in {RANGE_START_INCLUSIVE, RANGE_START_EXCLUSIVE}:
                if opened is not None:
                    raise Skippable(f"two range deletes begin (rows {opened[SEQ]} and {row[SEQ]}) before one ends")
                opened = row
            elif operation not in {PREIMAGE, POSTIMAGE}:
                if opened is None:
                    raise Skippable(f"a range delete ends in row {row[SEQ]} and does not begin")
                message["ranges"] = [
                    *(message["ranges"] or ()),
                    {
                        "start": {
                            "prefix": self._read_prefix(opened),
                            "inclusive": opened[OPERATION] == RANGE_START_INCLUSIVE,
                        },
                        "end": {"prefix": self._read_prefix(row), "inclusive": operation == RANGE_END_INCLUSIVE},
                        **deletion,
                    },
                ]
                opened = None
        if opened is not None:
            raise Skippable(f"a range delete begins in row {opened[SEQ]} and does not end")

    def _read_prefix(self, row: LogRow) -> dict[str, Any]:
        return name_values(self._clustering.names, self._clustering.pick(row), self._clustering.changes)

    def _add_row(self, message: dict[str, Any], row: LogRow, write_time: int, own_stamp: dict[str, Any] | None) -> None:
        """Add what an INSERT or UPDATE wrote. A log row without clustering values is of the static row."""
        if self._static.is_set(row):
            static = self._static_row(row, write_time, own_stamp)
            message["static"] = static
            if row[self._clustering.first] is None:
                return
        elif self._clustering.columns and row[self._clustering.first] is None:
            return
        entry = self._entry(row, write_time, own_stamp)
        rows = message["rows"]
        if rows is None:
            message["rows"] = [entry]
        else:
            rows.append(entry)

    def _row_tail(self) -> dict[str, None]:
        """The members of a row that its table has need of, as they are in a row without cells."""
        rows = self.layout.schema.field("rows")
        row_fields = rows.schema.value_schema.fields if rows and rows.schema.value_schema else ()
        return {
            field.name: None
            for field in row_fields
            if field.name in {"cells", "deleted", "stamps", "complex_deletions"}
        }

    def _static_row(self, row: LogRow, write_time: int, own_stamp: dict[str, Any] | None) -> dict[str, Any]:
        deletions: list[dict[str, Any]] = []
        cells, deleted = self._static.cells(row, write_time, deletions)
        entry: dict[str, Any] = {"stamp": own_stamp, "cells": cells}
        if deleted is not None:
            entry["deleted"] = deleted
        if deletions:
            entry["complex_deletions"] = deletions
        return entry

    # -- the rest

    def _window_of(self, offset: Mapping[str, Any]) -> int | None:
        """The start of the window in ms, from its text in the offset."""
        window_start = offset.get(WINDOW_START)
        if self._window[0] is not window_start:
            self._window = (
                window_start,
                None
                if window_start is None
                else timeuuid.read_micros(bytes.fromhex(window_start.replace("-", ""))) // 1000,
            )
        return self._window[1]

    def _log_form(self, cells: Sequence[Any], write_time: int) -> LogRow:
        """A row of the base table as the log would show its insertion."""
        row: list[Any] = [b"", b"", 0, INSERT, None, True]
        for column, value in zip(
            (
                log_column.column
                for log_column in sorted(
                    (*self._key.columns, *self._clustering.columns, *self._static.columns, *self._regular),
                    key=lambda log_column: log_column.base,
                )
            ),
            cells,
            strict=True,
        ):
            multicell = column.type.is_multicell
            if multicell and column.type.name == "list" and value is not None:
                value = [  # noqa: PLW2901
                    (timeuuid.make_uuid(write_time, index << 48 | 0x8000), item) for index, item in enumerate(value)
                ]
            row.append(value)
            if column.kind in {"static", "regular"}:
                row.append(True if multicell and value is not None else None)
                if multicell:
                    row.append(None)
        return tuple(row)

    @staticmethod
    def _restore_lists(entry: dict[str, Any], columns: Sequence[LogColumn], write_time: int) -> dict[str, Any]:
        lists = {
            log_column.name
            for log_column in columns
            if log_column.column.type.is_multicell and log_column.column.type.name == "list"
        }
        for deletion in entry.get("complex_deletions") or ():
            if deletion["column"] in lists:
                deletion["write_time"] = write_time
                for element in entry["cells"][field_name(deletion["column"])]:
                    element["stamp"] = {"write_time": write_time + 1, "ttl": None, "expires": None}
        return entry

    def _refuse_change(self, change: LogChange, rows: list[LogRow], bad: list[BadRecord]) -> None:
        """Report a change with a cell that could not be decoded: a part of a mutation would not be the mutation."""
        time_text = timeuuid.format_uuid(rows[0][TIME])
        cell = next(cell for cell in chain.from_iterable(rows) if type(cell) is BadCell)
        offset = {**change.offset, OFFSET_TIME: time_text, OFFSET_SEQ: rows[-1][SEQ]}
        bad.append(
            BadRecord(
                change.partition,
                offset,
                self._describe_failure(cell.error, f"the change {time_text}"),
                cell.raw,
                self.topic,
            )
        )

    def _describe_failure(self, error: Exception, subject: str) -> Exception:
        return Skippable(
            f"{subject} of table {self.layout.source.keyspace}.{self.layout.source.table} can't be made a partition "
            f"update: {error}"
        )


def _estimate_size(values: Sequence[Any]) -> int:
    """About how many bytes values take in a message."""
    size = 0
    for value in values:
        kind = type(value)
        if kind is str or kind is bytes:
            size += len(value)
        elif kind is list or kind is tuple:
            size += 8 + _estimate_size(value)
        elif kind is dict:
            size += 8 + _estimate_size(list(value.values()))
        else:
            size += 8
    return size
