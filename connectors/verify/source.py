"""A source whose tables can be compared cell by cell, by write times: what its connector gives for it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from connectors.formats.names import field_name
from connectors.verify.writes import event_writes, update_writes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from connectors.api import Position, SourceRecord
    from connectors.verify.writes import CellTable, Write

#: The form of partition updates; other forms are dialects of row events (``writes.event_writes``).
UPDATES: Final = "partition-update"
_TOKENS: Final = 1 << 64
_FIRST_TOKEN: Final = -(1 << 63)
#: Chunks that a ring of tokens is cut in.
_CHUNKS: Final = 16
#: A complaint may quote a row's key.
_COMPLAINT_LENGTH: Final = 1_000


class ComparedTable(NamedTuple):
    """A table that is compared.

    Attributes:
        cells: its columns.
        topic: where the connector writes its records, before transforms.
        form: ``UPDATES``, or the dialect of its row events.
    """

    cells: CellTable
    topic: str
    form: str

    def writes(self, key: Any, value: Any) -> tuple[dict[str, Any], list[Write]] | None:
        """The partition's key and the writes of a decoded message; None: it says nothing of rows (a tombstone).

        Raises:
            KeyError, TypeError, ValueError: the message is not one of this table.
        """
        if value is None:
            return None
        if self.form == UPDATES:
            return update_writes(self.cells, value)
        return event_writes(self.cells, key, value, dialect=self.form)


class BadRows:
    """Rows of a table that can't be read, or can't be sent: how many they are, and the complaint about the first of them."""

    def __init__(self) -> None:
        self.count = 0
        self._complaint = ""

    def add(self, complaint: object) -> None:
        """A row, and why it is left out."""
        self.count += 1
        self._complaint = self._complaint or str(complaint)[:_COMPLAINT_LENGTH]

    def note(self, table: str) -> str:
        """The note for a result."""
        return f"{self.count} rows of {table} can't be read or sent, and were left out. The first: {self._complaint}"


class CellSource(Protocol):
    """The captured tables of a source without a read view: each row is as it was when it was read.

    Attributes:
        tables: those to compare, by name, after ``open``.
        notes: what is not compared.
        settle_s: how long a change may take until it can be on its way to the topic.
        reads_keys: whether the form of its messages needs their keys.
        condition: see ``TableReport.condition``.
    """

    condition: str | None

    reads_keys: bool
    tables: dict[str, ComparedTable]
    notes: list[str]
    settle_s: float

    async def open(self, is_chosen: Callable[[str], bool]) -> None:
        """Connect and find the tables.

        Raises:
            Retriable: the cluster is unavailable.
            Fatal, ConfigInvalid: it refuses, or there is no such table.
        """

    def records(self, name: str, bad: BadRows) -> AsyncIterator[list[SourceRecord]]:
        """All rows of a table as records, some at a time, chunk after chunk; those that have no record go into ``bad``.

        Raises:
            Retriable: the cluster is unavailable.
        """

    def reached(self, offsets: Sequence[tuple[Position, Position]], time_ms: int) -> tuple[bool, str] | None:
        """Whether saved offsets say that all changes before ``time_ms`` are delivered, and what they say; None: they can't."""

    async def close(self) -> None:
        """Disconnect."""


def field_naming(form: str) -> Callable[[str], str]:
    """The rule by which a form names the field of a column: row events have the column's own name."""
    return field_name if form == UPDATES else str


def token_chunks() -> list[tuple[int, int]]:
    """The whole ring, as ranges of tokens: after the first, up to and with the second."""
    width = _TOKENS // _CHUNKS
    bounds = [_FIRST_TOKEN + width * number for number in range(_CHUNKS)] + [-_FIRST_TOKEN - 1]
    return list(itertools.pairwise(bounds))


def no_tables(option: str, user: object, *, names: Mapping[str, Any]) -> str:
    """The complaint that nothing is to be compared."""
    others = f" It captures {', '.join(sorted(names))}." if names else ""
    return f"no table is captured and selected: check {option}, --tables, and what {user!r} may read.{others}"
