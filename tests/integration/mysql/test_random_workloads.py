"""Tables, rows and statements by chance on a real server: the events of a connector lead to what the server has."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from typing import TYPE_CHECKING, Any, Final

import pymysql
import pytest

from connectors.mysql.connector import MySqlConnector
from connectors.testing.contexts import SavedOffsets
from connectors.testing.driver import Run
from tests.integration.mysql.dialect import is_mysql
from tests.integration.mysql.random_columns import VALUE_OPTIONS
from tests.integration.mysql.random_fold import END, SIGNALS, Event, events_of, fold
from tests.integration.mysql.random_history import History

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from connectors.api import SourceRecord
    from tests.conftest import HasMariaDb

#: Seconds for the next batch.
LIMIT: Final = 60.0
#: Seconds without a batch after which a run is ended that is not the last one.
QUIET: Final = 2.0
#: Statements of a history.
STATEMENTS: Final = 150
#: Options of the connector, with the values that are drawn.
OPTIONS: Final = {
    "skipped.operations": ("none", "t"),
    "include.schema.changes": ("true", "false"),
    "include.query": ("true", "false"),
    "provide.transaction.metadata": ("true", "false", "false"),
    "tombstones.on.delete": ("true", "false"),
    "snapshot.chunk.rows": ("3", "10", "50", "1000"),
    "snapshot.max.threads": ("1", "2", "3"),
    "max.batch.size": ("1", "5", "40", "2048"),
    "binlog.buffer.size": ("0", "0", "0", "7"),
    "heartbeat.interval.ms": ("0", "0", "50"),
}
#: What the servers of tests are started with.
FULL: Final = {"binlog_row_metadata": "FULL"}
#: Seeds of every run, and those of the slow suite.
SEEDS: Final = (1, 2, 3)
SLOW_SEEDS: Final = tuple(range(4, 16))


class Workload:
    """A database, a connector's configuration and a history, all of one seed.

    Attributes:
        options: the forms of values.
        config: of the connector.
        layouts: how many tasks each run of it has.
        read: whether a snapshot reads what the tables hold at first.
        history: the writer.
        failure: what has ended it, if not its end.
    """

    def __init__(self, server: HasMariaDb, seed: int, folder: Path) -> None:
        self.chance = chance = random.Random(seed)
        self.server = server
        self.database = f"random_{seed}"
        self.options = {name: chance.choice((words[0], *words)) for name, words in VALUE_OPTIONS.items()}
        self.read = chance.random() < 0.6
        self.config = self._draw_config()
        self.layouts = [chance.choice((1, 1, 2, 3)) for _ in range(chance.randrange(1, 6))]
        if self.config["skipped.operations"] == "none" or self.config["provide.transaction.metadata"] == "true":
            self.layouts = [1] * len(self.layouts)  # these need all changes in one order
        self.run_sql(
            "",
            f"DROP DATABASE IF EXISTS {self.database}",
            f"CREATE DATABASE {self.database} CHARACTER SET utf8mb4",
            f"CREATE TABLE {self.database}.{END} (n INT PRIMARY KEY)",
        )
        self.variables = self._draw_variables()
        self.run_sql("", *(f"SET GLOBAL {name} = {value}" for name, value in self.variables.items()))
        images = ("FULL", "MINIMAL", "NOBLOB") if chance.random() < 0.3 else ("FULL",)
        self.history = History(
            self.connect, random.Random(f"{seed} history"), self.options, mysql=is_mysql(server), images=images,
            folder=folder,
        )  # fmt: skip
        if "signal.data.collection" in self.config:
            self.run_sql(
                None, f"CREATE TABLE {SIGNALS} (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)"
            )
            self.history.signals = SIGNALS
        self.history.alters = "binlog_row_metadata" not in self.variables
        self.history.create_tables(chance.randrange(2, 6), chance.choice((0, 40, 200)))
        self.failure: BaseException | None = None
        self.writer = threading.Thread(target=self._write, daemon=True)

    def _draw_config(self) -> dict[str, str]:
        return {
            "connector.class": "mysql",
            "topic.prefix": "p",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": self.server.user,
            "database.password": self.server.password,
            "database.include.list": self.database,
            "snapshot.mode": "initial" if self.read else "no_data",
            "poll.interval.ms": "20",
            **{name: self.chance.choice(values) for name, values in OPTIONS.items()},
            **self.options,
            **(
                {"signal.data.collection": f"{self.database}.{SIGNALS}"}
                if self.read and self.chance.random() < 0.5
                else {}
            ),
        }

    def _draw_variables(self) -> dict[str, str]:
        """The server's variables while this workload runs."""
        variables: dict[str, str] = {}
        if not is_mysql(self.server) and self.chance.random() < 0.3:
            variables |= {"log_bin_compress": "ON", "log_bin_compress_min_len": "10"}
        if self.chance.random() < 0.15:
            # Without names in the binlog those of the catalog have to fit: nothing is altered.
            variables["binlog_row_metadata"] = "MINIMAL" if is_mysql(self.server) else "NO_LOG"
        return variables

    def connect(self, database: str | None = None) -> pymysql.Connection[Any]:
        return pymysql.connect(
            host="127.0.0.1",
            port=int(self.server.port or 0),
            user=self.server.user,
            password=self.server.password,
            database=self.database if database is None else database or None,
            local_infile=True,
            autocommit=True,
            charset="utf8mb4",
        )

    def run_sql(self, database: str | None, *statements: str) -> None:
        link = self.connect(database)
        with link, link.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def _write(self) -> None:
        try:
            for _ in range(STATEMENTS):
                self.history.step()
            self.history.finish_all()
        except BaseException as error:  # noqa: BLE001 - raised by ``is_written``
            self.failure = error

    def is_written(self) -> bool:
        """Whether the history has come to its end."""
        if self.failure is not None:
            raise self.failure
        return self.writer.ident is not None and not self.writer.is_alive()

    def write_end(self, tasks: int) -> None:
        """Write a row for each task behind everything else: they divide rows by blocks of 4,096 numbers."""
        self.run_sql(None, f"INSERT INTO {END} VALUES " + ", ".join(f"({4096 * number})" for number in range(tasks)))

    def close(self) -> None:
        if self.writer.ident is not None:
            self.writer.join()
        self.history.close()
        self.run_sql("", *(f"SET GLOBAL {name} = {FULL.get(name, 'DEFAULT')}" for name in self.variables))
        self.run_sql("", f"DROP DATABASE IF EXISTS {self.database}")


