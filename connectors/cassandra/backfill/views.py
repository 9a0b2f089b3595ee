"""Backfills as REST shows and takes them. Pure."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connectors import pull_views
from connectors.cassandra.backfill.state import newest, shown
from connectors.cassandra.model import CLUSTER, SHARD, SNAPSHOT
from connectors.errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import Instruction, Position


def partition(prefix: str, request: str, shard: tuple[int, int]) -> Position:
    """The source partition of a task's share of a request."""
    return {CLUSTER: prefix, SNAPSHOT: request, SHARD: f"{shard[0]}/{shard[1]}"}


def check_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request for a backfill in the form in which tasks get it.

    Raises:
        ConfigInvalid: a member is not what it has to be; the message says what is expected.
    """
    if request.get("conditions"):
        raise ConfigInvalid("conditions can't be used with Cassandra: a filter would make it read whole tables all the same "
                            "(ALLOW FILTERING); ask for tables only")
    return pull_views.check_request(request, fields=frozenset({"tables", "conditions", "priority"}))


def snapshots(prefix: str, instructions: Sequence[Instruction],
              offsets: Sequence[tuple[Position, Position]]) -> list[dict[str, Any]]:
    """All backfills: those that were asked for, and what tasks have saved of them; the oldest first."""
    saved: dict[str, dict[str, Mapping[str, Any]]] = {}
    for source, offset in offsets:
        request, shard = source.get(SNAPSHOT), source.get(SHARD)
        if source.get(CLUSTER) == prefix and isinstance(request, str) and isinstance(shard, str):
            saved.setdefault(request, {})[shard] = offset
    return pull_views.views(instructions, {request: newest(parts) for request, parts in saved.items()}, shown)
