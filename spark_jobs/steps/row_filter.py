"""``type=filter``: only rows for which a condition holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from sqlglot import exp

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, non_empty
from spark_jobs.steps.contract import TABLES, Step
from spark_jobs.steps.planning.dialect import check_query, parse_statements
from spark_jobs.steps.planning.model import OutputTable, StepRefused
from spark_jobs.steps.planning.names import names_of
from spark_jobs.steps.planning.resolve import INPUT, branch_of, output_of, rows_of, select_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.contract import TableSchema


class FilterStep(Step):
    """See docs/jobs/steps.md."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="condition",
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                validator=non_empty,
                example="amount > 0 AND region IN ('eu', 'us')",
                doc="A condition in Spark SQL over the columns of the table. Rows pass for which it is true. An update that "
                "does not pass becomes a delete.",
            ),
            TABLES,
        ]
    )

    def check(self) -> list[str]:
        """See ``Step.check``."""
        try:
            self._parse_aggregates()
        except StepRefused as error:
            return [f"condition: {error}"]
        return []

    def plan(self, tables: Sequence[TableSchema]) -> list[OutputTable | TableSchema]:
        """See ``Step.plan``."""
        select = self._parse_aggregates()
        result: list[OutputTable | TableSchema] = []
        for table in tables:
            if not self.selects(table):
                result.append(table)
                continue
            prefixes = {INPUT, *(name.lower() for name in names_of(table.namespace))}
            rows = select_rows(self.name, select, rows_of(table), prefixes)
            result.append(
                output_of(
                    self.name, table.namespace, rows.names, [branch_of(rows)], (), before_rows=self.context.before_rows
                )
            )
        return result

    def _parse_aggregates(self) -> exp.Select:
        return parse_clauses(self.name, f"* FROM {INPUT} WHERE ({self.context.options['condition']}\n)")


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
