"""A history is cut so that every order number is in one chunk."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.inputs.history.chunks import OrderRange, Span, cut_ranges

NUMBERS = st.integers(-(1 << 62), 1 << 62)
SPANS = st.lists(
    st.builds(
        lambda low, width, rows: Span(low, min(low + width, (1 << 62) + 5), rows),
        NUMBERS,
        st.one_of(st.integers(0, 10), st.integers(0, 1 << 60)),
        st.integers(1, 1000),
    ),
    min_size=1,
    max_size=12,
)


@given(SPANS, st.integers(1, 3000))
def test_every_number_is_in_one_chunk(spans: list[Span], target: int) -> None:
    ranges = cut_ranges(spans, target)
    assert ranges[0].low == min(span.low for span in spans)
    assert ranges[-1].high == max(span.high for span in spans)
    assert all(chunk.low <= chunk.high for chunk in ranges)
    assert all(after.low == before.high + 1 for before, after in itertools.pairwise(ranges))
    # A chunk ends between two numbers, so it may hold half of what was asked for; and there is one more for chunk span.
    assert len(ranges) <= 2 * sum(span.rows for span in spans) / target + len(spans) + 1


def test_chunks_hold_about_as_many_rows_as_asked_for() -> None:
    spans = [Span(number * 1000, number * 1000 + 999, 1000) for number in range(100)]
    ranges = cut_ranges(spans, 2500)
    assert len(ranges) == 40
    assert all(abs(chunk.high - chunk.low + 1 - 2500) < 10 for chunk in ranges)


def test_rows_of_one_number_are_one_chunk() -> None:
    assert cut_ranges([Span(7, 7, 10_000)], 100) == [OrderRange(7, 7)]
    assert cut_ranges([], 100) == []
