"""Binlog events from the documented wire format: an encoder of its own here, the parsers there."""

from __future__ import annotations

import struct
import zlib

import pytest

from connectors.errors import Fatal
from connectors.mysql.source import binlog_events as parse
from connectors.mysql.source import event_types as types
from connectors.mysql.source.binlog_events import BinlogHeader, Gtid, QueryEvent, Rotate, RowsHeader

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
UUID = bytes.fromhex(A.replace("-", ""))


def event(kind: int, body: bytes, *, server: int = 7, next_pos: int = 900, flags: int = 0) -> bytes:
    return struct.pack("<IBIIIH", 1700000000, kind, server, 19 + len(body), next_pos, flags) + body


def varlen(value: int) -> bytes:
    """As many lowest bits are set as bytes follow."""
    for extra in range(8):
        if value < 1 << 7 * (extra + 1):
            return (value << (extra + 1) | (1 << extra) - 1).to_bytes(extra + 1, "little")
    return b"\xff" + value.to_bytes(8, "little")


def test_headers() -> None:
    raw = event(types.XID, bytes(8), flags=0x20)
    assert parse.read_header(raw) == BinlogHeader(1700000000, 16, 7, 27, 900, 0x20)
    with pytest.raises(Fatal, match="shorter than a header"):
        parse.read_header(raw[:18])
    assert types.type_name(30) == "WRITE_ROWS (30)"
    assert types.type_name(99) == "unknown type (99)"


def test_rotates_and_heartbeats() -> None:
    assert parse.read_rotate(event(types.ROTATE, struct.pack("<Q", 1 << 33) + b"b.000002")) == Rotate(
        "b.000002", 1 << 33
    )
    with pytest.raises(Fatal, match="ROTATE event of 21 bytes is cut"):
        parse.read_rotate(event(types.ROTATE, b"xx"))
    assert parse.read_heartbeat(event(types.HEARTBEAT, b"b.000002")) == Rotate("b.000002", 900)
    far = event(types.HEARTBEAT, struct.pack("<Q", 1 << 33) + b"b.000002", next_pos=0)
    assert parse.read_heartbeat(far) == Rotate("b.000002", 1 << 33)
    position = b"\xfe" + struct.pack("<Q", 5 << 32)
    newer = b"\x01\x08b.000002" + b"\x02" + bytes([len(position)]) + position + b"\x07\x01x" + b"\x00"
    assert parse.read_heartbeat(event(types.HEARTBEAT_V2, newer)) == Rotate("b.000002", 5 << 32)


def query(text: bytes, status: bytes = b"", schema: bytes = b"shop", kind: int = types.QUERY, error: int = 0) -> bytes:
    return event(kind, struct.pack("<IIBHH", 12, 3, len(schema), error, len(status)) + status + schema + b"\0" + text)


def charset(collation: int) -> bytes:
    return b"\x04" + struct.pack("<HHH", collation, 8, 8)


@pytest.mark.parametrize(("status", "micros", "xid"), [
    (b"", None, None),
    (b"\x00" + bytes(4) + b"\x01" + bytes(8) + b"\x06\x03std" + b"\x03" + bytes(4) + charset(45)
     + b"\x0d\x40\xe2\x01", 123456, None),
    (b"\x02\x03std\0" + b"\x05\x03UTC" + b"\x07\0\0" + b"\x08\0\0" + b"\x09" + bytes(8) + b"\x0a" + bytes(4)
     + b"\x0d\x01\0\0", 1, None),
    (b"\x0b\x04root\x09localhost" + b"\x0c\x02one\0two\0" + b"\x11" + struct.pack("<Q", 99) + b"\x0d\x02\0\0", 2, 99),
    (b"\x0c\xfe" + b"\x10\x01" + b"\x12\xff\0" + b"\x13\x01" + b"\x14\x00" + b"\x0d\x03\0\0", 3, None),
    (b"\x83\x02" + bytes(8) + b"\x80\x40\xe2\x01" + b"\x81" + struct.pack("<Q", 5) + b"\x82\x01", 123456, 5),
    (b"\x82\x02" + b"\x80\x05\0\0" + b"\x82\x02", 5, None),
    (b"\x82\x04" + bytes(8) + b"\x80\x04\0\0", 4, None),
    (b"\x0d\x05\0\0" + b"\x63 unknown", 5, None),
])  # fmt: skip
def test_queries_with_every_status_variable(status: bytes, micros: int | None, xid: int | None) -> None:
    parsed = parse.read_query(query("CREATE TABLE ä (id INT)".encode(), status, error=3))
    assert parsed == QueryEvent(12, "shop", "CREATE TABLE ä (id INT)", micros, 3, 3, xid)


