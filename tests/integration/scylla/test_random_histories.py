"""Random writes through the emulation, read with random windows, stops, crashes and new generations.

What must hold: the partition updates fold to the base table; in per-row form each change comes exactly once and in order, with
pre and post images that belong to it. Each example uses a table of its own in the shared emulation, and the connector runs in
this process.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from compose.local.scylla.writes import Append, Delete, DeleteRange, Insert, Prepend, Remove, SetAt, Update
from connectors.formats.partition_update_codec import decode_update
from connectors.formats.timeuuid import format_uuid
from connectors.scylla.connector import ScyllaConnector
from connectors.scylla.model import Generation, ScyllaColumn, StreamGroup, TableId
from connectors.scylla.positions import first_position, source_offset, source_partition, stream_text
from connectors.testing.contexts import SavedOffsets
from connectors.testing.driver import Run
from tests.support.partition_merge import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from compose.local.scylla.client import Emulation
    from compose.local.scylla.writes import Write
    from connectors.api import SourceRecord

COLUMNS = (
    "pk int, ck int, v text, n bigint, st text static, m map<text, int>, l list<int>, s set<text>, u frozen<pair>, "
    "PRIMARY KEY (pk, ck)"
)
#: Seeds do not shrink to anything simpler.
_LIMITS = settings(
    max_examples=int(os.environ.get("MILLRACE_EXAMPLES", "4")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
#: An incarnation ends when nothing has come for so long, seconds: once something has.
_QUIET_S = 1.5
#: For so long nothing new may come while something is missing, seconds; tells "slowly" from "never".
_PATIENCE_S = 90.0


def random_write(chance: random.Random, table: str) -> Write:
    """One write of any kind to one of a few rows."""
    pk, ck = chance.randrange(4), chance.randrange(4)
    key, letter = {"pk": pk, "ck": ck}, chance.choice("abc")
    kind = chance.randrange(14)
    if kind <= 2:
        values: dict[str, Any] = {"v": chance.choice([None, "x", "y", ""]), "n": chance.randrange(100)}
        if chance.random() < 0.4:
            values |= {"m": {letter: 1, "z": 2}, "l": [1, 2, 3], "s": {letter, "q"}, "u": {"a": 1, "b": letter}}
        return Insert(table, {**key, **values})
    simple: list[Write] = [
        Update(table, key, {"v": chance.choice(["u1", "u2", None])}),
        Update(table, {"pk": pk}, {"st": chance.choice(["s1", None])}),
        Update(table, key, {"m": Append({letter: chance.randrange(9)}), "s": Append({letter})}),
        Update(table, key, {"m": Remove({letter}), "s": Remove({letter})}),
        Update(table, key, {"l": chance.choice([Append([7]), Prepend([8]), [4, 5]])}),
        Update(table, key, {"m": SetAt(letter, 5), "n": 1}),
        Update(table, key, {"m": None, "s": {"only"}}),
        Delete(table, key),
        Delete(table, key, columns=("n", "m")),
        Delete(table, {"pk": pk}),
        DeleteRange(
            table,
            {"pk": pk},
            lower=ck,
            upper=ck + 1,
            lower_inclusive=chance.random() < 0.5,
            upper_inclusive=chance.random() < 0.5,
        ),
    ]
    return simple[kind - 3]


def disjoint_writes(chance: random.Random, table: str) -> list[Write]:
    """One write, or a batch of several of which no two touch the same row.

    What the log and images of a row say that one batch changes twice is not laid down (a real Scylla splits such a change).
    """
    writes: list[Write] = []
    rows: set[tuple[int, int]] = set()
    partitions: set[int] = set()
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        write = random_write(chance, table)
        cells = write.values if isinstance(write, Insert) else write.key
        pk, ck = cells["pk"], cells.get("ck")
        if pk in partitions or (ck is None and any(row[0] == pk for row in rows)) or (pk, ck) in rows:
            continue
        if ck is None:
            partitions.add(pk)
        else:
            rows.add((pk, ck))
        writes.append(write)
    return writes


class History:
    """A table, what is written to it, and what the connector makes of it over its restarts."""

    def __init__(self, client: Emulation, keyspace: str, seed: int, **options: str) -> None:
        self.client = client
        self.chance = random.Random(seed)
        self.full = f"{keyspace}.t{secrets.token_hex(4)}"
        self.offsets = SavedOffsets()
        self.records: list[SourceRecord] = []
        self.written: set[tuple[str, str]] = set()
        self.config = {
            "topic.prefix": "h",
            "scylla.cluster.ip.addresses": client.address,
            "scylla.table.names": self.full,
            # In the emulation what is written can be read at once.
            "scylla.confidence.window.size": "0" if client.emulated else "5000",
            "scylla.window.min.ms": str(self.chance.choice([20, 100, 700])),
            "scylla.query.options.fetch.size": str(self.chance.choice([1, 2, 3, 7, 500])),
            "scylla.streams.per.query": str(self.chance.choice([1, 3, 32])),
            "max.batch.size": str(self.chance.choice([1, 3, 2048])),
            "scylla.discovery.interval.ms": "100",
            "heartbeat.interval.ms": "50",
            **options,
        }

    def create(self, images: bool) -> None:
        """Create the table, to be read from the newest generation on: the shared server has had many.

        Not by a look-back: if an incarnation ends before anything is saved, the next one would compute it from a later time.
        """
        keyspace = self.full.partition(".")[0]
        self.client.create_type(f"CREATE TYPE IF NOT EXISTS {keyspace}.pair (a int, b text)")
        cdc = "{'enabled': true, 'preimage': 'full', 'postimage': true}" if images else "{'enabled': true}"
        self.client.create_table(f"CREATE TABLE {self.full} ({COLUMNS}) WITH cdc = {cdc}")
        self.begin_at_newest_generation()

    def begin_at_newest_generation(self) -> None:
        """Save such an offset for the table."""
        table = self.client.table(self.full)
        if not self.client.emulated:
            self.config["scylla.initial.lookback.ms"] = "300000"
        elif not table.tablets:
            newest = Generation(self.client.generations()[-1])
            group = StreamGroup(TableId(table.keyspace, table.name), newest, "0", tablets=False, streams=())
            self.offsets.put(source_partition(group), source_offset(first_position(group)))

    def write(self, count: int) -> None:
        """Some statements and batches."""
        for _ in range(count):
            for logged in self.client.apply(*disjoint_writes(self.chance, self.full)).logged:
                self.written.add((stream_text(logged.stream), format_uuid(logged.time)))

    def change_topology(self) -> None:
        """A new generation, or another number of tablets; a real Scylla's topology is left alone."""
        if not self.client.emulated:
            return
        if self.client.table(self.full).tablets:
            self.client.split_tablets(self.full, self.chance.choice([1, 2, 4, 8]))
        else:
            self.client.new_generation(vnodes=self.chance.choice([1, 3, 4]), shards=self.chance.choice([1, 2]))

    async def read(self, done: Callable[[], bool], *, tasks: int) -> None:
        """One incarnation: until ``done``, or a stop at a random moment (a crash: a batch under way is thrown away)."""
        stop_after = self.chance.choice([0, 1, 2, 5, 10_000])
        run = Run(ScyllaConnector, self.config, offsets=self.offsets, max_tasks=tasks)
        async with run:
            batch_count, clock = 0, asyncio.get_running_loop().time
            # It makes progress however long its start takes: else a slow machine would restart it forever.
            started, quiet_at = False, clock() + _PATIENCE_S
            while not done() and batch_count < stop_after and clock() < quiet_at:
                task_batch = await run.take(0.5)
                if task_batch is None:
                    continue
                batch = task_batch[1]
                # Positions are given in quiet times too.
                if batch.records or (batch.offsets and not started):
                    started, quiet_at = True, clock() + _QUIET_S
                batch_count += bool(batch.records)
                assert not batch.bad, batch.bad
                self.records += batch.records

    async def go(self, rounds: int, missing: Callable[[], Collection[Any]], between: Callable[[], Any]) -> None:
        """Write and read in turns, then read what is left.

        Raises:
            AssertionError: something is still missing, and nothing new has come for long.
        """
        for _ in range(rounds):
            await asyncio.to_thread(self.write, self.chance.randrange(1, 12))
            if self.chance.random() < 0.5:
                await asyncio.to_thread(between)
            await self.read(done=lambda: False, tasks=self.chance.choice([1, 2, 5]))
        clock = asyncio.get_running_loop().time
        progress, moved_at = self.progress(), clock()
        while left := missing():
            await self.read(lambda: not missing(), tasks=self.chance.choice([1, 3]))
            if self.progress() != progress:
                progress, moved_at = self.progress(), clock()
            assert clock() - moved_at < _PATIENCE_S, self.report(left)

    def progress(self) -> tuple[int, int]:
        """Return counters that grow as long as records come or other generations are started, both of which end."""
        return len(self.records), len(self.offsets.items())

    def report(self, left: Collection[Any]) -> str:
        """Describe what is missing and the saved positions: after it (lost) or before it (not read yet)."""
        lines = [
            f"{len(self.records)} records came, and then none for {_PATIENCE_S:g} s; missing are {len(left)}:",
            *map(str, left),
            "saved positions:",
            *map(str, self.offsets.items()),
            f"configuration: {self.config}",
        ]
        return "\n".join(lines)


