"""Which SQL types can hold which: the rules behind widening, for all dialects. Pure."""

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
_TEXTS: Final = {
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
#: Digits after a second that a time of the day has when its type says none.
_SECOND_DIGITS: Final = 6
_DIGITS: Final = {1: 3, 2: 5, 3: 7, 4: 10, 8: 19}
_UNBOUNDED: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Kind:
    """A type by family and size.

    ``size`` is bytes of a number, characters or bytes of a string, digits of a decimal, or digits after a time's second.
    """

    family: str
    size: int = 0
    scale: int = 0


def kind(text: str, *, bounded_text: bool) -> Kind:
    """The kind of an SQL type as a database prints it.

    Args:
        text: the type.
        bounded_text: whether TEXT has a limit (MySQL), or none (PostgreSQL).
    """
    found = _TYPE.match(text.lower())
    if found is None:
        return Kind("other")
    name, first, second = found[1], found[2], found[3]
    size = int(first) if first else 0
    if name in _INTEGERS:
        # An unsigned one holds what fits the next smaller signed one; that it holds more is of no use here.
        return Kind("integer", _INTEGERS[name])
    if name in _FLOATS:
        return Kind("float", _FLOATS[name])
    if name in _DECIMALS:
        if not first:
            return Kind("decimal", 10, 0) if bounded_text else Kind("decimal", 1000, 1000)
        return Kind("decimal", size, int(second or 0))
    if name in _TEXTS:
        return Kind("text", size or (_TEXTS[name] if bounded_text and _TEXTS[name] else _UNBOUNDED))
    if name in _BYTES:
        return Kind("bytes", size or _BYTES[name] or _UNBOUNDED)
    if name in _TIMES:
        return Kind("time")
    if name == "time" and "with time zone" not in (found[4] or ""):
        return Kind("clock", size if first else 0 if bounded_text else _SECOND_DIGITS)
    return Kind({"boolean": "boolean", "bool": "boolean", "date": "date"}.get(name, "other"))


def takes_nanoseconds(present: Kind) -> bool:
    """Whether times of the day are written into such a column as numbers, as they were before there were columns of times."""
    return present.family in ("integer", "decimal", "float")


def holds(present: Kind, wanted: Kind) -> bool:
    """Whether every value of ``wanted`` can be stored in ``present`` without loss (or is refused)."""
    if present.family == "other" or wanted.family == "other":
        # A type of the database's own (uuid, inet, an enum, jsonb): it reads text and refuses what is none.
        # An interval of PostgreSQL holds times that its time does not.
        return {present.family, wanted.family} <= {"text", "other"} or (present.family, wanted.family) == (
            "other",
            "clock",
        )
    if present.family == "text" and wanted.family != "bytes":
        return wanted.family != "text" or present.size >= wanted.size or wanted.size >= 1 << 24
    if present.family == wanted.family:
        if present.family == "decimal":
            return present.scale >= wanted.scale and (
                present.size >= 1000 or present.size - present.scale >= wanted.size - wanted.scale
            )
        if present.family == "bytes":
            return present.size >= wanted.size or wanted.size >= 1 << 24
        return present.size >= wanted.size
    if present.family == "clock" and wanted.family == "text":
        return True  # as with those types: it reads text
    if wanted.family == "clock":
        return takes_nanoseconds(present) and present.family != "float" and holds(present, Kind("integer", 8))
    if wanted.family == "integer":
        if present.family == "decimal":
            return present.size >= 1000 or present.size - present.scale >= _DIGITS[wanted.size]
        return present.family == "float" and present.size == 8 and wanted.size <= 4
    return wanted.family == "date" and present.family == "time"


def joined(present: Kind, wanted: Kind) -> Kind | None:
    """The smallest kind that holds both, where values of ``present`` can be changed into it without loss; else None."""
    if wanted.family == "text" != present.family:
        return None  # no value would be lost, but whoever computes with the column would be surprised
    if present.family == "clock" != wanted.family:
        return None  # no database makes numbers of times by itself
    if holds(wanted, present):
        return wanted
    if present.family == wanted.family == "decimal":
        scale = max(present.scale, wanted.scale)
        return Kind("decimal", max(present.size - present.scale, wanted.size - wanted.scale) + scale, scale)
    if present.family == "integer" and wanted.family == "decimal":
        return Kind("decimal", max(_DIGITS[present.size], wanted.size - wanted.scale) + wanted.scale, wanted.scale)
    if present.family == "decimal" and wanted.family == "integer":
        return Kind("decimal", _DIGITS[wanted.size] + present.scale, present.scale)
    return None
