r"""Replacing what an expression matches, in values of any length. Pure.

``re`` may read a value again from each of its characters: ``[^@]+@`` takes the square of the length of a value without an
``@``, and blocks the event loop meanwhile. Where RE2 certainly finds the same, it gets the values that are too long. An
expression that may take exponential time and is not for RE2 is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Skippable
from connectors.linear_regex import (
    EXPONENTIAL,
    MOST_CHARACTERS,
    Pattern,
    PatternInvalid,
    choices_in,
    compile_pattern,
)
from connectors.regex_parser import ops, parse_regex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: What RE2 may understand in another way, or not at all: no white space, ends, flags, look-around.
_DIFFERENT: Final = re.compile(r"\\[SBZ]|\(\?(?!:|P<)")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
#: White space inside of a class, where expressions from Java have it: RE2's lacks the vertical tab.
_SPACES: Final = r"\t-\r "
#: Characters of a value for which exponential time is short.
_SHORT_LENGTH: Final = 16


def make_substitution(pattern: re.Pattern[str], expand: Callable[[Any], str]) -> Callable[[str], str]:
    """A function that replaces all matches in a string.

    Args:
        pattern: the expression.
        expand: what replaces a match.

    Raises:
        PatternInvalid: it may take exponential time.
    """

    def substitute(value: str) -> str:
        return pattern.sub(expand, value)

    parsed = parse_regex(pattern.pattern, pattern.flags)
    exponential = choices_in(parsed, repeated=False, follow=frozenset()) == EXPONENTIAL
    compiled = None if _repeats_nothing(parsed) else _compile_alike(pattern)
    if compiled is None:
        if exponential:
            raise PatternInvalid(
                "a value could cost exponential time: a repetition is within another one, as in (a+)+. Write it without, or "
                "without what keeps RE2 from it (docs/masking.md)"
            )
        return substitute
    limit, find_all = compiled.limit, compiled.find_all
    if limit >= MOST_CHARACTERS:
        return substitute

    # ``$`` is also before a line feed at the end, which RE2 does not see so.
    has_end = "$" in pattern.pattern

    def substitute_in_time(value: str) -> str:
        if len(value) <= limit or (has_end and value.endswith("\n")) or not _is_unicode(value):
            if exponential and len(value) > _SHORT_LENGTH:
                raise Skippable(
                    "a mask's expression could take exponential time for a value that ends with a line feed or has half a "
                    "character"
                )
            return pattern.sub(expand, value)
        parts: list[str] = []
        position = 0
        for match in find_all(value):
            parts += [value[position : match.start()], expand(match)]
            position = match.end()
        return "".join([*parts, value[position:]])

    return substitute_in_time


def _compile_alike(pattern: re.Pattern[str]) -> Pattern | None:
    """The expression for RE2; None if that may find something else."""
    if _DIFFERENT.search(pattern.pattern) or pattern.match("") is not None:
        return None
    try:
        return compile_pattern(_ESCAPE.sub(lambda part: _SPACES if part[1] == "s" else part[0], pattern.pattern))
    except PatternInvalid:
        return None


def _repeats_nothing(items: Iterable[Any]) -> bool:
    """Whether a parsed expression repeats what may be empty, which RE2 counts in another way."""
    for operation, argument in items:
        bodies: Iterable[Any] = ()
        if operation in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            _, high, body = argument
            if high > 1 and body.getwidth()[0] == 0:
                return True
            bodies = (body,)
        elif operation is ops.SUBPATTERN:
            bodies = (argument[-1],)
        elif operation is ops.BRANCH:
            bodies = argument[1]
        if any(map(_repeats_nothing, bodies)):
            return True
    return False


def _is_unicode(value: str) -> bool:
    """Whether there are no halves of characters, which RE2 can't read."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
