"""Operators that take several fields out of one: regexExtract, grok, dissect, split."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta

from connectors.logs.rules.errors import OperatorOptionInvalid
from connectors.logs.rules.grok import expand_grok
from connectors.logs.rules.operators.patterns import make_pattern
from connectors.logs.rules.options import Operator
from connectors.logs.rules.plans import ChangeRecord, ExtractFields, Plan
from connectors.logs.rules.records import LINE, FieldName, LineOrigin, Record, StepFailed, name_of, read_field
from connectors.logs.rules.types import make_converter, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from connectors.linear_regex import Pattern

_KEY: Final = re.compile(r"%\{([^}]*)\}")


class RegexExtract(Operator, frozen=True):
    """Groups of a regular expression become fields, in place of the field that they are taken from."""

    pattern: Annotated[str, Meta(description="The expression; it may match anywhere in the field.")]
    names: Annotated[
        list[str] | None,
        Meta(description="A name for each group; without it groups keep their names, or numbers from 1."),
    ] = None
    field: Annotated[FieldName, Meta(description="The field to read.")] = LINE
    keep: Annotated[bool, Meta(description="Keep the field that was read.")] = False

    def make_plan(self) -> Plan:
        """As in the base class."""
        pattern = make_pattern("pattern", self.pattern)
        names = pattern.groups if self.names is None else tuple(self.names)
        if len(names) != len(pattern.groups):
            raise OperatorOptionInvalid(
                "names", f"there are {len(names)} names for {len(pattern.groups)} groups; name each group"
            )
        _check_names("names" if self.names else "pattern", names)
        return _match_fields(self.field, names, pattern, keep=self.keep)


def _match_fields(field: FieldName, names: tuple[str, ...], pattern: Pattern, *, keep: bool) -> ExtractFields:
    nullable = frozenset(name for name, group in zip(names, pattern.groups, strict=True) if group in pattern.nullable)
    return ExtractFields(
        field, names, _groups_of(pattern), keep, match=pattern.search, needle=pattern.source, nullable=nullable
    )


class Grok(Operator, frozen=True):
    """A grok expression: %{NAME:field} is a known pattern that becomes a field, %{NAME:field:int} also converts it."""

    pattern: Annotated[
        str, Meta(description="The expression, with patterns as %{NAME}, %{NAME:field} or %{NAME:field:type}.")
    ]
    patterns: Annotated[dict[str, str], Meta(description="Further patterns by name, next to the usual ones.")] = {}  # noqa: RUF012 - msgspec copies it
    field: Annotated[FieldName, Meta(description="The field to read.")] = LINE
    keep: Annotated[bool, Meta(description="Keep the field that was read.")] = False

    def make_plan(self) -> Plan:
        """As in the base class."""
        source, types = expand_grok(self.pattern, self.patterns)
        pattern = make_pattern("pattern", source)
        names = pattern.groups
        _check_names("pattern", names)
        groups = _groups_of(pattern)
        if not types:
            return _match_fields(self.field, names, pattern, keep=self.keep)
        converters = [make_converter(types[name]) if name in types else None for name in names]

        def extract(line: str) -> list[Any]:
            return [
                value if convert is None or value is None else convert(value)
                for value, convert in zip(groups(line), converters, strict=True)
            ]

        return ExtractFields(self.field, names, extract, self.keep, needle=source)


class Dissect(Operator, frozen=True):
    """Fields between fixed separators, without regular expressions: %{a} %{b}; %{} is left out, %{a->} skips padding."""

    pattern: Annotated[str, Meta(description="Keys as %{name} with the separators between them.")]
    field: Annotated[FieldName, Meta(description="The field to read.")] = LINE
    keep: Annotated[bool, Meta(description="Keep the field that was read.")] = False

    def make_plan(self) -> Plan:
        """As in the base class."""
        parts = _KEY.split(self.pattern)
        keys, separators = parts[1::2], parts[0::2]
        if not keys:
            raise OperatorOptionInvalid("pattern", "there is no %{name} in it")
        if any(not separator for separator in separators[1:-1]):
            raise OperatorOptionInvalid("pattern", "two keys need a separator between them")
        padded = [key.endswith("->") for key in keys]
        names = [key.removesuffix("->") for key in keys]
        kept = tuple(name for name in names if name)
        _check_names("pattern", kept)
        start, *between = separators
        steps = list(zip(names, padded, between, strict=True))

        def extract(line: str) -> list[str]:
            return _dissect(line, start, steps)

        needle = ".*".join(re.escape(separator) for separator in separators if separator)
        return ExtractFields(self.field, kept, extract, self.keep, needle=f"(?s){needle}" if needle else "")


def _dissect(line: str, start: str, steps: Sequence[tuple[str, bool, str]]) -> list[str]:
    if not line.startswith(start):
        raise StepFailed(f"the text does not start with {start!r}")
    position = len(start)
    values: list[str] = []
    for number, (name, padded, separator) in enumerate(steps, 1):
        end = line.find(separator, position) if separator else len(line)
        if end < 0:
            raise StepFailed(f"there is no {separator!r} after key {number} ({name or 'left out'})")
        if name:
            values.append(line[position:end])
        position = end + len(separator)
        while padded and separator and line.startswith(separator, position):
            position += len(separator)
    if position < len(line):
        raise StepFailed(f"the text does not end after {steps[-1][2]!r}")
    return values


class Split(Operator, frozen=True):
    """A field is divided at a string or an expression; the parts become fields in its position."""

    by: Annotated[str | None, Meta(description="The string between parts.")] = None
    pattern: Annotated[str | None, Meta(description="The expression between parts, instead of by.")] = None
    names: Annotated[
        list[str] | None,
        Meta(
            description="A name for each part; the last takes the rest. Without it the parts are FIELD.0, FIELD.1 ..."
        ),
    ] = None
    field: Annotated[FieldName, Meta(description="The field to read.")] = LINE
    keep: Annotated[bool, Meta(description="Keep the field that was read.")] = False

    def make_plan(self) -> Plan:
        """As in the base class."""
        if (self.by is None) == (self.pattern is None):
            raise OperatorOptionInvalid("by", "give either by, a string, or pattern, an expression")
        if self.by == "":
            raise OperatorOptionInvalid("by", "the string must not be empty")
        max_parts = len(self.names) - 1 if self.names else -1
        if self.names is not None:
            _check_names("names", tuple(self.names))
        by = self.by
        find_all = make_pattern("pattern", self.pattern).find_all if self.pattern is not None else None

        def divide(line: str) -> list[str]:
            return line.split(by, max_parts) if find_all is None else _split_at(line, find_all(line), max_parts)

        if self.names is None:
            return ChangeRecord(self.field, _split_changer(self.field, divide, keep=self.keep))
        count = len(self.names)

        def extract(line: str) -> list[str]:
            parts = divide(line)
            if len(parts) != count:
                raise StepFailed(f"there are {len(parts)} parts for {count} names")
            return parts

        return ExtractFields(self.field, tuple(self.names), extract, self.keep)


def _split_at(line: str, matches: Iterable[Any], max_parts: int) -> list[str]:
    """The parts of a string between matches that are not empty, at most ``max_parts`` of them and the rest; -1 for all."""
    parts: list[str] = []
    position = 0
    for match in matches:
        if len(parts) == max_parts:
            break
        if match.end() > match.start():
            parts.append(line[position : match.start()])
            position = match.end()
    return [*parts, line[position:]]


def _split_changer(field: FieldName, divide: Any, *, keep: bool) -> Any:
    def change(record: Record, origin: LineOrigin) -> Record:
        source = name_of(record, field)
        parts = divide(read_text(read_field(record, field, origin)))
        result: Record = {}
        for name, value in record.items():
            if name != source or keep:
                result[name] = value
            if name == source:
                result.update((f"{source}.{number}", part) for number, part in enumerate(parts))
        return result

    return change


def _groups_of(pattern: Pattern) -> Any:
    search = pattern.search

    def extract(line: str) -> Sequence[Any]:
        match = search(line)
        if match is None:
            raise StepFailed("the expression does not match")
        return match.groups()  # type: ignore[no-any-return]  # of either engine

    return extract


def _check_names(option: str, names: tuple[str, ...]) -> None:
    if not names:
        raise OperatorOptionInvalid(option, "it names no field; put what becomes a field into a group")
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise OperatorOptionInvalid(option, f"the name {min(twice)!r} is there twice; give each field its own")
    if any(name.startswith("@") for name in names):
        raise OperatorOptionInvalid(
            option, "names that start with @ are for where a line comes from; choose another name"
        )
