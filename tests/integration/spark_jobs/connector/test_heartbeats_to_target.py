"""Heartbeats from a real database through a worker, Kafka and a flow: the delay is measured, the target gets no row of them."""

from __future__ import annotations

import secrets
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pymysql

from connectors.formats.table_heartbeats import HEADER
from tests.support.eventually import eventually
from tests.support.table_delays import LIMIT_S, check_delays, job_options, make_topics, read_topic, wait_complete

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.mariadb import MariaDb
    from compose.local.worker import MillraceWorker


@dataclass(frozen=True, slots=True)
class Form:
    """A form of events, with the options of the connector and of the flow that it needs."""

    name: str
    connector: dict[str, str]
    flow: dict[str, str]


FORMS = (
    Form("debezium", {"heartbeat.to.tables": "true"}, {"source.format": "debezium"}),
    Form(
        "ums",
        {
            "output.format": "ums",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
        },
        {"source.format": "ums", "source.key.columns": "id"},
    ),
)


def test_the_delay_from_source_to_target_is_measured_for_each_table(
    millrace: Callable[..., MillraceWorker], mariadb: MariaDb, bootstrap: str, tmp_path: Path
) -> None:
    name = f"beat_{secrets.token_hex(4)}"
    topics = {form.name: f"{name}_{form.name}.{name}.t" for form in FORMS}
    make_topics(bootstrap, topics.values())
    worker = millrace(properties={"offset.flush.interval.ms": "300"})
    port = int(mariadb.port or 0)
    opened = pymysql.connect(host="127.0.0.1", port=port, user=mariadb.user, password=mariadb.password, autocommit=True)
    with closing(opened) as connection, connection.cursor() as cursor:
        for statement in (
            f"CREATE DATABASE {name}",
            f"CREATE TABLE {name}.t (id INT PRIMARY KEY, a INT)",
            f"INSERT INTO {name}.t VALUES (1, 1), (2, 2)",  # noqa: S608 - as below
        ):
            cursor.execute(statement)
        began = time.time()
        for form in FORMS:
            worker.create(
                f"{name}-{form.name}-source",
                {
                    "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
                    "topic.prefix": f"{name}_{form.name}",
                    "database.hostname": "127.0.0.1",
                    "database.port": str(port),
                    "database.user": mariadb.user,
                    "database.password": mariadb.password,
                    "database.include.list": name,
                    "include.schema.changes": "false",
                    "heartbeat.interval.ms": "500",
                    **form.connector,
                },
            )
            worker.create(
                f"{name}-{form.name}",
                {
                    **job_options(name),
                    "source.topics": topics[form.name],
                    "sink.type": "jdbc",
                    "sink.jdbc.url": f"jdbc:sqlite:{tmp_path}/{form.name}.db",
                    "sink.jdbc.table": "t",
                    "checkpoint.location": f"{tmp_path}/checkpoint-{form.name}",
                    **form.flow,
                },
            )
        worker.create(
            f"{name}-copy",
            {
                **job_options(name),
                "source.topics": topics["ums"],
                "source.format": "ums",
                "sink.type": "kafka",
                "sink.kafka.content": "records",
                "sink.kafka.topic": f"{name}_copy",
                "checkpoint.location": f"{tmp_path}/checkpoint-copy",
            },
        )
        ums_table = f"mariadb.{name}_ums.{name}.t"
        tables = {f"{name}-debezium": topics["debezium"], f"{name}-ums": ums_table, f"{name}-copy": ums_table}

        def rows(form: str) -> list[tuple[int, int]]:
            with closing(sqlite3.connect(tmp_path / f"{form}.db")) as target:
                return sorted(target.execute("SELECT id, a FROM t"))

        # What a promise covers is in the target. The first batches show the schema, later ones take the short way.
        for number in (3, 4, 5):
            wait_complete(worker, tables, began)
            cursor.execute(f"UPDATE {name}.t SET a = {number} WHERE id = 1")  # noqa: S608 - a name of the test's own
            began = time.time()
        wait_complete(worker, tables, began)
        for form in FORMS:
            assert rows(form.name) == [(1, 5), (2, 2)]
        check_delays(worker, tables)
        cursor.execute(f"DROP DATABASE {name}")
    records = read_topic(bootstrap, topics["debezium"])
    beats = [record for record in records if HEADER in record[3]]
    assert {number for number, *_ in beats} == {0, 1}  # in every partition
    assert all((key, value) == (None, None) for _, key, value, _ in beats)
    # Each promise is behind what it speaks for: none of a later time comes before a row.
    for number in (0, 1):
        times = [int(headers[HEADER]) for partition, _, _, headers in beats if partition == number]
        assert times == sorted(times)
    last = next(index for index, record in enumerate(records) if b'"a":5' in (record[2] or b""))
    earlier = [record for record in records[:last] if record[0] == records[last][0] and HEADER in record[3]]
    assert all(int(headers[HEADER]) <= began * 1_000_000 for *_, headers in earlier)
    assert not any(HEADER in headers for *_, headers in read_topic(bootstrap, topics["ums"]))


def test_a_compacted_topic_is_refused_with_what_to_do(
    millrace: Callable[..., MillraceWorker], mariadb: MariaDb, bootstrap: str
) -> None:
    name = f"beat_{secrets.token_hex(4)}"
    make_topics(bootstrap, [f"{name}.{name}.t"], **{"cleanup.policy": "compact"})
    worker = millrace()
    port = int(mariadb.port or 0)
    opened = pymysql.connect(host="127.0.0.1", port=port, user=mariadb.user, password=mariadb.password, autocommit=True)
    with closing(opened) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
        cursor.execute(f"CREATE TABLE {name}.t (id INT PRIMARY KEY)")
        config = {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "topic.prefix": name,
            "database.hostname": "127.0.0.1",
            "database.port": str(port),
            "database.user": mariadb.user,
            "database.password": mariadb.password,
            "database.include.list": name,
            "include.schema.changes": "false",
            "heartbeat.interval.ms": "500",
            "heartbeat.to.tables": "true",
        }
        creation = {
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.cleanup.policy": "compact",
        }
        status, answer = worker.request(
            "PUT",
            "/connector-plugins/io.debezium.connector.mariadb.MariaDbConnector/config/validate",
            {"name": name, **config, **creation},
        )
        assert status == 200
        errors = {item["value"]["name"]: item["value"]["errors"] for item in answer["configs"]}
        (error,) = errors["heartbeat.to.tables"]
        assert "topic.creation.default.cleanup.policy=delete" in error
        worker.create(name, config)

        def trace() -> str:
            return str(worker.request("GET", f"/connectors/{name}/status")[1])

        eventually(lambda: "FAILED" in trace(), "the task fails", LIMIT_S, detail=trace)
        assert f"set cleanup.policy=delete for {name}.{name}.t, or heartbeat.to.tables=false" in trace()
        cursor.execute(f"DROP DATABASE {name}")
