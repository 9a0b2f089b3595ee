"""Rows of a log as UMS messages (connectors/formats/ums.py).

What a message is: the changes of one run of rows, so of one stream, up to a bound of rows and bytes. A UMS message carries its
schema, several hundred bytes; a message per row or per change would be mostly that. The order of a stream is kept: all its
messages have one Kafka key, ``data_increment_data.<namespace>...<stream id>``. When the cluster gets new streams a row's
changes may continue in another Kafka partition; a reader then needs ``ums_id_``, as UMS readers do anyway.

What a tuple is: what one change (``cdc$time``) did to one row; several rows of the log about it are one tuple.

``ums_id_`` is the order number of ``connectors.formats.order_number``: the write time in µs, which readers of Debezium's
events know too. The image before (``b``) shares the number of its change. Two changes of one row in the same microsecond have
no order in the database either (there the larger value wins); ``ums_uid_`` (``cdc$time``, a dot, ``cdc$batch_seq_no``) tells
them apart. A snapshot's row has its newest write time: any change from then on has a number that is not smaller.

``ums_op_``: ``i`` INSERT, ``u`` UPDATE, ``d`` deletion of a row (in a table without clustering key also of a partition). A row
that was deleted and written in one change is deleted: at equal times a deletion wins.

Values: of the image after the change where the table logs them (``postimage``). Without, a tuple has what the change wrote, and
null both for what it did not touch and for what it set to null: UMS has no way to say which. A reader that keeps the newest row
per key needs the images; for tables without, the partition update is the form that loses nothing. A changed collection without
image has the elements that were added. A ``d`` has the values of the image before where there is one, else the key alone.

Deletes of ranges, and of partitions with a clustering key, are no change of a row that the log names: left out, or reported as
bad records where ``scylla.deletes.mode`` is ``events``.
"""

from __future__ import annotations

import hashlib
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from connectors.api import BadRecord, SourceRecord
from connectors.cql.values import BadCell
from connectors.errors import Skippable
from connectors.formats import timeuuid, ums
from connectors.formats.ums_cql import text_of, ums_type
from connectors.schema import STRING
from connectors.scylla.events.changes import ChangeCutter, identity_of
from connectors.scylla.events.names import topic_name
from connectors.scylla.events.shape import shape_of
from connectors.scylla.model import (
    INSERT,
    OPERATION,
    PARTITION_DELETE,
    POSTIMAGE,
    PREIMAGE,
    ROW_DELETE,
    SEQ,
    STREAM,
    TIME,
    UPDATE,
)
from connectors.scylla.positions import OFFSET_SEQ, OFFSET_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.api import Position
    from connectors.cql.types import CqlType
    from connectors.scylla.events.changes import LogChange
    from connectors.scylla.events.contract import ScyllaEventSettings
    from connectors.scylla.model import LogRow, StreamRun, TableVersion

MAX_ROWS: Final = 500
MAX_BYTES: Final = 512 * 1024
_FAILURES: Final = (ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError)

_OPERATIONS: Final = {UPDATE: ums.UPDATE, INSERT: ums.INSERT, ROW_DELETE: ums.DELETE}

Tuple = list["str | None"]


