"""``type=select``: the columns of a table, renamed, computed and cast."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, non_empty
from spark_jobs.steps.contract import KEY, TABLES, Step
from spark_jobs.steps.planning.clauses import parse_clauses, plan_select
from spark_jobs.steps.planning.model import OutputTable, StepRefused
from spark_jobs.steps.planning.resolve import INPUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

    from spark_jobs.contract import TableSchema


class SelectStep(Step):
    """See docs/jobs/steps.md."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="columns",
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                validator=non_empty,
                example="id, upper(name) AS name, CAST(price AS decimal(10,2)) AS price",
                doc="The columns of the output, as after SELECT in Spark SQL: names, expressions with `AS`, `*`, and "
                "`* EXCEPT (a, b)`.",
            ),
            KEY,
            TABLES,
        ]
    )

    def check(self) -> list[str]:
        """See ``Step.check``."""
        try:
            self._parse_columns()
        except StepRefused as error:
            return [f"columns: {error}"]
        return []

    def plan(self, tables: Sequence[TableSchema]) -> list[OutputTable | TableSchema]:
        """See ``Step.plan``."""
        return plan_select(self, self._parse_columns(), tables, self.context.options.get("key") or ())

    def _parse_columns(self) -> exp.Select:
        select = parse_clauses(self.name, f"{self.context.options['columns']}\nFROM {INPUT}")
        if select.args.get("where") is not None:
            raise StepRefused(f"step {self.name}: columns holds a WHERE: use a step of type filter")
        return select
