"""Parsers of binlog events: pure functions over one raw event (header of 19 bytes and body, without its checksum).

Rows themselves are decoded elsewhere; here is what frames them. Integers are little endian unless said otherwise. A function
that is given a cut event raises ``Fatal``.
"""

from __future__ import annotations

import codecs
import functools
import struct
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pymysql.charset import charset_by_id

from connectors.errors import Fatal
from connectors.formats.timeuuid import format_uuid
from connectors.mysql.source import event_types as types

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

HEADER_SIZE: Final = 19

_HEADER: Final = struct.Struct("<IBIIIH")
_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_TABLE_ID: Final = struct.Struct("<IH")
_QUERY: Final = struct.Struct("<IIBHH")
#: The end of the default database's name, and the statement.
_BEGIN: Final = b"\0BEGIN"
_MARIADB_GTID: Final = struct.Struct("<QIB")
#: The server's id; sequence number, domain, flags, and the first of six bytes of zeros.
_PLAIN_GTID: Final = struct.Struct("<5xI10xQIBB")
_XA_PREPARE: Final = struct.Struct("<BIII")
_PLAIN_GTID_SIZE: Final = HEADER_SIZE + _MARIADB_GTID.size + 6
_ROWS_V1: Final = struct.Struct("<IHH")
_ROWS_V2: Final = struct.Struct("<IHHH")


class BinlogHeader(NamedTuple):
    """The first 19 bytes of an event.

    Attributes:
        ts: when the statement began, seconds since 1970; 0 for an artificial event.
        type: see ``event_types``.
        server_id: of the server that wrote it first.
        size: bytes in the file, header and checksum included.
        next_pos: where the next event begins in the file; 0 for an artificial event and for those in a transaction payload.
            Only 32 bits: of a file beyond 4 GiB the low ones.
        flags: see ``event_types``.
    """

    ts: int
    type: int
    server_id: int
    size: int
    next_pos: int
    flags: int


class Rotate(NamedTuple):
    """Says that the stream continues in this file, at this position."""

    file: str
    pos: int


class QueryEvent(NamedTuple):
    """A statement.

    Attributes:
        thread: number of the connection.
        schema: its default database; "" for none.
        statement: the text; bytes that are wrong in its character set are replaced.
        micros: microseconds to be added to the header's seconds; None: unknown.
        error: the statement's error code; 0 for none.
        duration: seconds it took.
        xid: of a DDL statement, where the server writes it.
        sql_mode: bits of the mode in which it is to be read.
    """

    thread: int
    schema: str
    statement: str
    micros: int | None = None
    error: int = 0
    duration: int = 0
    xid: int | None = None
    sql_mode: int = 0


class Gtid(NamedTuple):
    """The start of a transaction.

    Attributes:
        text: the GTID as the server writes it; "" for an anonymous one.
        standalone: MariaDB: the transaction is the one event (or row statement) that follows, without a commit of its own.
        ddl: MariaDB: that is a DDL statement.
        immediate_us: MySQL: when this server committed it, microseconds since 1970; 0: unknown.
        length: MySQL: bytes of the transaction in the file, this event included; 0: unknown.
        thread: MariaDB: the connection's number where the server writes it.
        prepared: MariaDB: an XA transaction is prepared by it.
        completed: MariaDB: an XA transaction is ended by it.
        alter: MariaDB, ``binlog_alter_two_phase``: ``start``, ``commit`` or ``rollback`` of an ALTER; "" for all others.
    """

    text: str
    standalone: bool = False
    ddl: bool = False
    immediate_us: int = 0
    length: int = 0
    thread: int | None = None
    prepared: bool = False
    completed: bool = False
    alter: str = ""


class RowsHeader(NamedTuple):
    """The part of a rows event before its rows.

    Attributes:
        table_id: the number of the table map that describes them.
        flags: 1: last rows event of its statement; 2: no foreign key checks; 4: no unique checks; 8: all columns are there.
        columns: how many the table has.
        present: bitmap of the columns in each image: of a write's and a delete's, of an update's first.
        present_after: the same of an update's second image, else None.
        start: where the rows start in the event; they reach to its end.
    """

    table_id: int
    flags: int
    columns: int
    present: bytes
    present_after: bytes | None
    start: int


