"""The nodes' versions, and those of their settings that decide whether their logs can be read.

``system_views`` answers for the node that is asked, and the driver asks them in turn: so the query is sent several times.
Values are those of ``cassandra.yaml`` of 4.0 (``cdc_total_space_in_mb: 4096``) or of 4.1 on (``cdc_total_space: 4096MiB``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003 - a NamedTuple's field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.cql.cluster.session import CqlSession

_LOCAL: Final = "ONE"
#: Rounds of questions, and settings asked for.
_MOST_ASKED: Final = 24
_NAMES: Final = (
    "broadcast_address",
    "listen_address",
    "rpc_address",
    "cdc_enabled",
    "cdc_raw_directory",
    "cdc_block_writes",
    "cdc_total_space",
    "commitlog_directory",
    "commitlog_segment_size",
    "commitlog_sync",
    "commitlog_sync_period",
    "transparent_data_encryption_options.enabled",
)
#: What 4.0 calls some of them; later servers complain of these.
_OLD_NAMES: Final = (
    "cdc_total_space_in_mb",
    "commitlog_segment_size_in_mb",
    "commitlog_sync_period_in_ms",
    "transparent_data_encryption_options_enabled",
)
_SIZE: Final = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB)?\Z")
_UNITS: Final = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|h|d)?\Z")
_SECONDS: Final = {None: 0.001, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
#: The part of commitlog_sync_period by which a sync may be late before the node holds up writes.
_LATE: Final = 0.5
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


class NodeSettings(NamedTuple):
    """The settings of a node that matter here; None or empty for those that it does not report.

    Attributes:
        address: the node's.
        cdc_enabled: whether it keeps segments for readers at all.
        cdc_block_writes: whether it refuses writes when the directory is full; else it deletes the oldest segments.
        total_space: bytes that ``cdc_raw`` may take.
        segment_size: bytes of a segment.
        cdc_raw: path of the directory on its machine.
        commitlog: path of the commit log itself.
        encrypted: whether segments are encrypted.
        sync_s: how long after its write a change may become readable in the log: 0 where writes wait for their sync, else
            commitlog_sync_period and the half of it, the delay of a sync that lets writes wait.
    """

    address: str
    cdc_enabled: bool | None = None
    cdc_block_writes: bool | None = None
    total_space: int | None = None
    segment_size: int | None = None
    cdc_raw: str = ""
    commitlog: str = ""
    encrypted: bool = False
    sync_s: float | None = None


class ClusterNodes(NamedTuple):
    """The nodes as the one that was asked knows them.

    Attributes:
        versions: ``release_version`` of each node.
        nodes: how many there are.
        centre: the data centre of the node that was asked, which is the one that is read; empty: not known.
        centre_nodes: how many nodes that has.
    """

    versions: tuple[str, ...]
    nodes: int
    centre: str = ""
    centre_nodes: int = 0


def size_of(size_text: str | None) -> int | None:
    """``4096MiB`` as bytes; None: it is no size."""
    match = _SIZE.match((size_text or "").strip())
    return int(match[1]) * _UNITS[match[2]] if match else None


def seconds_of(duration: str | None) -> float | None:
    """``10000ms`` (or ``10000``, which is ms) as seconds; None: it is no duration."""
    match = _DURATION.match((duration or "").strip())
    return int(match[1]) * _SECONDS[match[2]] if match else None


def settings_of(values: Mapping[str, str | None]) -> NodeSettings:
    """A node's settings from the rows of ``system_views.settings``. Pure."""

    def yes(name: str) -> bool | None:
        value = values.get(name)
        return None if value is None else value.strip().lower() == "true"

    def size(name: str) -> int | None:
        megabytes = size_of(values.get(f"{name}_in_mb"))
        return size_of(values.get(name)) or (None if megabytes is None else megabytes << 20)

    def sync() -> float | None:
        if (values.get("commitlog_sync") or "periodic").strip().lower() != "periodic":
            return 0.0
        period = seconds_of(values.get("commitlog_sync_period") or values.get("commitlog_sync_period_in_ms"))
        return None if period is None else period * (1 + _LATE)

    addresses = [values.get(name) for name in ("broadcast_address", "listen_address", "rpc_address")]
    secret = [yes(f"transparent_data_encryption_options{separator}enabled") for separator in "._"]
    return NodeSettings(
        address=next((address for address in addresses if address), ""),
        cdc_enabled=yes("cdc_enabled"),
        cdc_block_writes=yes("cdc_block_writes"),
        total_space=size("cdc_total_space") or None,  # 0 where cdc is off
        segment_size=size("commitlog_segment_size"),
        cdc_raw=(values.get("cdc_raw_directory") or "").rstrip("/"),
        commitlog=(values.get("commitlog_directory") or "").rstrip("/"),
        encrypted=True in secret,
        sync_s=sync(),
    )


