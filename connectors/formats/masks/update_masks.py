"""Masks in partition updates: which columns can be masked, and how. Pure functions.

A partition update is merged with others by its keys and write times. So masks apply to the values of simple columns alone:

- Columns of the primary key are refused: rows are put together by them, ranges need their order, and the record's key and
  offsets hold them in the database's serialized form.
- Collections and user-defined types that are not frozen are refused: the names of their elements may be values.
- ``nulls=mask`` is refused: a column that an update doesn't write has no value that could be masked.
- ``salt.field`` may only name a column of the key: others need not be in the update.

The raw form is the database's own bytes: every rule that names a column of such a table is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from connectors.errors import ConfigInvalid
from connectors.formats.cql_schema import CQL_TYPE
from connectors.formats.masks.masking import Mask, Masks, Target, row_masker
from connectors.formats.names import column_name
from connectors.formats.partition_update import ELEMENT, UDT_FIELDS, UpdateSource
from connectors.formats.partition_update_raw import FORM as RAW_FORM
from connectors.formats.partition_update_raw import form_of
from connectors.schema import Field, Schema, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    #: Changes one message or row; a copy is made.
    Change = Callable[[dict[str, Any]], dict[str, Any]]

_VERSION: Final = "schema_version"
_OTHERS: Final = (
    "choose another output format of the connector, or mask what comes out of the materializer (mask.rules of the job)"
)


def mask_update(schema: Schema, masks: Masks) -> tuple[Schema, Change | None]:
    """The schema of masked partition updates, and what masks a message; (``schema``, None) if no column is named.

    Where a mask changes a column's type, the schema has another ``schema_version``: readers take it for another definition.

    Raises:
        ConfigInvalid: a rule names a column that can't be masked; see the module.
    """
    table = _table_name(schema)
    refuse_key_columns(schema, masks)
    key = _column_fields(schema, "key")
    clustering = _column_fields(_row_schema(schema), "clustering")
    static, change_static = _mask_part(schema.field("static"), table, masks, tuple(field.name for field in key))
    regular, change_row = _mask_part(
        Field("rows", _row_schema(schema)), table, masks, tuple(field.name for field in (*key, *clustering))
    )
    if change_static is None and change_row is None:
        return schema, None
    changed = [*_masked_types(_row_schema(schema), regular), *_masked_types(_schema_of(schema, "static"), static)]
    suffix = f".masked-{crc32(repr(changed).encode()):08x}" if changed else ""
    fields = {"static": static, "rows": replace(_schema_of(schema, "rows") or schema, value_schema=regular)}
    parameters = tuple((name, value + suffix if name == _VERSION else value) for name, value in schema.parameters)
    masked = replace(
        schema,
        parameters=parameters,
        fields=tuple(
            Field(field.name, fields[field.name] or field.schema) if field.name in fields else field
            for field in schema.fields
        ),
    )
    ident = identity_of(masked)

    def change(message: dict[str, Any]) -> dict[str, Any]:
        result = dict(message)
        if suffix:
            result["source"] = {**message["source"], "schema": ident}
        names = message["key"]
        if change_static is not None and message.get("static") is not None:
            result["static"] = change_static(message["static"], names)
        if change_row is not None and message.get("rows"):
            result["rows"] = [change_row(row, names) for row in message["rows"]]
        return result

    return masked, change


def cell_masks(schema: Schema, masks: Masks) -> dict[tuple[str, ...], Mask]:
    """The masks of regular columns in partition updates of ``schema``, by path; see ``mask_update``."""
    table, row = _table_name(schema), _row_schema(schema)
    salts = tuple(field.name for field in (*_column_fields(schema, "key"), *_column_fields(row, "clustering")))
    return {
        ("rows", "cells", field.name): mask
        for field in _column_fields(row, "cells")
        if (mask := _find_mask(f"{table}.{column_name(field.name)}", field.schema, masks, salts)) is not None
    }


def identity_of(schema: Schema) -> str:
    """``source.schema`` of partition updates of ``schema``."""
    return UpdateSource(
        connector="",
        cluster="",
        keyspace="",
        table="",
        table_id=schema.parameter("table_id") or "",
        schema_version=schema.parameter(_VERSION) or "",
    ).schema


def refuse_key_columns(schema: Schema, masks: Masks) -> None:
    """Raise ``ConfigInvalid`` if a rule names a column of the primary key of partition updates."""
    table = _table_name(schema)
    for field in (*_column_fields(schema, "key"), *_column_fields(_row_schema(schema), "clustering")):
        column = f"{table}.{column_name(field.name)}"
        rule = masks.rule_of(column)
        if rule is not None:
            raise ConfigInvalid(
                f"mask {rule} can't mask {column} in partition updates: it is a column of the primary key, by "
                f"which rows are merged. Leave it out of the rule, {_OTHERS}"
            )


def refuse_raw(schema: Schema, masks: Masks) -> None:
    """Raise ``ConfigInvalid`` if a rule names a column of a table whose raw partition updates have ``schema``."""
    definition = form_of(schema.parameter).definition
    for column in definition.columns:
        rule = masks.rule_of(f"{definition.keyspace}.{definition.table}.{column.name}")
        if rule is not None:
            raise ConfigInvalid(
                f"mask {rule} can't mask {definition.keyspace}.{definition.table}.{column.name} in the form "
                f"{RAW_FORM}, which holds the database's own bytes. Set output.format=partition-update, "
                f"{_OTHERS}"
            )


def _mask_part(
    member: Field | None, table: str, masks: Masks, salts: tuple[str, ...]
) -> tuple[Schema | None, Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]] | None]:
    """The schema of masked rows (regular or static), and what masks a row with the values of its partition key."""
    if member is None:
        return None, None
    row = member.schema
    cells = row.field("cells")
    column_masks: dict[str, Mask] = {}
    fields: list[Field] = []
    for field in cells.schema.fields if cells is not None else ():
        mask = _find_mask(f"{table}.{column_name(field.name)}", field.schema, masks, salts)
        if mask is not None:
            column_masks[field.name] = mask
        fields.append(field if mask is None else Field(field.name, _typed_schema(mask.schema, field.schema)))
    if not column_masks or cells is None:
        return row, None
    masked = replace(cells.schema, fields=tuple(fields))
    schema = replace(
        row, fields=tuple(Field("cells", masked) if field.name == "cells" else field for field in row.fields)
    )
    steps = [(name, mask.convert) for name, mask in column_masks.items() if mask.convert is not None]
    by_row = row_masker(list(column_masks.items()))

    def change(value: dict[str, Any], key: dict[str, Any]) -> dict[str, Any]:
        before = value.get("cells")
        if not before:
            return value
        after = dict(before)
        for name, convert in steps:
            if before.get(name) is not None:
                after[name] = convert(before[name])
        if by_row is not None:
            whole = {**key, **(value.get("clustering") or {}), **before}
            by_row(whole)
            after.update(
                (name, whole[name]) for name, mask in column_masks.items() if mask.convert is None and name in before
            )
        return {**value, "cells": after}

    return schema, change


def _find_mask(column: str, schema: Schema, masks: Masks, salts: tuple[str, ...]) -> Mask | None:
    rule = masks.rule_of(column)
    if rule is None:
        return None
    inner = schema.value_schema
    if (schema.name or "").endswith(f".{UDT_FIELDS}") or (
        schema.type is Type.ARRAY and inner is not None and (inner.name or "").endswith(f".{ELEMENT}")
    ):
        raise ConfigInvalid(
            f"mask {rule} can't mask {column} in partition updates: it is a collection or a user-defined type "
            f"that is not frozen, of which single elements are written. Leave it out of the rule, {_OTHERS}"
        )
    mask = masks.for_column(Target(column, schema, fields=salts))
    if mask is not None and mask.nulls:
        raise ConfigInvalid(
            f"mask {rule} with nulls=mask can't mask {column} in partition updates, where a column that was "
            f"not written is null. Leave nulls at keep, {_OTHERS}"
        )
    return mask


def _typed_schema(masked: Schema, before: Schema) -> Schema:
    """A masked column's schema with its CQL type: text wherever the mask gives text."""
    kind = "text" if masked.type is Type.STRING else before.parameter(CQL_TYPE) or ""
    others = tuple(parameter for parameter in masked.parameters if parameter[0] != CQL_TYPE)
    return replace(masked, parameters=((CQL_TYPE, kind), *others))


def _masked_types(before: Schema | None, after: Schema | None) -> list[tuple[str, str]]:
    """Names and new CQL types of the columns whose type a mask changes."""
    old, new = (_column_fields(row, "cells") if row is not None else () for row in (before, after))
    pairs = [
        (field.name, old_field.schema.parameter(CQL_TYPE) or "", field.schema.parameter(CQL_TYPE) or "")
        for old_field, field in zip(old, new, strict=True)
    ]
    return [(name, now) for name, was, now in pairs if was.replace("varchar", "text") != now.replace("varchar", "text")]


def _table_name(schema: Schema) -> str:
    return f"{schema.parameter('keyspace')}.{schema.parameter('table')}"


def _schema_of(schema: Schema, name: str) -> Schema | None:
    field = schema.field(name)
    return None if field is None else field.schema


def _row_schema(schema: Schema) -> Schema:
    rows = _schema_of(schema, "rows")
    if rows is None or rows.value_schema is None:
        raise ConfigInvalid(f"{schema.name} is not the schema of a partition update: it has no rows")
    return rows.value_schema


def _column_fields(schema: Schema, name: str) -> Sequence[Field]:
    member = _schema_of(schema, name)
    return () if member is None else member.fields
