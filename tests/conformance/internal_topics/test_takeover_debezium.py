"""A Java Connect cluster with Debezium and a file source under load moves to Millrace and back: every change arrives.

The writer never pauses. The clusters take turns on the same internal topics; only the program changes.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pymysql
import pytest
from aiokafka.admin import AIOKafkaAdminClient

from tests.support.eventually import eventually
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.connect import JavaConnect
    from compose.local.worker import MillraceWorker
    from tests.conftest import HasMariaDb

_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
#: Of both kinds of workers, as an operator's file has them.
PROPERTIES: Final = {
    "offset.flush.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "0",
    "key.converter": _JSON,
    "value.converter": _JSON,
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}
_DEADLINE_S: Final = 60.0
#: Changes that each cluster must have delivered before the next one takes its turn.
_STEP: Final = 150


class Writer(threading.Thread):
    """Writes changes until it is stopped: rows into a table, one transaction each, and lines into a file."""

    def __init__(self, server: HasMariaDb, database: str, file: Path) -> None:
        super().__init__(name="writer", daemon=True)
        self._server = server
        self._database = database
        self._file = file
        self.enough = threading.Event()
        self.written = 0
        self.failed: BaseException | None = None

    def run(self) -> None:
        """See class."""
        try:
            with (
                closing(connect(self._server, self._database)) as connection,
                connection.cursor() as cursor,
                self._file.open("a", encoding="ascii") as file,
            ):
                while not self.enough.wait(0.005):
                    number = self.written + 1
                    cursor.execute("INSERT INTO orders VALUES (%s, %s)", (number, f"new {number}"))
                    if number % 3 == 0:
                        cursor.execute(
                            "UPDATE orders SET note = %s WHERE id = %s", (f"changed {number}", number // 2 + 1)
                        )
                    if number % 5 == 0:
                        cursor.execute("DELETE FROM orders WHERE id = %s", (number // 4,))
                    connection.commit()
                    file.write(f"line {number}\n")
                    file.flush()
                    self.written = number
        except BaseException as error:
            self.failed = error
            raise


def connect(server: HasMariaDb, database: str | None = None) -> pymysql.Connection[Any]:
    return pymysql.connect(
        host="127.0.0.1", port=int(server.port or 0), user=server.user, password=server.password, database=database
    )


def values(bootstrap: str, topic: str) -> list[tuple[Any, Any]]:
    """Key and value of a topic's records, decoded; aborted transactions' are left out."""
    return [
        (
            None if record.key is None else json.loads(record.key),
            None if record.value is None else json.loads(record.value),
        )
        for record in read_topic(bootstrap, topic, committed=True)
    ]


def changes(bootstrap: str, topic: str) -> list[tuple[str, int, str | None]]:
    """(operation, id, note) of a table's events in order; tombstones and times left out."""
    events = []
    for _, value in values(bootstrap, topic):
        if value is not None:
            row = value["after"] or value["before"]
            events.append((value["op"], row["id"], row["note"]))
    return events


def fold(events: list[tuple[str, int, str | None]]) -> dict[int, str | None]:
    rows: dict[int, str | None] = {}
    for operation, number, note in events:
        if operation == "d":
            rows.pop(number, None)
        else:
            rows[number] = note
    return rows


