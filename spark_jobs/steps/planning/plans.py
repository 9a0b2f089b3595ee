"""The steps of a job in ``millrace job plan``: tables and columns after each step, and their origins. No Spark session."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import types as t
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

from connectors.errors import ConfigInvalid, Fatal
from connectors.options import ConfigType
from spark_jobs.config.keys import SEPARATE, SHARDS
from spark_jobs.contract import Column, TableSchema
from spark_jobs.rows.shards import with_numbers
from spark_jobs.sources.tables import from_json
from spark_jobs.spark.checkpoint import open_local
from spark_jobs.steps.options import build_steps
from spark_jobs.steps.planning.model import OutputTable
from spark_jobs.steps.planning.names import check_names, unmatched_sentences

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.options import Config
    from spark_jobs.steps.contract import Step
    from spark_jobs.steps.planning.model import Branch, Expression

_NAMES: Final[Mapping[str, t.DataType]] = {
    "BIGINT": t.LongType(),
    "INT": t.IntegerType(),
    "SMALLINT": t.ShortType(),
    "TINYINT": t.ByteType(),
    "STRING": t.StringType(),
    "VARCHAR": t.StringType(),
    "DOUBLE": t.DoubleType(),
    "FLOAT": t.FloatType(),
    "BOOLEAN": t.BooleanType(),
    "DATE": t.DateType(),
    "TIMESTAMP": t.TimestampType(),
    "BINARY": t.BinaryType(),
}
_DECIMAL: Final = re.compile(r"DECIMAL\((\d+), (\d+)\)\Z")
#: The type of columns whose type only Spark can tell.
UNKNOWN: Final = t.NullType()
_REFUSED: Final = "  REFUSED: "


def seen_tables(config: Config) -> list[TableSchema]:
    """The tables that the job's earlier runs saw, from a checkpoint on this machine; empty without one. Reads a file."""
    folder = open_local(config["checkpoint.location"])
    numbers = [int(name[:-5]) for name in folder.list("schemas") if name[:-5].isdigit()] if folder is not None else []
    schemas_json = folder.read(f"schemas/{max(numbers)}.json") if folder is not None and numbers else None
    if schemas_json is None:
        return []
    try:
        tables = list(from_json(schemas_json)[0].values())
        return [with_numbers(table) for table in tables] if config[SHARDS] == SEPARATE else tables
    except (ValueError, KeyError, TypeError, Fatal):
        return []  # the job complains of them when it starts


def step_lines(config: Config, tables: Sequence[TableSchema] | None = None) -> list[str]:
    """The lines of the steps; empty without steps.

    Args:
        config: of the job.
        tables: the tables that the source gives; None: those that the job's earlier runs saw.
    """
    steps = build_steps(config)
    if not steps:
        return []
    schemas = sorted(seen_tables(config) if tables is None else tables, key=lambda table: table.namespace)
    lines = []
    if not schemas:
        lines.append(
            "(the columns are shown once the job has run: the tables that it saw are in its checkpoint on this machine)"
        )
    for step in steps:
        lines.append(f"{step.name} ({config[f'transform.step.{step.name}.type']}){_summarize_step(step)}")
        if state_text := step.state():
            lines.append(f"  keeps {state_text}")
        if not schemas:
            continue
        lines += [
            f"  WARNING: {state_text}"
            for state_text in unmatched_sentences(step.name, step.unmatched(schemas), schemas)
        ]
        before = schemas
        try:
            planned, schemas = plan_step(step, before)
        except (ConfigInvalid, Fatal) as error:
            return [*lines, f"{_REFUSED}{error}"]
        for item in planned:
            computed = {} if isinstance(item, OutputTable) else computed_columns(step, item, before)
            lines += [f"  {line}" for line in _table_lines(item, computed)]
    return lines


def plan_step(step: Step, tables: Sequence[TableSchema]) -> tuple[list[OutputTable | TableSchema], list[TableSchema]]:
    """The plan of a step for tables, and the schemas after it as far as they are known without Spark. Pure.

    Raises:
        ConfigInvalid: a table can't go through the step.
        Fatal: two tables have one name after it.
    """
    planned = step.plan(tables)
    schemas = [planned_schema(item) if isinstance(item, OutputTable) else item for item in planned]
    check_names(step.name, schemas)
    return planned, schemas


