"""The legacy and the advanced format: records in Debezium's envelope."""

from __future__ import annotations

import time
from collections import Counter
from importlib.metadata import version as version_of
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from connectors.api import BadRecord, Position, SourceRecord
from connectors.cql.values import BadCell
from connectors.errors import Skippable
from connectors.formats.timeuuid import format_uuid
from connectors.scylla.events.changes import ChangeCutter, identity_of, is_delivered, join_images, stream_of
from connectors.scylla.events.envelope import schemas_of
from connectors.scylla.events.names import topic_name
from connectors.scylla.events.shape import shape_of
from connectors.scylla.events.source_text import SourceWriter
from connectors.scylla.events.values import event_form
from connectors.scylla.model import (
    OPERATION,
    PARTITION_DELETE,
    POSTIMAGE,
    PREIMAGE,
    RANGE_END_EXCLUSIVE,
    RANGE_END_INCLUSIVE,
    RANGE_START_EXCLUSIVE,
    RANGE_START_INCLUSIVE,
    ROW_DELETE,
    SEQ,
    STREAM,
    TIME,
    TTL,
    LogRow,
    StreamRun,
    TableVersion,
)
from connectors.scylla.positions import OFFSET_SEQ, OFFSET_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.scylla.events.changes import Joined, LogChange
    from connectors.scylla.events.contract import ScyllaEventSettings
    from connectors.scylla.events.shape import LogColumn

#: Read once: it is in a file.
VERSION: Final = version_of("millrace")

#: Time of processing in ms, us, ns.
Clock = tuple[int, int, int]

_IMAGES: Final = frozenset({PREIMAGE, POSTIMAGE})
_STARTS: Final = frozenset({RANGE_START_INCLUSIVE, RANGE_START_EXCLUSIVE})
_ENDS: Final = frozenset({RANGE_END_INCLUSIVE, RANGE_END_EXCLUSIVE})


