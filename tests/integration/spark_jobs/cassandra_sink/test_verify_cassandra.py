"""``millrace verify`` of a flow into Cassandra: rows that the sink has written, with what the topic says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.sinks.cassandra.tables import usable_name
from tests.support.verified import send
from tests.support.verified_target import (
    VerifiedFlow,
    check_further_types,
    check_parts_are_read,
    check_rows_are_compared,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from compose.local.scylla.client import Emulation
    from tests.conftest import HasCassandra


@pytest.fixture
def flow(
    cassandra: HasCassandra,
    keyspace: str,
    spark: SparkSession,
    bootstrap: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., VerifiedFlow]:
    def make(**options: str) -> VerifiedFlow:
        properties = {
            "sink.type": "cassandra",
            "guarantee": "at-least-once",
            "sink.cassandra.hosts": cassandra.address,
            "sink.cassandra.keyspace": keyspace,
            "sink.cassandra.table": "${table}",
            "sink.cassandra.consistency": "ONE",
            **{f"sink.cassandra.{name.replace('_', '.')}": value for name, value in options.items()},
        }
        return VerifiedFlow(spark, bootstrap, tmp_path, capsys, properties)

    return make


def name_of(flow: VerifiedFlow) -> str:
    """The flow's table with its keyspace."""
    table = usable_name(flow.table.namespace.partition(".")[2])
    return f"{flow.options['sink.cassandra.keyspace']}.{table}"


@pytest.mark.parametrize("deletes", ["real", "soft"])
def test_rows_are_compared_with_the_topic(flow: Callable[..., VerifiedFlow], deletes: str) -> None:
    rows = flow(delete_mode=deletes)
    check_rows_are_compared(rows, name_of(rows))


def test_more_rows_than_a_page_has(flow: Callable[..., VerifiedFlow]) -> None:
    check_parts_are_read(flow())


@pytest.mark.slow
def test_rows_of_scylla_are_compared_with_the_topic(
    flow: Callable[..., VerifiedFlow], scylla: Emulation, scylla_keyspace: Callable[..., str]
) -> None:
    rows = flow(hosts=scylla.address, keyspace=scylla_keyspace())
    check_rows_are_compared(rows, name_of(rows))


def test_types_that_only_cassandra_has(flow: Callable[..., VerifiedFlow], client: Any) -> None:
    rows = flow()
    client.execute(
        f"CREATE TABLE {name_of(rows)} (id varint PRIMARY KEY, name text, price decimal, ratio float, at timestamp, day date, "
        "flag boolean, data blob, nothing uuid)"
    )
    insert = f"INSERT INTO {name_of(rows)} (id, name, price, ratio, at, day, flag, data) VALUES "  # noqa: S608 - own names
    client.execute(insert + "(1, 'one', 1234.50, 0.1, '2026-01-02 03:04:05.678+0000', '2026-01-02', true, 0x01ff)")
    client.execute(insert + "(2, 'two', 1234.51, 0.2, '2026-01-02 03:04:05.679+0000', '2026-01-03', false, 0x01fe)")
    rows.send(("c", 1, "one"), ("c", 2, "two"))
    code, report = rows.verify()
    assert (code, report["examples"]) == (1, {"different": ['{"id":"2"}']})
    assert list(report["differences"][0]["topic"]) == ["price", "ratio", "at", "day", "flag", "data"]


def test_collections_are_compared(flow: Callable[..., VerifiedFlow], client: Any) -> None:
    rows = flow()
    client.execute(
        f"CREATE TABLE {name_of(rows)} (id bigint PRIMARY KEY, tags set<text>, amounts list<decimal>, sizes map<text, varint>, "
        "raws list<blob>)"
    )
    insert = f"INSERT INTO {name_of(rows)} (id, tags, amounts, sizes, raws) VALUES "  # noqa: S608 - own names
    client.execute(insert + "(1, {'a', 'b'}, [1.50, 2], {'x': 7}, [0x0102])")
    client.execute(insert + "(2, {'a', 'c'}, [2, 1.50], {'x': 8}, [0x0103])")
    database, _, table = rows.table.namespace.partition(".")
    sent = {"tags": ["b", "a"], "amounts": [1.5, 2], "sizes": {"x": 7}, "raws": ["AQI="]}
    source = {"db": database, "table": table, "file": "b.1", "pos": 1}
    send(
        rows.bootstrap,
        rows.topic,
        [({"id": key}, {"op": "c", "source": source, "after": {"id": key, **sent}}) for key in (1, 2)],
    )
    code, report = rows.verify()
    assert (code, report["examples"]) == (1, {"different": ['{"id":"2"}']})
    assert list(report["differences"][0]["topic"]) == ["tags", "amounts", "sizes", "raws"]


def test_further_types_are_compared(flow: Callable[..., VerifiedFlow]) -> None:
    check_further_types(flow())


def test_clusters_that_can_not_be_read(flow: Callable[..., VerifiedFlow]) -> None:
    rows = flow()
    rows.send(("c", 1, "one"))
    # There is no table yet: all of it is missing.
    assert rows.verify()[1]["missing"] == 1
    assert "sink.cassandra.mode=insert keeps every change" in rows.refusal(**{"sink.cassandra.mode": "insert"})
    absent = {"sink.cassandra.hosts": "127.0.0.1:1", "sink.cassandra.timeout.ms": "500"}
    assert "127.0.0.1:1" in rows.refusal(**absent)
