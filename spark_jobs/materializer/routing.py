"""Buckets by key (``materializer.buckets``): records go from the input's partitions to the buckets of their rows.

A first task per input partition reads the partition key of each record and names its bucket; Spark's shuffle brings together
what belongs to a bucket, by input partition and offset; the bucket then works as it does with an input partition of its own.
"""

from __future__ import annotations

import gc
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import Skippable
from spark_jobs.materializer.bucket import RESIDENTS, guarded
from spark_jobs.materializer.contract import Input
from spark_jobs.materializer.keys import bucket_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from spark_jobs.materializer.bucket import Range
    from spark_jobs.materializer.config import BucketOptions
    from spark_jobs.materializer.contract import Engine

    Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_ROUTED: Final = "bucket int, key binary, value binary, partition int, offset long, time long"
_COLUMNS: Final = ("bucket", "key", "value", "partition", "offset", "time")
_RESULT: Final = "result string"


def by_key(raw: Any, options: BucketOptions, spans: Mapping[int, Range]) -> Any:
    """A frame whose collection merges the records of ``raw`` into the buckets of their keys; a result for each with records."""
    routed = raw.mapInArrow(route_task(options), _ROUTED)
    sorted_by_bucket = routed.repartition(len(spans), "bucket").sortWithinPartitions("bucket", "partition", "offset")
    return sorted_by_bucket.mapInArrow(merge_task(options, dict(spans)), _RESULT)


def buckets_of(engine: Engine, record: Input, buckets: int) -> list[int]:
    """The buckets that a record changes. What can't be decoded goes to the first one, which puts it aside or stops.

    Raises:
        Retriable, Fatal: as ``Engine.route``.
    """
    try:
        return sorted({bucket_of(prefix, buckets) for prefix in engine.route(record)}) or [0]
    except Skippable:
        return [0]


def route_task(options: BucketOptions) -> Task:
    """The function for ``mapInArrow`` that names the bucket of each record; a record with rows of several comes once for each.

    An error must end the whole batch: a bucket that saw a part of its records would move its marker over the others.
    """

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        engine = RESIDENTS.get(options).router
        for batch in batches:
            rows, buckets = [], []
            keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
            offsets, partitions = batch.column("offset").to_pylist(), batch.column("partition").to_pylist()
            for row, (key, value, offset, partition) in enumerate(zip(keys, values, offsets, partitions, strict=True)):
                targets = buckets_of(engine, Input(key, value, offset, 0, partition), options.buckets)
                buckets += targets
                rows += [row] * len(targets)
            routed = batch.take(pa.array(rows, pa.int64()))
            milliseconds = pc.divide(routed.column("timestamp").cast(pa.int64()), 1000)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(buckets, pa.int32()),
                    routed.column("key"),
                    routed.column("value"),
                    routed.column("partition"),
                    routed.column("offset"),
                    milliseconds,
                ],
                names=list(_COLUMNS),
            )

    return task


def merge_task(options: BucketOptions, spans: Mapping[int, Range]) -> Task:
    """The function for ``mapInArrow`` over routed records in order of bucket, partition and offset: a row per bucket."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with_collector_off = gc.isenabled()
        gc.disable()  # as in ``job.stream_task``
        try:
            for bucket, group in groupby(_rows(batches), itemgetter(0)):
                result = guarded(options, bucket, (row[1] for row in group), spans[bucket])
                text = msgspec.json.encode(result).decode()
                yield pa.RecordBatch.from_arrays([pa.array([text])], names=["result"])
        finally:
            if with_collector_off:
                gc.enable()

    return task


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Input]]:
    for batch in batches:
        bucket, key, value, partition, offset, time = (batch.column(name).to_pylist() for name in _COLUMNS)
        yield from zip(bucket, map(Input, key, value, offset, time, partition), strict=True)
