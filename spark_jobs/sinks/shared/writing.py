"""The driver's part of sinks of rows: frames of tables for tasks, what tasks report, metrics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal, Retriable
from spark_jobs.config.keys import STEPS
from spark_jobs.json_options import WHOLE
from spark_jobs.metrics import JobMetric
from spark_jobs.sinks.jdbc.config import INSERT, UPSERT
from spark_jobs.sinks.jdbc.packed import unpacked_for
from spark_jobs.sinks.jdbc.rows import POSITION
from spark_jobs.sinks.shared.model import RowTable
from spark_jobs.sinks.shared.options import IGNORE
from spark_jobs.sinks.shared.task import COUNTS, OUTCOME_DDL, SYSTEM, RowTask
from spark_jobs.spark.frames import number_columns
from spark_jobs.spark.gateway import count_partitions
from spark_jobs.spark.worker_memory import frozen_after

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from spark_jobs.contract import Batch, JobContext, TableChanges, TableSchema
    from spark_jobs.dead_letters import DeadLetters
    from spark_jobs.sinks.shared.model import OpenClient
    from spark_jobs.sinks.shared.options import RowSettings
    from spark_jobs.sinks.shared.templates import Template

#: Types that come to tasks as they are; others as text.
_PLAIN: Final = frozenset(
    {
        *("byte", "short", "integer", "long", "float", "double", "decimal", "boolean", "string", "varchar", "char"),
        *("binary", "date", "timestamp", "timestamp_ntz", "array", "map", "struct"),
    }
)
_NESTED: Final = frozenset({"array", "map", "struct"})  # their parts may be of types that are not plain


def row_metrics(kind: str) -> tuple[JobMetric, ...]:
    """The metrics that ``write_rows`` sets.

    Args:
        kind: ``sink.type``.
    """
    helps = {
        "rows": ("rows", "Rows given to tasks of this run, before reduction per key."),
        "written": ("rows", "Rows written in this run."),
        "stale": ("rows", "Rows left out in this run because the target had newer ones, or had them already."),
        "bad": ("rows", "Rows that were refused and put aside in this run."),
        "requests": ("", "Requests made in this run."),
        "retries": ("", "Requests that were repeated in this run."),
    }
    return tuple(
        JobMetric(f"{kind}_{name}_total", "counter", unit, description) for name, (unit, description) in helps.items()
    )


def key_of(schema: TableSchema, settings: RowSettings) -> tuple[str, ...]:
    """The columns that make the key of a table's rows. Pure."""
    if settings.key_columns:
        return schema.key_with_shard(settings.key_columns)
    return tuple(column.name for column in schema.key)


def key_refusal(schema: TableSchema, settings: RowSettings) -> str:
    """Why a table's rows have no key that can be used, and what to do; empty where they have. Pure; for ``Sink.refusal``."""
    present = {column.name for column in schema.columns}
    lacking = [name for name in settings.key_columns if name not in present]
    if lacking:
        return (
            f"table {schema.namespace} has no column {', '.join(lacking)}, which {settings.prefix}key.columns names; it has "
            f"{', '.join(column.name for column in schema.columns)}"
        )
    if settings.mode == UPSERT and not key_of(schema, settings):
        return (
            f"table {schema.namespace} has no primary key: name the columns that make its key in "
            f"{settings.prefix}key.columns"
        )
    return ""


def template_refusal(
    schema: TableSchema, option: str, template: Template, key: Sequence[str], settings: RowSettings
) -> str:
    """Why a template does not tell the rows of a table apart by their key; empty where it does. Pure.

    Args:
        schema: the table.
        option: the template's.
        template: of a name that a row has in the target.
        key: the columns of the row's key.
        settings: of the sink.
    """
    present = {column.name for column in schema.columns}
    absent = [name for name in template.columns if name not in present]
    if absent:
        return f"table {schema.namespace} has no column {', '.join(absent)}, which {option} names"
    others = [name for name in template.columns if name not in key]
    if others:
        return (
            f"table {schema.namespace}: {option} names the column {', '.join(others)}, which is not in the row's key "
            f"({', '.join(key)}): a row in which it changes would stay under its old name. Name it in "
            f"{settings.prefix}key.columns, or use columns of the key"
        )
    lacking = [name for name in key if name not in template.columns]
    if template.columns and "key" not in template.row_parts and lacking:
        return (
            f"table {schema.namespace}: {option} lacks {', '.join(lacking)}, which is part of the row's key "
            f"({', '.join(key)}): rows would share a name. Add it, or name the columns that suffice in "
            f"{settings.prefix}key.columns"
        )
    return ""


