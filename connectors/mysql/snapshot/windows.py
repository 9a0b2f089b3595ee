"""What the stream changes while chunks are read and wait. Pure.

Why a chunk is right. Its window is opened before its read view, and the view has everything that the stream had seen by then
(see ``views.py``). The chunk is sent once the stream has come to the view's place, or past it. A key that the stream has not
touched since the window was opened is the same at all these places: what the view shows is the newest there is. A key that it
has touched was sent by the stream, newer than in the view or the same, and is left out. Where row images are not whole
(``MINIMAL``), what the stream has told since is laid over the view's row instead: columns that it has not told are the same at
all these places.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.mysql.snapshot.model import image

if TYPE_CHECKING:
    from connectors.mysql.model import Place
    from connectors.mysql.snapshot.model import Row

_NOTHING: Final[Row] = {}


class Window:
    """Changes since a chunk's reading began.

    Args:
        low: where the stream was when it was opened.
        fields: how many fields a whole row has.
        most: keys remembered before the rows are there.
    """

    __slots__ = ("_fields", "_marks", "_most", "low", "overflown", "rows")

    def __init__(self, low: Place, fields: int, most: int) -> None:
        self.low = low
        #: Whether too many keys were changed: the rows have to be read again.
        self.overflown = False
        #: The chunk's, once they are there.
        self.rows: dict[tuple[Any, ...], Row] | None = None
        self._marks: dict[tuple[Any, ...], Row | None] = {}
        self._fields = fields
        self._most = most

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
        marks = self._marks
        if not part:
            marks[key] = None
        else:
            known = marks.get(key, _NOTHING)
            if known is None:
                return
            marks[key] = {**known, **row}  # type: ignore[dict-item]
        if len(marks) > self._most:
            self.overflown = True
            marks.clear()

    def arrived(self, rows: dict[tuple[Any, ...], Row]) -> int:
        """The chunk's rows: takes out and completes what has changed meanwhile, and keeps doing so; how many went."""
        before = len(rows)
        for key, mark in self._marks.items():
            if mark is None:
                rows.pop(key, None)
            elif key in rows:
                rows[key].update(mark)
        self._marks.clear()
        self.rows = rows
        return before - len(rows)


class Images:
    """Rows that are gone from a table without a key since its view was opened; rows are told apart by all of their values.

    Of rows that are alike in everything, one deleted during the pull takes one away that was not sent yet, though the server
    may have meant one that was.

    Args:
        most: as many are remembered.
    """

    __slots__ = ("_most", "gone", "overflown")

    def __init__(self, most: int) -> None:
        #: Image -> how many; chunks take them away, see ``Chunk.take``.
        self.gone: dict[bytes, int] = {}
        self.overflown = False
        self._most = most

    def removed(self, row: Row) -> None:
        """The stream has sent that this row is gone."""
        if self.overflown:
            return
        mark = image(row)
        self.gone[mark] = self.gone.get(mark, 0) + 1
        if len(self.gone) > self._most:
            self.overflown = True
            self.gone.clear()
