"""Columns from ``information_schema.COLUMNS``, in the form in which table maps describe them. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal
from connectors.mysql.model import MySqlColumn
from connectors.mysql.rows.charsets import first_collation
from connectors.mysql.schema import type_codes as codes

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What ``column_from_catalog`` needs of ``information_schema.COLUMNS``.
CATALOG_COLUMNS: Final = (
    "COLUMN_NAME",
    "DATA_TYPE",
    "COLUMN_TYPE",
    "IS_NULLABLE",
    "CHARACTER_OCTET_LENGTH",
    "NUMERIC_PRECISION",
    "NUMERIC_SCALE",
    "DATETIME_PRECISION",
    "CHARACTER_SET_NAME",
    "COLUMN_DEFAULT",
    "COLUMN_COMMENT",
    "EXTRA",
)

_CODES: Final[dict[str, int]] = {
    "tinyint": codes.TINY,
    "smallint": codes.SHORT,
    "mediumint": codes.INT24,
    "int": codes.LONG,
    "bigint": codes.LONGLONG,
    "float": codes.FLOAT,
    "double": codes.DOUBLE,
    "decimal": codes.DECIMAL,
    "bit": codes.BIT,
    "year": codes.YEAR,
    "date": codes.DATE,
    "time": codes.TIME2,
    "datetime": codes.DATETIME2,
    "timestamp": codes.TIMESTAMP2,
    "char": codes.STRING,
    "binary": codes.STRING,
    "varchar": codes.VARCHAR,
    "varbinary": codes.VARCHAR,
    "enum": codes.ENUM,
    "set": codes.SET,
    "uuid": codes.STRING,
    "inet4": codes.STRING,
    "inet6": codes.STRING,
    "json": codes.JSON,
    "boolean": codes.TINY,
}
_BLOBS: Final = {"tiny": 1, "": 2, "medium": 3, "long": 4}
_SHAPES: Final = {
    "geometry": 0,
    "point": 1,
    "linestring": 2,
    "polygon": 3,
    "multipoint": 4,
    "multilinestring": 5,
    "multipolygon": 6,
    "geometrycollection": 7,
    "geomcollection": 7,
}
_FIXED_LENGTHS: Final = {"uuid": 16, "inet4": 4, "inet6": 16}
_OLD_TIME: Final = re.compile(r"/\* mariadb-5\.3 \*/|/\* 5\.5 binary format \*/")
_OLD: Final = {codes.TIMESTAMP2: codes.TIMESTAMP, codes.DATETIME2: codes.DATETIME, codes.TIME2: codes.TIME}
_MEMBER: Final = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPE: Final = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPES: Final = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_MEMBERS_OF_ONE_BYTE: Final = 255
_BYTES_PER_NUMBER: Final = (1, 2, 3, 4, 8)


def column_from_catalog(row: Mapping[str, Any]) -> MySqlColumn:
    """The column that a row of ``information_schema.COLUMNS`` describes (keys as in ``CATALOG_COLUMNS``).

    ``COLLATION_ID`` is taken where it is given; else a collation of the charset stands for the column's.

    Raises:
        Fatal: the type is unknown.
    """
    name, declared = _to_string(row["COLUMN_NAME"]), _to_string(row["COLUMN_TYPE"])
    base = _to_string(row["DATA_TYPE"]).lower()
    charset = row["CHARACTER_SET_NAME"]
    members = members_of(declared) if base in ("enum", "set") else ()
    code, meta = _storage_type(base, declared, row, len(members))
    if code is None:
        raise Fatal(f"column {name} has the type {declared}, which is unknown; leave it out with column.exclude.list")
    collation = row.get("COLLATION_ID")
    if collation is None:
        collation = first_collation(_to_string(charset)) if charset else codes.BINARY if code in codes.STRINGS else None
    default = row["COLUMN_DEFAULT"]
    extra = _to_string(row["EXTRA"] or "")
    return MySqlColumn(
        name=name,
        type=code,
        meta=meta,
        nullable=_to_string(row["IS_NULLABLE"]).upper() == "YES",
        unsigned=_is_unsigned(declared, members),
        collation=collation,
        members=members,
        geometry=_SHAPES.get(base),
        visible="INVISIBLE" not in extra.upper(),
        declared=declared,
        default=None if default is None else _to_string(default),
        comment=_to_string(row["COLUMN_COMMENT"] or ""),
        extra=extra,
    )


def _to_string(value: object) -> str:
    """Return a value of the catalog as a string: a driver may return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _is_unsigned(declared: str, members: tuple[str, ...]) -> bool:
    """ZEROFILL makes a number unsigned, whether the catalog says so or not."""
    words = declared.lower().rpartition(")")[2] if "(" in declared else declared.lower()
    return not members and ("unsigned" in words.split() or "zerofill" in words.split())


def _storage_type(base: str, declared: str, row: Mapping[str, Any], members: int) -> tuple[int | None, int]:
    """Type code and ``MySqlColumn.meta``."""
    code = _CODES.get(base)
    if code in (codes.TIMESTAMP2, codes.DATETIME2, codes.TIME2):
        return (_OLD[code] if _OLD_TIME.search(declared) else code), int(row["DATETIME_PRECISION"] or 0)
    if code == codes.DECIMAL:
        return code, int(row["NUMERIC_PRECISION"]) << 8 | int(row["NUMERIC_SCALE"] or 0)
    if code == codes.BIT:
        return code, int(row["NUMERIC_PRECISION"] or 1)
    if code == codes.ENUM:
        return code, 1 if members <= _MEMBERS_OF_ONE_BYTE else 2
    if code == codes.SET:
        return code, next(size for size in _BYTES_PER_NUMBER if members <= 8 * size)
    if code == codes.JSON:
        return code, 4
    if code in (codes.STRING, codes.VARCHAR):
        size = _FIXED_LENGTHS.get(base) or int(row["CHARACTER_OCTET_LENGTH"] or 0)
        if "COMPRESSED" in declared.upper() and base.startswith("var"):
            return codes.VARCHAR_COMPRESSED, size
        return code, size
    if code is not None:
        return code, 0
    if base.endswith(("blob", "text")):
        compressed = "COMPRESSED" in declared.upper()
        return codes.BLOB_COMPRESSED if compressed else codes.BLOB, _BLOBS[base[:-4]]
    if base in _SHAPES:
        return codes.GEOMETRY, 4
    if base == "vector":
        # So in MySQL; MariaDB stores it as VARBINARY, which the table map tells.
        return codes.VECTOR, 4
    return None, 0


def members_of(declared: str) -> tuple[str, ...]:
    """The members of ``enum('a','b')``."""
    inside = declared[declared.index("(") + 1 :]
    return tuple(_ESCAPE.sub(_unescape_match, match[1]) for match in _MEMBER.finditer(inside))


def _unescape_match(match: re.Match[str]) -> str:
    escaped: str | None = match[1]
    return "'" if escaped is None else _ESCAPES.get(escaped, escaped)
