"""The state of a task's share of a snapshot: how it is saved, and how it is shown. Pure.

A restart resumes from the saved text (``pack``), and REST, the progress topic and metrics show the same of it. What is saved
says ``done``, as it always did; shown is ``completed``.
"""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

Stage = Literal["waiting", "running", "done", "vanished", "failed", "elsewhere"]

#: Saved states of a request that stay.
FINAL: Final = frozenset({"done", "cancelled", "failed"})
#: Saved stages of a table that is not over.
OPEN: Final = frozenset({"waiting", "running"})
#: The stage of a table that is another task's: it is not shown.
ELSEWHERE: Final = "elsewhere"
_SHOWN: Final = {"done": "completed", "vanished": "completed"}
#: Less than this of a table does not tell how many rows it has.
_TELLING_PERCENT: Final = 1.0
_PACKED: Final = "z:"
_LONG: Final = 4_000


def shown_state(state: str) -> str:
    """The state of a snapshot or a table as it is shown."""
    return _SHOWN.get(state, state)


class SnapshotTable(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A task's share of one table of a request.

    Attributes:
        stage: how far it is.
        rows: of the task, read so far.
        percent: done, 0 to 100.
        started_ms, finished_ms: milliseconds since 1970; 0: not yet.
        error: why it was given up, or what is being retried.
    """

    stage: Stage = "waiting"
    rows: int = 0
    percent: float = 0.0
    started_ms: int = 0
    finished_ms: int = 0
    error: str = ""

    @property
    def open(self) -> bool:
        """Whether it is not over."""
        return self.stage in OPEN


Table = TypeVar("Table", bound=SnapshotTable)


class SnapshotNote(msgspec.Struct, Generic[Table], kw_only=True, omit_defaults=True):
    """A task's share of one request.

    Attributes:
        state: see ``FINAL``.
        error: why it failed.
        started_ms, finished_ms, saved_ms: milliseconds since 1970; 0: not yet, or not known.
        resolved: whether ``tables`` are known.
        tables: in the order in which they are read.
    """

    state: Literal["waiting", "running", "paused", "done", "cancelled", "failed"] = "waiting"
    started_ms: int = 0
    finished_ms: int = 0
    saved_ms: int = 0
    resolved: bool = False
    error: str = ""
    tables: list[Table] = msgspec.field(default_factory=list)

    def end(self, state: Literal["done", "cancelled", "failed"], now_ms: int, error: str = "") -> None:
        """It is over."""
        self.state, self.error, self.finished_ms = state, error, now_ms


def shown_note(
    request: str, note: SnapshotNote[Any], *, state: str, percent: float, tables: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """A task's share of a request as a JSON object.

    Args:
        request: its id.
        note: what is saved of it.
        state: the state that is shown.
        percent: done, 0 to 100.
        tables: by table, in the note's order, the members beyond those that all tables have.
    """
    return {
        "id": request,
        "state": state,
        "started_ms": note.started_ms or None,
        "finished_ms": note.finished_ms or None,
        "percent": round(percent, 2),
        "error": note.error or None,
        "tables": [
            {
                "state": table.stage,
                "rows_done": table.rows,
                "percent": round(table.percent, 2),
                "started_ms": table.started_ms or None,
                "finished_ms": table.finished_ms or None,
                "error": table.error or None,
                **members,
            }
            for table, members in zip(note.tables, tables, strict=True)
        ],
    }


def estimate_table(rows: int, percent: float, seconds: float, *, done: bool, running: bool) -> dict[str, Any]:
    """The size and the speed of a table of which only the share that was read is known.

    Args:
        rows: read so far.
        percent: read of the table, 0 to 100.
        seconds: since the start; 0: not started.
        done: whether it was read to its end.
        running: whether it is being read.

    Returns:
        ``rows_total``, ``rows_per_s`` and ``eta_s``; None for what is not known.
    """
    telling = percent >= _TELLING_PERCENT
    return {
        "rows_total": rows if done else round(rows * 100 / percent) if telling else None,
        "rows_per_s": round(rows / seconds, 1) if seconds > 0 else None,
        "eta_s": round(seconds * (100 - percent) / percent, 1) if running and telling and seconds > 0 else None,
    }


Note = TypeVar("Note", bound=msgspec.Struct)


def pack(note: msgspec.Struct) -> str:
    """The text for an offset: JSON, or compressed JSON in Base64 where that is longer than 4 kB."""
    plain = msgspec.json.encode(note)
    if len(plain) <= _LONG:
        return plain.decode()
    return _PACKED + base64.b64encode(zlib.compress(plain, 1)).decode()


def unpack(value: Any, kind: type[Note], name: str) -> Note:
    """See ``pack``.

    Args:
        value: the text.
        kind: what it is of.
        name: how an error calls that: "state of a snapshot".

    Raises:
        ValueError: it can't be read.
    """
    packed = str(value)
    try:
        plain = (
            zlib.decompress(base64.b64decode(packed[len(_PACKED) :])) if packed.startswith(_PACKED) else packed.encode()
        )
        return msgspec.json.decode(plain, type=kind)
    except (msgspec.DecodeError, zlib.error, ValueError) as error:
        raise ValueError(f"{packed[:80]!r} is no {name}: {error}") from error
