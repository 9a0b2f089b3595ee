"""Takes snapshots at the same time as it reads the stream."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from pymysql.err import MySQLError

from connectors.errors import ConfigInvalid, Fatal, MillraceError, Retriable
from connectors.mysql.snapshot import state
from connectors.mysql.snapshot.pulls import SnapshotPlanner
from connectors.mysql.snapshot.reading import lookup
from connectors.mysql.snapshot.reading.reader import Changed, SnapshotReader, Vanished
from connectors.mysql.snapshot.reading.throttle import SnapshotThrottle
from connectors.mysql.snapshot.reading.views import Views
from connectors.mysql.snapshot.work import RequestTable
from connectors.mysql.source.connection import explain_failure
from connectors.mysql.stream import positions, shards

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from connectors.api import TaskMetrics
    from connectors.mysql.model import BinlogPosition, MySqlTable, Shard, TableName
    from connectors.mysql.snapshot.model import Early, Row, SnapshotChunk, SnapshotRowDecoder, SnapshotSettings
    from connectors.mysql.snapshot.reading.lookup import Shape
    from connectors.mysql.snapshot.work import TableReadJob, TableSnapshot
    from connectors.snapshot.requests import SnapshotRequest

#: No such database or table.
_GONE: Final = frozenset({1049, 1051, 1146})
#: A column that is not there, a definition that changed under the view.
_CHANGED: Final = frozenset({1054, 1412, 1615, 1032})
#: The server ends queries that take too long.
_TOO_LONG: Final = frozenset({1317, 1969, 3024})
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0


class Puller:
    """Reads tables in chunks while the stream continues.

    All methods belong to the event loop of the task; those that are not ``async`` don't block.

    Args:
        settings: how to read.
        connect: a new connection for queries, to the server that the stream reads (or the replica); autocommit is on.
        tables: the captured tables that match the expressions, with their structures of this moment.
        decoder: how rows of a table are read.
        shard: what this task owns.
        saved: request id -> what ``done`` or ``changes`` gave last before the restart.
        seen_position: the newest position that the stream has taken anything from: file and position after the last event it
            was fed, GTIDs (needed on MySQL, and with a replica) with the open transaction.
        metrics: gets the numbers of ``METRICS``.
        log: for people.
    """

    def __init__(
        self,
        settings: SnapshotSettings,
        *,
        connect: Callable[[], Awaitable[Any]],
        tables: Callable[[list[str]], Awaitable[Sequence[MySqlTable]]],
        decoder: Callable[[MySqlTable], SnapshotRowDecoder],
        shard: Shard,
        saved: Mapping[str, str],
        seen_position: Callable[[], BinlogPosition],
        metrics: TaskMetrics | None,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._tables = tables
        self._decoder = decoder
        self._shard = shard
        self._seen = seen_position
        self._metrics = metrics
        self._log = log
        self._pulls = SnapshotPlanner(settings, shard, saved)
        self._throttle = SnapshotThrottle(settings.threads, settings.rows_per_s, adaptive=settings.adaptive)
        self._shapes: dict[TableName, Shape] = {}
        self._transactional: dict[TableName, bool] = {}
        self._workers: list[asyncio.Task[None]] = []
        self._work = asyncio.Event()
        self._news = asyncio.Event()
        self._generation = 0
        self._active = 0
        self._error: BaseException | None = None

    @property
    def watched(self) -> Mapping[TableName, object]:
        """Tables of which the puller wants to know the changes: always the same mapping, to be asked before ``changed``."""
        return self._pulls.watch.watched

    @property
    def withheld(self) -> Mapping[TableName, object]:
        """Tables without a key whose changes must not be sent: their initial snapshot, which comes later, has them.

        Always the same mapping. Pass their changes to ``changed`` all the same, and call ``advance`` after each transaction.
        """
        return self._pulls.watch.withheld

    def start(self) -> None:
        """Begin to read in the background."""
        if not self._workers:
            self._workers = [
                asyncio.create_task(self._run_worker(number), name=f"snapshot-{number}")
                for number in range(self._settings.threads)
            ]
            for worker in self._workers:
                worker.add_done_callback(self._worker_ended)

    async def close(self) -> None:
        """Stop, and close the connections."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def set_requests(self, requests: Sequence[SnapshotRequest]) -> None:
        """The complete list of what is asked for; a request that is no longer in it is dropped.

        Raises:
            ValueError: the saved state of one can't be read.
        """
        self._pulls.set_requests(requests)
        self._wake_workers()

    def preset(self, request: str, tables: Sequence[MySqlTable]) -> None:
        """The tables of a request that ``set_requests`` gets next: they need not be looked for."""
        self._pulls.preset(
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
        while (job := self._pulls.next_job(resolving=True)) is not None:
            try:
                connection = await self._connect()
                try:
                    await self._resolve_tables(job, connection)
                finally:
                    connection.close()
            finally:
                self._pulls.failed(job)
                self._pulls.finished(job)

    def ready(self, reached: Callable[[BinlogPosition], bool]) -> SnapshotChunk | None:
        """The next chunk that may be sent now; None while one is out (not ``done`` yet) or none is ready.

        Args:
            reached: whether the stream has taken everything before a place, between transactions. A place without a file is of
                a replica: compare its GTIDs.

        Raises:
            MillraceError: pulling is over for good.
        """
        if self._error is not None:
            raise self._error
        return self._pulls.ready(reached)

    def done(self, chunk: SnapshotChunk) -> dict[str, str]:
        """The chunk was sent: what to save, text by request id, with the offset of its last record."""
        table = self._pulls.sending
        packed_states = self._pulls.done(chunk)
        if table is not None and table.images is not None and table.images.forgotten and not table.forgot:
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
        self._wake_workers()
        return packed_states

    def changes(self) -> dict[str, str]:
        """Return the other states to save since the last call (tables found or lost, ends): text by request id."""
        return self._pulls.changes()

    def changed(self, name: TableName, op: str, rows: Sequence[Row | None]) -> list[Early]:
        """The stream gives these rows (``u``: before and after in turns) of a table in ``watched`` or ``withheld``.

        Afterwards, and not before, ask ``withheld`` whether they may be sent.

        Returns:
            Rows of snapshots to send before them.
        """
        self._let_go(name)
        return self._pulls.watch.changed(name, op, rows)

    def _let_go(self, name: TableName) -> None:
        """Release the table if the stream has passed its view: its changes need not wait for the end of their transaction."""
        for table in self._pulls.watch.unreached[:]:
            if table.name == name and table.high is not None and table.high.file:
                position = self._seen()
                if positions.position_number(position.file, position.pos) >= positions.position_number(
                    table.high.file, table.high.pos
                ):
                    self._pulls.watch.let_go(table)

    def advance(self, reached: Callable[[BinlogPosition], bool]) -> None:
        """The stream has finished a transaction."""
        self._pulls.watch.advance(reached)

    def altered(self, name: TableName | None) -> None:
        """The stream came by a change of the table's structure, a TRUNCATE, a DROP or a RENAME; None: of any table."""
        self._pulls.altered(name)
        self._wake_workers()

    def invalidate(self) -> None:
        """The stream has a new connection, perhaps to another server: what was read but not sent is read again."""
        self._generation += 1
        self._pulls.altered(None)
        self._wake_workers()

    def progress(self) -> list[dict[str, Any]]:
        """How far each request is, in the order of reading.

        A request has ``id``, ``state``, ``percent``, ``started_ms``, ``finished_ms``, ``error`` and ``tables``; a table
        ``table``, ``state``, ``rows_total`` (estimated), ``rows_done``, ``superseded`` (of them left out for newer changes),
        ``chunks``, ``rows_per_s``, ``eta_s``, ``percent``, ``started_ms``, ``finished_ms``, ``error``.
        """
        requests = []
        for pull in self._pulls.all():
            shown = state.show_progress(pull.request.id, pull.note)
            for table, row in zip(pull.tables, shown["tables"], strict=False):
                running = table.note.stage == "running"
                left = max(0, (table.note.total or 0) - table.note.rows)
                row["rows_per_s"] = round(table.rate, 1) if running else 0.0
                row["eta_s"] = (
                    round(left / table.rate, 1) if running and table.rate and table.note.total is not None else None
                )
            requests.append(shown)
        return requests

    async def wait(self) -> None:
        """Until a chunk may be ready or ``changes`` has something."""
        await self._news.wait()
        self._news.clear()

    # The readers.

    def _wake_workers(self) -> None:
        # Every waiting reader looks for work; one event object per round, so that none misses it.
        self._work.set()
        self._work = asyncio.Event()
        if self._pulls.dirty:
            self._news.set()

    async def _wait_change(self) -> None:
        await self._work.wait()

    def _notify_change(self) -> None:
        self._news.set()
        self._wake_workers()

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        if not worker.cancelled() and worker.exception() is not None:
            self._error = worker.exception()
            self._news.set()

    async def _run_worker(self, number: int) -> None:
        if self._settings.delay_s:
            await asyncio.sleep(self._settings.delay_s)
        reader: SnapshotReader | None = None
        generation = -1
        pause = _FIRST_PAUSE_S
        try:
            while True:
                work = self._work
                job = self._pulls.next_job() if self._active < self._throttle.allowed else None
                if job is None:
                    await work.wait()
                    continue
                self._active += 1
                try:
                    if reader is None or reader.broken or generation != self._generation:
                        if reader is not None:
                            reader.close()
                            reader = None
                        generation = self._generation
                        reader = await self._open_reader()
                    if await self._do_job(job, reader):
                        pause = _FIRST_PAUSE_S
                        continue
                    reader.close()
                except Retriable as error:
                    self._log.warning("full pull, reader %d: %s; trying again in %.1f s", number, error, pause)
                finally:
                    self._active -= 1
                    self._pulls.failed(job)
                    self._pulls.finished(job)
                    self._wake_workers()
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
        finally:
            if reader is not None:
                reader.close()

    async def _open_reader(self) -> SnapshotReader:
        connection = await self._connect()
        try:
            views = await Views.of(connection, self._settings, self._log)
            await views.prepare(connection)
        except BaseException:
            connection.close()
            raise
        return SnapshotReader(
            connection,
            views,
            self._pulls,
            self._shard,
            self._throttle,
            tables=self._tables,
            decoder=self._decoder,
            seen_position=self._seen,
            again=self._connect,
            shapes=self._shapes,
            transactional=self._transactional,
            news=self._notify_change,
            idle=self._wait_change,
            log=self._log,
        )

    async def _do_job(self, job: TableReadJob, reader: SnapshotReader) -> bool:
        """Do a job; False: the connection is lost, or the server busy."""
        try:
            if job.kind == "resolve":
                await self._resolve_tables(job, reader.connection)
            elif job.kind == "prepare":
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
        tables = await self._tables(job.pull.request.tables)
        rows = await lookup.read_estimates(connection, [table.name for table in tables])
        self._pulls.resolved(
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
        if not tables:
            self._log.warning(
                "full pull %s: no captured table matches %s", job.pull.request.id, job.pull.request.tables
            )
        self._notify_change()

    async def _renew_table(self, job: TableReadJob, reader: SnapshotReader, reason: str) -> None:
        """Look the table up again and read it with what is found."""
        assert job.table is not None  # noqa: S101 - only jobs of tables come here
        if not self._pulls.stale(job):
            self._log.info("full pull of %s: %s; it is looked up again", job.table.name, reason)
            self._pulls.again(job.table)
        with contextlib.suppress(MillraceError, MySQLError, OSError, EOFError):
            if not reader.broken and not job.table.keyless:
                await Views.release(reader.connection)
                return
        reader.close()

    def _table_vanished(self, job: TableReadJob) -> None:
        assert job.table is not None  # noqa: S101 - only jobs of tables come here
        self._log.warning(
            "full pull %s: there is no table %s (any more); the others go on", job.pull.request.id, job.table.name
        )
        self._pulls.give_up(job, "there is no such table (any more)", "vanished")
        self._notify_change()

    async def _handle_refusal(self, job: TableReadJob, reader: SnapshotReader, error: BaseException) -> bool:
        code = _error_code(error)
        refusal = error if isinstance(error, MillraceError) else explain_failure(error, "reading for a full pull")
        table = job.table
        if table is None:
            if isinstance(refusal, Retriable):
                self._log.warning("full pull %s: %s", job.pull.request.id, refusal)
                return False
            self._pulls.refused(job, str(refusal))
            self._notify_change()
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
            table.limit = max(1, self._pulls.limit(table) // 4)
            self._log.warning(
                "full pull of %s: the server ended a query that took too long; chunks of %d rows are tried",
                table.name,
                table.limit,
            )
            return False
        if isinstance(refusal, Retriable) and code not in _TOO_LONG | _CHANGED:
            table.attempts -= 1
            table.note.error = str(refusal)
            self._log.warning("full pull of %s: %s; trying again", table.name, refusal)
            return False
        if not isinstance(refusal, (Fatal, ConfigInvalid, Retriable)):
            raise refusal
        self._log.error("full pull of %s is given up: %s", table.name, refusal)
        self._pulls.give_up(job, str(refusal))
        reader.close()
        self._notify_change()
        return True

    def _measure_chunk(self, chunk: SnapshotChunk, table: TableSnapshot) -> None:
        metrics = self._metrics
        if metrics is None:
            return
        name = {"table": str(chunk.name)}
        metrics.add("mysql_snapshot_rows_total", chunk.taken, name)
        metrics.add("mysql_snapshot_superseded_rows_total", max(0, chunk.read - chunk.taken), name)
        metrics.add("mysql_snapshot_chunks_total", 1, name)
        for repeated, count in self._pulls.repeated.items():
            metrics.add("mysql_snapshot_repeated_chunks_total", count, {"table": str(repeated)})
        self._pulls.repeated.clear()
        metrics.set("mysql_snapshot_held_bytes", self._pulls.held_bytes)
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
