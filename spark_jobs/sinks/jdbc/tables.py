"""Makes target tables and changes them when the source's tables change. Runs on the driver; blocks."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal
from spark_jobs.contract import SYSTEM_COLUMNS, TIME
from spark_jobs.sinks.jdbc import plan as plans
from spark_jobs.sinks.jdbc.address import identity, shorten
from spark_jobs.sinks.jdbc.config import INSERT, SPLIT
from spark_jobs.sinks.jdbc.model import Wanted
from spark_jobs.sinks.jdbc.types import takes_nanoseconds

if TYPE_CHECKING:
    from spark_jobs.contract import TableSchema
    from spark_jobs.sinks.jdbc.config import Settings
    from spark_jobs.sinks.jdbc.model import Connection, Dialect, Existing, Plan

_RESERVED: Final = frozenset((*SYSTEM_COLUMNS, "ums_active_"))


@dataclass(frozen=True, slots=True)
class Columns:
    """How a source's columns are called in the database: (name in the source, name in the table), and the key's names there."""

    pairs: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]


def name_problem(settings: Settings, dialect: Dialect, schema: TableSchema) -> str:
    """Why the database can't hold a table by its name or those of its columns, and what to do; empty where it can. Pure."""
    seen: dict[str, str] = {}
    where, table = plans.target(settings, dialect, schema.namespace)
    for name in (*([where] if where else []), table, plans.side_name(settings, dialect, table), settings.commit_table):
        reason = dialect.refuses(name)
        if reason:
            return (
                f"table {schema.namespace} can't be written to a table {name!r}: {reason}; choose another name by "
                "sink.jdbc.table, sink.jdbc.schema, sink.jdbc.side.table.suffix or sink.jdbc.commit.table"
            )
    for column in schema.columns:
        name = _short(dialect, column.name)
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
        if same in seen:
            return (
                f"table {schema.namespace}: the columns {seen[same]} and {column.name} have one name in the database; "
                "rename one in the source or on its way (transform ReplaceField)"
            )
        seen[same] = column.name
    return ""


def _short(dialect: Dialect, name: str) -> str:
    return shorten(name, dialect.max_name, octets=dialect.octets)


def _keys(settings: Settings, schema: TableSchema) -> tuple[str, ...]:
    """The source's names of the key's columns: the table's own, or those that an option names."""
    primary_key = tuple(column.name for column in schema.key)
    if primary_key or settings.mode == INSERT or not settings.key_columns:
        return primary_key
    return schema.key_with_shard(settings.key_columns)


def refusal(settings: Settings, dialect: Dialect, schema: TableSchema) -> str:
    """Why a table can't be written, and what to do; empty where it can: its names, or no key where the mode needs one. Pure."""
    problem = name_problem(settings, dialect, schema)
    if problem or settings.mode == INSERT:
        return problem
    keys, present = _keys(settings, schema), {column.name for column in schema.columns}
    missing = [name for name in keys if name not in present]
    if keys and not missing:
        return ""
    return (
        f"table {schema.namespace} has no primary key"
        + (f" and no column {missing[0]}" if missing else "")
        + f": sink.jdbc.mode={settings.mode} needs one. Name it in sink.jdbc.key.columns, or use sink.jdbc.mode=insert"
    )


def columns(settings: Settings, dialect: Dialect, schema: TableSchema) -> Columns:
    """Names of a table's columns. Pure.

    Raises:
        Fatal: the table can't be written (``refusal``).
    """
    problem = refusal(settings, dialect, schema)
    if problem:
        raise Fatal(problem)
    keys = _keys(settings, schema)
    return Columns(
        tuple((column.name, _short(dialect, column.name)) for column in schema.columns),
        tuple(_short(dialect, name) for name in keys),
    )


