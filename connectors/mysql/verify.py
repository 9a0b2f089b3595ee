"""The source's side of ``millrace verify``: tables in one read view at a known position, and what events say of rows.

Rows of the source are made events by the connector's own code, and both sides' events are read by the same function here, so
that two forms of one value don't count as a difference.
"""

from __future__ import annotations

from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pymysql.err import MySQLError, raise_mysql_exception

from connectors.errors import ConfigInvalid, Fatal, Retriable, Skippable
from connectors.formats import ums
from connectors.mysql import events
from connectors.mysql.config import settings as config
from connectors.mysql.config.filters import MySqlTableFilter
from connectors.mysql.model import RowSource, TableName
from connectors.mysql.position.positions import file_number, position_number
from connectors.mysql.rows import text_rows
from connectors.mysql.schema import catalog, columns
from connectors.mysql.schema.types import ColumnKind, kind_of
from connectors.mysql.source import connection
from connectors.mysql.source.driver import read_packet, send_query, stream_of
from connectors.mysql.stream.lag import saved_place
from connectors.mysql.stream.logical import Logical, parse_mapping
from connectors.schema import Type
from connectors.verify.events import RowEvent, is_envelope
from connectors.verify.source import BadRows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

    from connectors.api import Position, SourceRecord
    from connectors.mysql.events.contract import MySqlEventSettings, MySqlTableEvents
    from connectors.mysql.model import BinlogPosition, MySqlColumn, MySqlTable
    from connectors.mysql.schema.columns import ColumnLayout, FieldPlan
    from connectors.mysql.schema.types import ValueOptions
    from connectors.mysql.source.connection import ServerInfo
    from connectors.options import Config

#: Types of key fields whose values SQL takes as they are.
_PLAIN: Final = frozenset({Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.STRING})
#: Bytes that are received at once: their rows fit into the CPU's cache.
_READ: Final = 1 << 16
#: A frame of the protocol: length and number, then the bytes.
_FRAME_HEAD: Final = Struct("<I")
_FULL_FRAME: Final = (1 << 24) - 1
#: First bytes of the packets that end a result, and how long the one of a good end is at most.
_ERROR, _EOF, _LONGEST_EOF = b"\xff", b"\xfe", 9
#: Rows that are handed over at once, at least.
_ROWS: Final = 1000
#: Of the view's transaction, before it has read a table.
_SAVEPOINT: Final = "view"
#: Errors of a query about a table that was altered or dropped after the view was opened: no such column, no such table,
#: another structure.
_TABLE_CHANGED: Final = frozenset({1054, 1146, 1412})
#: Present rows of a system-versioned table end at the last moment that a TIMESTAMP has: a day after this one, or in 2106.
_NO_END: Final = "2038-01-18"


class TableChanged(Retriable):
    """A table was altered or dropped after the view was opened: only a newer view can read it."""


class MessageChange(msgspec.Struct, frozen=True, gc=False):
    """A message's statement about one row.

    Attributes:
        kind: ``set``: the row is like this from here on; ``gone``: it is deleted; ``later``: it was changed after the position
            of the comparison.
        table: ``database.table``.
        key: of the row; None for a table without key.
        row: the row; for ``gone`` only where there is no key.
    """

    kind: str
    table: str
    key: Any
    row: dict[str, Any] | None


