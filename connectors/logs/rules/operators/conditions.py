"""Operators that keep or end records: filter, keyFilter, drop; and the condition of any step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from connectors.logs.rules.errors import OperatorOptionInvalid
from connectors.logs.rules.operators.paths import parse_path
from connectors.logs.rules.operators.patterns import make_pattern
from connectors.logs.rules.options import Operator
from connectors.logs.rules.plans import DropRecord, KeepRecord, Plan
from connectors.logs.rules.records import LINE, FieldName
from connectors.logs.rules.types import write_text

if TYPE_CHECKING:
    from collections.abc import Callable


class Condition(Operator, frozen=True):
    """When a step is done: as a filter, but a missing field is a value that passes nothing."""

    field: Annotated[FieldName, Meta(description="The field to look at.")] = LINE
    contains: Annotated[str | None, Meta(description="A string that must be in it.")] = None
    matches: Annotated[str | None, Meta(description="An expression that must match somewhere in it.")] = None
    equals: Annotated[str | list[str] | None, Meta(description="The value, or a list of values.")] = None
    exists: Annotated[bool, Meta(description="It must be there and not null.")] = False
    negate: Annotated[bool, Meta(description="Turn the condition around. Written as not.")] = msgspec.field(
        default=False, name="not"
    )

    def make_plan(self) -> KeepRecord:
        """As in the base class."""
        test, needle = make_test(self.contains, self.matches, self.equals, exists=self.exists, negate=self.negate)
        return KeepRecord(self.field, test, needle, missing=self.negate)


class Filter(Operator, frozen=True):
    """Keep a record when the value of a field contains, matches or equals something, or does not."""

    field: Annotated[FieldName, Meta(description="The field to look at.")] = LINE
    contains: Annotated[str | None, Meta(description="A string that must be in it.")] = None
    matches: Annotated[str | None, Meta(description="An expression that must match somewhere in it.")] = None
    equals: Annotated[str | list[str] | None, Meta(description="The value, or a list of values.")] = None
    negate: Annotated[bool, Meta(description="Keep the record when it does not. Written as not.")] = msgspec.field(
        default=False, name="not"
    )

    def make_plan(self) -> Plan:
        """As in the base class."""
        test, needle = make_test(self.contains, self.matches, self.equals, exists=False, negate=self.negate)
        return KeepRecord(self.field, test, needle)


class KeyFilter(Operator, frozen=True):
    """Keep a JSON record when the value at a key contains, matches or equals something, or does not."""

    key: Annotated[str, Meta(description="Where the value is: a JSON path such as $.level.")]
    field: Annotated[FieldName, Meta(description="The field that holds the JSON document.")] = LINE
    contains: Annotated[str | None, Meta(description="A string that must be in the value.")] = None
    matches: Annotated[str | None, Meta(description="An expression that must match somewhere in it.")] = None
    equals: Annotated[str | list[str] | None, Meta(description="The value, or a list of values.")] = None
    negate: Annotated[bool, Meta(description="Keep the record when it does not. Written as not.")] = msgspec.field(
        default=False, name="not"
    )

    def make_plan(self) -> Plan:
        """As in the base class."""
        path = parse_path("key", self.key)
        test, _ = make_test(self.contains, self.matches, self.equals, exists=False, negate=self.negate)

        def test_document(value: Any) -> bool:
            return test(path.read(path.document(value)))

        return KeepRecord(self.field, test_document)


class Drop(Operator, frozen=True):
    """End a record on purpose: its line is accepted and makes no row; give the step a condition with when."""

    reason: Annotated[str, Meta(description="Why; metrics and the preview count records by it.")]

    def make_plan(self) -> Plan:
        """As in the base class."""
        if not self.reason.strip():
            raise OperatorOptionInvalid("reason", "say why records are dropped")
        return DropRecord(self.reason)


def make_test(
    contains: str | None, matches: str | None, equals: str | list[str] | None, *, exists: bool, negate: bool
) -> tuple[Callable[[Any], bool], str]:
    """A test of a value, and an RE2 expression that every text that passes matches ("" for none).

    Raises:
        OperatorOptionInvalid: not exactly one of the ways to compare is there.
    """
    ways = [way for way in (contains, matches, equals) if way is not None]
    if len(ways) + exists != 1:
        options = "contains, matches or equals" if not exists else "contains, matches, equals or exists"
        raise OperatorOptionInvalid("contains", f"give exactly one of {options}")
    needle = ""
    if exists:

        def test(value: Any) -> bool:
            return value is not None

    elif contains is not None:
        needle = re.escape(contains)

        def test(value: Any) -> bool:
            return value is not None and contains in (value if type(value) is str else write_text(value))

    elif matches is not None:
        pattern = make_pattern("matches", matches)
        needle, search = pattern.source, pattern.search

        def test(value: Any) -> bool:
            return value is not None and search(value if type(value) is str else write_text(value)) is not None

    else:
        allowed = frozenset([equals] if isinstance(equals, str) else equals or [])

        def test(value: Any) -> bool:
            return value is not None and (value if type(value) is str else write_text(value)) in allowed

    if negate:
        return (lambda value: not test(value)), ""
    return test, needle
