"""Looks for the value that makes a record of JSON a bad one. Pure; runs for bad records only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from spark_jobs.rows.misfit import ColumnMisfit
from spark_jobs.sources.records.columns import json_type, make_array_builder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.schema import Schema
    from spark_jobs.contract import TableSchema

_FIX: Final = (
    "The type is that of the record's own schema: correct the value, or the column's type, in the source; with "
    "errors.tolerance=all such records are put aside"
)
_FIX_LOOSE: Final = (
    "Correct the value in the source, or declare a type that holds it (source.table.columns.{}); with errors.tolerance=all "
    "such records are put aside"
)
_BAD: Final = (
    msgspec.DecodeError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, pa.ArrowException,
)  # fmt: skip


class _RecordImages(msgspec.Struct, gc=False):
    """The rows of an envelope, as they are written."""

    after: dict[str, msgspec.Raw] | None = None
    before: dict[str, msgspec.Raw] | None = None


class _Wrapped(msgspec.Struct, gc=False):
    """A value with a schema."""

    payload: msgspec.Raw


_wrapped: Final = msgspec.json.Decoder(_Wrapped)
_images: Final = msgspec.json.Decoder(_RecordImages)
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def find_misfit(
    value: bytes,
    table: TableSchema,
    fields: Mapping[str, Schema],
    *,
    envelope: bool,
    loose: bool,
) -> ColumnMisfit | None:
    """The error for the first value in a bad record that its column can't hold; None where no value is to blame.

    Args:
        value: the record's.
        table: the table.
        fields: the record's columns and how they are written.
        envelope: whether it is an envelope; else a flat row.
        loose: whether the record has no schema of its own.
    """
    try:
        payload = value if loose else _wrapped.decode(value).payload
        images = _images.decode(payload) if envelope else _RecordImages(_members.decode(payload))
    except _BAD:
        return None
    types = {column.name: column.type for column in table.columns}
    for image in (images.after or {}, images.before or {}):
        for name, written in image.items():
            if name not in fields or name not in types:
                continue
            try:
                make_array_builder(fields[name], types[name])(
                    [msgspec.json.decode(written, type=json_type(fields[name]))]
                )
            except _BAD as error:
                fix = _FIX_LOOSE.format(table.namespace) if loose else _FIX
                return ColumnMisfit(table.namespace, name, types[name].simpleString(), written, error, fix)
    return None
