"""Patterns of lines that no rule accepts, and rules proposed for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.logs.rules.built import build_rules
from connectors.logs.rules.model import read_rules
from connectors.logs.rules.tools.preview import preview_rules
from connectors.logs.rules.tools.proposals import MOST_PATTERNS, ProposedPattern, propose_rules


def rows(pattern: ProposedPattern, lines: list[str]) -> list[dict[str, object]]:
    assert pattern.rules is not None
    shown = preview_rules(build_rules(read_rules(pattern.rules)), lines).lines
    return [row for line in shown for row in line.rows.get("lines", [])]


def test_lines_of_two_kinds_become_two_patterns_with_rules() -> None:
    hits = [f"GET /p{number} took={number * 7}ms user=u{number} rate 0.{number}" for number in range(1, 9)]
    errors = [f"ERROR disk sd{letter} is full" for letter in "abc"]
    first, second = propose_rules([*hits, "", *errors])
    assert (first.pattern, first.count, first.examples) == ("GET <*> <*> <*> rate <*>", 8, hits[:3])
    assert rows(first, hits[:1]) == [{"field1": "p1", "took": 7, "user": "u1", "rate": 0.1}]
    assert (second.pattern, second.count) == ("ERROR disk <*> is full", 3)
    assert rows(second, errors) == [{"disk": f"sd{letter}"} for letter in "abc"]


def test_lines_that_are_all_the_same_are_kept_whole() -> None:
    (pattern,) = propose_rules(["it is (not) over"] * 5)
    assert (pattern.pattern, pattern.count) == ("it is (not) over", 5)
    assert rows(pattern, ["it is (not) over", "it is over"]) == [{"line": "it is (not) over"}]


def test_first_words_with_digits_do_not_tell_lines_apart() -> None:
    (pattern,) = propose_rules([f"2026-11-2{day} start of job {day}" for day in range(1, 8)])
    assert pattern.pattern == "<*> start of job <*>"
    assert rows(pattern, pattern.examples[:1]) == [{"field1": "2026-11-21", "job": 1}]


def test_numbers_that_no_column_holds_stay_text() -> None:
    (pattern,) = propose_rules([f"id {number}" for number in (10**30, 7)])
    assert rows(pattern, pattern.examples) == [{"id": str(10**30)}, {"id": "7"}]


def test_long_lines_and_many_patterns_are_bounded() -> None:
    long = [" ".join(["begin", *(f"w{number}" for number in range(100)), end]) for end in ("x", "y")]
    (pattern,) = propose_rules(long)
    assert len(rows(pattern, long)) == 2
    assert len(
        propose_rules([f"{'abcdefghij'[n % 10]}{'klmnopqrst'[n // 10 % 10]}{'uv'[n // 100]}" for n in range(200)])
    ) == (MOST_PATTERNS)


@given(
    st.lists(
        st.lists(st.sampled_from(["a", "b=1", "b=22", "b=", "7", "-3", "1.5", "x(y", "[z]", "é"]), max_size=6),
        max_size=12,
    )
)
def test_each_proposed_rule_accepts_its_lines(words: list[list[str]]) -> None:
    lines = [" ".join(line) for line in words]
    patterns = propose_rules(lines)
    assert sum(pattern.count for pattern in patterns) == sum(bool(line) for line in lines)
    for pattern in patterns:
        assert len(rows(pattern, pattern.examples)) == len(pattern.examples)


@pytest.mark.parametrize("line", ["a\x00b c", "tab\tand  spaces ", "  leading"])
def test_unusual_lines_have_a_rule(line: str) -> None:
    for pattern in propose_rules([line, line]):
        assert rows(pattern, [line])
