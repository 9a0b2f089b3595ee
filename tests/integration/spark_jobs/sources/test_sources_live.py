"""Sources over real Kafka, registry and Spark: the same events in every encoding, changed schemas, bad records, restarts."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stub forgets one

from connectors import schema as connect
from connectors.errors import Fatal
from connectors.schema import (
    INT64,
    OPTIONAL_BYTES,
    OPTIONAL_INT16,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    array,
    struct,
)
from spark_jobs.config.keys import FRAME
from spark_jobs.contract import RAW_COLUMNS, SYSTEM_COLUMNS, Batch, JobContext, TableChanges
from spark_jobs.sources.debezium import DebeziumSource
from spark_jobs.sources.plain import PlainSource
from spark_jobs.sources.ums import UmsSource
from spark_jobs.sources.updates import PartitionUpdateSource
from spark_jobs.spark.causes import cause_of
from worker.converters.avro import AvroConverter
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from compose.local.registry import SchemaRegistry
    from spark_jobs.contract import Source

KEY = struct("p.shop.orders.Key", {"id": INT64})
SOURCE = struct("p.Source", {"db": STRING, "table": STRING, "ts_us": OPTIONAL_INT64, "ums_id": OPTIONAL_INT64})
ROW: dict[str, Schema] = {
    "id": INT64,
    "name": OPTIONAL_STRING,
    "price": connect.decimal(2, optional=True),
    "day": connect.date(optional=True),
    "at": connect.timestamp(optional=True),
    "raw": OPTIONAL_BYTES,
    "tags": array(OPTIONAL_STRING, optional=True),
    "small": OPTIONAL_INT16,
    "sizes": connect.map_of(connect.INT32, OPTIONAL_STRING, optional=True),
    "pairs": array(struct("Pair", {"key": OPTIONAL_STRING, "value": connect.date(optional=True)}), optional=True),
}
VALUES = {
    "name": "n",
    "price": Decimal("-12.34"),
    "day": -1,
    "at": -1,
    "raw": b"\x00\xff",
    "tags": ["a", None],
    "small": -3,
    "sizes": {1: "a", 2: None},
    "pairs": [{"key": "x", "value": 1}],
}


def envelope(columns: dict[str, Schema]) -> Schema:
    row = struct("p.shop.orders.Value", columns, optional=True)
    return struct("p.shop.orders.Envelope", {"before": row, "after": row, "source": SOURCE, "op": STRING})


def event(
    op: str, number: int, *, values: dict[str, Any] | None = None, before: dict[str, Any] | None = None
) -> dict[str, Any]:
    after = None if op == "d" else {"id": number, **(VALUES if values is None else values)}
    return {
        "before": before,
        "after": after,
        "op": op,
        "source": {"db": "shop", "table": "orders", "ts_us": 1_000_000 + number, "ums_id": number},
    }


class Bench:
    """A topic, what is written to it, and sources over it."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, registry: str = "") -> None:
        self.spark, self.bootstrap, self.topic, self.registry = spark, bootstrap, topic, registry
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
        self.producer = Producer({"bootstrap.servers": bootstrap})

    def send(self, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        for key, value in records:
            self.producer.produce(self.topic, value, key)
        assert self.producer.flush(20) == 0

    def encode(
        self, encoding: str, schema: Schema, events: Sequence[dict[str, Any]], key: Schema = KEY
    ) -> list[tuple[bytes | None, bytes | None]]:
        async def run() -> list[tuple[bytes | None, bytes | None]]:
            converters: list[Any] = [
                AvroConverter({"schema.registry.url": self.registry}, is_key=is_key)
                if encoding == "avro"
                else JsonConverter({"schemas.enable": str(encoding == "enveloped").lower()}, is_key=is_key)
                for is_key in (True, False)
            ]
            keys, values = converters
            await keys.prepare(self.topic, key)
            await values.prepare(self.topic, schema)
            result = [
                (
                    keys.from_connect(
                        self.topic, key, {"id": (event.get("after") or event.get("before") or event)["id"]}
                    ),
                    values.from_connect(self.topic, schema, event),
                )
                for event in events
            ]
            for converter in converters:
                await converter.close()
            return result

        return asyncio.run(run())

    def source(self, kind: type[Source], encoding: str = "json", **options: str) -> Source:
        avro = {
            "source.value.encoding": "avro",
            "source.key.encoding": "avro",
            "source.schema.registry.url": self.registry,
        }
        raw = {
            "name": "sources",
            "kafka.bootstrap.servers": self.bootstrap,
            "source.topics": self.topic,
            "source.format": "x",
            "sink.type": "x",
            **(avro if encoding == "avro" else {}),
            **options,
        }
        definition = FRAME.extended([key for key in kind.config_def.keys.values() if key.name not in FRAME.keys])
        return kind(
            JobContext(
                "sources", definition.parse(raw), self.spark, logging.LoggerAdapter(logging.getLogger("test"), {})
            )
        )

    def changes(self, source: Source, start: int = 0, end: int | None = None) -> list[TableChanges]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "x"})
        high = consumer.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=20)[1] if end is None else end
        consumer.close()
        raw = (
            self.spark.read.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("assign", json.dumps({self.topic: [0]}))
            .option("startingOffsets", json.dumps({self.topic: {"0": start}}))
            .option("endingOffsets", json.dumps({self.topic: {"0": high}}))
            .option("includeHeaders", "true")
            .load()
            .select(*RAW_COLUMNS)
        )
        batch: Batch = Batch(0, raw, {(self.topic, 0): (start, high)}, lambda: source.changes(batch))
        tables = list(batch.changes())
        source.written()
        return tables


