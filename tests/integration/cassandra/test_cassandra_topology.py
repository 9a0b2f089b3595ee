"""Three replicas with a task each: a node that dies and comes back, one that joins, one that leaves. The logs tell it all."""

# ruff: noqa: S608 - names of keyspaces are our own
from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import secrets
from typing import TYPE_CHECKING, Any, Final, Self

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compose.local.cassandra_cluster import CassandraCluster
from compose.local.worker import MillraceWorker
from connectors.cql.cluster.session import CqlSession
from connectors.cql.mutations.compiled import CompiledDecoder
from connectors.errors import Fatal, Retriable
from connectors.formats.partition_update_raw import form_of
from tests.integration.cassandra.log_world import clean, selected, unlike
from tests.support.cassandra_load import Workload
from tests.support.eventually import eventually_async, patience
from tests.support.partition_merge import Table
from tests.support.settings import cql_session
from tests.unit.connectors.cql.mutation_world import SOURCE
from worker.fetch.java import FAST_START
from worker.kafka.whole_topics import read_all
from worker.terminal import say

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from connectors.cql.mutations.definition import CqlTableDefinition
    from connectors.formats.partition_update import PartitionUpdate

PATIENCE_S: Final = 60.0
#: Labels for all nodes that may come: a worker's own can't be changed while it runs.
LABELS: Final = ",".join(f"cass-{number}=yes" for number in range(1, 10))


class Scene:
    """A load on a cluster, the connector on all of its directories, and what it has sent so far.

    Attributes:
        updates: by table and node.
    """

    def __init__(self, cluster: CassandraCluster, bootstrap: str, folder: Path) -> None:
        self.cluster, self.bootstrap = cluster, bootstrap
        self.name = f"top{secrets.token_hex(4)}"
        # Conditional statements that are cut off by a death are decided by whoever comes next, after the comparison maybe.
        self.load = Workload(int(self.name[3:], 16), self.name, lwt=False)
        self.tables = {name: f"{self.name}.{name}" for name in ("t", "o")}
        self.updates: dict[tuple[str, str], list[PartitionUpdate]] = {}
        self.definitions: dict[str, CqlTableDefinition] = {}
        self._decoders: dict[str, CompiledDecoder] = {}
        self._fence = 10_000
        self.worker = MillraceWorker(
            folder,
            bootstrap,
            group=self.name,
            port=None,
            processes=1,
            properties={"node.labels": LABELS, "offset.flush.interval.ms": "300"},
        )

    async def __aenter__(self) -> Self:
        started = asyncio.create_task(asyncio.to_thread(self.worker.start))
        await asyncio.to_thread(
            self.cluster.execute,
            f"CREATE KEYSPACE {self.name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}",
            *self.load.ddl,
        )
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in self.tables.values()]).values():
            future.result(20)
        self.session = await CqlSession.acquire(
            cql_session(
                contact_points=tuple((member.host, int(member.port or 0)) for member in self.cluster.members),
                request_timeout_s=30.0,
            )
        )
        await started
        await self.configure(self.cluster.directories)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.worker.kill)
        await self.session.release()
        await asyncio.to_thread(
            self.cluster.execute, f"DROP KEYSPACE {self.name}", member=len(self.cluster.members) - 1
        )

    async def configure(self, directories: Mapping[str, Path]) -> None:
        """Create the connector or change its configuration; returns when a task runs for every directory."""
        await asyncio.to_thread(
            self.worker.create,
            self.name,
            {
                "connector.class": "cassandra",
                "tasks.max": str(len(directories)),
                "topic.prefix": "p",
                "cassandra.hosts": ",".join(f"{member.host}:{member.port}" for member in self.cluster.members),
                "cdc.raw.directories": ",".join(f"{label}={folder}" for label, folder in directories.items()),
                "table.include.list": rf"{self.name}\..*",
                "output.format": "partition-update-raw",
                "snapshot.mode": "never",
                "schema.refresh.interval.ms": "500",
                "commit.log.delete": "false",
                "key.converter": "ByteArrayConverter",
                "value.converter": "JsonConverter",
                "value.converter.schemas.enable": "true",
                "transforms": "short",
                "transforms.short.type": "RegexRouter",
                "transforms.short.regex": r"p\.(.*)",
                "transforms.short.replacement": "$1",
            },
        )
        await asyncio.to_thread(self.worker.wait_running, self.name, len(directories))

    # Writing.

    async def query(self, text: str, *, consistency: str = "QUORUM", may_fail: bool = False) -> list[dict[str, Any]]:
        """Ask until there is an answer."""
        async with patience(PATIENCE_S):
            while True:
                try:
                    return await self.session.query(text, consistency=consistency)
                except Retriable:
                    await asyncio.sleep(0.1)
                except Fatal:
                    if may_fail:
                        return []
                    raise

    async def write(self, count: int, *, dead: bool = False) -> None:
        """Execute statements of all kinds.

        Args:
            count: how many.
            dead: without those that may wait for a node that has just died: it is to be read, or to keep a batch.
        """
        for statement in self.load.statements(count):
            if not dead or not (statement.may_fail or "BATCH" in statement.text):
                await self.query(statement.text, may_fail=statement.may_fail)

    async def write_markers(self, *keys: int, consistency: str = "QUORUM") -> None:
        """Rows that tests look for in the log, in both tables."""
        for key in keys:
            await self.query(
                f"INSERT INTO {self.tables['t']} (pk, c1, c2) VALUES ({key}, 0, 'a')", consistency=consistency
            )
            await self.query(f"INSERT INTO {self.tables['o']} (pk, n) VALUES ({key}, 0)", consistency=consistency)

    # Reading.

    async def read(self) -> None:
        """All that was sent so far."""
        self.updates.clear()
        for name, topic in self.tables.items():
            for record in await read_all(self.bootstrap, topic):
                message = json.loads(record.value or b"")
                parameters = message["schema"]["parameters"]
                decoder = self._decoders.get(parameters["definition"])
                if decoder is None:
                    form = form_of(parameters.get)
                    decoder = self._decoders[parameters["definition"]] = CompiledDecoder(form.definition, form.version)
                    self.definitions[name] = form.definition
                data = base64.b64decode(message["payload"]["update"])
                node = message["payload"]["source"]["position"]["node"]
                self.updates.setdefault((name, node), []).append(decoder.full(data, 0, SOURCE)[0])

    def keys(self, node: str) -> set[int]:
        """The partitions that a node's log has reported, in both tables."""
        key_sets = [{update.key[0] for update in self.updates.get((name, node), ())} for name in self.tables]
        return set.intersection(*key_sets)

    async def passed(self, nodes: Collection[str]) -> None:
        """Wait until the logs of nodes were delivered up to now; all of them have every partition."""
        self._fence += 1
        await self.write_markers(self._fence, consistency="ALL")
        await self.wait_until_reported(self._fence, nodes)

    async def wait_until_reported(self, key: int, nodes: Collection[str]) -> None:
        """Wait until the logs of nodes have reported a partition."""

        async def reported() -> bool:
            await self.read()
            return all(key in self.keys(node) for node in nodes)

        await eventually_async(reported, f"the logs of {nodes} report partition {key}", PATIENCE_S, every=0.2)

    async def assert_folds(self, *alone: str) -> None:
        """All logs together, and those of some nodes alone, make the tables as all replicas show them."""
        for name, topic in self.tables.items():
            table = self.definitions[name]
            kinds = {column.name: column.type for column in table.columns}
            shown = selected(await self.query(f"SELECT * FROM {topic}", consistency="ALL"), table)
            everything = [update for (of, _), updates in self.updates.items() if of == name for update in updates]
            for node, updates in [("all", everything), *((node, self.updates[name, node]) for node in alone)]:
                contents = Table(table.columns).apply_all(updates).contents()
                folded = {
                    key: (clean(static, kinds, folded=True), [clean(row, kinds, folded=True) for row in rows])
                    for key, (static, rows) in contents.items()
                }
                assert not (difference := unlike(folded, shown)), (node, table.table, difference)

    async def read_everywhere(self) -> None:
        """Read all rows from all replicas: those that lack something are repaired, through their logs."""
        for topic in self.tables.values():
            await self.query(f"SELECT * FROM {topic}", consistency="ALL")


