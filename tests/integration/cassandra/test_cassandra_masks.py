"""Masks of the Cassandra connector in a worker: planted values are in no topic, neither from the log nor from a snapshot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from compose.local.cassandra_cluster import execute_cql
from compose.local.worker import MillraceWorker
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import HasCassandra

PLANTED = "planted-mail"
LIMIT_S = 60.0


def test_no_form_shows_a_masked_column(
    cassandra: HasCassandra, cassandra_keyspace: Callable[[], str], bootstrap: str, tmp_path: Path
) -> None:
    name = cassandra_keyspace()

    def insert(key: int) -> str:
        return f"INSERT INTO {name}.t (pk, ck, mail) VALUES ({key}, 1, '{PLANTED}')"  # noqa: S608 - names of our own

    execute_cql(
        cassandra.address,
        f"CREATE TABLE {name}.t (pk int, ck int, mail text, PRIMARY KEY (pk, ck)) WITH cdc = true",
        *map(insert, range(10)),
    )
    with MillraceWorker(
        tmp_path,
        bootstrap,
        group=name,
        processes=1,
        properties={
            "offset.flush.interval.ms": "200",
            "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        },
    ) as worker:
        config = {
            "connector.class": "cassandra",
            "cassandra.hosts": cassandra.address,
            "commit.log.delete": "false",
            "cdc.raw.directories": str(cassandra.cdc_raw),
            "table.include.list": f"{name}\\..*",
            "mask.rules": "m",
            "mask.m.columns": rf"{name}\.t\.mail",
            "mask.m.type": "md5",
        }
        forms = {"partition-update": {}, "debezium": {"key.converter": "org.apache.kafka.connect.json.JsonConverter"}}
        for form, more in forms.items():
            worker.create(f"{name}-{form}", {**config, **more, "output.format": form, "topic.prefix": f"{name}-{form}"})
        execute_cql(cassandra.address, *map(insert, range(10, 20)))
        for form in forms:
            topic, end = f"{name}-{form}.{name}.t", time.monotonic() + LIMIT_S
            keys = 0
            while keys < 20:
                assert time.monotonic() < end, (form, keys, worker.request("GET", f"/connectors/{name}-{form}/status"))
                records = read_topic(bootstrap, topic)
                keys = len({record.key for record in records})
            data = repr(records)
            assert PLANTED not in data, form
            assert "millrace.masked" in data, form
        for more, option in (
            ({"output.format": "partition-update-raw"}, "output.format"),
            ({"output.format": "partition-update", "mask.m.columns": rf"{name}\.t\.ck"}, "mask.rules"),
        ):
            status, answer = worker.request(
                "PUT",
                "/connector-plugins/cassandra/config/validate",
                {**config, "name": "v", "topic.prefix": "v", **more},
            )
            assert status == 200
            assert {entry["value"]["name"] for entry in answer["configs"] if entry["value"]["errors"]} == {option}
