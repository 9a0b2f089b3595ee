"""Rows as UMS messages: values, ids, batches, offsets."""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from connectors.api import SameAs
from connectors.errors import Fatal
from connectors.formats import ums
from connectors.mysql import events
from connectors.mysql.events.ums_signals import MySqlUmsSignals
from connectors.mysql.events.ums_values import value_text
from connectors.mysql.model import MySqlColumn, RowSource, Shard
from connectors.mysql.schema import type_codes as codes
from connectors.mysql.schema.fields import field_schema
from tests.support.settings import mysql_values
from tests.unit.connectors.mysql.events.making import (
    AFTER,
    BASE,
    CUSTOMERS,
    EMPTIED,
    NO_KEY,
    PARTITION,
    SOURCE,
    decoded,
    make_builder,
    settings,
    table,
    text,
    written,
)

if TYPE_CHECKING:
    from connectors.api import SourceRecord
    from connectors.mysql.events.contract import MySqlEventSettings, MySqlTableEvents, Row

ROW: dict[str, Any] = {"id": 1, "name": "A", "email": None, "card": "4000", "credit": Decimal("2.50")}


def ums_settings(
    masks: dict[str, str] | None = None, ums: dict[str, Any] | None = None, **more: Any
) -> MySqlEventSettings:
    return settings(masks, output_format="ums", ums=ums, **more)


def tuples(record: SourceRecord) -> list[list[str | None]]:
    """The rows of a message; it fits its schema."""
    payload = written(record.value_schema, record.value)["payload"]["payload"]
    return [row["tuple"] for row in payload]


def changed(
    builder: MySqlTableEvents, op: Any, rows: list[Row | None], source: RowSource = SOURCE, *, first: int = 0
) -> list[SourceRecord]:
    out: list[SourceRecord] = []
    builder.changes(op, rows, source, first, BASE, AFTER, out)
    return out


def test_a_message_is_a_document_with_its_schema() -> None:
    (record,) = changed(make_builder(CUSTOMERS, ums_settings()), "c", [ROW, {**ROW, "id": 2, "name": "Ü"}])
    document = json.loads(json.dumps(written(record.value_schema, record.value)["payload"]))
    assert document["protocol"] == {"type": "data_increment_data", "version": "1.3", "part": None}
    assert document["schema"]["batchId"] == 0
    assert document["schema"]["namespace"] == "mariadb.server.world.customers.3.0.0"
    assert document["schema"]["fields"] == [
        {"name": "ums_id_", "type": "long", "nullable": False},
        {"name": "ums_ts_", "type": "datetime", "nullable": False},
        {"name": "ums_op_", "type": "string", "nullable": False},
        {"name": "ums_uid_", "type": "string", "nullable": False},
        {"name": "id", "type": "int", "nullable": False},
        {"name": "name", "type": "string", "nullable": False},
        {"name": "email", "type": "string", "nullable": True},
        {"name": "card", "type": "string", "nullable": True},
        {"name": "credit", "type": "decimal", "nullable": True},
    ]
    stamp = "2023-11-14 22:15:00.000000"
    assert [row["tuple"] for row in document["payload"]] == [
        ["7000000001000", stamp, "i", "1.7.1000.00000000i", "1", "A", None, "4000", "2.50"],
        ["7000000001001", stamp, "i", "1.7.1000.00000001i", "2", "Ü", None, "4000", "2.50"],
    ]
    assert record.key == "data_increment_data.mariadb.server.world.customers.3.0.0"
    assert (record.topic, record.source_offset) == ("server.world.customers", AFTER)


def test_an_update_gives_the_row_before_it_with_the_same_number() -> None:
    pair: list[Row | None] = [ROW, {**ROW, "name": "B"}]
    (record,) = changed(make_builder(CUSTOMERS, ums_settings()), "u", pair)
    rows = tuples(record)
    assert [(row[2], row[5]) for row in rows] == [("b", "A"), ("u", "B")]
    assert [row[0] for row in rows] == ["7000000001000"] * 2
    assert [row[3] for row in rows] == ["1.7.1000.00000000b", "1.7.1000.00000000u"]
    (record,) = changed(make_builder(CUSTOMERS, ums_settings(ums={"before": False})), "u", pair)
    assert [row[2] for row in tuples(record)] == ["u"]


