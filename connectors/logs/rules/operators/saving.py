"""The last step of a group: saveAs makes a row, and with it the table's columns."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from connectors.logs.rules.dates import date_reader
from connectors.logs.rules.errors import OperatorOptionInvalid
from connectors.logs.rules.options import Operator
from connectors.logs.rules.plans import Plan, RowColumn, SaveRow
from connectors.logs.rules.records import FieldName  # noqa: TC001 - msgspec reads the annotation
from connectors.logs.rules.types import TYPES, make_converter
from connectors.schema import Schema, Type, decimal, timestamp

_SCHEMAS: Final = {
    "string": Type.STRING,
    "int": Type.INT32,
    "long": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
}


class Column(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One column of saveAs."""

    name: Annotated[str, Meta(description="The column.")]
    type: Annotated[str, Meta(description="string, int, long, float, double, decimal, boolean or datetime.")] = "string"
    field: Annotated[
        FieldName | None, Meta(description="The field that it is made of; not set: the field of its name.")
    ] = None
    optional: Annotated[
        bool, Meta(description="A field that is missing, null or (but for strings) empty gives null.")
    ] = False
    scale: Annotated[int, Meta(ge=0, le=100, description="Digits after the point, of decimal.")] = 0
    formats: Annotated[list[str], Meta(description="Of datetime: Java's date patterns, ISO8601, UNIX or UNIX_MS.")] = (
        msgspec.field(default_factory=lambda: ["ISO8601"])
    )
    zone: Annotated[str, Meta(description="Of datetime: the time zone of dates that do not say theirs.")] = "UTC"

    def make_schema(self) -> Schema:
        """The column's schema."""
        if self.type == "decimal":
            return decimal(self.scale, optional=self.optional)
        if self.type == "datetime":
            return timestamp(optional=self.optional)
        return Schema(_SCHEMAS[self.type], optional=self.optional)


class SaveAs(Operator, frozen=True):
    """The record becomes a row with these columns. It is the last step of every group, and all groups of a table agree."""

    columns: Annotated[list[Column], Meta(description="The columns in order.")]

    def make_plan(self) -> Plan:
        """As in the base class."""
        names = [column.name for column in self.columns]
        if not names or len(set(names)) != len(names) or "" in names:
            raise OperatorOptionInvalid("columns", "give at least one column, and each a name of its own")
        return SaveRow(tuple(map(_plan_column, self.columns)))


def _plan_column(column: Column) -> RowColumn:
    source = column.name if column.field is None else column.field
    if column.type not in TYPES:
        raise OperatorOptionInvalid(
            "columns", f"column {column.name} has the type {column.type!r}; types are {', '.join(TYPES)}"
        )
    if column.type != "datetime":
        convert = make_converter(column.type, column.scale)
        return RowColumn(
            column.name, source, convert, column.optional, with_origin=False, plain=column.type == "string"
        )
    reader = date_reader(column.formats, column.zone)
    return RowColumn(column.name, source, reader.read, column.optional, with_origin=reader.with_origin, plain=False)
