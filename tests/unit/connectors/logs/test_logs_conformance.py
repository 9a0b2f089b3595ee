"""The conformance kit on the logs connector: a file, a directory, and lines that make several rows in two tables."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from connectors.api import SourceRecord
from connectors.logs.connector import LogsConnector
from connectors.testing import WAIVERS, Harness, connector_conformance

ONE_ROW = """
tables:
  - name: numbers
    groups:
      - name: numbered
        steps:
          - regexExtract: {pattern: '^line (?P<number>[0-9]+)$'}
          - saveAs: {columns: [{name: number, type: long}]}
"""
EVENTS = r"""
tables:
  - name: events
    groups:
      - name: events
        steps:
          - regexExtract: {pattern: '^event (?P<number>[0-9]+)\n  in (?P<inside>[0-9]+)$'}
          - saveAs: {columns: [{name: number, type: long}, {name: inside, type: long}]}
"""
#: Each line makes two rows of one table and one of another.
SEVERAL_ROWS = """
tables:
  - name: parts
    groups:
      - name: parts
        steps:
          - flattenJsonArray: {path: $.parts}
          - saveAs: {columns: [{name: part, field: line, type: long}]}
  - name: lines
    groups:
      - name: lines
        steps:
          - saveAs: {columns: [{name: text, field: line}]}
"""


class OneFile(Harness):
    rules = ONE_ROW
    output = "plain"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "app.log"
        self.written = 0

    def config(self) -> Mapping[str, str]:
        return {
            "file": str(self.path),
            "topic.prefix": "logs",
            "batch.size": "5",
            "file.encoding.errors": "report",
            "rules": self.rules,
            "output": self.output,
        }

    def line(self, number: int) -> str:
        """A third of the lines match no group."""
        return f"line {number}\n" if number % 3 else f"other {number}\n"

    async def add(self, count: int) -> None:
        lines = "".join(self.line(self.written + number) for number in range(count)).encode()
        with self.path.open("ab") as file:
            file.write(lines)
        self.written += count

    async def poison(self) -> None:
        with self.path.open("ab") as file:
            file.write(b"not utf-8: \xff\n")

    def secrets(self) -> Mapping[str, str]:
        return {"kafka.sasl.password": "a-secret-found-nowhere-else"}

    def wrong_config(self) -> Mapping[str, str]:
        return {**self.config(), **self.secrets(), "rules": "tables: []"}

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        away = self.folder / "away"
        self.path.rename(away)
        yield
        away.rename(self.path)


class SeveralRows(OneFile):
    rules = SEVERAL_ROWS
    output = "debezium"
    flood = 20_000

    def line(self, number: int) -> str:
        return f'{{"parts": [{number}, {number + 1}]}}\n'

    async def add(self, count: int) -> None:
        await super().add(-(-count // 3))

    def identity(self, record: SourceRecord) -> str:
        """Change events hold the time of reading."""
        return f"{record.topic} {record.key} {record.value['after']}"


class Multiline(OneFile):
    """Each event has two lines; the last one is complete when the file is quiet."""

    rules = EVENTS
    flood = 20_000

    def config(self) -> Mapping[str, str]:
        return {**super().config(), "multiline.start": "^event", "multiline.wait.ms": "50"}

    def line(self, number: int) -> str:
        return f"event {number}\n  in {number}\n"


class Directory(OneFile):
    max_tasks = 2

    def config(self) -> Mapping[str, str]:
        config = {name: value for name, value in super().config().items() if name != "file"}
        return {**config, "directory": str(self.folder / "in"), "directory.scan.interval.ms": "100"}

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


TestOneFile = connector_conformance(LogsConnector, harness=OneFile, waivers=WAIVERS["logs"])
TestSeveralRows = connector_conformance(LogsConnector, harness=SeveralRows, waivers=WAIVERS["logs"])
TestMultiline = connector_conformance(LogsConnector, harness=Multiline, waivers=WAIVERS["logs"])
TestDirectory = connector_conformance(LogsConnector, harness=Directory, waivers=WAIVERS["logs"])
