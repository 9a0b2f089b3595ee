"""Lines that belong together, however they come in."""

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from connectors.text_files.joining import JoinSettings, LineJoiner


def settings(most_lines: int = 100, most_characters: int = 10_000) -> JoinSettings:
    return JoinSettings(lambda line: line.startswith("s"), most_lines, most_characters, 1.0)


@given(st.lists(st.sampled_from(["s", "s1", "a", "", "bb"]), max_size=30), st.lists(st.integers(0, 30), max_size=4))
def test_events_do_not_depend_on_blocks(lines: list[str], cuts: list[int]) -> None:
    ends = list(accumulate(len(line) + 1 for line in lines))
    joiner = LineJoiner(settings())
    events: list[tuple[str, int]] = []
    bounds = [0, *sorted(cuts), len(lines)]
    for begin, end in pairwise(bounds):
        events += zip(*joiner.add(lines[begin:end], ends[begin:end]), strict=True)
    events += zip(*joiner.flush(), strict=True)
    assert not joiner.holds_lines
    assert "\n".join(event for event, _ in events) == "\n".join(lines)
    assert [position for _, position in events] == [
        end for number, end in enumerate(ends, 1) if number == len(lines) or lines[number].startswith("s")
    ]


def test_events_are_bounded() -> None:
    joiner = LineJoiner(settings(most_lines=2))
    assert joiner.add(["s", "a", "b", "c"], [1, 2, 3, 4]) == (["s\na"], [2])
    assert joiner.flush() == (["b\nc"], [4])
    joiner = LineJoiner(settings(most_characters=5))
    assert joiner.add(["s", "aaa", "b"], [1, 2, 3]) == (["s", "aaa"], [1, 2])
    assert joiner.flush() == (["b"], [3])
