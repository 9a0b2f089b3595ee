"""The settings of a Spark session as Java reads them from a properties file."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.spark.session import properties_text


def read(text: str) -> dict[str, str]:
    """Parse as ``java.util.Properties.load`` does: escapes, and the first separator that is not escaped."""
    properties = {}
    for line in text.splitlines():
        parts = re.match(r"((?:[^\\=]|\\.)*)=(.*)\Z", line)
        assert parts is not None
        properties[_plain(parts[1])] = _plain(parts[2])
    return properties


def _plain(text: str) -> str:
    units = re.sub(r"\\u([0-9a-f]{4})|\\(.)", lambda match: chr(int(match[1], 16)) if match[1] else match[2], text)
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_settings_come_back_as_they_were(settings: dict[str, str]) -> None:
    text = properties_text(settings)
    assert text.isascii()
    assert read(text) == settings


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("a b", r"k=a\ b"),
        ("x=y:z", r"k=x\=y\:z"),
        ("C:\\d", r"k=C\:\\d"),
        ("ä\n", r"k=\u00e4\u000a"),
        ("😀", r"k=\ud83d\ude00"),
    ],
)
def test_what_means_something_there_is_escaped(value: str, line: str) -> None:
    assert properties_text({"k": value}) == line + "\n"
