"""Java's ``.properties`` files, read as ``java.util.Properties.load`` reads them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from connectors.errors import ConfigInvalid

_BLANK: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_TRAILING_BACKSLASHES: Final = re.compile(r"\\*\Z")
_KEY: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.|\Z)", re.DOTALL)
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _logical_lines(content: str) -> list[tuple[int, str]]:
    """Lines without comments and blanks, continuations joined, each with the number of its first line."""
    lines: list[tuple[int, str]] = []
    started: tuple[int, str] | None = None
    hollow = 0
    for number, natural in enumerate(_LINE_END.split(content), start=1):
        line = natural.lstrip(_BLANK)
        if started is None and (not line or line[0] in "#!"):
            continue
        first, before = started or (number, "")
        backslashes = _TRAILING_BACKSLASHES.search(line)
        if backslashes is not None and len(backslashes[0]) % 2:
            # As in Java, a line that has only a continuation has no content yet: a comment may follow ...
            started = (first, before + line[:-1]) if before or len(line) > 1 else None
            hollow = number if started is None else 0
        else:
            lines.append((first, before + line))
            started = None
    if started is not None:
        lines.append(started)
    elif hollow and (hollow == number or (hollow == number - 1 and content.endswith(("\\\n", "\\\r")))):
        lines.append((hollow, ""))  # ... unless the text ends there: then it counts as an empty key
    return lines


def _unescape_line(raw: str, number: int) -> str:
    def replaced(match: re.Match[str]) -> str:
        escape = match[1]
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        if escape == "u":
            raise ConfigInvalid(f"line {number}: Malformed \\uxxxx encoding: four hexadecimal digits must follow \\u")
        return _CONTROL.get(escape, escape)

    plain = _ESCAPE.sub(replaced, raw) if "\\" in raw else raw
    # Characters beyond the basic plane are written as two escapes: put the halves together.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if "\\u" in raw else plain


def parse_properties(content: str) -> dict[str, str]:
    """The properties that ``content`` holds; the last of several values for a key counts.

    Raises:
        ConfigInvalid: an escape is malformed; the message has the line number.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(content):
        key = _KEY.match(line)
        name, end = (key[1], key.end()) if key is not None else (line, len(line))
        properties[_unescape_line(name, number)] = _unescape_line(line[end:], number)
    return properties


def load_properties(path: str | Path) -> dict[str, str]:
    """The properties in a file. Blocks while it reads.

    The file is taken as UTF-8, and as Latin-1 if it isn't (which is what Kafka Connect takes every worker file for).

    Raises:
        ConfigInvalid: it can't be read, or an escape is malformed; the message names the file.
    """
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise ConfigInvalid(f"Could not read properties from file {path}: {error.strerror}") from error
    try:
        content = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        content = raw.decode("latin-1")
    try:
        return parse_properties(content)
    except ConfigInvalid as error:
        raise ConfigInvalid(f"{path}: {error}") from error