class UmsBuilder:
    """Makes UMS messages of one table version; an ``EventBuilder``."""

    def __init__(
        self,
        version: TableVersion,
        settings: ScyllaEventSettings,
        *,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """Compile it; see ``EventBuilder``."""
        shape = shape_of(version)
        columns_by_name = {log_column.name: log_column for log_column in shape.columns}
        self.topic, self.namespace = table_address(settings, version)
        self.fields = [
            *ums.SYSTEM_FIELDS,
            *(
                ums.make_field(
                    column.name, ums_type(column.type), nullable=column.kind not in {"partition_key", "clustering"}
                )
                for column in version.columns
            ),
        ]
        self._table = str(version.id)
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._columns = [(columns_by_name[column.name].value, _log_text(column.type)) for column in version.columns]
        self._base = [text_of(column.type) for column in version.columns]
        self._keys = len(shape.key)
        self._identity = identity_of(shape)
        self._clustered = bool(shape.clustering)
        self._before = settings.preimages or settings.include_before != "none"
        self._report = settings.deletes_mode == "events"
        self._cutter = ChangeCutter()
        if shape.clustering:  # of the static row they are null
            for member in self.fields:
                if member["name"] in {log_column.name for log_column in shape.clustering}:
                    member["nullable"] = True

    def feed(self, run: StreamRun, out: list[SourceRecord], bad: list[BadRecord]) -> None:
        """See ``EventBuilder``. A record's position is that of the last change in its message.

        A change with more rows than a message may have goes over several; the offset of each says the number of the log row
        that first named the last table row in it. After a restart there the change is put together again, from its first row
        on, and the table rows that were named up to that number are left out.
        """
        tuples: list[Tuple] = []
        size = 0
        last: LogChange | None = None
        for change in self._cutter.feed(run):
            delivered = change.skip[1] if change.skip is not None and change.skip[0] == change.rows[0][TIME] else -1
            number = change.rows[-1][SEQ]
            if number <= delivered:
                continue
            if last is not None and tuples and change.rows[0][STREAM] != last.rows[0][STREAM]:
                self._add_message(last, last.rows[-1][SEQ], tuples, out)
                tuples, size = [], 0
            last = change
            try:
                numbered = self._collect_tuples(change, delivered, bad)
            except _FAILURES as error:
                bad.append(self._make_bad_record(change, number, f"can't be made UMS rows: {error}"))
                continue
            for index, (marker, several) in enumerate(numbered, 1):
                tuples += several
                size += sum(
                    len(cell_text)
                    for numbered_tuple in several
                    for cell_text in numbered_tuple
                    if cell_text is not None
                )
                if len(tuples) >= self._max_rows or size >= self._max_bytes:
                    self._add_message(change, marker if index < len(numbered) else number, tuples, out)
                    tuples, size = [], 0
        if last is not None and tuples:
            self._add_message(last, last.rows[-1][SEQ], tuples, out)

    def reset(self) -> None:
        """See ``EventBuilder``."""
        self._cutter.reset()

    def snapshot_row(
        self,
        partition: Position,
        offset: Position,
        cells: Sequence[object],
        write_time_us: int,
        out: list[SourceRecord],
        bad: list[BadRecord],
    ) -> None:
        """See ``EventBuilder``: a message of the snapshot with one row."""
        try:
            cell_texts = [
                None if value is None else to_cell_text(value)
                for value, to_cell_text in zip(cells, self._base, strict=True)
            ]
        except _FAILURES as error:
            complaint = f"a row of the snapshot of {self._table} can't be made a UMS row: {error}"
            bad.append(BadRecord(partition, offset, Skippable(complaint), topic=self.topic))
            return
        # Every row of the table may have the same write time: the key makes the id unique, and a repetition gets the same one.
        uid = hashlib.blake2b(repr(cells[: self._keys]).encode(), digest_size=16).hexdigest()
        first = [str(write_time_us), ums.datetime_text(write_time_us), ums.INSERT, f"r.{write_time_us}.{uid}"]
        out.append(
            SourceRecord(
                partition,
                offset,
                self.topic,
                ums.make_message(ums.INITIAL, self.namespace, self.fields, [first + cell_texts]),
                ums.MESSAGE,
                ums.kafka_key(ums.INITIAL, self.namespace),
                STRING,
                timestamp=max(0, write_time_us // 1000),  # brokers refuse what is before 1970
            )
        )

    def _add_message(self, change: LogChange, number: int, tuples: list[Tuple], out: list[SourceRecord]) -> None:
        time = change.rows[0][TIME]
        out.append(
            SourceRecord(
                change.partition,
                {**change.offset, OFFSET_TIME: timeuuid.format_uuid(time), OFFSET_SEQ: number},
                self.topic,
                ums.make_message(ums.INCREMENT, self.namespace, self.fields, tuples),
                ums.MESSAGE,
                ums.kafka_key(ums.INCREMENT, self.namespace, change.rows[0][STREAM].hex()),
                STRING,
                None,
                (),
                timeuuid.read_micros(time) // 1000,
            )
        )

    def _collect_tuples(self, change: LogChange, delivered: int, bad: list[BadRecord]) -> list[tuple[int, list[Tuple]]]:
        """The tuples of a change by table row, each with the number of the log row that first named the table row.

        Those that were named by a number up to ``delivered`` are left out.
        """
        rows = change.rows
        if BadCell in map(type, chain.from_iterable(rows)):
            cell = next(cell for cell in chain.from_iterable(rows) if type(cell) is BadCell)
            bad.append(
                self._make_bad_record(
                    change, rows[-1][SEQ], f"has a cell that can't be decoded: {cell.error}", cell.raw
                )
            )
            return []
        time = rows[0][TIME]
        write_time = timeuuid.read_micros(time)
        stamp, time_text = ums.datetime_text(write_time), timeuuid.format_uuid(time)
        if len(rows) == 1 and UPDATE <= rows[0][OPERATION] <= ROW_DELETE:
            row = rows[0]
            return [
                (
                    row[SEQ],
                    [self._make_tuple(write_time, stamp, time_text, row[SEQ], _OPERATIONS[row[OPERATION]], [row])],
                )
            ]
        written_rows: dict[Any, _WrittenRow] = {}
        for row in rows:
            operation = row[OPERATION]
            if operation > ROW_DELETE and operation != POSTIMAGE and (operation != PARTITION_DELETE or self._clustered):
                if self._report and row[SEQ] > delivered:
                    bad.append(
                        self._make_bad_record(
                            change,
                            row[SEQ],
                            "deletes a partition or a range of rows, for which UMS has no form; "
                            "use output.format=partition-update, or scylla.deletes.mode=rows to leave such out",
                        )
                    )
                continue
            key = self._identity(row)
            written = written_rows.get(key)
            if written is None:
                written = written_rows[key] = _WrittenRow(row[SEQ])
            written.add(row)
        return [
            (written.first, self._of_row(written, write_time, stamp, time_text))
            for written in written_rows.values()
            if written.changes and written.first > delivered
        ]

    def _of_row(self, written: _WrittenRow, write_time: int, stamp: str, time_text: str) -> list[Tuple]:
        number = written.changes[-1][SEQ]
        deleted = any(row[OPERATION] in {ROW_DELETE, PARTITION_DELETE} for row in written.changes)
        inserted = any(row[OPERATION] == INSERT for row in written.changes)
        before, after = written.before, written.after
        if deleted:
            source = written.changes if before is None else [before]
            return [self._make_tuple(write_time, stamp, time_text, number, ums.DELETE, source)]
        operation = ums.INSERT if inserted else ums.UPDATE
        tuples = [
            self._make_tuple(
                write_time, stamp, time_text, number, operation, written.changes if after is None else [after]
            )
        ]
        if before is not None and self._before:
            tuples.insert(0, self._make_tuple(write_time, stamp, time_text, before[SEQ], ums.BEFORE, [before]))
        return tuples

    def _make_tuple(
        self, write_time: int, stamp: str, time_text: str, number: int, operation: str, rows: list[LogRow]
    ) -> Tuple:
        """One tuple; of several rows a later one's values count."""
        first = [str(write_time), stamp, operation, f"{time_text}.{number}"]
        row: Sequence[Any] = rows[0]
        if len(rows) > 1:
            row = [
                next((cell for cell in reversed(cells) if cell is not None), None) for cells in zip(*rows, strict=True)
            ]
        return first + [None if (value := row[index]) is None else convert(value) for index, convert in self._columns]

    def _make_bad_record(self, change: LogChange, number: int, reason: str, raw: bytes = b"") -> BadRecord:
        time_text = timeuuid.format_uuid(change.rows[0][TIME])
        return BadRecord(
            change.partition,
            {**change.offset, OFFSET_TIME: time_text, OFFSET_SEQ: number},
            Skippable(f"the change {time_text} of {self._table} {reason}"),
            raw,
            self.topic,
        )


class _WrittenRow:
    """The rows of one change that are about one row of the table."""

    __slots__ = ("after", "before", "changes", "first")

    def __init__(self, first: int) -> None:
        self.first = first
        self.before: LogRow | None = None
        self.after: LogRow | None = None
        self.changes: list[LogRow] = []

    def add(self, row: LogRow) -> None:
        """Take one more row of the log."""
        operation = row[OPERATION]
        if operation == PREIMAGE:
            self.before = self.before or row
        elif operation == POSTIMAGE:
            self.after = row
        else:
            self.changes.append(row)


def table_address(settings: ScyllaEventSettings, version: TableVersion) -> tuple[str, str]:
    """The topic and the namespace of a table's definition."""
    return (
        topic_name(settings.topic_prefix, version.id),
        ums.Namespace("scylla", settings.topic_prefix, *version.id, table_version(version)).text,
    )


def table_version(version: TableVersion) -> str:
    """The namespace's part for the version: seconds since 1970 of the last known change of the definition, 0 for the first one.

    It grows with each change; from the server where the server knows the time, so that all tasks say the same.
    """
    return str(max(version.since_us, *(column.added_us for column in version.columns)) // 1_000_000)


def _log_text(kind: CqlType) -> Callable[[Any], str]:
    to_cell_text = text_of(kind)
    if kind.is_multicell and kind.name == "list":
        return lambda pairs: to_cell_text([item for _, item in pairs])
    return to_cell_text
