"""Makes target tables and changes them when the source's tables change. Runs on the driver; blocks."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal
from spark_jobs.contract import SYSTEM_COLUMNS, TIME
from spark_jobs.namespaces import find_identity, shorten_name
from spark_jobs.sinks.jdbc import plan as plans
from spark_jobs.sinks.jdbc.config import INSERT, SPLIT
from spark_jobs.sinks.jdbc.model import Fault, NeededColumn
from spark_jobs.sinks.jdbc.types import MICROSECONDS, takes_nanoseconds

if TYPE_CHECKING:
    from spark_jobs.contract import TableSchema
    from spark_jobs.sinks.jdbc.config import JdbcSettings
    from spark_jobs.sinks.jdbc.model import Connection, Dialect, JdbcPlan, JdbcTable

_RESERVED: Final = frozenset((*SYSTEM_COLUMNS, "ums_active_"))


@dataclass(frozen=True, slots=True)
class Columns:
    """How a source's columns are called in the database: (name in the source, name in the table), and the key's names there."""

    pairs: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]


def name_problem(settings: JdbcSettings, dialect: Dialect, schema: TableSchema) -> str:
    """Why the database can't hold a table by its name or those of its columns, and what to do; empty where it can. Pure."""
    names_by_key: dict[str, str] = {}
    where, table = plans.find_target(settings, dialect, schema.namespace)
    for name in (*([where] if where else []), table, plans.side_name(settings, dialect, table), settings.commit_table):
        reason = dialect.refuses(name)
        if reason:
            return (
                f"table {schema.namespace} can't be written to a table {name!r}: {reason}; choose another name by "
                "sink.jdbc.table, sink.jdbc.schema, sink.jdbc.side.table.suffix or sink.jdbc.commit.table"
            )
    for column in schema.columns:
        name = _shorten_name(dialect, column.name)
        reason = dialect.refuses(name)
        if reason:
            return (
                f"table {schema.namespace} has a column {column.name!r}, which the database can't hold: {reason}; "
                "rename it in the source or on its way (transform ReplaceField)"
            )
        same = name if dialect.octets else name.lower()  # column names of the others know no case
        if same in _RESERVED:
            return (
                f"table {schema.namespace} has a column {column.name}, which is the name of a column of the sink; "
                "rename it in the source's view of it"
            )
        if same in names_by_key:
            return (
                f"table {schema.namespace}: the columns {names_by_key[same]} and {column.name} have one name in the database; "
                "rename one in the source or on its way (transform ReplaceField)"
            )
        names_by_key[same] = column.name
    return ""


def _shorten_name(dialect: Dialect, name: str) -> str:
    return shorten_name(name, dialect.max_name, octets=dialect.octets)


def _key_names(settings: JdbcSettings, schema: TableSchema) -> tuple[str, ...]:
    """The source's names of the key's columns: the table's own, or those that an option names."""
    primary_key = tuple(column.name for column in schema.key)
    if primary_key or settings.mode == INSERT or not settings.key_columns:
        return primary_key
    return schema.key_with_shard(settings.key_columns)


def describe_refusal(settings: JdbcSettings, dialect: Dialect, schema: TableSchema) -> str:
    """Why a table can't be written, and what to do; empty where it can: its names, or no key where the mode needs one. Pure."""
    problem = name_problem(settings, dialect, schema)
    if problem or settings.mode == INSERT:
        return problem
    keys, present = _key_names(settings, schema), {column.name for column in schema.columns}
    missing = [name for name in keys if name not in present]
    if keys and not missing:
        return ""
    return (
        f"table {schema.namespace} has no primary key"
        + (f" and no column {missing[0]}" if missing else "")
        + f": sink.jdbc.mode={settings.mode} needs one. Name it in sink.jdbc.key.columns, or use sink.jdbc.mode=insert"
    )


def find_columns(settings: JdbcSettings, dialect: Dialect, schema: TableSchema) -> Columns:
    """Names of a table's columns. Pure.

    Raises:
        Fatal: the table can't be written (``describe_refusal``).
    """
    problem = describe_refusal(settings, dialect, schema)
    if problem:
        raise Fatal(problem)
    keys = _key_names(settings, schema)
    return Columns(
        tuple((column.name, _shorten_name(dialect, column.name)) for column in schema.columns),
        tuple(_shorten_name(dialect, name) for name in keys),
    )


