"""A random history of a keyspace on a real Cassandra, read by the connector over several runs, and merged."""

# ruff: noqa: S608 - statements are what this makes

from __future__ import annotations

import asyncio
import random
import re
import struct
import time
from typing import TYPE_CHECKING, Final, Self

from compose.local.scylla.writes import Insert
from connectors.cassandra.connector import CassandraConnector
from connectors.cassandra.server import read_cluster, version_of
from connectors.cql.cluster.failures import NodesAway, SchemaChanged
from connectors.cql.cluster.session import CqlSession
from connectors.cql.types import freeze_type, quote_name, to_text
from connectors.errors import Fatal
from connectors.testing.contexts import SavedOffsets
from connectors.testing.driver import Run
from connectors.wire import EncodedBatch
from tests.support.both_paths import Paths
from tests.support.cql_tables import PAST_US, RandomColumn, RandomTable, create_type, draw_table, draw_udts
from tests.support.cql_values import draw_type, draw_value
from tests.support.merged_tables import records_of, unlike_rows
from tests.support.settings import cql_session
from worker.converters.bytearray import ByteArrayConverter
from worker.converters.json import JsonConverter
from worker.host.delivery.fast_path import parts_of

if TYPE_CHECKING:
    from pathlib import Path

    from connectors.api import Batch, SourceRecord
    from connectors.cql.types import CqlType
    from tests.support.merged_tables import Rows

_DEADLINE_S: Final = 60.0


