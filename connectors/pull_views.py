"""Reads of whole tables as REST shows and takes them: requests are checked, progress is put together of tasks' shares. Pure.

Connectors say what a request may have, and how the progress that their tasks save is read. ``pack`` and ``unpack`` make the
text of it that is saved: after each chunk, so it is compressed where it is long.
"""

from __future__ import annotations

import base64
import time
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from connectors.api import SNAPSHOT_ENDED
from connectors.errors import ConfigInvalid
from connectors.java_regex import compile_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from connectors.api import Instruction

    #: Makes of a request's id and a task's saved progress (text) what is shown; ValueError: it can't be read.
    Shown = Callable[[str, str], dict[str, Any]]

Note = TypeVar("Note", bound=msgspec.Struct)

FIELDS: Final = frozenset({"tables", "conditions", "priority", "surrogate_key"})
_PACKED: Final = "z:"
_LONG: Final = 4_000
_STATES: Final = {"done": "completed"}
_TABLE_STATES: Final = {"done": "completed", "vanished": "completed"}


def check_request(
    request: Mapping[str, Any], *, fields: frozenset[str] = FIELDS, condition: Callable[[str], bool] | None = None
) -> dict[str, Any]:
    """A request in the form in which tasks get it.

    Args:
        request: as it came.
        fields: members that it may have.
        condition: whether a text can be a condition; None: the caller has refused them.

    Raises:
        ConfigInvalid: a member is not what it has to be; the message says what is expected.
    """
    unknown = sorted(set(request) - fields)
    if unknown:
        raise ConfigInvalid(f"a snapshot has no {', '.join(unknown)}; it has {', '.join(sorted(fields))}")
    tables = request.get("tables")
    if not isinstance(tables, list) or not tables or not all(isinstance(each, str) and each.strip() for each in tables):
        raise ConfigInvalid(
            'tables must be a list of names or regular expressions, such as ["shop.orders", "shop.cust.*"], '
            f"not {tables!r}"
        )
    for each in tables:
        _expression("tables", each)
    conditions = request.get("conditions") or {}
    if not isinstance(conditions, dict) or not all(isinstance(each, str) for each in conditions.values()):
        raise ConfigInvalid(
            'conditions must be an object of tables and SQL conditions, such as {"shop.orders": "id > 1000"}, '
            f"not {conditions!r}"
        )
    for table, text in conditions.items():
        _expression("conditions", table)
        if condition is None or not condition(text):
            raise ConfigInvalid(
                f"conditions: {text!r} for {table} must be one SQL condition, without WHERE, comments and semicolons"
            )
    priority = request.get("priority") or 0
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise ConfigInvalid(f"priority must be a whole number, not {priority!r}; the highest is read first")
    surrogate = request.get("surrogate_key") or ""
    if not isinstance(surrogate, str):
        raise ConfigInvalid(f"surrogate_key must be the name of a column, not {surrogate!r}")
    found: dict[str, Any] = {
        "tables": [each.strip() for each in tables],
        "conditions": {table: text.strip() for table, text in conditions.items()},
        "priority": priority,
    }
    return {**found, "surrogate_key": surrogate} if surrogate else found


def _expression(member: str, text: str) -> None:
    try:
        compile_java(text)
    except ConfigInvalid as error:
        raise ConfigInvalid(f"{member}: {text!r}: {error}") from None


def views(
    instructions: Sequence[Instruction],
    saved: Mapping[str, Sequence[Mapping[str, Any]]],
    shown: Shown,
    now_ms: int | None = None,
) -> list[dict[str, Any]]:
    """All reads: those that were asked for, and what tasks have saved of them and of others; the oldest first.

    Args:
        instructions: the operator's requests.
        saved: by the request's id, the offsets of the tasks' shares: ``state``, ``progress``, maybe ``request``.
        shown: reads ``progress``.
        now_ms: milliseconds since 1970; None: now. One that begins later is ``scheduled``.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    asked = {str(each["id"]): each for each in instructions}
    found = []
    for name in dict.fromkeys([*saved, *asked]):
        wish = asked.get(name)
        if wish is not None and name not in saved and wish.get("origin", "rest") != "rest":
            continue  # steers a pull of which nothing is saved any more
        found.append(_view(name, wish, saved.get(name, []), shown, now_ms))
    return sorted(found, key=lambda each: (each["created_ms"] or each["started_ms"] or 0, each["id"]))


def _view(
    name: str, wish: Instruction | None, saved: Sequence[Mapping[str, Any]], shown: Shown, now_ms: int
) -> dict[str, Any]:
    parts = [_progress(name, offset, shown) for offset in saved]
    states = [str(each["state"]) for each in parts]
    request = wish if wish is not None and wish.get("origin", "rest") == "rest" else _signalled(saved)
    started = [each["started_ms"] for each in parts if each.get("started_ms")]
    finished = [each["finished_ms"] for each in parts if each.get("finished_ms")]
    state = _state(states, wish)
    start_ms = (request or {}).get("start_ms") or None
    if (
        start_ms is not None
        and start_ms > now_ms
        and state not in SNAPSHOT_ENDED
        and (wish or request or {}).get("state") == "running"
    ):
        state = "scheduled"
    tables = _tables(parts)
    total = [each["rows_total"] for each in tables]
    return {
        "id": name,
        "state": state,
        "origin": "initial" if name == "initial" else str((request or {}).get("origin") or "signal"),
        "tables_wanted": list((request or {}).get("tables") or ()),
        "conditions": dict((request or {}).get("conditions") or {}),
        "priority": (request or {}).get("priority") or 0,
        "created_ms": (request or {}).get("created_ms"),
        "start_ms": start_ms,
        "started_ms": min(started, default=None),
        "finished_ms": max(finished, default=None) if state in SNAPSHOT_ENDED else None,
        "rows_total": sum(total) if total and None not in total else None,
        "rows_done": sum(each["rows_done"] for each in tables),
        "percent": 100.0 if state == "completed" else _mean([each["percent"] for each in parts]),
        "tables": tables,
    }


def _progress(name: str, offset: Mapping[str, Any], shown: Shown) -> dict[str, Any]:
    text = offset.get("progress")
    state = str(offset.get("state") or "running")
    found: dict[str, Any] = {"tables": [], "percent": 0.0, "started_ms": None, "finished_ms": None}
    if isinstance(text, str):
        with suppress(ValueError):  # altered by hand: the state beside it counts
            found = shown(name, text)
    return {**found, "state": _STATES.get(state, state)}


def _signalled(saved: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The request that a signal has made, as its task has saved it."""
    for offset in saved:
        if isinstance(offset.get("request"), str):
            try:
                found: dict[str, Any] = msgspec.json.decode(offset["request"], type=dict[str, Any])
            except msgspec.DecodeError:
                continue
            return found
    return None