def has_end(records: Sequence[SourceRecord]) -> bool:
    """Whether a task has come to the end of the history."""
    return any(
        record.value is not None and record.topic.endswith(END) and record.value["op"] == "c" for record in records
    )


def snapshots_done(run: Run, *, read: bool) -> bool:
    """Whether the tasks have read all tables; what is saved of another division into tasks doesn't count."""
    count = len(run.tasks)
    states = [
        offset["state"]
        for partition, offset in run.offsets.items()
        if "snapshot" in partition and str(partition.get("shard", "0/1")).endswith(f"/{count}")
    ]
    return (not read or len(states) >= count) and all(state == "completed" for state in states)


def acknowledge(run: Run, before: SavedOffsets, records: Sequence[SourceRecord], count: int) -> Sequence[SourceRecord]:
    """Let only about ``count`` records of the last batch be acknowledged; return those that are."""
    while count < len(records) and (
        records[count].value is None or any(header.key == "__debezium.oldkey" for header in records[count].headers)
    ):
        count += 1  # a row is done with the last of its records
    if count < len(records):
        run.offsets.saved = before.saved
        for record in records[:count]:
            run.offsets.put(record.source_partition, record.source_offset)
    return records[:count]


async def play(load: Workload) -> list[Event]:
    """Let the connector read while the history is written, stop it after any record and resume it; return its events."""
    saved, events = SavedOffsets(), list[Event]()
    for number, tasks in enumerate(load.layouts):
        stop = None if number == len(load.layouts) - 1 else load.chance.randrange(1, 120)
        async with Run(MySqlConnector, load.config, offsets=saved, max_tasks=tasks) as run:
            events += await _read_run(load, run, number, stop)
            assert not [line for level, line in run.log.lines if level >= 40], run.log.text()
    return events


async def _read_run(load: Workload, run: Run, number: int, stop: int | None) -> list[Event]:
    """The events of one run: up to ``stop`` records, or to the end of the history."""
    events: list[Event] = []
    count, ready, ended, at_end = 0, set[int](), set[int](), False
    while True:
        if stop is None and not at_end and load.is_written():
            at_end = True
            load.write_end(len(run.tasks))
        before = run.offsets.copy()
        answer = await run.take(LIMIT if at_end else QUIET)
        if answer is None:
            assert not at_end, run.log.text()
            if stop is not None and len(ready) == len(run.tasks):
                return events
            continue
        task, batch = answer
        assert not batch.bad, [str(bad.error) for bad in batch.bad]
        ready.add(task)  # the tasks of a new division save their positions before anything else
        records: Sequence[SourceRecord] = batch.records
        stopped = stop is not None and len(ready) == len(run.tasks) and count + len(records) >= stop
        if stopped and stop is not None and load.writer.ident is not None:
            cut = max(0, stop - count) if load.chance.random() < 0.7 else len(records)
            return events + events_of(acknowledge(run, before, records, cut), number, task, load.database)
        count += len(records)
        events += events_of(records, number, task, load.database)
        if load.writer.ident is None and len(ready) == len(run.tasks):
            load.writer.start()
        if has_end(records):
            ended.add(task)
        if len(ended) == len(run.tasks) and snapshots_done(run, read=load.read):
            return events


def named_seeds() -> list[Any]:
    """Those of ``MILLRACE_SEEDS``, else the fixed ones."""
    named = os.environ.get("MILLRACE_SEEDS", "").split()
    if named:
        return [int(seed) for seed in named]
    return [*SEEDS, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SLOW_SEEDS)]


@pytest.mark.parametrize("seed", named_seeds())
def test_events_lead_to_the_servers_rows(server: HasMariaDb, seed: int, tmp_path: Path) -> None:
    load = Workload(server, seed, tmp_path)
    try:
        events = asyncio.run(play(load))
        problems = fold(load.history, events, all_read=load.read)
        if load.config["skipped.operations"] == "none":
            problems += load.history.compare_truncations([event.table for event in events if event.op == "t"])
        report = tmp_path / "history.txt"
        lines = [str(load.config), *load.history.statements, "", *map(str, events)]
        report.write_text("\n".join(lines), encoding="utf-8", errors="replace")
        assert not problems, "\n".join([f"{len(problems)} problems; {report} has all events", *problems[:8]])
    finally:
        load.close()
