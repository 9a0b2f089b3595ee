"""Snapshots, lag and tables as REST shows them, from saved positions. Pure, but for the cluster that ``show_tables`` asks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from connectors.cql.token_ranges import MAX_TOKEN, MIN_TOKEN, TokenRange, count_tokens
from connectors.cql.types import to_text
from connectors.errors import ConfigInvalid, Fatal
from connectors.java_regex import compile_java
from connectors.scylla.model import TableId
from connectors.scylla.positions import GENERATION, KEYSPACE, TABLE, saved_windows
from connectors.scylla.schema import tables as definitions
from connectors.scylla.snapshot.merging import find_remaining, from_offset, is_snapshot, request_of, taken_over
from connectors.snapshot import requests
from connectors.snapshot.requests import INITIAL, PROGRESS, STATE
from connectors.snapshot.state import estimate_table
from connectors.snapshot.views import views

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from connectors.api import Instruction, Position
    from connectors.cql.cluster.session import CqlSession
    from connectors.scylla.snapshot.merging import SnapshotPosition

_RING: Final = (TokenRange(MIN_TOKEN, MAX_TOKEN),)
#: Saved positions of a table's snapshot, with their source partitions.
_Saved = list[tuple["Position", "SnapshotPosition"]]


def check_request(request: Mapping[str, Any], captured: Sequence[TableId], skipped: frozenset[str]) -> dict[str, Any]:
    """A request for a snapshot in the form in which tasks get it.

    Args:
        request: as it came.
        captured: the connector's tables.
        skipped: operations whose events are left out.

    Raises:
        ConfigInvalid: it can't be carried out; the message says what is expected.
    """
    checked = requests.check_plain_request(request, "Scylla")
    if "r" in skipped:
        raise ConfigInvalid("skipped.operations has r: the rows of a snapshot would be left out")
    if not wanted_tables(checked["tables"], captured):
        raise ConfigInvalid(
            f"none of the connector's tables ({', '.join(map(str, captured))}) matches {', '.join(checked['tables'])}"
        )
    return checked


def wanted_tables(expressions: Iterable[str], captured: Iterable[TableId]) -> list[TableId]:
    """The tables that one of these regular expressions names."""
    patterns = [compile_java(expression) for expression in expressions]
    return [table for table in captured if any(pattern.fullmatch(str(table)) for pattern in patterns)]


def list_snapshots(
    captured: Sequence[TableId], instructions: Sequence[Instruction], offsets: Iterable[tuple[Position, Position]]
) -> list[dict[str, Any]]:
    """All snapshots: those that were asked for, and what tasks have saved of them and of the first one."""
    now_ms = int(time.time() * 1000)
    saved: dict[str, dict[TableId, _Saved]] = {}
    for partition, offset in offsets:
        if is_snapshot(partition):
            table = TableId(str(partition.get(KEYSPACE)), str(partition.get(TABLE)))
            try:
                position = from_offset(offset)
            except Fatal:
                continue  # altered by hand; the task complains
            saved.setdefault(request_of(partition), {}).setdefault(table, []).append((partition, position))
    shares: dict[str, dict[TableId, _Saved]] = {
        str(row["id"]): {table: [] for table in wanted_tables(row.get("tables") or (), captured)}
        for row in instructions
        if row.get("origin", "rest") == "rest"
    }
    for request, of_tables in saved.items():
        # A table that came later and is not wanted is in no snapshot.
        read = {
            table: positions
            for table, positions in of_tables.items()
            if not all(position.skipped for _, position in positions)
        }
        if read or request != INITIAL:
            shares[request] = {**shares.get(request, {}), **read}
    return views(
        instructions,
        {request: [_combine_shares(tables, now_ms)] for request, tables in shares.items()},
        lambda _, share: dict(share),
        now_ms,
    )


def _combine_shares(tables: Mapping[TableId, _Saved], now_ms: int) -> dict[str, Any]:
    """All tasks' shares of a request as one saved offset."""
    rows = [_table_progress(table, positions, now_ms) for table, positions in tables.items()]
    cancelled = {
        str(table) for table, positions in tables.items() if any(position.cancelled for _, position in positions)
    }
    over = all(row["state"] == "done" or row["table"] in cancelled for row in rows)
    started = [row["started_ms"] for row in rows if row["started_ms"]]
    finished = [row["finished_ms"] for row in rows if row["finished_ms"]]
    running = any(row["state"] in ("running", "done") for row in rows)
    return {
        STATE: "cancelled" if over and cancelled else "completed" if over else "running" if running else "waiting",
        PROGRESS: {
            "tables": rows,
            "percent": round(sum(row["percent"] for row in rows) / len(rows), 2) if rows else 100.0,
            "started_ms": min(started, default=None),
            "finished_ms": max(finished, default=None) if over else None,
        },
    }


