"""The choice of tables by ``source.tables``. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from spark_jobs.steps.planning.names import is_match

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Parts of a UMS namespace, and the fewest that a pattern names to be taken for one.
_PARTS: Final = 7
_LEAST: Final = 4


def is_selected(patterns: Sequence[str], names: str | Iterable[str]) -> bool:
    """Whether one of ``patterns`` is a name of a table; no patterns choose every table.

    Args:
        patterns: namespaces, ``database.table`` or a table alone, with ``*`` and ``?`` as in file names. Of a UMS namespace
            the last parts (version and partitions) may be left out.
        names: the namespaces of the table.
    """
    if not patterns:
        return True
    return any(
        is_match(patterns, name) or any(_is_prefix_match(pattern, name) for pattern in patterns)
        for name in ([names] if isinstance(names, str) else names)
    )


def _is_prefix_match(pattern: str, namespace: str) -> bool:
    """Whether a pattern without version or partitions matches a UMS namespace."""
    expected, parts = pattern.split("."), namespace.split(".")
    return (
        len(parts) == _PARTS
        and _LEAST <= len(expected) < _PARTS
        and all(fnmatchcase(part, glob) for part, glob in zip(parts, expected, strict=False))
    )
