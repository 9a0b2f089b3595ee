"""Events in Debezium's envelope: against what the real connector has sent, and what it has no example of."""

from __future__ import annotations

import base64
import hashlib
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from connectors import schema as connect
from connectors.api import EVERY_PARTITION, Header
from connectors.errors import Skippable
from connectors.mysql.events.headers import context_headers
from connectors.mysql.events.heartbeats import MySqlHeartbeats
from connectors.mysql.events.transactions import Transactions
from connectors.mysql.model import Shard, TableName
from tests.support.settings import mysql_values
from tests.unit.connectors.mysql.events.making import (
    AFTER,
    BASE,
    CUSTOMERS,
    EMPTIED,
    NO_KEY,
    NOW_NS,
    PARTITION,
    SOURCE,
    SPECIAL_NAMES,
    check,
    decoded,
    make_builder,
    number,
    recorded,
    settings,
    source_of,
    table,
    text,
    written,
)

if TYPE_CHECKING:
    from connectors.api import SourceRecord
    from connectors.mysql.events.contract import MySqlEventSettings, MySqlTableEvents
    from connectors.mysql.model import MySqlTable
    from connectors.mysql.schema.types import ValueOptions

DOUBLE = mysql_values(decimal_mode="double", time_mode="isostring", binary_mode="hex")


def raw(row: dict[str, Any] | None) -> dict[str, Any] | None:
    """A recorded row as the decoder gives it."""
    if row is None or not isinstance(row.get("credit"), str):
        return row
    unscaled = int.from_bytes(base64.b64decode(row["credit"]), "big", signed=True)
    return {**row, "credit": Decimal(unscaled).scaleb(-2)}


def replay(
    of: MySqlTable,
    event_settings: MySqlEventSettings,
    variant: str,
    options: ValueOptions | None = None,
    rename: dict[str, str] | None = None,
) -> int:
    """Rebuild a table's recorded events from their rows, one event each; all must be equal. Return their number."""
    theirs = list(recorded(variant, f"server.world.{of.name.table}".replace("$", "_")))
    builder = make_builder(of, event_settings, options)
    names = {new: old for old, new in (rename or {}).items()}
    ours: list[SourceRecord] = []
    steps = [record.value for record in theirs if record.value is not None]
    for index, value in enumerate(steps):
        source, first = source_of(value), value["source"]["row"]

        def row(of: dict[str, Any], image: str) -> Any:
            values = raw(of[image])
            return values and {names.get(name, name): content for name, content in values.items()}

        following = steps[index + 1] if index + 1 < len(steps) else None
        if (
            value["op"] == "d"
            and following is not None
            and following["op"] == "c"
            and following["source"] == value["source"]
        ):
            builder.changes("u", [row(value, "before"), row(following, "after")], source, first, BASE, AFTER, ours)
        elif (
            value["op"] == "c"
            and index
            and steps[index - 1]["op"] == "d"
            and steps[index - 1]["source"] == value["source"]
        ):
            continue
        elif value["op"] == "t":
            builder.truncate(source, AFTER, ours)
        else:
            rows = [row(value, image) for image in ("before", "after") if value[image] is not None]
            builder.changes(value["op"], rows, source, first, BASE, AFTER, ours)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        other.value and other.value.update(transaction=None)
        check(mine, other)
    return len(ours)


def test_the_changes_of_a_table_are_those_that_debezium_has_sent() -> None:
    assert replay(CUSTOMERS, settings(), "default") > 15
    assert replay(NO_KEY, settings(), "default") == 5
    assert replay(EMPTIED, settings(skipped=frozenset()), "precise") == 2


def test_keys_and_masks_are_those_that_debezium_makes_of_its_options() -> None:
    masks = {
        "column.mask.with.12.chars": "world.customers.card",
        "column.truncate.to.3.chars": "world.customers.name",
        "column.mask.hash.v2.SHA-256.with.salt.Cz3": "world.customers.email",
    }
    options: dict[str, Any] = {"tombstones": False, "skip_unchanged": True, "key_columns": "world.customers:id,name"}
    theirs = next(record for record in recorded("iso", "server.world.customers") if record.value["op"] == "c")
    row = {"id": 4, "name": "Dora", "email": "d@example.com", "card": "1", "credit": 0.0}
    records = []
    # Debezium hashes no column that tells its source's type; here it stays hidden.
    for source_types in ("", ".*"):
        event_settings = settings(masks, **options, source_types=source_types)
        out: list[SourceRecord] = []
        make_builder(CUSTOMERS, event_settings, DOUBLE).changes(
            "c", [decoded(CUSTOMERS, event_settings, row, DOUBLE)], source_of(theirs.value), 0, BASE, AFTER, out
        )
        records.append(out[0])
    check(records[0], theirs)
    assert records[0].key == {"id": 4, "name": "Dora"}
    assert records[1].value == records[0].value
    assert records[1].value_schema != records[0].value_schema


