"""The conformance kit on the Cassandra connector: definitions of a real node, a log written in its format, in two forms."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from cassandra.cluster import Cluster

from connectors.cassandra.connector import CassandraConnector
from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition, make_definition
from connectors.cql.mutations.encode import write_mutation, write_update
from connectors.cql.types import parse_type
from connectors.formats.partition_update import Cell, CellStamp, PartitionUpdate, UpdateRow, UpdateSource
from connectors.testing import WAIVERS, Harness, connector_conformance, snapshot_conformance
from tests.chaos.proxy import Proxy
from tests.support.commitlog import SegmentWriter
from tests.support.patient_cql import PATIENT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from connectors.api import SourceRecord

#: The log is written here: other versions of the server would change nothing.
pytestmark = pytest.mark.parametrize("cassandra_version", ["5.0"], indirect=True, scope="session", ids=[""])
NOBODY = UpdateSource(connector="", cluster="", keyspace="", table="")
#: Entries per segment.
SEGMENT = 1000
FIRST_US = 1_790_000_000_000_000


def pruned(value: Any) -> Any:
    """Without members that are null."""
    if isinstance(value, dict):
        return {name: pruned(member) for name, member in sorted(value.items()) if member is not None}
    return [pruned(element) for element in value] if isinstance(value, list) else value


class LogFile:
    """A segment that grows as a node's do: sections are appended, then the index tells how far it is on disk."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.writer = SegmentWriter(1_700_000_000_000 + number)
        self._written = 0
        self.entries = 0
        self.sync()

    def sync(self, *, completed: bool = False) -> None:
        self.writer.sync()
        data = self.writer.data
        with (self.folder / self.writer.name).open("ab") as file:
            file.write(data[self._written :])
        self._written = len(data)
        self.writer.save_index(self.folder, completed=completed)


