"""A task on a real server: every snapshot mode, signals, heartbeats, what REST tells of tables and lag."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.databases.mysql_debian import MySqlServer
from compose.local.databases.server_pair import execute_sql
from compose.local.mariadb import MariaDb
from connectors.errors import Fatal
from connectors.mysql.connector import MySqlConnector
from connectors.mysql.stream.latency import TOTAL_SECONDS
from connectors.testing.contexts import SavedOffsets
from connectors.testing.driver import Run
from tests.integration.mysql.dialect import is_mysql, spoken
from worker.fetch.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from connectors.api import SourceRecord


class Source:
    """A server of its own, since binlogs are purged here."""

    def __init__(self, server: MariaDb | MySqlServer) -> None:
        self.server = server
        self.run(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.a (id INT PRIMARY KEY, v INT)",
            "INSERT INTO shop.a VALUES (1, 1), (2, 2)",
        )

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """The rows of the last statement."""
        mysql = is_mysql(self.server)
        return list(execute_sql(self.server, *(spoken(statement, mysql=mysql) for statement in statements)))

    def config(self, **more: str) -> dict[str, str]:
        return {
            "connector.class": "mysql",
            "topic.prefix": "p",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": self.server.user,
            "database.password": self.server.password,
            "database.include.list": "shop",
            "include.schema.changes": "false",
            "poll.interval.ms": "20",
            **more,
        }


@pytest.fixture(params=[MariaDb, pytest.param(MySqlServer, marks=pytest.mark.slow)])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    server = request.param(tmp_path_factory.mktemp("modes"), port=None, durable=False)
    try:
        _ = server.service
    except Unavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield Source(server)


def changes(records: list[SourceRecord]) -> list[tuple[str, int]]:
    """Operation and key of each event of the table."""
    return [
        (record.value["op"], record.key["id"])
        for record in records
        if record.topic == "p.shop.a" and record.value is not None
    ]


async def until(run: Run, condition: Callable[[list[SourceRecord]], object], limit: float = 20.0) -> list[SourceRecord]:
    """Records until they are what is waited for."""
    records: list[SourceRecord] = []
    end = asyncio.get_running_loop().time() + limit
    while not condition(records):
        batch = await run.take(end - asyncio.get_running_loop().time())
        assert batch is not None, f"{changes(records)}\n{run.log.text()}"
        records += batch[1].records
    return records


async def test_every_mode(source: Source) -> None:
    saved = SavedOffsets()
    async with Run(MySqlConnector, source.config(**{"snapshot.mode": "no_data"}), offsets=saved) as run:
        assert await run.take(20) is not None
        source.run("INSERT INTO shop.a VALUES (3, 3)")
        assert changes(await until(run, len)) == [("c", 3)]
    async with Run(MySqlConnector, source.config(**{"snapshot.mode": "initial"}), offsets=saved) as run:
        source.run("INSERT INTO shop.a VALUES (4, 4)")
        assert changes(await until(run, len)) == [("c", 4)]  # it has positions: nothing is pulled
    async with Run(MySqlConnector, source.config(**{"snapshot.mode": "always"}), offsets=saved) as run:
        assert changes(await until(run, lambda records: len(records) == 4)) == [
            ("r", number) for number in (1, 2, 3, 4)
        ]
    only = SavedOffsets()
    async with Run(MySqlConnector, source.config(**{"snapshot.mode": "initial_only"}), offsets=only) as run:
        read = changes(await until(run, lambda records: len(records) == 4))
        assert read == [("r", number) for number in (1, 2, 3, 4)]
        source.run("INSERT INTO shop.a VALUES (5, 5)")
        rest: list[SourceRecord] = []
        while (batch := await run.take(2)) is not None:
            rest += batch[1].records
        assert ("r", 5) not in changes(rest)
        assert "asks for nothing more" in run.log.text()
    async with Run(MySqlConnector, source.config(**{"snapshot.mode": "never"})) as run:
        assert changes(await until(run, lambda records: ("c", 5) in changes(records))) == [
            ("c", number) for number in range(1, 6)
        ]


async def test_a_purged_position_is_fatal_or_leads_to_a_new_snapshot(source: Source) -> None:
    saved = SavedOffsets()
    async with Run(MySqlConnector, source.config(), offsets=saved) as run:
        await until(run, lambda records: len(records) == 2)
    source.run(
        "FLUSH BINARY LOGS", "INSERT INTO shop.a VALUES (3, 3)", "FLUSH BINARY LOGS", "INSERT INTO shop.a VALUES (4, 4)"
    )
    last = source.run("SHOW BINARY LOGS")[-1][0]
    end = asyncio.get_running_loop().time() + 20
    while len(source.run(f"PURGE BINARY LOGS TO '{last}'", "SHOW BINARY LOGS")) > 1:
        assert asyncio.get_running_loop().time() < end  # the server has not yet noticed that its reader is gone
        source.run("FLUSH BINARY LOGS")
        last = source.run("SHOW BINARY LOGS")[-1][0]
        await asyncio.sleep(0.05)
    async with Run(MySqlConnector, source.config(), offsets=saved.copy()) as run:
        with pytest.raises(Fatal, match=r"when_needed|purged|reset"):
            await until(run, lambda _records: False)
    async with Run(MySqlConnector, source.config(**{"snapshot.mode": "when_needed"}), offsets=saved) as run:
        read = changes(await until(run, lambda records: len(records) >= 4))
        assert read == [("r", number) for number in (1, 2, 3, 4)]


async def test_the_position_of_a_server_that_was_reset_is_not_read(source: Source) -> None:
    """Its files have the same names again, with other events at the position, or a part of one."""
    saved = SavedOffsets()
    async with Run(MySqlConnector, source.config(), offsets=saved) as run:
        await until(run, lambda records: len(records) == 2)
        source.run(*(f"UPDATE shop.a SET v = {number} WHERE id = 1" for number in range(100, 120)))
        await until(run, lambda records: len(changes(records)) == 20)
    source.run(
        "RESET MASTER" if not is_mysql(source.server) else "RESET BINARY LOGS AND GTIDS",
        f"INSERT INTO shop.a VALUES {', '.join(f'({number}, 1)' for number in range(1000, 3000))}",
        "FLUSH BINARY LOGS",
        "INSERT INTO shop.a VALUES (3, 3)",
    )
    async with Run(MySqlConnector, source.config(), offsets=saved.copy()) as run:
        with pytest.raises(Fatal, match=r"has not executed .* RESET MASTER, .*when_needed"):
            await until(run, lambda _records: False)
    async with Run(MySqlConnector, source.config(**{"snapshot.mode": "when_needed"}), offsets=saved) as run:
        read = changes(await until(run, lambda records: len(records) >= 2003))
        assert read == [("r", number) for number in (1, 2, 3, *range(1000, 3000))]


async def test_signals_progress_and_versions(source: Source) -> None:
    source.run(
        "CREATE TABLE shop.signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)",
        "USE shop",
        "INSERT INTO a SELECT seq, seq FROM seq_3_to_50",
    )
    properties = source.config(
        **{
            "snapshot.mode": "no_data",
            "signal.data.collection": "shop.signals",
            "table.include.list": "shop.a",
            "snapshot.progress.topic": "progress",
            "snapshot.chunk.rows": "10",
            "table.version.topic": "versions",
        }
    )
    saved = SavedOffsets()
    async with Run(MySqlConnector, properties, offsets=saved) as run:
        assert await run.take(20) is not None
        # A table is listed before it has changed.
        assert await MySqlConnector.tables(run.context.config, saved.items()) == [
            {"table": name, "version": 1, "versions": []} for name in ("shop.a", "shop.signals")
        ]
        order = {
            "data-collections": ["shop.a"],
            "additional-conditions": [{"data-collection": "shop.a", "filter": "id > 5"}],
        }
        source.run(f"INSERT INTO shop.signals VALUES ('s', 'execute-snapshot', '{json.dumps(order)}')")
        records = await until(
            run,
            lambda records: any(
                record.topic == "progress" and record.value["state"] == "completed" for record in records
            ),
        )
        pulled = [record for record in records if record.topic == "p.shop.a"]
        assert changes(records) == [("r", number) for number in range(6, 51)]
        assert {record.value["source"]["snapshot"] for record in pulled} == {"incremental"}
        (shown,) = MySqlConnector.snapshots(run.context.config, [], saved.items())
        assert (shown["state"], shown["origin"], shown["rows_done"]) == ("completed", "signal", 45)
        source.run(
            "INSERT INTO shop.a VALUES (51, 51)",
            "ALTER TABLE shop.a ADD COLUMN w INT",
            "UPDATE shop.a SET w = 1 WHERE id = 1",
        )
        records = await until(run, lambda records: ("u", 1) in changes(records))
        versions = [record.value for record in records if record.topic == "versions"]
        assert [
            (version["version"], [change["column"] for change in version["changes"]]) for version in versions[-1:]
        ] == [(2, ["w"])]
        assert "ADD COLUMN w" in versions[-1]["statement"]
        tables = await MySqlConnector.tables(run.context.config, saved.items())
        assert {table["table"]: table["version"] for table in tables} == {"shop.a": 2, "shop.signals": 1}
    async with Run(MySqlConnector, properties, offsets=saved) as run:
        assert await run.take(20) is not None
        source.run("UPDATE shop.a SET w = 2 WHERE id = 1")
        # What was asked for by a signal is not done twice.
        assert changes(await until(run, changes)) == [("u", 1)]


async def test_a_signal_names_the_time_at_which_its_snapshot_begins(source: Source) -> None:
    source.run("CREATE TABLE shop.signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)")
    properties = source.config(**{"snapshot.mode": "no_data", "signal.data.collection": "shop.signals"})
    saved = SavedOffsets()
    begins = datetime.now(UTC) + timedelta(seconds=4)
    order = {"data-collections": ["shop.a"], "start_at": begins.replace(tzinfo=None).isoformat(timespec="milliseconds")}

    async with Run(MySqlConnector, properties, offsets=saved) as run:
        assert await run.take(20) is not None
        source.run(f"INSERT INTO shop.signals VALUES ('s', 'execute-snapshot', '{json.dumps(order)}')")
        end = asyncio.get_running_loop().time() + 20
        while not any("snapshot" in partition for partition, _ in saved.items()):
            assert await run.take(end - asyncio.get_running_loop().time()) is not None, run.log.text()
        assert begins.timestamp() > time.time(), "the machine was too slow for the test"
        (shown,) = MySqlConnector.snapshots(run.context.config, [], saved.items())
        assert (shown["state"], shown["start_ms"]) == ("scheduled", int(begins.timestamp() * 1000))
    # It waits on after a restart.
    async with Run(MySqlConnector, properties, offsets=saved) as run:
        assert changes(await until(run, lambda records: len(changes(records)) == 2)) == [("r", 1), ("r", 2)]
        assert time.time() >= begins.timestamp()


async def test_the_binlog_place_can_be_set_by_a_signal(source: Source) -> None:
    source.run("CREATE TABLE shop.signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)")
    properties = source.config(
        **{"snapshot.mode": "no_data", "signal.data.collection": "shop.signals", "table.include.list": "shop.a"}
    )
    async with Run(MySqlConnector, properties) as run:
        assert await run.take(20) is not None
        file, pos, *_ = source.run("SHOW MASTER STATUS")[0]
        source.run("INSERT INTO shop.a VALUES (10, 1)")
        assert changes(await until(run, len)) == [("c", 10)]
        source.run(
            "INSERT INTO shop.signals VALUES ('b', 'set-binlog-position', "
            f"'{json.dumps({'binlog_filename': file, 'binlog_position': pos})}')",
            "DELETE FROM shop.signals",
        )
        assert changes(await until(run, changes)) == [("c", 10)]  # it comes again
        # The stream comes by the signal again, too, and does not obey it a second time.
        for key in (11, 12):
            source.run(f"INSERT INTO shop.a VALUES ({key}, 1)")
            assert changes(await until(run, changes)) == [("c", key)]


async def test_a_set_binlog_place_keeps_what_was_decided_and_not_yet_committed(source: Source) -> None:
    source.run("CREATE TABLE shop.signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)")
    properties = source.config(
        **{"signal.data.collection": "shop.signals", "snapshot.include.collection.list": "shop.[ab]"}
    )
    saved = SavedOffsets()
    async with Run(MySqlConnector, properties, offsets=saved) as run:
        assert await run.take(20) is not None
        # As in a worker that has committed nothing since the task's first batch.
        run.tasks[0].context.offsets = saved.copy()
        assert changes(await until(run, lambda records: ("r", 2) in changes(records))) == [("r", 1), ("r", 2)]
        source.run("CREATE TABLE shop.b (id INT PRIMARY KEY)", "INSERT INTO shop.b VALUES (1)")
        await until(run, lambda records: any(record.topic == "p.shop.b" for record in records))
        file, pos, *_ = source.run("SHOW MASTER STATUS")[0]
        source.run(
            "INSERT INTO shop.a VALUES (10, 1)",
            "INSERT INTO shop.signals VALUES ('b', 'set-binlog-position', "
            f"'{json.dumps({'binlog_filename': file, 'binlog_position': pos})}')",
            "DELETE FROM shop.signals",
        )
        assert changes(await until(run, changes)) == [("c", 10)]
        # It comes again, and neither the first snapshot nor one of the table that is new since then does.
        assert changes(await until(run, changes)) == [("c", 10)]
        source.run("INSERT INTO shop.a VALUES (11, 1)")
        records = await until(run, lambda records: ("c", 11) in changes(records))
        assert [record.value["op"] for record in records if record.topic == "p.shop.b"] == []
        requests = {
            partition["snapshot"]: offset["state"] for partition, offset in saved.items() if "snapshot" in partition
        }
        assert requests == {"initial": "completed"}


async def test_no_position_behind_a_truncation_is_saved_before_its_record(source: Source) -> None:
    properties = source.config(
        **{
            "snapshot.mode": "no_data",
            "max.batch.size": "1",
            "provide.transaction.metadata": "true",
            "skipped.operations": "none",
        }
    )
    async with Run(MySqlConnector, properties) as run:
        assert await run.take(20) is not None
        source.run("INSERT INTO shop.a VALUES (10, 1)", "TRUNCATE shop.a")
        saved: list[tuple[str, int]] = []
        while True:
            batch = await run.take(20)
            assert batch is not None, run.log.text()
            truncations = [record for record in batch[1].records if (record.value or {}).get("op") == "t"]
            if truncations:
                break
            offsets = [record.source_offset for record in batch[1].records] + [offset for _, offset in batch[1].offsets]
            saved += [(offset["file"], offset["pos"]) for offset in offsets if offset is not None and "file" in offset]
        assert saved
        behind = truncations[0].source_offset
        assert max(saved) < (behind["file"], behind["pos"])


async def test_heartbeats_travel_the_whole_way(source: Source) -> None:
    properties = source.config(
        **{"snapshot.mode": "no_data", "heartbeat.table": "beat.heartbeat", "heartbeat.interval.ms": "200"}
    )
    saved = SavedOffsets()
    async with Run(MySqlConnector, properties, offsets=saved) as run:
        end = asyncio.get_running_loop().time() + 30
        seen = False
        while TOTAL_SECONDS not in run.metrics.values or not seen:
            batch = await run.take(end - asyncio.get_running_loop().time())
            assert batch is not None, run.log.text()
            seen = seen or any(record.topic == "__debezium-heartbeat.p" for record in batch[1].records)
            # As the runtime does once Kafka has it all.
            await run.tasks[0].committed(
                [(partition, offset) for partition, offset in batch[1].offsets if offset is not None]
            )
        assert run.metrics.values[TOTAL_SECONDS] > 0
        while not any(
            "lag" in partition and json.loads(offset["heartbeat"])["acknowledged_us"]
            for partition, offset in saved.items()
        ):
            batch = await run.take(end - asyncio.get_running_loop().time())
            assert batch is not None, run.log.text()
            await run.tasks[0].committed(
                [(partition, offset) for partition, offset in batch[1].offsets if offset is not None]
            )
        lag = await MySqlConnector.lag(run.context.config, saved.items())
        assert lag["heartbeat"]["stages"]["total_s"] > 0
        assert lag["bytes_behind"] is not None
        assert lag["position"]["file"] == lag["source_position"]["file"]
