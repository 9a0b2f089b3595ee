"""Rows as UMS messages (connectors/formats/ums.py).

A message carries its schema, several hundred bytes, so it has many rows: those of a table between two batches of the task, up
to a bound of rows and bytes. Its Kafka key is ``<protocol>.<namespace>``; the table's version is part of the namespace.

``ums_id_`` is the order number of ``connectors.formats.order_number``, the same that readers of Debezium's events compute. All
rows of one change (``b`` and ``u``, or ``d`` and ``i``) share it; ``ums_uid_`` (server, file number, position, row,
``ums_op_``) identifies a row, also where rows share a number in a compressed event, and sorts them as they come. After a
failover to another server the numbers continue with that server's files.

``ums_op_``: ``i``, ``u``, ``d``, and ``b`` for the row before an update. A change of the key is a ``d`` of the old row and an
``i`` of the new one. TRUNCATE has no form in UMS.

A column of which the server has not logged the value is taken from the row before; one that is in neither image is null.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from connectors.api import Position, SourceRecord
from connectors.codegen import CodeBuilder
from connectors.errors import Fatal
from connectors.formats import order_number, ums
from connectors.mysql.events.shaping import make_shaper
from connectors.mysql.events.ums_values import value_text
from connectors.mysql.position.positions import file_number
from connectors.mysql.schema.topics import MySqlTopics
from connectors.mysql.stream import logical
from connectors.schema import STRING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from connectors.mysql.events.contract import Marker, MySqlEventSettings, Row
    from connectors.mysql.model import RowSource, TableName
    from connectors.mysql.schema.columns import ColumnLayout

Tuple = list["str | None"]


class _UmsMessage(NamedTuple):
    table: UmsEvents
    tuples: list[Tuple]


def table_address(settings: MySqlEventSettings, name: TableName, version: int) -> tuple[str, str]:
    """The topic and the namespace of a structure of a table: those of its logical table, with the partitions' numbers.

    Raises:
        ConfigInvalid: the topic's name can't be made, or ``logical.tables`` can't be applied to the table.
    """
    topics, options = MySqlTopics(settings.topics), settings.ums
    part = logical.parse_mapping(settings.logical).of(name)
    topic = (
        topics.table(part.name)
        if options.topic_per == "table"
        else topics.database(part.name.database)
        if options.topic_per == "schema"
        else topics.everything()
    )
    return topic, ums.Namespace(
        settings.connector,
        options.instance or settings.topics.prefix,
        *part.name,
        str(version),
        str(part.database_partition),
        str(part.table_partition),
    ).text


class UmsRows:
    """The rows of a task's tables that are not messages yet; see ``PendingRows``."""

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self.mixed = False
        #: Messages and sizes of the rows since ``start_transaction``; where they begin; how many rows there were before.
        self._since: list[tuple[_UmsMessage, int]] = []
        self._marked: Position = {}
        self._before = 0
        self._messages: list[_UmsMessage] = []
        self._open: dict[UmsEvents, tuple[_UmsMessage, int]] = {}
        self._start: Position = {}
        self._end: Position = {}

    def add(self, table: UmsEvents, tuples: list[Tuple], before: Position, after: Position) -> None:
        """Take rows that lie between two offsets."""
        if not self._messages:
            self._start = before
        self._end = after
        message, size = self._open.get(table, (None, 0))
        for row in tuples:
            length = _row_size(row)
            if message is None or not table.has_room(len(message.tuples), size, length):
                message, size = _UmsMessage(table, []), 0
                self._messages.append(message)
            message.tuples.append(row)
            self._since.append((message, length))
            size += length
            self.rows += 1
            self.bytes += length
        if message is not None:
            self._open[table] = message, size

    def start_transaction(self) -> None:
        """See ``PendingRows.start_transaction``."""
        self._since.clear()
        self._marked, self._before, self.mixed = self._end, self.rows, False

    def take_back(self) -> None:
        """See ``PendingRows.take_back``."""
        for message, length in reversed(self._since):
            message.tuples.pop()
            self.rows -= 1
            self.bytes -= length
        self._since.clear()
        self._messages, self._open, self._end = (
            [open_message for open_message in self._messages if open_message.tuples],
            {},
            self._marked,
        )

    def flush(self, out: list[SourceRecord]) -> None:
        """See ``PendingRows.flush``."""
        if self._since and self._before:
            self.mixed = True
        self._since.clear()
        self._before = 0
        last = len(self._messages) - 1
        for index, (table, tuples) in enumerate(self._messages):
            out.append(table.message(ums.INCREMENT, tuples, self._end if index == last else self._start))
        self._messages, self._open = [], {}
        self.rows = self.bytes = 0


