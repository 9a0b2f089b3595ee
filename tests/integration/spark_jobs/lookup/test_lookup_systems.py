"""Lookups in real systems: the rows of keys, values by type, and what the systems refuse. Without Spark."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import json
import secrets
import socket
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
import redis as redis_library
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stub forgets one

from compose.local.cassandra_cluster import execute_cql
from connectors.errors import Fatal, Retriable
from spark_jobs.steps.lookup.store import LookupStore
from spark_jobs.steps.lookup.topic import TopicTable, topic_ends
from tests.integration.spark_jobs.jdbc.conftest import Database, database
from tests.integration.spark_jobs.lookup.conftest import RowServer, spec
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compose.local.postgres import Postgres
    from compose.local.targets.redis import Redis
    from spark_jobs.steps.lookup.model import Spec
    from tests.conftest import HasCassandra, HasMariaDb


@pytest.fixture
def store() -> Iterator[Callable[[Spec], LookupStore]]:
    stores: list[LookupStore] = []

    def make(chosen: Spec) -> LookupStore:
        stores.append(LookupStore(chosen))
        return stores[-1]

    yield make
    for opened in stores:
        opened.close()


@pytest.fixture(params=["postgresql", "mariadb"])
def db(request: pytest.FixtureRequest) -> Database:
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        return database(server.url, server.user, server.password)
    maria: HasMariaDb = request.getfixturevalue("mariadb")
    return database(maria.url, maria.user, maria.password)


def sql(db: Database, table: str, /, **more: str) -> Spec:
    login = {"url": db.url, "user": db.login.user, "password": db.login.password, "table": table}
    return spec(**(login | {"on": "id", "columns": "name string"} | more))


def test_databases(db: Database, store: Callable[[Spec], LookupStore]) -> None:
    table = f"t{secrets.token_hex(4)}"
    db.query(
        f"CREATE TABLE {table} (id int, region varchar(10), name varchar(40), price decimal(10,2), day date, "
        "at timestamp, flag boolean, PRIMARY KEY (id, region))"
    )
    for number in range(30):
        db.query(
            f"INSERT INTO {table} VALUES ({number}, 'eu', 'it''s {number}%', 1.50, '2026-11-23', '2026-11-23 01:02:03', true)"
        )
    looked_up = store(
        sql(
            db,
            table,
            on="id, r = region",
            columns="name string, price decimal(12,2), day date, at timestamp, flag boolean, id bigint AS number",
            batch_keys="7",
        )
    )
    values = looked_up.values([(number, "eu") for number in range(40)] + [(1, "us")])
    moment = datetime(2026, 11, 23, 1, 2, 3, tzinfo=UTC)
    assert values[:30] == [
        (f"it's {number}%", Decimal("1.50"), date(2026, 11, 23), moment, True, number) for number in range(30)
    ]
    assert values[30:] == [None] * 11
    assert (looked_up.counts.requests, looked_up.counts.misses, looked_up.counts.hits) == (6, 11, 0)
    assert looked_up.values([(3, "eu"), (35, "eu")]) == [values[3], None]
    assert (looked_up.counts.requests, looked_up.counts.hits) == (6, 2)


def test_floats_of_databases_have_all_their_digits(db: Database, store: Callable[[Spec], LookupStore]) -> None:
    table = f"t{secrets.token_hex(4)}"
    db.query(
        f"CREATE TABLE {table} (id int PRIMARY KEY, ratio {'real' if db.name == 'postgresql' else 'float'}, name text)"
    )
    db.query(f"INSERT INTO {table} VALUES (1, 1234567.25, '1.5'), (2, NULL, '2')")
    looked_up = store(sql(db, table, columns="ratio float, ratio string AS text, name double"))
    digits, nulls = looked_up.values([(1,), (2,)])
    assert digits is not None
    ratio, text, name = digits
    assert struct.pack("<f", ratio) == struct.pack("<f", 1234567.25)
    assert (float(text) // 1e6, name, nulls) == (1, 1.5, (None, None, 2.0))


def test_keys_in_another_form(postgres: Postgres, mariadb: HasMariaDb, store: Callable[[Spec], LookupStore]) -> None:
    db = database(postgres.url, postgres.user, postgres.password)
    table, key = f"t{secrets.token_hex(4)}", UUID(int=7)
    db.query(f"CREATE TABLE {table} (id uuid PRIMARY KEY, name text)")
    db.query(f"INSERT INTO {table} VALUES ('{key}', 'seven')")
    assert store(sql(db, table)).values([(str(key),), (str(UUID(int=8)),)]) == [("seven",), None]
    db = database(mariadb.url, mariadb.user, mariadb.password)
    db.query(f"CREATE TABLE {table} (id int PRIMARY KEY, name text)")
    db.query(f"INSERT INTO {table} VALUES (7, 'seven')")
    assert store(sql(db, table)).values([("7",), ("8",)]) == [("seven",), None]


def test_what_databases_refuse(db: Database, store: Callable[[Spec], LookupStore]) -> None:
    table = f"t{secrets.token_hex(4)}"
    db.query(f"CREATE TABLE {table} (id int, name varchar(40))")
    db.query(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (2, 'c')")
    assert store(sql(db, table)).values([(1,)]) == [("a",)]
    with pytest.raises(Fatal, match="has several rows for id = 2: a lookup gives one row per key"):
        store(sql(db, table)).values([(1,), (2,)])
    with pytest.raises(Fatal, match=r"row id=1: the value 'a' is no int .*Correct the types in columns"):
        store(sql(db, table, columns="name int")).values([(1,)])
    for wrong in ({"table": "nowhere"}, {"columns": "nme string"}, {"on": "nr"}, {"password": "wrong"}):
        with pytest.raises(Fatal, match=r"step s: (postgresql|mariadb) "):
            store(sql(db, table, **wrong)).values([(1,)])


def free_address() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    "url",
    ["jdbc:postgresql://{}/db", "jdbc:mariadb://{}/db", "cassandra://{}", "redis://{}/0", "http://{}/rows/${{id}}"],
)
def test_a_system_that_is_away_is_tried_again(url: str, store: Callable[[Spec], LookupStore]) -> None:
    options = {"url": url.format(free_address()), "on": "id", "columns": "name string", "retries": "2", "user": "u"}
    if url.startswith(("jdbc", "cassandra")):
        options["table"] = "k.t"
    if url.startswith("redis"):
        options["redis_key"] = "k:${id}"
    away = store(spec(**options))
    with pytest.raises(Retriable, match="step s: "):
        away.values([(1,)])
    assert (away.counts.requests, away.counts.errors) == (3, 3)


def test_cassandra(
    cassandra: HasCassandra, cassandra_keyspace: Callable[[], str], store: Callable[[Spec], LookupStore]
) -> None:
    keyspace, key = cassandra_keyspace(), UUID(int=5)
    execute_cql(
        cassandra.address,
        f'CREATE TABLE {keyspace}.t (id uuid, part int, name text, "when" date, tags set<text>, PRIMARY KEY (id, part))',
    )
    for part in range(3):
        execute_cql(
            cassandra.address, f"INSERT INTO {keyspace}.t (id, part, name, \"when\", tags) VALUES ({key}, {part}, 'n{part}', "
            "'2026-11-23', {'b', 'a'})"
        )  # fmt: skip
    options = {
        "url": f"cassandra://{cassandra.address}",
        "table": f"{keyspace}.t",
        "on": "id, part",
        "columns": "name string, when date, tags string",
    }
    rows = store(spec(**options)).values([(str(key), part) for part in range(5)])
    assert rows == [(f"n{part}", date(2026, 11, 23), '["a","b"]') for part in range(3)] + [None, None]
    with pytest.raises(Fatal, match=r"has several rows for id = 0000"):
        store(spec(**options | {"on": "id"})).values([(str(key),)])
    with pytest.raises(Fatal, match="Correct table, on or columns"):
        store(spec(**options | {"columns": "nothing string"})).values([(str(key), 1)])


def test_redis(redis: Redis, store: Callable[[Spec], LookupStore]) -> None:
    client = redis_library.Redis.from_url(f"redis://:{redis.password}@{redis.address}/3")
    name = secrets.token_hex(4)
    client.hset(f"{name}:1:eu", mapping={"name": "café", "n": 7})
    client.set(f"{name}:2:eu", '{"name":"two","address":{"city":"x"},"n":8}')
    client.set(f"{name}:3:eu", "three")
    options = {
        "url": f"redis://{redis.address}/3",
        "password": redis.password,
        "redis_key": f"{name}:${{id}}:${{region}}",
        "on": "id, region",
        "columns": "name string, n int",
    }
    keys = [(1, "eu"), (9, "eu")]
    assert store(spec(**options)).values(keys) == [("café", 7), None]
    documents = options | {"redis_value": "json", "columns": "address.city string AS city, n int, x int"}
    assert store(spec(**documents)).values([(2, "eu"), (9, "eu")]) == [("x", 8, None), None]
    assert store(spec(**options | {"redis_value": "string", "columns": "v string"})).values([(3, "eu")]) == [("three",)]
    with pytest.raises(Fatal, match="is not JSON"):
        store(spec(**documents)).values([(3, "eu")])
    with pytest.raises(Fatal, match="WRONGTYPE"):
        store(spec(**options)).values([(3, "eu")])
    with pytest.raises(Fatal, match="Correct user and password"):
        store(spec(**options | {"password": "wrong"})).values(keys)


def test_http_by_key(row_server: RowServer, store: Callable[[Spec], LookupStore]) -> None:
    row_server.rows = {"a/b": {"name": "slash", "address": {"city": "x"}}, "2": {"name": "two"}}
    row_server.failures = [503]
    looked_up = store(
        spec(
            url=f"{row_server.url}/rows/${{id}}",
            on="id",
            columns="name string, address.city string AS city",
            user="me",
            password="pw",
            **{"header.X-Tenant": "t1"},
        )
    )
    assert looked_up.values([("a/b",), ("2",), ("3",)]) == [("slash", "x"), ("two", None), None]
    assert (looked_up.counts.requests, looked_up.counts.errors) == (4, 1)
    assert row_server.headers["X-Tenant"] == "t1"
    assert row_server.headers["Authorization"].startswith("Basic ")
    row_server.failures = [401]
    with pytest.raises(Fatal, match="answers 401 Unauthorized: correct url, user"):
        looked_up.values([("4",)])


def test_http_together(row_server: RowServer, store: Callable[[Spec], LookupStore]) -> None:
    row_server.rows = {str(number): {"name": f"n{number}"} for number in range(10)}
    looked_up = store(
        spec(
            url=f"{row_server.url}/rows",
            on="id",
            columns="name string",
            **{"batch.keys": "6", "requests": "2"},
        )
    )
    values = looked_up.values([(number,) for number in range(12)])
    assert values == [(f"n{number}",) for number in range(10)] + [None, None]
    assert sorted(len(keys) for keys in row_server.asked) == [6, 6]


def test_a_key_that_comes_later_is_waited_for(row_server: RowServer, store: Callable[[Spec], LookupStore]) -> None:
    looked_up = store(spec(url=f"{row_server.url}/rows/${{id}}", on="id", columns="name string", miss="retry"))

    class Late(list[Any]):
        """Notes what is asked for; the row is there after the third question."""

        def append(self, key: Any) -> None:
            super().append(key)
            if len(self) == 3:
                row_server.rows["1"] = {"name": "late"}

    row_server.asked = Late()
    assert looked_up.values([("1",)]) == [("late",)]
    assert row_server.asked == ["1", "1", "1"]
    brief = {"miss.retry.timeout.ms": "50", "cache.misses.age.ms": "60000"}
    given_up = store(spec(url=f"{row_server.url}/rows/${{id}}", on="id", columns="name string", miss="retry", **brief))
    assert given_up.values([("2",)]) == [None]
    asked = len(row_server.asked)
    assert given_up.values([("2",)]) == [None], "it is not waited for a second time while the miss is kept"
    assert len(row_server.asked) == asked


def test_a_topic_is_as_new_as_its_ends(bootstrap: str) -> None:
    topic = f"dim-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions()

    def send(*records: tuple[int, Any], commit: bool = True) -> None:
        producer.begin_transaction()
        for key, value in records:
            data = None if value is None else json.dumps(value).encode()
            producer.produce(topic, data, str(key).encode(), partition=key % 3)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        # Kafka writes its marks into the partitions a little later, and only then readers get past the records.
        eventually(
            lambda: topic_ends(asking, topic, 10) == topic_ends(unmarked, topic, 10), "the transaction is marked"
        )

    def created(key: int, name: str, mail: str) -> tuple[int, Any]:
        return key, {"op": "c", "after": {"id": key, "name": name, "mail": mail}}

    client = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    asking, unmarked = Consumer(client), Consumer(client | {"isolation.level": "read_uncommitted"})
    table = TopicTable(spec(client, topic=topic, on="mail", columns="name string, id int"))

    def look_up(*mails: str) -> list[Any]:
        table.read_to(topic_ends(asking, topic, 10))
        return table.values([(mail,) for mail in mails])

    try:
        assert look_up("a@x") == [None]
        send(created(1, "one", "a@x"), created(2, "two", "b@x"), created(3, "three", "c@x"))
        assert look_up("a@x", "b@x", "c@x", "d@x") == [("one", 1), ("two", 2), ("three", 3), None]
        send(
            (1, {"op": "u", "after": {"id": 1, "name": "uno", "mail": "d@x"}}),
            (2, {"op": "d", "before": {"id": 2}}),
            (2, None),
        )
        assert look_up("a@x", "b@x", "c@x", "d@x") == [None, None, ("three", 3), ("uno", 1)]
        send(created(4, "four", "a@x"), commit=False)
        send((3, None))
        assert look_up("a@x", "c@x", "d@x") == [None, None, ("uno", 1)]
        send((1, {"name": "no event"}))
        with pytest.raises(Fatal, match=rf"the record at {topic}-1 offset \d+ holds no row: correct topic.format"):
            look_up("d@x")
        with pytest.raises(Fatal, match="which a lookup reads, does not exist"):
            topic_ends(asking, "no-such-topic", 10)
    finally:
        table.close()
        asking.close()
        unmarked.close()


def test_the_rows_of_a_topic_are_bounded(bootstrap: str) -> None:
    topic = f"dim-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(4):
        producer.produce(topic, json.dumps({"id": number, "name": "n"}).encode(), str(number).encode())
    producer.flush()
    client = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    bounded = {"topic.format": "plain", "topic.rows.max": "3"}
    table = TopicTable(spec(client, topic=topic, on="id", columns="name string", **bounded))
    with pytest.raises(Fatal, match=r"has more than 3 rows: raise topic\.rows\.max"):
        table.read_to({0: 4})
    table.close()
