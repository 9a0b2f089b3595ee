"""A batch that is decoded in one pass gives what the careful way gives: tables, rows, dead letters and errors."""

from __future__ import annotations

import io
import json
import logging
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from connectors.errors import MillraceError
from spark_jobs.config.keys import FRAME
from spark_jobs.contract import Batch, JobContext
from spark_jobs.dead_letters import DeadLetters
from spark_jobs.sources.debezium import DebeziumSource
from spark_jobs.spark.causes import cause_of
from tests.selection import scaled
from worker.converters.avro_form.read import without_logical_types

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

RAW = (
    "key binary, value binary, headers array<struct<key:string,value:binary>>, topic string, partition int, offset long, "
    "timestamp timestamp"
)
Record = tuple[str, bytes | None, bytes | None]


class Reader:
    """A source over batches of records."""

    def __init__(
        self,
        spark: SparkSession,
        patch: pytest.MonkeyPatch,
        *,
        careful: bool = False,
        options: Mapping[str, str] | None = None,
        schemas: Mapping[int, str] | None = None,
    ) -> None:
        definition = FRAME.extended(
            [key for key in DebeziumSource.config_def.keys.values() if key.name not in FRAME.keys]
        )
        raw = {"name": "n", "kafka.bootstrap.servers": "127.0.0.1:1", "source.format": "debezium", "sink.type": "x"}
        config = definition.parse(raw | {"source.topics": "t,u"} | dict(options or {}))
        self.context = JobContext("n", config, spark, logging.LoggerAdapter(logging.getLogger("test"), {}))
        self.source = DebeziumSource(self.context)
        # Schemas of a registry, as if they had been asked for before.
        self.source._kinds._schema_texts.update(schemas or {})
        self.spark = spark
        self.passes = Counter[bool]()
        single = self.source._fast.single
        decode = single.decode

        def counted(*arguments: Any) -> Any:
            decoded = decode(*arguments)
            self.passes[decoded is not None] += 1
            return decoded

        # Try each batch, also after one that was not regular; or none.
        patch.setattr(single, "due", lambda: not careful)
        patch.setattr(single, "decode", counted)

    def read(self, number: int, records: Sequence[Record]) -> Any:
        """Each table of a batch with its columns and rows, and the count of dead letters; or the error."""
        rows = [
            (
                None if key is None else bytearray(key),
                None if value is None else bytearray(value),
                None,
                topic,
                0,
                100 * number + offset,
                datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
            )
            for offset, (topic, key, value) in enumerate(records)
        ]
        frame = self.spark.createDataFrame(rows, RAW).coalesce(1)
        topics = {topic for topic, _, _ in records}
        ranges = {(topic, 0): (100 * number, 100 * number + len(records)) for topic in topics}
        try:
            tables = []
            takes_rows = number % 2 == 0
            for changes in self.source.changes(Batch(number, frame, ranges, lambda: (), takes_rows)):
                rows_of_frame = changes.frame.collect()
                packed = changes.packed
                if packed is not None:
                    unpacked = packed.frame.mapInArrow(packed.unpack, changes.frame.schema)
                    assert unpacked.collect() == rows_of_frame
                    assert (packed.rows is not None) == takes_rows
                    if packed.rows is not None:
                        assert list(packed.rows) == [bytes(row["data"]) for row in packed.frame.collect()]
                tables.append((changes.schema, [tuple(row) for row in rows_of_frame]))
            self.source.written()
        except Exception as error:
            cause = cause_of(error)
            if isinstance(cause, PySparkException):  # what the JVM says of Avro that it can't read
                return str(cause).splitlines()[0]
            if not isinstance(cause, MillraceError):
                raise
            return str(cause)
        counter = DeadLetters.of(self.context).counter
        return sorted(tables, key=lambda table: table[0].namespace), counter.value


def envelope(
    op: str, after: Any, before: Any = None, table: str = "orders", number: int = 1, **more: Any
) -> dict[str, Any]:
    source = {"connector": "mysql", "db": "shop", "table": table, "file": "b.000003", "pos": number, "ts_us": 5} | more
    return {"before": before, "after": after, "source": source, "op": op}