def test_the_mode_of_a_query() -> None:
    mode = b"\x01" + struct.pack("<Q", 1 << 20 | 1 << 2)
    assert parse.read_query(query(b"x", bytes(5) + mode)).sql_mode == 1 << 20 | 1 << 2


def test_texts_of_queries_are_tolerant() -> None:
    assert parse.read_query(query(b"x '\xe4'", charset(8))).statement == "x 'ä'"
    assert parse.read_query(query("x 'я'".encode("cp1251"), charset(51))).statement == "x 'я'"
    assert parse.read_query(query(b"x '\xe4'", charset(45))).statement == "x '\N{REPLACEMENT CHARACTER}'"
    assert (
        parse.read_query(query("x '€'".encode(), charset(2304))).statement == "x '€'"
    )  # an id that the driver doesn't know
    assert parse.read_query(query(b"x", charset(63), schema=b"")) == QueryEvent(12, "", "x", None, 0, 3, None)
    with pytest.raises(Fatal, match="QUERY event"):
        parse.read_query(query(b"x")[:25])


def test_mysql_gtids_of_every_age() -> None:
    head = b"\x01" + UUID + struct.pack("<Q", 23)
    clock = b"\x02" + struct.pack("<QQ", 5, 6)
    now = 1_700_000_000_123_456
    immediate, first = now.to_bytes(7, "little"), (now - 5).to_bytes(7, "little")
    both = (now | 1 << 55).to_bytes(7, "little") + first
    assert parse.read_gtid(event(types.GTID, head)) == Gtid(f"{A}:23")
    assert parse.read_gtid(event(types.GTID, head + clock)) == Gtid(f"{A}:23")
    assert parse.read_gtid(
        event(types.GTID, head + clock + immediate + b"\xfc\x00\x10" + struct.pack("<I", 80400))
    ) == Gtid(f"{A}:23", immediate_us=now, length=4096)
    assert parse.read_gtid(
        event(types.GTID, head + clock + both + b"\x50" + struct.pack("<II", 80400 | 1 << 31, 80000))
    ) == Gtid(f"{A}:23", immediate_us=now, length=80)
    assert parse.read_gtid(event(types.ANONYMOUS_GTID, head + clock + immediate + b"\x50")) == Gtid(
        "", immediate_us=now, length=80
    )
    with pytest.raises(Fatal, match="GTID event"):
        parse.read_gtid(event(types.GTID, head[:20]))


@pytest.mark.parametrize("number", [1, 63, 64, 1 << 20, 1 << 40, (1 << 63) - 2])
@pytest.mark.parametrize("tag", ["", "blue_1"])
def test_tagged_gtids(number: int, tag: str) -> None:
    now = 1_700_000_000_123_456
    fields = varlen(0) + varlen(1) + varlen(1) + b"".join(map(varlen, UUID)) + varlen(2) + varlen(number << 1)
    if tag:
        fields += varlen(3) + varlen(len(tag)) + tag.encode()
    fields += varlen(4) + varlen(10) + varlen(5) + varlen(12) + varlen(6) + varlen(now) + varlen(7) + varlen(now - 9)
    fields += varlen(8) + varlen(777) + varlen(9) + varlen(80400)
    size = 1 + 1 + 1 + len(fields)  # version, the size itself, the last field that must be known, plus one
    assert size < 128
    body = varlen(1) + varlen(size) + varlen(10) + fields
    assert size == len(body)
    text = f"{A}:{tag}:{number}" if tag else f"{A}:{number}"
    assert parse.read_gtid(event(types.GTID_TAGGED, body)) == Gtid(text, immediate_us=now, length=777)


def test_tagged_gtids_of_the_future_are_refused() -> None:
    with pytest.raises(Fatal, match="upgrade it"):
        parse.read_gtid(event(types.GTID_TAGGED, varlen(1) + varlen(4) + varlen(14) + varlen(0)))
    with pytest.raises(Fatal, match="GTID_TAGGED event"):
        parse.read_gtid(event(types.GTID_TAGGED, varlen(1) + varlen(400) + varlen(5) + varlen(1) + bytes(3)))


