"""A batch that is decoded in one pass gives what the careful way gives: tables, rows, dead letters and errors."""

from __future__ import annotations

import json
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.errors import MillraceError
from spark_jobs.causes import cause_of
from spark_jobs.config_keys import FRAME
from spark_jobs.contract import Batch, JobContext
from spark_jobs.dead_letters import DeadLetters
from spark_jobs.sources.debezium import DebeziumSource
from tests.selection import scaled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

RAW = "key binary, value binary, headers string, topic string, partition int, offset long, timestamp timestamp"
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
    ) -> None:
        definition = FRAME.extended(
            [key for key in DebeziumSource.config_def.keys.values() if key.name not in FRAME.keys]
        )
        raw = {"name": "n", "kafka.bootstrap.servers": "127.0.0.1:1", "source.format": "debezium", "sink.type": "x"}
        config = definition.parse(raw | {"source.topics": "t,u"} | dict(options or {}))
        self.context = JobContext("n", config, spark, logging.LoggerAdapter(logging.getLogger("test"), {}))
        self.source = DebeziumSource(self.context)
        self.spark = spark
        self.passes = Counter[bool]()
        single = self.source._decoding._fast.single
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
                None,
            )
            for offset, (topic, key, value) in enumerate(records)
        ]
        frame = self.spark.createDataFrame(rows, RAW).coalesce(1)
        topics = {topic for topic, _, _ in records}
        ranges = {(topic, 0): (100 * number, 100 * number + len(records)) for topic in topics}
        try:
            tables = []
            for changes in self.source.changes(Batch(number, frame, ranges, lambda: ())):
                rows_of_frame = changes.frame.collect()
                if changes.packed is not None:
                    unpacked = changes.packed.frame.mapInArrow(changes.packed.unpack, changes.frame.schema)
                    assert unpacked.collect() == rows_of_frame
                tables.append((changes.schema, [tuple(row) for row in rows_of_frame]))
            self.source.written()
        except Exception as error:
            cause = cause_of(error)
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
