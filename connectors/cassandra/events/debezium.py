"""``debezium``: an event per row, in the form of Debezium's Cassandra connector (see TYPES.md for what differs and why).

The events of one partition update come in the order in which applying them one by one gives what merging them would: by write
time, and at one time a deletion after the writes that it hides.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from connectors.api import SourceRecord
from connectors.cassandra.events.contract import CONNECTOR, topic_name
from connectors.cassandra.events.debezium_cells import CellWriter, range_bounds
from connectors.cassandra.events.envelope import RANGE_END, RANGE_START, VERSION, schemas_of
from connectors.cassandra.model import FINISHED, INDEX, OFFSET, SEGMENT
from connectors.codegen import CodeBuilder, dict_display, unpack_names
from connectors.cql.mutations.compiled import CompiledDecoder
from connectors.cql.mutations.head import VERSION_WITH_EPOCHS
from connectors.errors import Fatal, Skippable
from connectors.formats.partition_update import UpdateRow, UpdateSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from connectors.api import Position
    from connectors.cassandra.events.contract import CassandraEventSettings, Where
    from connectors.cassandra.model import LogEntry
    from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition
    from connectors.formats.partition_update import Cell, PartitionUpdate, RangeDeletion, UpdateDeletion

#: Values of ``op``.
INSERT: Final = "i"
UPDATE: Final = "u"
DELETE: Final = "d"
RANGE: Final = "r"

_NOWHERE: Final = UpdateSource(connector="", cluster="", keyspace="", table="")
#: The most functions for rows that are kept, by the columns that they write; when there are more, all are dropped.
_SHAPES: Final = 1000
#: Later times (those of the year 2262) have more nanoseconds than 64 bits hold.
LAST_MICROS: Final = ((1 << 63) - 1) // 1000
#: What Debezium writes for the position of a row that it has read from the table.
_NO_POSITION: Final = -1
_AFTER: Final = 1

#: One event before it has its source block: (time that sorts it, whether it is a deletion, op, time in ``source``, key, after).
_Event = tuple[int, bool, str, int, dict[str, Any], dict[str, Any]]


class CassandraDebeziumEvents:
    """See ``CassandraTableEvents``.

    Attributes:
        schemas: what the records look like.
        settings: what shapes them.
        decoder: reads mutations.
        begin: what mutations of one update of the table begin with, if their versions have no flags before it.
        excluded: columns that are left out.
    """

    def __init__(self, table: CqlTableDefinition, version: int, settings: CassandraEventSettings) -> None:
        """Compile it.

        Raises:
            Fatal: the table has counters.
        """
        counters = [column.name for column in table.columns if column.type.name == "counter"]
        if counters:
            raise Fatal(
                f"{table} has counters ({', '.join(counters)}), whose changes are sums and no values: take it out of "
                f"table.include.list, or switch its log off: ALTER TABLE {table} WITH cdc = false;"
            )
        self.table = table
        self.topic = topic_name(settings.topic_prefix, table.keyspace, table.table)
        self.skipped: Counter[str] = Counter()
        self.full_decodes = 0
        self.schemas = schemas_of(table, settings)
        self._value_schema, self._key_schema = self.schemas.value, self.schemas.key
        self.settings = settings
        self.decoder = CompiledDecoder(table, version)
        self.begin = b"" if version >= VERSION_WITH_EPOCHS else b"\x01" + UUID(table.table_id).bytes
        self._source = _source_maker(table, settings)
        self._cells = CellWriter(table, settings, self.schemas, self.skipped)
        self.excluded = frozenset(
            column.name for column in (*table.static, *table.regular) if f"{table}.{column.name}" in settings.excluded
        )
        self._rows: dict[tuple[str, ...], Callable[..., tuple[dict[str, Any], dict[str, Any]]]] = {}
        self._file: tuple[int, str] = (-1, "")

    def update(self, data: bytes, pos: int, end: int | None, where: Where, out: list[SourceRecord]) -> int:
        """See ``CassandraTableEvents.update``."""
        plain = self.decoder.plain(data, pos)
        if plain is None:
            update, next_pos = self.decoder.full(data, pos, _NOWHERE)
            self.full_decodes += 1
            self._emit_events(self._collect_events(update), where, out)
            return next_pos if end is None else end
        key, _, rows, next_pos = plain
        if len(rows) != 1 or rows[0][0]:
            newest = max([row[3] for row in rows], default=0)
            events: list[_Event] = []
            for is_static, clustering, inserted, write_time, _, expires, names, values in rows:
                if is_static and not self.settings.extended:
                    self.skipped["static"] += 1
                    continue
                make = self._rows.get(names) or self._row_maker(names)
                clustered = self._cells.no_clustering if is_static else clustering
                events.append(
                    (
                        write_time,
                        False,
                        INSERT if inserted else UPDATE,
                        newest,
                        *make(key, clustered, values, None if expires is None else expires * 1_000_000),
                    )
                )
            self._emit_events(events, where, out)
            return next_pos
        _, clustering, inserted, write_time, _, expires, names, values = rows[0]
        make = self._rows.get(names) or self._row_maker(names)
        record_key, after = make(key, clustering, values, None if expires is None else expires * 1_000_000)
        done, segment, position = where.done, where.segment, where.position
        where.done = done + 1
        file = self._file[1] if segment == self._file[0] else self.file_of(where)
        out.append(
            SourceRecord(
                where.partition,
                {SEGMENT: segment, OFFSET: position, INDEX: 0, FINISHED: False}
                if where.last
                else {SEGMENT: segment, OFFSET: where.before, INDEX: done + 1, FINISHED: False},
                self.topic,
                {
                    "ts_ms": where.read_ms,
                    "op": INSERT if inserted else UPDATE,
                    "source": self._source(write_time, file, position),
                    "after": after,
                },
                self._value_schema,
                record_key,
                self._key_schema,
            )
        )
        return next_pos

    def entries(self, data: bytes, entries: Sequence[LogEntry], where: Where, out: list[SourceRecord]) -> int:
        """See ``CassandraTableEvents.entries``."""
        begin = self.begin
        if not begin:
            return 0
        partition, segment, read_ms, topic = where.partition, where.segment, where.read_ms, self.topic
        file = self.file_of(where)
        value_schema, key_schema, plain_of, source_of = (
            self._value_schema,
            self._key_schema,
            self.decoder.plain,
            self._source,
        )
        rows_of, new, add = self._rows, SourceRecord, out.append
        before = len(out)
        try:
            for start, end, position in entries:
                plain = plain_of(data, start + 1) if data.startswith(begin, start) else None
                if plain is None:
                    break
                key, _, rows, next_pos = plain
                if next_pos != end or len(rows) != 1 or rows[0][0]:
                    break
                _, clustering, inserted, write_time, _, expires, names, values = rows[0]
                make = rows_of.get(names) or self._row_maker(names)
                record_key, after = make(key, clustering, values, None if expires is None else expires * 1_000_000)
                add(
                    new(
                        partition,
                        {"segment": segment, "position": position, "index": 0, "finished": False},
                        topic,
                        {
                            "ts_ms": read_ms,
                            "op": INSERT if inserted else UPDATE,
                            "source": source_of(write_time, file, position),
                            "after": after,
                        },
                        value_schema,
                        record_key,
                        key_schema,
                    )
                )
        except (IndexError, ValueError, OverflowError, Skippable):
            pass  # `update` says what is wrong with it
        return len(out) - before

    def add_snapshot_rows(
        self, update: PartitionUpdate, partition: Position, offset: Position, out: list[SourceRecord]
    ) -> None:
        """See ``CassandraTableEvents.add_snapshot_rows``: each row with all columns, the static ones among them."""
        read_ms = update.source.read_time or 0
        static = () if update.static is None else update.static.cells
        rows = [(row.clustering, (*static, *row.cells)) for row in update.rows]
        if not rows and static:
            rows = [(self._cells.no_clustering, static)]
        source = self._source(read_ms * 1000, "", _NO_POSITION) | {"snapshot": "true"}
        records = []
        for clustering, cells in rows:
            after = self._cells.nothing(update.key, clustering, None)
            after |= self._cells.write([cell for cell in cells if cell.column not in self.excluded], (), whole=True)
            for name in self.excluded:
                del after[name]
            records.append(
                SourceRecord(
                    partition,
                    offset,
                    self.topic,
                    {"ts_ms": read_ms, "op": INSERT, "source": source, "after": after},
                    self._value_schema,
                    self._cells.key(update.key, clustering),
                    self._key_schema,
                )
            )
        out += records

    # -- events of what is not simple

    def _collect_events(self, update: PartitionUpdate) -> list[_Event]:
        events: list[_Event] = []
        cells, key = self._cells, update.key
        times = {entry.deletion.write_time for entry in update.ranges}
        if update.deletion is not None:
            times.add(update.deletion.write_time)
            time = update.deletion.write_time
            events.append(
                (
                    time,
                    True,
                    DELETE,
                    time,
                    cells.key(key, cells.no_clustering),
                    cells.nothing(key, cells.no_clustering, time),
                )
            )
        if update.static is not None:
            if self.settings.extended:
                for part in _split_row(update.static, times):
                    self._add_row_event(update, part, cells.no_clustering, events)
            else:
                self.skipped["static"] += 1
        for row in update.rows:
            if row.deletion is not None:
                time = row.deletion.write_time
                events.append(
                    (time, True, DELETE, time, cells.key(key, row.clustering), cells.nothing(key, row.clustering, time))
                )
            for part in _split_row(row, times):
                self._add_row_event(update, part, row.clustering, events)
        events += [self._make_range_event(key, entry) for entry in update.ranges]
        if any(entry[1] for entry in events):
            events.sort(key=itemgetter(0, 1))
        return events

    def _add_row_event(
        self, update: PartitionUpdate, row: UpdateRow, clustering: tuple[Any, ...], events: list[_Event]
    ) -> None:
        """The event of what a row was given, if it was given something."""
        if row.liveness is None and not row.cells and not row.complex_deletions:
            return
        times = [cell.stamp.write_time for cell in row.cells] + [cell.write_time for _, cell in row.complex_deletions]
        if row.liveness is not None:
            times.append(row.liveness.write_time)
        # Columns that are left out are not converted: a value without a form must not make the record a bad one.
        after = self._cells.keys(update.key, clustering) | self._cells.write(
            [cell for cell in row.cells if cell.column not in self.excluded],
            [deletion for deletion in row.complex_deletions if deletion[0] not in self.excluded],
            whole=False,
        )
        events.append(
            (
                max(times),
                False,
                UPDATE if row.liveness is None else INSERT,
                update.write_time,
                self._cells.key(update.key, clustering),
                after,
            )
        )

    def _make_range_event(self, key: tuple[Any, ...], deleted: RangeDeletion) -> _Event:
        start, end = range_bounds(self.table, deleted)
        time = deleted.deletion.write_time
        after = self._cells.keys(key, ()) | {RANGE_START: start, RANGE_END: end}
        return time, True, RANGE, time, self._cells.key(key, self._cells.no_clustering), after

    # -- records

    def _emit_events(self, events: Sequence[_Event], where: Where, out: list[SourceRecord]) -> None:
        file = self.file_of(where)
        keyed_values: list[tuple[dict[str, Any] | None, dict[str, Any]]] = []
        for _, _, op, time, key, after in events:
            keyed_values.append(
                (
                    {
                        "ts_ms": where.read_ms,
                        "op": op,
                        "source": self._source(time, file, where.position),
                        "after": after,
                    },
                    key,
                )
            )
            if op == DELETE and self.settings.tombstones:
                keyed_values.append((None, key))
        done, final = where.done, where.done + len(keyed_values)
        for index, (value, key) in enumerate(keyed_values, done + _AFTER):
            out.append(
                SourceRecord(
                    where.partition,
                    where.ended() if where.last and index == final else where.offset(index),
                    self.topic,
                    value,
                    None if value is None else self._value_schema,
                    key,
                    self._key_schema,
                )
            )
        where.done = final

    def file_of(self, where: Where) -> str:
        """The name of the segment's file."""
        segment, name = self._file
        if segment != where.segment:
            name = f"CommitLog-{where.version}-{where.segment}.log"
            self._file = (where.segment, name)
        return name

    def _row_maker(self, names: tuple[str, ...]) -> Callable[..., tuple[dict[str, Any], dict[str, Any]]]:
        """The function (partition key, clustering values, values of ``names``, expiry in µs) -> key and ``after``."""
        if len(self._rows) >= _SHAPES:
            self._rows.clear()
        self._rows[names] = maker = self._compile_maker(names)
        return maker

    def _compile_maker(self, names: tuple[str, ...]) -> Callable[..., tuple[dict[str, Any], dict[str, Any]]]:
        code = CodeBuilder()

        def changed(column: CqlColumn, local: str) -> str:
            change = self.schemas.types[column.name].change
            if change is None:
                return local
            return f"(None if {local} is None else {code.bind('change', change)}({local}))"

        key = [(key_column, f"k{index}") for index, key_column in enumerate(self.table.key)]
        key += [(key_column, f"c{index}") for index, key_column in enumerate(self.table.clustering)]
        columns = {key_column.name: key_column for key_column in (*self.table.static, *self.table.regular)}
        lines = [f"{unpack_names('k', len(self.table.key))} = key"]
        if self.table.clustering:
            lines.append(f"{unpack_names('c', len(self.table.clustering))} = clustering")
        if names:
            lines.append(f"{unpack_names('v', len(names))} = values")
        lines += [
            f"{local} = {expression}"
            for key_column, local in key
            if (expression := changed(key_column, local)) != local
        ]
        cells = [
            (key_column.name, f"{{'value': {local}, 'deletion_ts': None, 'set': True}}") for key_column, local in key
        ]
        cells += [
            (
                name,
                (
                    f"{{'value': {changed(columns[name], f'v{index}')}, "
                    f"'deletion_ts': None if v{index} is None else expires, 'set': True}}"
                ),
            )
            for index, name in enumerate(names)
            if name not in self.excluded
        ]
        struct = dict_display((key_column.name, local) for key_column, local in key)
        code.define("made(key, clustering, values, expires)", [*lines, f"return {struct}, {dict_display(cells)}"])
        return code.function("made", "rows of Debezium's form")


