"""information_schema of a real server: structures, keys, estimates, and that they agree with the binlog's table maps."""

from __future__ import annotations

import asyncio
import secrets
import threading
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from connectors.mysql.model import TableName
from connectors.mysql.schema import catalog
from connectors.mysql.snapshot.reading import lookup
from connectors.mysql.source.connection import connect_first, query_rows
from connectors.options import Password
from tests.support.settings import mysql_connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.conftest import HasMariaDb

TABLES = """
CREATE TABLE plain (id INT UNSIGNED NOT NULL AUTO_INCREMENT COMMENT 'the number', name VARCHAR(20) CHARACTER SET utf8mb3
    COLLATE utf8mb3_bin DEFAULT 'x', note TEXT NOT NULL DEFAULT '', at DATETIME(3) NULL, PRIMARY KEY (id)) COMMENT 'a table';
CREATE TABLE reversed (a INT NOT NULL, b INT NOT NULL, c INT, PRIMARY KEY (b, a));
CREATE TABLE keyless (a INT, UNIQUE KEY (a));
CREATE TABLE chosen (a INT NOT NULL, b INT NOT NULL, c INT, s VARCHAR(100) NOT NULL, UNIQUE KEY zz (b, a), UNIQUE KEY aa (c),
    UNIQUE KEY mm (a), UNIQUE KEY pp (s(10)));
CREATE TABLE `odd ``name%s` (`a b` INT PRIMARY KEY, `ü` ENUM('x', 'it''s', 'ü') NOT NULL);
CREATE TABLE sorted (u VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_ai_ci, l CHAR(3) CHARACTER SET latin1, b BLOB);
CREATE VIEW seen AS SELECT * FROM plain;
CREATE SEQUENCE numbers;
"""


class Database:
    """A database of the test's own."""

    def __init__(self, connection: Any, name: str) -> None:
        self.connection = connection
        self.name = name

    def table(self, name: str) -> TableName:
        return TableName(self.name, name)


@pytest.fixture
async def database(mariadb: HasMariaDb) -> AsyncIterator[Database]:
    connection = await connect_first(
        mysql_connection(
            host="127.0.0.1", port=mariadb.port or 0, user=mariadb.user, password=Password(mariadb.password)
        )
    )
    name = f"catalog_{secrets.token_hex(4)}"
    await query_rows(connection, f"CREATE DATABASE {name}")
    await query_rows(connection, f"USE {name}")
    for statement in TABLES.split(";\n"):
        if statement.strip():
            await query_rows(connection, statement)
    yield Database(connection, name)
    await query_rows(connection, f"DROP DATABASE {name}")
    connection.close()


async def test_structures(database: Database) -> None:
    names = [database.table(name) for name in ("plain", "sorted", "odd `name%s", "missing")]
    definitions = await catalog.read_definitions(database.connection, [*names, names[0]])
    assert set(definitions) == set(names[:3])
    plain = definitions[names[0]]
    assert (plain.key, plain.completed) == (("id",), True)
    number, name, note, at = plain.columns
    assert (number.name, number.unsigned, number.nullable, number.comment, number.extra) == (
        "id",
        True,
        False,
        "the number",
        "auto_increment",
    )
    assert number.declared.startswith("int")
    assert number.collation is None
    assert (name.declared, name.default, name.nullable, name.meta) == ("varchar(20)", "'x'", True, 60)
    assert (note.nullable, at.nullable, at.meta) == (False, True, 3)
    collations = dict(
        await query_rows(
            database.connection,
            "SELECT FULL_COLLATION_NAME, ID FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY",
        )
    )
    assert name.collation == collations["utf8mb3_bin"]
    text, latin, binary = definitions[names[1]].columns
    assert text.collation == collations["utf8mb4_uca1400_ai_ci"]
    assert latin.collation in {collations["latin1_swedish_ci"], collations.get("latin1_uca1400_ai_ci")}
    assert binary.collation in (None, 63)
    awkward = definitions[names[2]]
    assert [column.name for column in awkward.columns] == ["a b", "ü"]
    assert awkward.columns[1].members == ("x", "it's", "ü")


async def test_keys(database: Database) -> None:
    """The primary key in its own order; else the first unique index by the server's order, over whole columns without NULL."""
    names = [database.table(name) for name in ("reversed", "keyless", "chosen")]
    definitions = await catalog.read_definitions(database.connection, names)
    assert definitions[names[0]].key == ("b", "a")
    assert definitions[names[1]].key == ()
    listed = [
        row[2] for row in await query_rows(database.connection, f"SHOW INDEX FROM {catalog.quote_name(names[2])}")
    ]
    first = next(name for name in listed if name in ("zz", "mm"))
    assert definitions[names[2]].key == {"zz": ("b", "a"), "mm": ("a",)}[first]


