"""Shards of a logical table: what each value of ``sink.shards`` makes of UMS and Debezium records, without Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from connectors.errors import Fatal, Skippable
from connectors.formats import ums as forms
from spark_jobs.config import job_files as job_config
from spark_jobs.contract import Column, TableSchema
from spark_jobs.history import layout as file_layout
from spark_jobs.materializer.contract import InputRecord
from spark_jobs.rows import shards
from spark_jobs.sinks.jdbc import config as jdbc_config
from spark_jobs.sinks.jdbc.dialect.dialects import load_dialect
from spark_jobs.sinks.jdbc.tables import find_columns as jdbc_columns
from spark_jobs.sources import ums
from spark_jobs.sources.layout import envelope_layout
from spark_jobs.sources.records.inference import TableSighting
from spark_jobs.sources.records.kinds import KnownKind, Rules, look_json
from spark_jobs.sources.records.reader import DecodePlan, namespace_of
from spark_jobs.sources.records.rows import TableDecoder
from spark_jobs.sources.records.search import Search
from spark_jobs.sources.tasks import make_record_batch
from spark_jobs.sources.ums_layout import UmsLayout, layout_of
from spark_jobs.spark.causes import JavaCause, known_cause
from tests.support.materializer import Bench
from tests.unit.spark_jobs.sources.support import envelope_schema, member, message, records
from worker.converters.json_form.read import read_schema

NUMBERED = [
    member("db", "string"),
    member("table", "string"),
    member("ums_id", "int64"),
    member("logical_db", "string"),
    member("logical_table", "string"),
    member("database_partition", "int64"),
    member("table_partition", "int64"),
]
COLUMNS = [{"type": "int64", "optional": False, "field": "id"}, member("v", "string")]
SCHEMA = envelope_schema(COLUMNS, NUMBERED)
KEY = {"type": "struct", "optional": False, "fields": [COLUMNS[0], member("__dbz__physicalTableIdentifier", "string")]}
TABLE = TableSchema("shop.orders", (Column("id", t.LongType(), nullable=False, key=True), Column("v", t.StringType())))
ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 5), st.text("abc", max_size=2)), max_size=20
)
REFUSED = r"several shards: .* 1\.2, and now 1\.3\. .*sink\.shards=separate.*sink\.shards=merge"


def source(database: int, table: int, number: int = 0) -> dict[str, Any]:
    return {
        "db": f"shop_{database}",
        "table": f"orders_{table}",
        "ums_id": number,
        "logical_db": "shop",
        "logical_table": "orders",
        "database_partition": database,
        "table_partition": table,
    }


def event(database: int, table: int, row: dict[str, Any], *, op: str = "c") -> dict[str, Any]:
    side = "before" if op == "d" else "after"
    return {"before": None, "after": None, side: row, "op": op, "source": source(database, table)}


def enveloped_key(number: int, shard: str) -> bytes:
    return json.dumps({"schema": KEY, "payload": {"id": number, "__dbz__physicalTableIdentifier": shard}}).encode()


def fail(*bad: Any) -> None:
    raise AssertionError(bad)


def decoded(plan: DecodePlan, values: list[bytes]) -> list[dict[str, Any]]:
    return [row for batch in TableDecoder(plan, fail).decode(records(values)) for row in batch.to_pylist()]


def look(value: dict[str, Any], key: bytes | None = None) -> KnownKind:
    return look_json(make_record_batch("t", key, message(SCHEMA, value)), Rules())


def ums_message(database: Any, table: Any, rows: list[tuple[int, str]]) -> bytes:
    fields = [*forms.SYSTEM_FIELDS, forms.make_field("id", "long"), forms.make_field("v", "string")]
    tuples = [["5", "2026-01-01 00:00:00", "i", "u", str(number), text] for number, text in rows]
    return json.dumps(
        forms.make_message(forms.INCREMENT, f"mysql.i.shop.orders.3.{database}.{table}", fields, tuples)
    ).encode()


def ums_layouts(values: list[bytes], report: Any = fail, *, numbers: bool = False) -> dict[bytes, UmsLayout]:
    counts: dict[tuple[str, bytes], int] = {}
    ums.count_messages(records(values), counts, report, numbers=numbers)
    return {schema: layout_of(schema) for _, schema in counts}


# Names, numbers, columns.


def test_a_shard_has_the_logical_tables_name() -> None:
    assert namespace_of(source(1, 2), "t") == "shop.orders"
    assert namespace_of({"db": "shop", "table": "orders"}, "t") == "shop.orders"
    assert shards.shard_of({"db": "shop"}) == (0, 0)
    assert shards.logical_namespace("mysql.i.shop.orders.3.1.2") == "mysql.i.shop.orders.3.0.0"
    with pytest.raises(Skippable, match="whole numbers"):
        shards.shard_of({"database_partition": "1", "table_partition": 2})


def test_numbers_are_first_in_the_key_and_no_key_by_themselves() -> None:
    numbered = shards.with_numbers(TABLE)
    assert [column.name for column in numbered.key] == ["database_partition", "table_partition", "id"]
    keyless = shards.with_numbers(TableSchema("shop.orders", (Column("v", t.StringType()),)))
    assert keyless.key == ()
    assert [column.name for column in keyless.columns] == ["database_partition", "table_partition", "v"]
    assert numbered.key_with_shard(["v"]) == ("database_partition", "table_partition", "v")
    assert TABLE.key_with_shard(["v"]) == ("v",)


@pytest.mark.parametrize("name", ["table_partition", "Database_Partition"])
def test_a_column_with_the_name_of_a_number_is_an_error(name: str) -> None:
    with pytest.raises(Fatal, match=f"column {name}, .*Rename it"):
        shards.with_numbers(TableSchema("shop.orders", (*TABLE.columns, Column(name, t.LongType()))))


def test_the_value_can_not_change_the_keys_of_written_tables() -> None:
    shards.check_mode("refuse", "merge", ["a.b"], "f")
    shards.check_mode(None, "separate", [], "f")
    for kept, mode in (("separate", "merge"), (None, "separate"), ("merge", "separate")):
        with pytest.raises(Fatal, match=r"another name"):
            shards.check_mode(kept, mode, ["a.b"], "f")


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"source.format": "plain", "sink.shards": "separate"}, "don't name their shard"),
        ({"sink.shards": "separate", "sink.console.content": "records"}, "content=rows"),
        ({"sink.shards": "some"}, "refuse, separate, merge"),
    ],
)
def test_complaints(more: dict[str, str], complaint: str) -> None:
    minimal = {
        "name": "j",
        "kafka.bootstrap.servers": "b:1",
        "source.topics": "t",
        "source.format": "debezium",
        "sink.type": "console",
    }
    problems = [problem for problem in job_config.check_job(minimal | more)[1] if complaint in problem.message]
    assert [problem.name for problem in problems] == ["sink.shards"]
    assert job_config.check_job(minimal | {"sink.shards": "separate"})[1] == []


def test_a_key_of_the_sinks_option_begins_with_the_numbers() -> None:
    options = jdbc_config.parse_settings(
        jdbc_config.CONFIG_DEF.parse(
            {
                "sink.jdbc.url": "jdbc:postgresql://h/d",
                "sink.jdbc.user": "u",
                "sink.jdbc.password": "p",
                "sink.jdbc.key.columns": "v",
            }
        )
    )
    keyless = TableSchema("shop.orders", tuple(Column(column.name, column.type) for column in TABLE.columns))
    columns = jdbc_columns(options, load_dialect("postgresql"), shards.with_numbers(keyless))
    assert columns.keys == ("database_partition", "table_partition", "v")
    assert jdbc_columns(options, load_dialect("postgresql"), keyless).keys == ("v",)


def test_a_directory_of_files_names_the_rows_own_shard() -> None:
    layout = file_layout.parse_layout("{table}/{database_partition}-{table_partition}/date")
    assert layout.by_shard
    assert not file_layout.parse_layout("namespace/date").by_shard
    assert layout.directory("mysql.i.shop.orders.3.0.0", (4, 5)) == "orders/4-5"
    assert layout.directory("shop.orders", (4, 5)) == "orders/4-5"
    assert layout.directory("mysql.i.shop.orders.3.1.2") == "orders/1-2"


# UMS.


@given(ROWS)
def test_every_ums_row_has_its_own_numbers(rows: list[tuple[int, int, int, str]]) -> None:
    values = [ums_message(database, table, [(number, text)]) for database, table, number, text in rows]
    layouts = ums_layouts(values, numbers=True)
    assert len(layouts) == len({row[:2] for row in rows})
    decoder = ums.UmsDecoder(shards.with_numbers(TABLE), layouts, before=False, report=fail)
    decoded_rows = [row for batch in decoder.decode(records(values)) for row in batch.to_pylist()]
    assert [(row["database_partition"], row["table_partition"], row["id"], row["v"]) for row in decoded_rows] == rows


def test_ums_parts_that_are_no_numbers_are_bad_only_where_they_become_columns() -> None:
    values = [ums_message("a", 0, [(1, "x")])]
    bad: list[Any] = []
    assert len(ums_layouts(values)) == 1
    assert ums_layouts(values, lambda *record: bad.append(record[-1]), numbers=True) == {}
    assert "no whole numbers" in str(bad[0])


def test_a_second_shard_of_ums_is_refused_and_a_single_one_is_not() -> None:
    first, second = (layout.shard for layout in ums_layouts([ums_message(1, 2, []), ums_message(1, 3, [])]).values())
    assert shards.check_one("shop.orders", None, {first}) == ("1", "2")
    assert shards.check_one("shop.orders", first, {first}) == ("1", "2")
    for known_shard, seen in ((None, {first, second}), (first, {second})):
        with pytest.raises(Fatal, match=REFUSED):
            shards.check_one("shop.orders", known_shard, seen)


def test_what_java_raises_about_shards_is_fatal() -> None:
    text = f"[USER_RAISED_EXCEPTION] {shards.second_shard('shop.orders', (1, 2), (1, 3))} SQLSTATE: P0001"
    cause = known_cause([JavaCause("org.apache.spark.SparkRuntimeException", text)], "")
    assert isinstance(cause, Fatal)
    assert "sink.shards=separate" in str(cause)


# Debezium.


def test_a_sharded_envelope_is_known_by_its_logical_name_and_the_keys_of_its_row() -> None:
    sighting = look(event(1, 2, {"id": 1, "v": "x"}), enveloped_key(1, "shop_1.orders_2"))
    assert (sighting.namespace, sighting.keys, sighting.shard) == ("shop.orders", ("id",), (1, 2))
    plain = envelope_schema(COLUMNS, NUMBERED[:3])
    layout = envelope_layout(read_schema(plain, replace_null=True), read_schema(KEY, replace_null=True))
    assert layout.key_names == ("id", "__dbz__physicalTableIdentifier"), "as before for tables that are not sharded"


@given(ROWS)
def test_every_debezium_row_has_its_own_numbers(rows: list[tuple[int, int, int, str]]) -> None:
    sighting = look(event(0, 0, {"id": 1, "v": "x"}), enveloped_key(1, "t"))
    assert sighting.layout is not None
    for text, values in (
        (
            sighting.text,
            [
                message(SCHEMA, event(database, table, {"id": key, "v": v}, op="cd"[key % 2]))
                for database, table, key, v in rows
            ],
        ),
        (b"", [json.dumps(event(database, table, {"id": key, "v": v})).encode() for database, table, key, v in rows]),
    ):
        decoded_rows = decoded(DecodePlan(TABLE, {text: sighting.layout}, separate=True), values)
        assert [
            (row["database_partition"], row["table_partition"], row["id"], row["v"]) for row in decoded_rows
        ] == rows
        for shard_row in rows:  # with refuse each shard alone is fine, and two are not
            plan = DecodePlan(TABLE, {text: sighting.layout}, shard=shard_row[:2])
            if len({row[:2] for row in rows}) == 1:
                assert [(row["id"], row["v"]) for row in decoded(plan, values)] == [row[2:] for row in rows]
            else:
                with pytest.raises(Fatal, match="several shards"):
                    decoded(plan, values)


def test_json_without_a_schema_shows_shards_and_the_rows_key() -> None:
    def search(*pairs: tuple[int, int]) -> TableSighting:
        table_search = Search({}, Rules(), fail)
        values = [json.dumps(event(database, table, {"id": 1, "v": "x"})).encode() for database, table in pairs]
        table_search.look(
            records(values, [b'{"__dbz__physicalTableIdentifier": "shop_1.orders_2", "id": 1}'] * len(pairs))
        )
        (sighting,) = table_search.result().to_pylist()
        return TableSighting.from_row(sighting)

    first, second = search((1, 2), (1, 2)), search((1, 2), (1, 3), (4, 5))
    assert (first.namespace, first.keys, set(first.types)) == ("shop.orders", ("id",), {"id", "v"})
    assert first.shards == {(1, 2)}
    assert second.shards == {(1, 2), (1, 3)}
    assert first.joined(second).shards == second.shards


# The materializer.


@pytest.mark.parametrize("form", ["debezium", "ums"])
def test_the_materializer_refuses_separates_and_merges(form: str) -> None:
    def run(mode: Any, *changes: tuple[int, int, int, str], key: str = '{"id": %d}') -> Bench:
        bench = Bench(
            input_format=form, shards=mode, tombstones_on_delete=False, key_columns=("id",) if form == "ums" else ()
        )
        for offset, (database, table, number, text) in enumerate(changes):
            value = (
                ums_message(database, table, [(number, text)])
                if form == "ums"
                else json.dumps(event(database, table, {"id": number, "v": text})).encode()
            )
            bench.apply(InputRecord((key % number).encode(), value, offset, 0))
        return bench

    rows = [(0, 0, 1, "a"), (0, 1, 1, "b"), (2, 1, 1, "c")]
    assert len(run("refuse", rows[0]).rows) == 1
    with pytest.raises(Fatal, match=r"shop\.orders is sharded: .* 0\.1\. .*sink\.shards=separate.*sink\.shards=merge"):
        run("refuse", *rows)
    separate = run("separate", *rows, key='{"__dbz__physicalTableIdentifier": "s", "id": %d}')
    assert {json.loads(key)["id"] for key in separate.rows} == {1}
    assert (
        sorted(
            (row["database_partition"], row["table_partition"], row["id"], row["v"]) for row in separate.rows.values()
        )
        == rows
    )
    assert {(event["source"]["keyspace"], event["source"]["table"]) for event in separate.events} == {
        ("shop", "orders")
    }
    merged = run("merge", *rows)
    assert merged.rows == {b'{"id":1}': {"id": 1, "v": "c"}}
    if form == "debezium":
        with pytest.raises(Fatal, match=r"topic\.key\.enforce\.uniqueness=false"):
            run("merge", *rows, key='{"__dbz__physicalTableIdentifier": "s", "id": %d}')


@pytest.mark.parametrize(("before", "behind"), [("merge", "separate"), ("separate", "merge")])
def test_the_materializers_state_keeps_its_key(before: str, behind: str) -> None:
    bench = Bench(input_format="ums", key_columns=("id",), shards=before)
    bench.apply(InputRecord(b"", ums_message(1, 2, [(1, "a")]), 0, 0))
    changed = Bench(input_format="ums", key_columns=("id",), shards=behind)
    changed.store = bench.store
    with pytest.raises(Fatal, match=r"sink\.shards was changed .*Set it back"):
        changed.apply(InputRecord(b"", ums_message(1, 2, [(1, "b")]), 1, 0))
