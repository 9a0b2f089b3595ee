"""The sink's client and its checks against the server: rows it refuses, seconds they live, deletes, tables that do not fit."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier
from typing import TYPE_CHECKING, Any
from unittest.mock import create_autospec

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType

from compose.local.cassandra import CassandraNode
from spark_jobs.contract import Column, TableChanges, TableSchema
from spark_jobs.sinks.cassandra import cluster
from spark_jobs.sinks.cassandra.client import CassandraClient
from spark_jobs.sinks.cassandra.config import CONFIG_DEF, parse_settings
from spark_jobs.sinks.cassandra.sink import CassandraSink
from spark_jobs.sinks.cassandra.tables import usable_name
from spark_jobs.sinks.shared.model import SinkRow
from spark_jobs.testing.kit import parse_config
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from connectors.options import Config
    from tests.conftest import HasCassandra


class World:
    """Writes rows to a table of a test."""

    def __init__(self, address: str, keyspace: str) -> None:
        self.address = address
        self.keyspace = keyspace

    def config(self, table: str, **options: str) -> Config:
        named = {f"sink.cassandra.{name.replace('_', '.')}": value for name, value in options.items()}
        fixed = {
            "sink.cassandra.hosts": self.address,
            "sink.cassandra.keyspace": self.keyspace,
            "sink.cassandra.table": table,
            "sink.cassandra.consistency": "ONE",
        }
        return CONFIG_DEF.parse({**fixed, **named})

    def write(self, table: str, rows: Sequence[SinkRow], *more: str, **options: str) -> list[tuple[SinkRow, str]]:
        """Write rows whose values are `id`, `note` and `more` numbers; the refused ones."""
        chosen = parse_settings(self.config(table, **options))
        columns = (Column("id", LongType(), nullable=False, key=True), Column("note", StringType()))
        schema = TableSchema(f"shop.{table}", (*columns, *(Column(name, LongType()) for name in more)))
        frame = create_autospec(DataFrame, instance=True)  # the rows come as they are, not out of it
        target = cluster.CassandraTables(chosen).target(TableChanges(schema, frame, frozenset()))
        client = CassandraClient(chosen, target, create_autospec(object))
        refused: list[tuple[SinkRow, str]] = []
        try:
            client.write(rows, refused.extend)
        finally:
            client.close()
        return refused


def row(number: int, note: str | None, order: int = 1, op: str = "u", **values: Any) -> SinkRow:
    return SinkRow(
        {"id": number, "note": note, **values}, order, datetime(2026, 1, 1, tzinfo=UTC), op, "", "t", 0, order, 0
    )


@pytest.fixture
def world(cassandra: HasCassandra, keyspace: str) -> World:
    return World(cassandra.address, keyspace)


@pytest.mark.slow
def test_a_row_above_the_mutation_limit_is_refused_alone(world: World, rows_of: Callable[..., Any]) -> None:
    refused = world.write("large", [row(1, "a"), row(2, "x" * (17 << 20)), row(3, "c")])
    assert [record.values["id"] for record, _ in refused] == [2]
    assert "larger than the cluster takes in one write" in refused[0][1]
    assert sorted(record["id"] for record in rows_of(f"{world.keyspace}.large")) == [1, 3]


@pytest.mark.slow
def test_rows_live_as_long_as_the_option_or_their_column_says(world: World, client: Any) -> None:
    world.write(
        "living", [row(1, "a", seconds=None), row(2, "b", seconds=900)], "seconds", ttl_ms="60000", ttl_column="seconds"
    )
    stored = client.execute(f"SELECT id, TTL(note) AS left FROM {world.keyspace}.living")  # noqa: S608 - of the test
    left = {record["id"]: record["left"] for record in stored}
    assert 0 < left[1] <= 60 < left[2] <= 900


@pytest.mark.slow
def test_a_soft_delete_keeps_the_row(world: World, rows_of: Callable[..., Any]) -> None:
    for record in (row(1, "a", 1), row(1, None, 2, "d")):
        world.write("softly", [record], delete_mode="soft")
    (stored,) = rows_of(f"{world.keyspace}.softly")
    assert (stored["note"], stored["ums_active_"], stored["ums_id_"]) == ("a", 0, 2)


@pytest.mark.slow
def test_append_keeps_each_change_and_a_replay_adds_none(world: World, rows_of: Callable[..., Any]) -> None:
    changes = [row(1, "a", 1, "i"), row(1, "b", 2), row(1, None, 3, "d")]
    for _ in range(2):
        world.write("appended", changes, mode="insert")
    stored = sorted(rows_of(f"{world.keyspace}.appended"), key=lambda record: record["ums_id_"])
    assert [(record["note"], record["ums_op_"]) for record in stored] == [("a", "i"), ("b", "u"), (None, "d")]


@pytest.mark.slow
def test_columns_that_a_table_lacks_are_added(world: World, client: Any, rows_of: Callable[..., Any]) -> None:
    client.execute(f"CREATE TABLE {world.keyspace}.narrow (id bigint PRIMARY KEY)")
    world.write("narrow", [row(1, "a")])
    assert [record["note"] for record in rows_of(f"{world.keyspace}.narrow")] == ["a"]


@pytest.mark.slow
def test_jobs_that_add_columns_at_the_same_moment(world: World, rows_of: Callable[..., Any]) -> None:
    world.write("shared", [row(1, "a")])
    names = [f"n{number}" for number in range(6)]
    together = Barrier(3)

    def write(number: int) -> None:
        values: dict[str, Any] = dict.fromkeys(names, number)
        together.wait()
        world.write("shared", [row(number, "b", **values)], *names)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(2, 5)))
    assert sorted(record["n5"] for record in rows_of(f"{world.keyspace}.shared") if record["id"] > 1) == [2, 3, 4]


@pytest.mark.slow
def test_check_complains_of_servers_and_tables(world: World, client: Any) -> None:
    client.execute(f"CREATE TABLE {world.keyspace}.other_key (name text PRIMARY KEY, id bigint)")
    client.execute(f"CREATE TABLE {world.keyspace}.counted (id bigint PRIMARY KEY, n counter)")
    (away,) = CassandraSink.check(world.config("x", hosts="127.0.0.1:1", timeout_ms="2000"))
    assert away.startswith("sink.cassandra.hosts: ")
    (key,) = CassandraSink.check(world.config("other_key", key_columns="id"))
    assert "its primary key is (name), and that of the rows (id)" in key
    (counter,) = CassandraSink.check(world.config("counted"))
    assert "counter" in counter


@pytest.mark.slow
def test_check_names_columns_of_other_types(world: World, client: Any) -> None:
    client.execute(f"CREATE TABLE {world.keyspace}.narrow_types (id int PRIMARY KEY, note blob, price double)")
    job = {
        "name": "types",
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "source.topics": "shop.orders",
        "source.format": "plain",
        "source.key.columns": "id",
        "source.table.columns": "id bigint, note string, price double",
        "sink.type": "cassandra",
        **world.config("narrow_types").raw,
    }
    complaints = CassandraSink.check(parse_config(job))
    assert [complaint.partition("; ")[0] for complaint in complaints] == [
        f"sink.cassandra.table: table {world.keyspace}.narrow_types does not fit: column {name} has the type {kind}, which "
        f"does not hold {needed}"
        for name, kind, needed in (("id", "int", "bigint"), ("note", "blob", "text"))
    ]
    assert all("CAST" in complaint for complaint in complaints)
    named = {**job, "sink.cassandra.table": "${table}", "sink.cassandra.keyspace": world.keyspace}
    assert CassandraSink.check(parse_config(named)) == []  # there is no table orders yet
    named["source.topics"] = "shop.narrow_types"
    assert CassandraSink.check(parse_config(named)) == complaints
    assert CassandraSink.check(parse_config({**job, "source.table.columns": "id int, note binary, price float"})) == []


@pytest.mark.slow
@pytest.mark.parametrize("keyspace", ["select", "Where {}", "order-by_{}"])
def test_words_of_the_query_language_are_names(
    world: World, client: Any, rows_of: Callable[..., Any], keyspace: str
) -> None:
    keyspace = keyspace.format(secrets.token_hex(3))
    columns: dict[str, Any] = {"from": 5, "Order": 6, 'quoted "x"': 7, "a.b": 8, "null": 9}
    names = ("table", "Primary", "primary", 'a"b', "key-space.where")
    created = f'"{usable_name(keyspace)}"'
    try:
        for name in names:
            empty: dict[str, Any] = dict.fromkeys(columns)
            for change in (row(1, "a", **columns), row(2, "b", **empty), row(2, None, 2, "d", **empty)):
                refused = world.write(name, [change], *columns, keyspace=keyspace, replication="1")
                assert refused == []
        for name in names:
            (stored,) = rows_of(f'{created}."{usable_name(name)}"')
            assert {column: stored[column] for column in columns} == columns
        assert CassandraSink.check(world.config("table", keyspace=keyspace)) == []
    finally:
        client.execute(f"DROP KEYSPACE IF EXISTS {created}")


@pytest.mark.slow
def test_check_names_the_password_of_a_refused_login(tmp_path: Path) -> None:
    logins = {"authenticator": "PasswordAuthenticator"}
    with CassandraNode(tmp_path, port=None, cdc=False, settings=logins, jvm_options=FAST_START) as node:
        config = World(node.address, "k").config("t", user="nobody", password="wr0ng")
        (complaint,) = CassandraSink.check(config)
    assert complaint.startswith("sink.cassandra.password: the cluster refuses the credentials")
    assert "wr0ng" not in complaint
