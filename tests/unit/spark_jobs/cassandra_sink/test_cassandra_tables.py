"""Tables, cells and groups of the Cassandra sink."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    TimestampType,
)

from spark_jobs.contract import Column, TableSchema
from spark_jobs.sinks.cassandra import tables
from spark_jobs.sinks.cassandra.client import CassandraCall, CassandraCells, CassandraMisfit, groups_of
from spark_jobs.sinks.cassandra.config import CONFIG_DEF, CassandraSinkSettings, check_options, parse_settings
from spark_jobs.sinks.cassandra.tables import CassandraTable
from spark_jobs.sinks.cassandra.types import can_hold, cell_of
from spark_jobs.sinks.shared.model import SinkRow
from spark_jobs.sources.declared import declared_tables
from spark_jobs.testing.kit import parse_config

UNSET = object()
SCHEMA = TableSchema(
    "shop.orders",
    (
        Column("customer", IntegerType(), nullable=False, key=True),
        Column("number", LongType(), nullable=False, key=True),
        Column("note", StringType()),
        Column("price", DoubleType()),
    ),
)


def chosen(**options: str) -> CassandraSinkSettings:
    return parse_settings(parsed(**options))


def parsed(**options: str) -> Any:
    named = {f"sink.cassandra.{name.replace('_', '.')}": value for name, value in options.items()}
    return CONFIG_DEF.parse({"sink.cassandra.hosts": "a:1,b", **named})


def row(op: str = "u", order: int = 7, **values: Any) -> SinkRow:
    full = {column.name: values.get(column.name) for column in SCHEMA.columns}
    return SinkRow(full, order, datetime(2026, 1, 1, tzinfo=UTC), op, "", "topic", 0, 5, 0)


def existing(settings_: CassandraSinkSettings) -> CassandraTable:
    partition, clustering = tables.key_columns(settings_, SCHEMA)
    return CassandraTable(tables.wanted_types(settings_, SCHEMA), partition, clustering)


def cells(lacking: frozenset[str] = frozenset(), **options: str) -> CassandraCells:
    options_ = chosen(**options)
    return CassandraCells(options_, tables.target_of(options_, SCHEMA, existing(options_), lacking), UNSET)


def test_create_table() -> None:
    assert tables.create_table(chosen(partition_columns="customer"), SCHEMA) == (
        'CREATE TABLE IF NOT EXISTS "shop"."orders" ("customer" int, "number" bigint, "note" text, "price" double, '
        '"ums_id_" bigint, "ums_ts_" timestamp, "ums_op_" text, PRIMARY KEY (("customer"), "number")) '
        "WITH gc_grace_seconds = 604800"
    )
    assert 'PRIMARY KEY (("customer", "number"), "ums_id_", "ums_op_", "ums_uid_")' in tables.create_table(
        chosen(mode="insert"), SCHEMA
    )


def test_names_are_usable_and_differ() -> None:
    assert tables.usable_name("Orders_1") == "Orders_1"
    first, second = tables.usable_name("a.b"), tables.usable_name("a-b")
    assert first != second
    assert len(tables.usable_name("x" * 300)) == 48


def test_tables_that_do_not_fit() -> None:
    options = chosen()
    present = existing(options)
    assert tables.find_misfits(options, SCHEMA, present) == []
    assert (
        "its primary key is (customer)"
        in tables.find_misfits(options, SCHEMA, replace(present, partition=("customer",), clustering=()))[0]
    )
    narrow = replace(present, types={**present.types, "number": "int"})
    assert (
        "column number has the type int, which does not hold bigint" in tables.find_misfits(options, SCHEMA, narrow)[0]
    )
    counter = replace(present, types={**present.types, "price": "counter"})
    assert "column price is a counter" in tables.find_misfits(options, SCHEMA, counter)[0]


def test_null_is_a_null_and_an_absent_column_stays() -> None:
    call = cells(frozenset({"price"})).call(row(customer=1, number=2))
    assert call.values[2:4] == [None, UNSET]
    assert call.values[-1] == (7).to_bytes(8, "big")
    assert call.key == b"\0\x04\0\0\0\x01\0" + b"\0\x08" + (2).to_bytes(8, "big") + b"\0"


def test_deletes_have_the_time_and_the_key() -> None:
    call = cells(timestamp_offset="100").call(row("d", customer=1, number=2))
    assert call.deleted
    assert call.values == [(107).to_bytes(8, "big"), (1).to_bytes(4, "big"), (2).to_bytes(8, "big")]
    soft = cells(delete_mode="soft").call(row("d", customer=1, number=2))
    assert not soft.deleted
    assert soft.values[2:4] == [UNSET, UNSET]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"number": 1}, "the column customer is null"),
        ({"customer": 2**40, "number": 1}, "the value of the column customer does not fit its type int"),
        ({"customer": 1, "number": 1, "price": -1.0}, "the column price has -1.0; a row lives 0"),
    ],
)
def test_rows_that_can_not_be_written(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(CassandraMisfit, match=reason):
        cells(ttl_column="price").call(row(**values))


def test_times_are_cut_to_milliseconds_downwards() -> None:
    before = datetime(1969, 12, 31, 23, 59, 59, 999_500, UTC)
    assert cell_of("timestamp", "timestamp")(before) == (-1).to_bytes(8, "big", signed=True)
    assert cell_of("bigint", "timestamp")(before) == (-500).to_bytes(8, "big", signed=True)
    assert cell_of("date", "date")(date(1970, 1, 2)) == (0x80000001).to_bytes(4, "big")


def test_a_key_with_microseconds_is_refused() -> None:
    """Two rows would become one."""
    key = Column("at", TimestampType(), nullable=False, key=True)
    schema = TableSchema("shop.events", (key, Column("seen", TimestampType())))
    settings = chosen()
    table = CassandraTable(tables.wanted_types(settings, schema), ("at",), ())

    def call(at: datetime, /, **types: str) -> CassandraCall:
        target = tables.target_of(settings, schema, replace(table, types={**table.types, **types}), frozenset())
        values = {"at": at, "seen": at}
        moment = SinkRow(values, 7, datetime(2026, 1, 1, tzinfo=UTC), "u", "", "topic", 0, 5, 0)
        return CassandraCells(settings, target, UNSET).call(moment)

    whole = datetime(2026, 1, 1, 0, 0, 0, 1000, UTC)
    call(whole)
    with pytest.raises(CassandraMisfit, match="the column at belongs to the key, and the type timestamp has no micro"):
        call(whole.replace(microsecond=1001))
    call(whole.replace(microsecond=1001), at="bigint")


def test_which_types_hold_which() -> None:
    number, moment = Column("n", LongType()), Column("t", TimestampType())
    assert [kind for kind in ("int", "bigint", "varint", "text", "blob", "uuid") if can_hold(kind, number)] == [
        "bigint",
        "varint",
        "text",
    ]
    assert [kind for kind in ("timestamp", "bigint", "int", "date") if can_hold(kind, moment)] == [
        "timestamp",
        "bigint",
    ]


@pytest.mark.parametrize(
    ("present", "kind", "fits"),
    [
        ("list<float>", ArrayType(FloatType()), True),
        ("list<float>", ArrayType(DoubleType()), False),
        ("frozen<list<list<float>>>", ArrayType(ArrayType(DoubleType())), False),
        ("map<text, float>", MapType(StringType(), DoubleType()), False),
        ("set<double>", ArrayType(IntegerType()), True),
        ("set<double>", ArrayType(LongType()), False),
        ("list<boolean>", ArrayType(StringType()), False),
        ("list<int>", ArrayType(LongType()), True),  # the encoder refuses single ones
        ("list<text>", ArrayType(LongType()), True),
    ],
)
def test_collections_that_would_change_their_elements(present: str, kind: DataType, fits: bool) -> None:
    assert can_hold(present, Column("c", kind)) is fits


def test_a_varint_of_a_string_has_no_fraction() -> None:
    encode = cell_of("varint", "string")
    assert encode("1E2") == b"\x64"
    with pytest.raises(ValueError, match="has no fraction"):
        encode("1.5")


def test_groups_are_of_one_node_and_bounded() -> None:
    calls = [CassandraCall(row(), False, [], bytes([number % 2]), 10) for number in range(10)]
    groups = groups_of(calls, lambda key: key, 25)
    assert all(len({call.key for call in group}) == 1 and len(group) <= 2 for group in groups)
    assert sum(len(group) for group in groups) == 10
    assert [len(group) for group in groups_of(calls, lambda _: None, 0)] == [1] * 10


def test_options_that_do_not_go_together() -> None:
    problems = check_options(parsed(key_columns="a", partition_columns="b", mode="insert", delete_mode="soft"))
    assert [problem.partition(":")[0] for problem in problems] == [
        "sink.cassandra.partition.columns",
        "sink.cassandra.delete.mode",
    ]


def test_tables_that_options_declare() -> None:
    job = {
        "name": "declared",
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "source.topics": "orders",
        "source.format": "plain",
        "source.key.columns": "number,customer",
        "source.table.columns": "customer int, note varchar(20), number long, tags array<string>, `p q`: decimal(10, 2)",
        "source.table.columns.lines": "line int",
        "source.key.columns.lines": "line",
        "sink.type": "console",
    }
    orders, lines = declared_tables(parse_config(job))
    assert [(column.name, column.key) for column in orders.columns] == [
        ("number", True),
        ("customer", True),
        ("note", False),
        ("p q", False),
    ]
    assert [column.type.simpleString() for column in orders.columns] == ["bigint", "int", "string", "decimal(38,2)"]
    assert (lines.namespace, [column.name for column in lines.key]) == ("lines", ["line"])
    steps = {
        "transform.steps": "few",
        "transform.step.few.type": "filter",
        "transform.step.few.condition": "number > 1",
    }
    assert declared_tables(parse_config({**job, **steps})) == []
