"""A configuration of Debezium's Java JDBC sink, posted as it is: a flow that continues where the Java sink has stopped."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it has it
from redis import Redis as RedisClient

from tests.support.eventually import eventually
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.postgres import Postgres
    from compose.local.targets.redis import Redis
    from compose.local.worker import MillraceWorker

LIMIT_S = 120.0
DEBEZIUM = "io.debezium.connector.jdbc.JdbcSinkConnector"
FILE = "org.apache.kafka.connect.file.FileStreamSinkConnector"
VALIDATE_REDIS = "/connector-plugins/com.redis.kafka.connect.RedisSinkConnector/config/validate"
#: What a test adds to a configuration of Java's: options of the job, so that it starts quickly.
JOB = {
    "trigger.interval.ms": "100",
    "spark.application": "own",
    "spark.master": "local[1]",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": " ".join(FAST_START),
}


def event(op: str, number: int, name: str | None) -> tuple[bytes, bytes]:
    """Key and value of an event of the table shop.orders, as Debezium writes it without schemas."""
    row = None if name is None else {"id": number, "name": name}
    before = {"id": number, "name": "gone"} if op == "d" else None
    source = {"connector": "mysql", "name": "crm", "db": "shop", "table": "orders", "ts_ms": 1, "file": "b.1", "pos": 4}
    value = {"before": before, "after": row, "source": source, "op": op, "ts_ms": 1}
    return json.dumps({"id": number}).encode(), json.dumps(value).encode()


def flat(number: int, row: dict[str, Any]) -> tuple[bytes, bytes]:
    return json.dumps({"id": number}).encode(), json.dumps({"id": number, **row}).encode()


def create_topics(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        future.result()


def send(bootstrap: str, topic: str, *records: tuple[bytes, bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(10) == 0


def create(worker: MillraceWorker, name: str, config: dict[str, str]) -> dict[str, Any]:
    status, body = worker.request("POST", "/connectors", {"name": name, "config": config})
    assert status == 201, body
    created: dict[str, Any] = body
    return created


def wait_until_running(worker: MillraceWorker, name: str) -> dict[str, Any]:
    def running() -> dict[str, Any] | None:
        status: dict[str, Any] = worker.request("GET", f"/connectors/{name}/status")[1]
        states = [task["state"] for task in status.get("tasks", ())]
        assert "FAILED" not in states, status
        return status if states == ["RUNNING"] else None

    return eventually(running, f"{name} runs", LIMIT_S, detail=worker.service.log_tail)


@pytest.fixture
def worker(millrace: Callable[..., MillraceWorker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MillraceWorker:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    return millrace()


@pytest.mark.slow
def test_debezium_jdbc(worker: MillraceWorker, bootstrap: str, postgres: Postgres) -> None:
    suffix = secrets.token_hex(4)
    name, topic, table = f"copy-{suffix}", f"crm{suffix}.shop.orders", f"orders_{suffix}"
    create_topics(bootstrap, topic)
    send(bootstrap, topic, event("c", 1, "by Java"), event("c", 2, "by Java"), event("c", 3, "new"))
    # Java's sink has written two records, and its table.
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": f"connect-{name}"})
    group.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    group.close()
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, name text)")
        connection.execute(f"INSERT INTO {table} VALUES (1, 'by Java'), (2, 'untouched')")

        listed = worker.request("GET", "/connector-plugins")[1]
        assert {"class": DEBEZIUM, "type": "sink", "version": "0.1.0"} in listed
        config = {
            "connector.class": DEBEZIUM,
            "tasks.max": "1",
            "topics": topic,
            "connection.url": postgres.url,
            "connection.username": postgres.user,
            "connection.password": postgres.password,
            "connection.pool.max_size": "8",
            "insert.mode": "upsert",
            "primary.key.mode": "record_key",
            "delete.enabled": "true",
            "schema.evolution": "basic",
            "transforms": "route",
            "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
            "transforms.route.regex": r"crm(\w+)\.shop\.(\w+)",
            "transforms.route.replacement": "$2_$1",
            **JOB,
        }
        status, answer = worker.request(
            "PUT",
            f"/connector-plugins/{DEBEZIUM}/config/validate",
            {**config, "name": name, "primary.key.mode": "none"},
        )
        assert status == 200, answer
        errors = {
            entry["value"]["name"]: entry["value"]["errors"] for entry in answer["configs"] if entry["value"]["errors"]
        }
        assert "primary.key.mode" in errors
        assert any(warning["name"] == "connection.pool.max_size" for warning in answer["warnings"])

        status, plan = worker.request("POST", "/flows/plan", {**config, "name": name}, timeout=60)
        assert (status, plan["valid"]) == (200, True), plan
        assert f"from the offsets of the group connect-{name} (0: 2), 1 records to read" in json.dumps(plan["source"])
        assert create(worker, name, config)["type"] == "sink"
        assert wait_until_running(worker, name)["type"] == "sink"

        def rows() -> list[tuple[Any, ...]]:
            return connection.execute(f"SELECT id, name FROM {table} ORDER BY id").fetchall()

        eventually(
            lambda: rows() == [(1, "by Java"), (2, "untouched"), (3, "new")],
            "only the third record is written",
            LIMIT_S,
            detail=lambda: f"{rows()}\n{worker.service.log_tail()}",
        )
        send(bootstrap, topic, event("u", 1, "changed"), event("d", 2, None))
        eventually(lambda: rows() == [(1, "changed"), (3, "new")], "updates and deletes arrive", LIMIT_S)
    offsets = [{"partition": {"kafka_topic": topic, "kafka_partition": 0}, "offset": {"kafka_offset": 5}}]
    eventually(
        lambda: worker.request("GET", f"/connectors/{name}/offsets")[1] == {"offsets": offsets},
        "the Java sink's group has the new position",
        LIMIT_S,
    )
    assert worker.request("DELETE", f"/connectors/{name}")[0] == 204


@pytest.mark.slow
def test_file_stream_appends_lines(worker: MillraceWorker, bootstrap: str, tmp_path: Path) -> None:
    topic = f"lines-{secrets.token_hex(4)}"
    create_topics(bootstrap, topic)
    send(bootstrap, topic, event("c", 1, "one"), event("u", 1, "two"), (b"1", None))
    path = tmp_path / "values.txt"
    path.write_text("by Java\n")
    config = {
        "connector.class": FILE,
        "topics": topic,
        "file": str(path),
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        **JOB,
    }
    create(worker, topic, config)
    eventually(
        lambda: len(path.read_text().splitlines()) == 4,
        "a line for each record",
        LIMIT_S,
        detail=worker.service.log_tail,
    )
    java, first, second, last = path.read_text().splitlines()
    assert (java, last) == ("by Java", "null")
    assert [json.loads(line)["op"] for line in (first, second)] == ["c", "u"]


@pytest.mark.slow
def test_confluent_jdbc_with_transforms_of_several_topics(
    worker: MillraceWorker, bootstrap: str, postgres: Postgres
) -> None:
    suffix = secrets.token_hex(4)
    name = f"copy-{suffix}"
    orders, lines, old_lines = (f"{prefix}{suffix}.{table}" for prefix, table in (("a", "o"), ("a", "l"), ("b", "l")))
    create_topics(bootstrap, orders, lines, old_lines)
    row = {"amount": "1.5", "secret": "x", "at": 7}
    send(bootstrap, orders, flat(1, row), flat(2, row), (json.dumps({"id": 2}).encode(), None))
    send(bootstrap, lines, flat(1, row | {"amount": "2"}))
    send(bootstrap, old_lines, flat(9, row | {"amount": "3"}))
    config = {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "topics": f"{orders},{lines},{old_lines}",
        "connection.url": f"{postgres.url}?ApplicationName=copy",
        "connection.user": postgres.user,
        "connection.password": postgres.password,
        "insert.mode": "upsert",
        "pk.mode": "record_key",
        "auto.create": "true",
        "auto.evolve": "true",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "transforms": "route,hide,types",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": r".(\w+)\.(\w+)",
        "transforms.route.replacement": "t$1_$2",
        "transforms.hide.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.hide.exclude": "secret",
        "transforms.hide.renames": "at:made",
        "transforms.types.type": "org.apache.kafka.connect.transforms.Cast$Value",
        "transforms.types.spec": "amount:float64",
        **JOB,
    }
    create(worker, name, config)
    wait_until_running(worker, name)
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:

        def rows(table: str) -> list[tuple[Any, ...]]:
            try:
                return connection.execute(f"SELECT id, made, amount FROM t{suffix}_{table} ORDER BY id").fetchall()
            except psycopg.errors.UndefinedTable:
                return []

        # delete.enabled is false: a record without a value does nothing.
        expected = [(1, 7, 1.5), (2, 7, 1.5)], [(1, 7, 2.0), (9, 7, 3.0)]
        eventually(
            lambda: (rows("o"), rows("l")) == expected,
            "rows are in the tables that the transform names",
            LIMIT_S,
            detail=lambda: f"{rows('o')} {rows('l')}\n{worker.service.log_tail()}",
        )


@pytest.mark.slow
def test_redis_hashes(worker: MillraceWorker, bootstrap: str, redis: Redis) -> None:
    topic = f"orders-{secrets.token_hex(4)}"
    create_topics(bootstrap, topic)
    send(bootstrap, topic, flat(1, {"name": "one"}), flat(2, {"name": "two"}), (b'{"id": 2}', None))
    config = {
        "connector.class": "com.redis.kafka.connect.RedisSinkConnector",
        "topics": topic,
        "redis.uri": f"redis://:{redis.password}@{redis.address}",
        "redis.command": "HSET",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        **JOB,
    }
    create(worker, topic, config)
    wait_until_running(worker, topic)
    host, _, port = redis.address.rpartition(":")
    with RedisClient(host, int(port), password=redis.password, decode_responses=True) as client:
        eventually(
            lambda: client.hget(f"{topic}:1", "name") == "one" and not client.exists(f"{topic}:2"),
            "a hash for each key, none for the deleted one",
            LIMIT_S,
            detail=worker.service.log_tail,
        )
    assert f"{redis.password}@" not in json.dumps(worker.request("PUT", VALIDATE_REDIS, {**config, "name": topic})[1])


@pytest.mark.slow
def test_debezium_jdbc_appends_rows_without_a_key(worker: MillraceWorker, bootstrap: str, postgres: Postgres) -> None:
    suffix = secrets.token_hex(4)
    topic, table = f"crm.shop.{suffix}", f"appended_{suffix}"
    create_topics(bootstrap, topic)
    send(bootstrap, topic, event("c", 1, "one"), event("u", 1, "two"), event("d", 1, None), event("c", 1, "three"))
    config = {
        "connector.class": DEBEZIUM,
        "topics": topic,
        "connection.url": postgres.url,
        "connection.username": postgres.user,
        "connection.password": postgres.password,
        "schema.evolution": "basic",
        "collection.name.format": table,
        "consumer.override.auto.offset.reset": "earliest",
        **JOB,
    }
    create(worker, f"copy-{suffix}", config)
    wait_until_running(worker, f"copy-{suffix}")
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:

        def rows() -> list[tuple[Any, ...]]:
            try:
                return sorted(connection.execute(f"SELECT id, name FROM {table}").fetchall())
            except psycopg.errors.UndefinedTable:
                return []

        # insert.mode is insert, delete.enabled false.
        eventually(
            lambda: rows() == [(1, "one"), (1, "three"), (1, "two")],
            "a row for each change but the delete",
            LIMIT_S,
            detail=lambda: f"{rows()}\n{worker.service.log_tail()}",
        )
