"""``partition-update``: what is read from its records is what the bytes of the log say, by either way of making them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.cassandra.events import build_events
from connectors.cassandra.model import LogPosition
from connectors.cql.encoding import encode_partition_key
from connectors.cql.mutations.definition import CqlColumn, make_definition
from connectors.cql.mutations.encode import write_update
from connectors.cql.types import parse_type
from connectors.errors import Fatal
from connectors.formats.partition_update import Cell, ClusteringBound, PartitionUpdate, RangeDeletion, UpdateRow
from connectors.formats.partition_update_codec import decode_update
from tests.support.settings import cassandra_events
from tests.unit.connectors.cassandra.events.cassandra_event_world import (
    DAY,
    EXPIRING,
    KEY,
    LATER,
    NOW,
    PARTITION,
    PLAIN,
    READ_MS,
    ROW,
    SEGMENT,
    SOURCE,
    TABLE,
    UpdateFeed,
    deleted,
    row,
    through_avro,
    through_json,
    update,
    where,
)
from tests.unit.connectors.cql.mutation_world import VERSIONS, tables, updates

if TYPE_CHECKING:
    from connectors.api import SourceRecord
    from connectors.schema import Schema

_LIMITS = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def said(records: list[SourceRecord]) -> tuple[Any, ...]:
    """The combined content of records: key, deletion, static row, rows, ranges."""
    parts = []
    for record in records:
        assert record.value_schema is not None
        part = decode_update(through_avro(record.value, record.value_schema), record.value_schema)
        assert decode_update(record.value, record.value_schema) == part
        parts.append(part)
    assert len({part.key for part in parts}) == 1
    return content(parts)


def content(parts: list[PartitionUpdate]) -> tuple[Any, ...]:
    return (
        parts[0].key,
        [part.deletion for part in parts if part.deletion],
        [ordered(part.static) for part in parts if part.static],
        [ordered(updated_row) for part in parts for updated_row in part.rows],
        [deletion for part in parts for deletion in part.ranges],
    )


def ordered(update_row: UpdateRow) -> UpdateRow:
    """Cells of a row come by column, tombstones among them, in no order of their own."""
    return update_row._replace(
        cells=tuple(sorted(update_row.cells, key=lambda cell: (cell.column, repr(cell)))),
        complex_deletions=tuple(sorted(update_row.complex_deletions)),
    )


@given(st.data(), VERSIONS)
@_LIMITS
def test_any_update_is_in_its_records(data: st.DataObject, version: int) -> None:
    table = data.draw(tables())
    drawn = data.draw(updates(table, version))
    feed = UpdateFeed(table, version)
    records = feed(drawn)
    if not (drawn.rows or drawn.ranges or drawn.static or drawn.deletion):
        assert not records
        return
    (record,) = records
    assert record.key == encode_partition_key([column.type for column in table.key], drawn.key)
    assert record.value["write_time"] == drawn.write_time
    assert 0 <= (record.timestamp or 0) <= READ_MS
    assert said(records) == content([drawn])


@pytest.mark.parametrize(
    "written",
    [
        update(row({"v": "x", "n": 5})),
        update(row({"v": None, "n": 5})),
        update(row({"n": 1}, stamp=EXPIRING, inserted=False)),
        update(row({"f": {"street": "s", "host": None}})),
        update(row({})),
        update(row({"v": "x"}), row({"v": "y"}, (6, DAY)), row({"n": 1, "v": None}, (7, DAY))),
        update(static=row({"s": 4}, (), inserted=False)),
        update(row({"v": "x"}), static=row({"s": 4}, (), inserted=False)),
    ],
    ids=["insert", "tombstone", "ttl", "udt", "keys only", "rows", "static", "static and row"],
)
def test_generated_code_says_the_same(written: PartitionUpdate) -> None:
    feed = UpdateFeed()
    first, last = feed(written), feed.often(written)
    assert feed.events.decoder.plain(write_update(written, TABLE, 7), 0) is not None  # type: ignore[attr-defined]
    assert said(last) == said(first) == content([written])
    assert [record.value_schema for record in first] == [record.value_schema for record in last]
    assert [(record.key, record.source_offset, record.timestamp) for record in first] == [
        (record.key, record.source_offset, record.timestamp) for record in last
    ]
    as_json = [
        [through_json(record.value, cast("Schema", record.value_schema)) for record in part] for part in (first, last)
    ]
    assert as_json[0] == as_json[1]


def test_rows_of_different_times() -> None:
    feed = UpdateFeed()
    written = update(row({"v": "x"}), row({"v": "y"}, (6, DAY), stamp=LATER), row({"n": 1}, (7, DAY), stamp=EXPIRING))
    assert said(feed.often(written)) == said(feed(written)) == content([written])


def test_what_is_not_simple() -> None:
    feed = UpdateFeed()
    written = update(
        UpdateRow(
            ROW,
            NOW,
            deleted(LATER),
            (
                Cell("v", None, "x", NOW),
                Cell("l", "6a1f2be0-c6f5-11f0-9d3e-3b7c2f5a9e01", 3, NOW),
                Cell("m", "k", None, LATER),
                Cell("u", "host", "10.0.0.1", EXPIRING),
            ),
            (("l", deleted(NOW)), ("m", deleted(NOW))),
        ),
        deletion=deleted(NOW),
        static=UpdateRow((), None, None, (Cell("sl", 4, True, NOW),), (("sl", deleted(NOW)),)),
        ranges=(RangeDeletion(ClusteringBound(), ClusteringBound((3,), inclusive=False), deleted(NOW)),),
    )
    for count in range(1, 6):
        assert said(feed(written)) == content([written])
        assert feed.events.full_decodes == 2 * count  # each update is read twice, see UpdateFeed


def test_where_it_was_read() -> None:
    feed = UpdateFeed()
    at = where(done=2)
    (record,) = feed(update(row({"v": "x"})), at)
    assert at.done == 3
    assert record.value["source"] == {
        "schema": feed.events.layout.source.schema,  # type: ignore[attr-defined]
        "snapshot": False,
        "read_time": READ_MS,
        "position": {"node": "n1", "segment": SEGMENT, "position": 1300, "index": 2},
    }
    assert record.source_partition is PARTITION
    assert LogPosition.of(record.source_offset) == LogPosition(SEGMENT, 1300)
    assert record.topic == "c.ks.t"
    assert record.timestamp == NOW.write_time // 1000
    at.last = False
    (record,) = feed(update(row({"v": "x"})), at)
    assert LogPosition.of(record.source_offset) == LogPosition(SEGMENT, 1000, 4)


def test_nothing_said_is_no_record() -> None:
    at = where(done=1)
    assert UpdateFeed()(update(), at) == []
    assert at.done == 1


@pytest.mark.parametrize(
    "written",
    [
        update(*[row({"v": "x" * 20}, (index, DAY)) for index in range(25)]),
        update(
            *[row({"l": None} if index % 2 else {"v": "x"}, (index, DAY), stamp=LATER) for index in range(25)][::2],
            deletion=deleted(NOW),
            static=UpdateRow((), None, None, (Cell("sl", 4, True, NOW),)),
        ),
        update(
            ranges=tuple(
                RangeDeletion(ClusteringBound((index,)), ClusteringBound((index + 1,)), deleted(NOW))
                for index in range(25)
            )
        ),
    ],
    ids=["simple", "not simple", "ranges"],
)
def test_a_large_update_is_divided(written: PartitionUpdate) -> None:
    feed = UpdateFeed(max_rows=10)
    many = len(written.rows) + len(written.ranges)
    for last in (True, False):
        at = where(last=last)
        records = feed.often(written) if last else feed(written, at)
        assert len(records) == -(-many // 10)
        assert said(records) == content([written])
        positions = [LogPosition.of(record.source_offset) for record in records]
        assert positions[:-1] == [LogPosition(SEGMENT, 1000, index) for index in range(1, len(records))]
        assert positions[-1] == (LogPosition(SEGMENT, 1300) if last else LogPosition(SEGMENT, 1000, len(records)))
        assert [record.value["source"]["position"]["index"] for record in records] == list(range(len(records)))
        assert last or at.done == len(records)


def test_an_update_of_many_bytes_is_divided() -> None:
    feed = UpdateFeed(max_bytes=5000)
    written = update(*[row({"v": "x" * 1000}, (index, DAY)) for index in range(20)])
    for records in (feed(written), feed.often(written)):
        assert 4 <= len(records) <= 7
        assert said(records) == content([written])
    large_update = update(row({"v": "x" * 100_000}))
    assert len(feed.often(large_update)) == len(feed(large_update)) == 1


@pytest.mark.parametrize(
    ("micros", "expected"),
    [
        (-5, 0),
        (5_999, 5),
        (READ_MS * 1000 + 999, READ_MS),
        (READ_MS * 1000 + 5_000_000, READ_MS),
        ((1 << 63) - 1, READ_MS),
    ],
)
def test_times_that_brokers_would_refuse(micros: int, expected: int) -> None:
    feed = UpdateFeed()
    for records in (
        feed(update(row({"v": "x"}, stamp=NOW._replace(write_time=micros)))),
        feed.often(update(row({"v": "x"}, stamp=NOW._replace(write_time=micros)))),
    ):
        assert [record.timestamp for record in records] == [expected]
        assert records[0].value["write_time"] == micros


def test_a_partition_that_was_read_from_the_table() -> None:
    feed = UpdateFeed(max_rows=2)
    source = SOURCE.__class__(
        connector="cassandra", cluster="c", keyspace="ks", table="t", snapshot=True, read_time=READ_MS, position=None
    )
    rows = tuple(row({"v": "x"}, (index, DAY)) for index in range(5))
    read = PartitionUpdate(
        source=source, key=KEY, write_time=NOW.write_time, rows=rows, static=row({"s": 1}, (), inserted=False)
    )
    records: list[SourceRecord] = []
    offset = {"state": "running"}
    feed.events.add_snapshot_rows(read, PARTITION, offset, records)
    assert len(records) == 3
    assert said(records) == content([read])
    assert all(record.source_offset is offset and record.source_partition is PARTITION for record in records)
    assert all(
        record.value["source"]["snapshot"] is True and record.value["source"]["position"] is None for record in records
    )
    # Rows can be older than what the topic keeps.
    assert {record.timestamp for record in records} == {READ_MS}
    (live,) = feed(update(rows[0]))
    assert {record.key for record in records} == {live.key}


@pytest.mark.parametrize("form", ["partition-update", "partition-update-raw"])
def test_an_empty_number_in_a_key_that_was_read_stops_no_snapshot(form: str) -> None:
    """It has no form in a key: converters refuse the decoded record, and only that one; from the log it is the same."""
    feed = UpdateFeed(output_format=form)
    change = update(row({"v": "x"}), key=(None, "k"))
    (logged,) = feed(change)
    read = msgspec.structs.replace(change, source=msgspec.structs.replace(change.source, read_time=READ_MS))
    records: list[SourceRecord] = []
    feed.events.add_snapshot_rows(read, PARTITION, {}, records)
    assert [record.key for record in records] == [logged.key] == [b"\0\0\0\0\1k\0"]


def test_a_table_without_clustering_key() -> None:
    feed = UpdateFeed(PLAIN)
    written = update(row({"v": "x", "w": 1}, ()), key=(1,))
    (record,) = feed.often(written)
    assert record.key == b"\x00\x00\x00\x01"
    assert said([record]) == content([written])
    gone = update(key=(1,), deletion=deleted(NOW))
    assert said(feed(gone)) == content([gone])


def test_counters_are_refused_by_name() -> None:
    table = make_definition(
        "ks",
        "hits",
        PLAIN.table_id,
        [CqlColumn("p", parse_type("int"), "partition_key", 0), CqlColumn("n", parse_type("counter"), "regular")],
    )
    for form in ("partition-update", "partition-update-raw", "debezium"):
        with pytest.raises(Fatal, match=r"ks\.hits has counters \(n\)"):
            build_events(table, 7, cassandra_events(topic_prefix="c", output_format=form))


def test_the_schema_names_the_definition() -> None:
    schema = UpdateFeed().events.layout.schema  # type: ignore[attr-defined]
    assert schema.parameter("form") == "partition-update"
    assert schema.parameter("table_id") == TABLE.table_id
    assert schema.parameter("schema_version") == TABLE.version
