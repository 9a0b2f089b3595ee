"""Ranges of tokens: shares of tasks, what is left of them, pieces to read. Pure."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Tokens of Murmur3Partitioner are the numbers after the least one, up to and with the largest.
MIN_TOKEN: Final = -(1 << 63)
MAX_TOKEN: Final = (1 << 63) - 1
_ALL: Final = MAX_TOKEN - MIN_TOKEN
#: A piece is made at most so much wider than the one before.
_WIDER: Final = 4.0
#: A share is cut in no more pieces than that, whatever the rows are.
_MOST_PIECES: Final = 1 << 16


class Span(NamedTuple):
    """Tokens after ``after`` up to and with ``upto``; never empty, never around the ring's end.

    ``page`` is a paging state in hex: the rows before it are read too, those of the first tokens of the span; "" none are.
    """

    after: int
    upto: int
    page: str = ""


def share(index: int, count: int) -> Span:
    """The tokens that task ``index`` of ``count`` reads; tokens are hashes, so shares of equal width have equally many."""
    return Span(MIN_TOKEN + _ALL * index // count, MIN_TOKEN + _ALL * (index + 1) // count)


def subtract(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """``spans`` without the tokens of ``others``, in their order."""
    result = list(spans)
    for other in others:
        kept: list[Span] = []
        for each in result:
            if other.upto <= each.after or each.upto <= other.after:
                kept.append(each)
                continue
            if each.after < other.after:
                kept.append(Span(each.after, other.after, each.page))
            if other.upto < each.upto:
                kept.append(Span(other.upto, each.upto))
        result = kept
    return result


def merged(spans: Iterable[Span]) -> list[Span]:
    """In the ring's order, neighbours as one where nothing of the second is read yet."""
    result: list[Span] = []
    for each in sorted(spans):
        if result and result[-1].upto == each.after and not each.page and not result[-1].page:
            result[-1] = Span(result[-1].after, each.upto)
        else:
            result.append(each)
    return result


def size(spans: Iterable[Span]) -> int:
    """How many tokens they are."""
    return sum(each.upto - each.after for each in spans)


def cut(span: Span, width: int, bounds: Sequence[int]) -> tuple[Span, Span | None]:
    """A piece from the start of a span, and the rest.

    Args:
        span: of what; with a paging state it is the piece.
        width: tokens that the piece should have.
        bounds: tokens of the ring in order: between two of them one set of replicas has all rows. A piece that would reach
            beyond one ends at the last that it reaches.
    """
    if span.page:
        return span, None
    end = span.after + max(1, width)
    place = bisect_right(bounds, end) - 1
    if place >= 0 and bounds[place] > span.after:
        end = bounds[place]
    if end >= span.upto:
        return span, None
    return Span(span.after, end), Span(end, span.upto)


def width_after(width: int, rows: int, wanted: int, whole: int) -> int:
    """How wide the next piece should be, after one of ``width`` had ``rows``.

    Args:
        width: of the last piece.
        rows: that it had.
        wanted: rows that a piece should have.
        whole: tokens of the share.
    """
    factor = min(_WIDER, wanted / rows) if rows else _WIDER
    return int(max(whole // _MOST_PIECES, min(width * max(factor, 1 / _WIDER), whole), 1))
