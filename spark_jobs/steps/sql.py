"""``type=sql``: queries over tables and the outputs of earlier steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, non_empty
from spark_jobs.steps.contract import KEY, Step
from spark_jobs.steps.planning.model import OutputTable, StepRefused
from spark_jobs.steps.planning.names import find_table
from spark_jobs.steps.planning.resolve import (
    QueryResolver,
    StepQuery,
    branch_of,
    lookup_in,
    output_of,
    read_queries,
    tables_read,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.contract import TableSchema


class SqlStep(Step):
    """See docs/jobs/steps.md."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="sql",
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                validator=non_empty,
                example="SELECT id, upper(name) AS name FROM shop.customers WHERE active",
                doc="One or more statements in Spark SQL, separated by semicolons: a SELECT, whose table has the name of the "
                "step; `INSERT INTO name SELECT ...` for further tables; `CREATE TEMPORARY VIEW name AS SELECT ...` for "
                "queries that later statements read. CTEs and UNION ALL are allowed; what can't carry updates and deletes "
                "(joins, aggregates, DISTINCT, LIMIT, window functions) is refused before the start.",
            ),
            KEY,
            ConfigKey(
                name="keep.inputs",
                type=ConfigType.BOOLEAN,
                default=False,
                doc="Whether the tables that the statements read also pass on to the next step. `false`: the outputs replace "
                "them.",
            ),
        ]
    )

    @property
    def combines(self) -> bool:
        """See ``Step.combines``."""
        return any(len(tables_read(query)) > 1 for query in self._parse_queries())

    def check(self) -> list[str]:
        """See ``Step.check``."""
        try:
            self._parse_queries()
        except StepRefused as error:
            return [f"sql: {error}"]
        return []

    def makes(self) -> list[str]:
        """See ``Step.makes``."""
        return [query.target or self.name for query in self._parse_queries()]

    def unmatched(self, tables: Sequence[TableSchema]) -> list[str]:
        """See ``Step.unmatched``."""
        names = dict.fromkeys(name for query in self._parse_queries() for name in tables_read(query))
        return [name for name in names if not _has_table(self.name, name, tables)]

    def plan(self, tables: Sequence[TableSchema]) -> list[OutputTable | TableSchema]:
        """See ``Step.plan``."""
        resolver = QueryResolver(self.name, lookup_in(self.name, tables))
        outputs: list[OutputTable] = []
        for query in self._parse_queries():
            rows = resolver.rows(query)
            if not rows:
                continue  # none of its tables has been seen yet
            outputs.append(
                output_of(
                    self.name,
                    query.target or self.name,
                    rows[0].names,
                    [branch_of(item) for item in rows],
                    self.context.options.get("key") or (),
                    before_rows=self.context.before_rows,
                )
            )
        consumed = {branch.source.namespace for output in outputs for branch in output.branches}
        kept = [table for table in tables if self.context.options["keep.inputs"] or table.namespace not in consumed]
        return [*kept, *outputs]

    def _parse_queries(self) -> list[StepQuery]:
        return read_queries(self.name, self.context.options["sql"])


def _has_table(step: str, name: str, tables: Sequence[TableSchema]) -> bool:
    """Whether a table has this name; several tables may."""
    try:
        return find_table(step, name, tables) is not None
    except StepRefused:
        return True
