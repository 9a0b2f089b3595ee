"""Facts about the cluster that a snapshot needs: versions, the token ring, a table's default TTL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.cql.cluster.session import CqlSession
    from connectors.cql.mutations.definition import CqlTableDefinition

_LOCAL: Final = "SELECT release_version, partitioner, tokens FROM system.local"
_PEERS: Final = "SELECT release_version, tokens FROM system.peers"
_DEFAULT_TTL: Final = "SELECT default_time_to_live FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?"
_PARTITIONER: Final = "org.apache.cassandra.dht.Murmur3Partitioner"
#: From this version on write times and TTLs of the elements of collections can be read.
_ELEMENTS_SINCE: Final = (5, 0)
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


class SnapshotCluster(NamedTuple):
    """A cluster as one of its nodes sees it.

    Attributes:
        bounds: all tokens of all nodes, in order.
        elements: whether all nodes tell write times and TTLs of the elements of collections.
    """

    bounds: tuple[int, ...]
    elements: bool

    @classmethod
    async def of(cls, session: CqlSession, timeout_s: float) -> SnapshotCluster:
        """Ask a node.

        Raises:
            Retriable: none answers.
            Fatal: the cluster's partitioner is another one.
        """
        local = await session.query(_LOCAL, consistency="ONE", timeout_s=timeout_s)
        peers = await session.query(_PEERS, consistency="ONE", timeout_s=timeout_s)
        return cluster_of(local, peers)


def cluster_of(local: Sequence[Mapping[str, Any]], peers: Sequence[Mapping[str, Any]]) -> SnapshotCluster:
    """From the rows of ``system.local`` and ``system.peers``.

    Raises:
        Fatal: the cluster's partitioner is another one.
    """
    partitioner = next((str(row["partitioner"]) for row in local), "")
    if partitioner != _PARTITIONER:
        raise Fatal(
            f"the cluster's partitioner is {partitioner or 'not known'}: tables can be read by token ranges only with "
            "Murmur3Partitioner; set snapshot.mode=never to capture changes without what the tables hold"
        )
    nodes = [*local, *peers]
    tokens = {int(token) for row in nodes for token in row["tokens"] or ()}
    return SnapshotCluster(
        tuple(sorted(tokens)), all(_parse_version(row["release_version"]) >= _ELEMENTS_SINCE for row in nodes)
    )


def _parse_version(release: object) -> tuple[int, int]:
    match = _VERSION.match(str(release or ""))
    return (int(match[1]), int(match[2])) if match else (0, 0)


async def default_ttl(session: CqlSession, table: CqlTableDefinition, timeout_s: float) -> int:
    """A table's ``default_time_to_live`` in s; 0: none.

    Raises:
        Retriable: no node answers.
    """
    rows = await session.query(_DEFAULT_TTL, (table.keyspace, table.table), consistency="ONE", timeout_s=timeout_s)
    return int(rows[0]["default_time_to_live"] or 0) if rows else 0
