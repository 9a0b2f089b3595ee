"""The functions of the materializer that Spark's tasks run: a pass over a bucket, with or without input."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from connectors.errors import Fatal
from spark_jobs.materializer.contract import InputRecord
from spark_jobs.materializer.passes import RESULT_SCHEMA, PassRange, Result, decode_result, encode_result
from spark_jobs.materializer.residents import run_guarded
from spark_jobs.reports.met_heartbeats import MetHeartbeats
from spark_jobs.spark.worker_memory import frozen_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from spark_jobs.materializer.config import BucketOptions

    Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: (input topic, number of a bucket)
BucketKey = tuple[str, int]


def buckets_frame(
    spark: SparkSession, by_topic: Mapping[str, BucketOptions], spans: Mapping[BucketKey, PassRange]
) -> Any:
    """A frame whose collection runs a pass without input over each bucket of ``spans``, one task each."""
    return spark.range(0, len(spans), 1, len(spans)).mapInArrow(idle_task(by_topic, dict(spans)), RESULT_SCHEMA)


def run_buckets(spark: SparkSession, bucket_options: BucketOptions, spans: Mapping[int, PassRange]) -> list[Result]:
    """Run a pass without input over each bucket of one topic. Blocks; errors are in the results."""
    topic = bucket_options.input_topic
    frame = buckets_frame(spark, {topic: bucket_options}, {(topic, bucket): span for bucket, span in spans.items()})
    return [decode_result(row[1]) for row in frame.collect()]


def stream_task(by_topic: Mapping[str, BucketOptions], spans: Mapping[BucketKey, PassRange]) -> Task:
    """The function for ``mapInArrow`` over a batch's records: one stream is one Kafka partition. Gives a row: the result."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        topic, bucket = first.column("topic")[0].as_py(), first.column("partition")[0].as_py()
        with_collector_off = gc.isenabled()
        # Decoding makes millions of small objects and no cycles: the collector would take half of the time.
        gc.disable()
        try:
            beats = MetHeartbeats()
            records = read_inputs(topic, bucket, first, batches, beats)
            result = run_guarded(by_topic[topic], bucket, records, spans[topic, bucket])
            result.heartbeats += beats.take()
        finally:
            if with_collector_off:
                gc.enable()
        yield encode_result(topic, result)

    return frozen_after("materializer", task)


def idle_task(by_topic: Mapping[str, BucketOptions], spans: Mapping[BucketKey, PassRange]) -> Task:
    """The function for ``mapInArrow`` over row numbers, each of which stands for a bucket without input."""
    buckets = sorted(spans)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                topic, bucket = buckets[number]
                yield encode_result(topic, run_guarded(by_topic[topic], bucket, (), spans[topic, bucket]))

    return frozen_after("materializer", task)


def read_inputs(
    topic: str, bucket: int, first: pa.RecordBatch, others: Iterator[pa.RecordBatch], beats: MetHeartbeats
) -> Iterator[InputRecord]:
    """The records of an Arrow stream; ``beats`` notes the heartbeats among them.

    Raises:
        Fatal: they are not all of one partition, so that two tasks would work on one state.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    batch: pa.RecordBatch | None = first
    while batch is not None:
        if batch.num_rows:
            partition_bounds = pc.min_max(batch.column("partition")).as_py()
            names = pc.unique(batch.column("topic")).to_pylist()
            if partition_bounds["min"] != bucket or partition_bounds["max"] != bucket or names != [topic]:
                raise Fatal(
                    f"a Spark task was given records of {names}, partitions {partition_bounds['min']} to "
                    f"{partition_bounds['max']}, not of {topic} [{bucket}] alone: the materializer needs one task per "
                    "partition; don't set source.min.partitions or repartition"
                )
            milliseconds = pc.divide(batch.column("timestamp").cast(pa.int64()), 1000)
            beats.note_batch(batch, milliseconds)
            yield from map(
                InputRecord,
                batch.column("key").to_pylist(),
                batch.column("value").to_pylist(),
                batch.column("offset").to_pylist(),
                milliseconds.to_pylist(),
            )
        batch = next(others, None)
