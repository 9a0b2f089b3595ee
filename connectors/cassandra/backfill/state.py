"""A snapshot's state as text: a restart resumes from it, and REST shows it. Pure functions."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from connectors.api import SNAPSHOT_ENDED
from connectors.cql.token_ranges import TokenRange, size, subtract
from connectors.snapshot.state import SnapshotNote, SnapshotTable, estimates, pack, shown_note, shown_state, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class TableNote(SnapshotTable, kw_only=True, omit_defaults=True):
    """A task's share of one table of a request.

    Attributes:
        keyspace, table: its name.
        table_id: the server's id of it: a table that was recreated is read from the start.
        bad: rows that could not be decoded.
        left: tokens that are left; None: all of the share.
        saved_ms: milliseconds since 1970; 0: not yet.
    """

    keyspace: str
    table: str
    table_id: str = ""
    bad: int = 0
    left: list[tuple[int, int, str]] | None = None
    saved_ms: int = 0

    @property
    def name(self) -> str:
        """``keyspace.table``."""
        return f"{self.keyspace}.{self.table}"


PullNote = SnapshotNote[TableNote]


def text(note: PullNote) -> str:
    """For an offset."""
    return pack(note)


def parse(value: Any) -> PullNote:
    """See ``text``.

    Raises:
        ValueError: it can't be read.
    """
    return unpack(value, PullNote, "state of a backfill")


def shown(request: str, value: Any) -> dict[str, Any]:
    """Show a task's share, from its saved text, as REST does.

    Raises:
        ValueError: it can't be read.
    """
    return progress(request, parse(value))


def progress(request: str, note: PullNote) -> dict[str, Any]:
    """Show a request."""
    tables = [_members(table) for table in note.tables]
    return shown_note(request, note, state=shown_state(note.state), percent=percent(note), tables=tables)


def _members(note: TableNote) -> dict[str, Any]:
    seconds = ((note.finished_ms or note.saved_ms) - note.started_ms) / 1000 if note.started_ms else 0.0
    done, running = note.stage == "done", note.stage == "running"
    return {
        "table": note.name,
        "bad": note.bad,
        **estimates(note.rows, note.percent, seconds, done=done, running=running),
    }


def percent(note: PullNote) -> float:
    """How much of a request is done: the mean of its tables."""
    if note.state == "done":
        return 100.0
    parts = [each.percent if each.open else 100.0 for each in note.tables]
    return sum(parts) / len(parts) if parts else 0.0


def newest(parts: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of the saved offsets of a request by shard (``i/n``) those of one division among tasks, one per shard.

    It is one that has come to its end, else the one that was worked at last. A shard that has saved nothing yet is waiting.
    """
    divisions: dict[int, list[Mapping[str, Any]]] = {}
    for shard, offset in parts.items():
        with suppress(ValueError):
            divisions.setdefault(count_of(shard), []).append(offset)
    if not divisions:
        return []
    count = max(divisions, key=lambda each: (_over(divisions[each], each), max(map(_saved, divisions[each])), each))
    return [parts.get(f"{index}/{count}", {"state": "waiting"}) for index in range(count)]


def count_of(shard: str) -> int:
    """How many shards there are, from ``i/n``.

    Raises:
        ValueError: it is none.
    """
    index, _, count = shard.partition("/")
    if not 0 <= int(index) < int(count):
        raise ValueError(f"{shard!r} is no share of a backfill")
    return int(count)


def note_of(offset: Mapping[str, Any]) -> PullNote | None:
    """The note in a saved offset; None if there is none that can be read."""
    value = offset.get("progress")
    with suppress(ValueError):
        return parse(value) if isinstance(value, str) else None
    return None


def _saved(offset: Mapping[str, Any]) -> int:
    note = note_of(offset)
    return note.saved_ms if note is not None else 0


def _over(offsets: Sequence[Mapping[str, Any]], count: int) -> bool:
    return len(offsets) == count and all(each.get("state") in SNAPSHOT_ENDED for each in offsets)


def over(parts: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether all shards of one division have come to their end."""
    found = newest(parts)
    return bool(found) and _over(found, len(found))


def ended(parts: Mapping[str, Mapping[str, Any]], shard: tuple[int, int]) -> PullNote:
    """The note of a share of a request that another number of tasks has brought to its end (``over``)."""
    division = newest(parts)
    states = {str(each.get("state")) for each in division}
    notes = [note for each in division if (note := note_of(each)) is not None]
    result = PullNote(
        state="failed" if "failed" in states else "cancelled" if "cancelled" in states else "done",
        started_ms=min((each.started_ms for each in notes if each.started_ms), default=0),
        finished_ms=max((each.finished_ms for each in notes), default=0),
    )
    tables = {(each.keyspace, each.table, each.table_id): each.stage for note in notes for each in note.tables}
    for (keyspace, name, table_id), stage in tables.items():
        rows, began = counted(parts, table_id, shard)
        result.tables.append(
            TableNote(
                keyspace=keyspace,
                table=name,
                table_id=table_id,
                stage=stage,
                rows=rows,
                started_ms=began,
                finished_ms=result.finished_ms,
            )
        )
    return result


def left_of(note: TableNote, whole: TokenRange) -> list[TokenRange]:
    """The tokens of a task's share that its note leaves."""
    if note.stage in {"done", "vanished"}:
        return []
    return [whole] if note.left is None else [TokenRange(*each) for each in note.left]


def inherited(whole: TokenRange, notes: Iterable[tuple[TokenRange, TableNote]]) -> list[TokenRange]:
    """What of a new share is left after what other divisions of the table among tasks have done: (their share, their note)."""
    return subtract_read([whole], notes)


def subtract_read(left: list[TokenRange], notes: Iterable[tuple[TokenRange, TableNote]]) -> list[TokenRange]:
    """``left`` without what other divisions of the table among tasks have done: (their share, their note)."""
    for other, note in notes:
        left = subtract(left, subtract([other], left_of(note, other)))
    return left


def counted(parts: Mapping[str, Mapping[str, Any]], table_id: str, shard: tuple[int, int]) -> tuple[int, int]:
    """Rows that count for a new share, of those that the last other division among tasks has read; and when that began (ms).

    Which tokens had how many rows is not known: the new shares have them evenly.
    """
    index, count = shard
    others = newest({part: offset for part, offset in parts.items() if not part.endswith(f"/{count}")})
    notes = [
        table
        for offset in others
        if (note := note_of(offset)) is not None
        for table in note.tables
        if table.table_id == table_id
    ]
    rows = sum(each.rows for each in notes)
    began = min((each.started_ms for each in notes if each.started_ms), default=0)
    return rows // count + (rows % count if index == 0 else 0), began


def done_percent(left: Iterable[TokenRange], whole: TokenRange) -> float:
    """How much of a share is done, 0 to 100."""
    return 100.0 * (1 - size(left) / size([whole]))
