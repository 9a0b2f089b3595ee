"""Places in a table's key order as SQL. Pure functions.

A place is a tuple of literals, one for each column of the key, or for the first ones of them only. Values come from the server
as text (see ``KeyColumn.select``) and go back as literals that compare as the column does: text as the bytes of its character
set, so that the column's collation decides; members of an ENUM by number, as the server sorts them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.mysql.snapshot.model import Key

_INTEGERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_NUMBERS: Final = frozenset({"decimal", "year"})
_FLOATS: Final = frozenset({"float", "double"})
_BY_NUMBER: Final = frozenset({"enum", "set", "bit"})
_STRINGS: Final = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_BYTES: Final = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})


def quote_name(name: str) -> str:
    """A name as SQL writes it."""
    return "`" + name.replace("`", "``") + "`"


class KeyColumn(NamedTuple):
    """A column by whose order a table is read.

    Attributes:
        name: the column.
        type: ``information_schema.COLUMNS.DATA_TYPE``, in lower case.
        charset: of a string column, or "".
    """

    name: str
    type: str
    charset: str = ""

    @property
    def integer(self) -> bool:
        """Whether its values can be counted."""
        return self.type in _INTEGERS

    @property
    def sql(self) -> str:
        """The column."""
        return quote_name(self.name)

    @property
    def select(self) -> str:
        """The expression that gives the value in the form that ``literal`` takes."""
        if self.type in _STRINGS or self.type in _BYTES:
            return f"CAST({self.sql} AS BINARY)"
        if self.type in _BY_NUMBER:
            return f"({self.sql} + 0)"
        if self.type in _FLOATS:
            return f"({self.sql} + 0e0)"
        return self.sql

    def literal(self, value: bytes) -> str:
        """The literal for what ``select`` gave."""
        if self.type in _STRINGS:
            # Without an introducer it would be bytes, and compare as such.
            return f"_{self.charset} X'{value.hex()}'"
        if self.type in _BYTES:
            return f"X'{value.hex()}'"
        decoded = value.decode("ascii")
        if self.type in _INTEGERS or self.type in _NUMBERS or self.type in _BY_NUMBER or self.type in _FLOATS:
            return decoded
        return "'" + decoded.replace("\\", "\\\\").replace("'", "''") + "'"


def condition_after(columns: Sequence[KeyColumn], key: Key) -> str:
    """The condition for rows behind ``key``; with a key of fewer columns, behind all rows that begin so."""
    return _compare_keys(columns, key, ">", "")


def condition_until(columns: Sequence[KeyColumn], key: Key) -> str:
    """The condition for rows up to ``key`` and at it; with a key of fewer columns, and all rows that begin so."""
    return _compare_keys(columns, key, "<", "=")


def _compare_keys(columns: Sequence[KeyColumn], key: Key, sign: str, last: str) -> str:
    """``(a > 1) OR (a = 1 AND b > 2)``, with ``a >= 1`` in front: comparisons of row constructors use no index."""
    names = [column.sql for column in columns[: len(key)]]
    if len(key) == 1:
        return f"{names[0]} {sign}{last} {key[0]}"
    terms = []
    for number, (name, value) in enumerate(zip(names, key, strict=True)):
        equal = [f"{names[i]} = {key[i]}" for i in range(number)]
        strict = f"{name} {sign}{last if number == len(key) - 1 else ''} {value}"
        terms.append("(" + " AND ".join([*equal, strict]) + ")")
    return f"({names[0]} {sign}= {key[0]} AND ({' OR '.join(terms)}))"


def order_list(columns: Sequence[KeyColumn], *, down: bool = False) -> str:
    """The ORDER BY list."""
    return ", ".join(column.sql + (" DESC" if down else "") for column in columns)


def read_trailing(packet: bytes, skip: int, columns: Sequence[KeyColumn]) -> Key:
    """The key from a row's packet, whose last values are the columns' ``select``.

    Args:
        packet: the row.
        skip: how many other values come first.
        columns: of the key.
    """
    at = 0
    for _ in range(skip):
        at = _read_value(packet, at)[1]
    literals = []
    for column in columns:
        value, at = _read_value(packet, at)
        literals.append(column.literal(value))
    return tuple(literals)


_LENGTHS: Final = {0xFC: 2, 0xFD: 3, 0xFE: 8}


def _read_value(packet: bytes, at: int) -> tuple[bytes, int]:
    size = packet[at]
    at += 1
    if size == 0xFB:
        return b"", at
    wide = _LENGTHS.get(size)
    if wide:
        size = int.from_bytes(packet[at : at + wide], "little")
        at += wide
    return packet[at : at + size], at + size
