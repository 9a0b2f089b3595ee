"""The data of a server that the type tests use: its binlog's row events, decoded, and its rows as a snapshot reads them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import pymysql

from connectors.mysql.model import BinlogPosition, ColumnPlan, MySqlTable, TableName
from connectors.mysql.rows.decode import compile_rows
from connectors.mysql.rows.text_rows import compile_text, select_list
from connectors.mysql.schema import table_map
from connectors.mysql.schema.catalog import read_definitions
from connectors.mysql.schema.fields import field_schema
from connectors.mysql.source import binlog_events, event_types
from connectors.mysql.source.binlog import BinlogClient
from connectors.mysql.source.connection import connect_first, current_place, server_info
from connectors.options import Password
from tests.support.eventually import patience
from tests.support.settings import mysql_connection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.mysql.schema.types import ValueOptions

KINDS = {
    **dict.fromkeys(event_types.WRITES, "write"),
    **dict.fromkeys(event_types.UPDATES, "update"),
    **dict.fromkeys(event_types.DELETES, "delete"),
    event_types.PARTIAL_UPDATE_ROWS: "partial",
}
_EOF = 0xFE


class Captured(NamedTuple):
    """One rows event with the table map that describes it."""

    body: bytes
    event: bytes

    @property
    def table(self) -> TableName:
        return table_map.parse_table_map(self.body).name


class World:
    """A database of its own on a server."""

    def __init__(self, host: str, port: int, user: str, password: str, database: str, server_id: int) -> None:
        self.settings = mysql_connection(
            host=host, port=port, user=user, password=Password(password), server_id=server_id
        )
        self.database = database
        self.driver = pymysql.connect(
            host=host, port=port, user=user, password=password, charset="utf8mb4", autocommit=True
        )
        self.sql(
            f"DROP DATABASE IF EXISTS `{database}`",
            f"CREATE DATABASE `{database}`",
            f"USE `{database}`",
            "SET time_zone = '+00:00'",
        )

    def sql(self, *statements: str) -> None:
        with self.driver.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def close(self) -> None:
        self.sql(f"DROP DATABASE IF EXISTS `{self.database}`")
        self.driver.close()

    def capture(self, *statements: str) -> list[Captured]:
        """Run the statements; the row events they caused in the world's tables."""
        return asyncio.run(self._capture(statements))

    async def _capture(self, statements: Sequence[str]) -> list[Captured]:
        connection = await connect_first(self.settings)
        try:
            info = await server_info(connection)
            start = await current_place(connection, info, gtids=False)
            self.sql(*statements)
            end = await current_place(connection, info, gtids=False)
        finally:
            connection.close()
        assert end.file == start.file
        return await self._read(start, end.pos)

    async def _read(self, position: BinlogPosition, end: int) -> list[Captured]:
        client = BinlogClient(self.settings, position, use_gtid=False, log=logging.getLogger(__name__))
        captured: list[Captured] = []
        maps: dict[int, bytes] = {}
        try:
            await client.start()
            async with patience(20):
                while position.pos < end:
                    for event in await client.read():
                        header = binlog_events.read_header(event)
                        self._take(event, maps, captured)
                        if header.next_pos:
                            position = BinlogPosition(file=position.file, pos=max(position.pos, header.next_pos))
                        if header.next_pos >= end:
                            break
        finally:
            await client.close()
        return [change for change in captured if change.table.database == self.database]

    @staticmethod
    def _take(event: bytes, maps: dict[int, bytes], captured: list[Captured]) -> None:
        if event[4] == event_types.TABLE_MAP:
            body = event[binlog_events.HEADER_SIZE :]
            maps[int.from_bytes(body[:6], "little")] = body
        elif event[4] in KINDS:
            captured.append(Captured(maps[binlog_events.rows_header(event).table_id], event))

    def definition(self, table: str) -> MySqlTable:
        """The table as the catalog has it."""

        async def read() -> MySqlTable:
            connection = await connect_first(self.settings)
            try:
                name = TableName(self.database, table)
                return (await read_definitions(connection, [name]))[name]
            finally:
                connection.close()

        return asyncio.run(read())

    def pulled(
        self, table: MySqlTable, options: ValueOptions, order: str = "id", session: str = ""
    ) -> list[dict[str, Any]]:
        """The table's rows as a snapshot reads them."""
        chosen = plans(table, options)
        decode = compile_text(table, chosen, options)
        if session:
            self.sql(session)
        rows = text_packets(
            self.driver,
            f"SELECT {', '.join(select_list(table, chosen))} FROM `{self.database}`."
            f"`{table.name.table}` ORDER BY {order}",
        )
        return [decode(row) for row in rows]


def plans(table: MySqlTable, options: ValueOptions) -> list[ColumnPlan | None]:
    """All columns as they are."""
    return [ColumnPlan(column, field_schema(column, options)) for column in table.columns]


def streamed(captured: Sequence[Captured], definition: MySqlTable | None, options: ValueOptions) -> list[Any]:
    """The events' rows, decoded; of updates both images in turn."""
    rows: list[Any] = []
    for change in captured:
        table = structure(change, definition)
        head = binlog_events.rows_header(change.event)
        decode = compile_rows(
            table,
            plans(table, options),
            options,
            kind=KINDS[change.event[4]],
            present=head.present,
            present_after=head.present_after,
        )
        rows += decode(change.event, head.start, len(change.event))
    return rows


def structure(captured: Captured, definition: MySqlTable | None) -> MySqlTable:
    """The table's structure as of the event."""
    return table_map.complete_table(table_map.parse_table_map(captured.body), definition)


def text_packets(driver: Any, query: str) -> list[bytes]:
    """The row packets of a query, as the server sends them."""
    driver._execute_command(3, query)
    columns = driver._read_packet()._data[0]
    for _ in range(columns + 1):
        driver._read_packet()
    packets: list[bytes] = []
    while True:
        data = bytes(driver._read_packet()._data)
        if data[0] == _EOF and len(data) < 9:
            return packets
        packets.append(data)
