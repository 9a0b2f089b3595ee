"""Generated functions for date patterns: they write strings, and read strings that have exactly the written width.

Most times in a stream belong to a few days, so the part of a string that depends on the day is created once per day.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connectors.codegen import CodeBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: Days that one pattern remembers.
_DAYS: Final = 4096
_DAY_MS: Final = 86_400_000
#: Letters of patterns that only the time of day changes.
_OF_DAY: Final = frozenset("HkKhmsSa")
_TWO: Final = tuple(f"{number:02d}" for number in range(60))
_THREE: Final = tuple(f"{number:03d}" for number in range(1000))
#: What a letter of the time of day stands for, in terms of the variables of the generated function.
_VALUES: Final = {
    "H": "hour",
    "k": "(hour or 24)",
    "K": "hour % 12",
    "h": "(hour % 12 or 12)",
    "m": "minute",
    "s": "second",
    "S": "milli",
}
#: Letter -> width that a field must have for the fast reader, and milliseconds per unit.
_WIDTHS: Final = {"y": 4, "M": 2, "d": 2, "H": 2, "m": 2, "s": 2, "S": 3}
_UNITS: Final = {"H": 3_600_000, "m": 60_000, "s": 1000, "S": 1}
_DATE: Final = frozenset("yMd")
#: A part of a pattern: letter, count, literal; see ``date_format``.
Part = tuple[str, int, str]


def make_writer(parts: Sequence[Part], day_text: Callable[[Sequence[Part], int], str]) -> Callable[[int], str]:
    """A function that writes instants, given in milliseconds since the epoch.

    Args:
        parts: the pattern's.
        day_text: writes parts that have nothing of the time of day, for a day since 1970-01-01.
    """
    runs: list[tuple[Part, ...]] = []
    fragments: list[str] = []
    code = CodeBuilder(TWO=_TWO, THREE=_THREE, known={})
    used: set[str] = set()
    for part in parts:
        letter, count, literal = part
        if letter in _OF_DAY:
            used.add("hour" if letter in "HkKha" else _VALUES[letter])
            fragments.append(_time_fragment(letter, count))
        elif letter:
            if fragments and fragments[-1].startswith("{day["):
                runs[-1] = (*runs[-1], part)
            else:
                fragments.append(f"{{day[{len(runs)}]}}")
                runs.append((part,))
        elif fragments and fragments[-1].startswith("{day["):
            runs[-1] = (*runs[-1], part)
        else:
            fragments.append(f"{{{code.bind('literal', literal)}}}")
    code.names["format_runs"] = lambda days: tuple([day_text(run, days) for run in runs])
    lines = [f"days, of_day = divmod(millis, {_DAY_MS})"]
    if runs:
        lines += [
            "day = known.get(days)",
            "if day is None:",
            f"    if len(known) >= {_DAYS}:",
            "        known.clear()",
            "    day = known[days] = format_runs(days)",
        ]
    if used:
        lines += [
            "seconds, milli = divmod(of_day, 1000)",
            "minutes, second = divmod(seconds, 60)",
            "hour, minute = divmod(minutes, 60)",
        ]
    code.define("made(millis)", [*lines, f"return f{''.join(fragments)!r}" if fragments else "return ''"])
    return code.function("made", "writing of a time")


def _time_fragment(letter: str, count: int) -> str:
    if letter == "a":
        return "{'PM' if hour >= 12 else 'AM'}"
    value = _VALUES[letter]
    if count == 1:
        return f"{{{value}}}"
    if count == 2 and letter != "S":
        return f"{{TWO[{value}]}}"
    if count == 3 and letter == "S":
        return f"{{THREE[{value}]}}"
    return f"{{{value}:0{count}d}}"


def make_reader(
    parts: Sequence[Part], slow: Callable[[str], int], day_of: Callable[[int, int, int], int]
) -> Callable[[str], int]:
    """Return a function that reads strings; ``slow`` if the pattern does not allow the fast reader.

    Args:
        parts: the pattern's, which has numbers of a date and a time only, each once.
        slow: reads any string, or refuses it.
        day_of: days since 1970-01-01 of year, month and day.
    """
    merged = _merge_literals(parts)
    date_indexes = [number for number, (letter, _, _) in enumerate(merged) if letter in _DATE]
    fixed = all(_is_fixed(part, before) for part, before in zip(merged, [("", 0, ""), *merged[:-1]], strict=True))
    if (
        not fixed
        or len(date_indexes) != len(_DATE)
        or any(letter and letter not in _DATE for letter, _, _ in merged[date_indexes[0] : date_indexes[-1]])
    ):
        return slow
    code = CodeBuilder(slow=slow, known={})
    checks, values, date_parts = [], [], []
    at = start = end = 0
    for number, (letter, count, literal) in enumerate(merged):
        width = count if letter else len(literal)
        text = f"text[{at}:{at + width}]"
        if date_indexes[0] <= number <= date_indexes[-1]:
            start = at if number == date_indexes[0] else start
            end = at + width
            date_parts.append((letter, at - start, width, literal))
        elif letter:
            code.names[letter] = {
                f"{value:0{count}d}": value * _UNITS[letter] for value in range(1000 if letter == "S" else 60)
            }
            values.append(f"{letter}[{text}]")
        else:
            checks.append(f"{text} == {code.bind('literal', literal)}")
        at += width
    code.names["day_ms"] = _date_reader(date_parts, day_of)
    code.define(
        "made(text)",
        [
            f"if {' and '.join([f'len(text) == {at}', *checks])}:",
            f"    date = text[{start}:{end}]",
            "    day = known.get(date)",
            "    if day is None:",
            "        day = day_ms(date)",
            "        if day is None:",
            "            return slow(text)",
            f"        if len(known) >= {_DAYS}:",
            "            known.clear()",
            "        known[date] = day",
            "    try:",
            f"        return {' + '.join(['day', *values])}",
            "    except KeyError:",
            "        return slow(text)",
            "return slow(text)",
        ],
    )
    return code.function("made", "reading of a time")


def _is_fixed(part: Part, before: Part) -> bool:
    """Say whether a part has a fixed width: a number of the usual width, or a literal that can't extend a number before it."""
    letter, count, literal = part
    return count == _WIDTHS.get(letter) if letter else not (before[0] and literal[:1].isdigit())


def _merge_literals(parts: Sequence[Part]) -> list[Part]:
    """The parts with literals that follow one another as one, and ``L`` as ``M``."""
    merged: list[Part] = []
    for letter, count, literal in parts:
        if not letter and merged and not merged[-1][0]:
            merged[-1] = ("", 0, merged[-1][2] + literal)
        else:
            merged.append(("M" if letter == "L" else letter, count, literal))
    return merged


def _date_reader(
    parts: Sequence[tuple[str, int, int, str]], day_of: Callable[[int, int, int], int]
) -> Callable[[str], int | None]:
    """A function that gives the milliseconds from 1970 to a date; None for what is not digits and literals in their places."""

    def read(date_text: str) -> int | None:
        numbers: dict[str, int] = {}
        for letter, at, width, literal in parts:
            part = date_text[at : at + width]
            if not letter:
                if part != literal:
                    return None
            elif part.isascii() and part.isdigit():
                numbers[letter] = int(part)
            else:
                return None
        return _day_ms(numbers, day_of)

    return read


def _day_ms(numbers: Mapping[str, int], day_of: Callable[[int, int, int], int]) -> int:
    return day_of(numbers["y"], numbers["M"], numbers["d"]) * _DAY_MS