async def members(bootstrap: str, group: str) -> int:
    """How many members Kafka counts in a group."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        answers = await admin.describe_consumer_groups([group])
        return sum(len(description[5]) for answer in answers for description in answer.groups)
    finally:
        await admin.close()


def all_run(worker: JavaConnect | MillraceWorker, names: tuple[str, ...]) -> bool:
    for name in names:
        status, body = worker.request("GET", f"/connectors/{name}/status")
        if (
            status != 200
            or body["connector"]["state"] != "RUNNING"
            or [task["state"] for task in body["tasks"]] != ["RUNNING"]
        ):
            return False
    return True


def state_of(worker: JavaConnect | MillraceWorker, name: str) -> str:
    status, body = worker.request("GET", f"/connectors/{name}/status")
    return str(body["connector"]["state"]) if status == 200 else str(status)


def check_before_moving(
    java: JavaConnect, bootstrap: str, group: str, properties: dict[str, str], names: tuple[str, ...], folder: Path
) -> None:
    """``millrace migrate-check`` says of the running Java cluster what can move, and why something can't."""
    others = {
        f"{group}-sink": {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "topics": "none",
            "file": str(folder / "sink.txt"),
        },
        f"{group}-foreign-sink": {
            "connector.class": "org.apache.kafka.connect.tools.VerifiableSinkConnector",
            "topics": "none",
            "id": "1",
        },
        f"{group}-foreign": {
            "connector.class": "org.apache.kafka.connect.tools.VerifiableSourceConnector",
            "topic": "none",
            "id": "1",
            "throughput": "1",
        },
        f"{group}-locked": {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "topic": "none",
            "file": str(folder / "none.txt"),
            "header.converter.password": "planted-secret",
            "transforms": "t",
            "transforms.t.type": "org.apache.kafka.connect.transforms.Filter",
            "errors.retry.timeout": "-1",
        },
    }
    for name, config in others.items():
        status, body = java.request("PUT", f"/connectors/{name}/config", {"tasks.max": "1", **config})
        assert status == 201, body
        assert java.request("PUT", f"/connectors/{name}/pause")[0] == 202
    file = folder / "worker.properties"
    file.write_text(
        "".join(
            f"{name}={value}\n"
            for name, value in {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "metric.reporters": "com.example.Reporter",
                **{f"{kind}.storage.topic": f"{group}-{kind}s" for kind in ("config", "offset")},
                "status.storage.topic": f"{group}-status",
                **properties,
            }.items()
        ),
        encoding="ascii",
    )
    done = subprocess.run(
        [sys.executable, "-m", "worker.cli", "migrate-check", str(file), "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=_DEADLINE_S,
    )
    assert done.stdout.startswith("{"), done.stderr
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert not report["ready"]
    assert any("metric.reporters" in text for text in report["worker"])
    assert "planted-secret" not in done.stdout
    findings = {finding["name"]: finding for finding in report["findings"]}
    assert set(findings) == {*names, *others}
    for name in (*names, f"{group}-locked", f"{group}-sink"):
        assert findings[name]["problems"] == [], findings[name]
    assert findings[f"{group}-locked"]["state"] == "PAUSED"
    assert any(f"the consumer group connect-{group}-sink" in note for note in findings[f"{group}-sink"]["notes"])
    assert "Spark jobs" in findings[f"{group}-foreign-sink"]["problems"][0]
    assert "VerifiableSourceConnector" in findings[f"{group}-foreign"]["problems"][0]
    assert any("schema.history" in note for note in findings[names[0]]["notes"]), findings[names[0]]
    for name in others:
        assert java.request("DELETE", f"/connectors/{name}")[0] == 204


@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.slow), "kill"])
def test_there_and_back_under_load(
    bootstrap: str,
    mariadb: HasMariaDb,
    debezium: Callable[..., JavaConnect],
    millrace: Callable[..., MillraceWorker],
    unique: Callable[[str], str],
    tmp_path: Path,
    how: str,
) -> None:
    """``stop``: exactly once, clusters are stopped in order, nothing comes twice. ``kill``: at least once, kill -9."""
    group, prefix = unique("move"), unique("shop")
    database = f"move_{prefix[-8:]}"
    source = tmp_path / "lines.txt"
    source.write_text("", encoding="ascii")
    table_topic, file_topic = f"{prefix}.{database}.orders", f"{prefix}-lines"
    names = (f"{prefix}-db", f"{prefix}-file")
    properties = {**PROPERTIES, "exactly.once.source.support": "enabled" if how == "stop" else "disabled"}
    with closing(connect(mariadb)) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database}")
        cursor.execute(f"CREATE TABLE {database}.orders (id INT PRIMARY KEY, note VARCHAR(40))")
    java = debezium(group=group, properties=properties)
    for name, config in zip(
        names,
        (
            {
                "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
                "tasks.max": "1",
                "database.hostname": "127.0.0.1",
                "database.port": str(mariadb.port),
                "database.user": mariadb.user,
                "database.password": mariadb.password,
                "database.server.id": str(40000 + int(prefix[-4:], 16)),
                "database.include.list": database,
                "topic.prefix": prefix,
                "snapshot.mode": "initial",
                "poll.interval.ms": "50",
                "database.ssl.mode": "disable",
                "include.schema.changes": "false",
                "schema.history.internal.kafka.bootstrap.servers": bootstrap,
                "schema.history.internal.kafka.topic": f"{prefix}-history",
            },
            {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
                "tasks.max": "1",
                "file": str(source),
                "topic": "lines",
                "transforms": "route",
                "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
                "transforms.route.regex": "lines",
                "transforms.route.replacement": file_topic,
            },
        ),
        strict=True,
    ):
        status, body = java.request("PUT", f"/connectors/{name}/config", config)
        assert status == 201, body
    sink = f"{prefix}-sink"
    if how == "kill":
        status, body = java.request(
            "PUT",
            f"/connectors/{sink}/config",
            {
                "connector.class": "org.apache.kafka.connect.tools.VerifiableSinkConnector",
                "topics": f"{prefix}-none",
                "id": "1",
            },
        )
        assert status == 201, body
    else:
        check_before_moving(java, bootstrap, group, properties, names, tmp_path)
    writer = Writer(mariadb, database, source)
    writer.start()
    try:
        current: JavaConnect | MillraceWorker = java
        for turn, start in enumerate((None, millrace, debezium)):
            if start is not None:
                _ = current.stop() if how == "stop" else current.kill()
                if start is debezium:
                    # Java's worker gives up at once while another program's dead members are in the group; ours waits for that.
                    eventually(lambda: asyncio.run(members(bootstrap, group)) == 0, "the group is empty", _DEADLINE_S)
                current = start(group=group, properties=properties)
            eventually(
                lambda worker=current: all_run(worker, names),  # type: ignore[misc]
                "all run",
                _DEADLINE_S,
                detail=lambda worker=current: [  # type: ignore[misc]
                    worker.request("GET", f"/connectors/{name}/status") for name in names
                ],
            )
            if how == "kill":  # what can't run here keeps nothing else from it, and is there again on the way back
                state = "FAILED" if start is millrace else "RUNNING"
                eventually(
                    lambda worker=current, state=state: state_of(worker, sink) == state,  # type: ignore[misc]
                    f"the sink is {state}",
                    _DEADLINE_S,
                    detail=lambda worker=current: worker.request("GET", f"/connectors/{sink}/status"),  # type: ignore[misc]
                )
            goal = writer.written + _STEP
            eventually(
                lambda goal=goal: (
                    len(values(bootstrap, file_topic)) >= goal  # type: ignore[misc]
                    and max((number for _, number, _ in changes(bootstrap, table_topic)), default=0) >= goal
                ),
                f"row {goal} comes in turn {turn}",
                _DEADLINE_S,
                detail=lambda: (
                    f"{writer.written} are written, {writer.failed!r}; there are "
                    f"{len(values(bootstrap, file_topic))} lines, {len(changes(bootstrap, table_topic))} changes"
                ),
            )
        writer.enough.set()
        writer.join()
        assert writer.failed is None
        last = writer.written
        eventually(
            lambda: (
                max((number for _, number, _ in changes(bootstrap, table_topic)), default=0) >= last
                and f"line {last}" in (value for _, value in values(bootstrap, file_topic))
            ),
            f"row {last} comes",
            _DEADLINE_S,
        )
        with closing(connect(mariadb, database)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id, note FROM orders")
            rows = dict(cursor.fetchall())
        eventually(
            lambda: fold(changes(bootstrap, table_topic)) == rows, "the fold of all events is the table", _DEADLINE_S
        )
        lines = [value for _, value in values(bootstrap, file_topic)]
        everything = [f"line {number}" for number in range(1, last + 1)]
        events = [event for event in changes(bootstrap, table_topic) if event[0] != "r"]
        if how == "stop":
            assert lines == everything
            assert len(events) == len(set(events)), "a change came twice"
        else:
            assert list(dict.fromkeys(lines)) == everything
    finally:
        writer.enough.set()
        writer.join()
        with closing(connect(mariadb)) as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {database}")
