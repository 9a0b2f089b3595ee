"""Steps that are one SELECT over each table: its clauses as options give them, and the tables that come out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from spark_jobs.steps.planning.dialect import check_query, parse_statements
from spark_jobs.steps.planning.model import StepRefused
from spark_jobs.steps.planning.names import names_of
from spark_jobs.steps.planning.resolve import INPUT, branch_of, output_of, rows_of, select_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.contract import TableSchema
    from spark_jobs.steps.contract import Step
    from spark_jobs.steps.planning.model import OutputTable


def parse_clauses(step: str, clauses: str) -> exp.Select:
    """The SELECT with these clauses, checked.

    Raises:
        StepRefused: it is not one plain SELECT, or can't carry changes.
    """
    statements = parse_statements(step, f"SELECT {clauses}")
    select = statements[0] if len(statements) == 1 else None
    if not isinstance(select, exp.Select) or select.ctes:
        raise StepRefused(f"step {step}: takes expressions only; write whole queries in a step of type sql")
    check_query(step, select)
    return select


def plan_select(
    step: Step, select: exp.Select, tables: Sequence[TableSchema], key: Sequence[str] = ()
) -> list[OutputTable | TableSchema]:
    """See ``Step.plan``: a table that the step does not select stays as it is.

    Args:
        step: the step.
        select: the same for each table.
        tables: the tables that are there.
        key: see ``output_of``.

    Raises:
        StepRefused: as ``select_rows`` and ``output_of``.
    """
    result: list[OutputTable | TableSchema] = []
    for table in tables:
        if not step.selects(table):
            result.append(table)
            continue
        prefixes = {INPUT, *(name.lower() for name in names_of(table.namespace))}
        rows = select_rows(step.name, select, rows_of(table), prefixes)
        before_rows = step.context.before_rows
        result.append(
            output_of(step.name, table.namespace, rows.names, [branch_of(rows)], key, before_rows=before_rows)
        )
    return result
