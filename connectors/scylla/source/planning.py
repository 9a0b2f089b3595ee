"""Plans what is read of each table now: reads the cluster's lists, and decides by ``generations``."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from connectors.errors import Retriable
from connectors.scylla.schema import tables
from connectors.scylla.schema.tables import TableUnavailable
from connectors.scylla.source import discovery, generations
from connectors.scylla.source.groups import of_table

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable, Mapping

    from connectors.cql.cluster.session import CqlSession
    from connectors.scylla.model import Generation, StreamGroup, TableId
    from connectors.scylla.schema.tables import TableHistory
    from connectors.scylla.source.discovery import Source

#: How long a generation with saved positions may be missing in the lists before it counts as one of another cluster.
_UNLISTED_S: Final = 10.0


@dataclass(slots=True)
class TableReadPlan:
    """The part of one table that tasks read.

    Attributes:
        table: the table.
        source: where its streams are listed.
        generation: the one being read, with its end as it is known.
        groups: all of it.
        history: the table's definitions.
        asked: whether new task configurations were asked for because of this table.
    """

    table: TableId
    source: Source
    generation: Generation
    groups: list[StreamGroup]
    history: TableHistory
    asked: bool = False


class Planner:
    """Plans for all tables of a connector; keeps what several tables share and where a look-back began.

    Args:
        session: the session.
        log: the connector's.
        lookback_ms: ``scylla.initial.lookback.ms``.
    """

    def __init__(self, session: CqlSession, log: logging.LoggerAdapter[logging.Logger], lookback_ms: int = 0) -> None:
        self._session = session
        self._log = log
        self._lookback_ms = lookback_ms
        self._shared: dict[tuple[str, int], list[StreamGroup]] = {}
        self._lists: dict[str, list[Generation]] = {}
        #: By keyspace.
        self._sources: dict[str, Source] = {}
        self._begin: dict[tuple[TableId, int], int] = {}
        self._said: set[str] = set()
        #: Tables whose newest saved generation is not listed: since when (monotonic).
        self._unlisted: dict[TableId, float] = {}

    def new_round(self) -> None:
        """Forget the lists that tables share: the next question reads them again."""
        self._lists = {}
        self._sources = {}

    def say(self, message: str) -> None:
        """Log a warning, once."""
        if message not in self._said:
            self._said.add(message)
            self._log.warning("%s", message)

    async def history(self, table: TableId, now_ms: int, previous: TableHistory | None = None) -> TableHistory | None:
        """The table's definitions, or None (with a log line) if it can't be read as it is.

        Raises:
            Retriable: nodes are unavailable, busy or too slow.
            Fatal: its definition is not understood.
        """
        try:
            loaded = await tables.load_history(self._session, table, previous, now_us=now_ms * 1000)
        except TableUnavailable as error:
            self.say(f"{error}; the table is read as soon as it is there")
            return None
        self._said = {message for message in self._said if str(table) not in message}
        return loaded

    async def available(self, table: TableId, now_ms: int) -> bool:
        """Whether a table that could not be planned can be now: it is there, and there are streams."""
        return await self.history(table, now_ms) is not None and bool(
            await self.generations(table, await discovery.table_source(self._session, table))
        )

    async def generations(self, table: TableId, source: Source) -> list[Generation]:
        """The table's generations, in order."""
        key = str(table) if source == "tablets" else source
        if key not in self._lists:
            self._lists[key] = await discovery.load_generations(self._session, table, source)
        return self._lists[key]

    async def groups(self, table: TableId, generation: Generation, source: Source) -> list[StreamGroup]:
        """All groups of a generation; tables of vnodes share their streams."""
        if source == "tablets":
            return await discovery.load_groups(self._session, table, generation, source)
        key = (source, generation.start_ms)
        if key not in self._shared:
            self._shared[key] = await discovery.load_groups(self._session, table, generation, source)
        return [replace(group, generation=generation) for group in of_table(self._shared[key], table)]

    def forget_but(self, starts: set[int]) -> None:
        """Drop shared groups of all generations but these."""
        self._shared = {key: groups for key, groups in self._shared.items() if key[1] in starts}

    async def plan(
        self, table: TableId, saved: Mapping[int, Mapping[str, int]], now_ms: int, previous: TableReadPlan | None = None
    ) -> TableReadPlan | None:
        """Plan what to read of a table; None if there is nothing (yet).

        Args:
            table: the table.
            saved: of its saved positions the starts of windows, by generation and group (``positions.saved_windows``).
            now_ms: now.
            previous: the plan in force.

        Raises:
            Retriable: nodes are unavailable, busy or too slow, or lists of streams are not there yet.
            Fatal: the table's definition is not understood.
        """
        history = await self.history(table, now_ms, None if previous is None else previous.history)
        if history is None:
            return None
        source = await discovery.table_source(self._session, table)
        all_generations = await self.generations(table, source)
        self._check_listed(table, all_generations, saved)
        ttl_s = history.newest.options.ttl_s
        choice = generations.choose_generation(
            all_generations,
            saved,
            now_ms=now_ms,
            ttl_s=ttl_s,
            altered_ms=history.altered_us // 1000,
            lookback_ms=self._lookback_ms,
        )
        for note in choice.notes:
            self.say(f"{table}: {note}")
        for gone in choice.skipped:
            self.say(
                f"{table}: the generation from {gone.start_ms} to {gone.end_ms} (ms) is left out: its rows have expired "
                f"after {ttl_s} s"
            )
        if choice.generation is None:
            self.say(
                f"{table}: the cluster lists no generation of streams yet; the table is read as soon as there is one"
            )
            return None
        generation = choice.generation
        for generation in (choice.generation, *choice.later):
            groups = await self.groups(table, generation, source)
            if not generations.is_finished(generation, groups, saved.get(generation.start_ms, {})):
                break
            self._log.info("%s: the generation that starts at %d was read to its end", table, generation.start_ms)
        begin = self._begin_ms(table, generation, now_ms) if choice.first else None
        return TableReadPlan(table, source, generation, [replace(group, begin_ms=begin) for group in groups], history)

    def _check_listed(self, table: TableId, all_generations: list[Generation], saved: Iterable[int]) -> None:
        """Wait for the newest generation that has positions: without it those before it would be read again.

        Raises:
            Retriable: the node that was asked does not list it (yet).
        """
        newest = max(saved, default=0)
        if not all_generations or newest <= all_generations[-1].start_ms:
            self._unlisted.pop(table, None)
            return
        now = time.monotonic()
        if now - self._unlisted.setdefault(table, now) < _UNLISTED_S:
            raise Retriable(
                f"{table}: positions are saved for a generation that starts at {newest}, and the newest that is listed starts "
                f"at {all_generations[-1].start_ms}"
            )

    def _begin_ms(self, table: TableId, generation: Generation, now_ms: int) -> int | None:
        """Return where a first start with a look-back begins: counted once, so that recreated tasks begin there too."""
        if self._lookback_ms <= 0:
            return None
        begin = self._begin.setdefault((table, generation.start_ms), now_ms - self._lookback_ms)
        return begin if begin > generation.start_ms else None

    async def outdated(
        self, plan: TableReadPlan, saved: Mapping[int, Mapping[str, int]] | None, now_ms: int
    ) -> bool | None:
        """Whether a table needs a new plan.

        Args:
            plan: the plan in force; its generation's end is updated, and where its streams are listed.
            saved: as for ``plan``; None: not known, the answer is None then if they would decide.
            now_ms: now.

        Raises:
            Retriable: nodes are unavailable, busy or too slow.
        """
        if plan.source != "tablets":
            # An upgrade of the cluster moves the lists: no new generation comes to the old ones any more. And a node that was
            # asked when the keyspace was new may not have known that its tables are in tablets.
            keyspace = plan.table.keyspace
            if keyspace not in self._sources:
                self._sources[keyspace] = await discovery.table_source(self._session, plan.table)
            if self._sources[keyspace] == "tablets":
                return True
            plan.source = self._sources[keyspace]
        all_generations = await self.generations(plan.table, plan.source)
        later = [generation for generation in all_generations if generation.start_ms > plan.generation.start_ms]
        if not later:
            return False
        plan.generation = replace(plan.generation, end_ms=later[0].start_ms)
        if all(generation.start_ms != plan.generation.start_ms for generation in all_generations):
            return True
        history = plan.history
        if generations.is_expired(plan.generation, now_ms, history.newest.options.ttl_s, history.altered_us // 1000):
            return True
        if saved is None:
            return None
        return generations.is_finished(plan.generation, plan.groups, saved.get(plan.generation.start_ms, {}))