def read_header(event: bytes) -> BinlogHeader:
    """The event's header."""
    if len(event) < HEADER_SIZE:
        raise Fatal(f"a binlog event of {len(event)} bytes is shorter than a header: {event.hex()}")
    return BinlogHeader(*_HEADER.unpack_from(event, 0))


def read_rotate(event: bytes) -> Rotate:
    """A ROTATE event."""
    return _read_event(
        "ROTATE",
        event,
        lambda: Rotate(
            event[HEADER_SIZE + 8 :].rstrip(b"\0").decode("utf-8", "surrogateescape"),
            _U64.unpack_from(event, HEADER_SIZE)[0],
        ),
    )


def read_query(event: bytes) -> QueryEvent:
    """A QUERY event."""
    return _read_event("QUERY", event, lambda: _parse_query(event))


def prepared_transaction(event: bytes) -> str:
    """The id of the XA transaction that an XA_PREPARE event prepares, as ``XA COMMIT`` has it; "" for one that it commits."""
    one_phase, form, size, _ = _XA_PREPARE.unpack_from(event, HEADER_SIZE)
    return "" if one_phase else format_transaction(form, event[HEADER_SIZE + _XA_PREPARE.size :], size)


def format_transaction(form: int, data: bytes, size: int) -> str:
    """The id of an XA transaction as ``XA COMMIT`` has it; ``size`` is that of the first one of the two parts of ``data``."""
    return f"X'{data[:size].hex()}',X'{data[size:].hex()}',{form}"


def begin_thread(event: bytes) -> int | None:
    """The connection's number of a QUERY event that begins a transaction; None for every other statement."""
    # MySQL writes one for every transaction: its status variables don't matter.
    start = HEADER_SIZE + _QUERY.size
    if len(event) < start or not event.endswith(_BEGIN):
        return None
    thread, _, schema_length, _, status_length = _QUERY.unpack_from(event, HEADER_SIZE)
    return int(thread) if len(event) == start + status_length + schema_length + len(_BEGIN) else None


def _parse_query(event: bytes) -> QueryEvent:
    thread, duration, schema_length, error, status_length = _QUERY.unpack_from(event, HEADER_SIZE)
    at = HEADER_SIZE + _QUERY.size
    status = event[at : at + status_length]
    at += status_length
    schema = event[at : at + schema_length].decode("utf-8", "replace")
    statement = event[at + schema_length + 1 :]
    collation, micros, xid, sql_mode = _parse_status(status) if status else (0, None, None, 0)
    text = statement.decode(python_codec(collation), "replace")
    return QueryEvent(thread, schema, text, micros, error, duration, xid, sql_mode)


#: Lengths of status variables of a QUERY event that always have the same.
_STATUS_FIXED: Final = {0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8, 18: 2, 19: 1, 20: 1,
                        128: 3, 129: 8}  # fmt: skip


def _parse_status(data: bytes) -> tuple[int, int | None, int | None, int]:
    """Collation of the client, microseconds, transaction number, sql_mode; what is behind an unknown variable stays unread."""
    collation, micros, xid, sql_mode, at, end = 0, None, None, 0, 0, len(data)
    while at < end:
        code = data[at]
        at += 1
        size = _STATUS_FIXED.get(code)
        if size is None:
            size = _status_size(code, data, at)
            if size is None:
                break
        elif code == 1:
            sql_mode = _U64.unpack_from(data, at)[0]
        elif code == 4:
            collation = _U16.unpack_from(data, at)[0]
        elif code in {13, 128}:
            micros = int.from_bytes(data[at : at + 3], "little")
        elif code in {17, 129}:
            xid = _U64.unpack_from(data, at)[0]
        at += size
    return collation, micros, xid, sql_mode