class DebeziumBuilder:
    """Makes records of one table version; see ``EventBuilder``.

    Attributes:
        version: the table version.
        settings: what shapes the records.
        topic: where they go.
        schemas: what they look like.
        keyed: whether records have keys.
        payload_key: the envelope's member with the key, if there is one.
        skipped: how many changes were left out by kind since the builder was made: ``partition_delete``, ``range_delete``,
            ``operation`` (``skipped.operations``).
    """

    def __init__(
        self, version: TableVersion, settings: ScyllaEventSettings, now: Callable[[], float] | None = None
    ) -> None:
        self.version = version
        self.settings = settings
        self.topic = topic_name(settings.topic_prefix, version.id)
        self.skipped: Counter[str] = Counter()
        self._shape = shape_of(version)
        self.schemas = schemas_of(version, self._shape, settings)
        constants = {
            "version": VERSION,
            "name": settings.topic_prefix,
            "keyspace": version.id.keyspace,
            "table": version.id.table,
        }
        advanced = settings.output_format == "advanced"
        self._before = settings.include_before != "none" if advanced else settings.preimages
        self._after = advanced and settings.include_after != "none"
        writer = SourceWriter(self._shape, self.schemas, settings, constants, self.topic)
        self._functions, self._used = writer.compile(images=self._before or self._after)
        self.keyed = writer.keyed
        self.payload_key = settings.payload_key_name if advanced and "payload-key" in settings.key_placement else None
        self._cutter = ChangeCutter() if self._before or self._after else None
        self._identity = identity_of(self._shape)
        self._key_forms = {
            log_column.name: event_form(log_column.column.type, settings.compat, settings.names)
            for log_column in self._shape.key
        }
        self._events = settings.deletes_mode == "events" and "d" not in settings.skipped_operations
        self._snapshots = "r" not in settings.skipped_operations
        #: Range deletes whose end was not seen yet, by stream: the start's row, and the partition and offset it came with.
        self._ranges: dict[bytes, tuple[LogRow, Position, Position]] = {}
        self._now_ns = time.time_ns if now is None else lambda: round(now() * 1e6) * 1000

    @property
    def has_images(self) -> bool:
        """Whether rows are put together with their images."""
        return self._cutter is not None

    @property
    def has_clustering(self) -> bool:
        """Whether the table has clustering columns."""
        return bool(self._shape.clustering)

    @property
    def width(self) -> int:
        """The number of members of a ``LogRow``."""
        return self._shape.width

    def feed(self, run: StreamRun, out: list[SourceRecord], bad: list[BadRecord]) -> None:
        """See ``EventBuilder.feed``."""
        clock = self.clock()
        if self._cutter is None:
            rows = run.rows
            if run.may_be_bad and BadCell in map(type, chain.from_iterable(rows)):
                self._feed_row_by_row(run, clock, out, bad)
            elif rows:
                self._feed_plain(run, rows, clock, out, bad)
        else:
            self._feed_changes(self._cutter.feed(run), clock, out, bad)
        if run.last and self._ranges:
            self._close_ranges(run, bad)

    def clock(self) -> Clock:
        """The time of processing."""
        now = self._now_ns()
        return now // 1_000_000, now // 1000, now

    @property
    def has_open_ranges(self) -> bool:
        """Whether there are range deletes whose end was not seen yet."""
        return bool(self._ranges)

    def plain_records(self, run: StreamRun, clock: Clock) -> list[SourceRecord]:
        """The records of a run of ordinary rows, processed at ``clock``; has no effects. Only without images."""
        out: list[SourceRecord] = []
        self._feed_plain(run, run.rows, clock, out, [])
        return out

    def reset(self) -> None:
        """See ``EventBuilder.reset``."""
        if self._cutter is not None:
            self._cutter.reset()
        self._ranges.clear()

    def snapshot_row(
        self,
        partition: Position,
        offset: Position,
        cells: Sequence[object],
        write_time_us: int,
        out: list[SourceRecord],
        bad: list[BadRecord],
    ) -> None:
        """See ``EventBuilder.snapshot_row``."""
        if not self._snapshots:
            self.skipped["operation"] += 1
            return
        for log_column in self.schemas.columns:
            cell = cells[log_column.base]
            if type(cell) is BadCell:
                keys = ", ".join(f"{key.name}={cells[key.base]!r}" for key in self._shape.key)
                bad.append(
                    BadRecord(partition, offset, self._bad_cell(log_column.name, keys, cell), cell.raw, self.topic)
                )
                return
        out.append(self._functions.snapshot(cells, partition, offset, write_time_us, self.clock()))

    def _feed_plain(
        self, run: StreamRun, rows: list[LogRow], clock: Clock, out: list[SourceRecord], bad: list[BadRecord]
    ) -> None:
        skip_time, skip_seq = run.skip or (None, -1)

        def special(row: LogRow, time_text: str, source: dict[str, Any], *, skipped: bool = False) -> None:
            self._read_special(row, run.partition, run.offset, time_text, source, clock, out, bad, skipped=skipped)

        self._functions.feed(rows, run.partition, run.offset, skip_time, skip_seq, clock, out.append, special)

    def _feed_row_by_row(self, run: StreamRun, clock: Clock, out: list[SourceRecord], bad: list[BadRecord]) -> None:
        """Rows one by one, where there is a bad cell in some."""
        for row in run.rows:
            if not self._report_refused((row,), row, run.partition, run.offset, run.skip, bad):
                self._feed_plain(run, [row], clock, out, bad)

    def _feed_changes(
        self, changes: list[LogChange], clock: Clock, out: list[SourceRecord], bad: list[BadRecord]
    ) -> None:
        """Changes in order; those that came with one run go through the generated code together."""
        start = 0
        for end, change in enumerate(changes, 1):
            if end < len(changes) and changes[end].offset is change.offset and changes[end].skip is change.skip:
                continue
            joined: list[Joined] = []
            for whole in changes[start:end]:
                rows = whole.rows
                if len(rows) == 1 and rows[0][OPERATION] not in _IMAGES:
                    joined.append((rows[0], None, None))
                else:
                    joined += join_images(rows, self._identity, before=self._before, after=self._after)
            start = end
            self._feed_joined(change, joined, clock, out, bad)

    def _feed_joined(
        self, change: LogChange, joined: list[Joined], clock: Clock, out: list[SourceRecord], bad: list[BadRecord]
    ) -> None:
        partition, offset, skip = change.partition, change.offset, change.skip
        if change.may_be_bad and any(
            row is not None and BadCell in map(type, row) for row in chain.from_iterable(joined)
        ):
            joined = [
                joined_row
                for joined_row in joined
                if not self._report_refused(joined_row, joined_row[0], partition, offset, skip, bad)
            ]
        skip_time, skip_seq = skip or (None, -1)

        def special(row: LogRow, time_text: str, source: dict[str, Any], *, skipped: bool = False) -> None:
            self._read_special(row, partition, offset, time_text, source, clock, out, bad, skipped=skipped)

        self._functions.feed(joined, partition, offset, skip_time, skip_seq, clock, out.append, special)

    # -- deletions of more than one row

    def _read_special(
        self,
        row: LogRow,
        partition: Position,
        offset: Position,
        time_text: str,
        source: dict[str, Any],
        clock: Clock,
        out: list[SourceRecord],
        bad: list[BadRecord],
        *,
        skipped: bool,
    ) -> None:
        """A row that is no write to, nor deletion of, one row; ``skipped``: its event was delivered before."""
        operation = row[OPERATION]
        position = {**offset, OFFSET_TIME: time_text, OFFSET_SEQ: row[SEQ]}
        if operation <= ROW_DELETE or (operation == PARTITION_DELETE and not self._shape.clustering):
            self.skipped["operation"] += 1
        elif skipped:
            if not self._events:
                return
            if operation in _STARTS:
                self._ranges[row[STREAM]] = (row, partition, position)
            elif operation in _ENDS:
                self._ranges.pop(row[STREAM], None)
        elif operation == PARTITION_DELETE:
            if self._events:
                out.append(self._make_deletion("partition", row, None, None, partition, position, source, clock))
            else:
                self.skipped["partition_delete"] += 1
        elif operation in _STARTS:
            if not self._events:
                self.skipped["range_delete"] += 1
                return
            self._drop_unpaired(row[STREAM], bad)
            self._ranges[row[STREAM]] = (row, partition, position)
        elif operation in _ENDS:
            if not self._events:
                return
            start = self._ranges.pop(row[STREAM], None)
            if start is not None and start[0][TIME] == row[TIME]:
                out.append(
                    self._make_deletion(
                        "range",
                        row,
                        self._read_bound(start[0], RANGE_START_INCLUSIVE),
                        self._read_bound(row, RANGE_END_INCLUSIVE),
                        partition,
                        position,
                        source,
                        clock,
                    )
                )
                return
            if start is not None:
                self._ranges[row[STREAM]] = start
                self._drop_unpaired(row[STREAM], bad)
            bad.append(
                BadRecord(
                    partition,
                    position,
                    Skippable(
                        f"{self._describe_row(row)}: the end of a range delete without its start; the row that should "
                        "precede it is missing from the log"
                    ),
                    topic=self.topic,
                )
            )
        else:
            bad.append(
                BadRecord(
                    partition,
                    position,
                    Skippable(
                        f"{self._describe_row(row)}: cdc$operation {operation} is not known to this version; write to the "
                        "project"
                    ),
                    topic=self.topic,
                )
            )

    def _make_deletion(
        self,
        kind: str,
        row: LogRow,
        start: dict[str, Any] | None,
        end: dict[str, Any] | None,
        partition: Position,
        position: Position,
        source: dict[str, Any],
        clock: Clock,
    ) -> SourceRecord:
        key = dict.fromkeys(log_column.name for log_column in self.schemas.key_columns)
        for log_column in self.schemas.key_columns:
            if log_column.column.kind == "partition_key":
                key[log_column.name] = self._key_value(log_column, row)
        now_ms, now_us, now_ns = clock
        legacy = self.schemas.is_legacy
        value: dict[str, Any] = {"source": {**source, "ttl": row[TTL]}, "before": None, "after": None}
        if self.payload_key is not None:
            value[self.payload_key] = key
        value |= {
            "op": "d",
            "ts_ms": now_ms,
            "transaction": None,
            "ts_us": now_us if legacy else None,
            "ts_ns": now_ns if legacy else None,
            "deletion": {"kind": kind, "start": start, "end": end},
        }
        if self.schemas.has_delta:
            value["delta"] = None
        return SourceRecord(
            partition,
            position,
            self.topic,
            value,
            self.schemas.value,
            key if self.keyed else None,
            self.schemas.key if self.keyed else None,
        )

    def _read_bound(self, row: LogRow, inclusive: int) -> dict[str, Any] | None:
        """A bound of a range delete: the leading columns of the clustering key that it has; None if it has none (open)."""
        prefix = {log_column.name: self._key_value(log_column, row) for log_column in self._shape.clustering}
        if all(value is None for value in prefix.values()):
            return None
        return {"prefix": prefix, "inclusive": row[OPERATION] == inclusive}

    def _key_value(self, log_column: LogColumn, row: LogRow) -> Any:
        form = self._key_forms[log_column.name]
        return row[log_column.value] if form is None else form(row[log_column.value])

    def _drop_unpaired(self, stream: bytes, bad: list[BadRecord]) -> None:
        """Give up a range delete whose end did not come."""
        pending = self._ranges.pop(stream, None)
        if pending is not None:
            row, partition, position = pending
            bad.append(
                BadRecord(
                    partition,
                    position,
                    Skippable(
                        f"{self._describe_row(row)}: the start of a range delete without its end; the row that should "
                        "follow it is missing from the log"
                    ),
                    topic=self.topic,
                )
            )

    def _close_ranges(self, run: StreamRun, bad: list[BadRecord]) -> None:
        ended = stream_of(run)
        for stream, (_, partition, _) in list(self._ranges.items()):
            if stream == ended or (ended is None and partition == run.partition):
                self._drop_unpaired(stream, bad)

    # -- what can't be made a record

    def _report_refused(
        self,
        rows: Sequence[LogRow | None],
        write: LogRow,
        partition: Position,
        offset: Position,
        skip: tuple[bytes, int] | None,
        bad: list[BadRecord],
    ) -> bool:
        """Whether a cell that the event is made of could not be decoded; it is reported then, unless it was before."""
        for row in rows:
            if row is None:
                continue
            for log_column in (*self.schemas.columns, *self._shape.key):
                for index in (log_column.value, log_column.deleted, log_column.elements):
                    if index >= 0 and index in self._used and type(row[index]) is BadCell:
                        if not is_delivered(write, skip):
                            position = {**offset, OFFSET_TIME: format_uuid(write[TIME]), OFFSET_SEQ: write[SEQ]}
                            error = self._bad_cell(log_column.name, self._describe_keys(write), row[index])
                            bad.append(BadRecord(partition, position, error, row[index].raw, self.topic))
                        return True
        return False

    def _bad_cell(self, column: str, keys: str, cell: BadCell) -> Skippable:
        return Skippable(
            f"{self.version.id}, {keys}: column {column!r} can't be decoded as the table's definition says: "
            f"{cell.error}; raw bytes 0x{cell.raw[:64].hex()}"
        )

    def _describe_keys(self, row: LogRow) -> str:
        return ", ".join(f"{log_column.name}={row[log_column.value]!r}" for log_column in self._shape.key)

    def _describe_row(self, row: LogRow) -> str:
        return f"{self.version.id}, {self._describe_keys(row)}, cdc$time {format_uuid(row[TIME])}, cdc$batch_seq_no {row[SEQ]}"
