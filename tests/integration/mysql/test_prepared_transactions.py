"""XA transactions: the stream sends one when it is prepared, and the server shows its rows only when it is committed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from connectors.mysql.connector import MySqlConnector
from connectors.testing.driver import Run
from tests.integration.mysql.changes_world import LIMIT, Source
from tests.support.eventually import patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from connectors.api import SourceRecord
    from tests.conftest import HasMariaDb

#: The snapshot of ``t`` that a signal asks for.
ORDER = "INSERT INTO orders VALUES ('one', 'execute-snapshot', '{{\"data-collections\": [\"{}.t\"]}}')"


@pytest.fixture
def source(server: HasMariaDb, unique: Callable[[str], str]) -> Iterator[Source]:
    source = Source(server, f"xa_{unique('x')[-8:]}")
    source.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE orders (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)",
        "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
    )
    yield source
    source.sql(f"DROP DATABASE {source.name}")
    source.link.close()


@contextmanager
def prepared(source: Source, xid: str, *statements: str) -> Iterator[None]:
    """A transaction that is prepared, by a client that is gone."""
    link = source.connection()
    with link.cursor() as cursor:
        for statement in (f"USE {source.name}", f"XA START {xid}", *statements, f"XA END {xid}", f"XA PREPARE {xid}"):
            cursor.execute(statement)
    link.close()
    yield


CHANGES = ("UPDATE t SET v = 9 WHERE id = 1", "DELETE FROM t WHERE id = 2")


async def take_all(run: Run, quiet_s: float) -> list[SourceRecord]:
    """The records that come until none has come for a while, without tombstones."""
    records: list[SourceRecord] = []
    while (batch := await run.take(quiet_s)) is not None:
        records += [record for record in batch[1].records if record.value is not None]
    return records


async def take_snapshots(run: Run, count: int) -> list[SourceRecord]:
    """The records until that many snapshots are complete."""
    records: list[SourceRecord] = []
    while [offset["state"] for partition, offset in run.offsets.items() if "snapshot" in partition] != [
        "completed"
    ] * count:
        batch = await run.take(LIMIT)
        assert batch is not None, run.log.text()
        records += [record for record in batch[1].records if record.value is not None]
    return records


def fold(records: Sequence[SourceRecord]) -> dict[int, Any]:
    """The rows of ``t`` that the topic leaves."""
    rows: dict[int, Any] = {}
    for record in records:
        if record.topic.endswith(".t"):
            rows.pop(record.key["id"], None)
            if record.value["after"] is not None:
                rows[record.key["id"]] = record.value["after"]["v"]
    return rows


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_a_first_snapshot_waits_for_a_transaction_that_was_prepared_before_it(source: Source, end: str) -> None:
    with prepared(source, "'x'", *CHANGES):
        async with Run(MySqlConnector, source.config(snapshot__mode="initial")) as run:
            records = await take_all(run, 2.0)
            source.sql(f"XA {end} 'x'")
            records += await take_snapshots(run, 1)
            records += await source.rest(run)
    assert fold(records) == dict(source.sql("SELECT id, v FROM t"))


async def test_a_snapshot_waits_for_a_transaction_that_an_earlier_run_has_sent(source: Source) -> None:
    """A row that it deletes would come back, and one that it updates would get its old value."""
    config = source.config(signal__data__collection=f"{source.name}.orders", snapshot__mode="initial")
    async with Run(MySqlConnector, config) as run:
        records = await take_snapshots(run, 1)
        with prepared(source, "X'00ff',X'c3',7", *CHANGES):
            records += await source.rest(run)
        offsets = run.offsets
    assert fold(records) == {1: 9, 3: 3}
    source.sql(ORDER.format(source.name))
    async with Run(MySqlConnector, config, offsets=offsets) as run:
        records += await take_all(run, 2.0)
        source.sql("XA COMMIT X'00ff',X'c3',7")
        records += await take_snapshots(run, 2)
        records += await source.rest(run)
    assert fold(records) == dict(source.sql("SELECT id, v FROM t")) == {1: 9, 3: 3}


async def test_a_snapshot_ends_although_transactions_are_prepared_all_the_time(source: Source) -> None:
    source.sql(
        "CREATE TABLE keyless (id INT, v INT)",
        "INSERT INTO t SELECT seq + 3, seq FROM seq_1_to_2000",
        "INSERT INTO keyless SELECT seq + 3, seq FROM seq_1_to_2000",
    )
    ended = False

    def write(number: int) -> None:
        link = source.connection()
        with link.cursor() as cursor:
            cursor.execute(f"USE {source.name}")
            count = 0
            while not ended:
                count += 1
                xid = f"'b{number}-{count}'"
                for statement in (
                    f"XA START {xid}",
                    f"UPDATE t SET v = -1 WHERE id = {4 + 2 * count + number}",
                    f"INSERT INTO keyless VALUES ({number}, {count})",
                    f"XA END {xid}",
                    f"XA PREPARE {xid}",
                    f"XA COMMIT {xid}",
                ):
                    cursor.execute(statement)
        link.close()

    writers = [asyncio.create_task(asyncio.to_thread(write, number)) for number in (0, 1)]
    try:
        config = source.config(snapshot__mode="initial", snapshot__chunk__rows="200")
        async with Run(MySqlConnector, config) as run:
            async with patience(60):
                records = await take_snapshots(run, 1)
            ended = True
            await asyncio.gather(*writers)
            records += await source.rest(run)
    finally:
        ended = True
        await asyncio.gather(*writers)
    assert fold(records) == dict(source.sql("SELECT id, v FROM t"))
    copies = Counter(tuple(record.value["after"].values()) for record in records if record.topic.endswith(".keyless"))
    assert copies == Counter(source.sql("SELECT id, v FROM keyless"))


async def test_only_a_rollback_of_rows_that_were_sent_is_an_error(source: Source) -> None:
    """Transactions of other tables are rolled back every day; a snapshot does not help then."""
    source.sql("CREATE TABLE uncaptured (id INT PRIMARY KEY)")
    config = source.config(table__exclude__list=f"{source.name}.uncaptured")
    async with Run(MySqlConnector, config) as run:
        assert await run.take(LIMIT) is not None
        for xid, statement in (("'other'", "INSERT INTO uncaptured VALUES (1)"), ("'captured'", CHANGES[0])):
            with prepared(source, xid, statement):
                await end_transaction(source, f"XA ROLLBACK {xid}")
        await source.rest(run)
    (error,) = [line for level, line in run.log.lines if level >= logging.ERROR]
    assert f"XA ROLLBACK X'{b'captured'.hex()}'" in error


async def end_transaction(source: Source, statement: str) -> None:
    """End a prepared transaction once the server has noticed that its client is gone."""
    async with patience(LIMIT):
        while True:
            with contextlib.suppress(pymysql.OperationalError):
                source.sql(statement)
                return
            await asyncio.sleep(0.05)


async def test_the_log_names_the_right_that_an_account_lacks(mysql: HasMariaDb, unique: Callable[[str], str]) -> None:
    source = Source(mysql, f"xa_{unique('x')[-8:]}")
    source.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1)",
        f"CREATE USER {source.name}@'%' IDENTIFIED BY 'Secret,1'",
        f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {source.name}@'%'",
    )
    config = {
        **source.config(snapshot__mode="initial"),
        "database.user": source.name,
        "database.password": "Secret,1",
    }
    try:
        async with Run(MySqlConnector, config) as run:
            assert fold(await take_snapshots(run, 1)) == {1: 1}
            assert run.log.text().count("GRANT XA_RECOVER_ADMIN ON *.*") == 1
        source.sql(f"GRANT XA_RECOVER_ADMIN ON *.* TO {source.name}@'%'")
        async with Run(MySqlConnector, config) as run:
            assert fold(await take_snapshots(run, 1)) == {1: 1}
            assert "XA" not in run.log.text()
    finally:
        source.sql(f"DROP USER {source.name}@'%'", f"DROP DATABASE {source.name}")
        source.link.close()
