"""Inputs of joins and windows, which must be inserts with a time, and the rows that these steps keep."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal
from connectors.options import ConfigKey, ConfigType, Importance, at_least, non_empty, one_of
from spark_jobs.config.keys import STEP_PREFIX
from spark_jobs.contract import KAFKA_COLUMNS, SYSTEM_COLUMNS, TableChanges
from spark_jobs.spark.frames import number_columns, union_frames
from spark_jobs.steps.contract import BadRows, StepTable
from spark_jobs.steps.event_time.times import MS
from spark_jobs.steps.planning.model import StepRefused
from spark_jobs.steps.planning.names import find_column, is_match
from spark_jobs.steps.state.definition import describe_differences

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from spark_jobs.contract import TableSchema
    from spark_jobs.steps.contract import StepContext, StepRun

#: Column: the time of a row, in microseconds; null for a change that is ignored.
TIME: Final = "t_"
#: Columns of a row that say which record it is of: no two rows have the same.
ROW_ID: Final = (*KAFKA_COLUMNS, "ums_uid_")
IGNORE: Final = "ignore"
DEFAULT_TIME: Final = "ums_ts_"
#: Options of steps that tell which tables they read and give.
_READ: Final = ("type", "sql", "output", "tables", "to")
_PLAIN: Final = re.compile(r"[a-z0-9_]+\Z")

WATERMARK: Final = ConfigKey(
    name="watermark.ms",
    type=ConfigType.LONG,
    default=60_000,
    importance=Importance.HIGH,
    unit="ms",
    validator=at_least(0),
    doc="By how much a row may be behind the newest row and is still taken. The watermark is the newest time minus this; rows "
    "that come after it has passed them are late.",
)
CHANGES: Final = ConfigKey(
    name="changes",
    type=ConfigType.STRING,
    default="fail",
    validator=one_of("fail", IGNORE),
    doc="What becomes of an update or a delete in an input, which the step can't carry. `fail`: the record is a bad one, so "
    "`errors.tolerance` says what follows. `ignore`: it is left out and counted.",
)
LATE: Final = ConfigKey(
    name="late",
    type=ConfigType.STRING,
    default="drop",
    validator=one_of("drop", "keep"),
    doc="What becomes of late rows, which are counted in any case. `keep`: they pass on as a table of their own.",
)
KEEP_INPUTS: Final = ConfigKey(
    name="keep.inputs",
    type=ConfigType.BOOLEAN,
    default=False,
    doc="Whether the tables that the step reads also pass on to the next step.",
)


def list_option_remarks(options: Mapping[str, Any]) -> list[str]:
    """Options of an input that are allowed, but may not be what was meant. Pure."""
    if options["watermark.ms"]:
        return []
    advice = (
        "watermark.ms=0: a row is late as soon as one with a newer time has come, so rows out of order are left out. "
    )
    return [f"{advice}Set watermark.ms to the time by which rows may be late"]


def time_key(name: str) -> ConfigKey:
    """The option that chooses the time column of an input."""
    return ConfigKey(
        name=name,
        type=ConfigType.STRING,
        default=DEFAULT_TIME,
        validator=non_empty,
        example="ordered_at",
        doc="The column with the time of a row, a timestamp. Default: when the change was made in the source.",
    )


@dataclass(frozen=True, slots=True)
class EventInput:
    """An input of a step.

    Attributes:
        step: the name of the step.
        schema: of the table.
        time: SQL of its time over the numbered columns.
        required: columns that must not be null, by the SQL of each.
    """

    step: str
    schema: TableSchema
    time: str
    required: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Count:
    """The count of rows of an input, in the batch or in the state.

    Attributes:
        newest: the largest time; None without rows.
        rows: that are taken.
        late: rows that are late.
        ignored: updates and deletes that are left out.
        position: the values of ``KAFKA_COLUMNS`` of the last one; None without rows.
    """

    newest: int | None = None
    rows: int = 0
    late: int = 0
    ignored: int = 0
    position: tuple[str, int, int] | None = None


def input_of(step: str, schema: TableSchema, time: str, required: Sequence[str] = ()) -> EventInput:
    """An input of a step, checked. Pure.

    Args:
        step: the name of the step.
        schema: of the table.
        time: the name of the time column.
        required: names of columns that must not be null.

    Raises:
        StepRefused: there is no such column, or it is no timestamp.
    """
    from pyspark.sql import types as t

    names = {}
    if time.lower() == DEFAULT_TIME:
        sql = DEFAULT_TIME
    else:
        position = find_column(step, time, schema)
        kind = schema.columns[position].type
        if not isinstance(kind, t.TimestampType):
            raise StepRefused(
                f"step {step}: the time column {time} of table {schema.namespace} is a {kind.simpleString()}: give a "
                f"timestamp, such as CAST({time} AS timestamp) in a step of type select before it"
            )
        sql = f"c{position}"
        names[time] = sql
    names |= {name: f"c{find_column(step, name, schema)}" for name in required}
    return EventInput(step, schema, sql, names)


def changing_input(context: StepContext, names: Mapping[str, str]) -> list[str]:
    """Complaints about inputs that come from a view: those change. Pure.

    Args:
        context: of the step.
        names: the table by option.
    """
    raw = {} if context.job is None else context.job.raw
    views = _views_behind(raw, context.name)
    return [
        f"{option}: {table} {_from_view(table, views[table])}, whose rows change, and this step takes inserts only: join or "
        "aggregate in the view itself"
        for option, table in names.items()
        if table in views
    ]


def _from_view(table: str, view: str) -> str:
    return "is the output of a step of type view" if table == view else f"comes from the step {view} of type view"


def _views_behind(raw: Mapping[str, str], step: str) -> dict[str, str]:
    """The names of tables before a step whose rows come from a view, with the view. As far as names tell: no schemas."""
    from spark_jobs.steps.options import step_names
    from spark_jobs.steps.planning.resolve import read_queries, tables_read
    from spark_jobs.steps.route import routed_name

    views: dict[str, str] = {}
    for name in step_names(raw):
        options = {part: raw.get(f"{STEP_PREFIX}{name}.{part}", "").strip() for part in _READ}
        if name == step:
            break
        if options["type"] == "view":
            views[name] = name
        elif options["type"] == "sql":
            try:
                queries = read_queries(name, options["sql"])
            except StepRefused:
                continue  # that step has a complaint of its own
            for query in queries:
                if behind := next((views[table] for table in tables_read(query) if table in views), ""):
                    views[query.target or name] = behind
        elif options["type"] == "route":
            patterns = [part.strip() for part in options["tables"].split(",") if part.strip()]
            for table, view in list(views.items()):
                if is_match(patterns, table):
                    views[routed_name(options["to"], table)] = view
        elif options["type"] == "union":
            patterns = [part.strip() for part in options["tables"].split(",") if part.strip()]
            if behind := next((view for table, view in views.items() if is_match(patterns, table)), ""):
                views[options["output"]] = behind
    return views


def read_events(source: EventInput, table: StepTable, run: StepRun, *, ignore: bool) -> DataFrame:
    """The inserts of a batch: numbered columns, ``TIME``, system columns. Cached until the batch is written; lazy.

    An update, a delete or a missing value fails the batch; in a guarded pass such rows are noted and left out.

    Args:
        source: the input.
        table: its changes.
        run: the pass.
        ignore: whether updates and deletes stay as rows without a time instead.
    """
    from pyspark.sql import functions as f

    schema = source.schema
    frame = number_columns(table.changes.frame, len(schema.columns)).where("ums_op_ <> 'b'")
    key = [f"'{_escape_string(column.name)}=', c{number}" for number, column in enumerate(schema.columns) if column.key]
    row = f"concat_ws(' ', {', '.join(f'concat({part})' for part in key)})" if key else "'(table without a key)'"
    changed = (
        f"concat('an update or delete (', ums_op_, ') of the row ', {row}, ': a step of this type takes inserts only. "  # noqa: S608 - a message
        "Use a step of type view, which follows changes, or set changes=ignore')"
    )
    wrong = {} if ignore else {"ums_op_ <> 'i'": changed}
    for name, sql in source.required.items():
        problem = (
            f"column {name} is null, and the step needs it: leave such rows out by a step of type filter before it"
        )
        wrong[f"{sql} IS NULL"] = f"concat('{_escape_string(problem)}; row ', {row})"
    cases = "".join(f" WHEN {condition} THEN raise_error({problem})" for condition, problem in wrong.items())
    ignored = " WHEN ums_op_ <> 'i' THEN CAST(NULL AS bigint)" if ignore else ""
    time = (
        f"CASE{ignored}{cases} ELSE unix_micros({source.time}) END"
        if ignored or cases
        else f"unix_micros({source.time})"
    )
    if run.guarded and wrong:
        bad = " OR ".join(f"coalesce({condition}, true)" for condition in wrong)
        bad = f"ums_op_ = 'i' AND ({bad})" if ignore else bad
        run.bad.append(BadRows(source.step, schema.namespace, frame.where(bad), {"its change": time}))
        frame = frame.where(f"NOT ({bad})")
    count = len(schema.columns)
    rows = frame.select(*frame.columns[:count], f.expr(time).alias(TIME), *frame.columns[count:]).persist()
    run.persisted.append(rows)
    return rows


def _escape_string(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'")


def late_sql(bound: int | None, time: str = TIME) -> str:
    """SQL: whether a row is before ``bound``, which rows without a time are not."""
    return "false" if bound is None else f"coalesce({time} < {bound}, false)"


def count_rows(
    batch: Mapping[str, DataFrame], state: Mapping[str, DataFrame], late: str
) -> dict[tuple[str, bool], Count]:
    """Count the rows of inputs in one Spark job. Blocks.

    Args:
        batch: rows of the batch by input.
        state: rows of the state by input.
        late: SQL of whether a row of the batch is late.

    Returns:
        The counts by input, and whether they are of the batch; 0 where there are no rows.
    """
    from pyspark.sql import functions as f

    parts = [
        frame.select(
            f.lit(name).alias("input"),
            f.lit(new).alias("new"),
            TIME,
            f.expr(late if new else "false").alias("late"),
            f.struct(*KAFKA_COLUMNS).alias("position"),
        )
        for new, frames in ((True, batch), (False, state))
        for name, frame in frames.items()
    ]
    result = {(name, new): Count() for new, frames in ((True, batch), (False, state)) for name in frames}
    totals = union_frames(parts).groupBy("input", "new")
    for row in totals.agg(
        f.max(TIME).alias("newest"),
        f.count_if(f.col(TIME).isNotNull() & ~f.col("late")).alias("rows"),
        f.count_if("late").alias("late"),
        f.count_if(f.col(TIME).isNull()).alias("ignored"),
        f.max("position").alias("position"),
    ).collect():
        counts = row["newest"], row["rows"], row["late"], row["ignored"]
        result[row["input"], row["new"]] = Count(*counts, tuple(row["position"]))
    return result


def at_last_record(rows: DataFrame, counts: Mapping[tuple[str, bool], Count], condition: str = "true") -> DataFrame:
    """Rows of the state that come out in this batch, with the position of the last record of the batch.

    Sinks take a row with the position of an earlier batch for one that was written with that batch.

    Args:
        rows: as ``from_state`` gives them, and more columns.
        counts: of ``count_rows``.
        condition: SQL; rows for which it does not hold stay as they are.
    """
    from pyspark.sql import functions as f

    positions = [count.position for (_, new), count in counts.items() if new and count.position is not None]
    if not positions:
        return rows
    last = dict(zip(KAFKA_COLUMNS, max(positions), strict=True))
    kinds = dict(rows.select(*KAFKA_COLUMNS).dtypes)
    return rows.withColumns(
        {
            name: f.when(f.expr(condition), f.lit(value).cast(kinds[name])).otherwise(f.col(name))
            for name, value in last.items()
        }
    )


def state_fields(schema: TableSchema) -> StructType:
    """The columns of kept rows: named after the table's columns, so that a column may be added or move."""
    from pyspark.sql import types as t

    from spark_jobs.sources.decoding import frame_type

    system = frame_type(schema).fields[len(schema.columns) :]
    fields = [t.StructField(stored_name(column.name), column.type) for column in schema.columns]
    return t.StructType(
        [*fields, t.StructField(TIME, t.LongType()), *(t.StructField(field.name, field.dataType) for field in system)]
    )