def dumped(event: Any) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "id": st.integers(1, 5),
    "count": st.one_of(st.none(), st.integers(-5, 5)),
    "name": st.one_of(st.none(), st.text(max_size=3)),
    "ratio": st.one_of(st.none(), st.floats(-2, 2, width=16)),
    "paid": st.one_of(st.none(), st.booleans()),
    "empty": st.none(),
}
ROWS = st.fixed_dictionaries(VALUES)
ODD_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "count": st.sampled_from([1.0, 1.5, "1", True, 1 << 63, 1 << 70]),
    "ratio": st.sampled_from([1, "x", 1 << 70, False]),
    "paid": st.sampled_from([0, "true"]),
    "fresh": st.sampled_from([None, 1, "x"]),
    "name": st.sampled_from([1, ["a"], {"b": None}]),
    "id": st.sampled_from([None, 1.0, "1"]),
}
ODD_ROWS = st.builds(lambda row, changed: row | changed, ROWS, st.fixed_dictionaries({}, optional=ODD_VALUES))


@st.composite
def loose_records(draw: st.DrawFn, rows: st.SearchStrategy[Any]) -> Record:
    op = draw(st.sampled_from("cruud"))
    image = draw(rows)
    other = draw(st.one_of(st.none(), rows)) if op != "d" else None
    event = envelope(
        op, None if op == "d" else image, image if op == "d" else other, number=draw(st.integers(1, 10**6))
    )
    key = draw(st.sampled_from([{"id": 1}, {"id": 2}, None]))
    return "t", None if key is None else dumped(key), dumped(event)


ROW = {"id": 1, "count": 1, "name": "n", "ratio": 0.5, "paid": True, "empty": None}
SPECIAL: list[Record] = [
    ("t", None, None),
    ("t", None, b"no JSON"),
    ("t", b'{"id":1}', dumped(envelope("m", None))),
    ("t", b'{"id":1}', dumped(envelope("t", None))),
    ("t", b'{"id":1}', dumped(envelope("x", ROW))),
    ("t", b'{"id":1}', dumped(envelope("u", None))),
    ("t", b'{"id":1}', dumped(envelope("d", None))),
    ("t", b'{"id":1}', dumped(envelope("c", ROW, table="others"))),
    ("t", b'{"other":1}', dumped(envelope("c", ROW))),
    ("t", b'{"id":"x"}', dumped(envelope("c", ROW))),
    ("t", b'{"id":1}', dumped(envelope("c", {"count": 1, "name": "n"}))),
    ("t", b'{"id":1}', dumped(envelope("c", ROW, file="no number"))),
    ("t", b'{"id":1}', dumped(envelope("c", ROW, database_partition=1, table_partition=2))),
    ("t", b'{"id":1}', dumped(envelope("c", ROW) | {"schema": {"type": "string"}, "payload": {}})),
]


def typed(event: Any, columns: Sequence[str], *, key: bool) -> Record:
    """A record of topic u, with a schema in it."""
    kinds = {"id": "int64", "count": "int64", "name": "string", "ratio": "double", "paid": "boolean", "empty": "string"}
    fields = [{"field": name, "type": kinds[name], "optional": name != "id"} for name in columns]
    members = {"connector": "string", "db": "string", "table": "string", "file": "string", "pos": "int64"}
    row = {"type": "struct", "optional": True, "fields": fields}
    source = {
        "type": "struct",
        "field": "source",
        "fields": [{"field": name, "type": kind} for name, kind in members.items()],
    }
    schema = {
        "type": "struct",
        "fields": [
            row | {"field": "before"},
            row | {"field": "after"},
            source,
            {"field": "op", "type": "string"},
        ],
    }
    key_schema = {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}
    return (
        "u",
        dumped({"schema": key_schema, "payload": {"id": 1}}) if key else None,
        dumped({"schema": schema, "payload": event}),
    )


@st.composite
def typed_records(draw: st.DrawFn) -> Record:
    columns = draw(st.sampled_from([list(VALUES), list(VALUES), ["id", "name"]]))
    image = {name: draw(VALUES[name]) for name in columns}
    op = draw(st.sampled_from("cud"))
    event = envelope(op, None if op == "d" else image, image if op == "d" else None, table="items")
    key = draw(st.sampled_from([True, True, True, False]))
    return typed(event, columns, key=key)


