"""The databases behind one face, and batches made by hand: the sink needs only `batch.changes()`."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import itertools
import logging
import secrets
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from connectors.errors import Fatal, Retriable
from connectors.options import ConfigDef, ConfigKey, ConfigType
from spark_jobs.contract import SYSTEM_COLUMNS, Batch, Column, JobContext, TableChanges, TableSchema
from spark_jobs.sinks.jdbc.config import CONFIG_DEF, Login
from spark_jobs.sinks.jdbc.dialect.dialects import load_dialect
from spark_jobs.sinks.jdbc.sink import JdbcSink
from spark_jobs.sinks.jdbc.task import TaskWriter
from tests.support.settings import jdbc_login

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from compose.local.databases.mysql_debian import MySqlServer
    from compose.local.mariadb import MariaDb
    from compose.local.postgres import Postgres
    from spark_jobs.sinks.jdbc import database as sink_database
    from spark_jobs.sinks.jdbc.tables import Columns

#: The frame's options that the sink looks at.
_FRAME = [
    ConfigKey(name="guarantee", type=ConfigType.STRING, doc="-", default=None),
    ConfigKey(name="errors.tolerance", type=ConfigType.STRING, doc="-", default="none"),
]


@dataclass(slots=True)
class Database:
    """A server with a client of the test's own."""

    url: str
    login: Login
    _connection: Any = None

    @property
    def name(self) -> str:
        """The dialect."""
        return self.login.address.dialect

    def query(self, statement: str, arguments: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement, committed at once."""
        kind = load_dialect(self.name)
        with closing(kind.connect(self.login)) as connection, closing(connection.cursor()) as cursor:
            # Statements of tests mark values as most drivers do.
            marked = statement if arguments is None else statement.replace("%s", kind.placeholder)
            cursor.execute(marked, *(() if arguments is None else (arguments,)))
            rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
            connection.commit()
        return rows

    def quote(self, name: str) -> str:
        """A quoted name."""
        return load_dialect(self.name).quote(name)

    def columns(self, table: str) -> dict[str, str]:
        """The types of a table's columns by name; empty where there is no table."""
        kind = load_dialect(self.name)
        with closing(kind.connect(self.login)) as connection:
            table_found = kind.describe(connection, "", table)
        return {} if table_found is None else {name: column.type for name, column in table_found.columns.items()}

    @property
    def options(self) -> dict[str, str]:
        """The sink's options that lead to it."""
        login = {"sink.jdbc.user": self.login.user, "sink.jdbc.password": self.login.password}
        return {"sink.jdbc.url": self.url, **(login if self.login.user else {})}

    def rows(self, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
        """A table's rows, ordered by all its columns."""
        return sorted(self.query(f"SELECT {columns} FROM {self.quote(table)}"), key=repr)


def database(url: str, user: str, password: str) -> Database:
    return Database(url, jdbc_login(url, user, password))


@pytest.fixture
def postgresql(postgres: Postgres) -> Database:
    return database(postgres.url, postgres.user, postgres.password)


@pytest.fixture
def maria(mariadb: MariaDb) -> Database:
    return database(mariadb.url, mariadb.user, mariadb.password)


@pytest.fixture
def sqlite(tmp_path: Path) -> Database:
    """A file of the test's own."""
    return database(f"jdbc:sqlite:{tmp_path}/shop.db", "", "")


@pytest.fixture
def real_mysql(mysql: MySqlServer) -> Database:
    return database(f"jdbc:mysql://{mysql.address}/{mysql.database}", mysql.user, mysql.password)


#: The fixture of each dialect. MySQL is a large download: its tests are slow ones.
FIXTURES = {"postgresql": "postgresql", "mariadb": "maria", "sqlite": "sqlite", "mysql": "real_mysql"}
SERVERS = ["postgresql", "mariadb", pytest.param("mysql", marks=pytest.mark.slow)]


@pytest.fixture(params=[*SERVERS, "sqlite"])
def db(request: pytest.FixtureRequest) -> Database:
    """Each database in turn."""
    chosen: Database = request.getfixturevalue(FIXTURES[request.param])
    return chosen


@pytest.fixture(params=SERVERS)
def server_db(request: pytest.FixtureRequest) -> Database:
    """Each database that has a server, in turn."""
    chosen: Database = request.getfixturevalue(FIXTURES[request.param])
    return chosen


@pytest.fixture
def table() -> str:
    """A table's name that no other test uses."""
    return f"t{secrets.token_hex(6)}"


@dataclass(slots=True)
class Rig:
    """A sink over a database, and batches for it."""

    spark: SparkSession | None
    database: Database
    options: Mapping[str, str]
    job: str = field(default_factory=lambda: f"job-{secrets.token_hex(4)}")
    sink: JdbcSink = field(init=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A new sink, as after a crash of the driver."""
        config = ConfigDef([*_FRAME, *CONFIG_DEF.keys.values()]).parse(
            {
                **self.database.options,
                "sink.jdbc.retry.backoff.ms": "20",
                **self.options,
            }
        )
        session = cast("SparkSession", self.spark)  # a task alone needs none
        self.sink = JdbcSink(JobContext(self.job, config, session, logging.LoggerAdapter(logging.getLogger("test"))))

    @property
    def target(self) -> sink_database.Database:
        """The sink's only database, as it sees it."""
        (only,) = self.sink._databases
        return only

    def changes(self, schema: TableSchema, rows: Sequence[Mapping[str, Any]]) -> TableChanges:
        """Typed changes: rows without system columns get sensible ones."""
        assert self.spark is not None, "give the rig a session"
        return TableChanges(schema, self.spark.createDataFrame(arrow(schema, rows)).coalesce(1))

    def batch(self, *tables: TableChanges) -> Batch:
        return Batch(next(self._numbers), None, {}, lambda: tables)  # type: ignore[arg-type]  # raw records are not looked at

    def write(self, schema: TableSchema, rows: Sequence[Mapping[str, Any]]) -> int:
        """Write one batch; through Spark where there is a session, else by one task as Spark would call it."""
        if self.spark is not None:
            return self.sink.write(self.batch(self.changes(schema, rows)))
        done = self.task(schema, rows)
        if done["error"]:
            raise (Retriable if done["passing"] else Fatal)(done["error"])
        return int(done["loaded"])

    def task_only(self, schema: TableSchema, rows: Sequence[Mapping[str, Any]]) -> int:
        """As `write`, by a plan that was made before: the driver asks the database nothing."""
        _, plan, names = self.target._tables._plans[schema.namespace]
        (report,) = TaskWriter(plan)(iter(self.projected(schema, rows, names).to_batches()))
        (done,) = report.to_pylist()
        if done["error"]:
            raise (Retriable if done["passing"] else Fatal)(done["error"])
        return int(done["loaded"])

    def task(self, schema: TableSchema, rows: Sequence[Mapping[str, Any]], letters: Any = None) -> dict[str, Any]:
        """Run one task over the rows in this process; its report."""
        with self.target.connection() as connection:
            plan, names, _ = self.target._tables.plan(schema, connection)
        (report,) = TaskWriter(plan, letters)(iter(self.projected(schema, rows, names).to_batches()))
        (done,) = report.to_pylist()
        if done["error"]:
            self.target._tables.forget()
        return dict(done)

    def projected(self, schema: TableSchema, rows: Sequence[Mapping[str, Any]], names: Columns) -> pa.Table:
        """The result of `sink.projected`, without Spark."""
        chosen = self.target.settings
        table = arrow(schema, rows)
        if chosen.mode != "insert":
            table = table.filter(pc.not_equal(table["ums_op_"], "b"))
        renamed = {to: table[source] for source, to in names.pairs}
        active = pc.if_else(pc.equal(table["ums_op_"], "d"), pa.scalar(0, pa.int8()), pa.scalar(1, pa.int8()))
        return pa.table({**renamed, **{name: table[name] for name in SYSTEM_COLUMNS}, "ums_active_": active})


def arrow(schema: TableSchema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as the frame of `TableChanges` has them."""
    from pyspark.sql.pandas.types import to_arrow_type

    types = {column.name: to_arrow_type(column.type, timezone="UTC") for column in schema.columns}
    types |= dict(
        zip(
            SYSTEM_COLUMNS,
            (pa.int64(), pa.timestamp("us", "UTC"), pa.string(), pa.string(), pa.string(), pa.int32(), pa.int64()),
            strict=True,
        )
    )
    full = []
    for number, row in enumerate(rows):
        full_row = {
            "ums_ts_": 1_780_000_000_000_000 + int(row.get("ums_id_", 0)),
            "ums_op_": "i",
            "kafka_topic_": "topic",
            "kafka_partition_": 0,
            "kafka_offset_": number,
            **row,
        }
        full_row.setdefault(
            "ums_uid_", f"u{full_row['kafka_partition_']}-{full_row['kafka_offset_']}-{full_row['ums_id_']}"
        )
        full.append(full_row)
    return pa.table({name: pa.array([row.get(name) for row in full], kind) for name, kind in types.items()})


@pytest.fixture
def rig() -> Iterator[Callable[..., Rig]]:
    """Makes rigs: `rig(db, **{"sink.jdbc.mode": "split"})`; their sinks are closed after the test.

    Without a session (`spark=...`) a batch is one task in this process: the same code, a hundredth of the time.
    """
    rigs: list[Rig] = []

    def make(chosen: Database, spark: SparkSession | None = None, **options: str) -> Rig:
        rigs.append(Rig(spark, chosen, options))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.sink.close()


def simple(table: str, *extra: Column) -> TableSchema:
    """A table with an int key, a string and a number."""
    from pyspark.sql.types import DoubleType, IntegerType, StringType

    return TableSchema(
        f"shop.{table}",
        (
            Column("id", IntegerType(), nullable=False, key=True),
            Column("name", StringType()),
            Column("amount", DoubleType()),
            *extra,
        ),
    )
