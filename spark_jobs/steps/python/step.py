"""``type=python``: columns that a function or class of the user's computes over Arrow batches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from connectors.errors import ConfigInvalid
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance
from spark_jobs.contract import SYSTEM_COLUMNS, Column
from spark_jobs.steps.contract import TABLES, Step
from spark_jobs.steps.lookup.model import parse_columns
from spark_jobs.steps.planning.model import Expression, StepRefused
from spark_jobs.steps.python.code import (
    FILE,
    FILE_KEY,
    FUNCTION,
    FUNCTION_KEY,
    columns_of,
    return_annotation,
    user_code,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_jobs.contract import TableSchema
    from spark_jobs.steps.contract import StepContext, StepRun, StepTable
    from spark_jobs.steps.planning.model import OutputTable
    from spark_jobs.steps.python.code import UserCode

#: Begins the properties that the user's class gets.
OPTION: Final = "python.option."


class PythonStep(Step):
    """See docs/jobs/python-steps.md."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            FILE_KEY,
            FUNCTION_KEY,
            ConfigKey(
                name="columns",
                type=ConfigType.STRING,
                default=None,
                importance=Importance.HIGH,
                example="score double, label string",
                doc="The columns that the function gives: `<column> <type>`, separated by commas, with the types of lookups. "
                "One that the table has already is replaced. Not set: the members of the class that the function's return "
                "annotation names.",
            ),
            TABLES,
        ]
    )
    pass_through: ClassVar[tuple[str, ...]] = (OPTION,)

    def __init__(self, context: StepContext) -> None:
        super().__init__(context)
        self._code: UserCode | None = None

    def check(self) -> list[str]:
        """See ``Step.check``; reads the file."""
        complaints = []
        try:
            self._user_code()
        except ConfigInvalid as error:
            complaints.append(str(error))
        if self.context.options["columns"] is not None:
            try:
                columns = parse_columns(self.context.options["columns"])
            except ValueError as error:
                complaints.append(f"columns: {error}")
            else:
                complaints += [
                    f"columns: {column.field} AS {column.name}: write the name that the function gives"
                    for column in columns
                    if column.name != column.field
                ]
        return complaints

    def plan(self, tables: Sequence[TableSchema]) -> list[OutputTable | TableSchema]:
        """See ``Step.plan``. Without the option ``columns`` it runs the user's module."""
        return [self._plan_table(table)[0] if self.selects(table) else table for table in tables]

    def computed(self, table: TableSchema) -> Mapping[str, Expression]:
        """See ``Step.computed``: the function sees all columns, so it may read each of them."""
        if not self.selects(table):
            return {}
        planned, _, positions = self._plan_table(table)
        read = tuple(column.name for column in table.columns)
        code_location = self._user_code().where
        return {planned.columns[position].name: Expression("", read, text=code_location) for position in positions}

    def apply(self, tables: Sequence[StepTable], run: StepRun) -> list[StepTable]:
        """See ``Step.apply``."""
        return [self._apply_lookup(table, run) if self.selects(table.changes.schema) else table for table in tables]

    def _user_code(self) -> UserCode:
        """The code as it was when the job started."""
        if self._code is None:
            self._code = user_code(self.context.options[FILE], self.context.options[FUNCTION])
        return self._code

    def _list_outputs(self) -> list[tuple[str, str]]:
        if self.context.options["columns"] is not None:
            return [(column.name, column.kind) for column in parse_columns(self.context.options["columns"])]
        code = self._user_code()
        columns = columns_of(return_annotation(code.load()))
        if columns is None:
            raise StepRefused(
                f"step {self.name}: columns: is not set, and {code.where} has no return annotation that names them: annotate "
                "it with a TypedDict whose members are bool, int, float, str, bytes, date, datetime or Decimal, or set columns"
            )
        return columns

    def _plan_table(self, table: TableSchema) -> tuple[TableSchema, tuple[tuple[str, str], ...], tuple[int, ...]]:
        """The table after the step, and the function's columns with their positions."""
        from spark_jobs.steps.lookup.values import spark_type

        columns, positions = list(table.columns), []
        outputs = self._list_outputs()
        positions_by_name = {column.name.lower(): number for number, column in enumerate(columns)}
        for name, kind in outputs:
            if name.lower() in SYSTEM_COLUMNS:
                raise StepRefused(f"step {self.name}: {name} is the name of a system column, which every row has")
            new_column = Column(name, spark_type(kind), volatile=True)
            position = positions_by_name.get(name.lower(), len(columns))
            if position == len(columns):
                columns.append(new_column)
            elif columns[position].key:
                raise StepRefused(
                    f"step {self.name}: column {name} is of the key of table {table.namespace}, and a delete would have "
                    "another key than the row: give the function's column another name"
                )
            else:
                columns[position] = replace(new_column, name=columns[position].name)
            positions.append(position)
        return replace(table, columns=tuple(columns)), tuple(outputs), tuple(positions)

    def _apply_lookup(self, table: StepTable, run: StepRun) -> StepTable:
        from spark_jobs.steps.failures import map_rows
        from spark_jobs.steps.python.task import PythonTask

        schema = table.changes.schema
        planned, outputs, positions = self._plan_table(schema)
        options = {
            name.removeprefix(OPTION): value for name, value in self.context.raw.items() if name.startswith(OPTION)
        }
        names = tuple(column.name for column in schema.columns)
        task = PythonTask(self.name, self._user_code(), options, names, outputs, positions, run.guarded)
        return map_rows(self.name, table, planned, task, run)