def contents(updates: Table) -> dict[tuple[Any, Any], dict[str, Any]]:
    """Rows by key, as the base table is shown."""
    by_key = {}
    for name, (static, rows) in updates.contents().items():
        (pk,) = updates.partitions[name].key
        for row in rows:
            by_key[pk, row["ck"]] = {"pk": pk, **static, **row}
    return by_key


@pytest.mark.parametrize("tablets", [pytest.param(False, marks=pytest.mark.slow), True], ids=["vnodes", "tablets"])
def test_partition_updates_fold_to_the_base_table(
    scylla: Emulation, scylla_keyspace: Callable[..., str], tablets: bool
) -> None:
    keyspace = scylla_keyspace(tablets=tablets)
    if scylla.emulated and not scylla.generations():
        scylla.new_generation()

    @given(seed=st.integers(0, 2**32))
    @_LIMITS
    def check(seed: int) -> None:
        history = History(scylla, keyspace, seed, **{"output.format": "partition-update"})
        history.create(images=history.chance.random() < 0.3)
        asyncio.run(folded(history))
        assert_folds(history)

    check()


async def folded(history: History) -> None:
    def missing() -> Collection[Any]:
        if not history.client.emulated:  # it is unknown which changes it logs
            return unlike(folded_rows(history), base_rows(history))
        return history.written - {position(record) for record in history.records}

    await history.go(3, missing, history.change_topology)