class TableEntry:
    """One captured table, ready to be read.

    Attributes:
        name: ``database.table``.
        table: its structure.
        key: the names of the key's fields; () for no key.
        fields: names of the row's fields, as ``builder`` writes them.
        logical: the logical table that it is a partition of.
        row_end: the name of the field that says when a row ended; "": the table is not system-versioned.
        builder: makes its records.
        bad: rows that could not be read or sent.
        sends_keys: whether messages have the table's own keys, as far as rows were sent.
    """

    def __init__(
        self, table: MySqlTable, settings: MySqlEventSettings, options: ValueOptions, end_column: str = ""
    ) -> None:
        self.name = str(table.name)
        self.table = table
        self.layout: ColumnLayout = columns.make_layout(table, settings, options)
        self.key = tuple(field.name for field in self.layout.key)
        self.fields = tuple(field.name for field in self.layout.values)
        self.logical = parse_mapping(settings.logical).of(table.name)
        fields = (*self.layout.values, *self.layout.key)
        self.row_end = next((field.name for field in fields if field.column == end_column), "")
        self.builder: MySqlTableEvents = events.make_builder(self.layout, 0, settings, {})
        self.bad = BadRows()
        self.sends_keys = True
        self._options = options

    def sql(self, condition: str = "") -> str:
        """The statement that reads its rows, or those that a condition in SQL holds for."""
        select_list = ", ".join(text_rows.select_list(self.table, self.layout.plans)) or "1"
        name = ".".join("`" + part.replace("`", "``") + "`" for part in self.table.name)
        where = f" WHERE {condition}" if condition else ""
        return f"SELECT {select_list} FROM {name}{where}"  # noqa: S608 - names are quoted

    def decoder(self) -> Callable[[bytes], dict[str, Any]]:
        """Makes a row of a packet of that statement's result."""
        decode: Callable[[bytes], dict[str, Any]] = text_rows.compile_text(self.table, self.layout.plans, self._options)
        return decode

    def records(self, rows: Sequence[dict[str, Any]], position: BinlogPosition) -> list[SourceRecord]:
        """The records that a snapshot would make of rows read at ``position``."""
        out: list[SourceRecord] = []
        source = RowSource(ts_ms=0, ts_us=0, server_id=position.server_id, file=position.file, pos=position.pos)
        self.builder.snapshot(rows, source, "true", {}, out)
        return out


