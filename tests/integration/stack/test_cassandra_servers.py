"""Cassandra in the local stack: the shared node's change log, the cluster of three, other versions."""

# ruff: noqa: S608  # the names in statements are those of the tests
from __future__ import annotations

import socket
import struct
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.cassandra import VERSIONS, CassandraNode
from compose.local.cassandra_cluster import CassandraCluster, execute_cql
from compose.local.commands.catalog import OFFERS, ServiceRequest
from compose.local.ports import LOOPBACK
from compose.local.scylla.emulation import ScyllaEmulation
from tests.support.eventually import eventually
from worker.fetch.errors import StackError
from worker.fetch.java import FAST_START
from worker.terminal import drop_line, say

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import HasCassandra

_LOG_VERSIONS = {"5.0": 7, "4.1": 7, "6.0": 9}


def _logged(folder: Path, value: bytes) -> bool:
    """Whether a readable segment of the change log holds the value."""
    for index in folder.glob("CommitLog-*_cdc.idx"):
        segment = index.with_name(index.name.replace("_cdc.idx", ".log"))
        if segment.exists() and value in segment.read_bytes():
            return True
    return False


def _long(value: Any) -> int:
    return int(struct.unpack(">q", value)[0])


def test_changes_of_the_shared_node_reach_its_change_log(
    cassandra: HasCassandra, cassandra_keyspace: Callable[[], str]
) -> None:
    keyspace = cassandra_keyspace()
    execute_cql(
        cassandra.address,
        f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY, v text) WITH cdc = true",
        f"INSERT INTO {keyspace}.t (pk, v) VALUES (1, 'mark-{keyspace}')",
    )
    eventually(lambda: _logged(cassandra.cdc_raw, f"mark-{keyspace}".encode()), "the row is in the log", 20)
    assert list(cassandra.commitlog.glob("CommitLog-*.log"))


def test_up_names_the_folder_of_the_change_log(tmp_path: Path) -> None:
    (part,) = OFFERS["cassandra"].build(ServiceRequest(tmp_path, None, {}, {}, drop_line))
    assert part.folders == {"cdc_raw": str(tmp_path / "cassandra" / "data" / "cdc_raw")}
    assert part.address == f"{LOOPBACK}:{part.port}"


def test_a_refused_statement_and_a_server_that_is_away_are_named(cassandra: HasCassandra, tmp_path: Path) -> None:
    with pytest.raises(StackError, match="SELECT nothing"):
        execute_cql(cassandra.address, "SELECT nothing")
    away = CassandraNode(tmp_path, port=None)
    with pytest.raises(StackError, match=rf"no Cassandra answers at {away.address}.*is it running"):
        execute_cql(away.address, "SELECT key FROM system.local")


@pytest.mark.slow  # a minute and a half
def test_a_change_reaches_the_logs_of_all_replicas_and_a_killed_member_comes_back(
    cassandra_cluster: CassandraCluster, unique: Callable[[str], str]
) -> None:
    keyspace = unique("k").replace("-", "_")[-40:].strip("_")
    cassandra_cluster.execute(
        f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}",
        f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY, v text) WITH cdc = true",
        f"INSERT INTO {keyspace}.t (pk, v) VALUES (1, 'mark-{keyspace}')",
    )
    marker = f"mark-{keyspace}".encode()
    eventually(
        lambda: all(_logged(directory, marker) for directory in cassandra_cluster.directories.values()),
        "the row is in every node's log",
        20,
    )
    victim = cassandra_cluster.members[1]
    victim.kill()
    assert not victim.running
    cassandra_cluster.execute(f"INSERT INTO {keyspace}.t (pk, v) VALUES (2, 'other')", member=2)
    victim.start()
    cassandra_cluster.wait_whole()
    rows = execute_cql(victim.address, f"SELECT pk FROM {keyspace}.t WHERE pk = 1")
    assert len(rows) == 1, "what was on its disk is there again"
    cassandra_cluster.execute(f"DROP KEYSPACE {keyspace}")


