"""Each policy for misses with each system: what becomes of inserts, updates and deletes, and of their order numbers."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import json
import secrets
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
import redis as redis_library
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stub forgets one

from compose.local.cassandra_cluster import execute_cql
from spark_jobs.contract import SYSTEM_COLUMNS
from spark_jobs.steps.failures import REASON, RowFailure
from spark_jobs.steps.lookup.store import STORES
from spark_jobs.steps.lookup.task import LookupTask
from spark_jobs.steps.lookup.topic import topic_ends
from tests.integration.spark_jobs.jdbc.conftest import database
from tests.integration.spark_jobs.lookup.conftest import RowServer, spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from compose.local.databases.mysql_debian import MySqlServer
    from compose.local.postgres import Postgres
    from compose.local.scylla.client import Emulation
    from compose.local.targets.redis import Redis
    from tests.conftest import HasCassandra, HasMariaDb

#: A key that the systems have from the start, one that comes while a lookup waits, one that never comes.
PRESENT, LATE, ABSENT = 1, 2, 3
#: Operation and key of the lookup; the row's own key is its position.
CHANGES: Final = [
    ("i", PRESENT),
    ("u", ABSENT),
    ("i", ABSENT),
    ("d", ABSENT),
    ("b", PRESENT),
    ("u", ABSENT),
    ("i", None),
]


@dataclass
class Dimension:
    """Rows in a system.

    Attributes:
        options: of the lookup.
        insert: adds a row.
        client: the configuration of a consumer, for a topic.
    """

    options: dict[str, str]
    insert: Callable[[int, str], object]
    client: Mapping[str, Any] = field(default_factory=dict)

    def task(self, *, guarded: bool = False, **more: str) -> LookupTask:
        """The task of a lookup of a column ``name``, as Spark gets it."""
        chosen = spec(self.client, **{"on": "ref = id", "columns": "name string", **self.options, **more})
        ends = {}
        if chosen.topic:
            consumer = Consumer(dict(self.client))
            ends = topic_ends(consumer, chosen.topic, 10)
            consumer.close()
        return LookupTask(chosen, "shop.orders", (1,), 2, 1, guarded=guarded, ends=ends)


def of_database(url: str, user: str, password: str) -> Dimension:
    server, table = database(url, user, password), f"t{secrets.token_hex(4)}"
    server.query(f"CREATE TABLE {table} (id int PRIMARY KEY, name varchar(40))")
    return Dimension(
        {"url": url, "user": user, "password": password, "table": table},
        lambda key, name: server.query(f"INSERT INTO {table} VALUES ({key}, '{name}')"),
    )


def postgresql(request: pytest.FixtureRequest) -> Dimension:
    server: Postgres = request.getfixturevalue("postgres")
    return of_database(server.url, server.user, server.password)


def mariadb(request: pytest.FixtureRequest) -> Dimension:
    server: HasMariaDb = request.getfixturevalue("mariadb")
    return of_database(server.url, server.user, server.password)


def mysql(request: pytest.FixtureRequest) -> Dimension:
    server: MySqlServer = request.getfixturevalue("mysql")
    return of_database(f"jdbc:mysql://127.0.0.1:{server.port}/{server.database}", server.user, server.password)


def cassandra(request: pytest.FixtureRequest) -> Dimension:
    server: HasCassandra = request.getfixturevalue("cassandra")
    table = f"{request.getfixturevalue('cassandra_keyspace')()}.t"
    execute_cql(server.address, f"CREATE TABLE {table} (id int PRIMARY KEY, name text)")
    return Dimension(
        {"url": f"cassandra://{server.address}", "table": table},
        lambda key, name: execute_cql(server.address, f"INSERT INTO {table} (id, name) VALUES ({key}, '{name}')"),
    )


def scylla(request: pytest.FixtureRequest) -> Dimension:
    server: Emulation = request.getfixturevalue("scylla")
    table = f"{request.getfixturevalue('scylla_keyspace')()}.t"
    execute_cql(server.address, f"CREATE TABLE {table} (id int PRIMARY KEY, name text)")
    return Dimension(
        {"url": f"scylla://{server.address}", "table": table},
        lambda key, name: execute_cql(server.address, f"INSERT INTO {table} (id, name) VALUES ({key}, '{name}')"),
    )


def redis(request: pytest.FixtureRequest) -> Dimension:
    server: Redis = request.getfixturevalue("redis")
    client = redis_library.Redis.from_url(f"redis://:{server.password}@{server.address}/4")
    prefix = secrets.token_hex(4)
    return Dimension(
        {"url": f"redis://{server.address}/4", "password": server.password, "redis_key": f"{prefix}:${{id}}"},
        lambda key, name: client.hset(f"{prefix}:{key}", mapping={"name": name}),
    )


def http(request: pytest.FixtureRequest) -> Dimension:
    server: RowServer = request.getfixturevalue("row_server")
    return Dimension({"url": f"{server.url}/rows"}, lambda key, name: server.rows.update({str(key): {"name": name}}))


def topic(request: pytest.FixtureRequest) -> Dimension:
    bootstrap = request.getfixturevalue("bootstrap")
    name = f"dim-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 4, 1)])[name].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})

    def insert(key: int, text: str) -> None:
        # Each row in a partition of its own, which was empty.
        producer.produce(name, json.dumps({"id": key, "name": text}), str(key), key)
        assert producer.flush(10) == 0

    client = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    return Dimension({"topic": name, "topic_format": "plain"}, insert, client)


_SYSTEMS: Final = (postgresql, mariadb, mysql, cassandra, scylla, redis, http, topic)
#: Whose servers take long to start and are asked by the code of another system.
_SLOW: Final = (mysql, scylla)


@pytest.fixture(
    params=[pytest.param(system, marks=pytest.mark.slow) if system in _SLOW else system for system in _SYSTEMS],
    ids=[system.__name__ for system in _SYSTEMS],
)
def dimension(request: pytest.FixtureRequest) -> Iterator[Dimension]:
    filled: Dimension = request.param(request)
    filled.insert(PRESENT, "one")
    yield filled
    # A test has no Python worker that ends with its stores.
    for opened in list(STORES._stores):
        STORES.drop(opened)


def rows_of(changes: list[tuple[str, int | None]]) -> pa.RecordBatch:
    columns = {
        "c0": pa.array(range(len(changes)), pa.int32()),
        "c1": pa.array([ref for _, ref in changes], pa.int32()),
        "ums_id_": pa.array([100 + number for number in range(len(changes))], pa.int64()),
        "ums_ts_": pa.nulls(len(changes), pa.timestamp("us", "UTC")),
        "ums_op_": pa.array([op for op, _ in changes], pa.string()),
    }
    columns |= {name: pa.nulls(len(changes), pa.string()) for name in SYSTEM_COLUMNS if name not in columns}
    return pa.RecordBatch.from_pydict(columns)


def answers(task: LookupTask, changes: list[tuple[str, int | None]]) -> list[tuple[Any, ...]]:
    """Operation, key, order number and the looked-up name of each row, then why it is bad in a guarded pass."""
    names = ["ums_op_", "c0", "ums_id_", "c2", *([REASON] if task.guarded else [])]
    batches = list(task(iter([rows_of(changes)])))
    return [
        row
        for batch in batches
        for row in zip(*(batch.column(batch.schema.get_field_index(name)).to_pylist() for name in names), strict=True)
    ]


def test_rows_that_are_not_there(dimension: Dimension) -> None:
    asked = {"u": 1, "i": 2}
    # null: every row passes, and a delete is not looked up.
    nulls = [(op, number, 100 + number, "one" if number == 0 else None) for number, (op, _) in enumerate(CHANGES)]
    assert answers(dimension.task(), CHANGES) == nulls
    # drop: inserts are left out, updates become deletes of their key, with their images; the order numbers stay.
    dropped = [("i", 0, 100, "one"), ("d", 1, 101, None), ("d", 3, 103, None), ("d", 5, 105, None)]
    assert answers(dimension.task(miss="drop"), CHANGES)[:4] == dropped
    # dead-letter: rows that miss are bad, with system and key; a row without a key is not.
    with pytest.raises(RowFailure, match=f"has no row for id={ABSENT}"):
        answers(dimension.task(miss="dead-letter"), CHANGES)
    reasons = [row[-1] for row in answers(dimension.task(miss="dead-letter", guarded=True), CHANGES)]
    assert [number for number, reason in enumerate(reasons) if reason] == [*asked.values(), 4, 5]
    assert all(f"has no row for id={ABSENT}" in reason for reason in reasons if reason)


@pytest.mark.parametrize("followed_by", ["null", "drop", "dead-letter"])
def test_a_row_that_comes_late_is_waited_for(dimension: Dimension, followed_by: str) -> None:
    def waiting(timeout_ms: str, *, guarded: bool = False) -> LookupTask:
        more = {"miss": "retry", "miss_retry_then": followed_by, "cache_misses_age_ms": "0"}
        return dimension.task(guarded=guarded, miss_retry_timeout_ms=timeout_ms, **more)

    with ExitStack() as stack:
        inserting = threading.Timer(0.2, dimension.insert, (LATE, "two"))
        stack.callback(inserting.join)
        inserting.start()
        rows = answers(waiting("60000"), [("u", LATE), ("i", PRESENT)])
    assert rows == [("u", 0, 100, "two"), ("i", 1, 101, "one")]
    # One that does not come is what the option says.
    given_up = waiting("200", guarded=True)
    (row,) = answers(given_up, [("u", ABSENT)])
    assert row[:4] == ("d" if followed_by == "drop" else "u", 0, 100, None)
    assert bool(row[4]) == (followed_by == "dead-letter")
