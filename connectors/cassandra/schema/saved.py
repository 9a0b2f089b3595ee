"""Definitions of tables among the connector's offsets: saved by id and kept forever, so old segments stay readable. Pure."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from connectors.cassandra.capture import Capture
from connectors.cassandra.model import CLUSTER, NODE, TABLE_ID
from connectors.cql.mutations import definition
from connectors.cql.types import to_text
from connectors.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from connectors.api import Position
    from connectors.cql.mutations.definition import CqlTableDefinition

#: Members of a saved definition.
DEFINITION: Final = "definition"
TABLE: Final = "table"
VERSION: Final = "version"
SEEN_MS: Final = "seen_ms"
#: Of a table without cdc: it had cdc before; and the last segment of the node in which its updates count.
HAD_CDC: Final = "had_cdc"
LAST_SEGMENT: Final = "cdc_last_segment"
#: When the table was created or altered last, by the cluster's clock, µs since 1970.
ALTERED_US: Final = "altered_us"
#: When its cdc was on again after it had been off, likewise.
AGAIN_US: Final = "cdc_again_us"


def definition_partition(prefix: str, node: str, table_id: str) -> Position:
    """The source partition under which the task of ``node`` keeps a table's definition."""
    return {CLUSTER: prefix, NODE: node, TABLE_ID: table_id}


def definition_offset(
    table: CqlTableDefinition, seen_ms: int | None = None, capture: Capture | None = None
) -> Position:
    """The definition as a source offset.

    Args:
        table: the definition.
        seen_ms: when it was read; now if not given.
        capture: what is known of its cdc beyond the definition.
    """
    position: Position = {
        DEFINITION: table.text(),
        TABLE: str(table),
        VERSION: table.version,
        SEEN_MS: time.time_ns() // 1_000_000 if seen_ms is None else seen_ms,
    }
    if capture is not None and capture.altered_us:
        position[ALTERED_US] = capture.altered_us
    if capture is not None and capture.again_us:
        position[AGAIN_US] = capture.again_us
    if capture is not None and capture.ever and not table.cdc:
        position[HAD_CDC] = True
        if capture.last_segment is not None:
            position[LAST_SEGMENT] = capture.last_segment
    return position


def read_captures(prefix: str, node: str, offsets: Sequence[tuple[Position, Position]]) -> dict[str, Capture]:
    """Return the saved state of tables' cdc, by table id; segments count only as the task of ``node`` has saved them.

    A table had cdc if any task has ever seen it with cdc: tasks save at different times.

    Raises:
        Fatal: a definition can't be read.
    """
    now = {table.table_id: table.cdc for table in read_definitions(prefix, offsets)}
    by_table: dict[str, Capture] = {}
    for table_id, saver, saved in _saved_definitions(prefix, offsets):
        capture = by_table.get(table_id) or Capture(now=now[table_id])
        if saver == node or not capture.altered_us:
            # A segment holds with the time of ALTER that was saved with it.
            capture = capture._replace(
                last_segment=_read_number(saved, LAST_SEGMENT) if saver == node else None,
                altered_us=_read_number(saved, ALTERED_US) or 0,
            )
        cdc = definition.parse_definition(saved[DEFINITION]).cdc
        by_table[table_id] = capture._replace(
            ever=capture.ever or cdc or saved.get(HAD_CDC) is True,
            again_us=max(capture.again_us, _read_number(saved, AGAIN_US) or 0),
        )
    return by_table


def _read_number(saved: Position, name: str) -> int | None:
    value = saved.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_definitions(prefix: str, offsets: Sequence[tuple[Position, Position]]) -> list[CqlTableDefinition]:
    """All saved definitions, of each id the one that was seen last: whichever node's task has saved it.

    Raises:
        Fatal: one can't be read; the message says which.
    """
    newest: dict[str, Position] = {}
    for table_id, _, saved in _saved_definitions(prefix, offsets):
        newest_saved = newest.get(table_id)
        if newest_saved is None or (saved.get(SEEN_MS) or 0) > (newest_saved.get(SEEN_MS) or 0):
            newest[table_id] = saved
    parsed = []
    for table_id, saved in newest.items():
        try:
            parsed.append(definition.parse_definition(saved[DEFINITION]))
        except Fatal as error:
            raise Fatal(
                f"{error}. Reset the offset of the partition with {TABLE_ID}={table_id}: the definition is then read "
                "from the cluster, if the table is still there"
            ) from None
    return parsed


def show_tables(prefix: str, offsets: Sequence[tuple[Position, Position]]) -> list[dict[str, Any]]:
    """The tables with their definitions as REST shows them: by name; of tables recreated under a name, the newest first."""
    books: dict[str, dict[str, dict[str, Any]]] = {}
    for table_id, node, saved in _saved_definitions(prefix, offsets):
        try:
            table = definition.parse_definition(saved[DEFINITION])
        except Fatal:
            continue  # altered by hand; the task complains
        seen_ms = int(saved.get(SEEN_MS) or 0)
        entries = books.setdefault(str(table), {})
        entry = entries.get(table_id)
        nodes = sorted({*(entry["nodes"] if entry else ()), node})
        if entry is None or seen_ms > entry["ts_ms"]:
            entry = entries[table_id] = {
                "version": table.version,
                "table_id": table_id,
                "ts_ms": seen_ms,
                "cdc": table.cdc,
                "columns": [
                    {"name": column.name, "type": to_text(column.type), "kind": column.kind} for column in table.columns
                ],
                "dropped_columns": [
                    {"name": column.name, "type": to_text(column.type), "dropped_ms": column.dropped_us // 1000}
                    for column in table.dropped
                ],
            }
        entry["nodes"] = nodes
    shown = []
    for name, entries in sorted(books.items()):
        versions = sorted(entries.values(), key=lambda column: column["ts_ms"], reverse=True)
        shown.append({"table": name, "version": versions[0]["version"], "versions": versions})
    return shown


def _saved_definitions(
    prefix: str, offsets: Sequence[tuple[Position, Position]]
) -> Iterator[tuple[str, str, Position]]:
    for source, saved in offsets:
        table_id, node = source.get(TABLE_ID), source.get(NODE)
        if source.get(CLUSTER) == prefix and isinstance(table_id, str) and isinstance(saved.get(DEFINITION), str):
            yield table_id, str(node), saved
