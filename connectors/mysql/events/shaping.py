"""Rows of the decoder made into values, where they are not values already: masks on key columns, other names of fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connectors.codegen import CodeBuilder, dict_display

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.mysql.schema.columns import ColumnLayout, FieldPlan

Row = dict[str, Any]


def make_shaper(layout: ColumnLayout) -> Callable[[Row], Row] | None:
    """The function that makes a value of a row, whichever columns the row has; None where rows are values as they are."""
    if layout.as_decoded:
        return None
    columns = sum(plan is not None for plan in layout.plans)
    values, masker = layout.values, layout.masker
    code = CodeBuilder()
    code.define("whole(row)", [f"return {dict_display(value_members(values, code))}"])
    whole: Callable[[Row], Row] = code.function("whole", f"values of {layout.table.name}")

    def shape(row: Row) -> Row:
        shaped = whole(row) if len(row) == columns else _shape_partly(values, row)
        if masker is not None:
            masker(shaped)
        return shaped

    return shape


def value_members(fields: Sequence[FieldPlan], code: CodeBuilder) -> list[tuple[str, str]]:
    """Names and expressions of the members of a dict that makes ``fields`` from ``row``; binds the functions that they call."""
    members = []
    for field in fields:
        expression = f"row[{field.column!r}]"
        if field.transform is not None:
            function = code.bind("transform", field.transform)
            expression = (
                f"{function}({expression})"
                if field.nulls
                else f"None if {expression} is None else {function}({expression})"
            )
        members.append((field.name, expression))
    return members


def _shape_partly(fields: Sequence[FieldPlan], row: Row) -> Row:
    shaped = {}
    for field in fields:
        if field.column in row:
            value = row[field.column]
            if field.transform is not None and (field.nulls or value is not None):
                value = field.transform(value)
            shaped[field.name] = value
    return shaped
