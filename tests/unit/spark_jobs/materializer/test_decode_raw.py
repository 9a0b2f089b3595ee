"""Raw partition updates as input of the merge engine, against the reference merge.

Hypothesis covers: whatever an update says, its bytes lead to the same table as the decoded form, in a topic with both, through
JSON and Avro, in every version of the log's format.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.cql.mutations.compiled import CompiledDecoder
from connectors.cql.mutations.definition import CqlColumn as DefinedColumn
from connectors.cql.mutations.definition import CqlTableDefinition, DroppedColumn, make_definition
from connectors.cql.mutations.encode import write_update
from connectors.cql.types import parse_type
from connectors.errors import Fatal, Skippable
from connectors.formats import partition_update_raw
from connectors.formats.partition_update import (
    Cell,
    CellStamp,
    PartitionUpdate,
    UpdateDeletion,
    UpdateRow,
    UpdateSource,
)
from connectors.schema import OPTIONAL_INT64
from spark_jobs.materializer.contract import InputRecord
from spark_jobs.materializer.decoding.versions import writer_of
from tests.support.materializer import ALONE, PLAIN, WIDE, Bench, Chance, Column, MemoryRegistry, Written, expected
from tests.support.partition_merge import Table
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.schema import AvroSettings, avro_text
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLES = {"wide": WIDE, "alone": ALONE, "plain": PLAIN}
TABLE_ID = "5f1f0000-1111-2222-3333-444444444444"
POSITION = {"offset": OPTIONAL_INT64}
SEEDS = st.integers(0, 1 << 32)
T = 1_700_000_000_000_000


def define(
    columns: Sequence[Column], *, table_id: str = TABLE_ID, dropped: Sequence[DroppedColumn] = ()
) -> CqlTableDefinition:
    return make_definition(
        "ks", "t", table_id, [DefinedColumn(*column) for column in columns], dropped=dropped, cdc=True
    )


def where_of(table: CqlTableDefinition) -> UpdateSource:
    return UpdateSource(
        connector="cassandra",
        cluster="c-1",
        keyspace="ks",
        table="t",
        table_id=table.table_id,
        schema_version=table.version,
        position={"offset": 5},
        read_time=7,
    )


class RawWritten:
    """As ``Written``, in the raw form."""

    def __init__(self, table: CqlTableDefinition, registry: MemoryRegistry | None = None, version: int = 7) -> None:
        self.table = table
        self.version = version
        self.source = where_of(table)
        self.schema = partition_update_raw.raw_schema(self.source, table, version, POSITION)
        self.text = avro_text(self.schema, AvroSettings())
        if registry is None:
            self._bytes: Any = JsonConverter({"schemas.enable": "false"}).encoder("t", self.schema)
        else:
            number = registry.register("in-value", self.text)
            self._bytes = compile_avro(self.schema, AvroSettings(), b"\x00" + number.to_bytes(4, "big"))

    def record(self, update: PartitionUpdate, offset: int = 0) -> InputRecord:
        return self.message(write_update(update, self.table, self.version), offset, snapshot=update.source.snapshot)

    def message(self, update: bytes, offset: int = 0, *, snapshot: bool = False) -> InputRecord:
        value = {
            "source": {
                "schema": self.source.schema,
                "snapshot": snapshot,
                "read_time": 7,
                "position": {"offset": offset},
            },
            "write_time": 0,
            "update": update,
        }
        return InputRecord(b"", self._bytes(value), offset, 0)


def bench(
    columns: Sequence[Column], *, avro: bool, version: int = 7, **options: Any
) -> tuple[Bench, RawWritten, Written]:
    """An engine, and what writes the raw and the decoded form of one table."""
    registry = MemoryRegistry()
    raw = RawWritten(define(columns), registry if avro else None, version)
    decoded = Written(columns, registry if avro else None, raw.source)
    engine_bench = Bench(
        registry=registry, input_encoding="avro" if avro else "json", input_schemas=(raw.text, decoded.text), **options
    )
    return engine_bench, raw, decoded


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("avro", [False, True], ids=["json", "avro"])
@given(SEEDS, st.sampled_from([7, 8, 9]))
@settings(max_examples=20, deadline=None)
def test_both_forms_lead_to_one_table(name: str, avro: bool, seed: int, version: int) -> None:
    columns = TABLES[name]
    chance = Chance(seed, ttl=True)
    several = chance.several(columns)
    order = several + several[:2]
    chance.random.shuffle(order)
    engine_bench, raw, decoded = bench(columns, avro=avro, version=version, limit=chance.random.choice([1, 1000]))
    for offset, update in enumerate(order):
        engine_bench.apply((decoded if chance.random.random() < 0.3 else raw).record(update, offset))
    oracle = Table(columns).apply_all(several)
    assert engine_bench.table() == expected(oracle.contents(), columns)
    engine_bench.expire(4)
    assert engine_bench.table() == expected(oracle.contents(now_s=4), columns)


BENCH = [
    Column("pk", parse_type("text"), "partition_key", 0),
    Column("x", parse_type("int"), "clustering", 0),
    *(Column(f"c{number}", parse_type("bigint"), "regular") for number in range(4)),
    Column("st", parse_type("int"), "static"),
]


def row(
    x: int, second: int, values: dict[str, int | None] | None = None, *, live: bool = True, expires: int | None = None
) -> UpdateRow:
    at = T + second * 1_000_000
    stamp = CellStamp(at, None if expires is None else 60, expires)
    return UpdateRow(
        (x,),
        stamp if live else None,
        None,
        tuple(
            Cell(name, None, value, stamp if value is not None else CellStamp(at))
            for name, value in (values or {}).items()
        ),
    )


def update(*rows: UpdateRow, **parts: Any) -> PartitionUpdate:
    return PartitionUpdate(source=where_of(define(BENCH)), key=("a",), write_time=100, rows=rows, **parts)


SIMPLE = {
    "insert": update(row(1, 100, {"c0": 1, "c1": 2, "c2": 3, "c3": 4})),
    "some": update(row(1, 100, {"c1": 2, "c3": 4}, live=False)),
    "one": update(row(1, 100, {"c2": 7}, live=False)),
    "tombstones": update(row(1, 100, {"c0": None, "c1": 2, "c3": None})),
    "key": update(row(1, 100)),
    "ttl": update(row(1, 100, {"c0": 1}, expires=1_700_000_160)),
    "several": update(row(1, 100, {"c0": 1}), row(2, 100, {"c1": 1, "c0": 4}), row(3, 90, {"c0": 3}, live=False)),
    "static": update(
        row(1, 100, {"c0": 1}), static=UpdateRow((), None, None, (Cell("st", None, 5, CellStamp(T + 100_000_000)),))
    ),
}


@pytest.mark.parametrize("name", SIMPLE)
def test_the_fast_way_says_the_same_as_the_complete_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fast_way = CompiledDecoder.plain
    plain_results: list[Any] = []
    tables = []
    for fast in (True, False):

        def plain(decoder: CompiledDecoder, data: bytes, position: int, fast: bool = fast) -> Any:
            plain_results.append(fast_way(decoder, data, position) if fast else None)
            return plain_results[-1]

        monkeypatch.setattr(CompiledDecoder, "plain", plain)
        engine_bench, raw, _ = bench(BENCH, avro=True)
        engine_bench.apply(raw.record(update(row(1, 50, dict.fromkeys(("c0", "c1", "c2", "c3"), 9)))))
        for _ in range(10):  # a shape has its own code once it has come often enough
            engine_bench.apply(raw.record(msgspec.structs.replace(SIMPLE[name], key=("z",))))
        engine_bench.apply(raw.record(SIMPLE[name], 1))
        assert (plain_results[-1] is not None) == fast
        tables.append((engine_bench.table(), engine_bench.events[-1]["source"]["ts_us"]))
    assert tables[0] == tables[1]
    # Of several rows the last event is of the newest write time too.
    assert tables[0][1] == T + 100_000_000


def test_damaged_bytes_are_refused_and_change_nothing() -> None:
    chance = Chance(11)
    draw = chance.random
    engine_bench, raw, _ = bench(WIDE, avro=True)
    engine_bench.chained = False
    refused = 0
    for _ in range(400):
        data = bytearray(write_update(chance.update(WIDE), raw.table, 7))
        if draw.random() < 0.5:
            del data[draw.randrange(len(data)) :]
        else:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        before = dict(engine_bench.store.values)
        try:
            engine_bench.apply(raw.message(bytes(data)))
        except Skippable:
            refused += 1
            # The table's catalog may have been learnt from the schema.
            assert {key: value for key, value in engine_bench.store.values.items() if len(key) > 3} == {
                key: value for key, value in before.items() if len(key) > 3
            }
    assert refused > 200


def test_bytes_of_another_table_are_refused_by_name() -> None:
    engine_bench, raw, _ = bench(PLAIN, avro=True)
    other = define(PLAIN, table_id="99999999-1111-2222-3333-444444444444")
    when = CellStamp(100)
    data = write_update(
        PartitionUpdate(
            source=where_of(other),
            key=("a",),
            write_time=100,
            rows=(UpdateRow((), when, None, (Cell("v", None, "x", when),)),),
        ),
        other,
        7,
    )
    with pytest.raises(Skippable, match="another table"):
        engine_bench.apply(raw.message(data))
    with pytest.raises(Skippable, match=r"ends at byte \d+ of"):
        engine_bench.apply(raw.message(TABLE_ID_BYTES + data[16:] + b"\x01"))


TABLE_ID_BYTES = bytes.fromhex(TABLE_ID.replace("-", ""))


@pytest.mark.parametrize("avro", [False, True], ids=["json", "avro"])
def test_versions_of_a_table_follow_each_other(avro: bool) -> None:
    registry = MemoryRegistry()
    first = RawWritten(define(PLAIN), registry if avro else None)
    wider = [*PLAIN, Column("w", parse_type("int"), "regular")]
    second = RawWritten(define(wider), registry if avro else None)
    engine_bench = Bench(
        registry=registry, input_encoding="avro" if avro else "json", input_schemas=(first.text, second.text)
    )
    engine_bench.chained = False
    earliest, later, latest = (CellStamp(at) for at in (100, 200, 300))

    def said(*cells: Cell) -> PartitionUpdate:
        return PartitionUpdate(
            source=first.source, key=("a",), write_time=100, rows=(UpdateRow((), earliest, None, cells),)
        )

    engine_bench.apply(first.record(said(Cell("v", None, "x", earliest))))
    engine_bench.apply(second.record(said(Cell("w", None, 5, later))))
    engine_bench.apply(first.record(said(Cell("n", None, 7, latest))))
    assert engine_bench.table() == {"('a',)": [{"pk": "a", "n": 7, "v": "x", "w": 5}]}
    assert [event["op"] for event in engine_bench.events] == ["c", "u", "u"]


def test_a_column_that_was_dropped_and_added_again_hides_what_it_had() -> None:
    dropped = (DroppedColumn("v", parse_type("text"), "regular", 150),)
    engine_bench = Bench(registry=(registry := MemoryRegistry()), input_encoding="avro")
    raw = RawWritten(define(PLAIN, dropped=dropped), registry)
    for at, text in ((100, "old"), (200, "new"), (120, "older")):
        when = CellStamp(at)
        engine_bench.apply(
            raw.record(
                PartitionUpdate(
                    source=raw.source,
                    key=("a",),
                    write_time=at,
                    rows=(UpdateRow((), when, None, (Cell("v", None, text, when), Cell("n", None, at, when))),),
                )
            )
        )
    assert [event["after"]["v"] for event in engine_bench.events] == [None, "new"]


@pytest.mark.parametrize("raw", [False, True], ids=["decoded", "raw"])
def test_a_column_is_dropped_and_added_again_while_changes_come(raw: bool) -> None:
    """It is another column then: new values are shown, and what it had before stays away, however late it comes."""
    without = [column for column in PLAIN if column.name != "v"]
    dropped = (DroppedColumn("v", parse_type("text"), "regular", 150),)
    tables = define(PLAIN), define(without, dropped=dropped), define(PLAIN, dropped=dropped)
    registry = MemoryRegistry()
    engine_bench = Bench(registry=registry, input_encoding="avro")
    engine_bench.chained = False

    def say(number: int, at: int, **values: Any) -> None:
        where, when = where_of(tables[number]), CellStamp(at)
        change = PartitionUpdate(
            source=where,
            key=("a",),
            write_time=at,
            rows=(UpdateRow((), when, None, tuple(Cell(name, None, value, when) for name, value in values.items())),),
        )
        engine_bench.apply(
            RawWritten(tables[number], registry).record(change)
            if raw
            else Written(PLAIN if number != 1 else without, registry, where).record(change)
        )

    say(0, 100, n=1, v="old")
    say(1, 160, n=2)
    say(2, 200, v="new")
    say(0, 110, v="late")
    assert engine_bench.table() == {"('a',)": [{"pk": "a", "n": 2, "v": "new"}]}


@pytest.mark.parametrize("order", [(0.0, -0.0), (-0.0, 0.0)])
def test_of_vectors_with_one_write_time_the_one_with_the_larger_bytes_counts(order: tuple[float, ...]) -> None:
    columns = [PLAIN[0], Column("v", parse_type("vector<float, 1>"), "regular")]
    engine_bench, raw, _ = bench(columns, avro=True)
    when = CellStamp(T)
    for zero in order:
        row_of_vector = UpdateRow((), when, None, (Cell("v", None, [zero], when),))
        engine_bench.apply(
            raw.record(PartitionUpdate(source=raw.source, key=("a",), write_time=T, rows=(row_of_vector,)))
        )
    (merged,) = engine_bench.rows.values()
    assert repr(merged["v"]) == "[-0.0]"


def test_what_can_not_be_read_says_why() -> None:
    raw = RawWritten(define(PLAIN))

    def parameters(**changes: str | None) -> Any:
        names = {name.replace("_", "."): value for name, value in changes.items()}
        kept = tuple((name, names.pop(name, value)) for name, value in raw.schema.parameters)
        return replace(raw.schema, parameters=tuple((name, value) for name, value in kept if value is not None))

    for changes, text in (
        ({"form_version": "2"}, "form.version '2'"),
        ({"log_version": "6"}, "log.version='6'"),
        ({"definition": None}, "definition of 0 characters"),
    ):
        schema = parameters(**changes)
        with pytest.raises(Fatal, match=text):
            writer_of(schema, 1, avro_text(schema, AvroSettings()))


def test_a_json_message_tells_its_form() -> None:
    """Both forms of one definition, without schemas in the messages: each is found among the given schemas."""
    engine_bench, raw, decoded = bench(PLAIN, avro=False)
    for number in range(4):
        when = CellStamp(100 + number)
        update = PartitionUpdate(
            source=raw.source,
            key=("a",),
            write_time=when.write_time,
            rows=(UpdateRow((), when, None, (Cell("n", None, number, when),)),),
        )
        engine_bench.apply(decoded.record(update) if number % 2 else raw.record(update))
    assert [event["after"]["n"] for event in engine_bench.events] == [0, 1, 2, 3]
    engine_bench, raw, _ = bench(PLAIN, avro=False)
    lone = Bench(input_encoding="json", input_schemas=(Written(PLAIN, None, raw.source).text,))
    with pytest.raises(Skippable, match=r"definition .* raw of its table"):
        lone.apply(raw.message(b""))


def test_an_update_that_says_nothing_changes_nothing() -> None:
    engine_bench, raw, _ = bench(PLAIN, avro=True)
    engine_bench.apply(
        raw.message(write_update(PartitionUpdate(source=raw.source, key=("a",), write_time=0), raw.table, 7))
    )
    assert engine_bench.output == []


def test_a_snapshot_reads_as_one() -> None:
    engine_bench, raw, _ = bench(PLAIN, avro=True)
    source = msgspec.structs.replace(raw.source, snapshot=True)
    when = CellStamp(100)
    engine_bench.apply(
        raw.record(
            PartitionUpdate(
                source=source,
                key=("a",),
                write_time=100,
                deletion=UpdateDeletion(50, 0),
                rows=(UpdateRow((), when, None, (Cell("n", None, 1, when),)),),
            )
        )
    )
    assert [(event["op"], event["source"]["snapshot"]) for event in engine_bench.events] == [("r", "true")]


def test_any_set_of_columns() -> None:
    """Updates of random columns: each shape is learnt once, and gives each column its own value."""
    chance = random.Random(5)
    engine_bench, raw, _ = bench(BENCH, avro=True)
    row_now: dict[str, int | None] = {}
    for at in range(100, 160):
        names = [f"c{number}" for number in range(4) if chance.random() < 0.5]
        values: dict[str, int | None] = {name: at * 10 + index for index, name in enumerate(names)}
        row_now |= values
        engine_bench.apply(raw.record(update(row(1, at, values)), at))
    (shown,) = engine_bench.rows.values()
    assert {name: value for name, value in shown.items() if name.startswith("c")} == row_now
