"""The state as a table: ``state_frame`` for programs, ``millrace job state`` for people. The job may run meanwhile."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from connectors.errors import Fatal, Retriable
from spark_jobs.kafka import clients
from spark_jobs.materializer import config as options
from spark_jobs.materializer import topics
from spark_jobs.materializer.bucket import catch_up
from spark_jobs.materializer.config import BucketOptions, EngineFactory, MarkerOwner
from spark_jobs.materializer.per_topic import choose_topic
from spark_jobs.materializer.state.changelog import Changelog
from spark_jobs.materializer.state.store import BucketCache, Moved, Overlay
from worker.command_parser import CommandParser, parse_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from connectors.options import Config
    from spark_jobs.materializer.contract import Engine, LiveRow

#: Rows in one Arrow batch.
_ROWS: Final = 2000
#: Columns in addition to the table's own: the newest write time in the row, and the bucket.
WRITE_TIME: Final = "write_time_"
BUCKET: Final = "bucket_"


def main(argv: Sequence[str]) -> int:
    """The command. Returns 0."""
    from spark_jobs.materializer.state.rebuild import load_job, session_of

    parser = CommandParser(
        prog="millrace job state",
        description="Shows the state of a materializer job: the table as it is materialized now.",
    )
    parser.add_argument("file", metavar="FILE", help="the job, YAML or JSON")
    parser.add_argument("--show", type=parse_count, metavar="N", default=20, help="print this number of rows (20)")
    parser.add_argument("--count", action="store_true", help="print the number of rows alone")
    parser.add_argument("--where", metavar="SQL", help="only rows for which this SQL expression holds")
    parser.add_argument("--output", metavar="PATH", help="write the rows there instead")
    parser.add_argument("--format", default="parquet", help="of --output: parquet (default), json, csv, avro")
    parser.add_argument("--topic", help="the input topic, of a job that materializes several")
    arguments = parser.parse_args(list(argv))
    job = load_job(arguments.file)
    config = choose_topic(job.config, arguments.topic)
    spark = session_of(job)
    try:
        frame = state_frame(spark, config)
        if arguments.where:
            frame = frame.where(arguments.where)
        if arguments.output:
            frame.write.format(arguments.format).mode("errorifexists").save(arguments.output)
            print(f"written to {arguments.output}")  # noqa: T201 - a command
        elif arguments.count:
            print(frame.count())  # noqa: T201 - a command
        else:
            frame.show(arguments.show, truncate=False)
    finally:
        spark.stop()
    return 0


def state_frame(spark: SparkSession, config: Config, engine: Callable[[int], Engine] | None = None) -> DataFrame:
    """The live rows of a job's table as of each time the frame is used; one task per bucket, in bounded memory.

    Columns: the table's (of all versions that live rows have), ``write_time_`` (timestamp) and ``bucket_`` (int). Each host
    keeps a cache of its own in ``state.dir``/frames, so that later uses read only what is new.

    Args:
        spark: the session.
        config: the job's.
        engine: makes the engine; None: the job's.

    Raises:
        Fatal: there is no state.
        Retriable: Kafka does not answer.
    """
    bucket_options = _read_bucket_options(config, engine or EngineFactory(options.merge_options(config)))
    heads = (
        spark.range(0, bucket_options.partitions, 1, bucket_options.partitions)
        .mapInArrow(_read_heads(bucket_options), "head string")
        .collect()
    )
    columns: dict[str, str] = {}
    for row in heads:
        head = msgspec.json.decode(row[0], type=_BucketHead)
        if head.error:
            raise Retriable(head.error) if head.retriable else Fatal(head.error)
        # If a column has several types, that of the newest row counts: it is in the newest version.
        columns |= head.columns
    rows = spark.range(0, bucket_options.partitions, 1, bucket_options.partitions).mapInArrow(
        _read_rows(bucket_options), f"row string, {WRITE_TIME} long, {BUCKET} int"
    )
    from pyspark.sql import functions as f

    if not columns:
        return rows.select(f.timestamp_micros(WRITE_TIME).alias(WRITE_TIME), BUCKET).limit(0)
    schema = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns.items())
    return rows.select(
        f.from_json("row", schema, {"mode": "FAILFAST"}).alias("r"),
        f.timestamp_micros(WRITE_TIME).alias(WRITE_TIME),
        BUCKET,
    ).select("r.*", WRITE_TIME, BUCKET)


class _BucketHead(msgspec.Struct):
    """The columns of one bucket: column -> type."""

    columns: dict[str, str] = {}
    error: str = ""
    retriable: bool = False


def _read_bucket_options(config: Config, engine: Callable[[int], Engine]) -> BucketOptions:
    client = clients.build_client_config(config)
    admin = topics.KafkaTopics(client)
    name = options.changelog_topic(config)
    changelog = admin.find(name)
    if changelog is None:
        raise Fatal(f"there is no changelog {name}: the job {config['name']} has no state (has it ever run?)")
    return BucketOptions(
        job=config["name"],
        owner=MarkerOwner(0, ""),
        client=client,
        group=f"millrace-{config['name']}-state",
        input_topic="",
        input_id="",
        partitions=changelog.partitions,
        output_topic="",
        output_id="",
        changelog_topic=name,
        changelog_id=changelog.id,
        state_dir=str(Path(config["state.dir"]) / "frames"),
        engine=engine,
        delete_retention_ms=int(changelog.config.get("delete.retention.ms", 86_400_000)),
    )


def _iter_live_rows(bucket_options: BucketOptions, bucket: int) -> Iterator[LiveRow]:
    """The live rows of one bucket, from a cache that is brought to the changelog's end first."""
    changelog = Changelog(bucket_options.client, bucket_options.changelog_topic, bucket_options.group)
    try:
        cache = BucketCache(bucket_options.folder(bucket), bucket_options.job, bucket, bucket_options.changelog_id)
        try:
            while True:
                # Another task of this host may do the same at the same time.
                with suppress(Moved):
                    meta, _ = catch_up(cache, changelog, bucket_options, bucket)
                    overlay = Overlay(cache, meta, max_changes=1, max_bytes=1)
                    break
            changelog.close()
            try:
                yield from bucket_options.engine(0).rows(overlay)
            finally:
                overlay.end()
        finally:
            cache.close()
    finally:
        changelog.close()


