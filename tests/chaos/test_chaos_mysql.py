"""The MySQL connector under faults: workers, task hosts and the server are killed, connections are cut."""

from __future__ import annotations

import os
import secrets
import signal
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.mariadb import MariaDb
from tests.chaos.cluster import PATIENCE, Cluster
from tests.chaos.mysql_load import TABLES, MySqlLoad, check_order, counts, difference, folded, operations, records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.chaos.conftest import ProxiedKafka

CONVERTERS = {"key.converter": "org.apache.kafka.connect.json.JsonConverter", "key.converter.schemas.enable": "false"}


class Scene:
    """A server, its writers, a cluster of workers, and the connector between them."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        server: MariaDb,
        *,
        exactly_once: bool,
        workers: int,
        tasks: int,
        **options: str,
    ) -> None:
        self.server, self.bootstrap, self.exactly_once = server, bootstrap, exactly_once
        self.name = f"m{secrets.token_hex(4)}"
        self.load = MySqlLoad(lambda: int(self.server.port or 0), self.name, (server.user, server.password))
        self.load.create()
        self.cluster = Cluster(
            folder, bootstrap, f"mysql-{self.name}", exactly_once=exactly_once, properties=CONVERTERS
        )
        self.cluster.start(workers)
        self.load.start()
        self.cluster.running[0].create(
            self.name,
            {
                "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
                "tasks.max": str(tasks),
                "topic.prefix": self.name,
                "database.hostname": "127.0.0.1",
                "database.port": str(server.port),
                "database.user": server.user,
                "database.password": server.password,
                "database.include.list": self.name,
                "snapshot.chunk.rows": "200",
                "poll.interval.ms": "50",
                "max.batch.size": "500",
                **options,
            },
        )

    def read_records(self) -> dict[str, Any]:
        """The content of the topics."""
        return records(self.bootstrap, self.load, committed=self.exactly_once)

    def until_records(self, more: int) -> None:
        """Wait until ``more`` further records have come."""
        target = counts(self.read_records()) + more
        self.cluster.until(lambda: counts(self.read_records()) >= target, f"{more} more records come")

    def request_snapshot(self) -> str:
        """Ask for the full contents over REST; the request's id."""
        status, body = self.cluster.ask("POST", f"/connectors/{self.name}/snapshots", {"tables": [f"{self.name}\\..*"]})
        assert status == 201, body
        return str(body["id"])

    def until_pulled(self, request: str) -> None:
        """Wait until a snapshot is complete."""

        def done() -> bool:
            status, body = self.cluster.ask("GET", f"/connectors/{self.name}/snapshots/{request}")
            return status == 200 and body["state"] == "completed"

        self.cluster.until(done, f"the snapshot {request} is completed", 2 * PATIENCE)

    def finish(self) -> None:
        """Stop writing, wait for what is missing, compare."""
        self.load.stop()
        expected = self.load.rows()
        self.cluster.until(
            lambda: not difference(expected, folded(self.read_records())),
            "Kafka has what the tables have",
            2 * PATIENCE,
        )
        topics = self.read_records()
        assert not difference(expected, folded(topics))
        repeated = check_order(topics, exactly_once=self.exactly_once)
        self.cluster.until(self.caught_up, "REST reports that everything was read")
        status, tables = self.cluster.ask("GET", f"/connectors/{self.name}/tables")
        assert (status, {entry["table"] for entry in tables}) == (200, {f"{self.name}.{name}" for name in TABLES}), (
            tables
        )
        print(f"{self.load.committed} transactions, {operations(topics.values())}, {repeated} changes came again")

    def caught_up(self) -> bool:
        """Whether the saved places are where the binlog ends."""
        status, body = self.cluster.ask("GET", f"/connectors/{self.name}/lag")
        return status == 200 and body["bytes_behind"] == 0

    def close(self) -> None:
        """Stop everything that is this scene's own."""
        self.cluster.close()
        self.load.stop()


@pytest.fixture
def scene(tmp_path: Path, broker: ProxiedKafka) -> Iterator[Callable[..., Scene]]:
    """Makes the scene of a test, with a server of its own."""
    cleanups: list[Any] = []

    def make(*, exactly_once: bool, workers: int = 1, tasks: int = 1, **options: str) -> Scene:
        server = MariaDb(tmp_path / "mariadb", port=None, durable=True)
        server.start()
        cleanups.append(server.stop)
        stage = Scene(
            tmp_path, broker.bootstrap, server, exactly_once=exactly_once, workers=workers, tasks=tasks, **options
        )
        cleanups.append(stage.close)
        return stage

    yield make
    for close in reversed(cleanups):
        close()


@pytest.mark.proves("from mysql stream", "at-least-once", killed=["worker", "task host", "server"])
@pytest.mark.proves("from mysql stream", "exactly-once", killed=["worker", "task host", "server"])
@pytest.mark.proves("from mysql snapshot", "at-least-once", killed=["worker", "task host", "server"])
@pytest.mark.proves("from mysql snapshot", "exactly-once", killed=["worker", "task host", "server"])
@pytest.mark.parametrize(
    ("exactly_once", "tasks", "options"),
    [
        pytest.param(False, 1, {}, marks=pytest.mark.slow),
        (True, 3, {}),
        pytest.param(True, 1, {"transaction.boundary": "connector"}, marks=pytest.mark.slow),
    ],
    ids=["at-least-once", "exactly-once-three-tasks", "exactly-once-by-transaction"],
)
def test_everything_is_killed_in_turn(
    scene: Callable[..., Scene], exactly_once: bool, tasks: int, options: dict[str, str]
) -> None:
    stage = scene(exactly_once=exactly_once, workers=2, tasks=tasks, **options)
    stage.until_records(100)  # in the middle of the first snapshot
    stage.cluster.running[0].kill()
    stage.until_records(200)
    stage.cluster.repair()
    stage.until_pulled("initial")
    request = stage.request_snapshot()
    for host in stage.cluster.running[1].hosts():
        os.kill(host, signal.SIGKILL)
    stage.until_records(200)
    stage.server.kill()
    stage.server.start()
    stage.until_records(200)
    with closing(stage.load.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'")
        for (number,) in cursor.fetchall():
            cursor.execute(f"KILL {number}")
    stage.until_records(200)
    stage.until_pulled(request)
    stage.finish()
