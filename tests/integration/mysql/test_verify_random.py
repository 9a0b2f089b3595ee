"""Tables, rows and differences by chance: ``millrace verify`` reports exactly these, and they can be repaired."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest
from aiokafka import AIOKafkaProducer

from connectors.mysql.config.settings import CONFIG
from connectors.mysql.connector import MySqlConnector
from connectors.mysql.verify import SourceView
from connectors.testing.driver import Run
from tests.integration.mysql.changes_world import LIMIT, Source
from tests.integration.mysql.dialect import is_mysql
from tests.integration.mysql.random_columns import VALUE_OPTIONS
from tests.integration.mysql.random_history import History
from tests.integration.mysql.random_tables import draw_change
from worker.converters.json import JsonConverter
from worker.verify.command import build_verification
from worker.verify.messages import VerificationRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import pymysql

    from connectors.api import Position, SourceRecord
    from connectors.verify.rows import TableReport
    from tests.conftest import HasMariaDb

#: Seeds of every run, and those of the slow suite.
SEEDS: Final = (1, 2)
SLOW_SEEDS: Final = tuple(range(3, 12))
STATEMENTS: Final = 60
#: The key of a row that has none.
NO_KEY: Final = "null"

#: By table: its rows by key, and how often each comes; a row is its JSON.
Rows = dict[str, dict[str, Counter[str]]]


def write_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


class Pipeline:
    """A database, a connector that reads it, and its topics, all of one seed."""

    def __init__(self, server: HasMariaDb, bootstrap: str, seed: int, folder: Path) -> None:
        self.chance = Random(seed)
        self.source = Source(server, f"verified_{seed}_{os.getpid()}")
        self.options = {name: self.chance.choice(words) for name, words in VALUE_OPTIONS.items()}
        self.prefix = f"verified-{seed}-{os.urandom(4).hex()}"
        self.config = {
            **self.source.config(snapshot__mode="initial", topic__prefix=self.prefix),
            **self.options,
            "key.converter": "JsonConverter",
            "key.converter.schemas.enable": "false",
            "value.converter": "JsonConverter",
            "value.converter.schemas.enable": "false",
        }
        self.bootstrap, self.folder = bootstrap, folder
        self.history = History(self.connect, self.chance, self.options, mysql=is_mysql(server), folder=folder)
        self.history.create_tables(self.chance.randrange(3, 6), self.chance.choice((0, 40, 200)))
        self.saved: list[tuple[Position, Position]] = []
        #: What the topics say, with the last event of each key.
        self.rows: Rows = {}
        self.events: dict[tuple[str, str], tuple[str, Any]] = {}
        self.converter = JsonConverter({"schemas.enable": "false"})

    def connect(self) -> pymysql.Connection[Any]:
        link = self.source.connection()
        link.select_db(self.source.name)
        return link

    def change(self, count: int) -> None:
        """Run statements. Blocks."""
        for _ in range(count):
            self.history.execute(0, draw_change(self.chance, self.history.tables[self.draw_table()]))

    def draw_table(self) -> str:
        return self.chance.choice(sorted(self.history.tables))

    def encode(self, records: Iterable[SourceRecord]) -> list[tuple[str, Any, Any]]:
        """Topics, keys and values of records, as they are in messages."""
        write = self.converter.from_connect
        pairs = [
            (r.topic, write("", r.key_schema, r.key), write("", r.value_schema, r.value)) for r in records if r.value
        ]
        return [(topic, json.loads(key or b"null"), json.loads(value or b"null")) for topic, key, value in pairs]

    async def send(self, messages: Sequence[tuple[str, Any, Any]]) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap) as producer:
            for topic, key, value in messages:
                await producer.send(topic, json.dumps(value).encode(), json.dumps(key).encode())
                self._note(topic, key, value)
            await producer.flush()

    def _note(self, topic: str, key: Any, event: Any) -> None:
        table, identity = event["source"]["table"], write_json(key)
        rows = self.rows.setdefault(table, {}).setdefault(identity, Counter())
        if key is not None:
            rows.clear()
            self.events[table, identity] = (topic, event)
        elif event["op"] in ("u", "d"):
            rows[write_json(event["before"])] -= 1
        if event["op"] != "d":
            rows[write_json(event["after"])] += 1

    async def forward(self, run: Run) -> None:
        """Send what the connector reads."""
        while True:
            batch = await run.take(LIMIT)
            assert batch is not None, run.log.text()
            assert not batch[1].bad, batch[1].bad
            await self.send(self.encode(batch[1].records))
            self.saved = run.offsets.items()

    async def verify(self) -> dict[str, TableReport]:
        """The reports of all tables by name."""
        request = VerificationRequest(
            includes=lambda name: not name.endswith(".the_end"),
            offsets=lambda: [{"partition": partition, "offset": offset} for partition, offset in self.saved],
            timeout_s=LIMIT,
            settle_s=0.2,
            examples=100_000,
            folder=str(self.folder),
        )
        verification = build_verification(self.config, {"bootstrap.servers": self.bootstrap}, request)
        reports = {report.table.split(".", 1)[1]: report for report in await verification.run()}
        assert reports.keys() == self.history.tables.keys()
        return reports

    async def read_source(self, conditions: dict[str, str] | None = None) -> list[tuple[str, Any, Any]]:
        """Messages with the rows of the source, or of these tables those that a condition holds for."""
        messages: list[tuple[str, Any, Any]] = []
        view = SourceView(CONFIG.parse(self.config))
        try:
            await view.open(lambda name: not name.endswith(".the_end"))
            for name, entry in view.tables.items():
                table = name.split(".", 1)[1]
                if conditions is None or table in conditions:
                    async for records in view.records(entry, (conditions or {}).get(table, "")):
                        messages += self.encode(records)
        finally:
            await view.close()
        return messages

    async def expected(self) -> dict[str, dict[str, Counter[str]]]:
        """By table and kind: the keys of rows that differ, or the rows of tables without key, and how often."""
        source: Rows = {}
        for _, key, event in await self.read_source():
            rows = source.setdefault(event["source"]["table"], {}).setdefault(write_json(key), Counter())
            rows[write_json(event["after"])] += 1
        differences = {}
        for table in self.history.tables:
            mine, theirs = source.get(table, {}), self.rows.get(table, {})
            kinds: dict[str, Counter[str]] = {"missing": Counter(), "extra": Counter(), "different": Counter()}
            for key in mine.keys() | theirs.keys():
                ours, other = mine.get(key, Counter()), +theirs.get(key, Counter())
                if key == NO_KEY:
                    kinds["missing"], kinds["extra"] = ours - other, other - ours
                elif ours != other:
                    kinds["missing" if not other else "extra" if not ours else "different"][key] = 1
            differences[table] = {kind: rows for kind, rows in kinds.items() if rows}
        return differences

    def damage_source(self) -> None:
        """Change rows behind the connector's back."""
        self.history.execute(0, "SET sql_log_bin = 0")
        self.change(12)
        self.history.execute(0, "SET sql_log_bin = 1")

    async def damage_topics(self) -> None:
        """Send events of rows that are as they were: gone, with another cell, and with the contents of another row."""
        chance, messages = self.chance, list[tuple[str, Any, Any]]()
        for table in self.history.tables:
            keys = sorted(key for key, rows in self.rows.get(table, {}).items() if key != NO_KEY and +rows)
            for key in chance.sample(keys, min(len(keys), chance.randrange(4))):
                topic, event = self.events[table, key]
                # A row that was read is as of its position; a change there comes after it.
                event = {**event, "source": {**event["source"], "pos": event["source"]["pos"] - 1}}
                _, other = self.events[table, chance.choice(keys)]
                after = dict(event["after"])
                column = chance.choice(sorted(after))
                after[column] = (
                    None if after[column] == "" else "" if after[column] is None else chance.choice((None, ""))
                )
                damaged = chance.choice((
                    {**event, "op": "d", "before": event["after"], "after": None},
                    {**event, "op": "u", "after": after},
                    {**event, "op": "u", "after": other["after"]},
                ))  # fmt: skip
                messages.append((topic, json.loads(key), damaged))
        await self.send(messages)

    async def check_reports(self) -> dict[str, TableReport]:
        """Compare; the reports say exactly what differs."""
        reports, expected = await self.verify(), await self.expected()
        for table, report in reports.items():
            assert (report.unsettled, report.older_structure) == (0, 0), table
            kinds = {kind: sum(rows.values()) for kind, rows in expected[table].items()}
            counts = {"missing": report.missing, "extra": report.extra, "different": report.different}
            assert {kind: count for kind, count in counts.items() if count} == kinds, (table, expected[table])
            if NO_KEY not in self.rows.get(table, {}):
                keys = {kind: {write_json(json.loads(key)) for key in keys} for kind, keys in report.examples.items()}
                assert keys == {kind: set(rows) for kind, rows in expected[table].items()}, table
        return reports

    def close(self) -> None:
        self.history.close()
        self.source.sql(f"DROP DATABASE IF EXISTS {self.source.name}")


