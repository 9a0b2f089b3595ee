"""Lines of ``unknown_table`` as they are read back from its topic. Pure functions."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from connectors.formats import ums
from connectors.logs.rules.records import LineOrigin

_COLUMNS: Final = ("line", "host", "file", "position", "failures")


class UnknownLine(msgspec.Struct, frozen=True):
    """A line that no rule accepted.

    Attributes:
        line: the line.
        origin: where it comes from, as far as ``unknown_table`` says it.
        name: what identifies the line; "" if the row does not say it.
        number: the order number of its row, where the form of the rows has one.
        failures: for each group where it failed: table, group, step, operator and reason.
    """

    line: str
    origin: LineOrigin
    name: str
    number: int
    failures: list[dict[str, Any]]


def read_unknown(value: Any, timestamp: int, id_column: str) -> UnknownLine | None:
    """The line in a row of ``unknown_table``, in any of the forms of ``output``; None if it has no line.

    Args:
        value: the record's value, as the converter reads it.
        timestamp: of the record.
        id_column: the column that identifies rows.

    A message that deletes a row has no line either.
    """
    if not isinstance(value, dict):
        return None
    row, number = _find_row(value, id_column)
    if not isinstance(row.get("line"), str) or find_deleted(value, id_column) is not None:
        return None
    identity, position = row.get(id_column), row.get("position")
    failures = row.get("failures")
    return UnknownLine(
        row["line"],
        LineOrigin(
            _to_string(row.get("host")),
            _to_string(row.get("file")),
            position if isinstance(position, int) else 0,
            max(timestamp, 0),
        ),
        identity.rpartition(":")[0] if isinstance(identity, str) else "",
        number,
        [failure for failure in failures if isinstance(failure, dict)] if isinstance(failures, list) else [],
    )


def find_deleted(value: Any, id_column: str) -> str | None:
    """The name of the line whose row a UMS message deletes; None if the value is something else."""
    if not isinstance(value, dict) or not isinstance(value.get("payload"), list):
        return None
    cells = _ums_cells(value)
    identity = cells.get(id_column)
    if cells.get(ums.OPERATION) != ums.DELETE or not isinstance(identity, str):
        return None
    return identity.rpartition(":")[0]


def is_signal(value: Any) -> bool:
    """Whether a value is a UMS message without rows, such as a heartbeat of the table."""
    protocol = value.get("protocol") if isinstance(value, dict) else None
    return isinstance(protocol, dict) and protocol.get("type") in ums.SIGNALS


def _find_row(value: dict[str, Any], id_column: str) -> tuple[dict[str, Any], int]:
    """The columns of a row, and its order number."""
    if isinstance(value.get("after"), dict):
        source = value.get("source")
        number = source.get("ums_id") if isinstance(source, dict) else None
        return value["after"], number if isinstance(number, int) else 0
    if isinstance(value.get("payload"), list):
        return _find_ums_row(value, id_column)
    return value, 0


def _ums_cells(value: dict[str, Any]) -> dict[str, Any]:
    """Column -> text of the first row of a UMS message; {} if it can't be read."""
    try:
        names = [field["name"] for field in value["schema"]["fields"]]
        return dict(zip(names, value["payload"][0]["tuple"], strict=True))
    except (LookupError, TypeError, ValueError):
        return {}


def _find_ums_row(value: dict[str, Any], id_column: str) -> tuple[dict[str, Any], int]:
    cells = _ums_cells(value)
    row: dict[str, Any] = {name: cells.get(name) for name in (*_COLUMNS, id_column)}
    row["position"] = _to_number(row["position"])
    row["failures"] = _decode_json(row["failures"])
    return row, _to_number(cells.get(ums.ID))


def _to_string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _to_number(value: Any) -> int:
    return int(value) if isinstance(value, str) and value.lstrip("-").isdecimal() else 0


def _decode_json(value: Any) -> Any:
    try:
        return msgspec.json.decode(value) if isinstance(value, str) else None
    except msgspec.DecodeError:
        return None
