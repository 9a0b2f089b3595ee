"""Turns chunks of a node's log into records: finds the table of each update, and handles updates of unknown tables. No I/O."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from connectors.api import BadRecord
from connectors.cassandra.model import LogPosition
from connectors.cql.mutations.head import TABLE_ID_BYTES, read_mutation_head
from connectors.cql.mutations.reference import UnknownColumn, skip_update
from connectors.encoded_parts import EncodedParts
from connectors.errors import Skippable

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.api import SourceRecord
    from connectors.cassandra.events.contract import CassandraTableEvents, Where
    from connectors.cassandra.events.fast_entries import FastEntries
    from connectors.cassandra.model import LogChunk
    from connectors.cql.mutations.definition import CqlTableDefinition
    from connectors.wire import Wire

#: Of a damaged or unreadable entry, what goes into its ``BadRecord``.
_RAW_BYTES: Final = 1 << 20
#: Of a mutation of one update, where the bytes behind the table id begin (not from version 9 on).
_BEHIND_ID: Final = 1 + TABLE_ID_BYTES
#: More updates than an entry can have: its end ends it.
_UNCOUNTED: Final = 1 << 31


class Definitions(Protocol):
    """Where tables are looked up; see ``connectors.cassandra.schema.catalog``."""

    def by_id(self, table_id: bytes) -> CqlTableDefinition | None:
        """A table of the cluster, captured or not."""

    def captured(self, table: CqlTableDefinition, segment: int) -> bool:
        """Whether its changes in a segment are delivered."""

    def is_deliverable(self, table: CqlTableDefinition) -> bool:
        """Whether they would be if it had cdc."""

    def is_refused(self, table: CqlTableDefinition) -> bool:
        """Whether it is chosen and has cdc, but its changes can't be captured."""

    def list_known_tables(self) -> list[CqlTableDefinition]:
        """All tables."""


class Missing(Exception):
    """An entry can't be read with what is known: definitions have to be read again, or given up.

    Attributes:
        table_id: of the update's table.
        column: the column that the known definition lacks; None: the table is not known at all.
        error: what was said of it.
        doubt: the table is known without cdc, by a definition from before the entry was written: cdc may be on by now.
    """

    def __init__(self, table_id: bytes, column: str | None, error: Skippable | None, *, doubt: bool = False) -> None:
        super().__init__(table_id.hex(), column)
        self.table_id = table_id
        self.column = column
        self.error = error
        self.doubt = doubt


class StreamCounts(msgspec.Struct):
    """Counts since the last look; the counters of ``metrics``."""

    entries: int = 0
    updates: int = 0
    events: int = 0
    ignored: int = 0
    unknown: int = 0
    counters: int = 0
    bad: int = 0


class _StreamTable(msgspec.Struct):
    """The handling of a table's updates.

    Attributes:
        definition: of the table.
        events: makes the records; None: updates are passed over.
        captured: whether the table is.
        refused: whether its updates can't be captured.
        deliverable: whether they are passed over only because it has no cdc.
        fast: encodes updates without records, where the runtime agrees.
    """

    definition: CqlTableDefinition
    events: CassandraTableEvents | None
    captured: bool = False
    refused: bool = False
    deliverable: bool = False
    fast: FastEntries | None = None


