"""The generation to read. Hypothesis: runs over any generations with stops anywhere read each of them once, in order."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from connectors.scylla.model import Generation, StreamGroup, TableId
from connectors.scylla.source.generations import (
    GenerationChoice,
    choose_generation,
    group_starts,
    is_expired,
    is_finished,
    to_generations,
)

TABLE = TableId("ks", "t")


def groups_of(generation: Generation, names: int = 3) -> list[StreamGroup]:
    return [
        StreamGroup(TABLE, generation, str(index), False, (bytes([index]) * 16,), None, index) for index in range(names)
    ]


def test_each_generation_ends_where_the_next_begins() -> None:
    assert to_generations([300, 100, 200, 200]) == [Generation(100, 200), Generation(200, 300), Generation(300, None)]
    assert to_generations([]) == []


def test_first_start_begins_with_the_oldest_that_can_hold_rows() -> None:
    generations = to_generations([0, 1_000_000, 2_000_000])
    assert choose_generation(generations, [], now_ms=10_000_000).generation == generations[0]
    assert choose_generation(generations, [], now_ms=10_000_000).first
    assert choose_generation(generations, [], now_ms=10_000_000, ttl_s=8_900).generation == generations[1]
    assert choose_generation(generations, [], now_ms=10_000_000, lookback_ms=8_500_000).generation == generations[1]
    assert choose_generation(generations, [], now_ms=10_000_000, lookback_ms=1_000).generation == generations[2]


def test_saved_positions_of_a_newer_generation_say_that_older_ones_are_done() -> None:
    generations = to_generations([0, 100, 200])
    assert choose_generation(generations, [100, 0], now_ms=1_000) == GenerationChoice(generations[1], (generations[2],))
    assert choose_generation(generations, [0], now_ms=1_000).generation == generations[0]


def test_expired_generations_are_skipped_and_reported() -> None:
    generations = to_generations([0, 100_000, 200_000])
    choice = choose_generation(generations, [0], now_ms=100_000_000, ttl_s=60)
    assert choice.generation == generations[2]
    assert choice.skipped == (generations[0], generations[1])
    assert not is_expired(generations[2], 100_000_000, 60)
    assert not is_expired(generations[0], 100_000_000, 0)


def test_a_generation_that_had_begun_before_the_last_alter_may_have_rows_of_a_longer_ttl() -> None:
    generations = to_generations([0, 100_000, 200_000])
    choice = choose_generation(generations, [0], now_ms=100_000_000, ttl_s=60, altered_ms=100_000)
    assert (choice.generation, choice.skipped) == (generations[0], (generations[1],))
    assert (
        choose_generation(generations, [], now_ms=100_000_000, ttl_s=60, altered_ms=100_000).generation
        == generations[2]
    )


def test_a_generation_that_the_cluster_forgot() -> None:
    generations = to_generations([100, 200])
    choice = choose_generation(generations, [50], now_ms=1_000)
    assert choice.generation == generations[0]
    assert not choice.first
    assert "does not know any more" in choice.notes[0]
    other = choose_generation(generations, [900], now_ms=1_000)
    assert other.generation == generations[0]
    assert other.first
    assert "another cluster" in other.notes[0]
    assert choose_generation([], [50], now_ms=1_000).generation is None


def test_finished_needs_an_end_and_every_group() -> None:
    closed = Generation(0, 100)
    groups = groups_of(closed)
    done = {"0": 100, "1": 130, "2": 100}
    assert is_finished(closed, groups, done)
    assert not is_finished(Generation(0, None), groups, done)
    assert not is_finished(closed, groups, {**done, "1": 99})
    assert not is_finished(closed, groups, {"0": 100, "2": 100})


def test_java_positions_of_tablets_count() -> None:
    closed = Generation(0, 100)
    groups = [
        StreamGroup(
            TABLE,
            closed,
            f"0x{index:032x}",
            True,
            (index.to_bytes(16, "big"),),
            None,
            index,
            java_numbers=((1 << 22) + index,),
        )
        for index in range(3)
    ]
    assert not is_finished(closed, groups, {"0": 99})
    assert is_finished(closed, groups, {"0": 100})
    assert is_finished(closed, groups, {"0": 5, **{str((1 << 22) + index): 100 for index in range(3)}})
    assert group_starts(groups, {"0": 5, groups[1].name: 7, str((1 << 22) + 2): 6}) == {
        groups[0].name: 5,
        groups[1].name: 7,
        groups[2].name: 6,
    }
    assert group_starts(groups, {}) == dict.fromkeys([group.name for group in groups])


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(1, 4), st.data())
def test_generations_are_read_in_order_and_to_their_end(gaps: list[int], names: int, data: st.DataObject) -> None:
    starts, at = [], 0
    for gap in gaps:
        starts.append(at)
        at += gap
    saved: dict[int, dict[str, int]] = {}
    read: dict[tuple[int, str], list[tuple[int, int]]] = {}
    visible = 1
    order: list[int] = []
    for _ in range(200):
        # The connector restarts, or looks again: perhaps newer generations have come meanwhile.
        visible = min(len(starts), visible + data.draw(st.integers(0, 2)))
        generations = to_generations(starts[:visible])
        choice = choose_generation(generations, saved, now_ms=at)
        assert choice.generation is not None
        current = choice.generation
        for current in (choice.generation, *choice.later):
            if not is_finished(current, groups_of(current, names), saved.get(current.start_ms, {})):
                break
        if not order or order[-1] != current.start_ms:
            order.append(current.start_ms)
        if current.end_ms is None and visible == len(starts):
            break
        for group in groups_of(current, names):
            position = saved.get(current.start_ms, {}).get(group.name, current.start_ms)
            end = current.end_ms if current.end_ms is not None else position + 5
            to = max(position, min(end, position + data.draw(st.sampled_from([0, 3, 60]))))
            read.setdefault((current.start_ms, group.name), []).append((position, to))
            if data.draw(st.booleans()) or to > position:
                saved.setdefault(current.start_ms, {})[group.name] = to
    else:
        return  # drew too many pauses
    assert order == starts
    for start, end in pairwise(starts):
        for number in range(names):
            stretches = read[start, str(number)]
            assert stretches[0][0] == start
            assert stretches[-1][1] >= end
            assert all(left[1] == right[0] for left, right in pairwise(stretches))
