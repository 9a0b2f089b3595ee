"""Generated records: functions of seed, partition and number; transactions, paces and faults as ordered."""

import asyncio
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.datagen import faults
from connectors.datagen.connector import DatagenConnector
from connectors.datagen.fields import BUILT_IN, row_spec
from connectors.datagen.generator import Generator, identify, record, share_records
from connectors.datagen.task import partitions_of
from connectors.errors import ConfigInvalid, Fatal, Retriable
from connectors.schema import DECIMAL
from connectors.testing import Run, SavedOffsets
from connectors.testing.values import find_mismatch

if TYPE_CHECKING:
    from connectors.api import BadRecord

EVERYTHING = msgspec.json.encode(
    {
        "name": "everything",
        "fields": [
            {"name": "flag", "type": "boolean"},
            {"name": "tiny", "type": "int8"},
            {"name": "one", "type": "double", "values": [1]},
            {"name": "small", "type": "int16", "min": -5, "max": 5},
            {"name": "int", "type": "int32"},
            {"name": "long", "type": "int64"},
            {"name": "half", "type": "float"},
            {"name": "real", "type": "double", "min": -1, "max": 1},
            {"name": "text", "type": "string", "length": 7},
            {"name": "coded", "type": "string", "prefix": "C-", "min": 1, "max": 9},
            {"name": "raw", "type": "bytes", "length": 3},
            {"name": "price", "type": "decimal", "scale": 3, "max": 10},
            {"name": "day", "type": "date"},
            {"name": "at", "type": "time"},
            {"name": "when", "type": "timestamp"},
            {"name": "some", "type": "int32", "nulls": 0.5},
            {"name": "choice", "type": "string", "values": ["x", "y"]},
            {
                "name": "deep",
                "type": "struct",
                "fields": [
                    {"name": "deeper", "type": "struct", "nulls": 0.3, "fields": [{"name": "n", "type": "int32"}]}
                ],
            },
        ],
    }
).decode()


async def read(config: Mapping[str, str], count: int, offsets: SavedOffsets | None = None) -> list[Any]:
    async with Run(DatagenConnector, {"topic": "t", **config}, offsets=offsets) as run:
        return await run.read(count)


@pytest.mark.parametrize("schema", [*BUILT_IN, EVERYTHING])
@pytest.mark.parametrize("envelope", ["plain", "debezium"])
async def test_every_record_can_be_made_again(schema: str, envelope: str) -> None:
    config = {
        "schema": schema,
        "envelope": envelope,
        "seed": "42",
        "keys": "7",
        "record.size": "600",
        "partitions": "2",
        "batch.size": "10",
    }
    got = await read(config, 100)
    assert {identify(item.value) for item in got[:20]} == {(p, n) for p in (0, 1) for n in range(10)}
    for item in got:
        partition, n = identify(item.value)
        assert (item.source_partition, item.source_offset) == ({"partition": partition}, {"sequence": n})
        key, value = record(42, partition, n, schema=schema, topic="t", size=600, keys=7, envelope=envelope)
        assert (item.key, item.value) == (key, value)
        assert find_mismatch(item.value_schema, item.value) is None
        assert find_mismatch(item.key_schema, item.key, "key") is None


def test_values_fit_their_declarations() -> None:
    generator = Generator(3, 0, row_spec(EVERYTHING))
    rows = [generator.row(n) for n in range(600)]
    assert {row["some"] is None for row in rows} == {True, False}
    assert {row["deep"]["deeper"] is None for row in rows} == {True, False}
    assert {row["choice"] for row in rows} == {"x", "y"}
    assert all(-5 <= row["small"] <= 5 and len(row["text"]) == 7 and len(row["raw"]) == 3 for row in rows)
    assert all(isinstance(row["price"], Decimal) and 0 <= row["price"] <= 10 for row in rows)
    price = generator.value_schema.field("price")
    assert price is not None
    assert (price.schema.name, price.schema.parameter("scale")) == (DECIMAL, "3")


