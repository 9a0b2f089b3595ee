"""Rows of the decoder made into values, where they are not values already: masks on key columns, other names of fields."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.mysql.columns import FieldPlan, Layout

Row = dict[str, Any]


def shaper(layout: Layout) -> Callable[[Row], Row] | None:
    """The function that makes a value of a row, whichever columns the row has; None where rows are values as they are."""
    if layout.as_decoded:
        return None
    columns = sum(plan is not None for plan in layout.plans)
    values, masker = layout.values, layout.masker
    names: dict[str, Any] = {}
    source = f"def whole(row):\n    return {{{', '.join(literal_members(values, 'V', names))}}}"
    exec(compile(source, f"<values of {layout.table.name}>", "exec"), names)  # noqa: S102 - names are quoted by repr
    whole: Callable[[Row], Row] = names["whole"]

    def shape(row: Row) -> Row:
        shaped = whole(row) if len(row) == columns else _partly(values, row)
        if masker is not None:
            masker(shaped)
        return shaped
    return shape


def literal_members(fields: Sequence[FieldPlan], prefix: str, names: dict[str, Any]) -> list[str]:
    """The members of a dict literal that makes ``fields`` from ``row``; puts the functions it calls into ``names``."""
    members = []
    for index, field in enumerate(fields):
        text = f"row[{field.column!r}]"
        if field.transform is not None:
            function = f"{prefix}{index}"
            names[function] = field.transform
            text = f"{function}({text})" if field.nulls else f"None if {text} is None else {function}({text})"
        members.append(f"{field.name!r}: {text}")
    return members


def _partly(fields: Sequence[FieldPlan], row: Row) -> Row:
    shaped = {}
    for field in fields:
        if field.column in row:
            value = row[field.column]
            if field.transform is not None and (field.nulls or value is not None):
                value = field.transform(value)
            shaped[field.name] = value
    return shaped
