"""The columns of ``<table>_scylla_cdc_log``, from the base table's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from connectors.cql.types import CqlType

if TYPE_CHECKING:
    from connectors.scylla.model import TableId, TableVersion

SUFFIX: Final = "_scylla_cdc_log"
#: The first members of a ``LogRow``.
META_COLUMNS: Final = ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation", "cdc$ttl", "cdc$end_of_batch")
BOOLEAN: Final = CqlType("boolean")
_DELETED: Final = {"list": CqlType("timeuuid"), "udt": CqlType("smallint")}


def log_name(table: TableId) -> str:
    """The log table's name, without quotes and keyspace."""
    return table.table + SUFFIX


def logged_type(kind: CqlType) -> CqlType:
    """The type that a column has in the log: multicell types are frozen there, and a list is a map by time uuid."""
    if not kind.is_multicell:
        return kind
    if kind.name == "list":
        return CqlType("map", (CqlType("timeuuid"), kind.arguments[0]), frozen=True)
    return replace(kind, frozen=True)


def deleted_elements_type(kind: CqlType) -> CqlType:
    """The type of ``cdc$deleted_elements_<c>`` of a multicell column."""
    return CqlType("set", (_DELETED.get(kind.name) or kind.arguments[0],), frozen=True)


def log_columns(table: TableVersion) -> tuple[tuple[str, CqlType], ...]:
    """See ``TableVersion.log_columns``."""
    result: list[tuple[str, CqlType]] = []
    for column in table.columns:
        result.append((column.name, logged_type(column.type)))
        if column.kind in {"static", "regular"}:
            result.append((f"cdc$deleted_{column.name}", BOOLEAN))
            if column.type.is_multicell:
                result.append((f"cdc$deleted_elements_{column.name}", deleted_elements_type(column.type)))
    return tuple(result)
