"""Snapshots of a task: reads its share of tables in the background, and hands the rows over in chunks."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.cassandra import metrics as names
from connectors.cassandra.snapshot import state
from connectors.cassandra.snapshot.cluster import SnapshotCluster, default_ttl, describe_masked, masked_columns
from connectors.cassandra.snapshot.planner import CassandraSnapshotPlanner
from connectors.cassandra.snapshot.rows import ReadMoment, SnapshotRowReader
from connectors.cql.cluster.failures import CqlLoginRefused
from connectors.cql.cluster.session import QueryStats, SchemaChanged
from connectors.cql.cluster.table_pages import PageSettings, TablePages
from connectors.cql.cluster.throttle import pause_s
from connectors.errors import Fatal, MillraceError, Retriable
from connectors.snapshot.engine import SnapshotEngine

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

    from connectors.api import Position, TaskMetrics
    from connectors.cassandra.snapshot.model import CassandraChunk, CassandraSnapshotSettings
    from connectors.cassandra.snapshot.planner import CassandraJob
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


class CapturedTables(NamedTuple):
    """The connector's tables.

    Attributes:
        matching: those that one of some regular expressions for ``keyspace.table`` matches, as they are known now.
        refresh: reads their definitions again; may raise Retriable.
    """

    matching: Callable[[Sequence[str]], Sequence[CqlTableDefinition]]
    refresh: Callable[[], Awaitable[object]]


class CassandraSnapshotReader(SnapshotEngine[CassandraSnapshotPlanner]):
    """The snapshots of one run of a task. Use it inside one event loop; no method blocks.

    Call ``set_requests`` and ``start`` first. Then, each time ``wait`` returns, send every ``ready`` chunk and report it with
    ``done``, and save what ``changes`` returns.

    Args:
        settings: how tables are read.
        session: the CQL session.
        tables: the captured tables.
        shard: index and number of the task among those that share the work.
        saved: all saved offsets of the connector (``OffsetReader.items``).
        metrics: numbers go there.
        log: the task's.
    """

    def __init__(
        self,
        settings: CassandraSnapshotSettings,
        session: CqlSession,
        tables: CapturedTables,
        shard: tuple[int, int],
        saved: Iterable[tuple[Position, Position]],
        metrics: TaskMetrics,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        super().__init__(CassandraSnapshotPlanner(settings, shard, saved), settings.threads, log)
        self._settings = settings
        self._session = session
        self._tables = tables
        self._metrics = metrics
        self._queue: deque[CassandraChunk] = deque()
        #: Chunks that are being sent.
        self._sending = 0
        self._pages = TablePages(
            session,
            PageSettings(
                queries=settings.threads,
                rows=settings.chunk_rows,
                page_bytes=settings.chunk_bytes,
                rows_per_s=settings.rows_per_s,
                consistency=settings.consistency,
                timeout_s=settings.timeout_s,
            ),
        )
        self._reported = QueryStats()
        self._cluster: SnapshotCluster | None = None
        self._readers: dict[tuple[str, str, bool], SnapshotRowReader] = {}
        #: By table id: the request for which a table's default TTL was asked for, and the TTL.
        self._ttls: dict[str, tuple[str, int]] = {}

    # What the task tells.

    def set_requests(self, requests: Sequence[SnapshotRequest]) -> None:
        """Set the complete list of requests: the initial snapshot and the operator's.

        Requests that have ended may stay in it.
        """
        super().set_requests(requests)
        self._queue = deque(chunk for chunk in self._queue if self._planner.is_needed(chunk.end))

    def uncovered(self) -> list[CqlTableDefinition]:
        """The captured tables that were added after the first snapshot and whose share for this task is in no snapshot yet."""
        return self._planner.uncovered(self._tables.matching(self._settings.tables))

    def reopened(self, tables: Iterable[tuple[CqlTableDefinition, int]]) -> list[SnapshotRequest]:
        """See ``CassandraSnapshotPlanner.reopened``."""
        return self._planner.reopened(tables)

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        return [*super()._work(), self._report_all()]

    async def close(self) -> None:
        """Stop reading."""
        await super().close()
        self._planner.suspend()
        self._queue.clear()
        self._sending = 0

    def ready(self) -> CassandraChunk | None:
        """The next chunk to send; call ``done`` when its records are on their way, before asking for the next chunk.

        Raises:
            MillraceError: reading has failed; a restart of the task may fix it.
        """
        self._raise_error()
        while self._queue:
            chunk = self._queue.popleft()
            if self._planner.is_needed(chunk.end):
                self._sending += 1
                return chunk
        self._wake()
        return None

    def done(self, chunk: CassandraChunk) -> list[tuple[Position, Position]]:
        """The chunk's records are on their way: what is to be saved with the last of them."""
        self._sending = max(0, self._sending - 1)
        offsets = self._planner.done(chunk)
        self._metrics.add(names.SNAPSHOT_CHUNKS)
        self._metrics.add(names.SNAPSHOT_ROWS, chunk.end.rows, {"table": str(chunk.table)})
        self._metrics.add(names.SNAPSHOT_PARTITIONS, len(chunk.updates), {"table": str(chunk.table)})
        self._wake()
        return offsets

    async def wait(self) -> None:
        """Until a chunk is ready or something is to be saved."""
        if not self._queue:
            await super().wait()

    def progress(self) -> list[dict[str, Any]]:
        """How far each request of this task is; see ``state.show_progress``."""
        return [state.show_progress(name, note) for name, note in self._planner.notes()]

    # The readers.

    def _allowed(self) -> int:
        pending = len(self._queue) + self._sending
        return self._pages.limit.value if pending < self._settings.ahead_chunks + self._settings.threads else 0

    def _pause_s(self, failures: int) -> float:
        return pause_s(failures, _RETRY_MS, int(self._settings.retry_s * 1000), 20, random.random())  # noqa: S311

    async def _carry_out(self, job: CassandraJob, reader: int) -> bool:
        del reader
        await (self._resolve_tables(job) if job.table is None else self._read_chunk(job))
        return True

    async def _resolve_tables(self, job: CassandraJob) -> None:
        try:
            if self._cluster is None:
                self._cluster = await SnapshotCluster.of(self._session, self._settings.timeout_s)
                self._planner.bounds = self._cluster.bounds
            await self._tables.refresh()
            tables = job.share.request.chosen(self._tables.matching(job.share.request.tables))
        except (Retriable, CqlLoginRefused):
            job.share.busy = False
            raise
        except MillraceError as error:
            self._log.error("the snapshot %s failed: %s", job.share.request.id, error)
            self._planner.give_up(job, str(error))
            return
        self._planner.resolved(job, tables)
        self._log.info(
            "the snapshot %s has %d tables: %s", job.share.request.id, len(tables), ", ".join(map(str, tables))[:500]
        )

    async def _read_chunk(self, job: CassandraJob) -> None:
        """Read all pages of a token range; wait and retry after temporary failures."""
        attempt = changes = 0
        while not self._planner.stale(job) and job.part is not None and job.part.read is not None:
            while not self._has_space() and not self._planner.stale(job):
                await self._wait_turn()
            await self._pages.wait()
            try:
                await self._read_page(job)
            except SchemaChanged as error:
                changes += 1
                if changes > _SCHEMA_TRIES:
                    self._fail_table(job, error)
                    return
                self._drop_readers(job)
                await asyncio.sleep(self._pause_s(changes))
                with suppress(Retriable):
                    await self._tables.refresh()
            except Retriable as error:
                attempt += 1
                if job.table is not None:
                    self._pages.failed(job.table.note.name)
                if attempt >= _NARROW_AFTER:
                    self._planner.narrow(job)
                if attempt == 1 or attempt % 10 == 0:
                    self._log.warning(
                        "%s can't be read now, the chunk is retried: %s", job.table and job.table.note.name, error
                    )
                self._planner.tell(job, str(error))
                await asyncio.sleep(self._pause_s(attempt))
            except CqlLoginRefused:
                raise  # not the table's fault: this run ends, and the next run continues here
            except MillraceError as error:
                if isinstance(error, Fatal) and self._planner.lost(job):
                    self._log.info(
                        "%s is read on from the start of a partition: %s", job.table and job.table.note.name, error
                    )
                    continue
                self._fail_table(job, error)
                return
            else:
                attempt = changes = 0
                self._planner.tell(job, "")

    def _has_space(self) -> bool:
        return len(self._queue) + self._sending < self._settings.ahead_chunks

    def _fail_table(self, job: CassandraJob, error: Exception) -> None:
        self._log.error(
            "%s is left out of the snapshot %s: %s", job.table and job.table.note.name, job.share.request.id, error
        )
        self._planner.give_up(job, str(error))

    async def _read_page(self, job: CassandraJob) -> None:
        """Read the next page of a token range.

        Raises:
            SchemaChanged: the definition is out of date.
            Retriable: it can't be read now.
            Fatal: the cluster refuses it.
        """
        reader = await self._find_reader(job)
        if reader is None or job.table is None or job.part is None or job.part.read is None:
            return
        after, upto, state_hex = job.part.read
        began = time.monotonic()
        page = await self._pages.read(
            job.table.note.name,
            reader.select.text,
            (after, upto),
            bytes.fromhex(state_hex) if state_hex else None,
            reader.select.types,
        )
        self._queue_page(job, reader, page, time.monotonic() - began)

    def _queue_page(self, job: CassandraJob, reader: SnapshotRowReader, page: ResultPage, elapsed_s: float) -> None:
        read_ms = int(time.time() * 1000)
        server_ms = reader.server_ms(page.rows) or read_ms
        # By the server's clock not later than when it was asked.
        settled_us = server_ms * 1000 - int((elapsed_s + self._settings.settle_s) * 1_000_000)
        _, ttl = self._ttls.get(reader.table.table_id, ("", 0))
        decoded = reader.read(page.rows, ReadMoment(settled_us, read_ms, ttl))
        for complaint in decoded.bad:
            self._log.warning("%s", complaint)
        chunk = self._planner.page(
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

    async def _find_reader(self, job: CassandraJob) -> SnapshotRowReader | None:
        """Of the table as it is defined now; None: there is nothing to read (any more)."""
        table, cluster = job.table, self._cluster
        if table is None:
            return None
        if cluster is None:
            # A request that was resolved before a restart.
            cluster = self._cluster = await SnapshotCluster.of(self._session, self._settings.timeout_s)
            self._planner.bounds = cluster.bounds
        note = table.note
        request = job.share.request
        match = next(
            (
                table_
                for table_ in request.chosen(self._tables.matching(request.tables))
                if (table_.keyspace, table_.table) == (note.keyspace, note.table)
            ),
            None,
        )
        if match is None:
            self._planner.give_up(job, "", "vanished")
            return None
        if match.table_id != note.table_id:
            self._planner.renewed(job, match.table_id)
            return None
        key = match.table_id, match.version, cluster.elements
        if self._ttls.get(match.table_id, ("", 0))[0] != request.id:
            if masked := await masked_columns(self._session, match, self._settings.timeout_s):
                raise Fatal(describe_masked(match, masked))
            ttl = await default_ttl(self._session, match, self._settings.timeout_s)
            self._ttls[match.table_id] = request.id, ttl
        reader = self._readers.get(key)
        if reader is None:
            reader = self._readers[key] = SnapshotRowReader(self._settings.prefix, match, elements=cluster.elements)
        return reader

    def _drop_readers(self, job: CassandraJob) -> None:
        if job.table is not None:
            table_id = job.table.note.table_id
            self._readers = {key: reader for key, reader in self._readers.items() if key[0] != table_id}

    # Numbers.

    async def _report_all(self) -> None:
        while True:
            self._report_metrics()
            # Progress of token ranges without rows is saved from time to time.
            self._news.set()
            await asyncio.sleep(_REPORT_S)

    def _report_metrics(self) -> None:
        metrics, stats, before = self._metrics, self._pages.stats, self._reported
        for name, now, last in (
            (names.SNAPSHOT_QUERIES, stats.queries + stats.errors, before.queries + before.errors),
            (names.SNAPSHOT_QUERY_ERRORS, stats.errors, before.errors),
            (names.SNAPSHOT_QUERY_SECONDS, stats.latency_s, before.latency_s),
        ):
            if now > last:
                metrics.add(name, now - last)
        self._reported = QueryStats(queries=stats.queries, errors=stats.errors, latency_s=stats.latency_s)
        metrics.set(names.SNAPSHOT_IN_FLIGHT, stats.in_flight)
        metrics.set(names.SNAPSHOT_LIMIT, self._pages.limit.value)
        running = [note for _, note in self._planner.notes() if note.state in ("waiting", "running")]
        metrics.set(names.SNAPSHOT_RUNNING, len(running))
        metrics.set(
            names.SNAPSHOT_PROGRESS, sum(map(state.percent_done, running)) / len(running) / 100 if running else 1.0
        )
