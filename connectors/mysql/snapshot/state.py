"""A full pull's state as text: what a restart goes on from, and what REST shows. Pure functions."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from connectors.mysql.snapshot.model import Key, TableStage  # noqa: TC001 - msgspec reads the annotations at run time
from connectors.pull_views import pack, unpack

#: States of a request that stay.
FINAL: Final = frozenset({"done", "cancelled", "failed"})


class TableNote(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One table of a request.

    Attributes:
        database, table: its name.
        stage: how it stands.
        rows: read so far, all of the task's.
        superseded: of them left out because the stream had something newer.
        chunks: sent so far.
        total: estimated rows; None: unknown yet.
        percent: done, 0 to 100.
        started_ms, finished_ms: milliseconds since 1970; 0: not yet.
        error: why it was given up, or what is being tried again.
        keyless: whether it has no key, and so is read at once.
        columns: names of the columns of the order in which it is read; the next two are of no use with others.
        after: the last place done.
        until: where it ends: the largest key when the pull began.
        low: the least number of an integer key, then.
    """

    database: str
    table: str
    stage: TableStage = "waiting"
    rows: int = 0
    superseded: int = 0
    chunks: int = 0
    total: int | None = None
    percent: float = 0.0
    started_ms: int = 0
    finished_ms: int = 0
    error: str = ""
    keyless: bool = False
    columns: tuple[str, ...] = ()
    after: Key | None = None
    until: Key | None = None
    low: int | None = None


class PullNote(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One request.

    Attributes:
        state: ``done``, ``cancelled`` and ``failed`` are final.
        error: why it failed.
        started_ms, finished_ms: milliseconds since 1970; 0: not yet.
        resolved: whether ``tables`` are known.
        tables: in the order in which they are read.
    """

    state: Literal["waiting", "running", "paused", "done", "cancelled", "failed"] = "waiting"
    started_ms: int = 0
    finished_ms: int = 0
    resolved: bool = False
    error: str = ""
    tables: list[TableNote] = msgspec.field(default_factory=list)


def text(note: PullNote) -> str:
    """For an offset."""
    return pack(note)


def parse(value: str) -> PullNote:
    """See ``text``.

    Raises:
        ValueError: it is no state of a full pull.
    """
    return unpack(value, PullNote, "state of a full pull")


def progress(request: str, note: PullNote) -> dict[str, Any]:
    """What REST shows of a request, from its state alone; see ``Puller.progress`` for the fields."""
    tables = [
        {
            "table": f"{table.database}.{table.table}",
            "state": table.stage,
            "rows_total": table.total,
            "rows_done": table.rows,
            "superseded": table.superseded,
            "chunks": table.chunks,
            "percent": round(table.percent, 2),
            "started_ms": table.started_ms or None,
            "finished_ms": table.finished_ms or None,
            "error": table.error or None,
        }
        for table in note.tables
    ]
    return {
        "id": request,
        "state": note.state,
        "started_ms": note.started_ms or None,
        "finished_ms": note.finished_ms or None,
        "percent": round(percent(note), 2),
        "error": note.error or None,
        "tables": tables,
    }


def percent(note: PullNote) -> float:
    """How much of a request is done, by rows; tables of unknown size count as much as the average of the others."""
    if note.state == "done":
        return 100.0
    known = [table.total for table in note.tables if table.total is not None]
    usual = max(1.0, sum(known) / len(known)) if known else 1.0
    sizes = [max(1.0, float(table.total)) if table.total is not None else usual for table in note.tables]
    parts = [100.0 if table.stage not in {"waiting", "running"} else table.percent for table in note.tables]
    return sum(size * part for size, part in zip(sizes, parts, strict=True)) / sum(sizes) if sizes else 0.0
