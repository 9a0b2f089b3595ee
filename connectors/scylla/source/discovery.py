"""Generations and streams as the cluster tells them: of vnode tables (both forms of the tables) and of tablet tables.

Vnode tables share their generations; a tablet table has its own. But for ``shared_groups`` nothing is kept between calls.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakKeyDictionary

from connectors.cql.cluster.session import SchemaChanged
from connectors.errors import Fatal, Retriable
from connectors.scylla.config.keys import HOSTS, TASK_GROUPS, USER
from connectors.scylla.model import Generation, TableId
from connectors.scylla.source.generations import to_generations
from connectors.scylla.source.groups import (
    add_streams,
    choose_groups,
    decode_shares,
    of_table,
    tablet_groups,
    vnode_groups,
)
from connectors.scylla.source.windows import millis_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.cql.cluster.session import CqlSession
    from connectors.scylla.model import StreamGroup
    from connectors.scylla.source.groups import Vnodes

#: Where a table's streams are listed.
Source = Literal["v1", "v2", "tablets"]

#: Rows per page of stream lists: a row of a vnode has as many streams as a node has shards.
_VNODES_A_PAGE: Final = 64
_STREAMS_A_PAGE: Final = 2_000
#: Streams that are sorted into groups before the loop gets its turn.
_SLICE: Final = 4_096
#: How long lists of streams are kept for other tasks of the process, seconds.
_KEPT_S: Final = 60.0

_TIMES: Final = {
    "v2": "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'",
    "v1": "SELECT time FROM system_distributed.cdc_streams_descriptions",
    "tablets": 'SELECT "timestamp" AS time FROM system.cdc_timestamps WHERE keyspace_name = ? AND table_name = ?',
}


async def choose_consistency(session: CqlSession) -> str:
    """The level to read lists of streams with: QUORUM, or ONE in a cluster of one node, whose replication can't be met."""
    return "QUORUM" if await session.query("SELECT peer FROM system.peers", consistency="ONE") else "ONE"


async def uses_tablets(session: CqlSession, keyspace: str) -> bool:
    """Whether the keyspace's tables are in tablets.

    Raises:
        Retriable: nodes are unavailable, busy or too slow.
    """
    rows = await _if_there(
        session, "SELECT initial_tablets FROM system_schema.scylla_keyspaces WHERE keyspace_name = ?", (keyspace,)
    )
    return any(row["initial_tablets"] is not None for row in rows)


async def _if_there(session: CqlSession, cql: str, parameters: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
    """The rows of a query on a table of the server's own that not every server has; nothing if it is not there."""
    try:
        return await session.query(cql, parameters, consistency="ONE")
    except (SchemaChanged, Fatal):
        return []


async def vnode_source(session: CqlSession) -> Source:
    """Return which of the two lists of streams of vnode tables to read.

    If both exist, the newer one counts only once the old one's rows were copied to it: then it has the row ``rewritten``.

    Raises:
        Retriable: neither is there (yet), or nodes are unavailable, busy or too slow.
    """
    rows = await session.query(
        "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'system_distributed'", consistency="ONE"
    )
    there = {row["table_name"] for row in rows}
    new = "cdc_generation_timestamps" in there and "cdc_streams_descriptions_v2" in there
    old = "cdc_streams_descriptions" in there
    if not new and not old:
        raise Retriable(
            "The cluster has no lists of CDC streams (system_distributed.cdc_streams_descriptions_v2): is it "
            "Scylla, and does it have CDC?"
        )
    if new and old:
        new = bool(await _if_there(session, "SELECT key FROM system.cdc_local WHERE key = 'rewritten'"))
    return "v2" if new else "v1"


async def table_source(session: CqlSession, table: TableId) -> Source:
    """Where the streams of ``table`` are listed."""
    return "tablets" if await uses_tablets(session, table.keyspace) else await vnode_source(session)


def to_millis(value: Any) -> int:
    """A generation's time in ms, whether the column is a timestamp or a timeuuid."""
    if isinstance(value, int):
        return value
    return millis_of(value if isinstance(value, bytes) else uuid.UUID(str(value)).bytes)


async def _read_starts(session: CqlSession, table: TableId, source: Source) -> dict[int, Any]:
    """The starts of generations, each with its value in the table."""
    rows = await session.query(
        _TIMES[source], table if source == "tablets" else (), consistency=await choose_consistency(session)
    )
    return {to_millis(row["time"]): row["time"] for row in rows if row["time"] is not None}


async def load_generations(session: CqlSession, table: TableId, source: Source | None = None) -> list[Generation]:
    """The generations of a table in order, with their ends; empty if there are no generations yet.

    Args:
        session: the session.
        table: the table.
        source: see ``table_source``; asked for if not given.

    Raises:
        Retriable: nodes are unavailable, busy or too slow.
    """
    return to_generations(await _read_starts(session, table, source or await table_source(session, table)))


async def generation_end(
    session: CqlSession, table: TableId, generation_start_ms: int, source: Source | None = None
) -> int | None:
    """When the generation that starts at ``generation_start_ms`` ends (ms): where the next begins; None: there is no next one.

    Raises:
        Retriable: nodes are unavailable, busy or too slow.
    """
    times = await _read_starts(session, table, source or await table_source(session, table))
    return min((start for start in times if start > generation_start_ms), default=None)


async def load_groups(
    session: CqlSession, table: TableId, generation: Generation, source: Source | None = None
) -> list[StreamGroup]:
    """All groups of a generation, in order, read page by page.

    Args:
        session: the session.
        table: the table; for vnode tables ``groups.of_table`` gives the same groups for another one.
        generation: its generation.
        source: see ``table_source``; asked for if not given.

    Raises:
        Retriable: the generation has no streams, or nodes are unavailable, busy or too slow.
    """
    source = source or await table_source(session, table)
    level = await choose_consistency(session)
    if source == "tablets":
        groups = tablet_groups(table, generation, await _tablet_streams(session, table, generation.start_ms, level))
    elif source == "v2":
        groups = vnode_groups(table, generation, await _read_vnodes(session, generation.start_ms, level))
    else:
        groups = vnode_groups(table, generation, await _old_vnodes(session, generation.start_ms, level))
    if not groups:
        raise Retriable(
            f"The generation of {table} that starts at {generation.start_ms} has no streams: the cluster has not "
            "listed them yet, or has dropped it"
        )
    return groups


async def _read_vnodes(session: CqlSession, start_ms: int, level: str) -> Vnodes:
    cql = "SELECT range_end, streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = ?"
    vnodes: Vnodes = {}
    state: bytes | None = None
    while True:
        page = await session.page(cql, (start_ms,), fetch_size=_VNODES_A_PAGE, state=state, consistency=level)
        for range_end, streams in page.rows:
            await _add_slowly(vnodes, range_end, streams or ())
        state = page.state
        if state is None:
            return vnodes


async def _add_slowly(vnodes: Vnodes, range_end: int | None, streams: Any) -> None:
    items = list(streams)
    for at in range(0, len(items), _SLICE):
        add_streams(vnodes, range_end, map(bytes, items[at : at + _SLICE]))
        await asyncio.sleep(0)


async def _old_vnodes(session: CqlSession, start_ms: int, level: str) -> Vnodes:
    vnodes: Vnodes = {}
    rows = await session.query(
        "SELECT streams FROM system_distributed.cdc_streams_descriptions WHERE time = ?", (start_ms,), consistency=level
    )
    for row in rows:
        await _add_slowly(vnodes, None, row["streams"] or ())
    return vnodes


async def _tablet_streams(session: CqlSession, table: TableId, start_ms: int, level: str) -> list[bytes]:
    times = await _read_starts(session, table, "tablets")
    if start_ms not in times:
        return []
    cql = (
        'SELECT stream_id FROM system.cdc_streams WHERE keyspace_name = ? AND table_name = ? AND "timestamp" = ? '
        "AND stream_state = 0"
    )
    streams: list[bytes] = []
    state: bytes | None = None
    while True:
        page = await session.page(
            cql, (*table, times[start_ms]), fetch_size=_STREAMS_A_PAGE, state=state, consistency=level
        )
        streams += [bytes(row[0]) for row in page.rows]
        state = page.state
        if state is None:
            return streams


#: Lists of streams that tasks of a process have in common, by event loop: streams of a generation never change.
_RECENT: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[Any, ...], asyncio.Future[list[StreamGroup]]]] = (
    WeakKeyDictionary()
)