def position(record: SourceRecord) -> tuple[str, str]:
    """Stream and time of the change that a record is of."""
    return record.source_offset["change_id_stream_id"], record.source_offset["change_id_time"]


def assert_folds(history: History) -> None:
    """The fold is the base table, and no update came twice."""
    twice = [where for where, count in Counter(position(record) for record in history.records).items() if count > 1]
    assert not twice, f"came twice: {twice}"
    assert folded_rows(history) == base_rows(history)


def unlike(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> list[Any]:
    """Return the keys that differ, each with its two values."""
    return [(key, first.get(key), second.get(key)) for key in {**first, **second} if first.get(key) != second.get(key)]


def folded_rows(history: History) -> dict[tuple[Any, Any], dict[str, Any]]:
    """The rows that the events lead to."""
    keyspace, _, name = history.full.partition(".")
    table = Table(version_columns(history.client, TableId(keyspace, name)))
    for record in history.records:
        assert record.value_schema is not None
        table.apply(decode_update(record.value, record.value_schema))
    return simplified(contents(table))


def base_rows(history: History) -> dict[tuple[Any, Any], dict[str, Any]]:
    """The rows of the base table."""
    return simplified(
        {(row["pk"], row["ck"]): row for row in history.client.base_rows(history.full) if row["ck"] is not None}
    )


def simplified(rows: Mapping[tuple[Any, Any], Mapping[str, Any]]) -> dict[tuple[Any, Any], dict[str, Any]]:
    """Without nulls and empty collections, which a table does not tell apart; maps and sets in one form."""
    return {
        key: {name: plain(name, value) for name, value in row.items() if value not in (None, [])}
        for key, row in rows.items()
    }


def plain(name: str, value: Any) -> Any:
    """Maps as dicts by the key's ``repr``, sets sorted."""
    if name == "m" and isinstance(value, list):
        return {repr(entry["key"]): entry["value"] for entry in value}
    return sorted(value) if name == "s" else value


def version_columns(client: Emulation, table: TableId) -> list[ScyllaColumn]:
    """The table's columns as the merge wants them."""
    return [
        ScyllaColumn(column.name, column.type, column.kind, column.position, column.descending)  # type: ignore[arg-type]
        for column in client.table(str(table)).columns
    ]


@pytest.mark.parametrize("tablets", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["vnodes", "tablets"])
def test_every_change_comes_once_with_its_own_images(
    scylla: Emulation, scylla_keyspace: Callable[..., str], tablets: bool
) -> None:
    if not scylla.emulated:
        pytest.skip("what is to come is known from what the emulation logs")
    keyspace = scylla_keyspace(tablets=tablets)
    if not scylla.generations():
        scylla.new_generation()

    @given(seed=st.integers(0, 2**32))
    @_LIMITS
    def check(seed: int) -> None:
        history = History(
            scylla,
            keyspace,
            seed,
            **{
                "cdc.output.format": "advanced",
                "cdc.include.before": "full",
                "cdc.include.after": "full",
                "scylla.deletes.mode": "events",
                "tombstones.on.delete": "false",
            },
        )
        history.create(images=True)
        expected: Counter[tuple[str, str, int]] = Counter()
        apply = history.client.apply

        def recording(*writes: Write) -> Any:
            applied = apply(*writes)
            for logged in applied.logged:
                stream, time = stream_text(logged.stream), format_uuid(logged.time)
                # Deltas and deletes become events; of a range delete the row of its end gives it.
                expected.update(
                    (stream, time, int.from_bytes(row["cdc$batch_seq_no"], "big"))
                    for row in logged.rows
                    if row["cdc$operation"][0] not in {0, 5, 6, 9}
                )
            return applied

        def write(count: int) -> None:
            for _ in range(count):
                recording(*disjoint_writes(history.chance, history.full))

        history.write = write  # type: ignore[method-assign]

        def got() -> Counter[tuple[str, str, int]]:
            return Counter((*position(record), int(record.source_offset["batch_seq_no"])) for record in history.records)

        asyncio.run(history.go(3, lambda: expected - got(), history.change_topology))
        assert got() == expected
        assert_images_chain(history.records)

    check()


def assert_images_chain(records: list[SourceRecord]) -> None:
    """For each row in the order of write times: what a change found is what the one before it left."""
    left: dict[tuple[Any, Any], Any] = {}
    followed: set[tuple[Any, Any]] = set()
    for record in sorted(records, key=lambda record: record.value["source"]["ts_us"]):
        value, key = record.value, (record.key.get("pk"), record.key.get("ck"))
        if key[1] is None:  # static rows and deletes of many rows: what they leave behind is not followed
            followed.clear()
            continue
        if key in followed and value["before"] is not None:
            assert simple(value["before"]) == simple(left[key]), (key, value["before"], left[key])
        left[key] = value["after"]
        followed.add(key)


def simple(row: Mapping[str, Any] | None) -> dict[str, Any]:
    """Regular columns that hold something."""
    return {name: value for name, value in (row or {}).items() if value not in (None, []) and name != "st"}
