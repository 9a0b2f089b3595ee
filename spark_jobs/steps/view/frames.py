"""The rows of a view before and after a batch, of those keys that the batch may have changed. Lazy, but for what it says.

Every row of the joined tables belongs to one row of the base table. Base rows are affected if they changed, or if they join a
changed row, in the state before the batch or in the one after it. The rows of the view that affected base rows make, before
and after, are all that can differ; with GROUP BY they are the groups that affected base rows belong to.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from spark_jobs.steps.view.query import column_name, direct_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_jobs.steps.view.query import ViewQuery

#: The largest number of keys that are sent to every task; more are joined by a shuffle.
MOST_BROADCAST: Final = 50_000


@dataclass(frozen=True, slots=True)
class ViewTableChange:
    """The change of one table of FROM in a batch.

    Attributes:
        before: its rows before the batch, with the columns that the query reads as ``t<table>_c<column>``.
        after: its rows after the batch.
        keys: the keys of the rows that changed, as ``k<column>``; None: no row did.
        count: how many keys.
    """

    before: DataFrame
    after: DataFrame
    keys: DataFrame | None
    count: int


class Recomputing:
    """Computes the rows of a view that a batch may have changed.

    Args:
        step: its name, for messages.
        query: the SELECT.
        changes: of each table of FROM, in order.
    """

    def __init__(self, step: str, query: ViewQuery, changes: Sequence[ViewTableChange]) -> None:
        self._step = step
        self._query = query
        self._changes = changes
        self._base_key = [position for position, column in enumerate(query.sources[0].schema.columns) if column.key]

    def everything(self) -> DataFrame:
        """All rows of the view after the batch: columns ``v<number>``."""
        return self.rows([change.after for change in self._changes])

    def affected(self) -> tuple[DataFrame, DataFrame]:
        """The rows of the view before and after the batch, of the keys that it may have changed. Runs Spark jobs."""
        base, small = self._affected_base()
        sides = [[change.before for change in self._changes], [change.after for change in self._changes]]
        restricted = [self._restrict_tables(tables, base, small=small) for tables in sides]
        if not self._query.grouped:
            return self.rows(restricted[0]), self.rows(restricted[1])
        groups = reduce(
            lambda left_rows, right_rows: left_rows.union(right_rows),
            [self._group_rows(tables) for tables in restricted],
        )
        groups = compute_now(groups.distinct())
        small = groups.count() <= MOST_BROADCAST
        before, after = (
            self.rows(self._of_groups(tables, groups, small=small), groups, small=small) for tables in sides
        )
        return before, after

    # Affected rows of the base table.

    def _affected_base(self) -> tuple[DataFrame, bool]:
        """The keys of the affected base rows as ``b<column>``, and whether they are few."""
        parts: list[DataFrame] = []
        base = self._changes[0]
        names = [f"b{position}" for position in self._base_key]
        if base.keys is not None:
            parts.append(base.keys.toDF(*names))
        if all(change.keys is None for change in self._changes[1:]):
            return parts[0], base.count <= MOST_BROADCAST
        small = sum(change.count for change in self._changes) <= MOST_BROADCAST
        for side in ("before", "after"):
            tables = [getattr(change, side) for change in self._changes]
            reached = self._find_reached_keys(tables, small=small)
            if reached is not None:
                parts.append(
                    reached.select(*(f.col(column_name(0, position)) for position in self._base_key)).toDF(*names)
                )
        keys = compute_now(reduce(lambda left_rows, right_rows: left_rows.union(right_rows), parts).distinct())
        return keys, keys.count() <= MOST_BROADCAST

    def _find_reached_keys(self, tables: Sequence[DataFrame], *, small: bool) -> DataFrame | None:
        """The base rows that join a changed row of another table; more where a join has further conditions."""
        reached_rows: dict[int, list[DataFrame]] = {}
        for number in range(len(tables) - 1, 0, -1):
            source, change = self._query.sources[number], self._changes[number]
            if change.keys is not None:
                key_positions = [position for position, column in enumerate(source.schema.columns) if column.key]
                condition = " AND ".join(f"{column_name(number, position)} = k{position}" for position in key_positions)
                reached_rows.setdefault(number, []).append(
                    _join_semi(tables[number], change.keys, condition, small=small)
                )
            if number not in reached_rows:
                continue
            rows = reduce(lambda left_rows, right_rows: left_rows.union(right_rows), reached_rows[number])
            rows = rows.select(*(f.expr(right).alias(f"r{n}") for n, (_, right) in enumerate(source.pairs))).distinct()
            condition = " AND ".join(f"({left}) = r{n}" for n, (left, _) in enumerate(source.pairs))
            reached_rows.setdefault(source.parent, []).append(
                _join_semi(tables[source.parent], rows, condition, small=small)
            )
        return (
            reduce(lambda left_rows, right_rows: left_rows.union(right_rows), reached_rows[0])
            if 0 in reached_rows
            else None
        )

    # Rows of the joined tables.

    def _restrict_tables(self, tables: Sequence[DataFrame], base: DataFrame, *, small: bool) -> list[DataFrame]:
        """The tables with the base rows of these keys only, and what joins them where that is cheap to know."""
        condition = " AND ".join(f"{column_name(0, position)} = b{position}" for position in self._base_key)
        rows = _join_semi(tables[0], base, condition, small=small)
        if not small:
            return [rows, *tables[1:]]
        rows = compute_now(rows)
        result = [rows]
        for source, table in zip(self._query.sources[1:], tables[1:], strict=True):
            if source.parent:
                result.append(table)
                continue
            semi_keys = rows.select(
                *(f.expr(left).alias(f"w{n}") for n, (left, _) in enumerate(source.pairs))
            ).distinct()
            condition = " AND ".join(f"({right}) = w{n}" for n, (_, right) in enumerate(source.pairs))
            result.append(compute_now(_join_semi(table, semi_keys, condition, small=small)))
        return result

    def _join_tables(self, tables: Sequence[DataFrame]) -> DataFrame:
        rows = tables[0]
        for source, table in zip(self._query.sources[1:], tables[1:], strict=True):
            rows = rows.join(table, f.expr(source.on), "left" if source.left else "inner")
        return rows.where(self._query.where) if self._query.where else rows

    def _group_rows(self, tables: Sequence[DataFrame]) -> DataFrame:
        """The groups of the joined rows, as ``g<number>``."""
        return self._join_tables(tables).select(
            *(f.expr(sql).alias(f"g{n}") for n, sql in enumerate(self._query.group))
        )

    def _of_groups(self, tables: Sequence[DataFrame], groups: DataFrame, *, small: bool) -> list[DataFrame]:
        """The tables without rows that belong to none of the groups, where that is cheap to know."""
        result = []
        for number, (source, table) in enumerate(zip(self._query.sources, tables, strict=True)):
            key_positions = {
                n: position[1]
                for n, sql in enumerate(self._query.group)
                if (position := direct_column(sql)) is not None and position[0] == number
            }
            if not key_positions or source.left:
                result.append(table)
                continue
            semi_keys = groups.select(*(f"g{n}" for n in key_positions)).distinct()
            condition = " AND ".join(
                f"{column_name(number, position)} <=> g{n}" for n, position in key_positions.items()
            )
            result.append(_join_semi(table, semi_keys, condition, small=small))
        return result

    def rows(self, tables: Sequence[DataFrame], groups: DataFrame | None = None, *, small: bool = False) -> DataFrame:
        """The rows of the view as ``v<number>``, of these groups only."""
        query = self._query
        rows = self._join_tables(tables)
        if groups is not None:
            condition = " AND ".join(f"({sql}) <=> g{n}" for n, sql in enumerate(query.group))
            rows = _join_semi(rows, groups, condition, small=small)
        values = [f.expr(sql).alias(f"v{n}") for n, sql in enumerate(query.columns)]
        if query.grouped:
            having = [f.expr(query.having).alias("having_")] if query.having else []
            rows = rows.groupBy(*(f.expr(sql).alias(f"g{n}_") for n, sql in enumerate(query.group))).agg(
                *values, *having
            )
            rows = rows.where("having_") if having else rows
        else:
            rows = rows.select(*values)
        return rows.select(*(self._build_view_column(n) for n in range(len(query.columns))))

    def _build_view_column(self, number: int) -> Column:
        """A column of the view; one of the key fails where it is null."""
        query = self._query
        position = query.direct[number]
        sure = (
            position is not None
            and query.sources[position[0]].schema.columns[position[1]].key
            and not query.sources[position[0]].left
        )
        name = f"v{number}"
        if number >= query.key or sure:
            return f.col(name)
        message = (
            f"step {self._step}: the key column {query.names[number]} is null in a row of the view: give it a value by "
            "coalesce(), or leave such rows out by WHERE"
        )
        return f.when(f.col(name).isNull(), f.raise_error(f.lit(message))).otherwise(f.col(name)).alias(name)


def local_rows(spark: SparkSession, rows: pa.Table, fields: StructType) -> DataFrame:
    """Rows that this process has. Plans of such frames alone run in one task: nothing is sent, and nothing is broadcast.

    Args:
        spark: the session.
        rows: with the columns of ``fields``, in that order.
        fields: of the frame.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(fields, timezone="UTC")
    return spark.createDataFrame(rows.rename_columns(schema.names).cast(schema), fields).coalesce(1).hint("merge")


