"""Groups whose expressions begin alike: a lookup behind the head says what a full search would."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.logs.rules.heads import make_head_finder

ALIKE = [
    [r"^(?P<a>\d+) login (\w+)", r"^(?P<a>\d+) logout", r"^(?P<a>\d+) list (.*)$"],
    [
        r"^\[([^\]]+)\] +(?P<b>\S+) - event00 ",
        r"^\[([^\]]+)\] +(?P<b>\S+) - event01 x?",
        r"^\[([^\]]+)\] +(?P<b>\S+) - event1",
    ],
    [r"^(\d{1,3}) a", r"^(\d{1,3}) b", r"^(\d{1,3}) a[bc]"],
    [r"^(\w+?)=x", r"^(\w+?)=y", r"^(\w+?)=xy"],
]
DIFFERENT = [
    [r"(\d+) a", r"(\d+) b"],  # may match anywhere
    [r"^(\S+) - a", r"^(\w+) - b"],  # no common head
    [r"^(.*) a", r"^(.*) b"],  # the head may end at any blank
    [r"^(?:a|ab)c x", r"^(?:a|ab)c y"],
    [r"^(?i)a x", r"^(?i)a y"],
    [r"(?i)^a x", r"(?i)^a y"],
    [r"^(\d+) ", r"^(\d+) b"],  # one ends with the head
    [r"^(\d+) (a)", r"^(\d+) b"],
    [r"^(\d+)a", r"^(\d+)b"],  # the head ends with a repetition
    [r"^(?:\d+\.)+x", r"^(?:\d+\.)+y"],
    ["", "a"],
]
STRINGS = st.text(alphabet="01 ab=xy[]-.\n\v", max_size=12)
WORDS = st.lists(
    st.sampled_from(
        [
            "1",
            "12345",
            " ",
            "login x",
            "logout",
            "list ",
            "[a]",
            "- ",
            "event00 ",
            "event01 ",
            "event1",
            "=x",
            "=y",
            "a",
        ]
    ),
    max_size=6,
).map("".join)


@pytest.mark.parametrize("sources", ALIKE)
def test_expressions_that_begin_alike(sources: list[str]) -> None:
    find = make_head_finder(sources)
    assert find is not None

    @given(st.one_of(STRINGS, WORDS))
    def check(text: str) -> None:
        indexes = find(text)
        assert list(indexes) == sorted(indexes)
        matching = [index for index, source in enumerate(sources) if re.search(source, text, re.ASCII)]
        assert set(matching) <= set(indexes)

    check()


@pytest.mark.parametrize("sources", DIFFERENT)
def test_expressions_that_do_not(sources: list[str]) -> None:
    assert make_head_finder(sources) is None


def test_a_lookup_tells_expressions_apart() -> None:
    find = make_head_finder(ALIKE[1])
    assert find is not None
    assert list(find("[main] shop.Handler - event01 took 7 ms")) == [1]
    assert list(find("[main] shop.Handler - event2")) == []
    assert list(find("another line")) == []