async def play(pipeline: Pipeline) -> None:
    async with Run(MySqlConnector, pipeline.config) as run:
        forwarding = asyncio.create_task(pipeline.forward(run))
        try:
            # Both sides change meanwhile, and nothing differs.
            writing = asyncio.create_task(asyncio.to_thread(pipeline.change, STATEMENTS))
            reports = await pipeline.verify()
            await writing
            while any(not report.equal for report in reports.values()):
                # Rows that the first snapshot has not reached are missing.
                assert not any(report.extra or report.different for report in reports.values())
                reports = await pipeline.verify()
            await pipeline.check_reports()
            pipeline.damage_source()
            await pipeline.damage_topics()
            reports = await pipeline.check_reports()
            # Rows that are missing or differ are sent again; the others stay.
            repaired = {
                table: report.condition or ""
                for table, report in reports.items()
                if report.missing + report.different and NO_KEY not in pipeline.rows.get(table, {})
            }
            await pipeline.send(await pipeline.read_source(repaired))
            afterwards = await pipeline.check_reports()
            for table, condition in repaired.items():
                assert (afterwards[table].missing, afterwards[table].different) == (0, 0), (table, condition)
                assert afterwards[table].extra == reports[table].extra
        finally:
            forwarding.cancel()
            outcome = (await asyncio.gather(forwarding, return_exceptions=True))[0]
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome


def named_seeds() -> list[Any]:
    """Those of ``MILLRACE_SEEDS``, else the fixed ones."""
    named = os.environ.get("MILLRACE_SEEDS", "").split()
    if named:
        return [int(seed) for seed in named]
    return [*SEEDS, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SLOW_SEEDS)]


@pytest.mark.parametrize("seed", named_seeds())
def test_exactly_what_differs_is_reported_and_repaired(
    server: HasMariaDb, bootstrap: str, seed: int, tmp_path: Path
) -> None:
    pipeline = Pipeline(server, bootstrap, seed, tmp_path)
    try:
        asyncio.run(play(pipeline))
    finally:
        pipeline.close()
