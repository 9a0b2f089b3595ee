"""A password that changes under running connectors of Cassandra and Scylla: no restart, nothing lost.

One server serves both: the Scylla emulation is a Cassandra, which keeps its change log here. Its passwords are real ones.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import TYPE_CHECKING

import pytest

from compose.local.cassandra_cluster import execute_cql
from compose.local.scylla.client import Emulation, now_us
from compose.local.scylla.emulation import ScyllaEmulation
from compose.local.scylla.writes import Insert
from tests.chaos.proxy import Proxy
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from compose.local.worker import MillraceWorker
    from tests.conftest import HasBootstrap

#: Credentials are looked up at each login.
SETTINGS = {
    "authenticator": {"class_name": "PasswordAuthenticator"},
    "credentials_validity": "0ms",
    "roles_validity": "0ms",
    "cdc_enabled": True,
    "commitlog_segment_size": "32MiB",
}
#: It would let a role's password change every five seconds only.
OPTIONS = (*FAST_START, "-Dcassandra.role_password_update_min_interval_in_ms=0")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ScyllaEmulation]:
    with ScyllaEmulation(tmp_path / "scylla", port=None, settings=SETTINGS, jvm_options=OPTIONS) as started:
        yield started


class World:
    """A keyspace with a table for each connector, an account, and a way to the server that can be cut."""

    def __init__(self, node: ScyllaEmulation) -> None:
        self.client = Emulation(node.address)
        self.node = node
        self.name = f"rot{secrets.token_hex(4)}"
        self.password = f"pw-{secrets.token_hex(8)}"
        self.rows = 0
        self.client.create_keyspace(self.name)
        self.client.create_table(f"CREATE TABLE {self.name}.s (id int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
        self.run(f"CREATE ROLE {self.name} WITH LOGIN = true AND PASSWORD = '{self.password}'")
        self.new_table("c0")
        self.ways = {"cassandra": Proxy(node.inner_port or 0), "scylla": Proxy(node.port or 0)}

    def run(self, *statements: str) -> None:
        execute_cql(self.node.direct, *statements)

    def new_table(self, table: str) -> None:
        """A table that the Cassandra connector has to ask the cluster for."""
        self.run(f"CREATE TABLE {self.name}.{table} (id int PRIMARY KEY) WITH cdc = true")

    def new_password(self) -> None:
        self.password = f"pw-{secrets.token_hex(8)}"
        self.run(f"ALTER ROLE {self.name} WITH PASSWORD = '{self.password}'")

    def cut(self) -> None:
        for way in self.ways.values():
            way.drop()

    def insert(self, table: str, count: int) -> None:
        """The same rows for both connectors."""
        for number in range(self.rows, self.rows + count):
            self.run(f"INSERT INTO {self.name}.{table} (id) VALUES ({number})")  # noqa: S608 - names of this test's own
            self.client.apply(Insert(f"{self.name}.s", {"id": number}), timestamp_us=now_us())
        self.rows += count

    def connector(self, kind: str, password: str) -> dict[str, str]:
        address = f"127.0.0.1:{self.ways[kind].port}"
        kind_options = {
            "cassandra": {
                "cassandra.hosts": address,
                "cassandra.username": self.name,
                "cassandra.password": password,
                "cdc.raw.directories": str(self.node.state_dir / "data" / "cdc_raw"),
                "snapshot.mode": "never",
                "table.include.list": f"{self.name}\\.c.*",
                "output.format": "debezium",
            },
            "scylla": {
                "scylla.cluster.ip.addresses": address,
                "scylla.user": self.name,
                "scylla.password": password,
                "scylla.table.names": f"{self.name}.s",
                "scylla.window.min.ms": "200",
                "scylla.discovery.interval.ms": "500",
                "scylla.confidence.window.ms": "100",
                "worker.maximum.backoff": "500",
            },
        }[kind]
        return {
            "connector.class": kind,
            "tasks.max": "1",
            "topic.prefix": f"{self.name}{kind[0]}",
            "errors.retry.delay.max.ms": "500",
            **kind_options,
        }

    def close(self) -> None:
        for way in self.ways.values():
            way.close()
        self.client.close()


@pytest.fixture
def world(node: ScyllaEmulation) -> Iterator[World]:
    world = World(node)
    yield world
    world.close()


class Reader:
    """The ids in a connector's topics, as they come."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        from confluent_kafka import Consumer

        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"reader-{secrets.token_hex(4)}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 200,
            }
        )
        self._consumer.subscribe([f"^{prefix}[.].*"])
        self._ids: set[int] = set()

    def until(self, count: int, deadline_s: float = 40) -> set[int]:
        """All ids so far, once there are ``count`` different ones or time is over."""
        deadline = time.monotonic() + deadline_s
        while len(self._ids) < count and time.monotonic() < deadline:
            message = self._consumer.poll(0.2)
            key = message.key() if message is not None and message.error() is None else None
            if key is not None:
                self._ids.add(json.loads(key)["payload"]["id"])
        return set(self._ids)

    def close(self) -> None:
        self._consumer.close()


def test_tasks_go_on_with_a_new_password(
    millrace: Callable[..., MillraceWorker], kafka: HasBootstrap, world: World, tmp_path: Path
) -> None:
    login = tmp_path / "login.properties"
    login.write_text(f"password={world.password}\n")
    worker = millrace(
        properties={
            "config.providers": "file",
            "config.providers.file.class": "FileConfigProvider",
            "config.providers.refresh.interval.ms": "500",
            "offset.flush.interval.ms": "500",
            # A worker that loses its membership of the group restarts its tasks.
            "session.timeout.ms": "60000",
        }
    )
    for kind in world.ways:
        worker.create(kind, world.connector(kind, f"${{file:{login}:password}}"))
        worker.wait_running(kind, 1)
    readers = [Reader(kafka.bootstrap, f"{world.name}{kind[0]}") for kind in world.ways]

    def log() -> str:
        return worker.log_path.read_text(encoding="utf-8")

    def all_there() -> None:
        for reader in readers:
            assert reader.until(world.rows) == set(range(world.rows)), log()[-4000:]

    def refused(kind: str) -> bool:
        return any(
            f"{kind}-0: the source is unavailable (the cluster refuses the credentials" in line
            for line in log().splitlines()
        )

    world.insert("c0", 5)
    all_there()

    # The file comes late: the server refuses the old password until then.
    world.new_password()
    world.cut()
    world.new_table("c1")
    world.insert("c1", 5)
    for kind in world.ways:
        worker.wait_for(
            lambda kind=kind: refused(kind),  # type: ignore[misc]
            30,
            f"{kind} did not notice",
            lambda: log()[-6000:],
        )
        assert worker.states(kind) == ("RUNNING", ["RUNNING"])
    login.write_text(f"password={world.password}\n")
    all_there()

    # The file comes first.
    old = world.password
    before = log().count("new values of")
    world.new_password()
    login.write_text(f"password={world.password}\n")
    worker.wait_for(lambda: log().count("new values of") >= before + 2, 20, "no new value", lambda: log()[-2000:])
    world.cut()
    world.new_table("c2")
    world.insert("c2", 5)
    all_there()
    for kind in world.ways:
        assert worker.states(kind) == ("RUNNING", ["RUNNING"])
    text = log()
    for sign in ("the task failed", "starts again", old, world.password):
        assert sign not in text

    # The Scylla connector itself has a session too, with which it finds new streams.
    world.client.new_generation()
    world.insert("c2", 5)
    all_there()
    for reader in readers:
        reader.close()
