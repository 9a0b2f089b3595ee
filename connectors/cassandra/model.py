"""The words that the modules of the Cassandra connector share. Times named ``_ms`` and ``_us`` count from 1970-01-01 UTC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from connectors.errors import Fatal

if TYPE_CHECKING:
    from pathlib import Path

    from connectors.api import Position

#: Members of source partitions: all; a node's log; a table's definition; a snapshot and the share of it that a task reads.
CLUSTER: Final = "cluster"
NODE: Final = "node"
TABLE_ID: Final = "table_id"
SNAPSHOT: Final = "snapshot"
SHARD: Final = "shard"
#: Members of a log's source offset; ``FINISHED`` is true when the whole segment was read, up to its completion.
SEGMENT: Final = "segment"
OFFSET: Final = "position"
INDEX: Final = "index"
FINISHED: Final = "finished"

#: Versions of the commit log's format that can be read (7: 4.0 to 5.x, 8: 5.x, 9: 6.0).
LOG_VERSIONS: Final = (7, 8, 9)


class LogPosition(NamedTuple):
    """A place in a node's commit log: what is before it was read. Ordered as the log is.

    Attributes:
        segment: id of the segment.
        position: logical offset of the end of the last entry that was read in full; 0: none.
        done: records of the next entry that were delivered too (one mutation can be several records).
        finished: the segment has nothing more: it is complete and was read to its end.
    """

    segment: int
    position: int = 0
    done: int = 0
    finished: bool = False

    def offset(self) -> Position:
        """As a source offset."""
        return {SEGMENT: self.segment, OFFSET: self.position, INDEX: self.done, FINISHED: self.finished}

    @classmethod
    def of(cls, offset: Position) -> LogPosition:
        """From a source offset.

        Raises:
            Fatal: it is not a position of a log; the message says what is wrong.
        """
        values = [offset.get(name, 0) for name in (SEGMENT, OFFSET, INDEX)]
        if (
            not all(isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in values)
            or not values[0]
        ):
            raise Fatal(
                f"{offset} is no position in a commit log: it needs {SEGMENT} (the number in the segment's file name), "
                f"{OFFSET} and {INDEX}, whole numbers"
            )
        return cls(values[0], values[1], values[2], offset.get(FINISHED) is True)


class LogEntry(NamedTuple):
    """One mutation in ``LogChunk.data``: its bytes are ``data[start:end]``, its position in the log is ``position``."""

    start: int
    end: int
    position: int


class LogChunk(NamedTuple):
    """Consecutive entries of one segment, their checksums verified.

    Attributes:
        segment: id of the segment.
        version: of the log's format.
        data: bytes that the entries are in.
        entries: in order; may be empty where only ``finished``, ``position`` or ``problem`` is news.
        position: logical offset up to which the segment was read: the last entry's, or later (end of a section).
        finished: nothing follows in this segment.
        problem: what is wrong with the bytes behind the entries (damage, what can't be read); empty: nothing.
        lost: logical offsets (from, to) that were passed over because of a problem and the policy ``skip``; None: nothing.
        written_ms: when the newest bytes became readable, as far as the file system tells (for latency).
    """

    segment: int
    version: int
    data: bytes
    entries: list[LogEntry]
    position: int
    finished: bool = False
    problem: str = ""
    lost: tuple[int, int] | None = None
    written_ms: int = 0


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a node's commit log is read.

    Attributes:
        node: the node's name.
        directory: its ``cdc_raw``.
        mode: ``idx``: up to what the node has synced to disk; ``marker``: up to the newest sync marker, earlier and not durable
            yet (plain segments only; compressed ones appear at their sync in both modes).
        poll_ms: how often files are looked at when nothing is new.
        max_bytes: of a chunk, about.
        policy: what follows damage: ``stop`` the task, or ``skip`` what can't be read.
        aside: folder where damaged segments are kept (hard links); None: ``cdc_raw_aside`` next to the directory.
        delete: whether segments are deleted once they are delivered.
    """

    node: str
    directory: Path
    mode: Literal["idx", "marker"]
    poll_ms: int
    max_bytes: int
    policy: Literal["stop", "skip"]
    aside: Path | None
    delete: bool
