"""``type=filter``: only rows for which a condition holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, non_empty
from spark_jobs.steps.contract import TABLES, Step
from spark_jobs.steps.planning.clauses import parse_clauses, plan_select
from spark_jobs.steps.planning.model import OutputTable, StepRefused
from spark_jobs.steps.planning.resolve import INPUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

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
            self._parse_condition()
        except StepRefused as error:
            return [f"condition: {error}"]
        return []

    def plan(self, tables: Sequence[TableSchema]) -> list[OutputTable | TableSchema]:
        """See ``Step.plan``."""
        return plan_select(self, self._parse_condition(), tables)

    def _parse_condition(self) -> exp.Select:
        return parse_clauses(self.name, f"* FROM {INPUT} WHERE ({self.context.options['condition']}\n)")