def computed_columns(step: Step, table: TableSchema, before: Sequence[TableSchema]) -> Mapping[str, Expression]:
    """The columns of a table after a step that the step computes outside of SQL, by name. Pure.

    Args:
        step: the step.
        table: after it; planned without expressions.
        before: the tables before it.
    """
    origin = next((schema for schema in before if schema.namespace == table.namespace), None)
    return {} if origin is None else step.computed(origin)


def refusal_in(line: str) -> str:
    """The refusal that a line of ``step_lines`` holds; empty for other lines."""
    return line.removeprefix(_REFUSED) if line.startswith(_REFUSED) else ""


def _summarize_step(step: Step) -> str:
    shown = [
        f"{name}={' '.join(str(value).split())}"
        for name, value in step.context.raw.items()
        if name in step.config_def.keys and step.config_def.keys[name].type is not ConfigType.PASSWORD
    ]
    return f": {', '.join(shown)}" if shown else ""


def _table_lines(item: OutputTable | TableSchema, computed: Mapping[str, Expression]) -> list[str]:
    schema = planned_schema(item) if isinstance(item, OutputTable) else item
    key = ", ".join(column.name for column in schema.key)
    lines = [f"{schema.namespace}: {f'key ({key})' if key else 'no key'}"]
    for number, column in enumerate(schema.columns):
        kind = "type known at the start" if column.type == UNKNOWN else column.type.simpleString()
        origin = f" = {_describe_origins(item, number)}" if isinstance(item, OutputTable) else ""
        if column.name in computed:
            origin = f" = {computed[column.name].text}"
        lines.append(f"  {column.name} {kind}{origin}")
    if isinstance(item, OutputTable):
        for branch in item.branches:
            lines += [f"  where {part.text} ({branch.source.namespace})" for part in branch.conditions]
    return lines


def _describe_origins(output: OutputTable, number: int) -> str:
    origins = (_describe_origin(branch, branch.columns[number]) for branch in output.branches)
    return "; ".join(origin for origin in origins if origin)  # a view's table may have no part in a column


def _describe_origin(branch: Branch, part: Expression) -> str:
    if part.direct:
        return f"{branch.source.namespace}.{part.direct}"
    read = ", ".join(f"{branch.source.namespace}.{name}" for name in part.columns)
    return f"{part.text} (from {read})" if read else part.text


def planned_schema(output: OutputTable) -> TableSchema:
    """The schema of an output as far as it is known without Spark: a type that is not is Spark's ``void``."""
    columns = []
    for number, name in enumerate(output.names):
        branch = next((item for item in output.branches if item.columns[number].direct), output.branches[0])
        part = branch.columns[number]
        in_key = number < output.key
        source = next((column for column in branch.source.columns if column.name == part.direct), None)
        if source is not None:
            columns.append(replace(source, name=name, key=in_key))
        else:
            kind = type_of(part, branch.source)
            columns.append(Column(name, kind, nullable=not in_key, key=in_key, volatile=branch.is_volatile(part)))
    return TableSchema(output.namespace, tuple(columns), all(branch.source.sharded for branch in output.branches))


def type_of(part: Expression, source: TableSchema) -> t.DataType:
    """The type of an expression as far as it is known without Spark, else ``UNKNOWN``. Pure."""
    types = {f"c{number}": column.type.simpleString() for number, column in enumerate(source.columns)}
    types |= {"ums_ts_": "timestamp", "ums_id_": "bigint", "ums_op_": "string"}
    query = exp.select(f"{part.sql} AS value", dialect="spark").from_("input_")
    try:
        schema: dict[str, object] = {"input_": types}
        typed = annotate_types(qualify(query, schema=schema, dialect="spark"), schema=schema, dialect="spark")
    except SqlglotError:
        return UNKNOWN
    name = typed.expressions[0].type.sql("spark") if typed.expressions[0].type is not None else ""
    decimal = _DECIMAL.match(name)
    if decimal:
        return t.DecimalType(int(decimal[1]), int(decimal[2]))
    return _NAMES.get(name, UNKNOWN)
