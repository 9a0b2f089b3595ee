"""Columns of Spark's frames by their place: Spark takes some names for paths, and names that differ in case only for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame


def numbered(frame: DataFrame, count: int) -> DataFrame:
    """``frame`` with its first ``count`` columns called c0, c1 ..., whatever their names were; the others keep theirs. Lazy.

    Also for ``mapInArrow``, which looks up the columns of its input by name.
    """
    return frame.toDF(*(f"c{number}" for number in range(count)), *frame.columns[count:])


def column(name: str) -> Column:
    """The column of that name, whatever characters it has; of names that differ in case only see ``numbered``."""
    from pyspark.sql import functions

    return functions.col(quoted(name))


def quoted(name: str) -> str:
    """A name as Spark's SQL takes it, whatever characters it has. Pure."""
    return "`" + name.replace("`", "``") + "`"


def twins(names: Sequence[str]) -> tuple[str, str] | None:
    """The first two names that differ in upper and lower case only, or None. Pure."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            return other, name
    return None
