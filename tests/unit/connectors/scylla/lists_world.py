"""A cluster that answers the connector's questions about tables and lists of streams from dictionaries."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from connectors.cql.cluster.session import ResultPage, SchemaChanged
from connectors.errors import Retriable
from connectors.scylla.model import TableId

if TYPE_CHECKING:
    from collections.abc import Sequence


def cdc(**options: str) -> bytes:
    """The blob of a table's CDC options."""
    encoded = [text.encode() for pair in options.items() for text in pair]
    return struct.pack("<I", len(options)) + b"".join(struct.pack("<I", len(text)) + text for text in encoded)


def stream(token: int, vnode: int = 0) -> bytes:
    """A stream id."""
    return struct.pack(">qQ", token, vnode << 4 | 1)


@dataclass
class Lists:
    """The content of the cluster; also the session that reads it."""

    tables: dict[TableId, bytes | None] = field(default_factory=dict)
    vnodes: dict[int, list[tuple[int, list[bytes]]]] = field(default_factory=dict)
    tablets: dict[TableId, dict[int, list[bytes]]] = field(default_factory=dict)
    #: What the lists of an older version have; None: there are no such lists.
    old_vnodes: dict[int, list[tuple[int, list[bytes]]]] | None = None
    #: Whether the cluster has the lists of the newer version, and the older ones were copied to them.
    has_new_lists: bool = True
    #: Whether the node that is asked does not know of keyspaces in tablets yet.
    is_behind: bool = False
    away: bool = False
    asked: list[str] = field(default_factory=list)
    released: int = 0

    def add_table(self, table: TableId, *, tablets: bool = False, **options: str) -> None:
        """A table with CDC."""
        self.tables[table] = cdc(**{"enabled": "true", "ttl": "0", **options})
        if tablets:
            self.tablets[table] = {}

    def add_vnodes(self, start: int, count: int, shards: int = 2) -> None:
        """A generation of vnode tables."""
        self.vnodes[start] = [
            (1000 * index, [stream(1000 * index - shard, index) for shard in range(shards)]) for index in range(count)
        ]

    def add_tablets(self, table: TableId, start: int, count: int) -> None:
        """A generation of a tablet table."""
        self.tablets[table][start] = [stream(1000 * index) for index in range(count)]

    def use_old_lists(self) -> None:
        """The cluster is of a version with the older lists."""
        self.old_vnodes, self.has_new_lists = dict(self.vnodes), False

    def upgrade(self) -> None:
        """From now on new generations come to the newer lists only, which have the older ones' contents."""
        self.has_new_lists = True

    async def release(self) -> None:
        self.released += 1

    async def query(self, text: str, parameters: Sequence[Any] = (), **_: Any) -> list[dict[str, Any]]:
        """The rows."""
        self.asked.append(text)
        if self.away:
            raise Retriable("no node answers")
        bound_values = tuple(parameters)
        if "scylla_keyspaces" in text:
            in_tablets = not self.is_behind and any(table.keyspace == bound_values[0] for table in self.tablets)
            return [{"initial_tablets": 4}] if in_tablets else []
        if "system.peers" in text:
            return []
        if "'system_distributed'" in text:
            names = ["cdc_streams_descriptions"] if self.old_vnodes is not None else []
            names += ["cdc_generation_timestamps", "cdc_streams_descriptions_v2"] if self.has_new_lists else []
            return [{"table_name": name} for name in names]
        if "cdc_local" in text:
            return [{"key": "rewritten"}]
        if self.old_vnodes is not None and text.endswith(
            "SELECT time FROM system_distributed.cdc_streams_descriptions"
        ):
            return [{"time": start} for start in self.old_vnodes]
        if self.old_vnodes is not None and "SELECT streams FROM system_distributed.cdc_streams_descriptions" in text:
            return [{"streams": streams} for _, streams in self.old_vnodes.get(bound_values[0], [])]
        if "cdc_generation_timestamps" in text:
            return [{"time": start} for start in self.vnodes]
        if "cdc_timestamps" in text:
            return [{"time": start} for start in self.tablets.get(TableId(*bound_values), {})]
        if "SELECT id, extensions" in text:
            table = TableId(*bound_values)
            if table not in self.tables:
                return []
            return [{"id": f"id of {table}", "extensions": [{"key": "cdc", "value": self.tables[table]}]}]
        if "system_schema.columns" in text:
            return [
                {
                    "column_name": "pk",
                    "kind": "partition_key",
                    "position": 0,
                    "clustering_order": "none",
                    "type": "int",
                    "added": 5,
                }
            ]
        if "system_schema." in text:
            return []
        raise SchemaChanged(f"unconfigured table: {text}")

    async def page(
        self, text: str, parameters: Sequence[Any], *, fetch_size: int, state: bytes | None = None, **_: Any
    ) -> ResultPage:
        """A page of a list of streams."""
        self.asked.append(text)
        if "system.cdc_streams" in text:
            keyspace, name, start = parameters
            rows: list[tuple[Any, ...]] = [(stream,) for stream in self.tablets[TableId(keyspace, name)][start]]
        else:
            rows = list(self.vnodes.get(parameters[0], []))
        at = int(state or b"0")
        end = at + fetch_size
        return ResultPage((), rows[at:end], str(end).encode() if end < len(rows) else None)
