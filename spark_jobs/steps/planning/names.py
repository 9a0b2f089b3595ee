"""Names of tables in steps: how a pattern or a name in SQL refers to a table. Pure."""

from __future__ import annotations

import difflib
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal
from connectors.formats import ums
from spark_jobs.steps.planning.model import StepRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.contract import TableSchema

_MOST_SHOWN: Final = 12
#: Begins the part of a name that ``route`` knows only for a row.
_OPEN: Final = "${"


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


def is_match(patterns: Sequence[str], namespace: str) -> bool:
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


def unmatched_sentences(step: str, names: Sequence[str], tables: Sequence[TableSchema]) -> list[str]:
    """Return what is said of ``names`` in a step that none of ``tables`` has.

    Nothing where there are no tables yet, and where the name of a table depends on its rows (``route`` by a column).
    """
    namespaces = [table.namespace for table in tables]
    if not namespaces or any(_OPEN in namespace for namespace in namespaces):
        return []
    shown = ", ".join(namespaces[:_MOST_SHOWN]) + (", ..." if len(namespaces) > _MOST_SHOWN else "")
    return [
        f"step {step} names the table {name}, which no table seen so far is called; tables that reach the step: {shown}. "
        "If the name is mistyped, the step does nothing for its rows"
        for name in names
    ]


def check_names(step: str, schemas: Sequence[TableSchema]) -> None:
    """Refuse two tables of one name after a step.

    Raises:
        Fatal: there are two.
    """
    names = [schema.namespace for schema in schemas]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise Fatal(f"step {step}: two tables are called {twice} after it: combine them by a step of type union")


def find_column(step: str, name: str, table: TableSchema) -> int:
    """The position of the column called ``name``, in any case where no column has exactly this name.

    Raises:
        StepRefused: no column or several columns have this name.
    """
    names = [column.name for column in table.columns]
    if name in names:
        return names.index(name)
    candidates = [number for number, column_name in enumerate(names) if column_name.lower() == name.lower()]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise StepRefused(
            f"step {step}: column {name} of table {table.namespace} may be each of "
            f"{', '.join(names[number] for number in candidates)}: write it as it is there"
        )
    close = difflib.get_close_matches(name, names, 1, 0.6)
    hint = f"; did you mean {close[0]}?" if close else "."
    shown = ", ".join(names[:_MOST_SHOWN]) + (", ..." if len(names) > _MOST_SHOWN else "")
    raise StepRefused(f"step {step}: table {table.namespace} has no column {name}{hint} It has {shown}")
