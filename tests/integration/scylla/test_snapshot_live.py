"""The snapshot next to the stream, on a server: rows from before CDC, concurrent writers, restarts, new generations."""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
import threading
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.scylla.writes import Delete, Insert, Update
from connectors.cql.token_ranges import MAX_TOKEN, MIN_TOKEN, TokenRange
from connectors.cql.types import CqlType
from connectors.cql.values import make_decoder
from connectors.scylla.connector import ScyllaConnector
from connectors.scylla.model import ScyllaColumn
from connectors.scylla.snapshot.merging import find_remaining, from_offset, is_snapshot
from connectors.scylla.snapshot.order import place_of
from connectors.testing.contexts import SavedOffsets
from connectors.testing.driver import Run
from tests.support.eventually import patience

if TYPE_CHECKING:
    from collections.abc import Callable

    from compose.local.scylla.client import Emulation
    from compose.local.scylla.writes import Write
    from connectors.api import SourceRecord

PARTITIONS, ROWS = 40, 8
Key = tuple[int, int | None]


class Copy:
    """The rows of a consumer of the legacy form: cells that a record names are set, the others stay."""

    def __init__(self) -> None:
        self.rows: dict[Key, dict[str, Any]] = {}
        self.newest: dict[Key, int] = {}
        self.back: list[tuple[Key, int, int]] = []
        self.reads: Counter[Key] = Counter()
        self.changes: Counter[tuple[Key, int]] = Counter()

    def apply(self, record: SourceRecord) -> None:
        value = record.value
        if value is None:
            return
        key = (record.key["pk"], record.key["ck"])
        us = value["source"]["ts_us"]
        if us < self.newest.get(key, 0):
            self.back.append((key, us, self.newest[key]))
        self.newest[key] = max(us, self.newest.get(key, 0))
        if value["op"] == "r":
            self.reads[key] += 1
        else:
            self.changes[key, us] += 1
        if value["op"] == "d":
            self.rows.pop(key, None)
            return
        row = self.rows.setdefault(key, {})
        for name, cell in value["after"].items():
            if name not in {"pk", "ck"} and cell is not None:
                row[name] = cell["value"]

    def contents(self) -> dict[Key, dict[str, Any]]:
        """Rows with cells, without nulls."""
        rows = {key: {name: cell for name, cell in row.items() if cell is not None} for key, row in self.rows.items()}
        return {key: row for key, row in rows.items() if row}


def random_write(chance: random.Random, table: str) -> Write:
    pk, ck = chance.randrange(PARTITIONS), chance.randrange(ROWS)
    key = {"pk": pk, "ck": ck}
    writes: list[Write] = [
        Insert(table, {**key, "a": chance.randrange(1000), "b": secrets.token_hex(2)}),
        Update(table, key, {"a": chance.randrange(1000)}),
        Update(table, key, {"b": chance.choice([None, "x"])}),
        Update(table, {"pk": pk}, {"st": chance.choice([None, 1, 2])}),
        Delete(table, key),
    ]
    return chance.choice(writes)


def expected(scylla: Emulation, table: str) -> dict[Key, dict[str, Any]]:
    by_key: dict[Key, dict[str, Any]] = {}
    for row in scylla.base_rows(table):
        if row["st"] is not None:
            by_key[row["pk"], None] = {"st": row["st"]}
        cells = {name: row[name] for name in ("a", "b") if row[name] is not None}
        if row["ck"] is not None and cells:
            by_key[row["pk"], row["ck"]] = cells
    return by_key


def finished(offsets: SavedOffsets, table: str) -> bool:
    positions = [
        from_offset(offset)
        for partition, offset in offsets.items()
        if is_snapshot(partition) and f"{partition['keyspace_name']}.{partition['table_name']}" == table
    ]
    return not find_remaining([TokenRange(MIN_TOKEN, MAX_TOKEN)], positions)


