from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, LongType

from connectors.errors import Fatal
from spark_jobs.contract import Column, TableSchema
from spark_jobs.dead_letters import DeadLetters
from spark_jobs.rows.misfit import ColumnMisfit
from spark_jobs.sources.records.kinds import Rules, loose_layout
from spark_jobs.sources.records.reader import DecodePlan, ValueKind, classify_value, namespace_of
from spark_jobs.sources.records.rows import TableDecoder
from tests.unit.connectors.scylla.events import golden_cases
from tests.unit.spark_jobs.sources.support import Table, envelope_schema, member, message, records

COLUMNS = [
    {"type": "int64", "optional": False, "field": "id"},
    member("name", "string"),
    member("price", "bytes", name="org.apache.kafka.connect.data.Decimal", parameters={"scale": "2"}),
    member("day", "int32", name="io.debezium.time.Date"),
    member("at_ms", "int64", name="io.debezium.time.Timestamp"),
    member("at_us", "int64", name="io.debezium.time.MicroTimestamp"),
    member("at_ns", "int64", name="io.debezium.time.NanoTimestamp"),
    member("zoned", "string", name="io.debezium.time.ZonedTimestamp"),
    member("clock", "int64", name="io.debezium.time.MicroTime"),
    member("raw", "bytes"),
    member("tags", "array", items={"type": "string", "optional": True}),
    member("sizes", "map", keys={"type": "string"}, values={"type": "int32", "optional": True}),
    member("codes", "map", keys={"type": "int32"}, values={"type": "string", "optional": True}),
    member(
        "where",
        "struct",
        fields=[member("street", "string"), member("since", "int32", name="org.apache.kafka.connect.data.Date")],
    ),
    member("ratio", "float"),
    member("small", "int16"),
    member("wrapped", "struct", name="p.d.t.x.Cell", fields=[member("value", "int64")]),
]
ROW: dict[str, Any] = {
    "id": 1,
    "name": "ä\n",
    "price": base64.b64encode((-1234).to_bytes(2, "big", signed=True)).decode(),
    "day": -1,
    "at_ms": -1,
    "at_us": 1_700_000_000_123_456,
    "at_ns": 1_700_000_000_123_456_789,
    "zoned": "2024-02-29T10:00:00.5+02:00",
    "clock": 1,
    "raw": "AP8=",
    "tags": ["a", None],
    "sizes": {"x": 1, "y": None},
    "codes": [[7, "seven"], [8, None]],
    "where": {"street": "s", "since": 1},
    "ratio": 1,
    "small": -3,
    "wrapped": {"value": 9},
}
SCHEMA = envelope_schema(COLUMNS)


def event(op: str, after: dict[str, Any] | None, before: dict[str, Any] | None = None, **source: Any) -> bytes:
    return message(
        SCHEMA,
        {
            "before": before,
            "after": after,
            "op": op,
            "source": {"db": "d", "table": "t", "ts_us": 5, "ums_id": 10, **source},
        },
    )


def test_every_type_becomes_what_the_documentation_says() -> None:
    table = Table(event("c", ROW))
    row = table.rows([event("c", ROW)])[0]
    assert table.reported == []
    assert row["price"] == Decimal("-12.34")
    assert row["day"] == date(1969, 12, 31)
    assert row["at_ms"] == datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)
    assert row["at_us"] == row["at_ns"] == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    assert row["zoned"] == datetime(2024, 2, 29, 8, 0, 0, 500000, tzinfo=UTC)
    assert row["clock"] == 1000
    assert row["raw"] == b"\x00\xff"
    assert row["tags"] == ["a", None]
    assert dict(row["sizes"]) == {"x": 1, "y": None}
    assert dict(row["codes"]) == {7: "seven", 8: None}
    assert row["where"] == {"street": "s", "since": date(1970, 1, 2)}
    assert (row["ratio"], row["small"], row["wrapped"], row["name"]) == (1.0, -3, 9, "ä\n")
    assert (row["ums_id_"], row["ums_op_"], row["ums_uid_"]) == (10, "i", "t-3-0")
    assert row["ums_ts_"] == datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC)


