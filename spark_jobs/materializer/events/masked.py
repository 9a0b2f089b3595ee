"""Events whose columns are masked (``mask.rules`` of the job): the state keeps plain values, what is written does not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from connectors.cql.types import CqlType
from connectors.formats.masks.masking import Mask, Masks, row_masker
from connectors.schema import OPTIONAL_STRING, Type
from spark_jobs.materializer.decoding.rows import make_storable
from spark_jobs.materializer.events.forms import EventCodec, TableShape, column_schema
from spark_jobs.rows.masks import column_masks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spark_jobs.materializer.engine.model import StateColumn

    Change = Callable[[Sequence[Any]], list[Any]]


def masks_of(shape: TableShape, masks: Masks) -> dict[str, Mask]:
    """The masks of a table's columns by name.

    Raises:
        Fatal: a rule names a column that it can't mask.
    """
    constants = dict(shape.constants)
    keys = {column.name for column in shape.keys}
    columns = [
        (column.name, column_schema(column, "v", optional=True) or OPTIONAL_STRING, column.name in keys)
        for column in shape.columns
    ]
    return column_masks(columns, (f"{constants.get('keyspace', '')}.{constants.get('table', '')}",), masks)


def masked_shape(shape: TableShape, masks: dict[str, Mask]) -> TableShape:
    """The table as its masked events show it."""

    def masked(columns: tuple[StateColumn, ...]) -> tuple[StateColumn, ...]:
        return tuple(_mask_column(column, masks[column.name]) if column.name in masks else column for column in columns)

    return replace(shape, keys=masked(shape.keys), static=masked(shape.static), regular=masked(shape.regular))


def _mask_column(column: StateColumn, mask: Mask) -> StateColumn:
    if mask.schema.type is not Type.STRING:
        return column
    if column.type is not None:
        return column._replace(type=CqlType("text"))
    return column if column.schema is None else column._replace(schema=mask.schema)


class MaskedCodec:
    """An ``EventCodec`` around that of a masked shape; it gets plain values."""

    def __init__(self, inner: EventCodec, shape: TableShape, masks: dict[str, Mask]) -> None:
        self._inner = inner
        self._mask_key = _make_masker(shape.keys, masks)
        self._mask_image = _make_masker(shape.columns, masks)
        self.event = inner.event

    def key(self, values: Sequence[Any]) -> bytes:
        """See ``EventCodec``."""
        return self._inner.key(self._mask_key(values))

    def image(self, values: Sequence[Any]) -> bytes:
        """See ``EventCodec``. Equal bytes are equal images: a change that no mask shows is no event."""
        return self._inner.image(self._mask_image(values))


def _make_masker(columns: Sequence[StateColumn], masks_by_name: dict[str, Mask]) -> Change:
    """The function that masks values of ``columns``, which are as the state keeps them."""
    names = [column.name for column in columns]
    masks = [(name, masks_by_name[name]) for name in names if name in masks_by_name]
    by_row = row_masker(masks)
    steps = [(names.index(name), mask) for name, mask in masks if mask.convert is not None]
    stored = {
        index: store
        for index, mask in steps
        if columns[index].type is None
        and mask.schema.type is not Type.STRING
        and (store := make_storable(mask.schema)) is not None
    }

    def change(values: Sequence[Any]) -> list[Any]:
        result = list(values)
        if by_row is not None:
            row = dict(zip(names, values, strict=True))
            by_row(row)
            result = list(row.values())
        for index, mask in steps:
            value = values[index]
            if mask.convert is not None and (value is not None or mask.nulls):
                result[index] = mask.convert(value)
                if index in stored:
                    result[index] = stored[index](result[index])
        return result

    return change
