"""Columns of every type, and stored values of them, for tests that feed rows events made of them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from connectors.mysql.model import MySqlColumn
from connectors.mysql.rows.decimals import decimal_size
from connectors.mysql.schema import type_codes as codes
from connectors.mysql.source import event_types as types

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.mysql.model import MySqlTable

#: Collations of every group of charsets: utf8mb4, utf8mb3, latin1, ascii, cp1250, koi8r, gbk, sjis, big5, ucs2, utf16.
COLLATIONS = (45, 33, 8, 11, 26, 7, 28, 13, 1, 35, 54)
#: Text with all that JSON writers treat differently.
STRINGS = st.text(
    st.one_of(
        st.sampled_from('"\\/\b\f\n\r\t\x00\x01\x1f\x7f\x80\xe9ä€漢😀\u2028\u2029\ufeff'),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=12,
)
DIGITS = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 6: 3, 7: 4, 8: 4, 9: 4}


@dataclass(frozen=True)
class Kind:
    """A column without its name and nullability, and stored values of it."""

    column: Callable[[str, bool], MySqlColumn]
    values: st.SearchStrategy[bytes]


def _fixed(code: int, size: int, **more: object) -> Kind:
    return Kind(
        lambda name, nullable: MySqlColumn(name=name, type=code, nullable=nullable, **more),  # type: ignore[arg-type]
        st.one_of(st.binary(min_size=size, max_size=size), st.sampled_from([bytes(size), b"\xff" * size])),
    )


def _prefixed(values: st.SearchStrategy[bytes], size: int) -> st.SearchStrategy[bytes]:
    return values.map(lambda data: len(data).to_bytes(size, "little") + data)


def _varying(code: int, meta: int, size: int, values: st.SearchStrategy[bytes], **more: object) -> Kind:
    return Kind(
        lambda name, nullable: MySqlColumn(name=name, type=code, meta=meta, nullable=nullable, **more),  # type: ignore[arg-type]
        _prefixed(values, size),
    )


def stored_decimal(number: int, precision: int, scale: int) -> bytes:
    """An unscaled number as a DECIMAL is stored."""
    whole = precision - scale
    text = str(abs(number)).rjust(precision, "0")
    head, tail = text[:whole], text[whole:]
    groups = [head[: whole % 9]] if whole % 9 else []
    groups += [head[at : at + 9] for at in range(whole % 9, whole, 9)]
    groups += [tail[at : at + 9] for at in range(0, scale, 9)]
    data = bytearray(b"".join(int(group).to_bytes(DIGITS[len(group)], "big") for group in groups))
    data[0] ^= 0x80
    return bytes(data) if number >= 0 else bytes(byte ^ 0xFF for byte in data)


def _decimal(precision: int, scale: int) -> Kind:
    most = 10**precision - 1
    numbers = st.one_of(st.integers(-most, most), st.sampled_from([0, 1, -1, 127, 128, -128, -129, most, -most]))
    kind = _fixed(codes.DECIMAL, decimal_size(precision, scale), meta=precision << 8 | scale)
    return Kind(
        kind.column, numbers.map(lambda number: stored_decimal(max(-most, min(most, number)), precision, scale))
    )


def _double() -> Kind:
    numbers = st.one_of(
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from([0.0, -0.0, 1e300, -1e300, 5e-324, 1e7, 9999999.0, 0.001, 0.0009, -0.001, -1e7]),
    )
    return Kind(
        lambda name, nullable: MySqlColumn(name=name, type=codes.DOUBLE, nullable=nullable),
        numbers.map(lambda number: struct.pack("<d", number)),
    )


def _float() -> Kind:
    numbers = st.one_of(st.floats(width=32, allow_nan=False, allow_infinity=False), st.sampled_from([-0.0, 1.5, 1e10]))
    return Kind(
        lambda name, nullable: MySqlColumn(name=name, type=codes.FLOAT, nullable=nullable),
        numbers.map(lambda number: struct.pack("<f", number)),
    )


def _datetime(size: int, digits: int) -> Kind:
    clocks = st.tuples(
        st.integers(1000, 9999), st.integers(1, 12), st.integers(1, 28), st.integers(0, 23), st.integers(0, 59)
    )

    def stored(clock: tuple[int, ...]) -> bytes:
        year, month, day, hour, minute = clock
        packed = (((year * 13 + month) << 5 | day) << 17) | hour << 12 | minute << 6 | 7
        return (packed + (1 << 39)).to_bytes(5, "big") + (b"\x00\x63\x00" * 2)[: size - 5]

    return Kind(
        lambda name, nullable: MySqlColumn(name=name, type=codes.DATETIME2, meta=digits, nullable=nullable),
        st.one_of(clocks.map(stored), st.just(b"\x80" + bytes(size - 1)), st.binary(min_size=size, max_size=size)),
    )


def _date() -> Kind:
    days = st.one_of(
        st.tuples(st.integers(0, 9999), st.integers(0, 12), st.integers(0, 31)).map(
            lambda day: (day[0] << 9 | day[1] << 5 | day[2]).to_bytes(3, "little")
        ),
        st.just(bytes(3)),
    )
    return Kind(lambda name, nullable: MySqlColumn(name=name, type=codes.DATE, nullable=nullable), days)


_BYTES = st.binary(max_size=20)
_JSON = st.sampled_from(
    [b"", b"\x04\x00", b"\x04\x01", b"\x05\xff\xff", b'\x0c\x03a"b', bytes(3), b"\x00\x00\x00\x04\x00"]
)
_POINTS = st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)).map(lambda xy: struct.pack("<IBIdd", 4326, 1, 1, *xy))

KINDS: tuple[Kind, ...] = (
    *(_fixed(code, size, unsigned=unsigned) for code, size in codes.INTEGERS.items() for unsigned in (False, True)),
    _float(),
    _double(),
    *(_decimal(*shape) for shape in ((1, 0), (4, 2), (9, 0), (12, 2), (18, 9), (20, 10), (38, 6), (65, 30))),
    _fixed(codes.BIT, 1, meta=1),
    _fixed(codes.BIT, 2, meta=12),
    _fixed(codes.YEAR, 1),
    _fixed(codes.TIME2, 3, meta=0),
    _fixed(codes.TIME2, 6, meta=6),
    _fixed(codes.TIMESTAMP2, 4, meta=0),
    Kind(
        lambda name, nullable: MySqlColumn(name=name, type=codes.TIMESTAMP2, meta=3, nullable=nullable),
        st.tuples(st.binary(min_size=4, max_size=4), st.integers(0, 9999)).map(
            lambda parts: parts[0] + parts[1].to_bytes(2, "big")
        ),
    ),
    _datetime(5, 0),
    _datetime(8, 6),
    _date(),
    Kind(
        lambda name, nullable: MySqlColumn(
            name=name, type=codes.ENUM, meta=1, collation=45, members=("a", 'b"', "ç😀"), nullable=nullable
        ),
        st.sampled_from([b"\x00", b"\x01", b"\x02", b"\x03"]),
    ),
    Kind(
        lambda name, nullable: MySqlColumn(
            name=name, type=codes.SET, meta=1, collation=45, members=("a", "b", "\\"), nullable=nullable
        ),
        st.sampled_from([bytes([bits]) for bits in range(8)]),
    ),
    *(
        _varying(codes.VARCHAR, 400, 2, st.one_of(STRINGS.map(str.encode), _BYTES), collation=collation)
        for collation in COLLATIONS
    ),
    _varying(codes.STRING, 40, 1, STRINGS.map(lambda text: text.encode()[:40]), collation=45),
    _varying(codes.BLOB, 4, 4, STRINGS.map(str.encode), collation=45),
    _varying(codes.BLOB, 2, 2, _BYTES, collation=codes.BINARY),
    _varying(codes.STRING, 30, 1, _BYTES, collation=codes.BINARY),
    _varying(codes.JSON, 4, 4, _JSON),
    _varying(codes.GEOMETRY, 4, 4, _POINTS, geometry=1),
    _varying(codes.GEOMETRY, 4, 4, _POINTS),
    _varying(
        codes.VECTOR,
        4,
        4,
        st.lists(st.floats(width=32, allow_nan=False), max_size=3).map(lambda f: struct.pack(f"<{len(f)}f", *f)),
    ),
    _varying(codes.STRING, 16, 1, st.binary(max_size=16), collation=codes.BINARY, declared="uuid"),
    _varying(codes.STRING, 4, 1, st.binary(max_size=4), collation=codes.BINARY, declared="inet4"),
    _varying(codes.STRING, 16, 1, st.binary(max_size=16), collation=codes.BINARY, declared="inet6"),
)


def image(table: MySqlTable, values: Sequence[bytes | None]) -> bytes:
    """A row image with all columns."""
    size = (len(table.columns) + 7) // 8
    bits = sum(1 << position for position, value in enumerate(values) if value is None)
    return bits.to_bytes(size, "little") + b"".join(value for value in values if value is not None)


def rows_event(table: MySqlTable, kind: str, images: Sequence[bytes], *, number: int = 90) -> bytes:
    """A whole rows event; of an update ``images`` are pairs one after the other."""
    code = {"write": types.WRITE_ROWS, "update": types.UPDATE_ROWS, "delete": types.DELETE_ROWS}[kind]
    present = ((1 << len(table.columns)) - 1).to_bytes((len(table.columns) + 7) // 8, "little")
    body = number.to_bytes(6, "little") + b"\x01\0\x02\0" + bytes([len(table.columns)])
    body += present * (2 if kind == "update" else 1) + b"".join(images)
    return struct.pack("<IBIIIH", 1_700_000_000, code, 1, 19 + len(body), 0, 0) + body
