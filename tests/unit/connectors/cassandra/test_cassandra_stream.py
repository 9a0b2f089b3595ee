"""From log chunks to records: positions, repetition after a restart, unknown tables and columns, damage."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from connectors.cassandra.events import build_events
from connectors.cassandra.events.contract import Where
from connectors.cassandra.model import LogChunk, LogEntry, LogPosition
from connectors.cassandra.schema.catalog import CassandraCatalog, CassandraTableFilter
from connectors.cassandra.stream import CassandraStream, Missing
from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition, make_definition
from connectors.cql.mutations.encode import write_mutation, write_update
from connectors.cql.types import parse_type
from connectors.formats.partition_update import (
    Cell,
    CellStamp,
    PartitionUpdate,
    UpdateDeletion,
    UpdateRow,
    UpdateSource,
)
from tests.support.settings import cassandra_events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.api import BadRecord, SourceRecord
    from connectors.cassandra.events.contract import CassandraTableEvents
    from connectors.cassandra.stream import Definitions

LOG = logging.LoggerAdapter(logging.getLogger("test"))
NOBODY = UpdateSource(connector="", cluster="", keyspace="", table="")
AT_US = 1_790_000_000_000_000
SEGMENT = 1_700_000_000_000


def table(
    name: str, number: int, *, cdc: bool = True, columns: Sequence[tuple[str, str]] = (("v", "text"),)
) -> CqlTableDefinition:
    regular = [CqlColumn(column, parse_type(kind), "regular") for column, kind in columns]
    key = CqlColumn("pk", parse_type("int"), "partition_key", 0)
    return make_definition("ks", name, str(UUID(int=(number << 64) + number)), [key, *regular], cdc=cdc)


A, B, PLAIN = table("a", 1), table("b", 2), table("plain", 3, cdc=False)
COUNTER = table("c", 4, columns=(("n", "counter"),))


def update(of: CqlTableDefinition, key: int, **values: str) -> bytes:
    stamp = CellStamp(AT_US + key)
    return write_update(
        PartitionUpdate(
            source=NOBODY,
            key=(key,),
            write_time=stamp.write_time,
            rows=(
                UpdateRow(
                    liveness=stamp, cells=tuple(Cell(name, None, value, stamp) for name, value in values.items())
                ),
            ),
        ),
        of,
        7,
    )


def removal(of: CqlTableDefinition, key: int) -> bytes:
    return write_update(
        PartitionUpdate(
            source=NOBODY,
            key=(key,),
            write_time=AT_US + key,
            rows=(UpdateRow(deletion=UpdateDeletion(AT_US + key, AT_US // 1_000_000)),),
        ),
        of,
        7,
    )


class MemoryDefinitions:
    """Definitions of tables in memory."""

    def __init__(self, *tables: CqlTableDefinition) -> None:
        self.tables = {UUID(table.table_id).bytes: table for table in tables}
        self.last_segments: dict[str, int] = {}

    def by_id(self, table_id: bytes) -> CqlTableDefinition | None:
        return self.tables.get(table_id)

    def captured(self, table: CqlTableDefinition, segment: int) -> bool:
        return table.cdc and not table.refusal and segment <= self.last_segments.get(table.table_id, segment)

    def is_deliverable(self, table: CqlTableDefinition) -> bool:
        return table.keyspace == "ks" and not table.refusal

    def is_refused(self, table: CqlTableDefinition) -> bool:
        return table.cdc and bool(table.refusal)

    def list_known_tables(self) -> list[CqlTableDefinition]:
        return list(self.tables.values())


def make_chunk(*mutations: bytes, segment: int = SEGMENT, begin: int = 100, finished: bool = False) -> LogChunk:
    """A chunk of a log of version 7; positions grow by 1000 from ``begin``."""
    data, entries = b"", []
    for number, mutation in enumerate(mutations):
        entries.append(LogEntry(len(data), len(data) + len(mutation), begin + 1000 * (number + 1)))
        data += mutation
    return LogChunk(segment, 7, data, entries, entries[-1].position if entries else begin, finished)


class Bench:
    """A stream, and what came out of it."""

    def __init__(
        self,
        definitions: Definitions,
        position: LogPosition | None = None,
        form: str = "partition-update",
        **options: int,
    ) -> None:
        settings = cassandra_events(topic_prefix="p", output_format=form, tombstones=True, **options)

        def make_events(definition: CqlTableDefinition, version: int) -> CassandraTableEvents:
            return build_events(definition, version, settings)

        self.stream = CassandraStream(
            Where(partition={"cluster": "p", "node": "n"}, node="n", segment=0, version=0),
            position,
            definitions,
            make_events,
            LOG,
        )
        self.out: list[SourceRecord] = []
        self.bad: list[BadRecord] = []

    def take(self, chunk: LogChunk, first: int = 0, limit: int = 1000) -> int:
        return self.stream.take(chunk, first, limit, self.out, self.bad)

    def all(self, chunk: LogChunk) -> None:
        """Take all of it; what is missing is given up."""
        number = 0
        while number < len(chunk.entries):
            try:
                number = self.take(chunk, number)
            except Missing as missing:
                self.stream.give_up(missing)
                number = self.stream.number
        if not chunk.entries:
            self.take(chunk)

    @property
    def seen(self) -> list[tuple[str, int]]:
        return [
            (
                record.topic,
                record.key["pk"] if isinstance(record.key, dict) else int.from_bytes(record.key, "big", signed=True),
            )
            for record in self.out
        ]


def test_records_carry_the_position_behind_them_and_the_last_that_of_the_entry() -> None:
    bench = Bench(MemoryDefinitions(A, B, PLAIN))
    bench.all(
        make_chunk(
            write_mutation([update(A, 1, v="x")], 7),
            write_mutation([update(A, 2, v="y"), update(B, 2, v="z")], 7),
            write_mutation([update(PLAIN, 3, v="q")], 7),
        )
    )
    assert bench.seen == [("p.ks.a", 1), ("p.ks.a", 2), ("p.ks.b", 2)]
    assert [LogPosition.of(record.source_offset) for record in bench.out] == [
        LogPosition(SEGMENT, 1100),
        LogPosition(SEGMENT, 1100, 1),
        LogPosition(SEGMENT, 2100),
    ]
    assert bench.stream.position == LogPosition(SEGMENT, 3100)
    assert (bench.stream.counts.entries, bench.stream.counts.updates, bench.stream.counts.ignored) == (3, 3, 1)


@pytest.mark.parametrize("form", ["partition-update", "partition-update-raw", "debezium"])
def test_reading_resumes_exactly_from_every_position(form: str) -> None:
    log = make_chunk(
        *(
            write_mutation([update(A, key, v="x"), removal(B, key), update(PLAIN, key, v="no")], 7)
            for key in range(1, 5)
        )
    )
    whole = Bench(MemoryDefinitions(A, B, PLAIN), form=form)
    whole.all(log)
    assert len(whole.out) == (12 if form == "debezium" else 8)  # each deletion with its tombstone
    for number, record in enumerate(whole.out, 1):
        resumed = Bench(MemoryDefinitions(A, B, PLAIN), LogPosition.of(record.source_offset), form)
        resumed.all(log)
        assert resumed.seen == whole.seen[number:], record.source_offset


@pytest.mark.parametrize(("max_rows", "max_bytes"), [(3, 1 << 20), (500, 60)])
def test_reading_resumes_in_a_divided_update_though_the_decoder_has_to_learn_again(
    max_rows: int, max_bytes: int
) -> None:
    """The first updates of a shape are decoded in another way than later ones: both have to divide them alike."""
    columns = [
        CqlColumn("pk", parse_type("int"), "partition_key", 0),
        CqlColumn("ck", parse_type("int"), "clustering", 0),
        CqlColumn("s", parse_type("text"), "static"),
        CqlColumn("v", parse_type("text"), "regular"),
    ]
    wide = make_definition("ks", "wide", str(UUID(int=77)), columns, cdc=True)

    def rows_of(key: int) -> bytes:
        stamp = CellStamp(AT_US)
        rows = tuple(
            UpdateRow((number,), stamp, None, (Cell("v", None, "x" * (number * 7 % 20), stamp),)) for number in range(7)
        )
        static = UpdateRow(cells=(Cell("s", None, "s", stamp),))
        change = PartitionUpdate(source=NOBODY, key=(key,), write_time=AT_US, static=static, rows=rows)
        return write_mutation([write_update(change, wide, 7)], 7)

    def rows_in(records: Sequence[SourceRecord]) -> list[tuple[int, int]]:
        return [
            (record.value["key"]["pk"], row["clustering"]["ck"])
            for record in records
            for row in record.value["rows"] or ()
        ]

    log = make_chunk(*map(rows_of, range(6)))
    whole = Bench(MemoryDefinitions(wide), max_rows=max_rows, max_bytes=max_bytes)
    whole.all(log)
    assert rows_in(whole.out) == [(key, number) for key in range(6) for number in range(7)]
    for number, record in enumerate(whole.out, 1):
        position = LogPosition.of(record.source_offset)
        resumed = Bench(MemoryDefinitions(wide), position, max_rows=max_rows, max_bytes=max_bytes)
        resumed.all(log)
        assert rows_in(resumed.out) == rows_in(whole.out[number:]), record.source_offset


def test_a_batch_ends_between_entries() -> None:
    log = make_chunk(*(write_mutation([update(A, key, v="x"), update(B, key, v="y")], 7) for key in range(1, 6)))
    bench = Bench(MemoryDefinitions(A, B))
    assert bench.take(log, 0, limit=3) == 2
    assert (len(bench.out), bench.stream.position) == (4, LogPosition(SEGMENT, 2100))
    assert bench.take(log, 2, limit=7) == 4
    assert bench.take(log, 4, limit=1000) == 5
    assert len(bench.out) == 10


def test_a_segment_s_end_moves_the_position() -> None:
    bench = Bench(MemoryDefinitions(A))
    bench.all(make_chunk(write_mutation([update(A, 1, v="x")], 7)))
    bench.all(make_chunk(begin=5000, finished=True))
    assert bench.stream.position == LogPosition(SEGMENT, 5000, 0, finished=True)
    bench.all(make_chunk(write_mutation([update(A, 2, v="x")], 7), segment=SEGMENT + 1))
    assert bench.stream.position == LogPosition(SEGMENT + 1, 1100)
    assert bench.seen == [("p.ks.a", 1), ("p.ks.a", 2)]


def test_an_unknown_table_is_asked_for_then_passed_over() -> None:
    definitions = MemoryDefinitions(A)
    bench = Bench(definitions)
    log = make_chunk(
        write_mutation([update(A, 1, v="x")], 7),
        write_mutation([update(B, 2, v="y")], 7),
        write_mutation([update(A, 3, v="z")], 7),
    )
    with pytest.raises(Missing) as asked:
        bench.take(log)
    assert (asked.value.table_id, asked.value.column) == (UUID(B.table_id).bytes, None)
    assert (bench.seen, bench.stream.number, bench.stream.position) == ([("p.ks.a", 1)], 1, LogPosition(SEGMENT, 1100))
    bench.stream.give_up(asked.value)
    bench.take(log, 1)
    assert (bench.seen, bench.stream.counts.unknown) == ([("p.ks.a", 1), ("p.ks.a", 3)], 1)
    # It is created after all, or another node reports it.
    definitions.tables[UUID(B.table_id).bytes] = B
    bench.stream.changed({B.table_id})
    bench.all(make_chunk(write_mutation([update(B, 4, v="y")], 7), begin=9000))
    assert bench.seen[-1] == ("p.ks.b", 4)


def test_captured_tables_behind_an_unknown_one_are_still_delivered() -> None:
    gone = table("gone", 9, columns=(("q", "map<int, frozen<list<text>>>"), ("v", "text")))
    bench = Bench(MemoryDefinitions(A, B, PLAIN))
    four = [update(A, 1, v="x"), update(gone, 1, v="?"), update(PLAIN, 1, v="-"), update(B, 1, v="y")]
    bench.all(
        make_chunk(
            write_mutation(four, 7),
            write_mutation([update(gone, 2, v="?"), update(PLAIN, 2, v="-")], 7),
            write_mutation([update(gone, 3, v="?")], 7),
        )
    )
    assert bench.seen == [("p.ks.a", 1), ("p.ks.b", 1)]
    assert not bench.bad
    assert bench.stream.counts.unknown == 3


def test_an_unknown_column_is_asked_for_then_a_bad_record() -> None:
    newer = table("a", 1, columns=(("v", "text"), ("w", "text")))
    log = make_chunk(write_mutation([update(newer, 1, v="x", w="new")], 7), write_mutation([update(A, 2, v="y")], 7))
    definitions = MemoryDefinitions(A)
    bench = Bench(definitions)
    with pytest.raises(Missing) as asked:
        bench.take(log)
    assert asked.value.column == "w"
    definitions.tables[UUID(A.table_id).bytes] = newer
    bench.stream.changed({A.table_id})
    bench.take(log, bench.stream.number)
    assert bench.seen == [("p.ks.a", 1), ("p.ks.a", 2)]
    assert bench.out[0].value["rows"][0]["cells"]["w"] == "new"

    given_up = Bench(MemoryDefinitions(A))
    given_up.all(log)
    assert given_up.seen == [("p.ks.a", 2)]
    assert len(given_up.bad) == 1
    assert "segment 1700000000000, position 1100" in str(given_up.bad[0].error)
    assert (given_up.bad[0].topic, given_up.bad[0].source_offset["position"]) == ("p.ks.a", 1100)


@pytest.mark.parametrize("cut", [1, 5, 17])
def test_a_mutation_that_ends_early_is_bad_and_the_next_one_is_read(cut: int) -> None:
    whole = write_mutation([update(A, 1, v="text that is long enough"), update(B, 1, v="x")], 7)
    bench = Bench(MemoryDefinitions(A, B))
    bench.all(make_chunk(whole[:-cut], write_mutation([update(B, 2, v="y")], 7)))
    assert bench.seen[-1] == ("p.ks.b", 2)
    assert len(bench.bad) == 1
    assert bench.stream.counts.bad == 1


def test_counters_are_passed_over_and_counted() -> None:
    stamp = CellStamp(AT_US)
    counted = write_update(
        PartitionUpdate(
            source=NOBODY, key=(1,), write_time=AT_US, rows=(UpdateRow(cells=(Cell("v", None, b"\x00" * 8, stamp),)),)
        ),
        table("c", 4, columns=(("v", "blob"),)),
        7,
    )
    catalog = CassandraCatalog(CassandraTableFilter(), None)
    catalog.remember([A, COUNTER])
    bench = Bench(catalog)
    bench.all(make_chunk(write_mutation([counted], 7), write_mutation([update(A, 2, v="y")], 7)))
    assert (bench.seen, bench.stream.counts.counters) == ([("p.ks.a", 2)], 1)


def test_a_table_without_cdc_is_passed_over_only_by_a_definition_that_is_newer_than_the_log() -> None:
    definitions = MemoryDefinitions(A, PLAIN)
    bench = Bench(definitions)
    bench.stream.sure = False
    log = make_chunk(
        write_mutation([update(A, 1, v="x")], 7), write_mutation([update(A, 2, v="x"), update(PLAIN, 2, v="y")], 7)
    )
    with pytest.raises(Missing) as asked:
        bench.take(log)
    assert (asked.value.doubt, asked.value.table_id) == (True, UUID(PLAIN.table_id).bytes)
    assert (bench.seen, bench.stream.position) == ([("p.ks.a", 1)], LogPosition(SEGMENT, 1100))
    now = table("plain", 3)
    definitions.tables[UUID(now.table_id).bytes] = now
    bench.stream.changed({now.table_id})
    bench.stream.sure = True
    bench.take(log, bench.stream.number)
    assert bench.seen == [("p.ks.a", 1), ("p.ks.a", 2), ("p.ks.plain", 2)]


def test_what_was_delivered_of_a_lost_entry_is_not_taken_from_the_next_one() -> None:
    bench = Bench(MemoryDefinitions(A, B), LogPosition(SEGMENT, 1100, 1))
    bench.all(make_chunk(begin=2100)._replace(lost=(1100, 2100)))
    assert bench.stream.position == LogPosition(SEGMENT, 2100)
    bench.all(make_chunk(write_mutation([update(A, 3, v="x"), update(B, 3, v="y")], 7), begin=2100))
    assert bench.seen == [("p.ks.a", 3), ("p.ks.b", 3)]


def test_a_table_counts_up_to_its_last_segment() -> None:
    definitions = MemoryDefinitions(A, B)
    definitions.last_segments[A.table_id] = SEGMENT + 1
    bench = Bench(definitions)
    for number in range(4):
        both = write_mutation([update(A, 10 + number, v="z"), update(B, 10 + number, v="z")], 7)
        bench.all(
            make_chunk(
                write_mutation([update(A, number, v="x")], 7),
                both,
                write_mutation([update(B, number, v="y")], 7),
                segment=SEGMENT + number,
                finished=True,
            )
        )
    assert [key for topic, key in bench.seen if topic == "p.ks.a"] == [0, 10, 1, 11]
    assert [key for topic, key in bench.seen if topic == "p.ks.b"] == [10, 0, 11, 1, 12, 2, 13, 3]
    assert bench.stream.counts.ignored == 4
