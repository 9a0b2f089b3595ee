"""Tables change while the Cassandra connector is behind, and its task hosts are killed: what was written before still comes."""

# ruff: noqa: S608 - names of keyspaces are our own
from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from cassandra.concurrent import execute_concurrent_with_args

from compose.local.cassandra import CassandraNode
from tests.chaos.cassandra_load import CassandraLoad, updates
from tests.chaos.cluster import PATIENCE, Cluster
from tests.chaos.test_chaos_cassandra import CONVERTERS
from worker.fetch.java import FAST_START
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tests.chaos.conftest import ProxiedKafka

#: Tables by what happens to them while the connector is behind.
CHANGES = {
    "kept": "",
    "off": "ALTER TABLE KS.off WITH cdc = false",
    "narrow": "ALTER TABLE KS.narrow DROP w",
    "gone": "DROP TABLE KS.gone",
}
ROWS = 3_000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[CassandraNode]:
    """A node with small segments: a table's rows are in many of them."""
    with CassandraNode(
        tmp_path / "cassandra", port=None, jvm_options=FAST_START, settings={"commitlog_segment_size": "1MiB"}
    ) as started:
        yield started
        started.kill()


@pytest.mark.slow
def test_rows_from_before_a_change_of_their_table_come(
    node: CassandraNode, tmp_path: Path, broker: ProxiedKafka, unique: Callable[[str], str]
) -> None:
    name = f"k{unique('').rpartition('-')[2]}"
    load = CassandraLoad(lambda: node.address, name)
    cluster = Cluster(tmp_path, broker.bootstrap, name, properties=CONVERTERS)

    def write(keys: range, tables: Iterable[str] = CHANGES) -> None:
        with load.session() as session:
            for table in tables:
                insert = session.prepare(f"INSERT INTO {name}.{table} (pk, v, w) VALUES (?, ?, ?)")
                execute_concurrent_with_args(session, insert, [(key, f"{table} {key}", "w" * 200) for key in keys])

    def topic(table: str) -> str:
        return f"{name}.{name}.{table}"

    def records() -> dict[str, int]:
        return {table: len(read_topic(broker.bootstrap, topic(table), committed=False)) for table in CHANGES}

    def values(table: str) -> dict[int, str]:
        partition_updates = updates(broker.bootstrap, topic(table), committed=False)
        return {
            update.key[0]: cell.value
            for update in partition_updates
            for row in update.rows
            for cell in row.cells
            if cell.column == "v"
        }

    def until_records(count: int) -> None:
        cluster.until(lambda: sum(records().values()) >= count, "rows come")

    with load.session() as session:
        session.execute(
            f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        for table in CHANGES:
            session.execute(f"CREATE TABLE {name}.{table} (pk int PRIMARY KEY, v text, w text) WITH cdc = true")
    try:
        worker = cluster.start(1).running[0]
        worker.create(
            name,
            {
                "connector.class": "cassandra",
                "tasks.max": "1",
                "topic.prefix": name,
                "cassandra.hosts": node.address,
                "cdc.raw.directories": str(node.cdc_raw),
                "table.include.list": f"{name}\\..*",
                "snapshot.mode": "never",
                "max.batch.size": "200",
            },
        )
        write(range(1))
        cluster.until(lambda: all(records().values()), "the first rows come")
        worker.kill()
        write(range(1, ROWS))
        with load.session() as session:
            for statement in filter(None, CHANGES.values()):
                session.execute(statement.replace("KS", name))
        cluster.repair()
        for share in (1, 2, 3):
            until_records(share * 500)
            for host in cluster.running[0].hosts():
                os.kill(host, signal.SIGKILL)
        cluster.until(lambda: all(len(values(table)) == ROWS for table in CHANGES), "all rows come", 2 * PATIENCE)
        for table in CHANGES:
            assert values(table) == {key: f"{table} {key}" for key in range(ROWS)}

        # Where cdc ended in the log is saved; what comes in later segments is passed over.
        def ended() -> bool:
            status, body = cluster.ask("GET", f"/connectors/{name}/offsets")
            return status == 200 and [
                entry["offset"]["table"] for entry in body["offsets"] if "cdc_last_segment" in entry["offset"]
            ] == [f"{name}.off"]

        cluster.until(ended, "the last segment is saved")
        write(range(ROWS, 4 * ROWS), ["kept"])
        write(range(ROWS, ROWS + 1), ["off"])
        write(range(4 * ROWS, 4 * ROWS + 1), ["kept"])
        cluster.until(lambda: 4 * ROWS in values("kept"), "the stream continues")
        assert ROWS not in values("off")
    finally:
        cluster.close()