@pytest.mark.parametrize("tablets", [False, True], ids=["vnodes", "tablets"])
@pytest.mark.parametrize("restarts", [False, True], ids=["one run", "restarts"])
def test_what_was_in_the_table_and_what_is_written_meanwhile(
    scylla: Emulation, scylla_keyspace: Callable[..., str], *, tablets: bool, restarts: bool
) -> None:
    keyspace = scylla_keyspace(tablets=tablets)
    table = f"{keyspace}.t{secrets.token_hex(4)}"
    if scylla.emulated and not scylla.generations():
        scylla.new_generation()
    if not scylla.emulated:
        pytest.skip("rows from before CDC are written behind the log's back")
    scylla.create_table(
        f"CREATE TABLE {table} (pk int, ck int, st int static, a int, b text, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true}"
    )
    chance = random.Random(7)
    for pk in range(PARTITIONS):
        if pk % 3:
            scylla.execute(
                f"INSERT INTO {table} (pk, st) VALUES ({pk}, {pk}) "  # noqa: S608
                f"USING TIMESTAMP {1_600_000_000_000_000 + pk}"
            )
        for ck in range(ROWS if pk % 7 else 0):
            scylla.execute(
                f"INSERT INTO {table} (pk, ck, a, b) VALUES ({pk}, {ck}, {ck}, 'old') "  # noqa: S608
                "USING TIMESTAMP 1600000000000000"
            )
    copy, offsets = Copy(), SavedOffsets()
    config = {
        "topic.prefix": "s",
        "scylla.cluster.ip.addresses": scylla.address,
        "scylla.table.names": table,
        "scylla.confidence.window.size": "1000",
        "scylla.window.min.ms": "50",
        "snapshot.mode": "initial",
        "snapshot.chunk.rows": "7",
        "heartbeat.interval.ms": "50",
        "scylla.discovery.interval.ms": "200",
        "max.batch.size": "5",
    }
    stop = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        while not stop.is_set() and written < 1500:
            for logged in scylla.apply(random_write(chance, table)).logged:
                written += len(logged.rows)

    async def go() -> None:
        writer = asyncio.create_task(asyncio.to_thread(write))
        try:
            async with patience(60):
                while True:
                    async with Run(ScyllaConnector, config, offsets=offsets, max_tasks=3) as run:
                        for _ in range(60 if restarts else 1_000_000):
                            batch = await run.take(0.5)
                            for record in batch[1].records if batch else ():
                                copy.apply(record)
                            if finished(offsets, table) and not stop.is_set():
                                stop.set()
                                await writer
                            if writer.done() and sum(copy.changes.values()) >= written and finished(offsets, table):
                                return
                    if restarts and copy.reads and chance.random() < 0.2 and not tablets:
                        scylla.new_generation(vnodes=chance.choice([1, 3, 4]), shards=chance.choice([1, 2]))
        except TimeoutError:
            pytest.fail(
                f"after 60 s: {len(copy.reads)} rows read, {sum(copy.changes.values())} changes of {written}, offsets "
                f"{[offset for partition, offset in offsets.items() if is_snapshot(partition)]}"
            )
        finally:
            stop.set()
            await writer

    asyncio.run(go())

    assert copy.contents() == expected(scylla, table)
    assert not copy.back, "write times of a row went back"
    assert [key for key, count in copy.reads.items() if count > 1] == []
    assert [change for change, count in copy.changes.items() if count > 1] == []
    assert sum(copy.reads.values()) > PARTITIONS


async def test_numbers_of_a_snapshot_over_restarts(scylla: Emulation, scylla_keyspace: Callable[..., str]) -> None:
    keyspace = scylla_keyspace()
    if scylla.emulated and not scylla.generations():
        scylla.new_generation()
    tables = [f"{keyspace}.small", f"{keyspace}.large"]
    for table, rows in zip(tables, (5, 60), strict=True):
        scylla.create_table(f"CREATE TABLE {table} (pk int PRIMARY KEY, a int) WITH cdc = {{'enabled': true}}")
        for pk in range(rows):
            # Without the log, as before cdc was turned on: right before the start.
            scylla.execute(f"INSERT INTO {table} (pk, a) VALUES ({pk}, 1)")  # noqa: S608 - names of our own
    config = {
        "topic.prefix": "s",
        "scylla.cluster.ip.addresses": scylla.address,
        "scylla.table.names": ",".join(tables),
        "scylla.confidence.window.size": "100",
        "scylla.window.min.ms": "50",
        "snapshot.mode": "initial",
        "snapshot.chunk.rows": "7",
        "heartbeat.interval.ms": "50",
        "max.batch.size": "5",
    }
    offsets = SavedOffsets()
    remaining_tables: list[float] = []
    read: Counter[str] = Counter()

    def number(run: Run, name: str) -> float | None:
        return run.metrics.values.get(f"debezium_metrics_{name}")

    def rows_scanned(run: Run) -> dict[str, float]:
        return {
            dict(labels)["table"]: value
            for (name, labels), value in run.metrics.series.items()
            if name == "debezium_metrics_RowsScanned"
        }

    async with patience(60):
        while not all(finished(offsets, table) for table in tables):
            async with Run(ScyllaConnector, config, offsets=offsets) as run:
                until = read.total() + 20
                while read.total() < until and not all(finished(offsets, table) for table in tables):
                    batch = await run.take(0.5)
                    read.update(
                        f"{record.value['source']['keyspace_name']}.{record.value['source']['table_name']}"
                        for record in (batch[1].records if batch else ())
                        if record.value and record.value["op"] == "r"
                    )
                    if (now := number(run, "RemainingTableCount")) is not None:
                        remaining_tables.append(now)
                        assert number(run, "SnapshotSkipped") == number(run, "SnapshotAborted") == 0
    assert read == {tables[0]: 5, tables[1]: 60}
    assert remaining_tables[0] == 2
    assert remaining_tables == sorted(remaining_tables, reverse=True)
    # A start behind the end: nothing is read, and the numbers are those of the snapshot.
    async with patience(60), Run(ScyllaConnector, config, offsets=offsets) as run:
        while number(run, "SnapshotCompleted") is None:
            await run.take(0.5)
        assert rows_scanned(run) == read
        shown = [number(run, name) for name in ("SnapshotRunning", "TotalTableCount", "RemainingTableCount")]
        assert (number(run, "SnapshotCompleted"), shown) == (1, [0, 0, 0])
        assert (number(run, "SnapshotDurationInSeconds") or 0) > 0


