"""How far a connector is behind its source: what tasks save for it, and the answer for REST."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.mysql.config.options_events import PREFIX
from connectors.mysql.config.settings import connection_settings
from connectors.mysql.position import positions, start
from connectors.mysql.source import connection, gtid
from connectors.mysql.stream.latency import heartbeat_body, lag_body, table_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import Position
    from connectors.mysql.model import BinlogPosition, Shard
    from connectors.mysql.stream.latency import HeartbeatLatency, TableLags
    from connectors.options import Config

#: Member of the partitions of ``lag_partition``.
LAG: Final = "lag"
_HEARTBEAT: Final = "heartbeat"
_TABLES: Final = "tables"
#: Saved this long ago, a task's numbers are those of a task that is no longer there.
_OLD_MS: Final = 3_600_000
_TS: Final = "ts_ms"


def lag_partition(prefix: str, shard: Shard) -> Position:
    """The source partition under which a task saves ``lag_offset``."""
    return {**start.stream_partition(prefix, shard), LAG: "task"}


def lag_offset(latency: HeartbeatLatency, tables: TableLags) -> Position:
    """Return the offset with the lag that a task saves at intervals, so that any worker can answer requests for it."""
    return {
        _HEARTBEAT: msgspec.json.encode(latency.saved()).decode(),
        _TABLES: tables.saved(),
        _TS: time.time_ns() // 1_000_000,
    }


def saved_place(prefix: str, offsets: Sequence[tuple[Position, Position]]) -> tuple[BinlogPosition, int] | None:
    """The place that all tasks have reached and the id of the server it is of (0: unknown), or None: nothing is saved.

    Raises:
        ValueError: a saved offset is not understood.
    """
    candidates = [
        (int(offset.get(start.LAYOUT) or 0), positions.from_offset(offset), int(offset.get(start.SOURCE_SERVER) or 0))
        for partition, offset in offsets
        if start.is_stream(prefix, partition) and offset.get(positions.FILE)
    ]
    newest = max((layout for layout, _, _ in candidates), default=0)
    # Places of an older division into tasks stay saved.
    return min(
        ((position, server) for layout, position, server in candidates if layout == newest),
        key=lambda candidate: positions.order_key(candidate[0]),
        default=None,
    )


async def read_lag(config: Config, offsets: Sequence[tuple[Position, Position]]) -> dict[str, Any]:
    """See ``SourceConnector.lag``. Asks the source.

    Raises:
        Retriable: the source can't be asked now.
        ConfigInvalid: it refuses the account.
    """
    prefix = config[PREFIX]
    position, server = saved_place(prefix, offsets) or (None, 0)
    opened = await connection.connect_first(connection_settings(config))
    try:
        info = await connection.server_info(opened)
        now = await connection.current_place(opened, info)
        logs = await connection.binary_logs(opened)
    finally:
        opened.close()
    behind_bytes, behind_s = _measure_behind(position, now, logs if server in (0, info.server_id) else (), info.flavor)
    saved = _saved_offsets(prefix, offsets)
    beats = [msgspec.json.decode(offset[_HEARTBEAT]) for offset in saved if isinstance(offset.get(_HEARTBEAT), str)]
    written = [offset for offset in beats if offset.get("sent_us")]
    beat = max(written or beats, key=lambda offset: offset.get("read_us") or 0, default=None)
    return lag_body(
        time_behind_s=behind_s,
        bytes_behind=behind_bytes,
        tables=table_rows(
            [offset[_TABLES] for offset in saved if isinstance(offset.get(_TABLES), str)], behind_s, behind_bytes
        ),
        heartbeat=heartbeat_body(beat, time.time_ns() // 1000),
        position=_show_position(position),
        source_position=_show_position(now),
    )


def _measure_behind(
    position: BinlogPosition | None, now: BinlogPosition, logs: Sequence[tuple[str, int]], flavor: str
) -> tuple[int | None, float | None]:
    """Return bytes and seconds; None for a number that is unknown."""
    if position is None:
        return None, None
    if (
        position.gtids
        and now.gtids
        and gtid.parse_gtids(flavor, now.gtids).is_subset(gtid.parse_gtids(flavor, position.gtids))
    ):
        return 0, 0.0
    behind_bytes = positions.bytes_behind(position, logs)
    if behind_bytes == 0:
        return 0, 0.0
    return behind_bytes, max(0.0, time.time() - position.ts_sec) if position.ts_sec else None


def _saved_offsets(prefix: str, offsets: Sequence[tuple[Position, Position]]) -> list[Mapping[str, Any]]:
    lag_offsets = [
        offset for partition, offset in offsets if partition.get(start.SERVER) == prefix and LAG in partition
    ]
    newest = max((int(offset.get(_TS) or 0) for offset in lag_offsets), default=0)
    return [offset for offset in lag_offsets if int(offset.get(_TS) or 0) > newest - _OLD_MS]


def _show_position(position: BinlogPosition | None) -> dict[str, Any] | None:
    return None if position is None else {"file": position.file, "pos": position.pos, "gtids": position.gtids or None}
