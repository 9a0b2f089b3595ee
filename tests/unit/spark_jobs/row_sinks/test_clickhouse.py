"""The ClickHouse sink without a server: types, engines, and the meaning of errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types

from connectors.errors import Fatal, Retriable
from spark_jobs.sinks.clickhouse.answers import code_of, error_of
from spark_jobs.sinks.clickhouse.client import ClickHouseClient, find_lost_nulls, write_stream
from spark_jobs.sinks.clickhouse.columns import (
    POSITION,
    ClickHouseColumn,
    can_hold,
    engine_of,
    engine_problem,
    join_types,
    quote_name,
    type_of,
)
from spark_jobs.sinks.clickhouse.config import CONFIG_DEF, ClickHouseSettings, parse_settings
from spark_jobs.sinks.shared.http_requests import HttpAnswer
from spark_jobs.sinks.shared.model import RowTable, SinkRow


def chosen(**options: str) -> ClickHouseSettings:
    named = {f"sink.clickhouse.{name.replace('_', '.')}": text for name, text in options.items()}
    return parse_settings(CONFIG_DEF.parse({"sink.clickhouse.url": "http://127.0.0.1:8123", **named}))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (types.ShortType(), "Nullable(Int16)"),
        (types.DecimalType(12, 3), "Nullable(Decimal(12, 3))"),
        (types.TimestampNTZType(), "Nullable(DateTime64(6, 'UTC'))"),
        (types.BinaryType(), "Nullable(String)"),
        (types.ArrayType(types.ArrayType(types.DateType())), "Array(Array(Nullable(Date32)))"),
        (types.MapType(types.StringType(), types.LongType()), "Map(String, Nullable(Int64))"),
        (types.StructType([types.StructField("a`b", types.BooleanType())]), "Tuple(`a\\`b` Nullable(Bool))"),
    ],
)
def test_types(kind: types.DataType, name: str) -> None:
    assert type_of(kind) == name


@pytest.mark.parametrize(
    ("needed", "present", "wider"),
    [
        ("Nullable(Int64)", "Nullable(Int32)", "Nullable(Int64)"),
        ("Nullable(Float64)", "Float32", "Nullable(Float64)"),
        ("Nullable(Float64)", "Nullable(Int32)", "Nullable(Float64)"),
        ("Nullable(Decimal(12, 2))", "Nullable(Decimal(10, 2))", "Nullable(Decimal(12, 2))"),
        ("Nullable(Decimal(12, 1))", "Nullable(Decimal(12, 2))", "Nullable(Decimal(13, 2))"),
        ("Nullable(Decimal(38, 4))", "Nullable(Decimal(38, 2))", "Nullable(Decimal(40, 4))"),
        ("Nullable(Decimal(38, 2))", "Nullable(Int32)", "Nullable(Decimal(38, 2))"),
        ("Nullable(Decimal(12, 2))", "Nullable(Int64)", "Nullable(Decimal(21, 2))"),
        ("Nullable(DateTime64(6, 'UTC'))", "Nullable(Date32)", "Nullable(DateTime64(6, 'UTC'))"),
        ("Array(Array(Nullable(Int64)))", "Array(Array(Nullable(Int32)))", "Array(Array(Nullable(Int64)))"),
        ("Map(String, Nullable(Int64))", "Map(String, Nullable(Int8))", "Map(String, Nullable(Int64))"),
        (
            "Tuple(`x` Nullable(Int64), `a,(\\`b` Map(String, Nullable(Decimal(4, 2))), `new` Nullable(String))",
            "Tuple(`a,(\\`b` Map(String, Nullable(Decimal(4, 1))), x Nullable(Int64))",
            "Tuple(`a,(\\`b` Map(String, Nullable(Decimal(5, 2))), `x` Nullable(Int64), `new` Nullable(String))",
        ),
    ],
)
def test_columns_that_grow(needed: str, present: str, wider: str) -> None:
    assert join_types(needed, present) == wider
    assert join_types(needed, wider) == wider


@pytest.mark.parametrize(
    ("needed", "present", "fits"),
    [
        ("Nullable(Int32)", "Int64", True),
        ("Nullable(Decimal(10, 2))", "Nullable(Decimal(12, 2))", True),
        ("Nullable(Decimal(20, 0))", "UInt64", True),
        ("Nullable(Float64)", "Nullable(Int64)", False),
        ("Nullable(String)", "LowCardinality(Nullable(String))", True),
        ("Nullable(String)", "UUID", True),
        ("Nullable(String)", "Int32", False),
        ("Nullable(Bool)", "Array(Bool)", False),
        ("Nullable(Date32)", "DateTime", True),
        ("UInt8", "UInt8", True),
        ("Tuple(`x` Nullable(Int32))", "Tuple(x Nullable(Int32))", True),
        ("Tuple(`x` Nullable(Int32))", "Tuple(Int32)", True),
    ],
)
def test_columns_that_stay(needed: str, present: str, fits: bool) -> None:
    assert join_types(needed, present) == present
    assert can_hold(needed, present) is fits


def test_engines() -> None:
    real, soft, append = chosen(), chosen(delete_mode="soft"), chosen(mode="insert")
    assert engine_of(real, ["a", "b"]) == "ReplacingMergeTree(ums_id_, ums_deleted_) ORDER BY (`a`, `b`)"
    assert engine_of(soft, ["a"]) == "ReplacingMergeTree(ums_id_) ORDER BY (`a`)"
    assert "`kafka_topic_`, `kafka_partition_`, `kafka_offset_`, `kafka_number_`, `source_table_`" in engine_of(
        append, ["a"]
    )
    columns = {"a": ClickHouseColumn("Int32", in_key=True), "b": ClickHouseColumn("Int32", in_key=False)}
    replicated = "ReplicatedReplacingMergeTree('/t', '{replica}', ums_id_, ums_deleted_) ORDER BY a"
    assert engine_problem(real, ["a"], replicated, columns) == ""
    assert "need ReplacingMergeTree(ums_id_)" in engine_problem(soft, ["a"], replicated, columns)
    assert "sorting key is (a)" in engine_problem(real, ["a", "b"], replicated, columns)
    assert "engine is MergeTree" in engine_problem(real, ["a"], "MergeTree ORDER BY a", columns)
    assert engine_problem(real, ["a"], "Distributed('c', 'd', 't')", columns) == ""
    position = {name: ClickHouseColumn("String", in_key=True) for name in POSITION}
    assert engine_problem(append, [], "ReplacingMergeTree ORDER BY (...)", columns | position) == ""
    for engine in ("MergeTree ORDER BY a", "ReplacingMergeTree(ums_id_, ums_deleted_) ORDER BY a"):
        assert "guarantee=exactly-once needs ReplacingMergeTree ORDER BY (kafka_topic_" in engine_problem(
            append, [], engine, columns
        )
        assert engine_problem(replace(append, exactly_once=False), [], engine, columns) == ""


def test_names_are_quoted() -> None:
    assert quote_name("a`b\\c") == "`a\\`b\\\\c`"


@pytest.mark.parametrize(
    ("status", "content", "kind", "text"),
    [
        (500, b"Code: 252. DB::Exception: Too many parts", Retriable, "Too many parts"),
        (403, b"Code: 516. DB::Exception: Authentication failed", Fatal, "sink.clickhouse.password"),
        (500, b"Code: 497. DB::Exception: Not enough privileges", Fatal, "the right to do that"),
        (503, b"no backend", Retriable, "503: no backend"),
        (500, b"Code: 62. DB::Exception: Syntax error", Fatal, "Syntax error"),
    ],
)
def test_errors(status: int, content: bytes, kind: type[Exception], text: str) -> None:
    error = error_of(HttpAnswer(status, content, 0.0, {}), "ClickHouse node")
    assert type(error) is kind
    assert text in str(error)


def test_the_code_of_an_error() -> None:
    assert code_of(HttpAnswer(200, b"", 0.0, {})) == 0
    assert code_of(HttpAnswer(200, b"rows", 0.0, {"x-clickhouse-exception-code": "241"})) == 241
    assert code_of(HttpAnswer(502, b"proxy", 0.0, {})) == -1


def rows(keys: list[int | None]) -> pa.Table:
    count = len(keys)
    return pa.table(
        {
            "id": pa.array(keys, pa.int32()),
            "ums_id_": pa.array(range(count), pa.int64()),
            "ums_ts_": pa.array([None] * count, pa.timestamp("us", "UTC")),
            "ums_op_": ["d" if number % 2 else "u" for number in range(count)],
            "ums_uid_": ["x"] * count,
            "kafka_topic_": ["t"] * count,
            "kafka_partition_": pa.array([0] * count, pa.int32()),
            "kafka_offset_": pa.array(range(count), pa.int64()),
            "number_of_record_": pa.array([0] * count, pa.int32()),
        }
    )


class Server:
    """In place of a connection: refuses requests that have one of some keys."""

    where = "ClickHouse node"

    def __init__(self, bad: set[int]) -> None:
        self.bad = bad
        self.requests: list[tuple[str, pa.Table]] = []

    def exchange(self, _method: str, path: str, content: Any, _headers: Any) -> HttpAnswer:
        table = pa.ipc.open_stream(content).read_all()
        self.requests.append((path, table))
        if self.bad & set(table.column("id").to_pylist()):
            return HttpAnswer(500, b"Code: 469. DB::Exception: Constraint", 0.0, {})
        return HttpAnswer(200, b"", 0.0, {})


def test_bad_rows_are_found_by_halves() -> None:
    client, server = ClickHouseClient(chosen(), RowTable("shop.orders", ("id",), ("id",)), {}), Server({3, 8})
    client._requests = server  # type: ignore[assignment]
    refused: list[tuple[SinkRow, str]] = []
    done = client.write(rows([*range(10), None]), refused.extend)
    assert (done.rows, sorted(str(row.values["id"]) for row, _ in refused)) == (8, ["3", "8", "None"])
    stored = [number for _, table in server.requests for number in table.column("id").to_pylist()]
    assert set(stored) == set(range(10))
    _, whole = server.requests[0]
    assert whole.column_names == ["id", "ums_id_", "ums_ts_", "ums_op_", "ums_deleted_"]
    assert whole.column("ums_deleted_").to_pylist() == [number % 2 for number in range(10)]


def test_nulls_that_a_key_would_lose() -> None:
    kind = pa.struct([("a", pa.int32()), ("l", pa.list_(pa.struct([("b", pa.string())])))])
    values = [None, {"a": None, "l": [{"b": None}]}, {"a": 1, "l": None}, {"a": 1, "l": [None]}]
    mask = find_lost_nulls(pa.chunked_array([pa.array(values, kind)]))
    assert mask is not None
    assert mask.to_pylist() == [False, False, True, True]
    assert find_lost_nulls(pa.chunked_array([pa.array(values[:2], kind)])) is None
    assert find_lost_nulls(pa.chunked_array([pa.array([1, None])])) is None


def test_requests_with_the_same_rows_have_the_same_token() -> None:
    client, server = ClickHouseClient(chosen(mode="insert"), RowTable("shop.orders", ("id",), ()), {}), Server(set())
    client._requests = server  # type: ignore[assignment]
    for keys in ([1, 2], [1, 2], [1, 3]):
        client.write(rows(list(keys)), lambda _: None)
    paths = [path for path, _ in server.requests]
    assert paths[0] == paths[1] != paths[2]
    assert "insert_deduplication_token=" in paths[0]
    assert server.requests[0][1].column_names[-2:] == ["kafka_number_", "source_table_"]
    assert write_stream(rows([1])).size
