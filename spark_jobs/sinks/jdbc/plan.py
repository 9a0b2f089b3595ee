"""The statements that write the rows of one table: the core of the sink, for all dialects. Pure.

Why they are right when two writers of one key overlap (a batch that is written again while a lost worker still writes it):

* Every transaction first inserts or updates the key's row in one table, the *gate*: the table itself (upsert), the side table
  (split). That takes the lock of the key, or waits for it, in key order. All else is done under it.
* Of changes of a key with one ``ums_id_`` the one that is written later wins: they come in order, and a replay of the first
  brings the last one, too.
* Under READ COMMITTED each later statement sees what the holder of the lock before committed.
* ``delete.mode=real``: the delete, too, goes through the gate as a dead row (``ums_op_`` d), which is remembered in the
  side table and removed in the same transaction. A late older change waits at the gate, is inserted, and is removed again by
  the statement after it, because the side table remembers a newer delete; no other transaction ever sees it.
"""

# ruff: noqa: S608 - names in the statements are quoted by the dialect, values are parameters or escaped
from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from spark_jobs.namespaces import find_identity, render_template, shorten_name
from spark_jobs.sinks.jdbc.config import INSERT, REAL, SPLIT
from spark_jobs.sinks.jdbc.model import JdbcNames, JdbcPlan, JdbcStep, NeededColumn

if TYPE_CHECKING:
    from spark_jobs.contract import TableSchema
    from spark_jobs.sinks.jdbc.config import JdbcSettings
    from spark_jobs.sinks.jdbc.model import Dialect

#: System columns of the table itself.
UPSERT_SYSTEM: Final = ("ums_id_", "ums_ts_", "ums_op_", "ums_active_")
REAL_SYSTEM: Final = ("ums_id_", "ums_ts_", "ums_op_")
INSERT_SYSTEM: Final = ("ums_id_", "ums_ts_", "ums_op_", "ums_uid_")
#: Of the side table with split.
SPLIT_SYSTEM: Final = ("ums_id_", "ums_ts_", "ums_op_", "ums_uid_", "ums_active_")
KAFKA_SYSTEM: Final = ("kafka_topic_", "kafka_partition_", "kafka_offset_")
WRITTEN: Final = "written_at_"
#: Columns of the table of positions; the first four are its key.
COMMIT_COLUMNS: Final = ("job_", "table_", "kafka_topic_", "kafka_partition_", "next_offset_", WRITTEN)
_STAGE: Final = "millrace_stage"


def find_target(settings: JdbcSettings, dialect: Dialect, namespace: str) -> tuple[str, str]:
    """Schema (empty for the connection's own) and name of the table for a namespace."""

    def short(name: str) -> str:
        return shorten_name(name, dialect.max_name, octets=dialect.octets)

    return short(render_template(settings.schema, namespace)), short(render_template(settings.table, namespace))


def side_name(settings: JdbcSettings, dialect: Dialect, table: str) -> str:
    """The side table's name."""
    return shorten_name(table + settings.side_suffix, dialect.max_name, octets=dialect.octets)


def writer_name(settings: JdbcSettings, dialect: Dialect, namespace: str, table: str) -> str:
    """The name of a target table, with that of the source table where several of them are written to it.

    One batch has rows of several of these out of one Kafka partition, so that each needs positions and a staging table alone.
    """
    if not settings.shared:
        return table
    return shorten_name(f"{table} {find_identity(namespace)}", dialect.max_name, octets=dialect.octets)


def quote_table_names(settings: JdbcSettings, dialect: Dialect, schema: str, table: str, writer: str = "") -> JdbcNames:
    """Quoted, full names; ``writer``: what the staging table is called by, if that is not a temporary one."""

    def full(name: str) -> str:
        return f"{dialect.quote(schema)}.{dialect.quote(name)}" if schema else dialect.quote(name)

    stage = dialect.quote(_STAGE)
    if settings.together and hasattr(dialect, "setup_in_branch"):
        stage_name = f"{writer or table}{settings.side_suffix}_stage"
        stage = full(shorten_name(stage_name, dialect.max_name, octets=dialect.octets))
    return JdbcNames(full(table), full(side_name(settings, dialect, table)), stage, full(settings.commit_table))


