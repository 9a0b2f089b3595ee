"""The Spark task of a sink of rows: collects rows, reduces them to the newest per key, writes, retries, counts.

Runs in Spark's Python workers. A fault of the system is not raised but reported in the one row that a task gives back, so that
the driver can tell a passing one from one that a person has to fix.
"""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.backoff import Backoff
from connectors.errors import Fatal, Retriable
from spark_jobs.sinks.jdbc.config import UPSERT
from spark_jobs.sinks.jdbc.rows import POSITION, python_values, select_newest
from spark_jobs.sinks.shared.model import SinkRow, Unfinished
from spark_jobs.sinks.shared.values import json_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    from spark_jobs.dead_letters import DeadLetters
    from spark_jobs.sinks.shared.model import ArrowClient, OpenClient, RowClient, RowTable, WriteCounts
    from spark_jobs.sinks.shared.options import RowSettings

#: The columns that follow a table's own in the frames that tasks get.
SYSTEM: Final = ("ums_id_", "ums_ts_", "ums_op_", "ums_uid_", *POSITION)
#: The numbers in a task's report; see ``RowOutcome``.
COUNTS: Final = ("rows", "written", "stale", "bad", "requests", "retries")
#: Columns of a task's report, as Spark's schema text and as Arrow's.
OUTCOME_DDL: Final = ", ".join([*(f"{name} long" for name in COUNTS), "error string", "passing boolean"])
OUTCOME: Final = pa.schema([*((name, pa.int64()) for name in COUNTS), ("error", pa.string()), ("passing", pa.bool_())])
#: The column with the number of a row within its record, in rows of ``ArrowClient``.
NUMBER: Final = "number_of_record_"
#: Types whose values numpy gives back as Python has them: with nulls, and without.
_OBJECTS: Final = (pa.types.is_decimal, pa.types.is_string, pa.types.is_large_string)
_NUMBERS: Final = (pa.types.is_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_boolean)
_LONGEST_PAUSE_S: Final = 10.0
#: A system that asks for a longer pause gives the batch back to the job, which shows that it waits.
_LONGEST_WAIT_S: Final = 60.0
_KEY_SHOWN: Final = 200


@dataclass(slots=True)
class RowOutcome:
    """The result of a task: rows that came, written, left out as older (or there already), put aside; requests, retries."""

    rows: int = 0
    written: int = 0
    stale: int = 0
    bad: int = 0
    requests: int = 0
    retries: int = 0
    error: str | None = None
    passing: bool = False

    def batch(self) -> pa.RecordBatch:
        """As Arrow."""
        return pa.RecordBatch.from_pylist([{name: getattr(self, name) for name in OUTCOME.names}], schema=OUTCOME)


