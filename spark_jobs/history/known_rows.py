"""Rows that a table has since an earlier run of the job: their condition, and the check that they are there."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from connectors.errors import Fatal
from spark_jobs.spark.frames import union_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

#: Rows that are looked up in the table before a batch's known offsets are skipped.
_SAMPLE: Final = 200
_POSITION: Final = ("kafka_topic_", "kafka_partition_", "kafka_offset_")


def is_known(known_rows: Mapping[tuple[str, int], int]) -> Column:
    """The condition: a row's offset is below what ``known_rows`` says is in."""
    condition = f.lit(False)
    for (topic, partition), after in known_rows.items():
        condition |= (
            (f.col("kafka_topic_") == topic)
            & (f.col("kafka_partition_") == partition)
            & (f.col("kafka_offset_") < after)
        )
    return condition


def demand_known_rows(
    table: str,
    frames: Sequence[DataFrame],
    known_rows: Mapping[tuple[str, int], int],
    between: Callable[[int | None, int | None], DataFrame],
) -> None:
    """Make sure that rows about to be left out are in the table: a recreated topic has the old offsets, but other rows.

    Args:
        table: named in the error.
        frames: the batch's rows.
        known_rows: what is about to be left out.
        between: the table's rows with ``ums_ts_`` in a range (µs, both ends included); all of them for None.

    Raises:
        Fatal: some of a sample are not in.
    """
    want = [f.unix_micros("ums_ts_").alias("ts"), f.col("ums_id_").alias("id"), *map(f.col, _POSITION)]
    rows = union_frames([frame.where(is_known(known_rows)).select(*want) for frame in frames]).limit(_SAMPLE).collect()
    if not rows:
        return
    times = [row["ts"] for row in rows]
    low, high = (None, None) if None in times else (min(times), max(times))
    offsets: dict[tuple[str, int], set[int]] = defaultdict(set)
    for row in rows:
        offsets[row["kafka_topic_"], row["kafka_partition_"]].add(row["kafka_offset_"])
    condition = f.lit(False)
    for (topic, partition), frame in offsets.items():
        condition |= (
            (f.col("kafka_topic_") == topic)
            & (f.col("kafka_partition_") == partition)
            & f.col("kafka_offset_").isin(sorted(frame))
        )
    missing = {tuple(row) for row in rows} - {
        tuple(row) for row in between(low, high).where(condition).select(*want).collect()
    }
    if missing:
        example = dict(zip(("ums_ts_ in us", "ums_id_", *_POSITION), min(missing, key=str), strict=True))
        raise Fatal(
            f"{table}: its log says that it holds offsets up to {dict(known_rows)}, but {len(missing)} of {len(rows)} rows "
            f"looked up are not in it, for example {example}. Was the topic deleted and recreated, or does the job read "
            "another Kafka? Give the job another sink.files.source.id (its offsets count apart) or another sink.files.path; "
            "sink.files.replay.check=false leaves such rows out"
        )