#: Literals of values that are near each other, and at the ends.
LITERALS: dict[str, list[str]] = {
    **{
        kind: ["0", "1", "-1", str(-1 << bits), str((1 << bits) - 1)]
        for kind, bits in (("tinyint", 7), ("smallint", 15), ("int", 31), ("bigint", 63), ("timestamp", 63))
    },
    "date": [str((1 << 31) + days) for days in (-20_000, -1, 0, 1, 20_000)],
    "time": ["0", "1", "256", "86399999999999"],
    "boolean": ["true", "false"],
    "text": ["''", "'a'", "'a\x01'", "'ab'", "'b'", "'\x7f'", "'\u00e9'", "'\uffee'", "'\U0001f600'"],
    "ascii": ["''", "'a'", "'a b'", "'ab'", "'~'"],
    "blob": ["0x", "0x00", "0x0000", "0x00ff", "0x01", "0x7f", "0x80", "0xff", "0xff00"],
    "timeuuid": [
        str(uuid.UUID(fields=(low, mid, 0x1000 | high, clock, 0, node)))
        for low, mid, high, clock, node in (
            (1, 0, 0, 0x80, 0),
            (0xFFFFFFFF, 0, 0, 0x80, 0),
            (0, 1, 0, 0x80, 0),
            (0, 0xFFFF, 0, 0x80, 0),
            (0, 0, 1, 0x80, 0),
            (0, 0, 0xFFF, 0xBF, 1 << 47),
            (0, 0, 0xFFF, 0xBF, 1),
            (0, 0, 0xFFF, 0x80, 1 << 47),
        )
    ],
}