def _status_size(code: int, data: bytes, at: int) -> int | None:
    if code == 2:  # catalog, ended by a zero
        return data[at] + 2
    if code in {5, 6}:  # time zone, catalog
        return data[at] + 1
    if code == 11:  # invoker: user and host
        user = data[at] + 1
        return user + data[at + user] + 1
    if code == 12:  # names of databases, each ended by a zero; 254: too many to tell
        stop = at + 1
        for _ in range(data[at] if data[at] < 254 else 0):
            stop = data.index(b"\0", stop) + 1
        return stop - at
    if code == 130:  # GTID flags; those of a two-phase ALTER bring the number of its start
        return 9 if data[at] & 0x0C else 1
    if code == 131:  # collations of character sets
        return 1 + 4 * data[at]
    return None


def read_gtid(event: bytes) -> Gtid:
    """A GTID event of either flavor: MySQL's plain, anonymous and tagged ones, MariaDB's."""
    kind = event[4]
    if kind == types.MARIADB_GTID:
        try:
            return _mariadb_gtid(event)
        except (IndexError, ValueError, struct.error) as error:
            raise _cut_error("GTID", event) from error
    if kind == types.GTID_TAGGED:
        return _read_event("GTID_TAGGED", event, lambda: _tagged_gtid(event))
    return _read_event("GTID", event, lambda: _mysql_gtid(event))


def plain_gtid(event: bytes) -> str:
    """The GTID of a MariaDB event that says nothing else but that a transaction begins; "" for every other event."""
    if len(event) != _PLAIN_GTID_SIZE or event[4] != types.MARIADB_GTID:
        return ""
    server, sequence, domain, flags, extra = _PLAIN_GTID.unpack_from(event)
    # Of the flags 8 says no more than that it may be applied in parallel.
    return "" if flags & 0xE3 or extra else f"{domain}-{server}-{sequence}"


def _mariadb_gtid(event: bytes) -> Gtid:
    sequence, domain, flags = _MARIADB_GTID.unpack_from(event, HEADER_SIZE)
    server = _U32.unpack_from(event, 5)[0]
    gtid_name = f"{domain}-{server}-{sequence}"
    at = HEADER_SIZE + (21 if flags & 2 else 13)
    if flags & 0xC0:
        at += 6 + event[at + 4] + event[at + 5]
    extra = event[at] if at < len(event) else 0
    alter, thread = "", None
    if extra:
        at += 1 + (extra & 1)
        if extra & 0x0E:
            alter = "start" if extra & 2 else "commit" if extra & 4 else "rollback"
            at += 8 if extra & 0x0C else 0
        if extra & 0x10:
            thread = _U32.unpack_from(event, at)[0]
    return Gtid(
        gtid_name,
        bool(flags & 1),
        bool(flags & 0x20),
        thread=thread,
        prepared=bool(flags & 0x40),
        completed=bool(flags & 0x80),
        alter=alter,
    )


def _mysql_gtid(event: bytes) -> Gtid:
    at = HEADER_SIZE
    gtid_name = ""
    if event[4] == types.GTID:
        gtid_name = f"{format_uuid(event[at + 1 : at + 17])}:{_U64.unpack_from(event, at + 17)[0]}"
    immediate = length = 0
    at += 25
    if len(event) >= at + 17 + 7 and event[at] == 2:  # logical clock, then what MySQL 8 has added
        at += 17
        immediate = int.from_bytes(event[at : at + 7], "little")
        at += 7
        if immediate >> 55:  # the time of the first server's commit follows
            immediate &= (1 << 55) - 1
            at += 7
        if at < len(event):
            length, at = read_lenenc(event, at)
    return Gtid(gtid_name, immediate_us=immediate, length=length)


def _tagged_gtid(event: bytes) -> Gtid:
    """Fields with numbers, each only if it differs from its default; all numbers of variable length."""
    at = HEADER_SIZE
    version, at = read_varlen(event, at)
    size, at = read_varlen(event, at)
    end = min(HEADER_SIZE + size, len(event))
    last, at = read_varlen(event, at)
    if version != 1 or last > 12:
        raise Fatal(
            f"the tagged GTID event at {read_header(event)} is of version {version} with field {last - 1}, which this "
            "program does not know: upgrade it"
        )
    uuid, tag, fields = bytes(16), "", {}
    while at < end:
        field, at = read_varlen(event, at)
        if field == 1:
            parts = bytearray()
            for _ in range(16):
                part, at = read_varlen(event, at)
                parts.append(part)
            uuid = bytes(parts)
        elif field == 3:
            length, at = read_varlen(event, at)
            tag = event[at : at + length].decode("ascii", "replace")
            at += length
        elif field <= 11:
            fields[field], at = read_varlen(event, at)
        else:
            break
    number = fields.get(2, 0) >> 1  # signed: the sign is the lowest bit
    gtid_name = f"{format_uuid(uuid)}:{tag}:{number}" if tag else f"{format_uuid(uuid)}:{number}"
    immediate = fields.get(6, 0)
    return Gtid(gtid_name, immediate_us=immediate, length=fields.get(8, 0))


