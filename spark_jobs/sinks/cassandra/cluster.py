"""The driver's side of the Cassandra sink: looks tables up, creates and changes them. Blocks."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid, Fatal
from spark_jobs.contract import SchemaRefused
from spark_jobs.namespaces import find_identity
from spark_jobs.sinks.cassandra import tables
from spark_jobs.sinks.cassandra.config import PREFIX
from spark_jobs.sinks.cassandra.tables import CassandraSinkTarget, CassandraTable, usable_name
from spark_jobs.sinks.jdbc.config import INSERT
from spark_jobs.sinks.shared.writing import key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from connectors.cql.cluster.driver import CqlConnection
    from spark_jobs.contract import TableChanges, TableSchema
    from spark_jobs.sinks.cassandra.config import CassandraSinkSettings

_KEYSPACE: Final = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?"
_COLUMNS: Final = (
    "SELECT column_name, kind, position, type FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?"
)
_ROWS_PER_PAGE: Final = 10_000


def open_connection(settings: CassandraSinkSettings) -> CqlConnection:
    """Connect. Blocks.

    Raises:
        Retriable: no node answers.
        Fatal: a refused login, files of TLS that can't be used, a data centre that does not exist.
    """
    from connectors.cql.cluster.driver import CqlConnection

    try:
        return CqlConnection.open_(settings.session, lambda: settings.access.password)
    except ConfigInvalid as error:
        raise Fatal(str(error)) from error


@contextmanager
def open_cluster(settings: CassandraSinkSettings) -> Iterator[CqlConnection]:
    """A connection that is closed at the end; raises as ``open_connection``."""
    connection = open_connection(settings)
    try:
        yield connection
    finally:
        connection.close()


def read_table(connection: CqlConnection, keyspace: str, table: str) -> CassandraTable | None:
    """A table as the cluster has it; None if it does not exist. Raises Retriable or Fatal. Blocks."""
    rows = _read_rows(connection, _COLUMNS, (keyspace, table))
    if not rows:
        return None

    def of_kind(kind: str) -> tuple[str, ...]:
        members = sorted((position, name) for name, row_kind, position, _ in rows if row_kind == kind)
        return tuple(name for _, name in members)

    types = {name: kind for name, _, _, kind in rows}
    return CassandraTable(types, of_kind("partition_key"), of_kind("clustering"), frozenset(of_kind("static")))


def keyspace_exists(connection: CqlConnection, keyspace: str) -> bool:
    """Whether there is such a keyspace. Raises Retriable or Fatal. Blocks."""
    return bool(_read_rows(connection, _KEYSPACE, (keyspace,)))


def _read_rows(connection: CqlConnection, query: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    statement = connection.prepare(query, None)
    try:
        page = connection.session.execute(statement.bind(parameters, _ROWS_PER_PAGE, "ONE", None)).one()
    except Exception as error:
        raise connection.error(error, query) from error
    return statement.decode(page)


def check_cluster(settings: CassandraSinkSettings, declared: Sequence[TableSchema] = ()) -> list[str]:
    """Complaints that only the cluster can make: about the login, and tables that are there already.

    These are the one whose name does not depend on the source, and those of ``declared``: what is known of the source's tables
    before their records come. Raises as ``open_connection``.
    """
    with open_cluster(settings) as connection:
        keyspace, table = settings.keyspace.text, settings.table.text
        if "${" not in keyspace and not settings.replication and not keyspace_exists(connection, usable_name(keyspace)):
            keyspace_problem = (
                f"there is no keyspace {keyspace}; create it, or set {PREFIX}replication so that the job creates it"
            )
            return [f"{PREFIX}keyspace: {keyspace_problem}"]
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
                problems += [where + problem for problem in _find_problems(settings, schemas, present)]
        return problems


def _find_problems(
    settings: CassandraSinkSettings, schemas: Sequence[TableSchema], present: CassandraTable
) -> list[str]:
    """Reasons why a table does not fit, as far as they show before records come. Pure."""
    problems = tables.table_problems(present)
    if settings.rows.key_columns and settings.rows.mode != INSERT:
        problems += tables.key_problems(present, settings.rows.key_columns, settings.partition_columns)
    for schema in schemas:
        if key_of(schema, settings.rows):
            problems += tables.find_misfits(settings, schema, present)
        else:  # the key may come with the records
            problems += tables.column_problems(schema, present)
    return list(dict.fromkeys(problems))


@dataclass(slots=True)
class CassandraTables:
    """The tables that a run of the sink writes: each is looked up once, and again when its schema changes."""

    settings: CassandraSinkSettings
    _targets: dict[str, tuple[TableSchema, CassandraTable]] = field(default_factory=dict)
    _owners: dict[tuple[str, str], str] = field(default_factory=dict)

    def target(self, changes: TableChanges) -> CassandraSinkTarget:
        """How a table's rows are written; creates and changes the table where that is needed. Blocks.

        Raises:
            SchemaRefused: the table does not fit, or may not be changed; the text says the statement to run.
            Retriable, Fatal: as ``open_connection``.
        """
        schema = changes.schema
        match = self._targets.get(schema.namespace)
        if match is None or match[0] != schema:
            match = schema, self._prepare_table(schema)
            self._targets[schema.namespace] = match
        return tables.target_of(self.settings, schema, match[1], changes.lacking)

    def forget(self) -> None:
        """Look the tables up again at the next batch: somebody may have changed them."""
        self._targets.clear()

    def _prepare_table(self, schema: TableSchema) -> CassandraTable:
        settings = self.settings
        names = tables.names_of(settings, schema.namespace)
        where = ".".join(names)
        owner = self._owners.setdefault(names, find_identity(schema.namespace))
        if owner != find_identity(schema.namespace):
            raise Fatal(
                f"the source tables {owner} and {find_identity(schema.namespace)} would both be written to {where}: name more "
                "parts "
                f"in {PREFIX}table (${{database}}_${{table}})"
            )
        with open_cluster(settings) as connection:
            present = read_table(connection, *names)
            if present is None:
                self._create_table(connection, schema, names)
                present = read_table(connection, *names)
            if present is None:
                raise Fatal(f"table {where} was created and can't be seen: may the user read system_schema?")
            problems = tables.find_misfits(settings, schema, present)
            if problems:
                raise SchemaRefused(f"table {where} does not fit: {'; '.join(problems)}", schema.namespace)
            missing = tables.add_columns(settings, schema, present)
            if missing and not settings.auto_evolve:
                message = f"table {where} lacks columns, and {PREFIX}auto.evolve is off; run:\n" + ";\n".join(missing)
                raise SchemaRefused(message, schema.namespace)
            for statement in missing:
                try:
                    _change_schema(connection, statement)
                except Fatal:
                    current = read_table(connection, *names)
                    if current is None or statement in tables.add_columns(settings, schema, current):
                        raise  # no other job has added the column meanwhile
            evolved = read_table(connection, *names) if missing else present
            return evolved or present

    def _create_table(self, connection: CqlConnection, schema: TableSchema, names: tuple[str, str]) -> None:
        settings = self.settings
        statement = tables.create_table(settings, schema)
        if not settings.auto_create:
            raise Fatal(f"table {'.'.join(names)} does not exist, and {PREFIX}auto.create is off; run:\n{statement}")
        if not keyspace_exists(connection, names[0]):
            if not settings.replication:
                raise Fatal(
                    f"there is no keyspace {names[0]}; create it, or set {PREFIX}replication so that the job creates it"
                )
            _change_schema(connection, tables.create_keyspace(names[0], settings.replication))
        _change_schema(connection, statement)


def _change_schema(connection: CqlConnection, statement: str) -> None:
    """Run a statement that changes the schema; waits until the nodes agree on it."""
    try:
        connection.session.execute(connection.simple(statement, 1, "LOCAL_ONE"))
    except Exception as error:
        raise connection.error(error, statement) from error