def test_decimals_keep_all_their_digits() -> None:
    number = -12345678901234567890123456789012345678
    encoded = base64.b64encode(number.to_bytes(17, "big", signed=True)).decode()
    rows = Table(event("c", ROW)).rows([event("c", {**ROW, "price": encoded}), event("c", {**ROW, "price": 12.25})])
    assert [row["price"] for row in rows] == [Decimal("-123456789012345678901234567890123456.78"), Decimal("12.25")]


@pytest.mark.parametrize("where", ["alone", "with Base64", "key"])
def test_decimals_that_are_written_as_numbers_keep_all_their_digits(where: str) -> None:
    numbers = ["12345678901234567890.12", "-0.07", "1e3", "1E+3", "900719925474099312345", "0.10", "0e-9999999"]
    encoded = base64.b64encode((-1234).to_bytes(2, "big", signed=True)).decode()

    def written(number: str) -> bytes:
        return event("c", {**ROW, "price": 1.25}).replace(b"1.25", number.encode())

    if where == "key":
        key_schema = {"type": "struct", "fields": [COLUMNS[2]]}
        table = Table(event("c", ROW), key_schema=key_schema, keys=("price",))
        key = message(key_schema, {"price": 1.25})
        keys = [key.replace(b"1.25", number.encode()) for number in numbers]
        rows = table.rows([event("d", None) for _ in numbers], keys=keys)
    else:
        more = [event("c", {**ROW, "price": encoded})] if where == "with Base64" else []
        table = Table(event("c", ROW))
        rows = table.rows([*map(written, numbers), *more])[: len(numbers)]
    assert table.reported == []
    assert [row["price"] for row in rows] == [Decimal(number) for number in numbers]


@pytest.mark.parametrize(
    "bad",
    ["true", "[1]", '{"a": 1}', "0.123", "1e99999999999999999999", "1e40", "1e-9999999", "1e-999999999", '"?"'],
)
def test_what_is_no_decimal_of_a_column_is_a_bad_record(bad: str) -> None:
    table = Table(event("c", ROW))
    rows = table.rows([event("c", ROW), event("c", {**ROW, "price": 1.25}).replace(b"1.25", bad.encode())])
    assert ([row["kafka_offset_"] for row in rows], len(table.reported)) == ([0], 1)


def test_null_in_every_column_but_the_key() -> None:
    empty = {"id": 2}
    row = Table(event("c", ROW)).rows([event("u", empty)])[0]
    assert row["id"] == 2
    assert all(row[column["field"]] is None for column in COLUMNS[1:])


def test_operations_and_rows_before_an_update() -> None:
    table = Table(event("c", ROW), before=True)
    old = {**ROW, "name": "old"}
    rows = table.rows(
        [
            event("c", ROW),
            event("r", ROW),
            event("u", ROW, old),
            event("u", ROW),
            event("d", None, old),
            None,
            event("m", None),
        ]
    )
    assert [(row["ums_op_"], row["name"], row["kafka_offset_"]) for row in rows] == [
        ("i", "ä\n", 0),
        ("i", "ä\n", 1),
        ("b", "old", 2),
        ("u", "ä\n", 2),
        ("u", "ä\n", 3),
        ("d", "old", 4),
    ]
    assert len({row["ums_uid_"] for row in rows}) == len(rows)
    assert table.reported == []


@pytest.mark.parametrize("before", [False, True])
def test_an_update_that_changes_a_declared_key_deletes_the_old_row(before: bool) -> None:
    table = Table(event("c", ROW), keys=("name",), before=before, moves=True)
    old, other = {**ROW, "name": "old"}, {**ROW, "small": 5}
    rows = table.rows([event("u", ROW, old), event("u", ROW, other), event("u", ROW), event("u", ROW, {"id": 1})])
    shown = [(row["ums_op_"], row["name"], row["small"], row["kafka_offset_"]) for row in rows]
    assert [change for change in shown if change[0] != "b"] == [
        ("d", "old", -3, 0),
        ("i", "ä\n", -3, 0),
        ("u", "ä\n", -3, 1),
        ("u", "ä\n", -3, 2),
        ("u", "ä\n", -3, 3),
    ]
    assert [change[3] for change in shown if change[0] == "b"] == ([1, 3] if before else [])
    assert len({row["ums_uid_"] for row in rows}) == len(rows)
    assert table.reported == []


