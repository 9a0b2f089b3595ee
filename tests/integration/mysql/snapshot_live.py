"""The core of a task: a real server's binlog, snapshots next to it, and all their records in order."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any

import pymysql

from connectors.mysql.model import BinlogPosition, ConnectionSettings, MySqlTable, Shard, TableName
from connectors.mysql.position import shards
from connectors.mysql.position.positions import is_reached
from connectors.mysql.rows.decode import compile_rows
from connectors.mysql.rows.text_rows import compile_text, select_list
from connectors.mysql.schema import table_map
from connectors.mysql.schema.catalog import read_definitions, table_names
from connectors.mysql.snapshot.model import SnapshotRowDecoder, SnapshotSettings
from connectors.mysql.snapshot.reader import MySqlSnapshotReader
from connectors.mysql.snapshot.reading.chunks import SnapshotSource
from connectors.mysql.source import binlog_events, event_types, gtid
from connectors.mysql.source.binlog import BinlogClient
from connectors.mysql.source.connection import connect_first, current_place, prepared_transactions, server_info
from connectors.mysql.source.statements import classify_statement
from connectors.options import Password
from tests.integration.mysql.dialect import spoken
from tests.integration.mysql.rows_world import KINDS, plans
from tests.support.eventually import patience
from tests.support.settings import mysql_connection, mysql_values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from connectors.api import Position
    from connectors.snapshot.requests import SnapshotRequest

LOG = logging.LoggerAdapter(logging.getLogger(__name__), {})
OPTIONS = mysql_values()
WHOLE = Shard()
Row = dict[str, Any]
_GTIDS = {event_types.MARIADB_GTID, event_types.GTID, event_types.GTID_TAGGED}


class Live:
    """A database of its own, and what was sent of it."""

    def __init__(self, port: int, user: str, password: str, database: str, *, mysql: bool = False) -> None:
        self.mysql = mysql
        self.settings = mysql_connection(host="127.0.0.1", port=port, user=user, password=Password(password))
        self.lazy = 0
        #: The server that snapshots read, if it is not the source itself.
        self.replica: ConnectionSettings | None = None
        self.database = database
        self.driver = self.connected()
        self.sql(f"DROP DATABASE IF EXISTS `{database}`", f"CREATE DATABASE `{database}`", f"USE `{database}`")
        #: (table, "c" "u" "d" "r" or "truncate", before, after).
        self.output: list[tuple[TableName, str, Row | None, Row | None]] = []
        self.saved: dict[str, Position] = {}
        self.chunks: list[tuple[str, int]] = []
        #: Snapshot id, and whether the chunk is the first or last of its request and table.
        self.chunk_bounds: list[tuple[str, bool, bool, bool, bool]] = []

    def connected(self) -> Any:
        return pymysql.connect(
            host="127.0.0.1",
            port=self.settings.port,
            user=self.settings.user,
            password=self.settings.secret,
            charset="utf8mb4",
            autocommit=True,
        )

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        with self.driver.cursor() as cursor:
            for statement in statements:
                cursor.execute(spoken(statement, mysql=self.mysql))
            return list(cursor.fetchall())

    def close(self) -> None:
        self.sql(f"DROP DATABASE IF EXISTS `{self.database}`")
        self.driver.close()

    async def prepared(self) -> Collection[str]:
        connection = await connect_first(self.settings)
        try:
            return await prepared_transactions(connection)
        finally:
            connection.close()

    def name(self, table: str) -> TableName:
        return TableName(self.database, table)

    async def tables(self, expressions: list[str]) -> Sequence[MySqlTable]:
        connection = await connect_first(self.settings)
        try:
            requested = {text.replace("\\", "") for text in expressions}
            names = [
                name
                for name in await table_names(connection, [self.database])
                if str(name) in requested or ".*" in requested
            ]
            definitions = await read_definitions(connection, names)
            return [definitions[name] for name in names if name in definitions]
        finally:
            connection.close()

    @staticmethod
    def decoder(table: MySqlTable) -> SnapshotRowDecoder:
        chosen = plans(table, OPTIONS)
        return SnapshotRowDecoder(
            select_list(table, chosen), compile_text(table, chosen, OPTIONS), table.key, len(table.columns)
        )

    async def contents(self, table: str, where: str = "") -> list[Row]:
        """The rows of a table on the server, as the stream's values."""
        from connectors.mysql.snapshot.reading.rows import PacketRows

        (structure,) = await self.tables([f"{self.database}.{table}"])
        decoder = self.decoder(structure)
        connection = await connect_first(self.settings)
        try:
            sql = f"SELECT {', '.join(decoder.columns)} FROM `{self.database}`.`{table}`{where}"
            return [decoder.decode(packet) for packet in await PacketRows(connection).all(sql)]
        finally:
            connection.close()

    async def run(
        self,
        requests: Sequence[SnapshotRequest],
        settings: SnapshotSettings | None = None,
        *,
        shard: Shard = WHOLE,
        writing: Callable[[], Any] | None = None,
        on_chunk: Callable[[Running], Any] | None = None,
    ) -> Running:
        """Stream and take snapshots until all requests and the writer are done and the stream has reached the end."""
        running = Running(self, settings or SnapshotSettings(threads=2, chunk_rows=50), shard)
        async with patience(60):
            await running.run(requests, writing, on_chunk)
        return running

    def replayed(self, table: str, key: Sequence[str]) -> dict[tuple[Any, ...], Row]:
        """The rows of a consumer that keeps the last row of each key."""
        rows: dict[tuple[Any, ...], Row] = {}
        for name, op, before, after in self.output:
            if name.table != table:
                continue
            if op == "truncate":
                rows.clear()
            if before is not None:
                rows.pop(tuple(before[column] for column in key), None)
            if after is not None:
                rows[tuple(after[column] for column in key)] = after
        return rows

    def replayed_rows(self, table: str) -> list[Row]:
        """The same for a table without a key: what has not been taken away."""
        rows: list[Row] = []
        for name, _, before, after in self.output:
            if name.table == table:
                if before is not None:
                    rows.remove(before)  # nothing is taken away that was not given before
                if after is not None:
                    rows.append(after)
        return rows

    def save(self, offsets: Sequence[tuple[Position, Position]]) -> None:
        """Keep the offsets, as Kafka would."""
        self.saved.update({partition["snapshot"]: offset for partition, offset in offsets})


