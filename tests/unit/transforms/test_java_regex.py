"""Java's expressions: what the comparison with Java doesn't show: errors and time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigInvalid
from worker.transforms.java.regex import compile_java, java_expression, java_replacement


@pytest.mark.parametrize(
    "pattern", [r"\p{IsGreek}", r"(?u)x", r"\G", r"(?<=a+)b", r"\k", r"\u12", "a\\", "[z-a]", "x{2,1}", r"\b{g}x"]
)
def test_what_cannot_be_translated_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigInvalid, match="Invalid regex"):
        compile_java(pattern)


def test_validator_speaks_as_connect_does() -> None:
    assert java_expression("regex", "a(b)*") is None
    complaint = java_expression("regex", "(")
    assert complaint is not None
    assert complaint.startswith("Invalid value ( for configuration regex: Invalid regex: Unclosed group near index 1")


@given(st.text(max_size=20))
def test_quoted_text_matches_itself_only(text: str) -> None:
    quoted = compile_java("\\Q" + text.replace("\\E", "") + "\\E")
    plain = text.replace("\\E", "")
    assert quoted.fullmatch(plain)
    assert not quoted.fullmatch(plain + "x")


@given(st.text(alphabet="ab()[]{}|*+?^$.\\-&<>:=!0dpQEL,i", max_size=12))
def test_any_text_compiles_or_is_refused_cleanly(pattern: str) -> None:
    try:
        compiled = compile_java(pattern)
    except ConfigInvalid:
        return
    assert isinstance(compiled, re.Pattern)


@given(st.text(alphabet="$\\{}ab19", max_size=8))
def test_any_replacement_works_or_is_refused_cleanly(replacement: str) -> None:
    pattern = compile_java("(a)(?<b>b)?")
    try:
        expand = java_replacement(replacement, pattern)
    except ConfigInvalid:
        return
    assert isinstance(pattern.sub(expand, "a"), str)
