"""Rolling, compaction and expiry while others read; crashes at each step."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow.dataset
import pyarrow.parquet
import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, TimestampType

from spark_jobs import history
from spark_jobs.history import reader, upkeep
from spark_jobs.history.commands import compact_table
from spark_jobs.history.rolling import Rolling, small_files
from spark_jobs.history.storage import HadoopStorage
from spark_jobs.history.table import ORPHAN_AGE, HistoryDirectory, now_ms
from spark_jobs.history.writing import HistoryWriter
from tests.support.history_model import Change, Shape, batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.sinks.files.sink import FilesSink
    from tests.integration.spark_jobs.files.conftest import Sinks

ORDERS = Shape("shop.orders", "id", {"id": LongType(), "state": StringType()})
NAME = "shop.orders"
EPOCH_1970 = datetime(1970, 1, 1, tzinfo=UTC)


def fill(spark: SparkSession, sink: FilesSink, first: int, batches: int, size: int = 10) -> None:
    for number in range(first, first + batches):
        rows = [
            Change(key, {"state": f"s{key}"}, "i", key, key, key) for key in range(number * size, (number + 1) * size)
        ]
        sink.write(batch(spark, number, [(ORDERS, rows)]))


def listed(path: Path) -> list[int]:
    """The ids that a reader sees who lists the directory (pyarrow, as DuckDB and Spark do: not below ``_`` names)."""
    ids: list[int] = (
        pyarrow.dataset.dataset(str(path), format="parquet", partitioning="hive")
        .to_table(columns=["id"])["id"]
        .to_pylist()
        if any(path.glob("ums_date_=*/*.parquet"))
        else []
    )
    return sorted(ids)


def ids(frame: Any) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def settle(sink: FilesSink) -> None:
    """As many idle calls as one table's upkeep can take, each of which may find its time used up after one step."""
    for _ in range(3):
        sink.idle()


def test_compaction_at_a_time_of_day_also_when_no_job_ran_then(spark: SparkSession, sinks: Sinks) -> None:
    def finished(sink: FilesSink, now: datetime) -> int:
        table, _ = sink._tables[NAME]
        table.clock = lambda: int(now.timestamp() * 1000)
        settle(sink)
        return sum(not file.small for file in table.log.state().files.values())

    evening = datetime.now(UTC)
    night = (evening + timedelta(hours=7)).strftime("%H:%M:%S")
    options: dict[str, Any] = {"rolling_inactivity_ms": 0, "compact_files": 2, "compact_at": night}
    sink = sinks.make(**options)
    for number in range(3):
        fill(spark, sink, number, 1)
        assert finished(sink, evening + timedelta(hours=number, minutes=10)) == number + 1, "rolled, and left alone"
    assert finished(sink, evening + timedelta(hours=6)) == 3
    # The job does not run at that time, and starts an hour later.
    restarted = sinks.make(**options)
    restarted.idle()
    assert finished(restarted, evening + timedelta(hours=8)) == 1
    fill(spark, restarted, 3, 1)
    assert finished(restarted, evening + timedelta(hours=9)) == 2
    assert finished(restarted, evening + timedelta(hours=31)) == 1
    assert ids(history.read(spark, str(sinks.path / NAME))) == list(range(40))


def test_rolling_and_compaction_for_both_kinds_of_readers(spark: SparkSession, sinks: Sinks) -> None:
    path = sinks.path / NAME
    sink = sinks.make(rolling_inactivity_ms=0, compact_files=2, manifest_interval_ms=0)
    fill(spark, sink, 0, 2)
    assert listed(path) == [], "rows of small files are out of sight of a listing"
    pinned = history.read(spark, str(path))
    assert ids(pinned) == list(range(20))
    settle(sink)
    assert listed(path) == list(range(20))
    assert spark.read.parquet(str(path)).count() == 20
    assert sorted((path / "_manifest" / "files.txt").read_text().split()) == history.current_files(
        str(path), spark=spark
    )
    fill(spark, sink, 2, 1)
    settle(sink)  # rolls the third batch, then merges the two finished files out of sight
    state = sinks.table().log.load()
    assert [file.merged for file in state.files.values()] == [True]
    assert listed(path) == list(range(30)), "what is in sight stays until no reader needs it"
    assert ids(history.read(spark, str(path))) == list(range(30))
    assert ids(pinned) == list(range(20)), "a reader that began before all of this"
    merged = history.read(spark, str(path))
    sink._rolling = Rolling(retention=0)
    settle(sink)
    assert [file.visible for file in sinks.table().log.load().files.values()] == [True]
    assert listed(path) == list(range(30))
    assert len(list(path.glob("ums_date_=*/*.parquet"))) == 1
    assert ids(history.read(spark, str(path))) == list(range(30))
    upkeep.vacuum_files(sinks.table(), 0, HistoryWriter())
    assert list(path.glob("_merged/**/*.parquet")) == []
    with pytest.raises(Exception, match=r"(?i)file.*not.*exist"):
        merged.collect()  # bound to files whose retention is over: an error, not fewer rows


