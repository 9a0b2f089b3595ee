r"""Java's regular expressions, run by Python's: the syntax of ``java.util.regex.Pattern`` is translated.

Configurations that come from Kafka Connect are written in Java's syntax: named groups, quoting, POSIX classes, unions and
intersections of character classes, flags in the middle. What can't be translated is refused with its name rather than run
with another meaning. Classes such as ``\d`` are ASCII, as in Java.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid
from connectors.options import invalid

if TYPE_CHECKING:
    from collections.abc import Callable

_POSIX: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r" \t\n\x0b\f\r",
}
_HORIZONTAL: Final = r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"
_VERTICAL: Final = r"\n\x0b\f\r\x85\u2028\u2029"
_REPETITION: Final = re.compile(r"\{\d+(?:,\d*)?\}", re.ASCII)
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_SAME_ESCAPES: Final = "dDwWsS"
_CATEGORIES: Final = re.compile(r"(?:Is)?(C[cfnos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?)\Z")
_ONE_OF: Final = re.compile(r"(?:general_category|gc)=(.*)\Z")
_FLAGS: Final = frozenset("imsxd")
#: Commas that separate regular expressions: a backslash keeps a comma in the expression.
_REGEX_COMMA: Final = re.compile(r"(?<!\\),")


class _Unsupported(Exception):
    """A construct that has no equivalent, or a syntax error; the message is for the user."""


def _escape_literal(char: str) -> str:
    return re.escape(char)


def _in_class(char: str) -> str:
    return "\\" + char if char in r"\]^[-&~|" else char


@cache
def _category_ranges(name: str) -> str:
    """The characters of the basic plane that are of a Unicode general category, as the inside of a class."""
    ranges: list[tuple[int, int]] = []
    for code in range(0x10000):
        if unicodedata.category(chr(code)).startswith(name):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1] = (ranges[-1][0], code)
            else:
                ranges.append((code, code))
    return "".join(f"\\u{low:04x}-\\u{high:04x}" for low, high in ranges)


class _RegexTranslator:
    """Walks over one Java expression and writes Python's."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.out: list[str] = []
        #: For each open group: the flags set inside it so far, as openings of scoped groups to be closed at its end.
        self.scopes: list[list[str]] = [[]]

    def translate(self) -> str:
        while self.at < len(self.pattern):
            char = self.pattern[self.at]
            if char == "\\":
                self.out.append(self.escape())
            elif char == "[":
                self.at += 1
                self.out.append(self.char_class())
            elif char == "(":
                self.group()
            elif char == ")":
                self.at += 1
                if len(self.scopes) == 1:
                    raise _Unsupported(f"Unmatched closing ')' near index {self.at - 1}")
                self.out.append(")" * (len(self.scopes.pop()) + 1))
            elif char == "|":
                self.at += 1
                opened = self.scopes[-1]
                self.out.append(")" * len(opened) + "|" + "".join(opened))
            elif char == "{" and _REPETITION.match(self.pattern, self.at) is None:  # Python takes it for itself
                raise _Unsupported(f"Illegal repetition near index {self.at}")
            else:
                self.at += 1
                self.out.append(char)
        if len(self.scopes) > 1:
            raise _Unsupported(f"Unclosed group near index {len(self.pattern)}")
        self.out.append(")" * len(self.scopes[0]))
        return "".join(self.out)

    def group(self) -> None:
        remainder = self.pattern[self.at :]
        named = re.match(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>", remainder)
        if named:
            self.at += named.end()
            self.out.append(f"(?P<{named[1]}>")
            self.scopes.append([])
            return
        flags = re.match(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])", remainder)
        if flags and (flags[1] or flags[2]):
            on, off = flags[1], flags[2] or ""
            for flag in on + off:
                if flag not in _FLAGS:
                    raise _Unsupported(f"the flag {flag} of (?{flag}) is not supported")
            on, off = on.replace("d", ""), off.replace("d", "")
            opening = f"(?{on}{'-' + off if off else ''}:"
            self.at += flags.end()
            self.out.append(opening)
            if flags[3] == ":":
                self.scopes.append([])
            else:
                self.scopes[-1].append(opening)
            return
        prefix = re.match(r"\((?:\?(?:<=|<!|[:=!>]))?", remainder)
        opening = prefix[0] if prefix else "("
        if opening == "(" and remainder.startswith("(?"):
            raise _Unsupported(f"Unknown inline modifier near index {self.at + 2}")
        self.at += len(opening)
        self.out.append(opening)
        self.scopes.append([])

    def escape(self) -> str:
        """An escape outside a class."""
        follows = self.pattern[self.at + 1 : self.at + 2]
        if follows == "Q":
            return "".join(map(_escape_literal, self.quoted()))
        if follows in ("b", "B", "A"):
            self.at += 2
            return "\\" + follows
        if follows == "z":
            self.at += 2
            return r"\Z"
        if follows == "Z":
            self.at += 2
            return r"(?=\n?\Z)"
        if follows == "R":
            self.at += 2
            return rf"(?:\r\n|[{_VERTICAL}])"
        if follows == "k":
            name = re.compile(r"\\k<([a-zA-Z][a-zA-Z0-9]*)>").match(self.pattern, self.at)
            if name is None:
                raise _Unsupported(f"\\k is not followed by '<' for named capturing group near index {self.at + 2}")
            self.at = name.end()
            return f"(?P={name[1]})"
        if follows.isdigit() and follows != "0":
            self.at += 2
            return "\\" + follows
        inside, single = self.class_escape()
        return _escape_literal(single) if single is not None else f"[{inside}]"

    def quoted(self) -> str:
        end = self.pattern.find(r"\E", self.at + 2)
        literal = self.pattern[self.at + 2 :] if end < 0 else self.pattern[self.at + 2 : end]
        self.at = len(self.pattern) if end < 0 else end + 2
        return literal

    def class_escape(self) -> tuple[str, str | None]:
        """An escape that stands for one character or a set: (inside of a class, the character if it is one)."""
        start = self.at
        follows = self.pattern[start + 1 : start + 2]
        self.at += 2
        if follows == "":
            raise _Unsupported(
                f"Unexpected internal error near index {start + 1}: the expression ends with a backslash"
            )
        if follows in _SAME_ESCAPES:
            return "\\" + follows, None
        if follows in "hv":
            return (_HORIZONTAL if follows == "h" else _VERTICAL), None
        if follows in "HV":
            return self.complement(_HORIZONTAL if follows == "H" else _VERTICAL), None
        if follows in "pP":
            inside = self.property()
            return (inside if follows == "p" else self.complement(inside)), None
        code = self.code_point(follows)
        if code is not None:
            return _in_class(code), code
        if follows in _CONTROL:
            return _in_class(_CONTROL[follows]), _CONTROL[follows]
        if follows.isalnum():
            raise _Unsupported(f"Illegal/unsupported escape sequence \\{follows} near index {start + 1}")
        return _in_class(follows), follows

    def code_point(self, follows: str) -> str | None:
        for form, base in (
            (r"x\{([0-9a-fA-F]+)\}", 16),
            (r"x([0-9a-fA-F]{2})", 16),
            (r"u([0-9a-fA-F]{4})", 16),
            (r"0([0-3]?[0-7]{1,2})", 8),
        ):
            match = re.compile(form).match(self.pattern, self.at - 1)
            if match:
                self.at = match.end()
                return chr(int(match[1], base))
        if follows == "c" and self.at < len(self.pattern):
            self.at += 1
            return chr(ord(self.pattern[self.at - 1]) ^ 64)
        if follows in "xu0c":
            raise _Unsupported(f"Illegal escape sequence \\{follows} near index {self.at - 1}")
        return None

    def property(self) -> str:
        match = re.compile(r"\{([^}]*)\}|(.)").match(self.pattern, self.at)
        if match is None:
            raise _Unsupported(f"Unknown character property near index {self.at}")
        self.at = match.end()
        name = match[1] if match[1] is not None else match[2]
        if name in _POSIX:
            return _POSIX[name]
        longer = _ONE_OF.match(name)
        category = _CATEGORIES.match(longer[1] if longer else name)
        if category is None:
            raise _Unsupported(f"the character property {{{name}}} is not supported")
        return _category_ranges(category[1])

    def complement(self, inside: str) -> str:
        """The inside of a class that holds every character of the basic plane but those of ``inside``."""
        excluded = re.compile(f"[{inside}]")
        ranges: list[tuple[int, int]] = []
        for code in range(0x10000):
            if not excluded.match(chr(code)):
                if ranges and ranges[-1][1] == code - 1:
                    ranges[-1] = (ranges[-1][0], code)
                else:
                    ranges.append((code, code))
        return "".join(f"\\u{low:04x}-\\u{high:04x}" for low, high in ranges)

    def char_class(self) -> str:
        """The rest of a class after its ``[``: an expression that matches one character."""
        start = self.at - 1
        negated = self.pattern.startswith("^", self.at)
        if negated:
            self.at += 1
        operands: list[str] = []
        inside, nested = "", list[str]()
        first = True
        while True:
            if self.at >= len(self.pattern):
                raise _Unsupported(f"Unclosed character class near index {len(self.pattern) - 1} (opened at {start})")
            char = self.pattern[self.at]
            if char == "]" and not first:
                self.at += 1
                break
            first = False
            if char == "[":
                self.at += 1
                nested.append(self.char_class())
            elif self.pattern.startswith("&&", self.at):
                self.at += 2
                if inside or nested:
                    operands.append(_join_union(inside, nested))
                inside, nested = "", []
            elif self.pattern.startswith(r"\Q", self.at):
                inside += "".join(map(_in_class, self.quoted()))
            else:
                inside += self.class_item()
        if inside or nested:
            operands.append(_join_union(inside, nested))
        if len(operands) == 1 and not nested:
            return f"[{'^' if negated else ''}{inside}]"
        whole = "".join(f"(?={operand})" for operand in operands[:-1]) + operands[-1]
        return rf"(?:(?!{whole})[\s\S])" if negated else f"(?:{whole})"

    def class_item(self) -> str:
        low, single = self.class_char()
        follows = self.pattern[self.at + 1 : self.at + 2]
        if single is None or not self.pattern.startswith("-", self.at) or follows in ("]", "[", ""):
            return low
        self.at += 1
        high, end = self.class_char()
        if end is None or end < single:
            raise _Unsupported(f"Illegal character range near index {self.at}")
        return f"{low}-{high}"

    def class_char(self) -> tuple[str, str | None]:
        char = self.pattern[self.at]
        if char == "\\":
            return self.class_escape()
        self.at += 1
        return _in_class(char), char


