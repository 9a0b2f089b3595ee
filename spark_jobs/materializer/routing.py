"""Buckets by key (``materializer.buckets``): records go from the input's partitions to the buckets of their rows.

A first task per input partition reads the partition key of each record and names its bucket; Spark's shuffle brings together
what belongs to a bucket, by input partition and offset; the bucket then works as it does with an input partition of its own.
Each input topic has its own buckets.
"""

from __future__ import annotations

import gc
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Skippable
from spark_jobs.materializer.contract import InputRecord
from spark_jobs.materializer.engine.keys import bucket_of
from spark_jobs.materializer.passes import RESULT_SCHEMA, encode_result
from spark_jobs.materializer.residents import get_resident, run_guarded
from spark_jobs.reports.met_heartbeats import COLUMN, MetHeartbeats
from spark_jobs.spark.worker_memory import frozen_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from spark_jobs.materializer.config import BucketOptions
    from spark_jobs.materializer.contract import Engine
    from spark_jobs.materializer.passes import PassRange

    Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_ROUTED: Final = (
    "topic string, bucket int, key binary, value binary, partition int, offset long, time long, heartbeat string"
)
_COLUMNS: Final = ("topic", "bucket", "key", "value", "partition", "offset", "time")


def merge_by_key(raw: Any, by_topic: Mapping[str, BucketOptions], spans: Mapping[tuple[str, int], PassRange]) -> Any:
    """A frame whose collection merges records into the buckets of their keys; a result for each bucket that gets records.

    Args:
        raw: the records.
        by_topic: what the tasks need, by input topic.
        spans: by input topic and bucket.
    """
    routed = raw.mapInArrow(route_task(by_topic), _ROUTED)
    sorted_by_bucket = routed.repartition(len(spans), "topic", "bucket").sortWithinPartitions(
        "topic", "bucket", "partition", "offset"
    )
    return sorted_by_bucket.mapInArrow(merge_task(by_topic, dict(spans)), RESULT_SCHEMA)


def buckets_of(engine: Engine, record: InputRecord, buckets: int) -> list[int]:
    """The buckets that a record changes. What can't be decoded goes to the first one, which puts it aside or stops.

    Raises:
        Retriable, Fatal: as ``Engine.route``.
    """
    try:
        return sorted({bucket_of(prefix, buckets) for prefix in engine.route(record)}) or [0]
    except Skippable:
        return [0]


def route_task(by_topic: Mapping[str, BucketOptions]) -> Task:
    """The function for ``mapInArrow`` that names the bucket of each record; a record with rows of several comes once for each.

    An error must end the whole batch: a bucket that saw a part of its records would move its marker over the others.
    """

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        for batch in batches:
            rows, buckets = [], []
            columns = (batch.column(name).to_pylist() for name in ("topic", "key", "value", "offset", "partition"))
            for row, (topic, key, value, offset, partition) in enumerate(zip(*columns, strict=True)):
                options = by_topic[topic]
                targets = buckets_of(
                    get_resident(options).router, InputRecord(key, value, offset, 0, partition), options.buckets
                )
                buckets += targets
                rows += [row] * len(targets)
            routed = batch.take(pa.array(rows, pa.int64()))
            milliseconds = pc.divide(routed.column("timestamp").cast(pa.int64()), 1000)
            yield pa.RecordBatch.from_arrays(
                [
                    routed.column("topic"),
                    pa.array(buckets, pa.int32()),
                    routed.column("key"),
                    routed.column("value"),
                    routed.column("partition"),
                    routed.column("offset"),
                    milliseconds,
                    routed.column(COLUMN),
                ],
                names=[*_COLUMNS, COLUMN],
            )

    return frozen_after("materializer routing", task)


def merge_task(by_topic: Mapping[str, BucketOptions], spans: Mapping[tuple[str, int], PassRange]) -> Task:
    """The function for ``mapInArrow`` over routed records in order of bucket, partition and offset: a row per bucket."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with_collector_off = gc.isenabled()
        gc.disable()  # as in ``job.stream_task``
        try:
            beats = MetHeartbeats()
            for (topic, bucket), group in groupby(_iter_rows(batches, beats), itemgetter(0, 1)):
                result = run_guarded(by_topic[topic], bucket, (row[2] for row in group), spans[topic, bucket])
                # Also of other buckets, which does not matter: they count when all buckets have the batch.
                result.heartbeats += beats.take()
                yield encode_result(topic, result)
        finally:
            if with_collector_off:
                gc.enable()

    return frozen_after("materializer", task)


def _iter_rows(batches: Iterator[pa.RecordBatch], beats: MetHeartbeats) -> Iterator[tuple[str, int, InputRecord]]:
    for batch in batches:
        beats.note_batch(batch, batch.column("time"))
        topic, bucket, key, value, partition, offset, time = (batch.column(name).to_pylist() for name in _COLUMNS)
        yield from zip(topic, bucket, map(InputRecord, key, value, offset, time, partition), strict=True)