def rows(changes: TableChanges) -> list[dict[str, Any]]:
    assert changes.frame.columns == [*(column.name for column in changes.schema.columns), *SYSTEM_COLUMNS]
    return [row.asDict(recursive=True) for row in changes.frame.collect()]


@pytest.fixture(scope="module")
def bench(spark: SparkSession, bootstrap: str, registry: SchemaRegistry) -> Callable[[str], Bench]:
    run = secrets.token_hex(4)
    return lambda name: Bench(spark, bootstrap, f"src-{name}-{run}", registry.url)


def test_debezium_gives_the_same_rows_in_json_and_avro_over_changing_schemas_and_a_restart(
    bench: Callable[[str], Bench], tmp_path: Path
) -> None:
    results: list[Any] = []
    wide = {
        **{name: kind for name, kind in ROW.items() if name != "raw"},
        "small": OPTIONAL_INT32,
        "fresh": OPTIONAL_STRING,
    }
    for encoding in ("enveloped", "avro"):
        of = bench(f"debezium-{encoding}")
        old = of.encode(
            encoding,
            envelope(ROW),
            [event("c", 1), event("u", 1, before={"id": 1, **VALUES, "name": "old"}), event("d", 1, before={"id": 1})],
        )
        new = of.encode(
            encoding,
            envelope(wide),
            [
                event(
                    "r",
                    2,
                    values={
                        **{name: value for name, value in VALUES.items() if name != "raw"},
                        "small": 70_000,
                        "fresh": "f",
                    },
                )
            ],
        )
        # Schema ids change in the middle of a batch, and back again; a tombstone is nothing.
        of.send([*old, *new, old[0], (old[0][0], None)])
        options = {"checkpoint.location": f"{tmp_path}/{encoding}", "source.before.rows": "true"}
        tables = of.changes(of.source(DebeziumSource, encoding, **options))
        assert [table.schema.namespace for table in tables] == ["shop.orders"]
        schema = tables[0].schema
        assert [column.name for column in schema.key] == ["id"]
        first = rows(tables[0])
        restarted = of.changes(
            of.source(DebeziumSource, encoding, **options), 0, 1
        )  # a restart that meets the old schema only
        assert restarted[0].schema == schema
        assert rows(restarted[0]) == first[:1]
        for row in first:
            for name in ("ums_uid_", "kafka_topic_"):
                row[name] = row[name].replace(of.topic, "t")
        results.append(
            ([(column.name, column.type.simpleString(), column.nullable) for column in schema.columns], first)
        )
    assert results[0] == results[1]
    _, found_rows = results[0]
    assert [(row["id"], row["ums_op_"], row["name"], row["kafka_offset_"]) for row in found_rows] == [
        (1, "i", "n", 0),
        (1, "b", "old", 1),
        (1, "u", "n", 1),
        (1, "d", None, 2),
        (2, "i", "n", 3),
        (1, "i", "n", 4),
    ]
    assert [(row["small"], row["fresh"], row["raw"]) for row in found_rows[-2:]] == [
        (70_000, "f", None),
        (-3, None, bytearray(b"\x00\xff")),
    ]
    assert (
        str(found_rows[0]["price"]),
        str(found_rows[0]["day"]),
        found_rows[0]["sizes"],
        str(found_rows[0]["pairs"][0]["value"]),
    ) == ("-12.34", "1969-12-31", {1: "a", 2: None}, "1970-01-02")
    assert [row["ums_id_"] for row in found_rows] == [1, 1, 1, 1, 2, 1]


