"""Log rows straight to bytes: for histories, types, values and options of every kind they are those of the general path."""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from connectors.api import Batch
from connectors.cql.debezium_names import ValueForms
from connectors.cql.types import CqlType, freeze_type
from connectors.cql.values import BadCell
from connectors.encoded_parts import EncodedParts
from connectors.errors import ConfigInvalid
from connectors.formats.masks.masking import parse_rules
from connectors.scylla.events import build_events
from connectors.scylla.events.fast_rows import CHUNK_ROWS, FastFeed, fast_feed
from connectors.scylla.model import (
    INSERT,
    PARTITION_DELETE,
    POSTIMAGE,
    PREIMAGE,
    ROW_DELETE,
    UPDATE,
    ScyllaColumn,
    StreamRun,
)
from tests.support.both_paths import Delivered, Paths
from tests.support.local_avro import LocalAvro
from tests.support.mask_rules import mask_rules
from tests.support.settings import scylla_events
from tests.support.transform_chains import SCYLLA_FLATTEN, SCYLLA_UNWRAP, UNWRAP, chain, chains
from tests.unit.connectors.cql.strategies import TYPES, natives, values
from tests.unit.connectors.mysql.test_fast_rows import CHAINS
from tests.unit.connectors.scylla.events import golden_cases, making
from tests.unit.connectors.scylla.events_forms import strategies
from tests.unit.connectors.scylla.events_forms.model import VERSION, version_of
from worker.converters.avro_form.schema import AvroSettings
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.api import BadRecord, SourceRecord
    from connectors.scylla.events.contract import ScyllaEventSettings
    from connectors.scylla.model import LogRow, TableVersion


KAFKA = "org.apache.kafka.connect.transforms"


def json(**options: str) -> JsonConverter:
    return JsonConverter(
        {"schemas.enable": "false", **{name.replace("_", "."): value for name, value in options.items()}}
    )


class Both:
    """One table on both paths; what is refused of a run is in ``bad``."""

    def __init__(
        self, version: TableVersion, options: ScyllaEventSettings, *, paths: Paths | None = None, **converter: str
    ) -> None:
        self.paths = paths or Paths(json(**converter), json(**converter))
        self.general: Any = build_events(version, options, lambda: 5.0)
        self.other: Any = build_events(version, options, lambda: 5.0)
        self.fast: FastFeed | None = asyncio.run(fast_feed(self.paths.wire, self.other))
        self.encoded = 0

    def check(self, runs: Sequence[StreamRun], *, all_fast: bool = False) -> list[Delivered]:
        """Feed runs to both; the records have to be the same."""
        records: list[SourceRecord] = []
        refused: list[BadRecord] = []
        for run in runs:
            self.general.feed(run, records, refused)
        expected = asyncio.run(self.paths.convert(records))
        delivered, bad, ends = self._fast(runs)
        assert delivered == expected
        assert [str(refusal.error) for refusal in bad] == [str(refusal.error) for refusal in refused]
        assert [refusal.source_offset for refusal in bad] == [refusal.source_offset for refusal in refused]
        assert self.other.skipped == self.general.skipped
        for end, offset in ends if len(expected) == len(records) else ():
            assert offset == expected[end - 1].position
        if all_fast:
            assert self.encoded == len(expected)
        return expected

    def _fast(self, runs: Sequence[StreamRun]) -> tuple[list[Delivered], list[BadRecord], list[tuple[int, Any]]]:
        """As the reader does it; also the offsets that go with what is encoded, and how many records come before them."""
        out: list[SourceRecord] = []
        bad: list[BadRecord] = []
        ends = []
        parts = EncodedParts()
        fast = self.fast
        split = (
            [(run, False) for run in runs] if fast is None else [part for run in runs for part in fast.split_run(run)]
        )
        for is_encodable, group in groupby(split, lambda part: part[1]):
            held = [run for run, _ in group]
            if fast is not None and is_encodable and fast.take(held, len(out), parts):
                ends.append((len(out) + parts.count, fast.offset_of(held[-1])))
                continue
            for run in held:
                if fast is not None and is_encodable and fast.take([run], len(out), parts):
                    ends.append((len(out) + parts.count, fast.offset_of(run)))
                else:
                    self.other.feed(run, out, bad)
        self.encoded = parts.count
        batch = Batch(out, encoded=parts.collect())
        return asyncio.run(self.paths.deliver(batch)), bad, ends