def find_changes(
    dialect: Dialect, table: str, present: JdbcTable, needed_columns: tuple[NeededColumn, ...], *, strict_null: bool
) -> tuple[list[str], list[str], dict[str, str]]:
    """Statements that make a table fit, complaints about what no statement fixes without a person, and types. Pure.

    The types are those of the wanted columns after the statements.

    Args:
        dialect: of the database.
        table: its quoted name.
        present: as it is.
        needed_columns: columns that rows will bring.
        strict_null: whether a NOT NULL column that rows may leave null is a complaint.
    """
    statements: list[str] = []
    problems: list[str] = []
    types: dict[str, str] = {}
    by_name = {(name if dialect.octets else name.lower()): column for name, column in present.columns.items()}
    for needed in needed_columns:
        column = by_name.get(needed.name if dialect.octets else needed.name.lower())
        kind = needed.type.partition(" DEFAULT ")[0]
        types[needed.name] = kind
        if column is None:
            # Rows that are there already have no value for it, so it can't be NOT NULL.
            statements.append(f"ALTER TABLE {table} ADD COLUMN {dialect.quote(needed.name)} {needed.type}")
            continue
        serves = dialect.fits(kind, column.type)
        types[needed.name] = serves or kind
        if serves is None:
            example = dialect.widen(table, NeededColumn(needed.name, kind, needed.nullable))
            problems.append(
                f"column {needed.name} is {column.type} but the source's values are {kind}, which it can't hold and "
                f"can't be widened to; change it yourself, for instance (say how old values are changed): {example}"
            )
        elif serves != column.type:
            statements.append(dialect.widen(table, NeededColumn(needed.name, serves, needed.nullable)))
        if strict_null and needed.nullable and not column.nullable:
            problems.append(
                f"column {needed.name} is NOT NULL, but a change may have no value for it (a delete has a key only)"
            )
    named = {(needed.name if dialect.octets else needed.name.lower()) for needed in needed_columns}
    problems += [
        f"column {column.name} is NOT NULL without a default, and the source has no such column"
        for name, column in by_name.items()
        if name not in named and not column.nullable and not column.default
    ]
    return statements, problems, types


def unique_problem(dialect: Dialect, table: str, present: JdbcTable, keys: tuple[str, ...]) -> str | None:
    """Return the problem of a table's unique indexes for an upsert by ``keys``, or None. Pure."""

    def same(names: tuple[str, ...]) -> frozenset[str]:
        return frozenset(names if dialect.octets else (name.lower() for name in names))

    if same(keys) not in {same(names) for names in present.unique}:
        return (
            "it has no unique index over exactly the key ("
            + ", ".join(keys)
            + "); run: "
            + dialect.add_key(table, keys)
        )
    others = [names for names in present.unique if same(names) != same(keys)]
    if others and not dialect.merges_by_key:
        return (
            f"it has another unique index ({', '.join(others[0])}): INSERT ... ON DUPLICATE KEY UPDATE would change the "
            "row that meets it instead of the key's; drop that index or make it a plain one"
        )
    return None


