"""Random tables of all types, written through the emulation and read over stops: the merged events are what SELECT shows."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.scylla.writes import DeleteRange, Insert
from connectors.cql.types import freeze_type, quote_name, to_text
from connectors.formats.timeuuid import format_uuid
from connectors.scylla.positions import stream_text
from tests.integration.scylla.test_random_histories import History, position
from tests.integration.scylla.test_snapshot_live import finished
from tests.support.cql_tables import RandomColumn, RandomTable, create_type, draw_table, draw_udts
from tests.support.cql_values import draw_type
from tests.support.merged_tables import records_of, unlike_rows
from worker.fetch.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable

    from compose.local.scylla.client import Emulation
    from compose.local.scylla.writes import Write
    from tests.support.merged_tables import Rows

#: An even seed changes definitions, with a multiple of 3 there are snapshots. ``MILLRACE_SEEDS`` names others.
SEEDS: list[Any] = [int(seed) for seed in os.environ.get("MILLRACE_SEEDS", "").split(",") if seed] or [
    4,
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in (3, 6, 8, 12, 17)),
]


class TableHistory(History):
    """One or two random tables of a keyspace, what is written to them, and what the connector makes of it."""

    def __init__(self, client: Emulation, keyspace: str, seed: int, *, snapshots: bool = False) -> None:
        """``snapshots``: tables have rows that are in no log, and no multicell columns, whose cells have no times there."""
        super().__init__(client, keyspace, seed, **{"output.format": "partition-update"})
        self.snapshots = snapshots
        if snapshots:
            chunk_rows = self.chance.choice([1, 3, 100])
            self.config |= {"snapshot.mode": "initial", "snapshot.chunk.rows": str(chunk_rows)}
        self.keyspace = keyspace
        self.chance = random.Random(seed)
        self.udts = draw_udts(self.chance, keyspace, prefix=f"u{secrets.token_hex(3)}")
        self.tables: list[RandomTable] = []
        self.altered: set[str] = set()
        #: Number of the first record that may be of the newest table of a name.
        self.from_record: dict[str, int] = {}

    def create(self, images: bool) -> None:
        """Create types and tables, to be read from the newest generation on."""
        for udt in self.udts:
            self.client.create_type(create_type(udt))
        suffix = secrets.token_hex(4)
        for number in range(self.chance.randint(1, 2)):
            table = self._draw(self.chance.choice([f"t{number}{suffix}", f"T{number}_{suffix}"]))
            self._create_table(table, images)
            self.tables.append(table)
            for _ in range(self.chance.choice([0, 1, 10, 40]) * self.snapshots):
                with suppress(StackError):
                    self.client.execute(table.cql(table.write()))
        self.config["scylla.table.names"] = ",".join(table.full for table in self.tables)
        for table in self.tables:
            self.full = table.bare
            self.begin_at_newest_generation()

    def _draw(self, name: str) -> RandomTable:
        table = draw_table(self.chance, self.keyspace, name, self.udts)
        table.past = 0  # what is older than what was read is missed
        if self.snapshots:
            for column in table.others:
                column.type = freeze_type(column.type)
        return table

    def _create_table(self, table: RandomTable, images: bool) -> None:
        cdc = "'enabled': true" + ", 'preimage': 'full', 'postimage': true" * images
        self.client.create_table(table.create(f"cdc = {{{cdc}}}"))

    def write(self, count: int) -> None:
        """Some writes, alone or in batches of which no two touch the same row."""
        base = 0
        for _ in range(count):
            moment = base + self.chance.randrange(-2, 1) if base and self.chance.random() < 0.15 else None
            try:
                applied = self.client.apply(*self._batch(), timestamp_us=moment)
            except StackError as error:
                if "no element" not in str(error):
                    raise
                continue
            base = applied.timestamp_us if moment is None else base
            for logged in applied.logged:
                self.written.add((stream_text(logged.stream), format_uuid(logged.time)))

    def _batch(self) -> list[Write]:
        writes: list[Write] = []
        touched: set[str] = set()
        for _ in range(self.chance.choice([1, 1, 1, 2, 4])):
            table = self.chance.choice(self.tables)
            write = table.write()
            values = write.values if isinstance(write, Insert) else write.key
            partition = repr((table.name, [values[column.name] for column in table.key]))
            row = partition + repr([values.get(column.name) for column in table.clustering])
            wide = isinstance(write, DeleteRange) or any(column.name not in values for column in table.clustering)
            if partition in touched or row in touched or (wide and any(name.startswith(partition) for name in touched)):
                continue
            touched.add(partition if wide else row)
            if not writes and not wide and self.chance.random() < 0.1:
                return [_with_condition(write)]
            writes.append(write)
        return writes

    def alter(self) -> None:
        """Change a table or a type; a type that is in a partition key can't be changed."""
        with suppress(StackError):
            self._alter()
        self.write(1)

    def _alter(self) -> None:
        chance = self.chance
        table = chance.choice(self.tables)
        name = f"Later {secrets.token_hex(2)}"
        regular = [column for column in table.others if column.kind == "regular" and not column.type.is_multicell]
        match chance.choice(["add", "add", "drop", "field", "cdc"]):
            case "cdc":
                self._switch_cdc(table)
            case "add":
                kind = draw_type(chance, table.udts)
                column = RandomColumn(name, freeze_type(kind) if self.snapshots else kind, "regular")
                self.client.alter_table(f"ALTER TABLE {table.full} ADD {column.define()}")
                table.others.append(column)
                self.altered.add(table.name)
            case "drop" if regular:
                column = chance.choice(regular)
                self.client.alter_table(f"ALTER TABLE {table.full} DROP {quote_name(column.name)}")
                table.others.remove(column)
                self.altered.add(table.name)
            case "field":
                udt = chance.choice(table.udts)
                field = draw_type(chance, (), key=True, depth=1)
                keyspace = quote_name(self.keyspace)
                self.client.alter_type(
                    f"ALTER TYPE {keyspace}.{quote_name(udt.udt_name)} ADD {quote_name(name)} {to_text(field)}"
                )
                for other in self.tables:
                    other.extend(udt, name, field)
                    self.altered.add(other.name)
                self.udts = self.tables[0].udts

    def _switch_cdc(self, table: RandomTable) -> None:
        """Other options of the log, whose changes may first be logged no more for a moment."""
        chance = self.chance
        if chance.random() < 0.5:
            self.client.alter_table(f"ALTER TABLE {table.full} WITH cdc = {{'enabled': false}}")
            time.sleep(chance.choice([0.0, 0.3]))
        preimage = chance.choice(["'full'", "true", "false"])
        options = f"'enabled': true, 'preimage': {preimage}, 'postimage': {chance.choice(['true', 'false'])}"
        self.client.alter_table(f"ALTER TABLE {table.full} WITH cdc = {{{options}, 'ttl': {chance.choice([3600, 0])}}}")

    def recreate(self) -> None:
        """Another table of the same name; all of the first was read."""
        table = self.chance.choice(self.tables)
        self.client.drop_table(table.bare)
        newer = self._draw(table.name)
        self._create_table(newer, self.chance.random() < 0.3)
        self.tables[self.tables.index(table)] = newer
        self.from_record[table.name] = len(self.records)
        self.altered.discard(table.name)

    def compare(self) -> None:
        """Assert that what the materializer makes of the records is what SELECT shows."""
        for table in self.tables:
            records = records_of(self.records[self.from_record.get(table.name, 0) :], table.name)
            rows = self.client.base_rows(table.bare)
            extra, missing = unlike_rows(self.chance, table, records, rows, altered=table.name in self.altered)
            if self.snapshots:
                extra, missing = (_without_ghosts(table, part) for part in (extra, missing))
            assert (extra, missing) == ([], []), f"{table.full}: only merged, only selected"

    def missing(self) -> set[Any]:
        """The changes that have not come, and the tables whose snapshots are not complete."""
        sent = {position(record) for record in self.records if "change_id_time" in record.source_offset}
        unread = (table.bare for table in self.tables if not finished(self.offsets, table.bare))
        return (self.written - sent) | (set(unread) if self.snapshots else set())