def test_rows_share_nothing_that_could_be_changed() -> None:
    generator = Generator(3, 0, row_spec(EVERYTHING))
    (first,) = generator.records(7, 8)
    first.value["deep"]["deeper"] = "spoilt"
    first.value["text"] = "spoilt"
    assert generator.row(7)["text"] != "spoilt"
    assert generator.row(7)["deep"]["deeper"] != "spoilt"
    assert generator.records(7, 8)[0].value == generator.row(7)


def test_seeds_and_partitions_give_other_rows() -> None:
    rows = [[record(seed, partition, n)[1]["orderid"] for n in range(20)] for seed in (1, 2) for partition in (0, 1)]
    assert all(rows[left] != rows[right] for left in range(4) for right in range(left))


@pytest.mark.parametrize("schema", BUILT_IN)
@pytest.mark.parametrize("size", [300, 500, 5000])
def test_rows_have_about_the_size_that_was_asked_for(schema: str, size: int) -> None:
    sizes = [len(msgspec.json.encode(record(1, 0, n, schema=schema, size=size)[1])) for n in range(99_000, 101_000, 97)]
    assert all(abs(actual - size) <= 25 for actual in sizes)


@given(records=st.integers(0, 10_000), partitions=st.integers(1, 50))
def test_records_are_shared_out(records: int, partitions: int) -> None:
    shares = [share_records(records, partitions, number) for number in range(partitions)]
    assert sum(shares) == records
    assert max(shares) - min(shares) <= 1
    assert share_records(-1, partitions, 0) == -1


@given(count=st.integers(1, 100), tasks=st.integers(1, 20))
def test_partitions_are_divided_evenly(count: int, tasks: int) -> None:
    groups = partitions_of(count, tasks)
    assert sorted(number for group in groups for number in group) == list(range(count))
    assert max(map(len, groups)) - min(map(len, groups)) <= 1


async def test_exactly_the_records_asked_for_and_then_silence() -> None:
    config = {"topic": "a, b", "records": "25", "partitions": "3", "batch.size": "4"}
    async with Run(DatagenConnector, config, max_tasks=2) as run:
        records = await run.read(25)
        assert await run.take(0.05) is None
    numbers = [identify(item.value) for item in records]
    assert sorted(numbers) == [(0, n) for n in range(9)] + [(1, n) for n in range(8)] + [(2, n) for n in range(8)]
    assert {item.topic for item in records if item.value["partition"] == 1} == {"b"}
    assert {item.topic for item in records if item.value["partition"] != 1} == {"a"}


def test_change_events_tell_each_rows_history() -> None:
    state: dict[str, Any] = {}
    for n in range(70):
        key, value = record(5, 0, n, schema="users", keys=7, envelope="debezium", topic="t")
        assert value["before"] == state.get(key["id"])
        assert value["op"] == ("c" if value["before"] is None else "d" if value["after"] is None else "u")
        assert value["after"] is None or value["after"]["id"] == key["id"]
        state[key["id"]] = value["after"]
    assert {None} < set(map(repr, state.values())) | {None}


async def test_keys_of_their_own() -> None:
    assert [item.key for item in await read({"keys": "0", "batch.size": "3"}, 3)] == ["0-0", "0-1", "0-2"]
    assert [item.value["op"] for item in await read({"keys": "0", "batch.size": "3", "envelope": "debezium"}, 3)] == [
        "c"
    ] * 3


