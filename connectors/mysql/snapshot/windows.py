"""The stream's changes while chunks are read and wait. Pure.

Why a chunk is right: its window is opened before its read view, and the view has everything that the stream had seen by then
(see ``views.py``). The chunk is sent once the stream has come to the view's position, or past it. A key that the stream has
not touched since the window was opened is the same at all these positions: the view shows its newest row. A key that it has
touched was sent by the stream, newer than in the view or the same, and is left out of the chunk. Where row images are not
complete (``MINIMAL``), the columns that the stream has sent since then replace those of the view's row: the other columns
are the same at all these positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.mysql.snapshot.model import row_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.mysql.model import BinlogPosition
    from connectors.mysql.snapshot.model import Row

_NOTHING: Final[Row] = {}


class ChangeWindow:
    """Changes since a chunk's reading began.

    Args:
        low: where the stream was when it was opened.
        fields: how many fields a whole row has.
        max_keys: keys remembered before the rows are there.
    """

    __slots__ = ("_changed_rows", "_fields", "_most", "low", "overflown", "rows")

    def __init__(self, low: BinlogPosition, fields: int, max_keys: int) -> None:
        self.low = low
        #: Whether too many keys were changed: the rows have to be read again.
        self.overflown = False
        #: The chunk's, once they are there.
        self.rows: dict[tuple[Any, ...], Row] | None = None
        self._changed_rows: dict[tuple[Any, ...], Row | None] = {}
        self._fields = fields
        self._most = max_keys

    def touch(self, key: tuple[Any, ...], row: Row | None) -> None:
        """The stream has sent a change of a key: its row now, whole or not, or None."""
        part = row is not None and len(row) < self._fields
        rows = self.rows
        if rows is not None:
            if not part:
                rows.pop(key, None)
            elif key in rows:
                rows[key].update(row)  # type: ignore[arg-type]
            return
        changed_rows = self._changed_rows
        if not part:
            changed_rows[key] = None
        else:
            old_row = changed_rows.get(key, _NOTHING)
            if old_row is None:
                return
            changed_rows[key] = {**old_row, **row}  # type: ignore[dict-item]
        if len(changed_rows) > self._most:
            self.overflown = True
            changed_rows.clear()

    def arrived(self, rows: dict[tuple[Any, ...], Row]) -> int:
        """The chunk's rows: takes out and completes what has changed meanwhile, and keeps doing so; how many went."""
        before = len(rows)
        for key, changed_row in self._changed_rows.items():
            if changed_row is None:
                rows.pop(key, None)
            elif key in rows:
                rows[key].update(changed_row)
        self._changed_rows.clear()
        self.rows = rows
        return before - len(rows)


class Images:
    """The rows of a table without a key that were sent, so that each delete takes away a row that a consumer has.

    Rows are compared by all of their values. When the stream removes a row of which no copy was sent, the row is still in a
    later chunk: it is sent early, just before its change, and one copy is left out of the chunks. So the rows and changes that
    were sent never take away more than they gave, and add up to the table.

    With too many different rows it forgets which were sent. From then on nothing is sent early: the sum is still right, but a
    change may be sent before its row.

    Args:
        fields: how many fields a whole row has.
        max_images: different rows that are remembered.
    """

    __slots__ = ("_early", "_fields", "_most", "_sent")

    def __init__(self, fields: int, max_images: int) -> None:
        #: Image -> copies that a consumer has; None: too many to remember.
        self._sent: dict[bytes, int] | None = {}
        #: Image -> copies to leave out of chunks.
        self._early: dict[bytes, int] = {}
        self._fields = fields
        self._most = max_images

    @property
    def forgotten(self) -> bool:
        """Whether there were too many rows to remember."""
        return self._sent is None

    @property
    def needed(self) -> bool:
        """Whether ``leaves_out`` has to see the rows of chunks."""
        return self._sent is not None or bool(self._early)

    def leaves_out(self, row: Row) -> bool:
        """Whether a chunk's row was sent early; if not, it is sent now."""
        digest = row_digest(row)
        if digest in self._early:
            _take_one(self._early, digest)
            return True
        self._add_digest(digest)
        return False

    def changed(self, op: str, rows: Sequence[Row | None]) -> list[Row]:
        """The stream is about to send a change behind the view (``u``: before and after in turns).

        Returns:
            Rows to send before it.
        """
        early: list[Row] = []
        before: Row | None = None
        for number, row in enumerate(rows):
            if op == "c":
                self._add_row(row)
            elif op == "u" and number % 2:
                # Without FULL row images the image after has only what was set.
                self._add_row({**before, **row} if before is not None and row is not None else row)
            else:
                before = row
                if row is not None and self._remove_row(row):
                    early.append(row)
        return early

    def _add_row(self, row: Row | None) -> None:
        if row is not None and len(row) == self._fields:
            self._add_digest(row_digest(row))

    def _add_digest(self, digest: bytes) -> None:
        if self._sent is None:
            return
        self._sent[digest] = self._sent.get(digest, 0) + 1
        if len(self._sent) + len(self._early) > self._most:
            self._sent = None

    def _remove_row(self, row: Row) -> bool:
        """Whether no copy of a removed row was sent."""
        if self._sent is None or len(row) < self._fields:
            return False
        digest = row_digest(row)
        if digest in self._sent:
            _take_one(self._sent, digest)
            return False
        self._early[digest] = self._early.get(digest, 0) + 1
        return True


def _take_one(counts: dict[bytes, int], digest: bytes) -> None:
    if counts[digest] == 1:
        del counts[digest]
    else:
        counts[digest] -= 1
