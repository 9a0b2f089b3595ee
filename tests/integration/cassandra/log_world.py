"""A test's view of a real node's log: the mutations of its own keyspace, decoded in every way and folded."""

# ruff: noqa: S608 - names of keyspaces are our own
from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Final, Self

from connectors.cassandra.log.segment import Segment
from connectors.cassandra.schema.catalog import CassandraCatalog, CassandraTableFilter
from connectors.cassandra.server import read_cluster, version_of
from connectors.cql.cluster.session import CqlSession
from connectors.cql.mutations.compiled import CompiledDecoder
from connectors.cql.mutations.encode import write_update
from connectors.cql.mutations.head import read_mutation_head, update_head
from connectors.cql.mutations.reference import UnknownColumn, read_update, skip_update
from connectors.cql.types import quote_name
from tests.support.partition_merge import Table
from tests.support.settings import cql_session
from tests.unit.connectors.cql.mutation_world import SOURCE, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from connectors.cassandra.model import LogEntry
    from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition
    from connectors.cql.types import CqlType
    from tests.support.partition_merge import PartitionState, RowState

_DEADLINE_S: Final = 60.0


class LogReader:
    """Reads what a node appends to its segments from now on, up to the newest sync marker. Deletes nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._segments: dict[int, Segment] = {}
        # What is there now is not ours.
        self._passed = {log_number(path) for path in folder.glob("CommitLog-*.log") if completed(path)}
        for _ in self.news():
            pass

    def news(self) -> Iterator[tuple[int, bytes, LogEntry]]:
        """Version, bytes and place of each new entry; blocks while it reads."""
        for path in sorted(self._folder.glob("CommitLog-*.log"), key=log_number):
            number = log_number(path)
            if number not in self._segments and number not in self._passed:
                self._segments[number] = Segment(path, number)
        for segment in self._segments.values():
            while (chunk := segment.read(None, complete=False, max_bytes=1 << 20)) is not None:
                assert not chunk.problem, chunk.problem
                for entry in chunk.entries:
                    yield chunk.version, chunk.data, entry

    def close(self) -> None:
        for segment in self._segments.values():
            segment.close()


def log_number(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def completed(path: Path) -> bool:
    """Whether the node is through with a segment."""
    try:
        return "COMPLETED" in path.with_name(f"{path.stem}_cdc.idx").read_text()
    except FileNotFoundError:
        return False


class World:
    """A keyspace of the test's own, a session, the catalog, and all updates of the keyspace that the log has so far.

    Attributes:
        updates: versions of the log and bytes, by table id (text), in the order of the log.
        plain: how many of them generated code could read.
        unknown: columns that the catalog did not have when their updates came.
        release: the server's: (5, 0).
    """

    def __init__(self, address: str, cdc_raw: Path, keyspace: str) -> None:
        host, _, port = address.rpartition(":")
        self._settings = cql_session(contact_points=((host, int(port)),), consistency="ONE")
        self._reader = LogReader(cdc_raw)
        self.keyspace = keyspace
        self.catalog = CassandraCatalog(CassandraTableFilter(), logging.LoggerAdapter(logging.getLogger("test")))
        self.updates: dict[str, list[tuple[int, bytes]]] = {}
        self._fence = self._passed = 0
        self.plain = 0
        self.unknown: list[str] = []
        self.release = (0, 0)
        self._decoders: dict[tuple[str, int, str], CompiledDecoder] = {}

    async def __aenter__(self) -> Self:
        self.session = self.catalog.session = await CqlSession.acquire(self._settings)
        self.release = version_of((await read_cluster(self.session)).versions[0])
        await self.execute(f"CREATE TABLE IF NOT EXISTS {self.keyspace}.fence (id int PRIMARY KEY) WITH cdc = true")
        await self.catalog.refresh()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._reader.close()
        await self.session.release()

    async def execute(self, *statements: str) -> None:
        for text in statements:
            await self.session.query(text)

    async def definition(self, table: str) -> CqlTableDefinition:
        """The table as it is now."""
        await self.catalog.refresh()
        (definition,) = self.catalog.tables([f"{self.keyspace}[.]{table}"])
        return definition

    async def catch_up(self) -> None:
        """Read until everything that was written before is there."""
        self._fence += 1
        await self.execute(f"INSERT INTO {self.keyspace}.fence (id) VALUES ({self._fence})")
        end = time.monotonic() + _DEADLINE_S
        while self._passed < self._fence:
            assert time.monotonic() < end, f"row {self._fence} of the fence is not in the log after {_DEADLINE_S:g} s"
            for version, data, entry in await asyncio.to_thread(lambda: list(self._reader.news())):
                await self._take(version, data, entry)
            await asyncio.sleep(0.02)

    async def _take(self, version: int, data: bytes, entry: LogEntry) -> None:
        count, pos = read_mutation_head(data, entry.start, version)
        for _ in range(count):
            key = update_head(data, pos, version)[0]
            table = self.catalog.by_id(key)
            if table is None:
                await self.catalog.refresh()
                table = self.catalog.by_id(key)
            if table is None or table.keyspace != self.keyspace:
                return
            try:
                pos = self._decode(data, pos, version, table)
            except UnknownColumn as error:
                self.unknown.append(error.column)
                await self.catalog.refresh()
                table = self.catalog.by_id(key)
                assert table is not None
                pos = self._decode(data, pos, version, table)
        assert pos == entry.end

    def _decode(self, data: bytes, pos: int, version: int, table: CqlTableDefinition) -> int:
        decoder = self._decoders.setdefault((table.table_id, version, table.version), CompiledDecoder(table, version))
        update, end = decoder.full(data, pos, SOURCE)
        assert skip_update(data, pos, table, version) == end
        # Code is generated for lists of columns that come again.
        for _ in range(3):
            packed = decoder.plain(data, pos)
        if packed is not None:
            assert unpacked(packed) == update
            assert packed[3] == end
            self.plain += 1
        if not table.dropped:
            assert read_update(write_update(update, table, version), 0, table, version, SOURCE)[0] == update
        self.updates.setdefault(table.table_id, []).append((version, data[pos:end]))
        if table.table == "fence":
            (self._passed,) = update.key
        return end

    # Comparing.

    def tells_times(self, column: CqlColumn) -> bool:
        """Whether queries tell the write times and TTLs of a column: before 5.0 they don't tell those of elements."""
        return self.release >= (5, 0) or not column.type.is_multicell

    async def assert_folds(self, table: CqlTableDefinition) -> None:
        """Assert that a table's log gives what queries show, value by value, with write times and TTLs."""
        rows = await self.session.query(f"SELECT * FROM {table}")
        assert not (differences := unlike(self.shown(table), selected(rows, table))), differences
        await self._assert_times(self._folded(table), table)

    def _folded(self, table: CqlTableDefinition) -> Table:
        """All of the log with one definition."""
        decoders = {version: CompiledDecoder(table, version) for version, _ in self.updates.get(table.table_id, ())}
        return Table(table.columns).apply_all(
            decoders[version].full(data, 0, SOURCE)[0] for version, data in self.updates.get(table.table_id, ())
        )

    def shown(self, table: CqlTableDefinition) -> dict[str, Any]:
        """The rows that queries should show, according to the log."""
        kinds = {column.name: column.type for column in table.columns}
        return {
            name: (clean(static, kinds, folded=True), [clean(row, kinds, folded=True) for row in rows])
            for name, (static, rows) in self._folded(table).contents().items()
        }

    async def _assert_times(self, fold: Table, table: CqlTableDefinition) -> None:
        columns = [column for column in (*table.static, *table.regular) if self.tells_times(column)]
        names = [column.name for column in columns]
        keys = [column.name for column in (*table.key, *table.clustering)]
        if not names:
            return
        time_columns = ", ".join(
            f'WRITETIME("{name}") AS w{index}, TTL("{name}") AS t{index}' for index, name in enumerate(names)
        )
        before = int(time.time())
        rows = await self.session.query(
            f"SELECT {', '.join(quote_name(name) for name in keys)}, {time_columns} FROM {table}"
        )
        after = int(time.time()) + 1
        for row in rows:
            state = fold.partitions[repr(tuple(row[column.name] for column in table.key))]
            clustering = tuple(row[column.name] for column in table.clustering)
            for index, column in enumerate(columns):
                stamps = visible(fold, state, column, clustering)
                written, left = flat(row[f"w{index}"]), flat(row[f"t{index}"])
                assert written == sorted(stamp.write_time for stamp in stamps), (column.name, row)
                expires = sorted(stamp.expires for stamp in stamps if stamp.expires is not None)
                assert len(expires) == len(left), (column.name, row)
                assert all(before <= end - ttl <= after for end, ttl in zip(expires, left, strict=True)), (
                    column.name,
                    row,
                )