class SourceView:
    """The captured tables as they are in one read view. A connection of its own; not for several tasks at the same time.

    Attributes:
        position: where in the binlog the view is: everything before it is in the view and nothing after it.
        tables: by name.
    """

    def __init__(self, parsed: Config) -> None:
        self._config = parsed
        self._connection: Any = None
        self._info: ServerInfo
        self._names: list[TableName] = []
        self.position: BinlogPosition
        self.tables: dict[str, TableEntry] = {}

    async def open(self, is_selected: Callable[[str], bool]) -> None:
        """Find the tables and open the view; see ``find`` for the arguments and errors."""
        await self.find(is_selected)
        settings, options = self._event_shape()
        if self._info.mariadb:
            # MariaDB gives locks of tables back before the end of a transaction only where the binlog is off for the session.
            with suppress(Fatal):  # which needs BINLOG ADMIN
                await connection.query_rows(self._connection, "SET SESSION sql_log_bin = 0")
        self.position = await open_view(self._connection, self._info)
        await connection.query_rows(self._connection, f"SAVEPOINT {_SAVEPOINT}")
        ends = await catalog.read_row_ends(self._connection, self._names)
        for name, table in (await catalog.read_definitions(self._connection, self._names)).items():
            self.tables[str(name)] = TableEntry(table, settings, options, ends.get(name, ""))

    def _event_shape(self) -> tuple[MySqlEventSettings, ValueOptions]:
        options = config.value_options(self._config, self._info.flavor)
        # Whatever events are left out: what is there must be equal to what the source has.
        shape = msgspec.structs.replace(
            config.event_settings(self._config, self._info.flavor),
            skipped=frozenset(),
            skip_unchanged=False,
            transactions=False,
            tombstones=False,
        )
        return shape, options

    async def find(self, is_chosen: Callable[[str], bool]) -> list[str]:
        """Connect, and find the tables: their names.

        Args:
            is_chosen: whether a captured table (``database.table``) is to be compared.

        Raises:
            Retriable: the server is unavailable.
            Fatal, ConfigInvalid: it refuses, or there is no such table.
        """
        settings = config.connection_settings(self._config)
        self._connection = await connection.connect_first(settings, server_name="the source")
        self._info = await connection.server_info(self._connection)
        shape, _ = self._event_shape()
        tables = MySqlTableFilter(shape)
        special = {name.lower() for name in shape.signal_tables}
        names = self._names = [
            name
            for name in await catalog.captured_tables(self._connection, tables.matches, tables.database)
            if is_chosen(str(name)) and str(name).lower() not in special
        ]
        if not names:
            raise ConfigInvalid(
                "no table is captured and selected: check database.include.list, table.include.list and "
                f"--tables, and whether {settings.user!r} may see the tables (SHOW GRANTS)"
            )
        return [str(name) for name in names]

    async def estimate(self, tables: Sequence[str]) -> int:
        """About how many rows these tables have."""
        names = [self.tables[table].table.name for table in tables]
        return sum((await catalog.read_estimates(self._connection, names)).values())

    async def records(self, entry: TableEntry, condition: str = "") -> AsyncIterator[list[SourceRecord]]:
        """All rows of a table as records, some at a time; those that can't be read are counted in ``entry``.

        Args:
            entry: the table.
            condition: in SQL, of the rows to read; empty: all.

        Raises:
            Retriable: the connection is lost: the view is gone with it, begin again.
            Fatal: the server refuses.
        """
        decode = entry.decoder()
        rows: list[dict[str, Any]] = []
        async for packets in self._read_packets(entry.sql(condition)):
            for packet in packets:
                try:
                    rows.append(decode(packet))
                except Skippable as error:
                    entry.bad.add(error)
            if len(rows) >= _ROWS:
                yield entry.records(rows, self.position)
                rows = []
        if rows:
            yield entry.records(rows, self.position)

    async def _read_packets(self, sql: str) -> AsyncIterator[list[bytes]]:
        """The row packets of a result, some at a time, without its being held in memory anywhere."""
        opened = self._connection
        try:
            await send_query(opened, sql)
            count = (await read_packet(opened)).read_length_encoded_integer()
            for _ in range(count + 1):  # the columns' descriptions and the packet that ends them
                await read_packet(opened)
            # The driver takes two turns of the event loop for each packet; a table has many.
            received, first = bytearray(), b""
            while True:
                data = await stream_of(opened).read(_READ)
                if not data:
                    raise EOFError("the server closed the connection")  # noqa: TRY301 - as the driver does
                received += data
                packets, first = cut_packets(received, first)
                last = packets[-1] if packets else b""
                if last[:1] == _ERROR:
                    raise_mysql_exception(last)
                if last[:1] == _EOF and len(last) < _LONGEST_EOF:
                    yield packets[:-1]
                    return
                if packets:
                    yield packets
        except (MySQLError, OSError, EOFError, RuntimeError) as error:
            failure = connection.explain_failure(error, f"running {sql[:200]}")
            if isinstance(error, MySQLError) and error.args and error.args[0] in _TABLE_CHANGED:
                raise TableChanged(str(failure)) from error
            raise failure from error

    async def release(self) -> None:
        """Give the locks of the tables back that were read, for which a change of a structure waits. The view stays.

        Raises:
            Retriable: the connection is lost.
        """
        await connection.query_rows(self._connection, f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")

    async def close(self) -> None:
        """Give the view up."""
        opened, self._connection = self._connection, None
        if opened is not None:
            opened.close()


def cut_packets(received: bytearray, first: bytes = b"") -> tuple[list[bytes], bytes]:
    """Take the complete packets out of what was received.

    Args:
        received: bytes of the protocol; those of an incomplete packet stay.
        first: what came of a packet that is longer than one frame holds.

    Returns:
        The packets, and what came of one that goes over several frames.
    """
    packets: list[bytes] = []
    data, head, at = bytes(received), _FRAME_HEAD.unpack_from, 0
    end = len(data)
    while end - at >= _FRAME_HEAD.size:
        size = head(data, at)[0] & _FULL_FRAME
        start = at + _FRAME_HEAD.size
        if end - start < size:
            break
        at = start + size
        if size == _FULL_FRAME or first:
            first += data[start:at]
            if size == _FULL_FRAME:
                continue
            packets.append(first)
            first = b""
        else:
            packets.append(data[start:at])
    del received[:at]
    return packets, first


async def open_view(opened: Any, info: ServerInfo) -> BinlogPosition:
    """Begin a transaction with a read view, and tell its position in the binlog.

    MariaDB tells the position of a view itself. MySQL doesn't: writes are locked out for the moment in which it is opened.

    Raises:
        Retriable: the connection is lost.
        Fatal: a privilege lacks (with MySQL RELOAD), or the binlog is off.
    """
    ask = connection.query_rows
    await ask(opened, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    if not info.mariadb:
        await ask(opened, "FLUSH TABLES WITH READ LOCK")
        try:
            await ask(opened, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            return await connection.current_place(opened, info)
        finally:
            await ask(opened, "UNLOCK TABLES")
    await ask(opened, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    status = {
        _to_string(name).lower(): _to_string(value)
        for name, value in await ask(opened, "SHOW STATUS LIKE 'binlog_snapshot_%'")
    }
    file, pos = status.get("binlog_snapshot_file", ""), status.get("binlog_snapshot_position", "")
    if not file or not pos:
        raise Fatal(
            "the server doesn't tell the binlog position of a read view (binlog_snapshot_file): check "
            "that log_bin is on"
        )
    position = await connection.current_place(opened, info, gtids=False)
    return msgspec.structs.replace(position, file=file, pos=int(pos))


def _to_string(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def key_condition(entry: TableEntry, keys: Sequence[str]) -> str:
    """The SQL condition for rows of a table, by their keys as JSON; empty: it can't be made, the whole table has to be read.

    Only whole numbers and plain strings are taken: other types have another form in SQL than in a message. Keys that a
    transform has changed name no rows.
    """
    columns = {column.name: column for column in entry.table.columns}
    fields = {field.name: (field, columns[field.column]) for field in entry.layout.key}
    if not entry.sends_keys or not fields or not all(_has_literals(field, column) for field, column in fields.values()):
        return ""
    rows: list[str] = []
    for key_json in keys:
        try:
            key = msgspec.json.decode(key_json, type=dict[str, Any])
        except msgspec.DecodeError:  # a long key is cut
            return ""
        if key.keys() != fields.keys() or not all(type(value) in (int, str) for value in key.values()):
            return ""
        rows.append(
            " AND ".join(
                f"{_quote_name(column.name)} = {_format_literal(key[name], column)}"
                for name, (_, column) in fields.items()
            )
        )
    return " OR ".join(f"({row})" for row in rows)


def _has_literals(field: FieldPlan, column: MySqlColumn) -> bool:
    """Whether values of a key's field can be written in SQL. Bytes may be strings in a message, in hexadecimal or base64."""
    schema = field.schema
    unchanged = field.transform is None and schema.name is None and schema.type in _PLAIN
    return unchanged and kind_of(column) is not ColumnKind.BYTES


def _quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _format_literal(value: int | str, column: MySqlColumn) -> str:
    """A key's value in SQL: strings in hexadecimal, so that no mode of the server gives a character a meaning."""
    if isinstance(value, str):
        # A literal is compared by the column's collation; a call such as CONVERT has one of its own, and the two may not fit.
        return f"_utf8mb4 X'{value.encode().hex()}'"
    # In a message, numbers from 2^63 on are negative.
    return str(value + (1 << 64) if value < 0 and column.unsigned else value)


# What events say.


class MessageReader:
    """Reads messages of either side.

    Args:
        tables: name -> names of the key's fields, () for none.
        topics: topic -> the table whose plain rows (without envelope) it has.
        position: of the source's view; None for messages of the source itself.
        parts: name -> the logical table that it is a partition of; tables that are not in it stand for themselves.
        row_ends: name of a system-versioned table -> the field that says when a row ended. Its former rows are passed over: a
            read of the table does not show them.
    """

    def __init__(
        self,
        tables: Mapping[str, tuple[str, ...]],
        topics: Mapping[str, str],
        position: BinlogPosition | None,
        parts: Mapping[str, Logical] | None = None,
        row_ends: Mapping[str, str] | None = None,
    ) -> None:
        self._tables = tables
        self._row_ends = row_ends or {}
        self._topics = topics
        self._view_position = None if position is None else position_number(position.file, position.pos)
        #: The file of the last event, and the number of its beginning.
        self._file: tuple[Any, int] = (None, 0)
        # A namespace has no dots within its parts.
        logical_tables = {name: Logical(TableName(*name.split(".", 1))) for name in tables} | dict(parts or {})
        self._by_namespace = {
            _namespace_key(part.name, str(part.database_partition), str(part.table_partition)): name
            for name, part in logical_tables.items()
        }

    def changes(self, topic: str, key: Any, value: Any) -> Iterable[MessageChange]:
        """A decoded message's changes of the tables' rows; other tables are skipped.

        Args:
            topic: the message's.
            key: its key.
            value: its value; an event of Debezium's form may be a ``RowEvent``.
        """
        changes = self._read(topic, key, value)
        return [change for change in changes if not self._is_former(change)] if self._row_ends else changes

    def _is_former(self, change: MessageChange) -> bool:
        field = self._row_ends.get(change.table)
        if field is None:
            return False
        ends = [part[field] for part in (change.row, change.key) if isinstance(part, dict) and field in part]
        return bool(ends) and isinstance(ends[0], str) and ends[0] < _NO_END

    def _read(self, topic: str, key: Any, value: Any) -> Iterable[MessageChange]:
        if isinstance(value, RowEvent):
            return self._read_event(key, value)
        if is_ums(value):
            return self._read_ums(value)
        if is_envelope(value):
            return self._read_event(key, RowEvent.of(value))
        return self._read_plain(self._topics[topic], key, value) if topic in self._topics else ()

    def _read_event(self, key: Any, event: RowEvent) -> Sequence[MessageChange]:
        source, op = event.source, event.op
        table = f"{source.db}.{source.table}"
        names = self._tables.get(table)
        if names is None or op not in ("c", "r", "u", "d"):
            return ()
        if not names:
            key = None
        before, after = event.before, event.after
        if self._view_position is not None:
            # What begins at the view's position comes after it, but for rows that were read, which are as of their position.
            file, start = self._file
            if source.file != file:
                start = position_number(str(source.file), 0)
                self._file = (source.file, start)
            at = start + int(source.pos or 0)
            if at > self._view_position or (at == self._view_position and op != "r"):
                return (MessageChange("later", table, key, None),)
        if op != "d" and after is not None and (key is not None or op != "u"):
            return (MessageChange("set", table, key, after),)
        changes: list[MessageChange] = []
        if key is None and op in ("u", "d"):
            if before is not None:
                changes.append(MessageChange("gone", table, None, before))
        elif op == "d":
            changes.append(MessageChange("gone", table, key, None))
        if op != "d" and after is not None:
            changes.append(MessageChange("set", table, key, after))
        return changes

    def _read_plain(self, table: str, key: Any, value: Any) -> Iterator[MessageChange]:
        if not self._tables[table]:
            key = None
        if value is None or value.get("__deleted") in ("true", True):
            if key is not None:
                yield MessageChange("gone", table, key, None)
            return
        yield MessageChange(
            "set", table, key, {name: member for name, member in value.items() if not name.startswith("__")}
        )

    def _read_ums(self, message: dict[str, Any]) -> Iterator[MessageChange]:
        kind = message["protocol"]["type"]
        if kind not in ums.WITH_ROWS:
            return
        namespace = ums.Namespace.parse(message["schema"]["namespace"])
        table = self._by_namespace.get(
            _namespace_key(
                TableName(namespace.database, namespace.table), namespace.database_partition, namespace.table_partition
            )
        )
        if table is None:
            return
        names = self._tables[table]
        fields = [field["name"] for field in message["schema"]["fields"]]
        for row in message["payload"]:
            values = dict(zip(fields, row["tuple"], strict=True))
            op = values.get(ums.OPERATION)
            shown = {name: member for name, member in values.items() if not name.startswith("ums_")}
            key = {name: shown.get(name) for name in names} if names else None
            if self._view_position is not None and int(values.get(ums.ID) or 0) > self._view_position:
                yield MessageChange("later", table, key, None)
            elif op in (ums.BEFORE, ums.DELETE):
                yield MessageChange("gone", table, key, shown if key is None else None)
            else:
                yield MessageChange("set", table, key, shown)


def _namespace_key(name: TableName, *partitions: str) -> tuple[str, ...]:
    return name.database.replace(".", "_"), name.table.replace(".", "_"), *partitions


def is_ums(value: Any) -> bool:
    """Whether a decoded value is a UMS message."""
    return isinstance(value, dict) and value.keys() >= {"protocol", "schema", "payload"}


def is_delivered(prefix: str, offsets: Sequence[tuple[Position, Position]], target: BinlogPosition) -> tuple[bool, str]:
    """Whether the saved offsets say that everything before ``target`` is delivered, and where they are.

    Raises:
        ValueError: an offset is not understood.
    """
    saved = saved_place(prefix, offsets)
    if saved is None:
        return False, "nowhere yet"
    at = saved[0]
    return (file_number(at.file), at.pos) >= (file_number(target.file), target.pos), f"{at.file}:{at.pos}"