@dataclass(slots=True)
class JdbcTargetTables:
    """The tables that a run of the sink writes: made and checked once, and again when a schema changes."""

    settings: JdbcSettings
    dialect: Dialect
    job: str
    _plans: dict[str, tuple[TableSchema, JdbcPlan, Columns]] = field(default_factory=dict)
    _owners: dict[tuple[str, str], str] = field(default_factory=dict)

    def find_cached_plan(self, schema: TableSchema) -> tuple[JdbcPlan, Columns] | None:
        """Return the earlier result of ``plan`` for this very schema; None where the database has to be asked."""
        cached_plan = self._plans.get(schema.namespace)
        return cached_plan[1:] if cached_plan is not None and cached_plan[0] == schema else None

    def check(self, schema: TableSchema) -> None:
        """Refuse a table that can't be written before anything is made in the database for it or for others. Pure.

        Raises:
            Fatal: as ``find_columns``.
        """
        if self.find_cached_plan(schema) is None:
            find_columns(self.settings, self.dialect, schema)

    def plan(self, schema: TableSchema, connection: Connection) -> tuple[JdbcPlan, Columns, list[str]]:
        """How a table's rows are written; makes and changes the table where that is needed. Blocks.

        Returns:
            The plan, the names of the columns, and the statements that were run.

        Raises:
            Fatal: the table does not fit; the text says the statement to run.
        """
        cached_plan = self.find_cached_plan(schema)
        if cached_plan is not None:
            return *cached_plan, []
        self.dialect = self.dialect.suited(connection)
        where = plans.find_target(self.settings, self.dialect, schema.namespace)
        owner = self._owners.setdefault(where, find_identity(schema.namespace))
        if owner != find_identity(schema.namespace) and not self.settings.shared:
            raise Fatal(
                f"the source tables {owner} and {find_identity(schema.namespace)} would both be written to {where[1]}: "
                "name more parts in sink.jdbc.table (${database}_${table}), or set sink.jdbc.table.shared=true if "
                "their keys differ"
            )
        column_names = find_columns(self.settings, self.dialect, schema)
        renamed = dict(column_names.pairs)
        type_of = {column.name: column for column in schema.columns}
        own_columns = tuple(
            NeededColumn(renamed[needed.name], needed.type, needed.nullable) if needed.name in type_of else needed
            for needed in plans.wanted_columns(self.settings, self.dialect, schema, self._source_keys(column_names))
        )
        try:
            run, types = self._ensure_tables(connection, where, own_columns, column_names.keys)
        except Exception as error:
            if self.dialect.classify(error) in (None, Fault.RETRY):
                raise
            # Another job may have made the table, or the column, at the same moment: look again.
            connection.rollback()
            run, types = self._ensure_tables(connection, where, own_columns, column_names.keys)
        clocks = tuple(
            name
            for source, name in column_names.pairs
            if type_of[source].meaning == TIME and not takes_nanoseconds(self.dialect.kind(types[name]))
        )
        seconds = tuple(
            (name, MICROSECONDS - kind.scale)
            for source, name in column_names.pairs
            if type_of[source].type.typeName().startswith("timestamp")
            and (kind := self.dialect.kind(types[name])).family == "time"
            and kind.scale
        )
        # A column of text tells spellings apart: its rows keep the one that they have.
        uuids = tuple(name for name in column_names.keys if types[name] == "uuid")
        plan = replace(
            plans.make_plan(
                self.settings,
                self.dialect,
                self.job,
                schema.namespace,
                where,
                tuple(name for _, name in column_names.pairs),
                column_names.keys,
            ),
            clocks=clocks,
            seconds=seconds,
            uuids=uuids,
        )
        self._plans[schema.namespace] = (schema, plan, column_names)
        return plan, column_names, run

    def forget(self) -> None:
        """Look at the database again at the next batch: somebody may have changed a table."""
        self._plans.clear()

    def expire(self, connection: Connection) -> int:
        """Forget deletes that are older than the retention; rows removed. Blocks."""
        removed = 0
        for where in self._owners:
            names = plans.quote_table_names(self.settings, self.dialect, *where)
            statement = plans.build_expiry(self.settings, self.dialect, names)
            if statement:
                with closing(connection.cursor()) as cursor:
                    cursor.execute(statement)
                    removed += cursor.rowcount
                connection.commit()
        return removed

    def _source_keys(self, column_names: Columns) -> tuple[str, ...]:
        if self.settings.mode == INSERT:
            return ()
        return tuple(source for source, name in column_names.pairs if name in column_names.keys)

    def _ensure_tables(
        self,
        connection: Connection,
        where: tuple[str, str],
        source_columns: tuple[NeededColumn, ...],
        keys: tuple[str, ...],
    ) -> tuple[list[str], dict[str, str]]:
        """Make and change the tables; the statements that were run, and the types of the table's own columns as they are."""
        schema, table = where
        settings, dialect = self.settings, self.dialect
        names = plans.quote_table_names(settings, dialect, schema, table)
        upsert = settings.mode != INSERT
        run, types = self._ensure_table(connection, schema, table, names.table, source_columns, keys if upsert else ())
        # Keys of the side table are compared with the table's: a table that was there may have other types than we would make.
        source_columns = tuple(
            replace(column, type=types[column.name]) if column.name in keys else column for column in source_columns
        )
        side = plans.side_columns(settings, dialect, source_columns, keys)
        if side:
            run += self._ensure_table(
                connection, schema, plans.side_name(settings, dialect, table), names.side, side, keys
            )[0]
        if not upsert and settings.exactly_once:
            columns_ = plans.commit_columns(dialect)
            key = plans.COMMIT_COLUMNS[:4]
            run += self._ensure_table(connection, schema, settings.commit_table, names.commits, columns_, key)[0]
        return run, types

    def _ensure_table(
        self,
        connection: Connection,
        schema: str,
        table: str,
        quoted: str,
        needed_columns: tuple[NeededColumn, ...],
        keys: tuple[str, ...],
    ) -> tuple[list[str], dict[str, str]]:
        """Make and change one table; the statements that were run, and the types of the wanted columns as they are."""
        dialect, settings = self.dialect, self.settings
        present = dialect.describe(connection, schema, table)
        if present is None:
            statement = dialect.create(quoted, needed_columns, keys)
            if not settings.auto_create:
                raise Fatal(f"table {table} does not exist and sink.jdbc.auto.create is off; run:\n{statement}")
            self._run_statements(connection, [statement])
            present = dialect.describe(connection, schema, table)
            if present is None:
                raise Fatal(f"table {table} was made but can't be seen: is {quoted} in the search path?")
            statements_run = [statement]
        else:
            statements_run = []
        business = (
            settings.mode == SPLIT
            and quoted.endswith(dialect.quote(table))
            and not any(column.name == "ums_id_" for column in needed_columns)
        )
        # The table of split gets no rows of deletes, so that it may have NOT NULL columns.
        strict_null = not business and settings.mode != INSERT
        statements, problems, types = find_changes(dialect, quoted, present, needed_columns, strict_null=strict_null)
        problem = unique_problem(dialect, quoted, present, keys) if keys else None
        problems += [problem] if problem else []
        if problems:
            raise Fatal(f"table {table} does not fit: " + "; ".join(problems))
        if statements:
            if not settings.auto_evolve:
                raise Fatal(
                    f"table {table} lacks something and sink.jdbc.auto.evolve is off; run:\n" + ";\n".join(statements)
                )
            self._run_statements(connection, statements)
        return statements_run + statements, types

    @staticmethod
    def _run_statements(connection: Connection, statements: list[str]) -> None:
        with closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
        connection.commit()