class Log(Harness):
    """One table; the definitions are a real node's, the log is written here, so that it can be damaged."""

    #: Set by the fixture: where the node listens.
    address: ClassVar[str] = ""
    form: ClassVar[str] = "partition-update"
    flood = 2_500

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.keyspace = f"kit{secrets.token_hex(5)}"
        self.columns = [
            CqlColumn("pk", parse_type("int"), "partition_key", 0),
            CqlColumn("v", parse_type("text"), "regular"),
        ]
        self.written = 0
        self.directory = folder / "cdc_raw"

    async def start(self) -> None:
        self.directory.mkdir()
        host, _, port = self.address.partition(":")
        self.proxy = Proxy(int(port))
        self.cluster = Cluster([host], port=int(port), **PATIENT)
        self.session = await asyncio.to_thread(self.cluster.connect)
        self.session.default_timeout = 60.0
        await self.cql(
            f"CREATE KEYSPACE {self.keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        await self.cql(f"CREATE TABLE {self.keyspace}.t (pk int PRIMARY KEY, v text) WITH cdc = true")
        rows = await self.cql("SELECT id FROM system_schema.tables WHERE keyspace_name = %s", (self.keyspace,))
        self.table_id = str(rows[0].id)
        self.segment = LogFile(self.directory, 0)

    async def stop(self) -> None:
        await self.cql(f"DROP KEYSPACE {self.keyspace}")
        await asyncio.to_thread(self.cluster.shutdown)
        self.proxy.close()

    async def cql(self, text: str, values: tuple[str, ...] | None = None) -> list[Any]:
        return list(await asyncio.to_thread(self.session.execute, text, values))

    @property
    def table(self) -> CqlTableDefinition:
        return make_definition(self.keyspace, "t", self.table_id, self.columns, cdc=True)

    def config(self) -> Mapping[str, str]:
        return {
            "connector.class": "cassandra",
            "topic.prefix": "kit",
            "cassandra.hosts": f"127.0.0.1:{self.proxy.port}",
            "cassandra.username": "reader",
            "cassandra.password": "open-sesame-4711",
            "output.format": self.form,
            "cdc.raw.directories": str(self.directory),
            "table.include.list": f"{self.keyspace}\\..*",
            "snapshot.mode": "never",
            "cdc.dir.poll.interval.ms": "20",
            "max.batch.size": "500",
            "schema.refresh.interval.ms": "200",
            # What is read again from its beginning must still be there.
            "commit.log.delete": "false",
        }

    async def add(self, count: int) -> None:
        table, size = self.table, 80 if count < self.flood else 8_000
        for _ in range(count):
            if self.segment.entries == SEGMENT:
                self.segment.sync(completed=True)
                self.segment = LogFile(self.directory, self.written)
            self.written += 1
            stamp = CellStamp(FIRST_US + self.written)
            cells = tuple(
                Cell(column.name, None, f"{column.name} {self.written}" + "x" * size, stamp) for column in table.regular
            )
            update = PartitionUpdate(
                source=NOBODY,
                key=(self.written,),
                write_time=stamp.write_time,
                rows=(UpdateRow(liveness=stamp, cells=cells),),
            )
            self.segment.writer.add(write_mutation([write_update(update, table, 7)], 7))
            self.segment.entries += 1
        self.segment.sync()

    async def poison(self) -> None:
        """Write a mutation whose value is not a valid string, with correct checksums."""
        table = make_definition(
            self.keyspace, "t", self.table_id, [self.columns[0], CqlColumn("v", parse_type("blob"), "regular")]
        )
        stamp = CellStamp(FIRST_US)
        update = PartitionUpdate(
            source=NOBODY,
            key=(-1,),
            write_time=FIRST_US,
            rows=(UpdateRow(liveness=stamp, cells=(Cell("v", None, b"\xff\xfe", stamp),)),),
        )
        whole = write_mutation([write_update(update, table, 7)], 7)
        self.segment.writer.add(whole)
        self.segment.sync()

    async def change_schema(self) -> None:
        await self.cql(f"ALTER TABLE {self.keyspace}.t ADD w text")
        self.columns.append(CqlColumn("w", parse_type("text"), "regular"))

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        self.proxy.cut()
        self.directory.rename(self.folder / "away")
        yield
        (self.folder / "away").rename(self.directory)
        self.proxy.heal()

    def identity(self, record: SourceRecord) -> str:
        """Messages tell when they were read; a member that is null may be left out."""
        value = pruned(record.value)
        value.pop("ts_ms", None)
        value["source"] = {
            name: member for name, member in value["source"].items() if name not in {"read_time", "ts_ms"}
        }
        return repr((record.topic, record.key, value))

    def secrets(self) -> Mapping[str, str]:
        return {"cassandra.password": "open-sesame-4711"}

    def wrong_config(self) -> Mapping[str, str]:
        return {**self.config(), "cdc.raw.directories": str(self.folder / "nothing")}


class Debezium(Log):
    form = "debezium"


class OnRequest(Log):
    """Snapshots in pages of a few rows, by two tasks; rows are in the table, and not in the log."""

    max_tasks = 2

    def config(self) -> Mapping[str, str]:
        return {**super().config(), "snapshot.chunk.rows": "5", "snapshot.consistency": "ONE"}

    async def add(self, count: int) -> None:
        for _ in range(count):
            self.written += 1
            await self.cql(f"INSERT INTO {self.keyspace}.t (pk, v) VALUES ({self.written}, 'x')")  # noqa: S608 - own names

    def table_pattern(self) -> str:
        return rf"{self.keyspace}\.t"

    def snapshot_row(self, record: SourceRecord) -> str | None:
        return repr(record.key) if record.value["source"]["snapshot"] else None


@pytest.fixture(scope="module", autouse=True)
def _server(cassandra: object) -> None:
    Log.address = cassandra.address  # type: ignore[attr-defined]


TestLog = connector_conformance(CassandraConnector, harness=Log, waivers=WAIVERS.get("cassandra"))
TestDebezium = connector_conformance(CassandraConnector, harness=Debezium, waivers=WAIVERS.get("cassandra"))
TestSnapshots = snapshot_conformance(CassandraConnector, harness=OnRequest)
