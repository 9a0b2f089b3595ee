"""Columns of Spark's frames by their place: Spark takes some names for paths, and names that differ in case only for one.

And what a job asks of each batch, made once: pyspark takes dozens of calls into the JVM for a selection and a task in Python,
which in small batches costs more than their rows.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from spark_jobs.spark.gateway import java_column, java_columns, java_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    Task = Callable[[Iterator[Any]], Iterator[Any]]


def choose_last(cases: Sequence[tuple[Column, Column]], otherwise: Column) -> Column:
    """The value of the last of ``cases`` (condition, value) that holds, or ``otherwise``.

    It is one flat CASE. Spark goes down into nested ones by recursion, and some hundreds of them overflow its stack.
    """
    if not cases:
        return otherwise
    (condition, value), *others = reversed(cases)
    chosen = f.when(condition, value)
    for condition, value in others:
        chosen = chosen.when(condition, value)
    return chosen.otherwise(otherwise)


class FrameSelection:
    """``frame.select(*columns)`` for many frames.

    Args:
        frame: any frame of the JVM that runs them.
        columns: their names or expressions over names.
    """

    def __init__(self, frame: DataFrame, *columns: str | Column) -> None:
        self._columns = java_columns(frame, *columns)

    def of(self, frame: DataFrame) -> DataFrame:
        """The columns of ``frame``. Lazy."""
        return _wrap_frame(frame, java_frame(frame).select(self._columns))


class ArrowTask:
    """``frame.mapInArrow(function, schema)`` for many frames; the function is pickled once.

    Args:
        function: of the task.
        schema: of the rows that it gives.
        columns: all columns of its frames (``columns_of``): others are not computed.
    """

    def __init__(self, function: Task, schema: StructType | str, columns: Sequence[Column]) -> None:
        from pyspark.sql.pandas.functions import pandas_udf
        from pyspark.util import PythonEvalType

        udf: Any = pandas_udf(
            function,
            returnType=schema,
            functionType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF,  # type: ignore[call-overload]
        )
        self._call = java_column(udf(*columns))

    def over(self, frame: DataFrame) -> DataFrame:
        """The rows that the function makes of ``frame``. Lazy."""
        return _wrap_frame(frame, java_frame(frame).mapInArrow(self._call, False, None))


def columns_of(names: Sequence[str]) -> list[Column]:
    """The columns of these names."""
    return [get_column(name) for name in names]


def _wrap_frame(like: DataFrame, java: Any) -> DataFrame:
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    return Classic(java, like.sparkSession)


def union_frames(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of all ``frames``, which have the same columns in the same order. Lazy."""
    return reduce(lambda left, right: left.unionAll(right), frames)


def number_columns(frame: DataFrame, count: int) -> DataFrame:
    """``frame`` with its first ``count`` columns called c0, c1 ..., whatever their names were; the others keep theirs. Lazy.

    Also for ``mapInArrow``, which looks up the columns of its input by name.
    """
    return frame.toDF(*(f"c{number}" for number in range(count)), *frame.columns[count:])


def get_column(name: str) -> Column:
    """The column of that name, whatever characters it has; of names that differ in case only see ``number_columns``."""
    from pyspark.sql import functions

    return functions.col(quote_name(name))


def quote_name(name: str) -> str:
    """A name as Spark's SQL takes it, whatever characters it has. Pure."""
    return "`" + name.replace("`", "``") + "`"


def find_twins(names: Sequence[str]) -> tuple[str, str] | None:
    """The first two names that differ in upper and lower case only, or None. Pure."""
    names_by_key: dict[str, str] = {}
    for name in names:
        earlier_name = names_by_key.setdefault(name.lower(), name)
        if earlier_name != name:
            return earlier_name, name
    return None
