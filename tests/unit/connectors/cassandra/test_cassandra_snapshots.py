"""Records of a task's snapshots, of a table in memory."""

from __future__ import annotations

import asyncio
import logging
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from connectors.cassandra.connector import CassandraConnector
from connectors.cassandra.events import build_events
from connectors.cassandra.snapshot.model import CassandraSnapshotSettings
from connectors.cassandra.snapshots import CassandraSnapshots
from connectors.cql.cluster.session import ResultPage
from connectors.cql.mutations.definition import CqlColumn, make_definition
from connectors.cql.types import parse_type
from connectors.testing.contexts import RecordedMetrics
from tests.support.settings import cassandra_events
from tests.unit.connectors.cassandra.test_cassandra_snapshot_reader import NOW_MS, MemorySession

if TYPE_CHECKING:
    from connectors.api import BadRecord, SourceRecord

WRITTEN_US = NOW_MS * 1000 - 5_000_000
TABLE = make_definition(
    "ks",
    "t",
    str(uuid.UUID(int=1)),
    [
        CqlColumn("k", parse_type("int"), "partition_key", 0),
        CqlColumn("c", parse_type("int"), "clustering", 0),
        CqlColumn("s", parse_type("text"), "static"),
        CqlColumn("v", parse_type("varint"), "regular"),
    ],
    cdc=True,
)


class RowsSession(MemorySession):
    """A table with one partition, of which one row has a number that is too large for 64 bits."""

    async def page(self, cql: str, parameters: tuple[int, int], **_: Any) -> ResultPage:
        assert "FROM ks.t" in cql
        after, upto = parameters
        rows = [
            (7, NOW_MS, 1, row, "s", WRITTEN_US, None, value, WRITTEN_US, None)
            for row, value in ((1, "1"), (2, "9" * 30), (3, "3"))
        ]
        return ResultPage((), rows if after < 7 <= upto else [], None)


async def read_all(snapshots: CassandraSnapshots) -> tuple[list[SourceRecord], list[BadRecord]]:
    records: list[SourceRecord] = []
    bad: list[BadRecord] = []
    async with asyncio.timeout(20):
        while (snapshots.progress() or [{"state": ""}])[0]["state"] != "completed":
            await snapshots.wait()
            while (batch := snapshots.batch()) is not None:
                records += batch.records
                bad += batch.bad
    return records, bad


async def test_a_row_that_has_no_form_takes_no_other_row_of_its_partition_with_it() -> None:
    async def refresh() -> None:
        pass

    events = cassandra_events(topic_prefix="p", output_format="debezium", varints="long")
    snapshots = CassandraSnapshots(
        CassandraSnapshotSettings(prefix="p"),
        (0, 1),
        [],
        catalog=SimpleNamespace(tables=lambda _=(): [TABLE]),  # type: ignore[arg-type]
        builder=lambda table, version: build_events(table, version, events),
        refresh=refresh,
        metrics=RecordedMetrics(CassandraConnector.metrics),
        log=logging.LoggerAdapter(logging.getLogger("test")),
    )
    snapshots.start(RowsSession())  # type: ignore[arg-type]
    try:
        records, bad = await read_all(snapshots)
    finally:
        await snapshots.close()
    assert [(record.value["after"]["c"]["value"], record.value["after"]["v"]["value"]) for record in records] == [
        (1, 1),
        (3, 3),
    ]
    assert {record.value["after"]["s"]["value"] for record in records} == {"s"}
    (refused,) = bad
    assert "64 bits" in str(refused.error)
