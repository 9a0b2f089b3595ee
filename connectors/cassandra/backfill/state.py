"""A backfill's state as text: what a restart goes on from, and what REST shows. Pure functions."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from connectors.api import SNAPSHOT_ENDED
from connectors.cassandra.backfill.ranges import Span, size, subtract
from connectors.pull_views import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: States of a request that stay.
FINAL: Final = frozenset({"done", "cancelled", "failed"})
#: Less than this of a table does not tell how many rows it has.
_TELLING_PERCENT: Final = 1.0

TableStage = Literal["waiting", "running", "done", "vanished", "failed"]


class TableNote(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A task's share of one table of a request.

    Attributes:
        keyspace, table: its name.
        table_id: the server's id of it: a table made anew is read from the beginning.
        stage: how it stands.
        rows: sent so far.
        bad: rows that could not be decoded.
        percent: of the tokens done, 0 to 100.
        left: tokens that are left; None: all of the share.
        started_ms, finished_ms, saved_ms: ms since 1970; 0: not yet.
        error: why it was given up, or what is being tried again.
    """

    keyspace: str
    table: str
    table_id: str = ""
    stage: TableStage = "waiting"
    rows: int = 0
    bad: int = 0
    percent: float = 0.0
    left: list[tuple[int, int, str]] | None = None
    started_ms: int = 0
    finished_ms: int = 0
    saved_ms: int = 0
    error: str = ""

    @property
    def name(self) -> str:
        """``keyspace.table``."""
        return f"{self.keyspace}.{self.table}"


class PullNote(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A task's share of one request.

    Attributes:
        state: ``done``, ``cancelled`` and ``failed`` are final.
        error: why it failed.
        started_ms, finished_ms, saved_ms: ms since 1970; 0: not yet.
        resolved: whether ``tables`` are known.
        tables: in the order in which they are read.
    """

    state: Literal["waiting", "running", "paused", "done", "cancelled", "failed"] = "waiting"
    started_ms: int = 0
    finished_ms: int = 0
    saved_ms: int = 0
    resolved: bool = False
    error: str = ""
    tables: list[TableNote] = msgspec.field(default_factory=list)


def text(note: PullNote) -> str:
    """For an offset."""
    return pack(note)


def parse(value: str) -> PullNote:
    """See ``text``.

    Raises:
        ValueError: it is no state of a backfill.
    """
    return unpack(value, PullNote, "state of a backfill")


def state_of(note: PullNote) -> str:
    """The state as it is saved beside the text, and shown."""
    return "completed" if note.state == "done" else note.state


def shown(request: str, value: str) -> dict[str, Any]:
    """What REST shows of a task's share, from its saved text.

    Raises:
        ValueError: it is no state of a backfill.
    """
    return progress(request, parse(value))


def progress(request: str, note: PullNote) -> dict[str, Any]:
    """What is shown of a request."""
    return {
        "id": request,
        "state": state_of(note),
        "started_ms": note.started_ms or None,
        "finished_ms": note.finished_ms or None,
        "percent": round(percent(note), 2),
        "error": note.error or None,
        "tables": [_table(each) for each in note.tables],
    }


def _table(note: TableNote) -> dict[str, Any]:
    known = note.percent >= _TELLING_PERCENT
    seconds = ((note.finished_ms or note.saved_ms) - note.started_ms) / 1000 if note.started_ms else 0.0
    running = note.stage == "running"
    return {
        "table": note.name,
        "state": note.stage,
        "rows_done": note.rows,
        "bad": note.bad,
        "rows_total": note.rows if note.stage == "done" else round(note.rows * 100 / note.percent) if known else None,
        "percent": round(note.percent, 2),
        "rows_per_s": round(note.rows / seconds, 1) if seconds > 0 else None,
        "eta_s": round(seconds * (100 - note.percent) / note.percent, 1) if running and known and seconds > 0 else None,
        "started_ms": note.started_ms or None,
        "finished_ms": note.finished_ms or None,
        "error": note.error or None,
    }


def percent(note: PullNote) -> float:
    """How much of a request is done: the mean of its tables."""
    if note.state == "done":
        return 100.0
    parts = [100.0 if each.stage not in {"waiting", "running"} else each.percent for each in note.tables]
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


def left_of(note: TableNote, whole: Span) -> list[Span]:
    """The tokens of a task's share that its note leaves."""
    if note.stage in {"done", "vanished"}:
        return []
    return [whole] if note.left is None else [Span(*each) for each in note.left]


def inherited(whole: Span, notes: Iterable[tuple[Span, TableNote]]) -> list[Span]:
    """What of a new share is left after what other divisions of the table among tasks have done: (their share, their note)."""
    return subtract_read([whole], notes)


def subtract_read(left: list[Span], notes: Iterable[tuple[Span, TableNote]]) -> list[Span]:
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


def done_percent(left: Iterable[Span], whole: Span) -> float:
    """How much of a share is done, 0 to 100."""
    return 100.0 * (1 - size(left) / size([whole]))
