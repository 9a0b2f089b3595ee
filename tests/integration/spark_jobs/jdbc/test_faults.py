"""Faults of the sink: the server goes away, a worker dies between statement and commit, a login or a table is wrong."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import DateType, StringType

from compose.local.mariadb import MariaDb
from compose.local.postgres import Postgres
from connectors.errors import Fatal, Retriable
from connectors.options import ConfigDef
from spark_jobs.contract import Column, TableSchema
from spark_jobs.sinks.jdbc.config import CONFIG_DEF
from spark_jobs.sinks.jdbc.dialect.dialects import load_dialect
from spark_jobs.sinks.jdbc.sink import JdbcSink
from tests.integration.spark_jobs.jdbc.conftest import database, simple
from worker.fetch.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.spark_jobs.jdbc.conftest import Database, Rig


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Postgres | MariaDb]:
    """A server of the test's own, to be killed."""
    server = (Postgres if request.param == "postgresql" else MariaDb)(tmp_path, port=None, durable=False)
    try:
        _ = server.service
    except Unavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield server


@pytest.mark.proves("into jdbc insert", "exactly-once", killed=["server"])
def test_a_server_that_is_killed_and_comes_back(
    rig: Callable[..., Rig], server: Postgres | MariaDb, table: str
) -> None:
    db = database(server.url, server.user, server.password)
    patient = rig(db, **{"sink.jdbc.batch.rows": "10", "sink.jdbc.retries": "100", "sink.jdbc.mode": "insert"})
    changes = [{"id": n, "name": str(n), "ums_id_": n, "kafka_offset_": n} for n in range(3000)]
    patient.write(simple(table), changes[:1])
    failures: list[BaseException] = []

    def write() -> None:
        try:
            patient.write(simple(table), changes)
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(2):
        before = _count(db, table)
        while _count(db, table) <= before and thread.is_alive():
            pass  # each look is a round trip
        server.kill()
        server.start()
    thread.join(60)
    assert not failures
    assert _count(db, table) == 3000  # none lost, none twice
    hasty = rig(db, **{"sink.jdbc.retries": "1"})
    hasty.write(simple(f"{table}u"), changes[:1])
    server.kill()
    with pytest.raises(Retriable, match=f"{table}u .* could not be written 2 times"):
        hasty.task_only(simple(f"{table}u"), changes[:5])
    server.start()
    assert hasty.write(simple(f"{table}u"), changes[:5]) == 5


def _count(db: Database, table: str) -> int:
    return int(db.query(f"SELECT COUNT(*) FROM {db.quote(table)}")[0][0])


_WORKER = """
import os, signal, sys
sys.path.insert(0, {root!r})
from tests.integration.spark_jobs.jdbc import conftest
from spark_jobs.sinks.jdbc import task

url, user, password, table, mode, job, moment = sys.argv[1:]
options = {{"sink.jdbc.mode": mode, "sink.jdbc.delete.mode": "real"}}
made = conftest.Rig(None, conftest.database(url, user, password), options, job)
put_aside = task._Writer._put_aside

def die(self, bad):
    if moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)  # all statements are done, the commit is not
    put_aside(self, bad)

task._Writer._put_aside = die
rows = [{{"id": n, "name": "x", "ums_id_": n, "kafka_offset_": n}} for n in range(20)]
made.write(conftest.simple(table), rows)
os.kill(os.getpid(), signal.SIGKILL)  # committed, but nobody was told
"""