def write_rows(
    context: JobContext,
    kind: str,
    batch: Batch,
    settings: RowSettings,
    prepare: Callable[[TableChanges], OpenClient],
    *,
    arrow: bool = False,
) -> int:
    """Write all tables of a batch, one after the other. Blocks.

    Args:
        context: of the sink.
        kind: ``sink.type``, of which the metrics are named.
        batch: the batch.
        settings: how rows are written.
        prepare: called on the driver before a table's rows are written: creates or alters the target, and returns what makes
            the table's client in tasks.
        arrow: see ``RowTask``.

    Returns:
        The rows written.

    Raises:
        Retriable, Fatal: as ``prepare`` and the tasks say.
    """
    totals: Counter[str] = Counter()
    try:
        for changes in batch.changes():
            totals.update(_write_table(context, changes, settings, prepare(changes), arrow=arrow))
    finally:
        for count in COUNTS:
            name = f"{kind}_{count}_total"
            context.metrics[name] = context.metrics.get(name, 0.0) + totals[count]
    return totals["written"]


def _write_table(
    context: JobContext, changes: TableChanges, settings: RowSettings, open_client: OpenClient, *, arrow: bool
) -> dict[str, int]:
    """Write the changes of one table by tasks; the sums of what they counted, by ``COUNTS``."""
    problem = key_refusal(changes.schema, settings)
    if problem:
        raise Fatal(problem)
    columns = tuple(column.name for column in changes.schema.columns)
    table = RowTable(changes.schema.namespace, columns, key_of(changes.schema, settings))
    task = RowTask(table, settings, open_client, _letters_of(context), arrow)
    write = frozen_after(settings.prefix, task)
    if changes.packed is not None and takes_packed(changes, table, settings):
        frame = changes.packed.frame.coalesce(settings.connections)
        write = unpacked_for(write, changes.packed, len(columns), SYSTEM, _left_out(settings))
    else:
        shuffled = bool(context.config.raw.get(STEPS))
        frame = spread_rows(project_rows(changes, settings), table, settings, shuffled=shuffled)
    reports = frame.mapInArrow(write, OUTCOME_DDL).collect()
    failed = [row for row in reports if row["error"]]
    if failed:
        lasting = [row for row in failed if not row["passing"]]
        message = (lasting or failed)[0]["error"]
        raise Fatal(message) if lasting else Retriable(message)
    return {count: sum(row[count] for row in reports) for count in COUNTS}


def _letters_of(context: JobContext) -> DeadLetters | None:
    """Where refused rows go; None where they stop the job."""
    if context.config.get("errors.tolerance") != "all":
        return None
    from spark_jobs.dead_letters import DeadLetters

    return DeadLetters.of(context)


def project_rows(changes: TableChanges, settings: RowSettings) -> DataFrame:
    """The rows as tasks get them: the table's columns as c0, c1 ..., then ``task.SYSTEM``. Lazy."""
    from pyspark.sql import functions

    frame = number_columns(changes.frame, len(changes.schema.columns))
    for operation in _left_out(settings):
        frame = frame.where(functions.col("ums_op_") != operation)
    selected: list[SparkColumn] = []
    for number, source in enumerate(changes.schema.columns):
        column, kind = functions.col(f"c{number}"), source.type.typeName()
        if kind == "variant":
            column = functions.to_json(column, WHOLE)
        elif kind not in _PLAIN:
            column = column.cast("string")
        selected.append(column.alias(f"c{number}"))
    return frame.select(*selected, *SYSTEM)


def _left_out(settings: RowSettings) -> tuple[str, ...]:
    """The operations whose rows are not written: the image before an update is history only."""
    return (*(("b",) if settings.mode != INSERT else ()), *(("d",) if settings.delete_mode == IGNORE else ()))


def takes_packed(changes: TableChanges, table: RowTable, settings: RowSettings) -> bool:
    """Whether the rows may go to tasks as record batches, as they are and in the parts in which they come."""
    if changes.packed is None or settings.ordered:
        return False  # Kafka's own parts may be cut, so rows of a partition could go to several tasks
    if not {column.type.typeName() for column in changes.schema.columns}.issubset(_PLAIN - _NESTED):
        return False
    return not table.keys or count_partitions(changes.packed.frame) >= settings.connections


def spread_rows(frame: DataFrame, table: RowTable, settings: RowSettings, *, shuffled: bool = False) -> DataFrame:
    """The rows in at most as many parts as there are connections; ``shuffled``: steps may have shuffled them."""
    if settings.ordered:
        # One task per Kafka partition, in order. Kafka's own parts may be cut smaller.
        parts = frame.repartition(settings.connections, "kafka_topic_", "kafka_partition_")
        if not shuffled or settings.mode == UPSERT:
            return parts.sortWithinPartitions(*POSITION)
        # Rows of one position come out of a shuffle in any order, and a replay must number them as before.
        return parts.sortWithinPartitions(*POSITION, "ums_id_", "ums_op_", "ums_uid_", _hash_of_row(frame))
    if len(table.keys) and count_partitions(frame) < settings.connections:
        keys = [f"c{table.columns.index(name)}" for name in table.keys]
        return frame.repartition(settings.connections, *keys)
    return frame.coalesce(settings.connections)


def _hash_of_row(frame: DataFrame) -> SparkColumn:
    """A number of each row's own values, in which rows with one ``ums_uid_`` differ; Spark has none of maps."""
    from pyspark.sql import functions

    flat = [field.name for field in frame.schema.fields if field.dataType.typeName() not in _NESTED]
    return functions.xxhash64(*flat)
