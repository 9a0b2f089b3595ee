"""Spark SQL as steps read it: parsed by sqlglot, functions kept as written, constructs that can't carry changes refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from spark_jobs.steps.planning.model import StepRefused

if TYPE_CHECKING:
    from collections.abc import Iterator


class StepSql(Spark):
    """Spark's dialect without translation: a function stays the function that the user wrote."""

    class Tokenizer(Spark.Tokenizer):
        """Spark 4 reads two quotes within a string as one."""

        STRING_ESCAPES: ClassVar[list[str]] = ["'", '"', "\\"]

    class Parser(Spark.Parser):  # type: ignore[misc,valid-type]  # sqlglot assigns it
        """Keep the names and the arguments of functions."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}


_LATER: Final = "let the sink's database compute it from the table that the job writes"
_AGGREGATE: Final = (
    "use a step of type view, which keeps aggregates of changing tables right, or window for inserts by time"
)
_JOIN: Final = (
    "use a step of type view for tables that change, join for inserts within a range of time, or lookup for columns of "
    "another system"
)
#: Functions that make one row of several.
AGGREGATES: Final = frozenset(
    [
        "any",
        "any_value",
        "approx_count_distinct",
        "approx_percentile",
        "array_agg",
        "avg",
        "bit_and",
        "bit_or",
        "bit_xor",
        "bool_and",
        "bool_or",
        "collect_list",
        "collect_set",
        "corr",
        "count",
        "count_if",
        "count_min_sketch",
        "covar_pop",
        "covar_samp",
        "every",
        "first",
        "first_value",
        "grouping",
        "grouping_id",
        "histogram_numeric",
        "hll_sketch_agg",
        "kurtosis",
        "last",
        "last_value",
        "listagg",
        "max",
        "max_by",
        "mean",
        "median",
        "min",
        "min_by",
        "mode",
        "percentile",
        "percentile_approx",
        "percentile_cont",
        "percentile_disc",
        "regr_avgx",
        "regr_avgy",
        "regr_count",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
        "schema_of_variant_agg",
        "skewness",
        "some",
        "std",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "string_agg",
        "sum",
        "try_avg",
        "try_sum",
        "var_pop",
        "var_samp",
        "variance",
        "bitmap_construct_agg",
        "bitmap_or_agg",
    ]
)
#: Functions that make several rows of one.
GENERATORS: Final = frozenset(
    [
        "explode",
        "explode_outer",
        "posexplode",
        "posexplode_outer",
        "inline",
        "inline_outer",
        "stack",
        "json_tuple",
        "variant_explode",
        "variant_explode_outer",
    ]
)
#: Functions whose result differs from call to call.
UNSTABLE: Final = frozenset(
    [
        "rand",
        "random",
        "randn",
        "randstr",
        "uniform",
        "uuid",
        "shuffle",
        "monotonically_increasing_id",
        "spark_partition_id",
        "input_file_name",
        "now",
        "current_timestamp",
        "current_date",
        "curdate",
        "localtimestamp",
        "current_time",
        "unix_timestamp_now",
    ]
)
_UNSTABLE_NODES: Final = {
    "CurrentTimestamp": "current_timestamp",
    "CurrentDate": "current_date",
    "CurrentTime": "current_time",
    "Localtimestamp": "localtimestamp",
    "Rand": "rand",
    "Uuid": "uuid",
}
_CLAUSES: Final = {
    "joins": ("JOIN", _JOIN),
    "laterals": ("LATERAL VIEW", "a row must stay one row: keep the array, or pick items from it by [n] or filter()"),
    "group": ("GROUP BY", _AGGREGATE),
    "having": ("HAVING", _AGGREGATE),
    "qualify": ("QUALIFY", _LATER),
    "windows": ("WINDOW", _LATER),
    "distinct": ("DISTINCT", "remove it (rows with a key are distinct), or use a step of type deduplicate"),
    "order": ("ORDER BY", "remove it: changes keep the order in which they were made"),
    "sort": ("SORT BY", "remove it: changes keep the order in which they were made"),
    "cluster": ("CLUSTER BY", "remove it: changes keep the order in which they were made"),
    "distribute": ("DISTRIBUTE BY", "remove it: changes of one key must stay together"),
    "limit": ("LIMIT", "use WHERE"),
    "offset": ("OFFSET", "use WHERE"),
    "pivots": ("PIVOT", _LATER),
    "sample": ("TABLESAMPLE", "use WHERE with a condition on key columns, such as hash(id) % 10 = 0"),
}


def parse_statements(step: str, sql: str) -> list[exp.Expr]:
    """The statements of ``sql``.

    Raises:
        StepRefused: it is not SQL.
    """
    try:
        statements = sqlglot.parse(sql, read=StepSql)
    except SqlglotError as error:
        errors = getattr(error, "errors", None)
        detail = errors[0] if errors else {}
        where = f" (line {detail['line']}, column {detail['col']})" if detail.get("line") else ""
        description = str(detail.get("description") or str(error).splitlines()[0])
        if "<class" in description:  # it names the parser's own class
            description = "an operator or a function lacks an operand"
        raise StepRefused(f"step {step}: is not Spark SQL{where}: {description}") from None
    return [statement for statement in statements if statement is not None]


def text_of(node: exp.Expr) -> str:
    """The SQL of a node."""
    return str(node.sql(dialect=StepSql, normalize_functions=False, comments=False))


def check_query(step: str, query: exp.Expr) -> None:
    """Refuse what can't carry changes, wherever it is in ``query``.

    Raises:
        StepRefused: names the step, the construct and the fix.
    """
    for construct, where, fix in _find_refusals(query):
        raise StepRefused(
            f"step {step}: {construct} in `{_shorten_sql(where)}` can't carry changes: a later update or delete of a row "
            f"would not reach what was made of it. Instead, {fix}"
        )


def _find_refusals(query: exp.Expr) -> Iterator[tuple[str, exp.Expr, str]]:
    for node in query.walk():
        if isinstance(node, exp.Select | exp.Table | exp.Subquery | exp.Union):
            yield from (
                (name, node, fix)
                for clause, (name, fix) in _CLAUSES.items()
                if node.args.get(clause) and not (clause == "distinct" and isinstance(node, exp.Union))
            )
        if isinstance(node, exp.Union) and node.args.get("distinct"):
            yield "UNION", node, "write UNION ALL"
        elif isinstance(node, exp.Except | exp.Intersect):
            yield type(node).__name__.upper(), node, "use WHERE"
        elif isinstance(node, exp.Window):
            yield "a window function", node, _LATER
        elif isinstance(node, exp.Values | exp.Unnest | exp.Lateral):
            yield type(node).__name__.upper(), node, "read a table"
        elif isinstance(node, exp.Exists) and isinstance(node.this, exp.Query):
            yield "EXISTS", node, "use WHERE with columns of the same table"
        elif isinstance(node, exp.In) and node.args.get("query"):
            yield "IN (SELECT ...)", node, "list the values, or use WHERE with columns of the same table"
        elif isinstance(node, exp.Subquery) and not isinstance(node.parent, exp.From | exp.Union | exp.Subquery):
            yield "a scalar subquery", node, "use columns of the same table"
        elif isinstance(node, exp.AggFunc) or function_name(node) in AGGREGATES:
            yield f"the aggregate {function_name(node) or type(node).__name__.lower()}()", node, _AGGREGATE
        elif function_name(node) in GENERATORS:
            yield (
                f"{function_name(node)}()",
                node,
                "keep the row one row: keep the array, or pick items from it by [n] or filter()",
            )


def function_name(node: exp.Expr) -> str:
    """The lower-case name of a function that sqlglot does not know; else empty."""
    return str(node.name).lower() if isinstance(node, exp.Anonymous) else ""


def unstable_function(node: exp.Expr) -> str:
    """The first function in ``node`` whose result differs from call to call; empty for none."""
    for part in node.walk():
        name = function_name(part)
        if name in UNSTABLE:
            return name
        if type(part).__name__ in _UNSTABLE_NODES:
            return _UNSTABLE_NODES[type(part).__name__]
    return ""


def _shorten_sql(node: exp.Expr) -> str:
    sql = text_of(node)
    return sql if len(sql) <= 80 else sql[:79] + "…"
