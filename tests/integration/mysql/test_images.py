"""Row images, rows without a key and transactions of any size, on a real server."""

from __future__ import annotations

import asyncio
import json
import resource
import threading
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from connectors.mysql.connector import MySqlConnector
from connectors.testing.driver import Run
from tests.integration.mysql.changes_world import LIMIT, Source, brief, contents, read_snapshot, rows_by_key, same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from connectors.api import SourceRecord
    from tests.conftest import HasMariaDb

TRANSACTION = 60_000
MEBIBYTE = 1024


@pytest.fixture
def source(server: HasMariaDb, unique: Callable[[str], str]) -> Iterator[Source]:
    source = Source(server, f"images_{unique('x')[-8:]}")
    yield source
    source.sql(f"DROP DATABASE {source.name}")
    source.link.close()


async def test_identical_rows_without_a_key_add_up_while_they_are_read(source: Source) -> None:
    source.sql("CREATE TABLE k (v INT, t VARCHAR(9))", "INSERT INTO k SELECT seq % 10, 'old' FROM seq_1_to_200")
    config = source.config(snapshot__mode="initial", snapshot__chunk__rows="20", snapshot__rate__rows="100")
    async with Run(MySqlConnector, config) as run:
        records: list[SourceRecord] = []
        while not any(record.topic.endswith(".k") for record in records):
            next_batch = await run.take(LIMIT)
            assert next_batch is not None, run.log.text()
            records += next_batch[1].records
        source.sql(
            "DELETE FROM k WHERE v < 5 LIMIT 60",
            "UPDATE k SET t = 'new' WHERE v > 2 LIMIT 50",
            "INSERT INTO k VALUES (3, 'old'), (3, 'old')",
            "DELETE FROM k WHERE t = 'new' LIMIT 20",
        )
        records += await read_snapshot(run) + await source.rest(run)
    rows: Counter[tuple[int, str]] = Counter()
    operations = Counter(record.value["op"] for record in records if record.topic.endswith(".k"))
    for record in records:
        if record.topic.endswith(".k"):
            before, after = record.value["before"], record.value["after"]
            if before is not None:
                rows[before["v"], before["t"]] -= 1
                assert min(rows.values()) >= 0, f"{record.value} takes away a row that was not sent"
            if after is not None:
                rows[after["v"], after["t"]] += 1
    assert +rows == Counter(source.sql("SELECT v, t FROM k"))
    assert operations == {"r": 200, "c": 2, "u": 50, "d": 80}


# Images of rows.


async def test_row_images(source: Source) -> None:
    """A column that the server does not log comes from the row before, or is null; never another column's value."""
    source.sql("CREATE TABLE t (a INT, k INT PRIMARY KEY, b VARCHAR(20), c BLOB, d TEXT NOT NULL)")
    full = {"a": 1, "k": 1, "b": "b", "c": b"c", "d": "d"}
    expected = {
        "FULL": [
            ("u", {"k": 1}, full, {**full, "a": 9}),
            ("u", {"k": 1}, {**full, "a": 9}, {**full, "a": 9, "d": "e"}),
            ("d", {"k": 1}, {**full, "a": 9, "d": "e"}, None),
            ("c", {"k": 2}, None, {**full, "a": 9, "k": 2, "d": "e"}),
            ("d", {"k": 2}, {**full, "a": 9, "k": 2, "d": "e"}, None),
        ],
        "NOBLOB": [
            ("u", {"k": 1}, {"a": 1, "k": 1, "b": "b"}, {"a": 9, "k": 1, "b": "b"}),
            ("u", {"k": 1}, {"a": 9, "k": 1, "b": "b"}, {"a": 9, "k": 1, "b": "b", "d": "e"}),
            ("d", {"k": 1}, {"a": 9, "k": 1, "b": "b"}, None),
            ("c", {"k": 2}, None, {"a": 9, "k": 2, "b": "b"}),
            ("d", {"k": 2}, {"a": 9, "k": 2, "b": "b"}, None),
        ],
        "MINIMAL": [
            ("u", {"k": 1}, {"k": 1}, {"a": 9, "k": 1}),
            ("u", {"k": 1}, {"k": 1}, {"k": 1, "d": "e"}),
            ("d", {"k": 1}, {"k": 1}, None),
            ("c", {"k": 2}, None, {"k": 2}),
            ("d", {"k": 2}, {"k": 2}, None),
        ],
    }
    for image, expected_changes in expected.items():
        records = await source.changes(
            f"SET SESSION binlog_row_image = {image}",
            "INSERT INTO t VALUES (1, 1, 'b', 'c', 'd')",
            "UPDATE t SET a = 9",
            "UPDATE t SET d = 'e'",
            "UPDATE t SET k = 2",
            "DELETE FROM t",
        )
        first, *others = brief(records)
        assert first == ("c", {"k": 1}, None, full), image
        assert others == expected_changes, image