def _table_progress(table: TableId, positions: _Saved, now_ms: int) -> dict[str, Any]:
    newest = max((int(partition[GENERATION]) for partition, _ in positions), default=0)
    table_id = next(
        (position.table_id for partition, position in positions if int(partition[GENERATION]) == newest), ""
    )
    # Those of a table of this name that was dropped do not count.
    positions = [(partition, position) for partition, position in positions if position.table_id in ("", table_id)]
    left = find_remaining(_RING, [position for _, position in positions])
    rows, started_ms, finished_ms = taken_over(_RING, left, positions)
    percent = 100.0 * (1 - count_tokens(left) / count_tokens(_RING))
    seconds = ((finished_ms or now_ms) - started_ms) / 1000 if started_ms else 0.0
    running = bool(started_ms) and bool(left)
    return {
        "table": str(table),
        "state": "done" if not left else "running" if started_ms else "waiting",
        "rows_done": rows,
        "percent": round(percent, 2),
        "started_ms": started_ms or None,
        "finished_ms": finished_ms or None,
        "error": None,
        **estimate_table(rows, percent, seconds, done=not left, running=running),
    }


def measure_lag(captured: Iterable[TableId], offsets: Iterable[tuple[Position, Position]]) -> dict[str, Any]:
    """See ``SourceConnector.lag``: by the oldest saved position of each table's newest generation.

    A stream is always behind by the confidence window at least.
    """
    now_ms = int(time.time() * 1000)
    windows = saved_windows(offsets)
    positions = {
        str(table): min(windows[table][max(windows[table])].values()) for table in captured if windows.get(table)
    }
    behind = {table: max(0, now_ms - reached_ms) / 1000 for table, reached_ms in positions.items()}
    names = [str(table) for table in captured]
    return {
        "time_behind_s": max(behind.values()) if behind and len(behind) == len(names) else None,
        "bytes_behind": None,
        "tables": [
            {"table": table, "time_behind_s": behind.get(table), "events_behind": None, "last_event_ts": None}
            for table in names
        ],
        "heartbeat": None,
        "position": {table: {"read_to_ms": reached_ms} for table, reached_ms in positions.items()} or None,
        "source_position": {"now_ms": now_ms},
    }


async def show_tables(session: CqlSession, captured: Iterable[TableId]) -> list[dict[str, Any]]:
    """See ``SourceConnector.tables``: asks the cluster. A table that is not there, or has no log, is left out.

    Raises:
        Retriable: the cluster can't be asked now.
    """
    shown = []
    for table in sorted(captured):
        try:
            history = await definitions.load_history(session, table, now_us=int(time.time() * 1_000_000))
        except definitions.TableUnavailable:
            continue
        shown.append(
            {
                "table": str(table),
                "version": history.newest.version,
                "versions": [
                    {
                        "version": version.version,
                        "table_id": version.table_id,
                        "ts_ms": version.since_us // 1000,
                        "cdc": not version.options.off,
                        "columns": [
                            {"name": column.name, "type": to_text(column.type), "kind": column.kind}
                            for column in version.columns
                        ],
                    }
                    for version in reversed(history.versions)
                ],
            }
        )
    return shown
