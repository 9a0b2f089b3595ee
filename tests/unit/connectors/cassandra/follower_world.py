"""A stand-in for a node's files, and a reader of them."""

from __future__ import annotations

import logging
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any

from connectors.cassandra import metrics
from connectors.cassandra.log.descriptor import encode_head
from connectors.cassandra.log.entries import encode_entry
from connectors.cassandra.log.follower import LogFollower
from connectors.cassandra.log.sections import MARKER, marker_checksum
from connectors.cassandra.model import LogPosition
from tests.support.settings import cassandra_log

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from connectors.cassandra.model import LogChunk

LOG = logging.getLogger("test.cassandra.follower")
SIZE = 4096


class Node:
    """Files as a server makes them: plain segments of 4 KiB, preallocated; an index file once something captured is synced."""

    def __init__(self, folder: Path) -> None:
        self.raw, self.commitlog = folder / "cdc_raw", folder / "commitlog"
        self.raw.mkdir()
        self.commitlog.mkdir()
        self.marker: dict[int, int] = {}
        self.captured: set[int] = set()

    def log(self, log_id: int) -> Path:
        return self.raw / f"CommitLog-7-{log_id}.log"

    def idx(self, log_id: int) -> Path:
        return self.raw / f"CommitLog-7-{log_id}_cdc.idx"

    def create(self, log_id: int, *, link: bool = True) -> None:
        path = self.commitlog / self.log(log_id).name
        head = encode_head(7, log_id, b"{}")
        path.write_bytes(head.ljust(SIZE, b"\0"))
        self.marker[log_id] = len(head)
        if link:
            self.link(log_id)

    def link(self, log_id: int) -> None:
        self.log(log_id).hardlink_to(self.commitlog / self.log(log_id).name)

    def write(self, log_id: int, *names: str, captured: bool = True) -> None:
        """A section with an entry for each name, readable by its marker."""
        if captured:
            self.captured.add(log_id)
        at, content = self.marker[log_id], b"".join(encode_entry(name.encode().ljust(10)) for name in names)
        after = at + MARKER + len(content)
        with (self.commitlog / self.log(log_id).name).open("r+b") as file:
            file.seek(at + MARKER)
            file.write(content)
            file.seek(at)
            file.write(struct.pack(">II", after, marker_checksum(log_id, at)))
        self.marker[log_id] = after

    def room(self, log_id: int) -> int:
        return SIZE - self.marker[log_id]

    def sync(self, log_id: int, *, complete: bool = False) -> None:
        if log_id in self.captured:
            self.idx(log_id).write_text(f"{self.marker[log_id]}{chr(10) + 'COMPLETED' if complete else ''}")

    def discard(self, log_id: int) -> None:
        (self.commitlog / self.log(log_id).name).unlink()
        if log_id not in self.captured:
            self.log(log_id).unlink(missing_ok=True)

    def replay(self) -> None:
        """Treat the segments as a server does that starts after a crash and replays them."""
        for path in sorted(self.commitlog.iterdir()):
            log_id = int(path.stem.rpartition("-")[2])
            if log_id in self.captured:
                if not self.log(log_id).exists():
                    self.link(log_id)
                self.idx(log_id).write_text(f"{SIZE}\nCOMPLETED")
            elif not self.idx(log_id).exists():
                self.log(log_id).unlink(missing_ok=True)
            path.unlink()

    def damage(self, log_id: int, at: int) -> None:
        with (self.log(log_id)).open("r+b") as file:
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 0xFF]))


class Numbers:
    """Metrics by name."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()

    def set(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        assert labels == {"node": "n1"}
        assert metrics.METRICS[name][0] == "gauge"
        self.now[name] = value  # type: ignore[assignment]

    def add(self, name: str, value: float = 1, labels: Mapping[str, str] | None = None) -> None:
        assert labels == {"node": "n1"}
        assert metrics.METRICS[name][0] == "counter"
        self.now[name] += value  # type: ignore[assignment]


class World:
    """A node's files and a reader of them."""

    def __init__(self, folder: Path) -> None:
        self.node = Node(folder)
        self.numbers = Numbers()
        self.chunks: list[LogChunk] = []
        self.follower: LogFollower | None = None

    async def start(self, position: LogPosition | None = None, **settings: Any) -> LogFollower:
        await self.stop()
        self.chunks = []
        chosen = cassandra_log(**{"node": "n1", "directory": self.node.raw, "poll_ms": 0, **settings})
        self.follower = LogFollower(chosen, position, self.numbers, LOG)
        return self.follower

    async def stop(self) -> None:
        if self.follower is not None:
            await self.follower.close()

    async def news(self) -> list[str]:
        """All that can be read now."""
        assert self.follower is not None
        names: list[str] = []
        quiet = 0
        while quiet < 2:
            chunk = await self.follower.read()
            quiet = quiet + 1 if chunk is None else 0
            if chunk is not None:
                self.chunks.append(chunk)
                names += entry_names(chunk)
        return names

    @property
    def position(self) -> LogPosition:
        last = self.chunks[-1]
        return LogPosition(last.segment, last.position, 0, last.finished)


def entry_names(chunk: LogChunk) -> list[str]:
    return [chunk.data[entry.start : entry.end].decode().rstrip() for entry in chunk.entries]
