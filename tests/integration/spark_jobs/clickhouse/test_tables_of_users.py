"""Tables that a user made: the sink writes values as they are, or refuses them; ClickHouse itself would change them."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_type

from spark_jobs.contract import Column, SchemaRefused, TableSchema
from spark_jobs.sinks.clickhouse.client import ClickHouseClient
from spark_jobs.sinks.clickhouse.config import CONFIG_DEF, ClickHouseSettings, parse_settings
from spark_jobs.sinks.clickhouse.tables import fit_table
from spark_jobs.sinks.shared.model import RowTable
from spark_jobs.testing.kit import key_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.sinks.shared.model import SinkRow
    from tests.integration.spark_jobs.clickhouse.conftest import Server

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Write = Callable[[str, t.DataType, "Sequence[Any]"], tuple[list[Any], list[str]]]


@pytest.fixture
def write(clickhouse: Server) -> Write:
    """Writes values into a column of a type; what the table has of them, and why others were refused."""

    def run(column: str, kind: t.DataType, values: Sequence[Any]) -> tuple[list[Any], list[str]]:
        name = f"t{secrets.token_hex(4)}"
        clickhouse.run(
            f"CREATE TABLE {name} (id Int32, v {column}, ums_id_ Int64, ums_deleted_ UInt8) "
            "ENGINE = ReplacingMergeTree(ums_id_, ums_deleted_) ORDER BY id"
        )
        chosen = settings_of(clickhouse)
        types = fit_table(chosen, TableSchema(name, (key_column("id", t.IntegerType()), Column("v", kind))))
        refused: list[tuple[SinkRow, str]] = []
        client = ClickHouseClient(chosen, RowTable(name, ("id", "v"), ("id",)), types)
        client.write(rows_of(kind, values), refused.extend)
        client.close()
        return (
            [row["v"] for row in clickhouse.rows(f"SELECT v FROM {name} FINAL ORDER BY id")],  # noqa: S608 - own names
            [reason for _, reason in refused],
        )

    return run


def settings_of(server: Server, **options: str) -> ClickHouseSettings:
    login = {"user": server.user, "password": server.password} if server.user else {}
    options = {"url": f"http://{server.host}:{server.port}", **login, **options}
    return parse_settings(CONFIG_DEF.parse({f"sink.clickhouse.{name}": text for name, text in options.items()}))


def rows_of(kind: t.DataType, values: Sequence[Any]) -> pa.Table:
    count = len(values)
    return pa.table(
        {
            "id": pa.array(range(count), pa.int32()),
            "v": pa.array(values, to_arrow_type(kind, timezone="UTC")),
            "ums_id_": pa.array(range(count), pa.int64()),
            "ums_ts_": pa.array([MOMENT] * count, pa.timestamp("us", "UTC")),
            "ums_op_": ["i"] * count,
            "ums_uid_": ["x"] * count,
            "kafka_topic_": ["t"] * count,
            "kafka_partition_": pa.array([0] * count, pa.int32()),
            "kafka_offset_": pa.array(range(count), pa.int64()),
            "number_of_record_": pa.array([0] * count, pa.int32()),
        }
    )


NUMBERS = t.StructType([t.StructField("x", t.IntegerType()), t.StructField("y", t.StringType())])


@pytest.mark.parametrize(
    ("column", "kind", "good", "bad"),
    [
        ("UInt8", t.ShortType(), [0, 255], [-1, 256]),
        ("UInt32", t.LongType(), [7, (1 << 32) - 1], [-1, 1 << 32]),
        ("Nullable(UInt64)", t.LongType(), [None, (1 << 63) - 1], [-1]),
        ("UInt256", t.ByteType(), [], [-128]),
        ("Bool", t.IntegerType(), [0, 1], [2]),
        ("Float32", t.IntegerType(), [1 << 24], [(1 << 24) + 1]),
        ("Float64", t.LongType(), [1 << 53], [-(1 << 53) - 1]),
        ("UInt64", t.DecimalType(20, 0), [Decimal((1 << 64) - 1)], [Decimal(-1)]),
        ("Array(UInt8)", t.ArrayType(t.IntegerType()), [[], [1, 255]], [[1, 256], [-1]]),
        ("Array(Array(UInt8))", t.ArrayType(t.ArrayType(t.IntegerType())), [[[1], []]], [[[], [1, 256]]]),
        ("Array(Float64)", t.ArrayType(t.DoubleType()), [[0.1]], [[0.1, None]]),
        ("Array(LowCardinality(String))", t.ArrayType(t.StringType()), [["a", "a"]], [["a", None]]),
        ("Map(String, Int32)", t.MapType(t.StringType(), t.IntegerType()), [{"a": 1}], [{"a": None}]),
        ("Tuple(x Int32, y String)", NUMBERS, [{"x": 1, "y": "a"}], [{"x": None, "y": "a"}]),
        ("Map(String, UInt8)", t.MapType(t.StringType(), t.IntegerType()), [{"a": 1}], [{"a": 1, "b": 256}]),
        ("Tuple(x UInt8, y String)", NUMBERS, [{"x": 1, "y": "a"}], [{"x": 256, "y": "a"}]),
        ("DateTime", t.TimestampType(), [], [MOMENT.replace(microsecond=1), MOMENT.replace(year=1969)]),
        ("DateTime('Europe/Berlin')", t.TimestampNTZType(), [], [datetime(2200, 1, 1)]),  # noqa: DTZ001 - it has none
        ("DateTime64(0)", t.TimestampType(), [MOMENT], [MOMENT.replace(microsecond=1)]),
        (
            "DateTime64(3, 'Asia/Tokyo')",
            t.TimestampType(),
            [MOMENT.replace(microsecond=123_000)],
            [MOMENT.replace(microsecond=123_456)],
        ),
        ("IPv6", t.StringType(), [], ["1.2.3.4.5"]),
    ],
)
def test_a_value_that_would_change_is_refused(
    write: Write, column: str, kind: t.DataType, good: list[Any], bad: list[Any]
) -> None:
    there, reasons = write(column, kind, [*good, *bad])
    assert there == good
    assert len(reasons) == len(bad)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("Enum8('a' = 1)", t.IntegerType()),
        ("UInt64", t.DecimalType(10, 2)),
        ("Int128", t.DecimalType(10, 2)),
        ("Bool", t.DecimalType(10, 2)),
        ("Decimal(76, 20)", t.DoubleType()),
        ("DateTime64(3)", t.StringType()),
        ("Array(UInt8)", t.ArrayType(t.DoubleType())),
        ("Map(String, Date)", t.MapType(t.StringType(), t.StringType())),
        ("Tuple(x Array(Enum8('a' = 1)))", t.StructType([t.StructField("x", t.ArrayType(t.IntegerType()))])),
    ],
)
def test_a_column_whose_values_would_change_is_refused(write: Write, column: str, kind: t.DataType) -> None:
    with pytest.raises(SchemaRefused, match=r"v is .* there, and its values need"):
        write(column, kind, [])


@pytest.mark.parametrize("computed", ["Int32 MATERIALIZED id + 1", "Int32 ALIAS id + 1"])
def test_a_column_that_the_table_computes_is_refused(write: Write, computed: str) -> None:
    with pytest.raises(SchemaRefused, match=r"v is computed there \((MATERIALIZED|ALIAS)\)"):
        write(computed, t.IntegerType(), [5])


@pytest.mark.parametrize("engine", ["MergeTree", "ReplacingMergeTree(ums_id_)"])
def test_a_history_in_a_table_that_would_not_keep_each_change_once_is_refused(clickhouse: Server, engine: str) -> None:
    name, kind = f"t{secrets.token_hex(4)}", t.IntegerType()
    clickhouse.run(f"CREATE TABLE {name} (id Int32, v Int32, ums_id_ Int64) ENGINE = {engine} ORDER BY id")
    schema = TableSchema(name, (key_column("id", kind), Column("v", kind)))
    chosen = settings_of(clickhouse, mode="insert")
    with pytest.raises(SchemaRefused, match=r"guarantee=exactly-once needs .* or set guarantee=at-least-once"):
        fit_table(chosen, schema)
    chosen = replace(chosen, exactly_once=False)
    client = ClickHouseClient(chosen, RowTable(name, ("id", "v"), ()), fit_table(chosen, schema))
    for _ in range(2):  # as a job that is killed repeats its batch
        client.write(rows_of(kind, [1, 2]), lambda _: None)
    client.close()
    count = 4 if engine == "MergeTree" else 2
    assert clickhouse.rows(f"SELECT count() AS n FROM {name}{' FINAL' if count == 2 else ''}") == [{"n": count}]  # noqa: S608
