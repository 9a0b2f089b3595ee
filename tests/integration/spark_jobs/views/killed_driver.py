"""A driver with a view, to be killed: ``python -m tests.integration.spark_jobs.views.killed_driver FOLDER SEED BATCHES``.

It takes the batches of a random history that the folder does not have as done, as a streaming query does. The output of each
attempt of a batch is a file of its own. It says in a line where it is, and continues when a line is sent to it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from spark_jobs.contract import TableChanges
from spark_jobs.spark.session import build_session
from spark_jobs.steps.flow import empty_changes
from spark_jobs.testing.batches import make_frame
from tests.integration.spark_jobs.views.histories import TABLES, History, random_query
from tests.integration.spark_jobs.views.test_view_histories import flow_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.spark_jobs.views.histories import Query, Row

CASES: Final = 20
#: What the driver says, in this order: for each batch, and once before all.
READY, BEGINS, WRITTEN, KEPT = "ready", "begins", "written", "kept"


def history_of(seed: int, batches: int) -> tuple[Query, Iterator[tuple[History, dict[str, list[Row]]]]]:
    """The query of a seed, and its batches with the history as it is after each."""
    source = Random(seed)
    query, history = random_query(source), History(source, CASES)

    def changes() -> Iterator[tuple[History, dict[str, list[Row]]]]:
        for number in range(batches):
            yield history, history.batch(query.tables, 8 if number == 0 else 1)

    return query, changes()


def say(word: str) -> None:
    """Say where the driver is, and wait until it may continue."""
    print(word, flush=True)
    sys.stdin.readline()


def main(folder: Path, seed: int, batches: int) -> int:
    """Take the batches that are not done; returns the exit code."""
    spark = build_session("killed", extra_jars=("delta",), conf={"spark.sql.shuffle.partitions": "1"})
    spark.sparkContext.setLogLevel("ERROR")
    query, changes = history_of(seed, batches)
    flow = flow_of(query, folder / "checkpoint", images=False)
    schemas = [TABLES[name] for name in query.tables]
    say(READY)
    for number, (_, batch) in enumerate(changes):
        done = folder / f"{number}.done"
        if done.exists():
            continue
        say(BEGINS)
        tables = [TableChanges(TABLES[name], make_frame(spark, TABLES[name], rows)) for name, rows in batch.items()]
        output = flow.apply(tables, spark, lambda: empty_changes(spark, schemas), number)
        rows = [row.asDict(recursive=True) for table in output for row in table.frame.collect()]
        part = folder / f"{number}.{os.getpid()}.part"
        part.write_text(json.dumps(rows, default=str), encoding="utf-8")
        part.rename(part.with_suffix(".json"))
        say(WRITTEN)
        flow.commit()
        say(KEPT)
        done.touch()
        flow.end_batch()
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