FIRST: list[Record] = [
    ("t", b'{"id":1}', dumped(envelope("c", ROW))),
    typed(envelope("c", ROW, table="items"), list(ROW), key=True),
]
REGULAR = st.lists(st.one_of(loose_records(ROWS), typed_records()), min_size=1, max_size=8)
ANY = st.lists(
    st.one_of(loose_records(ROWS), loose_records(ODD_ROWS), typed_records(), st.sampled_from(SPECIAL)),
    min_size=1,
    max_size=6,
)


@pytest.mark.slow  # a minute and a half
@pytest.mark.scaled
@settings(
    max_examples=scaled(10, 150),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    st.lists(st.one_of(REGULAR, ANY), min_size=1, max_size=3),
    st.sampled_from(["none", "all"]),
    st.sampled_from(["", "count bigint", "count decimal(10,2), ratio string"]),
)
def test_both_ways_give_the_same(
    spark: SparkSession, batches: list[list[Record]], tolerance: str, declared: str
) -> None:
    options = {"errors.tolerance": tolerance} | ({"source.table.columns": declared} if declared else {})
    with pytest.MonkeyPatch.context() as patch:
        short, careful = Reader(spark, patch, options=options), Reader(spark, patch, careful=True, options=options)
        for number, records in enumerate([FIRST, *batches]):
            expected = careful.read(number, records)
            assert short.read(number, records) == expected
            assert short.source.schemas() == careful.source.schemas()
            if isinstance(expected, str):
                break
        assert not careful.passes


def test_batches_that_show_nothing_new_take_one_pass(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(spark, monkeypatch)
    for number in range(3):
        tables, bad = reader.read(number, FIRST * 3)
        assert [(schema.namespace, len(rows)) for schema, rows in tables] == [("shop.items", 3), ("shop.orders", 3)]
        assert bad == 0
    assert reader.passes == {True: 2}
    wider = ("t", b'{"id":1}', dumped(envelope("c", ROW | {"fresh": 1})))
    (_, (schema, rows)), _ = reader.read(3, [*FIRST, wider])
    assert "fresh" in [column.name for column in schema.columns]
    assert len(rows) == 2
    assert reader.passes == {True: 2, False: 1}


AVRO = {
    "source.value.encoding": "avro",
    "source.key.encoding": "avro",
    "source.schema.registry.url": "http://127.0.0.1:1",
}


def maybe(kind: Any) -> Any:
    return ["null", kind]


def annotated(kind: str, **more: Any) -> Any:
    return {"type": kind, **more}


def unscaled(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "connect.name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}
NESTED = {
    "type": "record",
    "name": "Nested",
    "fields": [
        {"name": "n", "type": maybe("int")},
        {"name": "day", "type": annotated("int", logicalType="date")},
        {"name": "price", "type": maybe(annotated("bytes", logicalType="decimal", precision=9, scale=2))},
        {"name": "tax", "type": annotated("fixed", name="Tax", size=2, logicalType="decimal", precision=4, scale=1)},
    ],
}
UNSCALED = st.one_of(st.integers(-(10**6), 10**6), st.integers(-(10**30), 10**30)).map(unscaled)
MILLIS = st.integers(-(10**10), 10**12)
#: Types of columns, with values as they are written.
AVRO_TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(1 << 31), (1 << 31) - 1)),
    ("long", st.integers(-(1 << 63), (1 << 63) - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text(max_size=5)),
    ("bytes", st.binary(max_size=5)),
    (annotated("int", **{"connect.type": "int16"}), st.integers(-(1 << 15), (1 << 15) - 1)),
    (annotated("int", logicalType="date"), st.integers(-700_000, 2_000_000)),
    (annotated("int", logicalType="time-millis"), st.integers(0, 86_399_999)),
    (annotated("long", logicalType="time-micros"), st.integers(-(10**12), 10**12)),
    (annotated("long", logicalType="timestamp-millis"), MILLIS),
    (annotated("long", logicalType="timestamp-micros"), MILLIS.map(lambda value: value * 1000 + 1)),
    (annotated("long", **{"connect.name": "io.debezium.time.NanoTimestamp"}), MILLIS.map(lambda v: v * 1000 + 1)),
    (
        annotated("string", **{"connect.name": "io.debezium.time.ZonedTimestamp"}),
        st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
    ),
    (annotated("string", **{"connect.name": "io.debezium.time.IsoDate"}), st.dates().map(str)),
    (annotated("bytes", logicalType="decimal", precision=30, scale=2), UNSCALED),
    (VARIABLE, st.builds(lambda scale, value: {"scale": scale, "value": value}, st.integers(-3, 5), UNSCALED)),
    (annotated("enum", name="Color", symbols=["RED", "GREEN"]), st.sampled_from(["RED", "GREEN"])),
    (annotated("fixed", name="Four", size=4), st.binary(min_size=4, max_size=4)),
    (
        annotated("fixed", name="Price", size=8, logicalType="decimal", precision=12, scale=2),
        st.integers(-(10**12), 10**12).map(lambda number: number.to_bytes(8, "big", signed=True)),
    ),
    (annotated("array", items=maybe("long")), st.lists(st.none() | st.integers(-5, 5), max_size=3)),
    (
        annotated("map", values=maybe("string")),
        st.dictionaries(st.text(max_size=2), st.none() | st.text(max_size=2), max_size=3),
    ),
    (
        NESTED,
        st.builds(
            lambda n, day, price: {"n": n, "day": day, "price": price, "tax": b"\xff\xf4"},
            st.none() | st.integers(-5, 5),
            st.integers(-5, 5),
            st.none() | UNSCALED,
        ),
    ),
]
SOURCE_MEMBERS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "connector": ("string", st.sampled_from(["mysql", "scylla", "x"])),
    "db": ("string", st.just("shop")),
    "table": (maybe("string"), st.just("items")),
    "file": (maybe("string"), st.sampled_from([None, "", "b.000003", "b.000004"])),
    "pos": ("long", st.integers(0, 10**11)),
    "row": (maybe("int"), st.none() | st.integers(0, 10)),
    "lsn": (maybe("long"), st.none() | st.integers(0, 10**12)),
    "ts_us": (maybe("long"), st.none() | MILLIS),
    "ts_ms": (maybe("long"), st.none() | MILLIS),
    "ums_id": (maybe("long"), st.none() | st.integers(0, 10**12)),
    "query": (maybe("string"), st.none() | st.text(max_size=5)),
}


