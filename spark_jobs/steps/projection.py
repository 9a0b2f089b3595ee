"""``type=select``: the columns of a table, renamed, computed and cast."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, non_empty
from spark_jobs.steps.contract import KEY, TABLES, Step
from spark_jobs.steps.planning.model import OutputTable, StepRefused
from spark_jobs.steps.planning.names import names_of
from spark_jobs.steps.planning.resolve import INPUT, branch_of, output_of, rows_of, select_rows
from spark_jobs.steps.row_filter import parse_clauses

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
            self._parse_aggregates()
        except StepRefused as error:
            return [f"columns: {error}"]
        return []

    def plan(self, tables: Sequence[TableSchema]) -> list[OutputTable | TableSchema]:
        """See ``Step.plan``."""
        select = self._parse_aggregates()
        key = self.context.options.get("key") or ()
        result: list[OutputTable | TableSchema] = []
        for table in tables:
            if not self.selects(table):
                result.append(table)
                continue
            prefixes = {INPUT, *(name.lower() for name in names_of(table.namespace))}
            rows = select_rows(self.name, select, rows_of(table), prefixes)
            result.append(
                output_of(
                    self.name,
                    table.namespace,
                    rows.names,
                    [branch_of(rows)],
                    key,
                    before_rows=self.context.before_rows,
                )
            )
        return result

    def _parse_aggregates(self) -> exp.Select:
        select = parse_clauses(self.name, f"{self.context.options['columns']}\nFROM {INPUT}")
        if select.args.get("where") is not None:
            raise StepRefused(f"step {self.name}: columns holds a WHERE: use a step of type filter")
        return select
