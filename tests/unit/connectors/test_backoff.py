"""Pauses between tries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from connectors.backoff import Backoff, pause_after


def test_pauses_double_up_to_the_longest_and_start_over() -> None:
    pauses = Backoff(0.5, 3.0)
    assert [pauses.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    pauses.reset()
    assert (pauses.pause_s, pauses.next_s()) == (0.5, 0.5)


@given(st.floats(0.001, 10), st.floats(0.001, 100))
def test_the_spread_keeps_its_bounds(first_s: float, longest_s: float) -> None:
    pauses, exact = Backoff(first_s, longest_s, low=0.5, high=1.5), Backoff(first_s, longest_s)
    spread = [(pauses.next_s(), exact.next_s()) for _ in range(30)]
    assert all(pause_s * 0.5 <= spread_s <= pause_s * 1.5 for spread_s, pause_s in spread)
    assert any(spread_s != pause_s for spread_s, pause_s in spread)


def test_pauses_by_the_number_of_failures_are_the_same() -> None:
    pauses = Backoff(0.25, 7.0)
    assert [pause_after(failures, 0.25, 7.0) for failures in range(1, 9)] == [pauses.next_s() for _ in range(8)]
    assert pause_after(10**6, 0.25, 7.0) == 7.0
