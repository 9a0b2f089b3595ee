"""The Cassandra connector under faults: workers, task hosts and the node itself are killed, also while a snapshot runs."""

from __future__ import annotations

import os
import secrets
import signal
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.cassandra import CassandraNode
from tests.chaos.cassandra_load import CassandraLoad, folded, updates
from tests.chaos.cluster import PATIENCE, Cluster
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from connectors.formats.partition_update import PartitionUpdate
    from tests.chaos.conftest import ProxiedKafka

CONVERTERS = {
    "key.converter": "ByteArrayConverter",
    "value.converter": "JsonConverter",
    "value.converter.schemas.enable": "true",
}


class Scene:
    """A node, a writer, two workers that both see the node's directory, and the connector between them."""

    def __init__(
        self, folder: Path, bootstrap: str, node: CassandraNode, *, exactly_once: bool, **options: str
    ) -> None:
        self.node, self.bootstrap, self.exactly_once = node, bootstrap, exactly_once
        self.name = f"c{secrets.token_hex(4)}"
        self.load = CassandraLoad(lambda: node.address, self.name)
        self.load.create()
        self.cluster = Cluster(
            folder, bootstrap, f"cassandra-{self.name}", exactly_once=exactly_once, properties=CONVERTERS
        )
        self.cluster.start(2)
        self.load.start()
        self.cluster.running[0].create(
            self.name,
            {
                "connector.class": "cassandra",
                "tasks.max": "2",
                "topic.prefix": self.name,
                "cassandra.hosts": node.address,
                "cdc.raw.directories": str(node.data / "cdc_raw"),
                "table.include.list": f"{self.name}\\..*",
                "snapshot.chunk.rows": "100",
                "max.batch.size": "200",
                **options,
            },
        )

    def read_updates(self) -> list[PartitionUpdate]:
        """The partition updates in the topic."""
        return updates(self.bootstrap, f"{self.name}.{self.load.table}", committed=self.exactly_once)

    def until_updates(self, more: int) -> None:
        """Wait until ``more`` further changes of the log have come."""

        def count() -> int:
            return sum(not update.source.snapshot for update in self.read_updates())

        target = count() + more
        self.cluster.until(lambda: count() >= target, f"{more} more changes come", 2 * PATIENCE)

    def until_pulled(self, request: str) -> None:
        """Wait until a snapshot is complete."""

        def done() -> bool:
            status, body = self.cluster.ask("GET", f"/connectors/{self.name}/snapshots/{request}")
            return status == 200 and body["state"] == "completed"

        self.cluster.until(done, f"the snapshot {request} is completed", 2 * PATIENCE)

    def finish(self) -> None:
        """Stop writing, wait for what is missing, compare."""
        self.load.stop()
        rows = self.load.rows()
        self.cluster.until(lambda: folded(self.read_updates()) == rows, "Kafka has what the table has", 2 * PATIENCE)
        received = self.read_updates()
        positions = [
            tuple((update.source.position or {}).values()) for update in received if not update.source.snapshot
        ]
        assert len(positions) > 500
        if self.exactly_once:
            assert len(set(positions)) == len(positions), "changes came twice"
        segments = [position[1] for position in positions]
        assert len(set(segments)) > 2, "the log had one segment only"
        print(
            f"{self.load.done} statements, {len(received)} messages, {len(positions) - len(set(positions))} came again"
        )

    def close(self) -> None:
        """Stop everything that is this scene's own."""
        self.cluster.close()
        self.load.stop()


@pytest.fixture
def scene(tmp_path: Path, broker: ProxiedKafka) -> Iterator[Callable[..., Scene]]:
    """Makes the scene of a test, with a node of its own."""
    cleanups: list[Any] = []

    def make(version: str, *, exactly_once: bool, **options: str) -> Scene:
        node = CassandraNode(
            tmp_path / "cassandra",
            port=None,
            version=version,
            durable=True,
            jvm_options=FAST_START,
            settings={"commitlog_segment_size": "1MiB"},
        )
        node.start()
        cleanups.append(node.stop)
        stage = Scene(tmp_path, broker.bootstrap, node, exactly_once=exactly_once, **options)
        cleanups.append(stage.close)
        return stage

    yield make
    for close in reversed(cleanups):
        close()


@pytest.mark.proves("from cassandra log", "at-least-once", killed=["worker", "task host", "server"])
@pytest.mark.proves("from cassandra log", "exactly-once", killed=["worker", "task host", "server"])
@pytest.mark.proves("from cassandra snapshot", "at-least-once", killed=["worker", "task host", "server"])
@pytest.mark.proves("from cassandra snapshot", "exactly-once", killed=["worker", "task host", "server"])
@pytest.mark.parametrize(
    ("version", "exactly_once", "options"),
    [
        pytest.param("5.0", True, {}, id="exactly-once"),
        pytest.param("4.1", True, {}, id="exactly-once-4.1", marks=pytest.mark.slow),
        pytest.param("6.0", True, {}, id="exactly-once-6.0", marks=pytest.mark.slow),
        pytest.param(
            "5.0", False, {"commit.log.read.mode": "marker"}, id="at-least-once-by-markers", marks=pytest.mark.slow
        ),
    ],
)
def test_everything_is_killed_in_turn(
    scene: Callable[..., Scene], version: str, exactly_once: bool, options: dict[str, str]
) -> None:
    stage = scene(version, exactly_once=exactly_once, **options)
    stage.until_updates(100)  # in the middle of the first snapshot
    stage.cluster.running[0].kill()
    stage.until_updates(200)
    stage.cluster.repair()
    for host in stage.cluster.running[1].hosts():
        os.kill(host, signal.SIGKILL)
    stage.until_updates(200)
    stage.node.kill()
    stage.node.start()
    stage.until_updates(200)
    stage.until_pulled("initial")
    stage.finish()
    left = sorted(path.name for path in (stage.node.data / "cdc_raw").glob("*.log"))
    assert len(left) < 10, f"segments that were delivered are still there: {left}"
