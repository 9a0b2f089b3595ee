"""Generations of streams in the emulation's tables: those that Scylla shows, and those that tell where a token's changes go."""

# ruff: noqa: S608  # the names in statements are those of this module

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from compose.local.scylla.cells.codec import join_cells, split_cells
from compose.local.scylla.dress import EMULATION
from compose.local.scylla.schema import EmulatedTable
from compose.local.scylla.topology import Ring, VnodeStreams
from compose.local.scylla.wire import WireConnection, WireStatement
from worker.fetch.errors import StackError

_KEY = struct.pack(">i", 0)  # of the one partition of all generations


@dataclass(slots=True)
class Generations:
    """Reads and writes generations over a connection. All methods block."""

    connection: WireConnection
    _rings: dict[tuple[str, int], Ring] = field(default_factory=dict, init=False)

    def starts(self, table: EmulatedTable | None = None) -> list[int]:
        """Starts of generations in ms since 1970, ascending: of a table of tablets, else of all vnode tables."""
        if table is not None and table.tablets:
            query = f"SELECT timestamp AS time FROM {EMULATION}.tablets WHERE keyspace_name = ? AND table_name = ?"
            rows = self.connection.execute(query, [table.keyspace.encode(), table.name.encode()])
        else:
            rows = self.connection.execute(f"SELECT time FROM {EMULATION}.generations WHERE key = ?", [_KEY])
        return sorted(int.from_bytes(row["time"] or b"", "big", signed=True) for row in rows)

    def ring(self, table: EmulatedTable, at_ms: int) -> Ring:
        """The streams that changes of a table at that time go to.

        Raises:
            StackError: There was no generation yet.
        """
        starts = self.starts(table)
        valid = [start for start in starts if start <= at_ms]
        if not valid:
            raise StackError(
                f"no generation of streams of {table.full} had started at {at_ms} ms; the first is at "
                f"{min(starts, default=None)}. Write with a later timestamp, or make an earlier generation with "
                "new_generation(start_ms=...)"
            )
        return self._read_ring(table, max(valid))

    def create(self, vnodes: Sequence[VnodeStreams], start_ms: int) -> int:
        """Write a generation of all vnode tables; returns its start."""
        when = struct.pack(">q", start_ms)
        all_starts = self.starts()
        tables = self._list_tables()
        for vnode in vnodes:
            cells = [when, struct.pack(">q", vnode.range_end)]
            if "cdc_streams_descriptions_v2" in tables:
                self.connection.execute(
                    "INSERT INTO system_distributed.cdc_streams_descriptions_v2 (time, range_end, streams) VALUES (?, ?, ?)",
                    [*cells, join_cells(sorted(vnode.streams))],
                )
            self.connection.execute(
                f"INSERT INTO {EMULATION}.shards (time, range_end, streams) VALUES (?, ?, ?)",
                [*cells, join_cells(vnode.streams)],
            )
        self.connection.execute(f"INSERT INTO {EMULATION}.generations (key, time) VALUES (?, ?)", [_KEY, when])
        every = join_cells(sorted({stream for vnode in vnodes for stream in vnode.streams}))
        earlier = [start for start in all_starts if start < start_ms]
        expires = [when, struct.pack(">q", earlier[-1])] if earlier else []
        # The announcement comes last: whoever sees it finds the streams.
        if "cdc_streams_descriptions" in tables:
            into = "system_distributed.cdc_streams_descriptions"
            self.connection.execute(f"INSERT INTO {into} (time, streams) VALUES (?, ?)", [when, every])
            if expires:
                self.connection.execute(f"UPDATE {into} SET expired = ? WHERE time = ?", expires)
        if "cdc_generation_timestamps" in tables:
            into = "system_distributed.cdc_generation_timestamps"
            self.connection.execute(f"INSERT INTO {into} (key, time) VALUES ('timestamps', ?)", [when])
            if expires:
                self.connection.execute(f"UPDATE {into} SET expired = ? WHERE key = 'timestamps' AND time = ?", expires)
        return start_ms

    def expire(self, start_ms: int) -> None:
        """Remove a generation's description."""
        when, tables = struct.pack(">q", start_ms), self._list_tables()
        for table in ("cdc_generation_timestamps", "cdc_streams_descriptions_v2", "cdc_streams_descriptions"):
            if table in tables:
                key = "key = 'timestamps' AND " if table == "cdc_generation_timestamps" else ""
                self.connection.execute(f"DELETE FROM system_distributed.{table} WHERE {key}time = ?", [when])
        self.connection.execute(f"DELETE FROM {EMULATION}.generations WHERE key = ? AND time = ?", [_KEY, when])
        self.connection.execute(f"DELETE FROM {EMULATION}.shards WHERE time = ?", [when])

    def create_tablets(self, table: EmulatedTable, new_streams: Sequence[tuple[int, bytes]], start_ms: int) -> None:
        """Write a generation of a table of tablets: last token and stream of each."""
        when, key = struct.pack(">q", start_ms), [table.keyspace.encode(), table.name.encode()]
        states: list[tuple[int, bytes]] = [(0, stream) for _, stream in new_streams]
        earlier = [start for start in self.starts(table) if start < start_ms]
        if earlier:
            before = self._read_ring(table, earlier[-1])
            states += [(1, streams[0]) for streams in before.streams] + [(2, stream) for _, stream in new_streams]
        into = f"INSERT INTO {EMULATION}.cdc_streams (keyspace_name, table_name, timestamp, stream_state, stream_id)"
        for at in range(0, len(states), 100):
            part = states[at : at + 100]
            self.connection.batch(
                [
                    WireStatement(f"{into} VALUES (?, ?, ?, ?, ?)", [*key, when, bytes((state,)), stream])
                    for state, stream in part
                ]
            )
        self.connection.execute(
            f"INSERT INTO {EMULATION}.tablets (keyspace_name, table_name, timestamp, last_tokens, streams)"
            " VALUES (?, ?, ?, ?, ?)",
            [
                *key,
                when,
                join_cells([struct.pack(">q", token) for token, _ in new_streams]),
                join_cells([stream for _, stream in new_streams]),
            ],
        )
        self.connection.execute(
            f"INSERT INTO {EMULATION}.cdc_timestamps (keyspace_name, table_name, timestamp) VALUES (?, ?, ?)",
            [*key, when],
        )

    def forget_tablets(self, keyspace: str, table_name: str) -> None:
        """Remove all generations of a table of tablets."""
        for item in ("cdc_timestamps", "cdc_streams", "tablets"):
            where = "keyspace_name = ? AND table_name = ?"
            self.connection.execute(
                f"DELETE FROM {EMULATION}.{item} WHERE {where}", [keyspace.encode(), table_name.encode()]
            )
        for ring_key in [item for item in self._rings if item[0] == f"{keyspace}.{table_name}"]:
            del self._rings[ring_key]

    def forget_keyspace(self, keyspace: str) -> None:
        """Remove all generations of all tables of a keyspace."""
        for row in self.connection.query(f"SELECT DISTINCT keyspace_name, table_name FROM {EMULATION}.tablets"):
            if row["keyspace_name"] == keyspace.encode():
                self.forget_tablets(keyspace, (row["table_name"] or b"").decode())

    def _read_ring(self, table: EmulatedTable, start: int) -> Ring:
        scope = f"{table.keyspace}.{table.name}" if table.tablets else ""
        ring = self._rings.get((scope, start))
        if ring is None:
            ring = self._rings[scope, start] = self._load_ring(table, start)
        return ring

    def _load_ring(self, table: EmulatedTable, start: int) -> Ring:
        when = struct.pack(">q", start)
        if table.tablets:
            (row,) = self.connection.execute(
                f"SELECT last_tokens, streams FROM {EMULATION}.tablets"
                " WHERE keyspace_name = ? AND table_name = ? AND timestamp = ?",
                [table.keyspace.encode(), table.name.encode(), when],
            )
            tokens = [int.from_bytes(cell, "big", signed=True) for cell in split_cells(row["last_tokens"] or b"")]
            return Ring(start, tuple(tokens), tuple((cell,) for cell in split_cells(row["streams"] or b"")))
        rows = self.connection.execute(f"SELECT range_end, streams FROM {EMULATION}.shards WHERE time = ?", [when])
        ends_and_streams = sorted(
            (int.from_bytes(row["range_end"] or b"", "big", signed=True), row["streams"] or b"") for row in rows
        )
        return Ring(
            start,
            tuple(end for end, _ in ends_and_streams),
            tuple(tuple(split_cells(streams)) for _, streams in ends_and_streams),
        )

    def _list_tables(self) -> set[str]:
        query = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'system_distributed'"
        return {(row["table_name"] or b"").decode() for row in self.connection.query(query)}