def _without_ghosts(table: RandomTable, rows: Rows) -> Rows:
    """After a snapshot a row may stay that an UPDATE made and that has lost its last cell."""
    names = [column.name for column in table.others if column.kind == "regular"]
    return [row for row in rows if not names or any(row.get(name) is not None for name in names)]


def _with_condition(write: Write) -> Write:
    if isinstance(write, Insert):
        return replace(write, condition="not exists")
    return write if isinstance(write, DeleteRange) else replace(write, condition="exists")


async def run_history(client: Emulation, keyspace: str, seed: int) -> None:
    """The history of a seed."""
    history = TableHistory(client, keyspace, seed, snapshots=seed % 3 == 0)
    await asyncio.to_thread(history.create, history.chance.random() < 0.3)
    alters = seed % 2 == 0

    def between() -> None:
        history.full = history.chance.choice(history.tables).bare
        if alters and history.chance.random() < 0.7:
            history.alter()
        else:
            history.change_topology()

    for number in range(2):
        if number and alters and history.chance.random() < 0.5:
            await asyncio.to_thread(history.recreate)
        await history.go(2, history.missing, between)
        await asyncio.to_thread(history.compare)


@pytest.mark.parametrize("tablets", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["vnodes", "tablets"])
@pytest.mark.parametrize("seed", SEEDS)
def test_events_lead_to_what_select_shows(
    scylla: Emulation, scylla_keyspace: Callable[..., str], tablets: bool, seed: int
) -> None:
    if not scylla.emulated:
        pytest.skip("what is to come is known from what the emulation logs")
    keyspace = scylla_keyspace(tablets=tablets)
    if not scylla.generations():
        scylla.new_generation()
    asyncio.run(run_history(scylla, keyspace, seed))