class AvroTable:
    """A table whose events are Avro: schemas by id, and what writes a record.

    Args:
        columns: types of the columns other than ``id``.
        key_in_row: whether rows repeat the key.
        number: the id of the schema of values.
    """

    KEY = 8

    def __init__(self, columns: Mapping[str, Any], *, key_in_row: bool = True, number: int = 7) -> None:
        self._number = number
        fields = [{"name": name, "type": kind} for name, kind in columns.items()]
        if key_in_row:
            fields.insert(0, {"name": "id", "type": maybe("long")})
        value = {"type": "record", "name": "Value", "fields": fields}
        source = {
            "type": "record",
            "name": "Source",
            "fields": [{"name": name, "type": kind} for name, (kind, _) in SOURCE_MEMBERS.items()],
        }
        block = {"type": "record", "name": "Block", "fields": [{"name": "id", "type": "string"}]}
        envelope = {
            "type": "record",
            "name": "Envelope",
            "namespace": "s.shop.items",
            "fields": [
                {"name": "before", "type": maybe(value)},
                {"name": "after", "type": maybe("Value")},
                {"name": "source", "type": source},
                {"name": "transaction", "type": maybe(block)},
                {"name": "op", "type": "string"},
                {"name": "ts_ms", "type": maybe("long")},
            ],
        }
        key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
        self.schemas = {number: json.dumps(envelope), self.KEY: json.dumps(key)}
        self._parsed = {
            schema_id: fastavro.parse_schema(without_logical_types(schema))
            for schema_id, schema in ((number, envelope), (self.KEY, key))
        }

    def written(self, number: int, value: Any) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, self._parsed[number], value)
        return b"\0" + number.to_bytes(4, "big") + stream.getvalue()

    def record(self, event: Any, key: int | None) -> Record:
        return "t", None if key is None else self.written(self.KEY, {"id": key}), self.written(self._number, event)


