"""The functions that a source's Spark tasks run over records: decoding, the search for schemas, reports of bad records."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Final

from connectors.errors import Skippable
from spark_jobs.sources.records.events import find_subject
from spark_jobs.sources.records.kinds import RecordSample, Rules, choose_sample
from spark_jobs.sources.records.rows import Report, TableDecoder
from spark_jobs.sources.records.search import Search
from spark_jobs.spark.worker_memory import frozen_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import types as t

    from spark_jobs.dead_letters import DeadLetters
    from spark_jobs.sources.records.reader import DecodePlan

#: Input columns of decoding tasks.
FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value")


def make_decoding_task(
    plan: DecodePlan, report: DeadLetters
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The task that makes a table's rows of records."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Decoding makes no cycles, and looking for some costs as much as it does.
        gc.disable()
        decoder = TableDecoder(plan, report.report)
        try:
            with report:
                for batch in batches:
                    yield from decoder.decode(batch)
        finally:
            gc.enable()

    return frozen_after("decoding", run)


def make_record_batch(topic: str, key: bytes | None, value: bytes) -> pa.RecordBatch:
    """One record as tasks get it; its position does not matter."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(
        [
            pa.array([topic]),
            pa.array([0], pa.int32()),
            pa.array([0], pa.int64()),
            pa.array([0], pa.timestamp("us", tz="UTC")),
            pa.array([key], pa.binary()),
            pa.array([value], pa.binary()),
        ],
        names=list(FIELDS),
    )


def no_report(*record: object) -> None:
    """Takes bad records that were reported before."""
    del record


def make_search_task(
    known_types: dict[str, dict[str, t.DataType]], rules: Rules, report: Report, letters: DeadLetters
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The task that looks for tables and columns; ``letters`` are those that ``report`` writes."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gc.disable()
        search = Search(known_types, rules, report)
        try:
            with letters:
                for batch in batches:
                    search.look(batch)
            yield search.result()
        finally:
            gc.enable()

    return frozen_after("searching", run)


def make_choosing_task(rules: Rules, avro: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The task that finds the best sample among records of one kind."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        sample = RecordSample()
        for batch in batches:
            for index in range(batch.num_rows):
                sample = choose_sample(sample, batch.slice(index, 1), rules, avro)
        if sample.rank >= 0:
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([sample.rank], pa.int32()),
                    pa.array([sample.key], pa.binary()),
                    pa.array([sample.value], pa.binary()),
                ],
                names=["rank", "key", "value"],
            )

    return run


def reporting_about(
    report: DeadLetters, bad: Mapping[tuple[str, str | bytes], str], *, envelope: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The task that reports the records of tables and schemas of which no record can be used."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        count = 0
        with report:
            for batch in batches:
                for row in batch.to_pylist():
                    try:
                        _, about = find_subject(row["value"], row["topic"], envelope=envelope)
                    except Skippable:
                        continue  # reported by the search
                    error = bad.get((row["topic"], about))
                    if error is not None:
                        report.report(
                            row["topic"], row["partition"], row["offset"], row["key"], row["value"], Skippable(error)
                        )
                        count += 1
        yield pa.RecordBatch.from_pydict({"n": pa.array([count], pa.int64())})

    return run


def make_reporting_task(
    report: DeadLetters, error: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The task that reports all records that it gets."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        count = 0
        with report:
            for batch in batches:
                for row in batch.to_pylist():
                    report.report(
                        row["topic"], row["partition"], row["offset"], row["key"], row["value"], Skippable(error)
                    )
                    count += 1
        yield pa.RecordBatch.from_pydict({"n": pa.array([count], pa.int64())})

    return run