def compute_now(frame: DataFrame) -> DataFrame:
    """The rows of ``frame``, computed now. Plans over them are short; those over a cache contain the plan of the cache."""
    return frame.localCheckpoint(eager=True)


def compute_changes(query: ViewQuery, before: DataFrame, after: DataFrame, *, images: bool) -> DataFrame:
    """The changes between two sets of rows: columns ``v<number>`` and ``ums_op_``; an image before an update comes before it.

    Args:
        query: the SELECT.
        before: rows as ``v<number>``, of a key one.
        after: as ``before``.
        images: whether images before updates are given.
    """
    count = len(query.columns)
    old = before.select(*(f.col(f"v{n}").alias(f"o{n}") for n in range(count)), f.lit(True).alias("old_"))
    new = after.select("*", f.lit(True).alias("new_"))
    condition = " AND ".join(f"o{n} = v{n}" for n in range(query.key))
    rows = old.join(new, f.expr(condition), "full")
    same = " AND ".join(f"o{n} <=> v{n}" for n in range(query.key, count)) or "true"
    rows = rows.where(f"old_ IS NULL OR new_ IS NULL OR NOT ({same})")
    was = ", ".join(f"o{n} AS v{n}" for n in range(count))
    is_ = ", ".join(f"v{n} AS v{n}" for n in range(count))
    before_sql = f"struct({was}, '{{op}}' AS ums_op_)"
    after_sql = f"struct({is_}, '{{op}}' AS ums_op_)"
    update = [before_sql.format(op="b"), after_sql.format(op="u")] if images else [after_sql.format(op="u")]
    changes = (
        f"CASE WHEN old_ IS NULL THEN array({after_sql.format(op='i')}) WHEN new_ IS NULL THEN "
        f"array({before_sql.format(op='d')}) ELSE array({', '.join(update)}) END"
    )
    return rows.select(f.expr(f"inline({changes})"))


def _join_semi(rows: DataFrame, keys: DataFrame, condition: str, *, small: bool) -> DataFrame:
    return rows.join(f.broadcast(keys) if small else keys, f.expr(condition), "left_semi")


def named_rows(frame: DataFrame, columns: Mapping[int, str], number: int) -> DataFrame:
    """The columns of a table's state as the query calls them.

    Args:
        frame: the rows.
        columns: the name in ``frame`` by the column's place in the table.
        number: of the table in FROM.
    """
    return frame.select(*(f.col(name).alias(column_name(number, position)) for position, name in columns.items()))
