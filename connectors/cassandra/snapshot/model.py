"""The data types of snapshots: requests, settings, chunks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from connectors.snapshot.requests import SnapshotRequest

if TYPE_CHECKING:
    from connectors.cql.mutations.definition import CqlTableDefinition
    from connectors.formats.partition_update import PartitionUpdate

#: Prefix of the ids of snapshots of tables that were added later; the table's id follows. If the table's cdc was off for a
#: while, ``~`` and the time at which cdc was on again follow.
NEW: Final = "new-"
_NEW_ID: Final = re.compile(rf"{NEW}([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})(~\d+)?\Z")

Mode = Literal["initial", "never", "always"]


def new_request(table_id: str, name: str, again_us: int = 0) -> SnapshotRequest:
    """Return the request for a table that was added later; its id depends only on the arguments, so it is equal in all tasks.

    Args:
        table_id: the server's id of the table.
        name: ``keyspace.table``.
        again_us: when its cdc was on again after it had been off (``Capture.again_us``); 0: it was not.
    """
    return SnapshotRequest(
        id=f"{NEW}{table_id}" + (f"~{again_us}" if again_us else ""),
        tables=[name.replace(".", r"\.")],
        origin="new",
        table_id=table_id,
    )


def reads_again(request: str) -> bool:
    """Whether the snapshot with this id reads a table whose cdc was off for a while."""
    match = _NEW_ID.match(request)
    return match is not None and match[2] is not None


def new_table_id(request: str) -> str:
    """The id of the table that a snapshot from ``new_request`` reads; empty for the id of any other snapshot."""
    match = _NEW_ID.match(request)
    return match[1] if match else ""


class CassandraSnapshotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How tables are read.

    Attributes:
        prefix: ``topic.prefix``: the cluster's name in source partitions and events.
        mode: whether the connector reads all captured tables without a request: ``initial``: once; ``always``: at every start
            of a task; ``never``.
        tables: regular expressions of the tables that this first snapshot reads.
        new_tables: whether tables that are added later are read too, unless ``mode`` is ``never``.
        consistency: of the queries. Together with the level of the writers it should make a quorum: a row that the snapshot
            does not see and the log does not have is missing.
        chunk_rows: rows of a chunk at most (a page of a query); fewer where rows are large.
        chunk_bytes: what a chunk should hold at most.
        rows_per_s: the most rows read per second by this task; 0: no limit.
        threads: queries in flight at most.
        ahead_chunks: chunks kept at most that were read and not yet sent.
        timeout_s: of one query.
        settle_s: how long a write may be under way before every reader sees it; also covers clocks that differ. Counts only for
            what has no readable time or name (elements of lists; before 5.0 of all collections).
        retry_s: the longest pause between tries while the cluster does not answer.
    """

    prefix: str
    mode: Mode = "initial"
    tables: tuple[str, ...] = (".*",)
    new_tables: bool = False
    consistency: str = "QUORUM"
    chunk_rows: int = 1_000
    chunk_bytes: int = 2_000_000
    rows_per_s: int = 0
    threads: int = 2
    ahead_chunks: int = 4
    timeout_s: float = 30.0
    settle_s: float = 2.0
    retry_s: float = 10.0


class ChunkEnd(NamedTuple):
    """The end of a chunk; used only by the reader of snapshots.

    Attributes:
        request: id of the request.
        ring_range: number of the token range that the chunk is from; no number is used twice.
        after: tokens up to this one are read in full.
        page: paging state to continue with behind ``after``; None: the token range is done.
        rows: read.
    """

    request: str
    ring_range: int
    after: int
    page: bytes | None
    rows: int


class CassandraChunk(NamedTuple):
    """Rows of one table, ready to be sent.

    Attributes:
        request: id of the request.
        table: the definition that they were read by.
        updates: a partition each, or a part of a large one; may be empty.
        end: where it ends.
        read_ms: when they were read, ms since 1970.
        bad: rows that could not be decoded: what is wrong, with the table and the key as far as it is known.
    """

    request: str
    table: CqlTableDefinition
    updates: list[PartitionUpdate]
    end: ChunkEnd
    read_ms: int
    bad: tuple[str, ...] = ()
