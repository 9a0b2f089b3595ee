"""How far a connector is behind its nodes' logs: from the directories that are visible here and the saved positions.

A directory is visible on the worker of its task, which may be another worker than the one that is asked. For a directory that
is not visible here, the node's lag is reported as unknown.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectors.cassandra.config.keys import PREFIX
from connectors.cassandra.config.settings import log_partition, parse_nodes
from connectors.cassandra.log.directory import SegmentFiles, measure_usage, read_index, scan_directory
from connectors.cassandra.model import FINISHED, NODE, OFFSET, SEGMENT, LogPosition
from connectors.cassandra.schema import saved
from connectors.errors import Fatal, Retriable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import Position
    from connectors.cassandra.config.settings import LogNode
    from connectors.options import Config

#: Behind less than this counts as not behind: it is the time that reading takes.
_CURRENT_S: Final = 0.001


async def measure_lag(config: Config, offsets: Sequence[tuple[Position, Position]]) -> dict[str, Any]:
    """See ``SourceConnector.lag``; besides, ``parse_nodes`` has one object per directory.

    The whole is as far behind as the node that is most behind; null while a node's directory is not visible here.
    """
    prefix = config[PREFIX]
    saved_offsets = {
        str(partition[NODE]): offset
        for partition, offset in offsets
        if partition == log_partition(prefix, str(partition.get(NODE)))
    }
    now_ms = time.time_ns() // 1_000_000
    shown = await asyncio.gather(
        *(asyncio.to_thread(node_lag, node, saved_offsets.get(node.name), now_ms) for node in parse_nodes(config))
    )
    time_behind = _worst_value([node_status["time_behind_s"] for node_status in shown])
    bytes_behind = _sum_values([node_status["bytes_behind"] for node_status in shown])
    return {
        "time_behind_s": time_behind,
        "bytes_behind": bytes_behind,
        "tables": [
            {
                "table": node_status["table"],
                "time_behind_s": time_behind,
                "events_behind": 0 if bytes_behind == 0 else None,
                "last_event_ts": None,
            }
            for node_status in saved.show_tables(prefix, offsets)
            if node_status["versions"][0]["cdc"]
        ],
        "heartbeat": None,
        "position": {node_status["node"]: node_status["position"] for node_status in shown},
        "source_position": {node_status["node"]: node_status["source_position"] for node_status in shown},
        "nodes": shown,
    }


def node_lag(node: LogNode, offset: Mapping[str, Any] | None, now_ms: int) -> dict[str, Any]:
    """How far behind a node's log is, for REST. Blocks: it lists the directory.

    Args:
        node: the node.
        offset: its saved position; None: there is no saved position.
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
        position = LogPosition.of(dict(offset)) if offset else None
    except Fatal as error:
        return {**shown, "note": str(error)}
    if position is not None:
        shown["position"] = position.offset()
    directory = Path(node.directory)
    if not directory.is_dir():
        return {
            **shown,
            "note": f"{directory} is not on the worker that answered: the task's metrics (cassandra_lag_seconds, "
            "cassandra_lag_bytes) tell how far behind it is",
        }
    try:
        files = scan_directory(directory, node.name)
        space = measure_usage(directory, node.name, position, 0)
    except Retriable as error:
        return {**shown, "note": str(error)}
    behind_s = max(0, now_ms - space.oldest_ms) / 1000 if space.oldest_ms else 0.0
    return {
        **shown,
        "visible": True,
        "bytes_behind": space.behind_bytes,
        "segments_waiting": space.waiting,
        "directory_bytes": space.total_bytes,
        "source_position": _newest_position(files),
        "time_behind_s": round(behind_s, 3) if space.behind_bytes and behind_s >= _CURRENT_S else 0.0,
    }


def _newest_position(files: Mapping[int, SegmentFiles]) -> dict[str, Any] | None:
    """Where the log ends that can be read: the last segment with changes, up to what was synced."""
    for log_id in sorted(files, reverse=True):
        segment = files[log_id]
        if segment.indexed:
            try:
                index = read_index(segment.idx)
            except OSError:
                index = None
            return {SEGMENT: log_id, OFFSET: index.offset if index else 0, FINISHED: bool(index and index.completed)}
    return None


def _worst_value(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return None if len(numbers) < len(values) or not numbers else max(numbers)


def _sum_values(values: Sequence[int | None]) -> int | None:
    numbers = [value for value in values if value is not None]
    return None if len(numbers) < len(values) or not numbers else sum(numbers)
