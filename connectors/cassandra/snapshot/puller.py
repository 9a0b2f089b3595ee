"""Snapshots of a task: reads its share of tables in the background, and hands the rows over in chunks."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from connectors.cassandra import metrics as names
from connectors.cassandra.snapshot import state
from connectors.cassandra.snapshot.cluster import SnapshotCluster, default_ttl
from connectors.cassandra.snapshot.pulls import CassandraSnapshots
from connectors.cassandra.snapshot.rows import ReadMoment, SnapshotRowReader
from connectors.cql.cluster.failures import CqlLoginRefused
from connectors.cql.cluster.session import QueryStats, SchemaChanged
from connectors.cql.cluster.throttle import InFlightLimit, Pace, PageSize, pause_s
from connectors.errors import Fatal, MillraceError, Retriable

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from connectors.api import Position, TaskMetrics
    from connectors.cassandra.snapshot.model import BackfillSettings, CassandraChunk
    from connectors.cassandra.snapshot.pulls import SnapshotJob
    from connectors.cql.cluster.session import CqlSession, ResultPage
    from connectors.cql.mutations.definition import CqlTableDefinition
    from connectors.snapshot.requests import SnapshotRequest

_RETRY_MS: Final = 200
#: Number of times in a row that a definition is read again before the table is given up.
_SCHEMA_TRIES: Final = 5
#: Number of queries of one token range that may fail in a row before the range is made narrower.
_NARROW_AFTER: Final = 2
#: How often numbers are reported.
_REPORT_S: Final = 1.0


async def _ignore_call() -> None:
    """Do nothing: there are no definitions to read again."""


class Backfiller:
    """The snapshots of one run of a task. Use it inside one event loop; no method blocks.

    Call ``set_requests`` and ``start`` first. Then, each time ``wait`` returns, send every ``ready`` chunk and report it with
    ``done``, and save what ``changes`` returns.

    Args:
        settings: how tables are read.
        session: the CQL session.
        tables: the captured tables that one of some regular expressions for ``keyspace.table`` matches, as they are known now;
            their definitions are looked up by it too.
        shard: index and number of the task among those that share the work.
        saved: all saved offsets of the connector (``OffsetReader.items``).
        metrics: numbers go there.
        log: the task's.
        refresh: reads the definitions of tables again; may raise Retriable.
    """

    def __init__(
        self,
        settings: BackfillSettings,
        session: CqlSession,
        tables: Callable[[Sequence[str]], Sequence[CqlTableDefinition]],
        shard: tuple[int, int],
        saved: Iterable[tuple[Position, Position]],
        metrics: TaskMetrics,
        log: logging.LoggerAdapter[logging.Logger],
        *,
        refresh: Callable[[], Awaitable[object]] = _ignore_call,
    ) -> None:
        self._settings = settings
        self._session = session
        self._tables = tables
        self._shard = shard
        self._metrics = metrics
        self._log = log
        self._refresh = refresh
        self._pulls = CassandraSnapshots(settings, shard, saved)
        self._queue: deque[CassandraChunk] = deque()
        #: Chunks that are being sent.
        self._sending = 0
        self._news = asyncio.Event()
        self._wake = asyncio.Event()
        self._stats = QueryStats()
        self._reported = QueryStats()
        self._limit = InFlightLimit(1, settings.threads, settings.threads)
        self._pages: dict[str, PageSize] = {}
        self._pace = Pace(settings.rows_per_s)
        self._cluster: SnapshotCluster | None = None
        self._readers: dict[tuple[str, str, bool], SnapshotRowReader] = {}
        self._ttls: dict[str, int] = {}
        self._busy = 0
        self._workers: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None

    # What the task tells.

    def set_requests(self, requests: Sequence[SnapshotRequest]) -> None:
        """Set the complete list of requests: the initial snapshot and the operator's.

        Requests that have ended may stay in it.
        """
        self._pulls.set_requests(requests)
        self._queue = deque(chunk for chunk in self._queue if self._pulls.wanted(chunk.end))
        self._wake_workers()
        self._news.set()

    def uncovered(self) -> list[CqlTableDefinition]:
        """The captured tables that were added after the first snapshot and whose share for this task is in no snapshot yet."""
        return self._pulls.uncovered(self._tables(self._settings.tables))

    def reopened(self, tables: Iterable[tuple[CqlTableDefinition, int]]) -> list[SnapshotRequest]:
        """See ``CassandraSnapshots.reopened``."""
        return self._pulls.reopened(tables)

    def start(self) -> None:
        """Begin to read."""
        if not self._workers:
            self._workers = [asyncio.create_task(self._run_worker(number)) for number in range(self._settings.threads)]
            self._workers.append(asyncio.create_task(self._report_all()))

    async def close(self) -> None:
        """Stop reading."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        self._pulls.suspend()
        self._queue.clear()
        self._sending = 0

    def ready(self) -> CassandraChunk | None:
        """The next chunk to send; call ``done`` when its records are on their way, before asking for the next chunk.

        Raises:
            MillraceError: reading has failed; a restart of the task may fix it.
        """
        if self._failure is not None:
            raise self._failure
        while self._queue:
            chunk = self._queue.popleft()
            if self._pulls.wanted(chunk.end):
                self._sending += 1
                return chunk
        self._wake_workers()
        return None

    def done(self, chunk: CassandraChunk) -> list[tuple[Position, Position]]:
        """The chunk's records are on their way: what is to be saved with the last of them."""
        self._sending = max(0, self._sending - 1)
        offsets = self._pulls.done(chunk)
        self._metrics.add(names.SNAPSHOT_CHUNKS)
        self._metrics.add(names.SNAPSHOT_ROWS, chunk.end.rows, {"table": str(chunk.table)})
        self._metrics.add(names.SNAPSHOT_PARTITIONS, len(chunk.updates), {"table": str(chunk.table)})
        self._wake_workers()
        return offsets

    def changes(self) -> list[tuple[Position, Position]]:
        """The other offsets to save; ask after every ``wait``."""
        return self._pulls.changes()

    async def wait(self) -> None:
        """Until a chunk is ready or something is to be saved."""
        if not self._queue and self._failure is None:
            await self._news.wait()
        self._news.clear()

    def progress(self) -> list[dict[str, Any]]:
        """How far each request of this task is; see ``state.show_progress``."""
        return [state.show_progress(name, note) for name, note in self._pulls.notes()]

    # The readers.

    def _wake_workers(self) -> None:
        self._wake.set()

    async def _run_worker(self, number: int) -> None:
        attempt = 0
        while True:
            try:
                job = self._pulls.next_job() if self._has_room(number) else None
                if job is None:
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                self._busy += 1
                try:
                    await self._carry_out(job)
                finally:
                    self._busy -= 1
                    self._wake_workers()
                attempt = 0
            except Retriable as error:  # the cluster can't be asked for its tables
                attempt += 1
                self._log.warning("a backfill waits: %s", error)
                await asyncio.sleep(
                    pause_s(attempt, _RETRY_MS, int(self._settings.retry_s * 1000), 20, random.random())  # noqa: S311
                )
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - the task shall see it
                self._failure = error
                self._news.set()
                return

    def _has_room(self, number: int) -> bool:
        pending = len(self._queue) + self._sending
        return number < self._limit.value and pending < self._settings.ahead_chunks + self._settings.threads

    async def _carry_out(self, job: SnapshotJob) -> None:
        if job.table is None:
            await self._resolve_tables(job)
        else:
            await self._read_chunk(job)
        self._news.set()

    async def _resolve_tables(self, job: SnapshotJob) -> None:
        try:
            if self._cluster is None:
                self._cluster = await SnapshotCluster.of(self._session, self._settings.timeout_s)
                self._pulls.bounds = self._cluster.bounds
            await self._refresh()
            tables = job.pull.request.chosen(self._tables(job.pull.request.tables))
        except (Retriable, CqlLoginRefused):
            job.pull.busy = False
            raise
        except MillraceError as error:
            self._log.error("the backfill %s failed: %s", job.pull.request.id, error)
            self._pulls.failed(job, str(error))
            return
        self._pulls.resolved(job, tables)
        self._log.info(
            "the backfill %s has %d tables: %s", job.pull.request.id, len(tables), ", ".join(map(str, tables))[:500]
        )

    async def _read_chunk(self, job: SnapshotJob) -> None:
        """Read all pages of a token range; wait and retry after temporary failures."""
        attempt = changes = 0
        while not self._pulls.stale(job) and job.piece is not None and job.piece.read is not None:
            while not self._has_space() and not self._pulls.stale(job):
                self._wake.clear()
                await self._wake.wait()
            await asyncio.sleep(self._pace.wait_s(time.monotonic()))
            try:
                await self._read_page(job)
            except SchemaChanged as error:
                changes += 1
                if changes > _SCHEMA_TRIES:
                    self._fail_table(job, error)
                    return
                self._drop_readers(job)
                await self._wait_retry(changes)
                with suppress(Retriable):
                    await self._refresh()
            except Retriable as error:
                attempt += 1
                self._limit.failed()
                self._page_size(job).failed()
                if attempt >= _NARROW_AFTER:
                    self._pulls.narrow(job)
                if attempt == 1 or attempt % 10 == 0:
                    self._log.warning(
                        "%s can't be read now, it is tried again: %s", job.table and job.table.note.name, error
                    )
                self._pulls.tell(job, str(error))
                await self._wait_retry(attempt)
            except CqlLoginRefused:
                raise  # not the table's fault: this run ends, and the next run continues here
            except MillraceError as error:
                if isinstance(error, Fatal) and self._pulls.lost(job):
                    self._log.info(
                        "%s is read on from the start of a partition: %s", job.table and job.table.note.name, error
                    )
                    continue
                self._fail_table(job, error)
                return
            else:
                attempt = changes = 0
                self._pulls.tell(job, "")

    def _has_space(self) -> bool:
        return len(self._queue) + self._sending < self._settings.ahead_chunks

    async def _wait_retry(self, attempt: int) -> None:
        await asyncio.sleep(pause_s(attempt, _RETRY_MS, int(self._settings.retry_s * 1000), 20, random.random()))  # noqa: S311

    def _fail_table(self, job: SnapshotJob, error: Exception) -> None:
        self._log.error(
            "%s is left out of the backfill %s: %s", job.table and job.table.note.name, job.pull.request.id, error
        )
        self._pulls.failed(job, str(error))

    async def _read_page(self, job: SnapshotJob) -> None:
        """Read the next page of a token range.

        Raises:
            SchemaChanged: the definition is out of date.
            Retriable: it can't be read now.
            Fatal: the cluster refuses it.
        """
        reader = await self._find_reader(job)
        if reader is None or job.piece is None or job.piece.read is None:
            return
        after, upto, state_hex = job.piece.read
        size, stats, totals = self._page_size(job), QueryStats(), self._stats
        asked, began = size.rows, time.monotonic()
        totals.in_flight += 1
        try:
            page = await self._session.page(
                reader.select.text,
                (after, upto),
                fetch_size=asked,
                state=bytes.fromhex(state_hex) if state_hex else None,
                consistency=self._settings.consistency,
                timeout_s=self._settings.timeout_s,
                types=reader.select.types,
                token=after + 1,
                stats=stats,
            )
        finally:
            totals.in_flight -= 1
            totals.queries += stats.queries
            totals.errors += stats.errors
            totals.latency_s += stats.latency_s
        if page.newer_fields:
            raise SchemaChanged(f"a user-defined type in {reader.table} has got new fields")
        elapsed = time.monotonic() - began
        size.answered(page.rows)
        self._limit.answered(stats.latency_s, full=len(page.rows) >= asked, in_flight=self._busy)
        self._pace.spent(len(page.rows), time.monotonic())
        self._queue_page(job, reader, page, elapsed)

    def _queue_page(self, job: SnapshotJob, reader: SnapshotRowReader, page: ResultPage, elapsed_s: float) -> None:
        read_ms = int(time.time() * 1000)
        server_ms = reader.server_ms(page.rows) or read_ms
        # By the server's clock not later than when it was asked.
        settled_us = server_ms * 1000 - int((elapsed_s + self._settings.settle_s) * 1_000_000)
        decoded = reader.read(page.rows, ReadMoment(settled_us, read_ms, self._ttls.get(reader.table.table_id, 0)))
        for complaint in decoded.bad:
            self._log.warning("%s", complaint)
        chunk = self._pulls.page(
            job,
            reader.table,
            decoded.updates,
            rows=len(page.rows),
            last_token=reader.last_token(page.rows),
            paging=page.state,
            bad=decoded.bad,
        )
        if chunk is not None:
            self._queue.append(chunk)
        self._news.set()

    async def _find_reader(self, job: SnapshotJob) -> SnapshotRowReader | None:
        """Of the table as it is defined now; None: there is nothing to read (any more)."""
        table, cluster = job.table, self._cluster
        if table is None:
            return None
        if cluster is None:
            # A request that was resolved before a restart.
            cluster = self._cluster = await SnapshotCluster.of(self._session, self._settings.timeout_s)
            self._pulls.bounds = cluster.bounds
        note = table.note
        request = job.pull.request
        match = next(
            (
                table_
                for table_ in request.chosen(self._tables(request.tables))
                if (table_.keyspace, table_.table) == (note.keyspace, note.table)
            ),
            None,
        )
        if match is None:
            self._pulls.vanished(job)
            return None
        if match.table_id != note.table_id:
            self._pulls.renewed(job, match.table_id)
            return None
        key = match.table_id, match.version, cluster.elements
        reader = self._readers.get(key)
        if reader is None:
            self._ttls[match.table_id] = await default_ttl(self._session, match, self._settings.timeout_s)
            reader = self._readers[key] = SnapshotRowReader(self._settings.prefix, match, elements=cluster.elements)
        return reader

    def _drop_readers(self, job: SnapshotJob) -> None:
        if job.table is not None:
            table_id = job.table.note.table_id
            self._readers = {key: reader for key, reader in self._readers.items() if key[0] != table_id}

    def _page_size(self, job: SnapshotJob) -> PageSize:
        name = job.table.note.name if job.table is not None else ""
        page_size = self._pages.get(name)
        if page_size is None:
            page_size = self._pages[name] = PageSize(self._settings.chunk_rows, self._settings.chunk_bytes)
        return page_size

    # Numbers.

    async def _report_all(self) -> None:
        while True:
            self._report_metrics()
            # Progress of token ranges without rows is saved from time to time.
            self._news.set()
            await asyncio.sleep(_REPORT_S)

    def _report_metrics(self) -> None:
        metrics, stats, before = self._metrics, self._stats, self._reported
        for name, now, last in (
            (names.SNAPSHOT_QUERIES, stats.queries + stats.errors, before.queries + before.errors),
            (names.SNAPSHOT_QUERY_ERRORS, stats.errors, before.errors),
            (names.SNAPSHOT_QUERY_SECONDS, stats.latency_s, before.latency_s),
        ):
            if now > last:
                metrics.add(name, now - last)
        self._reported = QueryStats(queries=stats.queries, errors=stats.errors, latency_s=stats.latency_s)
        running = [note for _, note in self._pulls.notes() if note.state in ("waiting", "running")]
        metrics.set(names.SNAPSHOT_RUNNING, len(running))
        metrics.set(
            names.SNAPSHOT_PROGRESS, sum(map(state.percent_done, running)) / len(running) / 100 if running else 1.0
        )
        metrics.set(names.SNAPSHOT_IN_FLIGHT, stats.in_flight)
        metrics.set(names.SNAPSHOT_LIMIT, self._limit.value)
