"""Random tables and statements on a real Cassandra: ``millrace verify`` reports exactly what its topics lack."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any, Final

import pytest
from aiokafka import AIOKafkaProducer

from tests.integration.cassandra.history_world import CassandraHistory
from tests.support.merged_tables import records_of, unlike_rows
from worker.converters.bytearray import ByteArrayConverter
from worker.converters.json import JsonConverter
from worker.verify.command import build_verification
from worker.verify.messages import VerificationRequest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from connectors.api import SourceRecord
    from connectors.cql.types import CqlType
    from connectors.verify.rows import TableReport
    from tests.conftest import HasCassandra
    from tests.support.cql_tables import RandomTable

#: With a multiple of 3 there are snapshots, with one of 5 short times to live, with one of 7 row events instead of partition
#: updates. ``MILLRACE_SEEDS`` names others.
SEEDS: list[Any] = [int(seed) for seed in os.environ.get("MILLRACE_SEEDS", "").split(",") if seed] or [
    2,
    pytest.param(11, marks=pytest.mark.slow),
]
LIMIT: Final = 60.0
ORDERED: Final = {
    *(
        "ascii",
        "bigint",
        "blob",
        "boolean",
        "date",
        "double",
        "float",
        "int",
        "smallint",
        "text",
        "time",
        "timestamp",
        "timeuuid",
        "tinyint",
    )
}


class OrderedHistory(CassandraHistory):
    """Tables of which verify knows the order of the clustering key: it can tell what is in a deleted range."""

    def _draw_table(self, name: str, udts: list[CqlType]) -> RandomTable:
        while True:
            table = super()._draw_table(name, udts)
            if all(column.type.name in ORDERED for column in table.clustering):
                return table

    def _statement(self) -> str:
        """One without a write time of its own: of two writes with one time the server takes the greater bytes."""
        while "TIMESTAMP" in (statement := super()._statement()):
            pass
        return statement


class VerifiedHistory:
    """A history whose records go to topics, and verifications of them."""

    def __init__(self, history: CassandraHistory, bootstrap: str, folder: Path) -> None:
        self.history, self.bootstrap, self.folder = history, bootstrap, folder
        if history.merged:
            history.config["output.format"] = "partition-update"
        self.config = {
            **history.config,
            "connector.class": "cassandra",
            "key.converter": "JsonConverter" if not history.merged else "ByteArrayConverter",
            "key.converter.schemas.enable": "false",
            "value.converter": "JsonConverter",
            "value.converter.schemas.enable": "false",
        }
        self.sent = 0

    async def forward(self) -> None:
        """Send what the connector has read."""
        records = self.history.records[self.sent :]
        self.sent += len(records)
        await self.send(records)

    async def send(self, records: Sequence[SourceRecord]) -> None:
        values = JsonConverter({"schemas.enable": "false"})
        keys = ByteArrayConverter({}) if self.history.merged else values
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap, max_request_size=1 << 24) as producer:
            for record in records:
                await producer.send(
                    record.topic,
                    values.from_connect(record.topic, record.value_schema, record.value),
                    keys.from_connect(record.topic, record.key_schema, record.key),
                )
            await producer.flush()

    async def verify(self, settle_s: float | None = 0.2) -> dict[str, TableReport]:
        """The reports of all tables by name."""
        names = {table.bare for table in self.history.tables}
        request = VerificationRequest(
            includes=names.__contains__,
            offsets=list,
            timeout_s=LIMIT,
            settle_s=settle_s,
            examples=100_000,
            folder=str(self.folder),
        )
        verification = build_verification(self.config, {"bootstrap.servers": self.bootstrap}, request)
        reports = {report.table: report for report in await verification.run()}
        assert reports.keys() == names
        return reports

    async def expected(self, table: RandomTable, records: Sequence[SourceRecord]) -> dict[str, int]:
        """How many rows of each kind differ: what the materializer makes of the records, with what SELECT shows."""
        rows = await self.history.session.query(f"SELECT * FROM {table.full}")  # noqa: S608 - a name of the test's own
        statics = {column.name for column in table.others if column.kind == "static"}
        names = [column.name for column in (*table.key, *table.clustering)]

        def by_key(part: list[dict[str, Any]]) -> dict[str, str]:
            return {
                repr([row[name] for name in names]): repr(
                    sorted((name, value) for name, value in row.items() if name not in statics)
                )
                for row in part
            }

        extra, missing = map(by_key, unlike_rows(self.history.chance, table, records, rows, altered=False))
        return {
            "missing": len(missing.keys() - extra.keys()),
            "extra": len(extra.keys() - missing.keys()),
            "different": sum(missing[key] != extra[key] for key in missing.keys() & extra.keys()),
        }


def counts(table: RandomTable, report: TableReport) -> dict[str, int]:
    """Rows of each kind; static cells, which have no clustering key, are left out."""
    columns = len(table.key) + len(table.clustering)
    return {
        kind: sum(len(json.loads(key)) == columns for key in report.examples.get(kind, ()))
        for kind in ("missing", "extra", "different")
    }


async def play(verified: VerifiedHistory) -> None:
    history, chance = verified.history, verified.history.chance
    await history.create()
    await history.write(chance.randint(20, 60))
    await history.read()
    await verified.forward()
    # Both sides change meanwhile, and nothing differs.
    verifying = asyncio.create_task(verified.verify(None))
    while not verifying.done():
        await history.write(chance.randint(1, 10))
        await history.read()
        await verified.forward()
        if len(history.records) > 400:
            break
    for reports in (await verifying, await verified.verify()):
        for name, report in reports.items():
            assert (report.missing, report.extra, report.different) == (0, 0, 0), (name, report.differences)
    for report in reports.values():
        assert (report.equal, report.unsettled) == (True, 0), (report.table, report.total, report.unsettled)
    # What no message says.
    for table in history.tables:
        await history.session.query(f"ALTER TABLE {table.full} WITH cdc = false")
    await history.write(chance.randint(3, 12))
    for table in history.tables:
        await history.session.query(f"ALTER TABLE {table.full} WITH cdc = true")
    reports = await verified.verify()
    for table in history.tables:
        report = reports[table.bare]
        if history.merged:
            expected = await verified.expected(table, records_of(history.records, table.name))
            assert counts(table, report) == expected, (table.name, report.examples, report.differences)


@pytest.mark.parametrize("seed", SEEDS)
async def test_exactly_what_differs_is_reported(
    cassandra: HasCassandra, bootstrap: str, seed: int, tmp_path: Path
) -> None:
    history = OrderedHistory(cassandra.address, cassandra.cdc_raw, seed, snapshots=seed % 3 == 0)
    async with history:
        await play(VerifiedHistory(history, bootstrap, tmp_path))
