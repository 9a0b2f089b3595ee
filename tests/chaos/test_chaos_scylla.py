"""The Scylla connector under faults: workers and servers are killed or hang, connections break, topologies change."""

from __future__ import annotations

import os
import secrets
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.scylla.client import Emulation, now_us
from compose.local.scylla.writes import Insert
from tests.chaos.cluster import PATIENCE, Cluster
from tests.chaos.proxy import Proxy
from tests.chaos.scylla_load import ScyllaLoad, changes, until_all_there, verify
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from compose.local.scylla.emulation import ScyllaEmulation
    from tests.chaos.conftest import ProxiedKafka

CONVERTERS = {"key.converter": "org.apache.kafka.connect.json.JsonConverter", "key.converter.schemas.enable": "false"}


#: Under exactly once the same faults are withstood in every run.
GUARANTEES = [pytest.param(False, id="at-least-once", marks=pytest.mark.slow), pytest.param(True, id="exactly-once")]

#: Slow enough that a kill hits a snapshot that is under way.
SNAPSHOT = {"snapshot.mode": "initial", "snapshot.rows.per.second": "10", "snapshot.chunk.rows": "20"}


def soon_ms() -> int:
    """When a new generation begins: announced ahead, as Scylla does, so that every writer knows it in time."""
    return now_us() // 1000 + 1500


class Scene:
    """A table, a writer, a cluster of workers, and the connector between them."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        node: ScyllaEmulation,
        *,
        exactly_once: bool,
        workers: int,
        tablets: bool = False,
        skew_ms: int = 0,
        address: str | None = None,
        rows_before: int = 0,
    ) -> None:
        self.node, self.bootstrap, self.exactly_once = node, bootstrap, exactly_once
        self.client = Emulation(node.address)
        if not self.client.generations():
            self.client.new_generation(vnodes=4, shards=2)
        name = f"c{secrets.token_hex(4)}"
        self.client.create_keyspace(name, tablets=tablets)
        self.client.create_table(f"CREATE TABLE {name}.t (pk int, ck int, v text, n bigint, PRIMARY KEY (pk, ck))")
        for number in range(rows_before):
            self.client.apply(
                Insert(f"{name}.t", {"pk": number // 4, "ck": number % 4, "v": f"v{number}", "n": number})
            )
        self.client.alter_table(f"ALTER TABLE {name}.t WITH cdc = {{'enabled': true}}")
        self.load = ScyllaLoad(node.address, f"{name}.t", name, skew_ms=skew_ms)
        self.cluster = Cluster(folder, bootstrap, f"scylla-{name}", exactly_once=exactly_once, properties=CONVERTERS)
        self.cluster.start(workers)
        self.config = {
            "connector.class": "com.scylladb.cdc.debezium.connector.ScyllaConnector",
            "tasks.max": "3",
            "topic.prefix": name,
            "scylla.cluster.ip.addresses": address or node.address,
            "scylla.table.names": self.load.table,
            "scylla.window.min.ms": "200",
            "scylla.discovery.interval.ms": "500",
            "scylla.query.timeout.ms": "1500",
            "scylla.query.options.fetch.size": "20",
            "worker.maximum.backoff": "500",
            "heartbeat.interval.ms": "500",
            **(SNAPSHOT if rows_before else {}),
        }
        self.cluster.running[0].create(name, self.config)

    def until_events(self, more: int) -> None:
        """Wait until ``more`` further changes have come."""

        def count() -> int:
            return len(changes(read_topic(self.bootstrap, self.load.topic)))

        target = count() + more
        self.cluster.until(lambda: count() >= target, f"{more} more events come")

    def saved_generations(self) -> list[str]:
        """The generation of each saved position."""
        status, body = self.cluster.ask("GET", f"/connectors/{self.load.prefix}/offsets")
        return [entry["partition"]["generation_start"] for entry in body["offsets"]] if status == 200 else []

    def finish(self) -> None:
        """Stop writing, wait for what is missing, compare."""
        self.load.stop()
        until_all_there(
            self.load,
            self.bootstrap,
            lambda condition, description: self.cluster.until(condition, description, 2 * PATIENCE),
            exactly_once=self.exactly_once,
        )
        repeated = verify(
            self.load, self.bootstrap, self.client.base_rows(self.load.table), exactly_once=self.exactly_once
        )
        print(f"{self.load.table}: {len(self.load.expected)} changes, {repeated} came again")

    def close(self) -> None:
        """Stop everything that is this scene's own."""
        self.cluster.close()
        self.client.drop_keyspace(self.load.prefix)
        self.client.close()


@pytest.fixture
def scene(tmp_path: Path, broker: ProxiedKafka, scylla_node: ScyllaEmulation) -> Iterator[Callable[..., Scene]]:
    """Makes the scene of a test."""
    scenes: list[Scene] = []

    def make(
        *,
        exactly_once: bool = True,
        workers: int = 1,
        tablets: bool = False,
        skew_ms: int = 0,
        address: str | None = None,
        rows_before: int = 0,
    ) -> Scene:
        scene = Scene(
            tmp_path,
            broker.bootstrap,
            scylla_node,
            exactly_once=exactly_once,
            workers=workers,
            tablets=tablets,
            skew_ms=skew_ms,
            address=address,
            rows_before=rows_before,
        )
        scenes.append(scene)
        return scene

    yield make
    for stage in scenes:
        stage.close()