def test_files_with_deprecated_timestamps_are_the_same_instants(spark: SparkSession, sinks: Sinks) -> None:
    moments = [
        datetime(2026, 3, 29, 1, 30, 0, 123_456, UTC),
        datetime(1500, 2, 28, 23, 59, 59, 1, UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    ]
    shape = Shape(NAME, "id", {"id": LongType(), "at": TimestampType(), "all": ArrayType(TimestampType())})
    changes = [
        Change(number, {"at": moments[number % 4], "all": [moments[number % 4], None]}, "i", number, number, number)
        for number in range(8)
    ]
    sink = sinks.make(listing="immediate")
    option, new = "spark.sql.parquet.outputTimestampType", spark.conf.get("spark.sql.parquet.outputTimestampType")
    assert new == "TIMESTAMP_MICROS"
    spark.conf.set(option, "INT96")  # as files of an earlier version
    try:
        sink.write(batch(spark, 0, [(shape, changes[:4])]))
    finally:
        spark.conf.set(option, new)
    sink.write(batch(spark, 1, [(shape, changes[4:])]))
    path = str(sinks.path / NAME)

    def instants(frame: DataFrame) -> list[tuple[Any, ...]]:
        return sorted(
            tuple(row)
            for row in frame.selectExpr(
                "id", "unix_micros(at)", "unix_micros(all[0])", "unix_micros(ums_ts_)"
            ).collect()
        )

    expected = [
        (
            change.key,
            *[(change.values["at"] - EPOCH_1970) // timedelta(microseconds=1)] * 2,
            (change.time - EPOCH_1970) // timedelta(microseconds=1),
        )
        for change in changes
    ]

    def check(types: set[str]) -> None:
        assert instants(history.read(spark, path)) == expected
        assert instants(history.snapshot(spark, path)) == expected
        assert instants(history.read(spark, path, since=changes[2].time, until=changes[5].time)) == expected[2:5]
        assert instants(spark.read.parquet(path)) == expected
        files = [file.removeprefix("file:") for file in history.current_files(path, spark=spark)]
        assert {pyarrow.parquet.ParquetFile(file).schema.column(1).physical_type for file in files} == types
        # Of INT96 pyarrow would make nanoseconds, which reach from 1677 to 2262.
        form = pyarrow.dataset.ParquetFileFormat(
            read_options=pyarrow.dataset.ParquetReadOptions(coerce_int96_timestamp_unit="us")
        )
        table = (
            pyarrow.dataset.dataset(
                files, format=form, schema=pyarrow.schema({"id": pyarrow.int64(), "at": pyarrow.timestamp("us", "UTC")})
            )
            .to_table()
            .to_pylist()
        )
        assert sorted((row["id"], row["at"]) for row in table) == [
            (change.key, change.values["at"]) for change in changes
        ]

    check({"INT96", "INT64"})
    compact_table(spark, reader.one_table(spark, str(sinks.path)), Rolling(retention=0))
    check({"INT64"})
    valid = history.zipper(spark, path).selectExpr("id", "unix_micros(valid_from)").collect()
    assert sorted(tuple(row) for row in valid) == [(key, time) for key, _, _, time in expected]


def test_readers_count_right_all_through_compaction(spark: SparkSession, sinks: Sinks) -> None:
    sink = sinks.make(listing="immediate")
    fill(spark, sink, 0, 3)
    wrong: list[Any] = []
    rounds = [0]
    stop = threading.Event()
    committed = [30]

    def count() -> None:
        while not stop.is_set():
            least = committed[0]
            try:
                row = history.read(spark, str(sinks.path)).selectExpr("count(*) n", "count(distinct id) d").collect()[0]
            except Exception as error:  # noqa: BLE001 - raised below
                wrong.append(error)
                return
            if row.n != row.d or row.n < least or row.n % 10:
                wrong.append((row, least))
            rounds[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        table = sinks.table()
        for number in range(3, 6):
            fill(spark, sink, number, 1)
            committed[0] = (number + 1) * 10
            for bucket in small_files(table.log.state()):
                upkeep.roll_bucket(table, bucket, 2**20, HistoryWriter(), kind="parquet", compression=None)
        compact_table(spark, reader.one_table(spark, str(sinks.path)), Rolling())
    finally:
        stop.set()
        thread.join(120)
    assert wrong == []
    assert rounds[0] > 0
    assert ids(history.read(spark, str(sinks.path))) == list(range(60))


class Crash(BaseException):
    """The process is gone: nothing catches it."""


class Breaking(HadoopStorage):
    """Stops the process, so to say, at the n-th call that changes something."""

    left = -1

    def _tick(self) -> None:
        type(self).left -= 1
        if type(self).left == 0:
            raise Crash

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self._tick()
        return super().put_if_absent(name, data)

    def rename(self, source: str, target: str) -> bool:
        self._tick()
        return super().rename(source, target)

    def delete(self, name: str, *, recursive: bool = False) -> bool:
        self._tick()
        return super().delete(name, recursive=recursive)


def crashes(work: Callable[[], Any], steps: range) -> int:
    """Run ``work`` with a crash at each step in turn, until one run gets through; how many crashed."""
    for count, step in enumerate(steps):
        Breaking.left = step
        try:
            work()
        except Crash:
            continue
        finally:
            Breaking.left = -1
        return count
    raise AssertionError("never got through")


def test_a_crash_at_any_step_of_an_append(spark: SparkSession, sinks: Sinks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.history.storage.HadoopStorage", Breaking)
    path = sinks.path / NAME
    fill(spark, sinks.make(listing="immediate"), 0, 1)

    def append() -> None:
        sink = sinks.make(listing="immediate")
        fill(spark, sink, 0, 2)  # checkpoint lost each time: the first batch is replayed too

    assert crashes(append, range(1, 40)) >= 3
    assert ids(history.read(spark, str(path))) == list(range(20))
    assert listed(path) == list(range(20)), "nobody sees a row twice"
    sinks.make().idle()
    assert list(path.glob("_s*/**/*.parquet")) == [], "nothing is left behind"


def test_a_crash_at_any_step_of_rolling_and_compaction(spark: SparkSession, sinks: Sinks) -> None:
    path = sinks.path / NAME
    sink = sinks.make()
    fill(spark, sink, 0, 2)
    upkeep.roll_bucket(sinks.table(), "ums_date_=2026-11-20", 2**20, HistoryWriter(), kind="parquet", compression=None)
    fill(spark, sink, 2, 2)
    seen = [listed(path)]

    def merge() -> None:
        table = HistoryDirectory(spark, Breaking(spark, str(path)))
        try:
            table.finish_all(HistoryWriter())
            upkeep.roll_bucket(table, "ums_date_=2026-11-20", 2**20, HistoryWriter(), kind="parquet", compression=None)
            for _ in upkeep.compact_bucket_files(table, 2**20, HistoryWriter(), kind="parquet", compression=None):
                pass
            upkeep.show_merged(table, 0, HistoryWriter())
            upkeep.vacuum_files(table, 0, HistoryWriter())
        finally:
            Breaking.left = -1
            seen.append(listed(path))
            assert ids(history.read(spark, str(path))) == list(range(40))

    assert crashes(merge, range(1, 60)) >= 5
    for listed_ids in seen[:-1]:
        # Sight of a listing: rolled rows once; while inputs give way to a merged file rows may be there twice, never missing.
        assert set(listed_ids) in (set(range(20)), set(range(40)))
    assert seen[-1] == listed(path) == list(range(40))
    # Files of commands that crashed before they added them to the log are removed an hour later.
    later = HistoryDirectory(spark, HadoopStorage(spark, str(path)), clock=lambda: now_ms() + 2 * ORPHAN_AGE)
    upkeep.vacuum_files(later, 0, HistoryWriter())
    assert len(list(path.rglob("*.parquet"))) == 1