def avro_event(op: str, after: Any, before: Any = None, **source: Any) -> dict[str, Any]:
    members: dict[str, Any] = dict.fromkeys(SOURCE_MEMBERS)
    members |= {"connector": "mysql", "db": "shop", "table": "items", "file": "b.000003", "pos": 5} | source
    return {"before": before, "after": after, "source": members, "transaction": None, "op": op, "ts_ms": 1}


@st.composite
def avro_batches(draw: st.DrawFn) -> tuple[AvroTable, list[list[Record]]]:
    """A random table, and batches of its records: regular ones, and some that are not."""
    chosen = draw(st.lists(st.sampled_from(AVRO_TYPES), min_size=1, max_size=8, unique_by=id))
    columns = {f"c{number}": maybe(kind) for number, (kind, _) in enumerate(chosen)}
    key_in_row = draw(st.sampled_from([True, True, False]))
    table = AvroTable(columns, key_in_row=key_in_row)
    members: dict[str, Any] = {f"c{number}": st.none() | values for number, (_, values) in enumerate(chosen)}
    if key_in_row:
        members["id"] = st.integers(1, 5)
    rows = st.fixed_dictionaries(members)
    sources = st.fixed_dictionaries({name: values for name, (_, values) in SOURCE_MEMBERS.items()})

    def regular() -> Record:
        op = draw(st.sampled_from("cruud"))
        image, old = draw(rows), draw(st.none() | rows)
        event = avro_event(op, None if op == "d" else image, old, **draw(sources))
        event["transaction"] = draw(st.none() | st.just({"id": "t"}))
        return table.record(event, draw(st.integers(1, 5)))

    def special() -> Record:
        image = draw(rows)
        broken = table.record(avro_event("c", image), 1)
        return draw(
            st.sampled_from(
                [
                    ("t", broken[1], None),
                    ("t", broken[1], b"\0"),
                    ("t", broken[1], (broken[2] or b"")[:-2]),
                    ("t", broken[1], (broken[2] or b"") + b"\0"),
                    table.record(avro_event("m", None), 1),
                    table.record(avro_event("t", None), 1),
                    table.record(avro_event("x", image), 1),
                    table.record(avro_event("u", None), 1),
                    table.record(avro_event("d", image), 1),
                    table.record(avro_event("c", image, file="no number"), 1),
                    table.record(avro_event("c", image, pos=-1), 1),
                    table.record(avro_event("c", image | ({"id": None} if key_in_row else {})), 3),
                ]
            )
        )

    first = [table.record(avro_event("c", draw(rows)), 1)]
    batches = [first]
    for _ in range(2):
        batch = [regular() for _ in range(draw(st.integers(1, 8)))]
        if draw(st.sampled_from([False, False, True])):
            batch.insert(draw(st.integers(0, len(batch))), special())
        batches.append(batch)
    return table, batches