def test_integers_of_variable_length() -> None:
    for value in (0, 127, 128, (1 << 14) - 1, 1 << 14, (1 << 56) - 1, 1 << 56, (1 << 64) - 1):
        assert parse.read_varlen(b"x" + varlen(value) + b"y", 1) == (value, 1 + len(varlen(value)))
    for value, raw in (
        (250, b"\xfa"),
        (251, b"\xfc\xfb\0"),
        (1 << 16, b"\xfd\0\0\1"),
        (1 << 40, b"\xfe" + (1 << 40).to_bytes(8, "little")),
    ):
        assert parse.read_lenenc(b"x" + raw + b"y", 1) == (value, 1 + len(raw))
    for bad in (b"\xfb", b"\xff", b"\xfc\0", b""):
        with pytest.raises(IndexError):
            parse.read_lenenc(bad, 0)


def mariadb(flags: int, rest: bytes = b"") -> bytes:
    return event(types.MARIADB_GTID, struct.pack("<QIB", 1234, 3, flags) + rest, server=9)


@pytest.mark.parametrize(("raw", "expected"), [
    (mariadb(0x0C, bytes(6)), Gtid("3-9-1234")),
    (mariadb(0x01, bytes(6)), Gtid("3-9-1234", standalone=True)),
    (mariadb(0x29, bytes(6)), Gtid("3-9-1234", standalone=True, ddl=True)),
    (mariadb(0x0E, struct.pack("<Q", 55)), Gtid("3-9-1234")),
    (mariadb(0x40, struct.pack("<IBB", 1, 3, 2) + b"abcde"), Gtid("3-9-1234", prepared=True)),
    (mariadb(0x82, struct.pack("<Q", 55) + struct.pack("<IBB", 1, 3, 2) + b"abcde" + b"\x10" + struct.pack("<I", 42)),
     Gtid("3-9-1234", completed=True, thread=42)),
    (mariadb(0x21, b"\x02"), Gtid("3-9-1234", standalone=True, ddl=True, alter="start")),
    (mariadb(0x21, b"\x04" + struct.pack("<Q", 5)), Gtid("3-9-1234", standalone=True, ddl=True, alter="commit")),
    (mariadb(0x21, b"\x18" + struct.pack("<QI", 5, 42)), Gtid("3-9-1234", standalone=True, ddl=True, alter="rollback",
                                                                       thread=42)),
    (mariadb(0x04, b"\x11\x02" + struct.pack("<I", 42)), Gtid("3-9-1234", thread=42)),
])  # fmt: skip
def test_mariadb_gtids(raw: bytes, expected: Gtid) -> None:
    assert parse.read_gtid(raw) == expected
    plain = parse.plain_gtid(raw)
    assert (Gtid(plain) if plain else expected) == expected


def test_gtids_that_begin_a_transaction_and_say_nothing_else_are_plain() -> None:
    assert parse.plain_gtid(mariadb(0x08, bytes(6))) == "3-9-1234"
    for other in (
        mariadb(0x09, bytes(6)),
        mariadb(0x08, b"\x10" + bytes(5)),
        mariadb(0x08),
        event(types.XID, bytes(19)),
    ):
        assert not parse.plain_gtid(other)


def test_texts_and_incidents() -> None:
    assert parse.rows_query(event(types.ROWS_QUERY, b"\x05" + "ä = 1".encode())) == "ä = 1"
    assert parse.rows_query(event(types.ANNOTATE_ROWS, b"DELETE FROM t")) == "DELETE FROM t"
    assert parse.describe_incident(event(types.INCIDENT, b"\x01\x00\x04lost")) == "incident 1: lost"


# Rows.

NUMBER = (1 << 40) + 7


def rows(kind: int, columns: int, data: bytes, *, extra: bytes | None = None, update: bool = False) -> bytes:
    width = (columns + 7) // 8
    body = NUMBER.to_bytes(6, "little") + struct.pack("<H", 1)
    if extra is not None:
        body += struct.pack("<H", 2 + len(extra)) + extra
    body += bytes([columns]) if columns < 251 else b"\xfc" + struct.pack("<H", columns)
    return event(kind, body + b"\x0f" * width + (b"\xf0" * width if update else b"") + data)