def _split_row(row: UpdateRow, times: AbstractSet[int]) -> list[UpdateRow]:
    """The parts of a row that were written between deletions at ``times``, the oldest first.

    A batch may give its statements times of their own: then a deletion may hide some cells of a row, and not others.
    """
    if not times:
        return [row]
    limits = sorted(times)
    cells: dict[int, list[Cell]] = {}
    first: dict[str, int] = {}
    for cell in row.cells:
        number = bisect_left(limits, cell.stamp.write_time)
        cells.setdefault(number, []).append(cell)
        first[cell.column] = min(number, first.get(cell.column, number))
    overwritten: dict[int, list[tuple[str, UpdateDeletion]]] = {}
    for column, deletion in row.complex_deletions:
        # Next to the elements that replace those before: it is a little older than they are.
        number = first.get(column, bisect_left(limits, deletion.write_time))
        overwritten.setdefault(number, []).append((column, deletion))
    inserted = -1 if row.liveness is None else bisect_left(limits, row.liveness.write_time)
    return [
        UpdateRow(
            row.clustering,
            row.liveness if number == inserted else None,
            None,
            tuple(cells.get(number, ())),
            tuple(overwritten.get(number, ())),
        )
        for number in range(len(limits) + 1)
        if number == inserted or number in cells or number in overwritten
    ]


def _source_maker(
    table: CqlTableDefinition, settings: CassandraEventSettings
) -> Callable[[int, str, int], dict[str, Any]]:
    """The function (time in µs, segment's file, position) -> the block ``source`` of a change of the table."""
    name, cluster, keyspace, table_name = (
        settings.topic_prefix,
        settings.cluster or settings.topic_prefix,
        table.keyspace,
        table.table,
    )

    def source(micros: int, file: str, position: int) -> dict[str, Any]:
        return {
            "version": VERSION,
            "connector": CONNECTOR,
            "name": name,
            "ts_ms": micros // 1000,
            "snapshot": "false",
            "db": "NULL",
            "sequence": None,
            "ts_us": micros,
            "ts_ns": micros * 1000 if -LAST_MICROS <= micros <= LAST_MICROS else None,
            "cluster": cluster,
            "file": file,
            "pos": position,
            "keyspace": keyspace,
            "table": table_name,
        }

    return source
