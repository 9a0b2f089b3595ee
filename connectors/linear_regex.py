r"""Regular expressions of rules and masks: matched with ``re``, which is fast, and bounded by what RE2 allows.

An expression is accepted only if RE2 compiles it too, so look-around and back references are refused. That alone does not
bound what ``re`` costs: ``(a+)+$`` takes exponential time. ``choices_in`` counts in an expression where ``re`` may have to try
several ways through a string, and ``_may_rescan`` says whether a search may read the same characters from many starts, as that
for ``\d+x`` in many digits does; strings that are too long for that number are left to RE2, which is slower for short ones
and linear for all.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from math import factorial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import re2

from connectors.regex_parser import ops, parse_regex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: The longest text that ``re`` or RE2 is given; a rule set may lower it.
MOST_CHARACTERS: Final = 1_048_576
_MOST_SOURCE: Final = 16_384
_MOST_STEPS: Final = 10_000_000
#: Repetitions up to this often are taken as single characters.
_SMALL_COUNT: Final = 8
#: Of ``choices_in``: the steps grow exponentially with the length of a string.
EXPONENTIAL: Final = -1
_ATOMIC: Final = ops.ATOMIC_GROUP
_POSSESSIVE: Final = ops.POSSESSIVE_REPEAT
#: What is matched in one way from where it starts. RE2 has none of these.
_ONCE: Final = frozenset((ops.ASSERT, ops.ASSERT_NOT, _ATOMIC, _POSSESSIVE))
#: All characters as far as choices are concerned: ASCII, and 128 for any other.
_ALL: Final = frozenset(range(129))
_CLASSES: Final = {
    ops.CATEGORY_DIGIT: frozenset(range(48, 58)),
    ops.CATEGORY_SPACE: frozenset((32, *range(9, 14))),
    ops.CATEGORY_WORD: frozenset((*range(48, 58), *range(65, 91), 95, *range(97, 123))),
}
_NEGATED: Final = {
    ops.CATEGORY_NOT_DIGIT: ops.CATEGORY_DIGIT,
    ops.CATEGORY_NOT_SPACE: ops.CATEGORY_SPACE,
    ops.CATEGORY_NOT_WORD: ops.CATEGORY_WORD,
}


class PatternInvalid(Exception):
    """An expression can't be used; the message says why and what to write instead."""


class Pattern(NamedTuple):
    """An expression that can be used on lines.

    Attributes:
        source: as it was written.
        groups: a name for each group: its own, or its number from 1.
        search: text -> the first match, with ``group`` and ``groups`` as ``re`` has them, or None.
        find_all: text -> all matches that do not overlap, in order.
        limit: the longest text that ``re`` is used for.
        nullable: those of ``groups`` that may take no part in a match.
        one_way: whether there is one way through any string, from a given start.
    """

    source: str
    groups: tuple[str, ...]
    search: Callable[[str], Any]
    find_all: Callable[[str], Iterable[Any]]
    limit: int
    nullable: frozenset[str]
    one_way: bool


@lru_cache(maxsize=4096)
def compile_pattern(source: str) -> Pattern:
    r"""The expression, where classes such as ``\d`` are ASCII.

    Raises:
        PatternInvalid: ``re`` or RE2 does not accept it.
    """
    if len(source) > _MOST_SOURCE:
        raise PatternInvalid(f"the expression is longer than {_MOST_SOURCE} characters; divide the work among steps")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            warnings.simplefilter("error", DeprecationWarning)
            fast = re.compile(source, re.ASCII)
            parsed = parse_regex(source, re.ASCII)
    except re.error as error:
        raise PatternInvalid(f"this is no regular expression: {error}") from None
    except (FutureWarning, DeprecationWarning) as error:
        raise PatternInvalid(
            f"the expression has different meanings in different engines: {error}; escape the character"
        ) from None
    except (RecursionError, OverflowError):
        raise PatternInvalid("the expression is nested too deep or repeats too often; simplify it") from None
    slow = compile_re2(source)
    choices = choices_in(parsed, repeated=False, follow=frozenset())
    # ``match`` does not look for the expression anywhere else in the text.
    anchored = bool(parsed.data) and parsed.data[0] == (ops.AT, ops.AT_BEGINNING) and not fast.flags & re.MULTILINE
    rescans = choices != EXPONENTIAL and not anchored and _may_rescan(parsed)
    limit = _limit_for(choices + rescans)
    first = fast.match if anchored else fast.search
    names = {number: name for name, number in fast.groupindex.items()}
    groups = tuple(names.get(number, str(number)) for number in range(1, fast.groups + 1))
    # RE2 may see repetitions of nothing in another way: what it extracts is not vouched for.
    certain = _certain_groups(parsed) if limit >= MOST_CHARACTERS else set()
    nullable = frozenset(name for number, name in enumerate(groups, 1) if number not in certain)
    if limit >= MOST_CHARACTERS:
        return Pattern(source, groups, first, fast.finditer, limit, nullable, one_way=True)

    def search(line: str) -> Any:
        return first(line) if len(line) <= limit else slow.search(line)

    def find_all(line: str) -> Iterable[Any]:
        return fast.finditer(line) if len(line) <= limit else slow.finditer(line)

    return Pattern(
        source, groups, search if limit > 0 else slow.search, find_all, limit, nullable, one_way=choices == 0
    )


