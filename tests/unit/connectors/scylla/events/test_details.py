"""Placement of the key, names, bad cells, rows of snapshots, the Java connector's wrong forms on demand."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from connectors.api import Header
from connectors.cql.java_text import header_text
from connectors.cql.types import CqlType
from connectors.cql.values import BadCell
from connectors.errors import Skippable
from connectors.schema import OPTIONAL_STRING, STRING
from connectors.scylla.events import COMPAT_NAMES, build_events
from connectors.scylla.events.names import avro_name, topic_name
from connectors.scylla.events.values import hybrid_date
from connectors.scylla.model import (
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    ROW_DELETE,
    UPDATE,
    CdcOptions,
    ScyllaColumn,
    TableId,
    TableVersion,
)
from connectors.scylla.positions import OFFSET_SEQ
from tests.support.settings import scylla_events
from tests.unit.connectors.scylla.events.making import OFFSET, PARTITION, make, row, table, time_of
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from connectors.api import BadRecord, SourceRecord

TABLE = table()
KEY: dict[str, Any] = {"pk": 1, "c1": "a", "c2": 1}
INSERTED = row(TABLE, 1, 0, INSERT, end=True, **KEY, v="x")
DELETED = row(TABLE, 1, 0, ROW_DELETE, end=True, **KEY)


def check(record: SourceRecord) -> None:
    """The value fits its schema."""
    JsonConverter({"schemas.enable": "true"}).encoder("t", record.value_schema)(record.value)


def test_without_the_kafka_key_there_is_none_and_no_tombstone() -> None:
    for change in (INSERTED, DELETED):
        (record,) = make(
            TABLE, [change], output_format="advanced", key_placement=frozenset({"payload-key"}), payload_key_name="id"
        )
        assert (record.key, record.key_schema, record.value["id"]) == (None, None, KEY)
        assert record.source_offset[OFFSET_SEQ] == 0
        check(record)


def test_tombstones_may_be_off() -> None:
    (record,) = make(TABLE, [DELETED], tombstones=False)
    assert (record.value["op"], record.source_offset[OFFSET_SEQ]) == ("d", 0)


def test_headers_are_strings_in_the_order_of_names_without_nulls() -> None:
    options: dict[str, Any] = {"output_format": "advanced", "key_placement": frozenset({"kafka-key", "kafka-headers"})}
    (record,) = make(TABLE, [INSERTED], **options)
    assert record.headers == (Header("ck.c1", "a", STRING), Header("ck.c2", "1", STRING), Header("pk.pk", "1", STRING))
    (record,) = make(TABLE, [row(TABLE, 1, 0, UPDATE, end=True, pk=1, st="s")], **options)
    assert record.headers == (Header("pk.pk", "1", STRING),)
    deleted, tombstone = make(TABLE, [DELETED], **options)
    assert tombstone.headers == deleted.headers != ()


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("boolean", False, "false"),
        ("blob", b"\x01\xff", "0x01ff"),
        ("text", "x", "x"),
        ("bigint", -7, "-7"),
        ("double", 1e7, "1.0E7"),
        ("double", 0.001, "0.001"),
        ("double", -1.25e-5, "-1.25E-5"),
        ("double", float("inf"), "Infinity"),
        ("float", 0.10000000149011612, "0.1"),
        ("timestamp", 1_709_210_096_789, "Thu Feb 29 12:34:56 UTC 2024"),
        ("date", -1, "Wed Dec 31 00:00:00 UTC 1969"),
        ("timestamp", 10**17, "100000000000000"),
    ],
)
def test_text_of_keys_in_headers(kind: str, value: Any, text: str) -> None:
    assert header_text(CqlType(kind))(value) == text


def test_keys_are_ordered_as_the_java_connector_orders_them() -> None:
    number = CqlType("int")
    columns = (
        ScyllaColumn("p2", number, "partition_key", 0),
        ScyllaColumn("p1", number, "partition_key", 1),
        ScyllaColumn("c2", number, "clustering", 0),
        ScyllaColumn("c1", number, "clustering", 1),
        ScyllaColumn("a", number, "regular"),
    )
    version = TableVersion(TableId("ks", "t"), columns, CdcOptions(), "v")
    change = row(version, 1, 0, INSERT, end=True, p2=2, p1=1, c2=4, c1=3, a=5)
    (record,) = make(version, [change], output_format="advanced")
    assert list(record.key) == ["p1", "p2", "c1", "c2"]
    (record,) = make(version, [change])
    assert list(record.key) == ["c1", "c2", "p1", "p2"]
    assert list(record.value["after"]) == ["a", "c1", "c2", "p1", "p2"]


def test_frozen_collection_and_tuple_in_the_key() -> None:
    """The Java connector retries forever on these."""
    pair = CqlType("tuple", (CqlType("int"), CqlType("text")), frozen=True)
    numbers = CqlType("set", (CqlType("int"),), frozen=True)
    columns = (
        ScyllaColumn("p", numbers, "partition_key", 0),
        ScyllaColumn("c", pair, "clustering", 0),
        ScyllaColumn("v", CqlType("text"), "regular"),
    )
    version = TableVersion(TableId("ks", "t"), columns, CdcOptions(), "v")
    key: dict[str, Any] = {"p": [1, 2], "c": {"field_0": 1, "field_1": "x"}}
    rows = [row(version, 1, 0, PREIMAGE, **key, v="old"), row(version, 1, 1, ROW_DELETE, end=True, **key)]
    deleted, tombstone = make(
        version,
        rows,
        output_format="advanced",
        include_before="full",
        key_placement=frozenset({"kafka-key", "kafka-headers", "payload-before"}),
    )
    assert deleted.key == tombstone.key == key
    assert deleted.value["before"] == {**key, "v": "old"}
    assert deleted.headers[1].value == "[1, 2]"
    check(deleted)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.b", "a.b"),
        ("my-prefix.ks", "my_prefix.ks"),
        ("1a", "_1a"),
        ("", ""),
        ("-a", "_a"),
        ("aé😀", "a___"),
        ("😀", "__"),
    ],
)
def test_names_that_avro_takes(name: str, expected: str) -> None:
    assert avro_name(name) == expected


def test_names_of_topics_and_schemas() -> None:
    assert topic_name("a-b", TableId("ks", "t")) == "a-b.ks.t"
    assert topic_name("p", TableId("ks", "t t")) == "p.ks.t_t"
    (record,) = make(TABLE, [INSERTED])
    assert record.topic == "p.ks.t"
    assert record.value_schema is not None
    assert record.value_schema.name == "p.ks.t.Envelope"


def test_times_of_the_source_come_from_the_change() -> None:
    first, second = make(TABLE, [INSERTED, row(TABLE, 3, 0, INSERT, end=True, **KEY)])
    assert [
        (record.value["source"]["ts_ms"], record.value["source"]["ts_us"], record.value["source"]["ts_ns"])
        for record in (first, second)
    ] == [
        (1_700_000_000_001, 1_700_000_000_001_500, 1_700_000_000_001_000_000),
        (1_700_000_000_004, 1_700_000_000_004_500, 1_700_000_000_004_000_000),
    ]
    assert first.value["source"]["snapshot"] == "false"
    assert first.source_offset == {**OFFSET, "change_id_time": str(uuid.UUID(bytes=time_of(1))), "batch_seq_no": 0}


@pytest.mark.parametrize("output_format", ["legacy", "advanced"])
def test_bad_cell_is_a_bad_record_and_the_others_go_on(output_format: str) -> None:
    cell = BadCell(b"\xff\xfe", ValueError("5 bytes where the type has 4"))
    images: dict[str, Any] = {"include_after": "full"} if output_format == "advanced" else {}
    rows = []
    for number, value in ((1, cell), (2, "x")):
        rows.append(row(TABLE, number, 0, INSERT, end=not images, **KEY, v=value))
        rows += [row(TABLE, number, 1, POSTIMAGE, end=True, **KEY, v=value)] if images else []
    bad: list[BadRecord] = []
    (record,) = make(TABLE, rows, bad, output_format=output_format, **images)
    assert record.source_offset["change_id_time"] == str(uuid.UUID(bytes=time_of(2)))
    (refused,) = bad
    assert isinstance(refused.error, Skippable)
    assert "ks.t, pk=1, c1='a', c2=1: column 'v' can't be decoded" in str(refused.error)
    assert "5 bytes where the type has 4" in str(refused.error)
    assert refused.raw == b"\xff\xfe"
    assert refused.source_offset["batch_seq_no"] == 0
    assert make(TABLE, rows[:1], [], skip=(time_of(1), 0), output_format=output_format, **images) == []


def test_bad_cell_that_no_event_needs_does_no_harm() -> None:
    change = row(TABLE, 1, 0, INSERT, end=True, **KEY, v=BadCell(b"", ValueError()))
    assert len(make(TABLE, [change], output_format="advanced")) == 1


def snapshot(version: TableVersion, cells: dict[str, Any], bad: list[BadRecord], **options: Any) -> list[SourceRecord]:
    maker = build_events(version, scylla_events(topic_prefix="p", **options), lambda: 5.0)
    out: list[SourceRecord] = []
    values = [cells.get(column.name) for column in version.columns]
    maker.snapshot_row(PARTITION, {"token": 5}, values, 1_700_000_000_001_500, out, bad)
    return out


@pytest.mark.parametrize("output_format", ["legacy", "advanced"])
def test_row_of_a_snapshot(output_format: str) -> None:
    cells = {**KEY, "v": "x", "l": [1, 2], "st": "s"}
    options: dict[str, Any] = {
        "output_format": output_format,
        "legacy_columns": "all",
        "collections_mode": "delta",
        "deletes_mode": "events",
    }
    (record,) = snapshot(TABLE, cells, [], **options)
    check(record)
    value = record.value
    assert (value["op"], value["before"], value["source"]["snapshot"], value["delta"]) == ("r", None, "true", None)
    assert (value["source"]["ts_us"], value["ts_ms"]) == (1_700_000_000_001_500, 5000)
    wrap = (lambda cell: {"value": cell}) if output_format == "legacy" else lambda cell: cell
    assert value["after"] == {
        **KEY,
        **dict.fromkeys(("fu", "m", "n", "s", "u")),
        "l": wrap([1, 2]),
        "st": wrap("s"),
        "v": wrap("x"),
    }
    assert (record.key, record.source_partition, record.source_offset) == (KEY, PARTITION, {"token": 5})
    assert value.keys() == make(TABLE, [INSERTED], **options)[0].value.keys()


def test_bad_cell_in_a_snapshot() -> None:
    bad: list[BadRecord] = []
    assert snapshot(TABLE, {**KEY, "v": BadCell(b"x", ValueError("no"))}, bad) == []
    assert "ks.t, pk=1, c1='a', c2=1: column 'v'" in str(bad[0].error)


@pytest.mark.parametrize(("word", "form"), [("", False), ("null-udt", True), ("java", True)])
def test_null_udt(word: str, form: bool) -> None:
    rows = [
        row(TABLE, 1, 0, PREIMAGE, **KEY, fu={"street": None, "zip": None}, u={"street": "s", "zip": None}),
        row(TABLE, 1, 1, UPDATE, end=True, **KEY, v="x"),
    ]
    (record,) = make(TABLE, rows, output_format="advanced", include_before="full", compat=frozenset({word}))
    assert record.value["before"]["fu"] == (None if form else {"street": None, "zip": None})
    assert record.value["before"]["u"] == {"street": "s", "zip": None}


def test_list_order_of_java() -> None:
    """Seen in a run: [2, 1, 3] for [1, 2, 3], where the low half of the first time uuids changed its sign."""
    pairs = [
        (uuid.UUID(f"{low}-{middle}-11f1-8001-010203040506").bytes, number)
        for number, (low, middle) in enumerate((("7ffffff0", "e53e"), ("80000010", "e53e"), ("7ffffff1", "e53f")), 1)
    ]
    rows = [row(TABLE, 1, 0, PREIMAGE, **KEY, l=pairs), row(TABLE, 1, 1, UPDATE, end=True, **KEY, v="x")]
    options: dict[str, Any] = {"output_format": "advanced", "include_before": "full"}
    assert make(TABLE, rows, **options)[0].value["before"]["l"] == [1, 2, 3]
    assert make(TABLE, rows, **options, compat=frozenset({"list-order"}))[0].value["before"]["l"] == [2, 1, 3]


@pytest.mark.parametrize(
    ("text", "shift"), [("1582-10-15", 0), ("1582-10-04", 10), ("1000-01-01", 5), ("0001-01-01", -2)]
)
def test_hybrid_calendar(text: str, shift: int) -> None:
    days = (dt.date.fromisoformat(text) - dt.date(1970, 1, 1)).days
    assert hybrid_date(days) == days + shift
    kind = CqlType("date")
    version = table(
        ScyllaColumn("d", kind, "regular"), ScyllaColumn("ds", CqlType("list", (kind,), frozen=True), "regular")
    )
    rows = [row(version, 1, 0, INSERT, end=True, **KEY, d=days, ds=[days])]
    options: dict[str, Any] = {"legacy_columns": "all"}
    for compat, expected in ((frozenset[str](), days), (frozenset({"hybrid-calendar"}), days + shift)):
        (record,) = make(version, rows, **options, compat=compat)
        assert record.value["after"]["d"] == {"value": expected}
        assert record.value["after"]["ds"] == {"value": [expected]}


def test_every_word_of_compat_is_one_that_the_builder_knows() -> None:
    assert frozenset({"java", "null-udt", "list-order", "hybrid-calendar"}) == COMPAT_NAMES


def test_column_names_that_python_would_have_to_escape() -> None:
    name = "a'b\\{x}\n"
    version = table(ScyllaColumn(name, CqlType("text"), "regular"))
    cells: dict[str, Any] = {**KEY, name: "x"}
    (record,) = make(version, [row(version, 1, 0, INSERT, end=True, **cells)])
    assert record.value["after"][name] == {"value": "x"}
    assert record.value_schema is not None
    after = record.value_schema.field("after")
    assert after is not None
    column = after.schema.field(name)
    assert column is not None
    assert column.schema.name == "p.ks.t.a_b__x__.Cell"
    assert column.schema.fields[0].schema == OPTIONAL_STRING
