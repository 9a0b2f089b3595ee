"""Where a run begins, and whether it reads the tables first."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from connectors.errors import Retriable
from connectors.mysql.model import BinlogPosition
from connectors.mysql.position import start
from connectors.mysql.position.positions import FIRST
from connectors.mysql.source import gtid
from connectors.mysql.source.packets import PurgedError
from connectors.snapshot.requests import INITIAL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connectors.api import Position
    from connectors.mysql.model import StreamSettings
    from connectors.mysql.source.connection import ServerInfo
    from connectors.mysql.source.server import SourceServer

#: MySQL counts a transaction as executed this long at the most after it is in the binlog, if it waits for no replica.
_EXECUTED_S: Final = 15.0
_PAUSE_S: Final = 0.2


class RunStart(NamedTuple):
    """The position at which a run starts.

    Attributes:
        start: the contents of the saved offsets.
        position: the position to start at.
        by_gtid: whether to ask the server by GTIDs, since the position may be of another server.
        same_server: whether the position's file and offset in it are of this server.
        initial: whether the initial snapshot is to be taken, or completed.
    """

    start: start.Start
    position: BinlogPosition
    by_gtid: bool
    same_server: bool
    initial: bool


async def find_start(
    settings: StreamSettings, saved: Iterable[tuple[Position, Position]], server: SourceServer, info: ServerInfo
) -> RunStart:
    """Decide where to begin.

    Raises:
        PurgedError: the server does not have the saved position any more, and has no GTIDs to look for it by.
        Retriable: the server can't be asked now.
        ConfigInvalid: a saved offset is not understood.
    """
    pairs = list(saved)
    plan = settings.plan
    run_start = start.start_of(settings.prefix, settings.shard, pairs)
    takes_snapshot = plan.snapshot == "always" or (
        plan.snapshot == "initial" and start.needs_initial(settings.prefix, settings.shard, pairs, INITIAL)
    )
    position = run_start.position
    # Debezium says in the offset if its own snapshot has not come to its end: then its position is where it would begin again.
    unfinished = any(
        offset.get("snapshot") not in {None, False, "false"}
        for partition, offset in pairs
        if start.is_stream(settings.prefix, partition) and start.LAYOUT not in offset
    )
    if position is None or (takes_snapshot and unfinished):
        position = await _new_position(settings, server, info)
        return RunStart(
            run_start._replace(position=None, resume=start.Resume(), done=()),
            position,
            by_gtid=False,
            same_server=True,
            initial=takes_snapshot,
        )
    logs = [name for name, _ in await server.logs()]
    same = position.file in logs and run_start.resume.server in {0, info.server_id}
    by_gtid = bool(position.gtids) and (not same or not run_start.resume.server or run_start.resume.by_gtid)
    if not same and not by_gtid:
        kept = f"has {logs[0]} to {logs[-1]}" if logs else "has none"
        raise PurgedError(
            f"the binlog of the saved place {position.file}:{position.pos} is not at {info.address} any more, which "
            f"{kept}, and without GTIDs the place can't be found on another server: keep binlogs longer "
            "(binlog_expire_logs_seconds), and begin from the start: reset the connector's offsets, or set "
            "snapshot.mode=when_needed"
        )
    if same and position.gtids and not by_gtid:
        await _check_executed(position, server, info)
    if same and info.mariadb and not position.gtids:
        position = msgspec.structs.replace(position, gtids=await server.gtids_at(position))
    return RunStart(run_start, position, by_gtid, same, initial=takes_snapshot)


async def _check_executed(position: BinlogPosition, server: SourceServer, info: ServerInfo) -> None:
    """A server that was reset, or comes from a backup, has files of the same names with other events.

    Raises:
        PurgedError: it lacks transactions that the stream has read.
        Retriable: it may have them once a replica has acknowledged them.
    """
    read = gtid.parse_gtids(info.flavor, position.gtids)
    end_s = time.monotonic() + _EXECUTED_S
    while True:
        executed = gtid.parse_gtids(info.flavor, (await server.current_position(info)).gtids)
        if info.mariadb:
            # A domain may have been deleted from the binlog's state.
            domains = {name.partition("-")[0] for name in executed.text().split(",")}
            read = read.retain(lambda source, domains=domains: source.partition("-")[0] in domains)  # type: ignore[misc]
        if not executed or read.is_subset(executed):
            return
        if info.mariadb or time.monotonic() > end_s:
            if not info.mariadb and await server.has_waiting_commits():
                raise Retriable(
                    f"commits at {info.address} wait for a replica's acknowledgement (semi-synchronous replication), and the "
                    f"stream has read some of them: it continues at {position.file}:{position.pos} when they are done"
                )
            lacking = gtid.lacking_text(info.flavor, position.gtids, executed.text()) or f"some of {position.gtids}"
            raise PurgedError(
                f"{info.address} has not executed all transactions that the stream has read (it lacks {lacking}), as after a "
                f"RESET MASTER, from an older backup, or where the server before it was lost with its last commits, so that "
                f"{position.file}:{position.pos} may be another place there: begin from the start: reset the connector's "
                "offsets, or set snapshot.mode=when_needed"
            )
        await asyncio.sleep(_PAUSE_S)


async def _new_position(settings: StreamSettings, server: SourceServer, info: ServerInfo) -> BinlogPosition:
    if settings.plan.begin == "oldest":
        logs = await server.logs()
        if logs:
            return BinlogPosition(file=logs[0][0], pos=FIRST)
    return await server.current_position(info)
