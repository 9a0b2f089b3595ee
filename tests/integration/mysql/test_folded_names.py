"""A server that takes names in any case and stores them in lower case (``lower_case_table_names=1``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compose.local.mariadb import MariaDb
from connectors.formats import ums
from connectors.mysql.connector import MySqlConnector
from connectors.testing.driver import Run
from tests.integration.mysql.changes_world import LIMIT, Source, brief
from worker.fetch.errors import Unavailable
from worker.terminal import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="module")
def folding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    server = MariaDb(
        tmp_path_factory.mktemp("folding"),
        port=None,
        durable=False,
        say=say,
        settings={"lower-case-table-names": "1"},
    )
    try:
        _ = server.service
    except Unavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield server


@pytest.fixture
def source(folding: MariaDb, unique: Callable[[str], str]) -> Iterator[Source]:
    source = Source(folding, f"fold_{unique('x')[-8:]}".lower())
    yield source
    source.sql(f"DROP DATABASE {source.name}")
    source.link.close()


async def test_statements_mean_the_table_whatever_the_case_of_its_name(source: Source) -> None:
    database = source.name.upper()
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    records = await source.changes(
        "INSERT INTO t VALUES (1)",
        f"TRUNCATE TABLE {database}.T",
        "INSERT INTO t VALUES (2)",
        "ALTER TABLE T ADD v INT",
        "INSERT INTO T VALUES (3, 3)",
        skipped__operations="none",
        include__schema__changes="true",
    )
    rows = [record for record in records if record.topic != "p"]
    assert brief(rows) == [
        ("c", {"id": 1}, None, {"id": 1}),
        ("t", None, None, None),
        ("c", {"id": 2}, None, {"id": 2}),
        ("c", {"id": 3}, None, {"id": 3, "v": 3}),
    ]
    (altered,) = (record.value for record in records if record.topic == "p" and record.value["ddl"].startswith("ALTER"))
    (change,) = altered["tableChanges"]
    assert change["id"] == f'"{source.name}"."t"'
    assert [column["name"] for column in change["table"]["columns"]] == ["id", "v"]


async def test_a_table_renamed_into_the_list_is_read(source: Source) -> None:
    source.sql("CREATE TABLE other (id INT PRIMARY KEY)", "INSERT INTO other VALUES (1), (2)")
    config = source.config(snapshot__mode="initial", table__include__list=rf"{source.name}\.(wanted|the_end)")
    async with Run(MySqlConnector, config) as run:
        assert await run.take(LIMIT) is not None
        source.sql("RENAME TABLE Other TO Wanted", "INSERT INTO wanted VALUES (3)")
        rows: list[Any] = []
        while len({after["id"] for _, _, _, after in rows}) < 3:
            batch = await run.take(LIMIT)
            assert batch is not None, f"{rows}\n{run.log.text()}"
            rows += brief([record for record in batch[1].records if record.topic.endswith("wanted")])


async def test_the_end_of_a_table_names_its_version(source: Source) -> None:
    source.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    async with Run(MySqlConnector, source.config(output__format="ums", table__version__topic="none")) as run:
        assert await run.take(LIMIT) is not None
        source.sql("INSERT INTO t VALUES (1)", "ALTER TABLE t ADD v INT", "INSERT INTO t VALUES (2, 2)", "DROP TABLE T")
        ends: list[str] = []
        while len(ends) < 2:
            batch = await run.take(LIMIT)
            assert batch is not None, f"{ends}\n{run.log.text()}"
            ends += [
                record.value["schema"]["namespace"]
                for record in batch[1].records
                if record.value is not None and record.value["protocol"]["type"] == ums.INCREMENT_TERMINATION
            ]
    spaces = [ums.Namespace.parse(end) for end in ends]
    assert [(space.table, space.version) for space in spaces] == [("t", "1"), ("t", "2")]


async def test_the_signal_table_may_be_named_in_any_case(source: Source) -> None:
    source.sql(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "CREATE TABLE signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)",
    )
    config = source.config(signal__data__collection=f"{source.name.upper()}.Signals")
    async with Run(MySqlConnector, config) as run:
        assert await run.take(LIMIT) is not None
        source.sql(
            f"INSERT INTO Signals VALUES ('one', 'execute-snapshot', '{{\"data-collections\": [\"{source.name}.t\"]}}')"
        )
        while True:
            batch = await run.take(LIMIT)
            assert batch is not None, run.log.text()
            if any(op == "r" for op, *_ in brief([record for record in batch[1].records if record.value is not None])):
                break
