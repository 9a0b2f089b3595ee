"""How far a connector is behind its nodes' logs: from the directories that are visible here and the saved positions.

A directory is visible on the worker of its task, which need not be the one that is asked: what is not visible here is told as
unknown, by node.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectors.cassandra import saved
from connectors.cassandra.config import log_partition, nodes
from connectors.cassandra.config_keys import PREFIX
from connectors.cassandra.log.directory import SegmentFile, read_index, scan, usage
from connectors.cassandra.model import FINISHED, NODE, OFFSET, SEGMENT, LogPosition
from connectors.errors import Fatal, Retriable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import Position
    from connectors.cassandra.config import Node
    from connectors.options import Config

#: Behind less than this counts as not behind: it is the time that reading takes.
_CURRENT_S: Final = 0.001


async def lag(config: Config, offsets: Sequence[tuple[Position, Position]]) -> dict[str, Any]:
    """See ``SourceConnector.lag``; besides, ``nodes`` has one object per directory.

    The whole is as far behind as the node that is most behind; null while a node's directory is not visible here.
    """
    prefix = config[PREFIX]
    known = {
        str(partition[NODE]): offset
        for partition, offset in offsets
        if partition == log_partition(prefix, str(partition.get(NODE)))
    }
    now_ms = time.time_ns() // 1_000_000
    shown = await asyncio.gather(
        *(asyncio.to_thread(node_lag, node, known.get(node.name), now_ms) for node in nodes(config))
    )
    time_behind = _worst([each["time_behind_s"] for each in shown])
    bytes_behind = _total([each["bytes_behind"] for each in shown])
    return {
        "time_behind_s": time_behind,
        "bytes_behind": bytes_behind,
        "tables": [
            {
                "table": each["table"],
                "time_behind_s": time_behind,
                "events_behind": 0 if bytes_behind == 0 else None,
                "last_event_ts": None,
            }
            for each in saved.tables(prefix, offsets)
            if each["versions"][0]["cdc"]
        ],
        "heartbeat": None,
        "position": {each["node"]: each["position"] for each in shown},
        "source_position": {each["node"]: each["source_position"] for each in shown},
        "nodes": shown,
    }


def node_lag(node: Node, offset: Mapping[str, Any] | None, now_ms: int) -> dict[str, Any]:
    """How far behind a node's log is, for REST. Blocks: it lists the directory.

    Args:
        node: the node.
        offset: its saved position; None: there is none.
        now_ms: milliseconds since 1970.
    """
    shown: dict[str, Any] = {
        "node": node.name,
        "directory": node.directory,
        "visible": False,
        "time_behind_s": None,
        "bytes_behind": None,
        "segments_waiting": None,
        "directory_bytes": None,
        "position": None,
        "source_position": None,
        "note": None,
    }
    try:
        place = LogPosition.of(dict(offset)) if offset else None
    except Fatal as error:
        return {**shown, "note": str(error)}
    if place is not None:
        shown["position"] = place.offset()
    directory = Path(node.directory)
    if not directory.is_dir():
        return {
            **shown,
            "note": f"{directory} is not on the worker that answered: the task's metrics (cassandra_lag_seconds, "
            "cassandra_lag_bytes) tell how far behind it is",
        }
    try:
        files = scan(directory, node.name)
        found = usage(directory, node.name, place, 0)
    except Retriable as error:
        return {**shown, "note": str(error)}
    behind_s = max(0, now_ms - found.oldest_ms) / 1000 if found.oldest_ms else 0.0
    return {
        **shown,
        "visible": True,
        "bytes_behind": found.behind_bytes,
        "segments_waiting": found.waiting,
        "directory_bytes": found.total_bytes,
        "source_position": _newest(files),
        "time_behind_s": round(behind_s, 3) if found.behind_bytes and behind_s >= _CURRENT_S else 0.0,
    }


def _newest(files: Mapping[int, SegmentFile]) -> dict[str, Any] | None:
    """Where the log ends that can be read: the last segment with changes, up to what was synced."""
    for log_id in sorted(files, reverse=True):
        each = files[log_id]
        if each.indexed:
            try:
                index = read_index(each.idx)
            except OSError:
                index = None
            return {SEGMENT: log_id, OFFSET: index.offset if index else 0, FINISHED: bool(index and index.completed)}
    return None


def _worst(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return None if len(known) < len(values) or not known else max(known)


def _total(values: Sequence[int | None]) -> int | None:
    known = [each for each in values if each is not None]
    return None if len(known) < len(values) or not known else sum(known)