@pytest.mark.scaled
@settings(
    max_examples=scaled(2, 60),
    deadline=None,
    phases=(Phase.reuse, Phase.generate),  # a case takes seconds: looking for a smaller one would take many minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(avro_batches(), st.sampled_from(["none", "all"]))
def test_both_ways_give_the_same_rows_of_avro(
    spark: SparkSession, drawn: tuple[AvroTable, list[list[Record]]], tolerance: str
) -> None:
    table, batches = drawn
    options = AVRO | {"errors.tolerance": tolerance}
    with pytest.MonkeyPatch.context() as patch:
        short = Reader(spark, patch, options=options, schemas=table.schemas)
        careful = Reader(spark, patch, careful=True, options=options, schemas=table.schemas)
        for number, records in enumerate(batches):
            expected = careful.read(number, records)
            assert short.read(number, records) == expected
            assert short.source.schemas() == careful.source.schemas()
            if isinstance(expected, str):
                break
        assert not careful.passes


def test_batches_of_avro_that_show_nothing_new_take_one_pass(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    types = {f"c{number}": maybe(kind) for number, (kind, _) in enumerate(AVRO_TYPES)}
    table = AvroTable(types)
    row = dict.fromkeys(types) | {"id": 1}
    reader = Reader(spark, monkeypatch, options=AVRO, schemas=table.schemas)
    records = [
        table.record(avro_event("c", row), 1),
        table.record(avro_event("d", None, row), 1),
        table.record(avro_event("d", None), 2),
    ]
    for number in range(3):
        ((schema, rows),), bad = reader.read(number, records)
        assert (schema.namespace, bad) == ("shop.items", 0)
        assert [(values[0], values[-5]) for values in rows] == [(1, "i"), (1, "d"), (2, "d")]
    assert reader.passes == {True: 2}
    (tables, _) = reader.read(3, [*records, table.record(avro_event("m", None), 1)])
    assert len(tables[0][1]) == 3
    assert reader.passes == {True: 2, False: 1}


@pytest.mark.parametrize("careful", [True, False])
@pytest.mark.parametrize("form", ["avro", "json", "json with schemas"])
def test_an_update_that_changes_a_declared_key_deletes_the_old_row(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, form: str, careful: bool
) -> None:
    table = AvroTable({"name": maybe("string")})

    def change(op: str, name: str, old: str | None = None) -> Record:
        row, before = {"id": 1, "name": name}, None if old is None else {"id": 1, "name": old}
        if form == "avro":
            return table.record(avro_event(op, row, before), 1)
        event = envelope(op, row, before)
        return ("t", b'{"id":1}', dumped(event)) if form == "json" else typed(event, ["id", "name"], key=True)

    options = {"source.key.columns": "name"} | (AVRO if form == "avro" else {})
    reader = Reader(spark, monkeypatch, careful=careful, options=options, schemas=table.schemas)
    same = [change("c", "a"), change("u", "a", "a"), change("u", "a")]
    moved = [change("u", "b", "a"), change("u", "b", "b")]
    for number, (records, expected) in enumerate(
        [(same, "ia ua ua"), (same, "ia ua ua"), (moved, "da ib ub"), (same, "ia ua ua")]
    ):
        ((schema, rows),), bad = reader.read(number, records)
        assert ([column.name for column in schema.key], bad) == (["name"], 0)
        assert " ".join(values[-5] + values[0] for values in rows) == expected
        assert len({values[-4] for values in rows}) == len(rows)
    assert reader.passes == ({} if careful else {True: 2, False: 1})


def test_rows_of_an_older_schema_take_one_pass_after_a_table_has_changed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9}
    old = AvroTable({"n": "int", "price": maybe(decimal | {"scale": 1}), "day": maybe(AVRO_TYPES[8][0])})
    new = AvroTable(
        {
            "n": "long",
            "fresh": maybe("string"),
            "price": maybe(decimal | {"scale": 3}),
            "day": maybe(AVRO_TYPES[11][0]),
        },
        number=9,
    )
    before = old.record(avro_event("c", {"id": 1, "n": 5, "price": unscaled(-12), "day": -1}), 1)
    after = new.record(avro_event("u", {"id": 1, "n": 1 << 40, "fresh": "x", "price": unscaled(7), "day": 1}), 1)
    schemas = old.schemas | new.schemas
    reader = Reader(spark, monkeypatch, options=AVRO, schemas=schemas)
    careful = Reader(spark, monkeypatch, careful=True, options=AVRO, schemas=schemas)
    for number, records in enumerate([[before], [before, after], [before, after, after, before], [after], [before]]):
        assert reader.read(number, records) == careful.read(number, records)
    assert reader.passes == {True: 3, False: 1}
    assert not careful.passes


@pytest.mark.parametrize("careful", [True, False])
def test_decimals_of_a_fixed_size_are_decimals(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, careful: bool
) -> None:
    kind = annotated("fixed", name="Price", size=8, logicalType="decimal", precision=12, scale=2)
    table = AvroTable({"price": maybe(kind), "nested": maybe(NESTED)})
    row = {"id": 1, "price": (-12345).to_bytes(8, "big", signed=True)}
    row["nested"] = {"n": None, "day": 0, "price": unscaled(7), "tax": b"\xff\xf4"}
    reader = Reader(spark, monkeypatch, careful=careful, options=AVRO, schemas=table.schemas)
    for number in range(2):
        (((_, (values,)),), bad) = reader.read(number, [table.record(avro_event("c", row), 1)])
        assert (values[1], values[2].price, values[2].tax, bad) == (
            Decimal("-123.45"),
            Decimal("0.07"),
            Decimal("-1.2"),
            0,
        )
