"""Snapshots on request next to the stream: with concurrent writers and new generations, and over REST."""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
from typing import TYPE_CHECKING, Any

import pytest

from connectors.scylla.connector import ScyllaConnector
from connectors.scylla.snapshot.merging import is_snapshot
from connectors.testing.contexts import SavedOffsets
from connectors.testing.driver import Run
from tests.integration.control._cluster import wait_for
from tests.integration.scylla.test_snapshot_live import PARTITIONS, ROWS, Copy, expected, random_write
from tests.support.eventually import patience

if TYPE_CHECKING:
    from collections.abc import Callable

    from compose.local.scylla.client import Emulation
    from compose.local.worker import MillraceWorker

FAST = {
    "scylla.confidence.window.size": "1000",
    "scylla.window.min.ms": "50",
    "heartbeat.interval.ms": "50",
    "scylla.discovery.interval.ms": "200",
}


@pytest.fixture
def table(scylla: Emulation, scylla_keyspace: Callable[..., str]) -> str:
    if not scylla.emulated:
        pytest.skip("rows are written behind the log's back")
    if not scylla.generations():
        scylla.new_generation()
    return f"{scylla_keyspace()}.t{secrets.token_hex(4)}"


def test_a_table_is_read_again_while_it_is_written(scylla: Emulation, table: str) -> None:
    scylla.create_table(
        f"CREATE TABLE {table} (pk int, ck int, st int static, a int, b text, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true}"
    )
    for pk in range(PARTITIONS):
        for ck in range(ROWS):
            scylla.execute(
                f"INSERT INTO {table} (pk, ck, a, b) VALUES ({pk}, {ck}, {ck}, 'old') "  # noqa: S608 - a name of our own
                "USING TIMESTAMP 1600000000000000"
            )
    chance = random.Random(11)
    copy, offsets = Copy(), SavedOffsets()
    stop = threading.Event()
    written = 0
    config = {
        **FAST,
        "topic.prefix": "s",
        "scylla.cluster.ip.addresses": scylla.address,
        "scylla.table.names": table,
        "snapshot.chunk.rows": "7",
        "max.batch.size": "5",
    }
    request = {
        **ScyllaConnector.check_snapshot(ScyllaConnector.config_def.parse(config), {"tables": [table]}),
        "id": "again",
        "state": "running",
        "origin": "rest",
        "created_ms": 1,
    }

    def write() -> None:
        nonlocal written
        while not stop.is_set() and written < 1500:
            for logged in scylla.apply(random_write(chance, table)).logged:
                written += len(logged.rows)

    def view(run: Run) -> dict[str, Any]:
        (row,) = ScyllaConnector.snapshots(run.context.config, [request], offsets.items())
        return row

    async def go() -> None:
        writer = asyncio.create_task(asyncio.to_thread(write))
        moved = False
        try:
            async with patience(90):
                while True:
                    async with Run(ScyllaConnector, config, offsets=offsets, max_tasks=3) as run:
                        run.instruct([request])
                        for _ in range(1_000_000):
                            batch = await run.take(0.5)
                            for record in batch[1].records if batch else ():
                                copy.apply(record)
                            if len(copy.reads) > PARTITIONS and not moved:
                                moved = True
                                break  # a restart, and streams of a new generation
                            if view(run)["state"] == "completed" and not stop.is_set():
                                stop.set()
                                await writer
                            if writer.done() and sum(copy.changes.values()) >= written and stop.is_set():
                                return
                    scylla.new_generation(vnodes=3, shards=2)
        finally:
            stop.set()
            await writer

    asyncio.run(go())

    assert copy.contents() == expected(scylla, table)
    assert not copy.back, "write times of a row went back"
    assert [key for key, count in copy.reads.items() if count > 1] == []
    assert [change for change, count in copy.changes.items() if count > 1] == []
    assert sum(copy.reads.values()) > PARTITIONS


def test_rest(
    scylla: Emulation, table: str, millrace: Callable[..., MillraceWorker], unique: Callable[[str], str]
) -> None:
    scylla.create_table(f"CREATE TABLE {table} (pk int PRIMARY KEY, a int) WITH cdc = {{'enabled': true}}")
    for pk in range(300):
        scylla.execute(f"INSERT INTO {table} (pk, a) VALUES ({pk}, 1)")  # noqa: S608 - a name of our own
    worker = millrace(group=unique("group"), properties={"offset.flush.interval.ms": "300"}, processes=1)
    name = unique("scylla")
    worker.create(
        name,
        {
            **FAST,
            "connector.class": "scylla",
            "topic.prefix": name,
            "scylla.cluster.ip.addresses": scylla.address,
            "scylla.table.names": table,
            "snapshot.chunk.rows": "10",
            "snapshot.rows.per.second": "200",
            "tasks.max": "2",
        },
    )

    def ask(method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answered, answer = worker.request(method, f"/connectors/{name}{path}", body)
        assert answered == status, answer
        return answer

    wait_for(lambda: ask("GET", "/lag")["time_behind_s"] is not None, "positions are saved")
    lag = ask("GET", "/lag")
    assert [row["table"] for row in lag["tables"]] == [table]
    (shown,) = ask("GET", "/tables")
    assert (shown["table"], [column["name"] for column in shown["versions"][0]["columns"]]) == (table, ["pk", "a"])
    assert ask("GET", "/snapshots") == []
    assert "none of the connector's tables" in ask("POST", "/snapshots", {"tables": ["a.b"]}, 400)["message"]
    assert (
        "conditions" in ask("POST", "/snapshots", {"tables": [table], "conditions": {table: "pk > 1"}}, 400)["message"]
    )

    snapshot = ask("POST", "/snapshots", {"tables": [table]}, 201)
    path = f"/snapshots/{snapshot['id']}"
    wait_for(lambda: ask("GET", path)["rows_done"] > 0, "rows were read")
    ask("PUT", f"{path}/pause", status=202)
    assert ask("GET", path)["state"] == "paused"
    ask("PUT", f"{path}/resume", status=202)
    wait_for(lambda: ask("GET", path)["state"] == "completed", "it is completed")
    done = ask("GET", path)
    assert (done["rows_done"], done["percent"], done["origin"]) == (300, 100.0, "rest")
    assert [(row["table"], row["state"], row["rows_done"]) for row in done["tables"]] == [(table, "completed", 300)]

    second = ask("POST", "/snapshots", {"tables": [table], "id": "second"}, 201)
    ask("PUT", f"/snapshots/{second['id']}/cancel", status=202)
    assert ask("GET", "/snapshots/second")["state"] == "cancelled"
    for identity in ("second", snapshot["id"]):
        ask("DELETE", f"/snapshots/{identity}", status=204)

    def saved() -> list[Any]:
        return [row for row in ask("GET", "/offsets")["offsets"] if is_snapshot(row["partition"])]

    wait_for(lambda: not saved(), "nothing is saved of deleted requests")
    assert ask("GET", "/snapshots") == []
