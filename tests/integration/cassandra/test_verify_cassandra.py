"""Verifications of a real Cassandra's tables: equal after statements of every kind, and what differs is compared."""

# ruff: noqa: S608 - names of keyspaces are our own
from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.cassandra_cluster import execute_cql
from compose.local.worker import MillraceWorker
from connectors.formats.names import field_name
from tests.support.cassandra_load import Workload
from tests.support.eventually import eventually
from tests.support.verified import send, tables, verify
from worker.fetch.errors import StackError
from worker.verify.command import build_verification
from worker.verify.messages import VerificationRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import HasCassandra


#: A name that a partition update writes in another way.
COLUMN = '"v v"'


@pytest.mark.parametrize("form", ["partition-update", "debezium"])
def test_a_topic_is_compared_with_its_tables(
    cassandra: HasCassandra, cassandra_keyspace: Callable[[], str], bootstrap: str, tmp_path: Path, form: str
) -> None:
    name = cassandra_keyspace()
    execute_cql(
        cassandra.address,
        f"CREATE TABLE {name}.t (pk int, ck text, {COLUMN} text, n bigint, st text static, PRIMARY KEY (pk, ck)) "
        "WITH cdc = true",
        *(
            f"INSERT INTO {name}.t (pk, ck, {COLUMN}, n) VALUES ({key % 20}, 'c{key}', 'old', {key})"
            for key in range(200)
        ),
    )
    with MillraceWorker(
        tmp_path,
        bootstrap,
        group=name,
        processes=1,
        properties={
            "offset.flush.interval.ms": "200",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter"
            if form == "partition-update"
            else "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "false",
        },
    ) as worker:
        worker.create(
            name,
            {
                "connector.class": "cassandra",
                "tasks.max": "1",
                "topic.prefix": name,
                "output.format": form,
                "cassandra.hosts": cassandra.address,
                "cdc.raw.directories": str(cassandra.cdc_raw),
                "table.include.list": f"{name}\\..*",
                "commit.log.delete": "false",
                "heartbeat.interval.ms": "200",
            },
        )
        wait_for_topic(worker, name, "t")
        # While the connector delivers what the tables held, they change: nothing else is waited for but by verify.
        execute_cql(
            cassandra.address,
            f"UPDATE {name}.t SET {COLUMN} = 'new', n = null WHERE pk = 1 AND ck = 'c1'",
            f"UPDATE {name}.t SET st = 'static' WHERE pk = 2",
            f"DELETE FROM {name}.t WHERE pk = 3 AND ck = 'c3'",
            f"DELETE FROM {name}.t WHERE pk = 4",
            f"INSERT INTO {name}.t (pk, ck, {COLUMN}) VALUES (5, 'short', 'x') USING TTL 1",
            f"INSERT INTO {name}.t (pk, ck) VALUES (6, 'empty')",
        )
        if form == "partition-update":
            execute_cql(cassandra.address, f"DELETE FROM {name}.t WHERE pk = 7 AND ck > 'c1' AND ck <= 'c17'")
        result = verify(worker, name, settle_s=2)
        table = tables(result)["t"]
        assert table["equal"], result
        assert table["unsettled"] == 0, result
        assert table["rows"]["source"] == table["rows"]["topic"] > 150
        assert table["checksum"]["source"] == table["checksum"]["topic"]
        # What the connector never sent.
        topic = f"{name}.{name}.t"
        send(bootstrap, topic, messages_of(form))
        # Reading takes longer than differences may be looked at.
        table = tables(verify(worker, name, settle_s=1, timeout_s=1, rows_per_s=100))["t"]
        assert (table["missing"], table["extra"], table["different"]) == (1, 1, 1), table
        assert table["examples"] == {
            "missing": ['{"pk":9,"ck":"c9"}'],
            "extra": ['{"pk":777,"ck":"c8"}'],
            "different": ['{"pk":8,"ck":"c8"}'],
        }
        field = field_of(form)
        sides = {row["kind"]: (row["source"], row["topic"]) for row in table["differences"]}
        assert sides["different"] == ({field: '"old"'}, {field: '"other"'})
        assert sides["missing"] == ({field: '"old"', "n": "9"}, None)
        assert sides["extra"] == (None, {field: '"other"'})


def wait_for_topic(worker: MillraceWorker, connector: str, table: str) -> None:
    """Wait for a table's first row: a verification waits for changes under way, not for a connector that still starts."""
    topic = f"{connector}.{connector}.{table}"
    path = f"/connectors/{connector}/topics"

    def is_there() -> bool:
        return topic in worker.request("GET", path)[1][connector]["topics"]

    eventually(is_there, f"{topic} is there", within=90)