def test_a_delete_without_a_row_has_the_key_of_the_record() -> None:
    table = Table(event("c", ROW), key_schema={"type": "struct", "fields": [{"type": "int64", "field": "id"}]})
    plain, enveloped = b'{"id":4}', json.dumps({"schema": {}, "payload": {"id": 5}}).encode()
    rows = table.rows([event("d", None), event("d", None)], [plain, enveloped])
    assert [(row["id"], row["name"], row["ums_op_"]) for row in rows] == [(4, None, "d"), (5, None, "d")]


def test_a_truncate_is_reported_unless_it_is_to_be_ignored() -> None:
    table = Table(event("c", ROW))
    assert table.rows([event("t", None)]) == []
    assert "TRUNCATE" in table.reported[0][1]
    assert Table(event("c", ROW), truncates=True).rows([event("t", None), event("c", ROW)])[0]["id"] == 1


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (event("u", None), "no row after"),
        (event("x", ROW), "op is 'x'"),
        (event("d", None), "key column id is null"),
        (event("c", {**ROW, "name": 5}), "Expected `str"),
        (event("c", {**ROW, "small": 40000}), "40000"),
        (event("c", {**ROW, "zoned": "yesterday"}), "yesterday"),
        (event("c", ROW)[:-9], "truncated"),
        (event("c", {**ROW, "price": base64.b64encode(b"\x7f" * 30).decode()}), "precision"),
        (event("c", ROW).replace(b'"payload":', b'"payload":\n\n') + b"x", "malformed"),
    ],
)
def test_a_bad_record_is_reported_by_its_offset_and_the_others_pass(bad: bytes, words: str) -> None:
    table = Table(event("c", ROW))
    rows = table.rows([event("c", ROW), bad, event("u", ROW)])
    assert [row["kafka_offset_"] for row in rows] == [0, 2]
    assert [offset for offset, _ in table.reported] == [1]
    assert words in table.reported[0][1]


def test_versions_of_a_schema_in_one_batch_share_the_wider_table() -> None:
    old = envelope_schema(
        [
            {"type": "int32", "optional": False, "field": "id"},
            member("gone", "string"),
            member("n", "int32"),
            member("nested", "struct", fields=[member("a", "int32")]),
        ]
    )
    new = envelope_schema(
        [
            {"type": "int64", "optional": False, "field": "id"},
            member("n", "double"),
            member("fresh", "boolean"),
            member("nested", "struct", fields=[member("b", "string"), member("a", "int64")]),
        ]
    )
    old_message = message(
        old,
        {"op": "c", "after": {"id": 1, "gone": "g", "n": 2, "nested": {"a": 1}}, "source": {"ums_id": 1, "ts_us": 1}},
    )
    new_message = message(
        new,
        {
            "op": "c",
            "after": {"id": 2, "n": 2.5, "fresh": True, "nested": {"b": "x", "a": 2}},
            "source": {"ums_id": 2, "ts_us": 1},
        },
    )
    table = Table(old_message, new_message)
    assert [column.name for column in table.schema.columns] == ["id", "gone", "n", "nested", "fresh"]
    rows = table.rows([old_message, new_message, new_message, old_message])
    assert [row["id"] for row in rows] == [1, 2, 2, 1]
    assert [row["n"] for row in rows] == [2.0, 2.5, 2.5, 2.0]
    assert [row["nested"] for row in rows[:2]] == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    assert (rows[0]["gone"], rows[0]["fresh"], rows[1]["gone"], rows[1]["fresh"]) == ("g", None, None, True)