def rows_query(event: bytes, collation: int = 0) -> str:
    """The statement behind rows: of a ROWS_QUERY or an ANNOTATE_ROWS event."""
    start = HEADER_SIZE + (1 if event[4] == types.ROWS_QUERY else 0)
    return event[start:].decode(python_codec(collation), "replace")


def describe_incident(event: bytes) -> str:
    """Return the text of an INCIDENT event: it says that the binlog lacks some changes."""
    body = event[HEADER_SIZE:]
    number = _U16.unpack_from(body)[0] if len(body) >= 2 else 0
    return f"incident {number}: {body[3:].decode('utf-8', 'replace') or 'no message'}"


def read_heartbeat(event: bytes) -> Rotate:
    """The position that a HEARTBEAT event reports: the server has nothing new before it."""
    if event[4] != types.HEARTBEAT_V2:
        name, pos = event[HEADER_SIZE:], read_header(event).next_pos
        if pos == 0 and len(name) > 8:  # MariaDB, beyond 4 GiB
            pos, name = _U64.unpack_from(name)[0], name[8:]
        return Rotate(name.decode("utf-8", "surrogateescape"), pos)

    def read() -> Rotate:
        file, pos, at = "", 0, HEADER_SIZE
        while at < len(event) and event[at]:
            size, start = read_lenenc(event, at + 1)
            if event[at] == 1:
                file = event[start : start + size].decode("utf-8", "surrogateescape")
            elif event[at] == 2:
                pos = read_lenenc(event, start)[0]
            at = start + size
        return Rotate(file, pos)

    return _read_event("HEARTBEAT_V2", event, read)


def table_id(event: bytes) -> int:
    """The table number of a TABLE_MAP or a rows event."""
    try:
        low, high = _TABLE_ID.unpack_from(event, HEADER_SIZE)
    except struct.error as error:
        raise _cut_error("rows", event) from error
    return int(low | high << 32)


def rows_header(event: bytes) -> RowsHeader:
    """Parse the part of a rows event before its rows (not of a compressed one: see ``uncompress_event``)."""
    kind = event[4]
    if kind not in types.ROWS:
        raise Fatal(f"{types.type_name(kind)} is no event with rows that can be read")
    try:
        return _rows_header(event, kind, kind)
    except (IndexError, struct.error) as error:
        raise _cut_error("rows", event) from error


def _rows_header(event: bytes, kind: int, plain: int) -> RowsHeader:
    """``kind`` tells the layout as written, ``plain`` the same without compression."""
    if plain <= types.DELETE_ROWS_V1:
        low, high, flags = _ROWS_V1.unpack_from(event, HEADER_SIZE)
        at = HEADER_SIZE + 8
    else:
        low, high, flags, extra = _ROWS_V2.unpack_from(event, HEADER_SIZE)
        at = HEADER_SIZE + 8 + extra  # the length counts itself
    columns = event[at]
    if columns < 251:
        at += 1
    else:
        columns, at = read_lenenc(event, at)
    width = (columns + 7) >> 3
    stop = at + width
    after = None
    if plain in types.UPDATES:
        after = event[stop : stop + width]
        start = stop + width
    else:
        start = stop
    if start > len(event):
        raise _cut_error(types.type_name(kind), event)
    return RowsHeader(low | high << 32, flags, columns, event[at:stop], after, start)


