"""The tables that a stream meets: what each structure means for the task, made once and kept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from connectors.errors import Fatal
from connectors.mysql import events
from connectors.mysql.events.schema_changes import TableChange
from connectors.mysql.position import shards
from connectors.mysql.rows.decode import compile_rows, count_rows
from connectors.mysql.rows.fast_rows import fast_table
from connectors.mysql.rows.fast_snapshots import fast_snapshot
from connectors.mysql.schema import columns, table_map
from connectors.mysql.source import event_types as types
from connectors.mysql.source.binlog_events import HEADER_SIZE, rows_header
from connectors.mysql.stream import logical

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from connectors.mysql.config.filters import MySqlTableFilter
    from connectors.mysql.events.contract import EventContext, MySqlTableEvents
    from connectors.mysql.model import MySqlTable, Shard, TableName
    from connectors.mysql.rows.fast_rows import FastTable
    from connectors.mysql.rows.fast_snapshots import FastSnapshot
    from connectors.mysql.schema.columns import ColumnLayout
    from connectors.mysql.schema.table_map import TableMap
    from connectors.mysql.schema.types import ValueOptions
    from connectors.mysql.schema.versions import VersionBook
    from connectors.mysql.source.statements import SqlStatement
    from connectors.wire import Wire

    Rows = Callable[[bytes, int, int], list[Any]]

#: Table maps that are remembered; more are met only where tables are made and dropped all the time.
_MOST: Final = 5_000
#: Structures of tables that may be gone that are remembered, the newest; each has compiled code of 100 KiB.
_MOST_FORMER: Final = 200


class MySqlTableState:
    """One structure of one table, ready for its rows.

    Attributes:
        name: the table.
        text: its name as text.
        table: its structure.
        captured: whether its rows become events.
        owned: whether some of its rows are this task's.
        kind: "" or what else its rows are for: ``signal`` or ``heartbeat``.
        layout: how its columns become fields.
        events: makes the records.
        version: number of the structure.
        fast: makes bytes of rows events in place of records, or None.
        snapshot: makes bytes of rows of a snapshot in place of records, or None.
    """

    __slots__ = (
        "_counters",
        "_decoders",
        "_options",
        "_owners",
        "_readers",
        "_split",
        "captured",
        "events",
        "fast",
        "key",
        "kind",
        "layout",
        "name",
        "owned",
        "snapshot",
        "table",
        "text",
        "version",
    )

    def __init__(
        self,
        table: MySqlTable,
        *,
        captured: bool,
        kind: str,
        shard: Shard,
        layout: ColumnLayout,
        table_events: MySqlTableEvents,
        version: int,
        options: ValueOptions,
    ) -> None:
        self.name = table.name
        self.text = str(table.name)
        self.table = table
        self.captured = captured
        self.kind = kind
        self.layout = layout
        self.events = table_events
        self.version = version
        self.fast: FastTable | None = None
        self.snapshot: FastSnapshot | None = None
        self.key = table.key
        self._options = options
        self._split: tuple[int, int] | None = None
        if shard.count > 1 and not kind and shards.split_column(table) is not None:
            self._split = (shard.index, shard.count)
            self.owned = captured
        else:
            self.owned = captured and (
                shard.count == 1 or shards.shard_of_table(table.name, shard.count) == shard.index
            )
        self._decoders: dict[tuple[str, bytes, bytes | None], Rows] = {}
        #: By type of event: the bytes between table number and rows of the last one, where its rows begin, their decoder.
        self._readers: dict[int, tuple[bytes, int, Rows]] = {}
        self._owners: dict[tuple[Shard, int, bytes, bytes | None], Rows] = {}
        self._counters: dict[tuple[str, bytes, bytes | None], Callable[[bytes, int, int], int]] = {}

    async def agree(self, wire: Wire) -> None:
        """Ask the runtime whether it takes rows of this table as bytes.

        Raises:
            Fatal: a service that a converter needs refuses this client.
        """
        if self.owned and not self.kind:
            self.fast = await fast_table(wire, self.layout, self.events, self._options, self._split)

    async def agree_on_snapshot(self, wire: Wire) -> None:
        """As ``agree``, for rows of snapshots."""
        if not self.kind:
            self.snapshot = await fast_snapshot(wire, self.layout, self.events)

    @property
    def split(self) -> bool:
        """Whether the rows are divided between tasks, and the decoder leaves a None for those of others."""
        return self._split is not None

    def decoder(self, kind: str, present: bytes, present_after: bytes | None) -> Rows:
        """The compiled decoder of a kind of rows event with these columns."""
        row_decoder = self._decoders.get((kind, present, present_after))
        if row_decoder is None:
            row_decoder = self._decoders[kind, present, present_after] = compile_rows(
                self.table,
                self.layout.plans,
                self._options,
                kind=kind,
                present=present,
                present_after=present_after,
                owner=self._split,
            )
        return row_decoder

    def reader(self, raw: bytes, code: int) -> tuple[int, Rows]:
        """Where the rows of an event of this type begin, and their decoder."""
        reader = self._readers.get(code)
        # The bytes before the rows hardly ever change.
        if reader is None or not raw.startswith(reader[0], types.AFTER_ID):
            head = rows_header(raw)
            decode = self.decoder(types.row_kind(code), head.present, head.present_after)
            reader = self._readers[code] = (raw[types.AFTER_ID : head.start], head.start, decode)
        return reader[1], reader[2]

    def owned_images(self, raw: bytes, shard: Shard, count: int) -> list[bool]:
        """Return for each of an event's ``count`` row images whether a shard owns it, of whatever division.

        The keys are looked at as they are in the event: the decoded ones may be masked, of another type, or left out.
        """
        if shard.count == 1 or shards.split_column(self.table) is None:
            return [shard.count == 1 or shards.shard_of_table(self.name, shard.count) == shard.index] * count
        head = rows_header(raw)
        cached = shard, raw[4], head.present, head.present_after
        decode = self._owners.get(cached)
        if decode is None:
            decode = self._owners[cached] = compile_rows(
                self.table,
                [None] * len(self.table.columns),
                self._options,
                kind=types.row_kind(raw[4]),
                present=head.present,
                present_after=head.present_after,
                owner=(shard.index, shard.count),
            )
        return [image is not None for image in decode(raw, head.start, len(raw))]

    def counter(self, kind: str, present: bytes, present_after: bytes | None) -> Callable[[bytes, int, int], int]:
        """Counts the rows of such an event, whoever owns them."""
        row_counter = self._counters.get((kind, present, present_after))
        if row_counter is None:
            row_counter = self._counters[kind, present, present_after] = count_rows(
                self.table, self._options, kind=kind, present=present, present_after=present_after
            )
        return row_counter


class TableSelection(NamedTuple):
    """The tables and rows of the source that belong to a task.

    Attributes:
        table_filter: knows the tables that become events.
        special: what tables are for besides: ``signal`` or ``heartbeat``.
        shard: which rows of the tables.
    """

    table_filter: MySqlTableFilter
    special: Mapping[TableName, str]
    shard: Shard


class StreamTables:
    """Finds the state of a table by its TABLE_MAP event.

    Args:
        selection: which tables and rows are this task's.
        context: what records have in common.
        options: how columns become values.
        versions: numbers the structures.
        definitions: reads definitions of the named tables from ``information_schema``.
        log: for what is left out.
        lenient: whether changes of a table whose structure can't be known for sure are left out, with a warning.
        wire: how rows become bytes without records, or None.

    Attributes:
        changed_by: the last statement that changed structures; "": none since the start.
    """

    def __init__(
        self,
        selection: TableSelection,
        context: EventContext,
        options: ValueOptions,
        versions: VersionBook,
        definitions: Callable[[Sequence[TableName]], Awaitable[Mapping[TableName, MySqlTable]]],
        log: logging.LoggerAdapter[logging.Logger],
        *,
        lenient: bool = False,
        wire: Wire | None = None,
    ) -> None:
        self._wire = wire
        self._selection = selection
        self._filter = selection.table_filter
        self._context = context
        self.options = options
        self._log = log
        self._definitions = definitions
        self._lenient = lenient
        self.versions = versions
        self.changed_by = ""
        self._partitions = logical.Partitions(logical.parse_mapping(context.settings.logical))
        self._known_tables: dict[TableName, MySqlTable] = {}
        self._by_map: dict[bytes, MySqlTableState | None] = {}
        self._by_structure: dict[tuple[TableName, bytes], MySqlTableState] = {}
        self._current: dict[TableName, MySqlTableState] = {}
        #: Structures that a statement has ended, for truncations of tables that are gone before their new one is read.
        self._former: dict[TableName, MySqlTableState] = {}
        #: Structures (table, version) that a new one has replaced, until ``take_replaced``.
        self._replaced: list[tuple[TableName, int]] = []

    def cached(self, body: bytes) -> MySqlTableState | None:
        """The state for a TABLE_MAP event's body seen before; None: the table is not captured.

        Raises:
            KeyError: it was not seen yet: call ``learn``.
        """
        return self._by_map[body]

    def of(self, name: TableName) -> MySqlTableState | None:
        """The structure that the stream has met last, else the one that was read last, if the table is captured.

        Of a table that is not there any more, the last one before a statement changed it.
        """
        if not self._filter.matches(name):
            return None
        known_table = self._known_tables.get(name)
        if name not in self._current and known_table is not None:
            return self.state(known_table, None)
        return self._current.get(name) or self._former.get(name)

    def changes(self, statement: SqlStatement) -> list[TableChange]:
        """Return a statement's changes of captured tables, as far as they are known."""
        if statement.kind == "index":
            return []
        kind: Literal["CREATE", "ALTER", "DROP"] = (
            "CREATE" if statement.kind == "create" else "DROP" if statement.kind == "drop" else "ALTER"
        )
        return [
            TableChange(kind, name, None if kind == "DROP" else self._known_tables.get(name))
            for name in statement.tables
            if self._filter.matches(name)
        ]

    def concerns(self, statement: SqlStatement) -> bool:
        """Whether a statement that changes rows itself may change those of captured tables; errs on the side of yes."""
        if any(self._filter.matches(name) for name in statement.tables):
            return True
        # An INSERT names the one table that it changes first.
        single = statement.tables and statement.text[:7].upper().startswith(("INSERT", "REPLACE"))
        return not single and self._filter.database(statement.database)

    async def read(self, names: Sequence[TableName]) -> None:
        """Read the definitions of tables now, for what a statement has changed."""
        self._known_tables.update(await self._definitions(names))

    def forget(self, statement: SqlStatement) -> None:
        """A statement may have changed definitions: they are read again when they are needed.

        Those of tables that it does not name stay: without names in the binlog they may be the only ones that still fit.
        """
        self.changed_by = statement.text
        # A server may fold names, which a statement shows as they were written.
        named = {name.folded for name in statement.tables}
        database = statement.database.lower()

        def changed(name: TableName) -> bool:
            if statement.kind == "database":
                return statement.drops_database and name.database.lower() == database
            return not named or name.folded in named

        self._known_tables = {name: table for name, table in self._known_tables.items() if not changed(name)}
        self._by_map = {
            body: state for body, state in self._by_map.items() if state is not None and not changed(state.name)
        }
        self._by_structure = {key: state for key, state in self._by_structure.items() if not changed(key[0])}
        for name in [name for name in self._current if changed(name)]:
            self._former.pop(name, None)  # the newest come last
            self._former[name] = self._current[name]
        for name in list(self._former)[:-_MOST_FORMER]:
            del self._former[name]
        self._current = {name: state for name, state in self._current.items() if not changed(name)}
        self._partitions.forget(changed)

    async def learn(self, event: bytes, context: Structure) -> MySqlTableState | None:
        """The state for a TABLE_MAP event, made if necessary.

        Args:
            event: the whole event.
            context: when and where it was met, and the statement before it.

        Raises:
            Fatal: the structure can't be known for sure.
            Retriable: the source can't be asked now.
        """
        met = table_map.parse_table_map(event[HEADER_SIZE:])
        state: MySqlTableState | None = None
        if met.name in self._selection.special or self._filter.matches(met.name):
            state = self._by_structure.get((met.name, met.fingerprint))
            if state is None and (table := await self._complete_table(met)) is not None:
                state = self._by_structure[met.name, met.fingerprint] = self.state(table, context)
                if self._wire is not None:
                    await state.agree(self._wire)
                    if state.fast is not None:
                        self._log.info("%s: rows are written straight to bytes (fast.path)", met.name)
            if state is not None:
                self._current[met.name] = state
                before = self.versions.replaced(met.name, state.version, context) if state.captured else None
                if before is not None:
                    self._replaced.append((met.name, before))
        if len(self._by_map) >= _MOST:
            self._by_map.clear()
        self._by_map[event[types.AFTER_ID :]] = state
        return state

    async def agree_on_snapshot(self, state: MySqlTableState) -> None:
        """Ask the runtime whether it takes rows of a snapshot of this table as bytes."""
        if self._wire is not None:
            await state.agree_on_snapshot(self._wire)

    def take_replaced(self) -> list[tuple[TableName, int]]:
        """Structures (table, version) that have ended since the last call, because ``learn`` met new ones."""
        replaced, self._replaced = self._replaced, []
        return replaced

    def state(self, table: MySqlTable, context: Structure | None) -> MySqlTableState:
        """The state for a structure; ``context`` is None for one that was read from ``information_schema``.

        Raises:
            ConfigInvalid: ``logical.tables`` gives two tables the same numbers, or can't be applied to this one.
        """
        captured = self._filter.matches(table.name)
        version = self.versions.version(table, context and _about_table(context, table.name)) if captured else 0
        layout = columns.make_layout(table, self._context.settings, self.options)
        if captured:
            complaint = self._partitions.add(table.name, tuple(field.name for field in layout.key))
            if complaint:
                self._log.warning("%s", complaint)
        table_events = events.make_builder(
            layout,
            version,
            self._context.settings,
            self._context.partition,
            transactions=self._context.transactions,
            held_rows=self._context.held_rows,
            headers=self._context.headers,
        )
        return MySqlTableState(
            table,
            captured=captured,
            kind=self._selection.special.get(table.name, ""),
            shard=self._selection.shard,
            layout=layout,
            table_events=table_events,
            version=version,
            options=self.options,
        )

    async def _complete_table(self, met: TableMap) -> MySqlTable | None:
        for attempt in range(2):
            known_table = self._known_tables.get(met.name)
            if known_table is None:
                self._known_tables.update(await self._definitions([met.name]))
                known_table = self._known_tables.get(met.name)
            try:
                return table_map.complete_table(met, known_table)
            except table_map.Mismatch as error:
                if attempt == 0:
                    self._known_tables.pop(met.name, None)
                    continue
                if met.full:
                    # What was read has been altered since: the event's own metadata is what counts.
                    self._log.info(
                        "%s: information_schema has another structure by now (%s); what it says of columns that have stayed "
                        "as they were counts, and of the others defaults and comments are unknown",
                        met.name,
                        error,
                    )
                    return table_map.complete_altered(met, known_table)
                if self._lenient:
                    self._log.warning(
                        "%s: changes are left out, because the structure of their rows is not known: %s",
                        met.name,
                        error,
                    )
                    return None
                raise Fatal(
                    f"{met.name}: the binlog's rows do not have the structure that information_schema shows now ({error}), so "
                    "their columns can't be named for sure. Let the server write names into the binlog (SET GLOBAL "
                    "binlog_row_metadata = FULL, kept in the server's configuration), and then start a new snapshot of the "
                    "table; or alter the offset to a place after the change of the table"
                ) from error
        raise AssertionError("unreachable")


class Structure(NamedTuple):
    """When and where a structure of a table was met (at which server), and the last statement before it that changed any."""

    ts_ms: int
    file: str
    pos: int
    gtid: str
    statement: str
    server: int = 0


def _about_table(met: Structure, name: TableName) -> Structure:
    """The same without a statement that does not name the table."""
    named = re.search(rf"(?<![\w$]){re.escape(name.table)}(?![\w$])", met.statement, re.IGNORECASE) is not None
    return met if named else met._replace(statement="")
