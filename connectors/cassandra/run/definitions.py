"""The definitions of tables that a run knows: from the cluster while it answers, else those that were saved."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from connectors.cassandra.config import settings
from connectors.cassandra.schema import saved
from connectors.cassandra.schema.catalog import CassandraCatalog, CassandraTableFilter, id_bytes
from connectors.cql.cluster.session import CqlSession
from connectors.errors import Retriable

if TYPE_CHECKING:
    import logging
    from collections.abc import Sequence

    from connectors.api import Position, TaskMetrics
    from connectors.cassandra.log.follower import LogFollower
    from connectors.cassandra.stream import CassandraStream, Missing
    from connectors.cql.mutations.definition import CqlTableDefinition
    from connectors.options import Config

#: Reads of definitions for something that an entry needs, and the pause between them: a node knows a table before others do.
_READS: Final = 4
_PAUSE_S: Final = 0.25
#: How long a change of definitions may take until every node tells it.
_SPREAD_MS: Final = 10_000
#: The version of ids that are made of names: those of the server's own tables. Users' tables have ids of time.
_OF_NAMES: Final = 3


class RunDefinitions:
    """Keeps the definitions as new as the log needs them, and tells the stream which have changed.

    Args:
        config: of the task.
        node_name: the node whose log is read; "": no log is read.
        metrics: numbers go there.
        log: the task's.

    Attributes:
        catalog: the definitions.
        session: to the cluster; None while it is unavailable.
        stream: gets on with the definitions; None: not yet.
        unsaved: whether there are offsets to save.
        sure_ms: when definitions were known to be still the same, ms since 1970; 0: they were not.
    """

    def __init__(
        self, config: Config, node_name: str, metrics: TaskMetrics, log: logging.LoggerAdapter[logging.Logger]
    ) -> None:
        self.catalog = CassandraCatalog(CassandraTableFilter(*settings.table_lists(config)), log, metrics)
        self.session: CqlSession | None = None
        self.stream: CassandraStream | None = None
        self.sure_ms = 0
        self._config = config
        self._prefix = settings.task_settings(config).prefix
        self._node_name = node_name
        self._log = log
        self._connecting = asyncio.Lock()
        #: When definitions were read last.
        self._defined_ms = 0
        #: When reads began that did not find what they were for.
        self._missed_ms = 0
        #: What is saved of each table's definition, by table id.
        self._kept: dict[str, Position] = {}
        self._unsaved: list[tuple[Position, Position | None]] = []

    # Offsets.

    def restore(self, offsets: Sequence[tuple[Position, Position]]) -> bool:
        """Take what was saved; return whether there is anything."""
        definitions = saved.read_definitions(self._prefix, offsets)
        captures = saved.read_captures(self._prefix, self._node_name, offsets)
        self.catalog.remember(definitions, captures)
        self._kept = {
            definition.table_id: saved.definition_offset(definition, 0, captures[definition.table_id])
            for definition in definitions
        }
        return bool(definitions)

    @property
    def unsaved(self) -> bool:
        """Whether there are offsets to save."""
        return bool(self._unsaved)

    def take_unsaved(self) -> tuple[tuple[Position, Position | None], ...]:
        """Return the offsets to save with the next batch; they are no concern of this class any more."""
        unsaved, self._unsaved = tuple(self._unsaved), []
        return unsaved

    # The cluster.

    async def connect(self, *, required: bool) -> None:
        """Reach the cluster and read definitions; without it the log can be read as far as they are known.

        Raises:
            Retriable: it is unavailable, and ``required``.
        """
        try:
            async with self._connecting:
                if self.session is None:
                    self.session = await CqlSession.acquire(settings.session_settings(self._config))
                self.catalog.session = self.session
            await self.refresh()
        except Retriable as error:
            if required:
                raise
            self._log.warning(
                "the cluster is unavailable (%s): the log is read on with the definitions that were saved", error
            )

    async def release(self) -> None:
        """Give the session back; may be repeated."""
        session, self.session = self.session, None
        if session is not None:
            await session.release()

    async def refresh(self) -> None:
        """Read definitions.

        Raises:
            Retriable: the cluster can't be asked.
        """
        began = time.time_ns() // 1_000_000
        self._apply_changes(await self.catalog.refresh())
        self._defined_ms = began
        self._note_sure(began)

    async def follow(self) -> None:
        """Read definitions if they have changed.

        Raises:
            Retriable: the cluster can't be asked.
        """
        began = time.time_ns() // 1_000_000
        if await self.catalog.moved():
            await self.refresh()
        self._note_sure(began)

    def _note_sure(self, asked_ms: int) -> None:
        """Definitions were the same when they were asked for, unless the node that answered may be behind."""
        if not self.catalog.spreading:
            self.sure_ms = asked_ms  # also a smaller one: this machine's clock may have been ahead

    # What the log needs.

    async def make_sure(self, stream: CassandraStream) -> None:
        """Get definitions that are newer than the chunk: a table that had no cdc may have it now.

        Raises:
            Retriable: the cluster can't be asked.
        """
        if self.session is None:
            await self.connect(required=True)
        else:
            await self.follow()
        while self.catalog.spreading:
            await asyncio.sleep(_PAUSE_S)
            await self.follow()
        stream.sure = True

    async def find(
        self, stream: CassandraStream, missing: Missing, before: CqlTableDefinition | None, written_ms: int
    ) -> None:
        """Read definitions until one has what an entry needs, or give it up.

        What was written well before definitions were read, and is of a table that they don't have, is of one that was dropped.

        Args:
            stream: which needs it.
            missing: what it needs.
            before: the definition with which it did not get on.
            written_ms: when the entry was there.

        Raises:
            Retriable: the cluster can't be asked.
        """
        if self.session is None and missing.column is None and missing.table_id[6] >> 4 == _OF_NAMES:
            stream.give_up(missing, by_table=True)
            return
        if (definition := self.catalog.by_id(missing.table_id)) is not None and definition != before:
            return  # read meanwhile
        if missing.column is None and 0 < written_ms < self._defined_ms - _SPREAD_MS:
            if self.session is not None:
                await self.follow()  # the log's machine may have another time
            if self.catalog.by_id(missing.table_id) is None:
                stream.give_up(missing, old=True)
            return
        if missing.column is None and 0 < written_ms <= self._missed_ms:
            stream.give_up(missing)  # the reads for another one were for this one too
            return
        began = time.time_ns() // 1_000_000
        attempt = 0
        while attempt < _READS or self.catalog.spreading:
            if attempt:
                await asyncio.sleep(_PAUSE_S)
            attempt += 1
            await self.connect(required=True)
            definition = self.catalog.by_id(missing.table_id)
            if definition is not None and definition != before:
                stream.changed({definition.table_id})
                return
        self._missed_ms = began
        stream.give_up(missing)

    # Changes.

    async def end_captures(self, follower: LogFollower | None) -> None:
        """Set the last segment of tables whose cdc is off for good.

        Raises:
            Retriable: the directory can't be listed.
        """
        captures = self.catalog.captures
        settled = captures.settled(time.time_ns() // 1_000_000) if self.catalog.agreed else {}
        newest = await follower.newest_segment() if settled and follower is not None else None
        if newest is None:
            return
        for key in captures.end(settled, newest):
            self._log.info("cdc of %s is off: its updates count up to segment %d", self.catalog.by_id(key), newest)
        self._apply_changes(set())

    def _apply_changes(self, ids: set[str]) -> None:
        """Definitions are new or others: the stream forgets the old ones, and what is to be kept is saved.

        Kept are all tables of keyspaces with tables that are or were captured: they share mutations, not readable in part.
        """
        if self.stream is not None:
            self.stream.changed(ids)
        if not self._node_name:
            return
        tables = self.catalog.list_known_tables()
        keyspaces = {definition.keyspace for definition in tables if self.catalog.captured(definition)}
        for table in tables:
            if table.keyspace not in keyspaces:
                continue
            offset = saved.definition_offset(table, 0, self.catalog.captures.of(id_bytes(table.table_id)))
            if self._kept.get(table.table_id) != offset:
                self._kept[table.table_id] = offset
                self._unsaved.append(
                    (
                        saved.definition_partition(self._prefix, self._node_name, table.table_id),
                        {**offset, saved.SEEN_MS: time.time_ns() // 1_000_000},
                    )
                )