def stored_name(name: str) -> str:
    """A column's name as Delta takes it, whatever characters it has, and in whatever case. Pure."""
    return f"v_{name}" if _PLAIN.match(name) else f"x_{name.encode().hex()}"


def from_state(rows: DataFrame, schema: TableSchema) -> DataFrame:
    """Kept rows as ``read_events`` gives them."""
    count = len(schema.columns)
    return rows.toDF(*(f"c{number}" for number in range(count)), *rows.columns[count:])


def to_state(rows: DataFrame, schema: TableSchema) -> DataFrame:
    """Rows of ``read_events`` as they are kept."""
    count = len(schema.columns)
    return rows.toDF(*(stored_name(column.name) for column in schema.columns), *rows.columns[count:])


def late_table(namespace: str, rows: DataFrame, schema: TableSchema, *, present: bool) -> StepTable:
    """The late rows of an input as a table of their own."""
    frame = rows.drop(TIME).toDF(*(column.name for column in schema.columns), *SYSTEM_COLUMNS)
    return StepTable(TableChanges(replace(schema, namespace=namespace), frame), present)


def check_origin(step: str, values: Mapping[str, Any], origin: Mapping[str, Any]) -> None:
    """Refuse a state of other inputs.

    Raises:
        Fatal: the state was made with other options.
    """
    if values and (changed := describe_differences(values.get("of", {}), origin)):
        raise Fatal(
            f"step {step}: its state was made with {', '.join(changed)}. Set the options back, or give the step another name: "
            "it starts with an empty state then"
        )


def list_state_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a step for ``Step.measure_state``, from the values that it keeps. Pure."""
    result = {"state_rows": float(values.get("rows", 0))}
    result |= {f"{name}_total": float(values.get(name, 0)) for name in ("late", "ignored")}
    if "sessions_cut" in values:
        result["sessions_cut_total"] = float(values["sessions_cut"])
    if values.get("watermark") is not None:
        result["watermark_timestamp_seconds"] = values["watermark"] / 1_000_000
    return result


def read_micros(options: Mapping[str, Any], name: str) -> int:
    """An option in ms as microseconds; negative stays negative."""
    return int(options[name]) * MS
