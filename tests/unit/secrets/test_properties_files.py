"""Java's properties files; tests/conformance/transforms compares with Java itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigInvalid
from worker.properties import load_properties, parse_properties

if TYPE_CHECKING:
    from pathlib import Path


def test_a_worker_file() -> None:
    text = """
# Kafka
bootstrap.servers=a:9092,\\
                  b:9092
   group.id : connect
! another comment
key.converter org.apache.kafka.connect.json.JsonConverter
path\\ with\\ blanks = C:\\\\temp\\ttab
unicode=\\u00fc\\ud83d\\ude00
empty=
bare
twice=1
twice=2
equals=a=b:c
"""
    assert parse_properties(text) == {
        "bootstrap.servers": "a:9092,b:9092",
        "group.id": "connect",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "path with blanks": "C:\\temp\ttab",
        "unicode": "ü\U0001f600",
        "empty": "",
        "bare": "",
        "twice": "2",
        "equals": "a=b:c",
    }


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "\\u=1"])
def test_malformed_escape_names_its_line(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="line 3: Malformed"):
        parse_properties("x=1\n\n" + text)


def stored(text: str, *, key: bool) -> str:
    """``text`` as ``java.util.Properties.store`` writes it."""
    escaped = ""
    for at, char in enumerate(text):
        if char == " ":
            escaped += "\\ " if key or at == 0 else " "
        elif char in "\t\n\r\f":
            escaped += {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[char]
        elif char in "=:#!\\":
            escaped += "\\" + char
        elif not " " <= char <= "~":
            encoded = char.encode("utf-16-be").hex()
            escaped += "".join(f"\\u{encoded[start : start + 4]}" for start in range(0, len(encoded), 4))
        else:
            escaped += char
    return escaped


strings = st.text(alphabet=st.characters(codec="utf-8"), max_size=20)


@given(
    st.dictionaries(strings, strings, max_size=8),
    st.sampled_from(["\n", "\r", "\r\n"]),
    st.sampled_from(["=", ":", " ", " = ", "\t: "]),
)
def test_what_java_stores_is_read_back(properties: dict[str, str], end: str, separator: str) -> None:
    lines = [stored(key, key=True) + separator + stored(value, key=False) for key, value in properties.items()]
    # After a blank as separator, an empty value and an empty key can't be distinguished.
    if "" not in properties:
        assert parse_properties(end.join(lines)) == properties


@given(st.text(alphabet="ab=: \t\\\n\r#!u01", max_size=40))
def test_any_text_is_read_or_refused_cleanly(text: str) -> None:
    try:
        properties = parse_properties(text)
    except ConfigInvalid:
        return
    assert all(isinstance(item, str) for pair in properties.items() for item in pair)


def test_load(tmp_path: Path) -> None:
    file = tmp_path / "w.properties"
    file.write_bytes("\ufeffa=ü".encode())
    assert load_properties(file) == {"a": "ü"}
    file.write_bytes("a=ü".encode("latin-1"))
    assert load_properties(str(file)) == {"a": "ü"}
    with pytest.raises(ConfigInvalid, match=r"Could not read properties from file .*none: No such file"):
        load_properties(tmp_path / "none")
    file.write_text("ok=1\nbad=\\u1")
    with pytest.raises(ConfigInvalid, match=r"w\.properties: line 2"):
        load_properties(file)
