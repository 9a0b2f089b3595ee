"""Names of tables in steps: how a pattern or a name in SQL refers to a table. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from connectors.formats import ums
from spark_jobs.steps.model import StepRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.contract import TableSchema


def table_part(namespace: str) -> str:
    """The name of the table alone: UMS's part for it, else what follows the last dot."""
    try:
        return ums.Namespace.parse(namespace).table
    except ValueError:
        return namespace.rpartition(".")[2]


def qualified_name(namespace: str) -> str:
    """``<database>.<table>``: it stays the same when UMS's table version changes."""
    try:
        parts = ums.Namespace.parse(namespace)
    except ValueError:
        return ".".join(namespace.split(".")[-2:])
    return f"{parts.database}.{parts.table}"


def names_of(namespace: str) -> tuple[str, ...]:
    """The names that refer to a table: its namespace, ``<database>.<table>``, and the table alone."""
    return tuple(dict.fromkeys((namespace, qualified_name(namespace), table_part(namespace))))


def matches(patterns: Sequence[str], namespace: str) -> bool:
    """Whether one of ``patterns`` (``*`` and ``?`` as in file names) is a name of the table; no patterns match every table."""
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns for name in names_of(namespace))


def find_table(step: str, name: str, tables: Sequence[TableSchema]) -> TableSchema | None:
    """The table that SQL calls ``name``, in any case where no table has exactly this name; None if there is not one yet.

    Raises:
        StepRefused: several tables have this name.
    """
    for fold in (str, str.lower):
        candidates = [
            table for table in tables if fold(name) in {fold(known_as) for known_as in names_of(table.namespace)}
        ]
        if len(candidates) > 1:
            listed = ", ".join(table.namespace for table in candidates)
            raise StepRefused(
                f"step {step}: {name} may be each of the tables {listed}: write the database too (`database.table`), or "
                "the whole name in backticks"
            )
        if candidates:
            return candidates[0]
    return None
