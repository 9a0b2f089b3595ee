"""The conformance kit on the Scylla connector: vnodes, tablets and exactly once positions, on the emulation.

In a folder of its own because pytest takes that first: the tests next to it leave many generations of streams behind, which a
connector of vnodes reads one after the other.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

import pytest

from compose.local.scylla.bulk import fill_log
from compose.local.scylla.client import Emulation, now_us
from compose.local.scylla.topology import token_of
from compose.local.scylla.writes import Insert, time_uuid
from connectors.scylla.connector import ScyllaConnector
from connectors.testing import WAIVERS, Harness, connector_conformance, snapshot_conformance
from tests.chaos.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from connectors.api import BadRecord, SourceRecord


class Vnodes(Harness):
    """One table of a keyspace of its own; writes are made in threads."""

    #: Set by the fixture: where the emulation listens.
    address: ClassVar[str] = ""
    tablets: ClassVar[bool] = False
    max_tasks = 2
    timeout = 60.0
    flood = 20_000

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.keyspace = f"kit{secrets.token_hex(5)}"
        self.table = f"{self.keyspace}.t"
        self.written = 0
        self.columns = ["v"]

    async def start(self) -> None:
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        self.client = Emulation(self.address)
        self.proxy = Proxy(int(self.address.rpartition(":")[2]))
        self.client.create_keyspace(self.keyspace, tablets=self.tablets)
        self.client.create_table(
            f"CREATE TABLE {self.table} (pk int PRIMARY KEY, v text) WITH cdc = {{'enabled': true}}"
        )
        self.begun_us = now_us()  # tablets' first generation begins with the table

    async def stop(self) -> None:
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self.client.drop_keyspace(self.keyspace)
        self.client.close()
        self.proxy.close()

    def config(self) -> Mapping[str, str]:
        return {
            "topic.prefix": "kit",
            "scylla.cluster.ip.addresses": f"127.0.0.1:{self.proxy.port}",
            "scylla.table.names": self.table,
            "scylla.user": "reader",
            "scylla.password": "open-sesame-4711",
            "scylla.confidence.window.size": "0",
            "scylla.window.min.ms": "50",
            "scylla.discovery.interval.ms": "500",
            "heartbeat.interval.ms": "200",
            "scylla.query.timeout.ms": "2000",
            "scylla.query.options.fetch.size": "500",
            "worker.maximum.backoff": "500",
        }

    async def add(self, count: int) -> None:
        await asyncio.to_thread(self._add, count)

    def _add(self, count: int) -> None:
        if count >= self.flood:
            fill_log(self.client, self.table, count, payload=100, start_us=self.begun_us)
            return
        for _ in range(count):
            self.written += 1
            values = {"pk": self.written, **{column: f"{column} {self.written}" for column in self.columns}}
            self.client.apply(Insert(self.table, values))

    async def poison(self) -> None:
        await asyncio.to_thread(self._poison)

    def _poison(self) -> None:
        """A log row with an operation that does not exist."""
        self.written += 1
        when = now_us()
        key = struct.pack(">i", self.written)
        ring = self.client.ring(self.table, when // 1000)
        self.client.connection.execute(
            f'INSERT INTO {self.table}_scylla_cdc_log ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation", '  # noqa: S608
            '"cdc$end_of_batch", pk) VALUES (?, ?, ?, ?, ?, ?)',
            [
                ring.stream(token_of([key])),
                time_uuid(when, secrets.randbits),
                struct.pack(">i", 0),
                b"\x4d",
                b"\x01",
                key,
            ],
        )

    async def change_schema(self) -> None:
        await asyncio.to_thread(self.client.alter_table, f"ALTER TABLE {self.table} ADD w text")
        self.columns.append("w")

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        self.proxy.cut()
        yield
        self.proxy.heal()

    def identity(self, record: SourceRecord) -> str:
        """The envelope tells when it was made, and offsets hold the window in which the record was read."""
        value = {name: member for name, member in record.value.items() if name not in {"ts_ms", "ts_us", "ts_ns"}}
        return repr((record.source_partition["vnode_id"], record.topic, record.key, value))

    def identity_of_bad(self, bad: BadRecord) -> str:
        """Its offset holds the window in which it was read; the error tells the row."""
        return repr((bad.source_partition, str(bad.error)))

    def sequence(self, record: SourceRecord) -> str:
        """Streams are in order, and not with each other."""
        return str(record.source_offset["change_id_stream_id"])

    def wrong_config(self) -> Mapping[str, str]:
        return {**self.config(), "scylla.cluster.ip.addresses": "127.0.0.1:1"}


class Tablets(Vnodes):
    tablets = True


class OnRequest(Vnodes):
    """Snapshots in pages of a few rows."""

    def config(self) -> Mapping[str, str]:
        return {**super().config(), "snapshot.chunk.rows": "5"}

    def table_pattern(self) -> str:
        return self.table.replace(".", r"\.")

    def snapshot_row(self, record: SourceRecord) -> str | None:
        return repr(record.key) if record.value["op"] == "r" else None


class TabletsOnRequest(OnRequest):
    tablets = True


@pytest.fixture(scope="module", autouse=True)
def _server(scylla: Emulation) -> None:
    if not scylla.emulated:
        pytest.skip("the kit writes log rows itself, which a real Scylla does not allow")
    Vnodes.address = scylla.address
    if not scylla.generations():
        scylla.new_generation(vnodes=2, shards=2)


TestVnodes = connector_conformance(ScyllaConnector, harness=Vnodes, waivers=WAIVERS.get("scylla"))
TestTablets = pytest.mark.slow(connector_conformance(ScyllaConnector, harness=Tablets, waivers=WAIVERS.get("scylla")))
TestSnapshots = snapshot_conformance(ScyllaConnector, harness=OnRequest)
TestTabletSnapshots = pytest.mark.slow(snapshot_conformance(ScyllaConnector, harness=TabletsOnRequest))