class CassandraHistory:
    """A keyspace of its own with random tables, the statements of a seed, and the connector that follows them."""

    def __init__(self, address: str, cdc_raw: Path, seed: int, *, snapshots: bool = False) -> None:
        """``snapshots``: tables get cdc when they have rows; their lists are frozen, and no write is of the past.

        Names of list elements, and deletions, are what a snapshot does not tell.
        """
        self.chance = random.Random(seed)
        self.snapshots = snapshots
        self.reopened = 0
        self.ttls = (1, 3600) if seed % 5 == 0 else (3600,)
        self._written_s = 0.0
        host, _, port = address.rpartition(":")
        self._settings = cql_session(contact_points=((host, int(port)),), consistency="ONE")
        self.keyspace = f"{self.chance.choice(['hk', 'Hk'])}{time.time_ns() // 1000:x}"
        self.offsets = SavedOffsets()
        self.records: list[SourceRecord] = []
        self.refused: list[str] = []
        self.tables: list[RandomTable] = []
        #: Tables whose columns changed: what came before a change may not come behind it.
        self.altered: set[str] = set()
        self._dropped: list[tuple[RandomTable, RandomColumn]] = []
        #: Number of the first record that may be of the newest table of a name.
        self.from_record: dict[str, int] = {}
        self.config = {
            "topic.prefix": "h",
            "cassandra.hosts": address,
            "cdc.raw.directories": f"n1={cdc_raw}",
            "table.include.list": f"{self.keyspace}\\..*",
            "commit.log.delete": "false",
            "commit.log.read.mode": self.chance.choice(["marker", "marker", "idx"]),
            "output.format": self.chance.choice(["partition-update", "partition-update-raw"]),
            "snapshot.mode": "initial" if snapshots else "never",
            "snapshot.chunk.rows": "1",
            "max.batch.size": str(self.chance.choice([1, 3, 500])),
            "schema.refresh.interval.ms": str(self.chance.choice([100, 300, *([] if snapshots else [60_000])])),
            "cdc.dir.poll.interval.ms": "20",
        }
        self._fence = self._passed = self.alters = 0
        #: Converters of the fast path, for some histories; how many records took it.
        self.merged = seed % 7 != 0
        json_converter = JsonConverter({"schemas.enable": "false"})
        key_converter = ByteArrayConverter({}) if self.merged else json_converter
        self._paths = Paths(key_converter, json_converter) if seed % 4 < 2 or not self.merged else None
        if not self.merged:
            self.config["output.format"] = "debezium"
            self.config["varint.handling.mode"] = self.config["decimal.handling.mode"] = "string"
            self.config["cassandra.debezium.extended"] = self.chance.choice(["true", "false"])
        self.encoded = 0

    async def __aenter__(self) -> Self:
        self.session = await CqlSession.acquire(self._settings)
        self._vectors = version_of((await read_cluster(self.session)).versions[0]) >= (5, 0)
        await self.session.query(
            f"CREATE KEYSPACE {quote_name(self.keyspace)} WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.session.query(f"DROP KEYSPACE {quote_name(self.keyspace)}")
        await self.session.release()

    # -- writing

    async def create(self) -> None:
        """Types and tables; one of them has counters and is not captured."""
        chance = self.chance
        udts = draw_udts(chance, self.keyspace, vectors=self._vectors)
        self.tables = [
            self._draw_table(chance.choice([f"t{index}", f"T_{index}"]), udts) for index in range(chance.randint(1, 2))
        ]
        keyspace = quote_name(self.keyspace)
        for statement in (
            f"CREATE TABLE {keyspace}.fence (id int PRIMARY KEY) WITH cdc = true",
            f"CREATE TABLE {keyspace}.counts (id int PRIMARY KEY, n counter)",
            *map(create_type, udts),
            *(table.create(f"cdc = {str(not self.snapshots).lower()}") for table in self.tables),
        ):
            await self.session.query(statement)
        if self.snapshots:
            await self.write(chance.randint(0, 40))
            for table in self.tables:
                await self.session.query(f"ALTER TABLE {table.full} WITH cdc = true")

    def _draw_table(self, name: str, udts: list[CqlType]) -> RandomTable:
        table = draw_table(self.chance, self.keyspace, name, udts, ttls=self.ttls, vectors=self._vectors)
        table.extreme = 0.0 if self.snapshots else 0.04
        if self.snapshots:
            table.past = 0
            for column in table.others:
                if column.type.name == "list":
                    column.type = freeze_type(column.type)
        return table

    async def execute(self, statement: str) -> bool:
        """A statement that the server may refuse."""
        try:
            await self.session.query(statement)
        except (Fatal, NodesAway, SchemaChanged) as error:
            # At {} of some types, and at new fields of types in vectors, the server fails.
            if not isinstance(error, Fatal) and not re.search("ClassCastException|Unknown field", str(error)):
                raise
            self.refused.append(f"{error}: {statement}")
            return False
        return True

    async def write(self, count: int) -> None:
        """Some statements."""
        for _ in range(count):
            await self.execute(self._statement())
        self._written_s = time.time()

    def _statement(self) -> str:
        chance = self.chance
        table = chance.choice(self.tables)
        kind = chance.random()
        if kind < 0.15:
            return self._batch()
        if kind < 0.18:
            return f"UPDATE {quote_name(self.keyspace)}.counts SET n = n + 1 WHERE id = {chance.randrange(3)}"
        if kind < 0.35:
            return table.special()
        return table.cql(table.write())

    def _batch(self) -> str:
        """Writes to several partitions and tables; a batch with a time of its own has none in its statements."""
        chance = self.chance
        timed = chance.random() < 0.2
        statements = []
        for _ in range(chance.choice([1, 2, 2, 4])):
            table = chance.choice(self.tables)
            statements.append(table.cql(table.write(plain=timed)))
        head = chance.choice(["BEGIN BATCH", "BEGIN UNLOGGED BATCH"])
        using = f" USING TIMESTAMP {PAST_US + chance.randrange(4)}" * timed
        return f"{head}{using} {'; '.join(statements)}; APPLY BATCH"

    # -- changes of definitions

    async def alter(self) -> None:
        """Change a table or a type in some way."""
        self.alters += 1
        changes = [
            self._add,
            self._add,
            self._drop,
            self._add_again,
            self._rename,
            self._extend_type,
            self._rename_field,
        ]
        changes.append(self.pause_cdc if self.snapshots else self._recreate)
        await self.chance.choice(changes)(self.chance.choice(self.tables))

    async def _add(self, table: RandomTable) -> None:
        kind = draw_type(self.chance, table.udts, vectors=self._vectors)
        part = self.chance.choice(["regular", "static"]) if table.clustering else "regular"
        column = RandomColumn(f"Later {self.alters}", kind, part)
        await self._add_column(table, column)

    async def _add_column(self, table: RandomTable, column: RandomColumn) -> None:
        if await self.execute(f"ALTER TABLE {table.full} ADD {column.define()}"):
            self.altered.add(table.name)
            table.others.append(column)

    async def _drop(self, table: RandomTable) -> None:
        """Drop a column, and have a message without it: a drop between two messages can't be seen."""
        regular = [column for column in table.others if column.kind == "regular"]
        column = self.chance.choice(regular) if regular else None
        if column is None or not await self.execute(f"ALTER TABLE {table.full} DROP {quote_name(column.name)}"):
            return
        self.altered.add(table.name)
        table.others.remove(column)
        self._dropped.append((table, column))
        await self.execute(table.cql(Insert(table.bare, table.row())))
        await self.read()

    async def _add_again(self, _: RandomTable) -> None:
        dropped = [pair for pair in self._dropped if pair[0] in self.tables]
        if dropped:
            self._dropped.remove(dropped[0])
            await self._add_column(*dropped[0])

    async def _rename(self, table: RandomTable) -> None:
        column = self.chance.choice([*table.key, *table.clustering])
        name = f"Later {self.alters}"
        if await self.execute(f"ALTER TABLE {table.full} RENAME {quote_name(column.name)} TO {quote_name(name)}"):
            self.altered.add(table.name)
            column.name = name

    async def _extend_type(self, table: RandomTable) -> None:
        udt, name = self.chance.choice(table.udts), f"Later {self.alters}"
        field = draw_type(self.chance, (), key=True, depth=1, vectors=self._vectors)
        type_name = f"{quote_name(self.keyspace)}.{quote_name(udt.udt_name)}"
        if await self.execute(f"ALTER TYPE {type_name} ADD {quote_name(name)} {to_text(field)}"):
            for other in self.tables:
                self.altered.add(other.name)
                other.extend(udt, name, field)

    async def _rename_field(self, table: RandomTable) -> None:
        udt, name = self.chance.choice(table.udts), f"Later {self.alters}"
        field = self.chance.choice(udt.field_names)
        type_name = f"{quote_name(self.keyspace)}.{quote_name(udt.udt_name)}"
        if await self.execute(f"ALTER TYPE {type_name} RENAME {quote_name(field)} TO {quote_name(name)}"):
            for other in self.tables:
                self.altered.add(other.name)
                other.rename_field(udt, field, name)

    async def _recreate(self, table: RandomTable) -> None:
        """Another table of the same name."""
        await self.read()
        await self.execute(self.chance.choice([f"TRUNCATE {table.full}", f"DROP TABLE {table.full}"]))
        await self.execute(f"DROP TABLE IF EXISTS {table.full}")
        newer = self._draw_table(table.name, table.udts)
        await self.execute(newer.create("cdc = true"))
        self.tables[self.tables.index(table)] = newer
        self.from_record[table.name] = len(self.records)
        self.altered.discard(table.name)

    # -- reading

    async def read(self, *, stop_after: int | None = None) -> None:
        """One run: until all that was written has come, or for some batches (a crash: the batch under way is lost)."""
        saved = self.offsets.copy()
        if stop_after is None:
            self._fence += 1
            await self.session.query(f"INSERT INTO {quote_name(self.keyspace)}.fence (id) VALUES ({self._fence})")
        end = time.monotonic() + _DEADLINE_S
        batches = 0
        async with Run(CassandraConnector, self.config, offsets=self.offsets) as run:
            if self._paths is not None:
                for task in run.tasks:
                    task.context.wire = self._paths.wire
            while self._passed < self._fence and (stop_after is None or batches < stop_after):
                assert time.monotonic() < end, f"row {self._fence} did not come: {run.log.text()}"
                pair = await run.take(0.5)
                if pair is None:
                    if stop_after is not None:
                        break
                    continue
                batches += await self._take_batch(pair[1])
            while stop_after is None and not await self._read_snapshots():
                assert time.monotonic() < end, f"a snapshot did not end: {run.log.text()}"
                if (pair := await run.take(0.2)) is not None:
                    await self._take_batch(pair[1])
        if stop_after is not None and self.chance.random() < 0.3:
            self.offsets = saved  # nothing of it was saved: all comes once more

    async def _take_batch(self, batch: Batch) -> bool:
        """Keep the records, also those that came as bytes, which must be those of the records; whether there are any."""
        assert not batch.bad, batch.bad
        for part in parts_of(batch):
            records = part.records() if isinstance(part, EncodedBatch) else part
            if self._paths is not None and isinstance(part, EncodedBatch):
                self.encoded += len(records)
                assert self._paths.encoded(part) == await self._paths.convert(records)
                assert not self._paths.refused
            for record in records:
                self._take(record)
        return bool(batch.records or batch.encoded)

    async def _read_snapshots(self) -> bool:
        """Whether every table was read, once for each time that it got cdc."""
        if not self.snapshots:
            return True
        snapshots = CassandraConnector.snapshots(
            CassandraConnector.config_def.parse(self.config), [], self.offsets.items()
        )
        read = {
            table["table"] for snapshot in snapshots for table in snapshot["tables"] if snapshot["state"] == "completed"
        }
        return (
            read >= {table.bare for table in self.tables}
            and all(snapshot["state"] == "completed" for snapshot in snapshots)
            and len([s for s in snapshots if "~" in s["id"]]) >= self.reopened
        )

    async def pause_cdc(self, table: RandomTable) -> None:
        """Turn the cdc of a table off while a task sees it, write rows, and turn it on."""
        await self.read()
        end = time.monotonic() + _DEADLINE_S
        async with Run(CassandraConnector, self.config, offsets=self.offsets) as run:
            await self.session.query(f"ALTER TABLE {table.full} WITH cdc = false")
            while not any(
                offset.get("had_cdc") and offset.get("table") == table.bare for _, offset in self.offsets.items()
            ):
                assert time.monotonic() < end, run.log.text()
                if (pair := await run.take(0.2)) is not None:
                    await self._take_batch(pair[1])
        simple = [column for column in table.others if not column.type.is_multicell]
        for _ in range(self.chance.randrange(6)):
            values = {column.name: draw_value(self.chance, column.type) for column in simple}
            await self.execute(table.cql(Insert(table.bare, {**table.row(), **values})))
        await self.session.query(f"ALTER TABLE {table.full} WITH cdc = true")
        self.reopened += 1

    def _take(self, record: SourceRecord) -> None:
        if record.topic.endswith(".fence"):
            (number,) = struct.unpack(">i", record.key) if self.merged else record.key.values()
            self._passed = max(self._passed, number)
        else:
            self.records.append(record)

    # -- comparing

    async def compare(self) -> None:
        """Assert that what the materializer makes of the records is what SELECT shows."""
        if not self.merged:
            return
        if min(self.ttls) < 60:
            await asyncio.sleep(max(0.0, self._written_s + min(self.ttls) + 1.5 - time.time()))
        for table in self.tables:
            rows = await self.session.query(f"SELECT * FROM {table.full}")
            records = records_of(self.records[self.from_record.get(table.name, 0) :], table.name)
            unlike = unlike_rows(self.chance, table, records, rows, altered=table.name in self.altered)
            extra, missing = (self._without_ghosts(table, part) for part in unlike)
            assert (extra, missing) == ([], []), f"{table.full}: only merged, only selected"

    def _without_ghosts(self, table: RandomTable, rows: Rows) -> Rows:
        """With snapshots a row may stay that an UPDATE made and that has lost its last cell."""
        names = [column.name for column in table.others if column.kind == "regular"]
        if not self.snapshots or not names:
            return rows
        return [row for row in rows if any(row[name] is not None for name in names)]
