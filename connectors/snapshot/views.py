"""Snapshots as REST shows them: what was asked for, put together with what the tasks have saved of their shares. Pure."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from connectors.api import SNAPSHOT_ENDED
from connectors.snapshot.requests import INITIAL, PROGRESS, REQUEST, STATE
from connectors.snapshot.state import ELSEWHERE, shown_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from connectors.api import Instruction

    #: Makes of a request's id and a task's saved progress what is shown; ValueError: it can't be read.
    Shown = Callable[[str, Any], dict[str, Any]]


def views(
    instructions: Sequence[Instruction],
    saved: Mapping[str, Sequence[Mapping[str, Any]]],
    shown: Shown,
    now_ms: int | None = None,
) -> list[dict[str, Any]]:
    """All snapshots: those that were asked for, and what tasks have saved of them and of others; the oldest first.

    Args:
        instructions: the operator's requests.
        saved: by the request's id, the offsets of the tasks' shares: ``state``, ``progress``, maybe ``request``.
        shown: reads ``progress``.
        now_ms: milliseconds since 1970; None: now. One that starts later is ``scheduled``.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    asked = {str(row["id"]): row for row in instructions}
    rows = []
    for name in dict.fromkeys([*saved, *asked]):
        instruction = asked.get(name)
        if instruction is not None and name not in saved and instruction.get("origin", "rest") != "rest":
            continue  # steers a snapshot of which nothing is saved any more
        rows.append(_make_view(name, instruction, saved.get(name, []), shown, now_ms))
    return sorted(rows, key=lambda row: (row["created_ms"] or row["started_ms"] or 0, row["id"]))


def _make_view(
    name: str, instruction: Instruction | None, saved: Sequence[Mapping[str, Any]], shown: Shown, now_ms: int
) -> dict[str, Any]:
    parts = [_read_progress(name, offset, shown) for offset in saved]
    asked = instruction is not None and instruction.get("origin", "rest") == "rest"
    request = (instruction if asked else _saved_request(saved)) or {}
    started = [part["started_ms"] for part in parts if part.get("started_ms")]
    finished = [part["finished_ms"] for part in parts if part.get("finished_ms")]
    state = _combine_states([str(part["state"]) for part in parts], instruction)
    start_ms = request.get("start_ms") or None
    if (
        start_ms is not None
        and start_ms > now_ms
        and state not in SNAPSHOT_ENDED
        and (instruction or request).get("state") == "running"
    ):
        state = "scheduled"
    tables = _combine_tables(parts)
    total = [table["rows_total"] for table in tables]
    return {
        "id": name,
        "state": state,
        "origin": "initial" if name == INITIAL else str(request.get("origin") or "signal"),
        "tables_wanted": list(request.get("tables") or ()),
        "conditions": dict(request.get("conditions") or {}),
        "priority": request.get("priority") or 0,
        "created_ms": request.get("created_ms"),
        "start_ms": start_ms,
        "started_ms": min(started, default=None),
        "finished_ms": max(finished, default=None) if state in SNAPSHOT_ENDED else None,
        "rows_total": sum(total) if total and None not in total else None,
        "rows_done": sum(table["rows_done"] for table in tables),
        "percent": 100.0 if state == "completed" else _mean_of([part["percent"] for part in parts]),
        "error": next((part["error"] for part in parts if part.get("error")), None),
        "tables": tables,
    }


def _read_progress(name: str, offset: Mapping[str, Any], shown: Shown) -> dict[str, Any]:
    part: dict[str, Any] = {"tables": [], "percent": 0.0, "started_ms": None, "finished_ms": None}
    if offset.get(PROGRESS) is not None:
        with suppress(ValueError):  # altered by hand: the state next to it counts
            part = shown(name, offset[PROGRESS])
    return {**part, "state": shown_state(str(offset.get(STATE) or "running"))}


def _saved_request(saved: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The request that the connector or a signal has made, as a task has saved it."""
    for offset in saved:
        if isinstance(offset.get(REQUEST), str):
            with suppress(msgspec.DecodeError):
                return msgspec.json.decode(offset[REQUEST], type=dict[str, Any])
    return None


def _combine_states(states: Sequence[str], instruction: Instruction | None) -> str:
    """One state of several tasks' states, and of the one that the operator asks for."""
    if states and all(state in SNAPSHOT_ENDED for state in states):
        return next((state for state in ("failed", "cancelled") if state in states), "completed")
    if instruction is not None and instruction.get("state") in ("paused", "cancelled"):
        return str(instruction["state"])
    for state in ("running", "paused"):
        if state in states:
            return state
    return "running" if any(state in SNAPSHOT_ENDED for state in states) else "waiting"


def _combine_tables(parts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tables of all tasks' shares: a table that several of them read is shown once."""
    shares: dict[str, list[Mapping[str, Any]]] = {}
    for part in parts:
        for table in part["tables"]:
            if table.get("state") != ELSEWHERE:  # the whole table belongs to another task
                shares.setdefault(str(table["table"]), []).append(table)
    return [_combine_table(name, members) for name, members in shares.items()]


def _combine_table(name: str, members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    states = [shown_state(str(share.get("state"))) for share in members]
    totals = [share.get("rows_total", share.get("total")) for share in members]
    started = [share["started_ms"] for share in members if share.get("started_ms")]
    finished = [share["finished_ms"] for share in members if share.get("finished_ms")]
    done = sum(share.get("rows_done", share.get("done")) or 0 for share in members)
    over = all(state in ("completed", "failed") for state in states)
    state = next((name for name in ("failed", "running", "paused") if name in states), None) or (
        "completed" if over else "running" if "completed" in states else "waiting"
    )
    total = None if None in totals else sum(totals)
    percent = 100.0 if state == "completed" else _mean_of([share.get("percent") or 0.0 for share in members])
    seconds = (max(finished) - min(started)) / 1000 if over and started and finished else 0.0
    return {
        "table": name,
        "state": state,
        "rows_total": done if state == "completed" else total,
        "rows_done": done,
        "rows_per_s": _combine_speed(members, done, seconds),
        "percent": percent,
        "eta_s": None
        if over
        else max((share["eta_s"] for share in members if share.get("eta_s") is not None), default=None),
        "started_ms": min(started, default=None),
        "finished_ms": max(finished, default=None) if over else None,
        "error": next((share["error"] for share in members if share.get("error")), None),
    }


def _combine_speed(members: Sequence[Mapping[str, Any]], done: int, seconds: float) -> float | None:
    if seconds:
        return round(done / seconds, 1)
    speeds = [share["rows_per_s"] for share in members if share.get("rows_per_s") is not None]
    return round(sum(speeds), 1) if speeds else None


def _mean_of(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 2) if values else 0.0
