"""Expressions: which are accepted, and which are left to RE2 because ``re`` may need many steps."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.linear_regex import MOST_CHARACTERS, PatternInvalid, compile_pattern
from connectors.logs.rules.built import build_any
from connectors.logs.rules.compiled import compile_rules
from connectors.logs.rules.errors import OperatorOptionInvalid
from connectors.logs.rules.grok import PATTERNS, expand_grok
from connectors.logs.rules.records import LineOrigin


@pytest.mark.parametrize(
    "source",
    [
        r"^(\S+) (\S+) \[([^\]]*)\] (.*)$",
        r"(\d{4}-\d\d-\d\d) *(\w+):",
        r"^(?:\.\w+)*$",
        r"took (\d+)",
        r"key=(\w+)(?:;(\w+))*",
    ],
)
def test_one_way_through_any_string_is_left_to_re(source: str) -> None:
    assert compile_pattern(source).limit == MOST_CHARACTERS


@pytest.mark.parametrize("source", ["(a+)+$", "(a|a)*b", "(a*)*b", r"(\w+\s?)*$", r"(\w|\w\d)*c", "(?:(x*)y?)*z"])
def test_exponential_expressions_are_left_to_re2(source: str) -> None:
    assert compile_pattern(source).limit == 0


def test_the_more_ways_the_shorter_the_strings() -> None:
    limits = [compile_pattern(f"^{'(.*?),' * count}$").limit for count in range(1, 5)]
    assert limits == sorted(limits, reverse=True)
    assert limits[0] > 4000
    assert limits[3] < 100


def test_an_explosive_expression_ends() -> None:
    assert compile_pattern("(a+)+$").search("a" * 60_000 + "b") is None


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"(\d+) ms", "1" * 300_000),
        (r"user=(\S+) id=(\d+)", "user=a" * 50_000),
        (r"(?:\.\w+)*;$", ".a" * 150_000),
        (r"(?:ab|b\w+)c", "b" * 300_000),
        (r"a.*a+b", "a" * 4_000),
    ],
)
def test_a_search_from_each_character_of_a_long_line_ends(source: str, text: str) -> None:
    pattern = compile_pattern(source)
    assert pattern.search(text) is None
    assert not list(pattern.find_all(text))


@pytest.mark.parametrize("filler", ["x", "é"])
def test_a_mask_of_a_long_line_ends_and_masks_as_that_of_a_short_one(filler: str) -> None:
    steps = [
        {"mask": {"field": "line", "type": "regex", "regex": r"([^@ ])[^@ ]*@(\w+)", "replacement": "$1***@$2"}},
        {"saveAs": {"columns": [{"name": "line"}]}},
    ]
    rules = compile_rules(
        build_any({"mostCharacters": 1_048_576, "tables": [{"name": "t", "groups": [{"name": "g", "steps": steps}]}]})
    )
    for count in (10, 300_000):
        line = f"from ann@shop {filler * count} to bob@home"
        assert rules.apply(line, LineOrigin()) == [("t", [{"line": f"from a***@shop {filler * count} to b***@home"}])]


@pytest.mark.parametrize("source", [r"(\d{4}-\d\d-\d\d) *(\w+):", r"(\d+)", r"\[(\w+)\]", r"(?:a|b)=\w+;"])
def test_a_search_that_starts_seldom_is_left_to_re(source: str) -> None:
    assert compile_pattern(source).limit == MOST_CHARACTERS


def test_groups_have_their_names_or_numbers() -> None:
    assert compile_pattern("(?P<a>x)(y)(?P<b>z)").groups == ("a", "2", "b")


@pytest.mark.parametrize("source", ["(?<=a)b", "a(?!b)", r"(a)\1", "a*+", "(?>a)", "x{2000}", r"\Z"])
def test_what_re2_does_not_take_is_refused(source: str) -> None:
    with pytest.raises(PatternInvalid):
        compile_pattern(source)


@given(
    st.sampled_from(["(a|ab)(c|bcd)(d*)", "(a+)+", "^(.*?),(.*?),(.*)$", r"(\w*)\s(\d+)?", "(?i)(b)?(B|a)"]),
    st.text(alphabet="abcdB, 01", max_size=12),
)
def test_both_engines_take_the_same_groups(source: str, text: str) -> None:
    pattern = compile_pattern(source)
    match, expected = pattern.search(text), re.search(source, text, re.ASCII)
    assert (match is None) == (expected is None)
    if match is not None and expected is not None:
        assert match.groups() == expected.groups()


@pytest.mark.parametrize(("count", "last"), [(20, "x"), (2, "x" * 50), (20, ""), (1000, "x" * 1000)])
def test_grok_patterns_that_name_others_many_times_are_refused_in_time(count: int, last: str) -> None:
    patterns = {f"P{depth}": f"%{{P{depth + 1}}}" * count for depth in range(18)} | {"P18": last}
    with pytest.raises(OperatorOptionInvalid, match="name each other so often"):
        expand_grok("%{P0}", patterns)


@pytest.mark.parametrize("name", PATTERNS)
def test_every_grok_pattern_is_accepted(name: str) -> None:
    compile_pattern(expand_grok(f"%{{{name}}}", {})[0])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("IP", "192.168.0.255"),
        ("IP", "2001:db8::8a2e:370:7334"),
        ("IP", "::1"),
        ("HOSTNAME", "web-1.example.org"),
        ("TIMESTAMP_ISO8601", "2026-11-26T17:29:00.123+01:00"),
        ("HTTPDATE", "26/Nov/2026:17:29:00 +0100"),
        ("SYSLOGTIMESTAMP", "Nov  6 17:29:00"),
        ("UUID", "123e4567-e89b-12d3-a456-426614174000"),
        ("QS", r'"say \"hi\""'),
        ("LOGLEVEL", "WARNING"),
        ("URI", "https://ann@shop.example.org:8443/cart?id=7"),
        ("EMAILADDRESS", "ann.b@example.org"),
        ("UNIXPATH", "/var/log/app.log"),
        ("SYSLOGBASE", "Nov  6 17:29:00 web-1 sshd[42]:"),
        ("COMBINEDAPACHELOG", '10.0.0.1 - - [26/Nov/2026:17:29:00 +0100] "GET / HTTP/1.1" 200 - "-" "curl/8"'),
    ],
)
def test_grok_patterns_match_whole_examples(name: str, text: str) -> None:
    match = compile_pattern(f"^(?:{expand_grok(f'%{{{name}}}', {})[0]})$").search(text)
    assert match is not None
