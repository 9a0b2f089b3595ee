"""Heartbeats from a real database through a worker, Kafka and a flow: the delay is measured, the target gets no row of them."""

from __future__ import annotations

import re
import secrets
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pymysql
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it has it

from connectors.formats.table_heartbeats import HEADER
from tests.support.eventually import eventually
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.mariadb import MariaDb
    from compose.local.worker import MillraceWorker

LIMIT_S = 180.0  # Spark takes its time to start
_SERIES = re.compile(r"^millrace_job_table_(\w+)\{(?P<labels>[^}]*)\} (\S+)$", re.MULTILINE)


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


def _read_topic(bootstrap: str, topic: str) -> list[tuple[int, bytes | None, bytes | None, dict[str, bytes]]]:
    """Partition, key, value and headers of all records that are in a topic now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x", "enable.partition.eof": True})
    records = []
    with closing(consumer):
        for number in (0, 1):
            consumer.assign([TopicPartition(topic, number, 0)])
            while (message := consumer.poll(20)) is not None and not message.error():
                pairs = cast("list[tuple[str, bytes | None]]", message.headers() or [])
                headers = {name: data or b"" for name, data in pairs}
                records.append((number, message.key(), message.value(), headers))
    return records


def test_the_delay_from_source_to_target_is_measured_for_each_table(
    millrace: Callable[..., MillraceWorker], mariadb: MariaDb, bootstrap: str, tmp_path: Path
) -> None:
    name = f"beat_{secrets.token_hex(4)}"
    topics = {form.name: f"{name}_{form.name}.{name}.t" for form in FORMS}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, 2, 1) for topic in topics.values()]).values():
        future.result(20)
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
                    "connector.class": "spark_jobs.SparkJob",
                    "source.topics": topics[form.name],
                    "sink.type": "jdbc",
                    "sink.jdbc.url": f"jdbc:sqlite:{tmp_path}/{form.name}.db",
                    "sink.jdbc.table": "t",
                    "checkpoint.location": f"{tmp_path}/checkpoint-{form.name}",
                    "trigger.interval.ms": "100",
                    "spark.application": name,
                    "spark.master": "local[2]",
                    "spark.driver.memory": "512m",
                    "spark.driver.extraJavaOptions": " ".join(FAST_START),
                    **form.flow,
                },
            )
        tables = {form.name: topics[form.name] for form in FORMS} | {"ums": f"mariadb.{name}_ums.{name}.t"}

        def delays(form: str) -> dict[str, float]:
            return {
                match[1]: float(match[3])
                for match in _SERIES.finditer(str(worker.request("GET", "/metrics")[1]))
                if f'table="{tables[form]}"' in match["labels"] and f'connector="{name}-{form}"' in match["labels"]
            }

        def rows(form: str) -> list[tuple[int, int]]:
            with closing(sqlite3.connect(tmp_path / f"{form}.db")) as target:
                return sorted(target.execute("SELECT id, a FROM t"))

        def wait_complete(since: float) -> None:
            for form in tables:
                eventually(
                    lambda form=form: delays(form).get("complete_timestamp_seconds", 0.0) > since,  # type: ignore[misc]
                    f"a promise of the time after the change comes to the target of {form}",
                    LIMIT_S,
                    detail=lambda: f"{worker.request('GET', '/connectors')}\n{worker.service.log_tail()}",
                )

        # What a promise covers is in the target. The first batches show the schema, later ones take the short way.
        for number in (3, 4, 5):
            wait_complete(began)
            cursor.execute(f"UPDATE {name}.t SET a = {number} WHERE id = 1")  # noqa: S608 - a name of the test's own
            began = time.time()
        wait_complete(began)
        for form_name in tables:
            assert rows(form_name) == [(1, 5), (2, 2)]
            measured = delays(form_name)
            assert set(measured) == {
                "delay_seconds",
                "topic_delay_seconds",
                "read_delay_seconds",
                "write_delay_seconds",
                "complete_timestamp_seconds",
            }
            assert 0 < measured["delay_seconds"] < LIMIT_S
            assert measured["delay_seconds"] >= measured["write_delay_seconds"] > 0
        cursor.execute(f"DROP DATABASE {name}")
    records = _read_topic(bootstrap, topics["debezium"])
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
    assert not any(HEADER in headers for *_, headers in _read_topic(bootstrap, topics["ums"]))
