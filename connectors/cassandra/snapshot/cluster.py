"""Facts about the cluster that a snapshot needs: versions, the token ring, a table's default TTL and masked columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.cql.cluster.failures import SchemaChanged
from connectors.cql.types import quote_name
from connectors.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.cql.cluster.session import CqlSession
    from connectors.cql.mutations.definition import CqlTableDefinition

_LOCAL: Final = "SELECT release_version, partitioner, tokens FROM system.local"
_PEERS: Final = "SELECT release_version, tokens FROM system.peers"
_DEFAULT_TTL: Final = "SELECT default_time_to_live FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?"
_MASKS: Final = "SELECT column_name FROM system_schema.column_masks WHERE keyspace_name = ? AND table_name = ?"
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


async def masked_columns(session: CqlSession, table: CqlTableDefinition, timeout_s: float) -> list[str]:
    """Columns of which the server shows the session's role masks in place of values (``MASKED WITH``, 5.0 and later).

    Raises:
        Retriable: no node answers.
        Fatal: the role may not see its own rights.
    """
    try:
        rows = await session.query(_MASKS, (table.keyspace, table.table), consistency="ONE", timeout_s=timeout_s)
    except SchemaChanged:
        return []  # a server without masks
    if not rows or await _sees_behind_masks(session, table, timeout_s):
        return []
    return sorted(str(row["column_name"]) for row in rows)


async def _sees_behind_masks(session: CqlSession, table: CqlTableDefinition, timeout_s: float) -> bool:
    if session.settings.user is None:
        return True
    role = quote_name(session.settings.user)
    try:
        rights = await session.query(f"LIST ALL PERMISSIONS OF {role}", timeout_s=timeout_s)
    except Fatal as error:
        # Without an authorizer all roles have all rights, and without an authenticator there are no roles.
        if "not supported" in str(error) or "anonymous" in str(error):
            return True
        raise
    scopes = {
        "<all keyspaces>",
        f"<keyspace {table.keyspace}>",
        f"<all tables in {table.keyspace}>",
        f"<table {table}>",
    }
    if any(right["permission"] == "UNMASK" and right["resource"] in scopes for right in rights):
        return True
    return any(row["super"] for row in await session.query(f"LIST ROLES OF {role}", timeout_s=timeout_s))


def describe_masked(table: CqlTableDefinition, columns: Sequence[str]) -> str:
    """The refusal of a table with masked columns. Pure."""
    name = f"{quote_name(table.keyspace)}.{quote_name(table.table)}"
    return (
        f"{table}: the cluster shows this role masks in place of the values of {', '.join(columns)} (MASKED WITH), which "
        f"would be taken for values: GRANT UNMASK ON {name} TO the connector's role"
    )
