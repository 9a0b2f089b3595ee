"""Type codes of the binlog, and how ``Column.meta`` is to be read. Pure.

``Column.meta`` by type: VARCHAR and STRING: the longest value in bytes; BLOB, JSON, GEOMETRY, VECTOR: bytes of the length
prefix; DECIMAL: ``precision << 8 | scale``; BIT: the number of bits; ENUM and SET: bytes of the stored number; the temporal
types with fractions: digits after the point; else 0.
"""

from __future__ import annotations

from typing import Final

TINY: Final = 1
SHORT: Final = 2
LONG: Final = 3
FLOAT: Final = 4
DOUBLE: Final = 5
NULL: Final = 6
TIMESTAMP: Final = 7
LONGLONG: Final = 8
INT24: Final = 9
DATE: Final = 10
TIME: Final = 11
DATETIME: Final = 12
YEAR: Final = 13
NEWDATE: Final = 14
VARCHAR: Final = 15
BIT: Final = 16
TIMESTAMP2: Final = 17
DATETIME2: Final = 18
TIME2: Final = 19
#: MariaDB's columns with the attribute COMPRESSED.
BLOB_COMPRESSED: Final = 140
VARCHAR_COMPRESSED: Final = 141
VECTOR: Final = 242
JSON: Final = 245
DECIMAL: Final = 246
ENUM: Final = 247
SET: Final = 248
TINY_BLOB: Final = 249
MEDIUM_BLOB: Final = 250
LONG_BLOB: Final = 251
BLOB: Final = 252
VAR_STRING: Final = 253
STRING: Final = 254
GEOMETRY: Final = 255

#: Whole numbers: bytes by type code.
INTEGERS: Final[dict[int, int]] = {TINY: 1, SHORT: 2, INT24: 3, LONG: 4, LONGLONG: 8}
#: Types whose signedness the table map tells, in its order.
NUMBERS: Final = frozenset({*INTEGERS, FLOAT, DOUBLE, DECIMAL, YEAR})
#: Types with a length prefix of ``meta`` bytes.
BLOBS: Final = frozenset({BLOB, TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB_COMPRESSED})
#: Types that hold text or bytes; the collation says which.
STRINGS: Final = frozenset({VARCHAR, VAR_STRING, STRING, VARCHAR_COMPRESSED, *BLOBS})
#: The collation ``binary``.
BINARY: Final = 63

NAMES: Final[dict[int, str]] = {
    TINY: "TINYINT",
    SHORT: "SMALLINT",
    LONG: "INT",
    FLOAT: "FLOAT",
    DOUBLE: "DOUBLE",
    NULL: "NULL",
    TIMESTAMP: "TIMESTAMP (old)",
    LONGLONG: "BIGINT",
    INT24: "MEDIUMINT",
    DATE: "DATE",
    TIME: "TIME (old)",
    DATETIME: "DATETIME (old)",
    YEAR: "YEAR",
    NEWDATE: "DATE",
    VARCHAR: "VARCHAR",
    BIT: "BIT",
    TIMESTAMP2: "TIMESTAMP",
    DATETIME2: "DATETIME",
    TIME2: "TIME",
    BLOB_COMPRESSED: "BLOB COMPRESSED",
    VARCHAR_COMPRESSED: "VARCHAR COMPRESSED",
    VECTOR: "VECTOR",
    JSON: "JSON",
    DECIMAL: "DECIMAL",
    ENUM: "ENUM",
    SET: "SET",
    TINY_BLOB: "TINYBLOB",
    MEDIUM_BLOB: "MEDIUMBLOB",
    LONG_BLOB: "LONGBLOB",
    BLOB: "BLOB",
    VAR_STRING: "VARCHAR",
    STRING: "CHAR",
    GEOMETRY: "GEOMETRY",
}


def type_name(code: int) -> str:
    """The type's SQL name for messages."""
    return NAMES.get(code, f"type {code}")


def split_decimal(meta: int) -> tuple[int, int]:
    """Precision and scale of a DECIMAL."""
    return meta >> 8, meta & 0xFF
