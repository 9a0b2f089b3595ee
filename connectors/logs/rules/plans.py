"""The work of an operator as data: the preview interprets a plan, the compiler writes code for it.

There are few kinds of plans, and an operator is its options plus one of them: what differs between operators of a kind is a
pure function. ``shape_after`` says which fields a record has after a step, so that a rule that names a missing field is
refused before a line comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from connectors.logs.rules.errors import OperatorOptionInvalid
from connectors.logs.rules.records import (
    ORIGIN_FIELDS,
    Dropped,
    FieldName,
    LineOrigin,
    Record,
    Shape,
    StepFailed,
    name_of,
    read_field,
    replace_in_shape,
)
from connectors.logs.rules.types import read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class ExtractFields(NamedTuple):
    """Several fields are taken out of the text of one.

    Attributes:
        source: the field.
        names: the new fields, in place of the source.
        extract: text -> a value for each name; may raise ``StepFailed``.
        keep: whether the source stays.
        match: for regular expressions: text -> a match whose ``groups()`` are the values, or None; the compiled code calls it.
        needle: an RE2 expression that every text that can be handled matches, or "".
        nullable: with ``match``: the names whose value may be None.
    """

    source: FieldName
    names: tuple[str, ...]
    extract: Callable[[str], Sequence[Any]]
    keep: bool = False
    match: Callable[[str], Any] | None = None
    needle: str = ""
    nullable: frozenset[str] = frozenset()

    def apply(self, record: Record, origin: LineOrigin) -> list[Record | Dropped]:
        """One record with the new fields."""
        values = self.extract(read_text(read_field(record, self.source, origin)))
        source = str(self.source) if self.source in ORIGIN_FIELDS else name_of(record, self.source)
        names = replace_in_shape(tuple(record), source, self.names, keep=self.keep)
        return [_with_values(record, names, dict(zip(self.names, values, strict=True)))]

    def shape_after(self, shape: Shape) -> Shape:
        """The fields after the step."""
        if shape is None:
            return None
        source = check_field(shape, self.source)
        return replace_in_shape(shape, source, self.names, keep=self.keep)


class ChangeValue(NamedTuple):
    """The value of one field becomes another one.

    Attributes:
        source: the field.
        change: value and origin -> value; may raise ``StepFailed``.
        target: the field to write; "" for the same.
        with_origin: whether ``change`` takes the origin as well.
    """

    source: FieldName
    change: Callable[..., Any]
    target: str = ""
    with_origin: bool = False

    def apply(self, record: Record, origin: LineOrigin) -> list[Record | Dropped]:
        """The record with the new value."""
        value = read_field(record, self.source, origin)
        value = self.change(value, origin) if self.with_origin else self.change(value)
        return [{**record, self.target or name_of(record, self.source): value}]

    def shape_after(self, shape: Shape) -> Shape:
        """The fields after the step."""
        if shape is None:
            return None
        target = self.target or check_field(shape, self.source)
        check_field(shape, self.source)
        if target in ORIGIN_FIELDS:
            raise OperatorOptionInvalid("field", f"{target} can't be changed; give target, the field to write")
        return shape if target in shape else (*shape, target)


class AddFields(NamedTuple):
    """Fields are computed from the whole record; those that are there already keep their position.

    Attributes:
        names: the fields.
        compute: record and origin -> a value for each; may raise ``StepFailed``.
        sources: the fields that it reads.
    """

    names: tuple[str, ...]
    compute: Callable[[Record, LineOrigin], Sequence[Any]]
    sources: tuple[FieldName, ...] = ()

    def apply(self, record: Record, origin: LineOrigin) -> list[Record | Dropped]:
        """The record with the fields."""
        return [{**record, **dict(zip(self.names, self.compute(record, origin), strict=True))}]

    def shape_after(self, shape: Shape) -> Shape:
        """The fields after the step."""
        if shape is None:
            return None
        for source in self.sources:
            check_field(shape, source)
        return (*shape, *(name for name in self.names if name not in shape))


class ArrangeFields(NamedTuple):
    """Fields are left out, renamed or put in another order, whatever their values are.

    Attributes:
        arrange: the names -> (new name, old name) pairs; raises ``StepFailed`` if a field is missing.
        option: the option that names the fields, for complaints.
    """

    arrange: Callable[[tuple[str, ...]], list[tuple[str, str]]]
    option: str

    def apply(self, record: Record, origin: LineOrigin) -> list[Record | Dropped]:
        """The record with its fields arranged."""
        del origin
        return [{new: record[old] for new, old in self.arrange(tuple(record))}]

    def shape_after(self, shape: Shape) -> Shape:
        """The fields after the step."""
        if shape is None:
            return None
        try:
            return tuple(new for new, _ in self.arrange(shape))
        except StepFailed as error:
            raise OperatorOptionInvalid(self.option, str(error)) from None


class ChangeRecord(NamedTuple):
    """A record becomes another one whose fields depend on its values.

    Attributes:
        source: the field that it reads.
        change: record and origin -> record; may raise ``StepFailed``, and must leave the first one as it is.
        names: the fields that come in place of the source, if that is known.
        keep: whether the source stays; only with ``names``.
    """

    source: FieldName
    change: Callable[[Record, LineOrigin], Record]
    names: tuple[str, ...] | None = None
    keep: bool = False

    def apply(self, record: Record, origin: LineOrigin) -> list[Record | Dropped]:
        """The other record."""
        return [self.change(record, origin)]

    def shape_after(self, shape: Shape) -> Shape:
        """The fields after the step, if they are known."""
        if shape is None:
            return None
        source = check_field(shape, self.source)
        return None if self.names is None else replace_in_shape(shape, source, self.names, keep=self.keep)


class SplitRecord(NamedTuple):
    """A record becomes any number of records.

    Attributes:
        source: the field that it reads.
        split: record and origin -> records; may raise ``StepFailed``.
    """

    source: FieldName
    split: Callable[[Record, LineOrigin], list[Record]]

    def apply(self, record: Record, origin: LineOrigin) -> list[Record | Dropped]:
        """The records."""
        return [*self.split(record, origin)]

    def shape_after(self, shape: Shape) -> Shape:
        """Not known."""
        if shape is not None:
            check_field(shape, self.source)
        return None


class KeepRecord(NamedTuple):
    """A record stays if the value of a field passes a test.

    Attributes:
        source: the field.
        test: value -> whether the record stays.
        needle: an RE2 expression that every text that passes matches, or "".
        missing: whether a record without the field passes; None: it is refused with an error.
    """

    source: FieldName
    test: Callable[[Any], bool]
    needle: str = ""
    missing: bool | None = None

    def passes(self, record: Record, origin: LineOrigin) -> bool:
        """Whether the record stays."""
        try:
            value = read_field(record, self.source, origin)
        except StepFailed:
            if self.missing is None:
                raise
            return self.missing
        return self.test(value)

    def apply(self, record: Record, origin: LineOrigin) -> list[Record | Dropped]:
        """The record or nothing."""
        return [record] if self.passes(record, origin) else []

    def shape_after(self, shape: Shape) -> Shape:
        """The same fields."""
        if shape is not None and self.missing is None:
            check_field(shape, self.source)
        return shape


class DropRecord(NamedTuple):
    """A record ends here on purpose.

    Attributes:
        reason: what metrics and the preview show.
    """

    reason: str

    def apply(self, record: Record, origin: LineOrigin) -> list[Record | Dropped]:
        """The reason instead of the record."""
        del record, origin
        return [Dropped(self.reason)]

    def shape_after(self, shape: Shape) -> Shape:
        """As before, for records that the step's condition keeps from it."""
        return shape