@pytest.mark.parametrize(("kind", "extra", "update"), [
    (types.WRITE_ROWS_V1, None, False), (types.UPDATE_ROWS_V1, None, True), (types.DELETE_ROWS_V1, None, False),
    (types.WRITE_ROWS, b"", False), (types.UPDATE_ROWS, b"\x00\x05abcd", True), (types.DELETE_ROWS, b"", False),
    (types.PARTIAL_UPDATE_ROWS, b"", True),
])  # fmt: skip
@pytest.mark.parametrize("columns", [1, 8, 9, 250, 251, 4096])
def test_rows_headers(kind: int, extra: bytes | None, update: bool, columns: int) -> None:
    raw = rows(kind, columns, b"ROWS", extra=extra, update=update)
    width = (columns + 7) // 8
    after = b"\xf0" * width if update else None
    assert parse.rows_header(raw) == RowsHeader(NUMBER, 1, columns, b"\x0f" * width, after, len(raw) - 4)
    with pytest.raises(Fatal):
        parse.rows_header(raw[:-5])


def test_what_has_no_rows_is_refused() -> None:
    with pytest.raises(Fatal, match=r"PRE_GA_WRITE_ROWS \(20\) is no event with rows"):
        parse.rows_header(rows(types.PRE_GA_WRITE_ROWS, 3, b""))
    assert parse.table_id(event(types.TABLE_MAP, NUMBER.to_bytes(6, "little") + b"\1\0")) == NUMBER


def compressed(data: bytes, width: int) -> bytes:
    return bytes([0x80 | width]) + len(data).to_bytes(width, "big") + zlib.compress(data)


@pytest.mark.parametrize(("kind", "plain", "extra", "update"), [
    (166, types.WRITE_ROWS_V1, None, False), (167, types.UPDATE_ROWS_V1, None, True), (168, types.DELETE_ROWS_V1, None, False),
    (169, types.WRITE_ROWS, b"", False), (170, types.UPDATE_ROWS, b"", True), (171, types.DELETE_ROWS, b"\0\1", False),
])  # fmt: skip
@pytest.mark.parametrize(("data", "width"), [(b"abc" * 30, 1), (b"x" * 70_000, 3), (b"", 1), (b"abc", 4)])
def test_compressed_rows_of_mariadb(
    kind: int, plain: int, extra: bytes | None, update: bool, data: bytes, width: int
) -> None:
    uncompressed = parse.uncompress_event(rows(kind, 9, compressed(data, width), extra=extra, update=update))
    assert uncompressed == rows(plain, 9, data, extra=extra, update=update)


def test_compressed_queries_of_mariadb() -> None:
    text = b"CREATE TABLE t (id INT) " * 50
    uncompressed = parse.uncompress_event(query(compressed(text, 2), charset(45), kind=types.QUERY_COMPRESSED))
    assert uncompressed == query(text, charset(45))


def test_damaged_compressed_events_are_refused() -> None:
    good = compressed(b"x" * 500, 2)
    for bad, reason in (
        (good[:-3], "in place of 500"),
        (b"\x92" + good[1:], "unknown way"),
        (b"\x85" + good[1:], "unknown way"),
        (good[:3] + b"zz" + good[5:], "can't be uncompressed"),
        (b"", "unknown way"),
        (b"\x82\x00\x10" + good[3:], "in place of 16"),
    ):
        with pytest.raises(Fatal, match=reason):
            parse.uncompress_event(rows(types.WRITE_ROWS_COMPRESSED_V1, 3, bad))
    with pytest.raises(Fatal, match="no compressed event"):
        parse.uncompress_event(rows(types.WRITE_ROWS, 3, b"", extra=b""))


def statement(text: bytes, *, schema: bytes = b"shop", status: bytes = b"\0\0\0\0\0") -> bytes:
    head = struct.pack("<IIBHH", 12, 0, len(schema), 0, len(status))
    return event(types.QUERY, head + status + schema + b"\0" + text)


def test_only_the_statement_that_begins_a_transaction_is_taken_for_it() -> None:
    for begin in (statement(b"BEGIN"), statement(b"BEGIN", schema=b""), statement(b"BEGIN", status=b"")):
        assert parse.begin_thread(begin) == parse.read_query(begin).thread == 12
    others = [
        statement(b"COMMIT"),
        statement(b"begin"),
        statement(b"SELECT 1 -- \0BEGIN"),
        statement(b"", schema=b"a\0BEGIN"),
        event(types.QUERY, b"\0BEGIN"),
    ]
    assert [parse.begin_thread(other) for other in others] == [None] * 5