def _join_union(inside: str, nested: list[str]) -> str:
    parts = [f"[{inside}]"] if inside else []
    return "(?:" + "|".join(parts + nested) + ")" if len(parts) + len(nested) > 1 else (parts + nested)[0]


def compile_java(pattern: str) -> re.Pattern[str]:
    """``pattern``, written in Java's syntax, as a Python pattern.

    Raises:
        ConfigInvalid: it has an error, or something that can't be translated.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            return re.compile(_RegexTranslator(pattern).translate(), re.ASCII)
    except (re.error, _Unsupported, FutureWarning, OverflowError, ValueError) as error:
        raise ConfigInvalid(f"Invalid regex: {error}\n{pattern}") from None


def java_expression(name: str, value: str | None) -> str | None:
    """A validator: a regular expression in Java's syntax; the words are those of Kafka Connect."""
    try:
        compile_java(value or "")
    except ConfigInvalid as error:
        return invalid(name, value, str(error))
    return None


def java_replacement(replacement: str, pattern: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    """``replacement`` in the syntax of ``java.util.regex.Matcher.replaceFirst`` as a function for ``Pattern.sub``.

    Raises:
        ConfigInvalid: it refers to a group that ``pattern`` doesn't have, or can't be parsed.
    """
    parts: list[str | int] = []
    at = 0
    while at < len(replacement):
        char = replacement[at]
        if char == "\\":
            if at + 1 == len(replacement):
                raise ConfigInvalid(invalid("replacement", replacement, "character to be escaped is missing"))
            parts.append(replacement[at + 1])
            at += 2
        elif char == "$":
            group, at = _group_reference(replacement, at + 1, pattern)
            parts.append(group)
        else:
            parts.append(char)
            at += 1

    def expand(match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match.group(part) or "" for part in parts)

    return expand


def _group_reference(replacement: str, at: int, pattern: re.Pattern[str]) -> tuple[int, int]:
    named = re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}").match(replacement, at)
    if named:
        if named[1] not in pattern.groupindex:
            raise ConfigInvalid(invalid("replacement", replacement, f"No group with name {{{named[1]}}}"))
        return pattern.groupindex[named[1]], named.end()
    if not replacement[at : at + 1].isdigit():
        raise ConfigInvalid(
            invalid(
                "replacement",
                replacement,
                "Illegal group reference: $ must be followed by a digit or {name}; write \\$ for a dollar sign",
            )
        )
    group = int(replacement[at])
    at += 1
    if group > pattern.groups:
        raise ConfigInvalid(invalid("replacement", replacement, f"No group {group}"))
    while replacement[at : at + 1].isdigit() and group * 10 + int(replacement[at]) <= pattern.groups:
        group = group * 10 + int(replacement[at])
        at += 1
    return group, at


def split_regexes(source: str | None) -> list[str]:
    r"""The items of a comma-separated list of regular expressions, stripped; ``\,`` is a comma within one."""
    return [item.replace("\\,", ",").strip() for item in _REGEX_COMMA.split(source or "") if item.strip()]


def regex_list(name: str, value: Any) -> str | None:
    """A comma-separated list of Java's regular expressions."""
    source = ",".join(str(item) for item in value) if isinstance(value, list | tuple) else value or ""
    for item in split_regexes(source):
        try:
            compile_java(item)
        except ConfigInvalid as error:
            return invalid(
                name, source, f"A comma-separated list of valid regular expressions is expected, but {error}"
            )
    return None