@pytest.mark.proves("into jdbc upsert", "exactly-once", killed=["Python worker"])
@pytest.mark.proves("into jdbc insert", "exactly-once", killed=["Python worker"])
@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_a_worker_that_is_killed_around_its_commit(
    rig: Callable[..., Rig], db: Database, table: str, mode: str
) -> None:
    root = str(Path(__file__).parents[4])
    job = rig(db, **{"sink.jdbc.mode": mode, "sink.jdbc.delete.mode": "real"})
    job.write(simple(table), [])
    for moment, there in (("before", 0), ("after", 20)):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                _WORKER.format(root=root),
                db.url,
                db.login.user,
                db.login.password,
                table,
                mode,
                job.job,
                moment,
            ],
            check=False,
            capture_output=True,
            text=True,
            cwd=root,
            env={**os.environ, "PYTHONPATH": root},
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert _count(db, table) == there
    rows = [{"id": n, "name": "x", "ums_id_": n, "kafka_offset_": n, "ums_op_": "i"} for n in range(25)]
    job.write(simple(table), rows)
    assert db.rows(table, "id") == sorted(((n,) for n in range(25)), key=repr)


def test_a_lock_that_is_held_too_long_is_retried(rig: Callable[..., Rig], db: Database, table: str) -> None:
    job = rig(db, **{"sink.jdbc.statement.timeout.ms": "300", "sink.jdbc.retries": "1"})
    row = {"id": 1, "name": "a", "ums_id_": 1}
    job.write(simple(table), [row])
    with closing(load_dialect(db.name).connect(db.login)) as holder, closing(holder.cursor()) as cursor:
        cursor.execute(f"UPDATE {db.quote(table)} SET name = 'held' WHERE id = 1")
        with pytest.raises(Retriable, match=r"could not be written 2 times: .*(timeout|max_statement_time|locked)"):
            job.write(simple(table), [{**row, "name": "b", "ums_id_": 2}])
        holder.rollback()
    job.write(simple(table), [{**row, "name": "b", "ums_id_": 2}])
    assert db.rows(table, "name, ums_id_") == [("b", 2)]


class Letters:
    """Takes reports as the job's dead letters do."""

    def __init__(self) -> None:
        self.reported: list[tuple[Any, ...]] = []

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def report(self, *where: Any, stage: str) -> None:
        self.reported.append((*where[:3], str(where[5]), stage))


def test_bad_rows_are_put_aside_where_that_is_wanted(rig: Callable[..., Rig], db: Database, table: str) -> None:
    letters = Letters()
    job = rig(db)
    refused = 1.0 if db.name == "postgresql" else float("nan")
    name = "nul \0 byte" if db.name == "postgresql" else "fine"
    rows = [
        {"id": n, "name": name if n in (3, 17) else "ok", "amount": refused if n in (3, 17) else 1.0, "ums_id_": n}
        for n in range(40)
    ]
    done = job.task(simple(table), rows, letters)
    assert (done["rows"], done["loaded"], done["bad"], done["error"]) == (40, 38, 2, None)
    assert [letter[:3] for letter in letters.reported] == [("topic", 0, 3), ("topic", 0, 17)]
    assert "with id=3" in letters.reported[0][3]
    assert _count(db, table) == 38


def test_a_row_that_is_larger_than_a_statement_may_be_is_put_aside(
    rig: Callable[..., Rig], mariadb: MariaDb, table: str
) -> None:
    db = database(mariadb.url, mariadb.user, mariadb.password)
    ((largest,),) = db.query("SELECT @@max_allowed_packet")
    letters = Letters()
    db.query("SET GLOBAL max_allowed_packet = 1048576")
    try:
        rows = [{"id": n, "name": "x" * (2 << 20 if n == 3 else 500_000), "ums_id_": n} for n in range(5)]
        done = rig(db).task(simple(table), rows, letters)
    finally:
        db.query(f"SET GLOBAL max_allowed_packet = {largest}")
    assert (done["loaded"], done["bad"], done["retries"], done["error"]) == (4, 1, 0, None)
    assert [letter[:3] for letter in letters.reported] == [("topic", 0, 3)]
    assert "max_allowed_packet is 1048576" in letters.reported[0][3]
    assert db.rows(table, "id") == [(0,), (1,), (2,), (4,)]