def test_names_are_adjusted_as_debezium_does() -> None:
    event_settings = settings(schema_names="avro", field_names="avro", skipped=frozenset("u"))
    names = {"the id": "the_id", "first-name": "first_name", "2nd": "_2nd"}
    assert replay(SPECIAL_NAMES, event_settings, "nano", rename=names) == 1
    out: list[SourceRecord] = []
    builder = make_builder(SPECIAL_NAMES, event_settings)
    row = {"the id": 1, "first-name": "x", "2nd": 2}
    builder.changes("u", [row, {**row, "first-name": "y"}], SOURCE, 0, BASE, AFTER, out)
    assert not out
    assert builder.left_out == 1


def test_rows_of_a_snapshot_have_their_markers() -> None:
    theirs = recorded("default", "server.world.customers", "snapshot")
    out: list[SourceRecord] = []
    rows = [raw(record.value["after"]) for record in theirs]
    make_builder(CUSTOMERS, settings()).snapshot(
        [row for row in rows if row],
        source_of(theirs[0].value),
        "true",
        BASE,
        out,
        first="first_in_data_collection",
        last="last_in_data_collection",
    )
    for mine, other in zip(out, theirs, strict=True):
        check(mine, other)
        assert mine.source_offset is BASE


def test_the_offset_of_each_record_says_how_many_rows_are_done() -> None:
    rows: list[Any] = [{"a": number, "b": "x"} for number in range(4)]
    out: list[SourceRecord] = []
    make_builder(NO_KEY, settings()).changes("c", rows, SOURCE, 5, BASE, AFTER, out)
    assert [record.source_offset.get("row") for record in out] == [6, 7, 8, None]
    assert out[-1].source_offset is AFTER
    assert [record.value["source"]["row"] for record in out] == [5, 6, 7, 8]
    assert all(record.source_offset == {**BASE, "row": record.source_offset["row"]} for record in out[:-1])
    assert {record.value["ts_ns"] for record in out} == {NOW_NS}


def test_a_delete_is_not_done_before_its_tombstone() -> None:
    out: list[SourceRecord] = []
    make_builder(EMPTIED, settings()).changes("d", [{"id": 1}, {"id": 2}], SOURCE, 0, BASE, AFTER, out)
    assert [(record.key["id"], record.value is None, record.source_offset.get("row")) for record in out] == [
        (1, False, 0),
        (1, True, 1),
        (2, False, 1),
        (2, True, None),
    ]
    assert all(record.value_schema is None for record in out if record.value is None)


def test_a_changed_key_is_one_row_with_three_records() -> None:
    out: list[SourceRecord] = []
    make_builder(EMPTIED, settings()).changes(
        "u", [{"id": 1}, {"id": 9}, {"id": 2}, {"id": 2}], SOURCE, 0, BASE, AFTER, out
    )
    assert [
        (record.value and record.value["op"], record.key["id"], record.source_offset.get("row")) for record in out
    ] == [("d", 1, 0), (None, 1, 0), ("c", 9, 1), ("u", 2, None)]
    assert [[(header.key, header.value) for header in record.headers] for record in out] == [
        [("__debezium.newkey", {"id": 9})],
        [("__debezium.newkey", {"id": 9})],
        [("__debezium.oldkey", {"id": 1})],
        [],
    ]
    assert out[-1].source_offset is AFTER