async def test_names_and_estimates(database: Database) -> None:
    expected = sorted(
        database.table(name) for name in ("plain", "reversed", "keyless", "chosen", "odd `name%s", "sorted")
    )
    assert sorted(await catalog.table_names(database.connection, [database.name])) == expected
    assert set(expected) < set(await catalog.table_names(database.connection))
    assert await catalog.table_names(database.connection, []) == []
    captured = await catalog.captured_tables(
        database.connection, lambda name: name.table.endswith("ed"), lambda name: name == database.name
    )
    assert sorted(captured) == sorted(database.table(name) for name in ("reversed", "sorted"))
    table = database.table("plain")
    await query_rows(
        database.connection, f"INSERT INTO {catalog.quote_name(table)} (id, note) SELECT seq, '' FROM seq_1_to_500"
    )
    await query_rows(database.connection, f"ANALYZE TABLE {catalog.quote_name(table)}")
    estimates = await catalog.read_estimates(database.connection, [table, database.table("missing")])
    assert list(estimates) == [table]
    assert 250 <= estimates[table] <= 1_000


async def test_many_tables_at_once(database: Database) -> None:
    for number in range(12):
        await query_rows(database.connection, f"CREATE TABLE t{number} (id INT PRIMARY KEY, v{number} INT)")
    names = [database.table(f"t{number}") for number in range(12)]
    definitions = await catalog.read_definitions(
        database.connection, [*names, TableName("mysql", "user"), TableName("nowhere", "t")]
    )
    assert {name: definitions[name].columns[1].name for name in names} == {
        name: f"v{number}" for number, name in enumerate(names)
    }
    assert all(definitions[name].key == ("id",) for name in names)


async def test_tables_that_are_being_altered(database: Database, mariadb: HasMariaDb) -> None:
    """MariaDB's catalog lacks a table for a moment while it is copied."""
    ended = threading.Event()

    def alter() -> None:
        link = pymysql.connect(
            host="127.0.0.1",
            port=mariadb.port or 0,
            user=mariadb.user,
            password=mariadb.password,
            database=database.name,
        )
        with link, link.cursor() as cursor:
            while not ended.is_set():
                cursor.execute("ALTER TABLE reversed FORCE, ALGORITHM=COPY")

    names = [database.table("plain"), database.table("reversed")]
    expected = await catalog.read_definitions(database.connection, names)
    altering = asyncio.create_task(asyncio.to_thread(alter))
    try:
        for _ in range(40):
            assert await catalog.read_definitions(database.connection, names) == expected
    finally:
        ended.set()
        await altering


async def test_a_key_column_that_is_renamed_between_two_queries(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    query_keys = catalog._query_keys
    renamed: list[object] = []

    async def rename_before(connection: Any, batch: Any) -> Any:
        if not renamed:
            renamed.append(await query_rows(database.connection, "ALTER TABLE plain RENAME COLUMN id TO number"))
        return await query_keys(connection, batch)

    monkeypatch.setattr(catalog, "_query_keys", rename_before)
    name = database.table("plain")
    table = (await catalog.read_definitions(database.connection, [name]))[name]
    assert (table.columns[0].name, table.key) == ("number", ("number",))
    assert renamed


@pytest.mark.parametrize("pair", [("case", "Case"), ("café", "cafe"), ("cafß", "cafs")])
async def test_names_that_differ_in_case_or_accents_alone(database: Database, pair: tuple[str, str]) -> None:
    """They are equal for the catalog's collation, and are different tables all the same."""
    names = [database.table(name) for name in pair]
    for name in names:
        await query_rows(database.connection, f"CREATE TABLE `{name.table}` (`{name.table}` INT) COMMENT 'x'")
    definitions = await catalog.read_definitions(database.connection, names)
    assert {name: definitions[name].columns[0].name for name in names} == {name: name.table for name in names}
    assert set(await catalog.read_estimates(database.connection, names)) == set(names)


async def test_names_that_no_server_can_hold_are_tables_that_are_not_there(database: Database) -> None:
    names = [database.table("emoji🙂"), TableName("emoji🙂", "plain"), database.table("plain")]
    connection = database.connection
    assert [name.table for name in await catalog.read_definitions(connection, names)] == ["plain"]
    assert names[2] in await catalog.read_estimates(connection, names)
    assert [bool(await lookup.read_shape(connection, name)) for name in names] == [False, False, True]
    assert (database.name, "plain") in await lookup.read_estimates(connection, names)
