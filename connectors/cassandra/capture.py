"""Up to where in a node's log the updates of each table count. Pure, no I/O.

Whether an update counts follows from its place in the log, never from what the table is like when the update is read: a log
may be read days later, and by a task that has just started. The rule:

- A table with ``cdc = true`` counts without limit, and so does one that was dropped with it.
- A table that had cdc and has it no more counts up to its *last segment*: the newest segment that the node had made when all
  nodes had agreed for a while that cdc is off. Every update that was written with cdc is in that segment or before it. The
  segments up to there may also hold a few updates that were written without cdc; they count too, since a log does not tell
  them apart.
- A table of which it is known that it never had cdc does not count.

Why *all* nodes: whether a write has cdc is decided by the node whose log it is in, by the schema which that node has. A task
does not know which address of the cluster belongs to its directory, so any node may be its own. A node that is down writes no
segments, but when it is back it writes by the schema that it had, until it has learned the newer one. So a node that is down or
keeps an old schema holds the last segment up: no change is lost by that, only changes without cdc keep coming. ``waiting``
names the tables, and the task warns with the nodes' names.

The last segment is saved with the table's definition, and with the time of the table's last ALTER: it holds as long as there is
no other ALTER, which may have turned cdc on for a while. Without a last segment the table counts without limit, and one that is
chosen later is never an earlier one: so no order of crashes, restarts and changes of the definition loses an update.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: How long all nodes must have agreed that a table's cdc is off: by then no write that began with cdc is under way.
SETTLED_MS: Final = 10_000


class Capture(NamedTuple):
    """The known state of a table's cdc.

    Attributes:
        now: the table has ``cdc = true``.
        ever: it has or had it.
        last_segment: id of the last segment of the task's node that may hold updates written with cdc; None: no limit is known.
        altered_us: when the table was created or altered last, by the cluster's clock; 0: not known.
        again_us: when cdc was found to be on again after it had been off: the table's ALTER then; 0: never.
    """

    now: bool = False
    ever: bool = False
    last_segment: int | None = None
    altered_us: int = 0
    again_us: int = 0

    def counts(self, segment: int | None = None) -> bool:
        """Whether updates in a segment are delivered; without a segment: whether updates in any are."""
        if self.now:
            return True
        return self.ever and (segment is None or self.last_segment is None or segment <= self.last_segment)


NEVER: Final = Capture()


class Captures:
    """The known state of all tables' cdc, by table id (16 bytes)."""

    def __init__(self) -> None:
        self._captures: dict[bytes, Capture] = {}
        #: Tables that had cdc and have no last segment yet: since when their cdc is known to be off, ms since 1970.
        self._off_since: dict[bytes, int] = {}
        #: The same tables: since when they wait for their last segment, whatever the nodes did since.
        self._waiting: dict[bytes, int] = {}

    def of(self, table_id: bytes) -> Capture:
        """Return the known state of a table's cdc."""
        return self._captures.get(table_id, NEVER)

    def remember(self, table_id: bytes, saved: Capture) -> None:
        """Take what was saved before; what the cluster has said since counts more."""
        self._captures.setdefault(table_id, saved)

    def observe(self, table_id: bytes, *, cdc: bool, altered_us: int, listed: bool, created: bool, now_ms: int) -> bool:
        """Take note of a table's definition as the cluster has it.

        Args:
            table_id: of the table.
            cdc: whether it has cdc now.
            altered_us: when it was created or altered last.
            listed: whether the include list names it: then an ALTER that no task saw may have changed its cdc.
            created: whether it is as it was created: no ALTER since.
            now_ms: ms since 1970.

        Returns:
            Whether more of its updates count now than before.
        """
        before = self._captures.get(table_id)
        if cdc:
            again_us = 0 if before is None else altered_us if before.ever and not before.now else before.again_us
            self._captures[table_id] = Capture(now=True, ever=True, altered_us=altered_us, again_us=again_us)
            self._off_since.pop(table_id, None)
            self._waiting.pop(table_id, None)
            return before is None or not before.now
        if before is None:
            altered, before = not created, NEVER
        else:
            altered = before.altered_us not in (0, altered_us)
        ever = before.ever or (listed and altered)
        last_segment = None if altered else before.last_segment
        self._captures[table_id] = Capture(
            ever=ever, last_segment=last_segment, altered_us=altered_us, again_us=before.again_us
        )
        if ever and last_segment is None and (altered or table_id not in self._off_since):
            self._off_since[table_id] = now_ms
            self._waiting.setdefault(table_id, now_ms)
        return (ever, last_segment) != (before.ever, before.last_segment)

    def disturb(self, now_ms: int) -> None:
        """Nodes disagree, or the schema has changed: the time in which all must agree begins again."""
        self._off_since = dict.fromkeys(self._off_since, now_ms)

    def settled(self, now_ms: int) -> dict[bytes, int]:
        """Tables that can get their last segment now, if all nodes agree; and since when their cdc is known to be off."""
        return {key: since for key, since in self._off_since.items() if now_ms - since >= SETTLED_MS}

    def waiting(self, until_ms: int) -> list[bytes]:
        """Tables whose cdc was off at ``until_ms`` (ms since 1970) and which have no last segment yet."""
        return [key for key, since in self._waiting.items() if since <= until_ms]

    def end(self, settled: Mapping[bytes, int], newest_segment: int) -> list[bytes]:
        """Set the last segment of tables.

        Args:
            settled: what ``settled`` gave; a table whose definition has changed since then is left out.
            newest_segment: id of the newest segment that the node had made after ``settled`` was asked.

        Returns:
            The tables that got it.
        """
        ended = [key for key, since in settled.items() if self._off_since.get(key) == since]
        for key in ended:
            del self._off_since[key], self._waiting[key]
            self._captures[key] = self._captures[key]._replace(last_segment=newest_segment)
        return ended


def waiting_text(tables: Sequence[str], nodes: Sequence[str]) -> str:
    """The warning about nodes that prevent tables from getting their last segment. Pure."""
    return (
        f"cdc of {', '.join(tables)} is off, but {', '.join(nodes)} has another version of the schema than the other nodes "
        "(it is down, or does not learn the change), so changes without cdc keep coming. Start the node, or if it is gone "
        "for good remove it: nodetool removenode. If it runs: nodetool describecluster shows the versions, and nodetool "
        "resetlocalschema or a restart lets the node learn the schema"
    )
