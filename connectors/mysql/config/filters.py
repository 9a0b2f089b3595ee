"""Selects databases, tables and columns by Debezium's include and exclude lists."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid
from connectors.java_regex import compile_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from connectors.mysql.events.contract import MySqlEventSettings
    from connectors.mysql.model import TableName

#: The server's own databases.
BUILTIN: Final = frozenset({"mysql", "performance_schema", "sys", "information_schema"})
#: Answers that are kept; a source with more tables (short-lived ones, say) has them asked again.
_KEPT: Final = 20_000
_ITEM: Final = re.compile(r"(?:\\.|[^,\\])+", re.DOTALL)

Patterns = tuple[re.Pattern[str], ...]


def parse_patterns(source: str) -> Patterns:
    r"""Parse a comma-separated list of Java's regular expressions, for whole names in any case; ``\,`` is a comma in one.

    Raises:
        ConfigInvalid: one of them is not a regular expression.
    """
    return compile_patterns(item.strip().replace("\\,", ",") for item in _ITEM.findall(source))


def compile_patterns(expressions: Iterable[str]) -> Patterns:
    """The same for expressions that are apart already, in which a comma is a comma.

    Raises:
        ConfigInvalid: one of them is not a regular expression.
    """
    return tuple(compile_java(f"(?i){item}") for item in expressions if item)


def matches_any(expressions: Patterns, name: str) -> bool:
    """Whether one of the expressions matches the whole name."""
    return any(expression.fullmatch(name) is not None for expression in expressions)


def table_columns(option: str, source: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The items of ``database.table:column,column;...``: expression for tables, columns.

    Args:
        option: name of the option, for the error.
        source: its value.

    Raises:
        ConfigInvalid: an item has another form.
    """
    parsed = []
    for item in filter(None, map(str.strip, source.split(";"))):
        tables, colon, columns = item.partition(":")
        if not colon:
            raise ConfigInvalid(f"{option}: {item!r} is not of the form database.table:column,column")
        parsed.append((tables.strip(), tuple(column.strip() for column in columns.split(","))))
    return tuple(parsed)


def quote_expression(name: TableName) -> str:
    """The expression for one table; names are quoted as Java's regular expressions have it."""
    return "".join(f"\\{char}" if not char.isalnum() and char != "_" and char.isascii() else char for char in str(name))


class MySqlTableFilter:
    """Says which tables are captured. Answers are kept, so asking again costs a look-up."""

    def __init__(self, settings: MySqlEventSettings) -> None:
        """Compile the lists.

        Raises:
            ConfigInvalid: an expression can't be used.
        """
        self._databases = _make_filter(settings.databases, settings.not_databases)
        self._tables = _make_filter(settings.tables, settings.not_tables)
        self._builtin = settings.builtin_tables
        self._signals = frozenset(name.strip().lower() for name in settings.signal_tables if name.strip())
        self._captured: dict[TableName, bool] = {}

    def matches(self, name: TableName) -> bool:
        """Whether the table is captured."""
        is_captured = self._captured.get(name)
        if is_captured is None:
            is_captured = self._match_table(name)
            if len(self._captured) >= _KEPT:
                self._captured.clear()
            self._captured[name] = is_captured
        return is_captured

    def database(self, name: str) -> bool:
        """Whether tables of this database can be captured at all."""
        return (self._builtin or name.lower() not in BUILTIN) and self._databases(name)

    def _match_table(self, name: TableName) -> bool:
        full_name = str(name)
        return (self.database(name.database) and self._tables(full_name)) or full_name.lower() in self._signals


def column_filter(settings: MySqlEventSettings) -> Callable[[TableName, str], bool]:
    """The function that says whether a column of a table becomes a field of the value.

    Raises:
        ConfigInvalid: an expression can't be used.
    """
    chosen = _make_filter(settings.columns, settings.not_columns)
    return lambda table, column: chosen(f"{table}.{column}")


def _make_filter(include: str, exclude: str) -> Callable[[str], bool]:
    """An include list stands for itself; an exclude list counts only without one."""
    if include.strip():
        included = parse_patterns(include)
        return lambda name: matches_any(included, name)
    unwanted = parse_patterns(exclude)
    return lambda name: not matches_any(unwanted, name)
