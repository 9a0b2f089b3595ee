"""Frames of output tables: the expressions of a plan over the changes of its input tables. Lazy.

What becomes of a change, by its operation and by whether its image passes the conditions (``docs/jobs/steps.md``):

- An insert that does not pass is left out.
- An update that does not pass becomes a delete: the row may have passed before.
- A delete is left out only if its image has a value in every column that the conditions read, and does not pass.
- With images before updates (``pairs``) both images decide: see ``image_pairs``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql import types as t

from spark_jobs.contract import SYSTEM_COLUMNS, Column, TableChanges, TableSchema
from spark_jobs.spark.frames import number_columns
from spark_jobs.spark.gateway import java_session, jvm_of
from spark_jobs.steps.contract import BadRows, StepTable
from spark_jobs.steps.image_pairs import FAILS, PASSES, UNKNOWN, UNUSABLE, pair_images
from spark_jobs.steps.planning.model import StepRefused
from spark_jobs.steps.python.functions import with_functions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from spark_jobs.steps.contract import StepRun
    from spark_jobs.steps.planning.model import Branch, Expression, OutputTable

#: Whether the image of a row passes the conditions: a value of ``image_pairs``; null where an expression fails.
STATE: Final = "millrace_state_"
_VALUES: Final = "millrace_values_"


def derive_table(
    step: str, output: OutputTable, tables: Mapping[str, StepTable], run: StepRun, *, pairs: bool
) -> StepTable:
    """An output table of a step.

    Args:
        step: the name of the step.
        output: its plan.
        tables: the step's input tables by namespace.
        run: the pass of the batch.
        pairs: whether the source gives images before updates.

    Raises:
        StepRefused: Spark can't analyse an expression, or types of a union don't fit together.
    """
    output = with_functions(output, run.functions)
    frames = []
    for branch in output.branches:
        table = tables[branch.source.namespace]
        frames.append(_branch_frame(step, output, branch, table.changes.frame, run, pairs=pairs))
    try:
        frame = reduce(lambda left, right: left.union(right), frames)
    except PySparkException as error:
        raise _make_analysis_error(step, output.namespace, error) from error
    schema = _make_output_schema(step, output, frame)
    present = any(tables[branch.source.namespace].present for branch in output.branches)
    return StepTable(TableChanges(schema, frame.toDF(*output.names, *SYSTEM_COLUMNS)), present)


def _branch_frame(
    step: str, output: OutputTable, branch: Branch, changes: DataFrame, run: StepRun, *, pairs: bool
) -> DataFrame:
    """The rows of one input table: its columns as c0, c1 ..., then the system columns."""
    source = branch.source
    frame = number_columns(changes, len(source.columns))
    paired = bool(output.key) and pairs and bool(branch.row_conditions or output.movable)
    values = _build_values(output, branch)
    try:
        if run.guarded:
            rows = _drop_failures(step, frame, branch, values, run, kept=paired)
        else:
            rows = frame.withColumn(STATE, f.expr(_build_state(branch))).select(
                *(f.expr(sql).alias(f"c{number}") for number, sql in enumerate(values)), STATE, *SYSTEM_COLUMNS
            )
    except PySparkException as error:
        raise _make_analysis_error(step, source.namespace, error, branch, output, frame) from error
    if paired:
        return pair_images(rows, len(output.names), output.key, movable=output.movable)
    if not branch.conditions:
        return rows.drop(STATE)
    op = "ums_op_"
    if output.key:
        new_op = f"CASE WHEN {STATE} = {FAILS} AND ums_op_ = 'u' THEN 'd' ELSE ums_op_ END"
        kept = f"{STATE} = {PASSES} OR ({STATE} = {UNKNOWN} AND ums_op_ = 'd') OR ({STATE} = {FAILS} AND ums_op_ = 'u')"
    else:
        new_op = op
        kept = f"{STATE} = {PASSES} OR ({STATE} = {UNKNOWN} AND ums_op_ = 'd')"
    names = [f"c{number}" for number in range(len(output.names))]
    return rows.where(kept).select(
        *names, *(f.expr(new_op).alias(op) if name == op else f.col(name) for name in SYSTEM_COLUMNS)
    )


def _drop_failures(
    step: str, frame: DataFrame, branch: Branch, values: list[str], run: StepRun, *, kept: bool
) -> DataFrame:
    """The rows without those for which an expression fails, which are noted.

    Args:
        step: the name of the step.
        frame: the input.
        branch: the plan.
        values: SQL of the output's columns.
        run: the pass.
        kept: whether failing rows stay, with the state ``UNUSABLE``: their neighbours need them.
    """
    state = try_expression(run, f"struct({_build_state(branch)} AS value)").getField("value")
    packed = ", ".join(f"{sql} AS c{number}" for number, sql in enumerate(values))
    rows = frame.withColumn(STATE, state).withColumn(_VALUES, try_expression(run, f"struct({packed})"))
    failed = f"{STATE} IS NULL OR {_VALUES} IS NULL"
    expressions = {f"the condition {part.text}": part.sql for part in branch.conditions}
    expressions |= {part.text: part.sql for part in branch.columns if not part.direct}
    run.bad.append(BadRows(step, branch.source.namespace, rows.where(failed), expressions))
    if kept:
        rows = rows.withColumn(STATE, f.expr(f"CASE WHEN {failed} THEN {UNUSABLE} ELSE {STATE} END"))
    else:
        rows = rows.where(f"NOT ({failed})")
    return rows.select(
        *(f.col(_VALUES).getField(f"c{number}").alias(f"c{number}") for number in range(len(values))),
        STATE,
        *SYSTEM_COLUMNS,
    )


def try_expression(run: StepRun, sql: str) -> SparkColumn:
    """An expression that is null where ``sql`` raises an error. Python functions within it still fail."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    session = java_session(run.spark)
    jvm: Any = jvm_of(run.spark)
    parsed = session.sessionState().sqlParser().parseExpression(sql)
    guarded = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(parsed)
    column: SparkColumn = ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(guarded))
    return column


