"""``type=route``: another name for a table, or a table per value of a column."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sqlglot import exp

from connectors.errors import Fatal
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, at_least, invalid, non_empty
from spark_jobs.contract import SYSTEM_COLUMNS, TableChanges
from spark_jobs.namespaces import find_identity
from spark_jobs.steps.contract import TABLES, Step, StepRun, StepTable
from spark_jobs.steps.planning.model import OutputTable, StepRefused
from spark_jobs.steps.planning.names import qualified_name, table_part
from spark_jobs.steps.planning.resolve import QueryRows, branch_of, output_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.contract import TableSchema

_PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}")
_COLUMN: Final = "column:"
_PARTS: Final = ("table", "database", "namespace")
_TARGET: Final = "millrace_target_"


def _check_template(name: str, value: Any) -> str | None:
    problem = non_empty(name, value)
    unknown = [
        part for part in _PLACEHOLDER.findall(value or "") if part not in _PARTS and not part.startswith(_COLUMN)
    ]
    if unknown:
        return invalid(
            name,
            value,
            f"${{{unknown[0]}}} is not a placeholder; there are ${{table}}, ${{database}}, ${{namespace}} and "
            "${column:<name>}",
        )
    return problem


def routed_name(template: str, namespace: str) -> str:
    """The template with the parts of a table's name; those of columns stay. Pure."""
    database = qualified_name(namespace).rpartition(".")[0]
    values = {"table": table_part(namespace), "database": database, "namespace": find_identity(namespace)}
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), template)


class RouteStep(Step):
    """See docs/jobs/steps.md."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="to",
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                validator=_check_template,
                example="${database}.${table}_${column:region}",
                doc="The new name of the table, from which sinks make names of tables, topics and folders. `${table}`, "
                "`${database}` and `${namespace}` are parts of its name; `${column:<name>}` is the value of a column, which "
                "gives a table per value. Columns outside of the key need `source.before.rows=true`: a row whose value "
                "changes is deleted from one table and inserted into the other.",
            ),
            ConfigKey(
                name="tables.max",
                type=ConfigType.INT,
                default=200,
                validator=at_least(1),
                importance=Importance.LOW,
                doc="The most tables that one batch may give by `${column:<name>}`; more stop the job.",
            ),
            TABLES,
        ]
    )

    def plan(self, tables: Sequence[TableSchema]) -> list[OutputTable | TableSchema]:
        """See ``Step.plan``; a route by columns is planned as one output with the template for a name."""
        result: list[OutputTable | TableSchema] = []
        for table in tables:
            if not self.selects(table):
                result.append(table)
            elif self._list_columns():
                result.append(replace(self._plan_output(table), namespace=self._fill_name(table)))
            else:
                result.append(replace(table, namespace=self._fill_name(table)))
        return result

    def apply(self, tables: Sequence[StepTable], run: StepRun) -> list[StepTable]:
        """See ``Step.apply``; a route by columns runs a Spark job."""
        result: list[StepTable] = []
        for table in tables:
            if not self.selects(table.changes.schema):
                result.append(table)
            elif not self._list_columns():
                schema = replace(table.changes.schema, namespace=self._fill_name(table.changes.schema))
                result.append(replace(table, changes=replace(table.changes, schema=schema)))
            elif table.present:
                result += self._split_table(table, run)
        return result

    def _list_columns(self) -> list[str]:
        parts = _PLACEHOLDER.findall(self.context.options["to"])
        return [part.removeprefix(_COLUMN) for part in parts if part.startswith(_COLUMN)]

    def _fill_name(self, table: TableSchema) -> str:
        return routed_name(self.context.options["to"], table.namespace)

    def _plan_output(self, table: TableSchema) -> OutputTable:
        """The table with its new name as a further column of the key, so that a row that moves is deleted where it was."""
        rows = rows_of(table)
        positions = {column.name: number for number, column in enumerate(table.columns)}
        parts: list[exp.Expr] = []
        for number, template_part in enumerate(_PLACEHOLDER.split(self._fill_name(table))):
            if number % 2 == 0:
                parts += [exp.Literal.string(template_part)] if template_part else []
                continue
            name = template_part.removeprefix(_COLUMN)
            if name not in positions:
                raise StepRefused(
                    f"step {self.name}: table {table.namespace} has no column {name}, which `to` names; it has "
                    f"{', '.join(positions)}"
                )
            parts.append(exp.cast(exp.column(f"c{positions[name]}"), "string"))
        target = exp.Anonymous(this="concat", expressions=parts)
        routed = QueryRows(table, (_TARGET, *rows.names), (target, *rows.nodes))
        key = [column.name for column in table.key]
        return output_of(
            self.name,
            table.namespace,
            routed.names,
            [branch_of(routed)],
            (_TARGET, *key) if key else (),
            before_rows=self.context.before_rows,
        )

    def _split_table(self, table: StepTable, run: StepRun) -> list[StepTable]:
        from spark_jobs.steps.derive import derive_table

        schema = table.changes.schema
        routed = derive_table(
            self.name, self._plan_output(schema), {schema.namespace: table}, run, pairs=self.context.before_rows
        ).changes
        frame = routed.frame.persist()
        run.persisted.append(frame)
        max_tables = self.context.options["tables.max"]
        targets = [row[0] for row in frame.select(_TARGET).distinct().limit(max_tables + 1).collect()]
        if len(targets) > max_tables:
            raise Fatal(
                f"step {self.name}: table {schema.namespace} would become more than {max_tables} tables in one batch: route "
                "by a "
                f"column with fewer values, or raise transform.step.{self.name}.tables.max"
            )
        if None in targets:
            raise Fatal(
                f"step {self.name}: table {schema.namespace} has changes without a value in {', '.join(self._list_columns())}: "
                "compute one by a step of type select, such as coalesce(region, 'none') AS region"
            )
        columns = tuple(column for column in routed.schema.columns if column.name != _TARGET)
        names = [*(column.name for column in columns), *SYSTEM_COLUMNS]
        return [
            StepTable(
                TableChanges(
                    replace(routed.schema, namespace=target, columns=columns),
                    frame.where(frame[_TARGET] == target).drop(_TARGET).toDF(*names),
                )
            )
            for target in sorted(targets)
        ]