def uncompress_event(event: bytes) -> bytes:
    """The plain event of MariaDB's compressed one; its header's size is then the plain one's.

    Raises:
        Fatal: the data can't be uncompressed.
    """
    kind = event[4]
    if kind == types.QUERY_COMPRESSED:
        plain = types.QUERY
        try:
            _, _, schema_length, _, status_length = _QUERY.unpack_from(event, HEADER_SIZE)
        except struct.error as error:
            raise _cut_error(types.type_name(kind), event) from error
        start = HEADER_SIZE + _QUERY.size + status_length + schema_length + 1
    else:
        if kind not in types.COMPRESSED:
            raise Fatal(f"{types.type_name(kind)} is no compressed event")
        older = kind <= types.DELETE_ROWS_COMPRESSED_V1
        plain = kind - (
            types.WRITE_ROWS_COMPRESSED_V1 - types.WRITE_ROWS_V1
            if older
            else types.WRITE_ROWS_COMPRESSED - types.WRITE_ROWS
        )
        try:
            start = _rows_header(event, kind, plain).start
        except (IndexError, struct.error) as error:
            raise _cut_error(types.type_name(kind), event) from error
    body = _inflate_data(event, start, kind)
    # No checksum any more; the file's position of the next event stays as it is.
    size = start + len(body)
    return b"".join((event[:4], bytes((plain,)), event[5:9], _U32.pack(size), event[13:start], body))


def _inflate_data(event: bytes, start: int, kind: int) -> bytes:
    """One byte (compressed, algorithm, bytes of the length), the length (big endian), data."""
    head = event[start] if start < len(event) else 0
    width = head & 7
    if not head & 0x80 or head & 0x70 or not 1 <= width <= 4:
        raise Fatal(
            f"a {types.type_name(kind)} event is compressed in an unknown way (0x{head:02x}); upgrade this program, or "
            "SET GLOBAL log_bin_compress=OFF and begin behind it"
        )
    length = int.from_bytes(event[start + 1 : start + 1 + width], "big")
    inflater = zlib.decompressobj()
    try:
        # One byte more than announced, so that too long data shows without being kept.
        body = inflater.decompress(memoryview(event)[start + 1 + width :], length + 1)
    except zlib.error as error:
        raise Fatal(
            f"the data of a {types.type_name(kind)} event can't be uncompressed: {error}; check the binlog with "
            "mysqlbinlog or mariadb-binlog"
        ) from error
    if len(body) != length or not inflater.eof:
        raise Fatal(
            f"a {types.type_name(kind)} event holds {len(body)} bytes, whole or not, in place of {length}; check "
            "the binlog"
        )
    return body


@functools.lru_cache(maxsize=64)
def python_codec(collation: int) -> str:
    """Python's codec for strings of a collation; UTF-8 where Python has none."""
    try:
        name: str = charset_by_id(collation).encoding
        codecs.lookup(name)
    except LookupError:
        return "utf-8"
    return name


def read_lenenc(data: bytes, at: int) -> tuple[int, int]:
    """The length-encoded integer at ``at``, and where it ends."""
    first = data[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}.get(first, 0)
    if not width or at + 1 + width > len(data):
        raise IndexError(f"no length-encoded integer at {at}")
    return int.from_bytes(data[at + 1 : at + 1 + width], "little"), at + 1 + width


def read_varlen(data: bytes, at: int) -> tuple[int, int]:
    """MySQL's serialization integer at ``at``: as many bytes follow the first as it has lowest bits set; and where it ends."""
    first = data[at]
    width = (~first & 0xFF & -(~first & 0xFF)).bit_length() if first != 0xFF else 9
    if at + width > len(data):
        raise IndexError(f"no integer at {at}")
    number = int.from_bytes(data[at : at + width], "little")
    return (number >> 8 if width == 9 else number >> width), at + width


def _read_event(event_name: str, event: bytes, parse: Callable[[], _T]) -> _T:
    try:
        return parse()
    except (IndexError, ValueError, struct.error) as error:
        raise _cut_error(event_name, event) from error


def _cut_error(event_name: str, event: bytes) -> Fatal:
    return Fatal(
        f"a {event_name} event of {len(event)} bytes is cut or not of the known form: {event[:64].hex()}; check the binlog "
        "with mysqlbinlog or mariadb-binlog at that place"
    )
