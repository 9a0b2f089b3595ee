"""The driver's side of the Cassandra sink: looks tables up, creates and changes them. Blocks."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid, Fatal
from spark_jobs.contract import SchemaRefused
from spark_jobs.sinks.cassandra import tables
from spark_jobs.sinks.cassandra.config import PREFIX
from spark_jobs.sinks.cassandra.tables import Existing, Target, usable_name
from spark_jobs.sinks.jdbc.address import identity
from spark_jobs.sinks.jdbc.config import INSERT
from spark_jobs.sinks.shared.writing import key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from connectors.cql.driver import Connection
    from spark_jobs.contract import TableChanges, TableSchema
    from spark_jobs.sinks.cassandra.config import Settings

_KEYSPACE: Final = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?"
_COLUMNS: Final = (
    "SELECT column_name, kind, position, type FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?"
)
_ROWS_PER_PAGE: Final = 10_000


def open_connection(settings: Settings) -> Connection:
    """Connect. Blocks.

    Raises:
        Retriable: no node answers.
        Fatal: a refused login, files of TLS that can't be used, a data centre that does not exist.
    """
    from connectors.cql.driver import Connection

    try:
        return Connection.open_(settings.session, lambda: settings.access.password)
    except ConfigInvalid as error:
        raise Fatal(str(error)) from error


@contextmanager
def connected(settings: Settings) -> Iterator[Connection]:
    """A connection that is closed at the end; raises as ``open_connection``."""
    connection = open_connection(settings)
    try:
        yield connection
    finally:
        connection.close()


def read_table(connection: Connection, keyspace: str, table: str) -> Existing | None:
    """A table as the cluster has it; None if it does not exist. Raises Retriable or Fatal. Blocks."""
    rows = _read(connection, _COLUMNS, (keyspace, table))
    if not rows:
        return None

    def of_kind(kind: str) -> tuple[str, ...]:
        members = sorted((position, name) for name, row_kind, position, _ in rows if row_kind == kind)
        return tuple(name for _, name in members)

    types = {name: kind for name, _, _, kind in rows}
    return Existing(types, of_kind("partition_key"), of_kind("clustering"), frozenset(of_kind("static")))


def keyspace_exists(connection: Connection, keyspace: str) -> bool:
    """Whether there is such a keyspace. Raises Retriable or Fatal. Blocks."""
    return bool(_read(connection, _KEYSPACE, (keyspace,)))


def _read(connection: Connection, text: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    statement = connection.prepare(text, None)
    try:
        page = connection.session.execute(statement.bind(parameters, _ROWS_PER_PAGE, "ONE", None)).one()
    except Exception as error:
        raise connection.error(error, text) from error
    return statement.decode(page)


def complaints(settings: Settings, declared: Sequence[TableSchema] = ()) -> list[str]:
    """Complaints that only the cluster can make: about the login, and tables that are there already.

    These are the one whose name does not depend on the source, and those of ``declared``: what is known of the source's tables
    before their records come. Raises as ``open_connection``.
    """
    with connected(settings) as connection:
        keyspace, table = settings.keyspace.text, settings.table.text
        if "${" not in keyspace and not settings.replication and not keyspace_exists(connection, usable_name(keyspace)):
            text = f"there is no keyspace {keyspace}; create it, or set {PREFIX}replication so that the job creates it"
            return [f"{PREFIX}keyspace: {text}"]
        by_name: dict[tuple[str, str], list[TableSchema]] = {}
        if "${" not in keyspace + table:
            by_name[usable_name(keyspace), usable_name(table)] = []
        for schema in declared:
            by_name.setdefault(tables.names_of(settings, schema.namespace), []).append(schema)
        problems = []
        for names, schemas in by_name.items():
            present = read_table(connection, *names) if all(names) else None
            if present is not None:
                where = f"{PREFIX}table: table {'.'.join(names)} does not fit: "
                problems += [where + problem for problem in _problems(settings, schemas, present)]
        return problems


def _problems(settings: Settings, schemas: Sequence[TableSchema], present: Existing) -> list[str]:
    """Reasons why a table does not fit, as far as they show before records come. Pure."""
    problems = tables.table_problems(present)
    if settings.rows.key_columns and settings.rows.mode != INSERT:
        problems += tables.key_problems(present, settings.rows.key_columns, settings.partition_columns)
    for schema in schemas:
        if key_of(schema, settings.rows):
            problems += tables.misfits(settings, schema, present)
        else:  # the key may come with the records
            problems += tables.column_problems(schema, present)
    return list(dict.fromkeys(problems))


@dataclass(slots=True)
class Tables:
    """The tables that a run of the sink writes: each is looked up once, and again when its schema changes."""

    settings: Settings
    _targets: dict[str, tuple[TableSchema, Existing]] = field(default_factory=dict)
    _owners: dict[tuple[str, str], str] = field(default_factory=dict)

    def target(self, changes: TableChanges) -> Target:
        """How a table's rows are written; creates and changes the table where that is needed. Blocks.

        Raises:
            SchemaRefused: the table does not fit, or may not be changed; the text says the statement to run.
            Retriable, Fatal: as ``open_connection``.
        """
        schema = changes.schema
        match = self._targets.get(schema.namespace)
        if match is None or match[0] != schema:
            match = schema, self._prepare(schema)
            self._targets[schema.namespace] = match
        return tables.target_of(self.settings, schema, match[1], changes.lacking)

    def forget(self) -> None:
        """Look the tables up again at the next batch: somebody may have changed them."""
        self._targets.clear()

    def _prepare(self, schema: TableSchema) -> Existing:
        settings = self.settings
        names = tables.names_of(settings, schema.namespace)
        where = ".".join(names)
        owner = self._owners.setdefault(names, identity(schema.namespace))
        if owner != identity(schema.namespace):
            raise Fatal(
                f"the source tables {owner} and {identity(schema.namespace)} would both be written to {where}: name more parts "
                f"in {PREFIX}table (${{database}}_${{table}})"
            )
        with connected(settings) as connection:
            present = read_table(connection, *names)
            if present is None:
                self._create(connection, schema, names)
                present = read_table(connection, *names)
            if present is None:
                raise Fatal(f"table {where} was created and can't be seen: may the user read system_schema?")
            problems = tables.misfits(settings, schema, present)
            if problems:
                raise SchemaRefused(f"table {where} does not fit: {'; '.join(problems)}", schema.namespace)
            missing = tables.add_columns(settings, schema, present)
            if missing and not settings.auto_evolve:
                text = f"table {where} lacks columns, and {PREFIX}auto.evolve is off; run:\n" + ";\n".join(missing)
                raise SchemaRefused(text, schema.namespace)
            for statement in missing:
                _run(connection, statement)
            evolved = read_table(connection, *names) if missing else present
            return evolved or present

    def _create(self, connection: Connection, schema: TableSchema, names: tuple[str, str]) -> None:
        settings = self.settings
        statement = tables.create_table(settings, schema)
        if not settings.auto_create:
            raise Fatal(f"table {'.'.join(names)} does not exist, and {PREFIX}auto.create is off; run:\n{statement}")
        if not keyspace_exists(connection, names[0]):
            if not settings.replication:
                raise Fatal(
                    f"there is no keyspace {names[0]}; create it, or set {PREFIX}replication so that the job creates it"
                )
            _run(connection, tables.create_keyspace(names[0], settings.replication))
        _run(connection, statement)


def _run(connection: Connection, statement: str) -> None:
    """Run a statement that changes the schema; waits until the nodes agree on it."""
    try:
        connection.session.execute(connection.simple(statement, 1, "LOCAL_ONE"))
    except Exception as error:
        raise connection.error(error, statement) from error
