"""The dialects: entry points of the group ``millrace.jdbc_dialects``, imported only when one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_jobs.registry import list_entry_points, load_class

if TYPE_CHECKING:
    from spark_jobs.sinks.jdbc.model import Dialect

#: The name of an entry point is what comes after ``jdbc:`` in a URL; its object is a ``model.Dialect``.
GROUP: Final = "millrace.jdbc_dialects"


def list_dialects() -> list[str]:
    """The names of all dialects."""
    return list(list_entry_points(GROUP))


def load_dialect(name: str) -> Dialect:
    """The dialect of that name; imports its driver only now.

    Raises:
        KeyError: no package declares it.
        ImportError, AttributeError: it, or its driver, can't be imported.
    """
    chosen: Dialect = load_class(list_entry_points(GROUP)[name])
    return chosen
