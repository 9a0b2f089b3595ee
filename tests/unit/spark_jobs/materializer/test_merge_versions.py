"""The merge engine with several versions of a table: columns and types that change, and a table that is recreated."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from connectors.cql.types import CqlType, parse_type
from connectors.formats import timeuuid
from connectors.formats.partition_update import Cell, PartitionUpdate, UpdateRow
from tests.support.materializer import PLAIN, UDT, Bench, Column, MemoryRegistry, Written, source
from tests.unit.spark_jobs.materializer.test_merge_engine import operations, stamp, update


def versions() -> tuple[Bench, list[Written]]:
    registry = MemoryRegistry()
    engine_bench = Bench(registry=registry, input_encoding="avro")
    engine_bench.chained = False
    key, n, _ = PLAIN
    tables = [(PLAIN, "1"), ([key, n], "2"), (PLAIN, "3"), ([key, n, Column("v", parse_type("int"), "regular")], "4")]
    return engine_bench, [Written(columns, registry, source(version=version)) for columns, version in tables]


def cell(name: str, value: Any, at: float, *, live: bool = False) -> PartitionUpdate:
    return update(UpdateRow((), stamp(at) if live else None, None, (Cell(name, None, value, stamp(at)),)), at=at)


def test_a_dropped_column_does_not_come_back() -> None:
    engine_bench, (first, without, readded, other) = versions()
    engine_bench.apply(first.record(cell("v", "old", 100, live=True)))
    engine_bench.apply(without.record(cell("n", 1, 101)))
    assert (engine_bench.events[-1]["before"], engine_bench.events[-1]["after"]) == (
        {"pk": "a", "n": None},
        {"pk": "a", "n": 1},
    )
    engine_bench.apply(readded.record(cell("n", 2, 102)))
    assert engine_bench.events[-1]["after"] == {"pk": "a", "n": 2, "v": None}
    engine_bench.apply(first.record(cell("v", "late", 200)))
    assert engine_bench.events[-1]["after"] == {"pk": "a", "n": 2, "v": None}
    engine_bench.apply(readded.record(cell("v", "new", 103)))
    assert engine_bench.events[-1]["after"] == {"pk": "a", "n": 2, "v": "new"}
    engine_bench.apply(other.record(cell("v", 7, 104)))
    assert engine_bench.events[-1]["after"] == {"pk": "a", "n": 2, "v": 7}
    engine_bench.apply(readded.record(cell("v", "text", 300)))
    assert engine_bench.events[-1]["after"] == {"pk": "a", "n": 2, "v": 7}


def test_a_row_that_lived_by_a_dropped_column_is_deleted_when_it_is_touched() -> None:
    engine_bench, (first, without, *_) = versions()
    engine_bench.apply(first.record(cell("v", "old", 100)))
    engine_bench.apply(without.record(cell("n", None, 101)))
    assert operations(engine_bench) == "cd"


def test_values_of_a_type_keep_their_fields_when_these_are_renamed() -> None:
    """The second version has another name of a field, and a third field."""
    registry = MemoryRegistry()
    engine_bench = Bench(registry=registry, input_encoding="avro")
    engine_bench.chained = False
    renamed = replace(UDT, arguments=(*UDT.arguments, parse_type("int")), field_names=("other", "b c", "late"))
    written = []
    for version, kind in (("1", UDT), ("2", renamed)):
        frozen = replace(kind, frozen=True)
        types = {"f": frozen, "lf": CqlType("list", (frozen,)), "u": kind, "n": parse_type("int")}
        columns = [PLAIN[0], *(Column(name, type_, "regular") for name, type_ in types.items())]
        written.append(Written(columns, registry, source(version=version)))
    first, second = written
    value = {"a": "x", "b c": b""}
    cells = [
        ("f", None, value),
        ("lf", timeuuid.format_uuid(timeuuid.make_uuid(1_000_000, 1)), value),
        ("u", "a", "x"),
        ("u", "b c", b"y"),
    ]
    row = UpdateRow((), stamp(100), None, tuple(Cell(*parts, stamp(100)) for parts in cells))
    engine_bench.apply(first.record(update(row, at=100)))

    engine_bench.apply(second.record(cell("n", 1, 101)))
    whole = {"other": "x", "_x622063": "", "late": None}
    assert engine_bench.events[-1]["after"] == {
        "pk": "a", "f": whole, "lf": [whole], "u": {**whole, "_x622063": "eQ=="}, "n": 1
    }  # fmt: skip
    later = UpdateRow(
        (), None, None, (Cell("u", "a", "w", stamp(102)), Cell("f", None, {**value, "a": "w"}, stamp(100)))
    )
    engine_bench.apply(first.record(update(later, at=102)))
    after = engine_bench.events[-1]["after"]
    assert (after["u"]["other"], after["f"]["other"]) == ("w", "x")
    assert [row.values for row in engine_bench.engine.rows(engine_bench.store)] == [after]


def test_a_field_that_a_type_of_the_key_gets_is_in_the_keys_of_later_events_of_the_same_row() -> None:
    registry = MemoryRegistry()
    engine_bench = Bench(registry=registry, input_encoding="avro")
    engine_bench.folds = False
    older = replace(UDT, frozen=True)
    newer = replace(older, arguments=(*older.arguments, parse_type("int")), field_names=("a", "b c", "late"))
    first, second = (
        Written([PLAIN[0], Column("x", kind, "clustering", 0), PLAIN[1]], registry, source(version=version))
        for version, kind in (("1", older), ("2", newer))
    )
    row = UpdateRow(({"a": "x", "b c": None},), stamp(100), None, (Cell("n", None, 1, stamp(100)),))
    engine_bench.apply(first.record(update(row, at=100)))
    later = UpdateRow(({"a": "x", "b c": None, "late": None},), None, None, (Cell("n", None, 2, stamp(101)),))
    engine_bench.apply(second.record(update(later, at=101)))
    keys = [
        {"pk": "a", "x": {"a": "x", "_x622063": None}},
        {"pk": "a", "x": {"a": "x", "_x622063": None, "late": None}},
    ]
    assert [json.loads(record.key) for record in engine_bench.output] == keys
    event = json.loads(engine_bench.output[-1].value or b"")
    assert (event["op"], event["before"], event["after"]) == ("u", {**keys[1], "n": 1}, {**keys[1], "n": 2})
    assert len(list(engine_bench.engine.rows(engine_bench.store))) == 1


def test_another_table_of_the_same_name_begins_from_scratch() -> None:
    registry = MemoryRegistry()
    engine_bench = Bench(registry=registry, input_encoding="avro")
    engine_bench.chained = False
    old = Written(PLAIN, registry)
    new = Written(PLAIN, registry, source(table_id="beef"))
    engine_bench.apply(old.record(cell("v", "old", 500, live=True)))
    engine_bench.apply(new.record(cell("n", 1, 100, live=True)))
    assert (engine_bench.events[-1]["op"], engine_bench.events[-1]["after"]) == ("u", {"pk": "a", "n": 1, "v": None})
    engine_bench.apply(old.record(cell("v", "late", 900, live=True)))
    assert engine_bench.events[-1]["after"]["v"] is None