@pytest.mark.slow
def test_a_node_joins_with_its_share_of_the_data_and_another_leaves(tmp_path: Path) -> None:
    rows = 200
    count = "SELECT count(*) FROM joining.t"
    cluster = CassandraCluster(tmp_path, nodes=1, jvm_options=FAST_START, say=say)
    (jmx,) = (
        int(option.rpartition("=")[2]) for option in cluster.members[0].service.command if "cassandra.jmx" in option
    )
    # Somebody else takes a port before the node does: it starts with another one.
    with socket.create_server((LOOPBACK, jmx)), cluster:
        cluster.execute(
            "CREATE KEYSPACE joining WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "CREATE TABLE joining.t (pk int PRIMARY KEY) WITH cdc = true",
        )
        execute_cql(cluster.address, *(f"INSERT INTO joining.t (pk) VALUES ({number})" for number in range(rows)))
        newcomer = cluster.join()
        assert list(cluster.directories) == ["cass-1", "cass-2"]
        # The ring is cut at its two tokens; the newcomer's is the least one, so its share is what lies behind the other's.
        (share,) = execute_cql(newcomer.address, f"{count} WHERE token(pk) > {cluster.members[0].tokens}")
        assert 0 < _long(share["count"]) < rows
        first = cluster.members[0]
        with pytest.raises(StackError, match="nodetool nonsense failed"):
            first.nodetool("nonsense")
        cluster.leave(first)
        assert not first.running
        assert cluster.members == [newcomer]
        assert cluster.address == newcomer.address
        (row,) = cluster.execute(count)
        assert _long(row["count"]) == rows, "the other one has handed all of its rows over"


@pytest.mark.slow
def test_ports_that_are_in_use_before_the_start_are_replaced(tmp_path: Path) -> None:
    """In truth, each in turn: the one between nodes, then that for clients, then the emulation's."""
    with ExitStack() as stack:
        node = CassandraNode(tmp_path / "cassandra", port=None, jvm_options=FAST_START)
        emulation = ScyllaEmulation(tmp_path / "scylla", port=None, jvm_options=FAST_START)
        for server in (node, emulation):
            _ = server.service
        first = [node.storage_port, node.port, emulation.inner_port, emulation.port]
        for port in first:
            stack.enter_context(socket.create_server((LOOPBACK, port or 0)))
        stack.enter_context(node)
        stack.enter_context(emulation)
        assert not {node.storage_port, node.port, emulation.inner_port, emulation.port} & set(first)
        for address in (node.address, emulation.address, emulation.direct):
            assert execute_cql(address, "SELECT key FROM system.local") == [{"key": b"local"}]
        promised = node.port
        node.stop()
        stack.enter_context(socket.create_server((LOOPBACK, promised or 0)))
        with pytest.raises(StackError, match="ended while starting"):
            node.start()
        failed = f"encountered during startup: Failed to bind port {promised} "
        assert node.log_path.read_text(encoding="utf-8").count(failed) == 1, "the same port is not tried again"


@pytest.mark.slow
@pytest.mark.parametrize("version", [version for version in VERSIONS if version != "5.0"])
def test_other_versions(version: str, tmp_path: Path) -> None:
    # 6.0 writes the older form of its log unless it need not run together with older nodes.
    settings = {"storage_compatibility_mode": "NONE"} if version == "6.0" else {}
    with CassandraNode(
        tmp_path, port=None, version=version, settings=settings, jvm_options=FAST_START, jmx=True
    ) as node:
        execute_cql(
            node.address,
            "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "CREATE TABLE k.t (pk int PRIMARY KEY, v text) WITH cdc = true",
            "INSERT INTO k.t (pk, v) VALUES (1, 'mark-k')",
        )
        (row,) = execute_cql(node.address, "SELECT release_version FROM system.local")
        assert bytes(row["release_version"]).decode().startswith(version)
        eventually(lambda: _logged(node.cdc_raw, b"mark-k"), "the row is in the log", 20)
        (index, *_) = node.cdc_raw.glob("*_cdc.idx")
        assert index.name.startswith(f"CommitLog-{_LOG_VERSIONS[version]}-")
        assert version in node.nodetool("version")
