"""Small batches are written in threads of the driver: their rows, their errors, and a database that does not answer."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from connectors.errors import Retriable
from spark_jobs.sinks.jdbc.small_batches import SmallBatches

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_gives_what_the_task_gives_for_all_rows() -> None:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"size": [len(value.as_py()) for value in batch.column(0)]})

    assert SmallBatches().write((b"a", b"bcd"), task) == [{"size": 1}, {"size": 3}]


def test_raises_what_the_task_raises() -> None:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise ZeroDivisionError(str(sum(batch.num_rows for batch in batches)))

    with pytest.raises(ZeroDivisionError, match="2"):
        SmallBatches().write((b"a", b"b"), task)


def test_a_batch_that_is_given_up_does_not_wait_for_the_database() -> None:
    began, answered = threading.Event(), threading.Event()
    small = SmallBatches()

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        began.set()
        answered.wait(60)
        yield from batches

    def give_up() -> None:
        began.wait(60)
        small.give_up()

    threading.Thread(target=give_up).start()
    try:
        with pytest.raises(Retriable, match="given up"):
            small.write((b"a",), task)
        assert not answered.is_set()
    finally:
        answered.set()
