"""Definitions and checks against a real Cassandra: what ``system_schema`` and ``system_views`` really answer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.cassandra_cluster import execute_cql
from connectors.cassandra.config import keys
from connectors.cassandra.config.checks import check_cluster, check_directories
from connectors.cassandra.config.settings import CONFIG, session_settings
from connectors.cassandra.schema.catalog import CassandraCatalog, CassandraTableFilter, id_bytes
from connectors.cassandra.server import directory_settings, node_settings, read_cluster
from connectors.cql.cluster.session import CqlSession
from connectors.cql.mutations.definition import parse_definition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from connectors.cql.mutations.definition import CqlTableDefinition
    from connectors.options import ConfigProblem
    from tests.conftest import HasCassandra


def configured(cassandra: HasCassandra, changes: dict[str, str] | None = None) -> Any:
    return CONFIG.parse(
        {
            keys.HOSTS: cassandra.address,
            keys.PREFIX: "shop",
            keys.DIRECTORIES: str(cassandra.cdc_raw),
            **(changes or {}),
        }
    )


@pytest.fixture
async def session(cassandra: HasCassandra) -> AsyncIterator[CqlSession]:
    opened = await CqlSession.acquire(session_settings(configured(cassandra)))
    yield opened
    await opened.release()


def names(table: CqlTableDefinition) -> list[str]:
    return [column.name for column in table.columns]


async def test_a_table_through_its_life(
    cassandra: HasCassandra, cassandra_keyspace: Callable[[], str], session: CqlSession
) -> None:
    ks = cassandra_keyspace()

    def run(*statements: str) -> None:
        execute_cql(cassandra.address, *(statement.replace("KS", ks) for statement in statements))

    catalog = CassandraCatalog(CassandraTableFilter(rf"{ks}\..*"), logging.getLogger("test"), session=session)
    await catalog.refresh()
    run(
        "CREATE TYPE KS.address (street text, zip int)",
        'CREATE TABLE KS.t (a int, b text, c timestamp, d int, s text static, "Mixed" int, l list<text>, u address, '
        "f frozen<address>, gone int, PRIMARY KEY ((a, b), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC) AND cdc = true",
        "CREATE TABLE KS.n (a int PRIMARY KEY, n counter) WITH cdc = true",
        "CREATE TABLE KS.off (a int PRIMARY KEY, v int)",
    )
    assert await catalog.moved()
    await catalog.refresh()
    (table,) = catalog.tables()
    assert names(table) == ["a", "b", "c", "d", "s", "Mixed", "f", "gone", "l", "u"]
    assert [(column.position, column.reversed) for column in table.clustering] == [(0, True), (1, False)]
    assert [column.type.is_multicell for column in table.regular] == [False, False, False, True, True]
    assert [str(refused) for refused in catalog.refused()] == [f"{ks}.n"]
    off = next(table for table in catalog.list_known_tables() if str(table) == f"{ks}.off")
    assert not catalog.captured(off)
    assert catalog.by_id(id_bytes(table.table_id)) == table

    run("ALTER TABLE KS.t DROP gone", "ALTER TYPE KS.address ADD city text", "ALTER TABLE KS.t ADD new int")
    assert table.table_id in await catalog.refresh()
    (later,) = catalog.tables()
    assert (later.table_id, later.version != table.version) == (table.table_id, True)
    (dropped,) = later.dropped
    assert (dropped.name, dropped.type.name) == ("gone", "int")
    # The server says milliseconds; cells are hidden by microseconds.
    assert dropped.dropped_us > 1_600_000_000_000_000
    assert "new" in names(later)
    assert later.columns[names(later).index("u")].type.field_names == ("street", "zip", "city")
    run("ALTER TABLE KS.t ADD gone int")
    await catalog.refresh()
    (readded,) = catalog.tables()
    assert "gone" in names(readded)
    assert readded.dropped == later.dropped

    run("DROP TABLE KS.t", "CREATE TABLE KS.t (a int PRIMARY KEY, w int) WITH cdc = true")
    await catalog.refresh()
    (recreated,) = catalog.tables()
    assert recreated.table_id != table.table_id
    assert catalog.by_id(id_bytes(table.table_id)) == readded
    assert catalog.captured(readded)


async def test_tables_with_compact_storage(
    cassandra: HasCassandra, cassandra_keyspace: Callable[[], str], session: CqlSession
) -> None:
    """The log has them in columns that no statement shows, but for those with one value next to a clustering key."""
    ks = cassandra_keyspace()
    compact = "WITH COMPACT STORAGE AND cdc = true"
    execute_cql(
        cassandra.address,
        f"CREATE TABLE {ks}.t (a int, b int, v int, PRIMARY KEY (a, b)) {compact}",
        f"CREATE TABLE {ks}.static (a int PRIMARY KEY, v int, w int) {compact}",
        f"CREATE TABLE {ks}.keys (a int, b int, PRIMARY KEY (a, b)) {compact}",
    )
    catalog = CassandraCatalog(CassandraTableFilter(rf"{ks}\..*"), logging.getLogger("test"), session=session)
    await catalog.refresh()
    assert [str(table) for table in catalog.tables()] == [f"{ks}.t"]
    refused = catalog.refused()
    assert {str(table) for table in refused} == {f"{ks}.static", f"{ks}.keys"}
    assert all(parse_definition(table.text()) == table for table in (*catalog.tables(), *refused))
    (problem,) = await check_cluster(configured(cassandra, {keys.TABLES: rf"{ks}\..*"}))
    assert (problem.name, problem.warning) == (keys.TABLES, True)
    assert f"{ks}.keys, {ks}.static can't be captured: COMPACT STORAGE" in problem.message


async def test_what_the_server_says_of_itself(cassandra: HasCassandra, session: CqlSession) -> None:
    cluster = await read_cluster(session)
    (node,) = await node_settings(session, cluster.nodes)
    assert (node.cdc_enabled, node.cdc_block_writes, node.encrypted) == (True, True, False)
    assert (node.cdc_raw, node.commitlog) == (str(cassandra.cdc_raw), str(cassandra.commitlog))
    assert node.segment_size is not None
    assert node.total_space is not None
    assert node.total_space > node.segment_size > 0
    assert node.sync_s is not None
    assert node.sync_s > 0
    assert await directory_settings(session, str(cassandra.cdc_raw)) == [node]


async def test_a_validation(cassandra: HasCassandra, cassandra_keyspace: Callable[[], str]) -> None:
    ks = cassandra_keyspace()
    execute_cql(
        cassandra.address,
        f"CREATE TABLE {ks}.t (a int PRIMARY KEY, v int) WITH cdc = true",
        f'CREATE TABLE {ks}."Off" (a int PRIMARY KEY, v int)',
    )

    async def find_problems(changes: dict[str, str]) -> list[ConfigProblem]:
        config = configured(cassandra, {keys.TABLES: rf"{ks}\.t", **changes})
        return [*check_directories(config), *await check_cluster(config)]

    assert await find_problems({}) == []
    (off,) = await find_problems({keys.TABLES: rf"{ks}\..*"})
    assert (off.name, off.warning) == (keys.TABLES, True)
    assert f'ALTER TABLE {ks}."Off" WITH cdc = true' in off.message
    execute_cql(cassandra.address, f"ALTER KEYSPACE {ks} WITH durable_writes = false")
    (no_log,) = await find_problems({})
    assert (no_log.name, no_log.warning) == (keys.TABLES, True)
    assert f"ALTER KEYSPACE {ks} WITH durable_writes = true" in no_log.message
    execute_cql(cassandra.address, f"ALTER KEYSPACE {ks} WITH durable_writes = true")
    (wrong,) = await find_problems({keys.DIRECTORIES: f"n={cassandra.commitlog}"})
    assert (wrong.name, wrong.warning) == (keys.DIRECTORIES, False)
    assert str(cassandra.cdc_raw) in wrong.message
    (away,) = await find_problems({keys.HOSTS: "127.0.0.1:1", keys.CONNECT_TIMEOUT: "500"})
    assert (away.name, away.warning) == (keys.HOSTS, False)