@pytest.mark.proves("from scylla log", "at-least-once", killed=["worker"])
@pytest.mark.proves("from scylla log", "exactly-once", killed=["worker"])
@pytest.mark.parametrize("exactly_once", GUARANTEES)
def test_workers_are_killed(scene: Callable[..., Scene], exactly_once: bool) -> None:
    stage = scene(exactly_once=exactly_once, workers=2)
    stage.load.start()
    stage.until_events(100)
    for victim in list(stage.cluster.workers):
        victim.kill()
        stage.until_events(1)
        stage.cluster.repair()
        stage.until_events(100)
    stage.finish()


@pytest.mark.slow
@pytest.mark.proves("from scylla snapshot", "at-least-once", killed=["worker", "task host"])
@pytest.mark.proves("from scylla snapshot", "exactly-once", killed=["worker", "task host"])
@pytest.mark.parametrize("exactly_once", GUARANTEES)
def test_workers_are_killed_during_a_snapshot(scene: Callable[..., Scene], exactly_once: bool) -> None:
    rows_before = 1200
    stage = scene(exactly_once=exactly_once, workers=2, rows_before=rows_before)

    def read_rows() -> list[dict[str, Any]]:
        records = changes(read_topic(stage.bootstrap, stage.load.topic, committed=exactly_once))
        return [value["after"] for _, value in records if value["op"] == "r"]

    def until_rows(count: int) -> None:
        stage.cluster.until(lambda: len(read_rows()) >= count, f"the snapshot has sent {count} rows")

    for victim in list(stage.cluster.workers):
        until_rows(len(read_rows()) + 40)
        assert len(read_rows()) < rows_before, "the snapshot is over before the kill"
        victim.kill()
        stage.cluster.repair()
        for worker in stage.cluster.running:
            for host in worker.hosts():
                os.kill(host, signal.SIGKILL)
    faster = stage.config | {"snapshot.rows.per.second": "0"}
    stage.cluster.until(
        lambda: stage.cluster.ask("PUT", f"/connectors/{stage.load.prefix}/config", faster)[0] == 200,
        "the connector takes its new configuration",
    )
    expected = {(row["pk"], row["ck"]): row for row in stage.client.base_rows(stage.load.table)}
    assert len(expected) == rows_before

    def is_there() -> bool:
        return {(row["pk"], row["ck"]) for row in read_rows()} == expected.keys()

    stage.cluster.until(is_there, "every row comes", 2 * PATIENCE)
    rows = read_rows()
    for row in rows:
        cells = {"pk": row["pk"], "ck": row["ck"], "v": row["v"]["value"], "n": row["n"]["value"]}
        assert cells == expected[row["pk"], row["ck"]]
    if exactly_once:
        assert len(rows) == rows_before


@pytest.mark.slow
def test_task_hosts_are_killed_while_generations_change(scene: Callable[..., Scene]) -> None:
    stage = scene()
    stage.load.start()
    for vnodes in (1, 3, 5):
        stage.until_events(60)
        stage.client.new_generation(vnodes=vnodes, shards=2, start_ms=soon_ms())
        for host in stage.cluster.running[0].hosts():
            os.kill(host, signal.SIGKILL)
    stage.until_events(60)
    stage.finish()
    newest = str(max(stage.client.generations()))
    # Positions of finished generations go, once one of the newest is saved: as many offsets as groups stay.
    stage.cluster.until(
        lambda: stage.saved_generations() == [newest] * 5, f"there are 5 offsets of {newest} and no others"
    )


@pytest.mark.slow
def test_tablets_split_while_a_worker_is_killed(scene: Callable[..., Scene]) -> None:
    stage = scene(tablets=True, workers=2)
    stage.load.start()
    for tablets in (8, 2):
        stage.until_events(60)
        stage.client.split_tablets(stage.load.table, tablets, start_ms=soon_ms())
        stage.cluster.running[0].kill()
        stage.cluster.repair()
    stage.until_events(60)
    stage.finish()


def test_scylla_is_killed_and_comes_back(scene: Callable[..., Scene], scylla_node: ScyllaEmulation) -> None:
    stage = scene()
    stage.load.start()
    stage.until_events(100)
    stage.load.stop()  # the writer can't continue; what it wrote is partly unread
    scylla_node.kill()
    stage.cluster.until(
        lambda: (
            sum(stage.cluster.numbers(stage.cluster.running[0], "scylla_query_errors_total")) > 0
            or not scylla_node.running
        ),
        "the connector has noticed",
    )
    scylla_node.start()
    stage.client.close()  # its connection broke too; the next call makes another one
    stage.load.start()
    stage.until_events(100)
    stage.finish()


@pytest.mark.slow
def test_scylla_hangs(scene: Callable[..., Scene], scylla_node: ScyllaEmulation) -> None:
    """Queries time out; what was asked is asked again, and nothing is passed over."""
    stage = scene()
    stage.load.start()
    for _ in range(2):
        stage.until_events(60)
        scylla_node.pause()
        try:
            time.sleep(4)  # the fault itself: longer than scylla.query.timeout.ms
        finally:
            scylla_node.resume()
    stage.until_events(60)
    stage.finish()


@pytest.mark.slow
def test_connections_break_in_the_middle_of_pages(scene: Callable[..., Scene], scylla_node: ScyllaEmulation) -> None:
    proxy = Proxy(int(scylla_node.address.rpartition(":")[2]))
    try:
        stage = scene(address=f"127.0.0.1:{proxy.port}")
        stage.load.start()
        for _ in range(12):
            stage.until_events(15)
            proxy.drop()
        stage.finish()
    finally:
        proxy.close()


@pytest.mark.slow
def test_clocks_of_writers_differ(scene: Callable[..., Scene]) -> None:
    """Timestamps up to a second off, to both sides: within the confidence window, so nothing is missed."""
    stage = scene(skew_ms=1000)
    stage.load.start()
    stage.until_events(600)
    stage.finish()