def test_operations_can_be_left_out_also_of_a_changed_key() -> None:
    pair: list[Any] = [{"id": 1}, {"id": 9}]
    for skipped, expected in (("c", ["d", None]), ("d", ["c"]), ("u", []), ("cd", [])):
        out: list[SourceRecord] = []
        builder = make_builder(EMPTIED, settings(skipped=frozenset(skipped)))
        builder.changes("u", pair, SOURCE, 0, BASE, AFTER, out)
        assert [record.value and record.value["op"] for record in out] == expected
        assert builder.left_out == (not expected)
        assert not out or out[-1].source_offset is AFTER
    builder = make_builder(EMPTIED, settings(skipped=frozenset("dr")))
    builder.changes("d", pair, SOURCE, 0, BASE, AFTER, out)
    builder.snapshot(iter([{"id": 1}]), SOURCE, "true", BASE, out)
    assert (out, builder.left_out) == ([], 3)


def test_rows_of_other_shards_are_left_out_and_counted() -> None:
    out: list[SourceRecord] = []
    builder = make_builder(EMPTIED, settings())
    builder.changes("c", [None, {"id": 2}, None], SOURCE, 0, BASE, AFTER, out)
    assert [(record.key, record.source_offset["row"], record.value["source"]["row"]) for record in out] == [
        ({"id": 2}, 2, 1)
    ]
    out.clear()
    builder.changes("u", [None, {"id": 3}, {"id": 4}, None, None, None], SOURCE, 0, BASE, AFTER, out)
    assert [(record.value and record.value["op"], record.key["id"], record.source_offset["row"]) for record in out] == [
        ("c", 3, 1),
        ("d", 4, 1),
        (None, 4, 2),
    ]
    assert builder.left_out == 0


def test_columns_that_are_not_logged_are_completed_or_null() -> None:
    """MINIMAL: the key before, the changed columns after; NOBLOB: all but unchanged TEXT columns."""
    out: list[SourceRecord] = []
    builder = make_builder(CUSTOMERS, settings())
    builder.changes("u", [{"id": 1}, {"credit": Decimal("2.50")}], SOURCE, 0, BASE, AFTER, out)
    row = {"id": 1, "name": "A", "email": None}
    builder.changes("u", [row, {**row, "id": 7}], SOURCE, 0, BASE, AFTER, out)
    builder.changes("d", [{"id": 1}], SOURCE, 0, BASE, AFTER, out)
    builder.changes("c", [{"id": 1}], SOURCE, 0, BASE, AFTER, out)
    assert [record.value and record.value["op"] for record in out] == ["u", "d", None, "c", "d", None, "c"]
    assert out[0].value["after"] == {"id": 1, "credit": Decimal("2.50")}
    assert out[0].key == {"id": 1}
    assert out[3].key == {"id": 7}
    whole: list[SourceRecord] = []
    builder.changes("c", [{**row, "card": None, "credit": None}], SOURCE, 0, BASE, AFTER, whole)
    for record in [*out, *whole]:
        if record.value is not None:
            assert written(record.value_schema, record.value)["payload"]["op"] == record.value["op"]
    assert [
        written(record.value_schema, record.value)["schema"]["fields"][1]["fields"][1]["optional"]
        for record in (out[0], whole[0])
    ] == [True, False]


def test_an_update_of_columns_that_are_not_sent_can_be_left_out() -> None:
    event_settings = settings(not_columns="world.customers.(credit|card)", skip_unchanged=True)
    builder = make_builder(CUSTOMERS, event_settings)
    out: list[SourceRecord] = []
    before = {"id": 1, "name": "A", "email": None}
    builder.changes("u", [before, dict(before), before, {**before, "name": "B"}], SOURCE, 0, BASE, AFTER, out)
    assert [record.value["after"]["name"] for record in out] == ["B"]
    assert builder.left_out == 1


def test_a_key_shows_what_its_value_hides() -> None:
    event_settings = settings(
        {"column.mask.with.3.chars": ".*code"}, not_columns="world.codes.number", key_columns="world.codes:code,number"
    )
    codes = table(
        "codes", text("code", 5, nullable=False), number("number", nullable=False), text("v", 5), key=("code",)
    )
    builder = make_builder(codes, event_settings)
    out: list[SourceRecord] = []
    row = {"code": "abc", "number": 7, "v": "x"}
    builder.changes("u", [row, {**row, "v": "y"}, row, {**row, "code": "zz"}], SOURCE, 0, BASE, AFTER, out)
    assert [(record.key, record.value and record.value["after"]) for record in out] == [
        ({"code": "abc", "number": 7}, {"code": "***", "v": "y"}),
        ({"code": "abc", "number": 7}, None),
        ({"code": "abc", "number": 7}, None),
        ({"code": "zz", "number": 7}, {"code": "***", "v": "x"}),
    ]


