"""Ranges of a column, for tables without a key that several connections read at the same time. Pure functions.

The conditions of a table's ranges cover every row exactly once, whatever values the column holds: the first range has no lower
bound and takes NULL, the last has no upper bound, and each bound ends one range and begins the next. So the bounds need not be
exact. They may come from an older state of the table than the one that is read.
"""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.java_regex import compile_java
from connectors.mysql.config.filters import table_columns
from connectors.mysql.snapshot.reading.keys import quote_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.mysql.model import TableName
    from connectors.mysql.snapshot.reading.lookup import Shape

OPTION: Final = "snapshot.split.columns"

_INTEGERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_FLOATS: Final = frozenset({"float", "double"})
_DATES: Final = frozenset({"date", "datetime", "timestamp"})
#: ``information_schema.COLUMNS.DATA_TYPE`` of the columns that can be divided. Strings can't: their order depends on the
#: collation, and the middle between two of them can't be computed.
TYPES: Final = _INTEGERS | _FLOATS | _DATES | {"decimal"}
#: Zero dates and the like are no calendar days; they are all in the first range.
_FIRST_DATE: Final = "1000-01-01"
#: MySQL takes a date before 1970, in whatever time zone, for a zero one when it is compared with a TIMESTAMP.
_FIRST_TIMESTAMP: Final = "1970-01-03"
_MICROSECOND: Final = dt.timedelta(microseconds=1)
#: Ranges for each connection where an index makes a range cheap: connections that are done early take more of them.
_RANGES_PER_CONNECTION: Final = 4


class SplitColumn(NamedTuple):
    """The column by which a table is divided.

    Attributes:
        name: of the column.
        type: ``information_schema.COLUMNS.DATA_TYPE``, in lower case.
        indexed: whether an index begins with it.
    """

    name: str
    type: str
    indexed: bool

    def extent_sql(self, source: str) -> str:
        """The query for the least and the largest value, which give ``divide_range`` its arguments.

        Args:
            source: the table as SQL writes it.
        """
        name = quote_name(self.name)
        # CONCAT gives the strings that the server shows; adding 0e0 gives a FLOAT all of its digits.
        low, high = (f"{function}({name})" + (" + 0e0" if self.type in _FLOATS else "") for function in ("MIN", "MAX"))
        first = _FIRST_TIMESTAMP if self.type == "timestamp" else _FIRST_DATE
        where = f" WHERE {name} >= '{first}'" if self.type in _DATES else ""
        return f"SELECT CONCAT({low}), CONCAT({high}) FROM {source}{where}"  # noqa: S608 - quoted names

    def ranges(self, low: str | None, high: str | None, connections: int) -> tuple[str, ...]:
        """The SQL conditions of the ranges, one per connection; () if there is nothing to divide.

        Args:
            low: the least value as text; None if the column has no values.
            high: the largest value as text.
            connections: how many read at the same time.
        """
        if low is None or high is None or connections < 2:
            return ()
        # Without an index each range costs a pass over the whole table.
        count = connections * _RANGES_PER_CONNECTION if self.indexed else connections
        return make_conditions(self.name, divide_range(self.type, low, high, count))


def chosen_column(option: str, table: TableName) -> str | None:
    """The column that ``snapshot.split.columns`` names for a table; None: it names none.

    Raises:
        ConfigInvalid: the option can't be parsed.
    """
    for tables, columns in table_columns(OPTION, option):
        if compile_java(f"(?i){tables}").fullmatch(str(table)) is not None:
            return columns[0]
    return None


def split_column(table: TableName, name: str, shape: Shape) -> SplitColumn | str:
    """The column ``name`` of a table, or why the table can't be divided by it.

    Args:
        table: for the message.
        name: the column, in any case.
        shape: the table's columns, see ``lookup.shape``.
    """
    row = next((row for row in shape if str(row[0]).lower() == name.lower()), None)
    if row is None:
        return f"{OPTION}: {table} has no column {name}; name one of {', '.join(str(row[0]) for row in shape)}"
    kind = str(row[1]).lower()
    if kind not in TYPES:
        return (
            f"{OPTION}: {table}.{name} is of the type {kind}, which can't be divided; name a column of whole numbers, "
            "decimals, floating-point numbers, dates or timestamps"
        )
    return SplitColumn(str(row[0]), kind, indexed=bool(row[6]))


def divide_range(kind: str, low: str, high: str, count: int) -> tuple[str, ...]:
    """SQL literals in ascending order that divide the values from ``low`` to ``high`` into at most ``count`` equal ranges.

    Args:
        kind: one of ``TYPES``.
        low: the least value as the server writes it.
        high: the largest value, likewise.
        count: ranges, at least 1.
    """
    if kind in _FLOATS:
        first, last = float(low), float(high)
        # Weighted ends instead of a difference, which might be too large for a number.
        points = {first * (1 - part / count) + last * (part / count) for part in range(1, count)}
        literals = [repr(point) for point in sorted(points) if first < point <= last]
        return tuple(literal if "e" in literal else f"{literal}e0" for literal in literals)
    if kind == "date":
        begin = _parse_day(low).date().toordinal()
        days = _divide_points(begin, _parse_day(high).date().toordinal(), count)
        return tuple(f"'{dt.date.fromordinal(day)}'" for day in days)
    if kind in _DATES:
        start = _parse_day(low)
        moments = _divide_points(0, (_parse_day(high) - start) // _MICROSECOND, count)
        return tuple(f"'{start + moment * _MICROSECOND}'" for moment in moments)
    digits = max(len(literal.partition(".")[2]) for literal in (low, high))
    numbers = _divide_points(_to_scaled(low, digits), _to_scaled(high, digits), count)
    return tuple(_format_unscaled(number, digits) for number in numbers)


def make_conditions(column: str, limits: Sequence[str]) -> tuple[str, ...]:
    """The SQL conditions of the ranges between ``limits``; () if there are none.

    Args:
        column: name of the column.
        limits: SQL literals in ascending order.
    """
    if not limits:
        return ()
    name = quote_name(column)
    between = [f"({name} >= {low} AND {name} < {high})" for low, high in pairwise(limits)]
    return f"({name} < {limits[0]} OR {name} IS NULL)", *between, f"({name} >= {limits[-1]})"


def _divide_points(low: int, high: int, count: int) -> list[int]:
    """Numbers above ``low``, up to ``high``, that divide what is between them."""
    # Rounded up: two neighbours have a point between them.
    points = {low - (low - high) * part // count for part in range(1, count)}
    return sorted(point for point in points if low < point <= high)


def _parse_day(date: str) -> dt.datetime:
    # MariaDB and MySQL store months and days of zero where sql_mode lets them.
    return dt.datetime.fromisoformat(date[:10].replace("-00", "-01") + date[10:])


def _to_scaled(decimal: str, digits: int) -> int:
    whole, _, fraction = decimal.partition(".")
    return int(whole + fraction.ljust(digits, "0"))


def _format_unscaled(number: int, digits: int) -> str:
    if not digits:
        return str(number)
    whole, fraction = divmod(abs(number), 10**digits)
    return f"{'-' if number < 0 else ''}{whole}.{fraction:0{digits}d}"