def field_of(form: str) -> str:
    """The field of the column."""
    return field_name("v v") if form == "partition-update" else "v v"


def messages_of(form: str) -> list[tuple[Any, Any]]:
    """Later messages: row (8, c8) is another one, (777, c8) is there as well, (9, c9) is gone."""
    field = field_of(form)
    far_us = 4_000_000_000_000_000
    if form == "partition-update":
        plain: dict[str, Any] = {"source": {"schema": "", "snapshot": False}, "write_time": far_us}
        row = {"clustering": {"ck": "c8"}, "cells": {field: "other"}}
        gone = {"clustering": {"ck": "c9"}, "deletion": {"write_time": far_us, "local_deletion_time": 1}}
        return [
            (b"8", {**plain, "key": {"pk": 8}, "rows": [row]}),
            (b"777", {**plain, "key": {"pk": 777}, "rows": [row]}),
            (b"9", {**plain, "key": {"pk": 9}, "rows": [gone]}),
        ]
    source = {"ts_us": far_us, "ts_ms": far_us // 1000}
    cells = {field: {"value": "other", "deletion_ts": None, "set": True}}
    return [
        ({"pk": 8, "ck": "c8"}, {"op": "u", "source": source, "after": cells}),
        ({"pk": 777, "ck": "c8"}, {"op": "i", "source": source, "after": cells}),
        ({"pk": 9, "ck": "c9"}, {"op": "d", "source": source, "after": {}}),
    ]


def test_statements_of_every_kind(
    cassandra: HasCassandra, cassandra_keyspace: Callable[[], str], bootstrap: str, tmp_path: Path
) -> None:
    name = cassandra_keyspace()
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    load = Workload(seed, name)
    execute_cql(cassandra.address, *load.ddl)
    with MillraceWorker(
        tmp_path,
        bootstrap,
        group=name,
        processes=1,
        properties={
            "offset.flush.interval.ms": "200",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        },
    ) as worker:
        for statement in load.statements(150):
            if "TIMESTAMP" in statement.text:
                continue  # of two writes with one time the server takes the greater bytes
            try:
                execute_cql(cassandra.address, statement.text)
            except StackError:
                assert statement.may_fail, statement.text
        worker.create(
            name,
            {
                "connector.class": "cassandra",
                "tasks.max": "1",
                "topic.prefix": name,
                "cassandra.hosts": cassandra.address,
                "cdc.raw.directories": str(cassandra.cdc_raw),
                "table.include.list": f"{name}\\..*",
                "commit.log.delete": "false",
                "heartbeat.interval.ms": "200",
                "snapshot.mode": "never",
            },
        )
        wait_for_topic(worker, name, "t")
        result = verify(worker, name, settle_s=5)
        assert result["equal"], result
        assert tables(result)["t"]["rows"]["source"] > 0


async def test_rows_that_have_no_event_are_left_out(
    cassandra: HasCassandra, cassandra_keyspace: Callable[[], str], bootstrap: str
) -> None:
    """With ``errors.tolerance=all`` the connector runs on without them."""
    name = cassandra_keyspace()
    execute_cql(
        cassandra.address,
        f"CREATE TABLE {name}.t (pk int, ck int, n varint, PRIMARY KEY (pk, ck)) WITH cdc = true",
        *(f"INSERT INTO {name}.t (pk, ck, n) VALUES ({key % 3}, {key}, {10**30 * (key > 1)})" for key in range(20)),
    )
    config = {
        "connector.class": "cassandra",
        "topic.prefix": name,
        "output.format": "debezium",
        "varint.handling.mode": "long",
        "cassandra.hosts": cassandra.address,
        "cdc.raw.directories": str(cassandra.cdc_raw),
        "table.include.list": f"{name}\\..*",
        "errors.tolerance": "all",
    }
    request = VerificationRequest(includes=lambda _: True, offsets=list, timeout_s=60, settle_s=0.1)
    verification = build_verification(config, {"bootstrap.servers": bootstrap}, request)
    (report,) = await verification.run()
    assert (report.missing, report.extra, report.different) == (2, 0, 0)
    (note,) = [note for note in verification.notes if "left out" in note]
    assert note.startswith(
        f"18 rows of {name}.t can't be read or sent, and were left out. The first: A varint of 31 digits"
    )
