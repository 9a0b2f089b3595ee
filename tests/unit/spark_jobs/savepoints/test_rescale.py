"""Buckets by key, and another number of them: the events continue as if the number had never changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.cql.types import parse_type
from connectors.errors import Fatal
from spark_jobs.materializer.contract import InputRecord
from spark_jobs.materializer.decoding.catalog import BucketCatalog, pack_catalog, unpack_catalog
from spark_jobs.materializer.engine.keys import CATALOG, bucket_of, partition_prefix
from spark_jobs.materializer.engine.model import state_key_parts
from spark_jobs.materializer.engine.rescale import make_renumbering, merge_catalogs
from spark_jobs.materializer.routing import buckets_of
from tests.selection import scaled
from tests.support.materializer import (
    ALONE,
    PLAIN,
    WIDE,
    Bench,
    Chance,
    Column,
    MemoryRegistry,
    Written,
    expected,
    source,
)
from tests.support.partition_merge import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.formats.partition_update import PartitionUpdate

TABLES = {"wide": WIDE, "alone": ALONE, "plain": PLAIN}
LATER = Column("A", parse_type("int"), "regular")


class Buckets:
    """The benches of all buckets, whose events fold into one table."""

    def __init__(self, count: int, rows: dict[bytes, Any], make_bench: Any) -> None:
        self.benches: list[Bench] = [make_bench() for _ in range(count)]
        for number, bench in enumerate(self.benches):
            bench.rows = rows
            bench.engine.limit_to(number, count)

    def apply(self, record: InputRecord) -> None:
        """Give the record to the buckets that it is for."""
        for number in buckets_of(self.benches[0].engine, record, len(self.benches)):
            self.benches[number].apply(record)

    def rescaled(self, count: int, make_bench: Any, *, registry: bool) -> Buckets:
        """The same state in another number of buckets, as a savepoint brings it there; as it is where that is refused."""
        stores = [bench.store for bench in self.benches]
        catalogs = [unpack_catalog(bench.values[CATALOG]) for bench in stores if CATALOG in bench.values]
        seen = [{version.ident for version in catalog.versions} for catalog in catalogs]
        if not registry and set().union(*seen) not in (set(), *seen):
            # No bucket has seen all versions, so nothing says which one is the newest.
            with pytest.raises(Fatal, match="which is the newer one"):
                merge_catalogs(catalogs, ordered_by_registry=False)
            return self
        merged = merge_catalogs(catalogs, ordered_by_registry=registry)
        buckets = Buckets(count, self.benches[0].rows, make_bench)
        for bench in buckets.benches:
            bench.now_s = self.benches[0].now_s
            if merged.versions:
                bench.store.put(CATALOG, pack_catalog(merged))
        for store in stores:
            if CATALOG not in store.values:
                continue
            change = make_renumbering(unpack_catalog(store.values[CATALOG]), merged)
            for key, blob in store.values.items():
                if key != CATALOG:
                    target = bucket_of(partition_prefix(state_key_parts(key)[0]), count)
                    buckets.benches[target].store.put(key, change.record(key, blob))
        return buckets


def versions(columns: Sequence[Any], registry: MemoryRegistry, *, avro: bool) -> list[Written]:
    # The new column comes first: a bucket that meets the second version first numbers all columns in another way.
    wider = sorted([LATER, *columns], key=lambda column: (column.kind == "regular", column is not LATER))
    return [
        Written(column, registry if avro else None, source(version=version))
        for column, version in ((list(columns), "1"), (wider, "2"))
    ]


def changed(update: PartitionUpdate, **fields: Any) -> PartitionUpdate:
    return msgspec.structs.replace(update, **fields)


@pytest.mark.scaled
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("avro", [False, True], ids=["json", "avro"])
@given(st.integers(0, 1 << 32))
@settings(max_examples=scaled(8, 60), deadline=None)
def test_the_table_is_that_of_a_job_that_was_never_rescaled(name: str, avro: bool, seed: int) -> None:
    columns = TABLES[name]
    chance = Chance(seed, ttl=seed % 3 == 0)
    registry = MemoryRegistry()
    writers = versions(columns, registry, avro=avro)
    schemas = tuple(bench.text for bench in writers)

    def make_bench() -> Bench:
        bench = Bench(registry=registry, input_encoding="avro" if avro else "json", input_schemas=schemas)
        bench.chained = False  # a column comes in the middle
        return bench

    several = [
        changed(update, key=(update.key[0] + chance.random.choice("123456"),))
        for _ in range(6)
        for update in chance.several(columns)
    ]
    switch = chance.random.randint(0, len(several))
    cuts = sorted(chance.random.randint(0, len(several)) for _ in range(2))
    running = Buckets(chance.random.randint(1, 4), {}, make_bench)
    for offset, update in enumerate(several):
        if offset in cuts:
            running = running.rescaled(chance.random.randint(1, 4), make_bench, registry=avro)
        # With a registry, versions may come in any order in each bucket.
        writer = chance.random.choice(writers) if avro else writers[offset >= switch]
        running.apply(writer.record(changed(update, source=writer.source), offset))
    now_s = 0
    if seed % 3 == 0:
        running = running.rescaled(chance.random.randint(1, 4), make_bench, registry=avro)
        now_s = 10
        for bench in running.benches:
            bench.expire(now_s)
    shown = {
        key: [{name: value for name, value in row.items() if name != "A"} for row in rows]
        for key, rows in running.benches[0].table().items()
    }
    assert shown == expected(Table(columns).apply_all(several).contents(now_s=now_s), columns)


def test_images_before_are_those_of_the_old_buckets() -> None:
    registry = MemoryRegistry()
    chance = Chance(5)
    several = chance.several(WIDE)
    written = Written(WIDE, registry)

    def make_bench() -> Bench:
        return Bench(registry=registry, input_encoding="avro", input_schemas=())

    running = Buckets(3, {}, make_bench)
    for offset, update in enumerate(several):
        if offset == len(several) // 2:
            running = running.rescaled(2, make_bench, registry=True)
        running.apply(written.record(update, offset))  # Bench compares each image before with the last event
    assert running.benches[0].table() == expected(Table(WIDE).apply_all(several).contents(), WIDE)


def test_a_bucket_takes_no_row_of_another_one() -> None:
    """Messages with several rows (UMS) go to all buckets that have one of them."""
    benches = [Bench(input_format="ums", key_columns=("id",)) for _ in range(3)]
    rows = [{"tuple": [str(number), "i", "2026-01-01 00:00:00.000000", str(number), "x"]} for number in range(20)]
    fields = [("ums_id_", "long"), ("ums_op_", "string"), ("ums_ts_", "datetime"), ("id", "long"), ("v", "string")]
    message = {
        "protocol": {"type": "data_increment_data"},
        "schema": {
            "namespace": "mysql.crm.shop.orders.1.0.0",
            "fields": [{"name": name, "type": kind, "nullable": False} for name, kind in fields],
        },
        "payload": rows,
    }
    record = InputRecord(b"k", json.dumps(message).encode(), 0, 0)
    assert buckets_of(benches[0].engine, record, 3) == [0, 1, 2]
    for number, bench in enumerate(benches):
        bench.engine.limit_to(number, 3)
        bench.apply(record)
    ids = [[row["id"] for row in bench.rows.values()] for bench in benches]
    assert all(ids)
    assert sorted(number for bench in ids for number in bench) == list(range(20))


def test_what_can_not_be_decoded_has_one_bucket() -> None:
    bench = Bench(input_format="ums", key_columns=("id",))
    assert buckets_of(bench.engine, InputRecord(b"k", b"no message", 0, 0), 3) == [0]
    assert buckets_of(bench.engine, InputRecord(b"k", None, 0, 0), 3) == [0]


def catalog(*seen: tuple[str, int | None, list[str]], tables: tuple[str, ...] = ("t",)) -> BucketCatalog:
    made_catalog = BucketCatalog()
    for ident, order, names in seen:
        made_catalog.add_signatures(ident, order, tables[-1], [], names)
    made_catalog.schema = made_catalog.versions[-1].ident if made_catalog.versions else ""
    return made_catalog


def test_catalogs_that_agree_change_nothing() -> None:
    longest = catalog(("a", None, ["x"]), ("b", None, ["x", "y"]))
    merged = merge_catalogs([longest, catalog(("a", None, ["x"])), BucketCatalog()], ordered_by_registry=False)
    assert merged.schema == "b"
    assert make_renumbering(longest, merged).changes_nothing
    assert make_renumbering(catalog(("a", None, ["x"])), merged).changes_nothing


def test_columns_that_buckets_met_in_another_order_are_renumbered() -> None:
    first = catalog(("a", 1, ["x"]), ("b", 2, ["x", "y"]), ("c", 3, ["x", "z"]))
    other = catalog(("c", 3, ["x", "z"]), ("b", 2, ["x", "y"]))
    merged = merge_catalogs([first, other], ordered_by_registry=True)
    assert [version.ident for version in merged.versions] == ["a", "b", "c"]
    assert merged.schema == "c"
    assert make_renumbering(first, merged).changes_nothing
    assert make_renumbering(other, merged).regular == {0: 0, 1: 2, 2: 1}


def test_versions_that_nobody_can_order_are_refused() -> None:
    with pytest.raises(Fatal, match="which is the newer one"):
        merge_catalogs(
            [catalog(("a", None, ["x"]), ("b", None, ["y"])), catalog(("a", None, ["x"]), ("c", None, ["z"]))],
            ordered_by_registry=False,
        )
    with pytest.raises(Fatal, match="which is the newer one"):
        merge_catalogs(
            [catalog(("a", None, ["x"]), ("b", None, ["y"])), catalog(("b", None, ["y"]), ("a", None, ["x"]))],
            ordered_by_registry=False,
        )


@given(st.binary(min_size=1, max_size=300), st.integers(1, 50))
def test_the_bucket_of_a_key_is_crc32_of_its_prefix(partition_key: bytes, buckets: int) -> None:
    prefix = partition_prefix(partition_key)
    assert bucket_of(prefix, buckets) == crc32(prefix) % buckets