def test_json_without_a_schema_keeps_its_types_over_a_restart(bench: Callable[[str], Bench], tmp_path: Path) -> None:
    of = bench("loose")
    events = [
        {"op": "c", "after": {"id": 1, "n": 1, "o": {"a": 1}, "at": 5}, "source": {"db": "d", "table": table}}
        for table in ("t", "other")
    ]
    of.send([(b'{"id":1}', json.dumps(event).encode()) for event in events])
    options = {"checkpoint.location": str(tmp_path), "source.table.columns.d.t": "at timestamp"}
    tables = {table.schema.namespace: table for table in of.changes(of.source(DebeziumSource, **options))}
    assert {
        name: [(column.name, column.type.simpleString()) for column in table.schema.columns]
        for name, table in tables.items()
    } == {
        "d.t": [("id", "bigint"), ("at", "timestamp"), ("n", "bigint"), ("o", "string")],
        "d.other": [("id", "bigint"), ("n", "bigint"), ("o", "string"), ("at", "bigint")],
    }
    assert [row["at"].microsecond for row in rows(tables["d.t"])] == [5000]
    of.send(
        [
            (
                b'{"id":1}',
                json.dumps({"op": "u", "after": {"id": 1, "n": 1.5}, "source": {"db": "d", "table": "t"}}).encode(),
            ),
            (b'{"id":1}', json.dumps({"op": "d", "before": None, "source": {"db": "d", "table": "t"}}).encode()),
        ]
    )
    table = of.changes(of.source(DebeziumSource, **options), 2)[0]
    assert table.schema.columns[2].type.simpleString() == "double"
    assert [(row["id"], row["n"], row["ums_op_"]) for row in rows(table)] == [(1, 1.5, "u"), (1, None, "d")]


@pytest.mark.parametrize("encoding", ["enveloped", "avro"])
def test_bad_records_stop_with_their_position_or_go_to_the_dead_letters(
    bench: Callable[[str], Bench], encoding: str
) -> None:
    of, dead = bench(f"bad-{encoding}"), bench(f"dead-{encoding}")
    good = of.encode(encoding, envelope(ROW), [event("c", 1), event("u", 2), event("c", 3)])
    cut = (good[1][0], (good[1][1] or b"")[:-12])
    nonsense = (good[1][0], b"\x01nonsense")
    of.send([good[0], cut, good[2]])
    with pytest.raises(Exception, match="offset 1 can't be decoded") as failure:
        rows(of.changes(of.source(DebeziumSource, encoding))[0])
    if encoding == "enveloped":
        assert isinstance(cause_of(failure.value), Fatal)
    of.send([nonsense])
    tolerant = of.source(
        DebeziumSource, encoding, **{"errors.tolerance": "all", "errors.deadletterqueue.topic.name": dead.topic}
    )
    assert [row["id"] for row in rows(of.changes(tolerant)[0])] == [1, 3]
    consumer = Consumer({"bootstrap.servers": of.bootstrap, "group.id": "x", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(dead.topic, 0, 0)])
    letters = consumer.consume(2, 20)
    consumer.close()
    positions = {dict(letter.headers() or [])["__connect.errors.offset"]: letter.value() for letter in letters}
    assert positions == {b"1": cut[1], b"3": nonsense[1]}


