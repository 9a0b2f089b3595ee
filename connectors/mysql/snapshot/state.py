"""A snapshot's state as text: what a restart resumes from, and what REST shows. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connectors.mysql.position import start
from connectors.mysql.snapshot.model import Key  # noqa: TC001 - msgspec reads the annotations at run time
from connectors.snapshot.requests import STATE
from connectors.snapshot.state import SnapshotNote, SnapshotTable, shown_note, unpack
from connectors.snapshot.views import views

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import Instruction, Position


class MySqlTableNote(SnapshotTable, kw_only=True, omit_defaults=True):
    """One table of a request.

    Attributes:
        database, table: its name.
        superseded: rows left out because the stream had something newer.
        chunks: sent so far.
        total: estimated rows; None: unknown yet.
        keyless: whether it has no key, and so is read at once.
        columns: names of the columns of the order in which it is read; the next two are of no use with others.
        after: the key up to which it is done.
        until: where it ends: the largest key when the snapshot started.
        low: the least number of an integer key, then.
    """

    database: str
    table: str
    superseded: int = 0
    chunks: int = 0
    total: int | None = None
    keyless: bool = False
    columns: tuple[str, ...] = ()
    after: Key | None = None
    until: Key | None = None
    low: int | None = None


MySqlShareNote = SnapshotNote[MySqlTableNote]


def unpack_note(value: Any) -> MySqlShareNote:
    """A share's state from its saved text.

    Raises:
        ValueError: it is no state of a snapshot.
    """
    return unpack(value, MySqlShareNote, "state of a snapshot")


def show_progress(request: str, note: MySqlShareNote) -> dict[str, Any]:
    """Return the JSON object that REST shows for a request, from its state alone; see ``MySqlSnapshotReader.progress``."""
    tables = [
        {
            "table": f"{table.database}.{table.table}",
            "rows_total": table.total,
            "superseded": table.superseded,
            "chunks": table.chunks,
        }
        for table in note.tables
    ]
    return shown_note(request, note, state=note.state, percent=percent_done(note), tables=tables)


def list_snapshots(
    prefix: str, instructions: Sequence[Instruction], offsets: Sequence[tuple[Position, Position]]
) -> list[dict[str, Any]]:
    """All snapshots: those that were asked for, and what tasks have saved of them and of others; the oldest first."""
    saved: dict[str, dict[str, Mapping[str, Any]]] = {}
    for partition, offset in offsets:
        request = partition.get(start.SNAPSHOT)
        if partition.get(start.SERVER) == prefix and isinstance(request, str):
            saved.setdefault(request, {})[str(partition.get(start.SHARD) or "0/1")] = offset
    shares = {request: _complete_shares(parts) for request, parts in saved.items()}
    return views(instructions, shares, lambda name, value: show_progress(name, unpack_note(value)))


def _complete_shares(parts: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The shares of a request, by ``INDEX/COUNT``, with those of which nothing is saved yet: they wait."""
    counts = {part.partition("/")[2] for part in parts}
    missing = []
    if len(counts) == 1 and (count := counts.pop()).isdecimal():
        missing = [index for index in range(int(count)) if f"{index}/{count}" not in parts]
    return [*parts.values(), *({STATE: "waiting"} for _ in missing)]


def percent_done(note: MySqlShareNote) -> float:
    """How much of a request is done, by rows; tables of unknown size count as much as the average of the others."""
    if note.state == "done":
        return 100.0
    known_totals = [table.total for table in note.tables if table.total is not None]
    usual = max(1.0, sum(known_totals) / len(known_totals)) if known_totals else 1.0
    sizes = [max(1.0, float(table.total)) if table.total is not None else usual for table in note.tables]
    parts = [100.0 if not table.open else table.percent for table in note.tables]
    return sum(size * part for size, part in zip(sizes, parts, strict=True)) / sum(sizes) if sizes else 0.0