def _certain_groups(items: Iterable[Any]) -> set[int]:
    """The numbers of the groups that take part in every match of a parsed expression."""
    certain: set[int] = set()
    for operation, argument in items:
        if operation is ops.SUBPATTERN:
            if argument[0] is not None:
                certain.add(argument[0])
            certain |= _certain_groups(argument[-1])
        elif operation in (ops.MAX_REPEAT, ops.MIN_REPEAT) and argument[0] > 0:
            certain |= _certain_groups(argument[2])
    return certain


def compile_re2(source: str) -> Any:
    """The expression as RE2 compiles it.

    Raises:
        PatternInvalid: it doesn't.
    """
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(source, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        shown = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise PatternInvalid(
            f"RE2 does not accept the expression ({shown}), so a line could cost unbounded time; write it without "
            "look-ahead, look-behind, back references and possessive repetitions"
        ) from None


def _limit_for(choices: int) -> int:
    """The longest text for ``re``: with n characters and k choices it needs up to n^(k+1)/(k+1)! steps."""
    if choices == EXPONENTIAL:
        return 0
    if choices == 0:
        return MOST_CHARACTERS
    return int((_MOST_STEPS * factorial(choices + 1)) ** (1 / (choices + 1)))


def choices_in(items: Iterable[Any], *, repeated: bool, follow: frozenset[int]) -> int:
    """How many repetitions of a parsed expression may end at several characters.

    Args:
        items: a sequence of the parser's (operation, argument) pairs.
        repeated: whether it is the body of a repetition.
        follow: the characters that may come next after the sequence.

    Returns:
        The number, or -1 if one of them is inside a repetition, so that the steps grow exponentially.
    """
    total = 0
    for operation, argument in reversed(list(items)):
        count = _choices_of(operation, argument, repeated=repeated, follow=follow)
        if count == EXPONENTIAL:
            return EXPONENTIAL
        total += count
        characters, empty = first_of(operation, argument)
        follow = characters | follow if empty else characters
    return total


def _body_of_once(operation: Any, argument: Any) -> Iterable[Any]:
    """The sequence inside of a look-around, an atomic group or a possessive repetition."""
    if operation is _ATOMIC:
        body: Iterable[Any] = argument
    else:
        body = argument[-1]
        if operation is _POSSESSIVE:
            body = [(ops.MAX_REPEAT, argument)]
    return body


def _choices_of(operation: Any, argument: Any, *, repeated: bool, follow: frozenset[int]) -> int:
    if operation in (ops.MAX_REPEAT, ops.MIN_REPEAT):
        low, high, body = argument
        characters, empty = _first_characters(body)
        several = high > 1
        inside = choices_in(body, repeated=repeated or several, follow=characters | follow if several else follow)
        if inside == EXPONENTIAL or (empty and several):
            return EXPONENTIAL
        ambiguous = low != high and bool(characters & follow)
        if ambiguous and repeated:
            return EXPONENTIAL
        return inside + (1 if ambiguous and high > _SMALL_COUNT else 0)
    if operation is ops.SUBPATTERN:
        return choices_in(argument[-1], repeated=repeated, follow=follow)
    if operation in _ONCE:
        # Once it has matched, no other way through it is looked for.
        return choices_in(_body_of_once(operation, argument), repeated=False, follow=frozenset())
    if operation is ops.BRANCH:
        counts = [choices_in(branch, repeated=repeated, follow=follow) for branch in argument[1]]
        if EXPONENTIAL in counts or (
            repeated and _is_ambiguous([_first_characters(branch) for branch in argument[1]], follow)
        ):
            return EXPONENTIAL
        return max(counts)
    return 0


class _Scan(NamedTuple):
    """A part of an expression, as far as it says what a search reads.

    Attributes:
        characters: the characters that it may match.
        repeats: whether it is a long repetition behind which the match may fail; else it is a character that must be there.
    """

    characters: frozenset[int]
    repeats: bool


def _may_rescan(items: Iterable[Any]) -> bool:
    """Whether a search may read many characters from each of many starts.

    A start costs little unless it gets to a long repetition. It does not where a character must come before the first one that
    no repetition runs over: no start is then among the characters of a repetition.
    """
    before: list[frozenset[int]] = []
    repeated = False
    for characters, repeats in _list_scans(items, may_fail=False):
        if not repeats:
            if not repeated:
                before.append(characters)
            continue
        repeated = True
        if not any(required.isdisjoint(characters) for required in before):
            return True
    return False


def _list_scans(items: Iterable[Any], *, may_fail: bool) -> list[_Scan]:
    """The parts of a sequence, in order.

    Args:
        items: the parser's (operation, argument) pairs.
        may_fail: whether what follows the sequence may fail to match.
    """
    scans: list[_Scan] = []
    for operation, argument in reversed(list(items)):
        scans[:0] = _scans_of(operation, argument, may_fail=may_fail)
        may_fail = may_fail or _may_fail(operation, argument)
    return scans


def _scans_of(operation: Any, argument: Any, *, may_fail: bool) -> list[_Scan]:
    if operation in (ops.MAX_REPEAT, ops.MIN_REPEAT):
        low, high, body = argument
        inside = _list_scans(body, may_fail=may_fail or high > 1)
        if high > _SMALL_COUNT:
            costs = may_fail or any(scan.repeats for scan in inside)
            return [_Scan(_all_characters(body), repeats=True)] if costs else []
        return inside if low else [scan for scan in inside if scan.repeats]
    if operation is ops.SUBPATTERN:
        return _list_scans(argument[-1], may_fail=may_fail)
    if operation is ops.BRANCH:
        parts = [scan for branch in argument[1] for scan in _list_scans(branch, may_fail=may_fail)]
        return [scan for scan in parts if scan.repeats]
    return [] if operation is ops.AT else [_Scan(_matched_characters(operation, argument), repeats=False)]


def _may_fail(operation: Any, argument: Any) -> bool:
    """Whether there are strings at which an item of a parsed expression does not match."""
    if operation in (ops.MAX_REPEAT, ops.MIN_REPEAT):
        return argument[0] > 0 and any(_may_fail(*item) for item in argument[2])
    if operation is ops.SUBPATTERN:
        return any(_may_fail(*item) for item in argument[-1])
    if operation is ops.BRANCH:
        return all(any(_may_fail(*item) for item in branch) for branch in argument[1])
    return True


def _all_characters(items: Iterable[Any]) -> frozenset[int]:
    """All characters that a sequence may match."""
    characters: frozenset[int] = frozenset()
    for operation, argument in items:
        if operation in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            characters |= _all_characters(argument[2])
        elif operation is ops.SUBPATTERN:
            characters |= _all_characters(argument[-1])
        elif operation is ops.BRANCH:
            characters = characters.union(*map(_all_characters, argument[1]))
        elif operation is not ops.AT:
            characters |= _matched_characters(operation, argument)
    return characters


def _is_ambiguous(branches: list[tuple[frozenset[int], bool]], follow: frozenset[int]) -> bool:
    """Whether the next character leaves open which branch to take."""
    seen_characters: set[int] = set()
    for characters, empty in branches:
        expected = characters | follow if empty else characters
        if seen_characters & expected:
            return True
        seen_characters |= expected
    return sum(empty for _, empty in branches) > 1


def _first_characters(items: Iterable[Any]) -> tuple[frozenset[int], bool]:
    """The characters that a sequence may start with, and whether it may match nothing."""
    characters: frozenset[int] = frozenset()
    for operation, argument in items:
        first_set, empty = first_of(operation, argument)
        characters |= first_set
        if not empty:
            return characters, False
    return characters, True


def first_of(operation: Any, argument: Any) -> tuple[frozenset[int], bool]:
    """The characters that an item of a parsed expression may start with, and whether it may match nothing."""
    if operation in (ops.MAX_REPEAT, ops.MIN_REPEAT):
        characters, empty = _first_characters(argument[2])
        return characters, empty or argument[0] == 0
    if operation is ops.SUBPATTERN:
        return _first_characters(argument[-1])
    if operation is ops.BRANCH:
        parts = [_first_characters(branch) for branch in argument[1]]
        return frozenset().union(*(part[0] for part in parts)), any(part[1] for part in parts)
    if operation is ops.ASSERT and argument[0] > 0:
        return _first_characters(argument[1])
    if operation in (ops.AT, ops.ASSERT, ops.ASSERT_NOT):
        return frozenset(), True
    if operation in _ONCE:
        return _first_characters(_body_of_once(operation, argument))
    if operation is ops.GROUPREF:
        return _ALL, True
    return _matched_characters(operation, argument), False


def _matched_characters(operation: Any, argument: Any) -> frozenset[int]:
    """The characters that a single-character item matches, in any case; all of them if in doubt."""
    if operation is ops.LITERAL:
        return _both_cases(argument)
    if operation is ops.NOT_LITERAL:
        return _ALL - {argument} | {128}
    if operation is ops.ANY:
        return _ALL
    if operation is ops.RANGE:
        return frozenset().union(*(_both_cases(code) for code in range(argument[0], min(argument[1], 128) + 1))) | (
            {128} if argument[1] >= 128 else set()
        )
    if operation is ops.CATEGORY:
        if argument in _CLASSES:
            return _CLASSES[argument]
        return _ALL - _CLASSES[_NEGATED[argument]] if argument in _NEGATED else _ALL
    if operation is ops.IN:
        negated = bool(argument) and argument[0][0] is ops.NEGATE
        members: frozenset[int] = frozenset().union(
            *(_matched_characters(kind, value) for kind, value in argument if kind is not ops.NEGATE)
        )
        return (_ALL - members) | {128} if negated else members
    return _ALL


def _both_cases(code: int) -> frozenset[int]:
    if code >= 128:
        return frozenset((128,))
    return frozenset((code, ord(chr(code).lower()), ord(chr(code).upper())))