def _build_state(branch: Branch) -> str:
    """SQL of ``STATE``."""
    if not branch.conditions:
        return f"{PASSES}"
    steps = []
    if branch.key_conditions:
        steps.append(f"WHEN NOT {_join_conditions(branch.key_conditions)} THEN {UNUSABLE}")
    if branch.row_conditions:
        read = [
            number
            for number, column in enumerate(branch.source.columns)
            if any(column.name in part.columns for part in branch.row_conditions)
        ]
        steps.append(f"WHEN {_join_conditions(branch.row_conditions)} THEN {PASSES}")
        if read:
            missing = " OR ".join(f"c{number} IS NULL" for number in read)
            steps.append(f"WHEN ums_op_ IN ('b', 'd') AND ({missing}) THEN {UNKNOWN}")
        return f"CASE {' '.join(steps)} ELSE {FAILS} END"
    return f"CASE {' '.join(steps)} ELSE {PASSES} END"


def _join_conditions(conditions: tuple[Expression, ...]) -> str:
    return f"coalesce({' AND '.join(f'({part.sql})' for part in conditions)}, false)"


def _build_values(output: OutputTable, branch: Branch) -> list[str]:
    """SQL of the output's columns: only the key for rows that don't pass and for deletes without an image."""
    bare = _is_bare_delete(branch)
    result = []
    for number, part in enumerate(branch.columns):
        if number < output.key:
            sql = _key_value(branch, part) if output.movable else part.sql
            result.append(sql if not branch.key_conditions else f"CASE WHEN {STATE} <> {UNUSABLE} THEN {sql} END")
        elif part.direct and not branch.conditions:
            result.append(part.sql)
        elif part.direct:
            result.append(f"CASE WHEN {STATE} IN ({PASSES}, {UNKNOWN}) THEN {part.sql} END")
        else:
            result.append(f"CASE WHEN {STATE} = {PASSES} AND NOT ({bare}) THEN {part.sql} END")
    return result


def _is_bare_delete(branch: Branch) -> str:
    """SQL of whether a row is a delete that holds only the key."""
    others = [f"c{number} IS NULL" for number, column in enumerate(branch.source.columns) if not column.key]
    return f"ums_op_ = 'd' AND {' AND '.join(others)}" if others and branch.source.key else "false"


def _key_value(branch: Branch, part: Expression) -> str:
    """SQL of a key column that reads columns outside of the input's key: a delete without them has no key."""
    if part.reads_only(frozenset(column.name for column in branch.source.key)):
        return part.sql
    message = "the delete comes without the row before it, from which a step computes the key"
    return f"CASE WHEN {_is_bare_delete(branch)} THEN raise_error('{message}') ELSE {part.sql} END"


def _make_output_schema(step: str, output: OutputTable, frame: DataFrame) -> TableSchema:
    columns = []
    for number, (name, kind) in enumerate(zip(output.names, frame.schema.fields[: len(output.names)], strict=True)):
        if isinstance(
            kind.dataType, t.NullType | t.DayTimeIntervalType | t.YearMonthIntervalType | t.CalendarIntervalType
        ):
            raise StepRefused(
                f"step {step}: column {name} has the type {kind.dataType.simpleString()}, which no table can hold: write "
                "CAST(... AS <type>)"
            )
        columns.append(_make_output_column(output, number, name, kind.dataType))
    sharded = all(branch.source.sharded for branch in output.branches) and all(
        [part.direct for part in branch.columns[:2]] == [column.name for column in branch.source.columns[:2]]
        for branch in output.branches
    )
    return TableSchema(output.namespace, tuple(columns), sharded)


def _make_output_column(output: OutputTable, number: int, name: str, kind: t.DataType) -> Column:
    """A column of the output: length and meaning stay where it is one column of each input."""
    in_key = number < output.key
    inputs: list[Column] = []
    volatile = any(branch.is_volatile(branch.columns[number]) for branch in output.branches)
    for branch in output.branches:
        direct = branch.columns[number].direct
        match = next((column for column in branch.source.columns if column.name == direct), None)
        if match is None or match.type != kind or (inputs and match.meaning != inputs[0].meaning):
            return Column(name, kind, nullable=not in_key, key=in_key, volatile=volatile)
        inputs.append(match)
    lengths = [column.length for column in inputs]
    length = max(size for size in lengths if size is not None) if lengths and None not in lengths else None
    nullable = not in_key and any(column.nullable for column in inputs)
    return replace(inputs[0], name=name, nullable=nullable, key=in_key, length=length, volatile=volatile)


def _make_analysis_error(
    step: str,
    table: str,
    error: PySparkException,
    branch: Branch | None = None,
    output: OutputTable | None = None,
    frame: DataFrame | None = None,
) -> StepRefused:
    """The error for what Spark refuses to analyse: names the expression, if one alone is to blame."""
    where = ""
    if branch is not None and output is not None and frame is not None:
        parts = [("the condition", part) for part in branch.conditions]
        parts += [(f"column {name}:", part) for name, part in zip(output.names, branch.columns, strict=True)]
        for title, part in parts:
            try:
                frame.select(f.expr(part.sql)).schema  # noqa: B018 - analyses the expression
            except PySparkException as cause:
                where, error = f"{title} `{part.text}`: ", cause
                break
    return StepRefused(f"step {step}, table {table}: {where}{first_line(error)}")


def first_line(error: Exception) -> str:
    """The first line of an error of Spark, without its position in generated SQL."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
