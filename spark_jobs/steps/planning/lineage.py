"""Where the columns of tables come from, step by step: the plan of all steps, and columns that masks hide. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from connectors.errors import ConfigInvalid, Fatal
from spark_jobs.steps.planning.model import OutputTable
from spark_jobs.steps.planning.names import find_table
from spark_jobs.steps.planning.plans import computed_columns, plan_step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_jobs.contract import TableSchema
    from spark_jobs.steps.contract import Step

#: A column: namespace of its table, and name.
ColumnId = tuple[str, str]


@dataclass(frozen=True, slots=True)
class LineageStage:
    """A step with the tables before and after it.

    Attributes:
        step: the step.
        before: schemas that it gets.
        planned: what it makes of them.
        after: schemas that it gives; those of a run may have other names than planned (a route by a column).
    """

    step: Step
    before: tuple[TableSchema, ...]
    planned: tuple[OutputTable | TableSchema, ...]
    after: tuple[TableSchema, ...]


def plan_stages(steps: Sequence[Step], tables: Sequence[TableSchema]) -> tuple[list[LineageStage], str]:
    """The stages of all steps, up to the first one that refuses its tables.

    Returns:
        The stages, and the refusal; empty if every step takes its tables.
    """
    stages: list[LineageStage] = []
    before = tuple(tables)
    for step in steps:
        try:
            planned, after = plan_step(step, before)
        except (ConfigInvalid, Fatal) as error:
            return stages, str(error)
        stages.append(LineageStage(step, before, tuple(planned), tuple(after)))
        before = tuple(after)
    return stages, ""


def parents_of(stage: LineageStage) -> dict[ColumnId, frozenset[ColumnId]]:
    """The columns before a step that each column after it reads.

    Where the plan does not say it, a column reads too much rather than too little: all columns of the same name if only the
    table has another name than planned, else all columns before the step.
    """
    everything = {(table.namespace, column.name) for table in stage.before for column in table.columns}
    parents: dict[ColumnId, set[ColumnId]] = {}
    earlier_tables = {table.namespace: table for table in stage.before}
    for number, item in enumerate(stage.planned):
        if isinstance(item, OutputTable):
            for branch in item.branches:
                for name, part in zip(item.names, branch.columns, strict=True):
                    read = {(branch.source.namespace, column) for column in part.columns}
                    parents.setdefault((item.namespace, name), set()).update(read)
            continue
        # A table that the step only renames stays in its position.
        origin = earlier_tables.get(item.namespace)
        if origin is None and len(stage.planned) == len(stage.before):
            origin = stage.before[number]
        names = set() if origin is None else {column.name for column in origin.columns}
        computed = computed_columns(stage.step, item, stage.before)
        for column in item.columns:
            if origin is not None and column.name in computed:
                read = {(origin.namespace, name) for name in computed[column.name].columns}
            elif origin is not None and column.name in names:
                read = {(origin.namespace, column.name)}
            else:
                read = everything
            parents[item.namespace, column.name] = read
    named = {column_id[0] for column_id in parents}
    for table in stage.after:
        if table.namespace in named:
            continue
        for column in table.columns:
            parents[table.namespace, column.name] = {
                (schema.namespace, column.name)
                for schema in stage.before
                if any(candidate.name == column.name for candidate in schema.columns)
            }
    return {column_id: frozenset(read) for column_id, read in parents.items()}


def find_origins(stages: Sequence[LineageStage]) -> list[dict[ColumnId, frozenset[ColumnId]]]:
    """For every stage: the columns of the source's tables that each column after it comes from."""
    result: list[dict[ColumnId, frozenset[ColumnId]]] = []
    roots: Mapping[ColumnId, frozenset[ColumnId]] | None = None
    for stage in stages:
        if roots is None:
            roots = {
                (table.namespace, column.name): frozenset({(table.namespace, column.name)})
                for table in stage.before
                for column in table.columns
            }
        earlier = roots
        current = {
            column_id: frozenset().union(*(earlier.get(parent, frozenset()) for parent in read))
            for column_id, read in parents_of(stage).items()
        }
        result.append(current)
        roots = current
    return result


def find_touched_tables(stage: LineageStage) -> frozenset[str]:
    """Namespaces of the tables before a step that it transforms."""
    step = stage.step
    if "tables" in step.config_def.keys:
        return frozenset(table.namespace for table in stage.before if step.selects(table))
    masked = {table.namespace for table in stage.before if step.masked(table)}
    read = {
        branch.source.namespace for item in stage.planned if isinstance(item, OutputTable) for branch in item.branches
    }
    # Joins and windows plan tables without saying where they come from; their options do.
    named = {find_table(step.name, name, stage.before) for name in step.reads()}
    return frozenset(masked | read | {table.namespace for table in named if table is not None})


def hidden_columns(stages: Sequence[LineageStage]) -> list[frozenset[ColumnId]]:
    """The columns that steps mask later, and all that these are made of.

    Returns:
        For the tables before the first step, then for those after each step.
    """
    hidden: frozenset[ColumnId] = frozenset()
    result = [hidden]
    for stage in reversed(stages):
        parents = parents_of(stage)
        before = {read for column_id in hidden for read in parents.get(column_id, ())}
        for table in stage.before:
            before |= {(table.namespace, name) for name in stage.step.masked(table)}
        hidden = frozenset(before)
        result.append(hidden)
    return result[::-1]