@dataclass(slots=True)
class RowTask:
    """The function of ``mapInArrow`` over the frames that ``writing`` makes; picklable.

    Attributes:
        table: the rows' table.
        settings: how they are written.
        open_client: makes the client.
        letters: where bad rows go; None stops the job at the first.
        arrow: whether the client takes Arrow (``ArrowClient``), and all rows, for its target finds the newest of each key.
    """

    table: RowTable
    settings: RowSettings
    open_client: OpenClient
    letters: DeadLetters | None = None
    arrow: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows of the task."""
        run = _TaskRun(self)
        try:
            run.write(batches)
        finally:
            run.close()
        yield run.outcome.batch()


@dataclass(slots=True)
class _TaskRun:
    task: RowTask
    outcome: RowOutcome = field(default_factory=RowOutcome)
    _client: RowClient | ArrowClient | None = None
    _last: tuple[Any, int] = (None, 0)

    def write(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Write all rows. A fault of the system ends it and is in the outcome; those of the source are raised.

        A thread writes a chunk while the next one is prepared: the system does not wait for that.
        """
        with ThreadPoolExecutor(1, "millrace-sink") as writer:
            writing: Future[None] | None = None
            for chunk in self._split_chunks(batches):
                rows = self._reduce_rows(chunk)
                if not self.task.arrow:
                    rows = rows_of(rows, self.task.table.columns)
                if writing is not None and not self._is_written(writing):
                    return
                writing = writer.submit(self._write_rows, rows)
            if writing is not None:
                self._is_written(writing)

    def _is_written(self, writing: Future[None]) -> bool:
        """Wait for the end of a write; whether it wrote its rows, else its fault is in the outcome."""
        try:
            writing.result()
        except Retriable as error:
            self.outcome.error, self.outcome.passing = str(error), True
        except Fatal as error:
            self.outcome.error = str(error)
        return self.outcome.error is None

    def close(self) -> None:
        """Let the connection go."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                client.close()

    def _split_chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """The rows in chunks that are written together."""
        chosen = self.task.settings
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        due = 0.0
        for batch_in in batches:
            batch = batch_in.rename_columns([*self.task.table.columns, *SYSTEM])
            # Rows of one batch are about equally long.
            step = max(1, min(chosen.batch_rows, chosen.batch_bytes * max(1, batch.num_rows) // max(1, batch.nbytes)))
            start = 0
            while start < batch.num_rows:
                part = batch.slice(start, min(step, chosen.batch_rows - rows))
                start += part.num_rows
                due = due if waiting else time.monotonic() + chosen.batch_s
                waiting.append(part)
                rows += part.num_rows
                size += part.nbytes
                if rows >= chosen.batch_rows or size >= chosen.batch_bytes or time.monotonic() >= due:
                    yield pa.Table.from_batches(waiting)
                    waiting, rows, size = [], 0, 0
        if waiting:
            yield pa.Table.from_batches(waiting)

    def _reduce_rows(self, chunk: pa.Table) -> pa.Table:
        """The rows to write, with their numbers within records."""
        self.outcome.rows += chunk.num_rows
        if self.task.settings.ordered:
            counted, self._last = numbers_of_records(chunk, self._last)
            numbers = pa.array(counted, pa.int32())
        else:
            numbers = pa.repeat(pa.scalar(0, pa.int32()), chunk.num_rows)
        chunk = chunk.append_column(NUMBER, numbers)
        if self.task.arrow or self.task.settings.mode != UPSERT or not self.task.table.keys:
            return chunk
        reduced = select_newest(chunk, self.task.table.keys)
        if not self.task.settings.ordered:
            return reduced
        return reduced.sort_by([*((name, "ascending") for name in POSITION), (NUMBER, "ascending")])

    def _write_rows(self, rows: Any) -> None:
        chosen = self.task.settings
        pauses = Backoff(chosen.backoff_s, _LONGEST_PAUSE_S, low=0.5, high=1.5)
        attempt = 0
        while len(rows):
            if self._client is None:
                self._client = self.task.open_client(self.task.table)
            try:
                self._count_written(self._client.write(rows, self._refuse_rows))
            except Retriable as error:
                self.close()
                asked_s = 0.0
                if isinstance(error, Unfinished):
                    self._count_written(error.done)
                    rows, asked_s = error.left, error.after_s
                if attempt == chosen.retries or asked_s > _LONGEST_WAIT_S:
                    time.sleep(min(asked_s, _LONGEST_WAIT_S))
                    raise
                attempt += 1
                self.outcome.retries += 1
                time.sleep(max(pauses.next_s(), asked_s))
            else:
                return

    def _count_written(self, done: WriteCounts) -> None:
        self.outcome.written += done.rows
        self.outcome.stale += done.stale
        self.outcome.requests += done.requests

    def _refuse_rows(self, refused: Sequence[tuple[SinkRow, str]]) -> None:
        """See ``model.Refuse``."""
        if not refused:
            return
        if self.task.letters is None:
            raise Fatal(self._describe_refusal(*refused[0]))
        with self.task.letters as letters:
            for row, reason in refused:
                letters.report(
                    row.topic,
                    row.partition,
                    row.offset,
                    None,
                    json_of(row.values),
                    Fatal(self._describe_refusal(row, reason)),
                    stage="TASK_PUT",
                )
        self.outcome.bad += len(refused)

    def _describe_refusal(self, row: SinkRow, reason: str) -> str:
        key = ", ".join(f"{name}={row.values[name]!r}" for name in self.task.table.keys)[:_KEY_SHOWN]
        return (
            f"table {self.task.table.namespace}: the row of {row.position}{' with ' + key if key else ''} is refused: "
            f"{reason}. Correct it in the source, or set errors.tolerance=all to put such rows aside"
        )


def numbers_of_records(rows: pa.Table, last: tuple[Any, int]) -> tuple[list[int], tuple[Any, int]]:
    """The number of each row within its record, from 0. Pure.

    Args:
        rows: those of a record stand together.
        last: the position and the number of the row before; what the second result was for the rows before.
    """
    if not rows.num_rows:
        return [], last
    columns = [rows.column(name) for name in POSITION]
    position = tuple(column[0].as_py() for column in columns)
    begins = np.zeros(rows.num_rows, dtype=bool)
    for column in columns:
        begins[1:] |= pc.not_equal(column.slice(1), column.slice(0, rows.num_rows - 1)).to_numpy()
    position_numbers = np.arange(rows.num_rows)
    numbers = position_numbers - np.maximum.accumulate(np.where(begins, position_numbers, 0))
    if position == last[0]:
        first = np.argmax(begins) if begins.any() else rows.num_rows
        numbers[:first] += last[1] + 1
    end = tuple(column[-1].as_py() for column in columns)
    return numbers.tolist(), (end, int(numbers[-1]))


def rows_of(table: pa.Table, columns: Sequence[str]) -> list[SinkRow]:
    """Rows as Python has them. Pure.

    Args:
        table: the table's columns, then ``SYSTEM``, then the number within the record.
        columns: names of the first ones.
    """
    lists = [list_of(column) for column in table.columns]
    columns_own, system = lists[: len(columns)], lists[len(columns) :]
    values = [dict(zip(columns, row, strict=True)) for row in zip(*columns_own, strict=True)]
    return [SinkRow(*parts) for parts in zip(values, *system, strict=True)]


def list_of(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column as Python has them: as ``python_values``, which takes several times as long. Pure."""
    kind = column.type
    if any(fits(kind) for fits in _OBJECTS) or (not column.null_count and any(fits(kind) for fits in _NUMBERS)):
        values: list[Any] = column.to_numpy().tolist()
        return values
    if not (pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC")):
        return values_of_nested(column)
    times: list[Any] = column.cast(pa.timestamp("us")).to_numpy().tolist()
    if int in set(map(type, times)):
        return python_values(column)
    if kind.tz is None:
        return times
    return [time_value if time_value is None else time_value.replace(tzinfo=UTC) for time_value in times]


def values_of_nested(column: pa.ChunkedArray) -> list[Any]:
    """Values with maps as dictionaries, whose keys are text (JSON) where they have parts. Pure."""
    if not has_keys_with_parts(column.type):
        return python_values(column, "lossy")
    return [_as_dictionaries(value, column.type) for value in python_values(column)]


def has_keys_with_parts(kind: pa.DataType) -> bool:
    """Whether a type has maps whose keys are structs, arrays or maps. Pure."""
    if pa.types.is_map(kind):
        return pa.types.is_nested(kind.key_type) or has_keys_with_parts(kind.item_type)
    if not pa.types.is_nested(kind):
        return False
    return any(has_keys_with_parts(kind.field(number).type) for number in range(kind.num_fields))


def _as_dictionaries(value: Any, kind: pa.DataType) -> Any:
    """A value as ``to_pylist`` gives it, with dictionaries in place of lists of pairs."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        pairs = [(_as_dictionaries(key, kind.key_type), _as_dictionaries(item, kind.item_type)) for key, item in value]
        return {json_of(key).decode() if isinstance(key, dict | list) else key: item for key, item in pairs}
    if pa.types.is_struct(kind):
        return {name: _as_dictionaries(item, kind.field(name).type) for name, item in value.items()}
    if pa.types.is_nested(kind):
        return [_as_dictionaries(item, kind.value_type) for item in value]
    return value
