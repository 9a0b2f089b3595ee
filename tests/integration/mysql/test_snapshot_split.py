"""Tables without a key that several connections read by ranges of a column, on a real MariaDB."""

from __future__ import annotations

import asyncio
import random
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pytest

from connectors.mysql.snapshot.model import SnapshotSettings
from connectors.mysql.snapshot.reading.views import Views
from connectors.snapshot.requests import SnapshotRequest

if TYPE_CHECKING:
    from connectors.mysql.model import BinlogPosition
    from tests.integration.mysql.snapshot_live import Live

_MIXED = "ELT(seq % 5 + 1, -9223372036854775808, 9223372036854775807, seq, -CAST(seq AS SIGNED), NULL)"
#: Tables by what they show: definition of the column, its value in the row number seq.
DIVIDED = {
    "by_signed": ("BIGINT NULL, INDEX (c)", _MIXED),
    "by_unsigned": ("BIGINT UNSIGNED NULL", "ELT(seq % 3 + 1, 18446744073709551615, seq, NULL)"),
    "by_flag": ("TINYINT NOT NULL", "seq % 2"),
    "by_decimal": ("DECIMAL(30,10) NULL, INDEX (c)", "(500 - CAST(seq AS SIGNED)) / 7"),
    "by_float": ("FLOAT NULL", "(500 - CAST(seq AS SIGNED)) / 7"),
    "by_double": (
        "DOUBLE NULL, INDEX (c)",
        "ELT(seq % 3 + 1, 1.7976931348623157e308, -1.7976931348623157e308, seq / 7)",
    ),
    "by_date": ("DATE NULL", "IF(seq % 9, '2020-02-27' + INTERVAL seq DAY, '0000-00-00')"),
    "by_time": ("DATETIME(6) NULL, INDEX (c)", "IF(seq % 9, '2020-02-29 23:59:59.5' + INTERVAL seq SECOND, NULL)"),
    "by_stamp": ("TIMESTAMP(3) NULL", "IF(seq % 9, FROM_UNIXTIME(1e9 + seq * 1000.125), '0000-00-00')"),
}
#: Those that one connection reads.
WHOLE = {
    "by_constant": ("INT NULL, INDEX (c)", "7"),
    "by_null": ("INT NULL", "NULL"),
    "by_text": ("VARCHAR(20)", "seq"),
    "by_missing": ("INT, x INT DEFAULT 0", "seq"),
    "by_key": ("INT, n INT AUTO_INCREMENT PRIMARY KEY", "seq"),
}


def request() -> SnapshotRequest:
    return SnapshotRequest(id="one", tables=[".*"], origin="initial")


def test_each_row_comes_once_whatever_the_column_holds(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    live.sql("SET sql_mode = ''")
    for table, (column, value) in (DIVIDED | WHOLE).items():
        # Every row is there twice.
        live.sql(
            f"CREATE TABLE {table} (v INT, c {column})",
            f"INSERT INTO {table} (v, c) SELECT seq DIV 2, {value} FROM seq_2_to_601",
        )
    options = f"{live.database}\\.by_missing:nowhere;{live.database}\\..*:c"

    async def play() -> int:
        running = await live.run([request()], SnapshotSettings(threads=3, chunk_rows=37, split_columns=options))
        for table in DIVIDED | WHOLE:
            replayed = sorted(repr(row) for row in live.replayed_rows(table))
            assert replayed == sorted(repr(row) for row in await live.contents(table)), table
        return len(running.connections)

    connections = asyncio.run(play())
    # Two more for each table that is divided, next to the one that looks for tables and those of the three readers. MySQL,
    # whose views report no position, needs connections for locks, too.
    assert connections - 2 * len(DIVIDED) >= 2
    assert live.mysql or connections - 2 * len(DIVIDED) <= 4
    assert "by_missing has no column nowhere; name one of v, c, x" in caplog.text
    assert "by_text.c is of the type varchar, which can't be divided" in caplog.text
    assert "by_key: it has a key and is divided by that; snapshot.split.columns has no effect" in caplog.text


@pytest.mark.parametrize(
    "way", ["same place", "lock", "lock, no places of views", "one connection", "one connection, no places of views"]
)
def test_what_is_written_meanwhile_comes_exactly_once(
    live: Live, way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    live.sql(
        "CREATE TABLE other (v INT)",
        "CREATE TABLE k (v INT NULL, t VARCHAR(40), INDEX (v))",
        # Many rows are there twice.
        "INSERT INTO k SELECT IF(seq % 10, CAST(seq AS SIGNED) DIV 2 - 700, NULL), IF(seq % 4 < 2, 'twin', seq) "
        "FROM seq_1_to_3000",
    )
    _arrange(live, way, monkeypatch)
    chance = random.Random(3)

    def write() -> None:
        connection = live.connected()
        with connection.cursor() as cursor:
            cursor.execute(f"USE `{live.database}`")
            for number in range(150):
                cursor.execute(
                    chance.choice(
                        (
                            (
                                f"INSERT INTO k VALUES ({10_000 + number}, 'new'), ({-20_000 - number}, 'new'), "
                                f"(NULL, 'new{number}')"
                            ),
                            f"DELETE FROM k WHERE v BETWEEN {chance.randrange(700)} AND 800 ORDER BY v LIMIT 3",
                            # Rows move to other ranges.
                            f"UPDATE k SET v = -v, t = 'n{number}' WHERE v % 300 = {chance.randrange(300)}",
                            f"UPDATE k SET v = {chance.randrange(800)} WHERE v IS NULL LIMIT 2",
                        )
                    )
                )
        connection.close()

    async def play() -> int:
        settings = SnapshotSettings(
            threads=3,
            chunk_rows=100,
            locks="one connection" not in way,
            settle_s=0.02,
            split_columns=f"{live.database}\\.k:v",
        )
        running = await live.run([request()], settings, writing=write)
        replayed = sorted((str(row["v"]), row["t"]) for row in live.replayed_rows("k"))
        assert replayed == sorted((str(row["v"]), row["t"]) for row in await live.contents("k"))
        (shown,) = [table for table in running.reader.progress()[0]["tables"] if table["table"].endswith(".k")]
        assert (shown["state"], shown["percent"]) == ("done", 100.0)
        assert shown["rows_done"] >= 2900
        return max(read for name, read in live.chunks if name == "k")

    assert asyncio.run(play()) <= 100
    assert ("one connection reads it instead of 3" in caplog.text) == ("one connection" in way)


def _arrange(live: Live, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the views have one place or different ones, as on a quiet or a busy server, or none."""
    views_of, open_view = Views.of, Views.open
    turns = asyncio.Lock()
    # Without a lock and without positions a view waits for a moment without writes.
    exact = "no places" not in way and not live.mysql
    meanwhile = iter(
        ["INSERT INTO k VALUES (1, 'late')"] * 3
        if "one connection" in way and not exact
        else repeat("INSERT INTO other VALUES (1)")
    )

    async def of(*args: Any) -> Views:
        views = await views_of(*args)
        views.exact = exact
        return views

    async def open_in_turns(self: Views, connection: Any, low: BinlogPosition, **more: Any) -> BinlogPosition | None:
        async with turns:
            view = await open_view(self, connection, low, **more)
            if statement := next(meanwhile, ""):
                live.sql(statement)
            return view

    monkeypatch.setattr(Views, "of", of)
    if way != "same place":
        monkeypatch.setattr(Views, "open", open_in_turns)