@pytest.mark.parametrize(
    "kinds",
    [
        ("int", "text", "timeuuid"),
        ("blob", "boolean", "date"),
        ("ascii", "time", "tinyint"),
        ("timestamp", "bigint", "smallint"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("backwards", [False, True], ids=["asc", "desc"])
def test_places_sort_as_this_server_sorts(
    scylla: Emulation, scylla_keyspace: Callable[..., str], *, kinds: tuple[str, ...], backwards: bool
) -> None:
    """A place that is wrong would lose the rows of a partition whose last row that was sent is deleted."""
    table = f"{scylla_keyspace()}.t"
    orders = [backwards, not backwards, backwards]
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(kinds))
    order = ", ".join(f"c{n} {'DESC' if back else 'ASC'}" for n, back in enumerate(orders))
    scylla.execute(
        f"CREATE TABLE {table} (pk int, {columns}, PRIMARY KEY (pk, c0, c1, c2)) WITH CLUSTERING ORDER BY ({order})"
    )
    keys = list(itertools.product(*(LITERALS[kind] for kind in kinds)))
    for at in range(0, len(keys), 50):
        rows = "".join(
            f"INSERT INTO {table} (pk, c0, c1, c2) VALUES (1, {', '.join(key)}); "  # noqa: S608
            for key in keys[at : at + 50]
        )
        scylla.execute(f"BEGIN UNLOGGED BATCH {rows} APPLY BATCH")
    encode_position = place_of(
        [
            ScyllaColumn(f"c{n}", CqlType(kind), "clustering", n, reversed=back)
            for n, (kind, back) in enumerate(zip(kinds, orders, strict=True))
        ]
    )
    decoders = [make_decoder(CqlType(kind)) for kind in kinds]
    assert encode_position is not None

    positions = [
        encode_position([decode(row[f"c{n}"] or b"") for n, decode in enumerate(decoders)])
        for row in scylla.execute(f"SELECT c0, c1, c2 FROM {table} WHERE pk = 1")  # noqa: S608
    ]

    complete = [position for position in positions if position is not None]
    assert len(complete) == len(positions) == len(set(complete)) == len(keys)
    assert complete == sorted(complete)


@pytest.mark.parametrize(
    ("read_new", "tablets"),
    [
        (True, False),
        (False, True),
        pytest.param(True, True, marks=pytest.mark.slow),
        pytest.param(False, False, marks=pytest.mark.slow),
    ],
    ids=["wanted-vnodes", "not wanted-tablets", "wanted-tablets", "not wanted-vnodes"],
)
async def test_tables_that_come_later_are_read_by_the_running_connector_and_once(
    scylla: Emulation, scylla_keyspace: Callable[..., str], *, tablets: bool, read_new: bool
) -> None:
    keyspace = scylla_keyspace(tablets=tablets)
    if scylla.emulated and not scylla.generations():
        scylla.new_generation()
    first, later, third = (f"{keyspace}.{name}" for name in ("first", "later", "third"))

    def create(table: str, cdc: str = " WITH cdc = {'enabled': true}") -> None:
        scylla.create_table(f"CREATE TABLE {table} (pk int PRIMARY KEY, a int){cdc}")

    def insert(table: str, *keys: int) -> None:
        for pk in keys:  # without the log, where it is the emulation
            scylla.execute(f"INSERT INTO {table} (pk, a) VALUES ({pk}, 1)")  # noqa: S608 - names of our own

    reads: Counter[tuple[str, int]] = Counter()
    changes: Counter[tuple[str, int]] = Counter()

    async def take_until(run: Run, condition: Callable[[], bool]) -> None:
        async with patience(60):
            while not condition():
                batch = await run.take(0.5)
                for record in batch[1].records if batch else ():
                    if record.value is not None:
                        name = f"{record.value['source']['keyspace_name']}.{record.value['source']['table_name']}"
                        (reads if record.value["op"] == "r" else changes)[name, record.key["pk"]] += 1

    def change(table: str, pk: int) -> Callable[[], bool]:
        """Writes a logged change; whether it came."""
        scylla.apply(Insert(table, {"pk": pk, "a": 2}))
        return lambda: changes[table, pk] > 0

    config = {
        "topic.prefix": "s",
        "scylla.cluster.ip.addresses": scylla.address,
        "scylla.table.names": f"{first},{later}",
        "scylla.confidence.window.size": "1000",
        "scylla.window.min.ms": "50",
        "snapshot.mode": "initial",
        "heartbeat.interval.ms": "50",
        "scylla.discovery.interval.ms": "200",
        "snapshot.new.tables": str(read_new).lower(),
    }
    create(first)
    create(later)
    insert(first, *range(5))
    offsets = SavedOffsets()
    expected_reads = Counter({(first, pk): 1 for pk in range(5)})

    def ids(table: str) -> set[str]:
        return {
            offset["table_id"]
            for partition, offset in offsets.items()
            if is_snapshot(partition) and f"{partition['keyspace_name']}.{partition['table_name']}" == table
        }

    def made_again(table: str, old: set[str]) -> Callable[[], bool]:
        """Whether the snapshot of the new table is over, and nothing is saved of the old one."""
        return lambda: bool(ids(table)) and not ids(table) & old and finished(offsets, table)

    async with Run(ScyllaConnector, config, offsets=offsets, max_tasks=2) as run:
        await take_until(run, lambda: finished(offsets, first) and finished(offsets, later))
        assert reads == expected_reads
        # A table that is recreated without cdc, filled, and gets cdc then.
        old = ids(later)
        scylla.drop_table(later)
        create(later, "")
        insert(later, *range(10, 15))
        scylla.alter_table(f"ALTER TABLE {later} WITH cdc = {{'enabled': true}}")
        if scylla.emulated:
            insert(later, 15)  # as by a node that does not know of cdc yet
        await take_until(run, made_again(later, old))
        await take_until(run, change(later, 100))
        expected_reads.update((later, pk) for pk in range(10, 16 if scylla.emulated else 15) if read_new)
        assert reads == expected_reads
        # A table that is dropped and recreated with cdc.
        old = ids(first)
        scylla.drop_table(first)
        create(first)
        insert(first, *range(20, 25))
        await take_until(run, made_again(first, old))
        await take_until(run, change(first, 101))
        expected_reads.update((first, pk) for pk in range(20, 25) if read_new)
        assert reads == expected_reads
    # The list is longer, and streams are of a new generation.
    create(third)
    insert(third, *range(30, 35))
    if not tablets and scylla.emulated:
        scylla.new_generation()
    config["scylla.table.names"] = f"{first},{later},{third}"
    async with Run(ScyllaConnector, config, offsets=offsets, max_tasks=3) as run:
        await take_until(run, lambda: finished(offsets, third))
        for number, table in enumerate((first, later, third), 102):
            await take_until(run, change(table, number))
    expected_reads.update((third, pk) for pk in range(30, 35) if read_new)
    assert reads == expected_reads