async def shared_groups(
    session: CqlSession, cluster: tuple[Any, ...], table: TableId, generation: Generation, source: Source
) -> list[StreamGroup]:
    """``load_groups``, read once for all tasks of the process that begin within a minute.

    Without it a thousand tasks would each sort all streams of the cluster to pick their own.

    Args:
        session: the session.
        cluster: tells clusters apart.
        table: the table; tables of vnodes share what is read for any of them.
        generation: which; its end is not looked at.
        source: see ``table_source``.

    Raises:
        Retriable: as ``load_groups``.
    """
    loop = asyncio.get_running_loop()
    recent = _RECENT.setdefault(loop, {})
    key = (cluster, source, table if source == "tablets" else None, generation.start_ms)
    cached = recent.get(key)
    if cached is not None:
        try:
            groups = await asyncio.shield(cached)
        except Retriable:
            # Whoever read them failed or was stopped: it says nothing about us.
            return await load_groups(session, table, generation, source)
        return [replace(group, table=table, generation=generation) for group in groups]
    future: asyncio.Future[list[StreamGroup]] = loop.create_future()
    recent[key] = future
    try:
        groups = await load_groups(session, table, generation, source)
    except BaseException:
        recent.pop(key, None)
        future.set_exception(Retriable("another task's reading of the streams ended"))
        future.exception()  # perhaps no other task waits for it
        raise
    future.set_result(groups)
    loop.call_later(_KEPT_S, recent.pop, key, None)
    return groups


async def task_groups(session: CqlSession, config: Mapping[str, Any]) -> list[StreamGroup]:
    """The groups of a task, from its configuration and what the cluster says of their generations now.

    Raises:
        Retriable: a generation is not there (any more), or nodes are unavailable, busy or too slow.
        ConfigInvalid: the configuration was made for another division of the streams.
    """
    groups_: list[StreamGroup] = []
    sources: dict[str, Source] = {}
    vnode_lists: dict[int, list[StreamGroup]] = {}
    for share in decode_shares(config[TASK_GROUPS] or "[]"):
        table = TableId(share.keyspace, share.table)
        source: Source = "tablets" if share.tablets else sources.get("vnodes") or await vnode_source(session)
        sources.setdefault("tablets" if share.tablets else "vnodes", source)
        if not share.tablets and share.generation in vnode_lists:
            groups = of_table(vnode_lists[share.generation], table)
        else:
            generation = Generation(share.generation, await generation_end(session, table, share.generation, source))
            cluster = (tuple(config.get(HOSTS) or ()), config.get(USER))
            groups = await shared_groups(session, cluster, table, generation, source)
            if not share.tablets:
                vnode_lists[share.generation] = groups
        groups_ += choose_groups(share, groups)
    return groups_
