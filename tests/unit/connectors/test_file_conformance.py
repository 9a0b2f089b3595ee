"""The conformance kit on the file connector: one file, one tracked file, a directory, a compressed file."""

import gzip
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from connectors.file.connector import FileStreamSourceConnector
from connectors.testing import WAIVERS, Harness, connector_conformance


class OneFile(Harness):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "lines.txt"
        self.written = 0

    def config(self) -> Mapping[str, str]:
        return {"file": str(self.path), "topic": "lines", "batch.size": "5", "file.encoding.errors": "report"}

    async def add(self, count: int) -> None:
        lines = "".join(f"line {self.written + number}\n" for number in range(count)).encode()
        with self.path.open("ab") as file:
            file.write(lines)
        self.written += count

    async def poison(self) -> None:
        with self.path.open("ab") as file:
            file.write(b"not utf-8: \xff\n")

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        away = self.folder / "away"
        self.path.rename(away)
        yield
        away.rename(self.path)


class TrackedFile(OneFile):
    def config(self) -> Mapping[str, str]:
        return {**super().config(), "rotation.tracking": "true"}


class CompressedFile(OneFile):
    async def add(self, count: int) -> None:
        lines = "".join(f"line {self.written + number}\n" for number in range(count)).encode()
        with self.path.open("ab") as file:
            file.write(gzip.compress(lines, mtime=0))
        self.written += count

    async def poison(self) -> None:
        with self.path.open("ab") as file:
            file.write(gzip.compress(b"not utf-8: \xff\n", mtime=0))


class Directory(OneFile):
    max_tasks = 2

    def config(self) -> Mapping[str, str]:
        return {
            "directory": str(self.folder / "in"),
            "file.pattern": "*.log",
            "topic": "lines",
            "batch.size": "5",
            "file.encoding.errors": "report",
            "directory.scan.interval.ms": "100",
        }

    async def start(self) -> None:
        (self.folder / "in").mkdir()

    async def add(self, count: int) -> None:
        for name in ("a.log", "b.log", "c.log")[:count]:
            share = count // 3 if name != "a.log" or count < 3 else count - 2 * (count // 3)
            self.path = self.folder / "in" / name
            await super().add(max(share, 1) if count < 3 else share)

    async def poison(self) -> None:
        self.path = self.folder / "in" / "b.log"
        await super().poison()


TestOneFile = connector_conformance(FileStreamSourceConnector, harness=OneFile, waivers=WAIVERS["file"])
TestTrackedFile = connector_conformance(FileStreamSourceConnector, harness=TrackedFile, waivers=WAIVERS["file"])
TestCompressedFile = connector_conformance(FileStreamSourceConnector, harness=CompressedFile, waivers=WAIVERS["file"])
TestDirectory = connector_conformance(FileStreamSourceConnector, harness=Directory, waivers=WAIVERS["file"])
