r"""A lookup of the groups that can accept a line, where all their expressions begin alike, as those of one program mostly do.

``^(\S+) \[(\w+)\] login (\S+)`` and ``^(\S+) \[(\w+)\] logout`` have a head in common. Where the head can match a line in one
way only, the characters behind it say which expression it can be: a lookup, instead of a search for all of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from connectors.linear_regex import first_of
from connectors.regex_parser import ops, parse_regex

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SINGLE: Final = frozenset({ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN})
_NONE: Final[tuple[int, ...]] = ()


def make_head_finder(sources: Sequence[str]) -> Callable[[str], Sequence[int]] | None:
    """A function that says which of these expressions a string can match; None if they have no such head.

    Args:
        sources: expressions that ``re`` and RE2 accept.

    Returns:
        Text -> the indexes of expressions, in order; the text matches no other.
    """
    try:
        parsed = [parse_regex(source, re.ASCII) for source in sources]
    except re.error:  # what looks for a string may be written for RE2
        return None
    if any(expression.state.flags != re.ASCII for expression in parsed):
        return None
    items = [list(expression.data) for expression in parsed]
    head, length = _common_head(sources, items)
    if not length:
        return None
    tails = ["".join(_leading_literals(expression[length:])) for expression in items]
    size = min(map(len, tails))
    follow = frozenset().union(*(first_of(*expression[length])[0] for expression in items if len(expression) > length))
    if not size or not _is_forced(items[0][:length], follow):
        return None
    choices: dict[str, tuple[int, ...]] = {}
    for index, tail in enumerate(tails):
        choices[tail[:size]] = (*choices.get(tail[:size], _NONE), index)
    match, choose = re.compile(head, re.ASCII).match, choices.get

    def find(line: str) -> Sequence[int]:
        matched = match(line)
        if matched is None:
            return _NONE
        end = matched.end()
        indexes = choose(line[end : end + size], _NONE)
        if len(indexes) < 2:
            return indexes
        return [index for index in indexes if line.startswith(tails[index], end)]

    return find


def _common_head(sources: Sequence[str], items: Sequence[list[Any]]) -> tuple[str, int]:
    """The longest source that all have in front, and how many items it is; it ends with a certain character."""
    first, last = min(sources), max(sources)  # what these share, all do
    common = first[
        : next((at for at, (left, right) in enumerate(zip(first, last, strict=False)) if left != right), None)
    ]
    shown = [[repr(item) for item in expression[: len(common)]] for expression in items]
    for end in range(len(common), 0, -1):
        try:
            data = list(parse_regex(common[:end], re.ASCII).data)
        except re.error:
            continue
        if not data or data[-1][0] is not ops.LITERAL or data[0] != (ops.AT, ops.AT_BEGINNING):
            continue
        head = [repr(item) for item in data]
        if all(expression[: len(head)] == head for expression in shown):
            return common[:end], len(head)
    return "", 0


def _leading_literals(items: Sequence[Any]) -> list[str]:
    """The characters that a sequence begins with, as long as they are certain."""
    characters: list[str] = []
    for operation, argument in items:
        if operation is not ops.LITERAL:
            break
        characters.append(chr(argument))
    return characters


def _is_forced(items: Sequence[Any], follow: frozenset[int]) -> bool:
    """Whether a sequence can match a string in one way at most, if one of the characters ``follow`` comes behind it."""
    for operation, argument in reversed(items):
        if operation is ops.SUBPATTERN:
            _, added, removed, body = argument
            if added or removed or not _is_forced(body, follow):
                return False
        elif operation in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            low, high, body = argument
            if len(body) != 1 or body[0][0] not in _SINGLE:
                return False
            if low != high and first_of(*body[0])[0] & follow:
                return False
        elif operation not in _SINGLE and (operation, argument) != (ops.AT, ops.AT_BEGINNING):
            return False
        characters, empty = first_of(operation, argument)
        follow = characters | follow if empty else characters
    return True
