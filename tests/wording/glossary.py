"""Read the banned words from the tables of ``docs/glossary.md``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: A word is not part of a path, an option's name or an identifier: ``backfill.mode`` does not use the word.
_BEFORE = r"(?<![\w./-])"
_AFTER = r"(?![\w/-]|\.\w)"


@dataclass(frozen=True)
class Glossary:
    """The banned words; each maps to the words to write instead."""

    names: dict[str, str]
    """Names that are banned as a whole, in lower case."""
    name_words: dict[str, str]
    """Words that are banned also inside longer names."""
    phrases: dict[str, str]
    """Words and phrases that are banned in prose."""
    openers: dict[str, str]
    """Words that must not open a docstring."""
    exceptions: tuple[str, ...]
    """Phrases that are right although they hold a banned one."""

    @cached_property
    def phrase_pattern(self) -> re.Pattern[str]:
        """Match any banned phrase; the blanks in it match line breaks too."""
        return _alternatives(self.phrases)

    @cached_property
    def exception_pattern(self) -> re.Pattern[str]:
        """Match any of the exceptions."""
        return _alternatives(self.exceptions)

    def name_finding(self, name: str) -> tuple[str, str] | None:
        """Return the banned word in an identifier and what to write instead, or None."""
        plain = name.strip("_")
        for whole in _singulars(plain.lower()):
            if whole in self.names:
                return whole, self.names[whole]
        for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", plain):
            for single in _singulars(word.lower()):
                if single in self.name_words:
                    return single, self.name_words[single]
        return None

    def prose_findings(self, text: str) -> Iterator[tuple[int, str, str]]:
        """Yield position, banned phrase and what to write instead, for each use in a prose text."""
        plain = self.exception_pattern.sub(_blank, text)
        for match in self.phrase_pattern.finditer(plain):
            phrase = " ".join(match.group().split())
            key = phrase if phrase in self.phrases else phrase[0].lower() + phrase[1:]
            yield match.start(), phrase, self.phrases[key]

    def opener_finding(self, docstring: str) -> tuple[str, str] | None:
        """Return the banned first word of a docstring and what to write instead, or None."""
        first = re.match(r"\s*(\w+)", docstring)
        if first is None or first.group(1) not in self.openers:
            return None
        return first.group(1), self.openers[first.group(1)]


def read_glossary(page: str) -> Glossary:
    """Read the tables of the page.

    Raises:
        ValueError: A word is banned twice, or the page bans nothing.
    """
    names: dict[str, str] = {}
    name_words: dict[str, str] = {}
    phrases: dict[str, str] = {}
    openers: dict[str, str] = {}
    for row in _table_rows(page):
        advice = row.get("Write", "").replace("`", "")
        for item in _items(row.get("Not in names", "")):
            inner = item.strip("*")
            _add(name_words if inner != item else names, inner, advice)
        for item in _items(row.get("Not in prose", "")):
            inner = item.removeprefix("^")
            _add(openers if inner != item else phrases, inner, advice)
    if not (names and name_words and phrases and openers):
        raise ValueError("docs/glossary.md has no banned words of one kind; were its columns renamed?")
    _, _, tail = page.partition("## Exceptions")
    return Glossary(names, name_words, phrases, openers, tuple(_items(tail)))


def _table_rows(page: str) -> Iterator[dict[str, str]]:
    """Yield the rows of all tables by the titles of their columns."""
    titles: list[str] = []
    for line in page.splitlines():
        if not line.startswith("|"):
            titles = []
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not titles:
            titles = cells
        elif set(line) - set("|-: "):
            yield dict(zip(titles, cells, strict=False))


def _items(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def _add(words: dict[str, str], word: str, advice: str) -> None:
    if word in words:
        raise ValueError(f"docs/glossary.md bans {word!r} twice")
    words[word] = advice


def _singulars(word: str) -> tuple[str, ...]:
    return (word, word[:-1]) if word.endswith("s") else (word,)


def _alternatives(phrases: tuple[str, ...] | dict[str, str]) -> re.Pattern[str]:
    """Match any of the phrases, each also with a capital first letter, the longest first."""
    options = [
        f"[{phrase[0].upper()}{phrase[0]}]" + r"\s+".join(map(re.escape, phrase[1:].split(" ")))
        for phrase in sorted(phrases, key=len, reverse=True)
    ]
    return re.compile(f"{_BEFORE}(?:{'|'.join(options) or '(?!)'}){_AFTER}")


def _blank(match: re.Match[str]) -> str:
    """Replace all but line breaks, so that positions and lines stay."""
    return re.sub(r"[^\n]", "·", match.group())
