"""The rules of which SQL types can hold which, behind widening, for all dialects. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_TYPE: Final = re.compile(
    r"\s*([a-z][a-z0-9 ]*?)\s*(?:\((\d+)(?:\s*,\s*(-?\d+))?\))?(\s+(?:with|without) time zone)?"
    r"(\s+unsigned)?(\s+zerofill)?\s*\Z"
)
_INTEGERS: Final = {
    "tinyint": 1,
    "smallint": 2,
    "int2": 2,
    "mediumint": 3,
    "integer": 4,
    "int": 4,
    "int4": 4,
    "bigint": 8,
    "int8": 8,
}
_FLOATS: Final = {"real": 4, "float4": 4, "float": 4, "double precision": 8, "double": 8, "float8": 8}
_DECIMALS: Final = ("numeric", "decimal")
_STRING_SIZES: Final = {
    "text": 65_535,
    "tinytext": 255,
    "mediumtext": 1 << 24,
    "longtext": 1 << 32,
    "character varying": 0,
    "varchar": 0,
    "character": 0,
    "char": 0,
}
_BYTES: Final = {
    "bytea": 1 << 32,
    "varbinary": 0,
    "binary": 0,
    "tinyblob": 255,
    "blob": 65_535,
    "mediumblob": 1 << 24,
    "longblob": 1 << 32,
}
_TIMES: Final = ("timestamp", "datetime", "timestamptz")
#: Digits after a second, which a time of most databases has when its type says none.
MICROSECONDS: Final = 6
_DIGITS: Final = {1: 3, 2: 5, 3: 7, 4: 10, 8: 19}
_UNBOUNDED: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class JdbcKind:
    """A type by family and size.

    ``size`` is bytes of a number, characters or bytes of a string, digits of a decimal, or those after the second of a time of
    the day; ``scale`` is digits after a decimal's point, or those of microseconds that a time lacks.
    """

    family: str
    size: int = 0
    scale: int = 0


def parse_kind(type_text: str, *, bounded_text: bool) -> JdbcKind:
    """The kind of an SQL type as a database prints it.

    Args:
        type_text: the type.
        bounded_text: whether TEXT has a limit (MySQL), or none (PostgreSQL).
    """
    match = _TYPE.match(type_text.lower())
    if match is None:
        return JdbcKind("other")
    name, first, second = match[1], match[2], match[3]
    size = int(first) if first else 0
    if name in _INTEGERS:
        # An unsigned one holds what fits the next smaller signed one; that it holds more is of no use here.
        return JdbcKind("integer", _INTEGERS[name])
    if (name in _FLOATS and second) or (second or "").startswith("-"):
        return JdbcKind("rounded")  # MySQL's float(7,2), PostgreSQL's numeric(6,-2): they change most values
    if name in _FLOATS:
        return JdbcKind("float", _FLOATS[name])
    if name in _DECIMALS:
        if not first:
            return JdbcKind("decimal", 10, 0) if bounded_text else JdbcKind("decimal", 1000, 1000)
        return JdbcKind("decimal", size, int(second or 0))
    if name in _STRING_SIZES:
        return JdbcKind("text", size or (_STRING_SIZES[name] if bounded_text and _STRING_SIZES[name] else _UNBOUNDED))
    if name in _BYTES:
        return JdbcKind("bytes", size or _BYTES[name] or _UNBOUNDED)
    digits = size if first else 0 if bounded_text else MICROSECONDS
    if name in _TIMES:
        return JdbcKind("time", scale=max(0, MICROSECONDS - digits))
    if name == "time" and "with time zone" not in (match[4] or ""):
        return JdbcKind("clock", digits)
    return JdbcKind({"boolean": "boolean", "bool": "boolean", "date": "date"}.get(name, "other"))


def takes_nanoseconds(present: JdbcKind) -> bool:
    """Whether times of the day are written into such a column as numbers, as they were before there were columns of times."""
    return present.family in ("integer", "decimal", "float")


def can_hold(present: JdbcKind, needed: JdbcKind) -> bool:
    """Whether every value of ``needed`` can be stored in ``present`` without loss (or is refused)."""
    if present.family == "other" or needed.family == "other":
        # A type of the database's own (uuid, inet, an enum, jsonb): it reads text and refuses malformed text.
        # An interval of PostgreSQL holds times that its time does not.
        return {present.family, needed.family} <= {"text", "other"} or (present.family, needed.family) == (
            "other",
            "clock",
        )
    if present.family == "text" and needed.family != "bytes":
        return needed.family != "text" or present.size >= needed.size or needed.size >= 1 << 24
    if present.family == needed.family:
        if present.family == "decimal":
            return present.scale >= needed.scale and (
                present.size >= 1000 or present.size - present.scale >= needed.size - needed.scale
            )
        if present.family == "bytes":
            return present.size >= needed.size or needed.size >= 1 << 24
        return present.size >= needed.size
    if present.family == "clock" and needed.family == "text":
        return True  # as with those types: it reads text
    if needed.family == "clock":
        return takes_nanoseconds(present) and present.family != "float" and can_hold(present, JdbcKind("integer", 8))
    if needed.family == "integer":
        if present.family == "decimal":
            return present.size >= 1000 or present.size - present.scale >= _DIGITS[needed.size]
        return present.family == "float" and present.size == 8 and needed.size <= 4
    return needed.family == "date" and present.family == "time"


def join_kinds(present: JdbcKind, needed: JdbcKind) -> JdbcKind | None:
    """The smallest kind that holds both, where values of ``present`` can be changed into it without loss; else None."""
    if needed.family == "text" != present.family:
        return None  # no value would be lost, but whoever computes with the column would be surprised
    if present.family == "clock" != needed.family:
        return None  # no database converts times to numbers automatically
    if can_hold(needed, present):
        return needed
    if present.family == needed.family == "decimal":
        scale = max(present.scale, needed.scale)
        return JdbcKind("decimal", max(present.size - present.scale, needed.size - needed.scale) + scale, scale)
    if present.family == "integer" and needed.family == "decimal":
        return JdbcKind("decimal", max(_DIGITS[present.size], needed.size - needed.scale) + needed.scale, needed.scale)
    if present.family == "decimal" and needed.family == "integer":
        return JdbcKind("decimal", _DIGITS[needed.size] + present.scale, present.scale)
    return None
