"""Shares, chunks and the rest of them."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from connectors.cassandra.snapshot.ranges import cut_chunk, merge_spans, task_range, width_after
from connectors.cql.token_ranges import MAX_TOKEN, MIN_TOKEN, TokenRange, count_tokens, subtract_ranges


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64])
def test_shares_are_the_ring(count: int) -> None:
    shares = [task_range(index, count) for index in range(count)]
    assert shares[0].after == MIN_TOKEN
    assert shares[-1].upto == MAX_TOKEN
    assert all(share.upto == following.after for share, following in pairwise(shares))
    assert (
        max(map(count_tokens, ([share] for share in shares))) - min(map(count_tokens, ([share] for share in shares)))
        <= 1
    )


def test_subtraction_is_that_of_sets() -> None:
    chance = random.Random(4)

    def spans() -> list[TokenRange]:
        ends = sorted(chance.sample(range(40), 6))
        return [TokenRange(ends[index], ends[index + 1]) for index in (0, 2, 4)]

    def tokens(ranges: list[TokenRange]) -> set[int]:
        return {token for token_range in ranges for token in range(token_range.after + 1, token_range.upto + 1)}

    for _ in range(200):
        first, second = spans(), spans()
        left = subtract_ranges(first, second)
        assert tokens(left) == tokens(first) - tokens(second)
        assert count_tokens(left) == len(tokens(left))
        assert tokens(merge_spans([*left, *subtract_ranges(second, first)])) == tokens(first) ^ tokens(second)


def test_the_page_stays_with_the_start_it_is_of() -> None:
    assert subtract_ranges([TokenRange(0, 10, "ab")], [TokenRange(4, 6)]) == [TokenRange(0, 4, "ab"), TokenRange(6, 10)]
    assert subtract_ranges([TokenRange(0, 10, "ab")], [TokenRange(0, 6)]) == [TokenRange(6, 10)]
    # Nothing of the second is read, but the page is of the first.
    assert merge_spans([TokenRange(5, 9), TokenRange(0, 5, "ab")]) == [TokenRange(0, 5, "ab"), TokenRange(5, 9)]
    assert merge_spans([TokenRange(5, 9), TokenRange(0, 5), TokenRange(10, 12)]) == [
        TokenRange(0, 9),
        TokenRange(10, 12),
    ]


@pytest.mark.parametrize(
    ("width", "bounds", "first", "rest"),
    [
        (10, (), TokenRange(0, 10), TokenRange(10, 100)),
        # Not beyond the end of what one set of nodes has ...
        (10, (7,), TokenRange(0, 7), TokenRange(7, 100)),
        # ... unless whole ones are wanted.
        (60, (7, 30, 55, 80), TokenRange(0, 55), TokenRange(55, 100)),
        (10, (-5, 0, 100), TokenRange(0, 10), TokenRange(10, 100)),
        (500, (100,), TokenRange(0, 100), None),
        (0, (), TokenRange(0, 1), TokenRange(1, 100)),
    ],
)
def test_chunks_end_where_the_ring_is_divided(
    width: int, bounds: tuple[int, ...], first: TokenRange, rest: TokenRange | None
) -> None:
    assert cut_chunk(TokenRange(0, 100), width, bounds) == (first, rest)


def test_a_started_range_is_one_chunk() -> None:
    assert cut_chunk(TokenRange(0, 100, "ab"), 10, (7,)) == (TokenRange(0, 100, "ab"), None)


def test_width_follows_the_rows() -> None:
    assert width_after(1_000, 100, 100, 1 << 30) == 16_384  # the number of chunks is limited
    whole = 1 << 20
    assert width_after(1_000, 200, 100, whole) == 500
    assert width_after(1_000, 10_000, 100, whole) == 250
    assert width_after(1_000, 0, 100, whole) == 4_000
    assert width_after(whole, 0, 100, whole) == whole
