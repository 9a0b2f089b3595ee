"""Ranges of a table's keys, and how a range is divided into those that are read as one chunk. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from connectors.mysql.model import BLOCK, Shard
from connectors.mysql.position.shards import shard_of_number
from connectors.mysql.snapshot.reading import keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.mysql.snapshot.model import Key, SnapshotChunk
    from connectors.mysql.snapshot.reading.keys import KeyColumn
    from connectors.mysql.snapshot.windows import ChangeWindow

#: Ranges of numbers in one query.
_MOST_SPANS: Final = 48
_WIDEST: Final = 1 << 64
#: With fewer rows in a block than this, naming the blocks costs more than asking the server for our rows.
_SPARSE: Final = 16.0


class KeyRange:
    """The rows after ``after`` up to and including ``until``; None: without that bound.

    Attributes:
        spans: ranges of the first column's numbers, both ends included, outside of which the task owns nothing here; () if
            unknown: then the query needs the shard's filter.
        divisible: whether it may be divided before it is read, since its number of rows is unknown.
        state: ``waiting`` to be read, being ``reading``, or ``held`` until the stream has come far enough.
        token: grows whenever a reading is not wanted any more.
    """

    __slots__ = ("after", "chunk", "divisible", "empty", "spans", "state", "token", "until", "window")

    def __init__(
        self, after: Key | None, until: Key | None, spans: tuple[tuple[int, int], ...] = (), *, divisible: bool = True
    ) -> None:
        self.after = after
        self.until = until
        self.spans = spans
        self.divisible = divisible
        #: Known to have no rows.
        self.empty = False
        self.state: Literal["waiting", "reading", "held"] = "waiting"
        self.token = 0
        self.window: ChangeWindow | None = None
        self.chunk: SnapshotChunk | None = None

    def discard(self) -> None:
        """Read it (again)."""
        self.state = "waiting"
        self.token += 1
        self.window = None
        self.chunk = None

    def conditions(self, columns: Sequence[KeyColumn]) -> list[str]:
        """Return the SQL conditions of its rows."""
        if self.empty:
            return ["1 = 0"]
        terms = []
        if self.after is not None:
            terms.append(keys.condition_after(columns, self.after))
        if self.until is not None:
            terms.append(keys.condition_until(columns, self.until))
        if self.spans:
            name = columns[0].sql
            terms.append("(" + " OR ".join(f"{name} BETWEEN {low} AND {high}" for low, high in self.spans) + ")")
        return terms


class NumberDivider:
    """Divides the order of a key whose first column is an integer, by its least and largest value and the number of rows.

    The numbers may be spread in any way: a range with too many rows is cut where the chunk is full, and one with few rows
    makes the next ones wider.

    Args:
        low, high: the least and the largest number.
        rows: how many rows there are, about.
        limit: rows of a chunk.
        shard: what the task owns.
    """

    def __init__(self, low: int, high: int, rows: int, limit: int, shard: Shard) -> None:
        self.low = low
        self.high = high
        self._shard = shard
        span = max(1, high - low + 1)
        density = max(rows, 1) / span
        self.width = max(1, min(span, int(limit / density)))
        #: Whether the shard's blocks are worth being named.
        self.named = shard.count > 1 and density * BLOCK >= _SPARSE
        self.limit = limit

    def front(self, whole: KeyRange) -> tuple[KeyRange, KeyRange | None]:
        """The first part of a divisible range, and the rest; None if there is no rest."""
        begin = self.low
        if whole.after is not None:
            # Behind a whole key there may be more with the same number, behind a number there are not.
            begin = int(whole.after[0]) + (len(whole.after) == 1)
        end = self.high if whole.until is None else int(whole.until[0])
        if begin > end:
            return self._last_range(whole, ())
        if self.named:
            spans, last = self._own_spans(begin, end)
        else:
            # Rows below the least number came later: there are few.
            spans, last = (), max(begin, self.low) + self.width - 1
        if last >= end:
            return self._last_range(whole, spans)
        bound = (str(last),)
        return KeyRange(whole.after, bound, spans, divisible=False), KeyRange(bound, whole.until)

    @staticmethod
    def _last_range(whole: KeyRange, spans: tuple[tuple[int, int], ...]) -> tuple[KeyRange, None]:
        return KeyRange(whole.after, whole.until, spans, divisible=False), None

    def _own_spans(self, begin: int, end: int) -> tuple[tuple[tuple[int, int], ...], int]:
        """The shard's next blocks with about ``width`` numbers, and the last number that is then covered."""
        spans: list[tuple[int, int]] = []
        number, remaining = begin, self.width
        while number <= end and remaining > 0 and len(spans) < _MOST_SPANS:
            last = number // BLOCK * BLOCK + BLOCK - 1
            if shard_of_number(number, self._shard.count) == self._shard.index:
                spans.append((number, min(last, end)))
                remaining -= spans[-1][1] - number + 1
            number = last + 1
        # No block at all: an impossible range instead of all rows.
        return tuple(spans) or ((1, 0),), number - 1

    def learned(self, rows: int, *, cut: bool, slow: bool) -> None:
        """Adapt the width of ranges to one that had ``rows`` rows (or more, if it was cut)."""
        if cut:
            self.width = max(1, self.width // 2)
        elif 4 * rows <= self.limit and not slow:
            self.width = min(self.width * 4, _WIDEST)
