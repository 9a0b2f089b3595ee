"""Snapshots in the form in which REST shows and accepts them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from connectors.api import SNAPSHOT_ENDED
from connectors.cassandra.model import CLUSTER, SHARD, SNAPSHOT
from connectors.cassandra.snapshot.model import new_table_id, reads_again
from connectors.cassandra.snapshot.state import newest_division, note_of, show_share
from connectors.snapshot import requests
from connectors.snapshot.requests import INITIAL, SnapshotRequest
from connectors.snapshot.views import views

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import Instruction, Position


def share_partition(prefix: str, request: str, shard: tuple[int, int]) -> Position:
    """The source partition of a task's share of a request."""
    return {CLUSTER: prefix, SNAPSHOT: request, SHARD: f"{shard[0]}/{shard[1]}"}


def saved_request(request: SnapshotRequest) -> str:
    """Return the saved form of a request that the connector has made for a table added later; ``request_of`` reads it."""
    return msgspec.json.encode({"origin": request.origin, "tables": request.tables}).decode()


def request_of(name: str, offset: Mapping[str, Any]) -> SnapshotRequest | None:
    """The request that ``saved_request`` has saved with a share of the snapshot ``name``; None: no request was saved."""
    request_json = offset.get("request")
    if not new_table_id(name) or not isinstance(request_json, str):
        return None
    try:
        tables = msgspec.json.decode(request_json, type=dict[str, Any]).get("tables")
    except msgspec.DecodeError:
        return None
    return SnapshotRequest(id=name, tables=list(tables or ()), origin="new", table_id=new_table_id(name))


def check_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request for a snapshot in the form in which tasks get it.

    Raises:
        ConfigInvalid: a member is not what it has to be; the message says what is expected.
    """
    return requests.check_plain_request(request, "Cassandra")


def list_snapshots(
    prefix: str, instructions: Sequence[Instruction], offsets: Sequence[tuple[Position, Position]]
) -> list[dict[str, Any]]:
    """All snapshots: those that were asked for, and what tasks have saved of them; the oldest first."""
    saved: dict[str, dict[str, Mapping[str, Any]]] = {}
    for source, offset in offsets:
        request, shard = source.get(SNAPSHOT), source.get(SHARD)
        if source.get(CLUSTER) == prefix and isinstance(request, str) and isinstance(shard, str):
            saved.setdefault(request, {})[shard] = offset
    for request, parts in saved.items():
        if (table_id := new_table_id(request)) and not reads_again(request):
            _add_covered(parts, saved.get(INITIAL, {}), table_id)
    return views(instructions, {request: newest_division(parts) for request, parts in saved.items()}, show_share)


def _add_covered(parts: dict[str, Mapping[str, Any]], initial: Mapping[str, Mapping[str, Any]], table_id: str) -> None:
    """Add the shares of the first snapshot that include a table which others found later: they started when it existed."""
    request = next((saved_part["request"] for saved_part in parts.values() if "request" in saved_part), None)
    for shard, offset in initial.items():
        note = note_of(offset)
        covered = (
            next((saved_part for saved_part in note.tables if saved_part.table_id == table_id), None)
            if note is not None
            else None
        )
        if covered is not None and shard not in parts:
            over = covered.stage == "done" or offset.get("state") in SNAPSHOT_ENDED
            parts[shard] = {"state": "completed" if over else "running", "request": request}
