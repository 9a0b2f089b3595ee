"""``debezium``: events in the form of Debezium's Cassandra connector, and what it leaves out."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.cassandra.events.debezium_cells import range_bounds
from connectors.cassandra.events.debezium_types import class_text, debezium_type
from connectors.cassandra.model import LogPosition
from connectors.cql.mutations.definition import CqlColumn, make_definition
from connectors.cql.types import CqlType, freeze_type, parse_type
from connectors.errors import Fatal, Skippable
from connectors.formats.partition_update import (
    Cell,
    CellStamp,
    ClusteringBound,
    PartitionUpdate,
    RangeDeletion,
    UpdateRow,
    UpdateSource,
)
from connectors.schema import Type
from tests.support.settings import cassandra_events
from tests.unit.connectors.cassandra.events.cassandra_event_world import (
    DAY,
    EXPIRING,
    FROZEN,
    KEY,
    LATER,
    NOW,
    PARTITION,
    PLAIN,
    READ_MS,
    ROW,
    SEGMENT,
    TABLE_ID,
    UpdateFeed,
    deleted,
    row,
    through_avro,
    through_json,
    update,
    where,
)
from tests.unit.connectors.cql.mutation_world import tables, updates

if TYPE_CHECKING:
    from connectors.api import SourceRecord

DEBEZIUM: dict[str, Any] = {"output_format": "debezium"}
MICROS = NOW.write_time
KEY_CELLS = {
    name: {"value": value, "deletion_ts": None, "set": True} for name, value in zip("pqcd", (*KEY, *ROW), strict=True)
}
LIST_KEYS = [f"6a1f2be{index}-c6f5-11f0-9d3e-3b7c2f5a9e01" for index in range(3)]


def cell(value: Any, deletion_ts: int | None = None, **more: Any) -> dict[str, Any]:
    return {"value": value, "deletion_ts": deletion_ts, "set": True, **more}


def ops(records: list[SourceRecord]) -> list[str | None]:
    return [None if record.value is None else record.value["op"] for record in records]


def touched(record: SourceRecord) -> dict[str, Any]:
    """The cells that are not null, without those of the key."""
    return {name: value for name, value in record.value["after"].items() if name not in KEY_CELLS}


def test_an_insert_as_debezium_writes_it() -> None:
    feed = UpdateFeed(**DEBEZIUM, cluster="Test Cluster")
    for records in (feed(update(row({"v": "x", "n": None}))), feed.often(update(row({"v": "x", "n": None})))):
        (record,) = records
        value = through_json(record.value, record.value_schema)  # type: ignore[arg-type]
        assert value["source"].pop("version")
        assert value == {
            "ts_ms": READ_MS,
            "op": "i",
            "source": {
                "connector": "cassandra",
                "name": "c",
                "ts_ms": MICROS // 1000,
                "snapshot": "false",
                "db": "NULL",
                "sequence": None,
                "ts_us": MICROS,
                "ts_ns": MICROS * 1000,
                "cluster": "Test Cluster",
                "file": f"CommitLog-7-{SEGMENT}.log",
                "pos": 1300,
                "keyspace": "ks",
                "table": "t",
            },
            "after": {
                **KEY_CELLS,
                "v": cell("x"),
                "n": cell(None),
                **dict.fromkeys(("s", "sl", "f", "l", "m", "u", "_range_start", "_range_end")),
            },
        }
        assert record.key == {"p": 7, "q": "k", "c": 5, "d": DAY}
        assert record.timestamp is None
        assert record.topic == "c.ks.t"
        assert LogPosition.of(record.source_offset) == LogPosition(SEGMENT, 1300)


def test_names_of_schemas() -> None:
    schemas = UpdateFeed(**DEBEZIUM).events.schemas  # type: ignore[attr-defined]
    assert schemas.key.name == "io.debezium.connector.cassandra.c.ks.t.Key"
    assert schemas.value.name == "io.debezium.connector.cassandra.c.ks.t.Envelope"
    assert [field.name for field in schemas.value.fields] == ["ts_ms", "op", "source", "after"]
    after = schemas.value.field("after").schema
    assert (after.name, after.version) == ("after", 1)
    assert [field.name for field in after.fields][-2:] == ["_range_start", "_range_end"]
    assert after.field("u").schema.field("value").schema.name == "ks.place"
    assert after.field("v").schema.name.endswith("cell_value")


def test_updates_and_expiring_cells() -> None:
    feed = UpdateFeed(**DEBEZIUM)
    written = update(row({"v": "x", "n": None}, stamp=EXPIRING, inserted=False))
    for records in (feed(written), feed.often(written)):
        assert ops(records) == ["u"]
        assert touched(records[0]) == {"v": cell("x", 1_790_000_060_000_000), "n": cell(None)}


def test_several_rows_and_the_newest_time() -> None:
    feed = UpdateFeed(**DEBEZIUM)
    written = update(
        row({"v": "x"}),
        row({"v": "y"}, (6, DAY), stamp=LATER, inserted=False),
        static=row({"s": 1}, (), inserted=False),
    )
    for records in (feed(written), feed.often(written)):
        assert ops(records) == ["u", "i", "u"]
        assert [record.key["c"] for record in records] == [None, 5, 6]
        assert touched(records[0]) == {"s": cell(1)}
        assert {record.value["source"]["ts_us"] for record in records} == {LATER.write_time}
        assert [LogPosition.of(record.source_offset) for record in records] == [
            LogPosition(SEGMENT, 1000, 1),
            LogPosition(SEGMENT, 1000, 2),
            LogPosition(SEGMENT, 1300),
        ]


def test_a_deleted_row() -> None:
    feed = UpdateFeed(**DEBEZIUM)
    at = where(done=3, last=False)
    event, tombstone = feed(update(UpdateRow(ROW, None, deleted(NOW))), at)
    assert ops([event, tombstone]) == ["d", None]
    assert event.key == tombstone.key == {"p": 7, "q": "k", "c": 5, "d": DAY}
    assert (tombstone.value, tombstone.value_schema, tombstone.topic) == (None, None, "c.ks.t")
    gone = {name: cell(None, MICROS) for name in ("v", "n", "f", "l", "m", "u")}
    assert touched(event) == gone
    # Debezium says of static columns too that they are gone, which they are not.
    letter = UpdateFeed(**DEBEZIUM, extended=False)(update(UpdateRow(ROW, None, deleted(NOW))))[0]
    assert touched(letter) == {**gone, "s": cell(None, MICROS), "sl": cell(None, MICROS)}
    assert event.value["source"]["ts_us"] == MICROS
    assert [LogPosition.of(record.source_offset).done for record in (event, tombstone)] == [4, 5]
    assert at.done == 5
    assert ops(UpdateFeed(**DEBEZIUM, tombstones=False)(update(UpdateRow(ROW, None, deleted(NOW))))) == ["d"]


def test_a_deleted_partition() -> None:
    event, tombstone = UpdateFeed(**DEBEZIUM)(update(deletion=deleted(NOW)))
    assert ops([event, tombstone]) == ["d", None]
    assert event.key == {"p": 7, "q": "k", "c": None, "d": None}
    assert event.value["after"]["p"] == cell(7)
    assert event.value["after"]["c"] == cell(None, MICROS) == event.value["after"]["v"] == event.value["after"]["s"]
    alone, _ = UpdateFeed(PLAIN, **DEBEZIUM)(update(key=(1,), deletion=deleted(NOW)))
    assert (alone.key, alone.value["after"]) == (
        {"p": 1},
        {"p": cell(1), "v": cell(None, MICROS), "w": cell(None, MICROS)},
    )


def test_a_deleted_range() -> None:
    feed = UpdateFeed(**DEBEZIUM)
    open_end = RangeDeletion(ClusteringBound((3,), inclusive=False), ClusteringBound(), deleted(NOW))
    closed = RangeDeletion(ClusteringBound((3, DAY)), ClusteringBound((3, 5), inclusive=False), deleted(LATER))
    first, second = feed(update(ranges=(open_end, closed)))
    assert ops([first, second]) == ["r", "r"]
    assert first.key == {"p": 7, "q": "k", "c": None, "d": None}
    marshal = "org.apache.cassandra.db.marshal."
    three = {"name": "c", "value": "3", "type": f"{marshal}Int32Type"}
    reverse = f"{marshal}ReversedType({marshal}TimestampType)"
    assert first.value["after"] == {
        "p": cell(7),
        "q": cell("k"),
        "_range_start": {"method": "EXCL_START_BOUND", "values": [three]},
        "_range_end": {"method": "INCL_END_BOUND", "values": []},
    }
    assert second.value["after"]["_range_start"] == {
        "method": "INCL_START_BOUND",
        "values": [three, {"name": "d", "value": "2026-09-21T14:13:20.000Z", "type": reverse}],
    }
    assert second.value["after"]["_range_end"] == {
        "method": "EXCL_END_BOUND",
        "values": [three, {"name": "d", "value": "1970-01-01T00:00:00.005Z", "type": reverse}],
    }
    assert second.value["source"]["ts_us"] == LATER.write_time
    through_avro(second.value, second.value_schema)  # type: ignore[arg-type]


def test_a_consumer_that_applies_events_in_order_has_the_rows() -> None:
    """A later write of a batch comes behind the deletion, one that it hides before."""
    feed = UpdateFeed(**DEBEZIUM, tombstones=False)
    older, newer = row({"v": "old"}), row({"v": "new"}, stamp=LATER)
    after = UpdateRow(ROW, LATER, deleted(NOW), newer.cells)
    assert ops(feed(update(after))) == ["d", "i"]
    assert ops(feed(update(UpdateRow(ROW, NOW, deleted(NOW), older.cells)))) == ["i", "d"]
    assert ops(feed(update(older, deletion=deleted(LATER)))) == ["i", "d"]
    assert ops(
        feed(update(older, newer, ranges=(RangeDeletion(ClusteringBound((5,)), ClusteringBound((5,)), deleted(NOW)),)))
    ) == [
        "i",
        "r",
        "i",
    ]


def test_a_deletion_hides_the_older_cells_of_a_row_and_not_the_newer_ones() -> None:
    """Statements of a batch with times of their own: the row is written before the deletion and after it."""
    feed = UpdateFeed(**DEBEZIUM, tombstones=False)
    mixed = UpdateRow(
        ROW,
        LATER,
        None,
        (Cell("v", None, "old", NOW), Cell("n", None, 2, LATER), Cell("m", "k", "10.0.0.1", LATER)),
        (("m", deleted(NOW)),),
    )
    everything = RangeDeletion(ClusteringBound(), ClusteringBound(), deleted(NOW))
    for removal, op in (({"deletion": deleted(NOW)}, "d"), ({"ranges": (everything,)}, "r")):
        older, _, newer = events = feed(update(mixed, **removal))
        assert ops(events) == ["u", op, "i"]
        assert touched(older) == {"v": cell("old")}
        assert set(touched(newer)) == {"n", "m"}
        assert newer.value["after"]["m"]["mode"] == "overwrite"
    static = row({"s": 1}, (), inserted=False, stamp=LATER)
    static = UpdateRow((), None, None, (*static.cells, Cell("sl", 1, True, NOW)))
    assert ops(feed(update(static=static, deletion=deleted(NOW)))) == ["u", "d", "u"]
    assert ops(feed(update(mixed))) == ["i"]


MULTICELL = (
    Cell("l", LIST_KEYS[0], 1, EXPIRING),
    Cell("l", LIST_KEYS[1], None, NOW),
    Cell("l", LIST_KEYS[2], 3, EXPIRING),
    Cell("m", "k", "10.0.0.1", NOW),
    Cell("m", "gone", None, NOW),
    Cell("u", "host", "10.0.0.2", NOW),
    Cell("u", "street", None, NOW),
)


def test_multicell_columns() -> None:
    feed = UpdateFeed(**DEBEZIUM)
    static = UpdateRow((), None, None, (Cell("sl", 1, True, NOW), Cell("sl", 2, None, NOW)), (("sl", deleted(NOW)),))
    first, second = feed(update(UpdateRow(ROW, None, None, MULTICELL, (("m", deleted(NOW)),)), static=static))
    assert touched(first) == {"sl": cell([1], mode="overwrite", removed=[2])}
    assert touched(second) == {
        "l": cell([1, 3], EXPIRING.expires * 1_000_000, mode="modify", removed=[LIST_KEYS[1]]),  # type: ignore[operator]
        "m": cell({"k": "/10.0.0.1"}, mode="overwrite", removed=["gone"]),
        "u": cell({"host": "/10.0.0.2"}, mode="modify", removed=["street"]),
    }
    for record in (first, second):
        decoded = through_avro(record.value, record.value_schema)  # type: ignore[arg-type]
        assert {name for name, value in decoded["after"].items() if value is not None} == record.value["after"].keys()
    assert feed.events.skipped == {}
    (emptied,) = feed(update(UpdateRow(ROW, None, None, (), (("l", deleted(NOW)), ("u", deleted(NOW))))))
    assert touched(emptied) == {
        "l": cell([], mode="overwrite", removed=None),
        "u": cell(None, mode="overwrite", removed=None),
    }


def test_debezium_to_the_letter_counts_what_it_leaves_out() -> None:
    feed = UpdateFeed(**DEBEZIUM, extended=False)
    after = feed.events.schemas.value.field("after").schema  # type: ignore[attr-defined]
    assert [field.name for field in after.field("m").schema.fields] == ["value", "deletion_ts", "set"]
    static = row({"s": 1}, (), inserted=False)
    (record,) = feed(update(UpdateRow(ROW, None, None, MULTICELL, (("m", deleted(NOW)),)), static=static))
    # What was removed is null; that of a map says it all.
    assert touched(record) == {
        "l": cell([1, None, 3]),
        "m": cell({"k": "/10.0.0.1", "gone": None}),
        "u": cell({"host": "/10.0.0.2"}),
    }
    through_avro(record.value, record.value_schema)  # type: ignore[arg-type]
    # Each update was read twice, see UpdateFeed.
    assert feed.events.skipped == {"static": 2, "elements": 4, "overwrite": 2}
    feed.events.skipped.clear()
    records = feed.often(update(row({"v": "x"}), static=static))
    assert ops(records) == ["i"]
    assert LogPosition.of(records[0].source_offset) == LogPosition(SEGMENT, 1300)
    assert feed.events.skipped == {"static": 10}
    assert feed.often(update(static=static)) == []


def test_excluded_columns() -> None:
    feed = UpdateFeed(**DEBEZIUM, excluded=frozenset({"ks.t.v", "ks.t.p", "ks.t.u", "ks.other.n"}))
    for records in (feed(update(row({"v": "x", "n": 1}))), feed.often(update(row({"v": "x", "n": 1})))):
        assert touched(records[0]) == {"n": cell(1)}
        assert records[0].value["after"]["p"] == cell(7)
    (record,) = feed(update(UpdateRow(ROW, None, None, MULTICELL)))
    assert touched(record).keys() == {"l", "m"}


def test_a_value_without_a_form_is_no_error_in_an_excluded_column() -> None:
    definition = make_definition(
        "ks",
        "t",
        TABLE_ID,
        [
            CqlColumn("p", parse_type("int"), "partition_key", 0),
            CqlColumn("d", parse_type("duration"), "regular"),
            CqlColumn("n", parse_type("int"), "regular"),
        ],
        cdc=True,
    )
    feed = UpdateFeed(definition, **DEBEZIUM, excluded=frozenset({"ks.t.d"}))
    change = update(row({"d": "300y", "n": 1}, ()), key=(7,))
    # The first ones of a shape go the general way.
    for _ in range(5):
        (record,) = feed(change)
        assert record.value["after"].keys() == {"p", "n"}
    read = msgspec.structs.replace(change, source=msgspec.structs.replace(change.source, read_time=READ_MS))
    records: list[SourceRecord] = []
    feed.events.add_snapshot_rows(read, PARTITION, {}, records)
    assert records[0].value["after"].keys() == {"p", "n"}


def test_rows_that_were_read_from_the_table() -> None:
    feed = UpdateFeed(**DEBEZIUM, excluded=frozenset({"ks.t.n"}))
    source = UpdateSource(
        connector="cassandra", cluster="c", keyspace="ks", table="t", snapshot=True, read_time=READ_MS
    )
    static = row({"s": 4}, (), inserted=False)
    rows = (row({"v": "x"}, stamp=EXPIRING), UpdateRow((6, DAY), NOW, None, (Cell("m", "k", "10.0.0.1", NOW),)))
    records: list[SourceRecord] = []
    offset = {"state": "running"}
    both = PartitionUpdate(source=source, key=KEY, write_time=MICROS, static=static, rows=rows)
    feed.events.add_snapshot_rows(both, PARTITION, offset, records)
    assert ops(records) == ["i", "i"]
    nothing = {name: cell(None) for name in ("s", "sl", "v", "f", "l", "m", "u")}
    assert touched(records[0]) == {**nothing, "s": cell(4), "v": cell("x", 1_790_000_060_000_000)}
    assert touched(records[1]) == {
        **nothing,
        "s": cell(4),
        "m": cell({"k": "/10.0.0.1"}, mode="overwrite", removed=None),
    }
    assert records[0].value["source"] | {"version": ""} == {
        "version": "",
        "connector": "cassandra",
        "name": "c",
        "ts_ms": READ_MS,
        "snapshot": "true",
        "db": "NULL",
        "sequence": None,
        "ts_us": READ_MS * 1000,
        "ts_ns": READ_MS * 1_000_000,
        "cluster": "c",
        "file": "",
        "pos": -1,
        "keyspace": "ks",
        "table": "t",
    }
    assert all(record.source_offset is offset for record in records)
    records.clear()
    feed.events.add_snapshot_rows(
        PartitionUpdate(source=source, key=KEY, write_time=MICROS, static=static), PARTITION, offset, records
    )
    assert [record.key for record in records] == [{"p": 7, "q": "k", "c": None, "d": None}]


VALUES = [
    ("text", "é", "é"),
    ("inet", "10.0.0.1", "/10.0.0.1"),
    ("date", -5, -5),
    ("timestamp", 5, 5),
    ("time", 7, 7),
    ("uuid", TABLE_ID, TABLE_ID),
    ("blob", b"\x00\xff", b"\x00\xff"),
    ("double", 1.5, 1.5),
    ("duration", "1mo3d500ns", 33 * 86_400 * 10**9 + 500),
    ("duration", "-1h2m3s4ms5us6ns", -3_723_004_005_006),
    ("duration", "2y", 720 * 86_400 * 10**9),
    ("duration", "", 0),
    ("list<inet>", ["10.0.0.1"], ["/10.0.0.1"]),
    ("map<int, varint>", [{"key": 1, "value": "5"}], {1: 5}),
    ("map<frozen<list<int>>, inet>", [{"key": [1], "value": "10.0.0.1"}], [{"key": [1], "value": "/10.0.0.1"}]),
    ("tuple<int, inet>", {"field_0": 1, "field_1": "10.0.0.1"}, {"field1": 1, "field2": "/10.0.0.1"}),
    ("tuple<int, inet>", {"field_0": None, "field_1": None}, {"field1": None, "field2": None}),
    ("vector<decimal, 2>", ["1.5", "2"], [1.5, 2.0]),
]


@pytest.mark.parametrize(("text", "value", "expected"), VALUES)
def test_values(text: str, value: Any, expected: Any) -> None:
    kind = debezium_type(freeze_type(parse_type(text)), "x", cassandra_events(topic_prefix="c"))
    converted = value if kind.change is None else kind.change(value)
    assert converted == expected
    through_avro(converted, kind.schema)
    through_json(converted, kind.schema)


@pytest.mark.parametrize(
    ("text", "option", "value", "expected"),
    [
        ("decimal", {"decimals": "double"}, "1E+2", 100.0),
        ("decimal", {"decimals": "string"}, "1E+2", "100"),
        ("decimal", {"decimals": "string"}, "1.50", "1.50"),
        ("decimal", {"decimals": "string"}, "1E+2000000", "1E+2000000"),
        ("decimal", {"decimals": "precise"}, "-1.28", {"scale": 2, "value": b"\x80"}),
        ("decimal", {"decimals": "precise"}, "1.28", {"scale": 2, "value": b"\x00\x80"}),
        ("decimal", {"decimals": "precise"}, "1E+2", {"scale": -2, "value": b"\x01"}),
        ("varint", {"varints": "long"}, "-9223372036854775808", -(1 << 63)),
        ("varint", {"varints": "precise"}, "9223372036854775808", Decimal(1 << 63)),
        ("varint", {"varints": "string"}, "9223372036854775808", "9223372036854775808"),
    ],
)
def test_numbers_of_any_size(text: str, option: dict[str, Any], value: str, expected: Any) -> None:
    kind = debezium_type(parse_type(text), "x", cassandra_events(topic_prefix="c", **option))
    converted = value if kind.change is None else kind.change(value)
    assert (type(converted), converted) == (type(expected), expected)
    through_avro(converted, kind.schema)
    through_json(converted, kind.schema)


def test_times_have_a_name_where_it_is_asked_for() -> None:
    kinds = [
        debezium_type(parse_type("list<time>"), "x", cassandra_events(topic_prefix="c", logical=named))
        for named in (False, True)
    ]
    schemas = [kind.schema.value_schema for kind in kinds]
    assert [(schema.type, schema.name) for schema in schemas if schema is not None] == [
        (Type.INT64, None),
        (Type.INT64, "io.debezium.time.NanoTime"),
    ]
    assert [kind.change for kind in kinds] == [None, None]


def test_numbers_that_do_not_fit() -> None:
    table = make_definition(
        "ks",
        "t",
        TABLE_ID,
        [
            *PLAIN.columns,
            CqlColumn("x", parse_type("varint"), "regular"),
            CqlColumn("y", parse_type("duration"), "regular"),
        ],
    )
    feed = UpdateFeed(table, **DEBEZIUM)
    for cells, option in (
        ({"x": "9223372036854775808"}, "varint.handling.mode"),
        ({"x": "1" * 5000}, "5000 digits"),
        ({"y": "400y"}, "choose another output.format"),
    ):
        at = where()
        with pytest.raises(Skippable, match=option):
            feed(update(row(cells, ()), key=(1,)), at)
        assert at.done == 0
    with pytest.raises(Fatal, match="type counter"):
        debezium_type(parse_type("counter"), "x", cassandra_events(topic_prefix="c"))


def test_times_without_nanoseconds() -> None:
    (record,) = UpdateFeed(**DEBEZIUM)(update(row({"v": "x"}, stamp=CellStamp((1 << 63) - 1))))
    assert (record.value["source"]["ts_us"], record.value["source"]["ts_ns"]) == ((1 << 63) - 1, None)
    through_json(record.value, record.value_schema)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (freeze_type(parse_type("list<int>")), "FrozenType(@ListType(@Int32Type))"),
        (parse_type("map<text, blob>"), "MapType(@UTF8Type,@BytesType)"),
        (parse_type("tuple<int, ascii>"), "TupleType(@Int32Type,@AsciiType)"),
        (FROZEN, "FrozenType(@UserType(ks,706c616365,737472656574:@UTF8Type,686f7374:@InetAddressType))"),
        (CqlType("custom", class_name="com.example.Mine"), None),
    ],
)
def test_types_by_the_names_of_classes(kind: CqlType, expected: str | None) -> None:
    package = "org.apache.cassandra.db.marshal."
    assert class_text(kind) == ("com.example.Mine" if expected is None else package + expected.replace("@", package))


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("boolean", True, "true"),
        ("blob", b"\x00\xff", "00ff"),
        ("date", -1, "1969-12-31"),
        ("date", 0, "1970-01-01"),
        ("date", -719_893, "-0001-01-01"),
        ("date", 2_932_896, "9999-12-31"),
        ("date", 2_932_897, "+10000-01-01"),
        ("date", 10**8, "+275760-09-13"),
        ("time", 3_600_000_000_005, "01:00:00.000000005"),
        ("double", 1e10, "1.0E10"),
        ("text", "é", "é"),
        ("int", None, ""),
    ],
)
def test_bounds_as_text(text: str, value: Any, expected: str) -> None:
    table = make_definition(
        "ks", "Odd", TABLE_ID, [PLAIN.columns[0], CqlColumn("The c", parse_type(text), "clustering", 0)]
    )
    start, _ = range_bounds(table, RangeDeletion(ClusteringBound((value,)), ClusteringBound(), deleted(NOW)))
    assert [(column["name"], column["value"]) for column in start["values"]] == [('"The c"', expected)]


@given(st.data(), st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_update_can_be_written(data: st.DataObject, extended: bool) -> None:
    table = data.draw(tables())
    drawn = data.draw(updates(table, 7))
    feed = UpdateFeed(table, **DEBEZIUM, extended=extended, varints="string")
    try:
        records = feed(drawn)
    except Skippable as error:  # a duration of too many years: the only thing that does not fit
        if "nanoseconds" in str(error):
            return
        raise
    for record in records:
        through_json(record.key, record.key_schema)  # type: ignore[arg-type]
        if record.value is not None:
            through_json(record.value, record.value_schema)  # type: ignore[arg-type]
    writes = sum(bool(drawn_row.liveness or drawn_row.cells or drawn_row.complex_deletions) for drawn_row in drawn.rows)
    static = extended and drawn.static is not None and bool(drawn.static.cells or drawn.static.complex_deletions)
    deletions = sum(drawn_row.deletion is not None for drawn_row in drawn.rows) + (drawn.deletion is not None)
    least = writes + static + 2 * deletions + len(drawn.ranges)
    # Deletions divide rows that were written before and after them.
    assert len(records) == least or (len(records) > least and (drawn.deletion is not None or drawn.ranges))
