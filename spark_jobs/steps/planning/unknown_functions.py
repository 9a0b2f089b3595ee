"""Functions in expressions of steps that Spark does not have: what a mistyped name looks like before the first row. Pure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

import sqlglot
from sqlglot import exp

from spark_jobs.steps.planning.dialect import StepSql, function_name
from spark_jobs.steps.planning.model import OutputTable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from spark_jobs.steps.planning.lineage import LineageStage
    from spark_jobs.steps.planning.model import Expression

#: Spark's functions that its Python API has no function of that name for.
_ONLY_IN_SQL: Final = frozenset(
    [
        "approx_top_k",
        "approx_top_k_accumulate",
        "approx_top_k_combine",
        "approx_top_k_estimate",
        "between",
        "bigint",
        "binary",
        "boolean",
        "date",
        "div",
        "double",
        "float",
        "from_avro",
        "from_protobuf",
        "if",
        "in",
        "int",
        "len",
        "luhn_check",
        "map",
        "measure",
        "mod",
        "not",
        "percentile_cont",
        "percentile_disc",
        "schema_of_avro",
        "smallint",
        "space",
        "string",
        "time",
        "timestamp",
        "tinyint",
        "to_avro",
        "to_protobuf",
        "vector_avg",
        "vector_cosine_similarity",
        "vector_inner_product",
        "vector_l2_distance",
        "vector_norm",
        "vector_normalize",
        "vector_sum",
    ]
)


def spark_functions() -> frozenset[str]:
    """The names of Spark's functions, in lower case, and some names more. Imports pyspark."""
    from pyspark.sql import functions

    return _ONLY_IN_SQL | {name.lower() for name in dir(functions)}


def unknown_functions(stages: Sequence[LineageStage], functions: Collection[str]) -> list[str]:
    """A sentence for each function that a step calls and neither Spark nor the flow has.

    Args:
        stages: the steps.
        functions: names of the flow's own functions, in lower case.
    """
    known_functions = spark_functions() | frozenset(functions)
    sentences: dict[str, None] = {}
    for stage in stages:
        for table, part in _iter_expressions(stage):
            for name in _find_called_functions(part):
                if name in known_functions:
                    continue
                close = difflib.get_close_matches(name, known_functions, 1, 0.75)
                hint = f" (did you mean {close[0]}?)" if close else ""
                sentences[
                    f"step {stage.step.name}, table {table}: `{part.text or part.sql}` calls {name}, which is no function of "
                    f"Spark's{hint}. Without a function of that name (transform.functions) the first row stops the flow"
                ] = None
    return list(sentences)


def _iter_expressions(stage: LineageStage) -> Iterator[tuple[str, Expression]]:
    for item in stage.planned:
        for branch in item.branches if isinstance(item, OutputTable) else ():
            for part in (*branch.conditions, *branch.columns):
                yield branch.source.namespace, part


def _find_called_functions(part: Expression) -> list[str]:
    """The functions of an expression, in lower case."""
    if not part.sql:
        return []
    tree = sqlglot.parse_one(part.sql, dialect=StepSql)
    return [function_name(node) for node in tree.find_all(exp.Anonymous)]