def table_system(settings: JdbcSettings) -> tuple[str, ...]:
    """System columns that stand in the table itself."""
    kafka = KAFKA_SYSTEM if settings.kafka_columns else ()
    if settings.mode == SPLIT:
        return ()
    if settings.mode == INSERT:
        return INSERT_SYSTEM + kafka
    return (REAL_SYSTEM if settings.delete_mode == REAL else UPSERT_SYSTEM) + kafka


def wanted_columns(
    settings: JdbcSettings, dialect: Dialect, schema: TableSchema, keys: tuple[str, ...]
) -> tuple[NeededColumn, ...]:
    """Columns of the table: the source's, then the system's.

    Only key columns are NOT NULL: a delete may bring only the key, and a source's column may be dropped later.
    """
    source_columns = [
        NeededColumn(
            column.name,
            dialect.column_type(replace(column, key=column.name in keys), settings.key_length),
            column.name not in keys,
        )
        for column in schema.columns
    ]
    return (*source_columns, *(NeededColumn(name, dialect.system_type(name)) for name in table_system(settings)))


def side_columns(
    settings: JdbcSettings, dialect: Dialect, columns: tuple[NeededColumn, ...], keys: tuple[str, ...]
) -> tuple[NeededColumn, ...]:
    """Columns of the side table; empty where the mode has none."""
    system: tuple[str, ...] = ()
    if settings.mode == SPLIT:
        system = SPLIT_SYSTEM
    elif settings.mode != INSERT and settings.delete_mode == REAL:
        system = ("ums_id_",)
    if not system:
        return ()
    columns_by_name = {column.name: column for column in columns}
    return (
        *(columns_by_name[key] for key in keys),
        *(NeededColumn(name, dialect.system_type(name)) for name in (*system, WRITTEN)),
    )


def commit_columns(dialect: Dialect) -> tuple[NeededColumn, ...]:
    """Columns of the table of positions."""
    return tuple(
        NeededColumn(name, "int" if name == "kafka_partition_" else dialect.system_type(name), nullable=False)
        for name in COMMIT_COLUMNS
    )


def make_plan(
    settings: JdbcSettings,
    dialect: Dialect,
    job: str,
    namespace: str,
    where: tuple[str, str],
    own_columns: tuple[str, ...],
    keys: tuple[str, ...],
) -> JdbcPlan:
    """The plan for one table.

    Args:
        settings: the sink's options.
        dialect: of the database.
        job: the job's name.
        namespace: the source's table.
        where: schema and name of the table.
        own_columns: the source's columns.
        keys: the key; empty with mode insert.
    """
    writer = writer_name(settings, dialect, namespace, where[1])
    target_names = quote_table_names(settings, dialect, *where, writer)
    system = table_system(settings)
    if settings.mode == INSERT:
        columns, into, clear = (*own_columns, *system), target_names.table, ""
        setup: tuple[str, ...] = ()
        steps: tuple[JdbcStep, ...] = ()
    else:
        side_system = SPLIT_SYSTEM if settings.mode == SPLIT else ()
        columns, into, clear = (
            (*own_columns, *system, *side_system),
            target_names.stage,
            f"DELETE FROM {target_names.stage}",
        )
        make_stage = (settings.together and getattr(dialect, "setup_in_branch", None)) or dialect.setup
        setup = make_stage(target_names, (*own_columns, *system), side_system)
        if settings.mode == SPLIT:
            steps = _split_steps(dialect, target_names, own_columns, keys)
        elif settings.delete_mode == REAL:
            steps = _merge_steps(dialect, target_names, columns, keys)
        else:
            steps = (
                JdbcStep(dialect.merge(target_names.table, f"{target_names.stage} AS s", columns, keys, newer=True)),
            )
    keep = settings.mode == INSERT and settings.exactly_once
    return JdbcPlan(
        namespace=namespace,
        target=where[1],
        writer=writer,
        login=settings.login,
        columns=columns,
        row_columns=len(own_columns),
        keys=() if settings.mode == INSERT else keys,
        into=into,
        setup=setup,
        clear=clear,
        steps=steps,
        commits=target_names.commits if keep else "",
        job=job,
        batch_rows=settings.batch_rows,
        batch_bytes=settings.batch_bytes,
        retries=settings.retries,
        backoff_ms=settings.backoff_ms,
        teardown=(f"DROP TABLE {target_names.stage}",) if setup and target_names.stage != dialect.quote(_STAGE) else (),
    )


