"""The SELECT of a view: checked without tables, then resolved against them. Pure.

A view reads one base table (the first of FROM) and joins others to it by INNER and LEFT joins. So every row of the joined
tables belongs to one row of the base table: a change of any table changes only what belongs to base rows that it joins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import types as t
from sqlglot import exp

from spark_jobs.contract import SYSTEM_COLUMNS
from spark_jobs.steps.planning.dialect import (
    AGGREGATES,
    GENERATORS,
    function_name,
    parse_statements,
    text_of,
    unstable_function,
)
from spark_jobs.steps.planning.model import Branch, Expression, OutputTable, StepRefused
from spark_jobs.steps.planning.resolve import prepare_node, table_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spark_jobs.contract import TableSchema

MOST_TABLES: Final = 5
#: Aggregates whose result does not depend on the order of rows (those that make arrays: once the array is sorted).
ALLOWED: Final = frozenset(["count", "sum", "min", "max", "avg", "mean", "collect_list", "collect_set"])
_COLUMN: Final = re.compile(r"\bt(\d+)_c(\d+)\b")
_LITERAL: Final = re.compile(r"'(?:[^'\\]|\\.|'')*'")
_SORTED: Final = frozenset(["collect_list", "collect_set"])
_BEFORE: Final = "put it into a step of type sql before the view, which reads that step's output"
_CLAUSES: Final = {
    "laterals": ("LATERAL VIEW", "keep the array, or pick items from it by [n] or filter()"),
    "qualify": ("QUALIFY", "use GROUP BY with min() or max()"),
    "windows": ("WINDOW", "use GROUP BY with an aggregate"),
    "distinct": ("DISTINCT", "GROUP BY the columns, which are the key then"),
    "order": ("ORDER BY", "remove it: the rows of a view are distinguished by their key and have no order"),
    "sort": ("SORT BY", "remove it: the rows of a view have no order"),
    "cluster": ("CLUSTER BY", "remove it: the rows of a view have no order"),
    "distribute": ("DISTRIBUTE BY", "remove it: the rows of a view have no order"),
    "limit": ("LIMIT", "use WHERE"),
    "offset": ("OFFSET", "use WHERE"),
    "pivots": ("PIVOT", "use aggregates with FILTER (WHERE ...)"),
    "sample": ("TABLESAMPLE", "use WHERE with a condition on key columns, such as hash(id) % 10 = 0"),
    "with_": ("WITH", _BEFORE),
    "with": ("WITH", _BEFORE),
}
_NODES: Final[Sequence[tuple[type[exp.Expr], str, str]]] = (
    (exp.Subquery, "a subquery", _BEFORE),
    (exp.Exists, "EXISTS (SELECT ...)", "join the table"),
    (exp.Window, "a window function", "use GROUP BY with an aggregate, in a view of its own that this one joins"),
    (exp.Values, "VALUES", "read a table"),
    (exp.Unnest, "UNNEST", "keep the array"),
    (exp.Lateral, "LATERAL", "keep the array"),
)


@dataclass(frozen=True, slots=True)
class ViewSource:
    """One table of FROM.

    Attributes:
        schema: of the table.
        left: whether it is joined by LEFT JOIN.
        on: SQL of its whole join condition; empty for the base table.
        parent: the number of the earlier table that the equalities below refer to.
        pairs: equalities of the join condition as SQL: over the earlier table ``parent``, and over this table.
    """

    schema: TableSchema
    left: bool = False
    on: str = ""
    parent: int = 0
    pairs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ViewQuery:
    """A resolved SELECT. Its SQL is over the columns ``t<table>_c<column>`` of the joined tables.

    Attributes:
        sources: the tables in order; the first is the base table.
        names: of the output columns, key columns first.
        columns: SQL of each.
        key: how many columns are the key.
        where: SQL; empty for none.
        group: SQL of what rows are grouped by; empty without GROUP BY.
        having: SQL; empty for none.
        direct: for each output column the table and the column that it is, where it is nothing else.
        read: the columns of each table that the SELECT reads.
        originals: the output columns as the user wrote them.
    """

    sources: tuple[ViewSource, ...]
    names: tuple[str, ...]
    columns: tuple[str, ...]
    key: int
    where: str
    group: tuple[str, ...]
    having: str
    direct: tuple[tuple[int, int] | None, ...]
    read: tuple[frozenset[int], ...]
    originals: tuple[str, ...]

    @property
    def grouped(self) -> bool:
        """Whether rows are grouped; else every output row is of one row of the base table."""
        return bool(self.group)

    def output(self, namespace: str) -> OutputTable:
        """The output table for the plan and the lineage: a branch for each table, with the columns that it reads of it."""
        branches = []
        for number, source in enumerate(self.sources):
            columns = []
            for sql, direct, original_sql in zip(self.columns, self.direct, self.originals, strict=True):
                names = tuple(source.schema.columns[column].name for column in sorted(_read_of(sql, number)))
                is_own = direct is not None and direct[0] == number
                shown = original_sql if direct is None and (names or (number == 0 and not _tables_of(sql))) else ""
                columns.append(Expression(sql, names, direct=names[0] if is_own else "", text=shown))
            conditions = (Expression(self.where, text=self.where),) if self.where and number == 0 else ()
            branches.append(Branch(source.schema, tuple(columns), conditions))
        return OutputTable(namespace, self.names, self.key, tuple(branches))


def parse_view(step: str, sql: str) -> exp.Select:
    """The SELECT of a view, checked as far as that goes without its tables.

    Raises:
        StepRefused: names the step, the construct and what to use instead.
    """
    statements = parse_statements(step, sql)
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        raise StepRefused(
            f"step {step}: a view is one SELECT: make a view of each SELECT, and combine their tables by a step of type union"
        )
    select = statements[0]
    for construct, where, fix in _find_refusals(select):
        node_sql = text_of(where)
        shown = node_sql if len(node_sql) <= 80 else node_sql[:79] + "…"
        raise StepRefused(f"step {step}: a view can't have {construct} (in `{shown}`). Instead, {fix}")
    return select


def names_read(select: exp.Select) -> list[str]:
    """The names of its tables, in order."""
    return [table_name(relation) for relation in _list_relations(select)]


def _list_relations(select: exp.Select) -> list[exp.Table]:
    clause = select.args.get("from_") or select.args.get("from")
    return [clause.this, *(join.this for join in select.args.get("joins") or ())] if clause is not None else []


def _find_refusals(select: exp.Select) -> Iterator[tuple[str, exp.Expr, str]]:
    for node in select.walk():
        if isinstance(node, exp.Select | exp.Table):
            yield from ((name, node, fix) for clause, (name, fix) in _CLAUSES.items() if node.args.get(clause))
        yield from ((name, node, fix) for kind, name, fix in _NODES if isinstance(node, kind))
        name = function_name(node)
        if isinstance(node, exp.In) and node.args.get("query"):
            yield "IN (SELECT ...)", node, "join the table"
        elif (name in AGGREGATES and name not in ALLOWED) or isinstance(node, exp.AggFunc):
            yield f"the aggregate {name or type(node).__name__.lower()}()", node, f"use {', '.join(sorted(ALLOWED))}"
        elif name in GENERATORS:
            yield f"{name}()", node, "keep the array, or pick items from it by [n] or filter()"
    if unstable := unstable_function(select):
        yield (
            f"{unstable}(), whose result differs from call to call",
            select,
            "compare with columns of the tables, such as the time of the last change",
        )
    relations = _list_relations(select)
    if not relations:
        yield "no table", select, "add FROM"
    if len(relations) > MOST_TABLES:
        fix = f"join at most {MOST_TABLES} in one view, and join its output in the next"
        yield f"{len(relations)} tables", select, fix
    for join in select.args.get("joins") or ():
        yield from _join_refusals(join)
    group = select.args.get("group")
    if group is not None and (not group.expressions or any(not _is_plain(part) for part in group.expressions)):
        yield "this GROUP BY", group, "list the columns and expressions, each of which is in the SELECT too"
    if group is None:
        if matches := next((node for node in select.walk() if function_name(node) in ALLOWED), None):
            yield "an aggregate without GROUP BY", matches, "GROUP BY a column, which is the key then"
        if select.args.get("having"):
            yield "HAVING without GROUP BY", select, "use WHERE"


def _is_plain(part: exp.Expr) -> bool:
    return not isinstance(part, exp.Literal | exp.Rollup | exp.Cube | exp.GroupingSets)


def _join_refusals(join: exp.Join) -> Iterator[tuple[str, exp.Expr, str]]:
    side, kind = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
    method = str(join.args.get("method") or "").upper()
    if not isinstance(join.this, exp.Table):
        return  # a subquery, refused as such
    if side == "RIGHT":
        yield "RIGHT JOIN", join, "begin FROM with the other table, and write LEFT JOIN"
    elif side == "FULL":
        yield "FULL JOIN", join, "combine the keys of both tables by a step of type union, and LEFT JOIN both to it"
    elif kind in ("SEMI", "ANTI"):
        fix = "write JOIN" if kind == "SEMI" else "write LEFT JOIN, and in WHERE that its key IS NULL"
        yield f"{kind} JOIN", join, fix
    elif method or join.args.get("using") or kind == "CROSS" or join.args.get("on") is None:
        name = "USING" if join.args.get("using") else f"{method or 'CROSS'} JOIN"
        yield name, join, "write JOIN <table> ON <column> = <column>"


class ViewResolver:
    """Resolves a SELECT against the tables that it reads.

    Args:
        step: its name, for messages.
        select: from ``parse_view``.
        tables: of FROM, in order.
    """

    def __init__(self, step: str, select: exp.Select, tables: Sequence[TableSchema]) -> None:
        self._step = step
        self._select = select
        self._tables = tables
        self._prefixes: list[set[str]] = []
        for relation, table in zip(_list_relations(select), tables, strict=True):
            if not table.key:
                raise StepRefused(
                    f"step {step}: table {table.namespace} has no key, so no update and no delete finds its row: name its "
                    "key (source.key.columns)"
                )
            name = table_name(relation).lower()
            self._prefixes.append({relation.alias.lower()} if relation.alias else {name, relation.name.lower()})
        everywhere = [prefix for prefixes in self._prefixes for prefix in prefixes]
        if twice := next((prefix for prefix in everywhere if everywhere.count(prefix) > 1), ""):
            raise StepRefused(f"step {step}: two tables are called {twice}: give each another name by AS")

    def resolve(self, key: Sequence[str]) -> ViewQuery:
        """The query with its key.

        Raises:
            StepRefused: a column or join does not fit, or the key does not tell the rows apart.
        """
        sources = [ViewSource(self._tables[0])]
        joins = self._select.args.get("joins") or ()
        conditions: list[exp.Expr] = []
        for number, join in enumerate(joins, start=1):
            on = self._bind_node(join.args["on"], upto=number)
            left = str(join.args.get("side") or "").upper() == "LEFT"
            sources.append(self._resolve_source(number, on, left=left))
            conditions.append(on)
        names, nodes, originals = self._resolve_projections()
        aliases = dict(zip((name.lower() for name in names), nodes, strict=True))
        group_clause, having = self._select.args.get("group"), self._select.args.get("having")
        group = (
            [self._bind_node(part, aliases) for part in group_clause.expressions] if group_clause is not None else []
        )
        where_clause = self._select.args.get("where")
        where = self._bind_node(where_clause.this) if where_clause is not None else None
        bound_having = self._bind_node(having.this, aliases) if having is not None else None
        chosen = self._key_positions(names, key)
        order = [*chosen, *(number for number in range(len(names)) if number not in chosen)]
        columns = [text_of(nodes[number]) for number in order]
        direct = tuple(_find_direct_column(nodes[number]) for number in order)
        if group:
            self._check_group(
                [names[number] for number in order], columns, [text_of(part) for part in group], len(chosen)
            )
        else:
            self._check_rows([direct[number] for number in range(len(chosen))], sources, conditions, where)
        everything = [*nodes, *conditions, *group, *(part for part in (where, bound_having) if part is not None)]
        read = tuple(
            frozenset(column for node in everything for column in _read_of(text_of(node), number))
            | {position for position, column in enumerate(source.schema.columns) if column.key}
            for number, source in enumerate(sources)
        )
        return ViewQuery(
            tuple(sources),
            tuple(names[number] for number in order),
            tuple(columns),
            len(chosen),
            "" if where is None else text_of(where),
            tuple(text_of(part) for part in group),
            "" if bound_having is None else text_of(bound_having),
            direct,
            read,
            tuple(originals[number] for number in order),
        )

    def _resolve_source(self, number: int, on: exp.Expr, *, left: bool) -> ViewSource:
        table = self._tables[number]
        matches: dict[int, list[tuple[str, str]]] = {}
        for part in _split_conjuncts(on):
            if not isinstance(part, exp.EQ):
                continue
            for first, second in ((part.this, part.expression), (part.expression, part.this)):
                earlier = _tables_of(text_of(first))
                if _tables_of(text_of(second)) == {number} and len(earlier) == 1 and earlier != {number}:
                    matches.setdefault(min(earlier), []).append((text_of(first), text_of(second)))
        if not matches:
            condition = text_of(self._select.args["joins"][number - 1].args["on"])
            raise StepRefused(
                f"step {self._step}: a view can't join {table.namespace} ON `{condition}`, which has no equality of an earlier "
                f"table and {table.namespace}. Instead, write ON <column of an earlier table> = "
                "<column of this table>, with further conditions by AND"
            )
        parent = min(matches)
        return ViewSource(table, left, text_of(on), parent, tuple(matches[parent]))

    def _resolve_projections(self) -> tuple[list[str], list[exp.Expr], list[str]]:
        names: list[str] = []
        nodes: list[exp.Expr] = []
        originals: list[str] = []
        for projection in self._select.expressions:
            star = projection.this if isinstance(projection, exp.Column) else projection
            if isinstance(star, exp.Star):
                prefix = projection.table.lower() if isinstance(projection, exp.Column) else ""
                for number, table in enumerate(self._tables):
                    if not prefix or prefix in self._prefixes[number]:
                        names += [column.name for column in table.columns]
                        nodes += [_make_column_node(number, position) for position in range(len(table.columns))]
                        originals += [column.name for column in table.columns]
                continue
            name = projection.alias or (projection.name if isinstance(projection, exp.Column | exp.Dot) else "")
            if not name:
                raise StepRefused(f"step {self._step}: `{text_of(projection)[:60]}` has no name: write AS <column>")
            names.append(name)
            nodes.append(self._bind_node(projection.unalias()))
            originals.append(text_of(projection.unalias()))
        folded = [name.lower() for name in names]
        if twice := next((name for name in names if folded.count(name.lower()) > 1), ""):
            raise StepRefused(f"step {self._step}: gives two columns {twice}: rename one by AS")
        if reserved := next((name for name in names if name.lower() in SYSTEM_COLUMNS), ""):
            raise StepRefused(
                f"step {self._step}: {reserved} is the name of a system column, which every row has: write AS <name>"
            )
        return names, nodes, originals

    def _bind_node(
        self, node: exp.Expr, aliases: Mapping[str, exp.Expr] | None = None, upto: int | None = None
    ) -> exp.Expr:
        """A copy over the columns of the joined tables; aggregates that make arrays sort them."""
        node = node.copy()
        for function in list(node.find_all(exp.Anonymous)):
            if function_name(function) == "count" and any(
                isinstance(entry, exp.Star) for entry in function.expressions
            ):
                function.set("expressions", [exp.Literal.number(1)])

        def replaced(part: exp.Expr) -> exp.Expr:
            return self._resolve_column(part, aliases or {}, upto) if isinstance(part, exp.Column) else part

        node = prepare_node(self._step, node).transform(replaced)
        for function in [entry for entry in node.find_all(exp.Anonymous) if function_name(entry) in _SORTED]:
            whole = function.parent if isinstance(function.parent, exp.Filter) else function
            sorted_ = exp.Anonymous(this="array_sort", expressions=[whole.copy()])
            if whole is node:
                node = sorted_
            else:
                whole.replace(sorted_)
        return node

    def _resolve_column(self, column: exp.Column, aliases: Mapping[str, exp.Expr], upto: int | None) -> exp.Expr:
        parts = [part.name for part in column.parts]
        last = len(self._tables) if upto is None else upto + 1
        tables = range(last)
        for count in range(len(parts) - 1, 0, -1):
            prefix = ".".join(parts[:count]).lower()
            named = [number for number in range(len(self._tables)) if prefix in self._prefixes[number]]
            if named and named[0] >= last:
                raise StepRefused(
                    f"step {self._step}: `{text_of(column)}` in ON is of a table that is joined later: change the order"
                )
            if named:
                tables, parts = range(named[0], named[0] + 1), parts[count:]
                break
        matches = self._find_positions(parts[0], tables)
        if len(matches) > 1:
            listed = ", ".join(self._tables[number].namespace for number, _ in matches)
            raise StepRefused(
                f"step {self._step}: column {parts[0]} may be of each of {listed}: write its table before it"
            )
        if not matches and parts[0].lower() in aliases and len(parts) == 1:
            return aliases[parts[0].lower()].copy()
        if not matches:
            listed = "; ".join(
                f"{self._tables[number].namespace} has {', '.join(entry.name for entry in self._tables[number].columns[:12])}"
                for number in tables
            )
            raise StepRefused(f"step {self._step}: no table has the column {text_of(column)}. {listed}")
        node: exp.Expr = _make_column_node(*matches[0])
        for name in parts[1:]:
            node = exp.Dot(this=node, expression=exp.to_identifier(name, quoted=True))
        return node

    def _find_positions(self, name: str, tables: Sequence[int]) -> list[tuple[int, int]]:
        for fold in (str, str.lower):
            matches = [
                (number, position)
                for number in tables
                for position, column in enumerate(self._tables[number].columns)
                if fold(column.name) == fold(name)
            ]
            if matches:
                return matches
        return []

    # The key.

    def _key_positions(self, names: Sequence[str], key: Sequence[str]) -> list[int]:
        folded = [name.lower() for name in names]
        for name in key:
            if name.lower() not in folded:
                raise StepRefused(
                    f"step {self._step}: key names the column {name}, which is not in its output: {', '.join(names)}"
                )
        return [folded.index(name.lower()) for name in dict.fromkeys(key)]

    def _check_group(self, names: Sequence[str], columns: Sequence[str], group: Sequence[str], key: int) -> None:
        in_key = set(columns[:key])
        if missing := next((part for part in group if part not in in_key), ""):
            shown = self._show_sql(missing)
            raise StepRefused(
                f"step {self._step}: `{shown}` is in GROUP BY and not in the key ({', '.join(names[:key])}), so several rows "
                f"would have one key: add it to the SELECT and to transform.step.{self._step}.key"
            )
        if surplus := next((name for name, part in zip(names[:key], columns, strict=False) if part not in group), ""):
            raise StepRefused(
                f"step {self._step}: the key column {surplus} is not in GROUP BY, so it may change while the row stays the "
                f"same: the key of a view with GROUP BY is what it groups by"
            )

    def _check_rows(
        self,
        key: Sequence[tuple[int, int] | None],
        sources: Sequence[ViewSource],
        conditions: Sequence[exp.Expr],
        where: exp.Expr | None,
    ) -> None:
        """Refuse a key that does not determine the row of every table: by the equalities of the joins."""
        determined = {position for position in key if position is not None}
        for number, _ in determined:
            if sources[number].left:
                raise StepRefused(
                    f"step {self._step}: a key column is of {sources[number].schema.namespace}, which is joined by LEFT JOIN, "
                    "so the key may be null: take key columns of the first table, or write JOIN"
                )
        rules: list[tuple[tuple[int, int], tuple[int, int]]] = []
        for number, on in enumerate([*conditions, *([] if where is None else [where])], start=1):
            both = number > len(conditions) or not sources[number].left
            rules += _find_implied_columns(on, sources, None if both else number)
        while True:
            whole = {
                (number, position)
                for number, source in enumerate(sources)
                if all((number, at) in determined for at, column in enumerate(source.schema.columns) if column.key)
                for position in range(len(source.schema.columns))
            }
            implied = (whole | {to for start, to in rules if start in determined or start in whole}) - determined
            if not implied:
                break
            determined |= implied
        for number, source in enumerate(sources):
            missing = [
                column.name
                for position, column in enumerate(source.schema.columns)
                if column.key and (number, position) not in determined
            ]
            if missing:
                raise StepRefused(
                    f"step {self._step}: the key does not tell the rows of the view apart: one key may have several rows of "
                    f"{source.schema.namespace}. Add its key ({', '.join(missing)}) to the SELECT and to "
                    f"transform.step.{self._step}.key, or GROUP BY the key"
                )

    def _show_sql(self, sql: str) -> str:
        for number, table in enumerate(self._tables):
            for position in reversed(range(len(table.columns))):
                sql = sql.replace(f"t{number}_c{position}", table.columns[position].name)
        return sql


def _find_implied_columns(
    condition: exp.Expr, sources: Sequence[ViewSource], only: int | None
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Equalities of columns of one type: a known first column makes the second one known.

    Args:
        condition: of a join, or of WHERE.
        sources: the tables.
        only: a table that is joined by LEFT JOIN: the equality says something about its columns alone.
    """
    rules = []
    for part in _split_conjuncts(condition):
        if not isinstance(part, exp.EQ):
            continue
        first, second = _find_direct_column(part.this), _find_direct_column(part.expression)
        if first is None or second is None:
            continue
        kinds = [sources[number].schema.columns[position].type for number, position in (first, second)]
        if kinds[0] != kinds[1] and not all(isinstance(kind, t.IntegralType) for kind in kinds):
            continue  # values that are equal after a cast need not be the same
        rules += [(start, to) for start, to in ((first, second), (second, first)) if only is None or to[0] == only]
    return rules


