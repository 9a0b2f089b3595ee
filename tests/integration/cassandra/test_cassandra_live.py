"""A worker with the connector over REST: tasks by label, snapshots, lag, tables, metrics, cdc turned on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from compose.local.cassandra_cluster import execute_cql
from compose.local.worker import MillraceWorker
from tests.chaos.cassandra_load import updates
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import HasCassandra


def rows(table: str, count: int) -> list[str]:
    return [f"INSERT INTO {table} (pk, v) VALUES ({key}, 'x')" for key in range(count)]  # noqa: S608 - names of our own


def test_a_connector_over_rest(
    cassandra: HasCassandra, cassandra_keyspace: Callable[[], str], bootstrap: str, tmp_path: Path
) -> None:
    name = cassandra_keyspace()
    execute_cql(
        cassandra.address,
        f"CREATE TABLE {name}.t (pk int PRIMARY KEY, v text) WITH cdc = true",
        f"CREATE TABLE {name}.late (pk int PRIMARY KEY, v text)",
        *rows(f"{name}.t", 200),
        *rows(f"{name}.late", 30)[20:],
    )
    empty = tmp_path / "cdc_raw"
    empty.mkdir()
    with MillraceWorker(
        tmp_path,
        bootstrap,
        group=name,
        processes=1,
        properties={
            "offset.flush.interval.ms": "200",
            "node.labels": "one=yes,two=yes",
            "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        },
    ) as worker:
        config = {
            "connector.class": "cassandra",
            "tasks.max": "3",
            "topic.prefix": name,
            "cassandra.hosts": cassandra.address,
            "cdc.raw.directories": f"one={cassandra.cdc_raw},two={empty},three=/nowhere/cdc_raw",
            "table.include.list": f"{name}\\..*",
            "commit.log.delete": "false",
            "heartbeat.interval.ms": "200",
            "snapshot.chunk.rows": "10",
            "snapshot.rows.per.second": "100",
            "snapshot.max.threads": "1",
        }
        worker.create(name, config)

        def ask(method: str, path: str, body: Any = None) -> Any:
            status, answer = worker.request(method, f"/connectors/{name}{path}", body)
            assert status < 300, answer
            return answer

        def find_snapshot(request: str) -> dict[str, Any]:
            return next(
                (snapshot for snapshot in ask("GET", "/snapshots") if snapshot["id"] == request),
                {"rows_done": 0, "state": "none"},
            )

        def numbers() -> dict[str, float]:
            """Attributes of Debezium's snapshots, summed over tasks."""
            sums: dict[str, float] = {}
            for attribute, value in re.findall(
                rf'^debezium_metrics_(\w+){{connector="{name}".*context="snapshot".*}} (.*)$',
                worker.request("GET", "/metrics")[1],
                re.MULTILINE,
            ):
                sums[attribute] = sums.get(attribute, 0) + float(value)
            return sums

        eventually(
            lambda: worker.states(name)[1] == ["RUNNING", "RUNNING", "UNASSIGNED"],
            "two of three tasks run",
            detail=lambda: ask("GET", "/explain"),
        )
        assert "node.labels" in ask("GET", "/explain")["tasks"][2]["why_not_running"]
        # The third share of the snapshot waits with its task: without that directory two tasks share it all.
        eventually(
            lambda: find_snapshot("initial")["rows_done"] > 0,
            "the snapshot has rows",
            detail=lambda: find_snapshot("initial"),
        )
        ask("PUT", "/snapshots/initial/pause")
        eventually(
            lambda: find_snapshot("initial")["state"] == "paused",
            "the snapshot is paused",
            detail=lambda: find_snapshot("initial"),
        )
        paused = {"SnapshotPaused": 2, "SnapshotRunning": 0, "TotalTableCount": 2, "RemainingTableCount": 2}
        eventually(
            lambda: numbers().items() >= {**paused, "RowsScanned": find_snapshot("initial")["rows_done"]}.items(),
            "the metrics show the pause",
            detail=numbers,
        )
        worker.create(
            name,
            {
                **config,
                "tasks.max": "2",
                "snapshot.rows.per.second": "0",
                "cdc.raw.directories": f"one={cassandra.cdc_raw},two={empty}",
            },
        )
        worker.wait_running(name, 2)
        assert find_snapshot("initial")["state"] == "paused"
        ask("PUT", "/snapshots/initial/resume")
        eventually(
            lambda: find_snapshot("initial")["state"] == "completed",
            "the snapshot is completed",
            detail=lambda: find_snapshot("initial"),
        )
        assert find_snapshot("initial")["rows_done"] >= 200
        # Both tasks tell the end of their share; also after they start again, when nothing is read.
        over = {
            "SnapshotCompleted": 2,
            "SnapshotPaused": 0,
            "SnapshotRunning": 0,
            "TotalTableCount": 0,
            "RemainingTableCount": 0,
            "SnapshotAborted": 0,
            "SnapshotSkipped": 0,
            "RowsScanned": find_snapshot("initial")["rows_done"],
        }
        eventually(lambda: numbers().items() >= over.items(), "the metrics show the end", detail=numbers)
        took = numbers()["SnapshotDurationInSeconds"]
        ask("PUT", "/stop")
        eventually(lambda: not numbers(), "the metrics of a stopped connector are gone", detail=numbers)
        ask("PUT", "/resume")
        eventually(lambda: numbers().items() >= over.items(), "the metrics show the end", detail=numbers)
        assert numbers()["SnapshotDurationInSeconds"] == took > 0

        # Changes from the moment on at which cdc is turned on; what the table held before is read on its own, once.
        def keys_of_late(*, snapshot: bool) -> list[int]:
            return sorted(
                update.key[0]
                for update in updates(bootstrap, f"{name}.{name}.late", committed=False)
                if update.source.snapshot is snapshot
            )

        def new() -> list[dict[str, Any]]:
            return [snapshot for snapshot in ask("GET", "/snapshots") if snapshot["origin"] == "new"]

        execute_cql(cassandra.address, f"ALTER TABLE {name}.late WITH cdc = true", *rows(f"{name}.late", 20))
        eventually(
            lambda: keys_of_late(snapshot=False) == list(range(20)),
            "20 changes come",
            detail=lambda: ask("GET", "/status"),
        )
        eventually(
            lambda: [snapshot["state"] for snapshot in new()] == ["completed"], "the new table is read", detail=new
        )
        assert [table["table"] for table in new()[0]["tables"]] == [f"{name}.late"]
        once = keys_of_late(snapshot=True)
        assert len(set(once)) == len(once)
        assert set(once) >= set(range(20, 30))
        ask("POST", "/restart?includeTasks=true")
        # The next table is read after the start: of the first one nothing comes again.
        execute_cql(
            cassandra.address,
            f"CREATE TABLE {name}.later (pk int PRIMARY KEY, v text) WITH cdc = true",
            *rows(f"{name}.later", 3),
        )
        eventually(
            lambda: [snapshot["state"] for snapshot in new()] == ["completed"] * 2,
            "two new tables are read",
            detail=new,
        )
        assert keys_of_late(snapshot=True) == once

        # What is written while cdc is off is not in the log: once it is on again, the table is read again.
        def seen_off() -> list[bool]:
            return [
                entry["offset"].get("had_cdc", False)
                for entry in ask("GET", "/offsets")["offsets"]
                if entry["offset"].get("table") == f"{name}.late"
            ]

        execute_cql(cassandra.address, f"ALTER TABLE {name}.late WITH cdc = false")
        eventually(lambda: (seen := seen_off()) and all(seen), "all tasks have seen cdc off", detail=seen_off)
        execute_cql(
            cassandra.address,
            f"INSERT INTO {name}.late (pk, v) VALUES (1000, 'unseen')",  # noqa: S608 - our own keyspace
            f"ALTER TABLE {name}.late WITH cdc = true",
        )
        eventually(
            lambda: [snapshot["state"] for snapshot in new()] == ["completed"] * 3,
            "the table is read again",
            detail=new,
        )
        assert len([snapshot for snapshot in new() if "~" in snapshot["id"]]) == 1
        assert 1000 in keys_of_late(snapshot=True)
        assert 1000 not in once

        all_updates = updates(bootstrap, f"{name}.{name}.t", committed=False)
        for snapshot in (True, False):
            assert {update.key[0] for update in all_updates if update.source.snapshot is snapshot} == set(range(200))

        lag = eventually(
            lambda: (now := ask("GET", "/lag"))["bytes_behind"] == 0 and now,
            "everything is read",
            detail=lambda: ask("GET", "/lag"),
        )
        assert lag["time_behind_s"] == 0.0
        tables = [f"{name}.{table}" for table in ("late", "later", "t")]
        assert {table["table"]: table["events_behind"] for table in lag["tables"]} == dict.fromkeys(tables, 0)
        assert [table["table"] for table in ask("GET", "/tables")] == tables

        asked = ask("POST", "/snapshots", {"tables": [f"{name}.late"]})["id"]
        eventually(
            lambda: find_snapshot(asked)["state"] == "completed",
            "the snapshot is completed",
            detail=lambda: find_snapshot(asked),
        )
        ask("DELETE", f"/snapshots/{asked}")
        eventually(
            lambda: all(entry["partition"].get("snapshot") != asked for entry in ask("GET", "/offsets")["offsets"]),
            "its offsets are gone",
            detail=lambda: ask("GET", "/offsets"),
        )

        # Numbers are reported every second or so.
        lines = [
            f'cassandra_cdc_directory_available{{connector="{name}",task="0",node="one"}} 1.0',
            f'cassandra_cdc_directory_available{{connector="{name}",task="1",node="two"}} 1.0',
            f'cassandra_tables{{connector="{name}",task="0"}} 3.0',
            f'cassandra_snapshot_running{{connector="{name}",task="0"}} 0.0',
        ]

        def read_metrics() -> str:
            text: str = worker.request("GET", "/metrics")[1]
            return text

        eventually(
            lambda: (text := read_metrics()) and all(line in text for line in lines),
            "the metrics are reported",
            detail=read_metrics,
        )

        # Under another topic.prefix nothing of this can be used, but it can be forgotten.
        ask("PUT", "/stop")
        eventually(lambda: worker.states(name)[0] == "STOPPED", "it is stopped", detail=lambda: ask("GET", "/status"))
        worker.create(name, {**config, "topic.prefix": f"{name}x"})
        ask("DELETE", "/offsets")
        assert ask("GET", "/offsets")["offsets"] == []