def test_a_mask_by_another_field_sees_the_row_as_it_was() -> None:
    masks = {
        "mask.rules": "m,n",
        "mask.m.columns": ".*email",
        "mask.m.type": "md5",
        "mask.m.salt.field": "name",
        "mask.n.columns": ".*card",
        "mask.n.type": "md5",
        "mask.n.salt.field": "email",
    }
    builder = make_builder(CUSTOMERS, settings(masks))
    out: list[SourceRecord] = []
    row: dict[str, Any] = {"id": 1, "name": "A", "email": "e", "card": "c", "credit": None}
    builder.changes("c", [row], SOURCE, 0, BASE, AFTER, out)
    builder.snapshot([row], SOURCE, "true", BASE, out)
    assert out[0].value["after"] == out[1].value["after"]
    assert out[0].value["after"]["email"] == hashlib.md5(b"Ae").hexdigest()  # noqa: S324
    assert out[0].value["after"]["card"] == hashlib.md5(b"ec").hexdigest()  # noqa: S324
    assert row["email"] == "e"
    with pytest.raises(Skippable, match="name"):
        builder.changes("c", [{"id": 1, "email": "e"}], SOURCE, 0, BASE, AFTER, out)


def test_tables_of_one_topic_differ_in_the_key() -> None:
    event_settings = settings(topics={"regex": r"(.*)\.(emptied|other)", "replacement": "$1.all"})
    builder = make_builder(EMPTIED, event_settings)
    out: list[SourceRecord] = []
    builder.changes("d", [{"id": 1}], SOURCE, 0, BASE, AFTER, out)
    assert out[0].topic == "server.world.all"
    assert out[0].key == out[1].key == {"id": 1, "__dbz__physicalTableIdentifier": "server.world.emptied"}
    assert out[0].key_schema is not None
    assert (out[0].key_schema.name, [field.name for field in out[0].key_schema.fields]) == (
        "server.world.all.Key",
        ["id", "__dbz__physicalTableIdentifier"],
    )


def test_context_headers_come_behind_those_of_the_key() -> None:
    theirs = recorded("default", "server.world.customers")
    headers = context_headers(settings(), 0, "id")
    expected = [[name, "id" if name.endswith("runId") else value] for name, value in theirs[0].headers]
    assert [[header.key, header.value] for header in headers] == expected
    assert context_headers(settings(context_headers=False), 0, "id") == ()
    out: list[SourceRecord] = []
    builder = make_builder(EMPTIED, settings(), headers=headers)
    builder.changes("u", [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 3}], SOURCE, 0, BASE, AFTER, out)
    changed = next(record for record in theirs if record.headers[0][0] == "__debezium.newkey")
    assert [header.key for header in out[0].headers] == [name for name, _ in changed.headers]
    assert out[3].headers == headers