def test_envelopes_with_blanks_and_other_orders_are_read_too() -> None:
    usual = event("c", ROW)
    data = json.loads(usual)
    blanks = json.dumps(data, indent=1).encode()
    turned = json.dumps({"payload": data["payload"], "schema": data["schema"]}, separators=(",", ":")).encode()
    table = Table(usual, blanks, turned)
    assert [row["id"] for row in table.rows([usual, blanks, turned, usual])] == [1, 1, 1, 1]
    assert table.reported == []


def test_a_records_schema_that_nobody_looked_at_is_an_error_and_those_of_other_tables_are_not() -> None:
    other = message(
        envelope_schema([member("id", "int64"), member("x", "int32")]), {"op": "c", "after": {"id": 1}, "source": {}}
    )
    table = Table(event("c", ROW))
    assert table.rows([other]) == []
    assert "not one of those" in table.reported[0][1]
    table = Table(event("c", ROW), foreign=frozenset({classify_value(other)[1]}))
    assert [row["id"] for row in table.rows([other, event("c", ROW)])] == [1]
    assert table.reported == []


def test_order_of_changes_by_source() -> None:
    binlog = [
        member("db", "string"),
        member("table", "string"),
        member("ts_ms", "int64"),
        member("file", "string"),
        member("pos", "int64"),
        member("row", "int32"),
    ]
    schema = envelope_schema([{"type": "int64", "optional": False, "field": "id"}], binlog)

    def row(file: str, position: int, number: int) -> bytes:
        return message(
            schema,
            {"op": "c", "after": {"id": 1}, "source": {"ts_ms": 7, "file": file, "pos": position, "row": number}},
        )

    events = [row("bin.000009", 4_000_000_000, 0), row("bin.000009", 4_000_000_000, 1), row("bin.000010", 4, 0)]
    rows = Table(events[0]).rows(events)
    assert [table_row["ums_id_"] for table_row in rows] == [9_004_000_000_000, 9_004_000_000_001, 10_000_000_000_004]
    assert rows[0]["ums_ts_"] == datetime(1970, 1, 1, 0, 0, 0, 7000, tzinfo=UTC)
    plain = envelope_schema([{"type": "int64", "optional": False, "field": "id"}], [member("ts_ms", "int64")])
    rows = Table(message(plain, {"op": "c", "after": {"id": 1}, "source": {}})).rows(
        [message(plain, {"op": "c", "after": {"id": 1}, "source": {}})] * 2
    )
    assert [table_row["ums_id_"] for table_row in rows] == [0, 1]
    assert rows[0]["ums_ts_"] == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    table = Table(events[0])
    assert table.rows([row("binlog", 4, 0), events[0], row("bin.000001", 10**12, 0)])[0]["ums_id_"] == 9_004_000_000_000
    assert [(offset, text.partition(": ")[0]) for offset, text in table.reported] == [
        (0, "no order number for 'binlog'"),
        (2, "no order number for bin.000001:1000000000000 row 0"),
    ]


def test_names_of_tables() -> None:
    assert namespace_of({"db": "shop", "table": "orders"}, "t") == "shop.orders"
    assert namespace_of({"keyspace_name": "ks", "db": "x", "table_name": "tab"}, "t") == "ks.tab"
    assert namespace_of({"db": "shop", "schema": "public", "table": "orders"}, "t") == "shop.public.orders"
    assert namespace_of({}, "t") == "t"


@given(st.binary(max_size=60))
def test_any_bytes_are_classified_and_decoded_without_a_crash(data: bytes) -> None:
    kind, _ = classify_value(data)
    table = Table(event("c", ROW))
    rows = table.rows([event("c", ROW), data])
    assert len(rows) == 1
    assert kind in set(ValueKind)


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.none() | st.text()), min_size=1, max_size=20))
def test_the_fast_way_and_the_careful_one_agree(rows: list[tuple[int, str | None]]) -> None:
    values: list[bytes | None] = [event("c", {"id": number, "name": text}) for number, text in rows]
    table = Table(event("c", ROW))
    fast = table.rows(values)
    slow = table.rows([b"no json", *values])
    assert [(row["id"], row["name"]) for row in fast] == rows
    assert [(row["id"], row["name"]) for row in slow] == rows