async def test_transactions_are_the_same_after_a_restart() -> None:
    config = {"topic": "t", "partitions": "2", "transaction.size": "10", "batch.size": "4", "records": "50"}
    offsets = SavedOffsets()
    offsets.put({"partition": 1}, {"sequence": 9})
    groups: list[list[tuple[int, int]]] = [[]]
    async with Run(DatagenConnector, config, offsets=offsets, boundary="connector") as run:
        while sum(map(len, groups)) < 40:
            delivery = await run.take(10)
            assert delivery is not None
            groups[-1] += [identify(item.value) for item in delivery[1].records]
            assert len(delivery[1].records) <= 4
            if delivery[1].transaction == "commit":
                groups.append([])
    assert groups == [
        [(0, n) for n in range(10)],
        [(1, n) for n in range(10, 20)],
        [(0, n) for n in range(10, 20)],
        [(1, n) for n in range(20, 25)],
        [(0, n) for n in range(20, 25)],
        [],
    ]


async def test_a_rate_makes_batches_small() -> None:
    async with Run(DatagenConnector, {"topic": "t", "rate": "200"}) as run:
        delivery = await run.take(10)
    assert delivery is not None
    assert len(delivery[1].records) == 20


async def test_confluents_options_are_understood() -> None:
    config = {"kafka.topic": "t", "quickstart": "USERS", "iterations": "3", "max.interval": "10"}
    parsed = DatagenConnector.config_def.parse(config)
    assert (parsed["topic"], parsed["schema"], parsed["records"], parsed["max.interval"]) == (["t"], "USERS", 3, 10)
    async with Run(DatagenConnector, config) as run:
        names = list((await run.read(3))[0].value)
    assert names == ["id", "partition", "sequence", "registertime", "userid", "regionid", "gender"]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("clickstream", "Neither one of orders, users, pageviews nor a JSON object"),
        ("{", "Not a row specification"),
        ('{"name": "x"}', "missing required field `fields`"),
        ('{"name": "x", "fields": []}', "The row has no fields"),
        ('{"name": "x", "fields": [{"name": "a", "type": "int"}]}', "Invalid enum value 'int'"),
        ('{"name": "x", "fields": [{"name": "a", "type": "int32"}, {"name": "a", "type": "int32"}]}', "the same name"),
        ('{"name": "x", "fields": [{"name": "id", "type": "int32"}]}', "Every row has id already"),
        ('{"name": "x", "fields": [{"name": "a", "type": "int8", "max": 300}]}', "300.0 is not of type int8"),
        ('{"name": "x", "fields": [{"name": "a", "type": "int32", "min": 9, "max": 3}]}', "min 9.0 is above max 3.0"),
        ('{"name": "x", "fields": [{"name": "a", "type": "struct"}]}', "a has no fields"),
        ('{"name": "x", "fields": [{"name": "a", "type": "string", "nulls": 2}]}', "a share from 0 to 1"),
        ('{"name": "x", "fields": [{"name": "a", "type": "string", "colour": 2}]}', "unknown field `colour`"),
        (
            '{"name": "x", "fields": [{"name": "a", "type": "string", "length": 1000000000}]}',
            "a: length is 0 to 10000000",
        ),
        ('{"name": "x", "fields": [{"name": "a", "type": "decimal", "scale": 101}]}', "scale 0 to 100"),
        (
            '{"name": "x", "fields": [{"name": "a", "type": "boolean", "values": [1]}]}',
            "1 in values is not of type boolean",
        ),
    ],
)
def test_wrong_schemas(schema: str, words: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        DatagenConnector.config_def.parse({"topic": "t", "schema": schema})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "offset", [{"other": 1}, {"sequence": "1"}, {"sequence": -2}, {"sequence": True}, {"sequence": None}]
)
async def test_offsets_of_another_form(offset: dict[str, Any]) -> None:
    offsets = SavedOffsets()
    offsets.put({"partition": 0}, offset)
    with pytest.raises(Fatal, match="reset or alter this connector's offsets"):
        await read({}, 1, offsets)
    config = DatagenConnector.config_def.parse({"topic": "t"})
    with pytest.raises(ConfigInvalid, match="Offset objects must be"):
        await DatagenConnector.alter_offsets(config, [({"partition": 0}, offset)])


