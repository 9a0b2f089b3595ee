"""A binlog of the MySQL benchmark's tables from an encoder of its own: no server, and always the same bytes. Pure."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from connectors.mysql.source import event_types as types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILE: Final = "b.000007"
BEGIN: Final = 1000
#: Rows of one event: a server writes about 8 KB into each.
_ROWS_PER_EVENT: Final = {"narrow": 40, "wide": 13}
_BASE_S: Final = 1_700_000_000


class _Column:
    """A column: type code, metadata, whether it may be null, and the bytes of the value in row ``n``."""

    def __init__(self, name: str, code: int, meta: bytes, value: Callable[[int], bytes], *, null: bool = False) -> None:
        self.name = name
        self.code = code
        self.meta = meta
        self.value = value
        self.null = null

    @property
    def numeric(self) -> bool:
        return self.code in _NUMERIC


_TINY, _LONG, _DOUBLE, _BIGINT, _VARCHAR, _DATETIME, _DECIMAL, _STRING, _DATE = 1, 3, 5, 8, 15, 18, 246, 254, 10
_NUMERIC: Final = frozenset({_TINY, _LONG, _DOUBLE, _BIGINT, _DECIMAL})
_ENUM: Final = b"\xf7\x01"


def _text(value: str) -> bytes:
    encoded = value.encode()
    return bytes([len(encoded)]) + encoded


def _decimal(unscaled: int, whole_digits: int, scale: int) -> bytes:
    """A positive DECIMAL of at most 18 digits before the point and four behind it."""
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    whole, part = divmod(unscaled, 10**scale)
    high, low = divmod(whole, 10**9)
    data = bytearray(high.to_bytes(sizes[whole_digits - 9], "big") + low.to_bytes(4, "big"))
    data += part.to_bytes(sizes[scale], "big")
    data[0] ^= 0x80
    return bytes(data)


def _datetime(seconds: int, millis: int | None = None) -> bytes:
    """A DATETIME in January to December 2024, with 28 days in each month."""
    days, rest = divmod(seconds, 86_400)
    month, day = days // 28 % 12 + 1, days % 28 + 1
    date = ((2024 * 13 + month) << 5 | day) << 17 | rest // 3600 << 12 | rest // 60 % 60 << 6 | rest % 60
    packed = (date + 0x8000000000).to_bytes(5, "big")
    return packed if millis is None else packed + (millis * 10).to_bytes(2, "big")


def _narrow() -> list[_Column]:
    return [
        _Column("id", _BIGINT, b"", lambda n: struct.pack("<q", n)),
        _Column("customer", _LONG, b"", lambda n: struct.pack("<i", n % 10007)),
        _Column("name", _VARCHAR, b"\xc8\0", lambda n: _text(f"customer number {n}")),
        _Column("status", _STRING, _ENUM, lambda n: bytes([1 + n % 3])),
        _Column("amount", _DECIMAL, b"\x0c\x02", lambda n: _decimal(n % 100_000, 10, 2)),
        _Column("made", _DATETIME, b"\x03", lambda n: _datetime(n, n % 1000)),
        _Column("note", _VARCHAR, b"\xf0\0", lambda n: _text(f"note {n} ".ljust(110, "a")), null=True),
        _Column("flag", _TINY, b"", lambda n: bytes([n % 2])),
        _Column("score", _DOUBLE, b"\x08", lambda n: struct.pack("<d", n * 1.5), null=True),
    ]


def _wide() -> list[_Column]:
    columns = [_Column("id", _BIGINT, b"", lambda n: struct.pack("<q", n))]
    kinds: tuple[tuple[int, int, bytes, Callable[[int, int], bytes]], ...] = (
        (15, _LONG, b"", lambda n, at: struct.pack("<i", n + at)),
        (9, _BIGINT, b"", lambda n, at: struct.pack("<q", n * 1_000_003 + at)),
        (5, _TINY, b"", lambda n, at: bytes([(n + at) % 100])),
        (12, _VARCHAR, b"\xf0\0", lambda n, at: _text(f"text {at} of {n}")),
        (5, _DECIMAL, b"\x0e\x04", lambda n, at: _decimal(n * 10_000 // (at + 3), 10, 4)),
        (5, _DATETIME, b"\0", lambda n, at: _datetime(n + at)),
        (4, _DOUBLE, b"\x08", lambda n, at: struct.pack("<d", n / (at + 7))),
        (2, _DATE, b"", lambda n, at: (2024 << 9 | (n + at) % 12 + 1 << 5 | n % 28 + 1).to_bytes(3, "little")),
        (2, _STRING, _ENUM, lambda n, at: bytes([1 + (n + at) % 3])),
    )
    for count, code, meta, value in kinds:
        for _ in range(count):
            at = len(columns)
            columns.append(_Column(f"column_{at}", code, meta, lambda n, at=at, value=value: value(n, at)))  # type: ignore[misc]
    return columns


_TABLES: Final = {"narrow": _narrow(), "wide": _wide()}


def _field(data: bytes) -> bytes:
    return (bytes([len(data)]) if len(data) < 251 else b"\xfc" + struct.pack("<H", len(data))) + data


def _bits(flags: list[bool]) -> bytes:
    return sum(1 << bit for bit, flag in enumerate(flags) if flag).to_bytes((len(flags) + 7) // 8, "little")


def _map(table: str) -> bytes:
    columns = _TABLES[table]
    body = (90).to_bytes(6, "little") + b"\x01\0"
    for name in ("bench", table):
        body += bytes([len(name)]) + name.encode() + b"\0"
    body += bytes([len(columns)]) + bytes(column.code for column in columns)
    body += _field(b"".join(column.meta for column in columns)) + _bits([column.null for column in columns])
    signs = (sum(column.numeric for column in columns) + 7) // 8
    members = b"\x03" + b"".join(_text(name) for name in ("new", "paid", "sent"))
    body += b"\x01" + _field(bytes(signs)) + b"\x02" + _field(b"\x2d")
    body += b"\x04" + _field(b"".join(_text(column.name) for column in columns))
    enums = sum(column.code == _STRING for column in columns)
    return body + b"\x06" + _field(members * enums) + b"\x0a" + _field(b"\x2d") + b"\x08" + _field(b"\0")


class _Writer:
    def __init__(self) -> None:
        self.pos = BEGIN
        self.events: list[bytes] = []

    def add(self, kind: int, body: bytes, *, inside: bool = False) -> None:
        size = 19 + len(body)
        self.pos += size
        self.events.append(struct.pack("<IBIIIH", _BASE_S, kind, 1, size, 0 if inside else self.pos, 0) + body)


def _images(table: str, first: int, count: int, *, update: bool) -> Iterator[bytes]:
    columns = _TABLES[table]
    nulls = bytes((len(columns) + 7) // 8)
    for number in range(first, first + count):
        yield nulls + b"".join(column.value(number) for column in columns)
        if update:
            yield nulls + b"".join([columns[0].value(number), *(column.value(number + 1) for column in columns[1:])])


def binlog(table: str, rows: int, per_transaction: int, *, update: bool = False) -> list[bytes]:
    """Raw events of MariaDB: transactions of ``per_transaction`` rows, from the position ``BEGIN`` of ``FILE`` on.

    Args:
        table: ``narrow`` or ``wide``.
        rows: how many rows change.
        per_transaction: rows of each transaction.
        update: whether rows are updated, all columns but the key; else new ones are inserted.
    """
    writer = _Writer()
    described = _map(table)
    columns = len(_TABLES[table])
    present = _bits([True] * columns) * (2 if update else 1)
    head = (90).to_bytes(6, "little") + b"\x01\0" + bytes([columns]) + present
    kind = 24 if update else 23
    most = _ROWS_PER_EVENT[table] // (2 if update else 1)
    for number, start in enumerate(range(1, rows + 1, per_transaction)):
        writer.add(types.MARIADB_GTID, struct.pack("<QIB", number + 1, 0, 0x08) + bytes(6))
        left = min(per_transaction, rows + 1 - start)
        for first in range(start, start + left, most):
            count = min(most, start + left - first)
            writer.add(types.TABLE_MAP, described, inside=True)
            body = head + b"".join(_images(table, first, count, update=update))
            writer.add(kind, body, inside=True)
        writer.add(types.XID, struct.pack("<Q", number))
    return writer.events
