"""A binlog from an encoder of its own, and a stream with all that it needs, for tests of the stream."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import cramjam

from connectors.mysql import events
from connectors.mysql.config.filters import MySqlTableFilter
from connectors.mysql.events.contract import EventContext
from connectors.mysql.events.transactions import Transactions
from connectors.mysql.model import BinlogPosition, Shard
from connectors.mysql.position import start
from connectors.mysql.position.cursor import BinlogCursor
from connectors.mysql.schema.tables import StreamTables, TableSelection
from connectors.mysql.schema.versions import VersionBook
from connectors.mysql.source import event_types as types
from connectors.mysql.source import gtid
from connectors.mysql.stream.binlog_stream import BinlogStream
from connectors.mysql.stream.counters import StreamCounters
from connectors.mysql.stream.options import StreamListener, StreamOptions
from connectors.testing.contexts import LogCapture, make_logger
from tests.support.settings import mysql_events, mysql_topics, mysql_ums, mysql_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.api import Position, SourceRecord
    from connectors.mysql.model import RowSource, TableName
    from connectors.mysql.source.statements import SqlStatement
    from connectors.wire import Wire

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
PARTITION = {"server": "p"}
FILE = "b.000007"
STANDALONE = 0x01
Row = tuple[int, int | None, bytes]


class Log:
    """A binlog file of a server: every method appends an event, with a position where the server writes one."""

    def __init__(self, pos: int = 1000, *, server: int = 1, silent: bool = False) -> None:
        self.pos = pos
        self.server = server
        #: As MariaDB: no positions between a transaction's first and last event.
        self.silent = silent
        self.events: list[tuple[int, bytes]] = []

    def event(self, kind: int, body: bytes, *, flags: int = 0, inside: bool = False) -> int:
        begin, size = self.pos, 19 + len(body)
        self.pos += size
        end_pos = 0 if inside and self.silent else self.pos % (1 << 32)
        self.events.append(
            (begin, struct.pack("<IBIIIH", 1_700_000_000, kind, self.server, size, end_pos, flags) + body)
        )
        return begin

    def gtid(self, number: int) -> int:
        return self.event(
            types.GTID, b"\x01" + bytes.fromhex(UUID.replace("-", "")) + struct.pack("<Q", number) + b"\x02" + bytes(16)
        )

    def anonymous(self) -> int:
        return self.event(types.ANONYMOUS_GTID, b"\x01" + bytes(24) + b"\x02" + bytes(16))

    def mariadb(self, number: int, *, domain: int = 0, flags: int = 0x08, extra: bytes = bytes(6)) -> int:
        return self.event(types.MARIADB_GTID, struct.pack("<QIB", number, domain, flags) + extra)

    def query(self, text: str, schema: str = "shop", *, inside: bool = False) -> int:
        return self.event(types.QUERY, query(text, schema), inside=inside)

    def map(self, table: str = "t", number: int = 90) -> int:
        return self.event(types.TABLE_MAP, table_map(table, number), inside=True)

    def insert(self, *rows: Row, number: int = 90) -> int:
        return self.event(types.WRITE_ROWS, rows_body(rows, number), inside=True)

    def xid(self) -> int:
        return self.event(types.XID, bytes(8))

    def transaction(self, number: int, *groups: Sequence[int], domain: int | None = None) -> None:
        """A whole transaction with a table map and an event for each group of rows."""
        if domain is None:
            self.gtid(number)
            self.query("BEGIN", "")
        else:
            self.mariadb(number, domain=domain)
        for group in groups:
            self.map()
            self.insert(*((value, value * 10, b"x") for value in group))
        self.xid()

    def since(self, pos: int) -> list[bytes]:
        """The events that a server sends from a position on: first the position and the format description."""
        raws = [rotate(FILE, pos), description(0)]
        return raws + [raw for at, raw in self.events if at >= pos]


def artificial(kind: int, body: bytes, next_pos: int = 0) -> bytes:
    return struct.pack("<IBIIIH", 0, kind, 1, 19 + len(body), next_pos, 0x20) + body


def rotate(file: str, pos: int) -> bytes:
    return artificial(types.ROTATE, struct.pack("<Q", pos) + file.encode())


def description(next_pos: int) -> bytes:
    body = struct.pack("<H50sIB", 4, b"8.4.6", 1_600_000_000, 19) + bytes(42) + b"\0"
    return struct.pack("<IBIIIH", 1_600_000_000, types.FORMAT_DESCRIPTION, 1, 19 + len(body), next_pos, 0) + body


def query(text: str, schema: str) -> bytes:
    return struct.pack("<IIBHH", 12, 3, len(schema), 0, 0) + schema.encode() + b"\0" + text.encode()


def table_map(table: str, number: int, database: str = "shop") -> bytes:
    """``id INT NOT NULL PRIMARY KEY, v INT, s VARCHAR(10)`` with names, signs and charset."""
    head = number.to_bytes(6, "little") + b"\x01\0"
    for name in (database, table):
        head += bytes([len(name)]) + name.encode() + b"\0"
    names = b"\x02id\x01v\x01s"
    extra = b"\x01\x01\0" + b"\x02\x01\x2d" + b"\x04" + bytes([len(names)]) + names + b"\x08\x01\0"
    return head + b"\x03" + bytes([3, 3, 15]) + b"\x02" + struct.pack("<H", 40) + b"\x06" + extra


def rows_body(rows: Sequence[Row], number: int) -> bytes:
    body = number.to_bytes(6, "little") + b"\x01\0" + b"\x02\0" + b"\x03" + b"\x07"
    for key, value, text in rows:
        body += bytes([2 if value is None else 0]) + struct.pack("<i", key)
        body += b"" if value is None else struct.pack("<i", value)
        body += bytes([len(text)]) + text
    return body


def payload(*inner: tuple[int, bytes], compressed: bool = False) -> bytes:
    """A transaction payload."""
    data = b"".join(struct.pack("<IBIIIH", 1_700_000_000, kind, 1, 19 + len(body), 0, 0) + body for kind, body in inner)
    if compressed:
        small = bytes(cramjam.zstd.compress(data))
        return (
            b"\x02\x01\0"
            b"\x03\x04\xfd"
            + len(data).to_bytes(3, "little")
            + b"\x01\x03\xfc"
            + len(small).to_bytes(2, "little")
            + b"\0"
            + small
        )
    return (
        b"\x02\x03\xfc\xff\0"
        b"\x03\x04\xfd"
        + len(data).to_bytes(3, "little")
        + b"\x01\x03\xfc"
        + len(data).to_bytes(2, "little")
        + b"\0"
        + data
    )


@dataclass
class Reader:
    """A stream from a saved offset, with all that it needs."""

    stream: BinlogStream
    cursor: BinlogCursor
    log: LogCapture
    counters: StreamCounters
    holder: Any
    statements: list[SqlStatement] = field(default_factory=list)

    async def feed(self, raws: Sequence[bytes]) -> list[SourceRecord]:
        for raw in raws:
            await self.stream.feed(raw)
        if self.holder is not None:
            self.holder.flush(self.stream.output.records)
        return self.stream.output.records


def reader(
    saved: Position | None = None,
    *,
    flavor: str = "mysql",
    same_server: bool = True,
    server: int = 1,
    transactions: bool = False,
    ums: bool = False,
    tables: str = "",
    databases: str = "",
    keep_going: bool = False,
    wants: Callable[[str], bool] | None = None,
    max_rows: int = 1,
    apart: bool = False,
    wire: Wire | None = None,
    skip_unchanged: bool = False,
    asked_until: BinlogPosition | None = None,
    unsigned: Literal["long", "precise"] = "long",
) -> Reader:
    offset = saved if saved is not None else {"file": FILE, "pos": 4}
    stream_start = start.start_of("p", Shard(), [(PARTITION, offset)])
    assert stream_start.position is not None
    settings = mysql_events(
        topics=mysql_topics(prefix="p"),
        connector="mariadb" if flavor == "mariadb" else "mysql",
        output_format="ums" if ums else "debezium",
        ums=mysql_ums(max_rows=max_rows),
        tables=tables,
        databases=databases,
        skip_unchanged=skip_unchanged,
    )
    capture = LogCapture()
    log = make_logger("stream", capture)
    counted = Transactions(settings, PARTITION) if transactions else None
    if counted is not None:
        counted.load(offset)
    holder = events.make_holder(settings)
    cursor = BinlogCursor(
        stream_start,
        stream_start.position,
        server,
        gtid.parse_gtids(flavor, stream_start.position.gtids)
        if stream_start.position.gtids or flavor == "mariadb"
        else None,
        asked_until=asked_until,
    )
    statements: list[SqlStatement] = []

    async def nothing_known(names: Sequence[TableName]) -> dict[TableName, Any]:
        del names
        return {}

    async def note(statement: SqlStatement, source: RowSource) -> None:
        del source
        statements.append(statement)

    counters = StreamCounters()
    context = EventContext(settings, PARTITION, transactions=counted, held_rows=holder)
    tables_met = StreamTables(
        TableSelection(MySqlTableFilter(settings), {}, Shard()),
        context,
        mysql_values(charset_errors="strict", bigint_unsigned_mode=unsigned),
        VersionBook("p", "", ()),
        nothing_known,
        log,
        wire=wire,
    )
    stream = BinlogStream(
        cursor,
        start.ConnectionStart(stream_start, stream_start.position, same_server),
        tables_met,
        context,
        StreamOptions(wants_gtid=wants, keep_going=keep_going, apart=apart),
        StreamListener(lambda *_: None, note),
        counters,
        log,
    )
    return Reader(stream, cursor, capture, counters, holder, statements)


def keys(records: Sequence[SourceRecord]) -> list[int]:
    return [record.key["id"] for record in records]