async def test_generated_and_invisible_columns(source: Source) -> None:
    """The stream and the table give the same rows: generated columns stored or not, and invisible ones."""
    source.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL, s VARCHAR(20) AS (CONCAT('s', a)) STORED, "
        "h INT INVISIBLE DEFAULT 5, z VARCHAR(9))"
    )
    streamed = await source.changes(
        "INSERT INTO t (id, a, z) VALUES (1, 1, 'z'), (2, NULL, 'y')", "UPDATE t SET a = 7, h = 6 WHERE id = 1"
    )
    expected = [
        {"id": 1, "a": 7, "v": 8, "s": "s7", "h": 6, "z": "z"},
        {"id": 2, "a": None, "v": None, "s": None, "h": 5, "z": "y"},
    ]
    assert same(rows_by_key(streamed, "t").values(), expected)
    async with Run(MySqlConnector, source.config(snapshot__mode="initial")) as run:
        pulled = await read_snapshot(run)
    pulled = [record for record in pulled if record.topic.endswith(".t")]
    assert [record.value["after"] for record in pulled] == expected
    assert {record.value_schema for record in pulled} == {record.value_schema for record in streamed}


async def test_a_table_without_key_beside_a_writer(source: Source) -> None:
    """Whoever adds what comes and takes away what goes (if it is there) has each row as often as the table, alike ones too."""
    source.sql(
        "CREATE TABLE t (a INT, b VARCHAR(40))",
        f"INSERT INTO t SELECT seq % 700, CONCAT('x', seq) FROM {source.name}.seq_1_to_6000",
        f"INSERT INTO t SELECT -1, 'alike' FROM {source.name}.seq_1_to_900",
    )
    stopped = threading.Event()

    def write() -> None:
        with closing(source.connection()) as link, link.cursor() as cursor:
            cursor.execute(f"USE {source.name}")
            number = 0
            while not stopped.is_set():
                number += 1
                cursor.execute(
                    f"INSERT INTO t VALUES ({number % 700}, 'n{number}'), (-1, 'alike'), (-2, 'a'), (-2, 'a')"
                )
                cursor.execute(f"UPDATE t SET b = CONCAT(b, '!') WHERE a = {number * 13 % 700} LIMIT 2")
                cursor.execute(f"DELETE FROM t WHERE a = {number * 29 % 700} LIMIT 3")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        async with Run(MySqlConnector, source.config(snapshot__mode="initial", snapshot__chunk__rows="500")) as run:
            records = await read_snapshot(run)
            while {record.value["op"] for record in records} < set("rcud"):
                batch = await run.take(LIMIT)
                assert batch is not None, run.log.text()
                records += batch[1].records
            stopped.set()
            await asyncio.to_thread(writer.join)
            records += await source.rest(run)
    finally:
        stopped.set()
        writer.join()
    kept: Counter[str] = Counter()
    for record in records:
        if record.value is not None and record.topic.endswith(".t"):
            assert record.key is None
            before, after = (record.value[name] and json.dumps(record.value[name]) for name in ("before", "after"))
            if kept[before]:
                kept[before] -= 1
            kept[after] += after is not None
    assert +kept == Counter(map(json.dumps, contents(source, "t", "a", "b")))


# Size.


async def test_a_huge_transaction_is_not_held(source: Source) -> None:
    """Its records are handed over as its events come, whatever its size; and after a restart amid it, the rest of them."""
    source.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(99))")
    properties, start = await source.begin(max__batch__size="500")
    source.sql(f"INSERT INTO t SELECT seq, REPEAT('v', 60) FROM {source.name}.seq_1_to_{TRANSACTION}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sizes: list[int] = []
    keys: list[int] = []
    async with Run(MySqlConnector, properties, offsets=start) as run:
        while len(keys) < TRANSACTION // 2:
            batch = await run.take(LIMIT)
            assert batch is not None, run.log.text()
            sizes.append(len(batch[1].records))
            keys += [record.key["id"] for record in batch[1].records]
    async with Run(MySqlConnector, properties, offsets=start) as run:
        keys += [record.key["id"] for record in await source.rest(run, sizes)]
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{TRANSACTION} rows in batches of at most {max(sizes)}: the process grew by {growth / MEBIBYTE:.1f} MiB")
    assert keys == list(range(1, TRANSACTION + 1))
    # A batch ends with the event (8 KiB) that fills it.
    assert max(sizes) < 500 + 8192 // 60