def _join_condition(dialect: Dialect, left: str, right: str, keys: tuple[str, ...]) -> str:
    return " AND ".join(f"{left}.{dialect.quote(key)} = {right}.{dialect.quote(key)}" for key in keys)


def _merge_steps(
    dialect: Dialect, target_names: JdbcNames, columns: tuple[str, ...], keys: tuple[str, ...]
) -> tuple[JdbcStep, ...]:
    version, operation = dialect.quote("ums_id_"), dialect.quote("ums_op_")
    stage, side = f"{target_names.stage} AS s", f"{target_names.side} AS d"
    ours, remembered = _join_condition(dialect, "t", "s", keys), _join_condition(dialect, "d", "s", keys)
    dead = (
        f"(SELECT {', '.join(f't.{dialect.quote(key)}' for key in keys)}, t.{version}, CURRENT_TIMESTAMP AS "
        f"{dialect.quote(WRITTEN)} FROM {target_names.table} AS t JOIN {stage} ON {ours} WHERE t.{operation} = 'd') AS s"
    )
    alive = f"{target_names.table} AS a, {stage}"
    return (
        *dialect.analyze(target_names.stage),
        JdbcStep(dialect.merge(target_names.table, stage, columns, keys, newer=True)),
        # Late changes of rows whose newer delete is remembered.
        JdbcStep(
            dialect.delete(
                target_names.table, f"{stage}, {side}", f"{ours} AND {remembered} AND d.{version} > t.{version}"
            )
        ),
        JdbcStep(dialect.merge(target_names.side, dead, (*keys, "ums_id_", WRITTEN), keys, newer=True), deletes=True),
        JdbcStep(dialect.delete(target_names.table, stage, f"{ours} AND t.{operation} = 'd'"), deletes=True),
        # Deletes that are older than the present row: nothing to remember any more.
        JdbcStep(
            dialect.delete(
                target_names.side,
                alive,
                f"{ours} AND {_join_condition(dialect, 'a', 's', keys)} AND t.{version} <= a.{version}",
            )
        ),
    )


def _split_steps(
    dialect: Dialect, target_names: JdbcNames, own_columns: tuple[str, ...], keys: tuple[str, ...]
) -> tuple[JdbcStep, ...]:
    operation, version, uid = (dialect.quote(name) for name in ("ums_op_", "ums_id_", "ums_uid_"))
    stage, side = f"{target_names.stage} AS s", f"{target_names.side} AS u"
    # The side table's row is this one: it has won now, or has been written before (then it does no harm again).
    won = f"{_join_condition(dialect, 'u', 's', keys)} AND u.{version} = s.{version} AND " + dialect.same(
        f"u.{uid}", f"s.{uid}"
    )
    living = (
        f"(SELECT {', '.join(f's.{dialect.quote(name)}' for name in own_columns)} FROM {stage} JOIN {side} ON {won} "
        f"WHERE s.{operation} <> 'd') AS s"
    )
    chosen = ", ".join(f"x.{dialect.quote(name)}" for name in (*keys, *SPLIT_SYSTEM))
    system = f"(SELECT {chosen}, CURRENT_TIMESTAMP AS {dialect.quote(WRITTEN)} FROM {target_names.stage} AS x) AS s"
    return (
        *dialect.analyze(target_names.stage),
        JdbcStep(dialect.merge(target_names.side, system, (*keys, *SPLIT_SYSTEM, WRITTEN), keys, newer=True)),
        JdbcStep(dialect.merge(target_names.table, living, own_columns, keys, newer=False)),
        JdbcStep(
            dialect.delete(
                target_names.table,
                f"{stage}, {side}",
                f"{_join_condition(dialect, 't', 's', keys)} AND {won} AND s.{operation} = 'd'",
            ),
            deletes=True,
        ),
    )


def build_expiry(settings: JdbcSettings, dialect: Dialect, target_names: JdbcNames) -> str:
    """The statement that forgets old deletes; empty where there are none to forget."""
    if settings.mode == INSERT or settings.delete_mode != REAL:
        return ""
    condition = f"{dialect.quote('ums_active_')} = 0" if settings.mode == SPLIT else "1 = 1"
    return dialect.expire(target_names.side, condition, settings.delete_retention_ms)