def test_heartbeats_are_those_of_debezium() -> None:
    theirs = recorded("default", "__debezium-heartbeat.server", "snapshot")[0]
    record = MySqlHeartbeats(settings(), PARTITION, Shard(0, 1), lambda: NOW_NS).record(BASE)
    check_key, check_value = written(record.key_schema, record.key), written(record.value_schema, record.value)
    assert (record.topic, check_key["schema"], check_key["payload"]) == (theirs.topic, theirs.key_schema, theirs.key)
    assert (check_value["schema"], check_value["payload"]) == (theirs.value_schema, {"ts_ms": NOW_NS // 1_000_000})
    assert record.partition == 0


def test_heartbeats_of_tables_have_a_header_alone() -> None:
    beats = MySqlHeartbeats(settings(), PARTITION, Shard(1, 2))
    names = [TableName("world", "a"), TableName("world", "b")]
    records = beats.of_tables(names, 1_700_000_000_123_456, BASE)
    assert [record.topic for record in records] == ["server.world.a", "server.world.b"]
    for record in records:
        assert (record.key, record.value, record.partition) == (None, None, EVERY_PARTITION)
        assert record.headers == (Header("__millrace.heartbeat", "1700000000123456 1/2", connect.STRING),)
        assert (record.source_partition, record.source_offset) == (PARTITION, BASE)


class TestTransactions:
    def make(self) -> tuple[Transactions, MySqlTableEvents, MySqlTableEvents]:
        event_settings = settings(transactions=True)
        counts = Transactions(event_settings, PARTITION)
        return (
            counts,
            make_builder(EMPTIED, event_settings, transactions=counts),
            make_builder(NO_KEY, event_settings, transactions=counts),
        )

    def test_the_records_are_those_of_debezium(self) -> None:
        counts, emptied, no_key = self.make()
        out: list[SourceRecord] = []
        theirs = recorded("default", "server.transaction")
        begin, end = next(
            (begin, end)
            for begin, end in pairwise(theirs)
            if end.value["status"] == "END" and len(end.value["data_collections"]) > 1
        )
        source = msgspec.structs.replace(SOURCE)
        source.gtid = begin.key["id"]
        counts.begin(source, BASE, out)
        emptied.changes("c", [{"id": 1}], source, 0, BASE, AFTER, out)
        no_key.changes("c", [{"a": 1, "b": ""}], source, 0, AFTER, AFTER, out)
        counts.end(source, BASE, out)
        for mine, other in ((out[0], begin), (out[-1], end)):
            key, value = written(mine.key_schema, mine.key), written(mine.value_schema, mine.value)
            assert (mine.topic, key["schema"], key["payload"]) == (other.topic, other.key_schema, other.key)
            assert value["schema"] == other.value_schema
            assert {**value["payload"], "ts_ms": 0} == {
                **other.value,
                "ts_ms": 0,
                "event_count": value["payload"]["event_count"],
                "data_collections": value["payload"]["data_collections"],
            }
        assert out[-1].value["data_collections"] == [
            {"data_collection": "world.emptied", "event_count": 1},
            {"data_collection": "world.no_key", "event_count": 1},
        ]
        assert (out[-1].value["event_count"], counts.id) == (2, None)

    def test_each_event_has_its_number_and_each_offset_the_counts(self) -> None:
        counts, emptied, no_key = self.make()
        out: list[SourceRecord] = []
        counts.begin(SOURCE, BASE, out)
        no_key.changes("c", [{"a": 1, "b": ""}], SOURCE, 0, BASE, AFTER, out)
        emptied.changes("u", [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 3}], SOURCE, 0, BASE, AFTER, out)
        blocks = [tuple(record.value["transaction"].values()) for record in out[1:] if record.value is not None]
        assert blocks == [("0-1-5", 1, 1), ("0-1-5", 2, 1), ("0-1-5", 3, 2), ("0-1-5", 4, 3)]
        counted = [record.source_offset.get("transaction_data_collection_order_world.emptied", 0) for record in out[1:]]
        assert counted == [0, 0, 0, 2, 3]
        assert {record.source_offset["transaction_id"] for record in out} == {"0-1-5"}

    def test_a_transaction_continues_after_a_restart(self) -> None:
        counts, emptied, _ = self.make()
        out: list[SourceRecord] = []
        counts.begin(SOURCE, BASE, out)
        emptied.changes("c", [{"id": 1}, {"id": 2}], SOURCE, 0, BASE, AFTER, out)
        resumed, emptied, _ = self.make()
        resumed.load(out[1].source_offset)
        rest: list[SourceRecord] = []
        resumed.begin(SOURCE, BASE, rest)
        emptied.changes("c", [{"id": 2}], SOURCE, 1, BASE, AFTER, rest)
        assert [record.value["transaction"] for record in rest] == [out[2].value["transaction"]]
        resumed.end(SOURCE, BASE, rest)
        assert rest[-1].value["event_count"] == 2
        resumed.load(BASE)
        resumed.end(SOURCE, BASE, rest)
        assert len(rest) == 2

    def test_without_a_gtid_the_position_is_the_name(self) -> None:
        counts, *_ = self.make()
        out: list[SourceRecord] = []
        plain = msgspec.structs.replace(SOURCE)
        plain.gtid = None
        counts.begin(plain, BASE, out)
        assert out[0].key == {"id": "file=binlog.000007,pos=900"}
        counts.abort()
        counts.begin(plain, BASE, out)
        assert len(out) == 2