class UniqueRecords(NamedTuple):
    """Of the records of one line, equal ones are left out but for the first.

    Attributes:
        fields: the fields that are compared; () for all. A missing one counts as null.
    """

    fields: tuple[FieldName, ...]

    def apply_all(self, records: Sequence[Record | Dropped], origin: LineOrigin) -> list[Record | Dropped]:
        """The records without repetitions."""
        seen_values: set[Any] = set()
        result: list[Record | Dropped] = []
        for record in records:
            if not isinstance(record, Dropped):
                values = [read_or_null(record, name, origin) for name in self.fields] if self.fields else record
                hashable = _make_hashable(values)
                if hashable in seen_values:
                    continue
                seen_values.add(hashable)
            result.append(record)
        return result

    def shape_after(self, shape: Shape) -> Shape:
        """The same fields."""
        for name in self.fields if shape is not None else ():
            check_field(shape or (), name)
        return shape


class RowColumn(NamedTuple):
    """One column of a row.

    Attributes:
        name: the column.
        source: the field that it is made of.
        convert: value and origin -> value of the column's type; may raise ``StepFailed``.
        optional: whether a field that is missing, null or empty makes it null.
        with_origin: whether ``convert`` takes the origin as well.
        plain: the text of the field is the value, if it is text.
    """

    name: str
    source: FieldName
    convert: Callable[..., Any]
    optional: bool
    with_origin: bool
    plain: bool


