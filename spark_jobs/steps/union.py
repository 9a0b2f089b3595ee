"""``type=union``: several tables become one, by the names of their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from sqlglot import exp

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, non_empty
from spark_jobs.steps.contract import KEY, TABLES, Step
from spark_jobs.steps.planning.model import OutputTable, StepRefused
from spark_jobs.steps.planning.names import qualified_name
from spark_jobs.steps.planning.resolve import QueryRows, branch_of, output_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.contract import TableSchema


class UnionStep(Step):
    """See docs/jobs/steps.md."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="output",
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                validator=non_empty,
                example="shop.all_orders",
                doc="The name of the table that has the rows of all.",
            ),
            ConfigKey(
                name="table.column",
                type=ConfigType.STRING,
                default=None,
                validator=non_empty,
                example="origin",
                doc="Add a column with the name of the table that a row comes from (`database.table`), first in the key. Set "
                "it where rows of two tables may have the same key.",
            ),
            KEY,
            TABLES,
        ]
    )

    @property
    def combines(self) -> bool:
        """See ``Step.combines``."""
        return True

    def makes(self) -> list[str]:
        """See ``Step.makes``."""
        return [self.context.options["output"]]

    def plan(self, tables: Sequence[TableSchema]) -> list[OutputTable | TableSchema]:
        """See ``Step.plan``."""
        options = self.context.options
        inputs = [table for table in tables if self.selects(table)]
        others: list[OutputTable | TableSchema] = [table for table in tables if not self.selects(table)]
        if not inputs:
            return others
        origin = options.get("table.column")
        keys = {tuple(column.name for column in table.key) for table in inputs}
        chosen = tuple(options.get("key") or ())
        if not chosen and len(keys) > 1:
            listed = "; ".join(
                f"{table.namespace} ({', '.join(column.name for column in table.key)})" for table in inputs
            )
            raise StepRefused(
                f"step {self.name}: the tables have other keys: {listed}. Rename columns by a step of type select, or name "
                f"the columns that tell rows apart in transform.step.{self.name}.key"
            )
        if not chosen:
            chosen = keys.pop()
        if origin and origin not in chosen:
            chosen = (origin, *chosen)
        names = tuple(dict.fromkeys(column.name for table in inputs for column in table.columns))
        if origin and origin in names:
            raise StepRefused(
                f"step {self.name}: table.column: the tables have a column {origin} already; choose another name"
            )
        branches = [branch_of(_align_table(table, names, origin)) for table in inputs]
        listed_names = (origin, *names) if origin else names
        return [
            *others,
            output_of(
                self.name, options["output"], listed_names, branches, chosen, before_rows=self.context.before_rows
            ),
        ]


def _align_table(table: TableSchema, names: Sequence[str], origin: str | None) -> QueryRows:
    """The rows of one table with the columns ``names``, null where it has none, after the column that names the table."""
    positions = {column.name: number for number, column in enumerate(table.columns)}
    nodes: list[exp.Expr] = [exp.Literal.string(qualified_name(table.namespace))] if origin else []
    nodes += [exp.column(f"c{positions[name]}") if name in positions else exp.null() for name in names]
    return QueryRows(table, (origin, *names) if origin else tuple(names), tuple(nodes))
