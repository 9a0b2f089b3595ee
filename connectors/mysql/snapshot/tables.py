"""The tables of snapshots as the stream has them, and the stream's position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from connectors.mysql.config import filters
from connectors.mysql.model import MARIADB, BinlogPosition
from connectors.mysql.position import positions
from connectors.mysql.rows.text_rows import compile_text, select_list
from connectors.mysql.schema.types import keeps_values
from connectors.mysql.snapshot.model import SnapshotRowDecoder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from connectors.mysql.model import MySqlTable, TableName
    from connectors.mysql.position.cursor import BinlogCursor
    from connectors.mysql.schema.tables import MySqlTableState, StreamTables
    from connectors.mysql.snapshot.model import SnapshotSettings
    from connectors.mysql.source.server import SourceServer

#: Tables whose compiled code is remembered; only a few are read at the same time.
_MOST_STATES: Final = 100


@dataclass(frozen=True)
class StreamPosition:
    """The position of a run's stream, as snapshots compare it with theirs.

    Attributes:
        cursor: the stream's.
        flavor: of the server.
        by_gtid: whether only GTIDs count, since a replica is read.
    """

    cursor: BinlogCursor
    flavor: str
    by_gtid: bool

    def seen(self) -> BinlogPosition:
        """The newest position that the stream has taken anything from."""
        gtids = self.cursor.seen_gtids() if self.by_gtid or self.flavor != MARIADB else ""
        return BinlogPosition(file=self.cursor.file, pos=self.cursor.pos, gtids=gtids)

    def reached(self, position: BinlogPosition) -> bool:
        """Whether the stream has come to a position; of a replica's only the GTIDs count."""
        return positions.is_reached(self.cursor.restart_position(), position, self.flavor, by_gtid=not position.file)


class SnapshotTables:
    """The tables that snapshots of a run may read, and how their rows are read and sent.

    Args:
        server: the source.
        stream_tables: the stream's tables.
        is_captured: whether a table is the connector's.
    """

    def __init__(
        self, server: SourceServer, stream_tables: StreamTables, is_captured: Callable[[TableName], bool]
    ) -> None:
        self.server = server
        self.is_captured = is_captured
        self._stream_tables = stream_tables
        self._states: dict[TableName, tuple[MySqlTable, MySqlTableState]] = {}
        #: Of tables about which ``agree`` has not asked the runtime yet.
        self._new_states: list[MySqlTableState] = []

    async def find(self, expressions: list[str]) -> Sequence[MySqlTable]:
        """The captured tables that match, with their structures of this moment.

        Raises:
            Retriable: the server is unavailable.
        """
        expected = filters.compile_patterns(expressions)
        names = await self.server.names(
            lambda name: self.is_captured(name) and filters.matches_any(expected, str(name))
        )
        definitions = await self.server.definitions(names)
        return [definitions[name] for name in names if name in definitions]

    def state(self, table: MySqlTable) -> MySqlTableState:
        """How rows of this structure are sent."""
        cached = self._states.pop(table.name, None)
        # The number of a structure that the stream has not met is a guess until then.
        if (
            cached is not None
            and cached[0] == table
            and cached[1].version == self._stream_tables.versions.version(table)
        ):
            self._states[table.name] = cached  # the one that was asked for last comes last
            return cached[1]
        state = self._stream_tables.state(table, None)
        if len(self._states) >= _MOST_STATES:
            del self._states[next(iter(self._states))]
        self._states[table.name] = (table, state)
        self._new_states.append(state)
        return state

    def decoder(self, table: MySqlTable) -> SnapshotRowDecoder:
        """How rows of this structure are read."""
        plans, options = self.state(table).layout.plans, self._stream_tables.options
        shown = {plan.column.name for plan in plans if plan is not None}
        # Rows are distinguished by what they show: where two keys may look alike, the table is read as one without a key.
        exact = {plan.column.name for plan in plans if plan is not None and keeps_values(plan.column, options)}
        return SnapshotRowDecoder(
            select_list(table, plans),
            compile_text(table, plans, options),
            table.key if exact.issuperset(table.key) else (),
            len(shown),
        )

    async def agree(self) -> None:
        """Ask the runtime whether it takes the rows of tables that are read for the first time as bytes."""
        states, self._new_states = self._new_states, []
        for state in states:
            await self._stream_tables.agree_on_snapshot(state)


@dataclass(frozen=True)
class SnapshotAccess:
    """How and where the snapshots of a run read.

    Attributes:
        options: how.
        connect: a new connection for queries, to the source or its replica.
        tables: the tables.
        position: of the stream.
    """

    options: SnapshotSettings
    connect: Callable[[], Awaitable[Any]]
    tables: SnapshotTables
    position: StreamPosition
