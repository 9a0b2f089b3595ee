r"""Sharded tables: physical tables that are partitions of one logical table.

``logical.tables`` maps names to a logical table and two numbers: ``shop_(\d+)\.orders_(\d+):shop.orders`` makes
``shop_3.orders_17`` database partition 3, table partition 17 of ``shop.orders``. The numbers are the sixth and seventh part of
a UMS namespace, and members of ``source`` in Debezium's events. Pure functions, but for ``Partitions``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.errors import ConfigInvalid
from connectors.java_regex import compile_java
from connectors.mysql.model import TableName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from connectors.mysql.model import MySqlTable

OPTION: Final = "logical.tables"
#: More digits would not fit 64 bits.
_DIGITS: Final = 18
#: The expression ends at the last colon, or at the last but one if two fixed numbers follow.
_ITEM: Final = re.compile(
    r"(?P<expression>.+?):(?P<database>[^.:()\\|]+)\.(?P<table>[^.:()\\|]+)"
    r"(?::(?P<first>\d+)\.(?P<second>\d+))?",
    re.ASCII | re.DOTALL,
)


class Logical(NamedTuple):
    """The logical table and the partition that a physical table is.

    Attributes:
        name: the logical table; a table that is not mapped has its own name here.
        database_partition: the number of the database's partition; 0 where the expression gives none.
        table_partition: the number of the table's partition; 0 where the expression gives none.
        mapped: whether an expression matches the table.
    """

    name: TableName
    database_partition: int = 0
    table_partition: int = 0
    mapped: bool = False

    @property
    def members(self) -> dict[str, Any]:
        """Return the additional members of ``source`` in Debezium's events; {} for a table that is not mapped."""
        return (
            {
                "logical_db": self.name.database,
                "logical_table": self.name.table,
                "database_partition": self.database_partition,
                "table_partition": self.table_partition,
            }
            if self.mapped
            else {}
        )


class LogicalTables:
    r"""The mapping of ``logical.tables``.

    Args:
        source: the option: ``expression:database.table``, several separated by semicolons. Expressions are Java's and match the
            whole name ``database.table`` in any case. A group in the database's part is the number of the database partition,
            a group in the table's part that of the table partition. ``expression:database.table:3.17`` gives fixed numbers
            to tables whose names have none.

    Raises:
        ConfigInvalid: the text can't be parsed, or an expression can't be used.
    """

    def __init__(self, source: str) -> None:
        self._rules = tuple(_parse_rule(item.strip()) for item in source.split(";") if item.strip())

    def of(self, name: TableName) -> Logical:
        """Return the table's logical table.

        Raises:
            ConfigInvalid: several expressions match it, or a group of the one that does is not a number.
        """
        matches = [(rule, match) for rule in self._rules if (match := rule.pattern.fullmatch(str(name))) is not None]
        if not matches:
            return Logical(name)
        if len(matches) > 1:
            raise ConfigInvalid(
                f"{OPTION}: the table {name} is matched by {matches[0][0].text} and by {matches[1][0].text}: "
                "change the expressions so that only one matches it"
            )
        ((rule, match),) = matches
        if rule.fixed is not None:
            return Logical(rule.target, *rule.fixed, mapped=True)
        numbers: dict[str, int] = {}
        for group in range(1, rule.pattern.groups + 1):
            digits = match[group]
            if digits is None:
                continue
            part = "database" if match.end(group) <= len(name.database) else "table"
            if not digits.isascii() or not digits.isdigit() or len(digits) > _DIGITS:
                raise ConfigInvalid(
                    f"{OPTION}: the group of {rule.text} for the {part} partition of {name} is {digits!r}, which is not a "
                    rf"number of at most {_DIGITS} digits; use (\d+), or give fixed numbers: expression:database.table:3.17"
                )
            if part in numbers:
                raise ConfigInvalid(
                    f"{OPTION}: {rule.text} has two groups in the {part}'s part of {name}, which has one "
                    "number: write (?:...) for a group that is not a number"
                )
            numbers[part] = int(digits)
        return Logical(rule.target, numbers.get("database", 0), numbers.get("table", 0), mapped=True)

    def concerns(self, name: TableName) -> bool:
        """Whether the table is a partition of a logical table, or has the name of one.

        Raises:
            ConfigInvalid: see ``of``.
        """
        return any(rule.target == name for rule in self._rules) or self.of(name).mapped

    def unused(self, names: Iterable[TableName]) -> list[str]:
        """The expressions that match none of these tables."""
        full_names = [str(name) for name in names]
        return [rule.text for rule in self._rules if not any(map(rule.pattern.fullmatch, full_names))]


@lru_cache(maxsize=16)
def parse_mapping(source: str) -> LogicalTables:
    """The mapping that the option describes; kept, since every table and every UMS message without rows asks for it.

    Raises:
        ConfigInvalid: see ``LogicalTables``.
    """
    return LogicalTables(source)