def paths_in(form: str, transforms: dict[str, str] | None = None) -> Paths:
    if form == "avro":
        return Paths(LocalAvro(AvroSettings()), LocalAvro(AvroSettings()), transforms)
    envelope = "true" if form == "json with schemas" else "false"
    return Paths(json(schemas_enable=envelope), json(schemas_enable=envelope), transforms)


def run_of(rows: Sequence[LogRow], **more: Any) -> StreamRun:
    return StreamRun(making.PARTITION, making.OFFSET, list(rows), last=True, **more)


@pytest.mark.parametrize(("name", "run"), golden_cases.runs())
@pytest.mark.parametrize("form", ["json", "json with schemas", "avro"])
def test_recorded_rows_are_the_same(name: str, run: str, form: str) -> None:
    case = golden_cases.load(name)
    version = golden_cases.table_of(case)
    paths = paths_in(form)
    both = Both(version, golden_cases.settings_of(case["runs"][run]["config"]), paths=paths)
    rows = golden_cases.rows_of(case, version)
    assert len(both.check([run_of(rows)])) == len(case["runs"][run]["records"])
    both.check([run_of([row]) for row in rows])


SCYLLA_CHAINS = [
    *CHAINS,
    chain({"type": SCYLLA_UNWRAP, "add.fields": "op,source.ts_us,ttl", "add.headers": "keyspace_name"}),
    chain({"type": SCYLLA_UNWRAP, "cdc.output.format": "advanced"}),
    chain({"type": SCYLLA_FLATTEN}),
    chain({"type": SCYLLA_FLATTEN}, {"type": UNWRAP, "delete.tombstone.handling.mode": "rewrite"}),
    chain(
        {"type": SCYLLA_UNWRAP, "delete.tombstone.handling.mode": "drop"},
        {"type": f"{KAFKA}.ReplaceField$Value", "exclude": "n", "renames": "c2:number"},
        {"type": f"{KAFKA}.MaskField$Value", "fields": "number,pk"},
        {"type": f"{KAFKA}.InsertField$Value", "topic.field": "topic"},
    ),
]


@pytest.mark.parametrize("transforms", SCYLLA_CHAINS)
@pytest.mark.parametrize("form", ["json", "avro"])
def test_transformed_records_are_the_same(transforms: dict[str, str], form: str) -> None:
    """Also where a transform has to look into cells, which are structs. Deletions are records where rows are unwrapped."""
    for extra in ((), (ScyllaColumn("w", CqlType("int"), "regular"),)):
        version = making.table(*extra)
        rows = [making.row(version, 1, 0, operation, pk=1, c1="a", c2=2, n=3) for operation in (1, 2, 3)]
        rows.insert(0, making.row(version, 1, 0, UPDATE, pk=1, c1="a", c2=2))
        both = Both(version, scylla_events(topic_prefix="p"), paths=paths_in(form, transforms))
        both.check([run_of(rows[:3])], all_fast=True)
        both.check([run_of(rows[:2]), run_of([*rows, *rows])])
        assert not both.paths.problems
        assert both.encoded >= 2 + 3 + 3


OPTIONS = st.one_of(
    st.builds(
        scylla_events,
        topic_prefix=st.just("p"),
        legacy_columns=st.sampled_from(["scalar", "all"]),
        tombstones=st.booleans(),
        deletes_mode=st.sampled_from(["rows", "events"]),
        preimages=st.sampled_from([False, False, False, True]),
        compat=st.sampled_from([frozenset(), frozenset({"java"}), frozenset({"null-udt"})]),
        names=st.builds(
            ValueForms,
            st.sampled_from(["string", "double", "precise"]),
            st.sampled_from(["string", "precise"]),
            st.booleans(),
        ),
        skipped_operations=st.sampled_from([frozenset(), frozenset(), frozenset({"u"}), frozenset({"r"})]),
        collections_mode=st.sampled_from(["values", "values", "delta"]),
    ),
    st.builds(
        scylla_events,
        topic_prefix=st.just("p"),
        output_format=st.just("advanced"),
        include_after=st.sampled_from(["none", "none", "full"]),
        tombstones=st.booleans(),
        deletes_mode=st.sampled_from(["rows", "events"]),
        key_placement=st.sets(
            st.sampled_from(["kafka-key", "payload-after", "payload-before", "payload-key"]), max_size=4
        ).map(frozenset),
    ),
)
LIMITS = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@given(st.data(), OPTIONS)
@LIMITS
def test_random_histories_are_the_same(data: st.DataObject, options: ScyllaEventSettings) -> None:
    """Deletions of ranges and partitions, images, and runs that end anywhere; what is odd goes the general way, in order."""
    changes, _ = data.draw(strategies.histories())
    runs = data.draw(strategies.runs(changes))
    Both(VERSION, options, schemas_enable=data.draw(st.sampled_from(["false", "true"]))).check(runs)
    names = [column.name for column in VERSION.columns]
    transforms = data.draw(chains(names, (UNWRAP, SCYLLA_UNWRAP), ({"type": SCYLLA_FLATTEN},)))
    Both(VERSION, options, paths=paths_in("json", transforms)).check(runs)