@pytest.mark.parametrize(
    "partition", [{}, {"partition": 1}, {"partition": "0"}, {"partition": 0, "more": 1}, {"partition": True}]
)
async def test_partitions_of_another_form(partition: dict[str, Any]) -> None:
    config = DatagenConnector.config_def.parse({"topic": "t"})
    with pytest.raises(ConfigInvalid, match="Partition objects must be"):
        await DatagenConnector.alter_offsets(config, [(partition, {"sequence": 1})])
    assert await DatagenConnector.alter_offsets(config, [(partition, None), ({"partition": 0}, {"sequence": -1})])


# Faults.


@pytest.mark.parametrize(("kind", "error"), [("fatal", Fatal), ("retriable", Retriable), ("unexpected", RuntimeError)])
async def test_fails_where_the_configuration_says(kind: str, error: type[Exception]) -> None:
    async with Run(
        DatagenConnector, {"topic": "t", "fault.fail.at": "7", "fault.fail.kind": kind, "batch.size": "5"}
    ) as run:
        (task,) = run.tasks
        seen: list[int] = []

        async def read_on() -> None:
            async for batch in task.batches():
                seen.extend(item.value["sequence"] for item in batch.records)

        with pytest.raises(error, match=r"fault.fail.at=7"):
            await read_on()
    assert seen == list(range(7))


async def test_a_fault_can_happen_only_once(tmp_path: Path) -> None:
    config = {
        "fault.fail.at": "3",
        "fault.fail.kind": "retriable",
        "fault.once.file": str(tmp_path / "done"),
        "records": "6",
    }
    assert [item.value["sequence"] for item in await read(config, 6)] == list(range(6))
    assert (tmp_path / "done").exists()


async def test_blocks_the_loop_where_the_configuration_says() -> None:
    from connectors.testing.blocking import audited_sleep

    config = {"topic": "t", "fault.block.loop.after": "3", "fault.block.loop.ms": "1", "batch.size": "5"}
    with audited_sleep():
        async with Run(DatagenConnector, config, watch=True) as run:
            await run.read(3)
            assert not run.blocking
            await run.read(2)
    assert len(run.blocking) == 1
    assert "time.sleep" in run.blocking[0]


async def test_hangs_until_it_is_cancelled() -> None:
    async with Run(DatagenConnector, {"topic": "t", "fault.hang.at": "3", "fault.hang.ignore.cancel": "false"}) as run:
        assert len(await run.read(3)) == 3
        assert await run.take(0.05) is None


async def test_hangs_although_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    async def sleep(_: float) -> None:
        nonlocal calls
        calls += 1
        raise asyncio.CancelledError if calls < 4 else RuntimeError("the end of the process")

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(RuntimeError, match="the end of the process"):
        await faults.Faults(DatagenConnector.config_def.parse({"topic": "t", "fault.hang.at": "3"})).happen(3)
    assert calls == 4


async def test_every_nth_record_is_bad() -> None:
    async with Run(DatagenConnector, {"topic": "t", "fault.bad.every": "4", "records": "12", "batch.size": "5"}) as run:
        good: list[int] = []
        bad: list[BadRecord] = []
        while len(good) + len(bad) < 12:
            delivery = await run.take(10)
            assert delivery is not None
            good += [item.value["sequence"] for item in delivery[1].records]
            bad += delivery[1].bad
    assert good == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    assert [item.source_offset["sequence"] for item in bad] == [3, 7, 11]
    assert [msgspec.json.decode(item.raw)["sequence"] for item in bad] == [3, 7, 11]
    assert run.offsets.items() == [({"partition": 0}, {"sequence": 11})]


def test_leaks_as_much_as_the_configuration_says() -> None:
    leaking = faults.Faults(DatagenConnector.config_def.parse({"topic": "t", "fault.leak": "100"}))
    leaking.leak(5)
    leaking.leak(2)
    assert sum(map(len, leaking._lost)) == 700