class Partitions:
    """Checks that tables which share a logical table have numbers of their own. Remembers the tables that it has seen.

    Args:
        logical: the mapping.
    """

    def __init__(self, logical: LogicalTables) -> None:
        self._logical = logical
        self._owners: dict[Logical, TableName] = {}
        self._seen: dict[TableName, dict[TableName, tuple[str, ...]]] = {}

    def add(self, name: TableName, key: tuple[str, ...]) -> str:
        """Remember a table and the columns of its key.

        Returns:
            What makes the logical table hard to read, though no rows get lost; "" if nothing does.

        Raises:
            ConfigInvalid: another table has the same logical name and numbers, or see ``LogicalTables.of``.
        """
        part = self._logical.of(name)
        owner = self._owners.setdefault(part._replace(mapped=False), name)
        if owner != name:
            raise ConfigInvalid(
                f"{OPTION}: {owner} and {name} would both be {part.name} with database partition {part.database_partition} and "
                f"table partition {part.table_partition}, so their rows could not be distinguished: change the expressions so "
                "that every table has its own numbers, or capture only one of the two"
            )
        partition_keys = self._seen.setdefault(part.name, {})
        partition_keys[name] = key
        if len(partition_keys) == 1:
            return ""
        if part.name in partition_keys and not self._logical.of(part.name).mapped:
            other_table = next(table_name for table_name in partition_keys if table_name != part.name)
            return (
                f"{OPTION}: {part.name} is captured itself and no expression matches it, while {other_table} is a partition "
                f"of {part.name}: their keys in the shared topic differ. Add an expression for it "
                f"({re.escape(str(part.name))}:{part.name}:0.0), or don't capture it"
            )
        other_table = next((table_name for table_name, columns in partition_keys.items() if columns != key), name)
        if other_table != name:
            return (
                f"{OPTION}: {other_table} and {name} are partitions of {part.name} with different keys: "
                f"({', '.join(partition_keys[other_table])}) and ({', '.join(key)}). Give them one key, choose one with "
                "message.key.columns, or map them to two logical tables"
            )
        return ""

    def forget(self, gone: Callable[[TableName], bool]) -> None:
        """Forget tables that may have been dropped or renamed; ``add`` is called again for those that are still there."""
        self._owners = {part: name for part, name in self._owners.items() if not gone(name)}
        self._seen = {
            logical: {name: key for name, key in partition_keys.items() if not gone(name)}
            for logical, partition_keys in self._seen.items()
        }


class Differences(NamedTuple):
    """How the columns of a logical table's partitions differ; one text per logical table at most."""

    types: list[str]
    missing: list[str]


def compare_columns(tables: Iterable[MySqlTable], logical: LogicalTables) -> Differences:
    """Find columns of different types, and columns that only some partitions of a logical table have."""
    groups: dict[TableName, list[MySqlTable]] = {}
    for table in tables:
        part = logical.of(table.name)
        if part.mapped:
            groups.setdefault(part.name, []).append(table)
    differences = Differences([], [])
    for name, members in groups.items():
        columns: dict[str, tuple[str, TableName]] = {}
        types, missing = "", ""
        for table in members:
            for column in table.columns:
                kind, first = columns.setdefault(column.name, (column.declared, table.name))
                if kind != column.declared and not types:
                    types = (
                        f"{OPTION}: the column {column.name} of {name} is {kind} in {first} and {column.declared} in "
                        f"{table.name}: give the partitions the same types (ALTER TABLE), or map them to two logical "
                        "tables"
                    )
        for table in members:
            lacking = [column for column in columns if column not in {member.name for member in table.columns}]
            if lacking and not missing:
                missing = (
                    f"{OPTION}: {table.name} has no column {lacking[0]}, which {columns[lacking[0]][1]} has; both are "
                    f"partitions of {name}. Readers see events with and without it: alter the partition that is behind"
                )
        differences.types.extend([types] if types else [])
        differences.missing.extend([missing] if missing else [])
    return differences


class _LogicalRule(NamedTuple):
    text: str
    pattern: re.Pattern[str]
    target: TableName
    fixed: tuple[int, int] | None


def _parse_rule(item: str) -> _LogicalRule:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise ConfigInvalid(
            f"{item!r} is not of the form expression:database.table or expression:database.table:number.number"
        )
    expression = match["expression"].strip()
    pattern = compile_java(f"(?i){expression}")
    fixed = None if match["first"] is None else (int(match["first"]), int(match["second"]))
    if fixed is not None and (
        pattern.groups or any(len(digits) > _DIGITS for digits in (match["first"], match["second"]))
    ):
        raise ConfigInvalid(
            f"{item!r} has fixed numbers: it can't have groups (write (?:...)), and a number has at most "
            f"{_DIGITS} digits"
        )
    if pattern.groups > 2:
        raise ConfigInvalid(
            f"{expression} has {pattern.groups} groups, but there are two numbers, one in the database's part and "
            "one in the table's: write (?:...) for a group that is not a number"
        )
    return _LogicalRule(expression, pattern, TableName(match["database"].strip(), match["table"].strip()), fixed)