def _split_conjuncts(node: exp.Expr) -> list[exp.Expr]:
    node = node.unnest()
    if isinstance(node, exp.And):
        return [part for side in (node.this, node.expression) for part in _split_conjuncts(side)]
    return [node]


def _make_column_node(table: int, position: int) -> exp.Column:
    return exp.column(column_name(table, position))


def column_name(table: int, position: int) -> str:
    """The name of a column of the joined tables."""
    return f"t{table}_c{position}"


def _find_direct_column(node: exp.Expr) -> tuple[int, int] | None:
    bare = node.unnest()
    if not isinstance(bare, exp.Column) or len(bare.parts) != 1:
        return None
    table, _, position = bare.name.partition("_c")
    return int(table[1:]), int(position)


def _columns_in(sql: str) -> set[tuple[int, int]]:
    bare = _LITERAL.sub("''", sql)
    return {(int(table), int(position)) for table, position in _COLUMN.findall(bare)}


def _read_of(sql: str, table: int) -> set[int]:
    return {position for number, position in _columns_in(sql) if number == table}


def _tables_of(sql: str) -> set[int]:
    return {number for number, _ in _columns_in(sql)}


def direct_column(sql: str) -> tuple[int, int] | None:
    """The table and the column that an expression is, where it is nothing else."""
    matches = _COLUMN.fullmatch(sql)
    return None if matches is None else (int(matches[1]), int(matches[2]))
