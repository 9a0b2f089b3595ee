"""Token ranges: the shares of tasks, what is left of them, and the parts to read next. Pure."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from connectors.cql.token_ranges import MAX_TOKEN, MIN_TOKEN, TokenRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ALL: Final = MAX_TOKEN - MIN_TOKEN
#: The most by which a range may be wider than the one before, as a factor.
_WIDER: Final = 4.0
#: The most ranges that a share is cut into, whatever the number of rows.
_MOST_RANGES: Final = 1 << 16


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
    """Divide a span into the range to read next, from its start, and the rest.

    Args:
        span: what to divide; a span with a paging state is returned whole.
        width: tokens that the range should have.
        bounds: tokens of the ring in order: between two of them one set of replicas has all rows. A range that would reach
            beyond bounds ends at the last of these.
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
    """Return the width of the next range, after one of ``width`` had ``rows``.

    Args:
        width: tokens of the last range.
        rows: that it had.
        target_rows: rows that a range should have.
        whole: tokens of the share.
    """
    factor = min(_WIDER, target_rows / rows) if rows else _WIDER
    return int(max(whole // _MOST_RANGES, min(width * max(factor, 1 / _WIDER), whole), 1))
