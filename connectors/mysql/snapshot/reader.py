"""Takes snapshots at the same time as it reads the stream."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from pymysql.err import MySQLError

from connectors.errors import ConfigInvalid, Fatal, MillraceError, Retriable
from connectors.mysql.position import positions, shards
from connectors.mysql.snapshot import state
from connectors.mysql.snapshot.planner import MySqlSnapshotPlanner
from connectors.mysql.snapshot.reading import lookup
from connectors.mysql.snapshot.reading.chunks import Changed, MySqlChunkReader, SharedReading, Vanished
from connectors.mysql.snapshot.reading.throttle import SnapshotThrottle
from connectors.mysql.snapshot.reading.views import Views
from connectors.mysql.snapshot.work import RequestTable
from connectors.mysql.source.connection import explain_failure
from connectors.snapshot.engine import SnapshotEngine

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from connectors.api import Position, TaskMetrics
    from connectors.mysql.model import BinlogPosition, MySqlTable, Shard, TableName
    from connectors.mysql.snapshot.model import Early, Row, SnapshotChunk, SnapshotSettings
    from connectors.mysql.snapshot.reading.chunks import SnapshotSource
    from connectors.mysql.snapshot.work import TableReadJob, TableSnapshot

#: No such database or table.
_GONE: Final = frozenset({1049, 1051, 1146})
#: A column that is not there, a definition that changed under the view.
_CHANGED: Final = frozenset({1054, 1412, 1615, 1032})
#: The server ends queries that take too long.
_TOO_LONG: Final = frozenset({1317, 1969, 3024})
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0
#: More doublings don't make a pause longer.
_MOST_DOUBLINGS: Final = 10


class MySqlSnapshotReader(SnapshotEngine[MySqlSnapshotPlanner]):
    """Reads tables in chunks while the stream continues.

    All methods belong to the event loop of the task; those that are not ``async`` don't block.

    Args:
        settings: how to read.
        source: the server, and what the stream knows of it.
        shard: what this task owns.
        partition: makes the source partition of the task's share of a request.
        saved: request id -> the offset that ``done`` or ``changes`` gave last before the restart.
        metrics: gets the numbers of ``METRICS``.
        log: for people.
    """

    def __init__(
        self,
        settings: SnapshotSettings,
        source: SnapshotSource,
        shard: Shard,
        *,
        partition: Callable[[str], Position],
        saved: Mapping[str, Position],
        metrics: TaskMetrics | None,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        super().__init__(MySqlSnapshotPlanner(settings, shard, partition, saved), settings.threads, log)
        self._settings = settings
        self._source = source
        self._shard = shard
        self._metrics = metrics
        self._throttle = SnapshotThrottle(settings.threads, settings.rows_per_s, adaptive=settings.adaptive)
        self._shared = SharedReading(
            source, self._planner, shard, self._throttle, news=self._notify, idle=self._wait_turn, log=log
        )
        #: The connections, by the number of the reader.
        self._readers: dict[int, MySqlChunkReader] = {}

    @property
    def watched(self) -> Mapping[TableName, object]:
        """Tables of which the reader wants to know the changes: always the same mapping, to be asked before ``changed``."""
        return self._planner.watch.watched

    @property
    def withheld(self) -> Mapping[TableName, object]:
        """Tables without a key whose changes must not be sent: their initial snapshot, which comes later, has them.

        Always the same mapping. Pass their changes to ``changed`` all the same, and call ``advance`` after each transaction.
        """
        return self._planner.watch.withheld

    async def close(self) -> None:
        """Stop, and close the connections."""
        await super().close()
        while self._readers:
            self._readers.popitem()[1].close()

    def preset(self, request: str, tables: Sequence[MySqlTable]) -> None:
        """The tables of a request that ``set_requests`` gets next: they need not be looked for."""
        self._planner.preset(
            request,
            [
                RequestTable(table.name, None, not table.key, shards.sql_filter(table, self._shard) is not None)
                for table in tables
            ],
        )

    async def resolve(self) -> None:
        """Find the tables of new requests.

        Await it before the stream starts for the first time, so that ``withheld`` is complete. Without this call the tables are
        found automatically, but later.

        Raises:
            Retriable: the server is unavailable.
            ConfigInvalid: it refuses us.
        """
        while (job := self._planner.next_job(resolving=True)) is not None:
            try:
                connection = await self._source.connect()
                try:
                    await self._resolve_tables(job, connection)
                finally:
                    connection.close()
            finally:
                self._planner.failed(job)
                self._planner.finished(job)

    def ready(self, reached: Callable[[BinlogPosition], bool]) -> SnapshotChunk | None:
        """The next chunk that may be sent now; None while one is out (not ``done`` yet) or none is ready.

        Args:
            reached: whether the stream has taken everything before a place, between transactions. A place without a file is of
                a replica: compare its GTIDs.

        Raises:
            MillraceError: pulling is over for good.
        """
        self._raise_error()
        return self._planner.ready(reached)

    def done(self, chunk: SnapshotChunk) -> list[tuple[Position, Position]]:
        """The chunk was sent: what to save with its last record."""
        table = self._planner.sending
        images = None if table is None else table.images
        offsets = self._planner.done(chunk)
        if table is not None and images is not None and images.forgotten and not table.forgot:
            table.forgot = True
            self._log.warning(
                "snapshot of %s: it has no key and more than %d different rows, too many to remember which were sent. A delete "
                "or update may now come before the snapshot's row that it removes: apply the changes once the table is read, "
                "or give it a primary key",
                table.name,
                self._settings.most_images,
            )
        if table is not None:
            self._measure_chunk(chunk, table)
        self._wake()
        return offsets

    def changed(self, name: TableName, op: str, rows: Sequence[Row | None]) -> list[Early]:
        """The stream gives these rows (``u``: before and after in turns) of a table in ``watched`` or ``withheld``.

        Afterwards, and not before, ask ``withheld`` whether they may be sent.

        Returns:
            Rows of snapshots to send before them.
        """
        self._let_go(name)
        return self._planner.watch.changed(name, op, rows)

    def _let_go(self, name: TableName) -> None:
        """Release the table if the stream has passed its view: its changes need not wait for the end of their transaction."""
        for table in self._planner.watch.unreached[:]:
            if table.name == name and table.high is not None and table.high.file:
                position = self._source.seen_position()
                if positions.position_number(position.file, position.pos) >= positions.position_number(
                    table.high.file, table.high.pos
                ):
                    self._planner.pass_view(table)

    def advance(self, reached: Callable[[BinlogPosition], bool]) -> None:
        """The stream has finished a transaction."""
        self._planner.advance(reached)

    def altered(self, name: TableName | None) -> None:
        """The stream came by a change of the table's structure, a TRUNCATE, a DROP or a RENAME; None: of any table."""
        self._planner.altered(name)
        self._wake()

    def hold(self, transaction: str) -> None:
        """The stream comes by an XA transaction: until its end nothing is read, as it would lack its rows."""
        self._planner.xa.hold(transaction)

    def release(self, transaction: str) -> None:
        """The XA transaction has its end."""
        self._planner.xa.release(transaction)
        if not self._planner.xa.any:
            self._wake()

    def database_altered(self, database: str) -> None:
        """The stream came by a DROP or a change of a whole database."""
        self._planner.database_altered(database)
        self._wake()

    def progress(self) -> list[dict[str, Any]]:
        """How far each request is, in the order of reading.

        A request has ``id``, ``state``, ``percent``, ``started_ms``, ``finished_ms``, ``error`` and ``tables``; a table
        ``table``, ``state``, ``rows_total`` (estimated), ``rows_done``, ``superseded`` (of them left out for newer changes),
        ``chunks``, ``rows_per_s``, ``eta_s``, ``percent``, ``started_ms``, ``finished_ms``, ``error``.
        """
        requests = []
        for share in self._planner.board.order:
            shown = state.show_progress(share.request.id, share.note)
            for table, row in zip(share.tables, shown["tables"], strict=False):
                running = table.note.stage == "running"
                left = max(0, (table.note.total or 0) - table.note.rows)
                row["rows_per_s"] = round(table.rate, 1) if running else 0.0
                row["eta_s"] = (
                    round(left / table.rate, 1) if running and table.rate and table.note.total is not None else None
                )
            requests.append(shown)
        return requests

    # The readers.

    async def _read_later(self) -> None:
        await asyncio.sleep(self._settings.delay_s)
        await self._runner.run()

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        return [self._read_later()]

    def _allowed(self) -> int:
        return self._throttle.allowed + self._pausing

    def _pause_s(self, failures: int) -> float:
        return min(_FIRST_PAUSE_S * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), _LONGEST_PAUSE_S)

    async def _carry_out(self, job: TableReadJob, reader: int) -> bool:
        try:
            connection = self._readers.get(reader)
            if connection is None or connection.broken:
                if connection is not None:
                    self._readers.pop(reader).close()
                connection = self._readers[reader] = await self._open_reader()
            done = await self._do_job(job, connection)
            if not done:
                connection.close()
            return done
        finally:
            self._planner.failed(job)
            self._planner.finished(job)

    async def _open_reader(self) -> MySqlChunkReader:
        connection = await self._source.connect()
        try:
            views = await Views.of(connection, self._settings, self._log)
            await views.prepare(connection)
        except BaseException:
            connection.close()
            raise
        return MySqlChunkReader(connection, views, self._shared)

    async def _do_job(self, job: TableReadJob, reader: MySqlChunkReader) -> bool:
        """Do a job; False: the connection is lost, or the server busy."""
        try:
            if job.table is None:
                await self._resolve_tables(job, reader.connection)
            elif job.part is None:
                await reader.prepare(job)
            else:
                await reader.read(job)
        except Vanished:
            self._table_vanished(job)
        except Changed:
            await self._renew_table(job, reader, "its structure changed")
        except (MillraceError, MySQLError, OSError, EOFError) as error:
            return await self._handle_refusal(job, reader, error)
        except BaseException:
            reader.close()
            raise
        return True

    async def _resolve_tables(self, job: TableReadJob, connection: Any) -> None:
        request = job.share.request
        tables = await self._source.tables(request.tables)
        if not tables and request.origin in ("rest", "signal"):
            self._give_up(job, f"no captured table matches {', '.join(request.tables)}")
            return
        rows = await lookup.read_estimates(connection, [table.name for table in tables])
        self._planner.resolved(
            job,
            [
                RequestTable(
                    table.name,
                    rows.get((table.name.database, table.name.table)),
                    not table.key,
                    shards.sql_filter(table, self._shard) is not None,
                )
                for table in tables
            ],
        )
        self._notify()

    def _give_up(self, job: TableReadJob, reason: str) -> None:
        """The request can't be followed."""
        self._log.error("snapshot %s is given up: %s", job.share.request.id, reason)
        self._planner.give_up(job, reason)
        self._notify()

    async def _renew_table(self, job: TableReadJob, reader: MySqlChunkReader, reason: str) -> None:
        """Look the table up again and read it with what is found."""
        assert job.table is not None  # noqa: S101 - only jobs of tables come here
        if not self._planner.stale(job):
            self._log.info("snapshot of %s: %s; it is looked up again", job.table.name, reason)
            self._planner.reset(job.table)
        with contextlib.suppress(MillraceError, MySQLError, OSError, EOFError):
            if not reader.broken and not job.table.keyless:
                await Views.release(reader.connection)
                return
        reader.close()

    def _table_vanished(self, job: TableReadJob) -> None:
        assert job.table is not None  # noqa: S101 - only jobs of tables come here
        self._log.warning(
            "snapshot %s: there is no table %s (any more); the others continue", job.share.request.id, job.table.name
        )
        self._planner.give_up(job, "there is no such table (any more)", "vanished")
        self._notify()

    async def _handle_refusal(self, job: TableReadJob, reader: MySqlChunkReader, error: BaseException) -> bool:
        code = _error_code(error)
        refusal = error if isinstance(error, MillraceError) else explain_failure(error, "reading for a snapshot")
        table = job.table
        if table is None:
            if isinstance(refusal, Retriable):
                self._log.warning("snapshot %s: %s", job.share.request.id, refusal)
                return False
            self._give_up(job, str(refusal))
            return True
        if code in _GONE:
            self._table_vanished(job)
            reader.close()
            return True
        table.attempts += 1
        if code in _CHANGED and table.attempts <= self._settings.retries:
            await self._renew_table(job, reader, str(refusal))
            return True
        if code in _TOO_LONG and table.attempts <= self._settings.retries:
            table.limit = max(1, self._planner.limit(table) // 4)
            self._log.warning(
                "snapshot of %s: the server ended a query that took too long; chunks of %d rows are tried",
                table.name,
                table.limit,
            )
            return False
        if isinstance(refusal, Retriable) and code not in _TOO_LONG | _CHANGED:
            table.attempts -= 1
            table.note.error = str(refusal)
            self._log.warning("snapshot of %s: %s; retrying", table.name, refusal)
            return False
        if not isinstance(refusal, (Fatal, ConfigInvalid, Retriable)):
            raise refusal
        self._log.error("snapshot of %s is given up: %s", table.name, refusal)
        self._planner.give_up(job, str(refusal))
        reader.close()
        self._notify()
        return True

    def _measure_chunk(self, chunk: SnapshotChunk, table: TableSnapshot) -> None:
        metrics = self._metrics
        if metrics is None:
            return
        name = {"table": str(chunk.name)}
        metrics.add("mysql_snapshot_rows_total", chunk.taken_rows, name)
        metrics.add("mysql_snapshot_superseded_rows_total", max(0, chunk.read - chunk.taken_rows), name)
        metrics.add("mysql_snapshot_chunks_total", 1, name)
        for repeated, count in self._planner.repeated.items():
            metrics.add("mysql_snapshot_repeated_chunks_total", count, {"table": str(repeated)})
        self._planner.repeated.clear()
        metrics.set("mysql_snapshot_held_bytes", self._planner.held_bytes)
        metrics.set("mysql_snapshot_probe_seconds", self._throttle.latency_s)
        metrics.set("mysql_snapshot_queries_allowed", self._throttle.allowed)
        metrics.set("mysql_snapshot_percent", table.note.percent, name)
        metrics.set("mysql_snapshot_rows_per_second", table.rate if table.open else 0.0, name)


def _error_code(error: BaseException) -> int:
    """The server's or the driver's number of an error, or 0."""
    for candidate in (error, error.__cause__):
        if isinstance(candidate, MySQLError) and candidate.args and isinstance(candidate.args[0], int):
            return candidate.args[0]
    return 0
