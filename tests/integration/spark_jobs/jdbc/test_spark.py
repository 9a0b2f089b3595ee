"""The whole way on a Spark session: projection, spread over connections, tasks, reports."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import decimal
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as t

from connectors.errors import Fatal
from spark_jobs.contract import Column, TableChanges, TableSchema
from tests.integration.spark_jobs.jdbc.conftest import simple
from tests.integration.spark_jobs.jdbc.test_modes import CHANGES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.integration.spark_jobs.jdbc.conftest import Database, Rig

TYPES: list[tuple[str, Any, Any]] = [
    ("byte", t.ByteType(), -128),
    ("short", t.ShortType(), 32767),
    ("int", t.IntegerType(), -(2**31)),
    ("long", t.LongType(), 2**63 - 1),
    ("float", t.FloatType(), 0.1),
    ("double", t.DoubleType(), 1.7976931348623157e308),
    ("bool", t.BooleanType(), True),
    ("text", t.StringType(), "tab\t nl\n cr\r bs\\ q' dq\" \\N \\. ü 😀 `"),
    ("blob", t.BinaryType(), bytes(range(256))),
    ("day", t.DateType(), date(2024, 2, 29)),
    ("at", t.TimestampType(), datetime(2026, 11, 21, 10, 11, 12, 123456, UTC)),
    ("local", t.TimestampNTZType(), datetime(1999, 12, 31, 23, 59, 59, 1)),  # noqa: DTZ001 - this type has none
    ("price", t.DecimalType(38, 10), decimal.Decimal("1234567890123456789012345678.0000000001")),
    ("tiny", t.DecimalType(12, 10), decimal.Decimal("0.0000000001")),
    ("list", t.ArrayType(t.IntegerType()), [1, None, 3]),
    ("map", t.MapType(t.StringType(), t.StringType()), {"a": "b'\\"}),
    (
        "struct",
        t.StructType([t.StructField("x", t.IntegerType()), t.StructField("y", t.StringType())]),
        {"x": 1, "y": None},
    ),
    ("empty", t.StringType(), ""),
    ("no_bytes", t.BinaryType(), b""),
    ('a "quoted" `name` ü. x', t.IntegerType(), 5),
    ("x" * 70, t.IntegerType(), 6),
]


def test_values_of_all_types_arrive_whole(
    rig: Callable[..., Rig], db: Database, table: str, spark: SparkSession
) -> None:
    schema = TableSchema(
        f"shop.{table}",
        (Column("id", t.StringType(), nullable=False, key=True), *(Column(name, kind) for name, kind, _ in TYPES)),
    )
    job = rig(db, spark)
    full = {name: value for name, _, value in TYPES}
    rows = [{"id": "é key' \\", **full, "ums_id_": 1}, {"id": "nulls", "ums_id_": 2}]
    structure = t.StructType(
        [
            t.StructField("id", t.StringType()),
            *(t.StructField(name, kind) for name, kind, _ in TYPES),
            t.StructField("ums_id_", t.LongType()),
        ]
    )
    frame = spark.createDataFrame(
        [tuple(row.get(field.name) for field in structure) for row in rows], structure
    ).selectExpr(
        "*",
        "timestamp'2026-01-01 00:00:00' ums_ts_",
        "'i' ums_op_",
        "'u' ums_uid_",
        "'topic' kafka_topic_",
        "0 kafka_partition_",
        "ums_id_ kafka_offset_",
    )
    assert job.sink.write(job.batch(TableChanges(schema, frame))) == 2
    assert job.sink.write(job.batch(TableChanges(schema, frame))) == 2  # found as it was made: nothing to change
    names = [name for name, *_ in TYPES[:-1]] + [_long(db, table)]
    stored = db.query(f"SELECT {', '.join(map(db.quote, names))} FROM {db.quote(table)} ORDER BY ums_id_")
    assert stored[1] == (None,) * len(TYPES)
    for (name, kind, value), got in zip(TYPES, stored[0], strict=True):
        assert _plain(got, name) == _expected(value, kind, db.name, name), name
    assert sorted(row[0] for row in db.query(f"SELECT id FROM {db.quote(table)}")) == ["nulls", "é key' \\"]


def test_keys_of_maps_are_written_as_values_are(
    rig: Callable[..., Rig], postgresql: Database, table: str, spark: SparkSession
) -> None:
    kind = t.MapType(t.BinaryType(), t.MapType(t.DateType(), t.IntegerType()))
    schema = TableSchema(f"shop.{table}", (Column("id", kind, nullable=False, key=True), Column("m", kind)))
    rows = [{"id": [(key, [])], "m": [(b"\xff", [(1, 5)])], "ums_id_": 1} for key in (b"\x00", b"\x01")]
    job = rig(postgresql, spark)
    for _ in range(2):
        job.write(schema, rows)
    assert postgresql.rows(table, "id, m") == [({key: {}}, {"/w==": {"1970-01-02": 5}}) for key in ("AA==", "AQ==")]


def _long(db: Database, table: str) -> str:
    (name,) = [name for name in db.columns(table) if name.startswith("xxxxx")]
    assert len(name) == {"postgresql": 63, "sqlite": 70}.get(db.name, 64)
    return name


def _plain(value: Any, name: str) -> Any:
    import json

    if name in ("list", "map", "struct"):
        return json.loads(value) if isinstance(value, str) else value
    return value


def _expected(value: Any, kind: Any, dialect: str, name: str) -> Any:
    if dialect == "sqlite":  # of times, and numbers of more than 15 digits, it has text
        if isinstance(value, datetime):
            return f"{value.replace(tzinfo=None)}"
        if isinstance(value, decimal.Decimal) and name == "tiny":
            return float(value)
        if isinstance(value, date | decimal.Decimal):
            return str(value)
    if isinstance(kind, t.FloatType):
        return pytest.approx(value, rel=1e-6)
    if isinstance(value, datetime) and value.tzinfo is not None and dialect != "postgresql":
        return value.replace(tzinfo=None)
    return value


def test_batches_of_several_tables_replays_and_repartitioning(
    rig: Callable[..., Rig], postgresql: Database, table: str, spark: SparkSession
) -> None:
    job = rig(postgresql, spark, **{"sink.jdbc.connections": "2", "sink.jdbc.parallel.tables": "2"})
    tables = [job.changes(simple(f"{table}_{number}"), CHANGES) for number in range(2)]
    assert job.sink.write(job.batch(*tables)) == 6
    assert job.sink.write(job.batch(*tables)) == 6
    for number in range(2):
        assert postgresql.rows(f"{table}_{number}", "id, name, ums_id_, ums_active_") == [
            (1, "a2", 13, 1),
            (2, "b", 14, 0),
            (3, "back", 16, 1),
        ]
    assert job.sink.context.metrics["jdbc_loaded_total"] == 12
    second_job = rig(postgresql, spark, **{"sink.jdbc.mode": "insert"})
    assert second_job.write(simple(f"{table}_log"), CHANGES) == len(CHANGES)
    assert second_job.write(simple(f"{table}_log"), CHANGES) == 0


def test_a_refused_row_stops_the_job_with_its_position_and_without_its_values(
    rig: Callable[..., Rig], maria: Database, table: str, spark: SparkSession
) -> None:
    maria.query(
        f"CREATE TABLE {maria.quote(table)} (id int PRIMARY KEY, name varchar(5), amount double, ums_id_ bigint, "
        "ums_ts_ datetime(6), ums_op_ char(1), ums_active_ tinyint)"
    )
    rows = [{"id": n, "name": "ok" if n != 77 else "too long a secret", "ums_id_": n} for n in range(200)]
    job = rig(maria, spark)
    said = rf"{table} .* refuses the row of topic-0 offset 77 with id=77: .*name.*errors\.tolerance"
    with pytest.raises(Fatal, match=said) as no:
        job.write(simple(table), rows)
    assert "secret" not in str(no.value)
    assert maria.login.password not in str(no.value).replace("as millrace", "").replace("/millrace", "")
    assert (77,) not in maria.query(f"SELECT id FROM {maria.quote(table)}")
