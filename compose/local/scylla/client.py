"""Writes to the Scylla emulation as applications write to Scylla: tables with CDC, changes and their log rows, new topologies.

Against a real Scylla (`MILLRACE_SCYLLA`) the same calls send plain CQL and the server does the rest. All methods block.
"""

# ruff: noqa: S608  # the names in statements are those of tests and of this module

import random
import re
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compose.local.scylla import schema
from compose.local.scylla.cells.codec import join_cells, split_cells
from compose.local.scylla.cells.cql import parse_write
from compose.local.scylla.cells.rows import LogRow, log_rows, merge_changes
from compose.local.scylla.cells.statements import base_statement, quote_name, shadow_statements
from compose.local.scylla.dress import EMULATION
from compose.local.scylla.generations import Generations
from compose.local.scylla.reading import is_condition_met, read_state
from compose.local.scylla.schema import META, EmulatedTable, cdc_options, pack_extension, split_cdc
from compose.local.scylla.topology import Ring, VnodeStreams, tablet_streams, token_of, vnode_streams
from compose.local.scylla.wire import UNSET, CqlError, WireConnection, WireStatement
from compose.local.scylla.writes import (
    Compiler,
    EmulatedPartition,
    Insert,
    Key,
    Write,
    key_cells,
    time_uuid,
)
from connectors.cql.values import make_decoder
from worker.fetch.errors import StackError

