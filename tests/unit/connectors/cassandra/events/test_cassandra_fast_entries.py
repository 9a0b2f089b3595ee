"""Mutations straight to bytes: for tables, values and options of every kind they are those of the general path, in order."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from connectors.api import Batch
from connectors.cassandra.events import build_events
from connectors.cassandra.events.contract import CassandraEventSettings, Where
from connectors.cassandra.events.fast_entries import CHUNK_ENTRIES, fast_entries
from connectors.cassandra.model import LogChunk, LogEntry
from connectors.cassandra.stream import CassandraStream
from connectors.cql.mutations.definition import CqlColumn, make_definition, parse_definition
from connectors.cql.mutations.encode import write_mutation, write_update
from connectors.cql.types import freeze_type
from connectors.encoded_parts import EncodedParts
from connectors.errors import ConfigInvalid
from connectors.formats.masks.masking import parse_rules
from connectors.formats.partition_update import Cell, CellStamp, PartitionUpdate, UpdateRow
from tests.support.both_paths import Delivered, Paths
from tests.support.local_avro import LocalAvro
from tests.support.mask_rules import mask_rules
from tests.support.settings import cassandra_events
from tests.support.transform_chains import chain, chains
from tests.unit.connectors.cassandra.events import test_cassandra_events_fast as world
from tests.unit.connectors.cassandra.events.test_cassandra_events_recorded import PARTS
from tests.unit.connectors.cassandra.test_cassandra_stream import MemoryDefinitions
from tests.unit.connectors.cql.mutation_world import KEYS, SOURCE, TABLE_ID, stamps, tables, updates, with_time
from tests.unit.connectors.cql.strategies import TYPES, values
from tests.unit.connectors.mysql.test_fast_rows import CHAINS
from worker.converters.avro_form.schema import AvroSettings
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.api import BadRecord, SourceRecord
    from connectors.cql.mutations.definition import CqlTableDefinition
    from worker.converters.base import Converter

LOG = logging.LoggerAdapter(logging.getLogger(__name__), {})
FORMS = ("debezium", "partition-update", "partition-update-raw")
READ_NS = 1_795_000_000_000_000_000


@pytest.fixture(autouse=True, scope="module")
def clock() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time_ns", lambda: READ_NS)
        yield


class AllCaptured(MemoryDefinitions):
    """All updates count."""

    def captured(self, table: CqlTableDefinition, segment: int) -> bool:
        del table, segment
        return True


def plain_json() -> Converter:
    return JsonConverter({"schemas.enable": "false"})


def json_with_schemas() -> Converter:
    return JsonConverter({"schemas.enable": "true"})


def avro() -> Converter:
    return LocalAvro(AvroSettings())


def chunk_of(mutations: Sequence[bytes], version: int) -> LogChunk:
    data, entries = b"", []
    for number, mutation in enumerate(mutations):
        entries.append(LogEntry(len(data), len(data) + len(mutation), 1000 * (number + 1)))
        data += mutation + b"\0\0\0\0"
    return LogChunk(77, version, data, entries, entries[-1].position)


class Delivery:
    """Everything that comes out of a chunk of the log on one of the paths."""

    def __init__(
        self,
        table: CqlTableDefinition,
        chunk: LogChunk,
        options: CassandraEventSettings,
        paths: Paths,
        *,
        fast: bool,
        limit: int = 1000,
    ) -> None:
        self.delivered: list[Delivered] = []
        self.bad: list[tuple[Any, ...]] = []
        self.encoded = 0
        stream = self.stream = CassandraStream(
            Where(partition={"node": "n"}, node="n", segment=0, version=0),
            None,
            AllCaptured(table),
            lambda definition, version: build_events(definition, version, options),
            LOG,
            paths.wire if fast else None,
        )
        stream._given_up.add((bytes.fromhex(table.table_id.replace("-", "")), "z"))
        number = 0
        while number < len(chunk.entries):
            out: list[SourceRecord] = []
            bad: list[BadRecord] = []
            asyncio.run(stream.agree())
            number = stream.take(chunk, number, limit, out, bad)
            self.encoded += stream.encoded.count
            batch = Batch(out, encoded=stream.encoded.collect())
            self.delivered += asyncio.run(paths.deliver(batch))
            self.bad += [(refusal.source_offset, str(refusal.error), refusal.raw) for refusal in bad]


def same(
    table: CqlTableDefinition,
    mutations: Sequence[bytes],
    options: CassandraEventSettings,
    *,
    version: int = 7,
    limit: int = 1000,
    converter: Callable[[], Converter] = plain_json,
    transforms: dict[str, str] | None = None,
) -> tuple[int, int]:
    """Compare both paths; returns how many records there are, and how many of them were bytes from the start."""
    chunk = chunk_of(mutations, version)
    general = Delivery(table, chunk, options, Paths(converter(), converter(), transforms), fast=False, limit=limit)
    paths = Paths(converter(), converter(), transforms)
    fast = Delivery(table, chunk, options, paths, fast=True, limit=limit)
    assert general.encoded == 0
    assert fast.delivered == general.delivered
    assert fast.bad == general.bad
    assert fast.stream.counts == general.stream.counts
    assert fast.stream.position == general.stream.position
    return len(fast.delivered), fast.encoded


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("limit", [1, 7, 10_000])
def test_ordinary_entries_and_others_between_them(limit: int, form: str) -> None:
    ordinary = [
        world._mutation(f"k{number}", world._row(number, CellStamp(world.T + number), a=number))
        for number in range(100)
    ]
    mutations = [*ordinary[:8], *world._mutations(), *ordinary]
    # The first batch of a table is records: the runtime is asked behind it.
    count, encoded = same(
        world.TABLE, [*mutations, *mutations], cassandra_events(topic_prefix="p", output_format=form), limit=limit
    )
    assert count > 250
    assert encoded > (100 if limit < 1000 else -1)


@pytest.mark.parametrize("form", FORMS)
def test_more_entries_than_are_encoded_in_one_call(form: str) -> None:
    ordinary = [
        world._mutation(f"k{number}", world._row(number, CellStamp(world.T + number), c='ä"\\\n😀\x00' * (number % 3)))
        for number in range(3 * CHUNK_ENTRIES + 9)
    ]
    options = cassandra_events(topic_prefix="p", output_format=form)
    for converter in (plain_json, json_with_schemas, avro):
        count, encoded = same(world.TABLE, ordinary, options, limit=150, converter=converter)
        assert count == len(ordinary)
        assert encoded == count - 150


@pytest.mark.parametrize("form", FORMS)
def test_recorded_mutations_are_the_same(form: str) -> None:
    """Each comes several times: code is made for a list of columns once it has been seen."""
    total = 0
    for part in PARTS.values():
        if part.get("snapshot"):
            continue
        options = cassandra_events(topic_prefix=part["prefix"], output_format=form, **part["options"])
        for name, text in part["definitions"].items():
            mutations = [
                write_mutation([bytes.fromhex(update)], part["version"])
                for table, _, update in part["updates"]
                if table == name
                for _ in range(6)
            ]
            if mutations:
                _, encoded = same(
                    parse_definition(json.dumps(text)),
                    mutations,
                    options,
                    version=part["version"],
                    limit=5,
                    converter=avro if form == "partition-update" else json_with_schemas,
                )
                total += encoded
    assert total > 100


@pytest.mark.parametrize("form", FORMS)
def test_records_are_made_again_also_when_the_decoder_has_forgotten_their_columns(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    ordinary = [
        world._mutation(f"k{number}", world._row(number, CellStamp(world.T + number), a=number)) for number in range(9)
    ]
    chunk = chunk_of(ordinary, 7)
    options = cassandra_events(topic_prefix="p", output_format=form)
    events: Any = build_events(world.TABLE, 7, options)
    where = Where(partition={"node": "n"}, node="n", segment=77, version=7, read_ms=5)
    for entry in chunk.entries:
        events.update(chunk.data, entry.start + 1, entry.end, where, [])
    paths = Paths(plain_json(), plain_json())
    fast = asyncio.run(fast_entries(paths.wire, events))
    assert fast is not None
    parts = EncodedParts()
    assert fast.take(chunk.data, chunk.entries, where, 0, parts) == len(ordinary)
    (part,) = parts.collect()
    expected = asyncio.run(paths.convert(part.records()))
    assert [record.position for record in expected] == [
        {"segment": 77, "position": 1000 * (number + 1), "index": 0, "finished": False} for number in range(9)
    ]
    assert paths.encoded(part) == expected
    monkeypatch.setattr(events, "entries", lambda *_: 0)
    assert asyncio.run(paths.convert(part.records())) == expected


KAFKA = "org.apache.kafka.connect.transforms"


@pytest.mark.parametrize(
    "transforms",
    [
        *CHAINS[:2],
        chain({"type": f"{KAFKA}.ReplaceField$Value", "include": "after,op"}),
        chain(
            {"type": f"{KAFKA}.ReplaceField$Value", "include": "after"},
            {"type": f"{KAFKA}.HoistField$Value", "field": "x"},
        ),
        chain(
            {"type": f"{KAFKA}.MaskField$Key", "fields": "k"},
            {"type": f"{KAFKA}.MaskField$Value", "fields": "op,ts_ms"},
        ),
    ],
)
def test_transformed_records_are_the_same(transforms: dict[str, str]) -> None:
    """Also where a transform would have to look into cells, which are structs: then they are records."""
    ordinary = [
        world._mutation(f"k{number}", world._row(number, CellStamp(world.T + number), a=number)) for number in range(20)
    ]
    options = cassandra_events(topic_prefix="server", output_format="debezium")
    for converter in (plain_json, json_with_schemas, avro):
        _, encoded = same(world.TABLE, ordinary, options, limit=10, converter=converter, transforms=transforms)
        assert encoded == (0 if transforms["transforms"] == "unwrap" else 10)


OPTIONS = st.builds(
    cassandra_events,
    topic_prefix=st.just("p"),
    output_format=st.sampled_from(FORMS),
    cluster=st.sampled_from(["", 'c"ä']),
    tombstones=st.booleans(),
    extended=st.booleans(),
    decimals=st.sampled_from(["double", "precise", "string"]),
    varints=st.sampled_from(["long", "precise", "string"]),
    logical=st.booleans(),
)
LIMITS = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@st.composite
def plain_tables(draw: st.DrawFn) -> CqlTableDefinition:
    """A table without collections, whose names every writer can write."""
    columns = [CqlColumn(f"k{index}", draw(KEYS), "partition_key", index) for index in range(draw(st.integers(1, 2)))]
    columns += [CqlColumn(f"c{index}", draw(KEYS), "clustering", index) for index in range(draw(st.integers(0, 2)))]
    columns += [CqlColumn(f"v{index}", freeze_type(draw(TYPES)), "regular") for index in range(draw(st.integers(1, 4)))]
    return make_definition("ks", "t", TABLE_ID, columns)


@given(st.data(), OPTIONS, st.sampled_from([7, 8]))
@LIMITS
def test_simple_rows_of_any_table_are_the_same(
    data: st.DataObject, options: CassandraEventSettings, version: int
) -> None:
    table = data.draw(plain_tables())
    excluded = data.draw(st.sets(st.sampled_from([f"{table}.{column.name}" for column in table.regular] or [""])))
    options = cassandra_events(
        **{name: getattr(options, name) for name in options.__struct_fields__} | {"excluded": frozenset(excluded)}
    )
    mutations = []
    for _ in range(data.draw(st.integers(1, 3))):
        stamp = data.draw(stamps(version) | st.just(CellStamp(world.T)))
        cells = tuple(
            Cell(column.name, None, data.draw(st.none() | values(column.type)), stamp)
            for column in sorted(table.regular, key=lambda column: column.name)
            if data.draw(st.booleans())
        )
        row = UpdateRow(
            clustering=tuple(data.draw(values(column.type)) for column in table.clustering),
            # Cassandra writes no row that has neither.
            liveness=data.draw(st.sampled_from([None, stamp])) if cells else stamp,
            cells=cells,
        )
        key = tuple(data.draw(values(column.type)) for column in table.key)
        update = with_time(PartitionUpdate(source=SOURCE, key=key, write_time=0, rows=(row,)))
        mutations.append(write_mutation([write_update(update, table, version)], version))
    repeated = [mutation for mutation in mutations for _ in range(6)]
    same(table, repeated, options, version=version, limit=4)
    transforms = data.draw(chains([column.name for column in table.columns]))
    converter = data.draw(st.sampled_from([plain_json, json_with_schemas, avro]))
    same(table, repeated, options, version=version, limit=4, converter=converter, transforms=transforms)


@given(st.data(), OPTIONS, st.sampled_from([7, 8, 9]))
@LIMITS
def test_any_updates_of_any_table_are_the_same(
    data: st.DataObject, options: CassandraEventSettings, version: int
) -> None:
    table = data.draw(tables())
    mutations = [
        write_mutation([write_update(data.draw(updates(table, version)), table, version)], version) for _ in range(2)
    ]
    repeated = [mutation for mutation in mutations for _ in range(5)]
    same(table, repeated, options, version=version, limit=4, converter=data.draw(st.sampled_from([plain_json, avro])))


@given(st.data(), OPTIONS.filter(lambda options: options.output_format != "partition-update-raw"))
@LIMITS
def test_masked_tables_are_the_same(data: st.DataObject, options: CassandraEventSettings) -> None:
    """Also rows whose values a mask refuses, and updates of every kind."""
    table = data.draw(plain_tables() | tables())
    columns = [column.name for column in table.regular if not column.type.is_multicell]
    if options.output_format == "debezium" or not columns:
        columns += [column.name for column in table.key]
    options = msgspec.structs.replace(options, masks=data.draw(mask_rules(columns, salt=table.key[0].name)))
    try:
        build_events(table, 7, options)
    except ConfigInvalid:
        assume(False)
    mutations = [
        write_mutation([write_update(data.draw(updates(table, 7)), table, 7)], 7)
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    repeated = [mutation for mutation in mutations for _ in range(5)]
    same(table, repeated, options, limit=4, converter=data.draw(st.sampled_from([plain_json, json_with_schemas, avro])))


@pytest.mark.parametrize("form", ["debezium", "partition-update"])
@pytest.mark.parametrize("converter", [plain_json, json_with_schemas, avro])
def test_masked_rows_are_bytes(form: str, converter: Callable[[], Converter]) -> None:
    ordinary = [
        world._mutation(f"k{number}", world._row(number, CellStamp(world.T + number), a=number, c=f"secret{number}"))
        for number in range(20)
    ]
    rules = {"mask.rules": "a", "mask.a.columns": r"ks\.t\.[ac]", "mask.a.type": "hash"}
    options = cassandra_events(topic_prefix="p", output_format=form, masks=parse_rules(rules))
    assert same(world.TABLE, ordinary, options, limit=5, converter=converter) == (20, 15)


def test_where_only_records_will_do() -> None:
    converter = plain_json()
    wire = Paths(converter, converter).wire
    rules = {"mask.rules": "a", "mask.a.columns": r"ks\.t\.c", "mask.a.type": "hash"}

    def encoder_of(version: int = 7, **options: Any) -> object:
        chosen = cassandra_events(**{"topic_prefix": "p", "output_format": "debezium", **options})
        return asyncio.run(fast_entries(wire, build_events(world.TABLE, version, chosen)))

    for form in FORMS:
        assert encoder_of(output_format=form) is not None
        assert encoder_of(version=9, output_format=form) is None
    assert encoder_of(masks=parse_rules(rules)) is not None
    assert encoder_of(masks=parse_rules({**rules, "mask.a.salt.field": "pk"})) is None
