"""Patterns of lines that no rule accepts, and a rule proposed for each. Pure functions.

Lines are grouped as Drain does it (He, Zhu, Zheng and Lyu, ICWS 2017): by their number of words, their first word, and then
the most similar pattern; words in which the lines of a pattern differ become fields.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.logs.rules.built import build_rules
from connectors.logs.rules.compiled import compile_rules
from connectors.logs.rules.errors import RulesInvalid
from connectors.logs.rules.model import read_rules
from connectors.logs.rules.records import LineOrigin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: How an open word is shown.
OPEN: Final = "<*>"
#: The share of words that are equal but for their numbers from which on a line belongs to a pattern.
_SIMILAR: Final = 0.5
#: Patterns of one number of words and first word that are compared with a line; further lines join the most similar one.
_MOST_COMPARED: Final = 50
#: Patterns of an answer; those with the most lines.
MOST_PATTERNS: Final = 100
_MOST_EXAMPLES: Final = 3
#: Words of a line that are looked at; the rest of a longer line is one more field.
_MOST_WORDS: Final = 60
_NAME_BEFORE: Final = re.compile(r"([A-Za-z][A-Za-z0-9_]*)[=:]\W*\Z")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*:?\Z")
_RUNS: Final = re.compile(r"\d+|[A-Za-z]+|.", re.DOTALL)
_DIGITS: Final = re.compile(r"\d+")
#: Signs before a field.
_OPENING: Final = frozenset("=:\"'([{<#@/")
_LONG: Final = re.compile(r"-?\d{1,18}\Z", re.ASCII)
_NOWHERE: Final = LineOrigin()
_DOUBLE: Final = re.compile(r"-?\d{1,15}(\.\d{1,15})?\Z", re.ASCII)


class ProposedPattern(msgspec.Struct):
    """Lines that are alike.

    Attributes:
        pattern: their words, with ``<*>`` where they differ.
        count: how many there are.
        examples: the first ones.
        rules: a rule set that accepts all of them; None where none was found.
    """

    pattern: str
    count: int
    examples: list[str]
    rules: dict[str, Any] | None


class _LineGroup(msgspec.Struct):
    words: list[str | None]
    shapes: list[str]
    lines: list[str]


def propose_rules(lines: Sequence[str], table: str = "lines") -> list[ProposedPattern]:
    """The patterns of lines, those with the most lines first, each with a rule.

    Args:
        lines: raw lines; what is empty is left out.
        table: the table of the proposed rules.
    """
    groups: dict[tuple[int, str], list[_LineGroup]] = {}
    for line in lines:
        words = _split_words(line)
        if not words:
            continue
        # A first word with a digit differs in most lines: their other words decide.
        first = OPEN if any(character.isdigit() for character in words[0]) else words[0]
        _add_line(groups.setdefault((len(words), first), []), words, line)
    largest_first = sorted(chain.from_iterable(groups.values()), key=lambda group: -len(group.lines))
    return [_describe_group(group, table) for group in largest_first[:MOST_PATTERNS]]


def _split_words(line: str) -> list[str]:
    return line.split(None, _MOST_WORDS)


def _add_line(groups: list[_LineGroup], words: list[str], line: str) -> None:
    """Put a line into the most similar group, or into one of its own."""
    shapes = [_DIGITS.sub("0", word) for word in words]
    best, best_share = None, -1.0
    for group in groups:
        same = sum(ours == theirs for ours, theirs in zip(group.shapes, shapes, strict=True)) / len(words)
        if same > best_share:
            best, best_share = group, same
    if best is None or (best_share < _SIMILAR and len(groups) < _MOST_COMPARED):
        groups.append(_LineGroup(list(words), shapes, [line]))
        return
    best.words = [ours if ours == theirs else None for ours, theirs in zip(best.words, words, strict=True)]
    best.lines.append(line)


def _describe_group(group: _LineGroup, table: str) -> ProposedPattern:
    pattern = " ".join(OPEN if word is None else word for word in group.words)
    rules = next((rules for rules in _propose_rules(group, table) if _accepts_all(rules, group.lines)), None)
    return ProposedPattern(pattern, len(group.lines), group.lines[:_MOST_EXAMPLES], rules)


def _propose_rules(group: _LineGroup, table: str) -> Iterator[dict[str, Any]]:
    """Rules for a pattern: fields inside of words, and if that does not work, whole words."""
    rows = [_split_words(line) for line in group.lines]
    for inside in (True, False):
        for typed in (True, False):
            yield _make_rules(group.words, rows, table, inside=inside, typed=typed)


def _make_rules(
    words: Sequence[str | None], rows: Sequence[Sequence[str]], table: str, *, inside: bool, typed: bool
) -> dict[str, Any]:
    parts: list[str] = []
    columns: list[dict[str, str]] = []
    last = len(words) - 1
    for index, word in enumerate(words):
        if word is not None:
            parts.append(re.escape(word))
            continue
        values = [row[index] for row in rows]
        before, after = _common_ends(values) if inside else ("", "")
        inner = [value[len(before) : len(value) - len(after)] for value in values]
        name = _unique_name(_name_field(before, words[index - 1] if index else None), columns)
        columns.append({"name": name, "type": _guess_type(inner) if typed else "string"})
        field = ".*" if index == _MOST_WORDS == last else r"\S*" if "" in inner else r"\S+"
        parts.append(f"{re.escape(before)}(?P<{name}>{field}){re.escape(after)}")
    if not columns:
        columns = [{"name": "line"}]
        steps: list[dict[str, Any]] = [{"filter": {"matches": rf"^\s*{_join_parts(parts)}\s*$"}}]
    else:
        steps = [{"regexExtract": {"pattern": rf"^\s*{_join_parts(parts)}\s*$"}}]
    group = {"name": "proposed", "steps": [*steps, {"saveAs": {"columns": columns}}]}
    return {"tables": [{"name": table, "groups": [group]}]}


def _join_parts(parts: Sequence[str]) -> str:
    return r"\s+".join(parts)


def _common_ends(values: Sequence[str]) -> tuple[str, str]:
    """The text before and after a field that all values share: up to a sign such as ``=``, and from a unit or bracket on."""
    split = [_RUNS.findall(value) for value in values]
    before = _shared_prefix(split)
    while before and before[-1] not in _OPENING:
        before.pop()
    after = _shared_prefix([runs[len(before) :][::-1] for runs in split])
    for index, run in enumerate(after):
        if run.isdigit() or run == ".":
            del after[index:]
            break
    return "".join(before), "".join(reversed(after))


def _shared_prefix(rows: Sequence[Sequence[str]]) -> list[str]:
    shared: list[str] = []
    for runs in zip(*rows, strict=False):
        if any(run != runs[0] for run in runs):
            break
        shared.append(runs[0])
    return shared


def _name_field(before: str, previous: str | None) -> str:
    """The name of a field: the ``name=`` before it, or the word before it."""
    if match := _NAME_BEFORE.search(before):
        return match[1].lower()
    if not before and previous is not None and _WORD.match(previous):
        return previous.rstrip(":").lower()
    return "field"


def _unique_name(name: str, columns: Sequence[dict[str, str]]) -> str:
    names = {column["name"] for column in columns}
    if name != "field" and name not in names:
        return name
    return next(numbered for number in range(1, len(names) + 2) if (numbered := f"{name}{number}") not in names)


def _guess_type(values: Sequence[str]) -> str:
    if all(map(_LONG.match, values)):
        return "long"
    return "double" if all(map(_DOUBLE.match, values)) else "string"


def _accepts_all(rules: dict[str, Any], lines: Sequence[str]) -> bool:
    try:
        compiled = compile_rules(build_rules(read_rules(rules)))
    except RulesInvalid:
        return False
    return all(compiled.apply(line, _NOWHERE) for line in lines)