def visible(fold: Table, state: PartitionState, column: CqlColumn, clustering: tuple[Any, ...]) -> list[Any]:
    """Stamps of the living cells of a column."""
    row: RowState = state.static
    if column.kind != "static":
        if repr(clustering) not in state.rows:
            return []
        row = state.rows[repr(clustering)][1]
    hidden = fold._hidden(state, row, clustering)
    limit = max(hidden, row.complex_deletions.get(column.name, hidden))
    return [
        cell.stamp
        for cell in row.cells.values()
        if cell.column == column.name and cell.value is not None and cell.stamp.write_time > limit
    ]


def flat(value: Any) -> list[int]:
    """Times of a column's cells, in order."""
    values = value if isinstance(value, list) else [value]
    return sorted(moment for moment in values if moment is not None)


def selected(rows: Sequence[Mapping[str, Any]], table: CqlTableDefinition) -> dict[str, Any]:
    """Rows of a query in the form of ``Table.contents``."""
    kinds = {column.name: column.type for column in table.columns}
    contents: dict[str, Any] = {}
    for row in rows:
        name = repr(tuple(row[column.name] for column in table.key))
        static = clean({column.name: row[column.name] for column in table.static}, kinds)
        listed = contents.setdefault(name, (static, []))[1]
        if not table.clustering or row[table.clustering[0].name] is not None:
            listed.append(
                clean({column.name: row[column.name] for column in (*table.clustering, *table.regular)}, kinds)
            )
    return contents


def unlike(folded: Mapping[str, Any], shown: Mapping[str, Any]) -> list[Any]:
    """Partitions that are not the same in both: key, as folded, as shown."""
    return [(key, folded.get(key), shown.get(key)) for key in {**folded, **shown} if folded.get(key) != shown.get(key)]


def clean(row: Mapping[str, Any], kinds: Mapping[str, CqlType], *, folded: bool = False) -> dict[str, Any]:
    """Without nulls and empty multicell columns, which a table does not tell apart; multicell values as a fold has them."""
    values = {
        name: value if folded or not kinds[name].is_multicell else _as_folded(kinds[name].name, value)
        for name, value in row.items()
    }
    return {
        name: value
        for name, value in values.items()
        if value is not None and not (kinds[name].is_multicell and not value)
    }


def _as_folded(shape: str, value: Any) -> Any:
    if value is None:
        return None
    if shape == "set":
        return sorted(value)
    if shape == "map":
        return {repr(entry["key"]): entry["value"] for entry in value}
    if shape == "udt":
        return {name: member for name, member in value.items() if member is not None}
    return value