def _state(states: Sequence[str], wish: Instruction | None) -> str:
    """One state of several tasks' ones, and of what the operator wants."""
    if states and all(state in SNAPSHOT_ENDED for state in states):
        return next((state for state in ("failed", "cancelled") if state in states), "completed")
    if wish is not None and wish.get("state") in ("paused", "cancelled"):
        return str(wish["state"])
    for state in ("running", "paused"):
        if state in states:
            return state
    return "running" if any(state in SNAPSHOT_ENDED for state in states) else "waiting"


def _tables(parts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tables of all tasks' shares: a table that several of them read is shown once."""
    shares: dict[str, list[Mapping[str, Any]]] = {}
    for part in parts:
        for table in part["tables"]:
            if table.get("state") != "elsewhere":  # the whole table belongs to another task
                shares.setdefault(str(table["table"]), []).append(table)
    return [_table(name, members) for name, members in shares.items()]


def _table(name: str, members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    states = [_TABLE_STATES.get(str(each.get("state")), str(each.get("state"))) for each in members]
    totals = [each.get("rows_total", each.get("total")) for each in members]
    started = [each["started_ms"] for each in members if each.get("started_ms")]
    finished = [each["finished_ms"] for each in members if each.get("finished_ms")]
    done = sum(each.get("rows_done", each.get("done")) or 0 for each in members)
    over = all(state in ("completed", "failed") for state in states)
    state = next((each for each in ("failed", "running", "paused") if each in states), None) or (
        "completed" if over else "running" if "completed" in states else "waiting"
    )
    total = None if None in totals else sum(totals)
    percent = 100.0 if state == "completed" else _mean([each.get("percent") or 0.0 for each in members])
    seconds = (max(finished) - min(started)) / 1000 if over and started and finished else 0.0
    return {
        "table": name,
        "state": state,
        "rows_total": done if state == "completed" else total,
        "rows_done": done,
        "rows_per_s": _speed(members, done, seconds),
        "percent": percent,
        "eta_s": None
        if over
        else max((each["eta_s"] for each in members if each.get("eta_s") is not None), default=None),
        "started_ms": min(started, default=None),
        "finished_ms": max(finished, default=None) if over else None,
        "error": next((each["error"] for each in members if each.get("error")), None),
    }


def _speed(members: Sequence[Mapping[str, Any]], done: int, seconds: float) -> float | None:
    if seconds:
        return round(done / seconds, 1)
    known = [each["rows_per_s"] for each in members if each.get("rows_per_s") is not None]
    return round(sum(known), 1) if known else None


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 2) if values else 0.0


def pack(note: msgspec.Struct) -> str:
    """The text for an offset: JSON, or compressed JSON in Base64 where that is longer than 4 kB."""
    plain = msgspec.json.encode(note)
    if len(plain) <= _LONG:
        return plain.decode()
    return _PACKED + base64.b64encode(zlib.compress(plain, 1)).decode()


def unpack(value: str, kind: type[Note], what: str) -> Note:
    """See ``pack``.

    Args:
        value: the text.
        kind: what it is of.
        what: how an error calls that: "state of a backfill".

    Raises:
        ValueError: it is none.
    """
    try:
        plain = (
            zlib.decompress(base64.b64decode(value[len(_PACKED) :])) if value.startswith(_PACKED) else value.encode()
        )
        return msgspec.json.decode(plain, type=kind)
    except (msgspec.DecodeError, zlib.error, ValueError) as error:
        raise ValueError(f"{value[:80]!r} is no {what}: {error}") from error
