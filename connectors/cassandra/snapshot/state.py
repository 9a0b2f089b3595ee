"""A snapshot's state as text: a restart resumes from it, and REST shows it. Pure functions."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from connectors.api import SNAPSHOT_ENDED
from connectors.cql.token_ranges import TokenRange, count_tokens, subtract_ranges
from connectors.snapshot.state import SnapshotNote, SnapshotTable, estimate_table, shown_note, shown_state, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class CassandraTableNote(SnapshotTable, kw_only=True, omit_defaults=True):
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


CassandraShareNote = SnapshotNote[CassandraTableNote]


def unpack_note(value: Any) -> CassandraShareNote:
    """A share's state from its saved text.

    Raises:
        ValueError: it can't be read.
    """
    return unpack(value, CassandraShareNote, "state of a snapshot")


def show_share(request: str, value: Any) -> dict[str, Any]:
    """Show a task's share, from its saved text, as REST does.

    Raises:
        ValueError: it can't be read.
    """
    return show_progress(request, unpack_note(value))


def show_progress(request: str, note: CassandraShareNote) -> dict[str, Any]:
    """Show a request."""
    tables = [_show_table(table) for table in note.tables]
    return shown_note(request, note, state=shown_state(note.state), percent=percent_done(note), tables=tables)


def _show_table(note: CassandraTableNote) -> dict[str, Any]:
    seconds = ((note.finished_ms or note.saved_ms) - note.started_ms) / 1000 if note.started_ms else 0.0
    done, running = note.stage == "done", note.stage == "running"
    return {
        "table": note.name,
        "bad": note.bad,
        **estimate_table(note.rows, note.percent, seconds, done=done, running=running),
    }


def percent_done(note: CassandraShareNote) -> float:
    """How much of a request is done: the mean of its tables."""
    if note.state == "done":
        return 100.0
    parts = [table.percent if table.open else 100.0 for table in note.tables]
    return sum(parts) / len(parts) if parts else 0.0


def newest_division(parts: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of the saved offsets of a request by shard (``i/n``) those of one division among tasks, one per shard.

    It is one that has come to its end, else the one that was worked at last. A shard that has saved nothing yet is waiting.
    """
    divisions: dict[int, list[Mapping[str, Any]]] = {}
    for shard, offset in parts.items():
        with suppress(ValueError):
            divisions.setdefault(count_of(shard), []).append(offset)
    if not divisions:
        return []
    count = max(
        divisions,
        key=lambda shard_count: (
            _is_complete(divisions[shard_count], shard_count),
            max(map(_saved_ms, divisions[shard_count])),
            shard_count,
        ),
    )
    return [parts.get(f"{index}/{count}", {"state": "waiting"}) for index in range(count)]


def count_of(shard: str) -> int:
    """Return the number of shards, from ``i/n``.

    Raises:
        ValueError: the string is not of this form.
    """
    index, _, count = shard.partition("/")
    if not 0 <= int(index) < int(count):
        raise ValueError(f"{shard!r} is no share of a snapshot")
    return int(count)


def note_of(offset: Mapping[str, Any]) -> CassandraShareNote | None:
    """The note in a saved offset; None if there is no note or it can't be read."""
    value = offset.get("progress")
    with suppress(ValueError):
        return unpack_note(value) if isinstance(value, str) else None
    return None


def _saved_ms(offset: Mapping[str, Any]) -> int:
    note = note_of(offset)
    return note.saved_ms if note is not None else 0


def _is_complete(offsets: Sequence[Mapping[str, Any]], count: int) -> bool:
    return len(offsets) == count and all(offset.get("state") in SNAPSHOT_ENDED for offset in offsets)


def is_over(parts: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether all shards of one division have come to their end."""
    division = newest_division(parts)
    return bool(division) and _is_complete(division, len(division))


def ended_note(parts: Mapping[str, Mapping[str, Any]], shard: tuple[int, int]) -> CassandraShareNote:
    """The note of a share of a request that another number of tasks has brought to its end (``is_over``)."""
    division = newest_division(parts)
    states = {str(saved_note.get("state")) for saved_note in division}
    notes = [note for saved_note in division if (note := note_of(saved_note)) is not None]
    result = CassandraShareNote(
        state="failed" if "failed" in states else "cancelled" if "cancelled" in states else "done",
        started_ms=min((saved_note.started_ms for saved_note in notes if saved_note.started_ms), default=0),
        finished_ms=max((saved_note.finished_ms for saved_note in notes), default=0),
    )
    tables = {
        (saved_note.keyspace, saved_note.table, saved_note.table_id): saved_note.stage
        for note in notes
        for saved_note in note.tables
    }
    for (keyspace, name, table_id), stage in tables.items():
        rows, began = count_inherited(parts, table_id, shard)
        result.tables.append(
            CassandraTableNote(
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


def left_of(note: CassandraTableNote, whole: TokenRange) -> list[TokenRange]:
    """The tokens of a task's share that its note leaves."""
    if note.stage in {"done", "vanished"}:
        return []
    return [whole] if note.left is None else [TokenRange(*bounds) for bounds in note.left]


def inherited_ranges(whole: TokenRange, notes: Iterable[tuple[TokenRange, CassandraTableNote]]) -> list[TokenRange]:
    """Return what is left of a new share after the reading of other numbers of tasks: (their share, their note)."""
    return subtract_read([whole], notes)


def subtract_read(left: list[TokenRange], notes: Iterable[tuple[TokenRange, CassandraTableNote]]) -> list[TokenRange]:
    """``left`` without what other divisions of the table among tasks have done: (their share, their note)."""
    for other_note, note in notes:
        left = subtract_ranges(left, subtract_ranges([other_note], left_of(note, other_note)))
    return left


def count_inherited(parts: Mapping[str, Mapping[str, Any]], table_id: str, shard: tuple[int, int]) -> tuple[int, int]:
    """Rows that count for a new share, of those that the last other division among tasks has read; and when that began (ms).

    Which tokens had how many rows is not known: the new shares have them evenly.
    """
    index, count = shard
    others = newest_division({part: offset for part, offset in parts.items() if not part.endswith(f"/{count}")})
    notes = [
        table
        for offset in others
        if (note := note_of(offset)) is not None
        for table in note.tables
        if table.table_id == table_id
    ]
    rows = sum(table_note.rows for table_note in notes)
    began = min((table_note.started_ms for table_note in notes if table_note.started_ms), default=0)
    return rows // count + (rows % count if index == 0 else 0), began


def done_percent(left: Iterable[TokenRange], whole: TokenRange) -> float:
    """How much of a share is done, 0 to 100."""
    return 100.0 * (1 - count_tokens(left) / count_tokens([whole]))