class SaveRow(NamedTuple):
    """A record becomes a row of the table.

    Attributes:
        columns: in order.
    """

    columns: tuple[RowColumn, ...]

    def apply(self, record: Record, origin: LineOrigin) -> list[Record | Dropped]:
        """The row."""
        return [{column.name: read_column(column, record, origin) for column in self.columns}]

    def shape_after(self, shape: Shape) -> Shape:
        """The columns."""
        for column in self.columns if shape is not None else ():
            if not column.optional:
                check_field(shape or (), column.source, "columns")
        return tuple(column.name for column in self.columns)


#: Every kind that handles one record at a time.
RecordPlan = (
    ExtractFields
    | ChangeValue
    | AddFields
    | ArrangeFields
    | ChangeRecord
    | SplitRecord
    | KeepRecord
    | DropRecord
    | SaveRow
)
Plan = RecordPlan | UniqueRecords


def read_column(column: RowColumn, record: Record, origin: LineOrigin) -> Any:
    """A column's value; raises ``StepFailed``."""
    try:
        value = read_field(record, column.source, origin)
    except StepFailed as error:
        if column.optional:
            return None
        raise StepFailed(f"column {column.name}: {error}") from None
    return convert_column(column, value, origin)


def convert_column(column: RowColumn, value: Any, origin: LineOrigin) -> Any:
    """A column's value from the value of its field; raises ``StepFailed``."""
    if value is None or (value == "" and not column.plain):
        if column.optional:
            return None
        raise StepFailed(f"column {column.name}: the field is {'null' if value is None else 'empty'}")
    try:
        return column.convert(value, origin) if column.with_origin else column.convert(value)
    except StepFailed as error:
        raise StepFailed(f"column {column.name}: {error}") from None


def read_or_null(record: Record, field: FieldName, origin: LineOrigin) -> Any:
    """The value of a field; None where it is missing."""
    try:
        return read_field(record, field, origin)
    except StepFailed:
        return None


def check_field(shape: tuple[str, ...], field: FieldName, option: str = "field") -> str:
    """The name of a field that a record of this shape has.

    Raises:
        OperatorOptionInvalid: it has no such field.
    """
    if isinstance(field, str) and field in ORIGIN_FIELDS:
        return field
    try:
        return name_of(shape, field)
    except StepFailed as error:
        raise OperatorOptionInvalid(option, str(error)) from None


def _make_hashable(value: Any) -> Any:
    """Return something that can be looked up, and is equal for equal values."""
    if isinstance(value, dict):
        return frozenset((name, _make_hashable(member)) for name, member in value.items())
    return tuple(map(_make_hashable, value)) if isinstance(value, list) else value


def _with_values(record: Record, names: tuple[str, ...], values: Record) -> Record:
    return {name: values[name] if name in values else record[name] for name in names}