def test_a_row_with_a_key_that_no_index_takes_is_put_aside(
    rig: Callable[..., Rig], postgresql: Database, table: str
) -> None:
    key = Column("id", StringType(), nullable=False, key=True)
    letters = Letters()
    rows = [{"id": name, "ums_id_": 1} for name in ("a", secrets.token_hex(20_000), "b")]
    done = rig(postgresql).task(TableSchema(f"shop.{table}", (key,)), rows, letters)
    assert (done["loaded"], done["bad"], done["error"]) == (2, 1, None)
    assert [letter[:3] for letter in letters.reported] == [("topic", 0, 1)]
    assert postgresql.rows(table, "id") == [("a",), ("b",)]


def test_a_row_with_a_day_beyond_pythons_years(rig: Callable[..., Rig], server_db: Database, table: str) -> None:
    """Of PostgreSQL's own range it is written; the server refuses others, and the row is put aside."""
    schema = simple(table, Column("day", DateType()))
    letters = Letters()
    days = [1, 36_000_000 if server_db.name == "postgresql" else 2, 2**31 - 1, -800_000]
    rows = [{"id": number, "day": day, "ums_id_": 1} for number, day in enumerate(days)]
    done = rig(server_db).task(schema, rows, letters)
    assert (done["loaded"], done["bad"], done["error"]) == (2, 2, None)
    assert [letter[2] for letter in letters.reported] == [2, 3]
    if server_db.name == "postgresql":
        assert server_db.rows(table, "day::text") == [("100534-08-27",), ("1970-01-02",)]


def check(db: Database, **options: str) -> list[str]:
    return JdbcSink.check(
        ConfigDef(list(CONFIG_DEF.keys.values())).parse(
            {
                **db.options,
                **options,
            }
        )
    )


def test_checks_say_what_is_missing_and_how_it_is_granted(server_db: Database, table: str) -> None:
    db = server_db
    assert check(db) == []
    (wrong,) = check(db, **{"sink.jdbc.password": "not-the-secret"})
    assert wrong.startswith("sink.jdbc.user: ")
    assert "not-the-secret" not in wrong
    (missing,) = check(db, **{"sink.jdbc.url": db.url + "_none"})
    assert "_none" in missing
    (away,) = check(db, **{"sink.jdbc.url": db.url.replace(str(db.login.address.hosts[0][1]), "1")})
    assert away.startswith("sink.jdbc.url: ")
    tls = check(db, **{"sink.jdbc.ssl.mode": "require"})
    # MySQL makes a certificate for itself.
    assert [line.partition(":")[0] for line in tls] == ([] if db.name == "mysql" else ["sink.jdbc.ssl.mode"])
    (schema,) = check(db, **{"sink.jdbc.schema": "nowhere"})
    assert "run: CREATE" in schema
    (emoji,) = check(db, **{"sink.jdbc.schema": "nowhere🙂"})
    assert ("names have characters up to U+FFFF only" if db.name != "postgresql" else "run: CREATE") in emoji
    weak = f"weak_{table}"
    if db.name == "postgresql":
        db.query(f"CREATE ROLE {weak} LOGIN PASSWORD 'weak'")
        problems = check(db, **{"sink.jdbc.user": weak, "sink.jdbc.password": "weak"})
        (problem,) = problems
        assert problem.startswith(f"sink.jdbc.user: {weak} may not make tables in schema public; run: ")
        assert f'GRANT CREATE ON SCHEMA "public" TO "{weak}", or set sink.jdbc.auto.create=false' in problem
    else:
        db.query(f"CREATE USER {weak} IDENTIFIED BY 'weak'")
        db.query(f"GRANT SELECT, INSERT ON millrace.* TO {weak}")
        (problem,) = check(db, **{"sink.jdbc.user": weak, "sink.jdbc.password": "weak"})
        assert (
            f"run: GRANT UPDATE, DELETE, CREATE TEMPORARY TABLES, CREATE, ALTER ON `millrace`.* TO '{weak}'@'%'"
            in problem
        )


def test_a_login_that_fails_while_running_is_fatal(rig: Callable[..., Rig], server_db: Database, table: str) -> None:
    with pytest.raises(Fatal, match=r"denied|authentication"):
        rig(server_db, **{"sink.jdbc.password": "wrong"}).write(simple(table), [])
