"""Decisions without I/O: rolling, pruning, layout, growing schemas, names, options."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

from connectors.errors import ConfigInvalid, Fatal
from spark_jobs.history import layout, rolling
from spark_jobs.history.commands import size_of
from spark_jobs.history.log import File, HistoryEntry, HistoryState
from spark_jobs.history.reader import parse_at, prune_files, view_names
from spark_jobs.history.rolling import Rolling
from spark_jobs.history.schema import evolve_schema, find_wider_type
from spark_jobs.history.writing import HistoryWriter
from spark_jobs.sinks.files import config as options
from spark_jobs.sinks.files.sink import FilesSink

BASE = {"sink.files.path": "/tmp/history"}


def file(path: str, size: int = 10, added: int = 0, bucket: str = "b", **more: int | None) -> File:
    return File(path, bucket, "parquet", 0, 1, size, added=added, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sizes", "ages", "reason"),
    [
        ([], [], None),
        ([60], [5], None),
        ([60, 40], [5, 5], "size"),
        ([1, 1, 1], [5, 5, 5], "files"),
        ([1, 1], [100, 5], "age"),
        ([1], [50], "inactivity"),
        ([1, 1], [50, 49], None),
        ([1, 1], [99, 50], "inactivity"),
    ],
)
def test_when_a_bucket_is_rolled(sizes: list[int], ages: list[int], reason: str | None) -> None:
    plan = Rolling(size=100, age=100, inactivity=50, files=3)
    files = [
        file(f"_small/{index}", size, 1000 - age) for index, (size, age) in enumerate(zip(sizes, ages, strict=True))
    ]
    assert rolling.find_due_reason(files, plan, 1000) == reason


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 9)), max_size=30), st.integers(1, 200))
def test_groups_keep_order_and_size_and_lose_nothing(sizes: list[tuple[int, int]], target: int) -> None:
    files = [file(f"f{index:03}", size, added) for index, (size, added) in enumerate(sizes)]
    groups = rolling.group_files(files, target)
    assert [file for group in groups for file in group] == sorted(files, key=lambda file: (file.added, file.path))
    assert all(len(group) == 1 or sum(file.bytes for file in group) <= target for group in groups)
    for first, second in pairwise(groups):
        assert sum(file.bytes for file in first) + second[0].bytes > target, (
            "a group ends only where the next would not fit"
        )
    merged = rolling.find_compactable(files, target)
    assert all(len(group) > 1 and all(file.bytes * 2 < target for file in group) for group in merged)


def test_compaction_at_a_time_of_day_takes_what_was_written_before_it() -> None:
    day = 86_400_000
    plan = Rolling(size=1000, compact_at="02:30", compact_zone="Europe/Berlin")
    half_past_two = 20_000 * day + 30 * 60_000  # of a summer's day in 2024
    assert rolling.compact_before(plan, half_past_two - 1) == half_past_two - day
    assert rolling.compact_before(plan, half_past_two) == half_past_two
    assert rolling.compact_before(Rolling(), half_past_two) is None
    files = [file(f"b/{n}", added=half_past_two - 2 + n) for n in range(4)]
    assert rolling.find_compactable(files, 1000, before=half_past_two) == [files[:2]]
    assert rolling.find_compactable(files, 1000, before=half_past_two - 1) == []
    assert rolling.find_compactable(files, 1000) == [files]


def test_what_is_in_sight_and_what_may_take_its_place() -> None:
    waiting = File("_merged/x/b/m", "b", "parquet", 0, 2, 20, replaces=("b/one", "b/two"))
    state = HistoryState(
        files={entry.path: entry for entry in (waiting, file("_small/x/b/s"), file("b/batch-x"), file("b/three"))},
        removed={"b/one": 1000, "b/two": 1500},
    )
    assert [entry.path for entry in rolling.small_files(state)["b"]] == ["_small/x/b/s", "b/batch-x"]
    assert [entry.path for entry in rolling.finished_files(state)["b"]] == ["_merged/x/b/m", "b/three"]
    assert rolling.find_presentable(state, 100, 1599) == []
    assert rolling.find_presentable(state, 100, 1600) == [waiting]
    assert rolling.find_expired(state.removed, 100, 1550) == ["b/one"]
    state.prepared["7"] = HistoryEntry("roll", 0, remove=("_small/x/b/s", "b/batch-x"))
    assert rolling.small_files(state) == {}, "what another process is about to merge is left alone"


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10), st.integers(0, 50), st.integers(0, 10)), max_size=10),
    st.none() | st.integers(-5, 60),
    st.none() | st.integers(-5, 60),
    st.none() | st.integers(-5, 60),
)
def test_pruning_drops_only_files_without_a_match(
    spans: list[tuple[int, int, int, int]], low: int | None, high: int | None, high_id: int | None
) -> None:
    assume(low is None or high is None or low <= high)
    files = [
        file(str(index), min_ts=ts, max_ts=ts + wide, min_id=number, max_id=number + many)
        for index, (ts, wide, number, many) in enumerate(spans)
    ]
    kept = prune_files(files, low=low, high=high, high_id=high_id)
    for candidate, (ts, wide, number, many) in zip(files, spans, strict=True):
        times = any(
            (low is None or time >= low) and (high is None or time <= high) for time in range(ts, ts + wide + 1)
        )
        ids = any(high_id is None or identity <= high_id for identity in range(number, number + many + 1))
        assert (candidate in kept) == (times and ids)


@pytest.mark.parametrize(
    ("text", "namespace", "directory", "levels"),
    [
        ("namespace/date", "shop.orders", "shop.orders", ["ums_date_"]),
        ("namespace/date", "mysql.db01.shop.orders.3.0.0", "mysql.db01.shop.orders.0.0", ["ums_date_"]),
        ("exact/date/hour", "mysql.db01.shop.orders.3.0.0", "mysql.db01.shop.orders.3.0.0", ["ums_date_", "ums_hour_"]),
        ("{database}/{table}", "shop.orders", "shop/orders", []),
        ("raw-{database}/{table}/day={yyyyMMdd}/c={column:country}", "a.b.c", "raw-a.b/c", ["day", "c"]),
        ("namespace", "../x*?{y}", "..%2Fx%2A%3F%7By%7D", []),
        ("namespace", "_hidden", "%5Fhidden", []),
        ("namespace", "..", "%2E%2E", []),
    ],
)
def test_where_rows_go(text: str, namespace: str, directory: str, levels: list[str]) -> None:
    parsed = layout.parse_layout(text)
    name = parsed.directory(namespace)
    assert name.replace("%2E", ".") == directory.replace("%2E", ".")
    assert not name.startswith(("_", "."))
    assert [level.name for level in parsed.levels] == levels


@pytest.mark.parametrize(
    "text",
    [
        "",
        "date",
        "date/namespace",
        "namespace/day",
        "namespace/x=yyyy",
        "namespace/{column:a}",
        "namespace/x={bad pattern}",
        "{instance}",
        "namespace/date/date",
        "{nope}/date",
    ],
)
def test_a_wrong_layout_says_which_level(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="level"):
        layout.parse_layout(text)


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (IntegerType(), LongType(), LongType()),
        (FloatType(), DoubleType(), DoubleType()),
        (IntegerType(), DoubleType(), DoubleType()),
        (LongType(), DoubleType(), None),
        (IntegerType(), FloatType(), None),
        (DecimalType(5, 2), DecimalType(8, 4), DecimalType(8, 4)),
        (DecimalType(5, 0), DecimalType(6, 4), DecimalType(9, 4)),
        (IntegerType(), DecimalType(5, 2), DecimalType(12, 2)),
        (DecimalType(38, 0), DecimalType(38, 10), None),
        (StringType(), IntegerType(), None),
        (StringType(), VarcharType(20), StringType()),
        (DateType(), StringType(), None),
        (ArrayType(IntegerType()), ArrayType(LongType()), ArrayType(LongType())),
        (ArrayType(IntegerType()), IntegerType(), None),
        (
            StructType([StructField("a", IntegerType())]),
            StructType([StructField("a", LongType()), StructField("b", StringType())]),
            StructType([StructField("a", LongType()), StructField("b", StringType())]),
        ),
    ],
)
def test_the_type_that_holds_both(first: DataType, second: DataType, both: DataType | None) -> None:
    assert find_wider_type(first, second) == both
    turned = find_wider_type(second, first)
    assert turned == both or isinstance(both, StructType)


def test_how_a_table_grows() -> None:
    first = StructType(
        [
            StructField("id", IntegerType(), nullable=False),
            StructField("a", StringType()),
            StructField("ums_id_", LongType()),
        ]
    )
    second = StructType(
        [StructField("id", LongType()), StructField("b", StringType()), StructField("ums_id_", LongType())]
    )
    grown = evolve_schema("t", evolve_schema("t", None, first, ["ums_id_"]), second, ["ums_id_"])
    assert [(field.name, field.dataType, field.nullable) for field in grown] == [
        ("id", LongType(), True),
        ("a", StringType(), True),
        ("b", StringType(), True),
        ("ums_id_", LongType(), True),
    ]
    assert evolve_schema("t", grown, first, ["ums_id_"]) == grown, "an older version of the table changes nothing"
    with pytest.raises(Fatal, match="columns a and A differ only"):
        evolve_schema("t", grown, StructType([StructField("A", StringType())]), [])
    with pytest.raises(Fatal, match="column b is string in the files and double in new rows"):
        evolve_schema("t", grown, StructType([StructField("b", DoubleType())]), [])


def test_names_of_views_points_and_sizes() -> None:
    assert view_names(["Orders", "9 x"], ["shop.Orders", "y"]) == ["orders", "t_9_x"]
    assert view_names(["orders", "orders"], ["a.orders", "b.orders"]) == ["a_orders", "b_orders"]
    assert parse_at("17") == 17
    assert parse_at("2026-11-21T10:00:00+02:00") == datetime(2026, 11, 21, 8, tzinfo=UTC)
    assert parse_at("2026-11-21") == datetime(2026, 11, 21, tzinfo=UTC)
    with pytest.raises(ConfigInvalid, match="neither a time"):
        parse_at("yesterday")
    assert [size_of(text) for text in ("5", "2k", "128MB", "1g")] == [5, 2048, 2**27, 2**30]
    with pytest.raises(ConfigInvalid, match="no size"):
        size_of("1.5g")


def test_what_one_job_left_behind_is_never_taken_for_another_ones() -> None:
    assert not HistoryWriter("a.b").prefix.startswith(HistoryWriter("a").prefix)
    assert not HistoryWriter("a b/c").prefix.startswith(HistoryWriter("a").prefix)
    assert "/" not in HistoryWriter("a/b").prefix


@pytest.mark.parametrize(
    ("wrong_options", "complaint"),
    [
        ({"sink.files.partition.by": "date"}, "which table"),
        ({"sink.files.format": "xml"}, "must be one of"),
        ({"sink.files.rolling.files": "1"}, "at least 2"),
        ({"sink.files.listing": "x"}, "must be one of"),
    ],
)
def test_wrong_options_are_named(wrong_options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigInvalid, match=complaint):
        options.CONFIG.parse(BASE | wrong_options)


def test_compressions_belong_to_formats() -> None:
    assert FilesSink.validate(options.CONFIG.parse(BASE | {"sink.files.compression": "zstd"})) == []
    (complaint,) = FilesSink.validate(
        options.CONFIG.parse(BASE | {"sink.files.compression": "zstd", "sink.files.format": "csv"})
    )
    assert "csv files take: none, gzip" in complaint
    assert FilesSink.jars(options.CONFIG.parse(BASE | {"sink.files.format": "delta"})) == ("delta",)
    with pytest.raises(ConfigInvalid, match=r"sink\.files\.path"):
        options.CONFIG.parse({})
