"""Rows as JSON by the template of a body. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.sinks.shared.model import change_id
from spark_jobs.sinks.shared.templates import ROW_PARTS, TABLE_PARTS, Template
from spark_jobs.sinks.shared.values import build_document, json_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_jobs.sinks.shared.model import RowTable, SinkRow

_PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}")
_COLUMN: Final = "column:"
_OWN_PARTS: Final = ("row", "id")


def check_body(template: str) -> str | None:
    """The fault of a template, or None."""
    import orjson

    for part in _PLACEHOLDER.findall(template):
        if part not in (*_OWN_PARTS, *TABLE_PARTS, *ROW_PARTS) and not part.startswith(_COLUMN):
            return f"${{{part}}} is not known; there are ${{row}}, ${{id}}, ${{column:<name>}}, " + ", ".join(
                f"${{{name}}}" for name in (*TABLE_PARTS, *ROW_PARTS)
            )
    try:
        orjson.loads(_PLACEHOLDER.sub("null", template) or "null")
    except orjson.JSONDecodeError as error:
        return f"it is not JSON once values are filled in (a placeholder needs no quotes): {error}"
    return None


def body_of(template: str, table: RowTable) -> Callable[[SinkRow], bytes]:
    """The function that makes the JSON of a row.

    Args:
        template: one that ``check_body`` accepts.
        table: the rows' table.
    """
    parts: list[bytes | Callable[[SinkRow], bytes]] = []
    for number, part in enumerate(_PLACEHOLDER.split(template)):
        if number % 2 == 0:
            parts.append(part.encode())
        elif part in TABLE_PARTS:
            parts.append(json_of(Template(f"${{{part}}}").of_table(table.namespace)))
        else:
            parts.append(_make_part_getter(part, table))
    return lambda row: b"".join([part if isinstance(part, bytes) else part(row) for part in parts])


def _make_part_getter(part: str, table: RowTable) -> Callable[[SinkRow], bytes]:
    if part == "row":
        return lambda row: json_of(build_document(row))
    if part.startswith(_COLUMN):
        name = part.removeprefix(_COLUMN)
        return lambda row: json_of(row.values.get(name))
    ways: dict[str, Callable[[SinkRow], Any]] = {
        "id": lambda row: change_id(row, table),
        "key": Template("${key}").bind(table),
        "topic": lambda row: row.topic,
        "partition": lambda row: row.partition,
        "offset": lambda row: row.offset,
        "ums_id_": lambda row: row.order,
        "ums_op_": lambda row: row.op,
    }
    way = ways[part]
    return lambda row: json_of(way(row))