def changes(
    dialect: Dialect, table: str, present: Existing, wanted: tuple[Wanted, ...], *, strict_null: bool
) -> tuple[list[str], list[str], dict[str, str]]:
    """Statements that make a table fit, complaints about what no statement fixes without a person, and types. Pure.

    The types are those of the wanted columns after the statements.

    Args:
        dialect: of the database.
        table: its quoted name.
        present: as it is.
        wanted: columns that rows will bring.
        strict_null: whether a NOT NULL column that rows may leave null is a complaint.
    """
    statements: list[str] = []
    problems: list[str] = []
    types: dict[str, str] = {}
    by_name = {(name if dialect.octets else name.lower()): column for name, column in present.columns.items()}
    for each in wanted:
        column = by_name.get(each.name if dialect.octets else each.name.lower())
        kind = each.type.partition(" DEFAULT ")[0]
        types[each.name] = kind
        if column is None:
            # Rows that are there already have no value for it, so it can't be NOT NULL.
            statements.append(f"ALTER TABLE {table} ADD COLUMN {dialect.quote(each.name)} {each.type}")
            continue
        serves = dialect.fits(kind, column.type)
        types[each.name] = serves or kind
        if serves is None:
            other = dialect.widen(table, Wanted(each.name, kind, each.nullable))
            problems.append(
                f"column {each.name} is {column.type} but the source's values are {kind}, which it can't hold and "
                f"can't be widened to; change it yourself, for instance (say how old values are changed): {other}"
            )
        elif serves != column.type:
            statements.append(dialect.widen(table, Wanted(each.name, serves, each.nullable)))
        if strict_null and each.nullable and not column.nullable:
            problems.append(
                f"column {each.name} is NOT NULL, but a change may have no value for it (a delete has a key only)"
            )
    named = {(each.name if dialect.octets else each.name.lower()) for each in wanted}
    problems += [
        f"column {column.name} is NOT NULL without a default, and the source has no such column"
        for name, column in by_name.items()
        if name not in named and not column.nullable and not column.default
    ]
    return statements, problems, types


