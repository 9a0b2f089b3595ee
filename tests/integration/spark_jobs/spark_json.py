"""The results of Spark's `to_json` on values, for targets that hold JSON."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_jobs.contract import Column, TableSchema


def in_json(column: Column, value: Any) -> Any:
    """A value of a column as it is read back; see ``from_json``."""
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if column.type.typeName() == "date":
        return value.isoformat()
    return value


def from_json(schema: TableSchema, row: dict[str, Any]) -> dict[str, Any]:
    """A parsed row, with times and decimals as Python has them. Parse it with ``parse_float=Decimal``."""
    kinds = {column.name: column.type.typeName() for column in schema.columns}
    return {name: _value(kinds.get(name, ""), value) for name, value in row.items()}


def _value(kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind == "timestamp":
        return datetime.fromisoformat(value).astimezone(UTC)
    if kind == "timestamp_ntz":
        return datetime.fromisoformat(value)
    if kind in ("double", "float"):
        return float(value)
    return Decimal(value) if kind == "decimal" else value