class Running:
    """One run; see ``Live.run``."""

    def __init__(self, live: Live, settings: SnapshotSettings, shard: Shard) -> None:
        self.live = live
        self.shard = shard
        self.position = self.done = BinlogPosition(file="", pos=0)
        self.reader = MySqlSnapshotReader(
            settings,
            SnapshotSource(self._connect, live.tables, live.decoder, lambda: self.position, live.prepared),
            shard,
            partition=lambda request: {"snapshot": request},
            saved=live.saved,
            metrics=None,
            log=LOG,
        )
        self.stop = False
        #: How often a chunk that is ready is left waiting, so that the stream gets past it: of four times.
        self.lazy = live.lazy
        self._chance = random.Random(5)
        #: Numbers of the reader's connections.
        self.connections: list[int] = []
        self._maps: dict[int, tuple[bytes, MySqlTable]] = {}
        self._decoders: dict[tuple[bytes, int, bytes, bytes | None], Any] = {}

    async def _connect(self) -> Any:
        connection = await connect_first(self.live.replica or self.live.settings)
        self.connections.append(connection.thread_id())
        return connection

    def reached(self, position: BinlogPosition) -> bool:
        return is_reached(self.done, position, self.flavor, by_gtid=not position.file)

    @property
    def flavor(self) -> str:
        return "mysql" if self.live.mysql else "mariadb"

    async def run(
        self,
        requests: Sequence[SnapshotRequest],
        writing: Callable[[], Any] | None,
        on_chunk: Callable[[Running], Any] | None,
    ) -> None:
        live, reader = self.live, self.reader
        connection = await connect_first(live.settings)
        info = await server_info(connection)
        self.position = self.done = await current_place(connection, info)
        self._executed = gtid.parse_gtids(self.flavor, self.position.gtids)
        reader.set_requests(requests)
        await reader.resolve()
        client = BinlogClient(live.settings, self.position, use_gtid=False, log=LOG, annotate=True)
        await client.start()
        reader.start()
        writer = asyncio.create_task(asyncio.to_thread(writing)) if writing is not None else None
        reading = asyncio.create_task(client.read())
        news = asyncio.create_task(reader.wait())
        end: BinlogPosition | None = None
        try:
            while not self.stop and not (end is not None and self.reached(end)):
                await asyncio.wait({reading, news}, return_when=asyncio.FIRST_COMPLETED, timeout=0.02)
                if reading.done():
                    for event in reading.result():
                        self._feed(event)
                    reading = asyncio.create_task(client.read())
                if news.done():
                    news = asyncio.create_task(reader.wait())
                while self._eager() and (chunk := reader.ready(self.reached)) is not None:
                    live.chunk_bounds.append(
                        (
                            chunk.request.id,
                            chunk.first_of_request,
                            chunk.first_of_table,
                            chunk.last_of_table,
                            chunk.last_of_request,
                        )
                    )
                    rows = chunk.take(1 << 30)
                    assert not chunk.bad
                    live.output += [(chunk.name, "r", None, row) for row in rows]
                    live.chunks.append((chunk.name.table, chunk.read))
                    live.save(reader.done(chunk))
                    if on_chunk is not None:
                        on_chunk(self)
                live.save(reader.changes())
                over = all(snapshot["state"] in {"done", "cancelled", "failed"} for snapshot in reader.progress())
                if end is None and over and (writer is None or writer.done()):
                    if writer is not None:
                        writer.result()
                    end = await current_place(connection, info, gtids=False)
        finally:
            news.cancel()
            reading.cancel()
            await reader.close()
            await client.close()
            connection.close()
            if writer is not None:
                await writer

    def _feed(self, event: bytes) -> None:
        kind, reader, live = event[4], self.reader, self.live
        header = binlog_events.read_header(event)
        if kind == event_types.ROTATE:
            rotation = binlog_events.read_rotate(event)
            self.position = self.done = BinlogPosition(
                file=rotation.file, pos=rotation.pos, gtids=self._executed.text()
            )
            return
        if kind in _GTIDS:
            self._executed.add(binlog_events.read_gtid(event).text)
        before, self.position = (
            self.position,
            BinlogPosition(
                file=self.position.file, pos=max(self.position.pos, header.next_pos), gtids=self._executed.text()
            ),
        )
        if kind == event_types.TABLE_MAP:
            body = event[binlog_events.HEADER_SIZE :]
            self._maps[int.from_bytes(body[:6], "little")] = (
                body,
                table_map.complete_table(table_map.parse_table_map(body), None),
            )
        elif kind in KINDS:
            self._rows(event)
        elif kind == event_types.XID:
            self._end()
        elif kind == event_types.QUERY:
            found_query = binlog_events.read_query(event)
            if found_query.statement not in {"BEGIN", "COMMIT", "ROLLBACK"}:
                statement = classify_statement(found_query.statement, found_query.schema)
                if statement.changes_structure or "TRUNCATE" in found_query.statement:
                    reader.altered(None)
                if "TRUNCATE" in found_query.statement:
                    live.output.append(
                        (live.name(found_query.statement.split()[-1].strip("`")), "truncate", None, None)
                    )
            if found_query.statement != "BEGIN":
                self._end()
        elif kind not in _GTIDS and kind != event_types.ANNOTATE_ROWS and before.pos == self.done.pos:
            self._end()

    def _eager(self) -> bool:
        return not self.stop and self._chance.randrange(4) >= self.lazy

    def _end(self) -> None:
        self.done = self.position
        self.reader.advance(self.reached)

    def _rows(self, event: bytes) -> None:
        head = binlog_events.rows_header(event)
        body, table = self._maps[head.table_id]
        if table.name.database != self.live.database:
            return
        key = (body, event[4], head.present, head.present_after)
        if key not in self._decoders:
            owner = None
            if self.shard.count > 1 and shards.split_column(table):
                owner = (self.shard.index, self.shard.count)
            self._decoders[key] = compile_rows(
                table,
                plans(table, OPTIONS),
                OPTIONS,
                kind=KINDS[event[4]],
                present=head.present,
                present_after=head.present_after,
                owner=owner,
            )
        if shards.sql_filter(table, self.shard) is None:
            return
        rows = self._decoders[key](event, head.start, len(event))
        op = {"write": "c", "update": "u", "delete": "d"}[KINDS[event[4]]]
        reader = self.reader
        if table.name in reader.watched or table.name in reader.withheld:
            early = reader.changed(table.name, op, rows)
            self.live.output += [(table.name, "r", None, row) for snapshot_rows in early for row in snapshot_rows.rows]
            if table.name in reader.withheld:
                return
        if op == "u":
            self.live.output += [(table.name, op, *pair) for pair in zip(rows[::2], rows[1::2], strict=True)]
        else:
            self.live.output += [(table.name, op, *((None, row) if op == "c" else (row, None))) for row in rows]
