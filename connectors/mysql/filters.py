"""Which databases, tables and columns are captured: Debezium's include and exclude lists."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid
from connectors.java_regex import compile_java

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.mysql.events.contract import EventSettings
    from connectors.mysql.model import TableName

#: The server's own databases.
BUILTIN: Final = frozenset({"mysql", "performance_schema", "sys", "information_schema"})
#: Answers that are kept; a source with more tables (short-lived ones, say) has them asked again.
_KEPT: Final = 20_000
_ITEM: Final = re.compile(r"(?:\\.|[^,\\])+", re.DOTALL)

Patterns = tuple[re.Pattern[str], ...]


def patterns(text: str) -> Patterns:
    r"""A comma-separated list of Java's regular expressions, for whole names in any case; ``\,`` is a comma in one.

    Raises:
        ConfigInvalid: one of them is none.
    """
    items = (item.strip().replace("\\,", ",") for item in _ITEM.findall(text))
    return tuple(compile_java(f"(?i){item}") for item in items if item)


def matches(expressions: Patterns, name: str) -> bool:
    """Whether one of the expressions matches the whole name."""
    return any(expression.fullmatch(name) is not None for expression in expressions)


def table_columns(option: str, text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The items of ``database.table:column,column;...``: expression for tables, columns.

    Args:
        option: name of the option, for the error.
        text: its value.

    Raises:
        ConfigInvalid: an item has another form.
    """
    found = []
    for item in filter(None, map(str.strip, text.split(";"))):
        tables, colon, columns = item.partition(":")
        if not colon:
            raise ConfigInvalid(f"{option}: {item!r} is not of the form database.table:column,column")
        found.append((tables.strip(), tuple(column.strip() for column in columns.split(","))))
    return tuple(found)


def exactly(name: TableName) -> str:
    """The expression for one table; names are quoted as Java's regular expressions have it."""
    return "".join(f"\\{char}" if not char.isalnum() and char != "_" and char.isascii() else char for char in str(name))


class TableFilter:
    """Which tables are captured. Answers are kept, so asking again costs a look-up."""

    def __init__(self, settings: EventSettings) -> None:
        """Compile the lists.

        Raises:
            ConfigInvalid: an expression can't be used.
        """
        self._databases = _chosen(settings.databases, settings.not_databases)
        self._tables = _chosen(settings.tables, settings.not_tables)
        self._builtin = settings.builtin_tables
        self._signals = frozenset(name.strip().lower() for name in settings.signal_tables if name.strip())
        self._known: dict[TableName, bool] = {}

    def matches(self, name: TableName) -> bool:
        """Whether the table is captured."""
        known = self._known.get(name)
        if known is None:
            known = self._ask(name)
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[name] = known
        return known

    def database(self, name: str) -> bool:
        """Whether tables of this database can be captured at all."""
        return (self._builtin or name.lower() not in BUILTIN) and self._databases(name)

    def _ask(self, name: TableName) -> bool:
        text = str(name)
        return (self.database(name.database) and self._tables(text)) or text.lower() in self._signals


def column_filter(settings: EventSettings) -> Callable[[TableName, str], bool]:
    """The function that says whether a column of a table becomes a field of the value.

    Raises:
        ConfigInvalid: an expression can't be used.
    """
    chosen = _chosen(settings.columns, settings.not_columns)
    return lambda table, column: chosen(f"{table}.{column}")


def _chosen(include: str, exclude: str) -> Callable[[str], bool]:
    """An include list stands for itself; an exclude list counts only without one."""
    if include.strip():
        wanted = patterns(include)
        return lambda name: matches(wanted, name)
    unwanted = patterns(exclude)
    return lambda name: not matches(unwanted, name)