@pytest.mark.parametrize("name", golden_cases.names())
def test_golden_events_of_the_scylla_connector(name: str) -> None:
    """Every event of Java's connector is decoded, or refused for a reason that the documentation gives."""
    for run in golden_cases.load(name)["runs"].values():
        for record in run["records"]:
            if not record.get("value") or not record.get("key") or "schema" not in record["value"]:
                continue
            value = record["value"]
            value["payload"]["ts_ms"] = 1
            names = tuple(field["field"] for field in record["key"]["schema"]["fields"])
            data = message(value["schema"], value["payload"])
            table = Table(data, key_schema=record["key"]["schema"], keys=names)
            rows = table.rows([data], [json.dumps(record["key"]).encode()])
            if rows:
                assert {name: rows[0][name] for name in names}.keys() == set(names)
            else:
                assert any(words in table.reported[0][1] for words in ("no row after", "is null"))


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        ("small", 70000, "smallint"),
        ("clock", 1 << 63, "bigint"),
        ("raw", "!", "binary"),
        ("tags", [5], "array<string>"),
        ("where", {"since": 1 << 40}, "struct<street:string,since:date>"),
        ("name", 5, "string"),
        ("name", [5] * 1000, "string"),
    ],
)
def test_a_value_that_does_not_fit_is_named(column: str, value: Any, kind: str) -> None:
    table = Table(event("c", ROW))
    good = table.rows([event("c", ROW), event("c", {**ROW, column: value}), event("u", ROW, {**ROW, "id": 2})])
    ((offset, text),) = table.reported
    assert (len(good), offset) == (2, 1)
    shown = json.dumps(value, separators=(",", ":"))
    shown = shown if len(shown) <= 100 else shown[:99] + "…"
    assert text.startswith(f"Table d.t, column {column}: the value {shown} does not fit the type {kind} (")
    assert "correct the value, or the column's type, in the source" in text
    assert "errors.tolerance=all" in text


def test_a_decimal_with_too_many_digits_is_named() -> None:
    table = Table(event("c", ROW))
    good = table.rows([event("c", ROW), event("c", {**ROW, "price": 10**40})])
    ((offset, text),) = table.reported
    assert (len(good), offset) == (1, 1)
    assert text.startswith(
        f"Table d.t, column price: the value {10**40} does not fit decimal(38,2), and Spark has no larger"
    )
    assert "decimal.handling.mode" in text


def test_a_value_that_does_not_fit_a_declared_type_is_named() -> None:
    columns = (Column("id", LongType(), key=True), Column("n", IntegerType()))
    layout = loose_layout(columns, None, Rules())
    reported: list[Exception] = []
    decoder = TableDecoder(
        DecodePlan(TableSchema("d.t", columns), {b"": layout}, namespace="d.t"),
        lambda *record: reported.append(record[-1]),
    )
    value = {"op": "c", "after": {"id": 1, "n": 1 << 40}, "source": {"db": "d", "table": "t"}}
    assert list(decoder.decode(records([json.dumps(value).encode()]))) == []
    (error,) = reported
    assert isinstance(error, ColumnMisfit)
    assert str(error).startswith("Table d.t, column n: the value 1099511627776 does not fit the type int (")
    assert "source.table.columns.d.t" in str(error)
    assert "1099511627776" not in str(error.hidden)
    assert "Table d.t, column n: the value does not fit the type int; it is not shown" in str(error.hidden)
    with pytest.raises(Fatal, match="column n: the value does not fit the type int; it is not shown") as no:
        DeadLetters("job", tolerant=False, masked=True).report("t", 0, 0, None, b"", error)
    assert "1099511627776" not in str(no.value)