@given(st.data(), OPTIONS.filter(lambda options: not options.preimages and options.include_after == "none"))
@LIMITS
def test_values_of_all_types_are_the_same(data: st.DataObject, options: ScyllaEventSettings) -> None:
    kinds = data.draw(st.lists(TYPES, min_size=1, max_size=4))
    keys = data.draw(st.lists(natives(), min_size=2, max_size=2))
    version = version_of(
        [
            ("p", keys[0], "partition_key", 0),
            ("c", keys[1], "clustering", 0),
            *((f"v{number}", kind, "regular") for number, kind in enumerate(kinds)),
        ]
    )
    rows = []
    for number in range(data.draw(st.integers(1, 4))):
        operation = data.draw(st.sampled_from([INSERT, UPDATE, ROW_DELETE, PREIMAGE, POSTIMAGE]))
        cells = {"p": data.draw(values(keys[0])), "c": data.draw(values(keys[1]))}
        for index, kind in enumerate(kinds):
            whole = data.draw(st.none() | values(freeze_type(kind)))
            if whole is not None and kind.is_multicell and kind.name == "list":
                whole = [(making.time_of(element), item) for element, item in enumerate(whole)]
            cells[f"v{index}"] = whole
            cells[f"deleted_v{index}"] = data.draw(st.sampled_from([None, True]))
        rows.append(making.row(version, number // 2, number, operation, ttl=data.draw(st.none() | st.just(5)), **cells))
    both = Both(version, options)
    both.check([run_of(rows)])
    if both.fast is not None and any(row[3] in (INSERT, UPDATE, ROW_DELETE) for row in rows) and not both.paths.refused:
        assert both.encoded
    names = ["p", "c", *(f"v{number}" for number in range(len(kinds)))]
    transforms = data.draw(chains(names, (UNWRAP, SCYLLA_UNWRAP), ({"type": SCYLLA_FLATTEN},)))
    form = data.draw(st.sampled_from(["json", "json with schemas", "avro"]))
    Both(version, options, paths=paths_in(form, transforms)).check([run_of([row]) for row in rows])


@given(st.data(), OPTIONS)
@LIMITS
def test_masked_tables_are_the_same(data: st.DataObject, options: ScyllaEventSettings) -> None:
    masks = data.draw(mask_rules([column.name for column in VERSION.columns], salt=VERSION.columns[0].name))
    options = msgspec.structs.replace(options, masks=masks)
    try:
        build_events(VERSION, options)
    except ConfigInvalid:
        assume(False)
    changes, _ = data.draw(strategies.histories())
    avro = data.draw(st.booleans())
    Both(VERSION, options, paths=paths_in("avro") if avro else None).check(data.draw(strategies.runs(changes)))


@pytest.mark.parametrize("form", ["json", "json with schemas", "avro"])
@pytest.mark.parametrize("columns", ["v", "pk|n", "c1|v|n"])
def test_masked_rows_are_bytes(form: str, columns: str) -> None:
    rules = {"mask.rules": "a", "mask.a.columns": rf"ks\.t\.({columns})", "mask.a.type": "hash"}
    version = making.table(ScyllaColumn("w", CqlType("int"), "regular"))
    rows = [
        making.row(version, number, 0, operation, pk=number, c1="secret", c2=2, n=number, v="secret", deleted_n=True)
        for number, operation in enumerate([INSERT, UPDATE, ROW_DELETE] * 5)
    ]
    for more in ({}, {"output_format": "advanced", "key_placement": frozenset({"kafka-key", "payload-key"})}):
        options = scylla_events(topic_prefix="p", tombstones=True, masks=parse_rules(rules), **more)
        records = Both(version, options, paths=paths_in(form)).check([run_of(rows)], all_fast=True)
        assert records


def test_long_runs_are_encoded_in_chunks() -> None:
    version = making.table(clustering=False)
    rows = [
        making.row(version, number // 3, number, (INSERT, UPDATE, ROW_DELETE, PARTITION_DELETE)[number % 4], pk=number)
        for number in range(3 * CHUNK_ROWS + 1)
    ]
    for form in ("json with schemas", "avro"):
        Both(version, scylla_events(topic_prefix="p"), paths=paths_in(form)).check([run_of(rows)], all_fast=True)
    both = Both(version, scylla_events(topic_prefix="p"))
    both.check([run_of(rows)], all_fast=True)
    assert both.encoded > len(rows)


def test_text_and_numbers_that_writers_treat_differently() -> None:
    version = version_of([("p", "text", "partition_key", 0), ("d", "double", "regular"), ("f", "float", "regular")])
    strings = ['"\\/\b\f\n\r\t\x00\x01\x1f\x7f', "\x80é", "ä€漢😀", "\u2028\u2029\ufeff", '},{"id":', ""]
    doubles = [float("nan"), float("inf"), -0.0, 1e300, 5e-324]
    rows = [
        making.row(version, number, 0, INSERT, p=string, d=doubles[number % 5], f=doubles[number % 3])
        for number, string in enumerate(strings)
    ]
    Both(version, scylla_events(topic_prefix="p")).check([run_of(rows)], all_fast=True)


def test_a_bad_cell_and_a_row_that_was_delivered_go_the_general_way() -> None:
    version = making.table()
    rows = [
        making.row(
            version,
            number,
            0,
            INSERT,
            pk=number,
            c1="a",
            c2=1,
            v=BadCell(b"\xff", ValueError("no")) if number == 1 else "x",
        )
        for number in range(3)
    ]
    both = Both(version, scylla_events(topic_prefix="p"))
    assert len(both.check([run_of(rows)])) == 2
    assert both.encoded == 0
    good = [rows[0], rows[2]]
    assert len(both.check([run_of(good, skip=(rows[0][1], 0)), run_of(good)])) == 3
    assert both.encoded == 2


def test_records_keep_their_order_around_an_odd_run() -> None:
    version = making.table()
    runs = [
        run_of([making.row(version, 1, 0, INSERT, pk=1, c1="a", c2=1)]),
        run_of([making.row(version, 2, 0, PARTITION_DELETE, pk=1)]),
        run_of([making.row(version, 3, 0, UPDATE, pk=1, c1="a", c2=2)]),
    ]
    both = Both(version, scylla_events(topic_prefix="p", deletes_mode="events"))
    assert [record.value is not None and b'"op":"d"' in record.value for record in both.check(runs)] == [
        False,
        True,
        False,
    ]
    assert both.encoded == 2


def test_where_only_records_will_do() -> None:
    paths = Paths(json(), json())

    def encoder_of(version: TableVersion, **options: Any) -> FastFeed | None:
        return asyncio.run(fast_feed(paths.wire, build_events(version, scylla_events(topic_prefix="p", **options))))

    version = making.table()
    rules = {"mask.rules": "a", "mask.a.columns": r"ks\.t\.v", "mask.a.type": "hash"}
    assert encoder_of(version) is not None
    assert encoder_of(version, masks=parse_rules(rules)) is not None
    assert encoder_of(version, output_format="advanced") is not None
    for options in (
        {"output_format": "partition-update"},
        {"output_format": "ums"},
        {"preimages": True},
        {"collections_mode": "delta"},
        {"skipped_operations": frozenset({"c"})},
        {"output_format": "advanced", "include_before": "full"},
        {"output_format": "advanced", "key_placement": frozenset({"kafka-key", "kafka-headers"})},
        {"masks": parse_rules({**rules, "mask.a.salt.field": "pk"})},
    ):
        assert encoder_of(version, **options) is None, options