@pytest.mark.parametrize("encoding", ["plain", "enveloped", "avro"])
def test_bad_records_define_nothing_and_are_put_aside_once(
    bench: Callable[[str], Bench], encoding: str, tmp_path: Path
) -> None:
    of, dead = bench(f"garbage-{encoding}"), bench(f"dead-garbage-{encoding}")
    columns: dict[str, Schema] = {"id": INT64, "name": OPTIONAL_STRING}
    values = {"name": "n"}
    good = of.encode(encoding, envelope(columns), [event("c", number, values=values) for number in (1, 2, 3)])
    nowhere = {"db": "", "table": "", "ts_us": None, "ums_id": None}
    (unknown,) = of.encode(
        encoding, envelope(columns), [{**event("c", 7, values=values), "op": "z", "source": nowhere}]
    )
    (empty,) = of.encode(
        encoding, envelope(columns), [{**event("c", 8, before={"id": 8}), "after": None, "source": nowhere}]
    )
    key = good[0][0]
    garbage = [unknown, (key, (good[0][1] or b"")[:-3]), empty, (key, b"nonsense"), (key, b"")]
    if encoding != "avro":
        garbage += [
            (None, b'{"op":"z","after":{"id":1}}'),
            (key, b'{"schema":{"type":"nonsense"},"payload":{}}'),
            (key, b'{"payload":{"op":"c"},"schema":{"type":"nonsense"}}'),
            (b"\xff", b'{"op":"c","after":{"name":"no key"},"source":{"db":"shop","table":"orders"}}'),
        ]
    of.send([*garbage, good[0], *garbage, good[1], good[2]])
    options = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": dead.topic,
        "checkpoint.location": str(tmp_path),
    }
    source = of.source(DebeziumSource, encoding, **options)
    for start in (0, len(garbage)):  # the second time the schemas are known
        (table,) = of.changes(source, start)
        assert (table.schema.namespace, [(column.name, column.key) for column in table.schema.columns]) == (
            "shop.orders",
            [("id", True), ("name", False)],
        )
        assert [(row["id"], row["name"], row["ums_id_"]) for row in rows(table)] == [(n, "n", n) for n in (1, 2, 3)]
    consumer = Consumer({"bootstrap.servers": of.bootstrap, "group.id": "x", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(dead.topic, 0, 0)])
    assert consumer.get_watermark_offsets(TopicPartition(dead.topic, 0), timeout=20)[1] == 3 * len(garbage)
    letters = consumer.consume(3 * len(garbage), 20)
    consumer.close()
    offsets = sorted(int(dict(letter.headers() or [])["__connect.errors.offset"] or b"") for letter in letters)
    size = len(garbage)
    assert offsets == sorted([*range(size), *range(size + 1, 2 * size + 1), *range(size + 1, 2 * size + 1)])