def version_of(release: str | None) -> tuple[int, int]:
    """``5.0.9`` as (5, 0); (0, 0): it is no version."""
    match = _VERSION.match(release or "")
    return (int(match[1]), int(match[2])) if match else (0, 0)


async def read_cluster(session: CqlSession) -> ClusterNodes:
    """The nodes and their versions.

    Raises:
        Retriable: nodes are unavailable, busy or too slow.
        Fatal: the server refuses the query.
    """
    rows = await session.query("SELECT release_version, data_center FROM system.local", consistency=_LOCAL)
    centre = str(rows[0]["data_center"] or "") if rows else ""
    rows += await session.query("SELECT release_version, data_center FROM system.peers", consistency=_LOCAL)
    return ClusterNodes(
        tuple(str(row["release_version"]) for row in rows if row["release_version"]),
        len(rows),
        centre,
        sum(row["data_center"] == centre for row in rows),
    )


async def node_settings(session: CqlSession, nodes: int) -> list[NodeSettings]:
    """The settings of the nodes that answer, by address; not all ``nodes`` may have been asked.

    Raises:
        Retriable: nodes are unavailable, busy or too slow.
        Fatal: the server refuses the query (``GRANT SELECT ON system_views.settings``), or has no such table.
    """
    by_address: dict[str, NodeSettings] = {}
    names: Sequence[str] = _NAMES
    for _ in range(min(2 * nodes, _MOST_ASKED) if nodes > 1 else 1):
        values = await _read_settings(session, names)
        if "cdc_total_space" not in values and names is _NAMES:
            names = (*_NAMES, *_OLD_NAMES)
            values = await _read_settings(session, names)
        settings = settings_of(values)
        by_address[settings.address] = settings
        if len(by_address) == nodes:
            break
    return [by_address[address] for address in sorted(by_address)]


async def _read_settings(session: CqlSession, names: Sequence[str]) -> dict[str, str | None]:
    quoted_names = ", ".join(f"'{name}'" for name in names)
    rows = await session.query(
        f"SELECT name, value FROM system_views.settings WHERE name IN ({quoted_names})",  # noqa: S608 - constants
        consistency=_LOCAL,
    )
    return {row["name"]: row["value"] for row in rows}


async def directory_settings(session: CqlSession, directory: str) -> list[NodeSettings]:
    """The settings of the node with this ``cdc_raw``; [] without the permission to read them.

    Where paths don't identify the node (all have the same one, or a container has its own), of all nodes.

    Raises:
        Retriable: nodes are unavailable, busy or too slow.
    """
    try:
        settings = await node_settings(session, (await read_cluster(session)).nodes)
    except Fatal:
        return []
    return [node for node in settings if node.cdc_raw == directory] or settings


def longest_sync_s(settings: Sequence[NodeSettings]) -> float | None:
    """The longest ``sync_s``; None: it is not known of every node."""
    delays = [node.sync_s for node in settings if node.sync_s is not None]
    return max(delays) if delays and len(delays) == len(settings) else None


def smallest_space(settings: Sequence[NodeSettings]) -> int:
    """The smallest ``cdc_total_space`` that is known; 0: none is."""
    return min((node.total_space for node in settings if node.total_space), default=0)


class Copies(NamedTuple):
    """Where the replicas of a keyspace are.

    Attributes:
        by_centre: replicas of each row in each data centre.
        anywhere: replicas of each row that may be on any node, whatever its data centre (SimpleStrategy).
    """

    by_centre: Mapping[str, int]
    anywhere: int = 0


def parse_replication(replication: Any) -> Copies:
    """Copies of each row, by the ``replication`` of ``system_schema.keyspaces``. Pure."""
    options = (
        replication if isinstance(replication, dict) else {item["key"]: item["value"] for item in replication or ()}
    )
    counts = {}
    for name, value in options.items():
        count = str(value).partition("/")[0]  # "3/1" has a transient replica
        if name != "class" and count.isdigit():
            counts[str(name)] = int(count)
    anywhere = counts.pop("replication_factor", 0)
    return Copies(counts, anywhere)
