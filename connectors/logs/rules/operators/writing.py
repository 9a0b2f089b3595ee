"""Operators that write text: trim, subString, replace, prefixOrAppend, concat, set."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta

from connectors.errors import ConfigInvalid
from connectors.java_regex import java_replacement
from connectors.logs.rules.errors import OperatorOptionInvalid
from connectors.logs.rules.operators.patterns import make_pattern
from connectors.logs.rules.options import Operator
from connectors.logs.rules.plans import AddFields, ChangeValue, Plan
from connectors.logs.rules.records import FieldName, LineOrigin, Record, StepFailed, read_field
from connectors.logs.rules.types import read_text, write_text

if TYPE_CHECKING:
    from collections.abc import Callable

_PARTS: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|([{}])")


class Trim(Operator, frozen=True):
    """Remove white space or given characters from both ends, one end, or everywhere."""

    field: Annotated[FieldName, Meta(description="The field.")]
    side: Annotated[Literal["both", "left", "right", "all"], Meta(description="Where: both, left, right or all.")] = (
        "both"
    )
    characters: Annotated[str | None, Meta(description="The characters to remove; not set means white space.")] = None

    def make_plan(self) -> Plan:
        """As in the base class."""
        characters = self.characters
        if characters == "":
            raise OperatorOptionInvalid(
                "characters", "give at least one character, or leave the option out for white space"
            )
        if self.side == "all":
            removed = {ord(character): None for character in characters or " \t\n\r\f\v"}
            return ChangeValue(self.field, _on_text(lambda text: text.translate(removed)))
        strip = {"both": str.strip, "left": str.lstrip, "right": str.rstrip}[self.side]
        return ChangeValue(self.field, _on_text(lambda text: strip(text, characters)))


class SubString(Operator, frozen=True):
    """Part of a field, between two positions or between two strings."""

    field: Annotated[FieldName, Meta(description="The field.")]
    start: Annotated[
        int | str, Meta(description="Position of the first character from 0, or the string before the part.")
    ] = 0
    end: Annotated[
        int | str | None,
        Meta(description="Position after the last character, or the string after the part; not set: all."),
    ] = None
    target: Annotated[str, Meta(description="The field to write; not set means the same.")] = ""

    def make_plan(self) -> Plan:
        """As in the base class."""
        start, end = self.start, self.end
        if "" in (start, end):
            raise OperatorOptionInvalid(
                "start" if start == "" else "end", "give a position or a string that is not empty"
            )
        if isinstance(start, int) and isinstance(end, int) and 0 <= end < start:
            raise OperatorOptionInvalid("end", f"it is before start ({start})")

        def cut(string: str) -> str:
            first = start if isinstance(start, int) else _after(string, start)
            if end is None:
                return string[first:]
            if isinstance(end, int):
                return string[first:end]
            last = string.find(end, max(first, 0))
            if last < 0:
                raise StepFailed(f"there is no {end!r} after the start")
            return string[first:last]

        return ChangeValue(self.field, _on_text(cut), self.target)


def _after(source: str, string: str) -> int:
    position = source.find(string)
    if position < 0:
        raise StepFailed(f"there is no {string!r} in it")
    return position + len(string)


class Replace(Operator, frozen=True):
    """Replace a string, what an expression matches, or the whole value."""

    field: Annotated[FieldName, Meta(description="The field.")]
    by: Annotated[str, Meta(description="The new text; with pattern, $1 and ${name} stand for groups.")]
    string: Annotated[str | None, Meta(description="The string to replace, everywhere.")] = None
    pattern: Annotated[str | None, Meta(description="The expression to replace, everywhere.")] = None
    whole: Annotated[bool, Meta(description="Replace the whole value.")] = False
    target: Annotated[str, Meta(description="The field to write; not set means the same.")] = ""

    def make_plan(self) -> Plan:
        """As in the base class."""
        if (self.string is not None) + (self.pattern is not None) + self.whole != 1:
            raise OperatorOptionInvalid("string", "give exactly one of string, pattern and whole")
        by, string = self.by, self.string
        if self.whole:
            return ChangeValue(self.field, lambda _value: by, self.target)
        if string == "":
            raise OperatorOptionInvalid("string", "the string must not be empty")
        if string is not None:
            return ChangeValue(self.field, _on_text(lambda text: text.replace(string, by)), self.target)
        return ChangeValue(self.field, _on_text(make_replacer(self.pattern or "", by)), self.target)


def make_replacer(source: str, by: str) -> Callable[[str], str]:
    """A function that replaces all matches of an expression, in a time that is bounded by the length of the string.

    Raises:
        OperatorOptionInvalid: the expression or its replacement can't be used.
    """
    find_all = make_pattern("pattern", source).find_all
    try:
        expand = java_replacement(by, re.compile(source, re.ASCII))
    except ConfigInvalid as error:
        raise OperatorOptionInvalid("by", str(error)) from None

    def replace(string: str) -> str:
        parts: list[str] = []
        position = 0
        for match in find_all(string):
            parts += [string[position : match.start()], expand(match)]
            position = match.end()
        return "".join([*parts, string[position:]])

    return replace


class PrefixOrAppend(Operator, frozen=True):
    """Put text before or after the value of a field."""

    field: Annotated[FieldName, Meta(description="The field.")]
    before: Annotated[str, Meta(description="The text to put before it.")] = ""
    after: Annotated[str, Meta(description="The text to put after it.")] = ""

    def make_plan(self) -> Plan:
        """As in the base class."""
        if not self.before and not self.after:
            raise OperatorOptionInvalid("before", "give before, after or both")
        return ChangeValue(self.field, _on_text(lambda text: f"{self.before}{text}{self.after}"))


class Concat(Operator, frozen=True):
    """Join several fields with a separator into one."""

    fields: Annotated[list[FieldName], Meta(description="The fields, in order.")]
    target: Annotated[str, Meta(description="The field to write.")]
    separator: Annotated[str, Meta(description="The text between them.")] = ""

    def make_plan(self) -> Plan:
        """As in the base class."""
        if not self.fields:
            raise OperatorOptionInvalid("fields", "give at least one field")
        _check_target(self.target)

        def compute(record: Record, origin: LineOrigin) -> list[str]:
            return [self.separator.join(write_text(read_field(record, field, origin)) for field in self.fields)]

        return AddFields((self.target,), compute, tuple(self.fields))


class Set(Operator, frozen=True):
    """Set fields from templates: {name} is the text of a field, {@host} of where the line comes from, {{ and }} are braces."""

    fields: Annotated[dict[str, str], Meta(description="The fields and their templates; all see the record as it was.")]

    def make_plan(self) -> Plan:
        """As in the base class."""
        if not self.fields:
            raise OperatorOptionInvalid("fields", "give at least one field with its template")
        for name in self.fields:
            _check_target(name)
        templates = [_parse_template(template) for template in self.fields.values()]
        sources = tuple(dict.fromkeys(name for _, names in templates for name in names if name))
        readers = [reader for reader, _ in templates]

        def compute(record: Record, origin: LineOrigin) -> list[Any]:
            return [reader(record, origin) for reader in readers]

        return AddFields(tuple(self.fields), compute, sources)


def _check_target(name: str) -> None:
    if not name or name.startswith("@"):
        raise OperatorOptionInvalid("fields", f"{name!r} can't be set; choose a name that does not start with @")


def _parse_template(template: str) -> tuple[Callable[[Record, LineOrigin], str], list[str]]:
    """A function that fills the template, and the fields that it reads."""
    parts: list[tuple[bool, str]] = []
    position = 0
    for match in _PARTS.finditer(template):
        if match[2]:
            raise OperatorOptionInvalid(
                "fields", f"{template!r} has a single {match[2]!r}; write it twice for the character itself"
            )
        parts.append((False, template[position : match.start()]))
        parts.append((True, match[1]) if match[1] is not None else (False, match[0][0]))
        position = match.end()
    parts.append((False, template[position:]))
    names = [name for is_field, name in parts if is_field]
    if "" in names:
        raise OperatorOptionInvalid("fields", f"{template!r} has a field without a name; write {{{{}}}} for braces")

    def fill(record: Record, origin: LineOrigin) -> str:
        return "".join(
            write_text(read_field(record, string, origin)) if is_field else string for is_field, string in parts
        )

    return fill, names


def _on_text(change: Callable[[str], str]) -> Callable[[Any], Any]:
    """The same for any value: a null stays one."""

    def apply(value: Any) -> Any:
        return None if value is None else change(read_text(value))

    return apply
