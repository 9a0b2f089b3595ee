"""The merge engine with messages that it can't merge, and with state that is damaged."""

from __future__ import annotations

import msgspec
import pytest

from connectors.cql.types import parse_type
from connectors.errors import Fatal, Skippable
from connectors.formats.partition_update import Cell, PartitionUpdate, UpdateRow
from spark_jobs.materializer.engine.keys import CATALOG
from tests.support.materializer import PLAIN, WIDE, Column, MemoryRegistry, source
from tests.unit.spark_jobs.materializer.test_merge_engine import bench, filled, plain, stamp, update


def test_a_message_with_a_row_that_cannot_be_merged_changes_nothing_of_its_partition() -> None:
    engine_bench, written = bench(WIDE)
    filled(engine_bench, written)
    before = dict(engine_bench.store.values)
    row = UpdateRow((50, 0), stamp(96), None, (Cell("lf", "no uuid", {"a": "x", "b c": b""}, stamp(96)),))
    static = UpdateRow((), None, None, (Cell("st", None, 5, stamp(96)),))
    with pytest.raises(Skippable, match="not of its column's type"):
        engine_bench.engine.apply(written.record(update(row, static=static, at=96)), engine_bench.store, [])
    assert engine_bench.store.values == before


def test_bad_messages_change_nothing() -> None:
    engine_bench, written = bench(PLAIN)
    good = written.record(plain("x", 100))
    for value in (
        b"",
        b"nonsense",
        b"{}",
        b'{"source":{"schema":"1.2"}}',
        (good.value or b"").replace(b'"x"', b"5"),
        (good.value or b"").replace(b'{"pk":"a"}', b'{"pk":""}'),
    ):
        with pytest.raises(Skippable):
            engine_bench.engine.apply(good._replace(value=value), engine_bench.store, [])
    assert set(engine_bench.store.values) <= {CATALOG}
    registry = MemoryRegistry()
    engine_bench, written = bench(PLAIN, avro=True)
    good = written.record(plain("x", 100))
    for value in (b"", b"\x00\x00", b"{}", (good.value or b"")[:-3], (good.value or b"") + b"x"):
        with pytest.raises(Skippable):
            engine_bench.engine.apply(good._replace(value=value), engine_bench.store, [])
    assert not registry.schemas
    assert set(engine_bench.store.values) <= {CATALOG}


@pytest.mark.parametrize(
    ("kind", "number", "bad_number"),
    [
        ("decimal", "1.5", b'"1,5"'),
        ("decimal", "1.5", b'"1E-9999999999"'),
        ("varint", "15", b'"1E999999999"'),
        ("int", 15, b"15000000000"),
    ],
)
def test_a_key_that_is_no_number_of_its_type_is_a_bad_message(kind: str, number: int | str, bad_number: bytes) -> None:
    engine_bench, written = bench([Column("pk", parse_type(kind), "partition_key", 0), PLAIN[1]])
    good = written.record(PartitionUpdate(source=source(), key=(number,), write_time=100_000_000))
    bad = good._replace(value=(good.value or b"").replace(msgspec.json.encode(number), bad_number))
    with pytest.raises(Skippable, match="partition key at offset"):
        engine_bench.engine.route(bad)
    with pytest.raises(Skippable, match="not of its column's type"):
        engine_bench.engine.apply(bad, engine_bench.store, [])


def test_damaged_state_stops() -> None:
    engine_bench, written = bench(PLAIN)
    engine_bench.apply(written.record(plain("x", 100)))
    key = next(key for key in engine_bench.store.values if key != CATALOG)
    engine_bench.store.values[key] = bytes(8) + b"\xc1"
    with pytest.raises(Fatal, match="rebuild"):
        engine_bench.apply(written.record(plain("y", 101)))