def test_a_changed_key_deletes_the_old_row() -> None:
    (record,) = changed(make_builder(EMPTIED, ums_settings()), "u", [{"id": 1}, {"id": 9}, {"id": 2}, {"id": 2}])
    assert [(row[2], row[4]) for row in tuples(record)] == [("d", "1"), ("i", "9"), ("b", "2"), ("u", "2")]
    assert [int(row[0] or 0) - 7 * 10**12 for row in tuples(record)] == [1000, 1000, 1001, 1001]
    assert len({row[3] for row in tuples(record)}) == 4


def row_source(pos: int, size: int = 50, file: str = "binlog.000007") -> RowSource:
    return RowSource(ts_ms=0, ts_us=0, server_id=1, file=file, pos=pos, size=size)


def test_ids_grow_along_the_binlog() -> None:
    """From a snapshot's row to changes after its read view, over compressed events and on into the next file."""
    builder = make_builder(EMPTIED, ums_settings())
    out: list[SourceRecord] = []
    builder.snapshot([{"id": 1}], row_source(1000), "incremental", BASE, out)
    pairs: list[Row | None] = [{"id": 1}, {"id": 1}]
    out += changed(builder, "u", pairs * 15, row_source(1001, 39))
    out += changed(builder, "u", pairs * 3000, row_source(1040, 100))  # compressed: 30 rows to a byte
    out += changed(builder, "c", pairs, row_source(1140))
    out += changed(builder, "d", pairs, row_source(4_294_967_295))
    out += changed(builder, "d", pairs, row_source(4, file="binlog.000008"))
    rows = [row for record in out for row in tuples(record)]
    ids = [int(row[0] or 0) for row in rows]
    assert ids == sorted(ids)
    assert len({row[3] for row in rows}) == len(rows)
    assert ids[:31] == [7 * 10**12 + offset for offset in (1000, *(1001 + number // 2 for number in range(30)))]
    assert max(ids[31:6031]) == 7 * 10**12 + 1139


@pytest.mark.parametrize(
    "where", [row_source(10**12), row_source(4, file="binlog.x"), row_source(4, file="binlog.9223372")]
)
def test_a_position_that_has_no_number_stops_the_task(where: RowSource) -> None:
    with pytest.raises(Fatal, match=r"no order number for .*; set output\.format=debezium"):
        changed(make_builder(EMPTIED, ums_settings()), "c", [{"id": 1}], where)
    with pytest.raises(Fatal, match="no order number"):
        make_builder(EMPTIED, ums_settings()).snapshot([{"id": 1}], where, "true", BASE, [])


def test_bounds_split_an_event_and_each_message_says_how_far_it_goes() -> None:
    rows: list[Row | None] = [{"a": number, "b": "x" * 10} for number in range(5)]
    records = changed(make_builder(NO_KEY, ums_settings(ums={"max_rows": 2})), "c", rows, first=4)
    assert [(len(tuples(record)), record.source_offset.get("row")) for record in records] == [(2, 6), (2, 8), (1, None)]
    assert records[-1].source_offset is AFTER
    records = changed(make_builder(NO_KEY, ums_settings(ums={"max_bytes": 1})), "c", rows)
    assert [len(tuples(record)) for record in records] == [1] * 5
    pair: list[Row | None] = [{"a": 1, "b": ""}, {"a": 1, "b": "y"}] * 2
    records = changed(make_builder(NO_KEY, ums_settings(ums={"max_rows": 3})), "u", pair)
    assert [[row[2] for row in tuples(record)] for record in records] == [["b", "u"], ["b", "u"]]
    records = changed(make_builder(NO_KEY, ums_settings()), "c", [{"a": 1, "b": ""}, None])
    assert records[0].source_offset == {**BASE, "row": 1}


def test_rows_of_many_events_share_messages() -> None:
    holder = events.make_holder(ums_settings())
    assert holder is not None
    emptied, no_key = (
        make_builder(definition, ums_settings(ums={"max_rows": 3}), held_rows=holder)
        for definition in (EMPTIED, NO_KEY)
    )
    out: list[SourceRecord] = []
    for number in range(4):
        where, before, after = row_source(1000 + 100 * number), {**BASE, "event": number}, {**BASE, "event": number + 1}
        emptied.changes("c", [{"id": number}], where, 0, before, after, out)
        no_key.changes("d", [{"a": number, "b": None}], where, 0, before, after, out)
    assert (out, holder.rows) == ([], 8)
    assert holder.bytes > 8 * 50
    holder.flush(out)
    messages = [(record.topic, [row[4] for row in tuples(record)], record.source_offset["event"]) for record in out]
    assert messages == [
        (emptied.topic, ["0", "1", "2"], 0),
        (no_key.topic, ["0", "1", "2"], 0),
        (emptied.topic, ["3"], 0),
        (no_key.topic, ["3"], 4),
    ]
    assert (holder.rows, holder.bytes) == (0, 0)
    holder.flush(out)
    assert len(out) == 4
    emptied.changes("c", [{"id": 9}], SOURCE, 2, BASE, AFTER, out)
    no_key.changes("c", [{"a": 1, "b": ""}], SOURCE, 0, BASE, AFTER, out)
    holder.flush(out)
    assert [record.source_offset for record in out[4:]] == [{**BASE, "row": 2}, AFTER]
    assert events.make_holder(settings()) is None


def test_masked_columns_are_encoded() -> None:
    event_settings = ums_settings({"mask.rules": "m", "mask.m.columns": ".*(email|id)", "mask.m.type": "md5"})
    (record,) = changed(
        make_builder(CUSTOMERS, event_settings), "c", [decoded(CUSTOMERS, event_settings, {**ROW, "email": "a@b"})]
    )
    fields = written(record.value_schema, record.value)["payload"]["schema"]["fields"]
    assert {field["name"] for field in fields if field["encoded"]} == {"id", "email"}
    (row,) = tuples(record)
    assert [row[4], row[6]] == [hashlib.md5(value).hexdigest() for value in (b"1", b"a@b")]  # noqa: S324
    assert [field["type"] for field in fields[4:7]] == ["string"] * 3


def test_a_snapshot_gives_initial_messages() -> None:
    builder = make_builder(NO_KEY, ums_settings(ums={"max_rows": 2}))
    out: list[SourceRecord] = []
    builder.snapshot(iter([{"a": 1, "b": "x"}] * 3), SOURCE, "true", BASE, out, first="first", last="last")
    assert [(record.value["protocol"]["type"], len(tuples(record)), record.source_offset) for record in out] == [
        (ums.INITIAL, 2, BASE),
        (ums.INITIAL, 1, BASE),
    ]
    assert out[0].key == "data_initial_data.mariadb.server.world.no_key.3.0.0"
    rows = [row for record in out for row in tuples(record)]
    assert [row[:3] for row in rows] == [["7000000001000", "2023-11-14 22:15:00.000000", "i"]] * 3
    assert len({row[3] for row in rows}) == 3
    out.clear()
    builder.snapshot(iter([{"a": 1, "b": "x"}]), SOURCE, "incremental", BASE, out, batch=77)
    assert (out[0].value["protocol"]["type"], out[0].value["schema"]["batchId"]) == (ums.BATCH, 77)
    assert out[0].key == "data_batch_data.mariadb.server.world.no_key.3.0.0"
    keyed = make_builder(EMPTIED, ums_settings())
    out.clear()
    keyed.snapshot([{"id": 1}, {"id": 2}], SOURCE, "true", BASE, out)
    keyed.snapshot([{"id": 1}], SOURCE, "true", BASE, out)
    uids = [row[3] for record in out for row in tuples(record)]
    assert uids[0] == uids[2] != uids[1]


def test_operations_and_unchanged_rows_can_be_left_out() -> None:
    for skipped, op, rows in (("c", "c", [ROW]), ("d", "d", [ROW]), ("u", "u", [ROW, {**ROW, "name": "B"}])):
        builder = make_builder(CUSTOMERS, ums_settings(skipped=frozenset(skipped)))
        assert changed(builder, op, rows) == []  # type: ignore[arg-type]
        assert builder.left_out == 1
    builder = make_builder(CUSTOMERS, ums_settings(skip_unchanged=True, not_columns=".*card"))
    row = {name: value for name, value in ROW.items() if name != "card"}
    assert changed(builder, "u", [row, dict(row)]) == []
    out: list[SourceRecord] = []
    builder.truncate(SOURCE, BASE, out)
    assert (out, builder.left_out) == ([], 2)


def test_columns_that_are_not_logged_are_completed() -> None:
    (record,) = changed(make_builder(CUSTOMERS, ums_settings()), "u", [{"id": 1, "name": "A"}, {"card": "7"}])
    assert [row[4:] for row in tuples(record)] == [["1", "A", None, None, None], ["1", "A", None, "7", None]]


def test_heartbeats_and_ends_speak_for_one_namespace() -> None:
    for masks in ({}, {"column.mask.with.1.chars": ".*email"}):
        signals = MySqlUmsSignals(ums_settings(masks), PARTITION, Shard())
        time_us = 1_700_000_100_000_001
        out = [
            signals.heartbeat(CUSTOMERS.name, 3, time_us, BASE),
            signals.ended(CUSTOMERS.name, 3, time_us, BASE),
            signals.read(CUSTOMERS.name, 3, time_us, BASE, 0),
            signals.read(CUSTOMERS.name, 3, time_us, BASE, 9),
        ]
        assert [record.value["protocol"]["type"] for record in out] == [
            ums.INCREMENT_HEARTBEAT,
            ums.INCREMENT_TERMINATION,
            ums.BATCH_TERMINATION,
            ums.BATCH_TERMINATION,
        ]
        assert [tuples(record) for record in out] == [[["2023-11-14 22:15:00.000001"]]] * 4
        assert out[0].key == "data_increment_heartbeat.mariadb.server.world.customers.3.0.0"
        # Each goes where the rows go that it is about.
        (row,) = changed(
            make_builder(CUSTOMERS, ums_settings(masks)), "c", [decoded(CUSTOMERS, ums_settings(masks), dict(ROW))]
        )
        assert [record.partition for record in out[:2]] == [SameAs(row.key)] * 2
        assert [record.partition for record in out[2:]] == [
            SameAs(f"{protocol}.mariadb.server.world.customers.3.0.0") for protocol in (ums.INITIAL, ums.BATCH)
        ]
        assert {record.topic for record in out} == {row.topic}


def test_one_of_several_tasks_speaks_for_its_part() -> None:
    record = MySqlUmsSignals(ums_settings(), PARTITION, Shard(1, 3)).heartbeat(CUSTOMERS.name, 3, 0, BASE)
    assert record.key == "data_increment_heartbeat.mariadb.server.world.customers.3.0.0...1/3"
    assert written(record.value_schema, record.value)["payload"]["protocol"]["part"] == "1/3"


@pytest.mark.parametrize(
    ("per", "topic"), [("table", "server.world.emptied"), ("schema", "server.world"), ("all", "server.ums")]
)
def test_topics_can_be_shared(per: str, topic: str) -> None:
    builder = make_builder(EMPTIED, ums_settings(ums={"topic_per": per, "instance": "db.1"}))
    (record,) = changed(builder, "c", [{"id": 1}])
    assert (builder.topic, record.topic) == (topic, topic)
    assert record.value["schema"]["namespace"] == "mariadb.db_1.world.emptied.3.0.0"


def test_names_and_masks_of_keys_are_those_of_the_value() -> None:
    event_settings = ums_settings({"column.mask.with.2.chars": ".*odd-name"}, field_names="avro")
    dashed = table("odd", text("odd-name", 10, nullable=False), key=("odd-name",))
    (record,) = changed(make_builder(dashed, event_settings), "u", [{"odd-name": "secret"}, {"odd-name": "other"}])
    assert [(row[2], row[4]) for row in tuples(record)] == [("d", "**"), ("i", "**")]
    assert record.value["schema"]["fields"][4]["name"] == "odd_name"


@pytest.mark.parametrize(
    ("column", "value", "kind", "expected"),
    [
        (MySqlColumn(name="c", type=codes.LONGLONG), -(1 << 63), "long", "-9223372036854775808"),
        (MySqlColumn(name="c", type=codes.TINY), 1, "int", "1"),
        (
            MySqlColumn(name="c", type=codes.DECIMAL, meta=65 << 8 | 30),
            Decimal("1E-30"),
            "decimal",
            "0." + "0" * 29 + "1",
        ),
        (MySqlColumn(name="c", type=codes.FLOAT), 0.10000000149011612, "float", "0.1"),
        (MySqlColumn(name="c", type=codes.DOUBLE), 1e300, "double", "1e+300"),
        (MySqlColumn(name="c", type=codes.BIT, meta=1), True, "boolean", "true"),
        (MySqlColumn(name="c", type=codes.BIT, meta=9), b"\xff\x01", "binary", "/wE="),
        (MySqlColumn(name="c", type=codes.DATE), -719_528, "date", "0000-01-01"),
        (MySqlColumn(name="c", type=codes.TIME2, meta=6), -3_020_399_000_001, "string", "-838:59:59.000001"),
        (MySqlColumn(name="c", type=codes.DATETIME2), 1_700_000_000_123, "datetime", "2023-11-14 22:13:20.123000"),
        (
            MySqlColumn(name="c", type=codes.DATETIME2, meta=6),
            1_700_000_000_123_456,
            "datetime",
            "2023-11-14 22:13:20.123456",
        ),
        (
            MySqlColumn(name="c", type=codes.TIMESTAMP2, meta=3),
            "2023-11-14T22:13:20.12Z",
            "datetime",
            "2023-11-14 22:13:20.120000",
        ),
        (
            MySqlColumn(name="c", type=codes.TIMESTAMP2),
            "1970-01-01T00:00:00Z",
            "datetime",
            "1970-01-01 00:00:00.000000",
        ),
        (MySqlColumn(name="c", type=codes.YEAR), 2155, "int", "2155"),
        (MySqlColumn(name="c", type=codes.JSON), '{"a":1}', "string", '{"a":1}'),
        (MySqlColumn(name="c", type=codes.BLOB, meta=2, collation=63), b"\x00\xff", "binary", "AP8="),
        (
            MySqlColumn(name="c", type=codes.GEOMETRY, geometry=0),
            {"wkb": b"\x01", "srid": None},
            "string",
            '{"wkb":"AQ==","srid":null}',
        ),
    ],
)
def test_values_are_strings(column: MySqlColumn, value: Any, kind: str, expected: str) -> None:
    type_name, convert = value_text(field_schema(column, mysql_values()))
    assert (type_name, value if convert is None else convert(value)) == (kind, expected)


@pytest.mark.parametrize(
    ("mode", "column", "value", "expected"),
    [
        ("connect", MySqlColumn(name="c", type=codes.TIME2, meta=6), 3_723_004, ("string", "01:02:03.004000")),
        (
            "connect",
            MySqlColumn(name="c", type=codes.DATETIME2),
            1_700_000_000_123,
            ("datetime", "2023-11-14 22:13:20.123000"),
        ),
        ("nanoseconds", MySqlColumn(name="c", type=codes.TIME2), -1_000, ("string", "-00:00:00.000001")),
        ("nanoseconds", MySqlColumn(name="c", type=codes.DATETIME2), 1_000, ("datetime", "1970-01-01 00:00:00.000001")),
        ("isostring", MySqlColumn(name="c", type=codes.DATE), "2023-11-14Z", ("string", "2023-11-14Z")),
    ],
)
def test_values_of_other_time_modes(mode: Any, column: MySqlColumn, value: Any, expected: tuple[str, str]) -> None:
    kind, convert = value_text(field_schema(column, mysql_values(time_mode=mode)))
    assert (kind, value if convert is None else convert(value)) == expected