def unique_problem(dialect: Dialect, table: str, present: Existing, keys: tuple[str, ...]) -> str | None:
    """What is wrong with a table's unique indexes for an upsert by ``keys``. Pure."""

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
class Tables:
    """The tables that a run of the sink writes: made and checked once, and again when a schema changes."""

    settings: Settings
    dialect: Dialect
    job: str
    _plans: dict[str, tuple[TableSchema, Plan, Columns]] = field(default_factory=dict)
    _owners: dict[tuple[str, str], str] = field(default_factory=dict)

    def known(self, schema: TableSchema) -> tuple[Plan, Columns] | None:
        """What ``plan`` found for this very schema before; None where the database has to be asked."""
        known = self._plans.get(schema.namespace)
        return known[1:] if known is not None and known[0] == schema else None

    def check(self, schema: TableSchema) -> None:
        """Refuse a table that can't be written before anything is made in the database for it or for others. Pure.

        Raises:
            Fatal: as ``columns``.
        """
        if self.known(schema) is None:
            columns(self.settings, self.dialect, schema)

    def plan(self, schema: TableSchema, connection: Connection) -> tuple[Plan, Columns, list[str]]:
        """How a table's rows are written; makes and changes the table where that is needed. Blocks.

        Returns:
            The plan, the names of the columns, and the statements that were run.

        Raises:
            Fatal: the table does not fit; the text says the statement to run.
        """
        known = self.known(schema)
        if known is not None:
            return *known, []
        self.dialect = self.dialect.suited(connection)
        where = plans.target(self.settings, self.dialect, schema.namespace)
        owner = self._owners.setdefault(where, identity(schema.namespace))
        if owner != identity(schema.namespace) and not self.settings.shared:
            raise Fatal(
                f"the source tables {owner} and {identity(schema.namespace)} would both be written to {where[1]}: "
                "name more parts in sink.jdbc.table (${database}_${table}), or set sink.jdbc.table.shared=true if "
                "their keys differ"
            )
        found = columns(self.settings, self.dialect, schema)
        renamed = dict(found.pairs)
        type_of = {column.name: column for column in schema.columns}
        own = tuple(
            Wanted(renamed[each.name], each.type, each.nullable) if each.name in type_of else each
            for each in plans.wanted_columns(self.settings, self.dialect, schema, self._source_keys(found))
        )
        run, types = self._ensure(connection, where, own, found.keys)
        clocks = tuple(
            name
            for source, name in found.pairs
            if type_of[source].meaning == TIME and not takes_nanoseconds(self.dialect.kind(types[name]))
        )
        # A column of text tells spellings apart: its rows keep the one that they have.
        uuids = tuple(name for name in found.keys if types[name] == "uuid")
        plan = replace(
            plans.make(
                self.settings,
                self.dialect,
                self.job,
                schema.namespace,
                where,
                tuple(name for _, name in found.pairs),
                found.keys,
            ),
            clocks=clocks,
            uuids=uuids,
        )
        self._plans[schema.namespace] = (schema, plan, found)
        return plan, found, run

    def forget(self) -> None:
        """Look at the database again at the next batch: somebody may have changed a table."""
        self._plans.clear()

    def expire(self, connection: Connection) -> int:
        """Forget deletes that are older than the retention; rows removed. Blocks."""
        removed = 0
        for where in self._owners:
            names = plans.names(self.settings, self.dialect, *where)
            statement = plans.expiries(self.settings, self.dialect, names)
            if statement:
                with closing(connection.cursor()) as cursor:
                    cursor.execute(statement)
                    removed += cursor.rowcount
                connection.commit()
        return removed

    def _source_keys(self, found: Columns) -> tuple[str, ...]:
        if self.settings.mode == INSERT:
            return ()
        return tuple(source for source, name in found.pairs if name in found.keys)

    def _ensure(
        self, connection: Connection, where: tuple[str, str], own: tuple[Wanted, ...], keys: tuple[str, ...]
    ) -> tuple[list[str], dict[str, str]]:
        """Make and change the tables; the statements that were run, and the types of the table's own columns as they are."""
        schema, table = where
        settings, dialect = self.settings, self.dialect
        names = plans.names(settings, dialect, schema, table)
        upsert = settings.mode != INSERT
        run, types = self._one(connection, schema, table, names.table, own, keys if upsert else ())
        # Keys of the side table are compared with the table's: a table that was there may have other types than we would make.
        own = tuple(replace(each, type=types[each.name]) if each.name in keys else each for each in own)
        side = plans.side_columns(settings, dialect, own, keys)
        if side:
            run += self._one(connection, schema, plans.side_name(settings, dialect, table), names.side, side, keys)[0]
        if not upsert and settings.exactly_once:
            columns_ = plans.commit_columns(dialect)
            key = plans.COMMIT_COLUMNS[:4]
            run += self._one(connection, schema, settings.commit_table, names.commits, columns_, key)[0]
        return run, types

    def _one(
        self,
        connection: Connection,
        schema: str,
        table: str,
        quoted: str,
        wanted: tuple[Wanted, ...],
        keys: tuple[str, ...],
    ) -> tuple[list[str], dict[str, str]]:
        """Make and change one table; the statements that were run, and the types of the wanted columns as they are."""
        dialect, settings = self.dialect, self.settings
        present = dialect.describe(connection, schema, table)
        if present is None:
            statement = dialect.create(quoted, wanted, keys)
            if not settings.auto_create:
                raise Fatal(f"table {table} does not exist and sink.jdbc.auto.create is off; run:\n{statement}")
            self._run(connection, [statement])
            present = dialect.describe(connection, schema, table)
            if present is None:
                raise Fatal(f"table {table} was made but can't be seen: is {quoted} in the search path?")
            made = [statement]
        else:
            made = []
        business = (
            settings.mode == SPLIT
            and quoted.endswith(dialect.quote(table))
            and not any(each.name == "ums_id_" for each in wanted)
        )
        # The table of split gets no rows of deletes, so that it may have NOT NULL columns.
        strict_null = not business and settings.mode != INSERT
        statements, problems, types = changes(dialect, quoted, present, wanted, strict_null=strict_null)
        problem = unique_problem(dialect, quoted, present, keys) if keys else None
        problems += [problem] if problem else []
        if problems:
            raise Fatal(f"table {table} does not fit: " + "; ".join(problems))
        if statements:
            if not settings.auto_evolve:
                raise Fatal(
                    f"table {table} lacks something and sink.jdbc.auto.evolve is off; run:\n" + ";\n".join(statements)
                )
            self._run(connection, statements)
        return made + statements, types

    @staticmethod
    def _run(connection: Connection, statements: list[str]) -> None:
        with closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
        connection.commit()
