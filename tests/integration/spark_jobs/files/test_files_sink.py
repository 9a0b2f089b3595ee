"""The files sink on a real session: exactly once, formats, schema changes, several tables, other file systems."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from connectors.errors import Fatal, Fenced
from spark_jobs import history
from spark_jobs.contract import Column, TableSchema
from tests.support.history_model import Change, Shape, batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.integration.spark_jobs.files.conftest import Sinks

ORDERS = Shape("shop.orders", "id", {"id": LongType(), "state": StringType()})


def inserts(first: int, after: int, **more: Any) -> list[Change]:
    return [
        Change(number, {"state": f"s{number}"}, "i", number, number, number, **more) for number in range(first, after)
    ]


def ids(spark: SparkSession, sinks: Sinks, table: str = "shop.orders") -> list[int]:
    return sorted(row.id for row in history.read(spark, str(sinks.path), table).select("id").collect())


def test_replayed_batches_and_a_lost_checkpoint_change_nothing(spark: SparkSession, sinks: Sinks) -> None:
    sink = sinks.make()
    assert sink.write(batch(spark, 0, [(ORDERS, inserts(0, 10))])) == 10
    assert sink.write(batch(spark, 1, [(ORDERS, inserts(10, 15))])) == 5
    assert sink.write(batch(spark, 1, [(ORDERS, inserts(10, 15))])) == 0, "the same batch again"
    assert sink.context.metrics["files_replays_total"] == 1
    # The checkpoint is lost: batch ids start again from 0 and batches end at other offsets.
    restarted = sinks.make()
    assert restarted.write(batch(spark, 0, [(ORDERS, inserts(0, 12))])) == 0
    assert restarted.write(batch(spark, 1, [(ORDERS, inserts(12, 20))])) == 5
    assert ids(spark, sinks) == list(range(20))


def test_offsets_of_a_recreated_topic_are_not_skipped_in_silence(spark: SparkSession, sinks: Sinks) -> None:
    sinks.make().write(batch(spark, 0, [(ORDERS, inserts(0, 10))]))
    other = [Change(number, {"state": "new"}, "i", number, number + 5000, number) for number in range(4)]
    with pytest.raises(Fatal, match=r"deleted and recreated.*sink\.files\.source\.id"):
        sinks.make().write(batch(spark, 0, [(ORDERS, other)]))
    assert sinks.make(source_id="second").write(batch(spark, 0, [(ORDERS, other)])) == 4
    assert len(ids(spark, sinks)) == 14


def test_an_older_run_of_the_job_is_fenced(spark: SparkSession, sinks: Sinks) -> None:
    old = sinks.make()
    old.write(batch(spark, 0, [(ORDERS, inserts(0, 3))]))
    new = sinks.make()
    new.write(batch(spark, 1, [(ORDERS, inserts(3, 6))]))
    with pytest.raises(Fenced, match="another run of job job"):
        old.write(batch(spark, 1, [(ORDERS, inserts(3, 7))]))
    with pytest.raises(Fenced):
        old.idle()
    assert ids(spark, sinks) == list(range(6))


NESTED = StructType([StructField("street", StringType()), StructField("lines", ArrayType(IntegerType()))])
EVERYTHING: dict[str, DataType] = {
    "id": IntegerType(),
    "text": StringType(),
    "amount": DecimalType(12, 3),
    "at": TimestampType(),
    "data": BinaryType(),
    "ratio": DoubleType(),
    "flag": BooleanType(),
    "address": NESTED,
    "tags": ArrayType(StringType()),
}


LAST_BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
#: ORC's library can't tell later ones from those a second after them.
LAST_OF_ORC = datetime(1969, 12, 31, 23, 59, 59, 999, tzinfo=UTC)


def awkward(seed: int) -> dict[str, Any]:
    dice = random.Random(seed)

    def pick(*values: Any) -> Any:
        return dice.choice((None, *values))

    return {
        "text": pick(
            "",
            " ",
            "a,b",
            'say "x"',
            "two\nlines",
            "cr\r\nlf",
            "back\\slash\\",
            "null",
            "ä€😀",
            "\t",
            "'",
            '"',
            "#c",
            "1",
        ),
        "amount": pick(Decimal("-1.500"), Decimal("0.001"), Decimal("999999999.999")),
        "at": pick(LAST_BEFORE_1970, datetime(2026, 3, 29, 1, 30, 0, 1, tzinfo=UTC)),
        "data": pick(b"", b"\x00\xff", b"abc"),
        "ratio": pick(0.1, -0.0, 1e300, float("inf")),
        "flag": pick(True, False),
        "address": pick({"street": 'a "b"\n', "lines": [1, None]}, {"street": None, "lines": []}),
        "tags": pick([], ["", None, "x,y"]),
    }


@pytest.mark.parametrize("kind", ["parquet", "orc", "json", "csv", "avro"])
def test_rows_come_back_as_they_were_also_after_the_table_grew(spark: SparkSession, sinks: Sinks, kind: str) -> None:
    shape = Shape("shop.things", "id", EVERYTHING)
    sink = sinks.make(format=kind, listing="immediate" if kind == "avro" else "finished")
    changes = [Change(number, awkward(number), "u", number, number * 1.000001, number) for number in range(60)]
    changes = [
        replace(change, values={**change.values, "at": LAST_OF_ORC})
        if kind == "orc" and change.values["at"] == LAST_BEFORE_1970
        else change
        for change in changes
    ]
    sink.write(batch(spark, 0, [(shape, changes)]))
    grown_type = StructType([*NESTED.fields, StructField("zip", LongType())])
    grown = Shape(
        "shop.things", "id", {"id": LongType(), "text": StringType(), "more": StringType(), "address": grown_type}
    )
    late = [
        Change(2**40, {"text": "t", "more": "m", "address": {"street": "s", "lines": None, "zip": 1}}, "i", 99, 99, 99)
    ]
    sink.write(batch(spark, 1, [(grown, late)]))
    rows_by_id = {row.id: row for row in history.read(spark, str(sinks.path)).collect()}
    assert len(rows_by_id) == 61
    for change in changes:
        row = rows_by_id[change.key]
        assert row.ums_ts_.replace(tzinfo=UTC) == change.time, "microseconds are kept"
        for name, value in change.values.items():
            got = row[name]
            if name == "at" and got is not None:
                got = got.replace(tzinfo=UTC)
            if name == "address" and got is not None:
                assert got.zip is None
                got = {"street": got.street, "lines": got.lines}
            assert (bytes(got) if isinstance(got, bytearray) else got) == value, (name, change.key)
    assert (rows_by_id[2**40].more, rows_by_id[2**40].address.zip, rows_by_id[2**40].amount) == ("m", 1, None)
    sink._rolling = type(sink._rolling)(inactivity=0, retention=0)
    for _ in range(4):
        sink.idle()
    merged = {row.id: row for row in history.read(spark, str(sinks.path)).collect()}
    assert merged == rows_by_id
    assert sink.context.metrics["files_small"] == 0


def test_what_orc_cannot_hold_is_refused(spark: SparkSession, sinks: Sinks) -> None:
    sink = sinks.make(format="orc")
    shape = Shape("shop.times", "id", {"id": LongType(), "100% at": TimestampType()})
    sink.write(batch(spark, 0, [(shape, [Change(1, {"100% at": LAST_OF_ORC}, "i", 1, 1, 1)])]))
    with pytest.raises(Exception, match=r"column 100% at has 1969-12-31 23:59:59\.999999 UTC, and ORC would store"):
        sink.write(batch(spark, 1, [(shape, [Change(2, {"100% at": LAST_BEFORE_1970}, "i", 2, 2, 2)])]))
    (row,) = history.read(spark, str(sinks.path), "shop.times").collect()
    assert row["100% at"].replace(tzinfo=UTC) == LAST_OF_ORC
    table = TableSchema("shop.odd", (Column("back`tick", StringType()),))
    assert "files of orc can't hold that name" in sink.refusal(table)
    assert not sinks.make(format="parquet").refusal(table)


def test_a_type_that_does_not_fit_is_a_clear_error(spark: SparkSession, sinks: Sinks) -> None:
    sink = sinks.make()
    sink.write(batch(spark, 0, [(ORDERS, inserts(0, 3))]))
    wrong = Shape("shop.orders", "id", {"id": LongType(), "state": IntegerType()})
    with pytest.raises(Fatal, match=r"column state is string in the files and int in new rows"):
        sink.write(batch(spark, 1, [(wrong, [Change(9, {"state": 1}, "i", 9, 9, 9)])]))
    assert ids(spark, sinks) == [0, 1, 2]


def test_several_tables_versions_and_levels(spark: SparkSession, sinks: Sinks) -> None:
    sink = sinks.make(partition_by="{database}/{table}/date/hour/by_state={column:state}")
    parts = [
        (Shape("mysql.db01.shop.orders.3.0.0", "id", ORDERS.columns), inserts(0, 4)),
        (Shape("mysql.db01.shop.orders.4.0.0", "id", {**ORDERS.columns, "x": StringType()}), inserts(4, 6)),
        (Shape("mysql.db01.shop.customers.1.0.0", "id", ORDERS.columns), inserts(6, 8)),
    ]
    assert sink.write(batch(spark, 0, parts)) == 8
    assert [table.name for table in history.find_tables(spark, str(sinks.path))] == ["shop/customers", "shop/orders"]
    assert ids(spark, sinks, "mysql.db01.shop.orders.*") == list(range(6))
    assert ids(spark, sinks, "shop/customers") == [6, 7]
    small = sinks.path / "shop" / "orders" / "_small"
    buckets = sorted({file.parent.relative_to(small).as_posix().split("/", 1)[1] for file in small.rglob("*.parquet")})
    assert buckets == [f"ums_date_=2026-11-20/ums_hour_=00/by_state=s{number}" for number in range(6)]


def test_directories_name_the_rows_own_shard(spark: SparkSession, sinks: Sinks) -> None:
    sink = sinks.make(partition_by="{table}/{database_partition}-{table_partition}/date")
    shape = Shape(
        "mysql.db01.shop.orders.3.0.0",
        "id",
        {"database_partition": LongType(), "table_partition": LongType(), "id": LongType()},
    )
    changes = [
        Change(key, {"database_partition": shard, "table_partition": 7}, "i", offset, offset, offset)
        for offset, (shard, key) in enumerate([(1, 1), (2, 1), (1, 2), (2, 3)])
    ]
    unsharded = batch(spark, 0, [(shape, changes)])
    sharded = [
        replace(table_changes, schema=replace(table_changes.schema, sharded=True))
        for table_changes in unsharded.changes()
    ]
    sharded_batch = replace(unsharded, changes=lambda: sharded)
    assert sink.write(sharded_batch) == 4
    assert sinks.make().write(sharded_batch) == 4, "another layout is another table"
    assert sinks.make(partition_by="{table}/{database_partition}-{table_partition}/date").write(sharded_batch) == 0
    assert (ids(spark, sinks, "orders/1-7"), ids(spark, sinks, "orders/2-7")) == ([1, 2], [1, 3])


def test_a_mounted_file_system_and_plain_python_read_the_same(spark: SparkSession, sinks: Sinks) -> None:
    sinks.path.mkdir()
    conf = spark._jsc.hadoopConfiguration()
    conf.set("fs.viewfs.mounttable.h6.link./data", f"file://{sinks.path}")
    sink = sinks.make(path="viewfs://h6/data", rolling_inactivity_ms=0)
    assert sink.write(batch(spark, 0, [(ORDERS, inserts(0, 10))])) == 10
    assert sink.write(batch(spark, 0, [(ORDERS, inserts(0, 10))])) == 0
    sink.idle()
    assert sink.context.metrics["files_small"] == 0
    mounted = sinks.make(path="viewfs://h6/data")
    assert mounted.write(batch(spark, 5, [(ORDERS, inserts(0, 12))])) == 2
    assert history.read(spark, "viewfs://h6/data").count() == 12
    assert ids(spark, sinks) == list(range(12)), "the same directory by its local name"
    files = history.current_files(str(sinks.path / "shop.orders"))
    assert len(files) == 2
    assert all(Path(file).is_file() for file in files)
    assert spark.read.parquet(*files).count() == 12