@pytest.mark.slow
async def test_a_node_that_dies_and_comes_back(
    cassandra_cluster: CassandraCluster, bootstrap: str, tmp_path: Path
) -> None:
    victim = cassandra_cluster.members[2]
    nodes = list(cassandra_cluster.directories)
    async with Scene(cassandra_cluster, bootstrap, tmp_path) as scene:
        await scene.write(60)
        victim.kill()
        try:
            await scene.write(60, dead=True)
            await scene.write_markers(1000)
        finally:
            await asyncio.to_thread(victim.start)
            await asyncio.to_thread(cassandra_cluster.wait_whole)
        # By hints or by the repair of this read: what it has missed goes through its log.
        await scene.read_everywhere()
        await scene.passed(nodes)
        assert 1000 in scene.keys(nodes[2])
        await scene.assert_folds(*nodes)


@pytest.mark.slow
async def test_a_node_that_joins_and_one_that_leaves(bootstrap: str, tmp_path: Path) -> None:
    with CassandraCluster(tmp_path / "cluster", jvm_options=FAST_START, say=say) as cluster:
        async with Scene(cluster, bootstrap, tmp_path / "worker") as scene:
            await scene.write(80)
            await scene.write_markers(1000)
            running = asyncio.create_task(_forever(scene))
            try:
                newcomer = (await asyncio.to_thread(cluster.join)).state_dir.name
                await scene.configure(cluster.directories)
                # It got what was there before through its own log.
                await scene.wait_until_reported(1000, [newcomer])
                gone, left = cluster.members[1], cluster.directories
                await asyncio.to_thread(cluster.leave, gone)
            finally:
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running
            await scene.passed(cluster.directories)
            await scene.configure(cluster.directories)
            await scene.write(40)
            await scene.read_everywhere()
            await scene.passed(cluster.directories)
            await scene.assert_folds(*cluster.directories)
            assert gone.state_dir.name in left.keys() - cluster.directories.keys()


async def _forever(scene: Scene) -> None:
    """Statements until it is cancelled."""
    while True:
        await scene.write(1)
        await asyncio.sleep(0.02)
