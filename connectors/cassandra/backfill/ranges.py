"""Ranges of tokens: shares of tasks, what is left of them, pieces to read. Pure."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from connectors.cql.token_ranges import MAX_TOKEN, MIN_TOKEN, TokenRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ALL: Final = MAX_TOKEN - MIN_TOKEN
#: A piece is made at most so much wider than the one before.
_WIDER: Final = 4.0
#: A share is cut in no more pieces than that, whatever the rows are.
_MOST_PIECES: Final = 1 << 16


def task_range(index: int, count: int) -> TokenRange:
    """The tokens that task ``index`` of ``count`` reads; tokens are hashes, so shares of equal width have equally many."""
    return TokenRange(MIN_TOKEN + _ALL * index // count, MIN_TOKEN + _ALL * (index + 1) // count)


def merge_spans(spans: Iterable[TokenRange]) -> list[TokenRange]:
    """In the ring's order, neighbours as one where nothing of the second is read yet."""
    result: list[TokenRange] = []
    for span in sorted(spans):
        if result and result[-1].upto == span.after and not span.resume and not result[-1].resume:
            result[-1] = TokenRange(result[-1].after, span.upto)
        else:
            result.append(span)
    return result


def cut_chunk(span: TokenRange, width: int, bounds: Sequence[int]) -> tuple[TokenRange, TokenRange | None]:
    """A piece from the start of a span, and the rest.

    Args:
        span: of what; with a paging state it is the piece.
        width: tokens that the piece should have.
        bounds: tokens of the ring in order: between two of them one set of replicas has all rows. A piece that would reach
            beyond one ends at the last that it reaches.
    """
    if span.resume:
        return span, None
    end = span.after + max(1, width)
    bound_index = bisect_right(bounds, end) - 1
    if bound_index >= 0 and bounds[bound_index] > span.after:
        end = bounds[bound_index]
    if end >= span.upto:
        return span, None
    return TokenRange(span.after, end), TokenRange(end, span.upto)


def width_after(width: int, rows: int, target_rows: int, whole: int) -> int:
    """How wide the next piece should be, after one of ``width`` had ``rows``.

    Args:
        width: of the last piece.
        rows: that it had.
        target_rows: rows that a piece should have.
        whole: tokens of the share.
    """
    factor = min(_WIDER, target_rows / rows) if rows else _WIDER
    return int(max(whole // _MOST_PIECES, min(width * max(factor, 1 / _WIDER), whole), 1))