#: Names a real Scylla that is used in place of the emulation.
REAL = "MILLRACE_SCYLLA"
_NAME = r'("(?:[^"]|"")+"|\w+)'
_OF_TABLE = re.compile(
    rf"^\s*(CREATE|ALTER)\s+TABLE\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?{_NAME}\s*\.\s*{_NAME}", re.IGNORECASE
)
_RENAME = re.compile(rf"\bRENAME\s+{_NAME}\s+TO\s+{_NAME}((?:\s+AND\s+{_NAME}\s+TO\s+{_NAME})*)", re.IGNORECASE)
_PAIR = re.compile(rf"{_NAME}\s+TO\s+{_NAME}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Logged:
    """Log rows of one partition at one moment: stream, `cdc$time` (16 bytes each), and the rows' cells by column."""

    table: str
    stream: bytes
    time: bytes
    rows: Sequence[LogRow]


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The result of a call of `apply`.

    Attributes:
        applied: False when a condition did not hold; nothing was written then.
        timestamp_us: The write timestamp of all writes that had none of their own.
        logged: What was logged; empty against a real Scylla, which does it itself.
    """

    applied: bool
    timestamp_us: int
    logged: Sequence[Logged] = ()


def bare_name(identifier: str) -> str:
    """The name that an identifier in CQL stands for."""
    return identifier[1:-1].replace('""', '"') if identifier.startswith('"') else identifier.lower()


def now_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class Emulation:
    """A client of the emulation at `host:port`, or of a real Scylla; for one thread at a time, several may be made.

    Writers of the same partition must share one client: it reads what is there, then writes images of it.

    Attributes:
        address: `host:port` of the server.
        user: User name and password, where the server wants them.
        seed: Makes stream ids and time uuids repeatable; None for chance.
    """

    address: str
    user: tuple[str, str] | None = None
    seed: int | None = None
    connection: WireConnection = field(init=False)
    emulated: bool = field(init=False)
    _tables: dict[str, EmulatedTable] = field(default_factory=dict, init=False)
    _generations: Generations = field(init=False)
    _last_us: int = field(default=0, init=False)
    _ticks: int = field(default=0, init=False)
    _chance: random.Random = field(init=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)  # noqa: S311  # not a secret
        self.connection = WireConnection(self.address, self.user)
        marker_rows = self.connection.query(
            f"SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = '{EMULATION}'"
        )
        self.emulated = bool(marker_rows)
        if self.emulated:
            # Straight to the Cassandra: nothing that is written needs the proxy.
            (local,) = self.connection.query("SELECT rpc_address, rpc_port FROM system.local")
            host = ".".join(map(str, local["rpc_address"] or b""))
            self.connection.close()
            self.connection = WireConnection(f"{host}:{int.from_bytes(local['rpc_port'] or b'', 'big')}", self.user)
        self._generations = Generations(self.connection)

    @property
    def direct(self) -> str:
        """`host:port` of the Cassandra behind the proxy; of a real Scylla its own address."""
        return self.connection.address

    def close(self) -> None:
        """Close the connection; the next call opens it again."""
        self.connection.close()

    def execute(self, cql: str) -> list[dict[str, bytes | None]]:
        """Run any CQL and return its rows as cells."""
        return self.connection.query(cql)

    # ------------------------------------------------------------------ schema

    def create_keyspace(self, keyspace: str, *, tablets: bool = False, initial_tablets: int = 4) -> None:
        """Make a keyspace, unless it is there; its tables use vnodes or tablets."""
        statement = (
            f"CREATE KEYSPACE IF NOT EXISTS {quote_name(keyspace)}"
            " WITH replication = {'class': '%s', 'replication_factor': 1}"
        )  # fmt: skip
        if not self.emulated:
            tail = f" AND tablets = {{'enabled': {str(tablets).lower()}}}"
            self.connection.query(statement % "NetworkTopologyStrategy" + tail)
            return
        self.connection.query(statement % "SimpleStrategy")
        if tablets:
            insert = f"INSERT INTO {EMULATION}.scylla_keyspaces (keyspace_name, initial_tablets) VALUES (?, ?)"
            self.connection.execute(insert, [keyspace.encode(), struct.pack(">i", initial_tablets)])

    def drop_keyspace(self, keyspace: str) -> None:
        """Remove a keyspace with all its tables."""
        for full in [full for full in self._tables if full.startswith(f"{keyspace}.")]:
            del self._tables[full]
        if self.emulated and self._initial_tablets(keyspace) is not None:
            self._generations.forget_keyspace(keyspace)
            self.connection.execute(
                f"DELETE FROM {EMULATION}.scylla_keyspaces WHERE keyspace_name = ?", [keyspace.encode()]
            )
        self.connection.query(f"DROP KEYSPACE IF EXISTS {quote_name(keyspace)}")

    def create_type(self, cql: str) -> None:
        """Run a CREATE TYPE (with the keyspace in its name)."""
        self.connection.query(cql)

    def alter_type(self, cql: str) -> None:
        """Run an ALTER TYPE; log tables have the type itself, so they change with it."""
        self.connection.query(cql)
        self._tables.clear()
        match = re.search(rf"\bTYPE\s+(?:IF\s+EXISTS\s+)?{_NAME}\s*\.", cql, re.IGNORECASE)
        if self.emulated and match:
            self._mark_all(bare_name(match[1]))

    def create_table(self, cql: str, *, tablets: int | None = None) -> EmulatedTable:
        """Run a CREATE TABLE as Scylla's users write it, `ks.table` with or without `cdc = {...}`; the log table comes with it.

        Args:
            cql: The statement.
            tablets: Number of tablets at first, in a keyspace that uses them; else the keyspace's own number.

        Raises:
            StackError: The statement has no keyspace, or the server refused it.
        """
        keyspace, table_name = _table_name(cql)
        if not self.emulated:
            self.connection.query(cql)
            return self.table(f"{keyspace}.{table_name}")
        statement, cdc = split_cdc(cql)
        self.connection.query(statement)
        created_table = schema.load_table(self.connection, keyspace, table_name)
        if cdc is not None:
            self._set_options(created_table, cdc_options(cdc, {}))
        table = self._reload_table(keyspace, table_name)
        if table.enabled:
            self._make_log(table, tablets)
        return table

    def alter_table(self, cql: str) -> EmulatedTable:
        """Run an ALTER TABLE as Scylla's users write it: columns, options, `cdc = {...}`; the log table follows."""
        keyspace, table_name = _table_name(cql)
        if not self.emulated:
            self.connection.query(cql)
            return self._reload_table(keyspace, table_name)
        with self._lock:
            before = self._reload_table(keyspace, table_name)
            statement, cdc = split_cdc(cql)
            if not _OF_TABLE.fullmatch(statement.strip()):
                self.connection.query(statement)
            options = cdc_options(cdc, before.options) if cdc is not None else dict(before.options)
            if options:
                self._set_options(before, options)
            after = self._reload_table(keyspace, table_name)
            if before.options:
                self._alter_log(before, after, _parse_renames(cql))
            elif after.enabled:
                self._make_log(after, None)
            return after

    def drop_table(self, full: str) -> None:
        """Remove a table and, as Scylla does, its log."""
        keyspace, _, table_name = full.partition(".")
        table = self._tables.pop(full, None) or self._reload_table(keyspace, table_name)
        self.connection.query(f"DROP TABLE {table.full}")
        self._tables.pop(full, None)
        if self.emulated:
            self.connection.query(f"DROP TABLE IF EXISTS {table.log}")
            self.connection.query(f"DROP TABLE IF EXISTS {table.shadow}")
            if table.tablets:
                self._generations.forget_tablets(keyspace, table_name)

    def table(self, full: str) -> EmulatedTable:
        """A table by `keyspace.table`, names without quotes."""
        cached_table = self._tables.get(full)
        return cached_table if cached_table is not None else self._reload_table(*full.split(".", 1))

    def _reload_table(self, keyspace: str, table_name: str) -> EmulatedTable:
        tablets = self.emulated and self._initial_tablets(keyspace) is not None
        table = schema.load_table(self.connection, keyspace, table_name, tablets=tablets)
        self._tables[f"{keyspace}.{table_name}"] = table
        return table

    def _initial_tablets(self, keyspace: str) -> int | None:
        query = f"SELECT initial_tablets FROM {EMULATION}.scylla_keyspaces WHERE keyspace_name = ?"
        rows = self.connection.execute(query, [keyspace.encode()])
        cell = rows[0]["initial_tablets"] if rows else None
        return int.from_bytes(cell, "big") if cell is not None else None

    def _set_options(self, table: EmulatedTable, options: Mapping[str, str]) -> None:
        # Cassandra ignores the extensions in CREATE and ALTER, but keeps what is written where it stores them.
        cell = join_cells([b"cdc", pack_extension(options)], 2)
        update = "UPDATE system_schema.tables SET extensions = ? WHERE keyspace_name = ? AND table_name = ?"
        self.connection.execute(update, [cell, table.keyspace.encode(), table.name.encode()])

    def _mark_all(self, keyspace: str) -> None:
        """Write the CDC options of all tables again, where a change of the schema made Cassandra forget them."""
        for full, options in list(self._read_options(keyspace).items()):
            self._set_options(schema.load_table(self.connection, keyspace, full), options)

    def _read_options(self, keyspace: str) -> dict[str, dict[str, str]]:
        query = f"SELECT table_name, extensions FROM system_schema.tables WHERE keyspace_name = '{keyspace}'"
        rows = self.connection.query(query)
        options_by_table: dict[str, dict[str, str]] = {}
        for row in rows:
            parts = split_cells(row["extensions"] or b"", 2)
            packed = dict(zip(parts[::2], parts[1::2], strict=True)).get(b"cdc")
            if packed:
                options_by_table[(row["table_name"] or b"").decode()] = schema.unpack_extension(packed)
        return options_by_table

    def _make_log(self, table: EmulatedTable, tablets: int | None) -> None:
        self.connection.query(schema.create_log(table))
        if table.lists:
            self.connection.query(schema.create_shadow(table))
        if table.tablets:
            count = tablets or self._initial_tablets(table.keyspace) or 4
            new_streams = tablet_streams(count, self._chance.getrandbits(62))
            self._generations.create_tablets(table, new_streams, now_us() // 1000)

    def _alter_log(self, before: EmulatedTable, after: EmulatedTable, renamed: Mapping[str, str]) -> None:
        old = {renamed.get(column, column): kind for column, kind in before.log_columns.items()}
        new = after.log_columns
        for column, target in renamed.items():
            # Key columns only, which the log has as plain ones: those cannot be renamed in Cassandra.
            self.connection.query(f"ALTER TABLE {after.log} ADD {quote_name(target)} {new[target]}")
            self.connection.query(f"ALTER TABLE {after.log} DROP {quote_name(column)}")
        gone, come = (
            [column_name for column_name in old if column_name not in new],
            [column_name for column_name in new if column_name not in old],
        )
        if come:
            columns = ", ".join(f"{quote_name(column_name)} {new[column_name]}" for column_name in come)
            self.connection.query(f"ALTER TABLE {after.log} ADD ({columns})")
        if gone:
            self.connection.query(f"ALTER TABLE {after.log} DROP ({', '.join(map(quote_name, gone))})")
        lists_before, lists_after = schema.shadow_columns(before), schema.shadow_columns(after)
        if lists_after and not lists_before:
            self.connection.query(schema.create_shadow(after))
            return
        for column_name in lists_after.keys() - lists_before.keys():
            self.connection.query(
                f"ALTER TABLE {after.shadow} ADD {quote_name(column_name)} {lists_after[column_name]}"
            )
        for column_name in lists_before.keys() - lists_after.keys():
            self.connection.query(f"ALTER TABLE {after.shadow} DROP {quote_name(column_name)}")

    # ------------------------------------------------------------------ topology

    def generations(self) -> list[int]:
        """Starts of the generations of vnode tables, in ms since 1970, ascending."""
        return self._require_generations().starts()

    def new_generation(
        self, vnodes: int = 4, shards: int | Sequence[int] = 2, nodes: int = 1, *, start_ms: int | None = None,
        streams: Sequence[VnodeStreams] | None = None,
    ) -> int:  # fmt: skip
        """Begin a new generation of streams for all vnode tables, as a node that joins does; returns its start in ms.

        Args:
            vnodes: Vnodes of each node.
            shards: Shards of each node, or one number per node.
            nodes: Number of nodes; there are nodes x vnodes x shards streams.
            start_ms: When it begins; right after the last change of this client when None, and then the clients that write
                must be this one. Scylla announces a generation about a minute ahead, so that all writers know of it.
            streams: The streams themselves, in place of those made from the numbers.

        Raises:
            StackError: It is a real Scylla.
        """
        new_streams = (
            list(streams) if streams is not None else vnode_streams(vnodes, shards, nodes, self._chance.getrandbits(62))
        )
        generations = self._require_generations("new_generation")
        with self._lock:  # no change is on its way to the streams that were
            return generations.create(new_streams, self._next_ms() if start_ms is None else start_ms)

    def expire_generation(self, start_ms: int) -> None:
        """Remove a generation's description, as Scylla does once all its log rows have expired."""
        self._require_generations("expire_generation").expire(start_ms)

    def split_tablets(self, full: str, tablets: int, *, start_ms: int | None = None) -> int:
        """Give a table of tablets another number of tablets (a power of two), with new streams; returns when, in ms."""
        streams, table = self._require_generations("split_tablets"), self.table(full)
        if not table.tablets:
            raise StackError(f"{full} uses vnodes; create its keyspace with tablets=True, or call new_generation")
        with self._lock:
            start = self._next_ms() if start_ms is None else start_ms
            streams.create_tablets(table, tablet_streams(tablets, self._chance.getrandbits(62)), start)
        return start

    def ring(self, full: str, at_ms: int) -> Ring:
        """The streams that changes of a table at that time go to.

        Raises:
            StackError: There was no generation yet.
        """
        return self._require_generations().ring(self.table(full), at_ms)

    def _require_generations(self, feature: str = "streams") -> Generations:
        if not self.emulated:
            raise StackError(
                f"{feature} is not for a real Scylla, whose topology is its own; unset {REAL} to use the emulation"
            )
        return self._generations

    # ------------------------------------------------------------------ writes

    def apply(self, *writes: Write, timestamp_us: int | None = None, logged: bool = False) -> ApplyResult:
        """Do the writes as one batch (or one statement): the base tables, and the log as Scylla would write it.

        Args:
            writes: What to write; rows of one partition with one timestamp share one `cdc$time`.
            timestamp_us: Write timestamp of those that have none of their own, microseconds since 1970; now when None, and
                then later than that of any earlier call.
            logged: Whether a logged batch is wanted: all or nothing (base table and log too), also when the node dies.

        Raises:
            StackError: A write does not fit its table, or the server refused it.
        """
        if not writes:
            raise StackError("there is nothing to apply; give at least one write")
        with self._lock:
            moment = self._next_moment() if timestamp_us is None else timestamp_us
            if not self.emulated:
                return self._apply_real(writes, moment, logged=logged)
            return self._apply_writes(writes, moment, logged=logged)

    def apply_cql(self, *statements: str, timestamp_us: int | None = None) -> ApplyResult:
        """Do INSERTs, UPDATEs and DELETEs given as CQL text, in the forms that `cql` understands, as one batch."""
        return self.apply(*map(parse_write, statements), timestamp_us=timestamp_us)

    def _next_ms(self) -> int:
        """The next millisecond, behind every change so far: one that comes within this one still belongs before it."""
        return max(self._last_us, now_us()) // 1000 + 1

    def _next_moment(self) -> int:
        self._last_us = max(self._last_us + 1, now_us())
        return self._last_us

    def _apply_real(self, writes: Sequence[Write], moment: int, *, logged: bool) -> ApplyResult:
        conditional = any(getattr(write, "condition", None) is not None for write in writes)
        statements = [
            base_statement(self.table(write.table), write, None if conditional else write.timestamp_us or moment)
            for write in writes
        ]
        if len(statements) > 1 and not conditional:
            self.connection.batch(statements, logged=logged)
            return ApplyResult(applied=True, timestamp_us=moment)
        applied = True
        for statement in statements:
            rows = self.connection.execute(*statement)
            applied &= not rows or rows[0].get("[applied]") != b"\x00"
        return ApplyResult(applied, moment)

    def _apply_writes(self, writes: Sequence[Write], moment: int, *, logged: bool) -> ApplyResult:
        groups: dict[tuple[str, Key, int], list[Write]] = {}
        for write in writes:
            table = self.table(write.table)
            key_values = write.values if isinstance(write, Insert) else write.key
            partition = key_cells(table.partition_key, key_values, table=write.table)
            groups.setdefault((write.table, partition, write.timestamp_us or moment), []).append(write)
        states: dict[tuple[str, Key], EmulatedPartition] = {}
        rings: dict[tuple[str, int], Ring] = {}  # asked for once per call: a load of many partitions has one moment
        statements: list[WireStatement] = []
        everything: list[Logged] = []
        # Conditions hold for the batch as a whole, so they come before anything is written.
        for (full, partition, _), members in groups.items():
            state = states[full, partition] = states.get((full, partition), EmulatedPartition())
            read_state(self.connection, self.table(full), partition, members, state)
        if not all(
            is_condition_met(self.table(full), states[full, partition], write)
            for (full, partition, _), members in groups.items()
            for write in members
        ):
            return ApplyResult(applied=False, timestamp_us=moment)
        for (full, partition, when), members in sorted(groups.items(), key=lambda item: item[0][2]):
            table, state = self.table(full), states[full, partition]
            compiler = Compiler(table, state, max(self._ticks, now_us() * 10), self._chance.getrandbits)
            changes = merge_changes([change for write in members for change in compiler.changes(write)])
            self._ticks = compiler.ticks
            statements += [base_statement(table, _drop_condition(write), when) for write in members]
            if table.lists and table.options:
                statements += shadow_statements(table, partition, changes, when)
            rows, states[full, partition] = log_rows(table, partition, changes, state)
            if table.enabled and rows:
                scope = (full if table.tablets else "", when // 1000)
                if scope not in rings:
                    rings[scope] = self._generations.ring(table, when // 1000)
                stream = rings[scope].stream(token_of(partition))
                change = Logged(full, stream, time_uuid(when, self._chance.getrandbits), rows)
                statements += self._log_statements(table, change, when)
                everything.append(change)
        self._send_batch(statements, logged=logged)
        return ApplyResult(applied=True, timestamp_us=moment, logged=everything)

    def _send_batch(self, statements: Sequence[WireStatement], *, logged: bool) -> None:
        try:
            self.connection.batch(statements, logged=logged)
        except CqlError:
            # The table may have been changed by another client since it was read.
            self._tables.clear()
            raise

    def _log_statements(self, table: EmulatedTable, logged: Logged, when: int) -> list[WireStatement]:
        columns = [column for column, _ in META] + list(table.log_columns)
        tail = [struct.pack(">q", when), struct.pack(">i", table.ttl)]
        statements: list[WireStatement] = []
        for row in logged.rows:
            whole = {**row, "cdc$stream_id": logged.stream, "cdc$time": logged.time}
            statements.append(WireStatement(table.insert_log, [whole.get(column, UNSET) for column in columns] + tail))
        return statements

    # ------------------------------------------------------------------ reading, for tests

    def base_rows(self, full: str) -> list[dict[str, Any]]:
        """All rows of a base table, values as Millrace shows them (`connectors.cql.values`)."""
        table = self.table(full)
        decode = {column.name: make_decoder(column.type) for column in table.columns}
        rows = self.connection.query(f"SELECT * FROM {table.full}")
        return [
            {column: decode[column](cell) if cell is not None else None for column, cell in row.items()} for row in rows
        ]

    def log_cells(self, full: str) -> list[dict[str, bytes]]:
        """All rows of a table's log as cells, in order of stream, time and number; absent where null."""
        rows = self.connection.query(f"SELECT * FROM {self.table(full).log}")
        return [{column: cell for column, cell in row.items() if cell is not None} for row in rows]


def _drop_condition(write: Write) -> Write:
    if getattr(write, "condition", None) is None:
        return write
    values = {slot: getattr(write, slot) for slot in write.__slots__}
    return type(write)(**{**values, "condition": None})


def _table_name(cql: str) -> tuple[str, str]:
    match = _OF_TABLE.match(cql)
    if match is None:
        raise StackError(f"this is no CREATE or ALTER TABLE of keyspace.table: {cql[:200]}")
    return bare_name(match[2]), bare_name(match[3])


def _parse_renames(cql: str) -> dict[str, str]:
    match = _RENAME.search(cql)
    return {bare_name(old): bare_name(new) for old, new in _PAIR.findall(match[0])} if match else {}
