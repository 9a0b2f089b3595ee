"""What backfills are made of: requests, settings, chunks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from connectors.snapshot.requests import SnapshotRequest

if TYPE_CHECKING:
    from connectors.cql.mutations.definition import CqlTableDefinition
    from connectors.formats.partition_update import PartitionUpdate

#: Ids of backfills of tables that came later begin with it; the table's id follows. Of a table whose cdc was off for a while
#: there are more: ``~`` follows, and when cdc was on again.
NEW: Final = "new-"
_NEW_ID: Final = re.compile(rf"{NEW}([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})(~\d+)?\Z")

Mode = Literal["initial", "never", "always"]


def new_request(table_id: str, name: str, again_us: int = 0) -> SnapshotRequest:
    """The backfill of a table that came later: its id follows from the arguments, so all tasks make the same one.

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
    """Whether a backfill reads a table whose cdc was off for a while, by the backfill's id."""
    match = _NEW_ID.match(request)
    return match is not None and match[2] is not None


def new_table_id(request: str) -> str:
    """The table that a backfill of ``new_request`` reads, by the backfill's id; empty: it is another kind of backfill."""
    match = _NEW_ID.match(request)
    return match[1] if match else ""


class BackfillSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How tables are read.

    Attributes:
        prefix: ``topic.prefix``: the cluster's name in source partitions and events.
        mode: whether the connector reads all captured tables by itself: ``initial``: once; ``always``: at every start of a
            task; ``never``.
        tables: regular expressions of the tables that this first backfill has.
        new_tables: whether tables that come later are read too, unless ``mode`` is ``never``.
        consistency: of the queries. With the level of the writers it should make a quorum: what a backfill does not see and
            the log does not have is missing.
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
    """Where a chunk ends; the backfiller's own.

    Attributes:
        request: id of the request.
        piece: number of the piece of the ring that it is of; no number is used twice.
        after: tokens up to this one are read in full.
        page: paging state to go on with behind ``after``; None: the piece is done.
        rows: read.
    """

    request: str
    piece: int
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