class UmsEvents:
    """Makes UMS messages of one structure of a table; see ``MySqlTableEvents``."""

    def __init__(
        self,
        layout: ColumnLayout,
        version: int,
        settings: MySqlEventSettings,
        partition: Position,
        held_rows: UmsRows | None = None,
    ) -> None:
        """Compile it (about a millisecond).

        Raises:
            ConfigInvalid: the topic's name can't be made.
        """
        name = layout.table.name
        self.topic, self.namespace = table_address(settings, name, version)
        self.left_out = 0
        self._partition = partition
        self._pending_rows = held_rows
        self._options = settings.ums
        self._skipped = settings.skipped
        self._skip_unchanged = settings.skip_unchanged
        self._columns = sum(plan is not None for plan in layout.plans)
        self._key = [field.column for field in layout.key]
        self._shape = make_shaper(layout)
        masked = bool(settings.masks)
        self._schema = ums.MASKED_MESSAGE if masked else ums.MESSAGE
        self.fields: list[dict[str, Any]] = [{**field_entry} for field_entry in ums.SYSTEM_FIELDS]
        code = CodeBuilder()
        parts = []
        for field in layout.values:
            kind, to_text = value_text(field.schema)
            self.fields.append(
                {**ums.make_field(field.name, kind, nullable=field.schema.optional), "encoded": field.encoded}
            )
            value = f"row.get({field.name!r})"
            parts.append(
                value
                if to_text is None
                else f"None if (value := {value}) is None else {code.bind('text', to_text)}(value)"
            )
        for field_entry in self.fields:
            field_entry.setdefault("encoded", False)
            if not masked:
                del field_entry["encoded"]
        code.define(
            "make_tuple(row, id_, time, op, uid)", [f"return [{', '.join(['id_', 'time', 'op', 'uid', *parts])}]"]
        )
        self._make_tuple: Callable[[Row, str, str, str, str], Tuple] = code.function(
            "make_tuple", f"UMS rows of {name}"
        )

    def changes(
        self,
        op: Literal["c", "u", "d"],
        rows: Sequence[Row | None],
        source: RowSource,
        first_row: int,
        base: Position,
        after: Position,
        out: list[SourceRecord],
    ) -> None:
        """See ``MySqlTableEvents.changes``.

        Raises:
            Skippable: a mask needs a field that the row doesn't have.
            Fatal: the position is beyond what an order number holds.
        """
        if op in self._skipped:
            owned = sum(row is not None for row in rows)
            self.left_out += (owned + 1) // 2 if op == "u" else owned
            return
        max_number = order_number.row_number(first_row + len(rows), source.size)
        start = _order_number(source, max_number) - max_number
        time, uid_prefix = (
            ums.datetime_text(source.ts_us),
            f"{source.server_id}.{file_number(source.file)}.{source.pos}.",
        )
        numbered_tuples: list[tuple[int, list[Tuple]]] = []
        pairs: Iterable[tuple[Row | None, Row | None]]
        if op == "u":
            images = iter(rows)
            pairs = zip(images, images, strict=True)
        else:
            pairs = ((None, row) for row in rows) if op == "c" else ((row, None) for row in rows)
        number = first_row
        for old, new in pairs:
            identity, uid = str(start + min(number, max_number)), f"{uid_prefix}{number:08d}"
            tuples = [
                self._make_tuple(row, identity, time, operation, uid + operation)
                for operation, row in self._row_steps(old, new)
            ]
            number += 1
            if tuples:
                numbered_tuples.append((number, tuples))
        if not numbered_tuples:
            return
        if self._pending_rows is not None:
            begin = {**base, "row": first_row} if first_row else base
            self._pending_rows.add(
                self, [row_tuple for _, tuples in numbered_tuples for row_tuple in tuples], begin, after
            )
        else:
            self._deliver_rows(numbered_tuples, number, base, after, out)

    def snapshot(
        self,
        rows: Iterable[Row],
        source: RowSource,
        marker: Marker,
        offset: Position,
        out: list[SourceRecord],
        *,
        first: Marker | None = None,
        last: Marker | None = None,
        batch: int = 0,
    ) -> None:
        """See ``MySqlTableEvents.snapshot``; UMS has no markers."""
        del marker, first, last
        if "r" in self._skipped:
            self.left_out += sum(1 for _ in rows)
            return
        identity = str(_order_number(source))
        time, uid_prefix = (
            ums.datetime_text(source.ts_us),
            f"r.{source.server_id}.{file_number(source.file)}.{source.pos}.",
        )
        tuples: list[Tuple] = []
        size = 0
        for row in rows:
            # The key makes the id unique, and a repetition gets the same one; rows without key can be equal.
            uid = (
                hashlib.blake2b(repr([row.get(name) for name in self._key]).encode(), digest_size=12).hexdigest()
                if self._key
                else uuid.uuid4().hex
            )
            row_tuple = self._make_tuple(self._shape_row(row), identity, time, ums.INSERT, uid_prefix + uid)
            length = _row_size(row_tuple)
            if tuples and not self.has_room(len(tuples), size, length):
                out.append(self.message(ums.snapshot_protocol(batch), tuples, offset, batch))
                tuples, size = [], 0
            tuples.append(row_tuple)
            size += length
        if tuples:
            out.append(self.message(ums.snapshot_protocol(batch), tuples, offset, batch))

    def truncate(self, source: RowSource, offset: Position, out: list[SourceRecord]) -> None:
        """Nothing: UMS has no form for it."""
        del source, offset, out
        self.left_out += 1

    def has_room(self, rows: int, size: int, row_size: int) -> bool:
        """Whether a message with this number of rows and bytes has room for one more row of ``row_size`` bytes."""
        return rows < self._options.max_rows and (not rows or size + row_size <= self._options.max_bytes)

    def message(self, protocol: str, tuples: list[Tuple], offset: Position, batch: int = 0) -> SourceRecord:
        """A message with these rows."""
        value = ums.make_message(protocol, self.namespace, self.fields, tuples, batch)
        return SourceRecord(
            self._partition, offset, self.topic, value, self._schema, ums.kafka_key(protocol, self.namespace), STRING
        )

    def _deliver_rows(
        self,
        numbered_tuples: list[tuple[int, list[Tuple]]],
        end: int,
        base: Position,
        after: Position,
        out: list[SourceRecord],
    ) -> None:
        """Messages with the rows of one event: each says how many rows of the event are done."""
        tuples: list[Tuple] = []
        size, done = 0, 0
        for number, several in numbered_tuples:
            length = sum(map(_row_size, several))
            if tuples and not self.has_room(len(tuples) + len(several) - 1, size, length):
                out.append(self.message(ums.INCREMENT, tuples, {**base, "row": done}))
                tuples, size = [], 0
            tuples += several
            size += length
            done = number
        out.append(self.message(ums.INCREMENT, tuples, after if done == end else {**base, "row": done}))

    def _row_steps(self, old: Row | None, new: Row | None) -> Sequence[tuple[str, Row]]:
        """The rows that a change gives, in order, each with its ``ums_op_``."""
        if old is not None and new is not None:
            if len(new) != self._columns:
                new = {**old, **new}
            if all(name not in old or old[name] == new.get(name) for name in self._key):
                before, after = self._shape_row(old), self._shape_row(new)
                if self._skip_unchanged and before == after:
                    self.left_out += 1
                    return ()
                change = (ums.UPDATE, after)
                return ((ums.BEFORE, before), change) if self._options.before else (change,)
        steps = []
        if old is not None:
            steps.append(("d", ums.DELETE, old))
        if new is not None:
            steps.append(("c", ums.INSERT, new))
        kept = [(operation, self._shape_row(row)) for step, operation, row in steps if step not in self._skipped]
        if steps and not kept:
            self.left_out += 1
        return kept

    def _shape_row(self, row: Row) -> Row:
        return row if self._shape is None else self._shape(row)


def _order_number(source: RowSource, row: int = 0) -> int:
    try:
        return order_number.binlog_number(source.file, source.pos, row)
    except ValueError as error:
        raise Fatal(
            f"{error}; set output.format=debezium, and order changes in sinks by Kafka's offset "
            "(sink.jdbc.position=kafka)"
        ) from error


def _row_size(row_tuple: Tuple) -> int:
    """The number of characters of a row's strings in JSON, quotes and commas included."""
    return sum([len(cell) + 3 if cell is not None else 5 for cell in row_tuple])
