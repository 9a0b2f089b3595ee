"""One connection that reads for snapshots: tables' extents, chunks in key order, tables without a key at once."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import MillraceError, Retriable, Skippable
from connectors.mysql.config.filters import quote_expression
from connectors.mysql.position import shards
from connectors.mysql.schema.catalog import hold_table
from connectors.mysql.snapshot.model import ReadRows
from connectors.mysql.snapshot.prepared import wait_for_end
from connectors.mysql.snapshot.reading import keys, lookup, split
from connectors.mysql.snapshot.reading.rows import PacketRows
from connectors.mysql.snapshot.work import make_key_finder
from connectors.mysql.source.connection import query_rows

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from connectors.mysql.model import BinlogPosition, MySqlTable, Shard, TableName
    from connectors.mysql.snapshot.model import Row, SnapshotRowDecoder
    from connectors.mysql.snapshot.planner import MySqlSnapshotPlanner
    from connectors.mysql.snapshot.reading.key_ranges import KeyRange
    from connectors.mysql.snapshot.reading.lookup import Shape
    from connectors.mysql.snapshot.reading.throttle import SnapshotThrottle
    from connectors.mysql.snapshot.reading.views import Views
    from connectors.mysql.snapshot.work import SnapshotLayout, TableReadJob, TableSnapshot

#: A result this many times larger than a chunk should be is cut off.
_FAR_TOO_LARGE: Final = 4
_ATTEMPTS: Final = 5
#: How often views of several connections are tried to be opened at one place before the table is locked for that.
_SAME_PLACE_ATTEMPTS: Final = 5


class Vanished(Exception):
    """The table is not there."""


class Changed(Exception):
    """The table has another structure than the one it was to be read with."""


@dataclass(frozen=True)
class SnapshotSource:
    """The source of a task's snapshots.

    Attributes:
        connect: a new connection for queries, to the server that the stream reads (or the replica); autocommit is on.
        tables: the captured tables that match the expressions, with their structures of this moment.
        decoder: how rows of a table are read.
        seen_position: the newest position that the stream has taken anything from: file and position after the last event it
            was fed, GTIDs (needed on MySQL, and with a replica) with the open transaction.
        prepared: the XA transactions that are prepared on the server that the stream reads.
    """

    connect: Callable[[], Awaitable[Any]]
    tables: Callable[[list[str]], Awaitable[Sequence[MySqlTable]]]
    decoder: Callable[[MySqlTable], SnapshotRowDecoder]
    seen_position: Callable[[], BinlogPosition]
    prepared: Callable[[], Awaitable[Collection[str]]]


@dataclass(frozen=True)
class SharedReading:
    """The state that the connections of a task share.

    Attributes:
        source: the source.
        planner: gives the jobs and takes the answers.
        shard: what the task owns.
        throttle: how fast to read.
        news: to be called when there is something to send.
        idle: waits until something has changed.
        log: the task's.
        shapes: structure of each table when it was looked up.
        transactional: whether the engine of each keeps to views.
    """

    source: SnapshotSource
    planner: MySqlSnapshotPlanner
    shard: Shard
    throttle: SnapshotThrottle
    news: Callable[[], None]
    idle: Callable[[], Awaitable[object]]
    log: logging.LoggerAdapter[logging.Logger]
    shapes: dict[TableName, Shape] = field(default_factory=dict)
    transactional: dict[TableName, bool] = field(default_factory=dict)


class MySqlChunkReader:
    """Does jobs over one connection, one at a time.

    Args:
        connection: of the driver; the reader's own from now on.
        views: opens read views on it.
        shared: shared by all readers.
    """

    def __init__(self, connection: Any, views: Views, shared: SharedReading) -> None:
        self.connection = connection
        #: Whether the connection can't be used any more.
        self.broken = False
        self._views = views
        self._planner = shared.planner
        self._shard = shared.shard
        self._throttle = shared.throttle
        self._source = shared.source
        self._shapes = shared.shapes
        self._transactional = shared.transactional
        self._news = shared.news
        self._idle = shared.idle
        self._log = shared.log

    def close(self) -> None:
        """Close the connection at once."""
        self.broken = True
        self.connection.close()

    async def prepare(self, job: TableReadJob) -> None:
        """Look a table up.

        Raises:
            Vanished: it is not there.
            MillraceError: see ``lookup.read_layout``.
        """
        table = job.table
        assert table is not None  # noqa: S101 - a job of this kind has one
        layout: SnapshotLayout | None = None
        for _ in range(_ATTEMPTS):
            before, structure = await self._look_up(table.name)
            if structure is None:
                # MariaDB's catalog lacks a table for a moment of an ALTER: only a query of the table waits for that.
                await query_rows(self.connection, "START TRANSACTION")
                if await hold_table(self.connection, table.name):
                    before, structure = await self._look_up(table.name)
                await self._views.release(self.connection)
            if structure is None:
                raise Vanished
            decoder = self._source.decoder(structure)
            if shards.sql_filter(structure, self._shard) is None:
                self._planner.prepared(job, lookup.empty_layout(structure, decoder), owned=False)
                return
            layout = await lookup.read_layout(
                self.connection, job.share.request, self._shard, structure, decoder, before
            )
            layout = await self._with_ranges(job, layout, before)
            if await lookup.read_shape(self.connection, table.name) == before:
                self._shapes[table.name] = before
                self._transactional[table.name] = (await lookup.read_extent(self.connection, table.name)).transactional
                self._planner.prepared(job, layout)
                return
        raise Changed

    async def _look_up(self, name: TableName) -> tuple[Shape, MySqlTable | None]:
        """The table's structure in the catalog, in both forms."""
        shape = await lookup.read_shape(self.connection, name)
        tables = await self._source.tables([quote_expression(name)]) if shape else ()
        return shape, next((table for table in tables if table.name == name), None)

    async def _with_ranges(self, job: TableReadJob, layout: SnapshotLayout, shape: Shape) -> SnapshotLayout:
        settings, name = self._planner.settings, layout.table.name
        if layout.columns:
            if split.chosen_column(settings.split_columns, name) is not None:
                self._log.info(
                    "snapshot of %s: it has a key and is divided by that; %s has no effect on it", name, split.OPTION
                )
            return layout
        ranges, reason = await lookup.plan_ranges(
            self.connection, job.share.request, name, shape, settings.split_columns, settings.threads
        )
        if reason:
            self._log.warning("snapshot of %s: one connection reads it. %s", name, reason)
        return layout._replace(ranges=ranges)

    async def read(self, job: TableReadJob) -> None:
        """Read a range of a table, or all of a table without a key.

        Raises:
            Changed: the structure is another one now.
            MillraceError, MySQLError, OSError: the server is unavailable, or refuses.
        """
        table, key_range = job.table, job.part
        assert table is not None  # noqa: S101 - a job of this kind has them
        assert key_range is not None  # noqa: S101
        layout = table.layout
        if layout is None:
            return
        if table.keyless:
            await self._read_whole(job, table, layout)
            return
        if key_range.divisible and table.numbers is None and self._planner.settings.threads > 1:
            await self._divide_range(job, table, key_range, layout)
        started = time.monotonic()
        position = await self._open_view(job, table.name)
        self._throttle.probed(time.monotonic() - started)
        chunk = await self._read_chunk(job, table, key_range, layout)
        if chunk is None:
            self.close()
            return
        result, cut_key = chunk
        await self._check_shape(table.name)
        if position is None:
            position = await self._views.after(self.connection)
        await self._views.release(self.connection)
        self._planner.read(job, result, position, more=cut_key, elapsed_s=time.monotonic() - started)
        self._throttle.rows(len(result.rows))
        self._news()
        await self._throttle.pause(time.monotonic() - started)

    async def _open_view(self, job: TableReadJob, name: TableName) -> BinlogPosition | None:
        low = await self._open_window(job)
        return await self._views.open(self.connection, low, transactional=self._transactional.get(name, True))

    async def _open_window(self, job: TableReadJob) -> BinlogPosition:
        """Let changes count from now on; return the newest position that the stream has taken anything from."""
        transactions = self._planner.xa
        while (transactions.any or not transactions.asked) and not self._planner.stale(job):
            await wait_for_end(transactions, self._source.prepared, self._idle, self._log)
        low = self._source.seen_position()
        self._planner.open(job, low)
        return low

    async def _check_shape(self, name: TableName) -> None:
        """Compare the table's structure with the known one: an open view prevents changes to the tables that it has read."""
        if await lookup.read_shape(self.connection, name) != self._shapes.get(name):
            raise Changed

    def _build_select(
        self,
        job: TableReadJob,
        table: TableSnapshot,
        key_range: KeyRange,
        columns: Sequence[str],
        layout: SnapshotLayout,
        within: str = "",
    ) -> str:
        where = key_range.conditions(layout.columns)
        if within:
            where.append(within)
        shard_filter = "" if key_range.spans else shards.sql_filter(layout.table, self._shard)
        if shard_filter:
            where.append(shard_filter)
        asked = lookup.find_condition(job.share.request, table.name)
        if asked:
            where.append(f"({asked})")
        base = f"SELECT {', '.join(columns)} FROM {lookup.select_origin(job.share.request, table.name)}"  # noqa: S608 - the operator's
        return base + (f" WHERE {' AND '.join(where)}" if where else "")

    async def _divide_range(
        self, job: TableReadJob, table: TableSnapshot, key_range: KeyRange, layout: SnapshotLayout
    ) -> None:
        """Find where the first chunk of the range ends, so that another reader can continue after it."""
        sql = self._build_select(job, table, key_range, [column.select for column in layout.columns], layout)
        sql += f" ORDER BY {keys.order_list(layout.columns)} LIMIT 1 OFFSET {self._planner.limit(table) - 1}"
        rows = await PacketRows(self.connection).all(sql)
        self._planner.divided(job, keys.read_trailing(rows[0], 0, layout.columns) if rows else None)
        self._news()

    async def _read_chunk(
        self, job: TableReadJob, table: TableSnapshot, key_range: KeyRange, layout: SnapshotLayout
    ) -> tuple[ReadRows, tuple[str, ...] | None] | None:
        """The rows, and where they were cut; None: not wanted any more."""
        limit = self._planner.limit(table)
        max_bytes = self._planner.settings.chunk_bytes * _FAR_TOO_LARGE
        columns = [*layout.decoder.columns, *(column.select for column in layout.columns)]
        sql = self._build_select(job, table, key_range, columns, layout)
        result = PacketRows(self.connection)
        await result.begin(f"{sql} ORDER BY {keys.order_list(layout.columns)} LIMIT {limit + 1}")
        decode, key_of = layout.decoder.decode, make_key_finder(layout.decoder.key)
        rows: dict[tuple[Any, ...], Row] = {}
        bad: list[tuple[Skippable, bytes]] = []
        count = size = 0
        last = b""
        cut = False
        try:
            while packets := await result.read():
                if self._planner.stale(job):
                    return None
                if count + len(packets) > limit:
                    packets = packets[: limit - count]  # one more only says that there are more
                    cut = True
                    if not packets:
                        continue
                count += len(packets)
                size += sum(map(len, packets))
                last = packets[-1]
                try:
                    rows.update((key_of(row), row) for row in map(decode, packets))
                except Skippable:
                    _one_by_one(packets, decode, lambda row: rows.__setitem__(key_of(row), row), bad)
                if size > max_bytes and not cut and count > 1:
                    self._planner.too_large(job, size / count)
                    return None
        except BaseException:
            self.close()
            raise
        cut_key = keys.read_trailing(last, len(layout.decoder.columns), layout.columns) if cut and last else None
        return ReadRows(rows, size, bad), cut_key

    # Tables without a key.

    async def _read_whole(self, job: TableReadJob, table: TableSnapshot, layout: SnapshotLayout) -> None:
        """Read a table as of one position, as fast as the stream's task takes the rows."""
        name = table.name
        transactional = self._transactional.get(name, True)
        count = min(len(layout.ranges), self._planner.settings.threads) if layout.ranges else 1
        if count > 1 and not transactional:
            self._log.warning("snapshot of %s: one connection reads it, since its engine has no read views", name)
            count = 1
        extra_connections: list[Any] = []
        try:
            for _ in range(count - 1):
                extra_connections.append(await self._source.connect())
                await self._views.prepare(extra_connections[-1])
            await self._whole_of(job, table, layout, extra_connections, transactional=transactional)
        finally:
            for connection in extra_connections:
                connection.close()

    async def _whole_of(
        self,
        job: TableReadJob,
        table: TableSnapshot,
        layout: SnapshotLayout,
        extra_connections: list[Any],
        *,
        transactional: bool,
    ) -> None:
        name, views = table.name, self._views
        while True:
            low = await self._open_window(job)
            position = await self._whole_view(name, low, extra_connections, transactional=transactional)
            seen_position = self._source.seen_position()
            # A change that was withheld meanwhile has to be in the view.
            if not table.missed or views.has(position, seen_position):
                break
            await (views.release(self.connection) if transactional else views.unlock(self.connection))
            for connection in extra_connections:
                await views.release(connection)
        self._planner.viewed(job, position, past=views.past(seen_position, position))
        # From here on the structure stays as it is.
        await query_rows(self.connection, f"SELECT 1 FROM {lookup.format_source(name)} LIMIT 0")  # noqa: S608 - a quoted name
        await self._check_shape(name)
        await self._stream_table(job, table, layout, position, [self.connection, *extra_connections])
        if not self.broken:
            await (views.release(self.connection) if transactional else views.unlock(self.connection))

    async def _whole_view(
        self, name: TableName, low: BinlogPosition, extra_connections: list[Any], *, transactional: bool
    ) -> BinlogPosition:
        """Open a view, or lock a table that has none, and return its exact position.

        Args:
            name: the table.
            low: the newest place that the stream has taken anything from.
            transactional: whether the table's engine keeps to views.
            extra_connections: connections that get views with the same rows of the table; closed and taken out of the list
                where that is
                not possible.
        """
        views, connections = self._views, [self.connection, *extra_connections]
        if not transactional:
            await views.lock(self.connection, name)
            return await views.after(self.connection)
        if views.exact:
            for _ in range(_SAME_PLACE_ATTEMPTS):
                view_positions = await asyncio.gather(*(views.open(connection, low) for connection in connections))
                assert view_positions[0] is not None  # noqa: S101 - an exact view has one
                if view_positions.count(view_positions[0]) == len(view_positions):
                    return view_positions[0]
                for connection in connections:
                    await views.release(connection)
        locker = await self._lock_or_read_alone(name, extra_connections)
        try:
            if locker is not None:
                # While no connection writes to the table, the end of the binlog is the position of its contents.
                position = await views.after(self.connection)
                for connection in connections:
                    await query_rows(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
                return position
            if views.exact:
                return await self._whole_view(name, low, extra_connections, transactional=True)
            for _ in range(_SAME_PLACE_ATTEMPTS):
                quiet = await views.open_quiet(self.connection, low)
                if quiet is not None:
                    return quiet
            # A later place would be wrong: what is committed before it and after the view would be lost.
            raise Retriable(
                f"{name} has no key, so its snapshot needs a moment without commits, and there was none: let the "
                "table be locked for a moment (snapshot.locking.mode=minimal), or give it a key"
            )
        finally:
            if locker is not None:
                locker.close()

    async def _lock_or_read_alone(self, name: TableName, extra_connections: list[Any]) -> Any:
        """A connection that locks the table; None, and no ``extra_connections`` connections: it is not locked."""
        reason = "snapshot.locking.mode=none, so their views can't show the same"
        try:
            locker = await self._lock_table(name)
        except MillraceError as error:
            if not self._views.exact:
                raise
            locker, reason = (
                None,
                f"the table can't be locked for a moment, so their views can't show the same: {error}",
            )
        if locker is None and extra_connections:
            self._log.warning(
                "snapshot of %s: one connection reads it instead of %d. %s", name, len(extra_connections) + 1, reason
            )
            while extra_connections:
                extra_connections.pop().close()
        return locker

    async def _lock_table(self, name: TableName) -> Any:
        if not self._planner.settings.locks:
            return None
        locker = await self._source.connect()
        try:
            await self._views.lock(locker, name)
        except BaseException:
            locker.close()
            raise
        return locker

    async def _stream_table(
        self,
        job: TableReadJob,
        table: TableSnapshot,
        layout: SnapshotLayout,
        position: BinlogPosition,
        connections: Sequence[Any],
    ) -> None:
        """Hand out the table's rows; the connections take its ranges in turns."""
        ranges = deque(layout.ranges or ("",))
        workers = [
            asyncio.create_task(self._read_ranges(job, table, layout, position, connection, ranges))
            for connection in connections
        ]
        try:
            rests = await asyncio.gather(*workers)
        except BaseException:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            self.close()
            raise
        for number, remainder in enumerate(rests, 1):
            if remainder is None:
                self.close()
                return
            last = number == len(rests)
            if remainder.rows or remainder.bad or last:
                self._planner.part(job, remainder, position, last=last)
        self._news()

    async def _read_ranges(
        self,
        job: TableReadJob,
        table: TableSnapshot,
        layout: SnapshotLayout,
        position: BinlogPosition,
        connection: Any,
        ranges: deque[str],
    ) -> ReadRows | None:
        """Read ranges until there are none left; the rows of the last part.

        Returns:
            None: the rows are not wanted any more; the connection can't be used again.
        """
        planner, decode = self._planner, layout.decoder.decode
        assert job.part is not None  # noqa: S101 - a job of this kind has one
        limit, max_bytes = planner.limit(table), planner.settings.chunk_bytes
        rows: list[Row] = []
        bad: list[tuple[Skippable, bytes]] = []
        size = 0
        while ranges:
            result = PacketRows(connection)
            await result.begin(
                self._build_select(job, table, job.part, layout.decoder.columns, layout, ranges.popleft())
            )
            while packets := await result.read():
                while packets:
                    if len(rows) >= limit or size >= max_bytes:
                        if not await self._deliver_part(job, ReadRows(rows, size, bad), position):
                            return None
                        rows, bad, size = [], [], 0
                    accepted, packets = packets[: limit - len(rows)], packets[limit - len(rows) :]
                    try:
                        rows += list(map(decode, accepted))
                    except Skippable:
                        _one_by_one(accepted, decode, rows.append, bad)
                    size += sum(map(len, accepted))
        return ReadRows(rows, size, bad)

    async def _deliver_part(self, job: TableReadJob, result: ReadRows, position: BinlogPosition) -> bool:
        """Hand out rows, and wait until there is room for more."""
        planner = self._planner
        self._throttle.rows(len(result.rows))
        if not planner.part(job, result, position, last=False):
            return False
        self._news()
        while not planner.stale(job) and not (planner.room() or planner.is_next(job)):
            await self._idle()
        await self._throttle.pause(0.0)
        return not planner.stale(job)


def _one_by_one(
    packets: Sequence[bytes],
    decode: Callable[[bytes], Row],
    keep: Callable[[Row], None],
    bad: list[tuple[Skippable, bytes]],
) -> None:
    for packet in packets:
        try:
            keep(decode(packet))
        except Skippable as error:
            bad.append((error, packet))
