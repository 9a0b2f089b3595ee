"""Resolves the queries of steps: which expressions over which input tables make the columns of an output table. Pure.

A query without joins and aggregates computes every row from one row of one table. So nested queries, CTEs and unions come down
to one list of expressions and one list of conditions per input table (``Branch``).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from spark_jobs.contract import SYSTEM_COLUMNS
from spark_jobs.steps.planning.dialect import check_query, function_name, parse_statements, text_of, unstable_function
from spark_jobs.steps.planning.model import Branch, Expression, OutputTable, StepRefused
from spark_jobs.steps.planning.names import find_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spark_jobs.contract import TableSchema

#: Stands for the input table in the query of a step that has no FROM of its own.
INPUT: Final = "input_table_"
_MOST_SHOWN: Final = 12
#: Begins the name of an expression that has none.
_UNNAMED: Final = "\0"
#: Functions whose first argument of three is a unit of time without quotes.
_WITH_UNIT: Final = ("dateadd", "date_add", "datediff", "date_diff", "timestampadd", "timestampdiff")
_UNITS: Final = (
    "YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFYEAR", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueryRows:
    """The rows of one input table, as a query sees them.

    Attributes:
        source: the input table.
        names: of the columns.
        nodes: an expression over the input table's numbered columns per column.
        conditions: all must hold.
    """

    source: TableSchema
    names: tuple[str, ...]
    nodes: tuple[exp.Expr, ...]
    conditions: tuple[exp.Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class StepQuery:
    """A query of a step: where its rows go, and the views that it may read.

    Attributes:
        target: the table of its INSERT INTO; empty for a plain SELECT.
        node: the query.
        views: queries by the name that a CREATE TEMPORARY VIEW before it gave them.
    """

    target: str
    node: exp.Expr
    views: Mapping[str, exp.Expr]


def read_queries(step: str, sql: str) -> list[StepQuery]:
    """The queries of a step of type sql, checked for constructs that can't carry changes.

    Raises:
        StepRefused: names the step, the construct and the fix.
    """
    views: dict[str, exp.Expr] = {}
    queries: list[StepQuery] = []
    for statement in parse_statements(step, sql):
        if isinstance(statement, exp.Create) and str(statement.kind).upper() == "VIEW":
            query, name = statement.expression, statement.this.name
            if not isinstance(query, exp.Query):
                raise StepRefused(f"step {step}: the view {name} must be AS SELECT ...")
            check_query(step, query)
            views[name.lower()] = query
        elif isinstance(statement, exp.Insert):
            query, target = statement.expression, statement.this
            if not isinstance(query, exp.Query) or not isinstance(target, exp.Table) or statement.args.get("overwrite"):
                raise StepRefused(f"step {step}: write INSERT INTO <table> SELECT ..., with the columns in the SELECT")
            check_query(step, query)
            queries.append(StepQuery(".".join(part.name for part in target.parts), query, dict(views)))
        elif isinstance(statement, exp.Query):
            check_query(step, statement)
            queries.append(StepQuery("", statement, dict(views)))
        else:
            raise StepRefused(
                f"step {step}: `{text_of(statement)[:60]}` is not a query: a step takes SELECT, INSERT INTO <table> SELECT "
                "and CREATE TEMPORARY VIEW <name> AS SELECT"
            )
    targets = [query.target or step for query in queries]
    if not queries:
        raise StepRefused(f"step {step}: has no SELECT that gives an output table")
    twice = next((target for target in targets if targets.count(target) > 1), "")
    if twice:
        raise StepRefused(
            f"step {step}: two statements write the table {twice}: combine them by UNION ALL, or write "
            "INSERT INTO <another table> SELECT ..."
        )
    return queries


def tables_read(query: StepQuery) -> list[str]:
    """Names of the tables that a query reads, views and CTEs resolved; in order of appearance, repeated if read repeatedly."""
    names: list[str] = []

    def visit(node: exp.Expr, local: Mapping[str, exp.Expr]) -> None:
        inner = dict(local)
        for cte in getattr(node, "ctes", []):
            inner[cte.alias.lower()] = cte.this
        for table in _tables_in(node):
            name = table_name(table)
            if name.lower() in inner:
                visit(inner[name.lower()], {key: value for key, value in inner.items() if key != name.lower()})
            else:
                names.append(name)

    visit(query.node, query.views)
    return names


def _tables_in(node: exp.Expr) -> list[exp.Table]:
    inside = {id(table) for cte in node.find_all(exp.CTE) for table in cte.find_all(exp.Table)}
    return [table for table in node.find_all(exp.Table) if id(table) not in inside]


def table_name(table: exp.Table) -> str:
    """The name of a table as SQL writes it, without quotes."""
    return ".".join(part.name for part in table.parts)


def rows_of(source: TableSchema) -> QueryRows:
    """All rows of an input table."""
    names = tuple(column.name for column in source.columns)
    return QueryRows(source, names, tuple(exp.column(f"c{number}") for number in range(len(names))))


class QueryResolver:
    """Resolves the queries of one step against the tables that are there.

    Args:
        step: its name, for messages.
        lookup: the table that SQL calls by a name; None if no table has been seen under it.
    """

    def __init__(self, step: str, lookup: Callable[[str], TableSchema | None]) -> None:
        self._step = step
        self._lookup = lookup

    def rows(self, query: StepQuery) -> list[QueryRows]:
        """The rows of a query, one item per input table that has been seen.

        Raises:
            StepRefused: a column is missing or ambiguous; a table is read more than once.
        """
        rows = self._resolve_query(query.node, dict(query.views))
        read = [item.source.namespace for item in rows]
        twice = next((name for name in read if read.count(name) > 1), "")
        if twice:
            raise StepRefused(
                f"step {self._step}: the table {twice} is read twice: one change would become two of one key, and which "
                "one is later could not be known. Write one SELECT with OR or CASE, or two INSERT INTO different tables"
            )
        return rows

    def _resolve_query(self, node: exp.Expr, scope: Mapping[str, exp.Expr]) -> list[QueryRows]:
        inner = dict(scope)
        for cte in getattr(node, "ctes", []):
            inner[cte.alias.lower()] = cte.this
        if isinstance(node, exp.Union):
            left, right = self._resolve_query(node.this, inner), self._resolve_query(node.expression, inner)
            if left and right and len(left[0].names) != len(right[0].names):
                raise StepRefused(
                    f"step {self._step}: UNION ALL of {len(left[0].names)} and {len(right[0].names)} columns: list the "
                    "same columns in both"
                )
            if not right:
                return left
            names = left[0].names if left else tuple(node.this.named_selects)
            if len(names) != len(right[0].names) or "*" in names or "" in names:
                raise StepRefused(
                    f"step {self._step}: the first SELECT of UNION ALL names the columns, and its table has not been seen "
                    "yet: list the columns there instead of *, each with a name"
                )
            return [*left, *(replace(item, names=names) for item in right)]
        if isinstance(node, exp.Subquery):
            return self._resolve_query(node.this, inner)
        if isinstance(node, exp.Select):
            return self._resolve_select(node, inner)
        raise StepRefused(f"step {self._step}: `{text_of(node)[:60]}` is not a SELECT")

    def _resolve_select(self, node: exp.Select, scope: Mapping[str, exp.Expr]) -> list[QueryRows]:
        clause = node.args.get("from_") or node.args.get("from")
        if clause is None:
            raise StepRefused(f"step {self._step}: `{text_of(node)[:60]}` reads no table: add FROM")
        relation = clause.this
        prefixes = {relation.alias.lower()} if relation.alias else set()
        if isinstance(relation, exp.Subquery):
            sources = self._resolve_query(relation.this, scope)
        else:
            name = table_name(relation)
            if not prefixes:
                prefixes = {name.lower(), relation.name.lower()}
            if name.lower() in scope:
                outer_scope = {key: value for key, value in scope.items() if key != name.lower()}
                sources = self._resolve_query(scope[name.lower()], outer_scope)
            else:
                table = self._lookup(name)
                sources = [rows_of(table)] if table is not None else []
        return [select_rows(self._step, node, rows, prefixes) for rows in sources]


def select_rows(step: str, node: exp.Select, rows: QueryRows, prefixes: set[str]) -> QueryRows:
    """The rows of one SELECT over ``rows``.

    Args:
        step: its name, for messages.
        node: the SELECT.
        rows: of its FROM.
        prefixes: what may stand before a column's name, in lower case.

    Raises:
        StepRefused: a column is missing or ambiguous, or has no name; WHERE is unstable.
    """
    table = rows.source.namespace
    names: list[str] = []
    nodes: list[exp.Expr] = []

    def bound(expression: exp.Expr, aliases: Mapping[str, exp.Expr]) -> exp.Expr:
        def substituted(part: exp.Expr) -> exp.Expr:
            return _resolve_column(step, part, rows, prefixes, aliases) if isinstance(part, exp.Column) else part

        return prepare_node(step, expression).transform(substituted)

    where = node.args.get("where")
    conditions = list(rows.conditions)
    if where is not None:
        unstable = unstable_function(where)
        if unstable:
            raise StepRefused(
                f"step {step}: {unstable}() in a condition: a row would pass at one time and not at another, and its "
                "delete might not. Compare columns with each other or with constants"
            )
        condition = where.this.unnest()
        parts = condition.flatten() if isinstance(condition, exp.And) else [condition]
        conditions += [bound(part, {}) for part in parts]
    for projection in node.expressions:
        star = projection.this if isinstance(projection, exp.Column) else projection
        if isinstance(star, exp.Star):
            left_out = {part.name.lower() for part in star.args.get("except_") or star.args.get("except") or ()}
            missing = left_out - {name.lower() for name in rows.names}
            if missing:
                raise StepRefused(f"step {step}: table {table} has no column {min(missing)}, which EXCEPT names")
            kept = [number for number, name in enumerate(rows.names) if name.lower() not in left_out]
            names += [rows.names[number] for number in kept]
            nodes += [rows.nodes[number] for number in kept]
            continue
        name = projection.alias or (projection.name if isinstance(projection, exp.Column | exp.Dot) else "")
        if not name:  # the first SELECT of a UNION ALL names the columns of all
            name = f"{_UNNAMED}{len(names)}`{text_of(projection)[:60]}`"
        aliases = dict(zip((alias.lower() for alias in names), nodes, strict=True))
        names.append(name)
        nodes.append(bound(projection.unalias(), aliases))
    folded = [name.lower() for name in names]
    twice = next((name for name in names if folded.count(name.lower()) > 1), "")
    if twice:
        raise StepRefused(
            f"step {step}: gives two columns {twice}: rename one by AS, or leave it out by * EXCEPT ({twice})"
        )
    reserved = next((name for name in names if name.lower() in SYSTEM_COLUMNS), "")
    if reserved:
        raise StepRefused(
            f"step {step}: {reserved} is the name of a system column, which every row has: write AS <name>"
        )
    return QueryRows(rows.source, tuple(names), tuple(nodes), tuple(conditions))


def prepare_node(step: str, node: exp.Expr) -> exp.Expr:
    """A copy of an expression in which columns can be replaced: units of time are no columns, fields of structs keep names.

    Raises:
        StepRefused: it has a star.
    """
    node = node.copy()
    if node.find(exp.Star) is not None:
        raise StepRefused(f"step {step}: `{text_of(node)[:60]}`: list the columns instead of *")
    for function in list(node.find_all(exp.Anonymous)):
        name, arguments = function_name(function), function.expressions
        if name == "struct":
            for argument in arguments:
                if isinstance(argument, exp.Column):
                    argument.replace(exp.alias_(argument.copy(), argument.name, quoted=True))
        elif name in _WITH_UNIT and len(arguments) == 3 and arguments[0].name.upper() in _UNITS:
            arguments[0].replace(exp.var(arguments[0].name))
    return node


def _resolve_column(
    step: str, column: exp.Column, rows: QueryRows, prefixes: set[str], aliases: Mapping[str, exp.Expr]
) -> exp.Expr:
    """The expression over the input table that a column stands for, with access to the fields of a struct."""
    parts = [part.name for part in column.parts]
    for count in range(len(parts) - 1, 0, -1):
        if ".".join(parts[:count]).lower() in prefixes:
            parts = parts[count:]
            break
    node = _lookup_column(step, parts[0], rows, aliases)
    if not isinstance(node, exp.Column | exp.Literal | exp.Paren):
        node = exp.paren(node, copy=True)
    node = node.copy()
    for field in parts[1:]:
        node = exp.Dot(this=node, expression=exp.to_identifier(field, quoted=True))
    return node


def _lookup_column(step: str, name: str, rows: QueryRows, aliases: Mapping[str, exp.Expr]) -> exp.Expr:
    if name in rows.names:
        return rows.nodes[rows.names.index(name)]
    candidates = [number for number, column_name in enumerate(rows.names) if column_name.lower() == name.lower()]
    table = rows.source.namespace
    if len(candidates) > 1:
        listed = ", ".join(rows.names[number] for number in candidates)
        raise StepRefused(
            f"step {step}: column {name} of table {table} may be each of {listed}: write it as it is there"
        )
    if candidates:
        return rows.nodes[candidates[0]]
    if name.lower() in aliases:
        return aliases[name.lower()]
    if name.lower() in SYSTEM_COLUMNS:
        return exp.column(name.lower())
    close = difflib.get_close_matches(name, rows.names, 1, 0.6)
    hint = f"; did you mean {close[0]}?" if close else ""
    shown = ", ".join(rows.names[:_MOST_SHOWN]) + (", ..." if len(rows.names) > _MOST_SHOWN else "")
    raise StepRefused(f"step {step}: table {table} has no column {name}{hint}. It has {shown}".replace("?.", "?"))


def plan_expression(node: exp.Expr, source: TableSchema) -> Expression:
    """A resolved node as the plan holds it."""
    read = [part.name for part in node.find_all(exp.Column)]
    table_columns = [name for name in read if name not in SYSTEM_COLUMNS]
    columns = tuple(dict.fromkeys(source.columns[int(name[1:])].name for name in table_columns))
    bare = node.unnest()
    direct = columns[0] if isinstance(bare, exp.Column) and table_columns else ""
    named = node.copy().transform(
        lambda part: (
            exp.column(source.columns[int(part.name[1:])].name)
            if isinstance(part, exp.Column) and part.name not in SYSTEM_COLUMNS
            else part
        )
    )
    return Expression(
        text_of(node), columns, len(table_columns) < len(read), direct, unstable_function(node), text_of(named.unnest())
    )


def branch_of(rows: QueryRows) -> Branch:
    """Resolved rows as the plan holds them."""
    return Branch(
        rows.source,
        tuple(plan_expression(node, rows.source) for node in rows.nodes),
        tuple(plan_expression(node, rows.source) for node in rows.conditions),
    )


def output_of(
    step: str,
    namespace: str,
    names: Sequence[str],
    branches: Sequence[Branch],
    key: Sequence[str],
    *,
    before_rows: bool,
) -> OutputTable:
    """The output table with its key, key columns first.

    Args:
        step: its name, for messages.
        namespace: of the table.
        names: of its columns.
        branches: one per input table, at least one.
        key: the columns that the option ``key`` names; empty: the input's key, which must be among the columns.
        before_rows: whether the source gives the row before an update (``source.before.rows``).

    Raises:
        StepRefused: the key is not among the columns, or can't be known for a delete.
    """
    unnamed = next((name for name in names if name.startswith(_UNNAMED)), "")
    if unnamed:
        raise StepRefused(f"step {step}: {unnamed[unnamed.index('`') :]} has no name: write AS <column>")
    chosen = _named_key(step, names, key) if key else _kept_key(step, namespace, names, branches)
    movable = False
    for branch in branches:
        input_key = frozenset(column.name for column in branch.source.key)
        for number in chosen:
            part = branch.columns[number]
            if part.unstable:
                raise StepRefused(
                    f"step {step}: column {names[number]} is of the key and calls {part.unstable}(), which gives another "
                    "value each time: take columns of the table"
                )
            if part.reads_only(input_key):
                continue
            if branch.is_volatile(part):
                raise StepRefused(
                    f"step {step}: column {names[number]} is of the key of {namespace} and reads `{part.text}`, which an "
                    f"earlier step looks up: a delete does not have it, so the row to delete would not be known. Take columns "
                    f"that table {branch.source.namespace} has itself"
                )
            if not before_rows:
                raise StepRefused(
                    f"step {step}: column {names[number]} is of the key of {namespace} and reads `{part.text}`, which is "
                    f"not in the key of table {branch.source.namespace}: a delete may hold only the key, so the row to "
                    "delete would not be known. Take columns of the table's key, or set source.before.rows=true and have "
                    "the source send whole rows before a change"
                )
            movable = True
    order = [*chosen, *(number for number in range(len(names)) if number not in chosen)]
    return OutputTable(
        namespace,
        tuple(names[number] for number in order),
        len(chosen),
        tuple(replace(branch, columns=tuple(branch.columns[number] for number in order)) for branch in branches),
        movable,
    )


def _named_key(step: str, names: Sequence[str], key: Sequence[str]) -> list[int]:
    missing = [name for name in key if name not in names]
    if missing:
        raise StepRefused(
            f"step {step}: key names the column {missing[0]}, which is not in its output: {', '.join(names)}"
        )
    return [names.index(name) for name in key]


def _kept_key(step: str, namespace: str, names: Sequence[str], branches: Sequence[Branch]) -> list[int]:
    """The positions of the input's key columns; the same for every branch."""
    chosen: list[int] = []
    for branch in branches:
        positions = []
        for column in branch.source.key:
            position = next((n for n, part in enumerate(branch.columns) if part.direct == column.name), None)
            if position is None:
                raise StepRefused(
                    f"step {step}: column {column.name} is of the key of table {branch.source.namespace} and is not in "
                    f"the output {namespace}: without it no update and no delete finds its row. Add {column.name}, or "
                    f"name the columns that tell rows apart in transform.step.{step}.key"
                )
            positions.append(position)
        if branch is not branches[0] and positions != chosen:
            raise StepRefused(
                f"step {step}: the tables {branches[0].source.namespace} and {branch.source.namespace} have other keys "
                f"({_list_names(names, chosen)}; {_list_names(names, positions)}): put their key columns in the same "
                "positions, or "
                f"name the columns that tell rows apart in transform.step.{step}.key"
            )
        chosen = positions
    return chosen


def _list_names(names: Sequence[str], positions: Sequence[int]) -> str:
    return ", ".join(names[number] for number in positions) or "no key"


def lookup_in(step: str, tables: Sequence[TableSchema]) -> Callable[[str], TableSchema | None]:
    """The lookup of tables by the names that SQL may use."""
    return lambda name: find_table(step, name, tables)