def _read_heads(bucket_options: BucketOptions) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for bucket in batch.column(0).to_pylist():
                head = _BucketHead()
                try:
                    row = next(_iter_live_rows(bucket_options, bucket), None)
                    if row is not None:
                        head.columns = dict(zip(row.values, row.types, strict=True))
                except (Retriable, Fatal) as error:
                    head = _BucketHead(error=str(error), retriable=isinstance(error, Retriable))
                yield pa.RecordBatch.from_arrays([pa.array([msgspec.json.encode(head).decode()])], names=["head"])

    return task


def _read_rows(bucket_options: BucketOptions) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for bucket in batch.column(0).to_pylist():
                row_texts: list[str] = []
                times: list[int] = []
                for row in _iter_live_rows(bucket_options, bucket):
                    row_texts.append(msgspec.json.encode(row.values).decode())
                    times.append(row.write_time_us)
                    if len(row_texts) == _ROWS:
                        yield _build_page(row_texts, times, bucket)
                        row_texts, times = [], []
                if row_texts:
                    yield _build_page(row_texts, times, bucket)

    return task


def _build_page(row_texts: list[str], times: list[int], bucket: int) -> pa.RecordBatch:
    import pyarrow as pa

    arrays: list[Any] = [
        pa.array(row_texts, pa.string()),
        pa.array(times, pa.int64()),
        pa.array([bucket] * len(row_texts), pa.int32()),
    ]
    return cast("pa.RecordBatch", pa.RecordBatch.from_arrays(arrays, names=["row", WRITE_TIME, BUCKET]))
