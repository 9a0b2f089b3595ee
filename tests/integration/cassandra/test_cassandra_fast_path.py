"""``fast.path=verify`` on a real commit log: bytes and records are the same for every kind of mutation, and get into Kafka."""

from __future__ import annotations

import base64
import json
import struct
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.errors import KafkaError

from compose.local.cassandra_cluster import execute_cql
from compose.local.worker import MillraceWorker
from tests.support.eventually import eventually
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import HasCassandra

_JSON = "org.apache.kafka.connect.json.JsonConverter"
ORDINARY = 100


def writes(table: str, first: int) -> list[str]:
    """Ordinary rows, and between them what the general path has to do."""
    rows = range(first, first + ORDINARY)
    statements = [
        f"INSERT INTO {table} (pk, ck, v, d, n) VALUES ({row}, 1, 'ä\"\\ {row}', {row / 7 - 5}, {row})"  # noqa: S608
        for row in rows
    ]
    statements[ORDINARY // 2 : ORDINARY // 2] = [
        f"UPDATE {table} USING TTL 1000 SET v = 'ttl', d = NULL WHERE pk = {first} AND ck = 1",  # noqa: S608
        f"DELETE FROM {table} WHERE pk = {first} AND ck = 1",  # noqa: S608
        f"DELETE FROM {table} WHERE pk = {first} AND ck > 1",  # noqa: S608
        f"UPDATE {table} SET m = {{'a': 1}} WHERE pk = {first} AND ck = 2",  # noqa: S608
        f"DELETE FROM {table} WHERE pk = {first}",  # noqa: S608
    ]
    return statements


def key_of(form: str, row: int) -> Any:
    """The key of a row's records: a struct, or the bytes of the partition key."""
    return {"pk": row, "ck": 1} if form == "debezium" else base64.b64encode(struct.pack(">i", row)).decode()


@pytest.mark.parametrize(
    ("form", "masked"),
    [
        pytest.param("debezium", False, marks=pytest.mark.slow),
        ("debezium", True),
        pytest.param("partition-update", True, marks=pytest.mark.slow),
        ("partition-update-raw", False),
    ],
)
def test_a_worker_that_verifies(
    cassandra: HasCassandra,
    cassandra_keyspace: Callable[[], str],
    bootstrap: str,
    tmp_path: Path,
    form: str,
    masked: bool,
) -> None:
    name = cassandra_keyspace()
    table = f"{name}.t"
    execute_cql(
        cassandra.address,
        f"CREATE TABLE {table} (pk int, ck int, v text, d double, n bigint, m map<text, int>, PRIMARY KEY (pk, ck)) "
        "WITH cdc = true",
    )
    with MillraceWorker(
        tmp_path,
        bootstrap,
        group=name,
        processes=1,
        properties={
            "offset.flush.interval.ms": "200",
            "key.converter": _JSON,
            "key.converter.schemas.enable": "false",
            "value.converter": _JSON,
            "value.converter.schemas.enable": "false",
        },
    ) as worker:
        worker.create(
            name,
            {
                "connector.class": "cassandra",
                "topic.prefix": name,
                "cassandra.hosts": cassandra.address,
                "cdc.raw.directories": str(cassandra.cdc_raw),
                "table.include.list": f"{name}\\..*",
                "commit.log.delete": "false",
                "output.format": form,
                "snapshot.mode": "never",
                "max.batch.size": "20",
                "fast.path": "verify",
                **(
                    {"mask.rules": "m", "mask.m.columns": f"{name}\\.t\\.(v|n)", "mask.m.type": "hash"}
                    if masked
                    else {}
                ),
            },
        )
        topic = f"{name}.{table}"

        def wait_for(row: int) -> None:
            eventually(
                lambda: any(
                    json.loads(record.key or b"0") == key_of(form, row) for record in read_topic(bootstrap, topic)
                ),
                f"row {row} is in the topic",
                every=0.5,
                detail=lambda: (worker.states(name), [record.key for record in read_topic(bootstrap, topic)]),
                ignore=KafkaError,
            )

        eventually(lambda: worker.states(name)[1] == ["RUNNING"], "the task runs")
        execute_cql(cassandra.address, *writes(table, 0))
        wait_for(ORDINARY - 1)
        # By now the runtime was asked about the table.
        eventually(
            lambda: "straight to bytes (fast.path)" in worker.service.log_path.read_text(),
            "the fast path takes the table",
            detail=lambda: worker.states(name),
        )
        execute_cql(cassandra.address, *writes(table, 1000))
        wait_for(1000 + ORDINARY - 1)
        assert worker.states(name)[1] == ["RUNNING"]
    records = [record for record in read_topic(bootstrap, topic) if record.value is not None]
    values = [json.loads(record.value or b"") for record in records]
    if form == "debezium":
        assert [value["op"] for value in values].count("i") == 2 * ORDINARY
    else:
        assert len(values) == 2 * (ORDINARY + 5)
        assert [record.timestamp for record in records] == [value["write_time"] // 1000 for value in values]
    assert any("ä" in (record.value or b"").decode() for record in records) != (
        masked or form == "partition-update-raw"
    )