class CassandraStream:
    """The records of one node's log, in order. Not thread-safe; does not block.

    Args:
        where: partition and node; its other members are changed entry by entry.
        position: what was delivered before; None: nothing.
        definitions: the tables.
        builder: makes the events of a definition, for a version of the log's format.
        log: the task's.
        wire: of the task; None: all updates become records.
    """

    def __init__(
        self,
        where: Where,
        position: LogPosition | None,
        definitions: Definitions,
        builder: Callable[[CqlTableDefinition, int], CassandraTableEvents],
        log: logging.LoggerAdapter[logging.Logger],
        wire: Wire | None = None,
    ) -> None:
        #: What is encoded of the batch under way.
        self.encoded = EncodedParts()
        self._wire = wire
        #: Tables that the runtime was not asked about yet.
        self._new: list[_StreamTable] = []
        #: Whoever reads them puts new ones here.
        self.counts = StreamCounts()
        #: The entry that ``take`` continues with.
        self.number = 0
        #: Up to where the log was taken.
        self.position = position or LogPosition(0)
        #: Whether definitions are newer than what ``take`` is given; else tables without cdc are asked for (``Missing.doubt``).
        self.sure = True
        self._where = where
        self._definitions = definitions
        self._builder = builder
        self._log = log
        self._tables: dict[tuple[int, bytes], _StreamTable] = {}
        #: Tables and columns that have no definition: their updates are passed over.
        self._given_up: set[tuple[bytes, str | None]] = set()
        #: Changes left out by builders that are gone.
        self._skipped = 0

    async def agree(self) -> None:
        """Ask the runtime how updates of tables that came up become bytes. Until then they become records.

        Raises:
            Fatal: a service that a converter needs refuses this client.
        """
        if self._wire is None or not self._new:
            return
        from connectors.cassandra.events.fast_entries import fast_entries

        for table in self._new:
            table.fast = await fast_entries(self._wire, table.events)
            if table.fast is not None:
                self._log.info("%s: updates are written straight to bytes (fast.path)", table.definition)
        self._new.clear()

    def skipped(self) -> int:
        """Changes that the output form has no event for, in all."""
        return self._skipped + sum(
            table.events.skipped.total() for table in self._tables.values() if table.events is not None
        )

    def full_decodes(self) -> int:
        """Updates that the fast decoder left to the complete one, since definitions changed last."""
        return sum(table.events.full_decodes for table in self._tables.values() if table.events is not None)

    def changed(self, ids: set[str]) -> None:
        """Definitions of tables (ids as text) are new or others."""
        changed_ids = {bytes.fromhex(table_id.replace("-", "")) for table_id in ids}
        for key in [key for key in self._tables if key[1] in changed_ids]:
            events = self._tables.pop(key).events
            self._skipped += events.skipped.total() if events is not None else 0
        self._given_up = {table_id for table_id in self._given_up if table_id[0] not in changed_ids}

    def _check_captures(self, segment: int) -> None:
        """Another segment begins: look again at tables whose updates count in only one of the two."""
        changed = {
            table.definition.table_id
            for table in self._tables.values()
            if table.captured != self._definitions.captured(table.definition, segment)
        }
        if changed:
            self.changed(changed)

    def give_up(self, missing: Missing, *, old: bool = False, by_table: bool = False) -> None:
        """Give up looking for the definition that an entry needs: pass such entries over, until ``changed``.

        Args:
            missing: what was asked for.
            old: the entry was there before definitions were read for the first time: its table was dropped before that.
            by_table: it is one of the server's own tables, whose definitions are not saved.
        """
        self._given_up.add((missing.table_id, missing.column))
        if missing.column is None and not by_table:
            self._log.log(
                logging.INFO if old else logging.WARNING,
                "segment %d has mutations of a table that is not known (id %s): it was dropped %s. They are skipped "
                "and counted",
                self._where.segment,
                missing.table_id.hex(),
                "before this connector started" if old else "before its definition could be read",
            )

    def take(self, chunk: LogChunk, first: int, limit: int, out: list[SourceRecord], bad: list[BadRecord]) -> int:
        """Append the records of a chunk's entries from number ``first`` on, until there are ``limit`` or more.

        What the fast path takes is in ``encoded``, in order with the records.

        Returns:
            The number of the entry to continue with; ``len(chunk.entries)``: all are taken.

        Raises:
            Missing: a definition for the entry right after ``self.position``; nothing of the entry was appended. Continue with
                the same entry, whose number is ``self.number``.
        """
        where, log_position = self._where, self.position
        if chunk.segment != log_position.segment:
            log_position = LogPosition(chunk.segment)
        if chunk.segment != where.segment:
            self._check_captures(chunk.segment)
        where.segment, where.version = chunk.segment, chunk.version
        where.read_ms = time.time_ns() // 1_000_000
        data, entries = chunk.data, chunk.entries
        counts = self.counts
        number = first
        # What was delivered of an entry counts only if the entry comes again.
        before, done = log_position.position, 0 if chunk.lost is not None else log_position.done
        self.number = number
        total = len(entries)
        tables, version, encoded = self._tables, chunk.version, self.encoded
        try:
            while number < total and (room := limit - len(out) - encoded.count) > 0:
                start, end, position = entries[number]
                if position <= before:
                    number += 1
                    continue
                # Where the table id is as a rule: behind a count of one byte. What is not of this kind goes the long way.
                table = tables.get((version, data[start + 1 : start + _BEHIND_ID]))
                if table is not None and table.events is not None and not done:
                    chosen = entries[number : number + room]
                    fast = table.fast
                    passed = 0 if fast is None else fast.take(data, chosen, where, len(out), encoded)
                    passed = passed or table.events.entries(data, chosen, where, out)
                    if passed:
                        number += passed
                        before = entries[number - 1][2]
                        counts.events += passed
                        counts.updates += passed
                        counts.entries += passed
                        continue
                where.before, where.position, where.done = before, position, 0
                record_count = len(out)
                try:
                    self._take_entry(data, start, end, out, bad)
                except Missing:
                    del out[record_count:]
                    raise
                if done:
                    del out[record_count : record_count + done]
                    done = 0
                counts.events += len(out) - record_count
                counts.entries += 1
                before = position
                number += 1
        finally:
            self.number = number
            self.position = LogPosition(chunk.segment, before, done)
        if number == total:
            self.position = LogPosition(chunk.segment, max(before, chunk.position), done, chunk.finished)
        return number

    def _take_entry(self, data: bytes, start: int, end: int, out: list[SourceRecord], bad: list[BadRecord]) -> None:
        where = self._where
        version = where.version
        identity = b""
        try:
            count, at = read_mutation_head(data, start, version)
            while count > 0 and at < end:
                count -= 1
                identity = data[at : at + TABLE_ID_BYTES]
                table = self._tables.get((version, identity)) or self._make_table(version, identity)
                if table is None:
                    if count:
                        # Without a definition the end of the update is unknown: continue at the next captured table's update.
                        at = self._captured_behind(data, at + TABLE_ID_BYTES, end)
                        if at < 0:
                            return
                        count = _UNCOUNTED
                elif table.events is not None:
                    self.counts.updates += 1
                    where.last = count == 0
                    record_count = len(out)
                    at = table.events.update(data, at, None if count else end, where, out)
                    if at > end or (at < end and count == 0):
                        del out[record_count:]
                        self._report_bad(
                            data,
                            start,
                            end,
                            bad,
                            Skippable(f"the mutation has {end - start} bytes, its updates have {at - start}"),
                            identity,
                        )
                        return
                else:
                    if table.deliverable and not self.sure:
                        raise Missing(identity, None, None, doubt=True)
                    if table.refused:
                        self.counts.counters += 1
                    else:
                        self.counts.ignored += 1
                    if count:
                        at = skip_update(data, at, table.definition, version)
        except UnknownColumn as error:
            if (identity, error.column) not in self._given_up:
                raise Missing(identity, error.column, error) from None
            self._report_bad(data, start, end, bad, error, identity)
        except Skippable as error:
            self._report_bad(data, start, end, bad, error, identity)
        except (IndexError, ValueError, OverflowError) as error:
            self._report_bad(data, start, end, bad, Skippable(f"the mutation can't be read: {error!r}"), identity)

    def _captured_behind(self, data: bytes, at: int, end: int) -> int:
        """Return where the first update of a captured table begins behind ``at``; -1: there is no such update.

        Ids are random enough (time and node) that their 16 bytes are not met by chance.
        """
        ids = [
            bytes.fromhex(identity.table_id.replace("-", ""))
            for identity in self._definitions.list_known_tables()
            if self._definitions.captured(identity, self._where.segment)
        ]
        return min((offset for identity in ids if (offset := data.find(identity, at, end)) >= 0), default=-1)

    def _make_table(self, version: int, identity: bytes) -> _StreamTable | None:
        definition = self._definitions.by_id(identity)
        if definition is None:
            if (identity, None) not in self._given_up:
                raise Missing(identity, None, None)
            self.counts.unknown += 1
            return None
        captured = self._definitions.captured(definition, self._where.segment)
        refused = self._definitions.is_refused(definition)
        events = self._builder(definition, version) if captured else None
        deliverable = not captured and self._definitions.is_deliverable(definition)
        table = self._tables[version, identity] = _StreamTable(definition, events, captured, refused, deliverable)
        if events is not None and self._wire is not None:
            self._new.append(table)
        return table

    def _report_bad(
        self, data: bytes, start: int, end: int, bad: list[BadRecord], error: Exception, identity: bytes
    ) -> None:
        where = self._where
        self.counts.bad += 1
        table = self._tables.get((where.version, identity))
        location = f"node {where.node}, segment {where.segment}, position {where.position}"
        topic = table.events.topic if table is not None and table.events is not None else None
        bad.append(
            BadRecord(
                where.partition,
                where.ended(),
                Skippable(f"{location}: {error}"),
                data[start : min(end, start + _RAW_BYTES)],
                topic,
            )
        )
