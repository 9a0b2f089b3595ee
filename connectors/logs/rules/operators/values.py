"""Operators that give a value another type or hide it: convert, date, mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta

from connectors.errors import ConfigInvalid
from connectors.formats.masks.masking import Target, make_rule
from connectors.logs.rules.dates import date_reader
from connectors.logs.rules.errors import OperatorOptionInvalid
from connectors.logs.rules.operators.patterns import make_pattern
from connectors.logs.rules.operators.writing import make_replacer
from connectors.logs.rules.options import Operator
from connectors.logs.rules.plans import AddFields, ChangeValue, Plan
from connectors.logs.rules.records import FieldName, LineOrigin, Record, name_of, read_field
from connectors.logs.rules.types import TYPES, make_converter, write_text
from connectors.schema import OPTIONAL_STRING

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.linear_regex import Pattern

_CONVERTIBLE: Final = tuple(kind for kind in TYPES if kind != "datetime")


class Convert(Operator, frozen=True):
    """Give a value another type; a null stays one."""

    field: Annotated[FieldName, Meta(description="The field.")]
    type: Annotated[str, Meta(description="string, int, long, float, double, decimal or boolean.")]
    scale: Annotated[int, Meta(ge=0, le=100, description="Digits after the point, of decimal.")] = 0
    target: Annotated[str, Meta(description="The field to write; not set means the same.")] = ""

    def make_plan(self) -> Plan:
        """As in the base class."""
        if self.type not in _CONVERTIBLE:
            raise OperatorOptionInvalid("type", f"there is no type {self.type!r}; types are {', '.join(_CONVERTIBLE)}")
        convert = make_converter(self.type, self.scale)
        return ChangeValue(self.field, lambda value: None if value is None else convert(value), self.target)


class Date(Operator, frozen=True):
    """A date in text, in the first format that fits, becomes milliseconds since 1970 in UTC."""

    field: Annotated[FieldName, Meta(description="The field.")]
    formats: Annotated[list[str], Meta(description="Java's date patterns, ISO8601, UNIX or UNIX_MS.")]
    zone: Annotated[str, Meta(description="The time zone of dates that do not say theirs.")] = "UTC"
    target: Annotated[str, Meta(description="The field to write; not set means the same.")] = ""

    def make_plan(self) -> Plan:
        """As in the base class."""
        reader = date_reader(self.formats, self.zone)
        return ChangeValue(self.field, reader.read, self.target, with_origin=reader.with_origin)


class Mask(Operator, frozen=True):
    """Hide a value with one of the masks of mask.rules; what comes out is text."""

    field: Annotated[FieldName, Meta(description="The field.")]
    type: Annotated[
        str,
        Meta(
            description="default, replace, chars, truncate, regex, hash, md5, murmur, murmur32, or a mask of a package."
        ),
    ]
    replacement: Annotated[str | None, Meta(description="Of replace and regex: the new text.")] = None
    regex: Annotated[str | None, Meta(description="Of regex: what is replaced.")] = None
    length: Annotated[int | None, Meta(description="Of chars and truncate: how many characters.")] = None
    algorithm: Annotated[str | None, Meta(description="Of hash: SHA-256, MD5 ...")] = None
    salt: Annotated[str | None, Meta(description="Of the hashes: a string that goes before the value.")] = None
    salt_field: Annotated[str | None, Meta(description="Of the hashes: a field whose value goes before the value.")] = (
        None
    )
    nulls: Annotated[str, Meta(description="keep, or mask to hide that there is no value.")] = "keep"

    def make_plan(self) -> Plan:
        """As in the base class."""
        options = {
            "columns": ".*",
            "type": self.type,
            "replacement": self.replacement,
            "regex": self.regex,
            "length": self.length,
            "algorithm": self.algorithm,
            "salt.secret": self.salt,
            "salt.field": self.salt_field,
            "nulls": self.nulls,
        }
        try:
            mask = make_rule("of a rule", options).make(Target(str(self.field), OPTIONAL_STRING))
        except ConfigInvalid as error:
            raise OperatorOptionInvalid("", str(error)) from None
        pattern = None if self.regex is None else _check_cost(self.regex)
        if mask is None:
            raise OperatorOptionInvalid("type", f"{self.type} masks nothing here")
        if mask.convert_row is not None:
            return self._plan_by_row(mask.convert_row, nulls=mask.nulls)
        convert = mask.convert
        if convert is not None and pattern is not None and self.type.strip() == "regex":
            convert = _leave_long_ones(convert, pattern, self.replacement or "")

        def change(value: Any) -> Any:
            if convert is None or (value is None and not mask.nulls):
                return value
            return convert(None if value is None else write_text(value))

        return ChangeValue(self.field, change)

    def _plan_by_row(self, convert: Any, *, nulls: bool) -> Plan:
        """Masks that read another field of the record."""
        field, salt_field = self.field, self.salt_field or ""
        if not isinstance(field, str):
            raise OperatorOptionInvalid("field", "name the field where saltField is used; an index is not enough")

        def compute(record: Record, origin: LineOrigin) -> list[Any]:
            value = record[name_of(record, field)]
            if value is None and not nulls:
                return [None]
            salt = write_text(read_field(record, salt_field, origin))
            return [convert(None if value is None else write_text(value), {salt_field: salt})]

        return AddFields((field,), compute, (field, salt_field))


def _check_cost(source: str) -> Pattern:
    """The compiled expression of a mask, which must have one way through each string from a given start."""
    pattern = make_pattern("regex", source)
    if not pattern.one_way:
        raise OperatorOptionInvalid(
            "regex",
            f"{source!r} can match a string in several ways, which may cost much time; write it so that each character "
            "says what follows, such as [^,]*, instead of .*?,",
        )
    return pattern


def _leave_long_ones(convert: Callable[[Any], Any], pattern: Pattern, replacement: str) -> Callable[[Any], Any]:
    """``convert``, which uses ``re``, and for strings that it may read from each of many starts what replaces with RE2."""
    replace = make_replacer(pattern.source, replacement)
    return lambda value: convert(value) if value is None or len(value) <= pattern.limit else replace(value)
