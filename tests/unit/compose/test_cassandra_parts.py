"""Cassandra in the local stack: tokens, versions, the settings of a node. Nothing is started."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

from compose.local.cassandra import VERSIONS, CassandraNode, artifact_set
from compose.local.cassandra_cluster import CassandraCluster, even_tokens, middle_token
from worker.fetch.artifacts import load_manifest
from worker.fetch.errors import StackError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
def test_tokens_divide_the_ring_evenly(count: int) -> None:
    tokens = even_tokens(count)
    assert tokens == sorted(set(tokens))
    assert len(tokens) == count
    assert all(-(2**63) < token < 2**63 for token in tokens)
    widths = [after - before for before, after in zip(tokens, [*tokens[1:], tokens[0] + 2**64], strict=True)]
    assert max(widths) - min(widths) <= count


@pytest.mark.parametrize(
    ("tokens", "middle"),
    [
        ([0], 1 - 2**63),  # the other side of the ring; -2^63 itself is no token
        ([0, 100], 50 - 2**63),
        ([-(2**61), 2**62], 2**60 - 2**63),
        ([2**62, -(2**62), 0], 1 - 2**63),
        ([-(2**62), 2**63 - 1], 2**61),
    ],
)
def test_a_newcomer_takes_the_middle_of_the_widest_part(tokens: list[int], middle: int) -> None:
    token = middle_token(tokens)
    assert abs(token - middle) <= 1
    assert token not in tokens
    assert -(2**63) < token < 2**63


def test_every_version_has_its_files() -> None:
    manifest = load_manifest()
    for version, name in VERSIONS.items():
        (root,) = manifest.roots[name]
        assert root.startswith(f"org.apache.cassandra:cassandra-all:{version}")
        assert len(manifest.members(name)) > 50
        assert artifact_set(version) == name
    assert manifest.roots["cassandra"][0].endswith(f":{manifest.versions['cassandra']}")
    with pytest.raises(StackError, match=r"no Cassandra 3\.11 .* there are: 5\.0, 4\.1, 6\.0"):
        artifact_set("3.11")


def test_a_cluster_has_one_to_nine_nodes(tmp_path: Path) -> None:
    for count in (0, 10):
        with pytest.raises(StackError, match=f"1 to 9 nodes, not {count}"):
            CassandraCluster(tmp_path, nodes=count)


def test_members_share_ports_and_seeds_and_have_places_of_their_own(tmp_path: Path) -> None:
    cluster = CassandraCluster(tmp_path, settings={"cdc_total_space": "8MiB"})
    first, *others = [json.loads(_prepared(member)) for member in cluster.members]
    assert first["cdc_total_space"] == "8MiB"
    assert first["cdc_enabled"] is True
    for other in others:
        for name in ("native_transport_port", "storage_port", "seed_provider"):
            assert other[name] == first[name]
        for name in ("listen_address", "rpc_address", "initial_token", "cdc_raw_directory"):
            assert other[name] != first[name]
    assert cluster.hosts == "127.0.0.1,127.0.0.2,127.0.0.3"
    assert cluster.address == f"127.0.0.1:{cluster.port}"
    assert list(cluster.directories) == ["cass-1", "cass-2", "cass-3"]
    assert cluster.directories["cass-2"] == tmp_path / "cass-2" / "data" / "cdc_raw"


def test_nodetool_needs_jmx(tmp_path: Path) -> None:
    node = CassandraNode(tmp_path, port=None)
    with pytest.raises(StackError, match="without jmx=True"):
        node.nodetool("status")


@pytest.mark.parametrize("promised", [False, True])
@pytest.mark.parametrize(
    ("setting", "said", "movable"),
    [
        (
            "storage_port",
            "/127.0.0.1:{} is in use by another process.  Change listen_address:storage_port in cassandra.yaml",
            True,
        ),
        ("native_transport_port", "java.lang.IllegalStateException: Failed to bind port {} on 127.0.0.1.", False),
    ],
)
def test_a_taken_port_is_replaced_unless_others_count_on_it(
    setting: str, said: str, movable: bool, promised: bool, tmp_path: Path
) -> None:
    node = CassandraNode(tmp_path, port=None, jmx=True)
    before = json.loads(_prepared(node))
    if promised:
        _ = node.address
    taken_port = before[setting]
    with socket.create_server(("127.0.0.1", taken_port)):
        assert not node.redraw("Failed to bind port 1 on 127.0.0.1")
        changed = movable or not promised
        assert node.redraw(said.format(taken_port)) is changed
    after = json.loads(_prepared(node))
    assert (after[setting] != taken_port) is changed
    other = "native_transport_port" if setting == "storage_port" else "storage_port"
    assert after[other] == before[other]
    assert node.address == f"127.0.0.1:{after['native_transport_port']}"


def test_members_of_a_cluster_keep_their_ports_but_that_of_nodetool(tmp_path: Path) -> None:
    (member,) = CassandraCluster(tmp_path, nodes=1).members
    before = json.loads(_prepared(member))

    def jmx() -> int:
        return next(
            int(argument.rpartition("=")[2]) for argument in member.service.command if "cassandra.jmx" in argument
        )

    taken_port = jmx()
    assert not member.redraw(f"/127.0.0.1:{before['storage_port']} is in use by another process.")
    with socket.create_server(("127.0.0.1", taken_port)):
        assert member.redraw(f"ERROR [main] CassandraDaemon: Port already in use: {taken_port}; nested exception is: ")
    assert jmx() != taken_port
    assert json.loads(_prepared(member)) == before


def _prepared(member: CassandraNode) -> str:
    _ = member.service
    return (member.state_dir / "cassandra.yaml").read_text(encoding="utf-8")
