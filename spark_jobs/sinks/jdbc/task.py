"""The work of a Spark task on its rows: split into transactions, reduce, load, merge, commit; retry after a transient fault.

Runs in Spark's Python workers. A fault of the database is not raised but reported in the one row that a task returns
(``OUTCOME``), with its message, so that the driver can distinguish a transient one from one that a person has to fix.
"""

# ruff: noqa: S608 - names in the statements are quoted by the dialect, values are parameters or escaped
from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectors.backoff import Backoff
from connectors.errors import Fatal, Retriable
from spark_jobs.sinks.jdbc import branches
from spark_jobs.sinks.jdbc.dialect.dialects import load_dialect
from spark_jobs.sinks.jdbc.model import Fault
from spark_jobs.sinks.jdbc.rows import (
    DAY_NS,
    OFFSET,
    PARTITION,
    TOPIC,
    at_offset_boundary,
    has_more_digits,
    has_nanoseconds,
    python_values,
    select_newest,
    with_clocks,
    with_uuids,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spark_jobs.dead_letters import DeadLetters
    from spark_jobs.sinks.jdbc.model import Connection, Dialect, JdbcPlan

#: Columns of a task's report, as Spark's schema text and as Arrow's.
OUTCOME_DDL: Final = "rows long, loaded long, skipped long, bad long, retries long, error string, passing boolean"
OUTCOME: Final = pa.schema(
    [
        ("rows", pa.int64()),
        ("loaded", pa.int64()),
        ("skipped", pa.int64()),
        ("bad", pa.int64()),
        ("retries", pa.int64()),
        ("error", pa.string()),
        ("passing", pa.bool_()),
    ]
)
_LONGEST_PAUSE_S: Final = 10.0
_VALUE_SHOWN: Final = 200
#: How PostgreSQL (in COPY's context) and MariaDB name the column whose value they refuse.
_COPY_COLUMN: Final = re.compile(r"^COPY .*?, line \d+, column (.+?)(?:: .*)?$", re.MULTILINE)
_COLUMN: Final = re.compile(r"[Cc]olumn (?:'(.+?)'|(?:`[^`]*`\.)*`(.+?)`)(?: at row| |$)")


@dataclass(slots=True)
class JdbcOutcome:
    """The counts of a task: rows received, rows loaded (after reduction), rows committed before, bad rows put aside."""

    rows: int = 0
    loaded: int = 0
    skipped: int = 0
    bad: int = 0
    retries: int = 0
    error: str | None = None
    passing: bool = False

    def batch(self) -> pa.RecordBatch:
        """As Arrow."""
        return pa.RecordBatch.from_pylist([{name: getattr(self, name) for name in OUTCOME.names}], schema=OUTCOME)


class _Bad(Exception):
    """A single row that the database refuses."""

    def __init__(self, row: pa.Table, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.row = row
        self.cause = cause


class _Collision(Exception):
    """Another transaction has inserted the same row of the table of positions: to be retried."""


def _refuse_times(rows: pa.Table, name: str, cut: Any, bad: list[_Bad]) -> pa.Table:
    """The rows that ``cut`` leaves; the others are added to ``bad``."""
    misfits = rows.filter(cut)
    cause = ValueError(f"the time in column {name} has more digits after the second than the column")
    bad += [_Bad(misfits.slice(number, 1), cause) for number in range(misfits.num_rows)]
    return rows.filter(pc.invert(cut)) if misfits.num_rows else rows


@dataclass(slots=True)
class TaskWriter:
    """The function of ``mapInArrow``; picklable. ``letters``: where bad rows go; None stops the job at the first."""

    plan: JdbcPlan
    letters: DeadLetters | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows of the task."""
        writer = _Writer(self.plan, load_dialect(self.plan.login.address.dialect), self.letters)
        try:
            writer.run(batches)
        finally:
            writer.close()
        yield writer.outcome.batch()


@dataclass(slots=True)
class _Writer:
    plan: JdbcPlan
    dialect: Dialect
    letters: DeadLetters | None
    outcome: JdbcOutcome = field(default_factory=JdbcOutcome)
    _connection: Connection | None = None

    def run(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Write all rows. A fault of the database ends it and is in the outcome; those of the source are raised."""
        chunks = self._split_chunks(batches)
        while True:
            try:
                if self.plan.branch:
                    self._prepare_branch(chunks)
                    return
                chunk = next(chunks, None)
                if chunk is None:
                    return
                self._write_transaction(chunk)
            except Retriable as error:
                self.outcome.error, self.outcome.passing = str(error), True
                return
            except Fatal as error:
                self.outcome.error = str(error)
                return

    def close(self) -> None:
        """Let the connection go."""
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None

    def _split_chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Split the rows into chunks of one transaction each; with positions kept, the rows of a record stay together."""
        pending: list[pa.RecordBatch] = []
        rows = size = 0
        own_columns = self.plan.columns[: self.plan.row_columns]
        for record_batch in batches:
            batch = record_batch.rename_columns([*own_columns, *record_batch.schema.names[len(own_columns) :]])
            for start in range(0, batch.num_rows, self.plan.batch_rows):
                chunk = batch.slice(start, self.plan.batch_rows)
                pending.append(chunk)
                rows += chunk.num_rows
                size += chunk.nbytes
                self.outcome.rows += chunk.num_rows
                if rows < self.plan.batch_rows and size < self.plan.batch_bytes:
                    continue
                table = pa.Table.from_batches(pending)
                cut = at_offset_boundary(table) if self.plan.commits else table.num_rows
                if cut:
                    yield table.slice(0, cut)
                remainder = table.slice(cut)
                pending, rows, size = remainder.to_batches(), remainder.num_rows, remainder.nbytes
        if rows:
            yield pa.Table.from_batches(pending)

    def _write_transaction(self, chunk: pa.Table) -> None:
        # One statement can't write a row twice, so each key has to have one spelling.
        rows = select_newest(with_uuids(chunk, self.plan.uuids), self.plan.keys) if self.plan.keys else chunk
        pauses = Backoff(self.plan.backoff_ms / 1000, _LONGEST_PAUSE_S, low=0.5, high=1.5)
        for attempt in range(self.plan.retries + 1):
            try:
                connection = self._open_connection()
                loaded, skipped, bad = self._write_rows(connection, rows)
                # Bad rows are put aside before the commit: a crash in between puts them aside twice, never not at all.
                self._put_aside(bad)
                connection.commit()
            except Exception as error:
                fault = Fault.RETRY if isinstance(error, _Collision) else self.dialect.classify(error)
                if fault is None:
                    raise
                if fault is not Fault.RETRY:
                    raise Fatal(f"{self._describe_table()} can't be written: {_format_error(error)}") from error
                self.close()  # the server rolls back the open transaction
                self.outcome.retries += 1
                if attempt == self.plan.retries:
                    raise Retriable(
                        f"{self._describe_table()} could not be written {attempt + 1} times: {_format_error(error)}"
                    ) from error
                time.sleep(pauses.next_s())
            else:
                self.outcome.loaded += loaded
                self.outcome.skipped += skipped
                self.outcome.bad += len(bad)
                return

    def _prepare_branch(self, chunks: Iterator[pa.Table]) -> None:
        """Write all rows in one transaction, and prepare it; nothing is done where there are no rows."""
        first = next(chunks, None)
        if first is None:
            return
        branch = f"{self.plan.branch}-{hashlib.sha256(self.plan.namespace.encode()).hexdigest()[:8]}"
        try:
            connection = self._connection = self.dialect.connect(self.plan.login)
            if not self.plan.teardown:
                self._execute_all(connection, self.plan.setup)
            branches.begin_branch(connection, branch)
            if self.plan.teardown:
                self._execute_all(connection, self.plan.setup)
            for chunk in itertools.chain([first], chunks):
                rows = select_newest(with_uuids(chunk, self.plan.uuids), self.plan.keys) if self.plan.keys else chunk
                loaded, skipped, bad = self._write_rows(connection, rows)
                self._put_aside(bad)
                self.outcome.loaded += loaded
                self.outcome.skipped += skipped
                self.outcome.bad += len(bad)
            self._execute_all(connection, self.plan.teardown)
            branches.prepare_branch(connection, branch)
        except Exception as error:
            fault = Fault.RETRY if isinstance(error, _Collision) else self.dialect.classify(error)
            if fault is None:
                raise
            kind = Retriable if fault is Fault.RETRY else Fatal
            raise kind(f"{self._describe_table()} can't be written: {_format_error(error)}") from error
        finally:
            self.close()  # MariaDB: no other connection can end the branch before

    def _execute_all(self, connection: Connection, statements: Sequence[str]) -> None:
        for statement in statements:
            self._execute_statement(connection, statement)

    def _open_connection(self) -> Connection:
        if self._connection is None:
            self._connection = self.dialect.connect(self.plan.login)
            for statement in self.plan.setup:
                self._execute_statement(self._connection, statement)
            self._connection.commit()
        return self._connection

    def _describe_table(self) -> str:
        return f"table {self.plan.target} ({self.plan.login.text})"

    @staticmethod
    def _execute_statement(
        connection: Connection, statement: str, arguments: tuple[Any, ...] | None = None
    ) -> list[tuple[Any, ...]]:
        with contextlib.closing(connection.cursor()) as cursor:
            cursor.execute(statement, *(() if arguments is None else (arguments,)))
            return list(cursor.fetchall()) if cursor.description else []

    def _write_rows(self, connection: Connection, rows: pa.Table) -> tuple[int, int, list[_Bad]]:
        """Load one transaction's rows; rows loaded, rows that were there already, bad ones."""
        row_count = rows.num_rows
        if self.plan.commits:
            rows = self._not_committed(connection, rows)
        bad: list[_Bad] = []
        whole = self._without_cut_times(rows, bad)
        if whole.num_rows:
            self._load_rows(connection, whole, bad)
        if bad and self.letters is None:
            raise Fatal(self._describe_bad_row(bad[0]))
        return rows.num_rows - len(bad), row_count - rows.num_rows, bad

    def _without_cut_times(self, rows: pa.Table, bad: list[_Bad]) -> pa.Table:
        """The rows whose times the database would not cut, or round, without an error; in a key two of them would be one."""
        for name, digits in self.plan.seconds:
            rows = _refuse_times(rows, name, has_more_digits(rows.column(name), digits), bad)
        for name in self.plan.clocks:
            if name in self.plan.keys:
                rows = _refuse_times(rows, name, has_nanoseconds(rows.column(name)), bad)
        return rows

    def _load_rows(self, connection: Connection, rows: pa.Table, bad: list[_Bad]) -> None:
        """Load and merge; where the database refuses a value, find the row by halves."""
        self._execute_statement(connection, "SAVEPOINT rows_")
        try:
            if self.plan.clear:
                self._execute_statement(connection, self.plan.clear)
            self.dialect.load(connection, self.plan.into, with_clocks(rows, self.plan.clocks), self.plan.columns)
            deletes = self.plan.steps and bool(pc.any(pc.equal(rows.column("ums_op_"), "d")).as_py())
            for step in self.plan.steps:
                if deletes or not step.deletes:
                    self._execute_statement(connection, step.sql)
        except Exception as error:
            if self.dialect.classify(error) is not Fault.DATA:
                raise
            self._execute_statement(connection, "ROLLBACK TO SAVEPOINT rows_")
            if rows.num_rows == 1:
                bad.append(_Bad(rows, error))
                return
            half = rows.num_rows // 2
            self._load_rows(connection, rows.slice(0, half), bad)
            if bad and self.letters is None:
                return  # the job stops; the rest will be seen when the first is fixed
            self._load_rows(connection, rows.slice(half), bad)
        else:
            self._execute_statement(connection, "RELEASE SAVEPOINT rows_")

    def _not_committed(self, connection: Connection, rows: pa.Table) -> pa.Table:
        """Rows at or after the positions of the table of positions, which is locked and moved on in this transaction."""
        ends = rows.group_by([TOPIC, PARTITION], use_threads=False).aggregate([(OFFSET, "max")]).to_pylist()
        quote, commits, value = self.dialect.quote, self.plan.commits, self.dialect.placeholder
        partition_condition = " AND ".join(f"{quote(name)} = {value}" for name in _COMMIT[:4])
        for end in sorted(ends, key=lambda entry: (entry[TOPIC], entry[PARTITION])):
            where = (self.plan.job, self.plan.writer, end[TOPIC], end[PARTITION])
            position_rows = self._execute_statement(
                connection,
                f"SELECT {quote('next_offset_')} FROM {commits} WHERE {partition_condition}{self.dialect.row_lock}",
                where,
            )
            if not position_rows:
                try:
                    self._execute_statement(
                        connection,
                        f"INSERT INTO {commits} ({', '.join(map(quote, _COMMIT))}) "
                        f"VALUES ({value}, {value}, {value}, {value}, 0)",
                        where,
                    )
                except Exception as error:
                    if self.dialect.classify(error) is Fault.DATA:  # a duplicate: another writer found nothing, too
                        raise _Collision("another writer writes the same positions") from error
                    raise
                position_rows = [(0,)]
            done = int(position_rows[0][0])
            after = int(end[f"{OFFSET}_max"]) + 1
            if done > 0:
                here = pc.and_(
                    pc.equal(rows.column(TOPIC), end[TOPIC]), pc.equal(rows.column(PARTITION), end[PARTITION])
                )
                rows = rows.filter(pc.invert(pc.and_(here, pc.less(rows.column(OFFSET), done))))
            if after > done:
                self._execute_statement(
                    connection,
                    f"UPDATE {commits} SET {quote('next_offset_')} = {value}, {quote('written_at_')} = "
                    f"CURRENT_TIMESTAMP WHERE {partition_condition}",
                    (after, *where),
                )
        return rows

    def _put_aside(self, bad: list[_Bad]) -> None:
        if not bad or self.letters is None:
            return
        with self.letters:
            for bad_row in bad:
                row = _values_of(bad_row.row)
                self.letters.report(
                    row[TOPIC],
                    row[PARTITION],
                    row[OFFSET],
                    None,
                    repr(_own_values(row)).encode(),
                    Fatal(self._describe_bad_row(bad_row)),
                    stage="TASK_PUT",
                )

    def _describe_bad_row(self, bad: _Bad) -> str:
        row = _values_of(bad.row)
        key = ", ".join(f"{name}={row[name]!r}"[:_VALUE_SHOWN] for name in self.plan.keys)
        where = f"{row[TOPIC]}-{row[PARTITION]} offset {row[OFFSET]}{' with ' + key if key else ''}"
        column = column_of(bad.cause)
        # The row's values stay out of logs and dead letters: the position leads to them.
        named = f" (column {column})" if column in row else ""
        return (
            f"{self._describe_table()} refuses the row of {where}: {_format_error(bad.cause)}{named}. "
            f"{self._find_time_hint(row)}Change the column so "
            "that it can hold the value, or set errors.tolerance=all to put such rows aside"
        )

    def _find_time_hint(self, row: dict[str, Any]) -> str:
        """Explain which column can hold a time outside a day; empty if the row has no such time."""
        wrong = [name for name in self.plan.clocks if row[name] is not None and not 0 <= row[name] < DAY_NS]
        if not wrong:
            return ""
        name = self.dialect.quote(wrong[0])
        table = self.dialect.quote(self.plan.target)
        return (
            f"The time in column {wrong[0]} is negative, or a day and more. In PostgreSQL an interval holds it: ALTER "
            f"TABLE {table} ALTER COLUMN {name} TYPE interval; a bigint holds its nanoseconds. "
        )


def _values_of(row: pa.Table) -> dict[str, Any]:
    """The values of a single row."""
    return {name: python_values(row.column(name))[0] for name in row.schema.names}


_COMMIT: Final = ("job_", "table_", "kafka_topic_", "kafka_partition_", "next_offset_")


def _own_values(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in (TOPIC, PARTITION, OFFSET)}


def column_of(error: BaseException) -> str:
    """The column that an error is about, where the database says so: PostgreSQL for COPY, MariaDB and MySQL for most."""
    context = getattr(getattr(error, "diag", None), "context", None)
    if context is not None:
        match = _COPY_COLUMN.search(context)
        return match[1] if match is not None else ""
    match = _COLUMN.search(str(error.args[-1] if error.args else ""))
    return next(filter(None, match.groups()), "") if match is not None else ""


def _format_error(error: BaseException) -> str:
    """An error in one line, without the values of the row (PostgreSQL's CONTEXT and DETAIL show them)."""
    message = str(error).strip().partition("\nCONTEXT")[0].partition("\nDETAIL")[0]
    return " ".join(message.split())
