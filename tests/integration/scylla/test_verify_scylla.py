"""Verifications of the Scylla emulation: equal in each form while it is written to, and what differs is found."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.process.service import wait_until
from compose.local.scylla.writes import Delete, Insert, Update
from compose.local.worker import MillraceWorker
from connectors.formats.names import field_name
from tests.support.verified import send, tables, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from compose.local.scylla.client import Emulation
    from compose.local.scylla.writes import Write

FORMS: dict[str, dict[str, str]] = {
    "partition-update": {"output.format": "partition-update"},
    "legacy": {},
    "advanced": {
        "cdc.output.format": "advanced",
        "cdc.include.before": "full",
        "cdc.include.after": "full",
    },
}
#: A name that a partition update writes in another way.
COLUMN = '"b b"'
FAR_US = 4_000_000_000_000_000


def random_write(chance: random.Random, table: str) -> Write:
    pk, ck = chance.randrange(30), chance.randrange(8)
    key = {"pk": pk, "ck": ck}
    writes: list[Write] = [
        Insert(table, {**key, "a": chance.randrange(1000), "b b": f"b{pk}"}),
        Insert(table, {**key, "a": chance.randrange(1000), "b b": "ä"}),
        Update(table, key, {"a": chance.randrange(1000)}),
        Update(table, key, {"b b": chance.choice([None, "x"])}),
        Update(table, {"pk": pk}, {"st": chance.choice([None, 1, 2])}),
        Delete(table, key),
    ]
    return chance.choice(writes)


@contextmanager
def capture(scylla: Emulation, table: str, bootstrap: str, folder: Path, form: str) -> Iterator[MillraceWorker]:
    """A worker whose connector, named like the keyspace, captures the table."""
    name = table.partition(".")[0]
    with MillraceWorker(
        folder,
        bootstrap,
        group=name,
        processes=1,
        properties={
            "offset.flush.interval.ms": "200",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter"
            if form != "partition-update"
            else "org.apache.kafka.connect.converters.ByteArrayConverter",
            "key.converter.schemas.enable": "false",
        },
    ) as worker:
        worker.create(
            name,
            {
                "connector.class": "scylla",
                "tasks.max": "1",
                "topic.prefix": name,
                "scylla.cluster.ip.addresses": scylla.address,
                "scylla.table.names": table,
                "scylla.confidence.window.size": "1000",
                "scylla.window.min.ms": "100",
                "scylla.initial.lookback.ms": "50000",
                "heartbeat.interval.ms": "200",
                **FORMS[form],
            },
        )
        topics = f"/connectors/{name}/topics"
        # The log's first window is read after its confidence window; a verification does not wait for a first row.
        assert wait_until(lambda: f"{name}.{table}" in worker.request("GET", topics)[1][name]["topics"], 90, 0.5)
        yield worker


@pytest.mark.parametrize("form", FORMS)
def test_a_topic_is_compared_with_its_table(
    scylla: Emulation, scylla_keyspace: Callable[..., str], bootstrap: str, tmp_path: Path, form: str
) -> None:
    if not scylla.emulated:
        pytest.skip("writes are those of the emulation")
    name = scylla_keyspace()
    table = f"{name}.t"
    cdc = "{'enabled': true, 'preimage': 'full', 'postimage': true}" if form == "advanced" else "{'enabled': true}"
    scylla.create_table(
        f"CREATE TABLE {table} (pk int, ck int, st int static, a int, {COLUMN} text, PRIMARY KEY (pk, ck)) WITH cdc = {cdc}"
    )
    scylla.new_generation(4, 2, start_ms=int(time.time() * 1000) - 60_000)
    chance = random.Random(11)
    for _ in range(300):
        scylla.apply(random_write(chance, table))
    scylla.apply(Insert(table, {"pk": 100, "ck": 1, "a": 1, "b b": "one"}))
    scylla.apply(Insert(table, {"pk": 101, "ck": 1, "a": 1, "b b": "one"}))
    with capture(scylla, table, bootstrap, tmp_path, form) as worker:
        result = verify(worker, name, settle_s=1)
        compared = tables(result)["t"]
        assert compared["equal"], result
        assert compared["unsettled"] == 0, result
        assert compared["rows"]["source"] == compared["rows"]["topic"] > 50
        send(bootstrap, f"{name}.{table}", messages(form))
        compared = tables(verify(worker, name, settle_s=1))["t"]
        assert (compared["missing"], compared["extra"], compared["different"]) == (1, 1, 1), compared
        assert compared["examples"] == {
            "different": ['{"pk":100,"ck":1}'],
            "extra": ['{"pk":777,"ck":1}'],
            "missing": ['{"pk":101,"ck":1}'],
        }
        field = field_of(form)
        sides = {row["kind"]: (row["source"], row["topic"]) for row in compared["differences"]}
        assert sides["different"] == ({field: '"one"'}, {field: '"other"'})
        assert sides["missing"] == ({"a": "1", field: '"one"'}, None)
        assert sides["extra"] == (None, {field: '"other"'})


@pytest.mark.parametrize("form", ["partition-update", "legacy"])
def test_a_row_that_the_topic_lacks_is_sent_again(
    scylla: Emulation, scylla_keyspace: Callable[..., str], bootstrap: str, tmp_path: Path, form: str
) -> None:
    if not scylla.emulated:
        pytest.skip("a row without its log is written past the emulation")
    name = scylla_keyspace()
    table = f"{name}.t"
    scylla.create_table(
        f"CREATE TABLE {table} (pk int, ck int, a int, PRIMARY KEY (pk, ck)) WITH cdc = {{'enabled': true}}"
    )
    scylla.apply(Insert(table, {"pk": 1, "ck": 1, "a": 1}))
    with capture(scylla, table, bootstrap, tmp_path, form) as worker:
        assert tables(verify(worker, name, settle_s=1))["t"]["equal"]
        scylla.execute(f"INSERT INTO {table} (pk, ck, a) VALUES (2, 1, 5)")  # noqa: S608 - past the emulation: the log lacks it
        assert tables(verify(worker, name, settle_s=1))["t"]["examples"]["missing"] == ['{"pk":2,"ck":1}']
        status, snapshot = worker.request("POST", f"/connectors/{name}/verify/repair")
        assert status == 202, snapshot
        path = f"/connectors/{name}/snapshots/{snapshot['id']}"
        assert wait_until(lambda: worker.request("GET", path)[1]["state"] == "completed", 90, 0.5)
        assert tables(verify(worker, name, settle_s=1))["t"]["equal"]


def field_of(form: str) -> str:
    """The field of the column."""
    return field_name("b b") if form == "partition-update" else "b b"


def messages(form: str) -> list[tuple[Any, Any]]:
    """Row (100, 1) is another one, (777, 1) is there as well, (101, 1) is gone."""
    field = field_of(form)
    if form == "partition-update":
        plain: dict[str, Any] = {"source": {"schema": "", "snapshot": False}, "write_time": FAR_US}
        row = {"clustering": {"ck": 1}, "cells": {field: "other"}}
        gone = {"clustering": {"ck": 1}, "deletion": {"write_time": FAR_US, "local_deletion_time": 1}}
        return [
            (b"1", {**plain, "key": {"pk": 100}, "rows": [row]}),
            (b"2", {**plain, "key": {"pk": 777}, "rows": [row]}),
            (b"3", {**plain, "key": {"pk": 101}, "rows": [gone]}),
        ]
    source = {"ts_us": FAR_US, "ts_ms": FAR_US // 1000}
    value: Any = "other" if form == "advanced" else {"value": "other"}
    return [
        (
            {"pk": 100, "ck": 1},
            {"op": "u", "source": source, "before": None, "after": {"pk": 100, "ck": 1, field: value}},
        ),
        (
            {"pk": 777, "ck": 1},
            {"op": "c", "source": source, "before": None, "after": {"pk": 777, "ck": 1, field: value}},
        ),
        ({"pk": 101, "ck": 1}, {"op": "d", "source": source, "before": {"pk": 101, "ck": 1}, "after": None}),
    ]