def test_flat_rows_tombstones_and_a_restart_with_nothing_but_a_tombstone(
    bench: Callable[[str], Bench], tmp_path: Path
) -> None:
    flat = struct(
        "p.shop.orders.Value",
        {"id": INT64, "name": OPTIONAL_STRING, "__deleted": OPTIONAL_STRING, "__op": OPTIONAL_STRING},
    )
    events = [{"id": 1, "name": "a", "__deleted": "false", "__op": op} for op in ("c", "u")] + [
        {"id": 1, "name": None, "__deleted": "true", "__op": "d"}
    ]
    for encoding in ("plain", "avro"):
        of = bench(f"flat-{encoding}")
        records = of.encode(encoding, flat, events)
        of.send([*records, (records[0][0], None)])
        options = {"checkpoint.location": f"{tmp_path}/{encoding}"}
        tables = of.changes(of.source(PlainSource, encoding, **options))
        assert [column.name for column in tables[0].schema.columns] == ["id", "name"]
        assert [(row["id"], row["name"], row["ums_op_"]) for row in rows(tables[0])] == [
            (1, "a", "i"),
            (1, "a", "u"),
            (1, None, "d"),
            (1, None, "d"),
        ]
        restarted = of.changes(of.source(PlainSource, encoding, **options), 3)
        assert [(row["id"], row["ums_op_"]) for row in rows(restarted[0])] == [(1, "d")]


def test_one_member_is_the_time_and_the_order(bench: Callable[[str], Bench]) -> None:
    flat = struct("p.shop.orders.Value", {"id": INT64, "__source_ts_ms": INT64})
    for encoding in ("plain", "avro"):
        of = bench(f"order-{encoding}")
        of.send(of.encode(encoding, flat, [{"id": 1, "__source_ts_ms": 1_700_000_000_123}]))
        (changes,) = of.changes(of.source(PlainSource, encoding, **{"source.order.field": "__source_ts_ms"}))
        assert [column.name for column in changes.schema.columns] == ["id"]
        (row,) = rows(changes)
        assert row["ums_id_"] == 1_700_000_000_123
        assert row["ums_ts_"].timestamp() == 1_700_000_000.123


def test_ums_and_raw_updates(bench: Callable[[str], Bench], tmp_path: Path) -> None:
    of = bench("ums")
    fields = [
        {"name": name, "type": kind, "nullable": True}
        for name, kind in (
            ("ums_id_", "long"),
            ("ums_ts_", "datetime"),
            ("ums_op_", "string"),
            ("ums_uid_", "string"),
            ("id", "long"),
            ("v", "string"),
        )
    ]

    def message(
        table: str, version: int, tuples: list[list[str | None]], protocol: str = "data_increment_data"
    ) -> bytes:
        return json.dumps(
            {
                "protocol": {"type": protocol},
                "schema": {"namespace": f"mysql.a.shop.{table}.{version}.0.0", "fields": fields},
                "payload": [{"tuple": values} for values in tuples],
            }
        ).encode()

    time = "2024-01-01 00:00:00.5"
    of.send(
        [
            (b"k", message("orders", 1, [["1", time, "i", "a", "1", "x"], ["2", time, "u", "b", "1", "y"]])),
            (b"k", message("lines", 1, [["1", time, "i", "c", "7", "x"]])),
            (b"k", message("orders", 2, [], "data_increment_heartbeat")),
            (b"k", message("orders", 2, [["3", time, "d", "d", "1", None]])),
        ]
    )
    source = of.source(UmsSource, **{"checkpoint.location": str(tmp_path), "source.key.columns": "id"})
    rows_by_table = {table.schema.namespace: rows(table) for table in of.changes(source)}
    assert {
        name: [(row["ums_id_"], row["ums_op_"], row["v"]) for row in table_rows]
        for name, table_rows in rows_by_table.items()
    } == {
        "mysql.a.shop.orders.2.0.0": [(1, "i", "x"), (2, "u", "y"), (3, "d", None)],
        "mysql.a.shop.lines.1.0.0": [(1, "i", "x")],
    }
    assert source.context.metrics["ums_heartbeats_total"] == 1
    updates = of.changes(of.source(PartitionUpdateSource))[0]
    assert [json.loads(row["update"])["protocol"]["type"][:14] for row in rows(updates)] == ["data_increment"] * 4
    assert updates.schema.key == ()
