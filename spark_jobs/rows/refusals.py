"""Tables that a sink's target can't hold: they stop the job by name, or their records are put aside and others continue."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal
from spark_jobs.contract import KAFKA_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from spark_jobs.contract import Source, TableChanges, TableSchema
    from spark_jobs.dead_letters import DeadLetters

_log: Final = logging.getLogger(__name__)
_POSITION: Final = ("topic", "partition", "offset")


def select_accepted(
    tables: Sequence[TableChanges],
    refusal: Callable[[TableSchema], str],
    source: Source,
    letters: DeadLetters,
    raw: DataFrame,
    *,
    masked: bool,
) -> list[TableChanges]:
    """The tables that the target can hold. Blocks: runs a Spark job for each of the others, which puts its records aside.

    Args:
        tables: of a batch.
        refusal: why the target can't hold a table (``Sink.refusal``); empty where it can.
        source: its ``refused`` is called for each of those.
        letters: where records of refused tables go.
        raw: the batch's records.
        masked: whether the job masks columns: then a dead letter shows no key and no value.

    Raises:
        Fatal: a table is refused and bad records are not tolerated; the dead letter topic refuses a record.
        Retriable: Kafka does not take the dead letters.
    """
    reasons = [(changes, refusal(changes.schema)) for changes in tables]
    refused = [(changes, reason) for changes, reason in reasons if reason]
    for changes, reason in refused:
        if not letters.tolerant:
            raise Fatal(
                f"{reason}. Or set errors.tolerance=all: the records of this table are put aside then "
                "(errors.deadletterqueue.topic.name), and other tables continue"
            )
        source.refused(changes.schema.namespace)
    for changes, reason in refused:
        count = put_aside(changes.frame, raw, letters, reason, masked=masked)
        _log.error("%s; %d records are put aside", reason, count)
    return [changes for changes, reason in reasons if not reason]


def put_aside(
    rows: DataFrame, raw: DataFrame, letters: DeadLetters, reason: str, *, masked: bool, column: str = ""
) -> int:
    """Report the records that hold ``rows`` as dead letters; the number of records. Blocks: runs a Spark job.

    Args:
        rows: changes with ``KAFKA_COLUMNS``.
        raw: the batch's records.
        letters: where they go.
        reason: what is wrong with them; without values if ``masked``.
        masked: whether the job masks columns: then a dead letter shows no key and no value.
        column: of ``rows``, with what follows ``reason`` for each row; empty for none.

    Raises:
        Retriable: Kafka does not take the dead letters.
    """
    reporting = _make_reporting_task(letters, reason, masked=masked, column=column)
    reports = _select_records(rows, raw, column).mapInArrow(reporting, "n long").collect()
    return sum(row["n"] for row in reports)


def _select_records(rows: DataFrame, raw: DataFrame, column: str = "") -> DataFrame:
    """The records that hold ``rows``; of several values of ``column`` for one record, one."""
    from pyspark.sql import functions as f

    records = raw.select(*_POSITION, "key", "value")
    if not column:
        positions = rows.select(*KAFKA_COLUMNS).distinct().toDF(*_POSITION)
        return records.join(positions, list(_POSITION), "left_semi")
    positions = rows.groupBy(*KAFKA_COLUMNS).agg(f.first(column)).toDF(*_POSITION, column)
    return records.join(positions, list(_POSITION))


def _make_reporting_task(
    letters: DeadLetters, reason: str, *, masked: bool, column: str = ""
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        count = 0
        with letters:
            for batch in batches:
                for row in batch.to_pylist():
                    # The text has no values where columns are masked, so it is shown in such jobs, too.
                    letters.report(
                        row["topic"],
                        row["partition"],
                        row["offset"],
                        None if masked else row["key"],
                        None if masked else row["value"],
                        Fatal(f"{reason}: {row[column]}" if column else reason),
                        stage="TASK_PUT",
                    )
                    count += 1
        yield pa.RecordBatch.from_pydict({"n": pa.array([count], pa.int64())})

    return run
